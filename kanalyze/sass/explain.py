"""Why counts in PTX and SASS differ: one function per reason, each of which shows it or says no.

Every function takes the accesses of the differing category and returns an explanation for the
widths it accounts for completely.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from kanalyze.ptx.instructions import definitions, uses
from kanalyze.ptx.ir import Address, Function, Instruction, Name, Operand, Variable
from kanalyze.ptx.memory import memory_access
from kanalyze.sass.ir import SassFunction, SassInstruction

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Item:
    """One access or tensor instruction: what it is, its source line, the loop it stands in.

    ``loop`` is the header of the innermost loop, None outside of loops.
    """

    category: str
    width: str
    line: int | None
    loop: int | None
    block: int
    instruction: Instruction | SassInstruction


@dataclass(frozen=True, slots=True)
class CategoryCounts:
    """One category: its accesses in PTX and in SASS, and the two functions."""

    category: str
    ptx: Function
    before: tuple[Item, ...]
    sass: SassFunction
    after: tuple[Item, ...]

    def counts(self) -> dict[str, tuple[int, int]]:
        """Return the widths whose counts differ, with both counts."""
        one = Counter(item.width for item in self.before)
        two = Counter(item.width for item in self.after)
        return {w: (one[w], two[w]) for w in {*one, *two} if one[w] != two[w]}

    def of(self, width: str) -> tuple[list[Item], list[Item]]:
        """Return the accesses of a width in PTX and in SASS."""
        return (
            [item for item in self.before if item.width == width],
            [item for item in self.after if item.width == width],
        )


def explain(
    ptx: Function, before: Sequence[Item], sass: SassFunction, after: Sequence[Item]
) -> dict[Key, str]:
    """Return explanations for the categories and widths whose counts differ."""
    reasons: dict[Key, str] = {}
    for category in sorted({item.category for item in (*before, *after)}):
        case = CategoryCounts(
            category,
            ptx,
            tuple(item for item in before if item.category == category),
            sass,
            tuple(item for item in after if item.category == category),
        )
        for reason in _REASONS:
            open_widths = {w for w in case.counts() if (category, w) not in reasons}
            if not open_widths:
                break
            for width, text in reason(case, open_widths).items():
                reasons.setdefault((category, width), text)
    return reasons


# ---------------------------------------------------------------- reasons


def _spills(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Local memory without any in the PTX: registers that were spilled."""
    if not case.category.startswith("local "):
        return {}
    stack = any(isinstance(s, Variable) and s.space == "local" for s in case.ptx.body or ())
    if case.before or stack:
        return {}
    return dict.fromkeys(widths, "registers spilled: the PTX has no local memory")


# What each adds, by version of the assembler: ptxas 12.9 keeps one mask, later ones two; 12.9 and
# 13.1 ask whether allocation is still allowed.
_RESERVED: dict[str, dict[tuple[str, str], tuple[int, ...]]] = {
    "tcgen05.alloc": {
        ("shared atomic", "4 B"): (1, 2),
        ("shared store", "4 B"): (1, 2),
        ("shared load", "1 B"): (0, 1),
    },
    "tcgen05.dealloc": {("shared atomic", "4 B"): (1, 2), ("shared load", "4 B"): (1, 2)},
    "tcgen05.relinquish_alloc_permit": {("shared store", "1 B"): (1,)},
}


def _tensor_memory(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Allocation of tensor memory: code of the assembler that keeps its books in shared memory."""
    words: Counter[str] = Counter()
    for instruction in case.ptx.instructions:
        words[".".join(instruction.parts[:2])] += 1
    reasons: dict[str, str] = {}
    for width in widths:
        expected, names = {0}, []
        for name, adds in _RESERVED.items():
            options = adds.get((case.category, width), ())
            if options and words[name]:
                expected = {e + each * words[name] for e in expected for each in options}
                names.append(name)
        one, two = case.counts()[width]
        if two > one and two - one in expected:
            reasons[width] = f"{two - one} belong to what {' and '.join(names)} became"
    return reasons


def _unused(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Loads whose result nothing in the PTX reads."""
    if not case.category.endswith("load"):
        return {}
    read: Counter[str] = Counter()
    for instruction in case.ptx.instructions:
        read.update(set(uses(instruction)))
    reasons: dict[str, str] = {}
    for width in widths:
        before, after = case.of(width)
        dead = [item for item in before if not any(read[d] for d in definitions(_ptx(item)))]
        if dead and len(before) - len(dead) == len(after):
            reasons[width] = f"{len(dead)} dropped: nothing reads their result"
    return reasons


def _identical(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Loads from the same address in one block, merged into one."""
    if not case.category.endswith("load"):
        return {}
    reasons: dict[str, str] = {}
    for width in widths:
        before, after = case.of(width)
        distinct = {_place(case.ptx, item) for item in before}
        if len(distinct) == len(after) < len(before) and None not in distinct:
            gone = len(before) - len(after)
            reasons[width] = f"{gone} merged: they load from the same address as others"
    return reasons


def _unrolled(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Copies of a loop's body: line by line, n times as many in the loop, the rest behind it."""
    reasons: dict[str, str] = {}
    for width in widths:
        before, after = case.of(width)
        factors: set[tuple[int, int]] = set()
        for line in {item.line for item in (*before, *after)}:
            inside, outside = _in_and_out(before, line)
            more_inside, more_outside = _in_and_out(after, line)
            if (inside, outside) == (more_inside, more_outside):
                continue
            extra = more_outside - outside
            if not inside or more_inside % inside or extra < 0 or extra % inside:
                factors.clear()
                break
            factors.add((more_inside // inside, extra // inside))
        if len(factors) == 1:
            times, copies = factors.pop()
            if times == 0 and copies > 1:
                reasons[width] = f"loop unrolled completely: {copies} copies"
            elif times > 1:
                rest = f", {copies} more copies outside it" if copies else ""
                reasons[width] = f"loop unrolled by {times}{rest}"
            elif times == 1 and copies:
                reasons[width] = f"loop peeled: {copies} more copies outside it"
    return reasons


def _merged(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Neighbouring accesses joined into a wider one, which may reach a little further."""
    counts = case.counts()
    missing = {w: counts[w][0] - counts[w][1] for w in widths if counts[w][0] > counts[w][1]}
    extra = {w: counts[w][1] - counts[w][0] for w in widths if counts[w][1] > counts[w][0]}
    if not missing or not extra or any(not _size(w) for w in (*missing, *extra)):
        return {}
    left, wanted = dict(missing), dict(extra)
    for run in _runs(case, missing):
        for width in sorted(wanted, key=_size, reverse=True):
            size = _size(width)
            taken, total = 0, 0
            while taken < len(run) and total + _size(run[taken]) <= size:
                total += _size(run[taken])
                taken += 1
            used = Counter(run[:taken])
            fits = (
                taken > 1 and 2 * total > size and all(left.get(w, 0) >= n for w, n in used.items())
            )
            if fits and wanted[width]:
                wanted[width] -= 1
                for one, number in used.items():
                    left[one] -= number
                run = run[taken:]
    if any(left.values()) or any(wanted.values()):
        return {}
    sizes = " and ".join(sorted(missing, key=_size))
    text = f"merged: neighbours of {sizes} became {' and '.join(sorted(extra, key=_size))}"
    return dict.fromkeys((*missing, *extra), text)


def _split(case: CategoryCounts, widths: set[str]) -> dict[str, str]:
    """Wide accesses cut into narrower ones: as many bytes, more instructions."""
    counts = case.counts()
    less = {w: counts[w][0] - counts[w][1] for w in widths if counts[w][0] > counts[w][1]}
    more = {w: counts[w][1] - counts[w][0] for w in widths if counts[w][1] > counts[w][0]}
    if len(less) != 1 or len(more) != 1:
        return {}
    (wide, gone), (narrow, come) = next(iter(less.items())), next(iter(more.items()))
    if _size(wide) <= _size(narrow) or gone * _size(wide) != come * _size(narrow):
        return {}
    text = f"split: {gone} of {wide} into {come} of {narrow}"
    return {wide: text, narrow: text}


_REASONS: tuple[Callable[[CategoryCounts, set[str]], dict[str, str]], ...] = (
    _spills,
    _tensor_memory,
    _unused,
    _identical,
    _unrolled,
    _merged,
    _split,
)


# ---------------------------------------------------------------- helpers


def _ptx(item: Item) -> Instruction:
    assert isinstance(item.instruction, Instruction)
    return item.instruction


def _in_and_out(items: Sequence[Item], line: int | None) -> tuple[int, int]:
    mine = [item for item in items if item.line == line]
    inside = sum(item.loop is not None for item in mine)
    return inside, len(mine) - inside


def _size(width: str) -> int:
    """Return the bytes of ``"16 B"``, the volume of ``"m16n8k16"``, 0 of anything else."""
    if width.endswith(" B"):
        return int(width[:-2])
    if width.startswith("m"):
        m, _, rest = width[1:].partition("n")
        n, _, k = rest.partition("k")
        if m.isdecimal() and n.isdecimal() and k.isdecimal():
            return int(m) * int(n) * int(k)
    return 0


def _address(item: Item) -> Address | None:
    access = memory_access(_ptx(item))
    operand: Operand | None = None if access is None else access.address
    return operand if isinstance(operand, Address) else None


def _place(ptx: Function, item: Item) -> tuple[str, int, int, str] | None:
    """Return base, offset, block and guard; None if the base is written more than once."""
    address = _address(item)
    if address is None or not isinstance(address.base, Name):
        return None
    base = address.base.text
    writes = sum(base in definitions(i) for i in ptx.instructions) if base[:1] == "%" else 1
    if writes > 1:
        return None
    guard = _ptx(item).guard
    shown = "" if guard is None else f"{'!' if guard.negated else ''}{guard.name}"
    return base, address.offset, item.block, shown


def _runs(case: CategoryCounts, widths: dict[str, int]) -> Iterator[list[str]]:
    """Return the runs of neighbouring accesses (of these widths) in the PTX, widths in order."""
    groups: dict[tuple[str, int, str], list[tuple[int, str]]] = {}
    for item in case.before:
        place = _place(case.ptx, item)
        if item.width in widths and place is not None:
            base, offset, block, guard = place
            groups.setdefault((base, block, guard), []).append((offset, item.width))
    for members in groups.values():
        members.sort()
        run: list[str] = []
        end: int | None = None
        for offset, width in members:
            if end is not None and offset != end:
                yield run
                run = []
            run.append(width)
            end = offset + _size(width)
        yield run
