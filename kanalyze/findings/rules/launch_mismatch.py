"""The launch is not one that the kernel was compiled for: it fails, or reads the wrong places.

What it says
------------
One of three things: a block of the launch has other threads than the kernel was compiled for; an
argument is not divisible as the compiler was told; an address of a wide access is not a multiple of
its size.

Why it is slow
--------------
It is not slow, it fails. A block of other extents than ``.reqntid`` is refused, as is one of more
threads than ``.maxntid``. A misaligned address ends the kernel with an error that later calls
report ("misaligned address"). An argument that is not divisible as promised leads there, or to a
mask that lets wrong elements through.

How it is detected
------------------
The launch's block is set beside the directives of the PTX, its arguments beside what the signature
or the compiler's specialisation states of them, and the addresses of all lanes are evaluated.

How it is proven
----------------
By counting: the launch's arguments are put into the address of each lane.

Example
-------
    kernel compiled for x_ptr divisible by 16 (ld.global.v4), launched with x_ptr + 4 bytes

    kernel compiled without that promise (no :16 in the signature): four loads of 4 bytes

Source
------
PTX ISA 9.0, sections "Performance-Tuning Directives: .reqntid, .maxntid" and "Operands: alignment
of addresses"; CUDA Driver API, cuLaunchKernel, CUDA_ERROR_MISALIGNED_ADDRESS.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.frontend.specialize import DIVISIBLE_BY_16
from kanalyze.launch.record import Launch
from kanalyze.results.kernel import Finding

_ID = "launch-mismatch"
_MISALIGNED = "misaligned"  # how the reason of an access begins


def check_launch(facts: Facts) -> Iterator[Finding]:
    """What of the launch contradicts the kernel."""
    if facts.launch is None:
        return
    yield from _block(facts, facts.launch)
    yield from _arguments(facts, facts.launch)
    yield from _addresses(facts)


def _block(facts: Facts, launch: Launch) -> Iterator[Finding]:
    kernel = facts.kernel
    line, source = facts.place
    shown = " x ".join(map(str, launch.block))
    if kernel.reqntid is not None and tuple(kernel.reqntid) != tuple(launch.block):
        wanted = " x ".join(map(str, kernel.reqntid))
        yield Finding(
            _ID,
            "error",
            line,
            f"the launch has blocks of {shown} threads, the kernel is compiled for {wanted} "
            "(.reqntid): it does not start",
            f"launch blocks of {wanted}, or compile for {math.prod(launch.block) // 32} warps",
            source,
            {"threads": math.prod(launch.block), "compiled_for": math.prod(kernel.reqntid)},
        )
    if kernel.maxntid is not None and math.prod(launch.block) > math.prod(kernel.maxntid):
        most = math.prod(kernel.maxntid)
        yield Finding(
            _ID,
            "error",
            line,
            f"the launch has blocks of {shown} threads, the kernel is compiled for {most} at most "
            "(.maxntid): it does not start",
            "smaller blocks, or larger launch bounds",
            source,
            {"threads": math.prod(launch.block), "compiled_for": most},
        )


def _arguments(facts: Facts, launch: Launch) -> Iterator[Finding]:
    line, source = facts.place
    for parameter, given in zip(facts.function.parameters, launch.params, strict=False):
        argument = facts.arguments.get(parameter.name)
        promised = argument is not None and DIVISIBLE_BY_16 in argument.facts
        if argument is None or not promised or given.value is None or given.value % 16 == 0:
            continue
        shown = f"{given.value:#x}" if given.is_pointer else f"{given.value:,}"
        yield Finding(
            _ID,
            "error",
            line,
            f"{argument.name} = {shown} is not divisible by 16, as the kernel was compiled for",
            "leave out :16 in the signature, or pass such a value",
            source,
            {"remainder": given.value % 16},
        )


def _addresses(facts: Facts) -> Iterator[Finding]:
    if facts.traffic is None:
        return
    for row in facts.traffic.accesses:
        if row.reason is not None and row.reason.startswith(_MISALIGNED):
            through = f" through {row.pointer}" if row.pointer else ""
            yield Finding(
                _ID,
                "error",
                row.line,
                f"an address of {row.opcode}{through} is {row.reason}: the launch fails "
                "(misaligned address)",
                "pass pointers, strides and offsets that keep it aligned, or compile without the "
                "promise that they are",
                row.source,
                {"bytes": row.bytes_per_thread},
            )


RULE = Rule(_ID, check_launch=check_launch)
