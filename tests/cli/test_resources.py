"""``kanalyze resources``: texts of ptxas, nvlink and cuobjdump of several ages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.toolchain import ptxas, ptxas_log

jsonschema = pytest.importorskip("jsonschema")
pytestmark = pytest.mark.usefixtures("shared_cache")

FOLDER = Path(__file__).parents[2] / "samples" / "questions" / "34_ptxas_v_text_variants"
PTX = Path(__file__).parents[2] / "samples/questions/35_static_count_vs_dynamic_and_sass"
ENTRY = "ptxas info    : Compiling entry function '{}' for 'sm_80'\n"
PROPERTIES = (
    "ptxas info    : Function properties for {}\n"
    "    {} bytes stack frame, {} bytes spill stores, {} bytes spill loads\n"
)
USED = "ptxas info    : Used {} registers, used 1 barriers, 400 bytes cmem[0]\n"


def run(*arguments: str, input: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["resources", *arguments], input=input)


def only(text: str) -> ptxas_log.Usage:
    (usage,) = ptxas_log.read(text).usages
    return usage


def kernel(name: str = "k", registers: int = 24, stack: int = 0, spills: int = 0) -> str:
    return ENTRY.format(name) + PROPERTIES.format(name, stack, spills, spills) + USED.format(
        registers
    )  # fmt: skip


# ------------------------------------------------------------------ the reader


@pytest.mark.parametrize("prefix", ["", "1>  ", "2024-05-01T12:00:00.1Z ", "#12 3.456 ", "// "])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_prefixes_and_line_ends(prefix: str, end: str) -> None:
    lines = kernel(registers=31, stack=8, spills=4).splitlines()
    usage = only("".join(prefix + line + end for line in lines))
    assert (usage.registers, usage.stack_bytes, usage.barriers) == (31, 8, 1)
    assert (usage.spill_store_bytes, usage.spill_load_bytes) == (4, 4)
    assert usage.constant_bytes == ((0, 400),)


def test_text_of_other_programs_in_between() -> None:
    noise = "[3/9] Building CUDA object a.cu.o\na.cu(7): warning #177-D: unused\nused 3 times\n"
    text = "".join(noise + line for line in kernel().splitlines(keepends=True))
    assert only(text).registers == 24
    read = ptxas_log.read(text)
    assert (read.messages, read.unread) == ((), ())


def test_a_log_folded_into_one_line_and_one_wrapped_behind_a_comma() -> None:
    text = kernel("void f<int>(float*)", 38, 64) + kernel("g", 12)
    folded = ptxas_log.read(" ".join(text.split())).usages
    assert [(u.name, u.registers, u.stack_bytes) for u in folded] == [
        ("void f<int>(float*)", 38, 64),
        ("g", 12, 0),
    ]
    wrapped = kernel().replace("used 1 barriers, ", "used 1 barriers, \x1b[0m\n            ")
    assert only(wrapped).constant_bytes == ((0, 400),)


def test_device_functions_and_the_order_of_statements() -> None:
    helper = PROPERTIES.format("helper", 8, 12, 16)
    for text in (helper + kernel(), kernel() + helper):
        usages = {u.name: u for u in ptxas_log.read(text).usages}
        assert (usages["k"].kernel, usages["k"].stack_bytes) == (True, 0)
        assert (usages["helper"].kernel, usages["helper"].spill_load_bytes) == (False, 16)
    inside = ENTRY.format("k") + helper + PROPERTIES.format("k", 4, 0, 0) + USED.format(9)
    usages = {u.name: u for u in ptxas_log.read(inside).usages}
    assert (usages["k"].registers, usages["k"].stack_bytes) == (9, 4)
    assert usages["helper"].registers is None


def test_several_architectures_and_repetitions() -> None:
    other = kernel(registers=30).replace("sm_80", "sm_90a")
    read = ptxas_log.read(kernel() + other + kernel()).usages
    assert [(u.architecture, u.registers, u.times) for u in read] == [
        ("sm_80", 24, 2),
        ("sm_90a", 30, 1),
    ]
    assert len(ptxas_log.read(kernel() + kernel(registers=25)).usages) == 2


def test_lines_of_several_processes() -> None:
    """As make -j mixes them: what stands right behind a function's properties is the function's."""
    a, b = kernel("a", 11, 8, 4).splitlines(True), kernel("b", 22, 16, 12).splitlines(True)
    for order in ([a[0], b[0], *a[1:], *b[1:]], [b[0], a[0], *a[1:], *b[1:]]):
        usages = {u.name: u for u in ptxas_log.read("".join(order)).usages}
        assert set(usages) == {"a", "b"}
        for name, registers, stack in (("a", 11, 8), ("b", 22, 16)):
            assert (usages[name].registers, usages[name].stack_bytes) == (registers, stack)
            assert usages[name].kernel
    old = ENTRY.format("a") + ENTRY.format("b") + "Used 3 registers\nUsed 4 registers\n"
    read = ptxas_log.read(old)
    assert not read.usages
    assert "belongs to 'a' or to 'b'" in read.unread[0].reason


def test_old_sums_textures_and_what_is_not_known() -> None:
    used = "Used 16 registers, 60+56 bytes lmem, 44+40 bytes smem, 20 bytes cmem[1], 2 textures"
    usage = only(ENTRY.format("k") + f"ptxas info    : {used}\n")
    assert (usage.local_bytes, usage.shared_bytes, usage.textures) == (116, 84, 2)
    assert (usage.spill_store_bytes, usage.stack_bytes, usage.barriers) == (None, None, None)
    read = ptxas_log.read(ENTRY.format("k") + "ptxas info    : Used 9 registers, 3 gizmos\n")
    assert read.usages[0].registers == 9
    assert [(u.line, u.reason) for u in read.unread] == [
        (2, "of '3 gizmos' it is not known what it counts")
    ]


def test_statements_that_belong_to_nothing() -> None:
    text = "ptxas info    : Used 9 registers\n    0 bytes stack frame\n" + ENTRY.format("cut")
    read = ptxas_log.read(text)
    assert not read.usages
    assert [u.line for u in read.unread] == [1, 2, 3]
    assert "no function was named before" in read.unread[0].reason
    assert "nothing is said of 'cut'" in read.unread[2].reason


def test_messages_go_to_the_function_that_they_name() -> None:
    text = (
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to insufficient register resources for the wgmma pipeline in the function "
        "'k'\n"
        "ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes spill "
        "stores, 8 bytes spill loads\n"
        "ptxas a.ptx, line 14; warning : Program is doing double precision computations.\n"
        "ptxas info    : 11 bytes gmem, 8 bytes cmem[4]\n"
    )
    read = ptxas_log.read(text + kernel("other") + kernel())
    of = {u.name: u.messages for u in read.usages}
    assert not of["other"]
    assert [m.severity for m in of["k"]] == ["info", "warning"]
    assert "(C7510)" in of["k"][0].text
    assert [(m.line, m.text) for m in read.messages] == [
        (3, "Program is doing double precision computations.")
    ]


def test_nvlink() -> None:
    usage = only(
        "nvlink info    : 144 bytes gmem, 65536 bytes cmem[3] (target: sm_52)\n"
        "nvlink info    : Function properties for '_Z1kPf': (target: sm_52)\n"
        "nvlink info    : used 30 registers, 8 stack, 1142 bytes smem, 356 bytes cmem[0], 0 bytes "
        "lmem (target: sm_52)\n"
    )
    assert (usage.tool, usage.architecture, usage.registers) == ("nvlink", "sm_52", 30)
    assert (usage.stack_bytes, usage.shared_bytes, usage.local_bytes) == (8, 1142, 0)


DUMP = """\
Fatbin elf code:
================
arch = {arch}
code version = [1,7]

Resource usage:
 Common:
  GLOBAL:0
 Function _Z1kPf:
  REG:40 STACK:{stack} SHARED:2048 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:1 NEW:3
"""


def test_cuobjdump() -> None:
    read = ptxas_log.read(DUMP.format(arch="sm_80", stack=0) + DUMP.format(arch="sm_90", stack=8))
    old, new = read.usages
    assert (old.architecture, old.registers, old.shared_bytes) == ("sm_80", 40, 2048)
    assert (new.architecture, new.shared_bytes) == ("sm_90", 1024), "less the system's 1024"
    assert (old.spill_store_bytes, new.spill_store_bytes) == (0, None)
    assert [u.reason for u in read.unread] == ["of 'NEW:3' it is not known what it counts"] * 2


def test_hostile_texts_take_linear_time() -> None:
    for text in (
        "Function properties for " + "a " * 20_000,
        "Compiling entry function '" + "' " * 20_000,
        "Used 1 registers" + ", " * 20_000,
        "ptxas " * 20_000,
        "ptxas info : " * 9_000,
        " Function " * 50_000,
        "\x00\x1b[31mptxas info    : Used 99999999999999999999999 registers",
    ):
        assert not ptxas_log.read(text).usages


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_encodings(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(kernel().encode(encoding))
    assert run(str(path)).exit_code == 0


# ------------------------------------------------------------------ the command


def test_the_reason_stands_under_the_kernel() -> None:
    text = " ".join(run(str(FOLDER / "real_13.0.txt")).stdout.split())
    assert "256 B of stack without spills: a local array that is indexed at run time" in text
    text = " ".join(run(str(FOLDER / "cuda11_cumulative_stack.txt")).stdout.split())
    assert "spills: registers ran out at 40" in text
    text = " ".join(run(str(FOLDER / "cuda3_lmem.txt")).stdout.split())
    assert "this text does not say whether they are spills" in text
    assert "loop(unsigned char*)" in text


def test_json_follows_its_schema() -> None:
    files = [str(path) for path in sorted(FOLDER.glob("*.txt"))]
    result = run(*files, "--format", "json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    validator = jsonschema.Draft202012Validator(schemas.load("resources"))
    assert not list(validator.iter_errors(data))
    assert len(data["kernels"]) == 9
    assert data["skipped"] == data["failed"] == data["messages"] == []
    assert {u["field"].split(":")[0] for u in data["unknown"]} == {"foo", "_Z4loopPh"}
    message = "ptxas warning : Registers are spilled to local memory in function 'k', 8 bytes x\n"
    odd = message + kernel() + "ptxas error   : it is broken\nUsed 9 registers\n"
    result = run("-", "--format", "json", "--max-registers", "9", input=odd)
    data = json.loads(result.stdout)
    assert not list(validator.iter_errors(data))
    assert data["kernels"][0]["messages"][0]["severity"] == "warning"
    assert [m["severity"] for m in data["messages"]] == ["error"]
    assert data["failed"][0]["name"] == "k"
    assert data["skipped"][0]["line"] == 7


@pytest.mark.parametrize(
    ("bounds", "code"),
    [
        (["--max-registers", "40"], 0),
        (["--max-registers", "39"], 1),
        (["--max-spills", "112"], 0),
        (["--max-spills", "111"], 1),
        (["--max-registers", "40", "--max-spills", "0"], 1),
    ],
)
def test_bounds(bounds: list[str], code: int) -> None:
    result = run(str(FOLDER / "cuda11_cumulative_stack.txt"), *bounds)
    assert result.exit_code == code
    assert ("k2: " in result.stderr) == bool(code)
    assert "k2" in result.stdout, "the table is printed in any case"


def test_a_bound_on_what_is_not_stated_does_not_hold() -> None:
    result = run(str(FOLDER / "cuda3_lmem.txt"), "--max-spills", "0")
    assert result.exit_code == 1
    assert "its spills are not stated" in result.stderr


def test_bad_inputs(tmp_path: Path) -> None:
    good = str(FOLDER / "cuda4.txt")
    result = run(good, "missing.txt", str(tmp_path))
    assert result.exit_code == 3
    assert "solver(float*)" in result.stdout, "what can be read is shown"
    assert "missing.txt: No such file or directory" in result.stderr
    for text in ("", "nothing\n" * 3, "\x00\x01"):
        result = run("-", input=text)
        assert result.exit_code == 3
        assert "found nothing that a kernel needs, expected lines such as" in result.stderr
    assert run("-", "-").exit_code == 2
    assert run().exit_code == 2
    assert run(good, "--match", "(").exit_code == 2
    result = run("-", input="ptxas fatal   : Ptx assembly aborted due to errors\n" + kernel())
    assert result.exit_code == 3
    assert "<stdin>:1: Ptx assembly aborted" in result.stderr


def test_match() -> None:
    result = run(str(FOLDER / "real_13.0.txt"), "--match", "dyn$", "--max-registers", "40")
    assert result.exit_code == 0
    assert "pick_small" not in result.stdout
    assert "no kernel's name matches" in run(str(FOLDER / "cuda4.txt"), "--match", "xyz").stderr


def test_ptx_and_cubin_files(tmp_path: Path) -> None:
    pytest.importorskip("triton")

    right = json.loads((PTX / "expected.json").read_text("utf-8"))["ptxas"]
    ptx = PTX / "loops.sm_80.ptx"
    cubin = tmp_path / "loops.cubin"
    cubin.write_bytes(ptxas.assemble(ptx.read_text("utf-8")).cubin)
    for path in (ptx, cubin):
        data = json.loads(run(str(path), "--format", "json").stdout)
        found = {k["name"]: k for k in data["kernels"]}
        for row in right:
            mine = found[row["entry"]]
            assert mine["architecture"] == "sm_80"
            assert (mine["registers"], mine["stack_bytes"]) == (row["regs"], row["stack"])
            assert mine["spill_store_bytes"] == row["spill_st"]
            assert mine["shared_bytes"] == row["smem"]
    broken = tmp_path / "broken.ptx"
    broken.write_text(".version 8.0\n.target sm_80\n.visible .entry k() { hm; }\n")
    result = run(str(broken))
    assert result.exit_code == 3
    assert "broken.ptx:3:" in result.stderr


def test_order() -> None:
    text = kernel("a", 10, 64) + kernel("b", 30, 8, 8) + kernel("c", 20)
    for sort, names in {
        "file": "abc", "registers": "bca", "spills": "bac", "stack": "abc", "shared": "abc"
    }.items():  # fmt: skip
        data = json.loads(run("-", "--sort", sort, "--format", "json", input=text).stdout)
        assert "".join(k["name"] for k in data["kernels"]) == names
