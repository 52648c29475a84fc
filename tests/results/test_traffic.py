"""What follows from the accesses of a launch and its counters."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kanalyze.results.traffic import AccessCounts, AccessTotal, access_totals

LOAD = AccessCounts(
    unit="sectors", requests=8, cost=64, ideal_cost=32, line=1, opcode="ld.global.b32",
    space="global", kind="load", pointer="x", address=None, condition=None, pattern=None,
    bytes_per_thread=4, threads=256, worst=8, reason=None, fate="same", machine=None, loop_depth=0,
    stage=None, source=None, source_text=None,
)  # fmt: skip
SHARED = replace(LOAD, space="shared", unit="wavefronts", cost=16, ideal_cost=8)


def total(
    name: str, *accesses: AccessCounts, counters: tuple[int, int] = (8, 64), unlisted: int = 0
) -> AccessTotal:
    values = dict(zip(("global_load_requests", "global_load_sectors"), counters, strict=True))
    return next(t for t in access_totals(accesses, values, unlisted) if t.name == name)


def test_a_counter_that_is_the_sum_has_an_efficiency() -> None:
    loads = total("global_load", LOAD)
    assert (loads.cost, loads.ideal_cost, loads.efficiency, loads.reason) == (64, 32, 0.5, None)


@pytest.mark.parametrize("counters", [(4, 32), (16, 128)])
def test_a_counter_that_is_not_the_sum_has_none(counters: tuple[int, int]) -> None:
    """The assembler made one of two loads, or a called function loads, too."""
    loads = total("global_load", LOAD, counters=counters)
    assert (loads.requests, loads.cost) == counters
    assert (loads.ideal_cost, loads.efficiency) == (None, None)
    assert loads.reason == "the counter is not the sum of the accesses listed"


def test_accesses_that_are_not_listed_are_not_nothing() -> None:
    loads = total("global_load", counters=(8, 64), unlisted=1)
    assert (loads.cost, loads.ideal_cost, loads.efficiency) == (64, None, None)
    assert "calls" in (loads.reason or "")
    shared = total("shared_load", SHARED, unlisted=1)
    assert (shared.requests, shared.cost, shared.ideal_cost) == (None, None, None)
    assert total("shared_load", SHARED).conflicts == 8


def test_listed_accesses_that_are_the_counter_are_all() -> None:
    assert total("global_load", LOAD, unlisted=1).efficiency == 0.5


def test_an_access_that_is_not_known_says_why() -> None:
    unknown = replace(LOAD, requests=None, cost=None, ideal_cost=None, reason="depends on data")
    loads = access_totals([LOAD, unknown], {}, 0)[0]
    assert (loads.requests, loads.cost, loads.ideal_cost) == (None, None, None)
    assert loads.reason == "depends on data"
