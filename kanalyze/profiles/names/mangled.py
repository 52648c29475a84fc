"""A mangled name that was cut or cannot be demangled: the function, where its length shows it."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.text.mangling import leading_names


def transform(r: NameFields) -> None:
    """Note the function of a name that begins with length-prefixed names."""
    names = leading_names(r.text)
    if names:
        function, start = names[-1]
        r.add_span("function", function, start, start + len(function))
