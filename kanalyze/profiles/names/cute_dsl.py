"""CUTLASS's CuTe DSL: ``kernel_cutlass_kernel_…_object_at_…``; only the generator is readable."""

from __future__ import annotations

from kanalyze.profiles.names.reading import Reading


def transform(r: Reading) -> None:
    """Note the generator."""
    if word := r.one("GENERATED"):
        r.add("generator", "cute_dsl", word, "observed")
