"""Random kernels of PTX, lane by lane: a sample of ``benchmarks/random_kernels.py``."""

from __future__ import annotations

import pytest

from benchmarks.random_kernels import examine
from benchmarks.random_sources import sample

# Seeds whose kernels are run in less than a second each.
SEEDS = range(300, 316)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_statement_is_true_or_unknown(seed: int) -> None:
    outcome = examine(sample("ptx", seed))
    assert not outcome.skipped
    assert not outcome.wrong
    assert outcome.equal["requests"] + sum(outcome.unknown.values()) > 0
