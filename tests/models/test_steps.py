"""Steps along long axes, which are not made into arrays, against arrays and brute force."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest

from kanalyze.models import block_accesses, reuse
from kanalyze.models.block_accesses import Placed
from kanalyze.models.coalescing import SECTORS
from kanalyze.models.warps import CountingRule, Occurrences, classes, count
from kanalyze.symbolic import parts
from kanalyze.symbolic.grid import Condition, both, comparison, either, negate, spread
from kanalyze.symbolic.parts import Parts, TooLargeError
from kanalyze.symbolic.specials import BLOCK, THREAD

NEVER = 1 << 60


def axis(index: int, shape: tuple[int, ...]) -> Parts:
    return parts.steps(index, len(shape), shape[index])


# ---------------------------------------------------------------- operations


def computed(seed: int, shape: tuple[int, ...]) -> list[Parts]:
    """Values made by the same operations, whatever is an array and what is not."""
    rng = np.random.default_rng(seed)
    values = [axis(i, shape) for i in range(len(shape))]
    values.append(parts.number(int(rng.integers(-100, 100)), len(shape)))
    for _ in range(12):
        one, other = (values[i] for i in rng.integers(0, len(values), 2))
        constant = int(rng.choice([1, 2, 3, 4, 8, 12, 32, 100, 1024]))
        match rng.integers(9):
            case 0 | 1:
                made = parts.add(one, other)
            case 2:
                made = parts.scale(one, int(rng.choice([-1, 0, constant])))
            case 3:
                made = parts.floor_divide(one, constant)
            case 4:
                made = parts.remainder(one, constant)
            case 5:
                made = parts.in_range(one, int(rng.choice([8, 16, 32, 64])), bool(rng.integers(2)))
            case 6:
                mask = parts.number(int(rng.integers(0, 1 << 12)), len(shape))
                made = parts.bitwise("and", one, mask)
            case 7:
                made = parts.bitwise(str(rng.choice(["and", "or", "xor"])), one, other)
            case _:
                made = parts.multiply(one, other)
        if max(abs(made.low), abs(made.high)) < 1 << 40:
            values.append(made)
    return values


@pytest.mark.parametrize("seed", range(300))
def test_operations_equal_those_of_arrays(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    shape = (7, 5, 3)
    monkeypatch.setattr(parts, "LONG", NEVER)
    arrays = computed(seed, shape)
    monkeypatch.setattr(parts, "LONG", 1)
    steps = computed(seed, shape)
    assert len(arrays) == len(steps)
    assert any(isinstance(t, parts.Steps) for value in steps for t in value.terms.values())
    for array, value in zip(arrays, steps, strict=True):
        expected = np.broadcast_to(parts.dense(array), shape)
        assert np.array_equal(np.broadcast_to(parts.dense(value), shape), expected)
        assert value.low <= expected.min()
        assert value.high >= expected.max()


def test_what_is_too_long_is_not_made() -> None:
    value = axis(0, (1 << 40, 3))
    assert parts.scale(value, 8).high == 8 * ((1 << 40) - 1)
    with pytest.raises(TooLargeError):
        parts.dense(parts.remainder(value, 3))


# ---------------------------------------------------------------- counting


def placed(seed: int, shape: tuple[int, ...]) -> Placed:
    """An address and a condition that are affine in block, thread and iteration."""
    rng = np.random.default_rng(seed)

    def affine(units: list[int], low: int, high: int) -> Parts:
        total = parts.number(int(rng.integers(low, high)), len(shape))
        for index in range(len(shape)):
            factor = int(rng.choice(units)) * int(rng.integers(-2, 9))
            total = parts.add(total, parts.scale(axis(index, shape), factor))
        return total

    def condition(depth: int) -> Condition:
        if depth == 0 or rng.random() < 0.3:
            kind = str(rng.choice(["negative", "zero"]))
            return comparison(kind, affine([0, 1, 1, 3, 32], -250, 60))
        left, right = condition(depth - 1), condition(depth - 1)
        joined = both(left, right) if rng.random() < 0.5 else either(left, right)
        return negate(joined) if rng.random() < 0.3 else joined

    where = affine([4, 12, 32, 128], 0, 4096)
    return where, condition(int(rng.integers(0, 3))), Occurrences(shape)


def spread_out(case: Placed) -> tuple[Any, Any]:
    """Addresses and lanes as (blocks, iterations, threads)."""
    where, condition, occurrences = case
    shape = occurrences.dimensions
    address = np.broadcast_to(parts.dense(where), shape)
    active = np.broadcast_to(spread(condition, len(shape)), shape).astype(bool)
    return np.moveaxis(address, THREAD, -1), np.moveaxis(active, THREAD, -1)


RULES = {
    "sectors": SECTORS,
    "executed": CountingRule(1, lambda where, on: np.zeros(len(where), np.int64)),
}


@pytest.mark.parametrize("shape", [(41, 64), (23, 40, 5), (90, 32)], ids=str)
@pytest.mark.parametrize("seed", range(60))
def test_counts_equal_brute_force(
    seed: int, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LONG", 1)
    case = placed(seed, shape)
    address, active = spread_out(case)
    pad = -shape[THREAD] % 32
    widths = [(0, 0)] * (address.ndim - 1) + [(0, pad)]
    warps = np.pad(address, widths).reshape(-1, 32), np.pad(active, widths).reshape(-1, 32)
    executed = [where[on] for where, on in zip(*warps, strict=True) if on.any()]
    found = count(SECTORS, *case)
    assert found.requests == len(executed)
    assert found.threads == active.sum()
    by_transactions = Counter(len(np.unique(where // 32)) for where in executed)
    assert found.by_transactions == by_transactions
    executions = count(RULES["executed"], *case)
    assert (executions.requests, executions.threads) == (len(executed), active.sum())

    addresses: set[int] = set()
    for some in classes(*case):
        places = some.bases[:, None] + some.offsets[None, :]
        for i in range(some.times):
            addresses |= set((places + some.step * i).reshape(-1).tolist())
    assert addresses == set(address[active].tolist())


@pytest.mark.parametrize("long", [1, NEVER], ids=["steps", "arrays"])
@pytest.mark.parametrize("shape", [(41, 64), (23, 40, 5)], ids=str)
@pytest.mark.parametrize("seed", range(60))
def test_reuse_equals_brute_force(
    seed: int, shape: tuple[int, ...], long: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LONG", long)
    monkeypatch.setattr(block_accesses, "_MOST_LANES", 0)
    cases = [placed(7 * seed + i, shape) for i in range(1 + seed % 3)]
    sectors: list[set[int]] = [set() for _ in range(shape[BLOCK])]
    for case in cases:
        address, active = spread_out(case)
        for block, (where, on) in enumerate(zip(address, active, strict=True)):
            sectors[block] |= set((where[on] // 32).tolist())
    found = reuse.reuse([block_accesses.ThreadAccess(*case) for case in cases])
    blocks = Counter(itertools.chain.from_iterable(sectors))
    assert found.by_blocks == Counter(blocks.values())
    assert found.by_sectors == Counter(len(s) for s in sectors if s)
