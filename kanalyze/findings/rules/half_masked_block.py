"""Much of a block is masked off: it is made for longer rows than it gets.

What it says
------------
How many of the lanes of masked accesses take part, for which arguments and which block, whether the
rows also begin at addresses that keep accesses narrow, and how much of the launch's time that
costs.

Why it is slow
--------------
What is masked is issued all the same: registers, issue slots and reductions are those of the whole
block. A row of 4,097 elements in a block of 8,192 pays for 8,192. Where a row's length or stride is
odd, no access can be wider than an element, so that the block is issued element by element, too.

How it is detected
------------------
In a launch, the lanes that execute accesses whose mask depends on an argument are counted, with and
without that mask: a quarter and more must be masked off. Products (tl.dot) are left to
tile-quantisation.

How it is proven
----------------
The kernel is compiled with each block halved, where the same is read and written, and for rows
padded to a multiple with which accesses are wide; the launch is simulated. It is a warning where
one saves 5 % of the time and 1 us; then it also stands for the narrow and misaligned accesses and
the conversions of the same lines. Else it is an info, and nothing where HBM or the launch itself
takes most of the time.

Example
-------
    normalize[rows,](x, y, stride=4097, N=4097, BLOCK=8192)     # 50 % of the lanes

    normalize[rows,](x, y, stride=4112, N=4097, BLOCK=8192)     # padded; or BLOCK=1024 in a loop

Source
------
CUDA C++ Programming Guide 13.0, section "Hardware Multithreading": lanes that are off take part in
the issue of their warp.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kanalyze.findings import access_groups, bounds, trials, vectorization
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.changes import resized, tiles
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.symbolic.value import leaves

_ID = "half-masked-block"
_MASKED = 0.25  # of the lanes; less is lost in the end of any row
_BUSY = 0.8  # of the time that HBM or L2 needs alone: what is issued beside hardly matters
_SAME_CAUSE = ("narrow-access", "misaligned-access", "uncoalesced-access", "layout-conversion")


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Masks that leave a quarter of the lanes out and more."""
    groups, named = _masked(facts), tiles(facts)
    if not groups or not named or facts.compiled is None or "tt.dot" in facts.compiled.ttir:
        return
    traffic = facts.traffic
    if traffic is not None and (
        bounds.shared_by_all(traffic) > _BUSY or bounds.share(traffic, "launch") > bounds.LAUNCH
    ):
        return
    lanes = _lanes(facts, groups)
    if lanes is None or lanes[0] > (1 - _MASKED) * lanes[1]:
        return
    numbers = access_groups.values(facts)
    masks = access_groups.arguments_in(facts, [a.condition for g in groups for a, _ in g.members])
    given = [
        f"{access_groups.author_name(facts, n)} = {numbers[n]:,}" for n in masks if n in numbers
    ]
    block = next(iter(named))
    odd = ", ".join(access_groups.author_name(facts, n) for n in _odd(facts, groups))
    narrow = f"; accesses are narrow, as {odd} cannot be divided by 16" if odd else ""
    lines = list(dict.fromkeys(s.line for g in groups if (s := g.first.source) is not None))
    share = 1 - lanes[0] / lanes[1]
    line, source = facts.place
    yield Finding(
        _ID, "info", line,
        f"{100 * share:.3g} % of the lanes of a block are masked off "
        f"({', '.join([*given, f'{block} = {named[block]:,}'])}; "
        f"line{'s' if len(lines) > 1 else ''} {', '.join(map(str, lines))}){narrow}",
        "loop over the row in smaller blocks, of which only the last one is masked",
        source, {"masked_share": share, "lines": ", ".join(map(str, lines))},
        unproven="the source would have to be changed by hand",
    )  # fmt: skip


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with smaller blocks, and for padded rows."""
    groups = _masked(facts)
    padded = {
        access_groups.author_name(facts, n): vectorization.padded(facts, number)
        for n, number in _odd(facts, groups).items()
    }
    tries = list(trials.run(facts, resized(facts, (0.5,))))
    if padded and (trial := trials.padded(facts, padded)) is not None:
        tries.append(trial)
    best = trials.fastest(tries)
    if best is None or not trials.faster(facts, best):
        return finding
    was, then = trials.predicted_us(facts) or 0.0, best.time_us or 0.0
    return replace(
        finding,
        severity="warning",
        message=f"{finding.message}: {was - then:.3g} of {was:.3g} µs are lost",
        advice=f"{best.words}; or {finding.advice}",
        proof=trials.proof(facts, best, {}, {}),
        unproven=None,
        saves=trials.saved_time(facts, best),
    )


def explains(cause: Finding, other: Finding) -> bool:
    """Whether another finding is about the same lines, and goes with them."""
    line = other.source.line if other.source is not None else None
    return (
        cause.proof is not None
        and other.id in _SAME_CAUSE
        and str(line) in str(cause.numbers["lines"]).split(", ")
    )


def _masked(facts: Facts) -> list[AccessGroup]:
    """Accesses whose mask depends on an argument, in a launch."""
    if facts.launched is None:
        return []
    return [
        group
        for group in access_groups.groups(facts)
        if (condition := group.members[0][0].condition) is not None and leaves(condition, "param")
    ]


def _lanes(facts: Facts, groups: list[AccessGroup]) -> tuple[int, int] | None:
    """Lanes that take part in the launch, and that would without a mask; None: not known."""
    taking = access_groups.total(group.threads for group in groups)
    launched = facts.launched
    if taking is None or launched is None:
        return None
    try:
        return taking, sum(launched.untrimmed(a) for group in groups for a, _ in group.members)
    except (UnknownValueError, TooLargeError):
        return None


def _odd(facts: Facts, groups: list[AccessGroup]) -> dict[str, int]:
    """Numbers that keep accesses narrow: lengths and strides, not pointers; by their PTX names."""
    pointers = {p.name for p in facts.function.parameters if p.pointer is not None}
    wrong = {
        name: number
        for group in groups
        if group.size < vectorization.WIDEST
        for name, number in vectorization.untrue(group, vectorization.missing(facts, group)).items()
    }
    return {name: number for name, number in wrong.items() if name not in pointers}


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove, explains=explains)
