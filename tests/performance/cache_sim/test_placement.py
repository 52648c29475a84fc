"""Where lines lie in L2: even spreads, and samples of sets that are just what they say."""

from __future__ import annotations

import numpy as np
import pytest

from kanalyze.performance.cache_sim import placement
from kanalyze.performance.cache_sim.placement import PAGE


def places(first: int, number: int, sets: int) -> np.ndarray:
    return np.array([placement.place(line, sets) for line in range(first, first + number)])


@pytest.mark.parametrize("page", [0, 1, 77, 1 << 27])
@pytest.mark.parametrize("sets", [16, 960, 15360, 20480])
def test_the_lines_of_a_page_are_spread_evenly_over_the_sets(page: int, sets: int) -> None:
    """No set has two lines more of a page than another, and all are within."""
    found = places(page * PAGE, PAGE, sets)
    counts = np.bincount(found[:, 0], minlength=sets)
    assert len(counts) == sets
    assert counts.max() - counts.min() <= 1
    assert set(found[:, 1].tolist()) == {0, 1}


def test_pages_begin_at_places_of_their_own() -> None:
    """Over 200 pages the same line within the page falls into many sets: 200 balls in 15,360."""
    found = {placement.place(page * PAGE + 5, 15360)[0] for page in range(200)}
    assert len(found) > 190


def test_half_of_the_lines_lie_on_each_side() -> None:
    """40,000 lines: 5 deviations of a fair coin are 500; alike for lines of one set's parity."""
    found = places(123456, 40_000, 15360)
    assert abs(int(found[:, 1].sum()) - 20_000) < 500
    some = found[found[:, 0] % 64 == 0]
    assert abs(some[:, 1].mean() - 0.5) < 2.5 / len(some) ** 0.5


@pytest.mark.parametrize("rate", [1, 2, 8, 64])
def test_the_sample_is_the_lines_in_the_sets_that_are_multiples_of_the_rate(rate: int) -> None:
    rng = np.random.default_rng(rate)
    sizes = [1, 5, 0, 300]
    starts = np.cumsum([0, *sizes])
    lines = np.concatenate([np.sort(rng.choice(5000, n, replace=False)) for n in sizes])
    masks = rng.integers(1, 16, len(lines))
    pattern, base = rng.integers(0, 4, 40), rng.integers(0, 1 << 30, 40)
    sets = 15360
    found = placement.sampled(pattern, base, starts, lines, masks, sets, rate)
    taken = 0
    for tile in range(40):
        expected = []
        for j in range(starts[pattern[tile]], starts[pattern[tile] + 1]):
            line = int(base[tile] + lines[j])
            where, home = placement.place(line, sets)
            if where % rate == 0:
                expected.append((where // rate, home, line, int(masks[j])))
        some = slice(found.starts[tile], found.starts[tile + 1])
        columns = (found.set[some], found.home[some], found.line[some], found.mask[some])
        assert list(zip(*(c.tolist() for c in columns), strict=True)) == expected
        taken += len(expected)
    assert taken == len(found.line)
    assert taken > 0


def test_samples_are_as_large_as_they_should_be() -> None:
    """All lines of 8 pages: one in 64 to within 1 %."""
    every = np.arange(8 * PAGE)
    zero = np.zeros(1, np.int64)
    found = placement.sampled(
        zero, zero, np.array([0, len(every)]), every, every * 0 + 15, 15360, 64
    )
    assert abs(len(found.line) * 64 / len(every) - 1) < 0.01
