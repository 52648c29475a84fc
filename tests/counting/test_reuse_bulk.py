"""Sectors of bulk copies by the blocks that make them, against sets of bytes in plain Python."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable

import pytest

from kanalyze import Launch, estimate, parse_ptx
from kanalyze.launch.record import LaunchParam
from kanalyze.launch.tensor_map import TensorMap
from kanalyze.results import traffic as doc
from tests.counting.test_reuse import check
from tests.counting.test_tensor_copies import (
    ENTRY,
    HEAD,
    LOAD,
    PLACES,
    a_map,
    matrix_product,
    runs,
    sectors,
)

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("runs every thread of whole launches in the interpreter"),
]
Corner = tuple[int, ...]


def compare(sharing: doc.Sharing | None, copies: Iterable[list[set[int]]]) -> None:
    """``copies`` are the sectors of each copy, by block."""
    by_block = [(set().union(*some), sum(map(len, some))) for some in copies]
    blocks = Counter(sector for touched, _ in by_block for sector in touched)
    sizes = Counter(len(touched) for touched, _ in by_block if touched)
    assert sharing is not None
    check(sharing, (Counter(blocks.values()), sizes, sum(asked for _, asked in by_block)))


def counted(body: str, blocks: int, tensor: TensorMap | None = None) -> doc.PointerBytes:
    """The pointer of a kernel by hand with some blocks of 64 threads."""
    params = (
        LaunchParam("map", "tensormap", None, tensor_map=tensor),
        LaunchParam("x", "*i8", PLACES + 48), LaunchParam("n", "i32", 0),
    )  # fmt: skip
    launch = Launch("k", (blocks, 1, 1), (64, 1, 1), params)
    text = HEAD + ENTRY.replace("BODY", body)
    (pointer,) = estimate(
        parse_ptx(text), launch, simulate=False, findings=False
    ).compulsory.pointers
    return pointer


def boxes(tensor: TensorMap, corners: Iterable[list[Corner]]) -> list[list[set[int]]]:
    return [[sectors(tensor, corner) for corner in some] for some in corners]


@pytest.mark.parametrize("seed", range(40))
def test_boxes_of_all_kinds(seed: int) -> None:
    """Every block copies two boxes; some of them lie over an edge of the array, or beyond it."""
    chance = random.Random(seed)
    tensor = a_map(chance)
    steps = [chance.choice((0, 1, 4, 12)) for _ in tensor.dims]
    firsts = [chance.randint(-9, 9) for _ in tensor.dims]
    blocks = chance.randint(2, 9)
    names = ", ".join(f"%c{i}" for i in range(tensor.rank))
    body = ".reg .b32 %c<5>; setp.lt.u32 %p2, %r2, 2; mul.lo.s32 %r7, %r2, 8; "
    for i, (step, first) in enumerate(zip(steps, firsts, strict=True)):
        body += f"mad.lo.s32 %c{i}, %r1, {step}, {first}; "
    body += "add.s32 %c0, %c0, %r7; @%p2 " + LOAD.format(tensor.rank, "", names, "")
    pointer = counted(body, blocks, tensor)
    corners = [
        [
            (block * steps[0] + firsts[0] + 8 * thread,
             *(block * s + f for s, f in zip(steps[1:], firsts[1:], strict=True)))
            for thread in range(2)
        ]
        for block in range(blocks)
    ]  # fmt: skip
    if not pointer.read_bytes:
        assert pointer.read_sharing is None
        return
    compare(pointer.read_sharing, boxes(tensor, corners))


@pytest.mark.parametrize("arch", [90, 100])
def test_a_matrix_product(arch: int) -> None:
    text, launch, (a, b, c) = matrix_product(arch)
    pointers = {
        p.pointer: p
        for p in estimate(
            parse_ptx(text), launch, simulate=False, findings=False
        ).compulsory.pointers
    }
    blocks = [(i, j) for i in range(2) for j in range(2)]
    compare(
        pointers["a"].read_sharing,
        boxes(a, ([(64 * k, 128 * i) for k in range(4)] for i, _ in blocks)),
    )
    compare(
        pointers["b"].read_sharing,
        boxes(b, ([(128 * j + n, 64 * k) for k in range(4) for n in (0, 64)] for _, j in blocks)),
    )
    compare(
        pointers["c"].write_sharing,
        boxes(c, ([(128 * j + n, 128 * i) for n in (0, 64)] for i, j in blocks)),
    )


@pytest.mark.parametrize("size", ["160", "%r7"])
def test_runs_of_bytes(size: str) -> None:
    body = (
        "mul.lo.u32 %r6, %r1, 80; cvt.u64.u32 %rd4, %r6; add.s64 %rd5, %rd3, %rd4;"
        "shl.b32 %r7, %r1, 4; @%p1 "
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%r3], [%rd5], {size}, [%r4];"
    )
    pointer = counted(body, 20)
    places = [(PLACES + 48 + 80 * i, 160 if size == "160" else 16 * i) for i in range(20)]
    compare(pointer.read_sharing, [[touched] for touched in runs(places)])


def test_many_alike_blocks_are_compared() -> None:
    """65,536 rows of an array, one a block."""
    tensor = TensorMap(PLACES, 4, (64, 1 << 16), (256,), (64, 1), (1, 1)).checked()
    body = ".reg .b32 %c; mov.b32 %c, 0; @%p1 " + LOAD.format(2, "", "%c, %r1", "")
    pointer = counted(body, 1 << 16, tensor)
    assert pointer.read_sharing is not None
    (share,) = pointer.read_sharing.shares
    assert (share.most_blocks, share.bytes) == (1, 1 << 24)
    assert pointer.read_sharing.sectors_per_block == doc.SectorsPerBlock(8, 8, 8)
