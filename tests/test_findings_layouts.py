"""`layout-conversion`: tiles and their accesses are looked up in Triton's TTGIR and PTX as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel
from kanalyze.report.document import Finding, Kernel

pytestmark = pytest.mark.usefixtures("shared_cache")

SAMPLES = Path(__file__).parents[1] / "samples" / "findings" / "layout-conversion"
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


def test_a_transposition_is_worth_knowing(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_text(TRANSPOSE)
    options: dict[str, Any] = {
        "signature": "*fp32:16,*fp32:16,i32:16,i32:16",
        "settings": {"B": 64},
    }
    made = compile_kernel(str(path), **options)
    (found,) = findings(str(path), **options)
    assert found.severity == "info"
    assert found.source is not None
    assert found.numbers["bytes"] == 64 * 64 * 4
    opcodes = shared(made.ptx, found.source.line)
    assert found.numbers["accesses"] == len(opcodes)
    stored = [o for o in opcodes if o.startswith("st.shared")]
    widths = [int(m[1] or 1) * 4 for o in stored if (m := re.search(r"shared(?:\.v(\d))?\.b32", o))]
    assert sum(widths) * 128 == found.numbers["bytes"]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_attention_exchanges_too_little_in_its_loop(arch: str) -> None:
    assert findings("flash_attention", arch=arch) == []
