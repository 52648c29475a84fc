"""Cubins and the SASS part of reports: against cuobjdump, and against nvdisasm's lines, counted."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from functools import cache
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from kanalyze import analyze, schemas
from kanalyze.cli.app import cli
from kanalyze.errors import InputError
from kanalyze.frontend.compile import Compiled, compile_kernel
from kanalyze.results.kernel import Report, SassKernel
from kanalyze.sass import cubin
from kanalyze.toolchain import ptxas, tools

pytest.importorskip("triton")
pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles every bundled kernel"),
]

SHARED = Path(__file__).parents[3] / "shared"
CASES = [
    (kernel, arch)
    for kernel in ("gelu", "softmax", "row_sum", "matmul_relu", "flash_attention")
    for arch in ("sm_80", "sm_90", "sm_100", "sm_120")
]
SPILLING = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry first(.param .u64 p)
{
    .local .align 16 .b8 frame[64];
    .reg .b32 %r<4>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [p];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    mov.u64 %rd4, frame;
    add.s64 %rd5, %rd4, %rd3;
    ld.global.nc.L2::128B.u32 %r2, [%rd2];
    st.local.u32 [%rd5], %r2;
    ld.local.u32 %r3, [frame + 4];
    st.global.u32 [%rd2], %r3;
    ret;
}
.visible .entry second(.param .u64 p) { ret; }
"""


def kanalyze(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, [str(a) for a in arguments])


@cache
def compiled(kernel: str, arch: str) -> Compiled:
    return compile_kernel(kernel, arch=arch)


def output_of(tool: str, *arguments: str | Path) -> str:
    command = [str(tools.find(tool)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def assembled(folder: Path, ptx: str, *flags: str) -> Path:
    """A cubin by ptxas itself; without line information it keeps no PTX."""
    ptx = re.sub(r"^\s*\.(loc|file)\b.*$", "", ptx.split("\t.section")[0], flags=re.MULTILINE)
    (folder / "input.ptx").write_text(ptx)
    out = folder / "plain.cubin"
    target = ptxas.ptx_target(ptx)
    tool = tools.find(ptxas.ptxas_for(int(re.sub(r"\D", "", target))))
    command = [tool, *flags, f"-arch={target}", "input.ptx", "-o", out]
    subprocess.run(command, check=True, cwd=folder)
    (folder / "input.ptx").unlink()
    return out


def usage_of(path: Path) -> dict[str, dict[str, int]]:
    """What cuobjdump -res-usage says, by kernel."""
    text = output_of("cuobjdump", "-res-usage", path)
    return {
        name: {key: int(value) for key, value in re.findall(r"([A-Z]+):(\d+)", row)}
        for name, row in re.findall(r"Function (\S+?):\s+(REG.*)", text)
    }


def mnemonics(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Guard and full mnemonic of every line of code that nvdisasm prints, by section."""
    result: dict[str, list[tuple[str, str]]] = {}
    lines: list[tuple[str, str]] = []
    for line in output_of("nvdisasm", "-c", path).splitlines():
        section = re.match(r"\s*\.section\s+\.text\.([^,]+),", line)
        if section:
            lines = result.setdefault(section[1], [])
        code = re.match(r"\s+/\*[0-9a-f]{4,}\*/\s+(@!?\w+\s+)?([A-Z][\w.]*)", line)
        if code:
            lines.append(((code[1] or "").strip(), code[2]))
    return result


# ------------------------------------------------------------------ ELF


@pytest.mark.parametrize(("kernel", "arch"), CASES)
def test_an_elf_file_is_read(kernel: str, arch: str) -> None:
    made = compiled(kernel, arch)
    found = cubin.parse(made.cubin, "x.cubin")
    assert found.kernels == (made.name,)
    assert f"sm_{found.capability}" == arch
    assert found.ptx is not None
    code = [line.strip() for line in made.ptx.split("\t.section")[0].splitlines()]
    code = [line for line in code if re.match(r"(@!?%p\d+ )?[a-z][\w.:]* .*;", line)]
    kept = [line.strip() for line in found.ptx.splitlines()]
    kept = [line for line in kept if re.match(r"(@!?%p\d+ )?[a-z][\w.:]* .*;", line)]
    assert len(kept) == len(code) > 20


def test_both_elf_flavours_are_there() -> None:
    assert {compiled(k, a).cubin[8] for k, a in CASES} == {7, 8}


def test_cut_and_damaged_files_raise_input_errors_only() -> None:
    data = compiled("row_sum", "sm_90").cubin
    damaged = [data[:length] for length in [*range(0, 80), *range(80, len(data), 97)]]
    for place in range(4, 64):
        broken = bytearray(data)
        broken[place] ^= 0xFF
        damaged.append(bytes(broken))
    said = set()
    for one in damaged:
        try:
            cubin.parse(one, "x")
        except InputError as error:
            said.add(str(error))
    assert 2 < len(said) < 60
    assert all(message.startswith("found ") and "\n" not in message for message in said)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.cubin", b"", "an empty file"),
        ("text.cubin", b"garbage\n", "found plain text, expected PTX"),
        ("short.cubin", b"\x7fELF", "cut short"),
        ("tables.cubin", b"\x7fELF\x02\x01\x01\x33\x07" + bytes(9) + b"\xbe\0" + b"\xff" * 99,
         "damaged"),
        ("bits.cubin", b"\x7fELF\x01\x01\x01\x33\x07" + bytes(9) + b"\xbe\0" + bytes(99),
         "32 bits"),
        ("bad.fatbin", b"\x50\xed\x55\xba" + b"\xff" * 99, "expected device code"),
    ],
)  # fmt: skip
def test_garbage_is_one_clear_line(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    result = kanalyze("ptx", tmp_path / name)
    assert result.exit_code == 3
    assert result.stderr.startswith(f"error: {tmp_path / name}: found ") or "fatbin" in name
    assert said in result.stderr
    assert result.stderr.count("\n") == 1
    assert not result.stdout


# ------------------------------------------------------------------ the sass part


def check_counts(sass: dict, listed: list[tuple[str, str]]) -> None:
    """The numbers of a report against the mnemonics of nvdisasm."""
    executed = [name for guard, name in listed if guard not in ("@!PT", "@!UPT")]
    assert sass["instructions"] == len(listed)
    assert sass["not_read"] == 0
    bases = Counter(name.split(".")[0] for name in executed)
    told: Counter[str] = Counter()
    for row in sass["comparison"]:
        assert sum(row["opcodes"].values()) == row["sass"]
        for name, number in row["opcodes"].items():
            assert executed.count(name) == number
            told[name.split(".")[0]] += number
            if "128" in name.split(".") and row["category"] in ("global load", "global store"):
                assert row["width"] == "16 B"
        hinted = Counter(
            part for name in executed if name in row["opcodes"] for part in name.split(".")
        )
        for hint, number in row["hints"].items():
            assert hinted[hint[1:]] == number
    for base in ("LDG", "STG", "LDGSTS", "LDS", "STS", "LDSM", "STSM", "LDL", "STL", "ATOMG",
                 "HMMA", "HGMMA", "UTCHMMA", "UTMALDG"):  # fmt: skip
        assert told[base] == bases[base], base
    core = sass["tensor_core"]
    assert core["mma"] == bases["HMMA"]
    assert core["wgmma"] == bases["HGMMA"]
    assert core["tcgen05"] == bases["UTCHMMA"]
    wide = [name for name in executed if re.match(r"LDG\b.*\.128\b", name)]
    load = sass["memory"].get("global", {}).get("load")
    assert (load or {"vectors": {}})["vectors"].get("128", 0) == len(wide)


@pytest.mark.parametrize(("kernel", "arch"), CASES)
def test_compiled_kernels_have_it(kernel: str, arch: str, tmp_path: Path) -> None:
    made = compiled(kernel, arch)
    (tmp_path / "x.cubin").write_bytes(made.cubin)
    (data,) = analyze(made).to_dict()["kernels"]
    sass = data["sass"]
    check_counts(sass, mnemonics(tmp_path / "x.cubin")[made.name])
    assert sass["registers_per_thread"] == usage_of(tmp_path / "x.cubin")[made.name]["REG"]
    assert sass["registers_per_thread"] == data["registers_per_thread"]
    assert sass["target"].rstrip("af") == arch
    assert [row for row in sass["comparison"] if row["verdict"] == "not explained"] == []
    for row in sass["comparison"]:
        assert (row["verdict"] == "equal") == (row["ptx"] == row["sass"])
        assert (row["explanation"] is not None) == (row["verdict"] == "explained")
    assert sass["stack"].startswith("no stack") == (data["stack_bytes"] == 0)


def test_text_says_that_they_agree() -> None:
    pytest.importorskip("triton")
    text = kanalyze("ptx", "gelu", "--no-listing").stdout
    assert "agrees with the PTX: 2 × LDG.E.128, 2 × STG.E.128" in text
    assert "SASS" not in kanalyze("ptx", "gelu", "--no-listing", "--no-sass").stdout


def test_it_can_be_left_out_with_a_reason() -> None:
    data = json.loads(kanalyze("ptx", "gelu", "--no-sass", "--format", "json").stdout)
    assert data["kernels"][0]["sass"] is None
    assert [u["field"] for u in data["unknown"] if "as asked for" in u["reason"]] == [
        "kernels[0].sass"
    ]


def test_stack_spills_and_hints(tmp_path: Path) -> None:
    (tmp_path / "frame.ptx").write_text(SPILLING)
    first, second = analyze(tmp_path / "frame.ptx").to_dict()["kernels"]
    sass = first["sass"]
    assert sass["origin"].startswith("assembled by ptxas")
    assert (sass["local_store_bytes"], sass["local_load_bytes"]) == (4, 4)
    assert sass["stack_bytes"] == first["stack_bytes"] == 64
    assert "local arrays or calls" in sass["stack"]
    (load,) = [row for row in sass["comparison"] if row["category"] == "global load"]
    assert load["hints"][".LTC128B"] == 1
    assert load["hints_added"] == []
    assert second["sass"]["comparison"] == []
    assert "no memory accesses" in kanalyze("ptx", tmp_path / "frame.ptx").stdout


# ------------------------------------------------------------------ cubins as input


def test_a_cubin_with_its_ptx(tmp_path: Path) -> None:
    made = compiled("gelu", "sm_90")
    path = tmp_path / "gelu.cubin"
    path.write_bytes(made.cubin)
    result = kanalyze("ptx", path, "--format", "json")
    assert result.exit_code == 0
    (data,) = json.loads(result.stdout)["kernels"]
    (same,) = analyze(made).to_dict()["kernels"]
    for key in ("name", "opcodes", "memory", "registers_per_thread", "spill_store_bytes"):
        assert data[key] == same[key], key
    assert data["file"] == data["sass"]["origin"] == str(path)
    assert "debug section" in data["notes"][0]


@pytest.mark.parametrize(
    ("kernel", "arch"), [("matmul_relu", "sm_80"), ("matmul_relu", "sm_90"), ("softmax", "sm_100")]
)
def test_a_cubin_without_ptx(kernel: str, arch: str, tmp_path: Path) -> None:
    made = compiled(kernel, arch)
    path = assembled(tmp_path, made.ptx)
    result = kanalyze("ptx", path, "--format", "json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    jsonschema.validate(data, schemas.load("ptx"))
    (report,) = data["kernels"]
    usage = usage_of(path)[made.name]
    reserved = 1024 if arch != "sm_80" else 0
    assert report["registers_per_thread"] == usage["REG"]
    assert report["stack_bytes"] == usage["STACK"]
    assert report["shared_bytes"] == usage["SHARED"] - reserved
    check_counts(report["sass"], mnemonics(path)[made.name])
    assert {row["verdict"] for row in report["sass"]["comparison"]} == {None}
    unknown = {u["field"].partition(".")[2] for u in data["unknown"]}
    assert {key for key, value in report.items() if value is None} == unknown
    assert Report.from_dict(data).to_dict() == data
    assert isinstance(Report.from_dict(data).kernels[0], SassKernel)
    text = kanalyze("ptx", path).stdout
    assert "no PTX" in text
    assert f"{usage['REG']} per thread" in text
    assert max(map(len, kanalyze("ptx", path, "--width", "60").stdout.splitlines())) <= 60
    assert "no PTX" in kanalyze("ptx", path, "-q").stdout


def test_kernels_of_a_cubin_can_be_chosen(tmp_path: Path) -> None:
    path = assembled(tmp_path, SPILLING)
    data = json.loads(kanalyze("ptx", path, "--format", "json").stdout)
    assert (
        sorted(k["name"] for k in data["kernels"]) == ["first", "second"] == sorted(usage_of(path))
    )
    data = json.loads(kanalyze("ptx", path, "--kernel", "second", "--format", "json").stdout)
    assert [k["name"] for k in data["kernels"]] == ["second"]
    assert "did you mean second" in kanalyze("ptx", path, "--kernel", "secnd").stderr


def test_a_cubin_beside_the_ptx_is_the_machine_code(tmp_path: Path) -> None:
    (tmp_path / "frame.ptx").write_text(SPILLING)
    assembled(tmp_path, SPILLING, "-O0").rename(tmp_path / "frame.cubin")
    first = analyze(tmp_path / "frame.ptx").to_dict()["kernels"][0]
    assert first["sass"]["origin"] == str(tmp_path / "frame.cubin")
    assert first["sass"]["instructions"] == len(mnemonics(tmp_path / "frame.cubin")["first"])
    (tmp_path / "frame.cubin").write_bytes(b"\x7fELF damaged")
    result = kanalyze("ptx", tmp_path / "frame.ptx", "--format", "json")
    assert result.exit_code == 0
    first = json.loads(result.stdout)["kernels"][0]
    assert "the cubin beside it is left out" in first["notes"][0]
    assert first["sass"]["origin"].startswith("assembled by")


def test_without_ptxas_the_report_stands_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = compiled("gelu", "sm_80").cubin
    (tmp_path / "frame.ptx").write_text(SPILLING.replace("%r3", "%r03"))
    monkeypatch.setattr(tools, "installed", lambda name: None)
    result = kanalyze("ptx", tmp_path / "frame.ptx", "--format", "json")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["kernels"][0]["sass"] is None
    reasons = {u["field"]: u["reason"] for u in report["unknown"]}
    assert "pip install triton" in reasons["kernels[0].sass"]
    path = tmp_path / "alone.cubin"
    path.write_bytes(data.replace(b".version", b".virsion"))
    result = kanalyze("ptx", path)
    assert result.exit_code == 4
    assert "pip install triton" in result.stderr


CUDA = """\
__device__ __noinline__ void deep(float *x, int n) { for (int i = 0; i < n; ++i) x[i * n] = i; }
__global__ void caller(float *x, int n) { deep(x, n); x[n] = 1; }
__global__ void other(float4 *x) { x[threadIdx.x] = make_float4(1, 2, 3, 4); }
int main() { return 0; }
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not on the PATH")
@pytest.mark.parametrize("kind", ["-fatbin", "-o"])
def test_fat_binaries_and_executables(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(CUDA)
    out = tmp_path / ("a.fatbin" if kind == "-fatbin" else "a.out")
    flags = ["-gencode", "arch=compute_80,code=[sm_80,compute_80]"]
    more = ["-gencode", "arch=compute_90,code=sm_90"]
    both = [*flags, *more]
    command = ["nvcc", *both, "a.cu", *(["-fatbin"] if kind == "-fatbin" else []), "-o", out]
    subprocess.run(command, cwd=tmp_path, check=True)
    result = kanalyze("ptx", out, "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    jsonschema.validate(data, schemas.load("ptx"))
    found = {(k["name"], k["target"], k["instructions"] is None) for k in data["kernels"]}
    names = ("_Z6callerPfi", "_Z5otherP6float4")
    assert found == {(n, t, t == "sm_90") for n in names for t in ("sm_80", "sm_90")}
    for kernel in data["kernels"]:
        assert {row["verdict"] for row in kernel["sass"]["comparison"]} <= (
            {"equal", "explained", "not explained"} if kernel["target"] == "sm_80" else {None}
        )
    (wide,) = [k for k in data["kernels"] if k["name"] == names[1] and k["target"] == "sm_90"]
    assert wide["sass"]["memory"]["global"]["store"]["vectors"] == {"128": 1}


def test_an_executable_without_device_code() -> None:
    result = kanalyze("ptx", "/bin/sh")
    assert result.exit_code == 3
    assert "without kernels" in result.stderr


@pytest.mark.skipif(not (SHARED / "measured/h200").is_dir(), reason="no recorded kernels here")
def test_recorded_kernels_agree_or_it_is_known_why() -> None:
    for path in sorted((SHARED / "measured/h200").glob("*.cubin"))[::3]:
        report = analyze(path).to_dict()["kernels"]
        beside = analyze(path.with_suffix(".ptx")).to_dict()["kernels"]
        for kernel, same in zip(report, beside, strict=True):
            assert kernel["opcodes"] == same["opcodes"]
            assert kernel["sass"] == same["sass"]
            assert kernel["registers_per_thread"] == usage_of(path)[kernel["name"]]["REG"]
            rows = kernel["sass"]["comparison"]
            assert [row for row in rows if row["verdict"] == "not explained"] == []
