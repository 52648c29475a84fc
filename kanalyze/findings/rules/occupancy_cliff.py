"""A few registers, or a little shared memory, cost a whole block on every SM.

What it says
------------
Blocks of this kernel need just more registers (up to 8 a thread) or just more shared memory (up to
a sixteenth) than would let one more of them live on an SM. The finding says how many fit now, how
many there would be, and whether the kernel compiled that way spills.

Why it is slow
--------------
Warps that wait for memory are hidden by other warps of the same SM. Where few are resident and the
kernel waits for latency, one more block is that much more to run in the meantime. Where bandwidth
or a pipe is the limit already, it changes nothing: then nothing is reported.

How it is detected
------------------
The occupancy formula is evaluated for the next smaller value of each resource (registers are given
out in steps of 8 a thread). It must gain a quarter more warps, where less than half of the warp
slots are taken: beyond that latency is mostly hidden. A launch must have enough blocks to use the
place.

How it is proven
----------------
The kernel is compiled again with maxnreg at the step (PTX alone: assembled again with .maxnreg), or
with fewer num_stages. Spills that this causes are shown. For a launch both are simulated: if it is
not 5 % faster, nothing is reported; without a launch it is an info, and nothing if it spills.

Example
-------
    kernel[grid](..., num_warps=8)                  # 136 registers: one block of 256 threads

    kernel[grid](..., num_warps=8, maxnreg=128)     # two

Source
------
NVIDIA cuda_occupancy.h, CUDA 13.0 (register and shared memory allocation units); CUDA C++ Best
Practices Guide, section "Occupancy". PTX ISA 9.0, "Performance-Tuning Directives: .maxnreg".
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kanalyze.errors import KanalyzeError, UsageError
from kanalyze.findings import trials
from kanalyze.findings.changes import Change, settings
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.models.occupancy import Cliff, Occupancy, occupancy
from kanalyze.results.kernel import Finding, Proof
from kanalyze.toolchain import ptxas

_ID = "occupancy-cliff"

_STEP = 8  # registers a thread: the unit in which a warp gets them
_A_LITTLE = 16  # of shared memory: a sixteenth of it
_LOW = 50.0  # percent of the warp slots; above, latency is mostly hidden (Best Practices Guide)
_GAIN = 1.25  # warps that must come of it


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Registers or shared memory just above what one more block would need."""
    now = _occupancy(facts)
    if now is None or now.percent >= _LOW or not _enough_blocks(facts, now):
        return
    for cliff in now.better:
        more = cliff.warps_per_sm / now.warps_per_sm if now.warps_per_sm else 0
        if more < _GAIN or not _near(cliff, now):
            continue
        what = (
            f"{now.registers} registers a thread"
            if cliff.resource == "registers"
            else f"{now.shared_bytes:,} B of shared memory a block"
        )
        blocks = _blocks(now.blocks_per_sm)
        yield Finding(
            _ID,
            "info",
            facts.place[0],
            f"{what} let {blocks} live on an SM, {cliff.value:,} would let {cliff.blocks_per_sm}: "
            f"{now.warps_per_sm} → {cliff.warps_per_sm} of {now.max_warps_per_sm} warps",
            f"maxnreg={cliff.value}"
            if cliff.resource == "registers"
            else f"{-cliff.change:,} B less: fewer num_stages, or a smaller tile",
            facts.place[1],
            {
                "resource": cliff.resource,
                "now": now.registers if cliff.resource == "registers" else now.shared_bytes,
                "then": cliff.value,
                "blocks_per_sm": now.blocks_per_sm,
                "blocks_per_sm_then": cliff.blocks_per_sm,
            },
        )


def _blocks(number: int) -> str:
    return f"{number} block{'' if number == 1 else 's'}"


def _occupancy(facts: Facts) -> Occupancy | None:
    """The kernel's occupancy; None where it is not known, or no block fits."""
    warps, registers = facts.warps, facts.resources.registers
    shared = facts.resources.shared_bytes
    if warps is None or not registers or shared is None:
        return None
    try:
        return occupancy(
            threads=32 * warps,
            registers=registers,
            shared_bytes=shared,
            device=facts.device,
            capability=None if facts.device is not None else f"sm_{facts.capability}",
        )
    except UsageError:
        return None


def _near(cliff: Cliff, now: Occupancy) -> bool:
    """Whether a cliff is a small step away."""
    if cliff.resource == "registers":
        return -cliff.change <= _STEP
    return cliff.resource == "shared memory" and -cliff.change * _A_LITTLE <= now.shared_bytes


def _enough_blocks(facts: Facts, now: Occupancy) -> bool:
    """Whether a launch has blocks for the place; without a launch it may."""
    device = facts.device
    if facts.launch is None or device is None or device.sms is None:
        return True
    return math.prod(facts.launch.grid) > device.sms * now.blocks_per_sm


# ---------------------------------------------------------------- proof


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with the smaller number of registers, or fewer stages."""
    if facts.compiled is None:
        return _assembled(facts, finding)
    changes, reaches = _changes(facts, finding), partial(_reaches, finding)
    better = list(trials.run(facts, changes, reaches))
    known = trials.predicted_us(facts) is not None
    if known:
        better = [t for t in better if trials.faster(facts, t)]
    elif finding.numbers["resource"] == "registers":
        better = [t for t in better if not _more_spills(facts, t.facts)]
    if not better:
        return None
    best = min(better, key=lambda t: t.time_us or 0.0)
    return replace(
        finding,
        severity="warning" if known else "info",
        advice=best.words,
        proof=trials.proof(facts, best, _counts(facts), _counts(best.facts)),
        saves=trials.saved_time(facts, best),
    )


def _changes(facts: Facts, finding: Finding) -> list[Change]:
    if finding.numbers["resource"] == "registers":
        return [settings(maxnreg=finding.numbers["then"])]
    stages = int((facts.compiled.metadata if facts.compiled else {}).get("num_stages", 1))
    return [settings(num_stages=n) for n in range(stages - 1, 0, -1)]


def _reaches(finding: Finding, other: Facts) -> bool:
    """Whether more blocks fit with the change."""
    then = _occupancy(other)
    return then is not None and then.blocks_per_sm > finding.numbers["blocks_per_sm"]


def _spilled(facts: Facts) -> int:
    resources = facts.resources
    return (resources.spill_store_bytes or 0) + (resources.spill_load_bytes or 0)


def _more_spills(facts: Facts, other: Facts) -> bool:
    return _spilled(other) > _spilled(facts)


def _counts(facts: Facts) -> dict[str, float]:
    now = _occupancy(facts)
    return {
        "registers": facts.resources.registers or 0,
        "shared_bytes": facts.resources.shared_bytes or 0,
        "spill_bytes": _spilled(facts),
        "blocks_per_sm": now.blocks_per_sm if now is not None else 0,
    }


def _assembled(facts: Facts, finding: Finding) -> Finding | None:
    """The PTX assembled again with ``.maxnreg``: nothing where it spills more."""
    then = finding.numbers["then"]
    text = _with_limit(facts, then) if finding.numbers["resource"] == "registers" else None
    if text is None:
        return replace(finding, unproven=NO_SOURCE)
    try:
        made_so = ptxas.assemble(text, of_triton=facts.subject.shared_bytes is not None)
        row = made_so.resources[facts.function.name]
    except (KanalyzeError, KeyError) as error:
        return replace(finding, unproven=f"ptxas does not take it with .maxnreg {then}: {error}")
    spilled = row.spill_store_bytes + row.spill_load_bytes
    if spilled > _spilled(facts) or row.registers > then:
        return None
    before = {"registers": facts.resources.registers or 0, "spill_bytes": _spilled(facts)}
    return replace(
        finding,
        advice=f".maxnreg {then} (maxnreg={then} in Triton, __launch_bounds__ in CUDA C++)",
        proof=Proof(
            "recompiled",
            f".maxnreg {then}",
            before,
            {"registers": row.registers, "spill_bytes": spilled},
        ),
    )


def _with_limit(facts: Facts, registers: int) -> str | None:
    """The text of the PTX with a limit on the kernel's registers; None where it has one."""
    module, function = facts.subject.module, facts.function
    if {"maxnreg", "minnctapersm"} & set(function.directives) or not module.text:
        return None
    lines = module.text.splitlines(keepends=True)
    before = "".join(lines[: function.pos.line - 1])
    rest = "".join(lines[function.pos.line - 1 :])
    opened = re.search(r"^\s*\{", rest, re.MULTILINE)
    if opened is None:
        return None
    return f"{before}{rest[: opened.start()]}\n.maxnreg {registers}\n{rest[opened.start() :]}"


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
