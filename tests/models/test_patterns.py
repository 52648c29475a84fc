"""Sectors and wavefronts of one warp against counters of an H200.

``tests/data/patterns_h200.csv.gz``: each row is one warp instruction with its lanes' byte offsets,
run alone on an H200 under Nsight Compute by ``benchmarks/patterns/measure.sh``; ``cost`` is sectors
for global accesses and wavefronts for shared ones. The load of the offsets themselves (4 sectors)
was subtracted; the assembler had turned the 4-byte atomics, whose result is not used, into
reductions.
"""

from __future__ import annotations

import csv
import gzip
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest

from kanalyze import analyze, parse_ptx
from kanalyze.models import banks, coalescing
from kanalyze.models.warps import CountingRule
from kanalyze.symbolic.grid import UnknownValueError

KNOWN_ATOMICS = 107
DATA = Path(__file__).parents[1] / "data" / "patterns_h200.csv.gz"


def patterns() -> dict[tuple[str, int], list[dict[str, str]]]:
    grouped: dict[tuple[str, int], list[dict[str, str]]] = defaultdict(list)
    with gzip.open(DATA, "rt") as file:
        for row in csv.DictReader(file):
            grouped[row["op"], int(row["width"])].append(row)
    return grouped


PATTERNS = patterns()


def rule_of(op: str, width: int) -> CountingRule:
    match op:
        case "lds":
            return banks.rule("load", width)
        case "sts":
            return banks.rule("store", width)
        case "ldsm":
            return banks.rule("load", 16, width)
        case "stsm":
            return banks.rule("store", 16, width)
        case "ldg" | "stg":
            return coalescing.SECTORS
        case _:
            return coalescing.SERIALIZATION


def costs_of(op: str, width: int) -> tuple[list[int], list[int]]:
    """What the rule and what the counters say of the patterns of one instruction."""
    rows = PATTERNS[op, width]
    assert len(rows) >= 40
    addresses = np.array([[int(x) for x in row["offsets"].split()] for row in rows])
    masks = np.array([int(row["mask"], 16) for row in rows])
    lanes = (masks[:, None] >> np.arange(32) & 1).astype(bool)
    rule = rule_of(op, width)
    computed: list[int] = rule.transactions(addresses, lanes).tolist()
    for shift in (rule.period, 5 * rule.period):
        assert rule.transactions(addresses + shift, lanes).tolist() == computed
    assert {int(row["requests"]) for row in rows} == {1}
    return computed, [int(row["cost"]) for row in rows]


@pytest.mark.parametrize(("op", "width"), sorted(k for k in PATTERNS if k[0] != "atom"))
def test_cost_equals_the_counter(op: str, width: int) -> None:
    computed, measured = costs_of(op, width)
    assert computed == measured


def test_atomics_are_counted_as_the_counter_does_or_not_at_all() -> None:
    known = 0
    for width in (4, 8):
        for row in PATTERNS["atom", width]:
            lanes = (int(row["mask"], 16) >> np.arange(32) & 1).astype(bool)[None]
            addresses = np.array([[int(x) for x in row["offsets"].split()]])
            least = coalescing.SERIALIZATION.transactions(addresses, lanes)
            assert 0 <= int(row["cost"]) - least[0] <= 3
            try:
                computed = coalescing.ATOMIC.transactions(addresses, lanes)
            except UnknownValueError:
                continue
            assert computed[0] == int(row["cost"])
            known += 1
    assert known == KNOWN_ATOMICS


def test_the_patterns_tell_conflicts_apart() -> None:
    costs = {int(row["cost"]) for rows in PATTERNS.values() for row in rows}
    assert {1, 2, 4, 8, 16, 32} <= costs


@pytest.mark.parametrize(
    ("step", "known"), [("add.s32", True), ("or.b32", False), ("xor.b32", False)]
)
def test_a_pattern_that_low_bits_of_an_argument_change_is_unknown(step: str, known: bool) -> None:
    """Whatever n is, n + t are neighbours; n | t are only where n ends in zeros."""
    text = f"""
.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x, .param .u32 n) .reqntid 32
{{
.reg .b32 %r<4>;
.reg .b64 %rd<4>;
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x;
{step} %r3, %r1, %r2;
mul.wide.u32 %rd2, %r3, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.b32 [%rd3], %r2;
ret;
}}
"""
    (access,) = analyze(parse_ptx(text), sass=False).kernels[0].accesses
    assert access.pattern == ("contiguous" if known else None)
