"""In a profile, matrix products fill their tiles badly (see the rule on launches)."""

from __future__ import annotations

from kanalyze.findings.profile import WORTH, Profile, names
from kanalyze.findings.rule import ProfileRule
from kanalyze.models.tiling import tile_efficiency
from kanalyze.results.profile import ProfiledKernel, ProfileFinding
from kanalyze.text.numbers import duration

_ID = "tile-quantisation"


def check(profile: Profile) -> list[ProfileFinding]:
    """Results whose size is not a multiple of the tile: a part of each edge tile is thrown away.

    Libraries swap operands for row-major results, so the better orientation of the tile counts.
    """
    worst: list[tuple[float, ProfiledKernel, str]] = []
    total = profile.total_us
    lost = time = 0.0
    for row in profile.rows:
        m, n = row.name.decoded.get("tile_m"), row.name.decoded.get("tile_n")
        if not isinstance(m, int) or not isinstance(n, int) or m < 1 or n < 1:
            continue
        for problem in row.problems:
            used = max(tile_efficiency(problem.m, problem.n, *t) for t in ((m, n), (n, m)))
            if used < 0.8 and problem.total_us / total >= WORTH / 5:
                lost += problem.total_us * (1 - used)
                time += problem.total_us
                text = f"{problem.m} x {problem.n} in tiles of {m} x {n}: {used:.0%} used"
                worst.append((problem.total_us * (1 - used), row, text))
    if time / total < WORTH:
        return []
    worst.sort(key=lambda w: -w[0])
    chosen = [row for _, row, _ in worst]
    return [
        ProfileFinding(
            _ID,
            "info",
            f"matrix products with {time / total:.0%} of the time fill their tiles badly "
            f"({'; '.join(text for _, _, text in worst[:3])}): up to {duration(lost)} is spent on "
            "elements outside the result",
            "sizes that are multiples of the tile (pad the dimension), or a larger batch",
            names(chosen),
            {"total_us": time, "share": time / total, "lost_us": lost},
        )
    ]


RULE = ProfileRule(_ID, check)
