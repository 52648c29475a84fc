"""What blocks ask for by bulk copies (TMA), against the elements of the boxes, one at a time."""

from __future__ import annotations

from typing import Any

import pytest

from kanalyze import Launch, parse_ptx
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.frontend.argument import Resources
from kanalyze.kernel.describe import describe
from kanalyze.kernel.sources import Sources
from kanalyze.launch.record import LaunchParam
from kanalyze.launch.tensor_map import TensorMap
from kanalyze.performance.cache_sim.streams import Stream, stream
from kanalyze.performance.cache_sim.tiles import ATOMIC, READ, WRITE
from tests.counting.test_tensor_copies import (
    ENTRY,
    HEAD,
    LOAD,
    PLACES,
    compiled,
    described,
    sectors,
)
from tests.performance.cache_sim.test_streams import of_block

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("runs every thread of whole launches in the interpreter"),
]
Corners = list[tuple[int, ...]]


def streamed(text: str, launch: Launch) -> Stream:
    module = parse_ptx(text)
    (function,) = (f for f in module.entries if f.body is not None)
    found = describe(
        module, function, "k.ptx", {}, Resources(reason="not asked"), (), Sources(), False
    )
    return stream(KernelLaunch(found.cfg, found.addresses, found.variables, launch), found.staged)


def asked(given: Stream, block: int, kind: int) -> list[set[int]]:
    """Sectors by burst."""
    found: dict[int, set[int]] = {}
    for column, some in of_block(given, block):
        if given.kind[column] == kind:
            found.setdefault(int(given.burst[column]), set()).update(some)
            assert not given.cached[column]
    return list(found.values())


def boxes(tensor: TensorMap, corners: Corners) -> set[int]:
    return set().union(*(sectors(tensor, corner) for corner in corners))


@pytest.mark.parametrize("arch", [90, 100])
def test_a_matrix_product_asks_for_its_boxes_step_by_step(arch: int) -> None:
    a = TensorMap(PLACES, 2, (200, 250), (400,), (64, 128), (1, 1), 128)
    b = TensorMap(2 * PLACES + 16, 2, (136, 200), (272,), (64, 64), (1, 1), 128)
    c = TensorMap(3 * PLACES, 2, (136, 250), (272,), (64, 128), (1, 1), 128)
    signature = {
        "a_desc": "tensordesc<fp16[128, 64]>", "b_desc": "tensordesc<fp16[64, 128]>",
        "c_desc": "tensordesc<fp16[128, 128]>", "K": "i32",
    }  # fmt: skip
    text = compiled("matmul", signature, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, arch)
    params = [*described("a", a), *described("b", b), *described("c", c)]
    launch = Launch("matmul", (2, 2, 1), (128, 1, 1), (*params, LaunchParam("K", "i32", 200)))
    given = streamed(text, launch)
    for block in range(4):
        i, j = block % 2, block // 2
        steps = [
            boxes(a, [(64 * k, 128 * i)]) | boxes(b, [(128 * j + n, 64 * k) for n in (0, 64)])
            for k in range(4)
        ]
        assert asked(given, block, READ) == steps
        assert asked(given, block, WRITE) == [boxes(c, [(128 * j + n, 128 * i) for n in (0, 64)])]


def by_hand(body: str, blocks: int, tensor: TensorMap | None = None, **more: Any) -> Stream:
    params = (
        LaunchParam("map", "tensormap", None, tensor_map=tensor),
        LaunchParam("x", "*i8", PLACES + 48), LaunchParam("n", "i32", 0),
    )  # fmt: skip
    launch = Launch("k", (blocks, 1, 1), (64, 1, 1), params, **more)
    return streamed(HEAD + ENTRY.replace("BODY", body), launch)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_boxes_of_all_ranks(rank: int) -> None:
    dims, strides = (50, 6, 5, 4, 3), (208, 1264, 6336, 25360)
    tensor = TensorMap(
        PLACES + 32, 4, dims[:rank], strides[: rank - 1], (16, 3, 2, 2, 2)[:rank],
        (1, 1, 2, 1, 1)[:rank],
    ).checked()  # fmt: skip
    body = "mul.lo.s32 %r6, %r1, 12; sub.s32 %r7, %r1, 2; @%p1 " + LOAD.format(
        rank, "", ", ".join(["%r6", "%r7", "%r7", "%r7", "%r7"][:rank]), ""
    )
    given = by_hand(body, 7, tensor)
    for block in range(7):
        expected = sectors(tensor, (12 * block, *(block - 2,) * (rank - 1)))
        assert asked(given, block, READ) == ([expected] if expected else [])


def test_threads_of_a_block_make_copies_of_their_own() -> None:
    tensor = TensorMap(PLACES, 2, (1000,), (), (64,), (1,)).checked()
    body = (
        "shl.b32 %r6, %r2, 4; mad.lo.s32 %r6, %r1, 32, %r6; setp.lt.u32 %p2, %r2, 40; @%p2 "
        + LOAD.format(1, "", "%r6", "")
    )
    given = by_hand(body, 3, tensor)
    for block in range(3):
        corners: Corners = [(16 * i + 32 * block,) for i in range(40)]
        assert asked(given, block, READ) == [boxes(tensor, corners)]


@pytest.mark.parametrize("size", [16, 32, 80, 4096])
def test_runs_of_bytes(size: int) -> None:
    """From x + 48 + 160 · block; the last block makes none."""
    body = (
        "mul.wide.u32 %rd4, %r1, 160; add.s64 %rd5, %rd3, %rd4; setp.lt.and.u32 %p2, %r1, 4, %p1; "
        "@%p2 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%r3], [%rd5], {size}, [%r4]; "
        f"@%p2 cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r3], {size}; "
        f"@%p2 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 [%rd5], [%r3], {size};"
    )
    given = by_hand(body, 5)
    for block in range(4):
        first = PLACES + 48 + 160 * block
        expected = set(range(first // 32, (first + size - 1) // 32 + 1))
        for kind in (READ, WRITE, ATOMIC):
            assert asked(given, block, kind) == [expected]
    assert list(of_block(given, 4)) == []
