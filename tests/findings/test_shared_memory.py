"""`shared-memory-limit`, and the error of a kernel that does not fit: tiles times stages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel, estimate
from kanalyze.errors import InputError
from kanalyze.frontend.subject import Settings
from kanalyze.results.kernel import Finding, Kernel

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

PRODUCT = str(
    Path(__file__).parents[2] / "samples" / "findings" / "shared-memory-limit" / "fires.py"
)
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", in KiB.
LIMITS = {
    "sm_75": 64, "sm_80": 163, "sm_86": 99, "sm_89": 99, "sm_90": 227, "sm_100": 227, "sm_103": 227,
    "sm_120": 99,
}  # fmt: skip
SUPPORTED = tuple(name for name in LIMITS if name != "sm_75")


def needs(m: int, n: int, k: int, stages: int) -> int:
    """Bytes of the buffers of Triton 3.9's pipelines on sm_80: one less than the stages."""
    return (m * k + k * n) * 2 * (stages - 1)


def findings(target: str | Path, **options: Any) -> list[Finding]:
    report = analyze(target, **options)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == "shared-memory-limit"]


def sizes(m: int, n: int, k: int) -> dict[str, Any]:
    return {"settings": {"BLOCK_M": m, "BLOCK_N": n, "BLOCK_K": k}}


@pytest.mark.parametrize(
    ("tile", "stages"),
    [((128, 128, 64), 4), ((128, 128, 32), 3), ((128, 256, 64), 3), ((128, 256, 64), 4)],
)
def test_what_fits_where(tile: tuple[int, int, int], stages: int) -> None:
    needed = needs(*tile, stages)
    found = findings(PRODUCT, arch="sm_80", num_stages=stages, **sizes(*tile))
    small = [name for name in SUPPORTED if needed > LIMITS[name] * 1024]
    if not small:
        assert found == []
        return
    (one,) = found
    assert one.severity == "info"
    assert one.numbers["shared_bytes"] == needed
    assert one.numbers["too_small"] == small
    for name, most in LIMITS.items():
        assert one.numbers["fits"][name] == (needed <= most * 1024)
    assert f"{needed:,} B" in one.message
    assert one.proof is not None
    fewer = one.proof.after["num_stages"]
    assert one.proof.after["shared_bytes"] == needs(*tile, int(fewer)) <= 99 * 1024
    assert needs(*tile, int(fewer) + 1) > 99 * 1024


@pytest.mark.parametrize(("arch", "stages", "fits"), [("sm_86", 4, 3), ("sm_80", 7, 4)])
def test_the_error_names_the_stages_that_fit(arch: str, stages: int, fits: int) -> None:
    with pytest.raises(InputError) as caught:
        compile_kernel(PRODUCT, arch=arch, num_stages=stages)
    message = caught.value.message
    said = [int(n) for n in re.findall(r"\d+", message.split("shared memory")[1])]
    needed, most = needs(128, 256, 64, stages), LIMITS[arch] * 1024
    assert said == [needed, int(arch[3:]), most, fits, needs(128, 256, 64, fits)]
    made = compile_kernel(PRODUCT, arch=arch, num_stages=fits)
    assert made.resources.shared_bytes == needs(128, 256, 64, fits) <= most
    with pytest.raises(InputError, match="out of resource"):
        compile_kernel(PRODUCT, arch=arch, num_stages=fits + 1)


def test_the_error_says_when_no_number_of_stages_fits() -> None:
    with pytest.raises(InputError, match=r"reduce block sizes: no num_stages below 3 fits"):
        compile_kernel(PRODUCT, arch="sm_86", num_stages=3, **sizes(256, 256, 128))
    for stages in (1, 2):
        with pytest.raises(InputError, match="out of resource"):
            compile_kernel(PRODUCT, arch="sm_86", num_stages=stages, **sizes(256, 256, 128))


def test_a_gpu_that_is_too_small_is_an_error() -> None:
    traffic = estimate(PRODUCT, device="A10", settings=Settings(arch="sm_80"), simulate=False)
    (found,) = [f for f in traffic.findings if f.id == "shared-memory-limit"]
    assert found.severity == "error"
    assert found.numbers["limit"] == 99 * 1024


def test_a_size_that_is_chosen_at_launch_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(compile_kernel(PRODUCT, arch="sm_80").ptx)
    report = analyze(path)
    assert report.kernels[0].shared_bytes is None
    assert [u.reason for u in report.unknown if u.field.endswith("shared_bytes")]
    assert findings(path) == []
