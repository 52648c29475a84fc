"""Spills, stack frames and local arrays told apart, against what ``ptxas -v`` itself prints."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze import analyze, compile_kernel
from kanalyze.cli.app import cli
from kanalyze.frontend.subject import launch_again, launch_of
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


SPREAD = """
"The variance of each row."

import triton
import triton.language as tl

DTYPES = ("fp32",)
SHAPE = {"rows": "rows", "n": "columns"}
CONSTEXPRS = {"BLOCK": 131072}
OPTIONS = {"num_warps": 16, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("out",)
EXAMPLE = ({"rows": 264, "n": 262144},)


@triton.jit
def spread_kernel(x, out, n, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    count, mean, square = 0.0, 0.0, 0.0
    for start in range(0, n, BLOCK):
        o = start + tl.arange(0, BLOCK)
        v = tl.load(x + row * n + o, mask=o < n, other=0.0)
        here = tl.minimum(n - start, BLOCK).to(tl.float32)
        middle = tl.sum(v, 0) / here
        away = tl.where(o < n, v - middle, 0.0)
        apart = middle - mean
        square += tl.sum(away * away, 0) + apart * apart * count * here / (count + here)
        mean += apart * here / (count + here)
        count += here
    tl.store(out + row, square / count)


def arguments(shape, dtype, constexprs):
    rows, n = shape["rows"], shape["n"]
    return {"x": ("*", dtype, (rows, n)), "out": ("*", "fp32", (rows,)), "n": n}


def grid(shape, constexprs):
    return (shape["rows"], 1, 1)


def reference(tensors, shape):
    return {"out": tensors["x"].var(1, correction=0)}


def bound(dtype, roundoff):
    return 16 * roundoff[dtype]
"""


def test_spills_are_judged_the_same_by_every_command(tmp_path: Path) -> None:
    """131,072 columns of a row for 512 threads: 256 each, then 128, which still spill, then 64."""
    path, record = tmp_path / "spread.py", tmp_path / "launch.json"
    path.write_text(SPREAD)
    assert compile_kernel(str(path), settings={"BLOCK": 65536}).resources.spill_store_bytes
    assert not compile_kernel(str(path), settings={"BLOCK": 32768}).resources.spill_store_bytes
    record.write_text(json.dumps({
        "kernel": "spread_kernel", "grid": [264, 1, 1], "block": [512, 1, 1],
        "params": [{"name": "x", "type": "*fp32", "address": 1 << 40},
                   {"name": "out", "type": "*fp32", "address": 2 << 40},
                   {"name": "n", "type": "i32", "value": 262144}],
    }))  # fmt: skip
    reports = []
    for command in ("ptx", "traffic"):
        for launch in ([], ["--launch", str(record)]):
            wanted = [command, str(path), *launch, "--format", "json", "--fail-on", "warning"]
            done = CliRunner().invoke(cli, wanted)
            assert done.exit_code == 1, done.stderr
            data = json.loads(done.stdout)
            every = data["findings"] if command == "traffic" else data["kernels"][0]["findings"]
            reports.append([finding for finding in every if finding["id"] == "register-spill"])
    assert reports[1:] == reports[:1] * 3
    ((found,),) = reports[:1]
    assert found["severity"] == "warning"
    assert found["advice"] == "BLOCK=32768 spills 0 B"
    proof = found["proof"]
    gained = proof["before"]["time_us"] - proof["after"]["time_us"]
    assert gained > 0
    assert found["saves"]["time_us"] == pytest.approx(gained, abs=0.002)


def test_a_given_launch_follows_another_tile() -> None:
    product = compile_kernel("matmul_relu", settings={"M": 512, "N": 256, "K": 64})
    taller = product.again(settings={"BLOCK_M": 2 * product.constexprs["BLOCK_M"]})
    given = launch_of(product)
    again = launch_again(given, product, taller)
    assert again is not None
    assert again == launch_of(taller)
    assert again.grid != given.grid
    fewer = replace(given, grid=(1, 1, 1))  # not what the file says: the other one is not known
    assert launch_again(fewer, product, taller) is None
    more_warps = product.again(num_warps=2 * int(product.metadata["num_warps"]))
    kept = launch_again(fewer, product, more_warps)
    assert kept is not None
    assert (kept.grid, kept.block) == ((1, 1, 1), (2 * given.block[0], 1, 1))


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
