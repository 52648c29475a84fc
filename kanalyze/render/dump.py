"""What stands between the passes over a kernel, for maintainers: ``--dump``.

A value is written ``vN.bW``, its number in the pool and its width in bits. Leaves are numbers,
``%tid.x.b32`` (a special register), ``[name].b64`` (a parameter), ``&name.b32`` (the address of a
variable), ``iter($L).b32`` (the iteration of the loop with that header), ``phi(%r1@$L).b32``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kanalyze.errors import Unknown
from kanalyze.models.warps import AlikeClasses
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.write import instruction_text
from kanalyze.symbolic.accesses import AccessValue, Addresses
from kanalyze.symbolic.readable import Reader
from kanalyze.symbolic.value import Value, in_order, unknown_reasons


def ssa(cfg: Cfg, addresses: Addresses) -> Iterator[str]:
    """What instructions leave in the registers that are followed, and what accesses need.

    Followed are the registers that an address, a condition, or a branch depends on. A loop-carried
    register has a line at the loop's header, with its value there after the loops were solved.
    """
    solved = addresses.solved
    registers = solved.registers
    accesses = {id(a.instruction): a for a in addresses.accesses}
    shown: dict[Value, None] = {}

    def line(what: str, value: Value) -> Iterator[str]:
        for node in in_order([value], stop=shown):
            if node.args:
                shown[node] = None
                operands = ", ".join(_operand(cfg, argument) for argument in node.args)
                yield f"    {_operand(cfg, node)} = {node.op} {operands}"
        yield f"    {what} = {_operand(cfg, value)}"

    for index in cfg.order:
        block = cfg.blocks[index]
        yield f"{block.name}:"
        for phi, (header, start, following) in registers.phis.items():
            if header == index:
                for what, value in (("start", start), *(("next", value) for value in following)):
                    yield from line(f"{what} of {_operand(cfg, phi)}", value)
                (solution,) = solved.resolve([phi], header)
                yield from line(f"{phi.payload[1]} at {block.name}", solution)
        for instruction in block.instructions:
            yield f"  {instruction.pos.line}: {instruction_text(instruction)}"
            for name, value in registers.written.get(id(instruction), {}).items():
                yield from line(name, value)
            access = accesses.get(id(instruction))
            if access is not None:
                yield from line("address", access.address)
                if access.condition is not None:
                    yield from line("condition", access.condition)
        if index in registers.conditions:
            yield from line("branch taken", registers.conditions[index])


def _operand(cfg: Cfg, value: Value) -> str:
    match value.op:
        case "const":
            text = str(value.payload)
        case "special":
            text = f"%{value.payload}"
        case "param":
            name, offset = value.payload
            text = f"[{name}+{offset}]" if offset else f"[{name}]"
        case "address":
            text = f"&{value.payload}"
        case "iter":
            text = f"iter({cfg.blocks[value.payload].name})"
        case "phi":
            header, name = value.payload
            text = f"phi({name}@{cfg.blocks[header].name})"
        case "unknown":
            text = f"unknown({value.payload[1]})"
        case _:
            text = f"v{value.number}"
    return f"{text}.b{value.bits}"


def loops(cfg: Cfg, addresses: Addresses, reader: Reader) -> Iterator[str]:
    """The nest of loops, each with header, body, latches, trip count and its iteration's name."""
    if not cfg.loops:
        yield "no loops"
    for loop in sorted(cfg.loops, key=lambda loop: loop.header):
        margin = "  " * (loop.depth - 1)
        trip = addresses.solved.trips[loop.header]
        count = _text(reader, trip.count) if trip.count is not None else f"unknown: {trip.reason}"
        tests = "tests before" if trip.tests_first else "tests after"
        yield f"{margin}loop {cfg.blocks[loop.header].name}"
        yield f"{margin}  iteration: {reader.loops.get(loop.header, 'has no name')}"
        yield f"{margin}  body: {_names(cfg, sorted(loop.body))}"
        yield f"{margin}  latches: {_names(cfg, loop.latches)}"
        yield f"{margin}  trip count: {count} ({tests} an iteration)"


def _names(cfg: Cfg, blocks: Sequence[int]) -> str:
    return " ".join(cfg.blocks[block].name for block in blocks)


def _text(reader: Reader, value: Value) -> str:
    reasons = unknown_reasons(value)
    return f"unknown: {reasons[0]}" if reasons else reader.text(value)


def predicates(cfg: Cfg, addresses: Addresses, reader: Reader) -> Iterator[str]:
    """The execution predicate of each basic block, provided that the loops around are entered."""
    for block in cfg.blocks:
        value = addresses.predicates.get(block.index)
        if value is None:
            text = "never reached"
        else:
            reasons = unknown_reasons(value)
            text = f"unknown: {reasons[0]}" if reasons else reader.condition(value)
        yield f"{block.name}: {text}"


def classes(
    accesses: Sequence[tuple[AccessValue, tuple[int, Sequence[AlikeClasses]] | Unknown]],
) -> Iterator[str]:
    """The classes by which accesses are counted in a launch.

    Args:
        accesses: each with the period of its rule in bytes and its classes, or why there are none.
    """
    for access, counted in accesses:
        yield f"{access.instruction.pos.line}: {instruction_text(access.instruction)}"
        if isinstance(counted, Unknown):
            yield f"  not counted: {counted.reason}"
            continue
        period, alike = counted
        unit = "wavefronts" if access.row.space == "shared" else "sectors"
        yield f"  period {period} B"
        for each in alike:
            yield (
                f"  {each.classes} classes, {each.members} blocks x iterations: each "
                f"{each.requests} requests, {each.transactions} {unit}"
            )
