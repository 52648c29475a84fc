"""PTX that means harm or is plainly odd: bounded, answered, and nothing else of the run is lost."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kanalyze import analyze, parse_ptx
from kanalyze.cli.app import cli
from kanalyze.kernel import describe

pytestmark = pytest.mark.usefixtures("shared_cache")

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p){.reg .b32 %r<99>;.reg .b64 %rd<9>;.reg .f32 %f<9>;
.reg .pred %p<9>;
ld.param.u64 %rd1,[p];
mov.u32 %r0,%tid.x;
mov.u32 %r1,%ctaid.x;
"""
TAIL = """
mul.wide.u32 %rd2,%r0,4;
add.s64 %rd3,%rd1,%rd2;
ld.global.u32 %r9,[%rd3];
st.global.u32 [%rd1],%r9;
ret;}
"""


def first(body: str) -> tuple[str | None, str | None]:
    """Address of the load in the report, and why there is none."""
    (kernel,) = analyze(parse_ptx(HEAD + body + TAIL), sass=False).kernels
    return kernel.accesses[0].address, kernel.accesses[0].reason


@pytest.mark.parametrize(
    "step",
    [
        "mul.lo.u32 %r0,%r0,%r0;add.u32 %r0,%r0,%r1;",
        "setp.lt.u32 %p1,%r0,%r1;selp.b32 %r2,%r0,%r1,%p1;mad.lo.u32 %r0,%r2,%r2,%r0;",
        "min.u32 %r2,%r0,%r1;max.u32 %r3,%r0,%r1;xor.b32 %r4,%r2,%r3;shr.u32 %r5,%r4,3;"
        "add.u32 %r0,%r4,%r5;xor.b32 %r0,%r0,%r2;",
    ],
)
def test_an_expression_that_doubles_is_not_shown(step: str) -> None:
    address, reason = first(step * 40)
    assert address is None
    assert reason == "the expression is too long to show"


@pytest.mark.parametrize("amount", [32, 33, 2147483647, -1, -2147483648])
def test_a_shift_by_the_width_or_more_gives_0(amount: int) -> None:
    assert first(f"shl.b32 %r0,%r0,{amount};")[0] == "p"


def test_factors_are_those_of_32_bits() -> None:
    assert first("add.u32 %r0,%r0,%r0;" * 32)[0] == "p"
    assert first("add.u32 %r0,%r0,%r0;" * 8)[0] == "p + 1024*tid.x"


@pytest.mark.parametrize("widen", ["u32", "s32"])
def test_arithmetic_that_surely_wraps_says_so(widen: str) -> None:
    """The text, computed with unlimited integers, is what 32 bits hold."""
    tail = TAIL.replace("wide.u32", f"wide.{widen}")
    body = "mul.lo.u32 %r0,%r0,0x85ebca6b;"
    (kernel,) = analyze(parse_ptx(HEAD + body + tail), sass=False).kernels
    text = kernel.accesses[0].address
    assert text is not None
    lanes = np.arange(1024, dtype=np.uint32) * np.uint32(0x85EBCA6B)
    wanted = 4 * (lanes if widen == "u32" else lanes.view(np.int32)).astype(np.int64)

    def u32(number: int) -> int:
        return number % (1 << 32)

    def s32(number: int) -> int:
        return (number + (1 << 31)) % (1 << 32) - (1 << 31)

    for lane in (0, 1, 7, 8, 500, 1023):
        expression = text.replace("tid.x", str(lane)).replace("p +", "0 +")
        assert eval(expression, {"u32": u32, "s32": s32}) == wanted[lane]


@pytest.mark.parametrize(
    "statement",
    [
        "add.u32 %r0;", "and.b32 %r0,%r1/508;", "abs.s32 %r0;", "cvt %r0,%r1;", "mov.b16 %r0;",
        "shf %r0,%r1;", "shf.b64 %r0,%r1,1;", "selp.b32 %r0,%r1>0,%p1;", "mov {%r0,%r1},[%rd1];",
        "mov.s32 {%r0};", "bfe.u32 %r0,%r1;", "lop3.b32 %r0,%r1;", "prmt.b32 %r0;", "setp.lt %p1;",
    ],
)  # fmt: skip
def test_missing_operands_make_a_value_unknown(statement: str) -> None:
    (kernel,) = analyze(parse_ptx(HEAD + statement + TAIL), sass=False).kernels
    assert len(kernel.accesses) == 2
    assert kernel.accesses[1].address == "p"


def test_a_fault_of_ours_costs_one_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("good", "bad"):
        text = (HEAD + TAIL).replace(".entry k", f".entry {name}")
        (tmp_path / f"{name}.ptx").write_text(text)
    evaluate = describe.evaluate

    def broken(module: Any, function: Any, arrays: Any) -> Any:
        if function.name == "bad":
            raise IndexError("tuple index out of range")
        return evaluate(module, function, arrays)

    monkeypatch.setattr(describe, "evaluate", broken)
    arguments = ["ptx", str(tmp_path / "bad.ptx"), str(tmp_path / "good.ptx"), "--format", "json"]
    result = CliRunner().invoke(cli, arguments)
    data = json.loads(result.stdout)
    assert result.exit_code == 3
    assert [k["name"] for k in data["kernels"]] == ["good"]
    assert "internal error in kernel bad" in data["skipped"][0]["reason"]
    assert "internal error in kernel bad" in result.stderr


@pytest.mark.parametrize("name", ["/dev/zero", "/etc/passwd", "a\\000b.py", "pipe.py"])
def test_what_a_location_names_is_read_only_if_it_is_source_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe.py")
    files = f'.file 1 "{name}"\n'
    text = (HEAD + ".loc 1 1 1\n" + TAIL).replace(".visible", files + ".visible")
    Path("k.ptx").write_text(text)
    result = CliRunner().invoke(cli, ["ptx", "k.ptx"])
    assert result.exit_code == 0, result.stderr
    assert "root:" not in result.stdout


def test_numbers_of_thousands_of_digits(tmp_path: Path) -> None:
    for index, line in enumerate(
        (f".loc 1 {'9' * 5000} 1", f"mov.u64 %rd9,{'9' * 5000};", f".reg .b32 %q<{'9' * 5000}>;")
    ):
        path = tmp_path / f"{index}.ptx"
        path.write_text(HEAD + line + TAIL)
        result = CliRunner().invoke(cli, ["ptx", str(path), "--format", "json"])
        assert result.exit_code in (0, 3), (line[:20], result.stderr[:300])
        assert "kernels" in json.loads(result.stdout)


@pytest.mark.parametrize("size", ["-16", "99999999999999999999", "%r0"])
def test_a_size_that_can_be_none_is_unknown(size: str) -> None:
    body = f"cp.async.ca.shared.global [%r0],[%rd1],{size};"
    (kernel,) = analyze(parse_ptx(HEAD + body + TAIL), sass=False).kernels
    assert kernel.accesses[0].bytes_per_thread is None


def test_what_is_odd_is_said(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text((HEAD + TAIL).replace(".version 8.0\n", ""))
    result = CliRunner().invoke(cli, ["ptx", str(path), "--format", "json"])
    assert result.exit_code == 0
    assert "warning" in result.stderr
    assert "found no .version directive" in result.stderr
