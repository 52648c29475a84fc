"""Kernel names: ``decode(name)`` tells what a GPU kernel's name states, and nothing else."""

from __future__ import annotations

from kanalyze.names.decode import Row, decode, explain
from kanalyze.names.families import FAMILIES, Family, families
from kanalyze.names.keys import KEYS
from kanalyze.names.name import Field, KernelName, Span

__all__ = [
    "FAMILIES",
    "KEYS",
    "Family",
    "Field",
    "KernelName",
    "Row",
    "Span",
    "decode",
    "explain",
    "families",
]
