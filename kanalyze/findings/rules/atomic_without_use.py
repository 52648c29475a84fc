"""An atomic returns a value that nobody uses, and orders memory that need not be ordered.

What it says
------------
An atomic operation (`atom`) with acquire semantics returns the old value, but nothing reads it: the
reduction `red` would do. Triton's tl.atomic_add and the like are acquire and release at once
(sem="acq_rel") unless told otherwise, and then cannot become `red`. Either way each of them is a
read-modify-write: L2 reads and writes the element, which counts as both.

Why it is slow
--------------
`atom` sends a value back that the warp has to take. Worse are the fences of acq_rel: before each
atomic, MEMBAR waits until all earlier stores of the thread are visible to the whole GPU, and behind
it, CCTL.IVALL throws away what L1 holds. `red` with relaxed semantics is sent and forgotten.

How it is detected
------------------
`atom` with .acquire or .acq_rel of which no instruction of the PTX reads the result. Relaxed ones
are left out: the assembler makes RED of them by itself. exch and cas have no `red`. For sums of
floating-point numbers it is a warning; integers may be flags or tickets by which blocks tell each
other that data is ready, which needs the order, so there it is an info.

How it is proven
----------------
The source is compiled again with sem="relaxed" in that call; `atom` and `red` of the PTX, and
fences (MEMBAR) and invalidations of L1 (CCTL.IVALL) of the machine code are shown for both. What is
lost: other threads may see the atomic before what this thread stored earlier, and later loads
may see older data. Kernels that only add up do not notice; the end of a kernel orders everything.

Example
-------
    tl.atomic_add(dst + i, x)                   # atom.acq_rel, MEMBAR, CCTL.IVALL

    tl.atomic_add(dst + i, x, sem="relaxed")    # red.relaxed

Source
------
PTX ISA 9.0, sections "Parallel Synchronization and Communication Instructions: atom", "... red"
(.sem of red: relaxed, release), "Memory Consistency Model". triton-lang/triton#4316;
stackav-oss/conch#42.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace

from kanalyze.errors import Unknown
from kanalyze.findings import source_edits, triton_ir
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.ptx import ir
from kanalyze.ptx.instructions import definitions, uses
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding, Proof

_ID = "atomic-without-use"

_ORDERING = {"acquire", "acq_rel"}
_OPERATIONS = {"add", "min", "max", "and", "or", "xor", "inc", "dec"}  # those that red has
_FLOATS = ("f16", "f16x2", "bf16", "bf16x2", "f32", "f64")
_CALLS = tuple(f"atomic_{name}" for name in ("add", "max", "min", "and", "or", "xor"))
_LOST = "other threads may then see it before this thread's earlier stores"


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Atomics with acquire semantics whose result is not read, by source line and operation."""
    atomics = [
        (value.instruction, row) for value, row in facts.accesses() if _may_be_red(value, row)
    ]
    if not atomics:
        return
    read: set[str] = set()
    for instruction in facts.function.instructions:
        read |= set(uses(instruction))
    groups: dict[tuple[object, ...], list[tuple[ir.Instruction, doc.Access]]] = defaultdict(list)
    for instruction, row in atomics:
        if not read & set(definitions(instruction)):
            place = (row.source.file, row.source.line) if row.source is not None else None
            groups[place, row.pointer, instruction.opcode].append((instruction, row))
    for group in groups.values():
        yield _finding(facts, group)


def _may_be_red(value: object, row: doc.Access) -> bool:
    parts = set(row.opcode.split("."))
    return row.kind == "atomic" and bool(parts & _ORDERING) and bool(parts & _OPERATIONS)


def _finding(facts: Facts, group: list[tuple[ir.Instruction, doc.Access]]) -> Finding:
    first, row = group[0]
    size = row.bytes_per_thread or 0
    through = f" through {row.pointer}" if row.pointer is not None else ""
    floats = bool(set(first.parts) & set(_FLOATS))
    requests = [r.requests for _, r in group]
    numbers = {"atom": len(group), "bytes": size}
    if None not in requests and requests:
        numbers["requests"] = sum(n or 0 for n in requests)
    line, source = facts.at(first)
    return Finding(
        _ID,
        "warning" if floats else "info",
        line,
        f"{len(group)} × {first.opcode}{through}, whose result is not used: red would do (each "
        f"reads and writes {size} B at L2)",
        f'sem="relaxed" (Triton), a relaxed atomicAdd or red (CUDA): {_LOST}'
        + ("" if floats else ", so not if it says that data is ready"),
        source,
        numbers,
        unproven=None if facts.compiled is not None else NO_SOURCE,
    )


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with sem="relaxed" in the calls of that line."""
    if facts.compiled is None:
        return finding
    places = [
        operation.inner
        for operation in triton_ir.operations(facts, "ttir", "tt.atomic_rmw")
        if operation.source == finding.source
    ]
    sources = (
        source_edits.with_keyword(facts, place, call, "sem", '"relaxed"')
        for place in places
        for call in _CALLS
    )
    source = next((text for text in sources if text is not None), None)
    if source is None:
        return replace(finding, unproven="the call was not found in the kernel's file")
    other = facts.recompiled(source=source)
    if isinstance(other, Unknown):
        return replace(finding, unproven=other.reason)
    before, after = _counts(facts), _counts(other)
    if all(after[name] >= number for name, number in before.items() if name != "red"):
        return None
    return replace(
        finding,
        proof=Proof("recompiled", 'sem="relaxed"', before, after),
    )


def _counts(facts: Facts) -> dict[str, float]:
    """``atom`` and ``red`` of the PTX; fences and invalidations of the machine code, if at hand."""
    bases = Counter(i.base for i in facts.function.instructions)
    counts: dict[str, float] = {"atom": bases["atom"], "red": bases["red"]}
    code = facts.code
    if not isinstance(code, Unknown):
        for function in code.module.functions:
            if function.name == facts.function.name:
                parts = Counter(i.parts[:2] for i in function.instructions)
                counts["MEMBAR"] = sum(n for (base, *_), n in parts.items() if base == "MEMBAR")
                counts["CCTL.IVALL"] = parts["CCTL", "IVALL"]
    return counts


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
