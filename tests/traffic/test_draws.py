"""Several draws as one estimate: nothing that is unknown in one of them counts as 0."""

from __future__ import annotations

import pytest

from kanalyze import Launch, Traffic, estimate, parse_ptx
from kanalyze.launch.assumptions import DRAWS, parse
from kanalyze.results.kernel import UnknownField
from kanalyze.traffic import draws
from kanalyze.traffic.counters import ExactCounters

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry gather(.param .u64 x, .param .u64 index, .param .u64 y)
.reqntid 32
{
 .reg .b32 %r<4>;
 .reg .b64 %rd<8>;
 ld.param.u64 %rd1, [x];
 ld.param.u64 %rd2, [index];
 ld.param.u64 %rd3, [y];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd4, %r1, 4;
 add.s64 %rd2, %rd2, %rd4;
 ld.global.b32 %r2, [%rd2];
 mul.wide.s32 %rd5, %r2, 4;
 add.s64 %rd5, %rd1, %rd5;
 ld.global.b32 %r3, [%rd5];
 add.s64 %rd3, %rd3, %rd4;
 st.global.b32 [%rd3], %r3;
 ret;
}
"""
LAUNCH = Launch.from_record(
    {
        "kernel": "gather",
        "grid": [1],
        "block": [32],
        "params": [
            {"name": name, "type": kind, "address": address << 40}
            for name, kind, address in (("x", "*fp32", 1), ("index", "*i32", 2), ("y", "*fp32", 3))
        ],
    }
)


def drawn(seed: int = 7) -> Traffic:
    return estimate(
        parse_ptx(PTX), LAUNCH, assume={"index": f"uniform:0:4096:{seed}"}, simulate=False,
        findings=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def known() -> Traffic:
    return drawn()


def test_a_counter_that_is_unknown_in_one_draw_is_unknown() -> None:
    known = ExactCounters({"global_load_sectors": 40, "global_store_sectors": 4}, ())
    gap = UnknownField("counters.global_load_sectors", "too many cases")
    other = ExactCounters({"global_load_sectors": None, "global_store_sectors": 4}, (gap,))
    result = draws.known_in_all([known, known, other], 0)
    assert result.values == {"global_load_sectors": None, "global_store_sectors": 4}
    (why,) = result.unknown
    assert why.field == "counters.global_load_sectors"
    assert why.reason == "in 1 of 3 draws: too many cases"
    names = {"global_load_sectors", "global_store_sectors"}
    assert draws.ranges([known.values, other.values], names) == {"global_store_sectors": (4, 4)}


def test_an_unknown_draw_is_not_the_smallest() -> None:
    """The median of 30, 10, 20 by the counter that is known in all."""

    def of(sectors: int | None, stores: int) -> dict[str, int | None]:
        return {"global_load_sectors": sectors, "global_store_sectors": stores}

    assert draws.middle([of(None, 30), of(60, 10), of(40, 20)]) == 2


def test_the_interval_holds_what_is_shown(known: Traffic) -> None:
    low, high = known.interval["global_load_sectors"]
    shown = known.counters["global_load_sectors"]
    assert shown is not None
    assert 4 + 1 <= low <= shown <= high <= 4 + 32


def test_the_seeds_that_are_said_are_those_used(known: Traffic) -> None:
    assert any(f"seeds 7 to {7 + DRAWS - 1}" in text for text in known.assumptions)
    first, third = parse("uniform:0:4096:7"), parse("uniform:0:4096:9")
    import numpy as np

    places = np.arange(0, 400, 4)
    assert (first.draw(2).read(places, 4) == third.read(places, 4)).all()
    assert first.draw(2).seed == 7
