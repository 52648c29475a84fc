"""What a function calls, and which memory that may touch."""

from __future__ import annotations

from kanalyze.ptx.instructions import operand_names
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
    """Accesses in called functions, and why the sums over a kernel do not hold them."""
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
