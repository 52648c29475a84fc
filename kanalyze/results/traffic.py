"""The estimate for one launch as data: what `kanalyze traffic` shows and its JSON holds.

A number that is not known is None and stands in ``unknown`` with its reason.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kanalyze.results.kernel import Analysed, Document, Finding, Source, UnknownField, derive

SCHEMA = "kanalyze.traffic/1"
SECTOR_BYTES = 32
_WARP = 32
_GLOBAL = ("global_load", "global_store", "global_atomic", "global_reduction", "bulk_load",
           "bulk_store", "bulk_reduction")  # fmt: skip
_ALSO = {"load": ("async_copy",)}
_WRITES = ("store", "bulk_store")
_NOT_THE_SUM = "the counter is not the sum of the accesses listed"


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def added(numbers: Iterable[int | None]) -> int | None:
    """The sum, None where a number is not known."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineCost:
    """What accesses cost in the memory pipeline, and what follows from it.

    ``cost`` is sectors for global accesses and bank wavefronts for shared ones (``unit`` says
    which), ``ideal_cost`` what the same lanes would cost if they lay contiguously and aligned
    (never more than ``cost``, which is less where lanes share an address). ``per_request`` is cost
    over requests, ``efficiency`` ideal over actual cost, ``conflicts`` the wavefronts above the
    ideal ones (None for sectors); None where it is not known or there are none.
    """

    unit: str
    requests: int | None
    cost: int | None
    ideal_cost: int | None
    per_request: float | None = field(init=False)
    efficiency: float | None = field(init=False)
    conflicts: int | None = field(init=False)

    def __post_init__(self) -> None:
        known = self.unit == "wavefronts" and self.cost is not None and self.ideal_cost is not None
        derive(
            self,
            per_request=_ratio(self.cost, self.requests),
            efficiency=_ratio(self.ideal_cost, self.cost),
            conflicts=(self.cost or 0) - (self.ideal_cost or 0) if known else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessCounts(PipelineCost):
    """One memory instruction over the launch.

    ``requests`` are warp executions with a lane taking part, ``threads`` lanes that take part, over
    all of them; ``worst`` is the greatest cost of one request. ``pattern`` is how the lanes of the
    block's first warp lie. ``fate`` is what became of it in the machine code ("same", "copied",
    "moved", "merged", "aggregated", "split", "dropped", "unknown"; None: the numbers are those of
    the PTX alone), ``machine`` that in words where it is not the same: of several that became one
    access the first has its cost, the others none. ``source_text`` is the source line,
    where it can be read.
    """

    line: int
    opcode: str
    space: str
    kind: str
    pointer: str | None
    address: str | None
    condition: str | None
    pattern: str | None
    bytes_per_thread: int | None
    threads: int | None
    worst: int | None
    reason: str | None
    fate: str | None
    machine: str | None
    loop_depth: int
    stage: str | None
    source: Source | None
    source_text: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRow(PipelineCost):
    """Accesses of one source line that are alike, added up; ``accesses`` are their indices."""

    accesses: tuple[int, ...]
    threads: int | None
    worst: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTotal(PipelineCost):
    """All accesses of one kind: "global_load", "bulk_store", "shared_load", …

    ``reason`` is why ``ideal_cost`` is not known.
    """

    name: str
    reason: str | None


def access_rows(accesses: Sequence[AccessCounts], every: bool = False) -> tuple[AccessRow, ...]:
    """Accesses in source order, alike ones of one source line together (``every``: each alone)."""
    groups: dict[object, list[int]] = {}
    first: dict[object, int] = {}
    for index, a in enumerate(accesses):
        place = (a.source.file, a.source.line) if a.source is not None else None
        key = (place, a.space, a.opcode, a.pointer, a.stage, a.loop_depth, a.reason,
               a.machine or a.requests == 0, index if every else None)  # fmt: skip
        groups.setdefault(key, []).append(index)
        first.setdefault(place, a.line)
    ordered = sorted(groups.items(), key=lambda item: first[item[0][0]])  # type: ignore[index]
    return tuple(_row(tuple(indices), accesses) for _, indices in ordered)


def _row(indices: tuple[int, ...], accesses: Sequence[AccessCounts]) -> AccessRow:
    group = [accesses[index] for index in indices]
    return AccessRow(
        unit=group[0].unit,
        requests=added(a.requests for a in group),
        cost=added(a.cost for a in group),
        ideal_cost=added(a.ideal_cost for a in group),
        accesses=indices,
        threads=added(a.threads for a in group),
        worst=max((a.worst for a in group if a.worst is not None), default=None),
    )


def access_totals(
    accesses: Sequence[AccessCounts], counters: Mapping[str, int | None], unlisted: int
) -> tuple[AccessTotal, ...]:
    """Totals by kind; those of global memory are the counters.

    Args:
        accesses: the accesses of the kernel.
        counters: those of the launch.
        unlisted: accesses that the kernel has beside them, in functions that it calls.
    """
    totals = []
    for name in (*_GLOBAL, "shared_load", "shared_store"):
        some = _counted_by(name, accesses)
        listed = added(a.requests for a in some)
        requests = None if unlisted else listed
        cost = None if unlisted else added(a.cost for a in some)
        if name in _GLOBAL:
            cost = counters.get(f"{name}_sectors")
        if name.startswith("global"):
            requests = counters.get(f"{name}_requests")
        ideal = added(a.ideal_cost for a in some)
        reason = None
        if requests != listed:
            reason = (
                "accesses of functions that the kernel calls are not listed"
                if unlisted
                else _NOT_THE_SUM
            )
        elif ideal is None:
            reasons = [a.reason for a in some if a.ideal_cost is None and a.reason is not None]
            reason = reasons[0] if reasons else "the bytes of an access are not known"
        totals.append(
            AccessTotal(
                unit="sectors" if name in _GLOBAL else "wavefronts",
                requests=requests,
                cost=cost,
                ideal_cost=None if reason else ideal,
                name=name,
                reason=reason,
            )
        )
    return tuple(totals)


def _counted_by(name: str, accesses: Sequence[AccessCounts]) -> list[AccessCounts]:
    """The accesses that a counter is the sum of."""
    space, _, kind = name.partition("_")
    bulk = space == "bulk"
    kinds = (f"bulk_{kind}", kind) if bulk else (kind, *_ALSO.get(kind, ()))
    return [
        a
        for a in accesses
        if a.space == ("global" if bulk else space)
        and a.kind in kinds
        and bulk == (a.opcode.startswith("cp.") and ".bulk" in a.opcode)
    ]


@dataclass(frozen=True, slots=True)
class BranchCounts:
    """One conditional branch of the PTX over the launch.

    ``executed_warps`` is how often a warp comes to it, ``divergent_warps`` how often some of its
    threads then go one way and some the other. ``kind`` says whether they can at all
    (``divergent``, ``warp``, ``block``: the same for a warp or block, ``unknown``), ``basis`` why;
    ``reason`` is why a number is not known.
    """

    line: int
    opcode: str
    kind: str
    basis: str
    executed_warps: int | None
    divergent_warps: int | None
    reason: str | None
    source: Source | None
    source_text: str | None


@dataclass(frozen=True, slots=True)
class BranchRow:
    """Branches of one source line that split warps, added up; ``branches`` are their indices.

    ``divergent_share`` is divergent over executed warps.
    """

    branches: tuple[int, ...]
    executed_warps: int | None
    divergent_warps: int | None
    divergent_share: float | None


def branch_rows(branches: Sequence[BranchCounts]) -> tuple[BranchRow, ...]:
    """The branches that split warps, those of one source line together where they are known."""
    groups: dict[object, list[int]] = {}
    for index, branch in enumerate(branches):
        if branch.divergent_warps == 0:
            continue
        source = branch.source
        known = None not in (branch.divergent_warps, branch.executed_warps)
        key = (source.file, source.line) if source is not None and known else branch.line
        groups.setdefault(key, []).append(index)
    rows = []
    for indices in groups.values():
        executed = added(branches[i].executed_warps for i in indices)
        divergent = added(branches[i].divergent_warps for i in indices)
        rows.append(BranchRow(tuple(indices), executed, divergent, _ratio(divergent, executed)))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class Share:
    """Bytes of sectors that are touched by between ``least_blocks`` and ``most_blocks`` blocks."""

    least_blocks: int
    most_blocks: int
    bytes: int


@dataclass(frozen=True, slots=True)
class SectorsPerBlock:
    """Distinct sectors that a block touches: the fewest, the median, the most."""

    least: int
    typical: int
    most: int


@dataclass(frozen=True, slots=True)
class Sharing:
    """How often the sectors behind one pointer are touched, and by how many blocks.

    ``requested_bytes`` counts a sector for each request that touches it, ``by_block_bytes`` once
    for each block that does; ``again_in_block_bytes`` is the difference: what blocks ask for that
    they had asked for before. ``blocks`` are those that touch any sector, ``most_blocks`` the most
    that touch one and the same; ``shares`` add up to the distinct bytes, and ``fractions`` are
    theirs of them. ``times_by_block`` is how often one block asks for a sector that it touches.
    """

    requested_bytes: int
    by_block_bytes: int
    again_in_block_bytes: int
    blocks: int
    most_blocks: int
    shares: tuple[Share, ...]
    sectors_per_block: SectorsPerBlock
    times_by_block: float | None = field(init=False)
    fractions: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        distinct = sum(share.bytes for share in self.shares)
        derive(
            self,
            times_by_block=_ratio(self.requested_bytes, self.by_block_bytes),
            fractions=tuple(share.bytes / distinct for share in self.shares if distinct),
        )


@dataclass(frozen=True, slots=True)
class PointerBytes:
    """Distinct 32-byte sectors that the launch touches through one pointer, in bytes.

    ``read_sharing`` and ``write_sharing`` say which are touched more than once; None where nothing
    is read or written, or it is not known (``sharing_reason``).
    """

    pointer: str
    read_bytes: int | None
    write_bytes: int | None
    reason: str | None
    read_sharing: Sharing | None = None
    write_sharing: Sharing | None = None
    sharing_reason: str | None = None


@dataclass(frozen=True, slots=True)
class PointerRequests:
    """Bytes of all sectors that requests through one pointer ask for.

    ``read_times`` and ``write_times`` are how often each distinct sector is asked for.
    """

    pointer: str
    read_requested_bytes: int | None
    write_requested_bytes: int | None
    read_times: float | None
    write_times: float | None


@dataclass(frozen=True, slots=True)
class Compulsory:
    """Bytes that must be moved however large the caches are."""

    read_bytes: int | None
    write_bytes: int | None
    pointers: tuple[PointerBytes, ...]


@dataclass(frozen=True, slots=True)
class LayoutPart:
    """A layout of a shared array that takes fewer wavefronts, counted with it."""

    variable: str
    change: str
    wavefronts: int
    wavefronts_then: int


@dataclass(frozen=True, slots=True)
class OccupancyPart:
    """Blocks and warps that fit on an SM; see `kanalyze.occupancy`."""

    blocks_per_sm: int
    warps_per_sm: int
    percent: float
    limited_by: str
    limits: Mapping[str, int | None]
    better: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WavesPart:
    """How the grid fills the device; see `kanalyze.waves`."""

    blocks: int
    blocks_per_wave: int
    waves: float
    last_wave_blocks: int
    idle_share: float


@dataclass(frozen=True, slots=True)
class TimePart:
    """How long the launch takes, in microseconds: an estimate.

    ``bounds_us`` is what each resource needs at least, ``bound_by`` the one that explains the
    prediction ("latency" where none does), ``next_bound`` the runner-up and ``next_share`` its
    bound over the prediction. ``interval_us`` is the range over simulated runs, where it is wider
    than 3 %. ``achieved`` are rates at that time: ``tflops``, ``hbm_gb_per_s``, and shares of the
    device's peaks (``hbm_peak_share``, ``tensor_peak_share``, ``fp32_peak_share``), where known.
    """

    bounds_us: Mapping[str, float | None]
    predicted_us: float | None
    bound_by: str | None
    next_bound: str | None = None
    next_share: float | None = None
    interval_us: tuple[float, ...] | None = None
    achieved: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AtTime:
    """What the launch reaches at a time that was measured, see `kanalyze.performance.achieved`.

    ``distinct``: each sector that is read, and each that is written, once; ``requested``: the
    sectors that requests ask for; ``hbm_gb_per_s``: of the estimated bytes. ``hbm_peak_share`` is
    that of the distinct bytes, ``predicted_ratio`` the time over the predicted one.
    """

    time_us: float
    distinct_bytes: int | None
    distinct_gb_per_s: float | None
    requested_gb_per_s: float | None
    hbm_gb_per_s: float | None
    hbm_peak_gb_per_s: float | None
    hbm_peak_share: float | None
    tflops: float | None
    predicted_ratio: float | None


@dataclass(frozen=True, slots=True)
class RooflineLevel:
    """One level of memory: its bandwidth, what that rests on, and the roof that it makes.

    ``intensity`` is operations over the bytes that the launch moves there (None: none),
    ``ridge`` the intensity from which on the units are the limit; both in flop/B.
    """

    gb_per_s: float
    basis: str
    intensity: float | None
    ridge: float
    roof_tflops: float | None


@dataclass(frozen=True, slots=True)
class RooflinePart:
    """Where the launch stands, see `kanalyze.models.roofline`; rates in 10^12 operations a second.

    ``unit`` is what needs the longest for its operations ("fp32", "tensor fp16", …),
    ``ceiling_tflops`` what the units allow at most, ``roof_tflops`` what the lowest roof does, and
    ``bound`` its name: "hbm", "l2", "l1" or the unit. ``levels`` has those that are known,
    ``peaks_tflops`` the units that the launch uses. ``roof_share`` is achieved over roof.
    """

    unit: str
    peaks_tflops: Mapping[str, float]
    ceiling_tflops: float
    achieved_tflops: float
    roof_tflops: float
    bound: str
    levels: Mapping[str, RooflineLevel]
    roof_share: float | None = field(init=False)

    def __post_init__(self) -> None:
        derive(self, roof_share=_ratio(self.achieved_tflops, self.roof_tflops))


@dataclass(frozen=True, slots=True)
class Traffic(Document):
    """What `kanalyze.estimate` returns.

    ``at_time`` is there where a measured time was given.

    ``arguments`` are the scalars of the launch that are known; ``shared_bytes`` is the shared
    memory of a block, static and dynamic. ``bytes_by_space`` are the bytes that threads move, by
    state space and kind (``spill``: between registers and local memory, in the machine code);
    ``intensity`` are operations over the bytes that cross L1 (sectors that requests ask for), L2
    (what L1 does not hold, and what is written) and HBM (compulsory bytes).

    What follows from the others: the extents of the launch multiplied out, ``access_totals``,
    ``access_rows`` and ``branch_rows`` (what is alike, added up), ``pointers`` (what is asked for
    again), and ``dram_over_compulsory``: estimated HBM bytes over the compulsory ones.
    """

    kernel: str
    file: str
    device: str | None
    grid: tuple[int, ...]
    block: tuple[int, ...]
    analysed: Analysed
    counters: Mapping[str, int | None]
    interval: Mapping[str, tuple[int, ...]]
    compulsory: Compulsory
    occupancy: OccupancyPart | None
    waves: WavesPart | None
    time: TimePart
    flops: float | None
    flops_by_unit: Mapping[str, float]
    arithmetic_intensity: float | None
    intensity: Mapping[str, float | None]
    roofline: RooflinePart | None
    bytes_by_space: Mapping[str, Mapping[str, int | None]]
    registers_per_thread: int | None
    shared_bytes: int | None
    arguments: Mapping[str, int]
    accesses: tuple[AccessCounts, ...]
    branches: tuple[BranchCounts, ...]
    layouts: tuple[LayoutPart, ...]
    findings: tuple[Finding, ...]
    assumptions: tuple[str, ...]
    unknown: tuple[UnknownField, ...]
    at_time: AtTime | None = None
    schema: str = SCHEMA
    blocks: int = field(init=False)
    threads_per_block: int = field(init=False)
    warps_per_block: int = field(init=False)
    access_totals: tuple[AccessTotal, ...] = field(init=False)
    access_rows: tuple[AccessRow, ...] = field(init=False)
    branch_rows: tuple[BranchRow, ...] = field(init=False)
    pointers: tuple[PointerRequests, ...] = field(init=False)
    dram_over_compulsory: Mapping[str, float | None] = field(init=False)

    def __post_init__(self) -> None:
        threads = math.prod(self.block)
        least, counters = self.compulsory, self.counters
        derive(
            self,
            blocks=math.prod(self.grid),
            threads_per_block=threads,
            warps_per_block=-(-threads // _WARP),
            access_totals=access_totals(
                self.accesses, counters, self.analysed.of - len(self.accesses)
            ),
            access_rows=access_rows(self.accesses),
            branch_rows=branch_rows(self.branches),
            pointers=tuple(self._requests(pointer) for pointer in least.pointers),
            dram_over_compulsory={
                "read": _ratio(counters.get("dram_read_bytes"), least.read_bytes),
                "write": _ratio(counters.get("dram_write_bytes"), least.write_bytes),
            },
        )

    def _requests(self, pointer: PointerBytes) -> PointerRequests:
        mine = [
            a for a in self.accesses
            if a.space == "global" and (a.pointer or "unknown") == pointer.pointer
        ]  # fmt: skip
        reads = added(a.cost for a in mine if a.kind not in _WRITES)
        writes = added(a.cost for a in mine if a.kind in _WRITES)
        read = _requested(pointer.read_sharing, reads)
        write = _requested(pointer.write_sharing, writes)
        return PointerRequests(
            pointer.pointer,
            read,
            write,
            _ratio(read, pointer.read_bytes),
            _ratio(write, pointer.write_bytes),
        )


def _requested(sharing: Sharing | None, sectors: int | None) -> int | None:
    """Bytes of all sectors that requests ask for."""
    if sharing is not None:
        return sharing.requested_bytes
    return None if sectors is None else sectors * SECTOR_BYTES
