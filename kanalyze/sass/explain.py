"""What the assembler made of each access: the PTX and its machine code, access by access.

A cubin made with ``-lineinfo`` tells from which line of the PTX each machine instruction came
(section ``.nv_debug_line_sass``; ``nvdisasm --print-line-info-ptx``). An access of the PTX whose
line no machine instruction has went into another one, at an address beside it, or was dropped.
Where there is no such table, or it is that of another text, only lines of the source are at hand:
then no more than equal numbers, and copies of a loop's body, can be told.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kanalyze.ptx.instructions import definitions, uses
from kanalyze.ptx.ir import Function, Instruction, Module, Pos
from kanalyze.sass.ir import SassInstruction

Key = tuple[str, str]
Places = Mapping[Pos, tuple[object, int]]
"""Where accesses of the PTX point, by their position: a base, and bytes from it."""
TENSOR = "tensor"  # machine instructions of ``wgmma`` have other lines
NOT_EXPLAINED = "not explained"
NO_TABLE = "the machine code has no line table of this PTX (-lineinfo)"
_DROPPED = "{n} dropped: nothing reads the result"
_UNREACHED = "{n} dropped: never executed"
_EQUAL = "{n} merged: the same address as another"
_PROMOTED = "{n} kept in registers"


class _Pairs(defaultdict[tuple[int | None, str], tuple[list["Item"], list["Item"]]]):
    """Accesses of the PTX and machine accesses by line and category."""

    def __init__(self) -> None:
        super().__init__(lambda: ([], []))


@dataclass(frozen=True, slots=True)
class Item:
    """One access or tensor instruction: what it is, its line, the loop it stands in.

    ``line`` is that of the PTX, ``source`` that of the source. ``loop`` is the header of the
    innermost loop, None outside of loops. ``by_lane``: the guard of an atomic depends on the lane.
    """

    category: str
    width: str
    line: int | None
    source: int | None
    loop: int | None
    instruction: Instruction | SassInstruction
    by_lane: bool = False

    @property
    def key(self) -> Key:
        """What rows are made of: category and width."""
        return self.category, self.width

    @property
    def size(self) -> int:
        """The bytes of ``"16 B"``, the volume of ``"m16n8k16"``, 0 of anything else."""
        width = self.width
        if width.endswith(" B"):
            return int(width[:-2])
        numbers = width.lstrip("m").replace("n", "k").split("k") if width[:1] == "m" else ()
        return math.prod(int(n) for n in numbers) if all(n.isdecimal() for n in numbers) else 0


@dataclass(frozen=True, slots=True)
class Match:
    """Accesses of the PTX (``before``) and what they became (``after``).

    ``fate`` is "same", "copied" (loops unrolled or peeled), "moved" (out of a loop), "merged",
    "aggregated" (an atomic that one lane makes for its warp), "split", "dropped", "added" (by the
    assembler) or "unknown". ``words`` say it and why, with ``{n}`` for how many.
    """

    fate: str
    before: tuple[Item, ...]
    after: tuple[Item, ...]
    words: str = ""

    @property
    def text(self) -> str:
        """The words, with the number in them."""
        return self.words.format(n=self.number)

    @property
    def number(self) -> int:
        """How many accesses of the PTX the words are about."""
        return len(self.before) - (self.words == _EQUAL) or len(self.after)


def match(
    ptx: Function,
    module: Module | None,
    before: Sequence[Item],
    after: Sequence[Item],
    places: Places,
) -> tuple[Match, ...]:
    """Say of each access what it became, or what it was.

    Args:
        ptx: the kernel in PTX.
        module: its module, for the functions that it calls.
        before: its accesses.
        after: those of the machine code.
        places: where those of the PTX point; those that are never reached are left out.
    """
    known = {i.pos.line: i for i in ptx.instructions}
    for function in module.functions if module is not None else ():
        known = {i.pos.line: i for i in function.instructions} | known
    plain = [item for item in after if item.category.partition(" ")[0] not in ("local", TENSOR)]
    there = {(item.line, _kind(item)) for item in before}
    fits = all(
        (item.line, _kind(item)) in there
        or (item.line in known and known[item.line].base in _BECOME_ACCESSES)
        for item in plain
    )
    by_line, by_source = _Pairs(), _Pairs()
    for side, items in enumerate((before, after)):
        for item in items:
            exact = fits and item.category != TENSOR
            line = item.source if item.category != TENSOR else None
            place = (item.line if exact else line, item.category)
            if exact and side and place not in by_line and not item.category.startswith("local "):
                place = next((other for other in by_line if other[0] == item.line), place)
            (by_line if exact else by_source)[place][side].append(item)
    matches = [_by_source(*pair) for pair in by_source.values()]
    own = {i.pos.line for i in ptx.instructions}
    lanes = any("%laneid" in uses(i) for i in ptx.instructions)
    hosts = [pair for pair in by_line.values() if all(pair)]
    joined: dict[int, list[Item]] = defaultdict(list)
    never = {i.instruction.pos for i in before if i.category != TENSOR} - places.keys()
    dead = _dead(ptx, never) if any(not theirs for _, theirs in by_line.values()) else never
    spilled = any(item.category.startswith("local ") for item in after)
    for ours, theirs in by_line.values():
        if not ours:
            matches += [_added(item, known, own) for item in theirs]
        elif not theirs:
            for item in ours:
                why = _gone(item, dead, places, spilled)
                host = None if why else _host(item, hosts, places)
                if host is not None:
                    joined[id(host)].append(item)
                else:
                    fate = "dropped" if why else "unknown"
                    matches.append(Match(fate, (item,), (), why))
    paired = [_pair(ours, theirs, joined[id(ours)], places, lanes) for ours, theirs in hosts]
    most: dict[int | None, int] = defaultdict(int)
    for each in paired:
        if each.fate == "copied":
            most[each.before[0].loop] = max(most[each.before[0].loop], len(each.after))
    return (*matches, *(_once(each, most[each.before[0].loop]) for each in paired))


def reasons(matches: Iterable[Match]) -> dict[Key, str]:
    """Why numbers differ, by category and width; `NOT_EXPLAINED` where it is not known of all."""
    by_key: dict[Key, Counter[str]] = defaultdict(Counter)
    for each in matches:
        one, two = (Counter(item.key for item in side) for side in (each.before, each.after))
        for key in {*one, *two}:
            if one[key] != two[key]:
                by_key[key][each.words if each.fate != "unknown" else NOT_EXPLAINED] += each.number
    return {
        key: NOT_EXPLAINED
        if NOT_EXPLAINED in words
        else "; ".join(w.format(n=n) for w, n in sorted(words.items()))
        for key, words in by_key.items()
    }


# ---------------------------------------------------------------- accesses of the PTX alone


def _gone(item: Item, dead: set[Pos], places: Places, spilled: bool) -> str:
    """Why an access is in no machine instruction, other than that another one does its work."""
    if item.instruction.pos not in places:
        return _UNREACHED
    if item.category.startswith("local ") and not spilled:
        return _PROMOTED
    return _DROPPED if item.instruction.pos in dead else ""


_EFFECTS = frozenset(
    (
        "atom", "atomg", "red", "call", "st", "bra", "brx", "ret", "exit", "bar", "barrier",
        "mbarrier", "vote", "match", "elect", "redux",
    )
)  # fmt: skip


_BECOME_ACCESSES = ("tcgen05", "call", "multimem", "st", "ld", "red", "atom", "cp")
"""Instructions whose machine code has accesses of other kinds."""


def _dead(ptx: Function, never: set[Pos]) -> set[Pos]:
    """What goes nowhere: nothing reads it, or what does goes nowhere or is ``never`` executed."""
    code = {i.pos: (i, set(definitions(i))) for i in ptx.instructions if i.pos not in never}
    reads = {pos: set(uses(i)) - written for pos, (i, written) in code.items()}
    read = Counter(name for names in reads.values() for name in names)
    makers = defaultdict(list)
    for pos, (_, written) in code.items():
        for name in written:
            makers[name].append(pos)
    dead, waiting = set(never), list(code)
    while waiting:
        pos = waiting.pop()
        instruction, written = code[pos]
        kept = instruction.base in _EFFECTS or "volatile" in instruction.parts or not written
        if kept or pos in dead or any(read[name] for name in written):
            continue
        dead.add(pos)
        read.subtract(reads[pos])
        waiting += [maker for name in reads[pos] for maker in makers[name]]
    return dead


def _host(
    item: Item, hosts: Iterable[tuple[list[Item], list[Item]]], places: Places
) -> list[Item] | None:
    """The accesses whose machine instruction reaches what this one does."""
    base, offset = places.get(item.instruction.pos, (None, 0))
    best: tuple[int, list[Item]] | None = None
    for ours, theirs in hosts:
        other, start = places.get(ours[0].instruction.pos, (None, 0))
        if base is None or ours[0].category != item.category or other != base:
            continue
        away = abs(offset - start)
        if away < max(each.size for each in theirs) and (best is None or away < best[0]):
            best = away, ours
    return best[1] if best is not None else None


# ---------------------------------------------------------------- both


def _pair(
    ours: list[Item], theirs: list[Item], joined: list[Item], places: Places, lanes: bool
) -> Match:
    """What the accesses of one line, and those that ``joined`` them, became."""
    before, after = (*ours, *joined), tuple(theirs)
    sizes, wider = {i.size for i in before}, max(i.size for i in theirs)
    first = ours[0]
    if joined:
        equal = len({places[i.instruction.pos] for i in before}) == 1
        words = _EQUAL
        if not equal or sizes != {wider}:
            words = f"{{n}} merged: neighbours of {_list(before)} became {_list(after)}"
        return Match("merged", before, after, words)
    if wider > max(sizes):
        words = (
            f"{{n}} merged: those of several iterations of {_list(before)} became {_list(after)}"
        )
        return Match("merged", before, after, words)
    if Counter(i.key for i in ours) == Counter(i.key for i in theirs):
        one, two = (i.loop is not None for i in (first, after[0]))
        if one and not two:
            return Match("moved", before, after, "{n} moved out of the loop")
        if any(i.by_lane for i in after):
            words = "{n} aggregated: one lane of a warp makes it for all"
            return Match("unknown" if lanes else "aggregated", before, after, words)
        return Match("same", before, after)
    return _sized(before, after)


def _once(match: Match, copies: int) -> Match:
    """What has fewer copies than others of the loop around it was made for several iterations."""
    if match.fate not in ("same", "copied") or match.before[0].loop is None:
        return match
    if len(match.after) >= copies or len(match.before) > 1:
        return match
    words = "{n} merged: not made in every iteration"
    return Match("merged", match.before, match.after, words)


def _sized(before: tuple[Item, ...], after: tuple[Item, ...]) -> Match:
    """Copies of the same width, or narrower ones of as many bytes in all."""
    if {i.width for i in before} == {i.width for i in after}:
        return _copies(before, after)
    bytes_, more = (sum(i.size for i in side) for side in (before, after))
    if len(before) == len(after) == 1 and more < bytes_:
        return Match("split", before, after, f"{{n}} narrowed from {bytes_} B to {more} B")
    if bytes_ and more % bytes_ == 0 and max(i.size for i in after) < max(i.size for i in before):
        words = f"{{n}} split: {_list(before)} into {len(after)} of {_list(after)}"
        return Match("split", before, after, words)
    return Match("unknown", before, after)


def _copies(before: tuple[Item, ...], after: tuple[Item, ...]) -> Match:
    """As many of the same width, or more: copies of a loop's body, in it and behind it."""
    if len(after) < len(before) and all(i.instruction.pos.calls for i in before):
        return Match("same", before, after, f"one function is called from {len(before)} places")
    if {i.category for i in before} != {i.category for i in after}:
        words = f"{{n}} known to be {after[0].category}"
        return Match("same", before, after, words)
    inside, outside, more_inside, more_outside = (
        sum((i.loop is not None) is looped for i in side)
        for side in (before, after)
        for looped in (True, False)
    )
    extra = more_outside - outside
    if not inside or more_inside % inside or extra < 0 or extra % inside:
        copied = not inside and more_outside >= outside
        return Match("copied" if copied else "unknown", before, after, "{n} copied")
    times, copies = more_inside // inside, extra // inside
    if times == 0:
        words = f"loop unrolled completely: {copies} copies"
    elif times > 1:
        rest = f", {copies} more copies outside it" if copies else ""
        words = f"loop unrolled by {times}{rest}"
    else:
        words = f"loop peeled: {copies} more copies outside it"
    return Match("copied", before, after, words)


def _by_source(ours: list[Item], theirs: list[Item]) -> Match:
    """The accesses of one source line, where the lines of the PTX are not known."""
    before, after = tuple(ours), tuple(theirs)
    if Counter(i.width for i in ours) == Counter(i.width for i in theirs):
        return Match("same", before, after)
    sized = _sized(before, after) if ours and theirs else None
    if sized is not None and (ours[0].category == TENSOR or ours[0].loop is not None):
        return sized
    return Match("unknown", before, after, NO_TABLE)


def _added(item: Item, known: Mapping[int, Instruction], own: set[int]) -> Match:
    """What a machine access without one in the PTX is."""
    if item.category.startswith("local ") or item.line is None:
        return Match("added", (), (item,), "registers spilled")
    if item.line not in own:
        return Match("added", (), (item,), "{n} of the called functions")
    return Match("added", (), (item,), f"{{n}} belong to what {known[item.line].opcode} became")


def _kind(item: Item) -> str:
    return item.category.rpartition(" ")[2]


def _list(items: Iterable[Item]) -> str:
    return " and ".join(dict.fromkeys(i.width for i in sorted(items, key=lambda i: i.size)))
