"""One resolver: what a TARGET is does not depend on its name, nor on the command that asks."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import kanalyze as library
from kanalyze.cli.app import cli
from kanalyze.errors import InputError, KanalyzeError, UsageError
from kanalyze.frontend import user_file
from kanalyze.frontend.compile import compile_kernel
from kanalyze.frontend.contents import EXPECTED, TRITON_KERNEL, Kind, identify, triton_kernel
from kanalyze.frontend.subject import Settings
from kanalyze.frontend.targets import resolve
from kanalyze.toolchain import ptxas, tools

pytestmark = pytest.mark.usefixtures("shared_cache")

ROOT = Path(__file__).parents[1]
READERS = (
    ("ptx", "--no-sass", "--no-listing", "--width", "1000"),
    ("cfg", "--width", "1000"),
    ("traffic", "--exact", "--no-proof", "--width", "1000"),
)
COMPILERS = (("ttir",), ("compile",), ("bench", "--dry-run"))
COMMANDS = (*READERS, *COMPILERS)

PTX = """\
// made by hand
.version 8.0
.target sm_80
.address_size 64
.visible .entry copy(.param .u64 a, .param .u64 b)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd1, %rd1, %rd3;
    add.s64 %rd2, %rd2, %rd3;
    ld.global.b32 %r2, [%rd1];
    st.global.b32 [%rd2], %r2;
    ret;
}
"""
CUDA = """\
/* copies */
extern "C" __global__ void copy(const int *a, int *b) { b[threadIdx.x] = a[threadIdx.x]; }
int main() { return 0; }
"""
RECORD = {
    "kernel": "copy", "grid": [4, 1, 1], "block": [32, 1, 1],
    "params": [{"name": n, "type": "*i32", "address": 4096 * at} for at, n in enumerate("ab", 1)],
}  # fmt: skip
NAMES = ("k.bin", "nameless", "k.ptx", "k.cubin", "k.cu", "k.fatbin", "k.md", "k.txt", "odd:name.o")
"""Each kind of contents gets each of these names."""


def kanalyze(*arguments: str | Path, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments], input=stdin)


def asked(command: tuple[str, ...], target: str | Path, folder: Path, **more: Any) -> Result:
    """Run a command on a target; those that read machine code or PTX get the launch record."""
    record = folder / "record.json"
    record.write_text(json.dumps(RECORD))
    launch = ("--launch", record) if command[0] == "traffic" else ()
    where = ("-o", folder / "out") if command[0] == "compile" else ()
    return kanalyze(command[0], target, *command[1:], *launch, *where, **more)


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory, shared_cache: Path) -> dict[str, bytes]:
    """One file of each kind, all with the kernel ``copy``."""
    folder = tmp_path_factory.mktemp("kinds")
    kinds = {"PTX": PTX.encode()}
    if shutil.which("nvcc") is not None:
        (folder / "copy.cu").write_text(CUDA)
        kinds["CUDA C++"] = CUDA.encode()
        for name, flags in (("fat binary", ("-fatbin",)), ("executable", ())):
            out = folder / name
            gencode = ("-gencode", "arch=compute_80,code=[sm_80,compute_80]")
            command = ["nvcc", *gencode, *flags, "copy.cu", "-o", str(out)]
            subprocess.run(command, cwd=folder, check=True)
            kinds[name] = out.read_bytes()
    if tools.installed("ptxas") is not None:
        kinds["cubin"] = ptxas.assemble(PTX).cubin
    return kinds


# ------------------------------------------------------------------ kinds x names x commands


@pytest.mark.parametrize("kind", ["PTX", "cubin", "fat binary", "executable", "CUDA C++"])
@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
def test_what_a_file_holds_decides_and_not_its_name(
    command: tuple[str, ...], kind: str, contents: dict[str, bytes], tmp_path: Path
) -> None:
    if kind not in contents:
        pytest.skip(f"no tool here makes a {kind}")
    answers = set()
    for name in NAMES:
        path = tmp_path / name
        path.write_bytes(contents[kind])
        result = asked(command, path, tmp_path)
        path.unlink()
        shown = result.output
        for text in (str(path), f"{path.stem}.ptx", name):
            shown = shown.replace(text, "FILE")
        answers.add((result.exit_code, " ".join(shown.replace("─", "").split())))
    if kind == "CUDA C++":  # lines of source are shown of files that are called as sources are
        answers = {(code, text.partition("global memory")[0]) for code, text in answers}
    assert len(answers) == 1, answers
    ((code, text),) = answers
    assert (code, "copy" in text) == (0, True), text


def test_machine_code_alone(contents: dict[str, bytes], tmp_path: Path) -> None:
    if "cubin" not in contents:
        pytest.skip("no ptxas here")
    path = tmp_path / "k.ptx"
    path.write_bytes(contents["cubin"].replace(b".version", b".virsion"))  # no PTX in it
    answers = [asked(command, path, tmp_path) for command in READERS]
    assert [answer.exit_code for answer in answers] == [0, 0, 2]
    assert "no PTX" in answers[0].stdout
    assert "machine code alone" in answers[1].stderr
    assert "machine code alone" in answers[2].stderr


@pytest.mark.parametrize("kind", ["PTX", "cubin", "fat binary", "executable", "CUDA C++"])
@pytest.mark.parametrize("name", ["k.bin", "k.cu", "k.ptx"])
def test_what_triton_does_not_compile_is_named(
    kind: str, name: str, contents: dict[str, bytes], tmp_path: Path
) -> None:
    if kind not in contents:
        pytest.skip(f"no tool here makes a {kind}")
    path = tmp_path / name
    path.write_bytes(contents[kind])
    said = kind if kind in ("PTX", "CUDA C++") else "machine code"
    for command in COMPILERS:
        result = asked(command, path, tmp_path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr == f"error: {path} is {said}, expected {TRITON_KERNEL}\n"


@pytest.mark.parametrize(
    ("name", "data", "what"),
    [
        ("README.md", b"# Title\n\nSee [this](that).\n", "Markdown"),
        ("plain.md", b"Title\n=====\n", "Markdown"),
        ("shown.txt", b"A kernel:\n\n```c\n__global__ void k(int *a) {}\n```\n", "Markdown"),
        ("listed.ptx", b"It begins so:\n```\n.version 8.0\n```\n", "Markdown"),
        ("notes", b"Dear all,\nthis is not a kernel.\n", "plain text"),
        ("data.cubin", b'{"kernel": "copy"}', "JSON"),
        ("events.ptx", b'[{"name": "k"}]', "JSON"),
        ("page", b"<!DOCTYPE html><html></html>", "HTML or XML"),
        ("dump.gz", b"\x1f\x8b\x08 more", "gzip data"),
        ("dump.ptx", b"PK\x03\x04 more", "a ZIP archive"),
        ("profile.cu.sqlite", b"SQLite format 3\0 more", "an SQLite database"),
        ("noise", bytes(range(256)), "binary data"),
        ("k.ttir", b"module {\n  tt.func public @k() {\n", "Triton's IR"),
        ("k.ll", b"define void @k() {\n", "LLVM IR"),
        ("k.sass", b"        /*0000*/                   LDC R1, c[0x0][0x28] ;\n",
         "disassembled machine code"),
        ("nothing.ptx", b"", "an empty file"),
        ("nothing", b"", "an empty file"),
        ("kernel.txt", b"import triton\n\n\n@triton.jit\ndef k(x):\n    pass\n",
         "Python, which is run only from a file whose name ends in .py"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
def test_a_file_without_kernels_is_named_for_what_it_is(
    command: tuple[str, ...], name: str, data: bytes, what: str, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    result = asked(command, path, tmp_path)
    assert (result.exit_code, result.stdout) == (3, "")
    assert result.stderr == f"error: {path}: found {what}, expected {EXPECTED}\n"


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
@pytest.mark.parametrize(
    ("target", "code", "said"),
    [
        ("geluu", 2, "unknown kernel 'geluu': did you mean gelu?"),
        ("flash-attention", 2, "did you mean flash_attention?"),
        ("missing.ptx", 3, "missing.ptx: No such file or directory"),
        ("missing.cubin", 3, "missing.cubin: No such file or directory"),
        ("missing.py:k", 3, "missing.py: No such file or directory"),
        ("missing.cu:k", 3, "missing.cu: No such file or directory"),
        ("no/such/file", 3, "no/such/file: No such file or directory"),
    ],
)
def test_what_is_not_there(
    command: tuple[str, ...], target: str, code: int, said: str, tmp_path: Path
) -> None:
    result = asked(command, target, tmp_path)
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


# ------------------------------------------------------------------ one kernel, folders, pipes


@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
def test_one_kernel_of_any_file(
    command: tuple[str, ...], contents: dict[str, bytes], tmp_path: Path
) -> None:
    two = PTX + PTX.partition("64\n")[2].replace("copy", "other")
    (tmp_path / "both.txt").write_text(two)
    result = asked(command, f"{tmp_path}/both.txt:copy", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "other" not in result.output.replace("other work", "")
    result = asked(command, f"{tmp_path}/both.txt:cpy", tmp_path)
    assert result.exit_code == 2
    assert f"there is no kernel 'cpy' in {tmp_path}/both.txt: did you mean copy?" in result.stderr


@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
@pytest.mark.parametrize("kind", ["PTX", "fat binary"])
def test_standard_input_is_told_by_its_contents(
    command: tuple[str, ...], kind: str, contents: dict[str, bytes], tmp_path: Path
) -> None:
    if kind not in contents:
        pytest.skip(f"no tool here makes a {kind}")
    result = asked(command, "-", tmp_path, stdin=contents[kind])
    assert result.exit_code == 0, result.stderr
    assert "copy" in result.stdout
    markdown = asked(command, "-", tmp_path, stdin=b"```\ncode\n```\n")
    assert markdown.exit_code == 3
    assert "<stdin>: found Markdown, expected PTX" in markdown.stderr


@pytest.mark.parametrize("command", READERS, ids=lambda c: c[0])
def test_a_folder_is_what_lies_below_it(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below/k.ptx").write_text(PTX)
    (tmp_path / "below/bad.cubin").write_bytes(b"\x7fELF")
    result = asked(command, tmp_path / "below", tmp_path)
    assert result.exit_code == 3
    assert "copy" in result.stdout
    assert "bad.cubin: found an ELF file cut short" in result.stderr
    for compiler in COMPILERS:
        result = asked(compiler, tmp_path / "below", tmp_path)
        assert (result.exit_code, result.stdout) == (2, "")
        assert f"below is a folder, expected {TRITON_KERNEL}" in result.stderr


def test_cuda_is_not_compiled_from_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        buffer = io.BytesIO(CUDA.encode())

        def fileno(self) -> int:
            raise OSError

    monkeypatch.setattr(sys, "stdin", Stream())
    with pytest.raises(InputError, match=r"<stdin>: found CUDA C\+\+ in a pipe, expected a file"):
        identify("-")


def test_python_is_run_only_under_its_name(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    text = f"import triton\nopen({str(marker)!r}, 'w')\n\n\n@triton.jit\ndef k(x):\n    pass\n"
    (tmp_path / "k.ptx").write_text(text)
    for command in COMMANDS:
        asked(command, tmp_path / "k.ptx", tmp_path)
    assert not marker.exists()
    (tmp_path / "k.py").write_text(text)
    assert identify(f"{tmp_path}/k.py:k").kind is Kind.PYTHON
    (tmp_path / "dump.py").write_text(PTX)
    assert identify(f"{tmp_path}/dump.py").kind is Kind.PTX


def test_large_files_without_kernels_are_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "trace.bin"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(InputError, match="found binary data"):
        identify(str(path))


def test_texts_of_many_comments_and_blanks_take_linear_time(tmp_path: Path) -> None:
    for text in ("/* */" * 200_000, "/*" * 300_000, "\n" * 500_000, "__global__ " * 100_000,
                 "# a\n" * 100_000, "[" * 300_000):  # fmt: skip
        (tmp_path / "long").write_text(text)
        with pytest.raises(InputError, match="found"):
            identify(str(tmp_path / "long"))


# ------------------------------------------------------------------ the library


def test_the_library_takes_the_same_targets(contents: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "k.bin"
    path.write_bytes(PTX.encode())
    launch = library.Launch.from_record(RECORD)
    assert library.analyze(path).kernels[0].name == "copy"
    assert library.estimate(path, launch).kernel == "copy"
    (subject,) = resolve(str(path))
    assert resolve([subject]) == [subject]
    assert resolve(subject.module)[0].module is subject.module
    path.write_text("Dear all")
    for call in (library.analyze, library.estimate, library.compile_kernel, resolve):
        with pytest.raises(InputError, match=f"{path}: found plain text, expected PTX"):
            call(path)  # type: ignore[operator]
    with pytest.raises(UsageError, match="is a folder, expected a Triton kernel"):
        triton_kernel(str(tmp_path))


def test_a_jit_function_is_a_target() -> None:
    pytest.importorskip("triton")
    file = ROOT / "tests/data/user_kernels.py"
    function = user_file.load(file).module.copy_kernel
    written = compile_kernel(f"{file}:copy_kernel", signature="*fp32, *fp32, i32, 128, False")
    compiled = compile_kernel(function, signature="*fp32, *fp32, i32, 128, False")
    assert compiled.ptx == written.ptx
    assert (compiled.source_file, compiled.name) == (written.source_file, written.name)
    assert compiled.again(num_warps=8).metadata["num_warps"] == 8
    settings = Settings(signature="*fp32, *fp32, i32, 128, False")
    assert resolve(function, settings)[0].module.entries[0].name == written.name
    report = library.analyze(
        function, signature="*fp32, *fp32, i32, 128, False", sass=False, prove=False
    )
    assert report.kernels[0].name == written.name
    with pytest.raises(KanalyzeError, match=r"is not a @triton\.jit function"):
        compile_kernel(print)  # type: ignore[arg-type]
