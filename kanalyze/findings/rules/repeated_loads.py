"""A block loads the same bytes again and again.

What it says
------------
The blocks of the launch ask for bytes that they had asked for before: a second pass over a row, an
operand that each iteration or each warp loads anew. The finding says how many times, how many bytes
go through L1 for it, which lines do it, and whether what a block reads could stay in L1.

Why it is slow
--------------
What L1 holds is cheap to load again, but not free: each load takes an instruction and the bandwidth
of L1. What it does not hold comes from L2, or from HBM again. Registers and shared memory hold what
the author puts there, L1 what happens to stay.

How it is detected
------------------
For a launch and each pointer: the sectors that the requests of loads would touch if their lanes lay
contiguously (so that what other findings say does not count here; nor do warps that Triton gives
the same elements), over the distinct sectors of each
block. From 1.5 times on they are loaded again. It is said where the repeated sectors are a tenth of
the sectors of the launch and either do not stay in L1, or L1, L2 or the load/store unit bound the
launch, or bytes are loaded four times and more and are half of all. It is a warning where one of
these units bounds the launch, or HBM does and reads them again, too.

How it is proven
----------------
By counting: the sectors of these loads, and each sector once per block.

Example
-------
    for start in range(0, N, BLOCK):                 # first pass: the sum
        total += tl.sum(tl.load(x_row + start + cols))
    for start in range(0, N, BLOCK):                 # second pass: the row is loaded again
        x = tl.load(x_row + start + cols)

    x = tl.load(x_row + tl.arange(0, N))             # mended: the row stays in registers

Source
------
CUDA C++ Best Practices Guide 13.1, section 10.2.3, "Shared Memory"; Nsight Compute,
l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum and l1tex__m_xbar2l1tex_read_sectors.sum.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kanalyze.findings import replicas
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.models.coalescing import SECTOR
from kanalyze.results.kernel import Finding, Proof
from kanalyze.results.traffic import AccessCounts, PointerBytes, Sharing

_ID = "repeated-loads"
_LOADS = ("load", "async_copy")
_AGAIN = 1.5  # times: below, neighbours that share a sector, and halos
_LEAST, _HALF = 0.1, 0.5  # of the sectors of the launch
_OFTEN = 4.0  # times
_MISSED = 1.3  # of what is read past a cache over what had to be: above, it did not hold it
_L1_BOUNDS = ("l1", "l2", "link", "lsu")


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Pointers behind which blocks load the same sectors several times."""
    traffic = facts.traffic
    if traffic is None:
        return
    loads = [a for a in traffic.accesses if a.space == "global" and a.unit == "sectors"]
    every = sum(a.cost or 0 for a in loads)
    for pointer in traffic.compulsory.pointers:
        mine = [a for a in loads if a.pointer == pointer.pointer and a.kind not in ("store",)]
        if pointer.read_sharing is None or any(a.kind not in _LOADS for a in mine):
            continue
        finding = _repeated(facts, pointer, pointer.read_sharing, mine, every)
        if finding is not None:
            yield finding


def _repeated(
    facts: Facts,
    pointer: PointerBytes,
    sharing: Sharing,
    loads: Sequence[AccessCounts],
    every: int,
) -> Finding | None:
    traffic = facts.traffic
    assert traffic is not None
    once = sharing.by_block_bytes // SECTOR
    asked = sum(a.ideal_cost or 0 for a in loads) // _replicas(facts, pointer.pointer)
    again = asked - once
    if not once or asked < _AGAIN * once or again < _LEAST * every:
        return None
    times = asked / once
    bound = traffic.time.bound_by in _L1_BOUNDS or _from_memory(facts)
    missed = _misses(facts)
    if not (bound or missed or (times >= _OFTEN and again >= _HALF * every)):
        return None
    lines = _lines(loads)
    first = max(loads, key=lambda a: a.ideal_cost or 0)
    each = sharing.by_block_bytes // max(1, sharing.blocks)
    room, fits = _room(facts, each)
    text = f"{times:.3g} times" if times < 10 else f"{times:,.0f} times"
    message = (
        f"each block loads what it reads through {pointer.pointer} {text} ({lines}): "
        f"{again * SECTOR:,} B through L1 more than once per block would take{room}"
    )
    passes = len({a.source.line for a in loads if a.source and a.requests}) > 1
    return Finding(
        _ID, "warning" if bound else "info", first.line, message, _advice(passes, first, fits),
        first.source,
        {"pointer": pointer.pointer, "times": times, "sectors": asked, "sectors_once": once,
         "bytes_per_block": each, "misses_l1": missed},
        Proof("counted", "each sector loaded once by a block", {"sectors": asked},
              {"sectors": once}),
        None, {"sectors": again, "l1_bytes": again * SECTOR},
    )  # fmt: skip


def _replicas(facts: Facts, pointer: str) -> int:
    """Warps on each element of what is loaded: Triton has it in all of them; narrow-access."""
    mine = [a for a, row in facts.accesses() if row.pointer == pointer and row.kind in _LOADS]
    return replicas.of_warps(facts, mine)


def _lines(loads: Sequence[AccessCounts]) -> str:
    """Where the loads stand: lines of the source, else of the PTX."""
    executed = [a for a in loads if a.requests]
    source = sorted({(a.source.file, a.source.line) for a in executed if a.source is not None})
    if source and len(source) <= 4:
        return f"line{'s' if len(source) > 1 else ''} {', '.join(str(n) for _, n in source)}"
    count = len(executed)
    return f"{count} load{'s' if count > 1 else ''} in the PTX"


def _advice(passes: bool, first: AccessCounts, fits: bool | None) -> str:
    if passes:
        text = "load it once, and keep it in registers (a larger tile) or in shared memory"
    elif first.loop_depth:
        text = (
            "load a tile into shared memory or registers once per block, and let all its threads "
            "and iterations use it"
        )
    else:
        text = "load it once per block, and share it through shared memory"
    if fits is False:
        text += "; where that is too much, make fewer passes, or smaller blocks of rows"
    return text


def _misses(facts: Facts) -> bool:
    """Whether more sectors miss L1 than blocks read distinct ones, by the estimate."""
    traffic = facts.traffic
    assert traffic is not None
    missed = traffic.counters.get("l1_miss_sectors")
    sharing = [p.read_sharing for p in traffic.compulsory.pointers if p.read_bytes]
    if missed is None or None in sharing:
        return False
    return missed * SECTOR > _MISSED * sum(s.by_block_bytes for s in sharing if s is not None)


def _from_memory(facts: Facts) -> bool:
    """Whether HBM bounds the launch, and reads much more than each byte once, by the estimate."""
    traffic = facts.traffic
    assert traffic is not None
    read, least = traffic.counters.get("dram_read_bytes"), traffic.compulsory.read_bytes
    known = read is not None and least is not None and traffic.time.bound_by == "hbm"
    return known and (read or 0) > _MISSED * (least or 0)


def _room(facts: Facts, each: int) -> tuple[str, bool | None]:
    """What the blocks of an SM read beside the L1 of it, where both are known."""
    traffic, device = facts.traffic, facts.device
    if traffic is None or device is None or traffic.occupancy is None:
        return "", None
    capacity = device.capability.l1_shared_bytes_per_sm
    if capacity is None:
        return "", None
    blocks = traffic.occupancy.blocks_per_sm
    most = capacity - blocks * (traffic.shared_bytes or 0)
    read = blocks * each
    verdict = "can" if read <= most else "cannot"
    return (
        f"; the {blocks} block{'s' if blocks > 1 else ''} of an SM read {read:,} B of it, which "
        f"{verdict} stay in L1 ({most:,} B at most)",
        read <= most,
    )


RULE = Rule(_ID, check_launch=check_launch)
