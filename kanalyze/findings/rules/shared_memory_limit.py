"""A block needs more shared memory than some GPUs, or this one, can give it.

What it says
------------
How many bytes of shared memory a block needs, static and dynamic, on which architectures that fits
and on which it does not, and how many num_stages would fit there. Where the GPU of the launch, or
the architecture that the kernel was compiled for, is too small, it is an error: the launch fails
("out of resource: shared memory"). For other architectures it is an info.

Why it is slow
--------------
It is not slow, it does not run: a block that does not fit cannot be launched. Configurations that
were tuned on a data-center GPU (227 KiB on sm_90 and sm_100) often do not run on the same
generation's workstation GPU (99 KiB on sm_86, sm_89 and sm_120).

How it is detected
------------------
The shared memory that the compiler reports is compared with each architecture's limit with opt-in
(without it, it is 48 KiB everywhere; Triton opts in by itself). Of a kernel with source, the
architectures that are supported are looked at; of PTX, those newer ones that it can be assembled
for. Where the size is chosen at launch (`.extern .shared` without metadata) it is unknown, and
nothing is said.

How it is proven
----------------
The kernel is compiled again for each architecture where it would not fit: its needs may differ
there, and what fits after all is left out. Then with fewer num_stages, until it fits.

Example
-------
    mm[grid](..., BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_stages=4)    # 147,456 B: not on sm_86

    mm[grid](..., BLOCK_M=128, BLOCK_N=256, BLOCK_K=64, num_stages=3)    # 98,304 B

Source
------
CUDA C++ Programming Guide 13.1, table "Technical Specifications per Compute Capability", "Maximum
amount of shared memory per thread block"; `kanalyze device` shows the table with its sources.
triton-lang/triton#8182, vllm-project/vllm#36802.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from kanalyze.devices.table import capabilities
from kanalyze.errors import Unknown
from kanalyze.findings.facts import NO_SOURCE, Facts
from kanalyze.findings.rule import Rule
from kanalyze.frontend.compile import ARCHS
from kanalyze.results.kernel import Finding, Proof

_ID = "shared-memory-limit"


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """The architectures that have less shared memory than a block needs."""
    needed = facts.resources.shared_bytes
    if not needed:
        return
    own = facts.device.capability.name if facts.device is not None else f"sm_{facts.capability}"
    limits = {name: known.shared_per_block_bytes for name, known in capabilities().items()}
    fits = {name: needed <= limit for name, limit in limits.items()}
    numbers = {"shared_bytes": needed, "fits": fits}
    line, source = facts.place
    if not fits.get(own, True):
        where = facts.device.name if facts.device is not None else own
        yield Finding(
            _ID,
            "error",
            line,
            f"a block needs {needed:,} B of shared memory, {where} has {limits[own]:,}: the launch "
            "fails (out of resource: shared memory)",
            "smaller tiles or fewer num_stages",
            source,
            {**numbers, "limit": limits[own]},
            unproven="it was compiled for another GPU",
        )
        return
    others = [name for name in _others(facts) if not fits[name]]
    if others:
        yield _elsewhere(facts, others, numbers, limits)


def _others(facts: Facts) -> list[str]:
    """The architectures on which the kernel could be wanted: any with source, else newer ones."""
    if facts.compiled is not None:
        return [name for name in ARCHS if name != f"sm_{facts.capability}"]
    target = facts.kernel.target or ""
    if target.endswith(("a", "f")):  # for one architecture, or its family: the same limits
        return []
    return [name for name in ARCHS if int(name[3:]) > (facts.capability or 0)]


def _elsewhere(
    facts: Facts, others: list[str], numbers: dict[str, object], limits: dict[str, int]
) -> Finding:
    needed = facts.resources.shared_bytes or 0
    listed = ", ".join(f"{name} ({limits[name]:,})" for name in others)
    line, source = facts.place
    return Finding(
        _ID,
        "info",
        line,
        f"a block needs {needed:,} B of shared memory: too much for {listed}",
        "for these, smaller tiles or fewer num_stages",
        source,
        {**numbers, "too_small": others},
        unproven=None if facts.compiled is not None else NO_SOURCE,
    )


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile for the architectures where it does not fit, with fewer stages until it does."""
    compiled = facts.compiled
    if compiled is None or finding.severity == "error":
        return finding
    failing: dict[str, int] = {}
    for name in finding.numbers["too_small"]:
        other = facts.recompiled(arch=name)
        if isinstance(other, Unknown):
            said = re.search(r"out of resource: shared memory: a block needs (\d+)", other.reason)
            if said is not None:
                failing[name] = int(said[1])
    if not failing:
        return None
    limits = {name: capabilities()[name].shared_per_block_bytes for name in failing}
    listed = ", ".join(f"{name} ({limits[name]:,})" for name in failing)
    needed = finding.numbers["shared_bytes"]
    hardest = max(failing, key=lambda name: failing[name] / limits[name])
    stages = int(compiled.metadata.get("num_stages", 1))
    finding = replace(
        finding,
        message=f"a block needs {needed:,} B of shared memory: too much for {listed}",
        numbers={**finding.numbers, "too_small": list(failing)},
    )
    for number in range(stages - 1, 0, -1):
        other = facts.recompiled(arch=hardest, settings={"num_stages": number})
        if not isinstance(other, Unknown):
            size = other.resources.shared_bytes or 0
            return replace(
                finding,
                advice=f"for {hardest}, num_stages={number} needs {size:,} B",
                proof=Proof(
                    "recompiled",
                    f"num_stages={number} for {hardest}",
                    {"num_stages": stages, "shared_bytes": failing[hardest]},
                    {"num_stages": number, "shared_bytes": size},
                ),
            )
    return replace(
        finding,
        advice="for these, smaller tiles",
        unproven=f"no num_stages below {stages} fits on {hardest}",
    )


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
