"""`unpipelined-loop`: copies and plain loads are counted in the PTX text by source line."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kanalyze import Traffic, analyze, compile_kernel, estimate
from kanalyze.frontend.subject import Settings
from kanalyze.results.kernel import Finding, Kernel

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

TILES = Path(__file__).parents[1] / "data" / "findings" / "tiles.py"
WHILE = Path(__file__).parents[2] / "samples" / "findings" / "unpipelined-loop"
SIZES = {"M": 64, "W": 64, "D": 64}


def findings(target: str, **options: Any) -> list[Finding]:
    report = analyze(target, **options)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == "unpipelined-loop"]


def product(n: str, k: str) -> dict[str, Any]:
    return {"signature": f"*fp16:16,*fp16:16,*fp32:16,{n},{k}", "settings": SIZES}


def copies(target: str, **options: Any) -> int:
    return len(re.findall(r"\bcp\.async\.c[ag]\.", compile_kernel(target, **options).ptx))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(("n", "k", "missing"), [("i32", "i32:16", "N"), ("i32:16", "i32", "K")])
def test_narrow_pieces_name_the_argument(arch: str, n: str, k: str, missing: str) -> None:
    target = f"{TILES}:in_for"
    (found,) = findings(target, arch=arch, **product(n, k))
    assert found.source is not None
    wanted = "a_ptrs)" if missing == "K" else "b_ptrs)"
    assert wanted in TILES.read_text().splitlines()[found.source.line - 1]
    assert found.numbers["bytes_per_thread"] == 2
    assert found.severity == "info"
    assert found.proof is not None
    assert found.proof.change == f"{missing} divisible by 16"
    assert found.proof.after["copies"] > found.proof.before["copies"]
    assert found.proof.after["loads"] == 0
    every = product("i32:16", "i32:16")
    assert copies(target, arch=arch, **product(n, k)) < copies(target, arch=arch, **every)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_pipelined_tiles_are_silent(arch: str) -> None:
    assert findings(f"{TILES}:in_for", arch=arch, **product("i32:16", "i32:16")) == []
    assert copies(f"{TILES}:in_for", arch=arch, **product("i32:16", "i32:16")) > 0


def test_a_stage_is_no_wish_for_pipelining() -> None:
    assert findings(f"{TILES}:in_for", num_stages=1, **product("i32", "i32")) == []


def test_gathered_columns_and_not_their_indices() -> None:
    (found,) = findings(
        f"{TILES}:gathered",
        signature="*fp16:16,*fp16:16,*fp32:16,*i32:16,i32:16,i32:16",
        settings=SIZES,
    )
    assert found.source is not None
    assert "rows[:, None] * K + i" in TILES.read_text().splitlines()[found.source.line - 1]
    assert found.proof is None
    assert found.unproven


def test_sums_are_left_to_the_assembler() -> None:
    options = {"signature": "*fp32:16,*fp32:16,i32:16", "settings": {"BLOCK": 1024}}
    assert findings(f"{TILES}:summed", num_stages=3, **options) == []


def test_a_while_loop_is_one_warning() -> None:
    (found,) = findings(str(WHILE / "fires.py"))
    assert found.severity == "warning"
    assert "while" in found.message
    assert copies(str(WHILE / "fires.py")) == 0
    assert copies(str(WHILE / "mended.py")) > 0


def test_values_that_cannot_be_divided_are_to_be_padded() -> None:
    found = findings("matmul_relu", settings={"M": 1000, "N": 513, "K": 777})
    assert {f.severity for f in found} == {"info"}
    advice = {f.advice for f in found}
    assert any("K is 777" in text for text in advice)
    assert any("N is 513" in text for text in advice)
    assert not any("M is" in text for text in advice)


def launched(target: object, prove: bool = True, **settings: int) -> tuple[Traffic, list[Finding]]:
    traffic = estimate(target, settings=Settings(settings=settings), device="H200", prove=prove)  # type: ignore[arg-type]
    return traffic, [f for f in traffic.findings if f.id == "unpipelined-loop"]


def test_one_stage_is_slower_than_three() -> None:
    """Both times are those of the launch when it is estimated by itself."""
    target = str(WHILE / "mended.py")
    traffic, (found,) = launched(target, num_stages=1)
    assert found.severity == "warning"
    assert "num_stages=1" in found.message
    assert found.proof is not None
    assert found.proof.change in ("num_stages=2", "num_stages=3")
    assert found.proof.before["copies"] == 0 == copies(target, num_stages=1)
    stages = int(found.proof.change[-1])
    assert found.proof.after["copies"] > 0
    assert copies(target, num_stages=stages) > 0
    then, none = launched(target, prove=False, num_stages=stages)
    assert none == []
    assert found.proof.before["time_us"] == pytest.approx(traffic.time.predicted_us, abs=1e-3)
    assert found.proof.after["time_us"] == pytest.approx(then.time.predicted_us, abs=1e-3)
    assert found.saves["time_us"] >= 0.05 * found.proof.before["time_us"]


def test_one_stage_without_a_launch_is_an_info_with_the_copies() -> None:
    (found,) = findings(f"{TILES}:in_for", num_stages=1, **product("i32:16", "i32:16"))
    assert found.severity == "info"
    assert found.proof is not None
    assert found.proof.method == "recompiled"
    assert "time_us" not in found.proof.after
    assert found.proof.after["loads"] == 0
    assert found.proof.after["copies"] > 0


def test_one_stage_is_silent_where_more_would_not_help() -> None:
    """A while loop is not pipelined with any number; one of a single iteration has none ahead."""
    assert findings(str(WHILE / "fires.py"), num_stages=1) == []
    _, found = launched(str(WHILE / "mended.py"), num_stages=1, M=128, N=128, K=64)
    assert found == []
