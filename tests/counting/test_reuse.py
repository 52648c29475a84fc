"""Sectors by the blocks that touch them: against the trace of every thread, and brute force."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pytest

from kanalyze import estimate, parse_ptx
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.models import block_accesses, boxes, reuse
from kanalyze.models.boxes import SectorRun
from kanalyze.models.footprint import Footprint
from kanalyze.render.traffic_text import render
from kanalyze.results import traffic as doc
from kanalyze.symbolic.parts import TooLargeError
from tests.oracle.interpreter import run

# ---------------------------------------------------------------- runs and lattices


def sectors_of(item: SectorRun) -> list[int]:
    return [item.first + i * item.step + j for i in range(item.times) for j in range(item.length)]


def runs_of(rng: np.random.Generator, number: int) -> list[SectorRun]:
    found = []
    for _ in range(number):
        length = int(rng.integers(1, 9))
        step = int(rng.choice([length + 1, 12, 40])) if rng.random() < 0.7 else 0
        times = int(rng.integers(2, 7)) if step > length else 1
        found.append(SectorRun(int(rng.integers(-50, 90)), step if times > 1 else 0, times, length))
    return found


@pytest.mark.parametrize("seed", range(150))
def test_covers_are_counted(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(seed)
    runs = runs_of(rng, int(rng.integers(1, 12)))
    weights = rng.integers(1, 5, len(runs)).tolist()
    covers: Counter[int] = Counter()
    for item, weight in zip(runs, weights, strict=True):
        for sector in sectors_of(item):
            covers[sector] += weight
    expected = Counter(covers.values())
    assert boxes.covered(runs, weights) == expected
    monkeypatch.setattr(boxes, "_FEW_RUNS", 0)
    assert boxes.covered(runs, weights) == expected
    monkeypatch.setattr(boxes, "_MOST_BOXES", 0)
    assert boxes.covered(runs, weights) == expected
    monkeypatch.setattr(boxes, "_MOST_RUNS", 0)
    with pytest.raises(TooLargeError):
        boxes.covered(runs, weights)


@pytest.mark.parametrize("seed", range(60))
def test_marked_sectors_as_runs_that_do_not_overlap(seed: int) -> None:
    rng = np.random.default_rng(seed)
    near, far = Footprint.over(-6400, 32_000), Footprint.over(-6400, 1 << 24)
    touched: set[int] = set()
    for _ in range(rng.integers(1, 5)):
        bases = int(rng.integers(-999, 999)) + int(rng.integers(1, 500)) * np.arange(
            rng.integers(1, 30)
        )
        offsets = rng.integers(0, 900, rng.integers(1, 20)).astype(np.int64)
        near.mark(bases, offsets)
        far.mark(bases, offsets)
        touched |= {int(b + o) // 32 for b in bases for o in offsets}
    for footprint in (near, far):
        found = [sector for item in footprint.disjoint() for sector in sectors_of(item)]
        assert sorted(found) == sorted(touched)


@pytest.mark.parametrize("seed", range(100))
def test_lattices_hold_the_places(seed: int) -> None:
    rng = np.random.default_rng(seed)
    grid = np.add.outer(
        np.add.outer(rng.integers(1, 9) * np.arange(rng.integers(1, 7)),
                     rng.integers(30, 90) * np.arange(rng.integers(1, 6))),
        rng.integers(500, 700) * np.arange(rng.integers(1, 4)),
    ).reshape(-1)  # fmt: skip
    kept = grid[rng.random(len(grid)) < rng.choice([0.7, 1.0])]
    places = np.unique(np.concatenate((kept, rng.integers(0, 2000, rng.integers(0, 3)))))
    weights = rng.integers(1, int(rng.choice([2, 4])), len(places))
    found: Counter[int] = Counter()
    for lattice in reuse.lattices(places, weights):
        spread = np.array([lattice.first])
        for step, times in lattice.steps:
            spread = (spread[:, None] + step * np.arange(times)).reshape(-1)
        for place in spread.tolist():
            found[place] += lattice.weight
    assert found == dict(zip(places.tolist(), weights.tolist(), strict=True))


@pytest.mark.parametrize("seed", range(200))
def test_runs_at_lattice_places_are_merged(seed: int) -> None:
    rng = np.random.default_rng(seed)
    (item,) = runs_of(rng, 1)
    steps = tuple(
        (int(rng.integers(1, 60)), int(rng.integers(2, 5))) for _ in range(rng.integers(0, 3))
    )
    lattice = reuse.Lattice(int(rng.integers(-20, 20)), steps, 3)
    runs: list[SectorRun] = []
    weights: list[int] = []
    reuse._add(runs, weights, item, lattice)
    made: Counter[int] = Counter()
    for each, weight in zip(runs, weights, strict=True):
        assert weight == 3
        made.update(sectors_of(each))
    spread = np.array([lattice.first])
    for step, times in steps:
        spread = (spread[:, None] + step * np.arange(times)).reshape(-1)
    expected: Counter[int] = Counter()
    for place in spread.tolist():
        expected.update(sector + place for sector in sectors_of(item))
    assert made == expected


# ---------------------------------------------------------------- launches

HEAD = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 16 x) .reqntid 96
{
.reg .b32 %r<40>;
.reg .b64 %rd<40>;
ld.param.u64 %rd1, [x];
mov.u32 %r2, %tid.x;
mov.u32 %r3, %ctaid.x;
mad.lo.s32 %r4, %r3, 96, %r2;
"""


def traced(trace: Any, low: int, high: int, writes: bool) -> tuple[Counter[int], Counter[int], int]:
    """Blocks by sector, as a histogram; blocks by distinct sectors; sectors of all requests."""
    by_block: dict[Any, set[int]] = defaultdict(set)
    asked = 0
    for record in trace.accesses:
        kind, _, rest = record.opcode.partition(".")
        if kind not in ("ld", "st", "cp", "atom", "red") or rest.startswith(("shared", "param")):
            continue
        if {"ld": False, "cp": False, "st": True}.get(kind, writes) != writes:
            continue
        active = record.active
        if record.source_size is not None:
            active = active & (record.source_size > 0)
        active = active & (record.addresses >= low) & (record.addresses < high)
        where = record.addresses // 32
        for warp in range(0, len(active), 32):
            some = slice(warp, warp + 32)
            touched = set(where[some][active[some]].tolist())
            asked += len(touched)
            if touched:
                by_block[record.block] |= touched
    blocks = Counter(sector for sectors in by_block.values() for sector in sectors)
    return Counter(blocks.values()), Counter(len(s) for s in by_block.values()), asked


def check(found: doc.Sharing, expected: tuple[Counter[int], Counter[int], int]) -> None:
    by_blocks, by_sectors, asked = expected
    assert found.requested_bytes == asked * 32
    assert found.by_block_bytes == 32 * sum(n * amount for n, amount in by_sectors.items())
    assert found.again_in_block_bytes == found.requested_bytes - found.by_block_bytes
    assert found.blocks == sum(by_sectors.values())
    assert found.most_blocks == max(by_blocks)
    sizes = sorted(by_sectors.elements())
    assert found.sectors_per_block == doc.SectorsPerBlock(
        sizes[0], sizes[(len(sizes) - 1) // 2], sizes[-1]
    )
    for share in found.shares:
        inside = [n for n in by_blocks if share.least_blocks <= n <= share.most_blocks]
        assert {share.least_blocks, share.most_blocks} <= set(inside)
        assert share.bytes == 32 * sum(by_blocks[n] for n in inside)
    assert sum(share.bytes for share in found.shares) == 32 * sum(by_blocks.values())


pytest.importorskip("triton")
from tests.counting.test_ptx_launch import CASES, PLACES, compiled_of, launch_of  # noqa: E402


@pytest.mark.slow("runs every thread of whole launches in the interpreter")
@pytest.mark.parametrize("listed", [False, True], ids=["by classes", "one by one"])
@pytest.mark.parametrize("shift", [0, 4112], ids=["aligned", "moved by 4112 bytes"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]}-{c[3]}-{'-'.join(map(str, c[1]))}")
def test_sharing_equals_that_of_the_trace(
    case: Any, shift: int, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(block_accesses, "_MOST_LANES", 1 << 22 if listed else 0)
    monkeypatch.setattr(reuse, "_MOST_CLASSES", 0 if listed else 1 << 9)
    compiled = compiled_of(case)
    launch, values = launch_of(compiled, shift)
    x, y, z = launch.grid
    indices = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    trace = run(compiled.ptx, compiled.name, launch.grid, launch.block, values, indices)
    traffic = estimate(compiled, launch, simulate=False, findings=False)
    compared = 0
    for index, param in enumerate(launch.params):
        row = next((r for r in traffic.compulsory.pointers if r.pointer == param.name), None)
        if row is None:
            continue
        low = PLACES * (index + 1)
        for writes, sharing in ((False, row.read_sharing), (True, row.write_sharing)):
            expected = traced(trace, low, low + PLACES, writes)
            assert (sharing is not None) == bool(expected[0])
            if sharing is not None:
                check(sharing, expected)
                compared += 1
    assert compared >= 2


def test_addresses_in_which_blocks_and_threads_mix() -> None:
    """Rows of 7 elements, 96 threads a block: element ``i`` lies at row i % 5 of 256 bytes."""
    text = (
        HEAD
        + """rem.u32 %r5, %r4, 5;
div.u32 %r6, %r4, 5;
shl.b32 %r7, %r5, 8;
shl.b32 %r8, %r6, 2;
add.s32 %r9, %r7, %r8;
and.b32 %r9, %r9, 1020;
cvt.u64.u32 %rd2, %r9;
add.s64 %rd3, %rd1, %rd2;
ld.volatile.global.b32 %r10, [%rd3];
ret;
}
"""
    )
    blocks = 4
    launch = Launch("k", (blocks, 1, 1), (96, 1, 1), (LaunchParam("x", "*fp32", PLACES),))
    data = np.zeros(4096, np.uint32)
    indices = [(block, 0, 0) for block in range(blocks)]
    trace = run(text, "k", (blocks, 1, 1), (96, 1, 1), [(PLACES, data)], indices)
    (row,) = estimate(parse_ptx(text), launch, simulate=False, findings=False).compulsory.pointers
    assert row.read_sharing is not None
    assert row.read_sharing.most_blocks > 1
    generic = parse_ptx(text.replace("ld.global.b32", "ld.b32"))
    (same,) = estimate(generic, launch, simulate=False, findings=False).compulsory.pointers
    assert same.read_sharing == row.read_sharing
    check(row.read_sharing, traced(trace, PLACES, PLACES + 16384, False))


@pytest.mark.slow("compiles and counts a matrix product")
def test_sharing_in_words() -> None:
    case = ("softmax", {"M": 3, "N": 1001}, "fp16", "sm_80")
    launch, _ = launch_of(compiled_of(case), 0)
    text = render(estimate(compiled_of(case), launch, simulate=False, findings=False), width=200)
    assert "98.9 % by 1 block, 1.06 % by 2," in text  # 2 of 188: where rows meet
    case = ("matmul_relu", {"M": 300, "N": 272, "K": 136, "GROUP_M": 2}, None, "sm_90")
    launch, _ = launch_of(compiled_of(case), 0)
    text = render(estimate(compiled_of(case), launch, simulate=False, findings=False), width=200)
    assert "(each sector asked for 3 times: by 3 blocks)" in text
