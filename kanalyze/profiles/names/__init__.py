"""Kernel names: ``decode(name)`` tells what a GPU kernel's name states, and nothing else."""

from __future__ import annotations

from kanalyze.profiles.names.decode import NamePart, decode, explain
from kanalyze.profiles.names.families import FAMILIES, Family, families
from kanalyze.profiles.names.name import Field, KernelName, Span
from kanalyze.profiles.names.words import KEYS

__all__ = [
    "FAMILIES",
    "KEYS",
    "Family",
    "Field",
    "KernelName",
    "NamePart",
    "Span",
    "decode",
    "explain",
    "families",
]
