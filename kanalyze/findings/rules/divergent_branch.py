"""Warps take both sides of a branch, or one side with few of their threads.

What it says
------------
In how many of its executions a branch splits a warp, and how many warp instructions behind it would
be saved if the threads that take the same side were together in full warps.

Why it is slow
--------------
A warp executes one instruction for all of its threads. Where they diverge, it executes both sides,
one after the other, with the other threads idle: a side that 4 threads of each warp take costs as
much as one that all 32 take.

How it is detected
------------------
For each branch that splits 10 % of the warps that come to it, the blocks between it and where the
sides meet again: warp instructions executed there, less thread instructions over 32. It is said
where that is 10 % of all warp instructions of the PTX; a warning where issuing instructions takes
half of the predicted time, too.

How it is proven
----------------
By counting: the warp instructions as they are, and with full warps.

Example
-------
    if (t % (2 * s) == 0) part[t] += part[t + s];       // ever fewer threads of every warp

    if (t < s)            part[t] += part[t + s];       // ever fewer warps

Source
------
CUDA C++ Best Practices Guide, section "Branching and Divergence"; M. Harris, "Optimizing Parallel
Reduction in CUDA" (2007).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.findings import bounds
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.ptx.cfg import Cfg
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import BranchCounts
from kanalyze.text.numbers import decimal, whole

_ID = "divergent-branch"

_SPLIT = 0.1  # of the warps that come to a branch
_WORTH = 0.1  # of all warp instructions
_BOUND = 0.5  # share of the time from which fewer instructions save some


@dataclass
class _Divergence:
    """Branches of one source line: warps that come, warps split, instructions between the sides."""

    first: BranchCounts
    branches: int = 0
    warps: int = 0
    split: int = 0
    executed: float = 0.0
    needed: float = 0.0


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Branches whose sides are executed with few threads, those of one source line together."""
    traffic, launched = facts.traffic, facts.launched
    if traffic is None or launched is None:
        return
    cfg = facts.description.cfg
    ends = {b.instructions[-1].pos.line: b.index for b in cfg.blocks if b.instructions}
    groups: dict[object, _Divergence] = {}
    for branch in traffic.branches:
        warps, split = branch.executed_warps, branch.divergent_warps
        if not warps or not split or split < _SPLIT * warps or branch.line not in ends:
            continue
        counted = _between(cfg, launched, ends[branch.line])
        if counted is None:
            continue
        source = branch.source
        key = (source.file, source.line) if source is not None else branch.line
        group = groups.setdefault(key, _Divergence(branch))
        group.branches += 1
        group.warps, group.split = group.warps + warps, group.split + split
        group.executed, group.needed = group.executed + counted[0], group.needed + counted[1]
    total = _all(cfg, launched) if groups else 0
    for group in groups.values():
        if total and group.executed - group.needed >= _WORTH * total:
            yield _finding(facts, group, total)


def _finding(facts: Facts, group: _Divergence, total: int) -> Finding:
    traffic = facts.traffic
    assert traffic is not None
    saved = group.executed - group.needed
    busy = max(bounds.share(traffic, name) for name in ("issue", "alu", "fp32"))
    number = f"{group.branches} branches split" if group.branches > 1 else "the branch splits"
    before, after = round(group.executed), round(group.needed)
    return Finding(
        _ID,
        "warning" if busy >= _BOUND else "info",
        group.first.line,
        f"{number} {whole(group.split)} of {whole(group.warps)} warps; what follows takes "
        f"{whole(before)} warp instructions where {whole(after)} would do with full warps "
        f"({decimal(100 * saved / total)} % of all)",
        "let neighbouring threads take the same side (t < n instead of t % n == 0, work sorted by "
        "side), or compute both sides and select",
        group.first.source,
        {"branches": group.branches, "warps": group.warps, "split_warps": group.split,
         "executed": before, "needed": after, "share": saved / total},
        Proof(
            "counted", "full warps", {"warp_instructions": before}, {"warp_instructions": after}
        ),
        saves={"instructions": before - after},
    )  # fmt: skip


def _between(cfg: Cfg, launched: KernelLaunch, block: int) -> tuple[float, float] | None:
    """Warp instructions between a branch and where its sides meet: executed, and needed at least.

    None where they are not known, or the sides do not meet.
    """
    meet = cfg.ipdom.get(block)
    if meet is None:
        return None
    seen: set[int] = set()
    ahead = [other for other in cfg.graph.successors(block) if other != meet]
    while ahead:
        here = ahead.pop()
        if here in seen or here == meet or here == cfg.exit:
            continue
        if here == block:
            return None  # a loop's own condition: threads leave it one by one
        seen.add(here)
        ahead += cfg.graph.successors(here)
    executed = needed = 0.0
    for here in seen:
        runs = launched.runs(here)
        if runs.warps is None or runs.threads is None:
            return None
        number = len(cfg.blocks[here].instructions)
        executed += number * runs.warps
        needed += number * runs.threads / 32
    return executed, needed


def _all(cfg: Cfg, launched: KernelLaunch) -> int:
    """Warp instructions of the whole launch; 0 where they are not known."""
    total = 0
    for index in cfg.order:
        if index == cfg.exit:
            continue
        runs = launched.runs(index)
        if runs.warps is None:
            return 0
        total += runs.warps * len(cfg.blocks[index].instructions)
    return total


RULE = Rule(_ID, check_launch=check_launch)
