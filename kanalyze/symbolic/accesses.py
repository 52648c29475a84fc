"""Every memory instruction of a kernel with the value of its address and of its condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.memory import MemoryAccess, memory_access
from kanalyze.symbolic import descriptors
from kanalyze.symbolic.descriptors import TensorValue
from kanalyze.symbolic.execution_predicates import execution_predicates
from kanalyze.symbolic.linear import Sum, sum_of
from kanalyze.symbolic.loops import SolvedLoops, solve
from kanalyze.symbolic.registers import OperandRequest, follow
from kanalyze.symbolic.value import Arrays, Value, ValuePool, evaluate, unknown_reasons

NOT_ACCESSES = ("param",)
"""Spaces that are left out: reading a parameter is no memory access of the kernel's author."""


_MOST_THREADS = 1024  # of a block
_MAP_COPY = MemoryAccess("global", "atomic", 4, 1, 32, None)


@dataclass(frozen=True, slots=True)
class AccessValue:
    """A memory instruction, its block, and values (without phi leaves).

    ``shared`` is the address on the shared side of a copy. ``condition`` is None if the
    instruction is always executed where it stands; for ``cp.async`` with a source size it also
    says when anything is read. ``size`` is the number of bytes of a bulk copy, ``tensor`` what a
    copy through a tensor map is told.
    """

    instruction: ir.Instruction
    row: MemoryAccess
    block: int
    address: Value
    shared: Value | None
    condition: Value | None
    size: Value | None = None
    tensor: TensorValue | None = None

    @property
    def reasons(self) -> list[str]:
        """Why the address is not fully known; empty if it is."""
        return unknown_reasons(self.address)


@dataclass(frozen=True, slots=True)
class Addresses:
    """What `find` returns: the accesses in source order, and the solved loops.

    ``predicates`` are those of the reachable blocks (`kanalyze.symbolic.execution_predicates`),
    ``map_copies`` are ``tensormap.cp_fenceproxy``, with which a warp writes a tensor map of 128
    bytes to global memory.
    """

    accesses: tuple[AccessValue, ...]
    solved: SolvedLoops
    map_copies: tuple[AccessValue, ...] = ()
    predicates: Mapping[int, Value] = field(default_factory=dict)

    @property
    def places(self) -> dict[ir.Pos, tuple[object, int]]:
        """Where each access points: a base, equal where addresses differ by a number, and that.

        Accesses whose condition holds for no ``%tid.x`` are left out.
        """
        memo: dict[Value, Sum] = {}
        made = [a for a in self.accesses if a.condition is None or _may_hold(a.condition)]
        sums = ((a.instruction.pos, sum_of(a.address, memo)) for a in made)
        return {pos: (frozenset(total.terms), total.constant) for pos, total in sums}


def find(cfg: Cfg, variables: Mapping[str, ir.Variable], arrays: Arrays | None = None) -> Addresses:
    """Evaluate the address and the condition of every memory instruction of a function.

    Args:
        cfg: the function's control-flow graph.
        variables: variables in sight, by name.
        arrays: pointer parameters, where the contents of some are assumed.
    """
    pool = ValuePool()
    rows: list[tuple[OperandRequest, MemoryAccess]] = []
    for block in cfg.blocks:
        for instruction in block.instructions:
            row = memory_access(instruction)
            if row is not None and row.space not in NOT_ACCESSES and row.address is not None:
                rows.append((_request(instruction, row), row))
    rows.sort(key=lambda pair: pair[0].instruction.pos)
    described = descriptors.requests(cfg)
    wanted = [request for request, _ in rows]
    registers = follow(cfg, pool, [*wanted, *described], variables, arrays)
    solved = solve(registers)
    accesses = []
    answers = registers.answers
    written = descriptors.Written(cfg, described, answers[len(rows) :], solved)
    for (request, row), answer in zip(rows, answers[: len(rows)], strict=True):
        if answer.block < 0:
            continue  # unreachable code
        values = solved.resolve(answer.values, answer.block)
        address = values[0]
        shared = values[1] if row.shared_address is not None else None
        condition = None
        if answer.guard is not None:
            (condition,) = solved.resolve([answer.guard], answer.block)
        tensor = None
        if descriptors.is_tensor(request.instruction):
            count = len(descriptors.coordinates(request.instruction))
            where = values[len(values) - count :]
            tensor = written.of(request.instruction, answer.block, address, where)
        if row.size is not None and row.kind == "async_copy":
            reads = nonzero(pool, values[-1])
            condition = reads if condition is None else pool.node("and", 1, condition, reads)
        if condition is not None and condition.unsigned == 1:
            condition = None
        size = values[-1] if row.size is not None and is_bulk(request.instruction, row) else None
        accesses.append(
            AccessValue(
                request.instruction, row, answer.block, address, shared, condition, size, tensor
            )
        )
    copies = tuple(
        AccessValue(write.instruction, _MAP_COPY, write.block, write.values[0], None, write.guard)
        for write in written.writes
        if write.field is None
    )
    return Addresses(tuple(accesses), solved, copies, execution_predicates(cfg, solved))


def _request(instruction: ir.Instruction, row: MemoryAccess) -> OperandRequest:
    bits = 32 if row.space == "shared" and row.kind in ("load", "store", "atomic") else 64
    assert row.address is not None
    operands = [(row.address, bits)]
    if row.shared_address is not None:
        operands.append((row.shared_address, 32))
    if row.size is not None and (row.kind == "async_copy" or is_bulk(instruction, row)):
        operands.append((row.size, 32))
    if descriptors.is_tensor(instruction):
        operands += [(operand, 32) for operand in descriptors.coordinates(instruction)]
    return OperandRequest(instruction, tuple(operands))


def is_bulk(instruction: ir.Instruction, row: MemoryAccess) -> bool:
    """Whether an access is a bulk copy, or reduction, between global and shared memory."""
    bulk = instruction.base == "cp" and "bulk" in instruction.parts
    return bulk and row.space == "global" and row.kind != "prefetch"


def _may_hold(condition: Value) -> bool:
    try:
        (held,) = evaluate([condition], {"tid.x": np.arange(_MOST_THREADS)}, {})
    except KeyError:  # it depends on something else
        return True
    return bool(held.any())


def nonzero(pool: ValuePool, value: Value) -> Value:
    """The condition under which ``value`` is not 0: a chain of ``select`` becomes and/or."""
    if value.op == "const":
        return pool.const(1 if value.payload else 0, 1)
    if value.op != "select":
        return pool.node("ne", 1, value, pool.const(0, value.bits))
    condition, yes, no = value.args
    first = pool.node("and", 1, condition, nonzero(pool, yes))
    otherwise = pool.node("xor", 1, condition, pool.const(1, 1))
    second = pool.node("and", 1, otherwise, nonzero(pool, no))
    return pool.node("or", 1, first, second)
