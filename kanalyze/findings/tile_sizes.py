"""The tile size with which a launch is fastest, for findings on its grid."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from kanalyze.errors import KanalyzeError
from kanalyze.findings import bounds, trials
from kanalyze.findings.changes import Change, resized, tiles
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.frontend.compile import grid_with
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import Traffic


def with_other_tiles(
    facts: Facts,
    finding: Finding,
    factors: Sequence[float] = (0.5, 2),
    least: float = 1.0,
    fills: bool = False,
) -> Finding:
    """A finding on the grid, with the tile size with which the launch is fastest.

    With ``fills`` nothing more is tried once the SMs have a block each.

    A warning where that saves time that is worth it; else as it is, with what was tried.
    """
    now = facts.traffic
    if facts.compiled is None or now is None:
        return replace(finding, unproven=NO_SOURCE)
    if not tiles(facts):
        return replace(finding, unproven="no constexpr of the kernel looks like a tile size")

    def changes(of: Facts) -> Iterator[Change]:
        if fills and not bounds.leaves_sms_idle(of):
            return iter(())
        return (c for c in resized(of, factors) if changes_grid(of, c))

    def other_grid(then: Facts) -> bool:
        return then.launch is not None and math.prod(then.launch.grid) != math.prod(now.grid)

    best = trials.climb(facts, changes, 2, other_grid, least)
    if best is None or best.traffic is None:
        said = " or ".join("halved" if factor < 1 else "doubled" for factor in factors)
        return replace(finding, unproven=f"no tile size, {said}, saves 5 % of the time and 1 us")
    before, after = _filling(now), _filling(best.traffic)
    return replace(
        finding,
        severity="warning",
        advice=f"{best.words}: {100 * trials.gain(facts, best):.0f} % less time by the estimate",
        proof=Proof("simulated", best.words, before, after),
        saves={"time_us": round(before["time_us"] - after["time_us"], 3)},
    )


def changes_grid(facts: Facts, change: Change) -> bool:
    """Whether a change of constexprs gives another grid, as far as that is known beforehand."""
    compiled = facts.compiled
    if compiled is None or compiled.grid is None:
        return True
    try:
        grid = grid_with(compiled, change.changes["settings"])
    except KanalyzeError:
        return False
    return grid is None or math.prod(grid) != math.prod(compiled.grid)


def _filling(traffic: Traffic) -> dict[str, float]:
    waves = traffic.waves
    return {
        "blocks": float(math.prod(traffic.grid)),
        "waves": waves.waves if waves is not None else 0.0,
        "time_us": traffic.time.predicted_us or 0.0,
    }
