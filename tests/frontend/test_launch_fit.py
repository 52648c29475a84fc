"""A launch is one of the kernel, or it is refused; one that does not start has no numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kanalyze
from kanalyze.cli.app import cli
from kanalyze.devices.table import device
from kanalyze.errors import InputError
from kanalyze.frontend.argument import Resources
from kanalyze.frontend.launch_fit import refusals
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.ptx.parse import parse_ptx

HEAD = """.version 8.0
.target sm_90
.address_size 64
.visible .entry copy(.param .u64 a, .param .u64 b, .param .u32 n)
"""
BODY = """
{
  .reg .b32 %r<4>;
  .reg .b64 %rd<6>;
  mov.u32 %r1, %tid.x;
  ld.param.u64 %rd1, [a];
  ld.param.u64 %rd2, [b];
  mul.wide.u32 %rd3, %r1, 4;
  add.s64 %rd4, %rd1, %rd3;
  add.s64 %rd5, %rd2, %rd3;
  ld.global.b32 %r2, [%rd4];
  st.global.b32 [%rd5], %r2;
  ret;
}
"""
POINTERS = [LaunchParam(name, "*i32", 1 << 40 + i) for i, name in enumerate("ab")]
GIVEN = Launch("copy", (4, 1, 1), (128, 1, 1), (*POINTERS, LaunchParam("n", "i32", 5)))


@pytest.mark.parametrize(
    ("directive", "changes", "resources", "field"),
    [
        ("", {}, None, None),
        (".reqntid 128", {}, None, None),
        (".reqntid 64, 2", {}, None, "block"),
        (".maxntid 128", {}, None, None),
        (".maxntid 8, 8, 1", {}, None, "block"),
        (".reqnctapercluster 4", {}, None, None),
        (".reqnctapercluster 8", {}, None, "grid[0]"),
        (".reqnctapercluster 4", {"cluster": (2, 1, 1)}, None, "cluster"),
        ("", {"grid": (16, 1, 1), "cluster": (16, 1, 1)}, None, None),
        (".maxclusterrank 8", {"grid": (16, 1, 1), "cluster": (16, 1, 1)}, None, "cluster"),
        ("", {"shared_bytes": 232_448}, None, None),  # 227 KiB
        ("", {"shared_bytes": 232_449}, None, "shared_bytes"),
        ("", {}, Resources(shared_bytes=232_449), "shared_bytes"),
        ("", {"block": (512, 1, 1)}, Resources(registers=128), None),  # 65,536 registers
        ("", {"block": (513, 1, 1)}, Resources(registers=128), "block"),
        ("", {"block": (1024, 1, 1)}, Resources(registers=65), "block"),
        ("", {"block": (1024, 1, 1), "registers_per_thread": 64}, Resources(registers=65), None),
    ],
)
def test_what_does_not_start(
    directive: str, changes: dict[str, Any], resources: Resources | None, field: str | None
) -> None:
    (function,) = parse_ptx(HEAD + directive + BODY, "k.ptx").entries
    found = [name for name, _ in refusals(function, replace(GIVEN, **changes), H200, resources)]
    assert found == ([] if field is None else [field])


H200 = device("H200")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        (POINTERS, "params: found 2 arguments, expected 3"),
        ([*GIVEN.params, *GIVEN.params], "params: found 6 arguments, expected 3"),
        (
            [*POINTERS, LaunchParam("n", "i64", 5)],
            "params[2]: found i64 (8 B) for n, expected .u32",
        ),
        ([LaunchParam("a", "fp32", None), *GIVEN.params[1:]], "params[0]: found fp32 (4 B)"),
    ],
)
@pytest.mark.parametrize("name", ["copy", "called_otherwise"])
def test_arguments_of_another_kernel(params: list[LaunchParam], message: str, name: str) -> None:
    module = parse_ptx(HEAD + BODY, "k.ptx")
    with pytest.raises(InputError) as refused:
        kanalyze.estimate(module, replace(GIVEN, kernel=name, params=tuple(params)))
    assert f"not a launch: {message}" in str(refused.value)
    if name == "copy":
        with pytest.raises(InputError):
            kanalyze.analyze(module, replace(GIVEN, params=tuple(params)))


@pytest.mark.parametrize("command", ["ptx", "traffic"])
def test_the_command_line_refuses_them(tmp_path: Path, command: str) -> None:
    (tmp_path / "k.ptx").write_text(HEAD + BODY)
    (tmp_path / "k.json").write_text(
        '{"kernel": "copy", "grid": [4], "block": [128], "params": [{"name": "a", "type": "*i32"}]}'
    )
    arguments = [command, str(tmp_path / "k.ptx"), "--launch", str(tmp_path / "k.json")]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, done.stdout) == (3, "")
    assert "params: found 1 arguments, expected 3" in done.stderr


def test_a_launch_that_does_not_start_has_no_numbers(tmp_path: Path) -> None:
    text = HEAD + ".reqntid 64" + BODY
    traffic = kanalyze.estimate(parse_ptx(text, "k.ptx"), GIVEN, device="H200")
    (finding,) = traffic.findings
    assert (finding.id, finding.severity) == ("launch-mismatch", "error")
    assert "block: found 128 x 1 x 1, expected 64 x 1 x 1 (.reqntid)" in finding.message
    known = {name for name, value in traffic.counters.items() if value is not None}
    assert not {name for name in known if traffic.counters[name]}
    assert not known & {"global_load_sectors", "global_store_sectors", "instructions_executed",
                        "dram_read_bytes", "l1_miss_sectors"}  # fmt: skip
    assert traffic.time.predicted_us is traffic.occupancy is traffic.waves is None
    assert traffic.compulsory.read_bytes is traffic.compulsory.write_bytes is None
    assert all(row.requests is row.cost is row.threads is None for row in traffic.accesses)
    assert not any(traffic.bytes_by_space["global"].values())
    reasons = {u.field: u.reason for u in traffic.unknown}
    for field in ("counters.global_load_sectors", "occupancy", "time.predicted_us", "waves"):
        assert "the launch does not start: block: found 128 x 1 x 1, expected 64" in reasons[field]
