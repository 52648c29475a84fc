"""Exact values of integer registers, as a shared expression graph.

A `Value` is what a register holds, as a function of the special registers, the kernel's parameters
and the iteration numbers of loops, with PTX's own semantics: every node has a width, and arithmetic
wraps at it. Values are interned by their `ValuePool`: equal expressions are the same object, so
equality is identity. `Unknown` (op "unknown") is a value, too, with its reason.

`evaluate` computes values for many lanes at once with numpy; `kanalyze.symbolic.readable` prints
them as a person would write them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kanalyze.symbolic.arithmetic import Array, mask, operate


@dataclass(frozen=True, slots=True, eq=False)
class Value:
    """A node: an operation, its width in bits, its operands, and what only leaves carry.

    Leaves: ``const`` (payload: the unsigned number), ``param`` (name, byte offset), ``special``
    (``"tid.x"``), ``iter`` (index of a loop), ``phi`` (only while values are being found),
    ``address`` (name of a variable), ``unknown`` (key, reason). A ``load`` has an operand, the
    address in global memory that it reads, and a payload (`Loaded`).
    """

    op: str
    bits: int
    args: tuple[Value, ...]
    payload: Any
    number: int  # order of creation: operands come before what uses them
    kinds: int  # which operations are at or below it: a bit each, `kind_of`

    @property
    def constant(self) -> int | None:
        """The number as a signed integer, if this is a constant."""
        if self.op != "const":
            return None
        value: int = self.payload
        return value - (1 << self.bits) if value >> (self.bits - 1) and self.bits > 1 else value

    @property
    def unsigned(self) -> int | None:
        """The number as an unsigned integer, if this is a constant."""
        return self.payload if self.op == "const" else None


@dataclass(frozen=True, slots=True)
class Arrays:
    """Pointer parameters (names in the PTX), and those of them whose contents are assumed."""

    pointers: frozenset[str]
    assumed: frozenset[str]


@dataclass(frozen=True, slots=True)
class Loaded:
    """What a ``load`` carries: why its value is not known where its array is not assumed."""

    reason: str
    arrays: Arrays


class ValuePool:
    """Makes values: interns them, and folds constants and neutral elements."""

    def __init__(self) -> None:
        self._table: dict[tuple[Any, ...], Value] = {}
        self.sums: dict[Value, Any] = {}  # of `kanalyze.symbolic.linear.sum_of`

    def _leaf(self, op: str, bits: int, payload: Any) -> Value:
        return self._intern(op, bits, (), payload)

    def _intern(self, op: str, bits: int, args: tuple[Value, ...], payload: Any) -> Value:
        key = (op, bits, payload, *(a.number for a in args))
        value = self._table.get(key)
        if value is None:
            kinds = kind_of(op)
            for arg in args:
                kinds |= arg.kinds
            value = self._table[key] = Value(op, bits, args, payload, len(self._table), kinds)
        return value

    # ------------------------------------------------------------ leaves

    def const(self, number: int, bits: int) -> Value:
        """The number, wrapped to ``bits``."""
        return self._leaf("const", bits, number & ((1 << bits) - 1))

    def param(self, name: str, offset: int, bits: int) -> Value:
        """What lies ``offset`` bytes into parameter ``name``."""
        return self._leaf("param", bits, (name, offset))

    def special(self, name: str, bits: int = 32) -> Value:
        """A special register, named without the ``%``: ``tid.x``."""
        return self._leaf("special", bits, name)

    def iteration(self, loop: int, bits: int) -> Value:
        """The number of the iteration of loop ``loop``, from 0."""
        return self._leaf("iter", bits, loop)

    def phi(self, key: object, bits: int) -> Value:
        """A loop-carried value that is not solved yet."""
        return self._leaf("phi", bits, key)

    def address(self, variable: str, bits: int) -> Value:
        """The address of a variable."""
        return self._leaf("address", bits, variable)

    def unknown(self, key: object, reason: str, bits: int) -> Value:
        """A value that cannot be known statically; ``key`` tells apart two of the same reason."""
        return self._leaf("unknown", bits, (key, reason))

    def load(self, address: Value, bits: int, loaded: Loaded) -> Value:
        """What global memory holds at ``address``."""
        return self._intern("load", bits, (address,), loaded)

    # ------------------------------------------------------------ operations

    def node(self, op: str, bits: int, *args: Value) -> Value:
        """The value of ``op`` on ``args``; ``bits`` is the width of the result."""
        if all(a.op == "const" for a in args):
            folded = evaluate_op(op, bits, args, [np.asarray([a.payload], np.uint64) for a in args])
            return self.const(int(folded[0]), bits)
        if op in _COMMUTATIVE and args[0].op == "const":
            args = (args[1], args[0])
        simple = self._neutral(op, bits, args)
        return simple if simple is not None else self._intern(op, bits, args, None)

    def _neutral(self, op: str, bits: int, args: tuple[Value, ...]) -> Value | None:
        """The value where an operand makes the operation trivial, else None."""
        if op == "select":
            if args[1] is args[2]:
                return args[1]
            if args[0].op == "const":
                return args[1] if args[0].payload else args[2]
            return self._next_turn(bits, *args)
        if op in ("zext", "sext", "trunc"):
            (arg,) = args
            if arg.bits == bits:
                return arg
            if op == "trunc" and arg.op in ("zext", "sext", "trunc"):
                inner = arg.args[0]
                if inner.bits == bits:
                    return inner
                if inner.bits > bits:
                    return self.node("trunc", bits, inner)
            return None
        if len(args) != 2:
            return None
        left, right = args
        number = right.unsigned
        if left is right:
            if op in ("sub", "xor"):
                return self.const(0, bits)
            if op in ("and", "or", "minu", "mins", "maxu", "maxs"):
                return left
        if number == 0:
            if op in ("add", "sub", "or", "xor", "shl", "shru", "shrs"):
                return left
            if op in ("and", "mul"):
                return right
        if number is not None and number >= bits:
            if op in ("shl", "shru"):
                return self.const(0, bits)
            if op == "shrs":
                return self.node("shrs", bits, left, self.const(bits - 1, bits))
        if op == "and" and number == (1 << bits) - 1:
            return left
        if op in ("mul", "divu", "divs") and number == 1:
            return left
        if op == "sub" and right.op == "mul":  # x - (x / y) * y, with which compilers write x % y
            for quotient, divisor in (right.args, right.args[::-1]):
                if quotient.op in ("divs", "divu") and quotient.args == (left, divisor):
                    return self.node("rem" + quotient.op[3], bits, left, divisor)
        if op == "add" and number is not None and left.op == "add" and left.args[1].op == "const":
            total = self.const(left.args[1].payload + number, bits)
            return self.node("add", bits, left.args[0], total)
        return None

    def _next_turn(self, bits: int, condition: Value, yes: Value, no: Value) -> Value | None:
        """``0 if y % n + 1 > n - 1 else y % n + 1``, a counter that goes round, is (y + 1) % n."""
        if condition.op == "xor" and condition.args[1].unsigned == 1:
            condition, yes, no = condition.args[0], no, yes
        if yes.unsigned != 0 or no.op != "add" or no.args[1].unsigned != 1:
            return None
        turn = no.args[0]
        number = turn.args[1].unsigned if turn.op == "remu" else None
        if number is None or condition.op not in ("lts", "ltu", "eq"):
            return None
        if condition.op == "eq":
            ends = condition.args[0] is no and condition.args[1].unsigned == number
        else:
            ends = condition.args[1] is no and condition.args[0].unsigned == number - 1
        if not ends:
            return None
        later = self.node("add", bits, turn.args[0], self.const(1, bits))
        return self.node("remu", bits, later, turn.args[1])

    def substitute(self, value: Value, by: Mapping[Value, Value]) -> Value:
        """``value`` with nodes replaced; iterative, so depth does not matter."""
        return self.substitute_all([value], by)[0]

    def substitute_all(self, values: Iterable[Value], by: Mapping[Value, Value]) -> list[Value]:
        """Each of ``values`` with nodes replaced, shared parts rebuilt once."""
        roots = list(values)
        done: dict[Value, Value] = dict(by)
        kinds = 0
        for node in by:
            kinds |= kind_of(node.op)
        for node in in_order(roots, done, kinds):
            new = [done.get(a, a) for a in node.args]
            if all(a is b for a, b in zip(new, node.args, strict=True)):
                done[node] = node
            elif node.op == "load":
                done[node] = self.load(new[0], node.bits, node.payload)
            else:
                done[node] = self.node(node.op, node.bits, *new)
        return [done.get(root, root) for root in roots]


_COMMUTATIVE = frozenset(
    ["add", "mul", "and", "or", "xor", "eq", "ne", "minu", "mins", "maxu", "maxs"]
)


_KINDS: dict[str, int] = {}


def kind_of(op: str) -> int:
    """The bit of an operation in `Value.kinds`."""
    return _KINDS.setdefault(op, 1 << len(_KINDS))


def in_order(
    roots: Iterable[Value], stop: Mapping[Value, object] | None = None, kinds: int = -1
) -> list[Value]:
    """All nodes at or below ``roots``, operands first, that have one of ``kinds`` at or below.

    Nodes in ``stop`` are left out.
    """
    seen: set[Value] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if not node.kinds & kinds or node in seen or (stop is not None and node in stop):
            continue
        seen.add(node)
        stack.extend(node.args)
    return sorted(seen, key=lambda node: node.number)


def leaves(value: Value, op: str) -> list[Value]:
    """The leaves of kind ``op`` below ``value``, in order of creation."""
    return [node for node in in_order([value], kinds=kind_of(op)) if node.op == op]


def unknown_reasons(value: Value) -> list[str]:
    """Why ``value`` is not known: the distinct reasons of its unknown leaves; empty if it is."""
    reasons: dict[str, None] = {}
    for node in in_order([value], kinds=kind_of("unknown") | kind_of("load")):
        if node.op == "unknown":
            reasons[node.payload[1]] = None
        elif node.op == "load" and array_of(node) is None and not leaves(node, "phi"):
            reasons[node.payload.reason] = None
    return list(reasons)


def array_of(load: Value) -> str | None:
    """The parameter whose array a ``load`` reads, if its contents are assumed."""
    arrays: Arrays = load.payload.arrays
    pointer = pointer_of(load.args[0], arrays)
    return pointer if pointer in arrays.assumed else None


def pointer_of(address: Value, arrays: Arrays) -> str | None:
    """The only pointer that an address depends on, other than through loaded numbers."""
    seen: set[Value] = set()
    names: set[str] = set()
    pending = [address]
    while pending:
        node = pending.pop()
        if node.op == "param" and node.payload[0] in arrays.pointers:
            names.add(node.payload[0])
        elif node.op != "load" and node not in seen:
            seen.add(node)
            pending += node.args
    return names.pop() if len(names) == 1 else None


# ---------------------------------------------------------------- evaluation


def evaluate_op(op: str, bits: int, args: tuple[Value, ...], operands: list[Array]) -> Array:
    """One operation on arrays of unsigned lanes; the result is masked to ``bits``."""
    return operate(op, bits, args[0].bits, operands)


def evaluate(
    values: Iterable[Value],
    specials: Mapping[str, Any],
    params: Mapping[tuple[str, int], Any],
    iterations: Mapping[int, Any] = {},
    addresses: Mapping[str, int] = {},
    done: dict[Value, Array] | None = None,
) -> list[Array]:
    """The numbers that ``values`` take, as unsigned 64-bit arrays.

    Args:
        values: what to compute.
        specials: numbers or arrays of one shape for special registers (``{"tid.x": lanes}``).
        params: parameter name and byte offset to number (or an array of them).
        iterations: loop index to iteration number (or an array of them).
        addresses: variable name to address.
        done: what earlier calls with the same numbers found; added to.

    Raises:
        KeyError: a leaf below a value is not given (also: it is unknown).
    """
    roots = list(values)
    done = {} if done is None else done
    for node in in_order(roots, stop=done):
        if node.args:
            done[node] = evaluate_op(node.op, node.bits, node.args, [done[a] for a in node.args])
            continue
        given: Any
        match node.op:
            case "const":
                given = node.payload
            case "special":
                given = specials[node.payload]
            case "param":
                given = params[node.payload]
            case "iter":
                given = iterations[node.payload]
            case "address":
                given = addresses[node.payload]
            case _:
                raise KeyError(node.payload)
        lanes = np.atleast_1d(given)
        if lanes.dtype != np.uint64:
            lanes = np.asarray([int(x) & (2**64 - 1) for x in lanes.ravel()], np.uint64).reshape(
                lanes.shape
            )
        done[node] = np.asarray(lanes & mask(node.bits), np.uint64)
    return [done[root] for root in roots]
