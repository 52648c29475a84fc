"""Executed instructions: what a block of code holds, times how often warps execute it.

``smsp__inst_executed.sum`` counts an instruction once for every warp that issues it: also one whose
guard is off for all its threads, the dummies of the assembler (``@!PT LDS RZ, [RZ]``) and ``NOP``s
that are reached. Not counted is what no warp reaches: the ``BRA`` to itself and the padding behind
the last ``EXIT``, and blocks behind an ``@P0 EXIT`` for warps of which no thread is left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kanalyze.sass.cfg import SassBlock, SassCfg
from kanalyze.sass.ir import SassInstruction
from kanalyze.sass.memory import memory_access
from kanalyze.sass.table import classify, tensor_core

CLASSES = (
    "global load", "global store", "global atomic", "asynchronous copy", "shared load",
    "shared store", "shared atomic", "matrix load", "matrix store", "local load", "local store",
    "tensor", "barrier",
)  # fmt: skip
"""Classes of instructions that have a counter of their own, by `access_class`."""


@dataclass(frozen=True, slots=True)
class BlockCount:
    """What one block holds: instructions in all, by class, by mnemonic."""

    block: int
    name: str
    depth: int
    reached: bool
    instructions: int
    classes: Mapping[str, int]
    mnemonics: Mapping[str, int]


def static_counts(cfg: SassCfg) -> tuple[BlockCount, ...]:
    """Return what every block holds; a mnemonic without a row is of class "unknown"."""
    reached = set(cfg.order)
    return tuple(
        BlockCount(
            block.index,
            block.name,
            cfg.loop_depth[block.index],
            block.index in reached,
            len(block.instructions),
            Counter(classify(i) or "unknown" for i in block.instructions),
            Counter(i.base for i in block.instructions),
        )
        for block in cfg.blocks
    )


_JOINS = ("BSYNC", "WARPSYNC")


def before_join(block: SassBlock) -> int:
    """Return how many instructions stand up to the first ``BSYNC`` or ``WARPSYNC``, or 0.

    Up to there, the parts of a warp that went different ways are still apart.
    """
    for index, instruction in enumerate(block.instructions):
        if instruction.base in _JOINS:
            return index + 1
    return 0


def executed(
    cfg: SassCfg,
    block_counts: Mapping[int, int],
    arrivals: Mapping[int, int] | None = None,
    which: Callable[[SassInstruction], bool] | None = None,
) -> int:
    """Return the number of executed warp instructions.

    Formula: sum over blocks of instructions × how often a warp executes the block. Where the
    threads of a warp went different ways and meet again at a ``BSYNC``, each part issues what
    stands up to the ``BSYNC`` by itself; that is counted by ``arrivals``.

    Args:
        cfg: the graph of the kernel.
        block_counts: block index to executions, of all warps together. A warp whose threads take
            both sides of a branch executes both blocks once each. A missing block counts 0.
        arrivals: block index to arrivals (parts of warps) for blocks that hold a ``BSYNC``, where
            that is more than the executions.
        which: count these instructions alone.
    """
    total = 0
    for index, count in block_counts.items():
        block = cfg.blocks[index]
        apart = before_join(block) if arrivals and index in arrivals else 0
        for place, instruction in enumerate(block.instructions):
            if which is None or which(instruction):
                total += arrivals[index] if arrivals and place < apart else count
    return total


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
