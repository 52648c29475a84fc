"""What a family's transformer gets and fills: tokens or a C++ name in, fields out."""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.profiles.names.cpp import Arg, Comp, Qualified, number, truth
from kanalyze.profiles.names.grammar import UNKNOWN, Parsed, Token
from kanalyze.profiles.names.keys import KEYS
from kanalyze.profiles.names.name import Basis, Field, Span, Value
from kanalyze.profiles.names.words import arch_name, cpp_dtype


class Reject(Exception):
    """Raised by a transformer: the name has the family's shape but is not one of its names."""


class NameFields:
    """One name on its way through one family.

    Attributes:
        text: the whole text.
        tokens: what the family's grammar read, in order.
        partial: the token that the cut runs through, if any.
        base: place of the grammar's text in the whole text.
        cut: the grammar's text was cut at its end.
        name: the C++ name, for families of C++ templates.
    """

    __slots__ = ("base", "cut", "fields", "name", "partial", "text", "tokens", "unknown")

    def __init__(self, text: str, parsed: Parsed, base: int, cut: bool, name: Qualified) -> None:
        """Start with no fields; words of unknown meaning are noted at once."""
        self.text = text
        self.tokens = parsed.tokens
        self.partial = parsed.partial
        self.base = base
        self.cut = cut
        self.name = name
        self.fields: list[Field] = []
        self.unknown: list[Span] = [
            Span(t.text, base + t.start, base + t.end)
            for t in self.tokens
            if t.name.startswith(UNKNOWN)
        ]

    # Tokens -----------------------------------------------------------------------------------

    def all(self, *names: str) -> Iterator[Token]:
        """Yield the tokens with one of these names, in order."""
        return (token for token in self.tokens if token.name in names)

    def one(self, name: str) -> Token | None:
        """Return the first token of that name."""
        return next(self.all(name), None)

    def has(self, name: str) -> bool:
        """Whether there is a token of that name."""
        return self.one(name) is not None

    # Fields -----------------------------------------------------------------------------------

    def add(self, key: str, value: Value | None, token: Token, basis: Basis = "documented") -> None:
        """Note that ``token`` states ``key``; None (a word without a meaning) notes the word."""
        start, end = self.base + token.start, self.base + token.end
        if value is None:
            self.unknown.append(Span(token.text, start, end))
        else:
            self.fields.append(Field(token.text, start, end, key, value, basis))

    def add_span(
        self, key: str, value: Value | None, start: int, end: int, basis: Basis = "documented"
    ) -> None:
        """Note that ``text[start:end]`` states ``key``; nothing when the value is None."""
        if value is not None:
            self.fields.append(Field(self.text[start:end], start, end, key, value, basis))

    def named(self, basis: Basis = "documented", /, **bases: Basis) -> None:
        """Note every token whose name is a key in upper case; digits become numbers."""
        for token in self.tokens:
            key = token.name.lower()
            if key in KEYS:
                value: Value = int(token.text) if token.text.isdigit() else token.text
                self.add(key, value, token, bases.get(key, basis))

    def arch(self, token: Token, basis: Basis = "documented") -> None:
        """Note ``arch`` and ``arch_name`` from the digits of a compute capability."""
        self.add("arch", f"sm{token.text}", token, basis)
        spelled = arch_name(token.text)
        if spelled:
            self.add("arch_name", spelled, token, basis)

    def epilogue(self, names: str = "EPI", basis: Basis = "observed") -> None:
        """Note the epilogue words as one field over all of them."""
        words = list(self.all(names))
        if words:
            start, end = self.base + words[0].start, self.base + words[-1].end
            self.add_span("epilogue_in_name", tuple(w.text for w in words), start, end, basis)

    # C++ names --------------------------------------------------------------------------------

    def function(self, comp: Comp | None = None, basis: Basis = "documented") -> None:
        """Note the function's name, or its beginning when the name is cut there."""
        comp = comp or self.name.last
        if comp.complete:
            self.add_span("function", comp.text, comp.start, comp.end, basis)
        else:
            known = comp.text.rpartition("_")[0]
            if known:
                end = comp.start + len(known)
                self.add_span("function_prefix", known, comp.start, end, basis)

    def number(self, key: str, arg: Arg, basis: Basis = "documented") -> None:
        """Note a template argument that is a number."""
        if arg.complete:
            value = number(self.text[arg.start : arg.end])
            self.add_span(key, value, arg.start, arg.end, basis)

    def truth(self, key: str, arg: Arg, basis: Basis = "documented") -> None:
        """Note a template argument that is a bool."""
        if arg.complete:
            value = truth(self.text[arg.start : arg.end])
            self.add_span(key, value, arg.start, arg.end, basis)

    def dtype(self, key: str, arg: Arg, basis: Basis = "documented") -> None:
        """Note a template argument that is an element type."""
        if arg.complete:
            self.add_span(key, cpp_dtype(self.text[arg.start : arg.end]), arg.start, arg.end, basis)
