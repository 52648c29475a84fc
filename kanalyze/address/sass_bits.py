"""SASS: logic, shifts and comparisons, and what all transfer functions share.

See `kanalyze.address.sass_transfer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kanalyze.address.isa import negation
from kanalyze.address.transfer import NotModelled
from kanalyze.address.value import Pool, Value
from kanalyze.sass.ir import Operand, Predicate, Register, SassInstruction

Results = dict[int, Value | tuple[Value, ...]]
"""Place of a written operand to its value of 1, 32 or 64 bits, or to those of its registers."""


@dataclass(frozen=True, slots=True)
class Context:
    """One instruction with what is needed to give its results values.

    ``read`` gives the value of an operand at a width in bits; ``predicate_bits`` that of ``PR`` as
    a number, for a mask.
    """

    pool: Pool
    instruction: SassInstruction
    read: Callable[[Operand, int], Value]
    special: Callable[[str], Value]
    all_predicates: Callable[[int], Value]

    @property
    def parts(self) -> tuple[str, ...]:
        """The mnemonic split at its dots."""
        return self.instruction.parts

    def has(self, *modifiers: str) -> bool:
        """Whether any of these modifiers is there."""
        return any(m in self.instruction.parts[1:] for m in modifiers)

    def make(self, op: str, bits: int, *args: Value) -> Value:
        """A node of the pool."""
        return self.pool.make(op, bits, *args)

    def number(self, number: int, bits: int = 32) -> Value:
        """A constant."""
        return self.pool.const(number, bits)

    def split(self) -> tuple[list[int], list[Operand]]:
        """Places of the written operands, and the others: a register, and predicates beside it."""
        operands = self.instruction.operands
        places = [0]
        if not isinstance(operands[0], Register):  # LOP3.LUT P0, RZ, …
            while not isinstance(operands[places[-1]], Register):
                places.append(places[-1] + 1)
        else:  # IADD3 R0, P0, P1, …
            while isinstance(operands[places[-1] + 1], Predicate):
                places.append(places[-1] + 1)
        return places, list(operands[places[-1] + 1 :])


def pair(pool: Pool, low: Value, high: Value) -> Value:
    """The 64-bit number of two registers."""
    if low.op == "trunc" and high.op == "trunc" and low.args[0].bits == 64:
        whole, upper = low.args[0], high.args[0]
        if upper.op == "shru" and upper.args[0] is whole and upper.args[1].unsigned == 32:
            return whole
    if high.op == "shrs" and high.args[0] is low and (high.args[1].unsigned or 0) >= 31:
        return pool.make("sext", 64, low)
    moved = pool.make("shl", 64, pool.make("zext", 64, high), pool.const(32, 64))
    return pool.make("or", 64, moved, pool.make("zext", 64, low))


def halves(pool: Pool, value: Value) -> tuple[Value, Value]:
    """The two registers of a 64-bit number."""
    upper = pool.make("shru", 64, value, pool.const(32, 64))
    return pool.make("trunc", 32, value), pool.make("trunc", 32, upper)


def is_real(operand: Operand) -> bool:
    """Whether an operand is a register or predicate other than RZ and PT."""
    return isinstance(operand, Predicate | Register) and operand.number is not None


def bits_of(context: Context) -> int:
    """Width of the numbers: 32, or 64 by a modifier."""
    return 64 if context.has("64", "S64", "U64") else 32


# ---------------------------------------------------------------- bits


def logic(pool: Pool, table: int, values: Sequence[Value]) -> Value:
    """The function of ``values`` that a truth table gives; the first has the highest bit of a row.

    By cofactors: ``x and g``, ``x or g``, ``x xor g`` where one of the values allows that.
    """
    bits = values[0].bits if values else 1
    zero, ones = pool.const(0, bits), pool.const(-1, bits)
    rows = 1 << len(values)
    table &= (1 << rows) - 1
    if table == 0:
        return zero
    if table == (1 << rows) - 1:
        return ones
    best: Value | None = None
    for place, value in enumerate(values):
        low, high = _cofactors(table, len(values), place)
        rest = [v for p, v in enumerate(values) if p != place]
        everything = (1 << (rows // 2)) - 1
        if value.op == "const" and value in (zero, ones):
            return logic_of(pool, high if value is ones else low, rest, bits)
        if low == high:
            return logic_of(pool, low, rest, bits)
        inverse = pool.make("xor", bits, value, ones)
        if low == 0:
            best = pool.make("and", bits, value, logic_of(pool, high, rest, bits))
        elif high == 0:
            best = pool.make("and", bits, inverse, logic_of(pool, low, rest, bits))
        elif high == everything:
            best = pool.make("or", bits, value, logic_of(pool, low, rest, bits))
        elif low == everything:
            best = pool.make("or", bits, inverse, logic_of(pool, high, rest, bits))
        elif low == high ^ everything:
            best = pool.make("xor", bits, value, logic_of(pool, low, rest, bits))
    if best is not None:
        return best
    low, high = _cofactors(table, len(values), 0)
    inverse = pool.make("xor", bits, values[0], ones)
    taken = pool.make("and", bits, values[0], logic_of(pool, high, values[1:], bits))
    return pool.make(
        "or", bits, taken, pool.make("and", bits, inverse, logic_of(pool, low, values[1:], bits))
    )


def logic_of(pool: Pool, table: int, values: Sequence[Value], bits: int) -> Value:
    """`logic`, of no values, too."""
    if values:
        return logic(pool, table, values)
    return pool.const(-1 if table & 1 else 0, bits)


def _cofactors(table: int, count: int, place: int) -> tuple[int, int]:
    """The tables where the value at ``place`` is 0 and where it is 1."""
    weight = count - 1 - place
    tables = [0, 0]
    seen = [0, 0]
    for row in range(1 << count):
        side = row >> weight & 1
        tables[side] |= (table >> row & 1) << seen[side]
        seen[side] += 1
    return tables[0], tables[1]


def three_inputs(context: Context) -> Results:
    """``LOP3.LUT R, a, b, c, table, P``, ``LOP3.LUT P, R, …``: the predicate says "not zero"."""
    places, sources = context.split()
    table = context.read(sources[3], 32).unsigned
    if table is None or not context.has("LUT"):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    value = logic(context.pool, table, [context.read(o, 32) for o in sources[:3]])
    results: Results = {places[-1]: value}
    if len(places) > 1:
        held = context.make("ne", 1, value, context.number(0))
        other = context.read(sources[4], 1) if len(sources) > 4 else context.number(0, 1)
        results[0] = context.make("and" if context.has("PAND") else "or", 1, held, other)
    return results


def predicate_logic(context: Context) -> Results:
    """``PLOP3.LUT P, Q, a, b, c, table, table``: a table for either result."""
    operands = context.instruction.operands
    values = [context.read(o, 1) for o in operands[2:5]]
    tables = [context.read(o, 32).unsigned for o in operands[5:7]]
    if None in tables or len(tables) != 2 or not context.has("LUT"):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    return {p: logic(context.pool, t or 0, values) for p, t in enumerate(tables)}


def funnel(context: Context) -> Results:
    """``SHF.{L,R}.{U32,S32,U64,S64}[.HI] R, low, amount, high``: one half of a shifted pair."""
    _, low_operand, amount_operand, high_operand = context.instruction.operands
    low, high = context.read(low_operand, 32), context.read(high_operand, 32)
    amount = context.read(amount_operand, 32)
    if context.has("W"):
        limit = 63 if context.has("U64", "S64") else 31
        amount = context.make("and", 32, amount, context.number(limit))
    signed = context.has("S32", "S64")
    if context.has("R") and context.has("HI"):
        return {0: context.make("shrs" if signed else "shru", 32, high, amount)}
    if context.has("L") and not context.has("HI"):
        return {0: context.make("shl", 32, low, amount)}
    wide_amount = context.make("zext", 64, amount)
    whole = pair(context.pool, low, high)
    if context.has("R"):
        shifted = context.make("shrs" if signed else "shru", 64, whole, wide_amount)
        return {0: context.make("trunc", 32, shifted)}
    shifted = context.make("shl", 64, whole, wide_amount)
    return {0: halves(context.pool, shifted)[1]}


def extend(context: Context) -> Results:
    """``SGXT R, a, n``: the low n bits, with their sign (``.U32``: with zeros)."""
    _, source, width = context.instruction.operands[:3]
    value, count = context.read(source, 32), context.read(width, 32).unsigned
    if count is None or context.has("W"):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    if count >= 32:
        return {0: value}
    if context.has("U32"):
        return {0: context.make("and", 32, value, context.number((1 << count) - 1))}
    up = context.number(32 - count)
    return {0: context.make("shrs", 32, context.make("shl", 32, value, up), up)}


def mask(context: Context) -> Results:
    """``BMSK R, position, width``: ones."""
    position, width = (context.read(o, 32).unsigned for o in context.instruction.operands[1:3])
    if position is None or width is None:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    return {0: context.number(((1 << min(width, 32)) - 1) << min(position, 32))}


def permute(context: Context) -> Results:
    """``PRMT R, a, selector, b`` with a constant selector."""
    _, low, chosen, high = context.instruction.operands
    selector = context.read(chosen, 32).unsigned
    if selector is None or len(context.parts) > 1:
        raise NotModelled(f"{context.instruction.opcode} with this selector is not evaluated")
    both = [context.read(low, 32), context.read(high, 32)]
    total = context.number(0)
    for index in range(4):
        choice = selector >> (4 * index) & 0xF
        if choice & 8:
            raise NotModelled("PRMT that replicates a sign")
        amount = context.number(8 * (choice & 3))
        byte = context.make("shru", 32, both[choice >> 2], amount)
        byte = context.make("and", 32, byte, context.number(0xFF))
        placed = context.make("shl", 32, byte, context.number(8 * index))
        total = context.make("or", 32, total, placed)
    return {0: total}


def population(context: Context) -> Results:
    """``POPC R, a``: how many bits are ones."""
    return {0: context.make("popc", 32, context.read(context.instruction.operands[1], 32))}


# ---------------------------------------------------------------- comparisons

_COMPARISONS = {
    "LT": ("lt", False), "LE": ("le", False), "GT": ("lt", True), "GE": ("le", True),
    "EQ": ("eq", False), "NE": ("ne", False),
}  # fmt: skip


def compare(context: Context) -> Results:
    """``ISETP.GE.U32.AND P, Q, a, b, R``: P is ``a >= b and R``, Q ``not a >= b and R``."""
    operands = context.instruction.operands
    found = next((_COMPARISONS[p] for p in context.parts[1:] if p in _COMPARISONS), None)
    bits = bits_of(context)
    if found is None:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    kind, swapped = found
    left, right = (context.read(o, bits) for o in operands[2:4])
    if swapped:
        left, right = right, left
    sign = "" if kind in ("eq", "ne") else "u" if context.has("U32", "U64") else "s"
    if context.has("EX"):
        held = _extended(context, kind, sign, (left, right), context.read(operands[5], 1))
    else:
        held = context.make(kind + sign, 1, left, right)
    results: Results = {}
    combine = next((p.lower() for p in context.parts[1:] if p in ("AND", "OR", "XOR")), "and")
    other = context.read(operands[4], 1)
    for place, value in enumerate((held, negation(context.pool, held))):
        if is_real(operands[place]):
            results[place] = context.make(combine, 1, value, other)
    return results


def _extended(
    context: Context, kind: str, sign: str, sides: tuple[Value, Value], low: Value
) -> Value:
    """The comparison of 64-bit numbers from that of their lower halves, ``low``."""
    left, right = sides
    if kind in ("lt", "le") and low.op == kind + "u" and low.args[0].bits == 32:
        wide = [pair(context.pool, x, y) for x, y in zip(low.args, sides, strict=True)]
        return context.make(kind + sign, 1, *wide)
    same = context.make("eq", 1, left, right)
    if kind == "eq":
        return context.make("and", 1, same, low)
    if kind == "ne":
        return context.make("or", 1, negation(context.pool, same), low)
    below = context.make("lt" + sign, 1, left, right)
    return context.make("or", 1, below, context.make("and", 1, same, low))
