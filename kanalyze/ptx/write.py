"""IR to PTX text.

`write_ptx` is the inverse of `kanalyze.ptx.parse.parse_ptx`: what it writes reads as an equal
module. Equal means the same IR but for positions, diagnostics and the text itself. What the IR does
not hold is not written: comments and blanks, text outside the module, declarations and headers that
could not be read, ``@@DWARF`` lines, sizes and dates of ``.file``, a ``.loc`` that no instruction
follows, how an offset was spelled (``[%rd1+0x10]`` becomes ``[%rd1+16]``). Statements of a body
that could not be read stand as they were.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from typing import assert_never

from kanalyze.ptx import ir, scan

# ---------------------------------------------------------------- operands and instructions


def operand_text(operand: ir.Operand) -> str:
    """An operand as PTX: ``[%rd1+16]``, ``{%r1, %r2}``, ``%p1|%p2``."""
    match operand:
        case ir.Name(text=text) | ir.Immediate(text=text):
            return text
        case ir.Address(base=base, offset=offset, coordinates=coordinates, subscript=subscript):
            inner = operand_text(base)
            if subscript:
                return f"{inner}[{', '.join(map(operand_text, coordinates))}]"
            if offset:
                inner += f"+{offset}"
            return f"[{', '.join([inner, *map(operand_text, coordinates)])}]"
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


# ---------------------------------------------------------------- modules


def write_ptx(module: ir.Module) -> str:
    """Write a module as PTX that reads as an equal module.

    Variables, functions, directives and sections stand in the order of their positions, each kind
    in its own order, so that what is used stands behind what declares it.
    """
    lines: list[str] = []
    if module.version is not None:
        lines.append(f".version {module.version}")
    if module.target:
        lines.append(f".target {', '.join(module.target)}")
    if module.address_size is not None:
        lines.append(f".address_size {module.address_size}")
    lines += [f'.file {number} "{path}"' for number, path in module.files.items()]
    kinds: tuple[Sequence[_Placed], ...] = (
        module.variables,
        module.directives,
        module.functions,
        module.sections,
    )
    placed = [_in_order(kind, nodes) for kind, nodes in enumerate(kinds)]
    for *_, node in heapq.merge(*placed):
        match node:
            case ir.Variable():
                lines.append(_variable(node))
            case ir.Function():
                lines.append("")
                lines += _Body(node).lines() if node.body is not None else [f"{_header(node)};"]
            case _:
                lines.append(node.text)
    return "\n".join(lines) + "\n"


_Placed = ir.Variable | ir.Directive | ir.Function


def _in_order(kind: int, nodes: Sequence[_Placed]) -> Iterator[tuple[ir.Pos, int, int, _Placed]]:
    """The nodes with what orders them: numbers keep those at one place from being compared."""
    return ((node.pos, kind, number, node) for number, node in enumerate(nodes))


def _words(*words: str | None) -> str:
    return " ".join(word for word in words if word)


def _dotted(type_: str) -> str:
    """``v4.f32`` as ``.v4 .f32``."""
    return " ".join(f".{word}" for word in type_.split(".") if word)


def _align(number: int | None) -> str | None:
    return None if number is None else f".align {number}"


def _declarator(name: str, dimensions: tuple[int | None, ...], elements: int | None) -> str:
    if not dimensions and elements != 1:  # a node made by hand
        dimensions = (elements,)
    return name + "".join(f"[{'' if size is None else size}]" for size in dimensions)


def _variable(variable: ir.Variable) -> str:
    text = _words(
        f".{variable.linkage}" if variable.linkage else None,
        f".{variable.space}",
        *variable.attributes,
        _align(variable.align),
        _dotted(variable.type),
        _declarator(variable.name, variable.dimensions, variable.elements),
    )
    return f"{text};" if variable.initializer is None else f"{text} = {variable.initializer};"


def _parameter(parameter: ir.Parameter) -> str:
    pointer: list[str | None] = []
    if parameter.pointer is not None:
        space = None if parameter.pointer == "generic" else f".{parameter.pointer}"
        pointer = [".ptr", space, _align(parameter.pointer_align)]
    return _words(
        f".{parameter.space}",
        _align(parameter.align),
        _dotted(parameter.type),
        *pointer,
        _declarator(parameter.name, parameter.dimensions, parameter.elements),
    )


def _header(function: ir.Function) -> str:
    returns = ", ".join(map(_parameter, function.returns))
    first = _words(
        f".{function.linkage}" if function.linkage else None,
        f".{function.kind}",
        *function.attributes,
        f"({returns})" if returns else None,
        function.name,
    )
    formals = ",\n".join(f"\t{_parameter(parameter)}" for parameter in function.parameters)
    lines = [f"{first}(\n{formals}\n)" if formals else f"{first}()"]
    for name, numbers in function.directives.items():
        if name != "pragma":
            lines.append(f".{name} {', '.join(map(str, numbers))}".rstrip())
    lines += [f".pragma {text};" for text in function.pragmas]
    return "\n".join(lines)


# ---------------------------------------------------------------- bodies


class _Body:
    """Writes one function with a body.

    ``.loc`` directives and the marks of inline assembly are put where the instructions need them.
    """

    def __init__(self, function: ir.Function):
        self._function = function
        self._lines = [_header(function), "{"]
        self._loc: ir.Loc | None = None
        self._latest: dict[tuple[int, int, int], ir.Loc] = {}  # as kanalyze.ptx.locs keeps them
        self._asm = False

    def lines(self) -> list[str]:
        """The lines of the function."""
        open_scopes = 0
        body = self._function.body or ()
        for statement in body:
            match statement:
                case ir.Instruction():
                    self._place(statement)
                    self._lines.append(f"\t{instruction_text(statement)};")
                case ir.Label(name=name):
                    self._lines.append(f"{name}:")
                case ir.RegisterDeclaration():
                    self._lines.append(f"\t{_registers(statement)};")
                case ir.Variable():
                    self._lines.append(f"\t{_variable(statement)}")
                case ir.ScopeOpen():
                    open_scopes += 1
                    self._lines.append("\t{")
                case ir.ScopeClose():
                    open_scopes -= 1
                    self._lines.append("\t}")
                case ir.Directive(text=text) | ir.Opaque(text=text):
                    self._lines.append(f"\t{text}")
                case _:
                    assert_never(statement)
        self._mark(False)
        last = body[-1] if body else None
        if not open_scopes and not (isinstance(last, ir.Opaque) and _is_unended(last.text)):
            self._lines.append("}")  # else the text ended in the middle of the body
        return self._lines

    def _place(self, instruction: ir.Instruction) -> None:
        """Write what stands before an instruction: marks of inline assembly and ``.loc``."""
        loc = instruction.loc
        if loc is not None and loc != self._loc:
            self._mark(False)  # between the marks, .loc is not read
            self._locate(loc)
            self._loc = loc
        self._mark(instruction.inline_asm)

    def _mark(self, asm: bool) -> None:
        if asm is not self._asm:
            self._lines.append(f"\t// {'begin' if asm else 'end'} inline asm")
            self._asm = asm

    def _locate(self, loc: ir.Loc) -> None:
        """Write a ``.loc``, and before it those that its chain of callers leads through."""
        chain = [loc]
        while (outer := chain[-1].inlined_at) is not None:
            if self._latest.get((outer.file, outer.line, outer.column)) == outer:
                break
            chain.append(outer)
        for each in reversed(chain):
            self._latest[each.file, each.line, each.column] = each
            self._lines.append(f"\t{_loc(each)}")


def _loc(loc: ir.Loc) -> str:
    parts = [f".loc {loc.file} {loc.line} {loc.column}"]
    if loc.function is not None:
        parts.append(f"function_name {loc.function}")
    if (outer := loc.inlined_at) is not None:
        parts.append(f"inlined_at {outer.file} {outer.line} {outer.column}")
    return ", ".join(parts)


def _registers(declaration: ir.RegisterDeclaration) -> str:
    names = [
        name if count is None else f"{name}<{count}>"
        for name, count in zip(declaration.names, declaration.counts, strict=True)
    ]
    return f".reg {_dotted(declaration.type)} {', '.join(names)}"


def _is_unended(text: str) -> bool:
    """Whether an unreadable statement runs to the end of the file (an open comment or string)."""
    return scan.statement_at(f"{text}\n}}", 0).stop == ""
