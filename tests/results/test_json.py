"""The report as JSON, against its schema and against itself."""

from __future__ import annotations

import json
from functools import cache

import pytest

from kanalyze import analyze
from kanalyze.results.kernel import Report
from kanalyze.text.plain import dumps

pytest.importorskip("triton")
pytestmark = pytest.mark.usefixtures("shared_cache")

CASES = [
    (kernel, arch)
    for kernel in ("gelu", "softmax", "row_sum", "matmul_relu", "flash_attention")
    for arch in ("sm_80", "sm_100")
]


@cache
def report(kernel: str, arch: str) -> Report:
    return analyze(kernel, arch=arch, listing=True)


@pytest.mark.parametrize(("kernel", "arch"), CASES)
def test_reading_back_gives_the_same_report(kernel: str, arch: str) -> None:
    made = report(kernel, arch)
    assert Report.from_dict(made.to_dict()) == made
    assert Report.from_dict(json.loads(dumps(made.to_dict()))) == made


@pytest.mark.parametrize(("kernel", "arch"), CASES)
def test_numbers_add_up(kernel: str, arch: str) -> None:
    (data,) = json.loads(dumps(report(kernel, arch).to_dict()))["kernels"]
    assert sum(data["opcodes"].values()) == data["instructions"]
    listed = [line for line in data["listing"] if line["kind"] == "instruction"]
    assert len(listed) == data["instructions"]
    assert data["analysed"]["of"] == len(data["accesses"])
    known = [a for a in data["accesses"] if a["address"] is not None]
    assert data["analysed"]["accesses"] <= len(known)
    for access in data["accesses"]:
        assert (access["address"] is None) == (access["reason"] is not None)
    for space, kinds in data["memory"].items():
        for kind, traffic in kinds.items():
            assert sum(traffic["vectors"].values()) == traffic["instructions"]
            here = [a for a in data["accesses"] if (a["space"], a["kind"]) == (space, kind)]
            if space != "param":
                assert len(here) == traffic["instructions"]
                if traffic["bytes_per_thread"] is not None:
                    assert sum(a["bytes_per_thread"] for a in here) == traffic["bytes_per_thread"]


def test_text_is_kept_but_nothing_steers_a_terminal() -> None:
    data = {"a": "größe \x1b[1m \x9b \u202e \udcff \x7f × \U0001f600", "b": [1.5, None, True]}
    text = dumps(data)
    assert json.loads(text) == data
    assert "größe" in text
    assert all(c.isprintable() or c == "\n" for c in text)
