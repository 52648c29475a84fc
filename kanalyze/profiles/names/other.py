"""Any other function: only its name."""

from __future__ import annotations

from kanalyze.profiles.names.cpp import ANONYMOUS
from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note the function's name."""
    if not r.name.path or r.name.last.text in (ANONYMOUS, "lambda"):
        return
    # What is cut behind a return type may be a namespace as well as the function.
    if r.name.last.complete or (len(r.name.path) == 1 and r.name.last.start == 0):
        r.function()
