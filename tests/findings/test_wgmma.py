"""`wgmma-serialized`, against what ptxas prints and nvdisasm lists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel, read_records
from kanalyze.findings import catalogue
from kanalyze.results.kernel import Finding, Kernel
from kanalyze.toolchain import ptxas, tools

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("compiles samples and proves its findings"),
]

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"
FIRES = str(SAMPLES / "wgmma-serialized" / "fires.py")
SMALL = str(SAMPLES / "tensor-core-fallback" / "mended.py")


def findings(target: str | Path, **options: Any) -> list[Finding]:
    report = analyze(target, **options)
    assert not [u for u in report.unknown if u.field.endswith("findings")]
    (kernel,) = report.kernels
    assert isinstance(kernel, Kernel)
    return [f for f in kernel.findings if f.id == "wgmma-serialized"]


def waits(cubin: bytes) -> list[bool]:
    """Of each HGMMA of a listing, whether a wait for all stands before the next one."""
    events = re.findall(r"HGMMA|WARPGROUP\.DEPBAR\.LE gsb0, 0x0", tools.disassemble(cubin))
    followed = zip(events, [*events[1:], ""], strict=True)
    return [then != "HGMMA" and then != "" for one, then in followed if one == "HGMMA"]


def test_ptxas_says_why() -> None:
    made = compile_kernel(FIRES)
    (remark,) = made.resources.remarks
    assert "Potential Performance Loss" in remark
    (found,) = findings(FIRES)
    assert found.severity == "warning"
    assert found.numbers["reason"] == "insufficient register resources for the wgmma pipeline"
    assert found.numbers["reason"] in remark
    assert waits(made.cubin) == [True] * found.numbers["hgmma"]
    assert found.numbers["waited"] == found.numbers["hgmma"] == 8
    assert found.proof is not None
    assert found.proof.change == "num_warps=8"
    after = compile_kernel(FIRES, num_warps=8)
    assert after.resources.remarks == ()
    assert not all(waits(after.cubin))
    assert found.proof.before["waited"] == 8
    assert found.proof.after["waited"] == 0


def test_overlapping_products_are_silent() -> None:
    assert findings(SMALL) == []
    assert findings(FIRES, num_warps=8) == []


def test_remarks_are_kept_in_the_cache() -> None:
    ptx = compile_kernel(FIRES).ptx
    first, again = (ptxas.assemble(ptx).resources["fires_kernel"] for _ in range(2))
    assert first == again
    assert first.remarks


def test_a_wait_that_ptxas_inserts_is_an_info(tmp_path: Path) -> None:
    lines = compile_kernel(SMALL).ptx.splitlines()
    at = [n for n, text in enumerate(lines) if "wgmma.mma_async" in text][1] - 2
    register = re.search(r"\{(%r\d+)", lines[at + 2])
    assert register is not None
    name = register[1]
    lines.insert(at, f"\tadd.f32 {name}, {name}, 0f3F800000;")
    path = tmp_path / "k.ptx"
    path.write_text("\n".join(lines) + "\n")
    (found,) = findings(path)
    assert found.severity == "info"
    done = subprocess.run(
        [tools.find("ptxas-blackwell"), "-v", "-arch=sm_90a", path, "-o", tmp_path / "k.cubin"],
        capture_output=True,
        text=True,
        check=True,
    )
    said = re.findall(r"wait\S* is injected in around line (\d+)", done.stdout + done.stderr)
    assert found.numbers["waits"] == len(said) > 0
    assert all(f"line {said[0]}" in text for text in (found.message,))


def test_machine_code_alone_shows_it(tmp_path: Path) -> None:
    path = tmp_path / "k.cubin"
    path.write_bytes(compile_kernel(FIRES).cubin)
    (found,) = findings(path)
    assert found.numbers["waited"] == found.numbers["hgmma"] == 8
    path.write_bytes(compile_kernel(SMALL).cubin)
    assert findings(path) == []


def test_measured_times_in_the_explanations_are_those_of_the_records() -> None:
    cases = {
        "wgmma-serialized": (
            ("matmul_relu-fp16-M8192-N8192-K8192-BLOCK_N256-num_warps4", "12,103"),
            ("matmul_relu-fp16-M8192-N8192-K8192-BLOCK_N256", "1,495"),
            ("flash_attention-fp16-B4-H16-T4096-D64-causal0-BLOCK_KV128-num_warps4", "749"),
            ("flash_attention-fp16-B4-H16-T4096-D64-causal0-BLOCK_KV128", "882"),
        ),
        "register-spill": (
            ("matmul_relu-fp16-M8192-N8192-K8192-BLOCK_M256-num_warps4", "7,848"),
            ("matmul_relu-fp16-M8192-N8192-K8192-BLOCK_M256", "1,888"),
        ),
    }
    records, _ = read_records(str(SAMPLES.parent / "h200"))
    measured = {r.case: r.counters.get("gpu__time_duration.sum") for r in records}
    for id_, rows in cases.items():
        text = " ".join(catalogue.explanation(id_).sections["Example"].split())
        for case, said in rows:
            nanoseconds = measured[case]
            assert nanoseconds is not None
            assert f"{nanoseconds / 1000:,.0f}" == said
            assert said in text
