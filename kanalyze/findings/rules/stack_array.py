"""A stack frame without spills: arrays whose address is taken, or calls.

What it says
------------
A thread has a stack frame, but nothing is spilled: the assembler reports 0 bytes of spill stores
and loads. The finding says what the stack is for: calls of device functions that were not inlined,
or arrays whose address is passed on. (Arrays that are indexed at run time: see `local-indexing`.)

Why it is slow
--------------
What lies in the stack frame is read and written through L1. Calls also keep the assembler from
scheduling across them, and save registers. Whether it matters depends on how often that code runs,
so this is never a warning: it tells such kernels from those that spill. Triton's n_spills is the
size of local memory over four and counts a stack frame as spills.

How it is detected
------------------
`ptxas -v` says "256 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads". The PTX says
whether there are calls and local variables.

How it is proven
----------------
It is not: it takes another source. The numbers are the assembler's.

Example
-------
    __device__ __noinline__ float poly(float x, int n);    // a call: stack

    __device__ __forceinline__ float poly(float x, int n);

Source
------
CUDA Compiler Driver NVCC, section "Printing Code Generation Statistics": "stack frame is per
thread stack usage used by this function". triton-lang/triton#1756.
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings import local_memory
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.ptx import ir
from kanalyze.results.kernel import Finding

_ID = "stack-array"


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Stack frames that hold neither spills nor arrays indexed at run time."""
    stack = facts.resources.stack_bytes
    spills = facts.resources.spill_store_bytes, facts.resources.spill_load_bytes
    if not stack or None in spills or any(spills):
        return
    variables = local_memory.arrays(facts)
    if variables and local_memory.indexed(facts):
        return
    calls = [i for i in facts.function.instructions if i.base == "call"]
    line, source = facts.place
    if calls:
        names = sorted({name for i in calls for name in _called(facts, i)})
        what = f"{len(calls)} calls" if len(calls) > 1 else "a call"
        why = f"for {what}" + (f" of {', '.join(names[:3])}" if names else "")
        advice = (
            "inline the function (__forceinline__, tl.jit without noinline) if it is hot"
            if any(name in _bodies(facts) for name in names)
            else "printf and assert need it; leave them out where the time counts"
        )
        line, source = facts.at(calls[0])
    elif variables:
        why = f"for arrays of {local_memory.size_of(variables):,} B whose address is taken"
        advice = "pass elements by value, so that the array can be kept in registers"
    else:
        why = "which the PTX does not ask for: the assembler's own code needs it"
        advice = "nothing to change in the source is known"
    yield Finding(
        _ID,
        "info",
        line,
        f"stack of {stack:,} B a thread without spills, {why}",
        advice,
        source,
        {"stack_bytes": stack, "spill_store_bytes": 0, "spill_load_bytes": 0, "calls": len(calls)},
        unproven="the source would have to be changed by hand",
    )


def _bodies(facts: Facts) -> set[str]:
    return {f.name for f in facts.subject.module.functions if f.body is not None}


def _called(facts: Facts, instruction: ir.Instruction) -> list[str]:
    known = {f.name for f in facts.subject.module.functions}
    return [o.text for o in instruction.operands if isinstance(o, ir.Name) and o.text in known]


RULE = Rule(_ID, check_kernel=check_kernel)
