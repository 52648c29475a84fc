"""What a family's transformer gets and fills: tokens or a C++ name in, fields out."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from kanalyze.profiles.names.cpp import Arg, Comp, Qualified, number, truth
from kanalyze.profiles.names.grammar import UNKNOWN, Parsed, Token
from kanalyze.profiles.names.name import Basis, Field, Span, Value
from kanalyze.profiles.names.words import INSTRUCTIONS, KEYS, arch_name, cpp_dtype, words


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
        table: what ``families.toml`` says of the family; its bases are those of fields that are
            noted without one.
    """

    __slots__ = ("base", "cut", "fields", "name", "partial", "table", "text", "tokens", "unknown")

    def __init__(
        self,
        text: str,
        parsed: Parsed,
        base: int,
        cut: bool,
        name: Qualified,
        table: Mapping[str, Any],
    ) -> None:
        """Start with no fields; words of unknown meaning are noted at once."""
        self.text = text
        self.tokens = parsed.tokens
        self.partial = parsed.partial
        self.base = base
        self.cut = cut
        self.name = name
        self.table = table
        self.fields: list[Field] = []
        self.unknown: list[Span] = [
            Span(t.text, base + t.start, base + t.end)
            for t in self.tokens
            if t.name.startswith(UNKNOWN)
        ]

    def declared(self) -> None:
        """Note what the family's table says (see the head of ``families.toml``)."""
        table = self.table
        if table.get("named"):
            self.named(skip=table.get("skip", ()))
        if table.get("epilogue"):
            self.epilogue()
        if arch := self.one("ARCH_DIGITS"):
            self.arch(arch)
        for word, facts in table.get("beginning", {}).items():
            for key, value in facts.items():
                self.add_span(key, value, self.base, self.base + len(word))
        for names, facts in table.get("tokens", {}).items():
            token = next(filter(None, map(self.one, names.split("|"))), None)
            if token is not None and ("needs" not in facts or self.has(facts["needs"])):
                for key, value in facts.items():
                    stated = _stated(value, token.text)
                    if key != "needs" and stated != "":
                        self.add(key, stated, token)
        if table.get("function") and self.name.path:
            self.function()
        if "begins" in table and self.name.last.complete:
            self.begins(table["begins"])

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

    def _basis(self, key: str) -> Basis:
        table = self.table
        basis: Basis = table.get("bases", {}).get(key, table.get("basis", "documented"))
        return basis

    def add(self, key: str, value: Value | None, token: Token, basis: Basis | None = None) -> None:
        """Note that ``token`` states ``key``; None (a word without a meaning) notes the word."""
        start, end = self.base + token.start, self.base + token.end
        if value is None:
            self.unknown.append(Span(token.text, start, end))
        else:
            self.add_span(key, value, start, end, basis)

    def add_span(
        self, key: str, value: Value | None, start: int, end: int, basis: Basis | None = None
    ) -> None:
        """Note that ``text[start:end]`` states ``key``; nothing when the value is None."""
        if value is not None:
            basis = basis or self._basis(key)
            self.fields.append(Field(self.text[start:end], start, end, key, value, basis))

    def named(self, basis: Basis | None = None, skip: Collection[str] = ()) -> None:
        """Note every token whose name is a key in upper case; digits become numbers."""
        for token in self.tokens:
            key = token.name.lower()
            if key in KEYS and key not in skip:
                self.add(key, _stated("$", token.text), token, basis)

    def arch(self, token: Token, basis: Basis | None = None) -> None:
        """Note ``arch`` and ``arch_name`` from the digits of a compute capability."""
        self.add("arch", f"sm{token.text}", token, basis)
        spelled = arch_name(token.text)
        if spelled:
            self.add("arch_name", spelled, token, basis)

    def instruction(self) -> Token | None:
        """Note M, N and K of the matrix instruction ``INST``, and return the token."""
        inst = self.one("INST")
        if inst:
            for key, value in zip("mnk", INSTRUCTIONS.get(inst.text, ()), strict=False):
                self.add(f"inst_{key}", value, inst)
        return inst

    def epilogue(self, *names: str) -> None:
        """Note the epilogue words (``EPI``, or tokens of these names) as one field over all."""
        words = list(self.all(*(names or ("EPI",))))
        if words:
            texts = ["aux" if word.name == "EPI_AUX" else word.text for word in words]
            start, end = self.base + words[0].start, self.base + words[-1].end
            value = tuple(dict.fromkeys(texts)) if names else tuple(texts)
            self.add_span("epilogue_in_name", value, start, end)

    # C++ names --------------------------------------------------------------------------------

    def function(self, comp: Comp | None = None) -> None:
        """Note the function's name, or its beginning when the name is cut there."""
        comp = comp or self.name.last
        if comp.complete:
            self.add_span("function", comp.text, comp.start, comp.end)
        else:
            known = comp.text.rpartition("_")[0]
            if known:
                self.add_span("function_prefix", known, comp.start, comp.start + len(known))

    def begins(self, table: Mapping[str, Sequence[str]], word: str | None = None) -> None:
        """Note the operation of a function whose name (``word``, if given) begins so."""
        comp = self.name.last
        for op, beginnings in table.items():
            for beginning in beginnings:
                if (comp.text if word is None else word).startswith(beginning):
                    end = comp.start + len(beginning.rstrip("_"))
                    return self.add_span("op", op, comp.start, end)

    def number(self, key: str, arg: Arg) -> None:
        """Note a template argument that is a number."""
        if arg.complete:
            value = number(self.text[arg.start : arg.end])
            self.add_span(key, value, arg.start, arg.end)

    def truth(self, key: str, arg: Arg) -> None:
        """Note a template argument that is a bool."""
        if arg.complete:
            self.add_span(key, truth(self.text[arg.start : arg.end]), arg.start, arg.end)

    def dtype(self, key: str, arg: Arg) -> None:
        """Note a template argument that is an element type."""
        if arg.complete:
            self.add_span(key, cpp_dtype(self.text[arg.start : arg.end]), arg.start, arg.end)


def _stated(value: Any, text: str) -> Value | None:
    """What a word says by its entry in ``families.toml``; None: no known meaning, "": nothing."""
    if isinstance(value, str) and value.startswith("@"):
        value = words(value[1:])
    if isinstance(value, dict):
        value = value.get(text, value.get("*"))
    if value == "$" and text.isdigit():
        return int(text)
    if isinstance(value, str):
        return value.replace("$", text)
    return tuple(value) if isinstance(value, list) else value
