"""Loads and stores that do not say which memory they mean, though it is known.

What it says
------------
Accesses are generic (ld, st without a state space), and their address comes from an argument of the
kernel, which can only be global, or from a shared variable.

Why it is slow
--------------
The hardware finds out for each lane whether the address lies in the window of shared or of local
memory before it can go to global memory; the assembler must keep the access in order with those of
all spaces, and cannot make a read-only load of it. On recent GPUs that is a few cycles of latency.

How it is detected
------------------
The address is followed to what it starts from. An argument that the host passes cannot point to
shared or local memory, which exist while the kernel runs. It is a warning in a loop.

How it is proven
----------------
The PTX is assembled with the state space added, and the generic accesses of the machine code are
counted before and after.

Example
-------
    ld.f32 %f1, [%rd4];              // generic: LD.E

    cvta.to.global.u64 %rd4, %rd1;   // mended: LDG.E
    ld.global.f32 %f1, [%rd4];

Source
------
PTX ISA 9.0, section 6.4.1.1, "Generic Addressing"; CUDA C++ Programming Guide 13.1, "Address
Space Predicate Functions" (__isGlobal) and "__builtin_assume".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kanalyze.errors import Unknown
from kanalyze.findings import reassembly
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding, Proof
from kanalyze.symbolic.accesses import AccessValue

_ID = "generic-access"
_KINDS = ("load", "store", "atomic", "reduction")
_DEBUG = "this is a debug build: without nvcc -G the compiler finds it out by itself"
_NOUNS = {"load": "loads", "store": "stores", "atomic": "atomics", "reduction": "reductions"}


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Generic accesses of which the memory is known."""
    by_pointer: dict[tuple[str, str, str], list[tuple[AccessValue, doc.Access]]] = {}
    for access, row in _known(facts):
        space = _space(facts, row)
        if space is not None:
            by_pointer.setdefault((row.pointer or "", space, row.kind), []).append((access, row))
    debug = "debug" in facts.subject.module.target
    for (pointer, space, kind), members in by_pointer.items():
        line, source = facts.at(members[0][0].instruction)
        noun = _NOUNS[kind] if len(members) > 1 else _NOUNS[kind][:-1]
        why = (
            "an argument of a kernel can only be global" if space == "global"
            else "it is a shared variable"
        )  # fmt: skip
        yield Finding(
            _ID,
            "warning" if any(row.loop_depth for _, row in members) and not debug else "info",
            line,
            f"{len(members)} {noun} through {pointer} do{'es' if len(members) == 1 else ''} not "
            f"say which memory is meant (generic), and {why}",
            _DEBUG if debug else _advice(space, members[0][1].opcode),
            source,
            {"pointer": pointer, "accesses": len(members), "space": space, "kind": kind},
        )


def _known(facts: Facts) -> Iterator[tuple[AccessValue, doc.Access]]:
    for access, row in facts.accesses():
        if row.space == "generic" and row.kind in _KINDS and row.pointer and row.reason is None:
            yield access, row


def _space(facts: Facts, row: doc.Access) -> str | None:
    """The memory that an access can only mean; None where that is not known."""
    variable = facts.description.variables.get(row.pointer or "")
    if variable is not None:
        return variable.space if variable.space in ("shared", "global") else None
    for parameter in facts.function.parameters:
        argument = facts.arguments.get(parameter.name)
        if row.pointer in (parameter.name, argument.name if argument else None):
            return "global" if parameter.pointer in (None, "global", "generic") else None
    return None


def _advice(space: str, opcode: str) -> str:
    base, _, rest = opcode.partition(".")
    return (
        f"in PTX cvta.to.{space} and {base}.{space}.{rest}; in CUDA C++ let the compiler see where "
        f"the pointer comes from (a parameter of the kernel, not one that is stored in memory), or "
        f"say it: __builtin_assume(__is{space.capitalize()}(p))"
    )


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Assemble the PTX with the state space of global accesses added."""
    code = facts.code
    if isinstance(code, Unknown):
        return replace(finding, unproven=code.reason)
    before = reassembly.accesses_in(code, facts.function)
    generic = sum(n for (space, _), n in before.items() if space == "generic")
    if not generic:
        return None  # the assembler found out by itself
    if finding.numbers["space"] != "global":
        return replace(finding, unproven="the address must be converted, too")
    opcodes = {}
    for access, row in _known(facts):
        if row.pointer == finding.numbers["pointer"] and row.kind == finding.numbers["kind"]:
            base, _, rest = row.opcode.partition(".")
            opcodes[access.instruction.pos.line] = (row.opcode, f"{base}.global.{rest}")
    after = reassembly.accesses_assembled(facts, reassembly.with_opcodes(facts, opcodes))
    if isinstance(after, Unknown):
        return replace(finding, unproven=after.reason)
    left = sum(n for (space, _), n in after.items() if space == "generic")
    if left >= generic:
        return None
    proof = Proof(
        "recompiled", "the state space added",
        {"generic accesses in the machine code": generic},
        {"generic accesses in the machine code": left},
    )  # fmt: skip
    return replace(finding, proof=proof)


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
