"""A product runs on an older path of the tensor cores.

What it says
------------
The GPU has warp-group or block-wide tensor instructions (wgmma on sm_90, tcgen05.mma on sm_100 and
sm_103), but a `tl.dot` became mma.sync, the warp-wide instruction of sm_80. The finding says what
stood in the way: the number of warps, or a tile with too few rows.

Why it is slow
--------------
mma.sync was measured to reach 63 % of the dense peak of an H100: its operands pass through
registers, which costs ldmatrix instructions and registers, and each warp waits for its own. wgmma
and tcgen05.mma read shared memory themselves and run asynchronously.

How it is detected
------------------
The dots stand in Triton's TTIR with their extents and types. The tensor instructions of the PTX
that come from the same source line are counted: mma.sync with types that the newer unit has (fp16,
bf16, tf32, fp8, int8), for a target that has it. Triton takes wgmma where num_warps is a multiple
of 4 and the tile has 64 rows or more, tcgen05 with 4 or 8 warps and 64 rows or more. Of PTX alone
the instructions and the threads of a block are known, not the tile. fp32 dots with input_precision
"ieee" are FMA by choice: see `tf32-precision`.

How it is proven
----------------
The kernel is compiled again with other num_warps, and with the constexpr that is the number of rows
of the tile set to 64; the tensor instructions before and after are shown, and, for a launch, the
simulated time. Where no such change gives the newer instructions, or none is faster by 5 %, nothing
is reported.

Example
-------
    mm[grid](a, b, c, ..., BLOCK_M=128, BLOCK_N=128, num_warps=2)    # mma.sync on sm_90 and sm_100

    mm[grid](a, b, c, ..., BLOCK_M=128, BLOCK_N=128, num_warps=4)    # wgmma, tcgen05

Source
------
PTX ISA 9.0, sections "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions" (four
warps, M = 64) and "TensorCore 5th Generation Family Instructions". Triton 3.9,
AccelerateMatmul.cpp, `getMMAVersionSafe`; triton-lang/triton#5978. Luo et al., "Benchmarking and
Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024, section on tensor cores.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from kanalyze.findings import trials, triton_ir
from kanalyze.findings.changes import Change, constexprs_of, settings
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.tile_sizes import changes_grid
from kanalyze.ptx import ir
from kanalyze.results.kernel import Finding, Source

_ID = "tensor-core-fallback"

_UNITS = {90: "wgmma", 100: "tcgen05", 103: "tcgen05", 110: "tcgen05"}
_TYPES = {"f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8"}  # those of mma.sync that both have
_ROWS = 64  # the M of one wgmma or tcgen05.mma
_WARPS = {"wgmma": (4, 8, 16), "tcgen05": (4, 8)}


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Source lines whose dots became mma.sync where more was possible."""
    cores = facts.kernel.tensor_core
    unit = _UNITS.get(facts.capability or 0)
    if not cores.mma or unit is None:
        return
    by_line: dict[tuple[str, int] | None, list[ir.Instruction]] = defaultdict(list)
    for instruction in facts.function.instructions:
        if _is_older(instruction, facts.capability or 0):
            source = facts.at(instruction)[1]
            by_line[(source.file, source.line) if source else None].append(instruction)
    if facts.compiled is None:
        yield from _of_ptx(facts, unit, [i for group in by_line.values() for i in group])
    else:
        yield from _of_source(facts, unit, by_line)


def _is_older(instruction: ir.Instruction, capability: int) -> bool:
    """mma.sync of types that the newer unit has as well (sm_103 has no int8 there)."""
    if not instruction.opcode.startswith(("mma.sync", "wmma.mma")):
        return False
    types = set(instruction.parts) & _TYPES
    if capability == 103:
        types -= {"s8", "u8"}
    return bool(types) and not {"f64", "s4", "u4", "b1"} & set(instruction.parts)


def _of_source(
    facts: Facts, unit: str, by_line: dict[tuple[str, int] | None, list[ir.Instruction]]
) -> Iterator[Finding]:
    warps = facts.warps or 0
    for dot in _one_a_line(triton_ir.dots(facts)):
        source = dot.place.source
        group = by_line.get((source.file, source.line) if source else None, [])
        if not group or dot.batch > 1:  # of batched dots there is only the warp-wide form
            continue
        few, rows = warps not in _WARPS[unit], dot.m < _ROWS
        if not few and not rows:
            continue  # neither the warps nor the tile: the compiler does not say why
        why = [f"num_warps={warps}"] if few else []
        why += [f"a tile of {dot.m} rows"] if rows else []
        yield Finding(
            _ID,
            "info" if rows else "warning",
            group[0].pos.line,
            f"tl.dot of {dot.m}x{dot.n}x{dot.k} became {len(group)} mma.sync: no {unit} with "
            f"{' and '.join(why)}",
            _advice(facts, unit, few, dot.m),
            source,
            {"mma": len(group), "num_warps": warps, "m": dot.m, "n": dot.n, "k": dot.k},
        )


def _one_a_line(dots: list[triton_ir.Dot]) -> list[triton_ir.Dot]:
    """The smallest dot of each source line (several stand in one where a helper is inlined)."""
    lines: dict[Source | None, triton_ir.Dot] = {}
    for dot in dots:
        place = dot.place.source
        key = replace(place, column=0) if place is not None else None
        if key not in lines or dot.m < lines[key].m:
            lines[key] = dot
    return list(lines.values())


def _advice(facts: Facts, unit: str, few: bool, rows: int) -> str:
    parts = []
    if few:
        wanted = "a multiple of 4" if unit == "wgmma" else "4 or 8"
        parts.append(f"compile with num_warps {wanted}")
    if rows < _ROWS:
        names = _row_names(facts, rows)
        what = f" ({' or '.join(names)})" if names else ""
        parts.append(
            f"give the tile {_ROWS} rows or more{what} if the product has as many; "
            "with more columns than rows, compute the transposed product"
        )
    return " and ".join(parts)


def _row_names(facts: Facts, rows: int) -> list[str]:
    """Constexprs that may be the rows of the tile: with another value the grid is another one.

    The extent in K has the same value now and then, and leaves the grid as it is.
    """
    names = constexprs_of(facts, rows)
    sides = [name for name in names if changes_grid(facts, settings(**{name: _ROWS}))]
    return sides or names


def _of_ptx(facts: Facts, unit: str, group: list[ir.Instruction]) -> Iterator[Finding]:
    if not group:
        return
    warps = facts.warps
    fitting = _WARPS[unit]
    wanted = "num_warps a multiple of 4" if unit == "wgmma" else "4 or 8 warps"
    if warps is not None and warps not in fitting:
        why = f"the block has {warps} warps, and Triton makes {unit} only with {wanted}"
    elif warps is None:
        why = f"{unit} needs {wanted} and {_ROWS} rows of the tile; neither is known of this PTX"
    else:
        why = f"{warps} warps suffice for {unit}, so the tile may have fewer than {_ROWS} rows"
    line, source = facts.at(group[0])
    yield Finding(
        _ID,
        "info",
        line,
        f"{len(group)} mma.sync, the warp-wide path of sm_80, where {facts.kernel.target} has "
        f"{unit}: {why}",
        f"compile with {wanted} and tiles of {_ROWS} rows or more",
        source,
        {"mma": len(group), **({"num_warps": warps} if warps is not None else {})},
        unproven=NO_SOURCE,
    )


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with more warps and taller tiles; what gives the newer instructions and is faster."""
    if facts.compiled is None or "mma" not in finding.numbers:
        return finding
    unit = _UNITS[facts.capability or 0]
    newer = [t for t in trials.run(facts, _changes(finding, facts, unit)) if _better(facts, t)]
    quicker = [t for t in newer if trials.faster(facts, t) is not False]
    if not quicker:
        return None
    best = min(quicker, key=lambda t: (t.time_us or 0.0, t.facts.kernel.spill_store_bytes or 0))
    known = trials.faster(facts, best)
    return replace(
        finding,
        severity="warning" if known else finding.severity,
        advice=_told(finding, best),
        proof=trials.proof(facts, best, _counts(facts, unit), _counts(best.facts, unit)),
        saves=trials.saved_time(facts, best),
    )


def _told(finding: Finding, best: trials.Trial) -> str:
    """What gave the newer instructions, by name; of few rows, when that is not possible."""
    if finding.numbers["m"] >= _ROWS:
        return f"compile with {best.words}"
    return (
        f"give the tile {_ROWS} rows, with {best.words}, if the product has as many; with more "
        "columns than rows, compute the transposed product"
    )


def _changes(finding: Finding, facts: Facts, unit: str) -> list[Change]:
    warps, rows = finding.numbers["num_warps"], finding.numbers["m"]
    numbers = [warps] if warps in _WARPS[unit] else [4, 8]
    if rows >= _ROWS:
        return [settings(num_warps=n) for n in numbers]
    names = _row_names(facts, int(rows))
    return [
        settings(**{name: _ROWS}, **({} if n == warps else {"num_warps": n}))
        for name in names
        for n in numbers
    ]


def _better(facts: Facts, trial: trials.Trial) -> bool:
    """Whether the change replaces mma.sync by the newer unit."""
    before, after = facts.kernel.tensor_core, trial.facts.kernel.tensor_core
    newer = after.wgmma + after.tcgen05
    return after.mma < before.mma and newer > before.wgmma + before.tcgen05


def _counts(facts: Facts, unit: str) -> dict[str, float]:
    cores = facts.kernel.tensor_core
    return {
        "mma.sync": cores.mma,
        unit: cores.wgmma if unit == "wgmma" else cores.tcgen05,
        "registers": facts.kernel.registers_per_thread or 0,
        "spill_bytes": facts.kernel.spill_store_bytes or 0,
    }


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
