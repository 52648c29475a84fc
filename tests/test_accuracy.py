"""The accuracy tables of the documents are those that the samples give now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script(shared_cache: Path) -> ModuleType:
    path = ROOT / "benchmarks" / "accuracy.py"
    spec = importlib.util.spec_from_file_location("accuracy", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documents_are_not_stale(script: ModuleType) -> None:
    for name in script.DOCUMENTS:
        text = (ROOT / name).read_text("utf-8")
        assert "<!-- accuracy: " in text
        assert script.renewed(text) == text, f"{name} is stale: make accuracy"


def test_a_stale_table_would_be_noticed(script: ModuleType) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    first = text.index("| executed instructions |")
    changed = text[:first] + text[first:].replace("equal", "equals", 1)
    assert script.renewed(changed) == text
    assert changed != text


def test_the_table_holds_the_sums_of_the_check(script: ModuleType) -> None:
    data: dict[str, Any] = script.checked(script.sources("unfitted"))
    text = script.table("unfitted")
    launches = len(data["launches"])
    assert launches == 30
    assert text.startswith(f"{launches} launches of ")
    for summary in data["by_counter"]:
        (row,) = (line for line in text.splitlines() if f"`{summary['counter']}`" in line)
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[2] == str(summary["compared"])
        own = [
            c["result"]
            for launch in data["launches"]
            for c in launch["comparisons"]
            if c["counter"] == summary["counter"]
        ]
        assert len(own) == launches
        if summary["kind"] == "exact":
            assert (
                cells[3] == f"{own.count('equal')} of {own.count('equal') + own.count('differs')}"
            )
            assert cells[4] == (str(summary["zeros"]) if summary["zeros"] else "")
        assert cells[-1] == (str(own.count("unknown")) if "unknown" in own else "")


def test_every_exact_counter_of_the_samples_is_equal_or_unknown(script: ModuleType) -> None:
    data = script.checked(script.sources("all"))
    for summary in data["by_counter"]:
        if summary["kind"] != "estimate":
            assert summary["good"] == summary["compared"], summary["counter"]
