"""The bundled kernels compiled: they fit every architecture and become the instructions meant."""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from pathlib import Path

import pytest

from kanalyze.frontend.kernel_file import KernelFile, bundled
from kanalyze.frontend.launch_plan import LaunchPlan, plan

pytestmark = pytest.mark.slow("compiles every bundled kernel")

triton = pytest.importorskip("triton")

FILES = bundled()
# Shared memory that a block may take, in bytes; CUDA C++ Programming Guide, "Technical
# Specifications per Compute Capability": 163, 227, 227 and 99 KB.
SHARED_LIMIT = {80: 163 * 1024, 90: 227 * 1024, 100: 227 * 1024, 120: 99 * 1024}
TENSOR_CORE = {80: "mma.sync", 90: "wgmma.mma_async", 100: "tcgen05.mma", 120: "mma.sync"}


@pytest.fixture(scope="module", autouse=True)
def _triton_cache(shared_cache: Path):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(shared_cache / "of-triton"))
        yield


def compiled(file: KernelFile, arch: int, dtype: str | None = None, **settings: int):
    """Compile a kernel for one launch, its arguments specialised as Triton's launcher does."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location(f"kernel_{file.name}", file.path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    launch: LaunchPlan = plan(file, module, settings, dtype)
    signature, constants, attributes = {}, dict(launch.constexprs), {}
    for index, name in enumerate(file.parameters):
        value = launch.arguments.get(name)
        if name in launch.constexprs or value == 1:
            signature[name] = "constexpr"
            constants.setdefault(name, value)
        elif isinstance(value, tuple):
            signature[name] = f"*{value[1]}"
            attributes[(index,)] = [["tt.divisibility", 16]]
        elif isinstance(value, float):
            signature[name] = "fp32"
        else:
            signature[name] = "i32" if value < 2**31 else "i64"
            if value % 16 == 0:
                attributes[(index,)] = [["tt.divisibility", 16]]
    source = ASTSource(getattr(module, file.function), signature, constants, attributes)
    options = {**launch.options, "enable_fp_fusion": True}
    return triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)


def opcodes(ptx: str) -> Counter[str]:
    return Counter(re.findall(r"(?:^|\s)((?:ld|st)\.global[\w.]*)", ptx))


@pytest.mark.parametrize("arch", SHARED_LIMIT)
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name, file in FILES.items() for dtype in file.dtypes]
)
def test_default_launch_fits(name: str, dtype: str, arch: int) -> None:
    kernel = compiled(FILES[name], arch, dtype)
    assert kernel.metadata.shared <= SHARED_LIMIT[arch]
    if name in ("matmul_relu", "flash_attention"):
        ptx = kernel.asm["ptx"]
        assert TENSOR_CORE[arch] in ptx
        # Three stages: at least one later tile is on its way while one is multiplied.
        in_flight = [int(n) for n in re.findall(r"cp\.async\.wait_group\s+(?:0x)?(\d+)", ptx)]
        assert "cp.async.cg.shared.global" in ptx
        assert max(in_flight) >= 1


@pytest.mark.parametrize("arch", SHARED_LIMIT)
def test_head_size_128_fits(arch: int) -> None:
    kernel = compiled(FILES["flash_attention"], arch, D=128, causal=1)
    assert kernel.metadata.shared <= SHARED_LIMIT[arch]


@pytest.mark.parametrize("arch", SHARED_LIMIT)
def test_gelu_moves_four_numbers_at_a_time(arch: int) -> None:
    ptx = compiled(FILES["gelu"], arch).asm["ptx"]
    assert opcodes(ptx) == {"ld.global.v4.b32": 2, "st.global.v4.b32": 2}


@pytest.mark.parametrize("n", [1000003, 2**31 + 3])
def test_gelu_moves_single_numbers_where_n_is_odd(n: int) -> None:
    ptx = compiled(FILES["gelu"], 90, n=n).asm["ptx"]
    assert opcodes(ptx) == {"ld.global.b32": 8, "st.global.b32": 8}


def test_gelu_takes_a_64_bit_n_where_it_must() -> None:
    assert ".param .u64 gelu_kernel_param_2" in compiled(FILES["gelu"], 90, n=2**31).asm["ptx"]
    assert ".param .u32 gelu_kernel_param_2" in compiled(FILES["gelu"], 90).asm["ptx"]


def test_softmax_reads_a_row_once_or_twice() -> None:
    once = compiled(FILES["softmax"], 90, N=4096, BLOCK_SIZE=4096).asm["ptx"]
    twice = compiled(FILES["softmax"], 90, N=8192, BLOCK_SIZE=4096).asm["ptx"]
    assert opcodes(once) == {"ld.global.v4.b32": 4, "st.global.v4.b32": 4}
    assert opcodes(twice) == {"ld.global.v4.b32": 8, "st.global.v4.b32": 4}
