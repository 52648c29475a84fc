"""Registers run out, and values are kept in local memory (spilled).

What it says
------------
The assembler had more live values than registers and stores some of them to local memory, to load
them again later. The finding says how many bytes of a thread, how many of them in loops, what the
limit on registers is (255 of the architecture, maxnreg, or the threads of a block), and which
other compilation spills less.

Why it is slow
--------------
Local memory lies in device memory and is cached in L1 and L2. Each spilled register of a warp moves
128 bytes: it takes part of L1's bandwidth and capacity, and the load stands in front of what needs
the value. In a loop this is paid in every iteration. Stores outside of loops cost little.

How it is detected
------------------
`ptxas -v` reports bytes of spill stores and loads: those of the instructions in the code, not of
their executions. The local accesses of the machine code (STL, LDL) say in which loops and at which
source lines. A stack frame without spills is something else: see `stack-array`, `local-indexing`.
It is a warning where a launch is faster without, or where 16 bytes or more (a vector of four
registers) are spilled in a loop and another number of warps or registers avoids it; else an info.
64 bytes or less outside of loops are not reported.

How it is proven
----------------
The kernel is compiled again with more warps, without maxnreg, and with each tile halved until
nothing is spilled; spilled bytes and registers before and after are shown, and, for a launch, the
simulated time, by which the best is chosen. Where all of them spill, one that spills half as much
is shown. A change that spills less but is slower is not advised.

Example
-------
    kernel[grid](x, y, n, BLOCK=16384, num_warps=1)    # 512 elements a thread

    kernel[grid](x, y, n, BLOCK=16384, num_warps=4)    # 128 elements a thread

Measured on an H200 (`samples/h200`, matmul_relu, fp16, 8192 x 8192 x 8192, BLOCK_M=256): 7,848 us
with 4 warps, which spill, 1,888 us with 8.

Source
------
CUDA C++ Programming Guide 13.0, section "Device Memory Accesses", local memory; table "Technical
Specifications per Compute Capability" (255 registers per thread). CUDA Compiler Driver NVCC,
section "Printing Code Generation Statistics".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kanalyze.errors import Unknown
from kanalyze.findings import local_memory, trials
from kanalyze.findings.changes import Change, other_warps, resized
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding

_ID = "register-spill"

_MOST = 255  # registers of a thread, on every architecture since sm_35
_ONCE = 64  # bytes; up to eight registers saved and fetched once a thread are not worth a word
_SMALLER = (0.5, 0.25, 0.125)  # of a tile
_IN_LOOP = 16  # bytes; fewer than four registers an iteration hide behind other instructions


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Bytes that the assembler spills."""
    stores, loads = facts.resources.spill_store_bytes, facts.resources.spill_load_bytes
    if not stores and not loads:
        return
    in_code = local_memory.in_code(facts)
    known = not isinstance(in_code, Unknown)
    accesses = [] if isinstance(in_code, Unknown) else in_code
    looped = sum(a.bytes for a in accesses if a.loop_depth)
    if known and not looped and (stores or 0) + (loads or 0) <= _ONCE:
        return
    line, place = facts.place
    registers = facts.resources.registers or 0
    numbers = {"spill_store_bytes": stores, "spill_load_bytes": loads, "registers": registers}
    in_loops = f", {looped:,} B of them in loops" if looped else ", none of it in a loop"
    yield Finding(
        _ID,
        "warning" if looped >= _IN_LOOP else "info",
        line,
        f"registers spilled: {stores or 0:,} B stored and {loads or 0:,} B loaded by the code of "
        f"a thread{in_loops if known else ''} ({registers} registers{_limit(facts)})",
        "keep fewer values alive: unroll less (#pragma unroll), smaller arrays in a thread, or a "
        "higher limit on registers (__launch_bounds__, -maxrregcount)"
        if facts.of_nvcc
        else "keep fewer values alive: more warps for the same tile, a smaller tile, or a higher "
        "limit on registers",
        local_memory.hottest(accesses) or place,
        numbers | ({"in_loops_bytes": looped} if known else {}),
        saves=_moved(facts),
        unproven=None if facts.compiled is not None else NO_SOURCE,
    )


def _limit(facts: Facts) -> str:
    """What keeps the assembler from taking more registers, in words."""
    registers = facts.resources.registers or 0
    if registers >= _MOST:
        return ", the most that a thread can have"
    asked = facts.compiled.metadata.get("maxnreg") if facts.compiled is not None else None
    if asked is not None:
        return f", limited by maxnreg={asked}"
    if facts.function.directives.get("maxnreg"):
        return ", limited by .maxnreg"
    if facts.function.directives.get("minnctapersm"):
        return ", limited by .minnctapersm"
    warps = facts.warps
    most = 65536 // (32 * warps) // 8 * 8 if warps else _MOST
    return f", all that {32 * (warps or 0)} threads can have" if registers >= most else ""


def _moved(facts: Facts) -> dict[str, float]:
    """Bytes that the launch moves because of spills, where they are known."""
    if facts.traffic is None:
        return {}
    by_kind = facts.traffic.bytes_by_space.get("spill", {})
    amounts = list(by_kind.values())
    if not amounts or None in amounts:
        return {}
    return {"bytes": sum(n for n in amounts if n is not None)}


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with more warps, more registers, smaller tiles."""
    if facts.compiled is None:
        return finding
    best = _best(facts)
    if best is None:
        return replace(
            finding,
            severity="info",
            unproven="no change of num_warps, maxnreg or tiles that was tried spills less"
            + ("" if trials.predicted_us(facts) is None else " and is faster"),
            saves={},
        )
    gone = finding.saves if not _spilled(best.facts) else {}
    return replace(
        finding,
        severity=_severity(facts, finding, best),
        advice=f"{best.words} spills {_spilled(best.facts):,} B",
        proof=trials.proof(facts, best, _counts(facts), _counts(best.facts)),
        saves={**gone, **trials.saved_time(facts, best)},
    )


def _severity(facts: Facts, finding: Finding, best: trials.Trial) -> str:
    """Whether a smaller tile is faster, only a launch tells."""
    faster = trials.faster(facts, best)
    if faster is None and best.change.of_tiles:
        return "info"
    return "warning" if faster else finding.severity


def _best(facts: Facts) -> trials.Trial | None:
    """The fastest change that spills nothing, else one that spills half as much or less.

    Without a launch, the one with the least spills.
    """
    now = _spilled(facts)

    def nothing(then: Facts) -> bool:
        return not _spilled(then)

    def half(then: Facts) -> bool:
        return 2 * _spilled(then) <= now

    for changes, fits in (
        (_other_blocks(facts), nothing),
        (_smaller_tiles(facts), nothing),
        (_other_blocks(facts), half),
        (resized(facts, (0.5,)), half),
    ):
        tries = trials.run(facts, changes, fits)
        better = [t for t in tries if trials.faster(facts, t) is not False]
        if better:
            return min(better, key=lambda t: (t.time_us or 0.0, _spilled(t.facts)))
    return None


def _smaller_tiles(facts: Facts) -> Iterator[Change]:
    """Each tile halved until nothing is spilled."""
    done: set[str] = set()
    for change in resized(facts, _SMALLER):
        (name,) = change.changes["settings"]
        other = facts.recompiled(**change.changes) if name not in done else None
        if isinstance(other, Facts) and not _spilled(other):
            done.add(name)
            yield change


def _other_blocks(facts: Facts) -> Iterator[Change]:
    asked = facts.compiled.metadata.get("maxnreg") if facts.compiled is not None else None
    if asked is not None and asked < _MOST:
        yield Change("maxnreg left out", {"settings": {"maxnreg": _MOST}})
    yield from other_warps(facts, (2, 4))


def _spilled(facts: Facts) -> int:
    resources = facts.resources
    return (resources.spill_store_bytes or 0) + (resources.spill_load_bytes or 0)


def _counts(facts: Facts) -> dict[str, float]:
    return {"spill_bytes": _spilled(facts), "registers": facts.resources.registers or 0}


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
