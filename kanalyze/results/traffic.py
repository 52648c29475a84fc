"""The estimate for one launch as data: what `kanalyze traffic` shows and its JSON holds.

A number that is not known is None and stands in ``unknown`` with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kanalyze.results.kernel import Finding, Source, UnknownField
from kanalyze.results.plain import document, from_plain, of_schema

SCHEMA = "kanalyze.traffic/1"


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """One memory instruction over the launch.

    ``requests`` are warp executions with a lane taking part, ``threads`` lanes that take part, over
    all of them. ``cost`` is sectors for global accesses and bank wavefronts for shared ones
    (``unit`` says which), ``ideal_cost`` what the same lanes would cost if they lay contiguously
    and aligned (never more than ``cost``, which is less where lanes share an address); ``worst`` is
    the greatest cost of one request. ``pattern`` is how the lanes of the block's first warp lie.
    ``source_text`` is the source line, where it can be read.
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
    requests: int | None
    threads: int | None
    unit: str
    cost: int | None
    ideal_cost: int | None
    worst: int | None
    reason: str | None
    loop_depth: int
    stage: str | None
    source: Source | None
    source_text: str | None


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
    that touch one and the same; ``shares`` add up to the distinct bytes.
    """

    requested_bytes: int
    by_block_bytes: int
    again_in_block_bytes: int
    blocks: int
    most_blocks: int
    shares: tuple[Share, ...]
    sectors_per_block: SectorsPerBlock


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
    ``peaks_tflops`` the units that the launch uses.
    """

    unit: str
    peaks_tflops: Mapping[str, float]
    ceiling_tflops: float
    achieved_tflops: float
    roof_tflops: float
    bound: str
    levels: Mapping[str, RooflineLevel]


@dataclass(frozen=True, slots=True)
class Analysed:
    """How many memory accesses were counted, out of how many."""

    accesses: int
    of: int


@dataclass(frozen=True, slots=True)
class Traffic:
    """What `kanalyze.estimate` returns.

    ``at_time`` is there where a measured time was given.

    ``arguments`` are the scalars of the launch that are known; ``shared_bytes`` is the shared
    memory of a block, static and dynamic. ``bytes_by_space`` are the bytes that threads move, by
    state space and kind (``spill``: between registers and local memory, in the machine code);
    ``intensity`` are operations over the bytes that cross L1 (sectors that requests ask for), L2
    (what L1 does not hold, and what is written) and HBM (compulsory bytes).
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

    def to_dict(self) -> dict[str, Any]:
        """The estimate as JSON-ready data."""
        return document(self)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Traffic:
        """The inverse of `to_dict`.

        Raises:
            TypeError: a key is missing or not known.
            ValueError: the data has another schema.
        """
        traffic: Traffic = from_plain(Traffic, of_schema(data, SCHEMA))
        return traffic
