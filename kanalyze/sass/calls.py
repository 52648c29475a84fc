"""What a function calls: code that ends the launch with an error, code that several places call."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kanalyze.sass.cfg import SassCfg
from kanalyze.sass.ir import SassInstruction, SassModule
from kanalyze.sass.table import branch_targets, control


def failing_blocks(cfg: SassCfg, module: SassModule) -> frozenset[int]:
    """The blocks in which the launch ends with an error: a trap, a failed assertion.

    A call of another section is one of ``__assertfail`` if that is the only function which the
    listing names and does not hold.
    """
    named = set(re.findall(r"\.type\s+([\w$]+),@function", module.text))
    named -= {function.name for function in module.functions}
    asserts = named == {"__assertfail"}
    failing: set[int] = set()
    for block in cfg.blocks:
        for instruction in block.instructions:
            call = control(instruction) == "call" and not branch_targets(instruction)
            if instruction.opcode.startswith("BPT.TRAP") or (call and asserts):
                failing.add(block.index)
    return frozenset(failing)


def outside_calls(cfg: SassCfg) -> Iterator[SassInstruction]:
    """Calls of another section, or through a register, in blocks that can be reached."""
    for index in cfg.order:
        for instruction in cfg.blocks[index].instructions:
            if control(instruction) == "call" and not any(
                isinstance(target, int) or target in cfg.function.labels
                for target in branch_targets(instruction)
            ):
                yield instruction


def called_twice(cfg: SassCfg) -> frozenset[int]:
    """The blocks of subroutines that several places call."""
    callers: dict[int, int] = {}
    for block in cfg.blocks:
        last = block.instructions[-1] if block.instructions else None
        if last is not None and control(last) == "call":
            for called in cfg.graph.successors(block.index):
                if called != block.index + 1:
                    callers[called] = callers.get(called, 0) + 1
    repeated = {called for called, times in callers.items() if times > 1}
    return frozenset(
        block for block in cfg.order if any(cfg.dominates(called, block) for called in repeated)
    )
