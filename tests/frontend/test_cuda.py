"""CUDA C++: against what nvcc itself writes, and with each compiler missing."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze.cli.app import cli
from kanalyze.frontend import cuda

pytestmark = [pytest.mark.usefixtures("shared_cache"), pytest.mark.slow("runs whole commands")]

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples/cuda").glob("*.cu"))
NVCC = shutil.which("nvcc")
needs_nvcc = pytest.mark.skipif(NVCC is None, reason="nvcc is not on the PATH")
needs_nvrtc = pytest.mark.skipif(
    cuda._nvrtc() is None, reason="there is no NVRTC: pip install 'kanalyze[cuda]'"
)


def kanalyze(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


def kernels_of(*arguments: str | Path) -> list[dict]:
    result = kanalyze("ptx", *arguments, "--format", "json", "--listing")
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)["kernels"]


def counted(ptx: str) -> dict[str, Counter[str]]:
    """Opcodes by kernel, without a parser."""
    found: dict[str, Counter[str]] = {}
    for name, body in re.findall(r"\.entry\s+(\w+)\(.*?\n\{(.*?)\n\}", ptx, re.DOTALL):
        words = (re.match(r"\s*(?:@!?%p\d+\s+)?([a-z][\w.:]*)[^:]*;", x) for x in body.split("\n"))
        found[name] = Counter(word[1] for word in words if word)
    return found


@needs_nvcc
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_kernels_are_those_of_nvcc(path: Path, arch: str, tmp_path: Path) -> None:
    out = tmp_path / "out.ptx"
    subprocess.run(["nvcc", "-ptx", f"-arch={arch}", path, "-o", out], check=True)
    expected = counted(out.read_text())
    found = kernels_of(path, "--arch", arch)
    assert {k["name"]: dict(k["opcodes"]) for k in found} == expected
    assert {k["target"] for k in found} == {arch}
    for kernel in found:
        assert kernel["analysed"]["accesses"] == kernel["analysed"]["of"] > 0
        sources = {a["source"]["file"] for a in kernel["accesses"]}
        assert {Path(s).name for s in sources} == {path.name}
        lines = path.read_text().splitlines()
        shown = [x for x in kernel["listing"] if x["kind"] == "source"]
        assert shown
        assert all(lines[x["line"] - 1].strip() == x["text"].strip() for x in shown)


@needs_nvcc
def test_the_lectures_vector_addition() -> None:
    pytest.importorskip("triton")
    found = {k["name"]: k for k in kernels_of(ROOT / "samples/cuda/vector_add.cu")}
    one, four, apart = (found[f"add_{n}"] for n in ("coalesced", "vector4", "strided"))
    assert [p["source_name"] for p in one["params"]] == ["a", "b", "sum", "n"]
    index = "{0} + 4*(ctaid.x*ntid.x + tid.x)"
    assert [a["address"] for a in one["accesses"]] == [index.format(x) for x in ("b", "a", "sum")]
    assert all("32*tid.x" in a["address"] for a in apart["accesses"])
    assert one["sass"]["memory"]["global"]["load"]["vectors"] == {"32": 2}
    assert four["sass"]["memory"]["global"]["load"]["vectors"] == {"128": 2}
    for kernel in found.values():
        assert {row["verdict"] for row in kernel["sass"]["comparison"]} == {"equal"}


@needs_nvcc
def test_one_kernel_of_a_file(tmp_path: Path) -> None:
    path = ROOT / "samples/cuda/transpose.cu"
    (kernel,) = kernels_of(f"{path}:transpose_padded", "--arch", "sm_80")
    assert kernel["name"] == "_Z16transpose_paddedPfPKfii"
    (same,) = kernels_of(path, "--kernel", "transpose_padded", "--arch", "sm_80")
    assert same["opcodes"] == kernel["opcodes"]
    result = kanalyze("ptx", f"{path}:transpose_paded")
    assert result.exit_code == 2
    assert "did you mean transpose_padded" in result.stderr
    result = kanalyze("ptx", path, "--arch", "sm_91")
    assert result.exit_code == 2


ERRORS = [
    ("__global__ void f(int *p)\n{\n    *p = undefined + 1;\n}\n", 3, 10, 'identifier "undefined"'),
    ("__global__ void f(int *p) { *p = nope; }\n", 1, 34, 'identifier "nope"'),
    ('#include "missing_header.h"\n', 1, None, "missing_header.h"),
    ("__global__ void f( {\n", 1, None, ""),
]


def check_errors(tmp_path: Path) -> None:
    for number, (text, line, column, said) in enumerate(ERRORS):
        path = tmp_path / f"error{number}.cu"
        path.write_text(text)
        result = kanalyze("ptx", path)
        assert result.exit_code == 3
        place = re.match(rf"error: {re.escape(str(path))}:(\d+):(\d+): (.*)", result.stderr)
        assert place, result.stderr
        assert int(place[1]) == line
        assert column is None or int(place[2]) == column
        assert said in place[3]
        assert not result.stdout


@needs_nvcc
def test_errors_have_file_line_and_column(tmp_path: Path) -> None:
    check_errors(tmp_path)


@needs_nvcc
def test_one_bad_file_stops_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.cu").write_text("int int;\n")
    good = ROOT / "samples/cuda/vector_add.cu"
    result = kanalyze("ptx", tmp_path / "bad.cu", good, tmp_path / "none.cu", "-q")
    assert result.exit_code == 3
    assert len(re.findall(r"^vector_add.ptx: add_", result.stdout, re.MULTILINE)) == 3
    assert "none.cu: No such file or directory" in result.stderr


@needs_nvcc
def test_a_changed_local_header_is_seen(tmp_path: Path) -> None:
    (tmp_path / "own.h").write_text("#define STEP 2\n")
    path = tmp_path / "own.cu"
    path.write_text('#include "own.h"\n__global__ void f(int *p) { p[STEP * threadIdx.x] = 1; }\n')
    assert kernels_of(path)[0]["accesses"][0]["address"] == "p + 8*tid.x"
    (tmp_path / "own.h").write_text("#define STEP 3\n")
    assert kernels_of(path)[0]["accesses"][0]["address"] == "p + 12*tid.x"


# ------------------------------------------------------------------ without nvcc


@pytest.fixture
def no_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    which: Callable[..., str | None] = shutil.which
    monkeypatch.setattr(
        cuda.shutil, "which", lambda name, **more: None if name == "nvcc" else which(name, **more)
    )


@pytest.mark.usefixtures("no_nvcc")
def test_without_a_compiler_the_command_that_gets_one_is_said(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cuda, "_nvrtc", lambda: None)
    result = kanalyze("ptx", SAMPLES[0])
    assert result.exit_code == 4
    assert "pip install 'kanalyze[cuda]'" in result.stderr


@needs_nvrtc
@pytest.mark.usefixtures("no_nvcc")
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_nvrtc(path: Path) -> None:
    found = kernels_of(path)
    assert len(found) == path.read_text().count("__global__")
    for kernel in found:
        assert "by NVRTC" in kernel["notes"][0]
        assert kernel["analysed"]["accesses"] == kernel["analysed"]["of"] > 0
        assert {Path(a["source"]["file"]).name for a in kernel["accesses"]} == {path.name}


@needs_nvrtc
@pytest.mark.usefixtures("no_nvcc")
def test_nvrtc_errors_have_file_line_and_column(tmp_path: Path) -> None:
    check_errors(tmp_path)


# ------------------------------------------------------------------ names


@pytest.mark.parametrize(
    ("symbol", "name"),
    [("add", "add"), ("_Z3addPKfPfi", "add"), ("_ZN2ns3subEv", "sub"), ("_Z4copyIfEvPT_", "copy"),
     ("_Z", "_Z")],
)  # fmt: skip
def test_source_names(symbol: str, name: str) -> None:
    assert cuda.source_name(symbol) == name


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("__global__ void k(const float *__restrict__ a, int n)", [("a", "*fp32"), ("n", "i32")]),
        ("__global__ __launch_bounds__(256, 2)\nvoid k(half* h /* x, y */, unsigned int u)",
         [("h", "*fp16"), ("u", "i32")]),
        ('extern "C" __global__ void k(float4 *v, double d)', [("v", None), ("d", "fp64")]),
        ("template <typename T> __global__ void k(T *p)", [("p", None)]),
        ("__global__ void k()", []),
        ("__global__ void k(std::array<int, 4> a)", []),
        ("__global__ void other(int n)", []),
        ("__global__ void k(" * 2000, []),
    ],
)  # fmt: skip
def test_parameters_by_the_source(source: str, expected: list[tuple[str, str | None]]) -> None:
    assert cuda.parameters(source + " {}", "k") == expected
