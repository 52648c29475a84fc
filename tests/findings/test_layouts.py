"""`layout-conversion`: tiles and their accesses are looked up in Triton's TTGIR and PTX as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel
from kanalyze.results.kernel import Finding, Kernel

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

SAMPLES = Path(__file__).parents[2] / "samples" / "findings" / "layout-conversion"
FIRES, MENDED = str(SAMPLES / "fires.py"), str(SAMPLES / "mended.py")
TRANSPOSE = """import triton
import triton.language as tl


@triton.jit
def transpose(x, y, M, N, B: tl.constexpr):
    rows = tl.program_id(0) * B + tl.arange(0, B)
    columns = tl.program_id(1) * B + tl.arange(0, B)
    tile = tl.load(x + rows[:, None] * N + columns[None, :])
    tl.store(y + columns[:, None] * M + rows[None, :], tl.trans(tile))
"""


def findings(target: str, **options: Any) -> list[Finding]:
    report = analyze(target, **options)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == "layout-conversion"]


def shared(ptx: str, line: int) -> list[str]:
    """The shared stores and loads behind ``.loc`` of a line."""
    found, at = [], 0
    for text in ptx.splitlines():
        if located := re.match(r"\s*\.loc\s+\d+\s+(\d+)", text):
            at = int(located[1])
        elif at == line and (
            opcode := re.match(r"\s*((?:st|ld)\.shared\S*|(?:ld|st)matrix\S*)", text)
        ):
            found.append(opcode[1])
    return found


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_tile_that_is_converted_in_a_loop(arch: str) -> None:
    made = compile_kernel(FIRES, arch=arch)
    (found,) = findings(FIRES, arch=arch)
    assert found.severity == "warning"
    assert found.source is not None
    assert "+ tl.load(d_ptrs)" in Path(FIRES).read_text().splitlines()[found.source.line - 1]
    shapes = re.findall(r"ttg\.convert_layout .*? : tensor<(\d+)x(\d+)xf16", made.ttgir)
    assert (64, 128) in {(int(m), int(n)) for m, n in shapes}
    assert found.numbers["bytes"] == 64 * 128 * 2
    assert found.numbers["loop_depth"] == 1


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_one_behind_the_loop_is_not_worth_a_word(arch: str) -> None:
    assert "ttg.convert_layout" in compile_kernel(MENDED, arch=arch).ttgir
    assert findings(MENDED, arch=arch) == []


@pytest.mark.parametrize(("element", "width"), [("i32:16", 16), ("i32", 4)])
def test_a_transposition_buys_wide_stores(element: str, width: int, tmp_path: Path) -> None:
    """With rows of M elements that may begin anywhere the stores stay narrow all the same."""
    path = tmp_path / "k.py"
    path.write_text(TRANSPOSE)
    options: dict[str, Any] = {
        "signature": f"*fp32:16,*fp32:16,{element},i32:16",
        "settings": {"B": 64},
    }
    made = compile_kernel(str(path), **options)
    assert "ttg.convert_layout" in made.ttgir
    stores = re.findall(r"st\.global(?:\.v(\d))?\.b32", made.ptx)
    assert {4 * int(vector or 1) for vector in stores} == {width}
    found = findings(str(path), **options)
    if width == 16:
        assert found == []
        return
    (one,) = found
    assert one.severity == "info"
    assert one.numbers["bytes"] == 64 * 64 * 4
    assert one.source is not None
    opcodes = shared(made.ptx, one.source.line)
    assert one.numbers["accesses"] == len(opcodes)


def test_operands_of_a_product_are_no_conversion() -> None:
    """They are staged in shared memory, and the tile at that place is one of pointers."""
    sample = str(SAMPLES.parent / "unpipelined-loop" / "fires.py")
    made = compile_kernel(sample)
    assert "ttg.convert_layout" in made.ttgir
    assert "ttg.local_alloc" in made.ttgir
    assert findings(sample) == []


def test_a_sum_before_an_atomic_has_no_stores(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(
        TRANSPOSE.replace(
            "tl.store(y + columns[:, None] * M + rows[None, :], tl.trans(tile))",
            "tl.atomic_add(y + columns, tl.sum(tile, axis=0), sem='relaxed')",
        )
    )
    options: dict[str, Any] = {"signature": "*fp32:16,*fp32:16,i32:16,i32:16"}
    made = compile_kernel(str(path), settings={"B": 64}, **options)
    assert "ttg.convert_layout" in made.ttgir
    assert findings(str(path), settings={"B": 64}, **options) == []


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_attention_exchanges_too_little_in_its_loop(arch: str) -> None:
    assert findings("flash_attention", arch=arch) == []
