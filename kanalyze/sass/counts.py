"""Executed instructions: what a block of code holds, times how often warps execute it.

``smsp__inst_executed.sum`` counts an instruction once for every warp that issues it: also one whose
guard is off for all its threads, the dummies of the assembler (``@!PT LDS RZ, [RZ]``) and ``NOP``s
that are reached. Not counted is what no warp reaches: the ``BRA`` to itself and the padding behind
the last ``EXIT``, and blocks behind an ``@P0 EXIT`` for warps of which no thread is left.
"""

from __future__ import annotations

from kanalyze.sass.cfg import SassBlock
from kanalyze.sass.ir import SassInstruction
from kanalyze.sass.memory import memory_access
from kanalyze.sass.table import tensor_core

CLASSES = (
    "global load", "global store", "global atomic", "asynchronous copy", "shared load",
    "shared store", "shared atomic", "matrix load", "matrix store", "local load", "local store",
    "tensor", "barrier",
)  # fmt: skip
"""Classes of instructions that have a counter of their own, by `access_class`."""


_JOINS = ("BSYNC", "WARPSYNC")


def before_join(block: SassBlock) -> int:
    """Return how many instructions stand up to the first ``BSYNC`` or ``WARPSYNC``, or 0.

    Up to there, the parts of a warp that went different ways are still apart.
    """
    for index, instruction in enumerate(block.instructions):
        if instruction.base in _JOINS:
            return index + 1
    return 0


def access_class(instruction: SassInstruction) -> str | None:
    """The one of `CLASSES` that an instruction belongs to."""
    if tensor_core(instruction) is not None:
        return "tensor"
    if instruction.base == "BAR":
        return "barrier"
    access = memory_access(instruction)
    if access is None:
        return None
    kinds = {"async_copy": "asynchronous copy", "matrix_load": "matrix load",
             "matrix_store": "matrix store"}  # fmt: skip
    if access.kind in kinds:
        return kinds[access.kind]
    kind = "atomic" if access.kind == "reduction" else access.kind
    name = f"{access.space} {kind}"
    return name if name in CLASSES else None
