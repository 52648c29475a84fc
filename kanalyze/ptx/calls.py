"""Calls: bodies in the place of calls, and which memory the calls that are left may touch."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Names
from kanalyze.ptx.instructions import operand_names, uses
from kanalyze.ptx.ir import Function, Instruction, Module, Name, Variable
from kanalyze.ptx.memory import memory_access

_RUNTIME = frozenset(("__assertfail", "vprintf", "malloc", "free"))
"""Functions of the device runtime, whose accesses are no traffic of the kernel's own."""
_OUTSIDE = ("global", "shared", "generic")


def called(module: Module, function: Function) -> dict[str, Function | None]:
    """The functions that one calls, directly and through others, by name.

    None stands for one without a body in the module, and for a call through a register.
    """
    known = {f.name: f for f in module.functions if f.kind != "entry"}
    bodies = {name: f for name, f in known.items() if f.body is not None}
    seen: dict[str, Function | None] = {}
    waiting = [function]
    while waiting:
        for call in (i for i in waiting.pop().instructions if i.base == "call"):
            words = [o.text for o in call.operands if isinstance(o, Name)]
            name = next((word for word in words if word in known), words[0] if words else "?")
            if name not in seen:
                seen[name] = bodies.get(name)
                waiting += [bodies[name]] if name in bodies else []
    return seen


def accesses_in(function: Function) -> list[Instruction]:
    """The instructions of a called function that access memory beyond its own frame."""
    accesses = ((i, memory_access(i)) for i in function.instructions)
    return [i for i, access in accesses if access is not None and access.space in _OUTSIDE]


def not_followed(module: Module, function: Function) -> tuple[int, str | None]:
    """Accesses in called functions, and why the sums over a kernel do not hold them.

    ``function`` is what `followed` returns: its calls are those that are left.
    """
    count, names = 0, []
    for name, body in called(module, function).items():
        inside = len(accesses_in(body)) if body is not None else 0
        count += inside
        if inside or (body is None and name not in _RUNTIME):
            names.append(name)
    if not names:
        return 0, None
    return count, f"it calls {', '.join(names)}, whose accesses are not followed"


def dynamic_shared(module: Module, function: Function) -> bool:
    """Whether a kernel, or what it calls, uses shared memory whose size a launch chooses."""
    bodies = [function, *(f for f in called(module, function).values() if f is not None)]
    statements = [s for body in bodies for s in body.body or ()]
    if any(isinstance(s, Variable) and _chosen_at_launch(s) for s in statements):
        return True
    names = {v.name for v in module.variables if _chosen_at_launch(v)}
    if not names:  # no operand is looked at: that would make those of every instruction
        return False
    return any(
        name in names
        for s in statements
        if isinstance(s, Instruction)
        for operand in s.operands
        for name in operand_names(operand)
    )


def _chosen_at_launch(variable: Variable) -> bool:
    return variable.space == "shared" and variable.elements is None


# ---------------------------------------------------------------- calls that are followed

_LONGEST = 50_000
"""Statements that the bodies of called functions may add to a kernel."""
_RETURN = "$return"
_Piece = tuple[int, int]
"""Of a parameter: byte offset, bits."""
_Held = tuple[str, int, frozenset[_Piece]]
"""A parameter in memory: its name, the scope of the body it stands in, its pieces."""


def followed(module: Module, function: Function) -> Function:
    """A kernel with the bodies of the functions that it calls in the place of the calls.

    Each body stands in a scope of its own; its positions and source lines know the calls that lead
    there. A piece of a parameter that is passed in memory is a register, and its ``st.param`` and
    ``ld.param`` are ``mov``. Calls stay that are indirect or recursive, of a function without a
    body, or of one whose parameters are not read and written piece by piece.
    """
    if not any(i.base == "call" for i in function.instructions):
        return function
    inliner = _Inliner(module, function)
    body = [*inliner.expand(function, 0)]
    declared = [
        ir.RegisterDeclaration(f"b{bits}", (name,), (None,), function.pos)
        for name, bits in inliner.registers.items()
    ]
    return replace(function, body=(*declared, *body), scopes=tuple(inliner.scopes))


@dataclass(frozen=True, slots=True)
class _Frame:
    """A function, the calls in it that are followed, and its parameters in memory.

    ``pieces`` holds what is read and written of the parameters that it takes, returns, or declares
    for its calls; None where that is not told piece by piece.
    """

    names: Names
    callees: Mapping[int, Function]
    pieces: dict[str, frozenset[_Piece] | None]

    def parameter(self, operand: ir.Operand | None, scope: int) -> str | None:
        """The parameter in memory that an operand names."""
        name = operand.text if isinstance(operand, Name) else ""
        unique = self.names.unique(name, scope)
        return unique if unique in self.pieces else None


class _Inliner:
    def __init__(self, module: Module, kernel: Function):
        self.module = module
        self.known = {f.name: f for f in module.functions if f.kind != "entry" and f.body}
        self.frames: dict[str, _Frame | None] = {}
        self.places = {v.name: v.pos for v in module.variables}
        self.registers: dict[str, int] = {}
        self.scopes = list(kernel.scopes)
        self.added = 0

    def frame(self, function: Function) -> _Frame | None:
        """What is known of a function; None where calls of it are not followed."""
        if function.name not in self.frames:
            self.frames[function.name] = None
            variables = [v for v in function.body or () if isinstance(v, Variable)]
            alone = all(
                self.places.setdefault(v.name, v.pos) == v.pos
                for v in variables
                if v.space != "param"
            )
            is_kernel = function.kind == "entry"
            if is_kernel or (alone and function.name not in called(self.module, function)):
                calls = [i for i in function.instructions if i.base == "call"]
                callees = {id(i): callee for i in calls if (callee := self.callee(i))}
                names = Names(function)
                formal = () if is_kernel else (*function.returns, *function.parameters)
                parameters = {p.name for p in formal if p.space == "param"}
                parameters |= {
                    names.unique(v.name, v.scope) for v in variables if v.space == "param"
                }
                pieces = _pieces(function, names, parameters, callees)
                frame = _Frame(names, callees, pieces)
                for call in calls:
                    self._pass_on(call, frame)
                if all(pieces.get(p.name, ()) is not None for p in formal):
                    self.frames[function.name] = frame
        return self.frames[function.name]

    def _pass_on(self, call: Instruction, frame: _Frame) -> None:
        """Pieces that only the called function tells of are pieces of what is passed, too."""
        callee = frame.callees.get(id(call))
        inside = self.frame(callee) if callee is not None else None
        if callee is None or inside is None:
            return
        results, arguments = _lists(call)
        formal = (*callee.returns, *callee.parameters)
        for parameter, operand in zip(formal, (*results, *arguments), strict=True):
            name = frame.parameter(operand, call.scope)
            held = frame.pieces[name] if name is not None else None
            if name is not None and held is not None:
                more = (p for p in inside.pieces.get(parameter.name) or () if not _overlap(p, held))
                frame.pieces[name] = held.union(more)

    def callee(self, call: Instruction) -> Function | None:
        """The function whose body a call is replaced by."""
        names = [o.text for o in call.operands if isinstance(o, Name)]
        function = self.known.get(names[0]) if len(names) == 1 else None
        if function is None or self.frame(function) is None:
            return None
        results, arguments = _lists(call)
        fits = (len(results), len(arguments)) == (len(function.returns), len(function.parameters))
        return function if fits else None

    def expand(
        self, function: Function, base: int, call: Instruction | None = None
    ) -> Iterator[ir.Statement]:
        """The statements of a function; ``base`` is the scope that is that of its body."""
        frame = self.frame(function)
        assert frame is not None
        body = function.body or ()
        for index, statement in enumerate(body):
            here = statement
            if call is not None:
                pos = replace(statement.pos, calls=(*call.pos.calls, call.pos))
                here = replace(statement, scope=base + statement.scope, pos=pos)
            if not isinstance(here, Instruction):
                yield here
                continue
            if call is not None:
                here = replace(here, loc=_inlined(here.loc, call.loc))
            callee = frame.callees.get(id(statement))
            if callee is not None:
                yield from self._call(here, frame, base, callee)
            elif call is not None and here.base == "ret":
                if index + 1 < len(body):
                    opcode = here.opcode.replace("ret", "bra", 1)
                    yield replace(here, opcode=opcode, operands=(Name(_RETURN),))
            else:
                yield from self._moved(here, frame, base)

    def _slot(self, parameter: str, base: int, piece: _Piece) -> Name:
        """The register that holds a piece of a parameter."""
        name = f"{parameter}~{base}+{piece[0]}"
        self.registers[name] = piece[1]
        return Name(name)

    def _moved(self, here: Instruction, frame: _Frame, base: int) -> Iterator[Instruction]:
        """An instruction; if it accesses a parameter in memory, as moves of its pieces."""
        address = _parameter_address(here)
        name = frame.parameter(address.base, here.scope - base) if address is not None else None
        if address is None or name is None or frame.pieces[name] is None:
            yield here
            return
        reads = here.operands[1] is address
        value = here.operands[0 if reads else 1]
        items = value.items if isinstance(value, ir.Vector) else (value,)
        for piece, item in zip(_accessed(here, address), items, strict=True):
            slot = self._slot(name, base, piece)
            if item != Name("_"):
                operands = (item, slot) if reads else (slot, item)
                yield replace(here, opcode=f"mov.{here.parts[-1]}", operands=operands)

    def _call(
        self, call: Instruction, frame: _Frame, base: int, callee: Function
    ) -> Iterator[ir.Statement]:
        """The body of a function, between what binds arguments and results."""
        inside = self.frame(callee)
        assert inside is not None
        inner = len(self.scopes)
        self.scopes += [0, *(inner + scope for scope in callee.scopes[1:])]
        past = f"$past:{inner}"
        if call.guard is not None:
            guard = ir.Guard(call.guard.name, not call.guard.negated)
            yield replace(call, opcode="bra", operands=(Name(past),), guard=guard)
        plain = replace(call, guard=None)
        formal: dict[str, Name | _Held] = {}
        for parameter in (*callee.returns, *callee.parameters):
            name = parameter.name
            pieces = inside.pieces.get(name)
            formal[name] = Name(f"{name}@{inner}") if pieces is None else (name, inner, pieces)
            if pieces is None:
                yield ir.RegisterDeclaration(parameter.type, (name,), (None,), call.pos, inner)

        def actual(operand: ir.Operand) -> ir.Operand | _Held:
            name = frame.parameter(operand, call.scope - base)
            return operand if name is None else (name, base, frame.pieces[name] or frozenset())

        results, arguments = _lists(call)
        for parameter, operand in zip(callee.parameters, arguments, strict=True):
            yield from self._bound(plain, parameter, formal[parameter.name], actual(operand))
        yield from self.expand(callee, inner, call)
        yield ir.Label(_RETURN, call.pos, inner)
        for parameter, operand in zip(callee.returns, results, strict=True):
            yield from self._bound(plain, parameter, actual(operand), formal[parameter.name])
        if call.guard is not None:
            yield ir.Label(past, call.pos, call.scope)

    def _bound(
        self, call: Instruction, formal: ir.Parameter,
        to: ir.Operand | _Held, source: ir.Operand | _Held,
    ) -> Iterator[Instruction]:  # fmt: skip
        """Moves of a parameter; a piece that was not passed as such is loaded from nowhere."""
        whole = (0, 1 if formal.type == "pred" else 8 * (formal.bytes or 0))
        for piece in sorted(to[2]) if isinstance(to, tuple) else [whole]:
            offset, bits = piece
            target = self._slot(to[0], to[1], piece) if isinstance(to, tuple) else to
            opcode = "mov.pred" if bits == 1 else f"mov.b{bits}"
            operands: tuple[ir.Operand, ...] | None = None
            if not isinstance(source, tuple):
                operands = (target, source) if piece == whole else None
            elif piece in source[2]:
                operands = (target, self._slot(source[0], source[1], piece))
            else:
                end = offset + bits // 8
                parts = sorted(p for p in source[2] if offset <= p[0] < end)
                around = [p for p in source[2] if p[0] <= offset and end <= p[0] + p[1] // 8]
                if around and (offset - around[0][0]) * 8 % bits == 0:
                    items: list[ir.Operand] = [Name("_")] * (around[0][1] // bits)
                    items[(offset - around[0][0]) * 8 // bits] = target
                    opcode = f"mov.b{around[0][1]}"
                    operands = (
                        ir.Vector(tuple(items)),
                        self._slot(source[0], source[1], around[0]),
                    )
                elif parts == [(offset + i * b // 8, b) for i, (_, b) in enumerate(parts)] and (
                    sum(b for _, b in parts) == bits
                ):
                    slots = tuple(self._slot(source[0], source[1], p) for p in parts)
                    operands = (target, ir.Vector(slots))
            if operands is None:
                opcode = opcode.replace("mov", "ld.param")
                operands = (target, ir.Address(target))  # nothing tells what it is
            yield replace(call, opcode=opcode, operands=operands)


def _overlap(piece: _Piece, others: Collection[_Piece]) -> bool:
    start, end = piece[0], piece[0] + piece[1] // 8
    return any(start < other + bits // 8 and other < end for other, bits in others)


def _lists(call: Instruction) -> tuple[tuple[ir.Operand, ...], tuple[ir.Operand, ...]]:
    """What a call returns to, and its arguments."""
    lists = [o.items if isinstance(o, ir.Vector) else None for o in call.operands]
    results = lists[0] if lists else None
    return results or (), (lists[-1] if len(lists) > 1 else None) or ()


def _inlined(loc: ir.Loc | None, call: ir.Loc | None) -> ir.Loc | None:
    """A source line of a called function, seen from the line of the call."""
    if loc is None:
        return call
    return replace(loc, inlined_at=_inlined(loc.inlined_at, call)) if call is not None else loc


def _parameter_address(instruction: Instruction) -> ir.Address | None:
    """The operand by which a parameter in memory is loaded or stored."""
    access = memory_access(instruction) if instruction.base in ("ld", "st") else None
    address = access.address if access is not None and access.space == "param" else None
    return address if isinstance(address, ir.Address) else None


def _accessed(instruction: Instruction, address: ir.Address) -> list[_Piece]:
    """The pieces that a load or store of a parameter accesses."""
    access = memory_access(instruction)
    assert access is not None
    bits = access.element_bits
    return [(address.offset + i * bits // 8, bits) for i in range(access.vector)]


def _pieces(
    function: Function, names: Names, parameters: Collection[str], callees: Collection[int]
) -> dict[str, frozenset[_Piece] | None]:
    """The pieces of parameters in memory; None: they overlap, or its address is used otherwise."""
    accessed: dict[str, set[_Piece]] = {name: set() for name in parameters}
    other: set[str] = set()
    for instruction in function.instructions:
        address = _parameter_address(instruction)
        name = ""
        if address is not None and isinstance(address.base, Name):
            name = names.unique(address.base.text, instruction.scope)
        if name in accessed and address is not None:
            accessed[name].update(_accessed(instruction, address))
        elif id(instruction) not in callees:
            mentioned = {*uses(instruction)}
            if instruction.base == "call":
                mentioned |= {n for o in instruction.operands for n in operand_names(o)}
            other |= {names.unique(n, instruction.scope) for n in mentioned}
    return {
        name: None
        if name in other
        or any(bits not in (8, 16, 32, 64) for _, bits in pieces)
        or any(_overlap(piece, pieces - {piece}) for piece in pieces)
        else frozenset(pieces)
        for name, pieces in accessed.items()
    }
