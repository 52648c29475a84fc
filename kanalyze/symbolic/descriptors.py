"""Tensor maps as the code names them: where they lie, and what a kernel writes into its own.

A kernel can make a tensor map in shared memory, field by field (``tensormap.replace``), and copy it
to global memory (``tensormap.cp_fenceproxy``); a copy through it then names that place. The fields
are those that were written last before, in the order of the code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.symbolic.linear import sum_of
from kanalyze.symbolic.loops import SolvedLoops
from kanalyze.symbolic.registers import Answer, OperandRequest
from kanalyze.symbolic.value import Value, in_order

_NOT_TILES = ("im2col", "gather4", "scatter4")


@dataclass(frozen=True, slots=True)
class TensorValue:
    """The tensor map and the coordinates of one ``cp.async.bulk.tensor``.

    ``descriptor`` is the address of the map, ``coordinates`` are those of the box, innermost first.
    ``fields`` are the values that the kernel itself wrote into the map (``box_dim.0``), None where
    it wrote none. ``reason`` says why the copy is not followed.
    """

    descriptor: Value
    coordinates: tuple[Value, ...]
    fields: Mapping[str, Value] | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class _Write:
    """An instruction that writes a map: a field of it, or the whole from another place."""

    instruction: ir.Instruction
    block: int
    values: tuple[Value, ...]  # where, and the field's value or where from
    guard: Value | None

    @property
    def field(self) -> str | None:
        """Name of the field, with the dimension; None for a copy of the whole."""
        parts, operands = self.instruction.parts, self.instruction.operands
        if parts[1] != "replace" or len(parts) < 4:
            return None
        ordinal = operands[1] if len(operands) > 2 else None
        number = ordinal.value if isinstance(ordinal, ir.Immediate) else None
        return parts[3] if number is None else f"{parts[3]}.{number}"


_BY_THREAD = ("tid.", "laneid", "elected")


def is_tensor(instruction: ir.Instruction) -> bool:
    """Whether an instruction copies a box through a tensor map."""
    return instruction.base == "cp" and "tensor" in instruction.parts


def coordinates(instruction: ir.Instruction) -> tuple[ir.Operand, ...]:
    """The coordinates among the operands of a copy through a tensor map."""
    for operand in instruction.operands:
        if isinstance(operand, ir.Address) and operand.coordinates:
            first = operand.coordinates[0]
            return first.items if isinstance(first, ir.Vector) else operand.coordinates
    return ()


def requests(cfg: Cfg) -> list[OperandRequest]:
    """What must be known of the instructions that write tensor maps."""
    wanted = []
    for block in cfg.blocks:
        for instruction in block.instructions:
            operands = instruction.operands
            if instruction.base != "tensormap" or len(operands) < 2:
                continue
            copies = instruction.parts[1:2] == ("cp_fenceproxy",)
            source = operands[1] if copies else operands[-1]
            wanted.append(OperandRequest(instruction, ((operands[0], 64), (source, 64))))
    return wanted


class Written:
    """The tensor maps that a kernel writes.

    Args:
        cfg: its control-flow graph.
        wanted: what `requests` returned, and the values found for it.
        solved: its loops and branch conditions.
    """

    def __init__(
        self,
        cfg: Cfg,
        wanted: Sequence[OperandRequest],
        answers: Sequence[Answer],
        solved: SolvedLoops,
    ):
        self.cfg = cfg
        self.conditions = solved.registers.conditions
        self.resolve = resolve = solved.resolve
        self.writes: list[_Write] = []
        for request, answer in zip(wanted, answers, strict=True):
            if answer.block >= 0:
                values = tuple(resolve(answer.values, answer.block))
                guard = answer.guard
                if guard is not None:
                    (guard,) = resolve([guard], answer.block)
                self.writes.append(_Write(request.instruction, answer.block, values, guard))
        self.writes.sort(key=lambda write: write.instruction.pos)

    def _in_every_block(self, written: int, used: int) -> bool:
        """Whether a thread of each block comes through ``written`` before any comes to ``used``.

        What lies between is branches that depend on the thread alone: one thread writes for all.
        """
        node: int | None = written
        while node is not None and not self.cfg.dominates(node, used):
            node = self.cfg.idom.get(node)
            condition = self.conditions.get(node) if node is not None else None
            given = [n for n in in_order([condition]) if not n.args] if condition else []
            for leaf in given:
                by_thread = leaf.op == "special" and leaf.payload.startswith(_BY_THREAD)
                if leaf.op != "const" and not by_thread:
                    return False
        return True

    def of(
        self, instruction: ir.Instruction, block: int, descriptor: Value, where: Sequence[Value]
    ) -> TensorValue:
        """What a copy through the map at ``descriptor`` is told."""
        places = tuple(where)
        if any(word in part for part in instruction.parts for word in _NOT_TILES):
            reason = "im2col and gathers of rows through a tensor map are not evaluated"
            return TensorValue(descriptor, places, None, reason)
        before = [w for w in self.writes if w.instruction.pos < instruction.pos]
        copies = [w for w in before if w.field is None and _same(w.values[0], descriptor)]
        place, until = descriptor, instruction
        if copies:
            place, until = copies[-1].values[1], copies[-1].instruction
        fields: dict[str, Value] = {}
        used = copies[-1:]
        for write in before:
            earlier = write.instruction.pos < until.pos
            if write.field is not None and earlier and _same(write.values[0], place):
                fields[write.field] = self.resolve([write.values[1]], block)[0]
                used.append(write)
        if not used:
            return TensorValue(descriptor, places)
        if not all(self._in_every_block(write.block, block) for write in used):
            reason = "a tensor map that is written under a condition"
            return TensorValue(descriptor, places, None, reason)
        return TensorValue(descriptor, places, fields)


def descriptor_of(tensor: TensorValue) -> str | None:
    """The parameter that is a tensor map, or points to one; None where it is neither."""
    value = tensor.descriptor
    while value.op == "zext":
        value = value.args[0]
    if value.op == "address":
        return str(value.payload)
    if value.op == "param" and value.payload[1] == 0:
        return str(value.payload[0])
    return None


def _same(one: Value, other: Value) -> bool:
    return one is other or sum_of(one, {}).equals(sum_of(other, {}))
