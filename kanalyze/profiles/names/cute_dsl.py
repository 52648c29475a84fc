"""CUTLASS's CuTe DSL: ``kernel_cutlass_kernel_…_object_at_…``; only the generator is readable."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note the generator."""
    if word := r.one("GENERATED"):
        r.add("generator", "cute_dsl", word, "observed")
