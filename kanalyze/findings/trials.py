"""A kernel compiled otherwise, in the same launch: what a change does, and which is fastest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from kanalyze.errors import Unknown
from kanalyze.findings.changes import Change
from kanalyze.findings.facts import Facts
from kanalyze.frontend.specialize import DIVISIBLE_BY_16
from kanalyze.results.kernel import Proof
from kanalyze.results.traffic import Traffic

_WORTH = 0.05  # of the time: the model ranks configurations of a kernel no better
_LEAST_US = 1.0  # less is what launches of one kernel differ by
_SAME_WORK = 0.95  # of the operations: fewer are another computation

Fits = Callable[[Facts], bool]


@dataclass(frozen=True)
class Trial:
    """A change, the kernel compiled with it, and the estimate of its launch where one is known."""

    change: Change
    facts: Facts
    traffic: Traffic | None

    @property
    def words(self) -> str:
        """What the change is called."""
        return self.change.words

    @property
    def time_us(self) -> float | None:
        """The predicted time of the launch."""
        return self.traffic.time.predicted_us if self.traffic is not None else None


def run(
    facts: Facts, changes: Iterable[Change], fits: Fits = lambda then: True, least: float = 1.0
) -> Iterator[Trial]:
    """The changes that compile, and that do the same work in the launch where that is known.

    Args:
        facts: the kernel, and its launch.
        changes: what to try.
        fits: whether a compilation is worth an estimate.
        least: the share of the operations that another tile may not fall below.
    """
    for change in changes:
        other = facts.recompiled(**change.changes)
        if isinstance(other, Unknown) or not fits(other):
            continue
        estimate = facts.estimated(other) if predicted_us(facts) is not None else None
        if estimate is None or isinstance(estimate, Unknown):
            yield Trial(change, other, None)
        elif not change.of_tiles or _same_work(facts.traffic, estimate, least):
            yield Trial(change, other, estimate)


def padded(facts: Facts, numbers: Mapping[str, int]) -> Trial | None:
    """The launch with larger arguments, for which the kernel is compiled as divisible by 16.

    Args:
        facts: the kernel and its launch.
        numbers: argument to its number, by the author's names; arrays grow with them.

    Returns:
        None where it does not compile or cannot be estimated.
    """
    words = " and ".join(f"{name} padded to {number:,}" for name, number in numbers.items())
    told = facts.recompiled(facts=dict.fromkeys(numbers, DIVISIBLE_BY_16))
    if isinstance(told, Unknown) or told.launch is None:
        return None
    grown = max(
        numbers[p.name] / p.value for p in told.launch.params if p.name in numbers and p.value
    )
    params = tuple(
        replace(
            p,
            value=numbers.get(p.name, p.value),
            bytes=None if p.bytes is None else math.ceil(p.bytes * grown),
        )
        for p in told.launch.params
    )
    then = replace(told, launch=replace(told.launch, params=params), changed=words, cache={})
    estimate = facts.estimated(then)
    return None if isinstance(estimate, Unknown) else Trial(Change(words, {}), then, estimate)


def fastest(tries: Iterable[Trial]) -> Trial | None:
    """The change with the shortest predicted time; None where none is known."""
    known = [t for t in tries if t.time_us]
    return min(known, key=lambda t: t.time_us or math.inf, default=None)


def climb(
    facts: Facts,
    changes_of: Callable[[Facts], Iterable[Change]],
    rounds: int,
    fits: Fits = lambda then: True,
    least: float = 1.0,
) -> Trial | None:
    """The change with the shortest predicted time, then another one beside it, and so on.

    Args:
        facts: the kernel and its launch.
        changes_of: what to try of a compilation.
        rounds: how many changes at most.
        fits, least: see `run`.

    Returns:
        The last one; each saved time that is worth it. None if none does.
    """
    best: Trial | None = None
    for _ in range(rounds):
        further = changes_of(best.facts if best else facts)
        changes = [best.change.with_(c) if best else c for c in further]
        trial = fastest(run(facts, changes, fits, least))
        if trial is None or not _worth(
            best.time_us if best else predicted_us(facts), trial.time_us
        ):
            break
        best = trial
    return best


def predicted_us(facts: Facts) -> float | None:
    """The predicted time of the launch as it is, in microseconds."""
    return facts.traffic.time.predicted_us if facts.traffic is not None else None


def faster(facts: Facts, trial: Trial) -> bool | None:
    """Whether a change saves 5 % of the time, and a microsecond; None: not known."""
    before = predicted_us(facts)
    if before is None or trial.time_us is None:
        return None
    return _worth(before, trial.time_us)


def _worth(before: float | None, after: float | None) -> bool:
    if before is None or after is None:
        return False
    return before - after >= max(_WORTH * before, _LEAST_US)


def gain(facts: Facts, trial: Trial) -> float:
    """The share of the predicted time that is saved."""
    before, after = predicted_us(facts), trial.time_us
    return 1 - after / before if before and after else 0.0


def _same_work(now: Traffic | None, then: Traffic, least: float) -> bool:
    """Whether the same bytes are read and written, and no fewer operations than ``least`` of all.

    A constexpr may also say what is computed (the length of a row): a launch that with another
    value no longer touches the same memory, or computes less, is no other way to do the same.
    """
    if now is None or None in (now.compulsory.read_bytes, now.compulsory.write_bytes):
        return False
    bytes_ = [
        {p.pointer: (p.read_bytes, p.write_bytes) for p in t.compulsory.pointers}
        for t in (now, then)
    ]
    return bytes_[0] == bytes_[1] and (then.flops or 0) >= _SAME_WORK * least * (now.flops or 0)


def proof(
    facts: Facts, trial: Trial, before: Mapping[str, float], after: Mapping[str, float]
) -> Proof:
    """A proof by compiling again, with the simulated times where both are known."""
    was, then = predicted_us(facts), trial.time_us
    if was is None or then is None:
        return Proof("recompiled", trial.words, before, after)
    return Proof(
        "recompiled",
        trial.words,
        {**before, "time_us": round(was, 3)},
        {**after, "time_us": round(then, 3)},
    )


def saved_time(facts: Facts, trial: Trial) -> dict[str, float]:
    """What a change saves of the simulated time, where it does."""
    was, then = predicted_us(facts), trial.time_us
    return {"time_us": round(was - then, 3)} if was and then and then < was else {}
