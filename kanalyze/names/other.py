"""Any other function: only its name."""

from __future__ import annotations

from kanalyze.names.cpp import ANONYMOUS
from kanalyze.names.reading import Reading


def transform(r: Reading) -> None:
    """Note the function's name."""
    if r.name.path and r.name.last.text not in (ANONYMOUS, "lambda"):
        r.function(basis="inferred")
