"""`wgmma-serialized`, against what ptxas prints and nvdisasm lists."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from kanalyze import analyze, compile_kernel, tools
from kanalyze.report.document import Finding, Kernel

pytestmark = pytest.mark.usefixtures("shared_cache")

SAMPLES = Path(__file__).parents[1] / "samples" / "findings"
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
    first, again = (tools.assemble(ptx).resources["fires_kernel"] for _ in range(2))
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
