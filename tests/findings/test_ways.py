"""The same launch is judged the same way: by `analyze` and `estimate`, its example or given.

All 20 kernels of `benchmarks/findings.py`: ``python benchmarks/findings.py ways``.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze.cli.app import cli
from kanalyze.findings import runner
from kanalyze.findings.rules import half_masked_block
from kanalyze.results.kernel import Finding, Proof, Source
from tests.findings.test_measured import script

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"


@pytest.mark.slow("compiles samples and proves its findings")
@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("id_", ["half-masked-block", "misaligned-access"])
def test_a_finding_has_one_severity(id_: str) -> None:
    first, *others = script().ways(str(SAMPLES / id_ / "fires.py"))
    assert id_ in {name for name, _ in first}
    assert others == [first] * 3


@pytest.mark.slow("compiles a sample and proves its findings")
@pytest.mark.usefixtures("shared_cache")
def test_a_half_masked_block_is_one_finding_with_what_is_lost() -> None:
    """Both accesses are narrow, as well; that is one cause: N = 4,097."""
    for command in ("ptx", "traffic"):
        target = str(SAMPLES / "half-masked-block" / "fires.py")
        done = CliRunner().invoke(cli, [command, target, "--format=json", "--fail-on=warning"])
        assert done.exit_code == 1, done.stderr
        data = json.loads(done.stdout)
        (found,) = data["findings"] if command == "traffic" else data["kernels"][0]["findings"]
        assert (found["id"], found["severity"]) == ("half-masked-block", "warning")
        assert found["numbers"]["masked_share"] == pytest.approx(1 - 4097 / 8192)
        before, after = (found["proof"][side]["time_us"] for side in ("before", "after"))
        assert found["saves"]["time_us"] == pytest.approx(before - after, abs=0.01)
        assert "N padded to 4,112" in found["advice"]


def test_a_proven_cause_stands_for_the_findings_of_its_lines() -> None:
    def finding(id_: str, line: int) -> Finding:
        return Finding(id_, "info", 0, "", "", Source("k.py", line, 1), {"lines": "3, 4"})

    cause = finding("half-masked-block", 1)
    assert not half_masked_block.explains(cause, finding("narrow-access", 3))  # not proven
    cause = replace(cause, proof=Proof("recompiled", "", {}, {}))
    assert half_masked_block.explains(cause, finding("narrow-access", 3))
    assert not half_masked_block.explains(cause, finding("narrow-access", 5))
    assert not half_masked_block.explains(cause, finding("register-spill", 3))


def test_the_cause_is_proven_before_what_it_explains() -> None:
    warning = Finding("narrow-access", "warning", 0, "", "")
    rules = {rule.id: rule for rule in runner.catalogue.rules("ptx")}
    cause = replace(warning, id="half-masked-block", severity="info")
    pairs = [(rules[f.id], f) for f in (warning, cause)]
    assert sorted(pairs, key=runner._promise)[0][1] is cause
