"""IR to PTX text."""

from __future__ import annotations

from typing import assert_never

from kanalyze.ptx import ir


def operand_text(operand: ir.Operand) -> str:
    """An operand as PTX: ``[%rd1+16]``, ``{%r1, %r2}``, ``%p1|%p2``."""
    match operand:
        case ir.Name(text=text) | ir.Immediate(text=text):
            return text
        case ir.Address(base=base, offset=offset, coordinates=coordinates):
            inner = operand_text(base)
            if offset:
                inner += f"+{offset}"
            if coordinates:
                inner += ", {" + ", ".join(map(operand_text, coordinates)) + "}"
            return f"[{inner}]"
        case ir.Vector(items=items):
            return "{" + ", ".join(map(operand_text, items)) + "}"
        case ir.Pair(first=first, second=second):
            return f"{operand_text(first)}|{operand_text(second)}"
        case ir.Not(operand=inner_operand):
            return f"!{operand_text(inner_operand)}"
        case _:
            assert_never(operand)


def instruction_text(instruction: ir.Instruction) -> str:
    """An instruction as one line of PTX, without the semicolon."""
    guard = instruction.guard
    head = "" if guard is None else f"@{'!' if guard.negated else ''}{guard.name} "
    operands = [operand_text(operand) for operand in instruction.operands]
    if instruction.base == "call":  # parameter lists of a call stand in parentheses
        operands = [
            f"({text[1:-1]})" if isinstance(operand, ir.Vector) else text
            for text, operand in zip(operands, instruction.operands, strict=True)
        ]
    return f"{head}{instruction.opcode} {', '.join(operands)}".rstrip()
