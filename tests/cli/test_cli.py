"""Commands, options and exit codes, without a process of their own."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kanalyze.cli import app, output
from kanalyze.cli.app import COMMANDS, cli
from kanalyze.errors import InputError, SourceSpot

pytestmark = pytest.mark.usefixtures("shared_cache")

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 copy_a, .param .u64 copy_b)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [copy_a];
    ld.param.u64 %rd2, [copy_b];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.b32 %r2, [%rd1];
    st.global.b32 [%rd2], %r2;
    ret;
}
"""
BROKEN = PTX.replace("st.global.b32 [%rd2], %r2;", "st.global.b32 [%rd2, %r2;")


def kanalyze(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, list(arguments), input=stdin)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copy.ptx"
    path.write_text(PTX)
    return path


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.ptx"
    path.write_text(BROKEN)
    return path


# ------------------------------------------------------------------ help and usage


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_with_an_example(name: str) -> None:
    for flag in ("-h", "--help"):
        result = kanalyze(name, flag)
        assert result.exit_code == 0
        assert "Example" in result.stdout
        assert f"kanalyze {name}" in result.stdout.partition("Example")[2]
        assert not result.stderr


@pytest.mark.parametrize("name", COMMANDS)
def test_the_overview_says_what_the_command_says(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.name == name
    assert command.get_short_help_str(200).rstrip(".") == COMMANDS[name].rstrip(".")
    options = {o for p in command.params for o in p.opts}
    assert {"--format", "--color", "--output"} <= options


def test_version() -> None:
    result = kanalyze("--version")
    assert result.exit_code == 0
    assert result.stdout.startswith("kanalyze ")


def test_without_a_command_there_is_help() -> None:
    result = kanalyze()
    assert result.exit_code == 0
    assert "Commands:" in result.stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["pxt", "gelu"], "did you mean ptx?"),
        (["ptx", "--fromat", "json"], "'--format'"),
        (["ptx"], "give a TARGET"),
        (["ptx", "geluu"], "did you mean gelu?"),
        (["ptx", "gelu", "--set", "BLOCKSIZE=64"], "BLOCK_SIZE"),
        (["ptx", "gelu", "--set", "n"], "'n' is not NAME=VALUE"),
        (["ptx", "gelu", "--set", "n=1", "--set", "n=2"], "n is set twice"),
        (["ptx", "gelu", "--arch", "sm_91"], "sm_90"),
        (["ptx", "gelu", "--dtype", "fp61"], "fp16"),
        (["ptx", "gelu", "--format", "yaml"], "'json'"),
        (["ptx", "gelu", "--kernel", "gelu_kernal"], "did you mean gelu_kernel?"),
        (["ptx", "gelu", "--listing", "--quiet"], "contradicts"),
        (["ptx", "gelu", "--width", "7"], "40"),
        (["ttir"], "TARGET"),
        (["compile", "-"], "not '-'"),
    ],
)
def test_usage_errors_exit_with_2_and_say_what_is_known(arguments: list[str], said: str) -> None:
    if "gelu" in arguments:
        pytest.importorskip("triton")
    result = kanalyze(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert said in result.stderr
    assert not result.stdout
    assert "Traceback" not in result.stderr


# ------------------------------------------------------------------ what is read


def test_a_file(copy: Path) -> None:
    result = kanalyze("ptx", str(copy))
    assert result.exit_code == 0
    assert not result.stderr
    assert "1 instruction, 4 B per thread: ld.global 1 × b32" in result.stdout
    assert "copy_a + 4*tid.x" in result.stdout


def test_standard_input(copy: Path) -> None:
    result = kanalyze("ptx", "-", stdin=PTX)
    assert result.exit_code == 0
    assert "<stdin>" in result.stdout
    from_file = kanalyze("ptx", str(copy)).stdout
    assert result.stdout.replace("<stdin>", str(copy)).split() == from_file.split()


def test_a_file_by_another_name_is_read_as_ptx(tmp_path: Path) -> None:
    (tmp_path / "dump.txt").write_text(PTX)
    result = kanalyze("ptx", str(tmp_path / "dump.txt"), "-q")
    assert result.exit_code == 0
    assert "copy" in result.stdout


def test_a_folder_is_all_ptx_below_it_in_order(tmp_path: Path) -> None:
    for name in ("b.ptx", "a/z.ptx", "a/a.ptx", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(PTX)
    result = kanalyze("ptx", str(tmp_path), "-q", "--width", "300")
    assert result.exit_code == 0
    files = [line.partition(": ")[0] for line in result.stdout.splitlines()]
    assert files == [str(tmp_path / n) for n in ("a/a.ptx", "a/z.ptx", "b.ptx")]


def test_several_targets_one_bad_deliver_the_others(copy: Path, broken: Path) -> None:
    missing = str(copy.parent / "missing.ptx")
    result = kanalyze("ptx", missing, str(copy), str(broken), "--format", "json")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert [k["file"] for k in data["kernels"]] == [str(copy), str(broken)]
    assert [(s["file"], s["line"]) for s in data["skipped"]] == [(missing, 0), (str(broken), 15)]
    lines = result.stderr.splitlines()
    assert lines[0] == f"error: {missing}: No such file or directory"
    assert lines[1].startswith(f"error: {broken}:15:")
    assert lines[2].strip() == "st.global.b32 [%rd2, %r2;"
    assert lines[3].strip() == "^"


def test_what_was_not_read_is_said_where_the_counts_are(broken: Path) -> None:
    text = kanalyze("ptx", str(broken)).stdout
    assert "1 statement of the file could not be read" in text
    assert "not read (1)" in text
    assert "1 statement of the file not read" in kanalyze("ptx", str(broken), "-q").stdout


def test_lenient_makes_statements_warnings_but_not_files(copy: Path, broken: Path) -> None:
    result = kanalyze("ptx", str(broken), "--lenient")
    assert result.exit_code == 0
    assert result.stderr.startswith(f"warning: {broken}:15:")
    missing = str(copy.parent / "missing.ptx")
    assert kanalyze("ptx", str(copy), missing, "--lenient").exit_code == 3


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.ptx", b"", "empty"),
        ("text.ptx", b"Dear all,\nthis is no PTX.\n", "text.ptx:1:"),
        ("binary.ptx", bytes(range(256)) * 9, "binary.ptx"),
        ("some.cubin", b"\x7fELF", "cut short"),
        ("kernel.py", b"import nonexistent_thing\n", "nonexistent_thing"),
        ("wrong.py", b"def f(:\n", "wrong.py"),
    ],
)
def test_unreadable_inputs_exit_with_more_than_0_and_one_clear_message(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / name).write_bytes(content)
    result = kanalyze("ptx", str(tmp_path / name))
    assert result.exit_code in (3, 4)
    assert said in result.stderr
    assert not result.stdout
    assert "internal error" not in result.stderr
    assert "Traceback" not in result.stderr


def test_a_folder_without_inputs(tmp_path: Path) -> None:
    result = kanalyze("ptx", str(tmp_path))
    assert result.exit_code == 3
    assert f"{tmp_path}: there is no .ptx file in this folder" in result.stderr


def test_a_module_without_kernels_is_said() -> None:
    result = kanalyze("ptx", "-", stdin=".version 8.0\n.target sm_80\n.address_size 64\n")
    assert result.exit_code == 0
    assert "there is no kernel in it" in result.stderr


def test_options_without_effect_are_said(copy: Path) -> None:
    result = kanalyze("ptx", str(copy), "--dtype", "fp16")
    assert "--dtype had no effect" in result.stderr


def test_a_launch_record_names_the_ptx_beside_it(copy: Path) -> None:
    record = copy.with_suffix(".json")
    data = {
        "kernel": "copy",
        "grid": [4, 1, 1],
        "block": [32, 1, 1],
        "params": [
            {"name": "source", "type": "*fp32", "address": 4096, "bytes": 512},
            {"name": "sink", "type": "*fp32", "address": 8192, "bytes": 512},
        ],
    }
    record.write_text(json.dumps(data))
    result = kanalyze("ptx", "--launch", str(record))
    assert result.exit_code == 0
    assert "source + 4*tid.x" in result.stdout
    assert "launch of copy from" in result.stdout
    assert "grid 4 x 1 x 1, block 32 x 1 x 1" in " ".join(result.stdout.split())
    copy.unlink()
    result = kanalyze("ptx", "--launch", str(record))
    assert result.exit_code == 3
    assert "no .ptx of the same stem" in result.stderr


def test_choosing_kernels() -> None:
    two = PTX + PTX.partition(".address_size 64\n")[2].replace("copy", "other")
    result = kanalyze("ptx", "-", "-q", "--kernel", "other", stdin=two)
    assert "other" in result.stdout
    assert "copy" not in result.stdout


# ------------------------------------------------------------------ where it goes


def test_output_to_a_file(copy: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.txt"
    report.write_text("old")
    report.chmod(0o640)
    result = kanalyze("ptx", str(copy), "-o", str(report))
    assert result.exit_code == 0
    assert not result.stdout
    assert "copy_a + 4*tid.x" in report.read_text("utf-8")
    assert report.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in tmp_path.iterdir()) == ["copy.ptx", "report.txt"]


def test_output_to_a_missing_folder(copy: Path, tmp_path: Path) -> None:
    result = kanalyze("ptx", str(copy), "-o", str(tmp_path / "no/report.txt"))
    assert result.exit_code == 3
    assert "there is no folder" in result.stderr


@pytest.mark.parametrize(
    ("choice", "environment", "colored"),
    [
        ("auto", {}, False),
        ("always", {}, True),
        ("never", {"CLICOLOR_FORCE": "1"}, False),
        ("auto", {"CLICOLOR_FORCE": "1"}, True),
        ("auto", {"CLICOLOR_FORCE": "0"}, False),
        ("auto", {"CLICOLOR_FORCE": "1", "NO_COLOR": "1"}, False),
        ("always", {"NO_COLOR": "1"}, True),
    ],
)
def test_colors(
    copy: Path, choice: str, environment: dict[str, str], colored: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    result = CliRunner().invoke(cli, ["ptx", str(copy), "--color", choice], color=True)
    assert ("\x1b[" in result.stdout) is colored


# ------------------------------------------------------------------ hostile text


def test_hostile_file_names_never_reach_the_terminal_raw(tmp_path: Path) -> None:
    for name in ("\x1b[31mred.ptx", "two\nlines.ptx", "[bold]markup[dim].ptx", "\u202etxt.ptx"):
        path = tmp_path / name
        path.write_text(BROKEN)
        result = kanalyze("ptx", str(path), str(path) + "missing", "--width", "500")
        for stream in (result.stdout, result.stderr):
            assert "\x1b" not in stream
            assert "\u202e" not in stream
            assert "two\nlines" not in stream
        if name.startswith("["):
            assert name in result.stdout
        shown = kanalyze("ptx", str(path), "--format", "json").stdout
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert json.loads(shown)["kernels"][0]["file"] == str(path)


def test_hostile_ptx_never_reaches_the_terminal_raw() -> None:
    hostile = PTX.replace("ret;", "\x1b]0;owned\x07 ret;\n bad\x9b31m.op %r1;").replace(
        ".entry copy(", ".entry co\x1b[1mpy("
    )
    for text in (hostile, PTX.replace("copy_a", "copy\x1b_a")):
        for arguments in (["--color", "never"], ["--format", "json", "--listing"]):
            result = kanalyze("ptx", "-", *arguments, stdin=text)
            for stream in (result.stdout, result.stderr):
                assert not {"\x1b", "\x07", "\x9b"} & set(stream)
            assert "internal error" not in result.stderr


def test_escaping() -> None:
    assert output.escaped("a\x1b[1mb\u202e\udcff\n", keep="\n") == "a\\x1b[1mb\\u202e\\udcff\n"
    assert output.escaped("größe × 2 – 日本") == "größe × 2 – 日本"
    assert len(output.pictured("a\x1b\x9b\u202eb")) == 5
    assert output.pictured("a\x1bb") == "a\N{SYMBOL FOR ESCAPE}b"


# ------------------------------------------------------------------ the unexpected


def test_an_internal_error_is_one_line(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no\nluck")

    monkeypatch.setattr("kanalyze.cli.inputs.report_on", fail)
    result = kanalyze("ptx", str(copy))
    assert result.exit_code == app.EXIT_INTERNAL == 70
    assert result.stderr.startswith("error: internal error: RuntimeError: no luck; please report")
    assert result.stderr.count("\n") == 1
    monkeypatch.setenv("KANALYZE_DEBUG", "1")
    assert isinstance(kanalyze("ptx", str(copy)).exception, RuntimeError)


def test_an_interrupt(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kanalyze.cli.inputs.report_on", stop)
    result = kanalyze("ptx", str(copy))
    assert result.exit_code == 130
    assert "Traceback" not in result.stderr


def test_a_missing_tool_exits_with_4(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from kanalyze import MissingToolError

    def missing(*_: object, **__: object) -> None:
        raise MissingToolError("Triton is missing: pip install triton")

    monkeypatch.setattr("kanalyze.frontend.targets.compile_kernel", missing)
    result = kanalyze("ptx", "gelu", str(copy), "-q")
    assert result.exit_code == 4
    assert "pip install triton" in result.stderr
    assert "copy" in result.stdout


# ------------------------------------------------------------------ targets that cannot be meant


@pytest.mark.parametrize("other", ["-", "/dev/stdin", "/dev/fd/0"])
def test_standard_input_is_read_once(other: str) -> None:
    result = kanalyze("ptx", "-", other, "-q", stdin=PTX)
    assert result.exit_code == 2
    assert "only once" in result.stderr


@pytest.mark.parametrize("command", ["ptx", "cfg", "ttir", "compile"])
def test_an_empty_target(command: str) -> None:
    result = kanalyze(command, "")
    assert result.exit_code == 2
    assert "TARGET is empty" in result.stderr


@pytest.mark.parametrize("command", ["ptx", "cfg", "ttir", "compile"])
def test_names_that_are_too_long(command: str) -> None:
    bare = kanalyze(command, "a" * 5000)
    assert bare.exit_code == 2
    assert "unknown kernel" in bare.stderr
    for target in ("a" * 5000 + ".py:k", "a/" * 3000 + "x.py:k"):
        result = kanalyze(command, target)
        assert result.exit_code == 3
        assert "File name too long" in result.stderr
    for target in ("a" * 5000 + ".ptx", "a" * 5000 + ".cu:k", "/" + "a" * 5000, "*" * 5000 + "/x"):
        if command in ("ptx", "cfg"):
            assert kanalyze(command, target).exit_code == 3


def test_long_names_elsewhere(copy: Path) -> None:
    for arguments in (["--launch", "a" * 5000], ["-o", "a" * 5000], ["-o", "a" * 5000 + "/x"]):
        result = kanalyze("ptx", str(copy), *arguments)
        assert result.exit_code == 3
        assert "internal" not in result.stderr


def test_outputs_that_cannot_be_meant(copy: Path) -> None:
    for arguments in (["compile", "gelu"], ["list"], ["ptx", str(copy)]):
        result = kanalyze(*arguments, "-o", "")
        assert result.exit_code == 2
        assert "the name is empty" in result.stderr
    result = kanalyze("compile", "gelu", "-o", str(copy))
    assert result.exit_code == 3
    assert "this is not a folder" in result.stderr


def test_many_messages_about_one_line(tmp_path: Path) -> None:
    path = tmp_path / "semicolons.ptx"
    head = ".version 8.0\n.target sm_90\n.address_size 64\n"
    path.write_text(f"{head}.visible .entry k(){{{';' * 20000}ret;}}\n")
    for command in (["ptx", "--format", "json"], ["cfg", "--format", "json"]):
        result = kanalyze(*command, str(path))
        assert result.exit_code == 3
        assert result.stderr.count("error:") == app.MOST_MESSAGES + 1
        assert result.stderr.endswith("semicolons.ptx: and 19,980 more\n")
        assert max(map(len, result.stderr.splitlines())) < 300
        assert len(json.loads(result.stdout)["skipped"]) == 20000


def test_a_caret_far_into_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    text = "\x01" * 500 + "\t!" + "\x01" * 500
    app.report_error(InputError("here", SourceSpot("f", 1, 502, text)))
    _, shown, caret = capsys.readouterr().err.splitlines()
    assert shown[caret.index("^")] == "!"
    assert len(shown) == 122


def test_a_kernel_that_is_not_there_does_not_cost_the_others(tmp_path: Path) -> None:
    """Of several targets, one that cannot be compiled as asked is said; the others are shown."""
    pytest.importorskip("triton")
    target = f"{Path(__file__).parents[2]}/kernels/softmax.py:nothing"
    result = CliRunner().invoke(cli, ["ptx", "gelu", target, "--quiet"])
    assert result.exit_code == 2
    assert "gelu_kernel" in result.stdout
    assert "no kernel 'nothing'" in result.stderr
    alone = CliRunner().invoke(cli, ["ptx", target, "--quiet"])
    assert (alone.exit_code, alone.stdout) == (2, "")
