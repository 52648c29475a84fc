"""What makes accesses wider: facts on arguments, more elements per thread; tried by compiling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kanalyze.findings import grouping
from kanalyze.findings.facts import Facts
from kanalyze.findings.grouping import Group
from kanalyze.report.document import Finding, Proof

WIDEST = 16
"""Bytes of the widest access of a thread that every GPU has."""
DIVISIBLE, ONE = "divisible by 16", "equal to 1"
_MOST_CONSTEXPRS = 4  # that are tried as the size of the block
_LEAST_BLOCK = 32  # elements: smaller constexprs are no blocks of elements


# ---------------------------------------------------------------- facts on arguments


def missing(facts: Facts, group: Group) -> list[str]:
    """Parameters of address and mask that are not known to be divisible by 16."""
    every = [v for access, _ in group.members for v in (access.address, access.condition)]
    names = grouping.arguments_in(facts, every)
    if facts.compiled is None:
        told = {n: a.facts for n, a in facts.arguments.items()}
        return [n for n in names if not any(f.startswith("divisible") for f in told.get(n, ()))]
    kinds = facts.compiled.signature
    return [
        n for n in names
        if (name := grouping.named(facts, n)) in kinds
        and re.match(r"\*|[iu](8|16|32|64)", kinds[name])
        and DIVISIBLE not in facts.compiled.specialization.get(name, ())
    ]  # fmt: skip


def untrue(facts: Facts, names: Sequence[str]) -> dict[str, int]:
    """Those that the numbers of the launch contradict, with their numbers."""
    numbers = grouping.values(facts)
    return {n: numbers[n] for n in names if n in numbers and numbers[n] % 16}


def roles(group: Group, names: Sequence[str]) -> str:
    """What of the access the arguments are, and that nothing is known of them."""
    facts = group.facts
    pointers = _pointers(facts)
    address = _in_address(group)
    parts = []
    for what, some in (
        ("the pointer", [n for n in names if n in pointers]),
        ("in the address", [n for n in names if n in address - pointers]),
        ("in the mask", [n for n in names if n not in address]),
    ):
        if some:
            parts.append(f"{_list(facts, some)} ({what})")
    return f"not known to be divisible by 16: {', '.join(parts)}"


def advice(facts: Facts, names: Sequence[str]) -> str:
    """What to do for facts on these parameters."""
    pointers = _pointers(facts)
    false = {n: v for n, v in untrue(facts, names).items() if n not in pointers}
    parts = []
    if false:
        numbers = " and ".join(f"{grouping.named(facts, n)} = {v:,}" for n, v in false.items())
        even = sorted({-(-number // 16) * 16 for number in false.values()})
        parts.append(
            f"{numbers} {'is' if len(false) == 1 else 'are'} no multiple of 16: pad to "
            f"{', '.join(f'{n:,}' for n in even)} (rows, too, if it is their length); where only "
            "a mask ends there, do whole blocks without it and the last one with it"
        )
    told = [n for n in names if n not in false and n not in pointers]
    if told:
        parts.append(
            f"where {_list(facts, told)} is a multiple of 16, let the compiler know: no "
            "do_not_specialize, :16 in a signature, or tl.multiple_of in the kernel"
        )
    aligned = [n for n in names if n in pointers]
    if aligned:
        parts.append(
            f"pass {_list(facts, aligned)} aligned to 16 bytes (whole allocations are, views that "
            "begin inside one may not be); a signature says it with :16"
        )
    return "; ".join(parts)


def with_facts(facts: Facts, finding: Finding, group: Group) -> Finding | None:
    """Compiled with the facts that the finding misses; None where that makes nothing wider."""
    names = str(finding.numbers["missing"]).split(", ")
    one = finding.numbers.get("fact") == ONE
    wanted = dict.fromkeys(names, ONE if one else DIVISIBLE)
    if one:
        others = [grouping.named(facts, n) for n in missing(facts, group)]
        wanted |= {n: DIVISIBLE for n in others if n not in wanted}
    best = made(facts, group, {"facts": wanted})
    if best is None or best.size <= group.size:
        return None
    wanted = _fewest(facts, group, wanted, best)
    then = made(facts, group, {"facts": wanted})
    assert then is not None
    change = " and ".join(
        f"{', '.join(some)} {fact}"
        for fact in (ONE, DIVISIBLE)
        if (some := [n for n, f in wanted.items() if f == fact])
    )
    by_name = {grouping.named(facts, p.name): p.name for p in facts.function.parameters}
    false = untrue(facts, [by_name[n] for n, fact in wanted.items() if fact == DIVISIBLE])
    numbers = {"missing": ", ".join(wanted), "possible_bytes_per_thread": then.size}
    return replace(
        finding,
        numbers={**finding.numbers, **numbers},
        proof=_proof(group, then, change),
        saves={} if false else _saved(group, then),
    )


def _fewest(facts: Facts, group: Group, wanted: Mapping[str, str], best: Group) -> dict[str, str]:
    """Those of the facts of which none can be left out for accesses as wide."""

    def enough(some: dict[str, str]) -> bool:
        then = made(facts, group, {"facts": some})
        return then is not None and then.size >= best.size

    left = dict(wanted)
    for name in wanted:
        fewer = {n: f for n, f in left.items() if n != name}
        if fewer and enough(fewer):
            left = fewer
    return left


def _pointers(facts: Facts) -> set[str]:
    return {p.name for p in facts.function.parameters if p.pointer is not None}


def _in_address(group: Group) -> set[str]:
    return set(grouping.arguments_in(group.facts, [a.address for a, _ in group.members]))


def _list(facts: Facts, names: Sequence[str]) -> str:
    return ", ".join(grouping.named(facts, n) for n in names)


# ---------------------------------------------------------------- elements per thread


def with_more(facts: Facts, finding: Finding, group: Group) -> Finding | None:
    """Compiled with a larger block, or with fewer warps; None where neither makes it wider."""
    compiled = facts.compiled
    assert compiled is not None
    times = WIDEST // group.size
    warps = int(compiled.metadata.get("num_warps", 4))
    blocks = [
        (name, value) for name, value in compiled.constexprs.items()
        if type(value) is int and value >= _LEAST_BLOCK and value & (value - 1) == 0
    ]  # fmt: skip
    tried: list[tuple[str, dict[str, Any]]] = [
        (f"{name}={value * times}", {"settings": {name: value * times}})
        for name, value in blocks[:_MOST_CONSTEXPRS]
    ]
    if warps > 1:
        fewer = max(1, warps // times)
        tried.append((f"num_warps={fewer}", {"num_warps": fewer}))
    every = [(words, made(facts, group, change)) for words, change in tried]
    wider = [(words, then) for words, then in every if then is not None and then.size > group.size]
    if not wider:
        return None
    words, then = max(wider, key=lambda pair: pair[1].size)
    outcomes = ", or ".join(f"{text} ({group_.size} B an access)" for text, group_ in wider)
    return replace(finding, advice=outcomes, proof=_proof(group, then, words))


# ---------------------------------------------------------------- the same accesses, made otherwise


def made(facts: Facts, group: Group, change: dict[str, Any]) -> Group | None:
    """The same accesses of the kernel compiled otherwise, as a group as wide as the narrowest."""
    other = facts.again(**change)
    return None if isinstance(other, str) else same(other, group)


def same(other: Facts, group: Group) -> Group | None:
    """The accesses of a group in another compilation."""
    stores = group.kind == "store"
    found = [
        g for g in grouping.groups(other)
        if g.pointer == group.pointer and (g.kind == "store") == stores
        and (group.first.source is None or g.at(group.first.source))
    ]  # fmt: skip
    return grouping.together(found) if found else None


def _proof(group: Group, then: Group, change: str) -> Proof:
    noun = "stores" if group.kind == "store" else "loads"
    return Proof(
        "recompiled", change,
        {noun: len(group.members), "bytes each": group.size},
        {noun: len(then.members), "bytes each": then.size},
    )  # fmt: skip


def _saved(group: Group, then: Group) -> dict[str, float]:
    """Requests and sectors over the launch, where they are counted."""
    saved: dict[str, float] = {}
    for name, before, after in (
        ("requests", group.requests, then.requests), ("sectors", group.cost, then.cost),
    ):  # fmt: skip
        if before is not None and after is not None and before > after:
            saved[name] = before - after
    return saved
