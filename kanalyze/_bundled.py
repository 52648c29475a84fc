"""Where the folders that ship with kanalyze lie, installed or not."""

from __future__ import annotations

from pathlib import Path


def folder(name: str) -> Path:
    """Return the folder ``name`` ("kernels" or "grammars").

    In an installed package it lies inside ``kanalyze/``; in a checkout, beside it.

    Raises:
        FileNotFoundError: the installation is incomplete.
    """
    here = Path(__file__).resolve().parent
    for candidate in (here / name, here.parent / name):
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"kanalyze is incompletely installed: no folder {name!r} in {here}")
