"""What proofs cost: counted, shared by all rules, and said where it is spent."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanalyze import estimate
from kanalyze.analysis import launch
from kanalyze.errors import Unknown
from kanalyze.findings import budget, runner
from kanalyze.findings.changes import settings
from kanalyze.findings.facts import Facts
from kanalyze.results.kernel import Finding

pytestmark = pytest.mark.usefixtures("shared_cache")

MATMUL = str(Path(__file__).parents[2] / "samples" / "findings" / "matmul.py")
SMALL = {"M": 1024, "N": 1024, "K": 4096}


def small_grid() -> Finding:
    (found,) = [
        f
        for f in estimate(MATMUL, settings=launch.Settings(settings=SMALL)).findings
        if f.id == "small-grid"
    ]
    return found


@pytest.mark.parametrize("limit", ["COMPILATIONS", "SIMULATIONS"])
def test_what_was_not_tried_is_said(monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    tried = small_grid()
    assert tried.proof is not None
    assert tried.unproven is None
    monkeypatch.setattr(budget, limit, 0)
    left = small_grid()
    assert left.proof is None
    assert left.severity == "warning"  # 64 blocks on 132 SMs for 31 us
    assert left.unproven is not None
    assert left.unproven.startswith("not tried: ")
    assert tried.proof.change in left.unproven


def facts_of_a_run(monkeypatch: pytest.MonkeyPatch) -> Facts:
    """What the rules looked at."""
    kept = []

    def keep(facts: Facts, wanted: runner.RuleOptions) -> tuple[tuple[Finding, ...], list[object]]:
        kept.append(facts)
        return (), []

    monkeypatch.setattr(runner, "of_launch", keep)
    estimate(MATMUL, settings=launch.Settings(settings=SMALL))
    return kept[0]


def test_nothing_is_compiled_or_simulated_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of_a_run(monkeypatch)
    one = facts.recompiled(settings={"num_stages": 2, "num_warps": 8})
    assert isinstance(one, Facts)
    assert one is facts.recompiled(settings={"num_warps": 8, "num_stages": 2})
    assert facts.budget.compilations == budget.COMPILATIONS - 1
    assert facts.estimated(one) is facts.estimated(one)
    assert facts.budget.simulations == budget.SIMULATIONS - 1


def test_a_change_is_estimated_as_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of_a_run(monkeypatch)
    other = facts.recompiled(**settings(num_warps=8).changes)
    assert isinstance(other, Facts)
    found = facts.estimated(other)
    wanted = launch.Settings(settings=SMALL, num_warps=8)
    alone = estimate(MATMUL, settings=wanted, findings=False)
    assert not isinstance(found, Unknown)
    assert found.counters == alone.counters
    assert found.time == alone.time
    assert found.compulsory == alone.compulsory
