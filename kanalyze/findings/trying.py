"""Other compilations of a kernel in the same launch: what they are called, and which is fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanalyze.compile import grid_with
from kanalyze.errors import KanalyzeError
from kanalyze.findings.facts import Facts
from kanalyze.report.document import Finding, Proof
from kanalyze.report.traffic_document import Traffic

WORTH = 0.05
"""Share of the time that a change must save to be worth it: the model's ranking errs by as much."""
_SMS = 0.9  # of the SMs that have a block in a launch that fills the GPU
_LEAST_US = 1.0  # less is what launches of one kernel differ by
NO_SOURCE = "there is no source to compile again, only its PTX"
"""Why a change was not tried."""
LAUNCH = 0.5
"""Share of the time from which a launch is mostly the launch itself."""
_LEAST_WARPS, _MOST_WARPS = 1, 16
_SMALLEST, _LARGEST = 16, 8192  # tile sizes worth trying
_SAME_WORK = 0.95  # of the operations: fewer are another computation
_TRITON_SHARED = "global_smem"  # what Triton calls a kernel's shared memory


@dataclass(frozen=True)
class Change:
    """Arguments of `Facts.again`, and what they are called."""

    words: str
    changes: Mapping[str, Any]

    def with_(self, more: Change) -> Change:
        """This one and another one."""
        settings = {**self.changes.get("settings", {}), **more.changes.get("settings", {})}
        options = {k: v for k, v in {**self.changes, **more.changes}.items() if k != "settings"}
        words = ", ".join(f"{name}={value}" for name, value in {**settings, **options}.items())
        return Change(words, {**options, "settings": settings} if settings else options)


@dataclass(frozen=True)
class Tried:
    """A change, the kernel compiled with it, and the estimate of its launch."""

    change: Change
    facts: Facts
    traffic: Traffic

    @property
    def words(self) -> str:
        """What the change is called."""
        return self.change.words


def from_triton(facts: Facts) -> bool:
    """Whether Triton made the kernel."""
    return facts.compiled is not None or _TRITON_SHARED in facts.description.variables


def tiles(facts: Facts) -> dict[str, int]:
    """Constexprs that may be the extents of a tile: powers of two."""
    if facts.compiled is None:
        return {}
    return {
        name: value
        for name, value in facts.compiled.constexprs.items()
        if isinstance(value, int)
        and not isinstance(value, bool)
        and _SMALLEST <= value <= _LARGEST
        and value & (value - 1) == 0
    }


def resized(facts: Facts, factors: Sequence[float] = (0.5, 2)) -> Iterator[Change]:
    """Each tile size by each factor."""
    for name, value in tiles(facts).items():
        for factor in factors:
            other = int(value * factor)
            if other >= _SMALLEST:
                yield Change(f"{name}={other}", {"settings": {name: other}})


def other_warps(facts: Facts) -> Iterator[Change]:
    """Half and twice as many warps."""
    if facts.compiled is None:
        return
    now = facts.compiled.metadata.get("num_warps", 4)
    for other in (now // 2, now * 2):
        if _LEAST_WARPS <= other <= _MOST_WARPS:
            yield Change(f"num_warps={other}", {"num_warps": other})


def more_stages(facts: Facts) -> Iterator[Change]:
    """One stage more, and two."""
    if facts.compiled is None:
        return
    now = facts.compiled.metadata.get("num_stages", 3)
    for other in (now + 1, now + 2):
        yield Change(f"num_stages={other}", {"num_stages": other})


def estimates(
    facts: Facts,
    changes: Iterable[Change],
    least: float = 1.0,
    fits: Callable[[Facts, Facts], bool] = lambda now, then: True,
) -> Iterator[Tried]:
    """The changes that compile, whose launch can be estimated, and that do the same work.

    Args:
        facts: the kernel and its launch.
        changes: what to try.
        least: the share of the operations that a change may not fall below.
        fits: whether a compilation is worth an estimate, told the kernel and that.
    """
    if facts.traffic is None:
        return
    for change in changes:
        other = facts.again(**change.changes)
        if isinstance(other, str):
            continue
        if not fits(facts, other):
            continue
        traffic = facts.estimated(other)
        if not isinstance(traffic, str) and same_work(facts.traffic, traffic, least):
            yield Tried(change, other, traffic)


def fastest(
    facts: Facts,
    changes: Iterable[Change],
    least: float = 1.0,
    fits: Callable[[Facts, Facts], bool] = lambda now, then: True,
) -> Tried | None:
    """The change with the shortest predicted time (see `estimates`); None where there is none."""
    tried = estimates(facts, changes, least, fits)
    known = [t for t in tried if t.traffic.time.predicted_us]
    return min(known, key=lambda t: t.traffic.time.predicted_us or math.inf, default=None)


def _other_grid(now: Facts, then: Facts) -> bool:
    """Whether the launch has another number of blocks."""
    if now.launch is None or then.launch is None:
        return False
    return math.prod(now.launch.grid) != math.prod(then.launch.grid)


def _changes_grid(facts: Facts, change: Change) -> bool:
    """Whether a change of constexprs gives another grid, as far as that is known beforehand."""
    compiled = facts.compiled
    if compiled is None or compiled.grid is None:
        return True
    try:
        grid = grid_with(compiled, change.changes["settings"])
    except KanalyzeError:
        return False
    return grid is None or math.prod(grid) != math.prod(compiled.grid)


def climb(
    facts: Facts,
    changes_of: Callable[[Facts], Iterable[Change]],
    rounds: int,
    least: float = 1.0,
    fits: Callable[[Facts, Facts], bool] = lambda now, then: True,
) -> Tried | None:
    """The change with the shortest predicted time, then another one beside it, and so on.

    Args:
        facts: the kernel and its launch.
        changes_of: what to try of a compilation.
        rounds: how many changes at most.
        least, fits: see `estimates`.

    Returns:
        The last one; each saved `WORTH` of the time. None if none does.
    """
    best: Tried | None = None
    now = facts.traffic
    for _ in range(rounds):
        before = best.change if best is not None else Change("", {})
        changes = [before.with_(c) for c in changes_of(best.facts if best else facts)]
        found = fastest(facts, changes, least, fits)
        if found is None or now is None or not worth(now, found.traffic):
            break
        best, now = found, found.traffic
    return best


def worth(now: Traffic, then: Traffic) -> bool:
    """Whether the time that is saved is worth a change: 5 %, and a microsecond."""
    saved = (now.time.predicted_us or 0.0) - (then.time.predicted_us or 0.0)
    return gain(now, then) >= WORTH and saved >= _LEAST_US


def gain(now: Traffic, then: Traffic) -> float:
    """The share of the predicted time that is saved."""
    before, after = now.time.predicted_us, then.time.predicted_us
    return 1 - after / before if before and after else 0.0


def same_work(now: Traffic, then: Traffic, least: float = 1.0) -> bool:
    """Whether the same bytes are read and written, and no fewer operations than ``least`` of all.

    A constexpr may also say what is computed (the length of a row): a launch that with another
    value no longer touches the same memory, or computes less, is no other way to do the same.
    """
    bytes_ = [
        {p.pointer: (p.read_bytes, p.write_bytes) for p in t.compulsory.pointers}
        for t in (now, then)
    ]
    if None in (now.compulsory.read_bytes, now.compulsory.write_bytes) or bytes_[0] != bytes_[1]:
        return False
    return (then.flops or 0) >= _SAME_WORK * least * (now.flops or 0)


def share(traffic: Traffic, bound: str) -> float:
    """What a bound is of the predicted time; 0 where it is not known."""
    time = traffic.time
    return (time.bounds_us.get(bound) or 0.0) / time.predicted_us if time.predicted_us else 0.0


def leaves_sms_idle(facts: Facts) -> bool:
    """Whether 10 % of the SMs and more have no block."""
    launch, device = facts.launch, facts.device
    if launch is None or device is None or not device.sms:
        return False
    return math.prod(launch.grid) < _SMS * device.sms


def shared_by_all(traffic: Traffic) -> float:
    """The largest share among the resources that all SMs share: HBM and L2."""
    return max(share(traffic, "hbm"), share(traffic, "l2"))


def with_other_tiles(
    facts: Facts,
    finding: Finding,
    factors: Sequence[float] = (0.5, 2),
    least: float = 1.0,
    fills: bool = False,
) -> Finding:
    """A finding on the grid, with the tile size with which the launch is fastest.

    With ``fills`` nothing more is tried once the SMs have a block each.

    A warning where that saves 5 % of the time; else as it is, with what was tried.
    """
    now = facts.traffic
    if facts.compiled is None or now is None:
        return replace(finding, unproven=NO_SOURCE)
    if not tiles(facts):
        return replace(finding, unproven="no constexpr of the kernel looks like a tile size")

    def changes(of: Facts) -> Iterator[Change]:
        idle = not fills or leaves_sms_idle(of)
        return (c for c in resized(of, factors) if idle and _changes_grid(of, c))

    best = climb(facts, changes, 2, least, _other_grid)
    if best is None:
        said = " or ".join("halved" if factor < 1 else "doubled" for factor in factors)
        return replace(finding, unproven=f"no tile size, {said}, saves 5 % of the time and 1 us")
    before, after = _filling(now), _filling(best.traffic)
    saved = before["time_us"] - after["time_us"]
    return replace(
        finding,
        severity="warning",
        advice=f"{best.words}: {100 * gain(now, best.traffic):.0f} % less time by the estimate",
        proof=Proof("simulated", best.words, before, after),
        saves={"time_us": round(saved, 3)},
    )


def _filling(traffic: Traffic) -> dict[str, float]:
    waves = traffic.waves
    return {
        "blocks": float(math.prod(traffic.grid)),
        "waves": waves.waves if waves is not None else 0.0,
        "time_us": traffic.time.predicted_us or 0.0,
    }
