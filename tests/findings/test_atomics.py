"""`atomic-without-use`: `atom`, `red` and fences are counted in the PTX and the listing as text."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel
from kanalyze.results.kernel import Finding, Kernel

pytestmark = pytest.mark.usefixtures("shared_cache")

SCATTER = """import triton
import triton.language as tl


@triton.jit
def scatter_sum(dst, src, idx, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    CALL
"""
ADD = "tl.atomic_add(dst + tl.load(idx + i), tl.load(src + i))"
TYPES: dict[str, Any] = {"signature": "*fp32:16,*fp32:16,*i32:16", "settings": {"BLOCK": 1024}}


@pytest.fixture
def kernel(tmp_path: Path) -> Any:
    def write(call: str) -> str:
        path = tmp_path / "k.py"
        path.write_text(SCATTER.replace("CALL", call))
        return str(path)

    return write


def findings(target: str, **options: Any) -> list[Finding]:
    report = analyze(target, **options)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (found,) = report.kernels
    assert isinstance(found, Kernel)
    return [f for f in found.findings if f.id == "atomic-without-use"]


def counted(target: str, **options: Any) -> dict[str, float]:
    made = compile_kernel(target, **options)
    return {
        "atom": len(re.findall(r"\batom\.", made.ptx)),
        "red": len(re.findall(r"\bred\.global", made.ptx)),
        "MEMBAR": len(re.findall(r"\bMEMBAR\.", made.sass)),
        "CCTL.IVALL": len(re.findall(r"\bCCTL\.IVALL", made.sass)),
    }


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
def test_sums_that_nobody_reads(arch: str, kernel: Any) -> None:
    target, options = kernel(ADD), {**TYPES, "arch": arch}
    relaxed = kernel(ADD[:-1] + ', sem="relaxed")')
    if counted(relaxed, **options)["atom"]:
        pytest.skip("this Triton makes no red of relaxed atomics")
    target = kernel(ADD)
    (found,) = findings(target, **options)
    assert found.severity == "warning"
    assert found.numbers["atom"] == 8
    assert "acq_rel" in found.message
    assert found.proof is not None
    before = counted(target, **options)
    assert found.proof.before == before
    assert before == {"atom": 8, "red": 0, "MEMBAR": 8, "CCTL.IVALL": 8}
    after = counted(kernel(ADD[:-1] + ', sem="relaxed")'), **options)
    assert found.proof.after == after
    assert after == {"atom": 0, "red": 8, "MEMBAR": 0, "CCTL.IVALL": 0}


def test_a_call_over_several_lines_with_sem_is_edited(kernel: Any) -> None:
    if counted(kernel(ADD[:-1] + ', sem="relaxed")'), **TYPES)["atom"]:
        pytest.skip("this Triton makes no red of relaxed atomics")
    call = ADD.replace(", tl", ",\n        tl")[:-1] + ',\n        sem="acq_rel",\n    )'
    (found,) = findings(kernel(call), **TYPES)
    assert found.proof is not None
    assert found.proof.after["atom"] == 0


@pytest.mark.parametrize(
    "call",
    [
        ADD[:-1] + ', sem="relaxed")',
        ADD[:-1] + ', sem="release")',
        f"tl.store(src + i, {ADD})",
        "tl.atomic_xchg(dst + tl.load(idx + i), tl.load(src + i))",
    ],
)
def test_silence(call: str, kernel: Any) -> None:
    assert findings(kernel(call), **TYPES) == []


def test_integers_may_be_flags(kernel: Any) -> None:
    if counted(kernel(ADD[:-1] + ', sem="relaxed")'), **TYPES)["atom"]:
        pytest.skip("this Triton makes no red of relaxed atomics")
    (found,) = findings(kernel("tl.atomic_add(idx + i, 1)"), **TYPES)
    assert found.severity == "info"
    assert "data is ready" in found.advice


def test_ptx_alone(kernel: Any, tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(compile_kernel(kernel(ADD), **TYPES).ptx)
    (found,) = findings(str(path))
    assert found.numbers["atom"] == 8
    assert found.unproven


def test_relaxed_atomics_of_cuda_are_left_to_the_assembler(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<3>;\n.reg .f32 %f<3>;\n"
        "ld.param.u64 %rd1, [p];\natom.global.add.f32 %f1, [%rd1], 0f3F800000;\nret;\n}\n"
    )
    assert findings(str(path)) == []
