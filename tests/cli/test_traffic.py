"""``kanalyze traffic``: the text, the JSON against its schema, the command and its errors."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from kanalyze import Launch, Traffic, estimate, parse_ptx, schemas
from kanalyze.cli.app import cli
from kanalyze.launch.record import LaunchParam
from kanalyze.render.traffic_text import render
from kanalyze.results import traffic as doc
from kanalyze.text.numbers import decimal, human

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]

RECORDS = Path(__file__).parents[2] / "samples" / "h200_records"
NAMES = ["gelu_unaligned", "softmax_8192x781", "matmul_1000x1001x1003", "inductor_channels_last_0"]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 copy_a, .param .u64 copy_b, .param .u32 copy_s)
{
    .reg .pred %p<2>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [copy_a];
    ld.param.u64 %rd2, [copy_b];
    ld.param.u32 %r3, [copy_s];
    mov.u32 %r1, %tid.x;
    mul.lo.s32 %r4, %r1, %r3;
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.b32 %r2, [%rd4];
    st.global.b32 [%rd5], %r2;
    ret;
}
"""
INDIRECT = PTX.replace(
    "st.global", "mul.wide.u32 %rd3, %r2, 4;\n add.s64 %rd5, %rd2, %rd3;\n st.global"
)


def kanalyze(*arguments: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, ["traffic", *arguments], input=stdin)


def launch(stride: int | None = 1, grid: int = 4, threads: int = 128, **more: Any) -> Launch:
    params = (
        LaunchParam("a", "*fp32", 1 << 40),
        LaunchParam("b", "*fp32", 1 << 41),
        LaunchParam("s", "i32", stride),
    )
    return Launch("copy", (grid, 1, 1), (threads, 1, 1), params, 0, **more)


@cache
def copied(stride: int | None = 1, text: str = PTX) -> Traffic:
    return estimate(parse_ptx(text, "copy.ptx"), launch(stride), device="A100 SXM 80GB")


@cache
def recorded(name: str, simulate: bool = True) -> Traffic:
    """The estimate of a record, without what depends on the assembler's version."""
    given = Launch.from_record(RECORDS / f"{name}.json")
    assert given.ptx is not None
    traffic = estimate(given.ptx, given, simulate=simulate)
    registers = json.loads((RECORDS / f"{name}.json").read_text())["registers_per_thread"]
    return dataclasses.replace(traffic, file=f"{name}.ptx", registers_per_thread=registers)


def record(path: Path, **changes: Any) -> str:
    data: dict[str, Any] = {
        "kernel": "copy",
        "grid": [4, 1, 1],
        "block": [128, 1, 1],
        "params": [
            {"name": "a", "type": "*fp32", "address": 1 << 40},
            {"name": "b", "type": "*fp32", "address": 1 << 41},
            {"name": "s", "type": "i32", "value": 8},
        ],
        **changes,
    }
    path.write_text(json.dumps({k: v for k, v in data.items() if v is not None}))
    return str(path)


def errors(data: object) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schemas.load("traffic"))
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(data)]


# ------------------------------------------------------------------ the text


@pytest.mark.parametrize("name", NAMES)
def test_the_text_is_as_before(name: str, golden: Callable[[str, str], None]) -> None:
    """What is counted; estimates move with what they are fitted to (see test_traffic_estimates)."""
    golden(f"traffic_{name}.txt", render(recorded(name, simulate=False), width=100))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 200])
def test_no_line_is_too_wide(name: str, width: int, every: bool) -> None:
    text = render(recorded(name), width=width, every=every)
    widest = max(text.splitlines(), key=cell_len)
    assert cell_len(widest) <= width + (8 if width < 60 else 0), widest
    assert not any(line != line.rstrip() for line in text.splitlines())
    colored = render(recorded(name), width=width, color=True, every=every)
    assert "\x1b[" in colored
    assert [line.rstrip() for line in ANSI.sub("", colored).splitlines()] == text.splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_numbers_of_the_document_are_in_the_text(name: str) -> None:
    traffic, text = recorded(name), render(recorded(name), width=200)
    assert f"{traffic.analysed.accesses} of {traffic.analysed.of} accesses evaluated" in text
    for key, value in traffic.counters.items():
        if key.startswith(("global_load", "global_store", "shared_")):
            assert f"{value:,}" in text, key
    for pointer in traffic.compulsory.pointers:
        for size in (pointer.read_bytes, pointer.write_bytes):
            assert not size or human(size).replace("\N{NO-BREAK SPACE}", " ") in text
    assert traffic.waves is not None
    assert f"{traffic.waves.waves:,.2f}" in text


@pytest.mark.parametrize("name", NAMES)
def test_every_row_is_there_when_asked_for(name: str) -> None:
    traffic, text = recorded(name), render(recorded(name), width=200, every=True)
    for access in traffic.accesses:
        assert re.search(rf"{re.escape(access.opcode)} .*, line {access.line}\b", text)


def test_alike_rows_are_one_row() -> None:
    text = render(recorded("matmul_1000x1001x1003"), width=200)
    assert "16 × ld.global.b16 a_ptr, lines 349-409" in text
    assert text.count("ld.global.b16 a_ptr, lines") == 1


def test_how_lanes_lie_and_begin() -> None:
    """Odd rows of 4-byte elements: seven of eight begin inside a sector."""
    assert {a.pattern for a in recorded("softmax_8192x781").accesses if a.space == "global"} == {
        "contiguous, misaligned in 87.5 % of requests",
        "contiguous",  # never executed
    }
    shifted = {a.pattern for a in recorded("gelu_unaligned").accesses}
    assert shifted == {"contiguous, misaligned by 4 B"}
    assert {a.pattern for a in copied(8).accesses} == {"stride 32 B"}
    text = render(copied(8), width=200)
    assert "ld.global.b32 a, line 17, stride 32 B" in text


# ------------------------------------------------------------------ remarks


@pytest.mark.parametrize(
    ("stride", "said"),
    [
        (1, None),
        (2, "2 elements (8 B) apart, 8 sectors per request where 4 would do, 2 times the bytes"),
        (8, "32 sectors per request = one sector each where 4 would do, 8 times the bytes"),
        (100, "8 times the bytes needed"),
    ],
)
def test_uncoalesced_accesses_are_remarked_on(stride: int, said: str | None) -> None:
    text = render(copied(stride), width=200)
    assert ("uncoalesced-access" in text) == (said is not None)
    assert said is None or said in text


def test_lanes_that_share_an_address_are_no_waste() -> None:
    traffic = copied(0)
    assert (
        [a.ideal_cost for a in traffic.accesses] == [a.cost for a in traffic.accesses] == [16, 16]
    )
    assert "uncoalesced-access" not in render(traffic, width=200)


def test_a_bank_conflict_is_remarked_on() -> None:
    text = PTX.replace("ld.global.b32 %r2, [%rd4]", "ld.shared.b32 %r2, [%r4]")
    text = text.replace("mul.lo.s32 %r4, %r1, %r3;", "mul.lo.s32 %r4, %r1, 128;")
    text = text.replace("mul.wide.u32 %rd3, %r4, 4", "mul.wide.u32 %rd3, %r1, 4")
    shown = render(copied(1, text), width=200)
    assert "32-way bank conflict: 32 wavefronts per request where 1 would do" in shown
    assert re.search(r"16 +512 +32 +16 +496  loads", shown)


def test_a_small_grid_is_remarked_on() -> None:
    text = render(copied(), width=200)
    assert "the grid is too small to fill the GPU: 4 blocks on 108 SMs, 96.3 % of them idle" in text


# ------------------------------------------------------------------ what is not known


def test_what_depends_on_data_is_unknown_everywhere() -> None:
    traffic = copied(1, INDIRECT)
    assert traffic.analysed == doc.Analysed(1, 2)
    assert traffic.counters["global_store_sectors"] is None
    assert traffic.counters["global_load_sectors"] == 64
    assert traffic.compulsory.write_bytes is None
    assert traffic.arithmetic_intensity is None
    text = render(traffic, width=200)
    assert "1 of 2 accesses evaluated: totals that need the others are unknown, not less" in text
    assert "not evaluated: depends on data loaded by ld.global.b32" in text
    assert re.search(r"16 +\? +\? +\? +\?  stores: unknown \(.*data", text)
    assert "b: written: unknown (depends on data" in text


def test_nothing_evaluated_never_reads_as_clean() -> None:
    traffic = copied(None)
    assert traffic.analysed == doc.Analysed(0, 2)
    text = render(traffic, width=100, color=True)
    assert "\x1b[1;31m0 of 2 accesses evaluated" in text
    plain = ANSI.sub("", text)
    assert "loads: unknown" in plain.replace("\n", " ")
    assert "100 %" not in plain.partition("global")[2]
    assert not re.search(r"\b0 B\b.*read", plain)


@pytest.mark.parametrize("text", [PTX, INDIRECT])
@pytest.mark.parametrize("stride", [1, None])
def test_what_is_null_has_a_reason(text: str, stride: int | None) -> None:
    data = copied(stride, text).to_dict()
    reasons = {u["field"]: u["reason"] for u in data["unknown"]}
    for name in ("device", "occupancy", "waves", "flops", "arithmetic_intensity"):
        assert (data[name] is None) == (name in reasons)
    for name, value in data["counters"].items():
        assert (value is None) == (f"counters.{name}" in reasons), name
    for index, row in enumerate(data["accesses"]):
        assert (row["requests"] is None) == (f"accesses[{index}].requests" in reasons)
    for name in ("read_bytes", "write_bytes"):
        assert (data["compulsory"][name] is None) == (f"compulsory.{name}" in reasons)
    assert all(reasons.values())


def test_an_unread_statement_makes_totals_unknown(tmp_path: Path) -> None:
    broken = tmp_path / "broken.ptx"
    broken.write_text(PTX.replace("st.global.b32 [%rd5], %r2;", "st.global.b32 [%rd5, %r2;"))
    given = record(tmp_path / "r.json")
    result = kanalyze(str(broken), "--launch", given, "--format", "json")
    assert result.exit_code == 3
    assert "broken.ptx:18" in result.stderr
    data = json.loads(result.stdout)
    assert data["counters"]["global_store_sectors"] is None
    assert data["counters"]["global_load_sectors"] is None
    assert data["compulsory"]["write_bytes"] is None
    assert errors(data) == []
    lenient = kanalyze(str(broken), "--launch", given, "--lenient")
    assert lenient.exit_code == 0
    assert "could not be read" in lenient.stdout
    assert "warning" in lenient.stderr


# ------------------------------------------------------------------ JSON


@pytest.mark.parametrize(
    "arguments",
    [
        *(["--launch", str(RECORDS / f"{name}.json")] for name in NAMES),
        ["gelu"],
        ["softmax", "--set", "N=781", "--device", "A100 SXM 80GB", "--arch", "sm_80"],
        ["flash_attention", "--arch", "sm_100"],
    ],
    ids=lambda arguments: Path(arguments[-1]).stem,
)
def test_the_json_follows_the_schema(arguments: list[str]) -> None:
    if arguments[0] != "--launch":
        pytest.importorskip("triton")
    result = kanalyze(*arguments, "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert errors(data) == []
    assert Traffic.from_dict(data).to_dict() == data


def test_the_schema_refuses_what_is_not_in_it() -> None:
    data = copied().to_dict()
    assert errors(data) == []
    assert errors({**data, "more": 1})
    assert errors({**data, "grid": [1, 2]})
    del data["counters"]["global_load_sectors"]
    assert errors(data)


def test_settings_change_the_launch() -> None:
    pytest.importorskip("triton")
    small = json.loads(kanalyze("gelu", "--set", "n=5000", "--format", "json").stdout)
    assert small["grid"] == [5, 1, 1]
    assert small["arguments"] == {"n": 5000}
    assert small["compulsory"]["read_bytes"] == 5000 * 4
    assert small["device"] == "NVIDIA H200"
    other = kanalyze("gelu", "--arch", "sm_100", "--device", "b200", "--format", "json")
    assert json.loads(other.stdout)["device"] == "NVIDIA B200"


# ------------------------------------------------------------------ the command


def test_output_goes_to_a_file(tmp_path: Path) -> None:
    out = tmp_path / "traffic.txt"
    path = RECORDS / "softmax_8192x781.json"
    result = kanalyze("--launch", str(path), "-o", str(out), "--width", "90")
    assert (result.exit_code, result.stdout) == (0, "")
    text = out.read_text("utf-8")
    assert text == kanalyze("--launch", str(path), "--width", "90").stdout
    assert "24 of 24 accesses evaluated" in text
    colored = kanalyze("--launch", str(path), "--color", "always").stdout
    assert "\x1b[" in colored


def test_ptx_on_standard_input_and_kernels_by_name(tmp_path: Path) -> None:
    both = PTX + PTX.partition(".address_size 64\n")[2].replace("copy", "other")
    given = record(tmp_path / "r.json", kernel="neither")
    several = kanalyze("-", "--launch", given, stdin=both)
    assert several.exit_code == 2
    assert "copy, other" in several.stderr
    for name in ("copy", "other"):
        result = kanalyze("-", "--launch", given, "--kernel", name, "--format", "json", stdin=both)
        data = json.loads(result.stdout)
        assert (data["kernel"], data["file"]) == (name, "<stdin>")
        assert data["counters"]["global_load_sectors"] == 16 * 32
    missing = kanalyze("-", "--launch", given, "--kernel", "coopy", stdin=both)
    assert missing.exit_code == 2
    assert "did you mean copy?" in missing.stderr


def test_a_file_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "dumped.txt").write_text(PTX)
    given = record(tmp_path / "r.json")
    result = kanalyze(str(tmp_path / "dumped.txt"), "--launch", given)
    assert result.exit_code == 0
    assert "2 of 2 accesses evaluated" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "give a TARGET, or --launch"),
        (["{copy}"], 2, "no launch is known: give --launch RECORD.json"),
        (["{folder}/missing.ptx", "--launch", "{record}"], 3, "No such file"),
        (["{copy}", "--launch", "{folder}/missing.json"], 3, "No such file"),
        (["{copy}", "--launch", "{copy}"], 3, "not a launch record"),
        (["{copy}", "--launch", "{keyless}"], 3, "not a launch: grid: is missing"),
        (["--launch", "{record}"], 3, "there is no .ptx of the same stem"),
        (["geluu"], 2, "did you mean gelu?"),
        (["{copy}", "--launch", "{record}", "--device", "H2000"], 2, "unknown device 'H2000'"),
        (["{copy}", "--launch", "{record}", "--kernel", "cpy"], 2, "no kernel 'cpy'"),
        (["kernel.cubin", "--launch", "{record}"], 3, "No such file"),
        (["kernel.cu:add", "--launch", "{record}"], 3, "No such file"),
    ],
)
def test_errors(arguments: list[str], code: int, said: str, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    (tmp_path / "copy.ptx").write_text(PTX)
    places = {
        "copy": str(tmp_path / "copy.ptx"),
        "folder": str(tmp_path),
        "record": record(tmp_path / "r.json"),
        "keyless": record(tmp_path / "k.json", grid=None),
    }
    result = kanalyze(*(a.format(**places) for a in arguments))
    assert (result.exit_code, result.stdout) == (code, ""), result.stderr
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_settings_without_effect_are_said(tmp_path: Path) -> None:
    (tmp_path / "copy.ptx").write_text(PTX)
    given = record(tmp_path / "r.json")
    result = kanalyze(str(tmp_path / "copy.ptx"), "--launch", given, "--set", "s=4")
    assert result.exit_code == 0
    assert "--set had no effect" in result.stderr


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    evil = "\x1b[31mred\u202e\r\n[bold]x[/bold]"
    params = [{"name": evil, "type": t, "address": (i + 1) << 40, "value": 8}
              for i, t in enumerate(("*fp32", "*fp32", "i32"))]  # fmt: skip
    given = record(tmp_path / "r.json", params=params)
    (tmp_path / "copy.ptx").write_text(PTX)
    result = kanalyze(str(tmp_path / "copy.ptx"), "--launch", given, "--width", "80")
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\u202e" not in result.stdout
    assert "\r" not in result.stdout
    assert "[bold]x[/bold]" in result.stdout.replace("\n", "").replace(" ", "")
    data = kanalyze(str(tmp_path / "copy.ptx"), "--launch", given, "--format", "json").stdout
    assert "\x1b" not in data
    assert evil in json.loads(data)["arguments"]


# ------------------------------------------------------------------ numbers as text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1,023 B"),
        (1024, "1,024 B = 1 KiB"),
        (67108864, "67,108,864 B = 64 MiB"),
        (1 << 32, "4,294,967,296 B = 4 GiB"),
        (2006016, "2,006,016 B = 1.91 MiB"),
        (1 << 70, "1,180,591,620,717,411,303,424 B = 1,048,576 PiB"),
    ],
)
def test_bytes(size: int, text: str) -> None:
    assert human(size).replace("\N{NO-BREAK SPACE}", " ") == text


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0"), (16, "16"), (4.78, "4.78"), (2.8942, "2.89"), (18.75, "18.8"), (1365.3, "1,365"),
     (0.0463, "0.0463"), (99.99, "100")],
)  # fmt: skip
def test_decimals(number: float, text: str) -> None:
    assert decimal(number) == text


def test_the_efficiency_is_100_only_where_nothing_is_wasted() -> None:
    first = copied().accesses[0]
    wasteful = dataclasses.replace(
        first, requests=10**6, cost=10**7 + 1, ideal_cost=10**7, worst=11
    )
    traffic = dataclasses.replace(copied(), accesses=(wasteful,))
    assert "99.9 %" in render(traffic, width=200)
