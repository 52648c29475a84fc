"""How often warps execute each block of the SASS, in recorded launches.

The trip counts and the warps that leave early are worked out here by hand, from the kernels'
sources (tile sizes, row lengths); nothing of them comes from kanalyze.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest

from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.launch.record import Launch
from kanalyze.ptx import cfg as ptx_cfg
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass.cfg import SassCfg, build
from kanalyze.sass.counts import before_join
from kanalyze.sass.crosscheck import compare
from kanalyze.sass.parse import parse_sass
from kanalyze.symbolic import accesses
from kanalyze.toolchain import tools
from tests.recorded import BESIDE, WHY_NOT, each_record

pytestmark = [
    pytest.mark.skipif(not BESIDE.is_dir(), reason=WHY_NOT),
    pytest.mark.slow("disassembles and counts machine code"),
]

Counts = dict[int, int]


class Case:
    def __init__(self, record: dict[str, Any], cfg: SassCfg) -> None:
        self.cfg = cfg
        self.blocks = math.prod(record["grid"])
        self.warps_per_block = math.prod(record["block"]) // 32
        self.warps = self.blocks * self.warps_per_block
        self.constants = record["constexprs"]
        self.values = {p["name"]: p["value"] for p in record["params"] if "value" in p}
        self.grid = record["grid"]


def everything(launch: Case) -> Counts:
    return dict.fromkeys(launch.cfg.order, launch.warps)


def last_store(first_column: int, warp_columns: int) -> Callable[[Case], Counts]:
    """The last block of code is a guarded store; a warp reaches it if any thread is inside."""

    def count(launch: Case) -> Counts:
        n, size = launch.values["n"], launch.constants["BLOCK_SIZE"]
        rows = launch.blocks if first_column >= size // 2 and "xs" in launch.values else None
        if rows is None:  # one long vector
            inside = sum(
                size * block + warp_columns * warp + first_column < n
                for block in range(launch.blocks)
                for warp in range(launch.warps_per_block)
            )
        else:
            inside = rows * sum(
                warp_columns * warp + first_column < n for warp in range(launch.warps_per_block)
            )
        return {**everything(launch), launch.cfg.order[-1]: inside}

    return count


def loop(header: int, trips: Callable[[Case], int]) -> Callable[[Case], Counts]:
    return lambda launch: {**everything(launch), header: launch.warps * trips(launch)}


def matmul_trips(launch: Case) -> int:
    return int(launch.values["K"] // launch.constants["BLOCK_K"])


def attention_trips(launch: Case) -> int:
    return int(launch.values["T"] // launch.constants["BK"])


def causal(launch: Case) -> Counts:
    tiles = launch.values["T"] // launch.constants["BQ"]
    steps = launch.constants["BQ"] // launch.constants["BK"]
    trips = sum((tile + 1) * steps for tile in range(tiles))
    others = launch.blocks // tiles
    return {**everything(launch), 2: trips * others * launch.warps_per_block}


def row_sum(launch: Case) -> Counts:
    trips = math.ceil(launch.values["N"] / launch.constants["BLOCK_SIZE"])
    warps = launch.warps
    if len(launch.cfg.order) == 6:  # not unrolled
        return {**everything(launch), 2: warps * trips, 5: launch.blocks}
    return {
        **everything(launch),
        3: warps * (trips // 4),
        5: warps * (trips % 4 // 2),
        7: warps * (trips % 2),
        10: launch.blocks,  # the store: one thread of the first warp
    }


CASES: dict[str, Callable[[Case], Counts]] = {
    "gelu_4M_f32": everything,
    "gelu_64M_f32": everything,
    "gelu_64M_f16": everything,
    "gelu_1000003": last_store(515, 128),
    "gelu_unaligned": last_store(515, 128),
    "softmax_32768x8192": everything,
    "softmax_4096x4096_f16": everything,
    "softmax_8192x4096": everything,
    "softmax_8192x1000": last_store(896, 32),
    "softmax_8192x781": last_store(896, 32),
    "rowsum_1024x65537": row_sum,
    "rowsum_4096x10000": row_sum,
    "rowsum_8192x16384": row_sum,
    "matmul_1024": loop(2, matmul_trips),
    "matmul_2048": loop(2, matmul_trips),
    "matmul_4096": loop(2, matmul_trips),
    "matmul_8192": loop(2, matmul_trips),
    "matmul_16384x16384x4096": loop(2, matmul_trips),
    "matmul_4096_f32": loop(2, matmul_trips),
    "matmul_4096_tile64": loop(2, matmul_trips),
    "flash_1x16x16384x64": loop(2, attention_trips),
    "flash_4x32x2048x128": loop(2, attention_trips),
    "flash_4x32x2048x128_causal": causal,
    "inductor_rope_0": everything,
    "inductor_channels_last_0": everything,
    "inductor_cumsum_0": loop(1, lambda launch: launch.values["r0_numel"] // 2048),
    "inductor_embedding_add_0": lambda launch: {**everything(launch), 1: 0},  # the failed assertion
    "inductor_gelu_naive_0": everything,
    "inductor_layernorm_0": lambda launch: {**everything(launch), 1: launch.blocks},
}


@lru_cache
def loaded(name: str) -> tuple[Case, SassKernelLaunch]:
    record = json.loads((BESIDE / f"{name}.json").read_text("utf-8"))
    module = parse_sass(tools.disassemble((BESIDE / f"{name}.cubin").read_bytes()))
    cfg = build(module.functions[0])
    parameters = parse_ptx((BESIDE / f"{name}.ptx").read_text("utf-8")).entries[0].parameters
    found = SassKernelLaunch(cfg, module, parameters, Launch.from_record(record))
    return Case(record, cfg), found


def arrivals(name: str, launch: Case, counts: Counts) -> Counts | None:
    """Where the threads of a warp are apart at a BSYNC: each part issues it."""
    joins = [b for b in launch.cfg.blocks if before_join(b) and b.index in counts]
    if name == "inductor_gelu_naive_0":  # random data: every warp takes both sides
        return {block.index: 2 * launch.warps for block in joins}
    if name == "inductor_layernorm_0":  # half of the first warp of a block takes a detour
        return {block.index: launch.warps + launch.blocks for block in joins}
    return None


UNKNOWN = {"inductor_gelu_naive_0"}  # which way a warp takes depends on the numbers


@pytest.mark.parametrize("name", CASES)
def test_warps_of_each_block_are_those_worked_out_by_hand(name: str) -> None:
    launch, found = loaded(name)
    counts = CASES[name](launch)
    runs = {block: runs.warps for block, runs in found.block_runs.items()}
    known = {block: warps for block, warps in runs.items() if warps is not None}
    assert len(known) == len(runs) or name in UNKNOWN
    assert known == {block: counts.get(block, 0) for block in known}
    for block, parts in (arrivals(name, launch, counts) or {}).items():
        assert found.arrivals[block] in ((None, parts) if name in UNKNOWN else (parts,))


@each_record()
def test_ptx_and_sass_agree_or_it_is_known_why(name: str) -> None:
    entry = parse_ptx((BESIDE / f"{name}.ptx").read_text("utf-8")).entries[0]
    (function,) = parse_sass(tools.disassemble((BESIDE / f"{name}.cubin").read_bytes())).functions
    rows = compare(entry, function, accesses.find(ptx_cfg.build(entry), {}).places)
    assert [row for row in rows if not row.explained] == []
