"""Reads C++ declarations as demanglers and profilers spell them; one pass, no recursion.

:func:`read` splits ``void at::native::f<4, G<int> >(int)`` into the components ``at``, ``native``
and ``f`` with its template arguments; an argument is read in turn only when a family asks for it.
Coped with: return types, ``(anonymous namespace)`` and ``<unnamed>``, operators, the spellings of
lambdas (``{lambda(int)#1}``, ``[lambda(int) (instance 1)]``, ``'lambda'(int)``), values with their
type (``(int)4``, ``int=4``, ``4u``), ``> >`` and ``>>``, and names cut anywhere.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

ANONYMOUS = "(anonymous namespace)"

_BRACKET = re.compile(
    r"operator\s*(?:\(\)|\[\]|<<|>>|<=|>=|->\*?|<|>)|->|<unnamed>|\(anonymous namespace\)"
    r"|[<>()\[\]{},]"
)
_STEP = re.compile(
    r"(?P<op>operator\s*(?:\(\)|\[\]|<<=?|>>=?|<=|>=|->\*?|[-+*/%^&|!=~<>]=?|[A-Za-z_]\w*))"
    r"|(?P<anon>\(anonymous namespace\)|<unnamed>|_GLOBAL__N_\w*)"
    r"|(?P<lambda>'lambda\d*'|\{lambda|\[lambda|\{unnamed|\[unnamed|\{default arg)"
    r"|(?P<name>[A-Za-z_$~@][\w$@]*(?:\.[\w$@.]+)?)"
    r"|(?P<scope>::)"
    r"|(?P<open>[<(\[{])"
    r"|(?P<space>\s+)"
    r"|(?P<other>.)",
    re.DOTALL,
)
_VALUE = re.compile(
    r"\s*(?:\((?P<type>[\w: ]+(?:<[^<>]*>)?)\)|(?P<eq>[\w ]+)=)?\s*"
    r"(?P<value>-?\d{1,20})(?:[uU]?[lL]{0,2}|[lL]{0,2}[uU]?)\s*$"
)
_CLOSE = {")": "(", "]": "[", "}": "{"}


@dataclass(frozen=True, slots=True)
class Arg:
    """One template argument or parameter: its place, and whether the name goes on after it."""

    start: int
    end: int
    complete: bool


@dataclass(frozen=True, slots=True)
class Comp:
    """One component of a qualified name.

    Attributes:
        text: the name; ``(anonymous namespace)`` and ``lambda`` in one spelling each.
        start: where the name begins.
        end: where the name ends (before the template arguments).
        args: opening ``<`` of the template arguments, or -1.
        params: opening ``(`` of the parameters, or -1.
        complete: the name is not cut here.
    """

    text: str
    start: int
    end: int
    args: int
    params: int
    complete: bool


class CppText:
    """A text and, computed once, the place of each bracket's partner and of each comma."""

    __slots__ = ("_children", "_close", "cut", "end", "text")

    def __init__(self, text: str, cut: bool) -> None:
        """Scan ``text``; ``cut`` tells that it was cut at its end."""
        self.text = text
        close: dict[int, int] = {}
        children: dict[int, list[int]] = {-1: []}
        stack: list[int] = [-1]
        for match in _BRACKET.finditer(text):
            token = match.group()
            at = match.start()
            if token == ",":
                children[stack[-1]].append(at)
            elif token in "<([{":
                stack.append(at)
                children[at] = []
            elif token == ">":
                if len(stack) > 1 and text[stack[-1]] == "<":
                    close[stack.pop()] = at
            elif token in _CLOSE:
                wanted = _CLOSE[token]
                depth = len(stack) - 1
                while depth > 0 and text[stack[depth]] == "<":
                    depth -= 1
                if depth > 0 and text[stack[depth]] == wanted:
                    close[stack[depth]] = at
                    del stack[depth:]
        self._close = close
        self._children = children
        self.end = len(text)
        self.cut = cut or len(stack) > 1

    def close(self, at: int) -> int:
        """Return the partner of the bracket at ``at``; the end of the text when it was cut."""
        return self._close.get(at, self.end)

    def closed(self, at: int) -> bool:
        """Whether the bracket at ``at`` has its partner."""
        return at in self._close

    def args(self, at: int) -> list[Arg]:
        """Return what stands between the bracket at ``at`` and its partner, split at commas."""
        if at < 0:
            return []
        arguments: list[Arg] = []
        begin = at + 1
        for comma in self._children[at]:
            arguments.append(self._arg(begin, comma, True))
            begin = comma + 1
        last = self._arg(begin, self.close(at), self.closed(at))
        if arguments or last.end > last.start:
            arguments.append(last)
        return arguments

    def _arg(self, start: int, end: int, complete: bool) -> Arg:
        text = self.text
        while start < end and text[start] == " ":
            start += 1
        while end > start and text[end - 1] == " ":
            end -= 1
        return Arg(start, end, complete)

    def slice(self, arg: Arg) -> str:
        """Return the text of an argument."""
        return self.text[arg.start : arg.end]


@dataclass(frozen=True, slots=True)
class Qualified:
    """A qualified name: the components of ``a::b<c>::d``, and where it ends.

    ``complete`` is false when the text is cut inside the last component's name.
    """

    source: CppText
    path: tuple[Comp, ...]
    end: int

    @property
    def last(self) -> Comp:
        """The last component: the function, or the type."""
        return self.path[-1]

    def args(self, index: int = -1) -> list[Arg]:
        """Template arguments of one component."""
        return self.source.args(self.path[index].args)

    def head(self) -> str:
        """Return the name without template arguments and parameters: ``a::b::d``."""
        return "::".join(comp.text for comp in self.path)


def read(source: CppText, start: int = 0, end: int | None = None) -> Qualified | None:
    """Read the qualified name in ``source.text[start:end]``, or None where there is none.

    A return type before the name is skipped; reading stops after the name's parameters.
    """
    text = source.text
    stop = source.end if end is None else end
    path: list[Comp] = []
    joined = True  # a component may follow: at the start and after "::"
    at = start
    while at < stop:
        match = _STEP.match(text, at, stop)
        if match is None:
            break
        kind = match.lastgroup
        begin, at = at, match.end()
        if kind == "scope":
            joined = True
        elif kind == "space":
            continue
        elif kind in ("name", "anon", "op"):
            if kind == "anon" and not joined and path and path[-1].params < 0:
                path.clear()
            if not joined:
                path.clear()
            word = match.group()
            label = ANONYMOUS if kind == "anon" else word
            path.append(Comp(label, begin, at, -1, -1, at < source.end or not source.cut))
            joined = False
        elif kind == "lambda":
            if not joined:
                path.clear()
            opening = begin if text[begin] in "{[" else -1
            params = text.find("(", at, stop)
            if opening >= 0:
                at = min(source.close(opening) + 1, stop)
                params = params if 0 <= params < at else -1
            elif params == at:
                at = min(source.close(params) + 1, stop)
            else:
                params = -1
            path.append(Comp("lambda", begin, at, -1, params, at < source.end or not source.cut))
            joined = False
        elif kind == "open":
            opener = text[begin]
            at = min(source.close(begin) + 1, stop)
            if opener == "<" and path and not joined and path[-1].args < 0:
                comp = path[-1]
                path[-1] = Comp(comp.text, comp.start, comp.end, begin, comp.params, True)
            elif opener == "(" and path and not joined:
                comp = path[-1]
                path[-1] = Comp(comp.text, comp.start, comp.end, comp.args, begin, True)
                after = _after_params(text, at, stop)
                if not text.startswith("::", after):
                    return Qualified(source, tuple(path), at)
                at = after
            elif path or opener != "(":
                return None
        elif match.group() in "*&":
            continue
        elif match.group() == ":" and source.cut and at >= source.end:
            joined = True
        else:
            return None
    if not path:
        return None
    if source.cut and at >= source.end:
        if text[-1:].isspace() or path[0].text == "std":
            return None  # a return type, so far
        if joined:
            path.append(Comp("", at, at, -1, -1, False))  # the next component is behind the cut
    return Qualified(source, tuple(path), at)


_CONST = re.compile(r"\s*(?:const)?\s*")


def _after_params(text: str, at: int, stop: int) -> int:
    match = _CONST.match(text, at, stop)
    return match.end() if match else at


def number(text: str) -> int | None:
    """Return the value of a template argument that is a number, an enumerator or a bool."""
    word = text.strip()
    if word in ("true", "false"):
        return int(word == "true")
    match = _VALUE.match(text)
    return int(match.group("value")) if match else None


def truth(text: str) -> bool | None:
    """Return the value of a bool argument: ``true``, ``(bool)1``, ``bool=1``; else None."""
    word = text.strip()
    if word in ("true", "(bool)1", "bool=1"):
        return True
    if word in ("false", "(bool)0", "bool=0"):
        return False
    return None
