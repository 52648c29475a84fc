"""An array of a thread is indexed at run time, so it lies in local memory.

What it says
------------
A thread has an array that the assembler cannot keep in registers, because an index is not known
when it compiles. The finding says how large the array is, which access is indexed, and whether the
index is a loop counter (then unrolling makes it known) or comes from data. These are not spills,
though tools that look at the size of local memory call them so (Triton's n_spills).

Why it is slow
--------------
Registers have no addresses, so such an array lies in local memory: each access is a load or store
through L1 (128 bytes for 4 bytes of each thread of a warp) instead of a register's operand.

How it is detected
------------------
The PTX declares the array (`.local`, `__local_depot`), its ld.local or st.local have addresses that
are not constant, and the assembler reports a stack frame without spills for it. Arrays that it
keeps in registers after all are left out. It is a warning where the index follows loop counters
alone, and an info where it comes from data.

How it is proven
----------------
It is not: the source would have to be unrolled. The stack frame, and the accesses to local memory
that the machine code holds, are what would go away.

Example
-------
    float v[16];
    for (int k = 0; k < n; ++k) s += v[k];        // n not known: v lies in local memory

    #pragma unroll
    for (int k = 0; k < 16; ++k) s += v[k];       // v lies in registers

Source
------
CUDA C++ Programming Guide 13.0, section "Device Memory Accesses", local memory: "Arrays for which
it cannot determine that they are indexed with constant quantities". triton-lang/triton#1756.
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.errors import Unknown
from kanalyze.findings import local_memory
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding

_ID = "local-indexing"


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Local arrays that are in the stack frame because of an index."""
    stack, spills = facts.resources.stack_bytes, facts.resources.spill_store_bytes
    variables = local_memory.arrays(facts)
    if not stack or spills or not variables:
        return
    indexed = local_memory.indexed(facts)
    if not indexed:
        return
    by_loop = all(each.by_loop for each in indexed)
    code = local_memory.in_code(facts)
    if isinstance(code, Unknown):
        moved, numbers = "", {}
    elif not code:
        return  # the frame is there, but nothing uses it
    else:
        moved = f", {len(code)} local accesses in the machine code"
        numbers = {"local_accesses": len(code), "local_bytes": sum(a.bytes for a in code)}
    size = local_memory.size_of(variables)
    first = max(indexed, key=lambda each: facts.description.cfg.loop_depth[each.access.block])
    line, source = facts.at(first.access.instruction)
    why = "a loop counter" if by_loop else "a value known at run time only"
    yield Finding(
        _ID,
        "warning" if by_loop else "info",
        line,
        f"an array of {size:,} B is indexed by {why}, so it lies in local memory: stack of "
        f"{stack:,} B, no spills{moved}",
        "unroll the loop (#pragma unroll, a constant number of iterations), so that every index is "
        "a constant"
        if by_loop
        else "where the array is small, choose among its elements with conditions in an unrolled "
        "loop; else keep it in shared memory, one column for each thread",
        source,
        {"array_bytes": size, "stack_bytes": stack, "indexed": len(indexed), **numbers},
        unproven="the source would have to be changed by hand",
    )


RULE = Rule(_ID, check_kernel=check_kernel)
