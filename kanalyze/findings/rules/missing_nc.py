"""Read-only loads that stores may overtake, for lack of const __restrict__.

What it says
------------
A kernel of CUDA C++ loads through a pointer that nothing is stored through, and the loads are not
marked read-only (ld.global.nc), while something is stored through another pointer around them. For
all the compiler knows, the two arrays overlap.

Why it is slow
--------------
A load that a store may change must come after it: the loads of the next iteration cannot start
before the store of this one, nor can a value be kept instead of loaded again. On GPUs before Volta
the read-only path was a cache of its own; since then the gain is in the order alone, and is small.

How it is detected
------------------
PTX of nvcc, where the pointers of all stores are known, none is the pointer of these loads, and a
store stands in the same loop, or before them in the same block of the code. Whether the arrays
overlap in a launch is not looked at: only the author knows that they never do.

How it is proven
----------------
It is not: the promise that arrays do not overlap is the author's.

Example
-------
    __global__ void f(float* y, const float* x, int n)                            // ld.global

    __global__ void f(float* __restrict__ y, const float* __restrict__ x, int n)  // ld.global.nc

Source
------
CUDA C++ Programming Guide 13.1, section "__restrict__"; PTX ISA 9.0, section 9.7.9.9,
"ld.global.nc".
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding

_ID = "missing-nc"
_WRITES = ("store", "atomic", "reduction", "bulk_store")
_ORDERED = {"nc", "volatile", "relaxed", "acquire", "mmio"}
_PROMISE = "that arrays do not overlap is the author's to promise"


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Loads of read-only arrays that are not marked so, among stores to others."""
    if not facts.of_nvcc:
        return
    rows = [(access, row) for access, row in facts.accesses() if row.space in ("global", "generic")]
    writes = [(access, row) for access, row in rows if row.kind in _WRITES]
    called = any(i.base == "call" for i in facts.function.instructions)
    if called or not writes or any(row.pointer is None for _, row in writes):
        return
    written = {row.pointer for _, row in writes}
    loads: dict[str, list[doc.Access]] = {}
    for access, row in rows:
        plain = row.kind == "load" and row.space == "global" and _is_argument(facts, row)
        if not plain or row.pointer in written or _ORDERED & set(row.opcode.split(".")):
            continue
        if any(_held_up(facts, (access.block, row.line), (w.block, r.line)) for w, r in writes):
            loads.setdefault(row.pointer or "", []).append(row)
    for pointer, mine in loads.items():
        others = ", ".join(sorted(str(name) for name in written))
        yield Finding(
            _ID, "info", mine[0].line,
            f"{len(mine)} load{'s' if len(mine) > 1 else ''} through {pointer}, through which "
            f"nothing is stored, may not go before a store through {others}: the compiler must "
            "assume that they overlap",
            f"declare {pointer} const and __restrict__, if they never do (ld.global.nc); the gain "
            "is small unless loads wait for it",
            mine[0].source,
            {"pointer": pointer, "loads": len(mine), "stored_through": others},
            unproven=_PROMISE,
        )  # fmt: skip


def _is_argument(facts: Facts, row: doc.Access) -> bool:
    names = {p.name for p in facts.function.parameters}
    names |= {a.name for a in facts.arguments.values()}
    return row.pointer in names


def _held_up(facts: Facts, load: tuple[int, int], store: tuple[int, int]) -> bool:
    """Whether the load may have to wait for the store: in a loop with it, or after it."""
    around = [loop.body for loop in facts.description.cfg.loops]
    if any(load[0] in body and store[0] in body for body in around):
        return True
    return load[0] == store[0] and store[1] < load[1]


RULE = Rule(_ID, check_kernel=check_kernel)
