"""The tools' texts in the wordings of several CUDA versions, and their errors."""

import subprocess
from pathlib import Path

import pytest

from kanalyze import analyze
from kanalyze.errors import InputError, MissingToolError
from kanalyze.toolchain import ptxas, tools
from kanalyze.toolchain.resources import KernelResources, parse_ptxas_log

PTX = """\
.version 7.0
.target sm_80
.address_size 64
.func (.reg .b32 r) twice(.reg .b32 a) { add.s32 r, a, a; ret; }
.visible .entry one(.param .u64 p)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    .shared .align 4 .b8 buffer[512];
    ld.param.u64 %rd1, [p];
    mov.u32 %r1, %tid.x;
    st.shared.u32 [buffer], %r1;
    bar.sync 0;
    ld.shared.u32 %r2, [buffer];
    st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry two() { ret; }
"""


@pytest.fixture(autouse=True)
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("PTXAS", "PTXAS_BLACKWELL", "CUOBJDUMP", "NVDISASM"):
        monkeypatch.delenv(f"TRITON_{name}_PATH", raising=False)


@pytest.fixture
def needs_tools():
    pytest.importorskip("triton")


# Real texts: CUDA 11.4 (device function, spills, cmem), 12.9, and 13.4 (its own name in front).
LOG_11 = """\
ptxas info    : 14 bytes gmem, 40 bytes cmem[3]
ptxas info    : Function properties for _Z6helperi
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Compiling entry function '_Z1kPf' for 'sm_80'
ptxas info    : Function properties for _Z1kPf
    16 bytes stack frame, 12 bytes spill stores, 20 bytes spill loads
ptxas info    : Used 31 registers, 24 bytes cumulative stack size, 1024 bytes smem, 400 bytes \
cmem[0], 8 bytes cmem[2]
ptxas info    : Compiling entry function 'other' for 'sm_80'
ptxas info    : Function properties for other
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 255 registers, used 3 barriers, 352 bytes cmem[0]
"""
LOG_13 = """\
ptxas-blackwell info    : 0 bytes gmem
ptxas-blackwell info    : (C7510) Potential Performance Loss: wgmma.mma_async is serialized
ptxas-blackwell info    : Compiling entry function 'k' for 'sm_90a'
ptxas-blackwell info    : Function properties for k
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas-blackwell info    : Used 24 registers, used 1 barriers, 2048 bytes smem
ptxas-blackwell info    : Compile time = 9.749 ms
"""


def test_wordings_of_ptxas():
    old = parse_ptxas_log(LOG_11, "ptxas 11.4")
    assert list(old) == ["_Z1kPf", "other"]
    assert old["_Z1kPf"] == KernelResources(31, 12, 20, 24, 1024, 1024, None, 400, "ptxas 11.4")
    assert old["other"] == KernelResources(255, 0, 0, 0, 0, 0, 3, 352, "ptxas 11.4")
    new = parse_ptxas_log(LOG_13, "t")
    assert new == {"k": KernelResources(24, 0, 0, 0, 2048, 2048, 1, 0, "t")}
    assert parse_ptxas_log("", "t") == {}
    assert parse_ptxas_log("Used 3 registers\n\ufffd", "t") == {}


def test_target():
    assert ptxas.ptx_target(PTX) == "sm_80"
    assert ptxas.ptx_target(".target sm_100f, debug") == "sm_100f"
    with pytest.raises(InputError, match=r"no \.target line"):
        ptxas.ptx_target("nothing")


@pytest.mark.usefixtures("needs_tools")
def test_several_entries_and_device_functions():
    resources = ptxas.assemble(PTX).resources
    assert set(resources) == {"one", "two"}
    assert resources["one"].static_shared_bytes == 512
    assert resources["one"].barriers == 1
    assert resources["two"].static_shared_bytes == 0
    assert resources["one"].tool.startswith("ptxas")
    assert resources["one"].constant_bytes > resources["two"].constant_bytes > 0
    newer = ptxas.assemble(PTX, "sm_90")
    assert newer.resources["one"].static_shared_bytes == 512
    of_cubin = tools.cubin_resources(newer.cubin)
    assert of_cubin["one"].static_shared_bytes == 512  # without the reserved 1024
    assert of_cubin["one"].registers == newer.resources["one"].registers
    assert "EXIT" in tools.disassemble(newer.cubin)


@pytest.mark.usefixtures("needs_tools")
def test_ptx_errors_name_the_line():
    broken = PTX.replace("bar.sync 0;", "barr.sync 0;")
    with pytest.raises(InputError, match="Not a name of any known instruction: 'barr'") as caught:
        ptxas.assemble(broken, file="mine.ptx")
    spot = caught.value.spot
    assert spot is not None
    assert (spot.file, spot.line, spot.column) == ("mine.ptx", 13, 5)
    assert spot.text == "    barr.sync 0;"
    with pytest.raises(InputError):
        ptxas.assemble(".target sm_80\n\0\ufffd{")
    with pytest.raises(MissingToolError, match=r"pip install --upgrade triton"):
        ptxas.assemble(PTX, "sm_999")
    with pytest.raises(MissingToolError, match=r"Unsupported \.version"):
        ptxas.assemble(PTX.replace(".version 7.0", ".version 99.0"))


@pytest.mark.usefixtures("needs_tools")
@pytest.mark.parametrize("data", [b"", b"\x7fELF", b"\x7fELF" + b"\0" * 200, b"text"])
def test_what_is_no_cubin(data):
    with pytest.raises(InputError):
        tools.disassemble(data)
    with pytest.raises(InputError):
        tools.cubin_resources(data)


@pytest.mark.usefixtures("needs_tools")
def test_finding_tools(tmp_path, monkeypatch):
    assert tools.find("ptxas").parent.parts[-3:] == ("backends", "nvidia", "bin")
    with pytest.raises(MissingToolError, match=r"nosuch .*pip install triton"):
        tools.find("nosuch")
    own = tmp_path / "bin/nosuch2"
    own.parent.mkdir()
    own.write_text("#!/bin/sh\n")
    own.chmod(0o755)
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert tools.find("nosuch2") == own
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(own))
    assert tools.find("ptxas") == own


def test_a_tool_that_hangs_or_cannot_run(tmp_path, monkeypatch):
    monkeypatch.setattr(tools, "TIMEOUT_S", 0.2)
    sleeper = tmp_path / "sleeper"
    sleeper.write_text("#!/bin/sh\nexec sleep 5\n")
    sleeper.chmod(0o755)
    with pytest.raises(tools.ToolError, match="took longer than"):
        tools.run(sleeper, [])
    monkeypatch.setattr(tools, "TIMEOUT_S", 20.0)
    broken = tmp_path / "broken"
    broken.write_bytes(b"\x7fELF\0\0\0")
    broken.chmod(0o755)
    with pytest.raises(MissingToolError, match="cannot be run"):
        tools.run(broken, [])
    loud = tmp_path / "loud"
    loud.write_text("#!/bin/sh\nprintf 'loud fatal   : caf\\351 closed\\n' >&2\nexit 3\n")
    loud.chmod(0o755)
    with pytest.raises(tools.ToolError, match="loud: caf\ufffd closed"):
        tools.run(loud, [])


@pytest.mark.usefixtures("needs_tools")
def test_versions():
    tool = tools.find("ptxas")
    said = subprocess.run([tool, "--version"], capture_output=True, text=True, check=True).stdout
    name, number = tools.version(tool).split()
    assert name == "ptxas"
    assert f"V{number}" in said
    assert tools.version(tool) == f"{name} {number}"  # from the cache


@pytest.mark.usefixtures("needs_tools")
def test_a_variable_that_names_another_program(monkeypatch):
    for name in ("ptxas", "ptxas-blackwell", "nvdisasm", "cuobjdump"):
        variable = f"TRITON_{name.upper().replace('-', '_')}_PATH"
        monkeypatch.setenv(variable, "/bin/false")
        with pytest.raises(MissingToolError, match=f"^{variable} is /bin/false"):
            tools.version(tools.find(name))
        monkeypatch.delenv(variable)
        monkeypatch.setenv("TRITON_PTXAS_PATH", str(tools.find("ptxas")))
    assert tools.version(tools.find("ptxas")).startswith("ptxas 1")


@pytest.mark.usefixtures("needs_tools")
def test_ptxas_has_less_time_for_a_short_text(tmp_path, monkeypatch):
    slow = tmp_path / "ptxas"
    slow.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "ptxas: NVIDIA (R) V12.9.1" && exit\n'
        "exec sleep 5\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(slow))
    assert (ptxas.SHORT_TIMEOUT_S, tools.TIMEOUT_S) == (60, 300)
    monkeypatch.setattr(ptxas, "SHORT_TIMEOUT_S", 1.0)
    with pytest.raises(InputError, match=r"ptxas took longer than 1 s"):
        ptxas.assemble(PTX)
    monkeypatch.setattr(tools, "TIMEOUT_S", 2.0)
    with pytest.raises(InputError, match=r"ptxas took longer than 2 s"):
        ptxas.assemble(PTX + "//" + "x" * 1_000_000)


def test_each_of_several_modules_in_a_file_has_its_resources(tmp_path: Path) -> None:
    """As ptxas says of each module alone."""
    other = PTX.replace(".visible .entry ", ".visible .entry other_")
    path = tmp_path / "both.ptx"
    path.write_text(PTX + "\n" + other)
    kernels = analyze(path).kernels
    alone = {**ptxas.assemble(PTX).resources, **ptxas.assemble(other).resources}
    assert len(kernels) == len(alone) >= 2
    for kernel in kernels:
        assert kernel.registers_per_thread == alone[kernel.name].registers > 0
        assert kernel.sass is not None
