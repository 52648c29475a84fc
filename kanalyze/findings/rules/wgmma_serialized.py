"""wgmma instructions wait for each other, because the assembler could not overlap them.

What it says
------------
The kernel uses wgmma, the asynchronous tensor instructions of sm_90, but the assembler puts a wait
behind each of them. The finding gives the assembler's reason: too few registers for the
accumulators, other instructions that write to accumulators while products run, or calls.

Why it is slow
--------------
wgmma is asynchronous so that the next one is issued while one runs. With a wait after each, the
tensor cores are idle while a result comes back and the next instruction is set up.

How it is detected
------------------
ptxas says so: "(C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due
to ..." (C7510 to C7516, by reason), as an info of `-v`. Of machine code that was given, of which
nobody can ask ptxas, the finding rests on the code: every HGMMA of a loop is followed by
WARPGROUP.DEPBAR.LE gsb0, 0x0 before the next one. Waits that ptxas only inserts at one place
("wgmma.wait_group is injected", C7517) are an info.

How it is proven
----------------
The kernel is compiled again with twice as many warps and with half of each extent of the tile. What
ptxas no longer complains about is shown, with HGMMA that are waited for one by one, registers and
spills before and after and, for a launch, the simulated times. Where none is faster in a launch, it
is an info.

Example
-------
    mm[grid](..., BLOCK_M=128, BLOCK_N=256, num_warps=4)    # 256 accumulators in each thread

    mm[grid](..., BLOCK_M=128, BLOCK_N=256, num_warps=8)    # 128

Measured on an H200 (`samples/h200`, matmul_relu, fp16, 8192 x 8192 x 8192): 12,103 and 1,495 us;
the first spills registers, too. It need not help everywhere: attention with BLOCK_KV=128 is
serialized with 4 warps (749 us) and not with 8 (882 us), which do more of other things.

Source
------
PTX ISA 9.0, section "Asynchronous Warpgroup Level Matrix Instructions". NVIDIA/cutlass#1840;
NVIDIA/TensorRT-LLM#2116.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kanalyze.errors import Unknown
from kanalyze.findings import trials
from kanalyze.findings.changes import other_warps, resized
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding, Source
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass.ir import SassImmediate, SassInstruction

_ID = "wgmma-serialized"

_HALVED = 128  # extents of a tile from which half of it fills wgmma (64 rows)

_SERIALIZED = re.compile(r"wgmma\S*(?: instructions)? are serialized(?: due to (?P<why>.+))?")
_INJECTED = re.compile(r"(?:wgmma\.wait_group|warpgroup\.wait) is injected in around line (\d+)")
_ADVICE = (
    ("register", "give each thread fewer accumulators: more warps, or a smaller tile"),
    ("accumulator", "write to the accumulators only before the first and after the wait for the "
                    "last product: scale or add outside of them, or into other registers"),
    ("call", "inline the functions that are called between the products"),
    ("function", "inline the functions that are called between the products"),
)  # fmt: skip


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """What ptxas says of wgmma, or what the machine code shows."""
    if not facts.kernel.tensor_core.wgmma:
        return
    remarks = facts.resources.remarks
    said = next((match for r in remarks if (match := _SERIALIZED.search(r)) is not None), None)
    if said is not None:
        yield _serialized(facts, said)
    elif facts.subject.given:
        yield from _in_code(facts)
    else:
        yield from _injected(facts, remarks)


def _serialized(facts: Facts, said: re.Match[str]) -> Finding:
    why = re.sub(
        r"\s*in (?:the )?function '[^']*'.*", "", said["why"] or "a reason it does not say"
    )
    at = re.search(r"in line (\d+)", said["why"] or "")
    line, source = _place(facts, int(at[1]) if at else 0)
    waited, of = _waited(facts)
    seen = f": {waited} of {of} HGMMA are waited for one by one" if of else ""
    return Finding(
        _ID,
        "warning",
        line,
        f"the assembler serializes wgmma for {why}{seen}",
        next((text for word, text in _ADVICE if word in why), "see what stands between them"),
        source,
        {"wgmma": facts.kernel.tensor_core.wgmma, "waited": waited, "hgmma": of, "reason": why},
        unproven=None if facts.compiled is not None else NO_SOURCE,
    )


def _in_code(facts: Facts) -> Iterator[Finding]:
    waited, of = _waited(facts)
    if of < 2 or waited < of:
        return
    line, source = _place(facts, 0)
    yield Finding(
        _ID,
        "warning",
        line,
        f"all {of} HGMMA in loops of the machine code are waited for one by one",
        "ptxas says why when it assembles the PTX (ptxas -v)",
        source,
        {"wgmma": facts.kernel.tensor_core.wgmma, "waited": waited, "hgmma": of},
        unproven="it is machine code",
    )


def _injected(facts: Facts, remarks: tuple[str, ...]) -> Iterator[Finding]:
    lines = [int(match[1]) for r in remarks if (match := _INJECTED.search(r)) is not None]
    if not lines:
        return
    line, source = _place(facts, lines[0])
    what = "a wait" if len(lines) == 1 else f"{len(lines)} waits"
    yield Finding(
        _ID,
        "info",
        line,
        f"the assembler puts {what} for wgmma where other instructions use their registers "
        f"(line {', '.join(map(str, lines))} of the PTX)",
        _ADVICE[1][1],
        source,
        {"wgmma": facts.kernel.tensor_core.wgmma, "waits": len(lines)},
        unproven="the source would have to be changed by hand",
    )


def _place(facts: Facts, line: int) -> tuple[int, Source | None]:
    """Where an instruction of a line of the PTX stands; the first wgmma where there is none."""
    at_line = [i for i in facts.function.instructions if i.pos.line == line and i.loc is not None]
    first = (i for i in facts.function.instructions if i.opcode.startswith("wgmma.mma_async"))
    chosen = at_line[0] if at_line and facts.at(at_line[0])[1] is not None else next(first)
    return facts.at(chosen)


def _waited(facts: Facts) -> tuple[int, int]:
    """HGMMA in loops with a wait for all behind them, before the next one, and all in loops."""
    code = facts.code
    if isinstance(code, Unknown):
        return 0, 0
    function = next((f for f in code.module.functions if f.name == facts.function.name), None)
    if function is None:
        return 0, 0
    graph = sass_cfg.build(function)
    waited = of = 0
    for block in graph.blocks:
        if not graph.loop_depth[block.index]:
            continue
        pending = False
        for instruction in block.instructions:
            if instruction.base == "HGMMA":
                of += 1
                pending = True
            elif pending and _waits_for_all(instruction):
                waited += 1
                pending = False
    return waited, of


def _waits_for_all(instruction: SassInstruction) -> bool:
    if instruction.parts[:2] != ("WARPGROUP", "DEPBAR"):
        return False
    last = instruction.operands[-1] if instruction.operands else None
    return isinstance(last, SassImmediate) and last.value == 0


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with more warps, then with smaller tiles, until ptxas overlaps them."""
    if facts.compiled is None or finding.severity != "warning":
        return finding
    overlapped: list[trials.Trial] = []
    for changes in (other_warps(facts, (2,)), resized(facts, (0.5,), _HALVED)):
        overlapped = [
            t for t in trials.run(facts, changes, _overlaps) if trials.faster(facts, t) is not False
        ]
        if overlapped:
            break
    if not overlapped:
        faster = " and is faster" if trials.predicted_us(facts) is not None else ""
        return replace(
            finding,
            severity="info" if faster else finding.severity,
            unproven=f"no change of num_warps or tiles that was tried overlaps them{faster}",
        )
    best = min(overlapped, key=lambda t: t.time_us or 0.0)
    return replace(
        finding,
        advice=f"{finding.advice}: {best.words}",
        proof=trials.proof(facts, best, _counts(facts), _counts(best.facts)),
        saves=trials.saved_time(facts, best),
    )


def _overlaps(facts: Facts) -> bool:
    said = any(_SERIALIZED.search(remark) for remark in facts.resources.remarks)
    return facts.kernel.tensor_core.wgmma > 0 and not said


def _counts(facts: Facts) -> dict[str, float]:
    resources = facts.resources
    return {
        "waited": _waited(facts)[0],
        "registers": resources.registers or 0,
        "spill_bytes": (resources.spill_store_bytes or 0) + (resources.spill_load_bytes or 0),
    }


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
