"""Spills, stack frames and local arrays told apart, against what ``ptxas -v`` itself prints."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from kanalyze import analyze, compile_kernel
from kanalyze.results.kernel import Finding, Kernel
from kanalyze.toolchain import tools

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"
RULES = ("register-spill", "stack-array", "local-indexing")


def findings(target: str | Path, **options: object) -> dict[str, list[Finding]]:
    report = analyze(target, **options)  # type: ignore[arg-type]
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    return {
        kernel.name: [f for f in kernel.findings if f.id in RULES]
        for kernel in report.kernels
        if isinstance(kernel, Kernel)
    }


def said_by_ptxas(path: Path, folder: Path, *flags: str) -> dict[str, int]:
    command = [str(tools.find("ptxas-blackwell")), "-v", "-arch=sm_90a", *flags, str(path)]
    done = subprocess.run(
        [*command, "-o", str(folder / "out.cubin")], capture_output=True, text=True, check=True
    )
    text = done.stdout + done.stderr
    patterns = {
        "stack": r"(\d+) bytes stack frame",
        "stores": r"(\d+) bytes spill stores",
        "loads": r"(\d+) bytes spill loads",
        "registers": r"Used (\d+) registers",
    }
    return {name: int(re.findall(pattern, text)[0]) for name, pattern in patterns.items()}


def test_spills_are_those_of_ptxas(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(compile_kernel(str(SAMPLES / "register-spill" / "fires.py")).ptx)
    expected = said_by_ptxas(path, tmp_path, "-lineinfo")
    (found,) = next(iter(findings(path).values()))
    assert found.id == "register-spill"
    assert found.numbers["spill_store_bytes"] == expected["stores"] > 0
    assert found.numbers["spill_load_bytes"] == expected["loads"] > 0
    assert found.numbers["registers"] == expected["registers"] == 255
    assert found.unproven


def test_more_warps_spill_less() -> None:
    target = str(SAMPLES / "register-spill" / "fires.py")
    (found,) = next(iter(findings(target).values()))
    assert found.proof is not None
    warps = int(re.fullmatch(r"num_warps=(\d+)", found.proof.change)[1])  # type: ignore[index]
    after = compile_kernel(target, num_warps=warps).resources
    assert found.proof.after["spill_bytes"] == 0
    assert (after.spill_store_bytes, after.spill_load_bytes) == (0, 0)
    assert found.proof.after["registers"] == after.registers


def test_a_limit_on_registers_is_named_and_lifted() -> None:
    target = str(SAMPLES / "register-spill" / "mended.py")
    (found,) = next(iter(findings(target, settings={"maxnreg": 32}).values()))
    assert "maxnreg=32" in found.message
    assert found.proof is not None
    assert found.proof.after["spill_bytes"] == 0


def test_spills_in_a_loop_are_a_warning(tmp_path: Path) -> None:
    product = SAMPLES / "tf32-precision" / "mended.py"
    sizes = {"BLOCK_M": 128, "BLOCK_N": 128}
    (found,) = next(iter(findings(str(product), settings=sizes, num_warps=2).values()))
    assert found.severity == "warning"
    assert found.numbers["in_loops_bytes"] >= 16


@pytest.mark.parametrize("rule", ["stack-array", "local-indexing"])
def test_a_stack_without_spills_is_not_called_spills(rule: str, tmp_path: Path) -> None:
    path = SAMPLES / rule / "fires.ptx"
    expected = said_by_ptxas(path, tmp_path)
    assert expected["stores"] == expected["loads"] == 0
    (found,) = next(iter(findings(path).values()))
    assert found.id == rule
    assert found.numbers["stack_bytes"] == expected["stack"] > 0
    assert f"stack of {expected['stack']} B" in found.message


def test_an_index_that_follows_loops_is_a_warning() -> None:
    text = (SAMPLES / "local-indexing" / "fires.ptx").read_text()
    (found,) = next(iter(findings(SAMPLES / "local-indexing" / "fires.ptx").values()))
    assert found.severity == "warning"
    assert found.numbers["array_bytes"] == 9 * 4
    accesses = re.findall(r"^\s*(?:ld|st)\.local\S*\s.*$", text, re.MULTILINE)
    assert found.numbers["indexed"] <= len(accesses)


def test_four_kernels_with_arrays() -> None:
    found = findings(Path(__file__).parents[1] / "data" / "findings" / "local_arrays.ptx")
    assert {name: [f.id for f in mine] for name, mine in found.items()} == {
        "pick_dyn": ["local-indexing"],
        "pick_fixed": [],
        "calls": ["stack-array"],
        "trig": [],  # the assembler keeps the array of its slow path in registers
    }
    (picked,) = found["pick_dyn"]
    assert picked.severity == "info"
    assert picked.numbers["array_bytes"] == picked.numbers["stack_bytes"] == 64
    (called,) = found["calls"]
    assert called.severity == "info"
    assert "_Z4polyfi" in called.message
