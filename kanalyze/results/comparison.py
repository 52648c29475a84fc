"""Launches side by side as data: what `kanalyze traffic --versus` and ``--over`` show.

A number that is not known is None and stands in ``unknown`` with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from kanalyze.results.kernel import Document, UnknownField, derive

SCHEMA = "kanalyze.comparison/1"


@dataclass(frozen=True, slots=True)
class Step:
    """One launch, or ``launches`` alike ones; its numbers are those of one.

    Bytes in bytes, times in microseconds. ``compulsory_bytes`` are the distinct sectors that it
    reads and writes, ``l1_bytes`` the sectors that its requests to global memory ask for;
    ``l2_bytes`` (what passes between L2 and the SMs) and what follows are estimates;
    ``*_interval`` the range over simulated runs, None where it is narrow. ``tflops`` and
    ``hbm_gb_per_s`` are reached at the predicted time.
    """

    what: str
    kernel: str
    launches: int
    grid: tuple[int, ...]
    compulsory_bytes: int | None
    l1_bytes: int | None
    l2_bytes: int | None
    dram_read_bytes: int | None
    dram_write_bytes: int | None
    dram_read_interval: tuple[int, ...] | None
    flops: float | None
    predicted_us: float | None
    interval_us: tuple[float, ...] | None
    bound_by: str | None
    tflops: float | None
    hbm_gb_per_s: float | None


@dataclass(frozen=True, slots=True)
class SideTotals:
    """Sums over the launches of one side; None where one of them is not known."""

    launches: int
    compulsory_bytes: int | None
    l1_bytes: int | None
    l2_bytes: int | None
    dram_read_bytes: int | None
    dram_write_bytes: int | None
    dram_bytes: int | None
    flops: float | None
    predicted_us: float | None


@dataclass(frozen=True, slots=True)
class Side:
    """One way to compute the result, at one point: its launches in order, and their sums."""

    steps: tuple[Step, ...]
    totals: SideTotals


@dataclass(frozen=True, slots=True)
class Point:
    """Both sides for one value of what is swept (None: nothing is).

    ``ratios`` are the second side's totals over the first's; None where one is not known, or the
    first is 0. Of one side alone there are none.
    """

    value: int | None
    sides: tuple[Side, ...]
    ratios: Mapping[str, float | None] = field(init=False)

    def __post_init__(self) -> None:
        derive(self, ratios=_ratios(*(side.totals for side in self.sides[:2])))


def _ratios(first: SideTotals, second: SideTotals | None = None) -> dict[str, float | None]:
    ratios: dict[str, float | None] = {}
    for quantity in fields(first) if second is not None else ():
        a, b = getattr(first, quantity.name), getattr(second, quantity.name)
        ratios[quantity.name] = b / a if a and b is not None else None
    return ratios


@dataclass(frozen=True, slots=True)
class Growth:
    """The exponent e of ``quantity ~ value ** e`` of each side, from one point to the last."""

    quantity: str
    from_value: int
    to_value: int
    exponents: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class Comparison(Document):
    """What `kanalyze.analysis.versus.compare` returns.

    ``sides`` names the sides (one or two), ``summaries`` says what they are; ``over`` is the name
    whose values the points are; ``settings`` are the shape of the first side. ``estimated`` says
    whether caches, HBM and time were asked for, too.
    """

    device: str | None
    sides: tuple[str, ...]
    summaries: tuple[str, ...]
    dtype: str | None
    over: str | None
    settings: Mapping[str, int]
    estimated: bool
    points: tuple[Point, ...]
    growth: tuple[Growth, ...]
    assumptions: tuple[str, ...]
    unknown: tuple[UnknownField, ...]
    schema: str = SCHEMA
