"""AMD's Composable Kernel and CK-Tile: the function; the template parameters change by version."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note the function and the library."""
    r.function()
    if root := r.one("ROOT"):
        r.add("library", root.text, root)
        r.add("vendor", "amd", root)
