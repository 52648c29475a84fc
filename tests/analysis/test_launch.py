"""The passes over a launch: each is made once, whatever is drawn, and in the order that is said."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kanalyze import Launch, estimate, parse_ptx
from kanalyze.analysis import launch as passes
from kanalyze.launch.assumptions import DRAWS

RECORDS = Path(__file__).parents[2] / "samples" / "records" / "unfitted_h200.json.gz"


def test_nothing_is_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    with gzip.open(RECORDS, "rt") as file:
        record = next(r for r in json.load(file) if r["case"] == "gather_rows")
    made: Counter[str] = Counter()
    for name in (
        "assemble",
        "describe",
        "KernelLaunch",
        "LaunchTotals",
        "SassKernelLaunch",
        "predict",
    ):
        original: Any = getattr(passes, name)

        def counted(*given: Any, name: str = name, original: Any = original, **named: Any) -> Any:
            made[name] += 1
            return original(*given, **named)

        monkeypatch.setattr(passes, name, counted)
    traffic = estimate(
        parse_ptx(record["ptx"]), Launch.from_record(record), findings=False,
        cubin=bytes.fromhex(record["cubin"]), assume={"index": "uniform:0:8192"},
    )  # fmt: skip
    assert traffic.interval["global_load_sectors"] == (409600, 409600)
    assert dict(made) == {
        "assemble": 1,
        "describe": 1,
        "KernelLaunch": DRAWS,
        "LaunchTotals": DRAWS,
        "SassKernelLaunch": DRAWS,
        "predict": 1,
    }
