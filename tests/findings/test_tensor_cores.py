"""The rules on tensor cores: `tensor-core-fallback` and `tf32-precision`.

Instructions before and after are counted in the PTX text of kernels that Triton compiles here.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kanalyze import analyze, compile_kernel
from kanalyze.results.kernel import Finding, Kernel

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"
PRODUCT = str(SAMPLES / "tensor-core-fallback" / "fires.py")


def findings(target: object, rule: str, **options: object) -> list[Finding]:
    report = analyze(target, **options)  # type: ignore[arg-type]
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == rule]


def counted(ptx: str) -> dict[str, int]:
    text = re.sub(r"//.*", "", ptx)
    return {
        "mma.sync": len(re.findall(r"\bmma\.sync\.", text)),
        "wgmma": len(re.findall(r"\bwgmma\.mma_async\.", text)),
        "tcgen05": len(re.findall(r"\btcgen05\.mma\.", text)),
    }


@pytest.mark.parametrize(
    ("arch", "warps", "unit", "block"),
    [
        ("sm_90", 1, "wgmma", 64),
        ("sm_90", 2, "wgmma", 64),
        ("sm_100", 2, "tcgen05", 64),
        ("sm_100", 16, "tcgen05", 128),
    ],
)
def test_too_few_or_too_many_warps(arch: str, warps: int, unit: str, block: int) -> None:
    sizes = {"BLOCK_M": block, "BLOCK_N": block}
    options = {"arch": arch, "num_warps": warps, "settings": sizes}
    (found,) = findings(PRODUCT, "tensor-core-fallback", **options)
    assert found.severity == "warning"
    assert f"num_warps={warps}" in found.message
    assert found.source is not None
    assert "tl.dot" in Path(PRODUCT).read_text().splitlines()[found.source.line - 1]
    assert found.proof is not None
    after = int(re.search(r"num_warps=(\d+)", found.proof.change)[1])  # type: ignore[index]
    for number, said in ((warps, found.proof.before), (after, found.proof.after)):
        made = compile_kernel(PRODUCT, arch=arch, num_warps=number, settings=sizes)
        expected = counted(made.ptx)
        assert {k: said[k] for k in ("mma.sync", unit)} == {
            k: expected[k] for k in ("mma.sync", unit)
        }
    assert found.proof.before[unit] == found.proof.after["mma.sync"] == 0
    assert found.proof.after[unit] > 0


@pytest.mark.parametrize(
    ("arch", "warps"), [("sm_80", 2), ("sm_89", 2), ("sm_90", 4), ("sm_90", 8), ("sm_100", 4)]
)
def test_silent_where_the_best_unit_is_used(arch: str, warps: int) -> None:
    assert findings(PRODUCT, "tensor-core-fallback", arch=arch, num_warps=warps) == []


def test_a_tile_of_few_rows_is_worth_knowing() -> None:
    options = {"num_warps": 4, "settings": {"BLOCK_M": 16}}
    (found,) = findings(PRODUCT, "tensor-core-fallback", **options)
    assert found.severity == "warning"  # of the file's launch most of the time
    assert "16 rows" in found.message
    assert "BLOCK_M" in found.advice
    assert found.proof is not None
    assert found.proof.change == "BLOCK_M=64"


def test_the_rows_are_no_extent_of_another_side(tmp_path: Path) -> None:
    """Of three extents of 32 that of K leaves the grid as it is; what was proven is named."""
    sizes = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32}
    (found,) = findings(PRODUCT, "tensor-core-fallback", num_warps=4, settings=sizes)
    assert found.proof is not None
    assert found.proof.change in ("BLOCK_M=64", "BLOCK_N=64")
    assert found.proof.change in found.advice
    assert "BLOCK_K" not in found.advice
    assert " or BLOCK" not in found.advice


def test_ptx_alone_says_what_is_known(tmp_path: Path) -> None:
    made = compile_kernel(PRODUCT, arch="sm_100", num_warps=2)
    path = tmp_path / "k.ptx"
    path.write_text(made.ptx)
    (found,) = findings(str(path), "tensor-core-fallback")
    assert found.severity == "info"
    assert found.numbers == {"mma": counted(made.ptx)["mma.sync"], "num_warps": 2}
    assert "4 or 8 warps" in found.message
    assert found.proof is None
    assert found.unproven


def test_products_in_fp64_have_no_newer_unit(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(
        ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n.reqntid 64\n{\n"
        ".reg .f64 %d<9>;\n"
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%d0,%d1},{%d2},{%d3},{%d0,%d1};\n"
        "ret;\n}\n"
    )
    assert findings(str(path), "tensor-core-fallback") == []


EXACT = str(SAMPLES / "tf32-precision" / "fires.py")


def fma(ptx: str) -> int:
    return len(re.findall(r"\bfma\.", re.sub(r"//.*", "", ptx)))


def test_exact_products_are_worth_knowing_and_compiled_with_tf32() -> None:
    (found,) = findings(EXACT, "tf32-precision")
    assert found.severity == "info"
    assert found.proof is not None
    exact = compile_kernel(EXACT)
    text = Path(EXACT).read_text()
    rounded = compile_kernel(EXACT, source=text.replace('"ieee"', '"tf32"'))
    for made, said in ((exact, found.proof.before), (rounded, found.proof.after)):
        assert said["fma"] == fma(made.ptx)
        assert said["tensor_instructions"] == sum(counted(made.ptx).values())
        assert said["registers"] == made.resources.registers
    assert found.proof.before["tensor_instructions"] == found.proof.after["fma"] == 0


@pytest.mark.parametrize("precision", ["tf32x3"])
def test_several_passes(precision: str, tmp_path: Path) -> None:
    path = tmp_path / "fires.py"
    path.write_text(Path(EXACT).read_text().replace('"ieee"', f'"{precision}"'))
    (found,) = findings(str(path), "tf32-precision")
    assert precision in found.message
    assert found.proof is not None
    before, after = (p["tensor_instructions"] for p in (found.proof.before, found.proof.after))
    assert before == 3 * after > 0


def test_the_older_argument_is_set_too(tmp_path: Path) -> None:
    path = tmp_path / "fires.py"
    text = Path(EXACT).read_text().replace('input_precision="ieee"', "allow_tf32=False")
    path.write_text(text)
    (found,) = findings(str(path), "tf32-precision")
    assert found.proof is not None
    assert found.proof.after["fma"] == 0


@pytest.mark.parametrize("call", ["", ', input_precision="tf32"'])
def test_tf32_and_half_precision_are_silent(call: str, tmp_path: Path) -> None:
    path = tmp_path / "fires.py"
    path.write_text(Path(EXACT).read_text().replace(', input_precision="ieee"', call))
    assert findings(str(path), "tf32-precision") == []
    assert findings(PRODUCT, "tf32-precision") == []
