"""Loop-carried values as functions of the iteration number, and trip counts.

Solved are arithmetic progressions (``p += 64``), values that one iteration hands to the next,
and counters that run around a small cycle (the stage index of a pipelined loop: 0, 1, 2, 0, …).
Everything else is unknown, with the reason. One file: values and trip count of a loop are solved in
turn, each from the other.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from kanalyze.symbolic.linear import Sum, combine, sum_of, value_of
from kanalyze.symbolic.pairs import halves, is_lower, joined, pair
from kanalyze.symbolic.registers import Registers, branch_sides
from kanalyze.symbolic.value import Value, evaluate, in_order, leaves, unknown_reasons

_LONGEST_CYCLE = 64
_MOST_TRIED = 1 << 16
WAITS_ON_MBARRIER = "spins until an mbarrier completes"


@dataclass(frozen=True, slots=True)
class TripCount:
    """How often the body of a loop runs, once it is entered.

    ``count`` is a value (over parameters and indices; 0 where the formula gives a negative number
    and the loop tests first), ``last`` the greatest iteration number that the header sees; both
    None where they are not known, with the reason. ``goes_on`` is the predicate under which the
    loop continues after an iteration (before it, if ``tests_first``), where it is one comparison of
    order: once it is false it stays so.
    """

    count: Value | None
    last: Value | None
    reason: str | None
    tests_first: bool = False
    goes_on: Value | None = None


@dataclass
class SolvedLoops:
    """Loop-carried values solved: use `resolve` on any value of the function."""

    registers: Registers
    trips: dict[int, TripCount] = field(default_factory=dict)  # by header block
    _layers: list[dict[Value, Value]] = field(default_factory=list)  # innermost loops first

    def resolve(self, values: Iterable[Value], block: int) -> list[Value]:
        """``values`` as seen in ``block``, without phi leaves.

        A value that was computed in a loop and is used behind it is the one of the last
        iteration.
        """
        result = self._without_phis(values)
        pool = self.registers.pool
        left = {leaf for value in result for leaf in leaves(value, "iter")}
        outside: dict[Value, Value] = {}
        for leaf in left:
            loop = self.registers.loops[leaf.payload]
            if block not in loop.body:
                trip = self.trips.get(leaf.payload)
                last = trip.last if trip is not None else None
                outside[leaf] = (
                    self.registers.pool.node(
                        "trunc" if last.bits > leaf.bits else "zext", leaf.bits, last
                    )
                    if last is not None
                    else pool.unknown(
                        ("last", leaf.payload), "left over from a loop of unknown length", leaf.bits
                    )
                )
        return self._without_phis(pool.substitute_all(result, outside)) if outside else result

    def _without_phis(self, values: Iterable[Value]) -> list[Value]:
        result = list(values)
        for layer in self._layers:
            result = self.registers.pool.substitute_all(result, layer)
        return result

    def finish(self) -> None:
        """Resolve the trip counts of inner loops, too: they may depend on outer loops."""
        for header, trip in self.trips.items():
            if trip.count is not None and trip.last is not None:
                count, last = self._without_phis([trip.count, trip.last])
                on = self._without_phis([trip.goes_on])[0] if trip.goes_on is not None else None
                self.trips[header] = replace(trip, count=count, last=last, goes_on=on)


def solve(registers: Registers) -> SolvedLoops:
    """Solve the loop-carried values and trip counts of a function, inner loops first."""
    solved = SolvedLoops(registers)
    for loop in sorted(registers.cfg.loops, key=lambda loop: -loop.depth):
        _Loop(solved, loop.header).solve()
    solved.finish()
    return solved


class _Loop:
    def __init__(self, solved: SolvedLoops, header: int):
        self.solved = solved
        self.pool = solved.registers.pool
        self.header = header
        self.loop = solved.registers.loops[header]

    def solve(self) -> None:
        registers = self.solved.registers
        open_phis = {
            phi: (start, next_values)
            for phi, (header, start, next_values) in registers.phis.items()
            if header == self.header
        }
        layer: dict[Value, Value] = {}
        following: dict[Value, Value] = {}
        starts: dict[Value, Value] = {}
        for phi, (start, next_values) in open_phis.items():
            (starts[phi],) = self.solved.resolve([start], self.header)
            resolved = [
                self.solved.resolve([value], latch)[0]
                for value, latch in zip(next_values, self.loop.latches, strict=True)
            ]
            if len(set(resolved)) == 1:
                following[phi] = resolved[0]
        self._solve_pairs(starts, following, layer)
        progress = True
        while progress:
            progress = False
            for phi in [p for p in following if p not in layer]:
                (next_value,) = self.pool.substitute_all([following[phi]], layer)
                following[phi] = next_value
                solution = self._solution(phi, starts[phi], next_value)
                if solution is not None:
                    layer[phi] = solution
                    progress = True
        for phi in open_phis:
            if phi not in layer:
                layer[phi] = self._unsolved(phi, starts[phi], following.get(phi))
        self.solved._layers.append(layer)
        self.solved.trips[self.header] = self._trip_count()

    def _unsolved(self, phi: Value, start: Value, next_value: Value | None) -> Value:
        reasons = unknown_reasons(start) + (unknown_reasons(next_value) if next_value else [])
        reason = reasons[0] if reasons else "carried around a loop in a way that is not followed"
        return self.pool.unknown(("carried", phi.payload), reason, phi.bits)

    # ------------------------------------------------------------ recurrences

    def _iteration(self, bits: int) -> Value:
        return self.pool.iteration(self.header, bits)

    def _own_phis(self, value: Value) -> list[Value]:
        return [p for p in leaves(value, "phi") if p.payload[0] == self.header]

    def _varies(self, value: Value) -> bool:
        """Whether ``value`` depends on this loop's iteration."""
        return bool(self._own_phis(value)) or any(
            leaf.payload == self.header for leaf in leaves(value, "iter")
        )

    def _solution(self, phi: Value, start: Value, next_value: Value) -> Value | None:
        if next_value is phi or next_value is start:
            return start
        own = self._own_phis(next_value)
        if not own:
            return self._one_behind(phi, start, next_value)
        if own != [phi]:
            return None
        step = self._step(phi, next_value)
        if step is not None:
            grown = self.pool.node("mul", phi.bits, self._iteration(phi.bits), step)
            return self.pool.node("add", phi.bits, start, grown)
        return self._cycle(phi, start, next_value)

    def _solve_pairs(
        self, starts: dict[Value, Value], following: dict[Value, Value], layer: dict[Value, Value]
    ) -> None:
        """Counters of 64 bits in two registers: the upper one takes the carry of the lower."""
        for high, next_high in following.items():
            if next_high.op != "trunc" or next_high.args[0].op != "shru":
                continue
            whole, amount = next_high.args[0].args
            if whole.bits != 64 or amount.unsigned != 32:
                continue
            total = sum_of(whole, self.pool.sums)
            rest = total.without(self.pool.node("zext", 64, high))
            lows = [low for low in following if low is not high
                    and total.coefficient(self.pool.node("zext", 64, low)) == 1]  # fmt: skip
            if total.coefficient(self.pool.node("zext", 64, high)) != 1 << 32 or len(lows) != 1:
                continue
            (low,) = lows
            step = value_of(self.pool, rest.without(self.pool.node("zext", 64, low)))
            same = is_lower(self.pool, following[low], whole)
            if same and not self._varies(step):
                start = pair(self.pool, starts[low], starts[high])
                grown = self.pool.node("mul", 64, self._iteration(64), step)
                number = self.pool.node("add", 64, start, grown)
                layer[low], layer[high] = halves(self.pool, number)

    def _step(self, phi: Value, next_value: Value) -> Value | None:
        """What each iteration adds to ``phi``, if that is the same in all of them."""
        if next_value.op == "select" and not self._varies(next_value.args[0]):
            steps = [self._step(phi, choice) for choice in next_value.args[1:]]
            if steps[0] is None or steps[1] is None:
                return None
            return self.pool.node("select", phi.bits, next_value.args[0], steps[0], steps[1])
        total = sum_of(next_value, self.pool.sums)
        if total.coefficient(phi) != 1:
            return None
        step = value_of(self.pool, total.without(phi))
        return None if self._varies(step) else step

    def _one_behind(self, phi: Value, start: Value, next_value: Value) -> Value:
        """The phi is ``start`` first, then what the iteration before it computed."""
        before = self._at(next_value, -1)
        first = self._at_number(before, 0)
        if sum_of(first, self.pool.sums).equals(sum_of(start, self.pool.sums)):
            return before
        at_first = self.pool.node("eq", 1, self._iteration(32), self.pool.const(0, 32))
        return self.pool.node("select", phi.bits, at_first, start, before)

    def _at(self, value: Value, shift: int) -> Value:
        """``value`` with the iteration number shifted."""
        by = {
            leaf: self.pool.node("add", leaf.bits, leaf, self.pool.const(shift, leaf.bits))
            for leaf in leaves(value, "iter")
            if leaf.payload == self.header
        }
        return self.pool.substitute(value, by)

    def _at_number(self, value: Value, number: int) -> Value:
        by = {
            leaf: self.pool.const(number, leaf.bits)
            for leaf in leaves(value, "iter")
            if leaf.payload == self.header
        }
        return self.pool.substitute(value, by)

    def _cycle(self, phi: Value, start: Value, next_value: Value) -> Value | None:
        """A counter that depends on nothing but itself and comes round: ``a + d·((i+s) mod n)``."""
        others = [n for n in in_order([next_value]) if not n.args and n.op not in ("const", "phi")]
        if others or start.op != "const":
            return None
        sequence = [start]
        for _ in range(_LONGEST_CYCLE + 1):
            sequence.append(self.pool.substitute(next_value, {phi: sequence[-1]}))
        for offset in (0, 1):
            first = sequence[offset]
            repeats = [i for i in range(offset + 1, len(sequence)) if sequence[i] is first]
            if repeats:
                length = repeats[0] - offset
                round_values = [v.payload for v in sequence[offset : offset + length]]
                return self._round(phi, start, round_values, offset)
        return None

    def _round(self, phi: Value, start: Value, values: list[int], offset: int) -> Value | None:
        bits = phi.bits
        length, minimum = len(values), min(values)
        step = sorted(values)[1] - minimum if length > 1 else 1
        ahead = (values[0] - minimum) // step if step else 0
        if any(v != minimum + step * ((i + ahead) % length) for i, v in enumerate(values)):
            return None
        number = self._iteration(bits)
        shifted = self.pool.node("add", bits, number, self.pool.const(ahead - offset, bits))
        turn = self.pool.node("remu", bits, shifted, self.pool.const(length, bits))
        scaled = self.pool.node("mul", bits, turn, self.pool.const(step, bits))
        value = self.pool.node("add", bits, scaled, self.pool.const(minimum, bits))
        if offset == 0:
            return value
        at_first = self.pool.node("eq", 1, number, self.pool.const(0, bits))
        return self.pool.node("select", bits, at_first, start, value)

    def _steps_of_a_variable(self, gap: Sum, number: Value) -> Value | None:
        """``ceil(rest / step)`` for a step that is a value: ``i += blockDim.x * gridDim.x``.

        The step is taken to be positive: with any other the loop would not end.
        """
        bits = gap.bits
        step, rest = self.pool.const(0, bits), gap
        for term, coefficient in gap.terms:
            if not self._varies(term):
                continue
            if term.op != "mul" or number not in term.args:
                return None
            (other,) = [a for a in term.args if a is not number] or [number]
            if self._varies(other):
                return None
            scaled = self.pool.node("mul", bits, other, self.pool.const(-coefficient, bits))
            step = self.pool.node("add", bits, step, scaled)
            rest = rest.without(term)
        if step.op == "const":
            return None
        slack = self.pool.node("sub", bits, step, self.pool.const(1, bits))
        padded = self.pool.node("add", bits, value_of(self.pool, rest), slack)
        quotient = self.pool.node("divs", bits, self._simplify(padded), self._simplify(step))
        return self.pool.node("maxs", bits, quotient, self.pool.const(0, bits))

    # ------------------------------------------------------------ trip counts

    def _trip_count(self) -> TripCount:
        cfg = self.solved.registers.cfg
        exits = self.loop.exits
        if not exits:
            return TripCount(None, None, "the loop has no exit")
        if len(exits) > 1:
            return TripCount(None, None, "the loop has more than one exit")
        block, successor = exits[0]
        condition = self.solved.registers.conditions.get(block)
        if condition is None:
            return TripCount(None, None, "the loop is left by something other than a branch")
        (condition,) = self.solved.resolve([condition], block)
        if (
            branch_sides(cfg, block)[0] == successor
        ):  # keep the condition under which the loop goes on
            condition = self.pool.node("xor", 1, condition, self.pool.const(1, 1))
        reasons = unknown_reasons(condition)
        if reasons:
            waits = any("mbarrier" in reason for reason in reasons)
            reason = WAITS_ON_MBARRIER if waits else f"its condition: {reasons[0]}"
            return TripCount(None, None, reason)
        others = [cfg.blocks[b] for b in self.loop.body if b != self.header]
        works = any(len(b.instructions) > 1 for b in others)  # more than the jump back
        tests_first = block == self.header and block not in self.loop.latches and works
        if block != self.header and block not in self.loop.latches:
            return TripCount(None, None, "the loop is left from its middle")
        last = self._steps_until_false(condition)
        if last is None:
            last = self._first_false(condition)
        if last is None:
            return TripCount(None, None, "its condition is not a comparison with a counter")
        count = last
        if not tests_first:
            count = self._plus_one(last)
        ordered = condition.op in ("lts", "les", "ltu", "leu")
        return TripCount(count, last, None, tests_first, condition if ordered else None)

    def _first_false(self, condition: Value) -> Value | None:
        """The same, tried out, for a condition that depends on nothing but the iteration."""
        given = [n for n in in_order([condition]) if not n.args and n.op != "const"]
        if any(n.op != "iter" or n.payload != self.header for n in given):
            return None
        numbers = np.arange(_MOST_TRIED)
        (held,) = evaluate([condition], {}, {}, {self.header: numbers})
        over = np.flatnonzero(held == 0)
        return self.pool.const(int(over[0]), 32) if len(over) else None

    def _plus_one(self, last: Value) -> Value:
        """``last + 1``; inside a rounded-up division, so that ``ceil((K-64)/64) + 1`` is K/64."""
        one = self.pool.const(1, last.bits)
        if last.op == "select" and last.args[2].unsigned == 0 and last.args[1].op == "divu":
            quotient = last.args[1]
            more = self._simplify(
                self.pool.node("add", last.bits, quotient.args[0], quotient.args[1])
            )
            inner = self.pool.node("divu", last.bits, more, quotient.args[1])
            return self.pool.node("select", last.bits, last.args[0], inner, one)
        if last.op == "maxs" and last.args[1].unsigned == 0:
            quotient = last.args[0]
            divisor = quotient.args[1] if quotient.op == "divs" else None
            if divisor is None or divisor.unsigned is None:
                inner = self._simplify(self.pool.node("add", last.bits, quotient, one))
            else:
                more = self._simplify(self.pool.node("add", last.bits, quotient.args[0], divisor))
                inner = self.pool.node("divs", last.bits, more, divisor)
            return self.pool.node("maxs", last.bits, inner, one)
        return self.pool.node("add", last.bits, last, one)

    def _simplify(self, value: Value) -> Value:
        return value_of(self.pool, sum_of(value, self.pool.sums))

    def _steps_until_false(self, condition: Value) -> Value | None:
        """The least iteration number at which ``condition`` no longer holds."""
        negated = False
        while condition.op == "xor" and condition.args[1].unsigned == 1:
            negated = not negated
            condition = condition.args[0]
        if condition.op not in ("lts", "les", "ltu", "leu", "ne", "eq"):
            return None
        left, right = condition.args
        op = condition.op
        if negated:  # not (a < b)  is  b <= a
            if op in ("eq", "ne"):
                op = {"eq": "ne", "ne": "eq"}[op]
            else:
                left, right = right, left
                op = {"lt": "le", "le": "lt"}[op[:2]] + op[2]
        if op == "eq":
            return None
        bits = left.bits
        number = self._iteration(bits)
        sums = [joined(self.pool, sum_of(side, self.pool.sums)) for side in (left, right)]
        gap = combine(bits, [(sums[1], 1), (sums[0], -1)])  # goes on while gap > 0 (>= 0, != 0)
        step = -gap.coefficient(number)
        rest = value_of(self.pool, gap.without(number))
        if step == 0 and op.startswith("lt") and op.endswith("s"):
            return self._steps_of_a_variable(gap, number)
        if self._varies(rest) or step == 0:
            return None
        if op == "ne":
            divisor = self.pool.const(abs(step), bits)
            total = (
                rest if step > 0 else self.pool.node("sub", bits, self.pool.const(0, bits), rest)
            )
            return self.pool.node("divs", bits, self._simplify(total), divisor)
        if step < 0:
            return None
        slack = step - 1 if op.startswith("lt") else step
        padded = self._simplify(self.pool.node("add", bits, rest, self.pool.const(slack, bits)))
        stride, zero = self.pool.const(step, bits), self.pool.const(0, bits)
        if op.endswith("u"):
            sides = [value_of(self.pool, s.without(number)) for s in sums]
            entered = self.pool.node(op, 1, *sides)
            quotient = self.pool.node("divu", bits, padded, stride)
            return self.pool.node("select", bits, entered, quotient, zero)
        quotient = self.pool.node("divs", bits, padded, stride)
        return self.pool.node("maxs", bits, quotient, zero)
