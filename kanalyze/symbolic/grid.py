"""Values and conditions of a kernel over one whole launch: every block, thread and iteration.

`Grid` gives each `Value` of one access as `Parts` over the axes block, thread and iterations of the
loops around it. Conditions stay trees of comparisons of `Parts` with 0 (`Condition`), so that they
can be counted without being spread out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from kanalyze.symbolic import parts
from kanalyze.symbolic.parts import Array, Parts, TooLargeError
from kanalyze.symbolic.specials import Specials, Triple
from kanalyze.symbolic.value import Value, array_of, in_order

if TYPE_CHECKING:
    from kanalyze.launch.assumptions import Assumption

_UNSIGNED = frozenset(["minu", "maxu", "divu", "remu", "shru"])


class UnknownValueError(Exception):
    """A value of the launch depends on what is not known; says on what."""


@dataclass(frozen=True, slots=True, eq=False)
class AffineComparison:
    """``value < 0`` (kind "negative") or ``value == 0`` (kind "zero")."""

    kind: str
    value: Parts


@dataclass(frozen=True, slots=True, eq=False)
class Condition:
    """A tree: ``kind`` is "true", "false", "leaf", "not", "and" or "or"."""

    kind: str
    leaf: AffineComparison | None = None
    operands: tuple[Condition, ...] = ()


TRUE, FALSE = Condition("true"), Condition("false")


def negate(condition: Condition) -> Condition:
    """The condition that holds where this one does not."""
    if condition.kind == "not":
        return condition.operands[0]
    if condition.kind in ("true", "false"):
        return FALSE if condition.kind == "true" else TRUE
    return Condition("not", None, (condition,))


def both(left: Condition, right: Condition) -> Condition:
    """Left and right."""
    if left.kind == "false" or right.kind == "false":
        return FALSE
    if left.kind == "true" or left is right:
        return right
    return left if right.kind == "true" else Condition("and", None, (left, right))


def either(left: Condition, right: Condition) -> Condition:
    """Left or right."""
    if left.kind == "true" or right.kind == "true":
        return TRUE
    if left.kind == "false" or left is right:
        return right
    return left if right.kind == "false" else Condition("or", None, (left, right))


def comparison(kind: str, value: Parts) -> Condition:
    """``value < 0`` (kind "negative") or ``value == 0`` (kind "zero"), decided if it can be."""
    if kind == "negative":
        if value.high < 0:
            return TRUE
        if value.low >= 0:
            return FALSE
    else:
        if value.low > 0 or value.high < 0:
            return FALSE
        if value.low == value.high == 0:
            return TRUE
    return Condition("leaf", AffineComparison(kind, value))


def spread(condition: Condition, dimensions: int) -> Array:
    """The condition as an array of 0 and 1.

    Raises:
        TooLargeError: it would be too large.
    """
    match condition.kind:
        case "true" | "false":
            return np.full((1,) * dimensions, int(condition.kind == "true"), np.int64)
        case "leaf":
            assert condition.leaf is not None
            value = parts.dense(condition.leaf.value)
            held = value < 0 if condition.leaf.kind == "negative" else value == 0
            return held.astype(np.int64)
        case "not":
            return 1 - spread(condition.operands[0], dimensions)
        case _:
            left, right = (spread(o, dimensions) for o in condition.operands)
            if int(np.prod(np.broadcast_shapes(left.shape, right.shape))) > parts.LARGEST:
                raise TooLargeError
            return left & right if condition.kind == "and" else left | right


@dataclass
class Grid:
    """Evaluates values over a launch.

    Args:
        grid, block: extents of the launch.
        params: PTX parameter name and byte offset → number.
        addresses: variable name → address (in its own state space).
        loops: header block of each loop around the access → its greatest number of iterations,
            outermost first.
        arrays: pointer parameter → what its array is assumed to hold.
        cluster: blocks of a cluster.
        part: the first block and the number of blocks, where it is not the whole launch.
    """

    grid: Triple
    block: Triple
    params: Mapping[tuple[str, int], int]
    addresses: Mapping[str, int]
    loops: Mapping[int, int]
    arrays: Mapping[str, Assumption] = field(default_factory=dict)
    cluster: Triple = (1, 1, 1)
    part: tuple[int, int] | None = None
    _values: dict[Value, Parts | Condition] = field(default_factory=dict)

    @property
    def dimensions(self) -> int:
        """Number of axes."""
        return 2 + len(self.loops)

    def value(self, value: Value) -> Parts:
        """The numbers of a value of more than one bit.

        Raises:
            UnknownValueError: a leaf is not known.
            TooLargeError: an array would be too large.
        """
        result = self._of(value)
        return result if isinstance(result, Parts) else self._as_number(result)

    def condition(self, value: Value) -> Condition:
        """A predicate as a condition (errors: see `value`)."""
        result = self._of(value)
        return self._as_condition(result) if isinstance(result, Parts) else result

    def beyond(self, value: Parts, limit: int) -> Condition:
        """Where an exact number is ``limit`` or more."""
        return negate(comparison("negative", parts.add(value, parts.number(
            -limit, self.dimensions))))  # fmt: skip

    def _of(self, value: Value) -> Parts | Condition:
        for node in in_order([value], stop=self._values):
            self._values[node] = self._node(node) if node.args else self._leaf(node)
        return self._values[value]

    # ------------------------------------------------------------ leaves

    def _leaf(self, node: Value) -> Parts:
        match node.op:
            case "const":
                assert node.constant is not None
                return parts.number(node.constant, self.dimensions)
            case "param":
                if node.payload not in self.params:
                    raise UnknownValueError(f"argument {node.payload[0]} is not given")
                return parts.number(self.params[node.payload], self.dimensions)
            case "address":
                known = self.addresses.get(node.payload)
                if known is None:
                    raise UnknownValueError(f"the address of {node.payload} is not known")
                return parts.number(known, self.dimensions)
            case "iter":
                if node.payload not in self.loops:
                    raise UnknownValueError("the length of a loop is not known")
                axis = 2 + list(self.loops).index(node.payload)
                return parts.steps(axis, self.dimensions, self.loops[node.payload])
            case "special":
                return self._special(node.payload)
            case "unknown":
                raise UnknownValueError(node.payload[1])
            case _:
                raise UnknownValueError(f"a {node.op} leaf")

    def _special(self, name: str) -> Parts:
        value = Specials(self.grid, self.block, self.cluster, self.dimensions, self.part).of(name)
        if value is None:
            raise UnknownValueError(f"%{name} is not evaluated")
        return value

    # ------------------------------------------------------------ operations

    def _loaded(self, node: Value) -> Parts:
        """What an array holds at each address."""
        name = array_of(node)
        if name is None or name not in self.arrays:
            raise UnknownValueError(node.payload.reason)
        start = self.params.get((name, 0))
        if start is None:
            raise UnknownValueError(f"argument {name} is not given")
        places = parts.add(self._number_of(node.args[0]), parts.number(-start, self.dimensions))
        offsets = parts.dense(parts.in_range(places, 64, signed=True))
        return parts.of_arrays([self.arrays[name].read(offsets, node.bits // 8)])

    def _as_number(self, condition: Condition) -> Parts:
        return parts.of_arrays([spread(condition, self.dimensions)])

    def _as_condition(self, value: Parts) -> Condition:
        return negate(comparison("zero", parts.in_range(value, 1, signed=False)))

    def _number_of(self, node: Value) -> Parts:
        known = self._values[node]
        return known if isinstance(known, Parts) else self._as_number(known)

    def _condition_of(self, node: Value) -> Condition:
        known = self._values[node]
        return known if isinstance(known, Condition) else self._as_condition(known)

    def _node(self, node: Value) -> Parts | Condition:
        op, args = node.op, node.args
        if op == "load":
            return self._loaded(node)
        if node.bits == 1 and op in ("and", "or", "xor"):
            left, right = (self._condition_of(a) for a in args)
            if op == "xor":
                return either(both(left, negate(right)), both(negate(left), right))
            return both(left, right) if op == "and" else either(left, right)
        if op in ("eq", "ne", "lts", "les", "ltu", "leu"):
            return self._compare(op, args)
        if op == "select":
            return self._select(node)
        width = args[0].bits
        values = [self._number_of(a) for a in args]
        match op:
            case "add":
                return parts.add(values[0], values[1])
            case "sub":
                return parts.add(values[0], parts.scale(values[1], -1))
            case "mul":
                return parts.multiply(values[0], values[1])
            case "zext":
                return parts.in_range(values[0], width, signed=False)
            case "sext":
                return parts.in_range(values[0], width, signed=True)
            case "trunc":
                result = parts.in_range(values[0], node.bits, signed=False)
                return self._as_condition(result) if node.bits == 1 else result
            case "and" | "or" | "xor":
                return self._bitwise(op, values, width)
            case "shl":
                up = values[1].constant
                if up is not None:
                    return parts.scale(values[0], 1 << up if up < width else 0)
            case "shru" | "shrs":
                down = values[1].constant
                if down is not None and down < 63:
                    value = parts.in_range(values[0], width, signed=op == "shrs" or width == 64)
                    shifted = parts.floor_divide(value, 1 << down)
                    if op == "shru" and down and value.low < 0:
                        return parts.in_range(shifted, width - down, signed=False)
                    return shifted
            case "divu" | "remu" | "divs" | "rems":
                divided = self._division(op, values, width)
                if divided is not None:
                    return divided
        return self._elementwise(op, node.bits, width, values)

    def _bitwise(self, op: str, values: list[Parts], width: int) -> Parts:
        left, right = values
        if op == "and" and right.constant is not None:
            mask = right.constant & ((1 << width) - 1)
            if mask >> (width - 1):  # upper bits stay: what is below them goes
                low = mask & -mask
                if mask == (1 << width) - low:
                    return parts.add(left, parts.scale(parts.remainder(left, low), -1))
            right = parts.number(mask, self.dimensions) if width < 64 else right
        return parts.bitwise(
            op,
            parts.in_range(left, width, signed=width == 64),
            parts.in_range(right, width, signed=width == 64),
        )

    def _division(self, op: str, values: list[Parts], width: int) -> Parts | None:
        signed = op.endswith("s")
        left = parts.in_range(values[0], width, signed)
        right = parts.in_range(values[1], width, signed)
        divisor = right.constant
        if divisor is None or divisor <= 0 or left.low < 0:
            return None
        function = parts.floor_divide if op.startswith("div") else parts.remainder
        return function(left, divisor)

    def _elementwise(self, op: str, bits: int, width: int, values: list[Parts]) -> Parts:
        """Any operation, on the register's own numbers, spread out as far as its operands vary."""
        signed = op.endswith("s") and op != "abs"
        arrays = parts.combined(*(parts.in_range(v, width, signed) for v in values))
        if width == 64 and op in _UNSIGNED and any(bool((a < 0).any()) for a in arrays):
            raise UnknownValueError(f"{op} of numbers of 2**63 and more")
        match op:
            case "mins" | "minu":
                return parts.of_arrays([np.minimum(*arrays)])
            case "maxs" | "maxu":
                return parts.of_arrays([np.maximum(*arrays)])
            case "divs" | "divu" | "rems" | "remu":
                x, y = arrays
                if bool((y == 0).any()):
                    raise UnknownValueError("a division by zero")
                whole: parts.Array = np.abs(x) // np.abs(y) * np.sign(x) * np.sign(y)
                return parts.of_arrays([whole if op.startswith("div") else x - whole * y])
            case "shl":
                return parts.of_arrays([np.where(arrays[1] < width, arrays[0] << np.minimum(
                    arrays[1], 63), 0)])  # fmt: skip
            case "shru" | "shrs":
                return parts.of_arrays([arrays[0] >> np.minimum(arrays[1], min(width, 63))])
            case "mulhu" | "mulhs" if width <= 32:
                high = [int(np.abs(a).max()) for a in arrays]
                if high[0] * high[1] < 1 << 63:
                    return parts.of_arrays([(arrays[0] * arrays[1]) >> width])
                wide = (arrays[0].astype(np.uint64) * arrays[1].astype(np.uint64)) >> np.uint64(
                    width
                )
                return parts.of_arrays([wide.astype(np.int64)])
            case _:
                raise UnknownValueError(f"{op} is not evaluated over a launch")

    def _compare(self, op: str, args: tuple[Value, ...]) -> Condition:
        if args[0].bits == 1:
            left, right = (self._condition_of(a) for a in args)
            same = either(both(left, right), both(negate(left), negate(right)))
            return same if op == "eq" else negate(same)
        width = args[0].bits
        signed = op not in ("ltu", "leu")
        x, y = (parts.in_range(self._number_of(a), width, signed) for a in args)
        if width == 64 and not signed and min(x.low, y.low) < 0:
            one, other = (a.view(np.uint64) for a in parts.combined(x, y))
            held = one < other if op == "ltu" else one <= other
            return comparison("negative", parts.of_arrays([-held.astype(np.int64)]))
        difference = parts.add(x, parts.scale(y, -1))
        if op in ("eq", "ne"):
            equal = comparison("zero", difference)
            return equal if op == "eq" else negate(equal)
        if op in ("les", "leu"):
            difference = parts.add(difference, parts.number(-1, self.dimensions))
        return comparison("negative", difference)

    def _select(self, node: Value) -> Parts | Condition:
        condition = self._condition_of(node.args[0])
        yes, no = (self._values[a] for a in node.args[1:])
        if condition.kind in ("true", "false"):
            return yes if condition.kind == "true" else no
        if node.bits == 1:
            chosen = both(condition, self._condition_of(node.args[1]))
            return either(chosen, both(negate(condition), self._condition_of(node.args[2])))
        one, other = self._number_of(node.args[1]), self._number_of(node.args[2])
        held = parts.of_arrays([spread(condition, self.dimensions)])
        return parts.add(other, parts.multiply(held, parts.add(one, parts.scale(other, -1))))
