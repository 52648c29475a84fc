"""Global accesses that belong together: one kind and width, one pointer, one source line."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from kanalyze.findings.facts import Facts
from kanalyze.models import coalescing, lane_strides
from kanalyze.models.lane_strides import AffineForm, LaneOffsets, LanePlace
from kanalyze.models.warps import Counted
from kanalyze.results import kernel as doc
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.value import Value, leaves
from kanalyze.traffic.totals import ideal_sectors

KINDS = ("load", "store", "async_copy")
_WARP_IN_X = (1024, 1, 1)  # a block whose extents are not known: lanes run along x
_NUMBERS = ("f16", "bf16", "f32", "f64")  # types of elements; .b32 may be two of 16 bits
_LEAST_SHARE = 0.05  # of the requests of a launch, from which on accesses are worth a remark


@dataclass(frozen=True, slots=True)
class ContiguousRun:
    """Accesses of one thread without a gap: where they begin, from its first access, how many."""

    start: AffineForm
    length: int


@dataclass(frozen=True)
class AccessGroup:
    """Accesses of one kind and width through one pointer, from one place of the source.

    Attributes:
        facts: the kernel.
        pointer: as the report names it.
        size: bytes that a thread moves with one of them.
        members: values and rows of the document, in the order of the PTX.
        places: their places among all accesses.
    """

    facts: Facts
    pointer: str
    size: int
    members: tuple[tuple[AccessValue, doc.Access], ...]
    places: tuple[int, ...]

    @property
    def first(self) -> doc.Access:
        """The first of the accesses."""
        return self.members[0][1]

    @property
    def kind(self) -> str:
        """load, store or async_copy."""
        return self.first.kind

    @property
    def noun(self) -> str:
        """``load`` or ``store``, in the plural where there are several."""
        name = {"async_copy": "cp.async"}.get(self.kind, self.kind)
        return name if len(self.members) == 1 or self.kind == "async_copy" else f"{name}s"

    @cached_property
    def element(self) -> int:
        """Bytes of an element: as the PTX writes it, if as a number; else by the pointer's type."""
        if self.first.opcode.rpartition(".")[2] in _NUMBERS:
            return self.first.element_bits // 8
        for argument in self.facts.arguments.values():
            if argument.name == self.pointer and argument.element_bytes:
                return argument.element_bytes
        return max(1, self.first.element_bits // 8)

    @cached_property
    def counts(self) -> tuple[Counted | None, ...]:
        """Requests, threads and sectors of each over the launch; None where not known."""
        if "counts" not in self.facts.cache:
            self.facts.cache["counts"] = _counts(self.facts)
        return tuple(self.facts.cache["counts"][place] for place in self.places)

    @cached_property
    def lanes(self) -> LaneOffsets | None:
        """Where the lanes of the first access point."""
        return lane_strides.of_lanes(self.members[0][0].address, extents(self.facts))

    @cached_property
    def offsets(self) -> tuple[int, ...] | None:
        """The lanes' byte offsets, as far as the arguments are known."""
        return self.lanes.offsets(values(self.facts)) if self.lanes is not None else None

    @cached_property
    def stride(self) -> AffineForm | None:
        """Between neighbouring lanes."""
        return self.lanes.stride if self.lanes is not None else None

    @cached_property
    def stride_bytes(self) -> int | None:
        """The stride as a number, where the arguments in it are known."""
        return self.stride.evaluate(values(self.facts)) if self.stride is not None else None

    @cached_property
    def run(self) -> int:
        """The most of the accesses of one thread that are contiguous."""
        return self.run_at({})

    def run_at(self, numbers: Mapping[str, int]) -> int:
        """The same where arguments have these numbers."""
        return max(run.length for run in self.runs(numbers))

    def runs(self, numbers: Mapping[str, int] | None = None) -> list[ContiguousRun]:
        """Accesses of a thread without a gap between them, wherever that begins."""
        return _runs(self, numbers or {})

    @cached_property
    def unit(self) -> str | None:
        """The parameter by which lanes are apart, if with 1 they would be contiguous."""
        stride = self.stride
        if stride is None or len(stride.terms) != 1 or stride.number:
            return None
        (name,) = stride.terms
        rows = (self.size, self.size * self.run_at({name: 1}))
        return name if stride.evaluate({name: 1}) in rows else None

    def sectors(self, size: int | None = None) -> int | None:
        """Sectors of one request that begins at a sector; of contiguous lanes of ``size`` bytes."""
        if size is not None:
            return -(-size * len(self.offsets or range(32)) // coalescing.SECTOR)
        return sectors_of(self.offsets, self.size) if self.offsets is not None else None

    @property
    def requests(self) -> int | None:
        """Warps that execute them, over the launch; None where that is not known."""
        return total(c.requests if c is not None else None for c in self.counts)

    @property
    def cost(self) -> int | None:
        """Sectors over the launch; None where that is not known."""
        return total(c.transactions if c is not None else None for c in self.counts)

    @property
    def threads(self) -> int | None:
        """Lanes that take part, over the launch; None where that is not known."""
        return total(c.threads if c is not None else None for c in self.counts)

    @property
    def ideal(self) -> int | None:
        """Sectors that the same lanes would touch if contiguous, over the launch;
        `kanalyze.traffic.totals`."""
        return total(ideal_sectors(c, self.size) if c is not None else None for c in self.counts)

    @property
    def place(self) -> tuple[int, doc.Source | None]:
        """Where the first stands."""
        return self.facts.at(self.members[0][0].instruction)

    def at(self, source: doc.Source | None) -> bool:
        """Whether they come from a line of the source."""
        mine = self.first.source
        same = mine is not None and source is not None
        return same and (mine.file, mine.line) == (source.file, source.line)  # type: ignore[union-attr]


def groups(facts: Facts) -> list[AccessGroup]:
    """The global accesses whose address and width are known."""
    if "groups" not in facts.cache:
        facts.cache["groups"] = _grouped(facts)
    cached: list[AccessGroup] = facts.cache["groups"]
    return cached


def _grouped(facts: Facts) -> list[AccessGroup]:
    by_place: dict[tuple[object, ...], list[int]] = {}
    every = list(facts.accesses())
    for index, (access, row) in enumerate(every):
        if row.space != "global" or row.kind not in KINDS or row.reason is not None:
            continue
        if row.pointer is None or not row.bytes_per_thread:
            continue
        loc = access.instruction.loc
        place = (access.block,) if loc is None else (loc.file, loc.line, loc.column)
        by_place.setdefault((row.kind, row.pointer, row.bytes_per_thread, *place), []).append(index)
    result = []
    for some in by_place.values():
        members = tuple(every[index] for index in some)
        row = members[0][1]
        result.append(
            AccessGroup(facts, row.pointer or "", row.bytes_per_thread or 0, members, tuple(some))
        )
    return result


def merged(parts: Sequence[AccessGroup]) -> AccessGroup:
    """Several groups as one: with the width of the narrowest."""
    narrowest = min(parts, key=lambda group: group.size)
    return replace(
        narrowest,
        members=tuple(m for g in parts for m in g.members),
        places=tuple(place for g in parts for place in g.places),
    )


def _counts(facts: Facts) -> list[Counted | None]:
    """What each access costs in the launch."""
    if facts.totals is not None:
        return [cost.counted for cost in facts.totals.transactions]
    launched = facts.launched
    return [
        launched.transactions(access).counted if launched is not None else None
        for access, _ in facts.accesses()
    ]


def merge_unrolled(every: Sequence[AccessGroup]) -> list[AccessGroup]:
    """Groups of which nothing but the place in the PTX differs as one: code that was unrolled."""
    by_shape: dict[object, list[AccessGroup]] = {}
    for group in every:
        source = group.first.source
        line = (source.file, source.line) if source is not None else None
        stride = group.stride.key() if group.stride is not None else None
        key = (group.kind, group.pointer, group.size, line, stride, group.run)
        by_shape.setdefault(key, []).append(group)
    return [merged(parts) if len(parts) > 1 else parts[0] for parts in by_shape.values()]


def significant(group: AccessGroup, every: Sequence[AccessGroup]) -> bool:
    """Whether a group is a good part of what the kernel accesses.

    By requests where the launch is known; else it must be as deep in loops as anything, and move a
    quarter of what the largest group moves: bias vectors and epilogues are not worth a remark.
    """
    if group.requests is not None and facts_known(every):
        return group.requests >= _LEAST_SHARE * sum(g.requests or 0 for g in every)
    depth = max(g.first.loop_depth for g in every)
    largest = max(g.size * len(g.members) for g in every if g.first.loop_depth == depth)
    return group.first.loop_depth == depth and 4 * group.size * len(group.members) >= largest


def facts_known(every: Iterable[AccessGroup]) -> bool:
    """Whether the requests of all groups are known, and there are any."""
    counted = [group.requests for group in every]
    return None not in counted and sum(n or 0 for n in counted) > 0


def extents(facts: Facts) -> tuple[int, int, int]:
    """Threads of a block; where they are not known, as if a warp lay along x."""
    kernel = facts.kernel
    if kernel.reqntid is not None and all(kernel.reqntid):
        x, y, z = (*kernel.reqntid, 1, 1)[:3]
        return x, y, z
    return facts.launch.block if facts.launch is not None else _WARP_IN_X


def extents_known(facts: Facts) -> bool:
    """Whether the number of threads of a block is known."""
    return facts.kernel.reqntid is not None or facts.launch is not None


def values(facts: Facts) -> dict[str, int]:
    """PTX parameter → its number, as far as known."""
    known = {name: a.value for name, a in facts.arguments.items() if a.value is not None}
    if facts.launch is not None:
        for parameter, given in zip(facts.function.parameters, facts.launch.params, strict=False):
            if given.value is not None:
                known[parameter.name] = given.value
    return known


def author_name(facts: Facts, parameter: str) -> str:
    """What the author calls a parameter of the PTX."""
    argument = facts.arguments.get(parameter)
    return argument.name if argument is not None else parameter


def words(facts: Facts, form: AffineForm, element: int) -> str:
    """A distance in elements: ``stride_am``, ``2*n + 1``; in bytes where it is no whole number."""
    amounts = [form.number, *form.terms.values()]
    unit = element if all(n % element == 0 for n in amounts) else 1
    parts = [
        (f"{c // unit}*" if c // unit != 1 else "") + author_name(facts, name)
        for name, c in form.terms.items()
    ]
    parts += [f"{form.number // unit:,}"] if form.number or not parts else []
    return " + ".join(parts) + ("" if unit == element else " B")


def sectors_of(offsets: Sequence[int], size: int) -> int:
    """Sectors of one request whose lane 0 begins at a sector: the rule of `coalescing`."""
    addresses = np.asarray([list(offsets)], np.int64)
    pieces = range(0, size, coalescing.SECTOR)
    wide = np.concatenate([addresses + p for p in pieces], axis=1)
    return int(coalescing.sectors(wide, np.ones(wide.shape, bool))[0])


def _runs(group: AccessGroup, numbers: Mapping[str, int]) -> list[ContiguousRun]:
    """Accesses of one thread in runs, each of them contiguous."""
    size = group.size
    if len(group.members) < 2:
        return [ContiguousRun(AffineForm(0), len(group.members))]
    addresses = [access.address for access, _ in group.members]
    differences = lane_strides.differences(addresses, extents(group.facts))
    if differences is None:
        return [ContiguousRun(AffineForm(0), 1)]
    by_terms: dict[object, dict[int, AffineForm]] = {}
    for form in differences[0]:
        given = form.substitute(numbers)
        by_terms.setdefault(given.key()[1], {})[given.number] = given
    result = []
    for places in by_terms.values():
        for start, form in places.items():
            length = 1
            while start - size not in places and start + length * size in places:
                length += 1
            if start - size not in places:
                result.append(ContiguousRun(form, length))
    return result


def alignment(
    group: AccessGroup, most: int = 16, numbers: Mapping[str, int] | None = None
) -> tuple[int, dict[str, int]] | None:
    """What divides the beginnings of all runs of a thread, and arguments with their factors.

    Pointers are left out: they are taken to be aligned. Arguments are those whose number is not in
    ``numbers`` (left out: those that are known); their factors count what is known of them. Both
    are powers of two up to ``most``; None: the address is not a sum of arguments and numbers.
    """
    facts, access = group.facts, group.members[0][0]
    threads = extents(facts)
    loops = [loop.header for loop in facts.description.cfg.loops if access.block in loop.body]
    places = [LanePlace(), *(LanePlace(blocks={axis: 1}) for axis in "xyz")]
    places += [LanePlace(iterations={header: 1}) for header in loops]
    steps = lane_strides.differences([access.address], threads, places)
    first = lane_strides.start(access.address, threads)
    if steps is None or first is None or group.lanes is None:
        return None
    pointers = {name for name, factor in first.terms.items() if factor == 1}
    forms = [AffineForm(first.number, {n: c for n, c in first.terms.items() if n not in pointers})]
    forms += [row[0] for row in steps]
    forms += list(group.lanes.forms) if group.run > 1 else []  # else a wide access spans lanes
    forms += [run.start for run in group.runs() if run.length > 1]
    forms = [form.substitute(values(facts) if numbers is None else numbers) for form in forms]
    aligned = math.gcd(most, *(form.number for form in forms))
    factors: dict[str, int] = {}
    for name, factor in (item for form in forms for item in form.terms.items()):
        told = facts.arguments[name].divisor if name in facts.arguments else 1
        factors[name] = math.gcd(most, factors.get(name, 0), factor * told)
    return aligned, factors


def arguments_in(facts: Facts, evaluated: Iterable[Value | None]) -> list[str]:
    """PTX parameters on which values depend, in the order of the kernel."""
    used = {leaf.payload[0] for v in evaluated if v is not None for leaf in leaves(v, "param")}
    return [p.name for p in facts.function.parameters if p.name in used]


def total(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where one is not known."""
    every = list(numbers)
    return None if None in every else sum(n or 0 for n in every)
