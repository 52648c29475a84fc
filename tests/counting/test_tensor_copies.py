"""Copies through tensor maps and bulk copies, against sets of bytes made in plain Python."""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanalyze import InputError, Launch, Traffic, parse_ptx
from kanalyze.launch.record import LaunchParam
from kanalyze.launch.tensor_map import TensorMap
from kanalyze.models import tensor_boxes
from tests.counted import estimate

pytestmark = pytest.mark.usefixtures("shared_cache")

KERNELS = Path(__file__).parents[1] / "data" / "tensor_copies.py"
PLACES = 1 << 40


def elements(tensor: TensorMap, corner: tuple[int, ...]) -> Iterator[int]:
    """Addresses of the elements of a box that lie within the array, one at a time."""
    steps = (1, *tensor.element_strides[1:])
    ranges = [
        range(c, c + box, step) for c, box, step in zip(corner, tensor.box, steps, strict=True)
    ]
    for place in product(*ranges):
        if all(0 <= p < extent for p, extent in zip(place, tensor.dims, strict=True)):
            strides = (tensor.element_bytes, *tensor.strides)
            yield tensor.address + sum(p * s for p, s in zip(place, strides, strict=True))


def sectors(tensor: TensorMap, corner: tuple[int, ...]) -> set[int]:
    return {a // 32 for a in elements(tensor, corner)}


def a_map(chance: random.Random) -> TensorMap:
    rank, size = chance.randint(1, 5), chance.choice((1, 2, 4, 8))
    dims = [chance.randint(1, 40) for _ in range(rank)]
    strides, extent = [], dims[0] * size
    for n in dims[1:]:
        strides.append(-(-extent // 16) * 16 + 16 * chance.randint(0, 2))
        extent = strides[-1] * n
    row = 16 // size * chance.randint(1, 3)
    return TensorMap(
        address=16 * chance.randint(0, 1000), element_bytes=size, dims=tuple(dims),
        strides=tuple(strides), box=(row, *(chance.randint(1, 7) for _ in dims[1:])),
        element_strides=tuple(chance.choice((1, 1, 2, 3)) for _ in dims),
    ).checked()  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_sectors_of_boxes_are_those_of_their_elements(seed: int) -> None:
    chance = random.Random(seed)
    tensor = a_map(chance)
    corners = [
        tuple(
            chance.randint(-2 * box, extent + box)
            for box, extent in zip(tensor.box, tensor.dims, strict=True)
        )
        for _ in range(60)
    ]
    found = tensor_boxes.sectors(tensor, np.array(corners))
    assert found.tolist() == [len(sectors(tensor, corner)) for corner in corners]
    moved = tensor_boxes.bytes_inside(tensor, np.array(corners))
    sizes = [len(list(elements(tensor, corner))) * tensor.element_bytes for corner in corners]
    assert moved.tolist() == sizes


# ---------------------------------------------------------------- kernels that Triton compiles


def compiled(kernel: str, signature: dict[str, str], constexprs: dict[str, int], arch: int) -> str:
    """The PTX of a kernel with tensor descriptors among its arguments."""
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kanalyze.frontend.user_file import load

    source = ASTSource(
        fn=getattr(load(KERNELS).module, kernel),
        signature=signature | dict.fromkeys(constexprs, "constexpr"),
        constexprs=constexprs,
    )
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("TRITON_CACHE_DIR", os.environ["KANALYZE_CACHE_DIR"])
        text: str = triton.compile(source, target=GPUTarget("cuda", arch, 32)).asm["ptx"]
    return text


def described(name: str, tensor: TensorMap) -> list[LaunchParam]:
    """A host's descriptor as Triton passes it: the map, extents, strides (outermost first)."""
    size = tensor.element_bytes
    shape = [LaunchParam(f"{name}.shape", "i32", n) for n in reversed(tensor.dims)]
    strides = [LaunchParam(f"{name}.stride", "i64", s // size) for s in reversed(tensor.strides)]
    return [
        LaunchParam(name, "nvTmaDesc", None, tensor_map=tensor), *shape, *strides,
        LaunchParam(f"{name}.stride", "i64", 1),
    ]  # fmt: skip


def total(tensor: TensorMap, corners: list[tuple[int, ...]]) -> int:
    return sum(len(sectors(tensor, corner)) for corner in corners)


def touched(tensor: TensorMap, corners: list[tuple[int, ...]]) -> int:
    return 32 * len(set().union(*(sectors(tensor, corner) for corner in corners)))


def check(traffic: Traffic, name: str, kind: str, tensor: TensorMap, corners: list[Any]) -> None:
    rows = [r for r in traffic.accesses if r.pointer == name and r.kind == kind]
    assert [r.unit for r in rows] == ["sectors"] * len(rows)
    assert sum(r.requests or 0 for r in rows) == len(corners)
    assert sum(r.cost or 0 for r in rows) == total(tensor, corners)
    assert all(r.bytes_per_thread == tensor.box_bytes for r in rows)
    (pointer,) = [p for p in traffic.compulsory.pointers if p.pointer == name]
    size = pointer.read_bytes if kind == "bulk_load" else pointer.write_bytes
    assert size == touched(tensor, corners)


@pytest.mark.parametrize("arch", [90, 100, 120])
def test_a_copy_through_descriptors_of_the_host(arch: int) -> None:
    x = TensorMap(PLACES + 16, 2, (200, 300), (400,), (64, 64), (1, 1), 128)
    y = TensorMap(3 * PLACES, 2, (200, 290), (416,), (64, 64), (1, 1), 128)
    kind = "tensordesc<fp16[64, 64]>"
    text = compiled("host_copy", {"x_desc": kind, "y_desc": kind}, {"ROWS": 64, "COLS": 64}, arch)
    launch = Launch("host_copy", (5, 4, 1), (128, 1, 1), (*described("x", x), *described("y", y)))
    traffic = estimate(parse_ptx(text), launch)
    corners = [(64 * j, 64 * i) for i in range(5) for j in range(4)]
    check(traffic, "x", "bulk_load", x, corners)
    check(traffic, "y", "bulk_store", y, corners)
    assert traffic.counters["bulk_load_sectors"] == total(x, corners)
    assert traffic.counters["bulk_store_sectors"] == total(y, corners)
    assert traffic.counters["global_load_sectors"] == 0
    assert traffic.analysed.accesses == traffic.analysed.of


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
def test_a_copy_through_descriptors_that_the_kernel_makes(arch: str) -> None:
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    result = compile_kernel(
        f"{KERNELS}:device_copy", arch=arch, settings={"ROWS": 64, "COLS": 32},
        signature="*fp32:16, *fp32:16, i32, i32", num_warps=4,
    )  # fmt: skip
    names = ["x_ptr", "y_ptr", "M", "N", "scratch"]
    kinds = ["*fp32", "*fp32", "i32", "i32", "*i8"]
    values = [PLACES + 16, 2 * PLACES, 100, 92, 3 * PLACES]
    params = tuple(map(LaunchParam, names, kinds, values))
    traffic = estimate(parse_ptx(result.ptx), Launch(result.name, (2, 3, 1), (128, 1, 1), params))
    corners = [(32 * j, 64 * i) for i in range(2) for j in range(3)]
    for place, name, kind in ((0, "x_ptr", "bulk_load"), (1, "y_ptr", "bulk_store")):
        tensor = TensorMap(values[place], 4, (92, 100), (368,), (32, 64), (1, 1), 128)
        check(traffic, name, kind, tensor, corners)
    assert traffic.counters["global_atomic_requests"] == 2 * len(corners)
    assert traffic.counters["global_atomic_sectors"] == 2 * 4 * len(corners)


def matrix_product(arch: int) -> tuple[str, Launch, tuple[TensorMap, TensorMap, TensorMap]]:
    """PTX and a launch of ``matmul`` with edges on all sides, and the maps of a, b and c."""
    a = TensorMap(PLACES, 2, (200, 250), (400,), (64, 128), (1, 1), 128)
    b = TensorMap(2 * PLACES, 2, (136, 200), (272,), (64, 64), (1, 1), 128)
    c = TensorMap(3 * PLACES, 2, (136, 250), (272,), (64, 128), (1, 1), 128)
    signature = {
        "a_desc": "tensordesc<fp16[128, 64]>", "b_desc": "tensordesc<fp16[64, 128]>",
        "c_desc": "tensordesc<fp16[128, 128]>", "K": "i32",
    }  # fmt: skip
    text = compiled("matmul", signature, {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64}, arch)
    params = [*described("a", a), *described("b", b), *described("c", c)]
    launch = Launch("matmul", (2, 2, 1), (128, 1, 1), (*params, LaunchParam("K", "i32", 200)))
    return text, launch, (a, b, c)


@pytest.mark.parametrize("arch", [90, 100])
def test_a_matrix_product_through_descriptors(arch: int) -> None:
    text, launch, (a, b, c) = matrix_product(arch)
    traffic = estimate(parse_ptx(text), launch)
    blocks = [(i, j) for i in range(2) for j in range(2)]
    loads = {
        "a": (a, [(64 * k, 128 * i) for i, _ in blocks for k in range(4)]),
        "b": (b, [(128 * j + n, 64 * k) for _, j in blocks for k in range(4) for n in (0, 64)]),
    }
    for name, (tensor, corners) in loads.items():
        rows = [r for r in traffic.accesses if r.pointer == name]
        assert sum(r.cost or 0 for r in rows) == total(tensor, corners), name
    stored = [(128 * j + n, 128 * i) for i, j in blocks for n in (0, 64)]
    assert traffic.counters["bulk_store_sectors"] == total(c, stored)


def test_a_descriptor_that_differs_over_the_launch_is_unknown_unless_assumed() -> None:
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    result = compile_kernel(
        f"{KERNELS}:chosen_copy", settings={"ROWS": 64, "COLS": 32},
        signature="*fp32:16, *fp32:16, *i32:16, i32", num_warps=4,
    )  # fmt: skip
    names, kinds = ["x", "y", "sizes", "N", "scratch"], ["*fp32", "*fp32", "*i32", "i32", "*i8"]
    values = [PLACES, 2 * PLACES, 3 * PLACES, 92, 4 * PLACES]
    launch = Launch(
        result.name, (3, 1, 1), (128, 1, 1), tuple(map(LaunchParam, names, kinds, values))
    )
    module = parse_ptx(result.ptx)

    def reason(**assume: Any) -> str | None:
        traffic = estimate(module, launch, assume=assume or None)
        found = {u.field: u.reason for u in traffic.unknown}
        return found.get("counters.bulk_load_sectors")

    assert "depends on data loaded by ld.global" in (reason() or "")
    assert "global_dim.1 of a tensor map differs over the launch" in (
        reason(sizes="range:70:9") or ""
    )
    traffic = estimate(module, launch, assume={"sizes": "const:150"})
    tensor = TensorMap(PLACES, 4, (92, 150), (368,), (32, 64), (1, 1), 128)
    assert traffic.counters["bulk_load_sectors"] == total(tensor, [(0, 64 * i) for i in range(3)])


# ---------------------------------------------------------------- PTX by hand

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
ENTRY = """
.visible .entry k(.param .align 64 .b8 map[128], .param .u64 x, .param .u32 n) .reqntid 64 {
  .reg .pred %p<4>; .reg .b32 %r<9>; .reg .b64 %rd<9>;
  .shared .align 128 .b8 tile[8192]; .shared .b64 bar;
  mov.u32 %r1, %ctaid.x; mov.u32 %r2, %tid.x; mov.b32 %r3, tile; mov.b32 %r4, bar;
  mov.b64 %rd1, map; cvta.param.u64 %rd2, %rd1; ld.param.u64 %rd3, [x]; ld.param.u32 %r5, [n];
  setp.eq.u32 %p1, %r2, 0;
  BODY
  ret;
}
"""


def by_hand(
    body: str, blocks: int, tensor: TensorMap | None = None, n: int = 0, **more: Any
) -> Traffic:
    params = (
        LaunchParam("map", "tensormap", None, tensor_map=tensor),
        LaunchParam("x", "*i8", PLACES + 48), LaunchParam("n", "i32", n),
    )  # fmt: skip
    launch = Launch("k", (blocks, 1, 1), (64, 1, 1), params, **more)
    return estimate(parse_ptx(HEAD + ENTRY.replace("BODY", body)), launch)


LOAD = (
    "cp.async.bulk.tensor.{}d.shared::cluster.global.mbarrier::complete_tx::bytes{} "
    "[%r3], [%rd2, {{{}}}], [%r4]{};"
)


@pytest.mark.parametrize("rank", [1, 2, 3, 4, 5])
def test_tensor_maps_of_all_ranks(rank: int) -> None:
    dims, strides = (50, 6, 5, 4, 3), (208, 1264, 6336, 25360)
    tensor = TensorMap(
        PLACES, 4, dims[:rank], strides[: rank - 1], (16, 3, 2, 2, 2)[:rank], (1, 1, 2, 1, 1)[:rank]
    ).checked()
    body = "mul.lo.s32 %r6, %r1, 12; sub.s32 %r7, %r1, 2; @%p1 " + LOAD.format(
        rank, "", ", ".join(["%r6", "%r7", "%r7", "%r7", "%r7"][:rank]), ""
    )
    traffic = by_hand(body, 7, tensor)
    corners = [(12 * i, *(i - 2,) * (rank - 1)) for i in range(7)]
    assert traffic.counters["bulk_load_sectors"] == total(tensor, corners)
    (pointer,) = traffic.compulsory.pointers
    assert (pointer.pointer, pointer.read_bytes) == ("map", touched(tensor, corners))


def test_every_thread_that_takes_part_makes_a_copy() -> None:
    tensor = TensorMap(PLACES, 2, (1000,), (), (64,), (1,)).checked()
    body = "shl.b32 %r6, %r2, 4; setp.lt.u32 %p2, %r2, 40; @%p2 " + LOAD.format(1, "", "%r6", "")
    (row,) = by_hand(body, 1, tensor).accesses
    assert row.requests == row.threads == 40
    assert row.cost == total(tensor, [(16 * i,) for i in range(40)])


def test_one_elected_thread_of_each_warp() -> None:
    tensor = TensorMap(PLACES, 2, (1000,), (), (64,), (1,)).checked()
    body = "elect.sync %r6|%p2, -1; shl.b32 %r7, %r1, 5; @%p2 " + LOAD.format(1, "", "%r7", "")
    (row,) = by_hand(body, 3, tensor).accesses
    assert row.requests == 3 * 2
    assert row.cost == 2 * total(tensor, [(32 * i,) for i in range(3)])


def test_blocks_of_a_cluster_read_once_for_all() -> None:
    """The first block of two copies for both: ``%cluster_ctarank`` and a mask of blocks."""
    tensor = TensorMap(PLACES, 2, (1000,), (), (64,), (1,)).checked()
    body = (
        "mov.u32 %r6, %cluster_ctarank; setp.eq.and.u32 %p2, %r6, 0, %p1; "
        "mov.u32 %r7, %clusterid.x; "
        "shl.b32 %r7, %r7, 6; .reg .b16 %rs; mov.b16 %rs, 3; @%p2 "
        + LOAD.format(1, ".multicast::cluster", "%r7", ", %rs")
    )
    (row,) = by_hand(body, 8, tensor, cluster=(2, 1, 1)).accesses
    assert row.requests == 4
    assert row.cost == total(tensor, [(64 * i,) for i in range(4)])


def runs(places: list[tuple[int, int]]) -> list[set[int]]:
    return [{b // 32 for b in range(start, start + size)} for start, size in places]


@pytest.mark.parametrize(
    ("size", "sizes"),
    [("160", lambda i: 160), ("%r7", lambda i: 16 * i)],
    ids=["as large", "of a size of its own"],
)
def test_bulk_copies_of_runs_of_bytes(size: str, sizes: Callable[[int], int]) -> None:
    address = (
        "mul.lo.u32 %r6, %r1, 208; cvt.u64.u32 %rd4, %r6; add.s64 %rd5, %rd3, %rd4;"
        "shl.b32 %r7, %r1, 4; "
    )
    bodies = {
        "load": f"@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
        f"[%r3], [%rd5], {size}, [%r4];",
        "store": f"@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd5], [%r3], {size};",
        "reduction": "@%p1 cp.reduce.async.bulk.global.shared::cta.bulk_group.add.u32 "
        f"[%rd5], [%r3], {size};",
    }
    expected = runs([(PLACES + 48 + 208 * i, sizes(i)) for i in range(20)])
    for kind, body in bodies.items():
        traffic = by_hand(address + body, 20)
        assert traffic.counters[f"bulk_{kind}_sectors"] == sum(map(len, expected))
        (pointer,) = traffic.compulsory.pointers
        size_moved = pointer.read_bytes if kind == "load" else pointer.write_bytes
        assert size_moved == 32 * len(set().union(*expected))
        assert traffic.counters["global_reduction_sectors"] == 0


def test_what_is_not_followed_says_why() -> None:
    tensor = TensorMap(PLACES, 2, (64, 64), (128,), (64, 8), (1, 1), 128)
    cases: list[tuple[str, TensorMap | None, str]] = [
        (LOAD.format(2, "", "%r1, %r1", ""), None, "the launch gives none"),
        (LOAD.format(3, "", "%r1, %r1, %r1", ""), tensor, "3 coordinates for a tensor map of 2"),
        (LOAD.format(2, "", "%r1, %r1", "").replace("%rd2", "%rd2+128"), tensor, "is not followed"),
        (
            "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
            "[%r3], [%rd2, {%r1, %r1, %r1, %r1}], [%r4], {%rs1, %rs2};",
            tensor,
            "im2col",
        ),
        (
            "ld.global.u32 %r6, [%rd3]; " + LOAD.format(2, "", "%r6, %r1", ""),
            tensor,
            "depends on data",
        ),
    ]
    for body, given, message in cases:
        if "%rs1" in body:
            body = ".reg .b16 %rs<3>; " + body
        traffic = by_hand(body, 2, given)
        assert traffic.counters["bulk_load_sectors"] is None
        reasons = {u.field: u.reason for u in traffic.unknown}
        assert message in reasons["counters.bulk_load_sectors"], body


def test_a_pointer_to_a_tensor_map() -> None:
    tensor = TensorMap(PLACES, 2, (64, 64), (128,), (64, 8), (1, 1), 128)
    params = (
        LaunchParam("map", "tensormap", None),
        LaunchParam("x", "*i8", 64, tensor_map=tensor), LaunchParam("n", "i32", 0),
    )  # fmt: skip
    body = "@%p1 " + LOAD.format(2, "", "%r5, %r1", "").replace("%rd2", "%rd3")
    text = HEAD + ENTRY.replace("BODY", body)
    traffic = estimate(parse_ptx(text), Launch("k", (2, 1, 1), (64, 1, 1), params))
    assert traffic.counters["bulk_load_sectors"] == total(tensor, [(0, 0), (0, 1)])


# ---------------------------------------------------------------- records

GOOD = {"address": 4096, "element_bytes": 2, "dims": [100, 60], "strides": [208], "box": [64, 8]}


def record(**changes: Any) -> dict[str, Any]:
    tensor = {k: v for k, v in (GOOD | changes).items() if v != "left out"}
    params = [{"name": "map", "type": "tensormap", "tensor_map": tensor}]
    return {"kernel": "k", "grid": [1], "block": [32], "params": params}


def test_a_record_says_a_tensor_map() -> None:
    (param,) = Launch.from_record(record(swizzle=128, interleave="none")).params
    assert param.tensor_map == TensorMap(4096, 2, (100, 60), (208,), (64, 8), (1, 1), 128)
    assert param.tensor_map.span == 59 * 208 + 200


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"box": "left out"}, "there is no 'box'"),
        ({"dims": []}, "dims has 0 numbers, expected 1 to 5"),
        ({"box": [64]}, "box has 1 numbers, expected 2"),
        ({"strides": [200]}, "strides has 200, expected multiples of 16"),
        ({"address": 8}, "address is 8, expected a multiple of 16"),
        ({"element_bytes": 3}, "element_bytes is 3, expected 1, 2, 4 or 8"),
        ({"box": [512, 1]}, "box has 512, expected 1 to 256"),
        ({"box": [4, 1]}, "rows of the box have 8 bytes"),
        ({"swizzle": 16}, "swizzle is 16"),
        ({"swizzle": 64}, "expected at most the swizzle's 64"),
        ({"dims": ["a", 1]}, "dims has 'a', expected a whole number"),
        ({"strides": 208}, "strides is 208, expected a list of numbers"),
        ({"element_strides": [1, 9]}, "element_strides has 9, expected 1 to 8"),
        ({"interleave": "16B"}, "only arrays without it are evaluated"),
    ],
)
def test_a_malformed_tensor_map_says_what_was_expected(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match="tensor_map of map: ") as caught:
        Launch.from_record(record(**changes))
    assert message in str(caught.value)
