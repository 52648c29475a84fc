"""What makes accesses wider: facts on arguments, more elements per thread; tried by compiling."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from kanalyze.errors import Unknown
from kanalyze.findings import access_groups
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.facts import Facts
from kanalyze.models import coalescing
from kanalyze.results.kernel import Finding, Proof, Source

WIDEST = 16
"""Bytes of the widest access of a thread that every GPU has."""
DIVISIBLE, ONE = "divisible by 16", "equal to 1"
_MOST_CONSTEXPRS = 4  # that are tried as the size of the block
_LEAST_BLOCK = 32  # elements: smaller constexprs are no blocks of elements


# ---------------------------------------------------------------- facts on arguments


def missing(facts: Facts, group: AccessGroup) -> list[str]:
    """Parameters of address and mask that are not known to be divisible by 16."""
    every = [v for access, _ in group.members for v in (access.address, access.condition)]
    names = access_groups.arguments_in(facts, every)
    if facts.compiled is None:
        told = {n: a.facts for n, a in facts.arguments.items()}
        return [n for n in names if not any(f.startswith("divisible") for f in told.get(n, ()))]
    kinds = facts.compiled.signature
    return [
        n for n in names
        if (name := access_groups.author_name(facts, n)) in kinds
        and re.match(r"\*|[iu](8|16|32|64)", kinds[name])
        and DIVISIBLE not in facts.compiled.specialization.get(name, ())
    ]  # fmt: skip


def multiple(element: int) -> int:
    """Elements in 16 bytes: what strides and bounds must be multiples of for wide accesses."""
    return max(1, WIDEST // element)


def padded(facts: Facts, number: int) -> int:
    """The next number of elements with which rows begin at sectors and accesses can be wide.

    The same for all arrays of a kernel: by its smallest element; for Triton's launcher, which looks
    for multiples of 16, one of those.
    """
    smallest = min((g.element for g in access_groups.groups(facts)), default=1)
    each = max(coalescing.SECTOR // smallest, 16 if facts.of_triton else 1)
    return -(-number // each) * each


def untrue(group: AccessGroup, names: Sequence[str]) -> dict[str, int]:
    """Those of which the launch has numbers that are not multiples of 16 bytes, with these."""
    numbers, pointers = access_groups.values(group.facts), _pointers(group.facts)
    each = multiple(group.element)
    return {
        n: numbers[n]
        for n in names
        if n in numbers and numbers[n] % (WIDEST if n in pointers else each)
    }


def roles(group: AccessGroup, names: Sequence[str], only_mask: bool = False) -> str:
    """What of the access the arguments are, and that nothing is known of them."""
    facts = group.facts
    pointers = _pointers(facts)
    address = set() if only_mask else _in_address(group)
    mask = set(access_groups.arguments_in(facts, [a.condition for a, _ in group.members]))
    parts = []
    for what, some in (
        ("the pointer", [n for n in names if n in pointers]),
        ("in the address and in the mask", [n for n in names if n in (address & mask) - pointers]),
        ("in the address", [n for n in names if n in address - mask - pointers]),
        ("in the mask", [n for n in names if n not in address | pointers]),
    ):
        if some:
            parts.append(f"{_list(facts, some)} ({what})")
    return f"not known to be divisible by 16: {', '.join(parts)}"


def advice(group: AccessGroup, names: Sequence[str], hints: str = "") -> str:
    """What to do for facts on these parameters; with hints that were tried, and their lines."""
    facts = group.facts
    pointers, numbers = _pointers(facts), access_groups.values(facts)
    false = {n: v for n, v in untrue(group, names).items() if n not in pointers}
    told = [n for n in names if n not in false and n not in pointers]
    missed = {n: numbers[n] for n in told if n in numbers and numbers[n] % 16}
    parts = [_padding(group, false)] if false else []
    if missed:
        parts.append(_missed(group, missed, hints))
    elif told:
        parts.append(
            f"where {_list(facts, told)} is a multiple of 16, let the compiler know: no "
            f"do_not_specialize, :16 in a signature; or write {hints or _hints(group, told)}, "
            f"which is true for multiples of {multiple(group.element)}"
        )
    aligned = [n for n in names if n in pointers]
    if aligned:
        parts.append(
            f"pass {_list(facts, aligned)} aligned to 16 bytes (whole allocations are, views that "
            "begin inside one may not be); a signature says it with :16"
        )
    return "; ".join(parts)


def _padding(group: AccessGroup, false: Mapping[str, int]) -> str:
    facts, each = group.facts, multiple(group.element)
    numbers = " and ".join(
        f"{access_groups.author_name(facts, n)} = {v:,}" for n, v in false.items()
    )
    even = sorted({padded(facts, number) for number in false.values()})
    are_not = "is not a multiple" if len(false) == 1 else "are not multiples"
    return (
        f"{numbers} {are_not} of {each} (16 B): pad to "
        f"{', '.join(f'{n:,}' for n in even)} (rows, too, if it is their length); where only "
        "a mask ends there, do whole blocks without it and the last one with it"
    )


def _missed(group: AccessGroup, missed: Mapping[str, int], hints: str) -> str:
    """Numbers that are multiples of 16 bytes, and that Triton does not take for such."""
    facts = group.facts
    numbers = " and ".join(
        f"{access_groups.author_name(facts, n)} = {v:,}" for n, v in missed.items()
    )
    text = f"{numbers} {'is a multiple' if len(missed) == 1 else 'are multiples'}"
    text += f" of {multiple(group.element)} (16 B), which is enough"
    if not facts.of_triton:
        return f"{text}: access a type of 16 bytes"
    text += "; Triton's launcher only looks for multiples of 16"
    return f"{text}: write {hints or _hints(group, list(missed))}; nothing has to be padded"


def _hints(group: AccessGroup, names: Sequence[str]) -> str:
    """Which hints say that arguments are multiples of 16 bytes, where their lines are not known."""
    facts, each = group.facts, multiple(group.element)
    address = _in_address(group)
    mask = access_groups.arguments_in(facts, [a.condition for a, _ in group.members])
    parts = []
    if inside := [n for n in names if n in address]:
        parts.append(
            f"tl.multiple_of(…, {each}) around the product with {_list(facts, inside)} that goes "
            "into the address (on the argument itself it has no effect)"
        )
    if any(n in mask for n in names):
        parts.append(f"tl.max_constancy(…, {each}) around the mask")
    return " and ".join(parts)


def with_facts(facts: Facts, finding: Finding, group: AccessGroup) -> Finding | None:
    """Compiled with the facts that the finding misses; None where that makes nothing wider."""
    names = str(finding.numbers["missing"]).split(", ")
    one = finding.numbers.get("fact") == ONE
    wanted = dict.fromkeys(names, ONE if one else DIVISIBLE)
    if one:
        others = [access_groups.author_name(facts, n) for n in missing(facts, group)]
        wanted |= {n: DIVISIBLE for n in others if n not in wanted}
    best = recompiled(facts, group, {"facts": wanted})
    if best is None or best.size <= group.size:
        return None
    wanted = _fewest(facts, group, wanted, best)
    then = recompiled(facts, group, {"facts": wanted})
    assert then is not None
    change = " and ".join(
        f"{', '.join(some)} {fact}"
        for fact in (ONE, DIVISIBLE)
        if (some := [n for n, f in wanted.items() if f == fact])
    )
    by_name = {access_groups.author_name(facts, p.name): p.name for p in facts.function.parameters}
    false = untrue(group, [by_name[n] for n, fact in wanted.items() if fact == DIVISIBLE])
    numbers = {"missing": ", ".join(wanted), "possible_bytes_per_thread": then.size}
    return replace(
        finding,
        numbers={**finding.numbers, **numbers},
        proof=proof(group, then, change),
        saves={} if false else _saved(group, then),
    )


def _fewest(
    facts: Facts, group: AccessGroup, wanted: Mapping[str, str], best: AccessGroup
) -> dict[str, str]:
    """Those of the facts of which none can be left out for accesses as wide."""

    def enough(some: dict[str, str]) -> bool:
        then = recompiled(facts, group, {"facts": some})
        return then is not None and then.size >= best.size

    left = dict(wanted)
    for name in wanted:
        fewer = {n: f for n, f in left.items() if n != name}
        if fewer and enough(fewer):
            left = fewer
    return left


def _pointers(facts: Facts) -> set[str]:
    return {p.name for p in facts.function.parameters if p.pointer is not None}


def _in_address(group: AccessGroup) -> set[str]:
    return set(access_groups.arguments_in(group.facts, [a.address for a, _ in group.members]))


def _list(facts: Facts, names: Sequence[str]) -> str:
    return ", ".join(access_groups.author_name(facts, n) for n in names)


# ---------------------------------------------------------------- elements per thread


def with_more(facts: Facts, finding: Finding, group: AccessGroup) -> Finding | None:
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
    every = [(words, recompiled(facts, group, change)) for words, change in tried]
    wider = [(words, then) for words, then in every if then is not None and then.size > group.size]
    if not wider:
        return None
    words, then = max(wider, key=lambda pair: pair[1].size)
    outcomes = ", or ".join(f"{text} ({group_.size} B an access)" for text, group_ in wider)
    return replace(finding, advice=outcomes, proof=proof(group, then, words))


# ---------------------------------------------------------------- the same accesses, made otherwise


def recompiled(facts: Facts, group: AccessGroup, change: dict[str, Any]) -> AccessGroup | None:
    """The same accesses of the kernel compiled otherwise, as a group as wide as the narrowest."""
    other = facts.recompiled(**change)
    return None if isinstance(other, Unknown) else same_accesses(other, group)


def same_accesses(other: Facts, group: AccessGroup) -> AccessGroup | None:
    """The accesses of a group in another compilation."""
    stores = group.kind == "store"
    groups = [
        g for g in access_groups.groups(other)
        if g.pointer == group.pointer and (g.kind == "store") == stores
        and (group.first.source is None or _same_line(g.first.source, group.first.source))
    ]  # fmt: skip
    return access_groups.merged(groups) if groups else None


def _same_line(one: Source | None, other: Source) -> bool:
    """Whether a line is the same one; an edited source stands in a folder of its own."""
    if one is None or one.line != other.line:
        return False
    return PurePath(one.file).name == PurePath(other.file).name


def proof(group: AccessGroup, then: AccessGroup, change: str) -> Proof:
    """Accesses and their width, as they are and with the change."""
    noun = "stores" if group.kind == "store" else "loads"
    return Proof(
        "recompiled", change,
        {noun: len(group.members), "bytes each": group.size},
        {noun: len(then.members), "bytes each": then.size},
    )  # fmt: skip


def _saved(group: AccessGroup, then: AccessGroup) -> dict[str, float]:
    """Requests and sectors over the launch, where they are counted."""
    saved: dict[str, float] = {}
    for name, before, after in (
        ("requests", group.requests, then.requests), ("sectors", group.cost, then.cost),
    ):  # fmt: skip
        if before is not None and after is not None and before > after:
            saved[name] = before - after
    return saved
