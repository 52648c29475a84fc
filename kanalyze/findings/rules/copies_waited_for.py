"""A loop waits for the asynchronous copies that it has just begun.

What it says
------------
A loop copies tiles to shared memory with cp.async, and waits for all of them
(cp.async.wait_group 0, cp.async.wait_all) before it computes anything further: no copy runs beside
a product.

Why it is slow
--------------
An iteration takes the time of the copy, latency included, and then the time of what is computed,
instead of the longer of both.

How it is detected
------------------
A loop of the PTX with copies, and between the last one that is committed and a wait for all,
round the back edge where it stands there, no instruction that multiplies or reads shared memory. A
loop that waits for all, then begins the next copy and computes meanwhile is not meant.

How it is proven
----------------
A kernel of Triton is compiled again with one and two stages more, and its launch simulated: an info
where none is faster by 5 % and 1 us. PTX would have to be written otherwise.

Example
-------
    cp.async.commit_group;
    cp.async.wait_group 0;      // the tile that was just asked for

    cp.async.commit_group;
    cp.async.wait_group 1;      // the one before: this one arrives during the product

Source
------
PTX ISA 9.0, "Data Movement and Conversion Instructions: cp.async.wait_group": waits until at most N
of the latest groups are pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kanalyze.findings import trials
from kanalyze.findings.changes import more_stages
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.models import stages
from kanalyze.results.kernel import Finding

_ID = "copies-waited-for"


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Waits for all copies, nothing computed since the last one began."""
    cfg = facts.description.cfg
    for loop in cfg.loops:
        waited = stages.waits_for_all(cfg, loop)
        if waited is not None:
            wait, copies = waited
            more = "num_stages" if facts.of_triton else "cp.async.wait_group N, N ≥ 1"
            line, source = facts.at(wait)
            yield Finding(
                _ID, "warning", line,
                f"{wait.opcode}{' 0' * bool(wait.operands)} in the loop waits for all of its "
                f"{copies} cp.async, and nothing is computed since they began: each iteration pays "
                "for their latency",
                f"let a further stage of shared memory be under way meanwhile ({more})",
                source, {"copies": copies},
                unproven="the source would have to be changed by hand",
            )  # fmt: skip


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with more stages."""
    if facts.compiled is None:
        return finding
    best = trials.fastest(trials.run(facts, more_stages(facts)))
    if best is None:
        return finding
    if not trials.faster(facts, best):
        unproven = "no num_stages that was tried is faster by 5 % and 1 us"
        return replace(finding, severity="info", unproven=unproven)
    return replace(
        finding, advice=f"compile with {best.words}", unproven=None,
        proof=trials.proof(facts, best, {}, {}), saves=trials.saved_time(facts, best),
    )  # fmt: skip


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
