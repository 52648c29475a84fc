"""The launch is not one that the kernel was compiled for: it fails, or reads the wrong places.

What it says
------------
One of three things: the launch does not start, as its block, its clusters, its shared memory or its
registers are more, or others, than the kernel was compiled for or the GPU has; an argument is not
divisible as the compiler was told; an address of a wide access is not a multiple of its size.

Why it is slow
--------------
It is not slow, it fails. A block of other extents than ``.reqntid`` is refused, as is one of more
threads than ``.maxntid``, or whose registers are more than an SM has: no number of such a launch is
shown. A misaligned address ends the kernel with an error that later calls
report ("misaligned address"). An argument that is not divisible as promised leads there, or to a
mask that lets wrong elements through.

How it is detected
------------------
The launch is set beside the directives of the PTX and the GPU's limits, its arguments beside what
the signature or the compiler's specialisation states of them, and the addresses of all lanes are
evaluated.

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

from collections.abc import Iterator

from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.frontend import launch_fit
from kanalyze.frontend.specialize import DIVISIBLE_BY_16
from kanalyze.launch.record import Launch
from kanalyze.results.kernel import Finding

_ID = "launch-mismatch"
_ADVICE = {
    "bloc": "such a block, or compile for another one (num_warps, __launch_bounds__)",
    "grid": "a grid of whole clusters, or compile without clusters",
    "clus": "such a cluster, or compile for another one",
    "shar": "ask for less dynamic shared memory, or smaller tiles",
}
_MISALIGNED = "misaligned"  # how the reason of an access begins


def check_launch(facts: Facts) -> Iterator[Finding]:
    """What of the launch contradicts the kernel."""
    if facts.launch is None:
        return
    yield from _refused(facts, facts.launch)
    yield from _arguments(facts, facts.launch)
    yield from _addresses(facts)


def _refused(facts: Facts, launch: Launch) -> Iterator[Finding]:
    line, source = facts.place
    resources = facts.resources
    for field, text in launch_fit.refusals(facts.function, launch, facts.device, resources):
        if field == "shared_bytes" and launch.shared_bytes in (None, resources.shared_bytes):
            continue  # `shared_memory_limit` says it
        message = f"the launch does not start: {field}: {text}"
        yield Finding(_ID, "error", line, message, _ADVICE[field[:4]], source)


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
