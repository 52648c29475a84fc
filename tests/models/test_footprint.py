"""Footprints against sets of sectors, whether kept as runs or marked one by one."""

import itertools
import tracemalloc

import numpy as np
import pytest

from kanalyze.models import footprint as module
from kanalyze.models.footprint import Footprint
from kanalyze.symbolic.parts import Array, TooLargeError

FAR = 1 << 24
Mark = tuple[Array, Array]


def touched(marks: list[Mark]) -> int:
    pairs = (itertools.product(bases.tolist(), offsets.tolist()) for bases, offsets in marks)
    return len({(base + offset) // 32 for some in pairs for base, offset in some})


def check(marks: list[Mark], *, kept: bool) -> None:
    low = min(int(b.min() + o.min()) for b, o in marks)
    high = max(int(b.max() + o.max()) for b, o in marks)
    near, far = Footprint.over(low, high), Footprint.over(low, high + FAR)
    for bases, offsets in marks:
        near.mark(bases, offsets)
        far.mark(bases, offsets)
    assert near.marks is not None
    assert (far.marks is None) == kept
    assert near.sectors == far.sectors == touched(marks)


def offsets_of(rng: np.random.Generator, reach: int) -> Array:
    return np.unique(rng.integers(-reach, reach, rng.integers(1, 40))).astype(np.int64)


@pytest.mark.parametrize("unit", [1, 4, 16, 32, 512])
@pytest.mark.parametrize("seed", range(40))
def test_evenly_spaced(seed: int, unit: int) -> None:
    rng = np.random.default_rng([seed, unit])
    step = int(rng.integers(1, 9)) * unit
    marks = []
    for _ in range(rng.integers(1, 5)):
        first, count = int(rng.integers(-5000, 5000)), int(rng.integers(1, 60))
        bases = first + step * np.arange(count)
        # patterns that stay within the step, and patterns longer than it
        marks.append((bases, offsets_of(rng, int(rng.choice([8, step, 5 * step + 32])))))
    check(marks, kept=True)


@pytest.mark.parametrize("seed", range(60))
def test_any_mixture(seed: int) -> None:
    rng = np.random.default_rng(seed)
    marks = []
    for _ in range(rng.integers(1, 6)):
        first, count = int(rng.integers(-9000, 9000)), int(rng.integers(1, 25))
        match rng.integers(4):
            case 0:  # steps of their own
                bases = first + int(rng.integers(1, 700)) * np.arange(count)
            case 1:  # falling
                bases = first - 96 * np.arange(count)
            case 2:  # rows of blocks
                bases = (first + 4096 * np.arange(count)[:, None] + 144 * np.arange(3)).reshape(-1)
            case _:  # irregular, repeated, in no order
                bases = first + rng.integers(-3000, 3000, count)
        marks.append((bases.astype(np.int64), offsets_of(rng, int(rng.choice([16, 300, 2000])))))
    wide = Footprint.over(-FAR, FAR)
    for bases, offsets in marks:
        wide.mark(bases, offsets)
    assert wide.sectors == touched(marks)
    check(marks, kept=wide.marks is None)


@pytest.mark.parametrize("most", [0, 3, 20])
@pytest.mark.parametrize("seed", range(20))
def test_marked_one_by_one_on_the_way(
    seed: int, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MOST_RUNS", most)
    monkeypatch.setattr(module, "_FEW_SECTORS", 64)
    rng = np.random.default_rng(seed)
    marks = []
    for step in rng.choice([40, 96, 640, 4096], 4).tolist():
        bases = int(rng.integers(-999, 999)) + step * np.arange(rng.integers(1, 30))
        kept = rng.random(len(bases)) < rng.choice([0.5, 1.0])
        kept[0] = True
        marks.append((bases[kept], offsets_of(rng, 900)))
    footprint = Footprint.over(-(1 << 17), 1 << 18)
    for bases, offsets in marks:
        footprint.mark(bases, offsets)
    assert footprint.sectors == touched(marks)


def test_nothing() -> None:
    for high in (0, FAR):
        footprint = Footprint.over(0, high)
        footprint.mark(np.zeros(0, np.int64), np.zeros(1, np.int64))
        assert footprint.sectors == 0


def test_many_blocks_need_no_marks() -> None:
    blocks = 1 << 22
    bases = 4096 * np.arange(blocks)
    offsets = np.concatenate((np.arange(0, 1024, 16), np.arange(2000, 2100, 4)))
    tracemalloc.start()
    footprint = Footprint.over(0, 4096 * blocks)
    footprint.mark(bases, offsets)
    footprint.mark(bases + 64, offsets)
    sectors = footprint.sectors
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    first = touched([(bases[:1], offsets), (bases[:1] + 64, offsets)])
    assert sectors == first * blocks
    assert footprint.marks is None
    assert peak < 128 << 20  # a few arrays as long as the bases; marks would be 512 MiB


def test_far_apart() -> None:
    footprint = Footprint.over(0, 1 << 50)
    footprint.mark(np.array([0, 1 << 49, 1 << 50]), np.arange(0, 128, 4))
    assert footprint.sectors == 3 * 4
    rng = np.random.default_rng(0)
    with pytest.raises(TooLargeError):
        footprint.mark(rng.integers(0, 1 << 50, 1 << 12), np.zeros(1, np.int64))
