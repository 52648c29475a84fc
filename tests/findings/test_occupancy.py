"""`occupancy-cliff`: steps are reckoned here again from NVIDIA's allocation units for sm_90."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel, estimate
from kanalyze.frontend.subject import Settings
from kanalyze.results.kernel import Finding, Kernel

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

ROOT = Path(__file__).parents[2]
SORTED = str(Path(__file__).parents[1] / "data" / "findings" / "sorted_rows.py")
SIGNATURE: dict[str, Any] = {"signature": "*fp32:16,*fp32:16", "settings": {"BLOCK": 4096}}
SHORT_K = str(ROOT / "samples" / "findings" / "occupancy-cliff" / "fires.py")


def findings(target: str | Path, **options: Any) -> list[Finding]:
    report = analyze(target, **options)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == "occupancy-cliff"]


def blocks_by_registers(registers: int, warps: int) -> int:
    """A warp gets registers in units of 256; each of four sub-partitions has 16384."""
    per_warp = -(-32 * registers // 256) * 256
    return 16384 // per_warp * 4 // warps


def blocks_by_shared(size: int) -> int:
    """Of 228 KiB on an SM a block takes 1 KiB more than it asks for, in units of 128 bytes."""
    return 228 * 1024 // (-(-(size + 1024) // 128) * 128)


def _just_above(registers: int) -> None:
    if not 64 < registers <= 72:
        pytest.skip(f"this assembler takes {registers} registers, not just above 64")


def test_registers_just_above_a_step() -> None:
    made = compile_kernel(SORTED, num_warps=8, **SIGNATURE)
    _just_above(made.resources.registers)
    (found,) = findings(SORTED, num_warps=8, **SIGNATURE)
    now, then = found.numbers["now"], found.numbers["then"]
    assert (now, then) == (made.resources.registers, 64)
    assert found.numbers["blocks_per_sm"] == blocks_by_registers(now, 8) == 3
    assert found.numbers["blocks_per_sm_then"] == blocks_by_registers(then, 8) == 4
    assert blocks_by_registers(then + 1, 8) == 3
    assert found.severity == "info"
    assert found.advice == "maxnreg=64"
    assert found.proof is not None
    limited = compile_kernel(
        SORTED, num_warps=8, signature=SIGNATURE["signature"],
        settings={"BLOCK": 4096, "maxnreg": 64},
    )  # fmt: skip
    assert found.proof.after["registers"] == limited.resources.registers
    assert found.proof.after["spill_bytes"] == limited.resources.spill_store_bytes == 0


def test_ptx_alone_is_assembled_with_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    made = compile_kernel(SORTED, num_warps=8, **SIGNATURE)
    _just_above(made.resources.registers)
    path.write_text(made.ptx)
    beside = {"hash": "0", "target": {}, "name": "sorted_rows", "num_warps": 8, "shared": 4096}
    path.with_suffix(".json").write_text(json.dumps(beside))
    (found,) = findings(path)
    assert found.proof is not None
    assert found.proof.change == ".maxnreg 64"
    assert found.proof.after == {"registers": 64, "spill_bytes": 0}


def test_dynamic_shared_memory_of_ptx_alone_is_not_known(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(compile_kernel(SORTED, num_warps=8, **SIGNATURE).ptx)
    assert findings(path) == []


def test_shared_memory_just_above_a_step() -> None:
    traffic = estimate(SHORT_K)
    (found,) = [f for f in traffic.findings if f.id == "occupancy-cliff"]
    now, then = found.numbers["now"], found.numbers["then"]
    assert now == 4 * (128 + 32) * 64 * 2
    assert found.numbers["blocks_per_sm"] == blocks_by_shared(now) == 2
    assert found.numbers["blocks_per_sm_then"] == blocks_by_shared(then) == 3
    assert blocks_by_shared(then + 1) == 2
    assert found.severity == "warning"
    assert found.proof is not None
    times = {
        n: estimate(SHORT_K, settings=Settings(num_stages=n), findings=False).time.predicted_us
        for n in (1, 2, 3)
    }
    best = min(times, key=lambda n: times[n] or math.inf)
    assert found.advice == f"num_stages={best}"
    assert times[best] == pytest.approx(found.proof.after["time_us"], abs=1e-3)
    assert found.proof.after["time_us"] < 0.95 * found.proof.before["time_us"]


@pytest.mark.parametrize(("blocks", "fires"), [(264, False), (266, True)])
def test_a_launch_must_have_blocks_for_the_place(blocks: int, fires: bool) -> None:
    """Two blocks live on each of 132 SMs; without the proof, which would withdraw it, too."""
    size = {"M": 128 * blocks // 2, "N": 64}
    traffic = estimate(SHORT_K, settings=Settings(settings=size), device="H200", prove=False)
    assert math.prod(traffic.grid) == blocks
    assert len([f for f in traffic.findings if f.id == "occupancy-cliff"]) == fires


@pytest.mark.parametrize(("blocks", "fires"), [(4, True), (5, False)])
def test_a_block_more_must_be_a_quarter_more_warps(
    tmp_path: Path, blocks: int, fires: bool
) -> None:
    """128 bytes more than would let one more block live on an SM: 4 → 5, or 5 → 6."""
    size = 228 * 1024 // (blocks + 1) // 128 * 128 - 1024 + 128
    assert (blocks_by_shared(size), blocks_by_shared(size - 128)) == (blocks, blocks + 1)
    path = tmp_path / "k.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 o)\n.reqntid 128\n{\n"
        "  .reg .b32 %r<4>; .reg .b64 %rd<4>;\n"
        f"  .shared .align 16 .b8 tile[{size}];\n"
        "  mov.u32 %r1, %tid.x; mov.u32 %r2, tile; shl.b32 %r3, %r1, 2; add.u32 %r2, %r2, %r3;\n"
        "  ld.param.u64 %rd1, [o]; st.shared.u32 [%r2], %r1; bar.sync 0;\n"
        "  ld.shared.u32 %r3, [%r2]; st.global.u32 [%rd1], %r3; ret;\n}\n"
    )
    found = findings(path)
    assert len(found) == fires
    if fires:
        assert found[0].numbers["blocks_per_sm_then"] == blocks + 1


@pytest.mark.parametrize("rows", [128, 2048])
def test_no_finding_where_no_block_waits_for_room(rows: int) -> None:
    small = estimate(SHORT_K, settings=Settings(settings={"M": rows, "N": 128}))
    assert [f for f in small.findings if f.id == "occupancy-cliff"] == []


def test_a_limit_that_spills_is_not_advised() -> None:
    options = {"settings": {"BLOCK_M": 32, "BLOCK_N": 128}, "num_warps": 8, "num_stages": 2}
    assert findings(SHORT_K, **options) == []
