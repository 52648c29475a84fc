"""Many files: folders, patterns, Triton's cache, one bad file among good ones, the progress bar."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze.cli.app import cli
from kanalyze.errors import InputError
from kanalyze.frontend import files
from kanalyze.frontend.compile import compile_kernel

pytestmark = pytest.mark.usefixtures("shared_cache")

PTX = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 a, .param .u32 n, .param .u64 scratch)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [a];
    ld.param.u32 %r1, [n];
    st.global.u32 [%rd1], %r1;
    ret;
}
"""
METADATA = {
    "hash": "0", "target": {"backend": "cuda", "arch": 80}, "num_warps": 4, "num_stages": 3,
    "shared": 2048, "name": "copy", "num_ctas": 1, "triton_version": "3.9.0",
}  # fmt: skip
TTIR = """\
module {
  tt.func public @copy(%out: !tt.ptr<f16> {tt.divisibility = 16 : i32} loc("out"(#loc)), \
%size: i32 loc("size"(#loc))) attributes {noinline = false} {
"""


def kanalyze(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b.ptx", "a/z.ptx", "a/a.ptx", "a-b/c.ptx", "alone.cubin", "b.cubin", "c.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(PTX)
    return tmp_path


def names(folder: Path, found: list[str]) -> list[str]:
    return [os.path.relpath(f, folder) for f in found]


def test_folders(tree: Path) -> None:
    found = names(tree, files.files_of(str(tree)))
    assert found == ["a/a.ptx", "a/z.ptx", "a-b/c.ptx", "alone.cubin", "b.ptx"]
    assert names(tree, files.files_of(f"{tree}/a/")) == ["a/a.ptx", "a/z.ptx"]
    (tree / "empty").mkdir()
    with pytest.raises(InputError, match=r"no \.ptx file in this folder"):
        files.files_of(str(tree / "empty"))


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("*.ptx", ["b.ptx"]),
        ("**/*.ptx", ["a/a.ptx", "a/z.ptx", "a-b/c.ptx", "b.ptx"]),
        ("b.*", ["b.ptx"]),
        ("*.cubin", ["alone.cubin", "b.cubin"]),
        ("a*", ["a/a.ptx", "a/z.ptx", "a-b/c.ptx", "alone.cubin"]),
        ("c.t?t", ["c.txt"]),
    ],
)
def test_patterns(tree: Path, pattern: str, expected: list[str]) -> None:
    assert names(tree, files.files_of(f"{tree}/{pattern}")) == expected


def test_a_pattern_without_match_and_a_file_named_like_one(tree: Path) -> None:
    with pytest.raises(InputError, match="nothing matches"):
        files.files_of(f"{tree}/*.nothing")
    odd = tree / "k[1].ptx"
    odd.write_text(PTX)
    assert files.files_of(str(odd)) == [str(odd)]
    result = kanalyze("ptx", f"{tree}/*.nothing", odd, "-q")
    assert result.exit_code == 3
    assert "nothing matches this pattern" in result.stderr
    assert "copy" in result.stdout


def test_one_bad_file_stops_nothing(tree: Path) -> None:
    (tree / "a/bad.ptx").write_bytes(b"\x1f\x8b\x08 gzip")
    result = kanalyze("ptx", tree, "--format", "json", "--no-sass")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert [Path(k["file"]).name for k in data["kernels"]] == [
        "a.ptx", "z.ptx", "c.ptx", "alone.cubin", "b.ptx",
    ]  # fmt: skip
    assert [Path(s["file"]).name for s in data["skipped"]] == ["bad.ptx"]


# ------------------------------------------------------------------ what lies beside


def test_what_triton_writes_beside(tmp_path: Path) -> None:
    path = tmp_path / "copy.ptx"
    path.write_text(PTX)
    assert files.beside(path) == files.Beside()
    path.with_suffix(".json").write_text(json.dumps(METADATA))
    path.with_suffix(".ttir").write_text(TTIR)
    found = files.beside(path)
    assert found.parameters == (
        files.Named("out", "*fp16", ("divisible by 16",)),
        files.Named("size", "i32", ()),
    )
    assert (found.kernel, found.shared_bytes) == ("copy", 2048)
    (data,) = json.loads(kanalyze("ptx", path, "--format", "json").stdout)["kernels"]
    assert [p["source_name"] for p in data["params"]] == ["out", "size", "global_scratch"]
    assert "num_warps=4, num_stages=3, shared=2048" in data["notes"][0]
    assert data["accesses"][0]["address"] == "out"


@pytest.mark.parametrize(
    "metadata", ["", "[]", '{"kernel": "copy", "grid": [1, 1, 1]}', "{" * 9999, '{"hash": 1}']
)
def test_other_json_beside_it_is_left_alone(tmp_path: Path, metadata: str) -> None:
    path = tmp_path / "copy.ptx"
    path.write_text(PTX)
    path.with_suffix(".json").write_text(metadata)
    assert files.beside(path) == files.Beside()


@pytest.mark.parametrize(
    "line",
    ["%d: !tt.tensordesc<128x64xf16>, %n: i32)", "%a: tuple<i32, i32>)", "%a: !tt.ptr<f32", ""],
)
def test_parameters_that_become_several_are_not_named(line: str) -> None:
    assert files._parameters(line) in ((), (files.Named("a", "*fp32", ()),))


def test_a_cache_folder_of_triton(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "cache"))
    made = {name: compile_kernel(name) for name in ("gelu", "row_sum")}
    folder = tmp_path / "cache" / "triton"
    data = json.loads(kanalyze("ptx", folder, "--format", "json").stdout)
    assert {k["name"] for k in data["kernels"]} == {"gelu_kernel", "row_sum_kernel"}
    assert data["skipped"] == []
    for kernel in data["kernels"]:
        assert kernel["sass"]["origin"].endswith(".cubin")
        assert "num_warps=" in kernel["notes"][0]
        named = [p["source_name"] for p in kernel["params"]]
        of = made[kernel["name"].removesuffix("_kernel")]
        expected = [n for n, kind in of.signature.items() if kind != "constexpr"]
        assert named == [*expected, "global_scratch", "profile_scratch"]


# ------------------------------------------------------------------ progress


def on_a_terminal(*arguments: str) -> bytes:
    """What a process writes to standard error if that is a terminal."""
    main, side = pty.openpty()
    code = (
        "import sys, time\n"
        "from kanalyze.cli.progress import Progress\n"
        "progress = Progress(int(sys.argv[1]))\n"
        "for item in progress.over(range(int(sys.argv[1])), str): time.sleep(float(sys.argv[2]))\n"
        "progress.close()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stderr=side, stdout=subprocess.DEVNULL
    )
    os.close(side)
    said = b""
    while True:
        try:
            chunk = os.read(main, 4096)
        except OSError:
            break
        if not chunk:
            break
        said += chunk
    process.wait()
    os.close(main)
    return said


def test_the_bar_comes_after_a_second_of_work_and_goes_away() -> None:
    said = on_a_terminal("12", "0.15")
    assert b"/12  " in said
    assert said.endswith(b"\r\x1b[K")
    assert on_a_terminal("12", "0.001") == b""


def test_no_bar_where_there_is_no_terminal(tree: Path) -> None:
    result = kanalyze("ptx", tree / "a", "-q")
    assert result.stderr == ""


def test_pipes_and_devices(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.ptx")
    (tmp_path / "zero.ptx").symlink_to("/dev/zero")
    (tmp_path / "file.ptx").write_text(PTX)
    assert files.is_pipe(str(tmp_path / "pipe.ptx"))
    assert files.is_pipe("/dev/null")
    for target in (tmp_path / "file.ptx", tmp_path / "missing.ptx", tmp_path, "gelu", "a" * 5000):
        assert not files.is_pipe(str(target))
    for target in (tmp_path / "zero.ptx", "/dev/zero", "a" * 5000 + ".ptx", "a" * 5000 + ".py"):
        with pytest.raises(InputError):
            files.is_pipe(str(target))


def test_what_lies_beside_is_a_pipe_or_has_no_name(tmp_path: Path) -> None:
    path = tmp_path / "copy.ptx"
    for suffix in (".json", ".cubin"):
        os.mkfifo(path.with_suffix(suffix))
    assert files.beside(path) == files.Beside()
    assert files.beside(tmp_path / ("a" * 251 + ".ptx")) == files.Beside()  # .cubin is too long
    metadata = tmp_path / "other.json"
    metadata.write_text(json.dumps(METADATA))
    os.mkfifo(metadata.with_suffix(".ttir"))
    assert files.beside(metadata.with_suffix(".ptx")).parameters == ()
