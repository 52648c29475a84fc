"""A product of fp32 is computed more exactly, and more slowly, than tf32 would.

What it says
------------
A `tl.dot` of fp32 operands is compiled with input_precision "ieee" (FMA, no tensor core) or in
several passes ("tf32x3", "bf16x3", "bf16x6"). The finding says what it costs and what tf32 would
cost; which of them is right depends on the exactness that is needed, so it is never a warning.

Why it is slow
--------------
The tensor cores of sm_80 and later have no fp32 inputs: they read 19 bits of each operand (tf32: 8
of exponent, 10 of mantissa). Exact products run as FMA, on an H100 at 67 instead of 495 TFLOP/s;
tf32x3 computes three products in place of one, after splitting the operands.

How it is detected
------------------
Triton's TTIR says the operands' types and the input precision of each dot.

How it is proven
----------------
The source is compiled again with input_precision="tf32" in that call; instructions, registers,
spills and, for a launch, the simulated times are shown. If tf32 is not faster by 5 %, nothing is
reported.

Example
-------
    acc = tl.dot(a, b, acc, input_precision="ieee")    # fma

    acc = tl.dot(a, b, acc, input_precision="tf32")    # mma, wgmma: the default of tl.dot

Source
------
Triton, `triton.language.dot`, argument input_precision. NVIDIA H100 Tensor Core GPU Architecture,
table "H100 SXM5 Performance" (fp32 67, tf32 494.7 TFLOP/s dense). PTX ISA 9.0, section "Alternate
Floating-Point Data Formats", .tf32: "8-bit exponent and 10-bit mantissa".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from kanalyze.findings import trials, triton_ir
from kanalyze.findings.changes import Change
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.findings.source_edits import with_keyword
from kanalyze.results.kernel import Finding

_ID = "tf32-precision"

_PASSES = {"ieee": "on FMA", "tf32x3": "in three passes", "bf16x3": "in three passes of bf16",
           "bf16x6": "in six passes of bf16"}  # fmt: skip


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """fp32 dots with a precision above tf32, one finding for each source line."""
    seen = set()
    for dot in triton_ir.dots(facts):
        place = dot.place.source
        if dot.a_type != "f32" or dot.precision not in _PASSES or (place, dot.precision) in seen:
            continue
        seen.add((place, dot.precision))
        yield Finding(
            _ID,
            "info",
            facts.place[0],
            f'tl.dot of {dot.m}x{dot.n}x{dot.k} in fp32 with input_precision="{dot.precision}" '
            f"runs {_PASSES[dot.precision]}",
            'input_precision="tf32" uses the tensor cores once, if operands with 10 bits of '
            "mantissa will do: each is then off by up to 2^-10 of its value, not 2^-24",
            place,
            {"m": dot.m, "n": dot.n, "k": dot.k, "precision": dot.precision},
        )


def prove(facts: Facts, finding: Finding) -> Finding | None:
    """Compile with tf32 in the same call."""
    dot = next(d for d in triton_ir.dots(facts) if d.place.source == finding.source)
    source = with_keyword(facts, dot.place.inner, "dot", "allow_tf32", "True", add=False)
    source = source or with_keyword(facts, dot.place.inner, "dot", "input_precision", '"tf32"')
    if source is None:
        return replace(finding, unproven="the call of tl.dot was not found in the kernel's file")
    change = Change('input_precision="tf32"', {"source": source})
    trial = next(trials.run(facts, [change]), None)
    if trial is None:
        return replace(finding, unproven=str(facts.recompiled(source=source)))
    if trials.faster(facts, trial) is False:
        return None
    return replace(
        finding,
        proof=trials.proof(facts, trial, _counts(facts), _counts(trial.facts)),
        saves=trials.saved_time(facts, trial),
    )


def _counts(facts: Facts) -> dict[str, float]:
    kernel = facts.kernel
    cores = kernel.tensor_core
    return {
        "fma": sum(n for opcode, n in kernel.opcodes.items() if opcode.startswith("fma.")),
        "tensor_instructions": cores.mma + cores.wgmma + cores.tcgen05,
        "registers": kernel.registers_per_thread or 0,
        "spill_bytes": kernel.spill_store_bytes or 0,
    }


RULE = Rule(_ID, check_kernel=check_kernel, prove=prove)
