"""SASS: logic, shifts and comparisons, and what all transfer functions share.

See `kanalyze.symbolic.sass_transfer`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kanalyze.sass.ir import Operand, Predicate, Register, SassInstruction
from kanalyze.symbolic.isa import negation
from kanalyze.symbolic.pairs import halves, pair
from kanalyze.symbolic.ptx_transfer import NotModelled, warp_uniform
from kanalyze.symbolic.value import Value, ValuePool, in_order

Results = dict[int, Value | tuple[Value, ...]]
"""Place of a written operand to its value of 1, 32 or 64 bits, or to those of its registers."""


@dataclass(frozen=True, slots=True)
class SassContext:
    """One instruction with what is needed to give its results values.

    ``read`` gives the value of an operand at a width in bits; ``predicate_bits`` that of ``PR`` as
    a number, for a mask.
    """

    pool: ValuePool
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
        return self.pool.node(op, bits, *args)

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


def is_real(operand: Operand) -> bool:
    """Whether an operand is a register or predicate other than RZ and PT."""
    return isinstance(operand, Predicate | Register) and operand.number is not None


def uniform(pool: ValuePool, value: Value) -> bool:
    """Whether every lane of a warp has the same value, where that can be shown.

    Beside what `warp_uniform` knows: ``tid.x < 64`` and the like, for multiples of 32.
    """
    same: dict[Value, Value] = {}
    for node in in_order([value]):
        if node.op in ("ltu", "leu", "lts", "les"):
            left, right = node.args
            strict = node.op.startswith("lt")
            if _is_thread(left) and right.unsigned is not None:
                bound = right.unsigned + (not strict)
            elif _is_thread(right) and left.unsigned is not None:
                bound = left.unsigned + strict
            else:
                continue
            if bound % 32 == 0:
                same[node] = pool.const(1, 1)
    return warp_uniform(pool.substitute(value, same))


def _is_thread(value: Value) -> bool:
    """``tid.x``, or its low five bits or more."""
    if value.op == "and" and (value.args[1].unsigned or 0) & 31 == 31:
        number = (value.args[1].unsigned or 0) + 1
        return number & (number - 1) == 0 and _is_thread(value.args[0])
    return value.op == "special" and value.payload == "tid.x"


def bits_of(context: SassContext) -> int:
    """Width of the numbers: 32, or 64 by a modifier."""
    return 64 if context.has("64", "S64", "U64") else 32


# ---------------------------------------------------------------- bits


def logic(pool: ValuePool, table: int, values: Sequence[Value]) -> Value:
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
    everything = (1 << (rows // 2)) - 1
    ways = []
    for place, value in enumerate(values):
        low, high = _cofactors(table, len(values), place)
        rest = [v for p, v in enumerate(values) if p != place]
        if value.op == "const" and value in (zero, ones):
            return logic_of(pool, high if value is ones else low, rest, bits)
        if low == high:
            return logic_of(pool, low, rest, bits)
        ways.append((value, low, high, rest))
    for value, low, high, rest in ways:
        inverse = pool.node("xor", bits, value, ones)
        if low == 0:
            return pool.node("and", bits, value, logic_of(pool, high, rest, bits))
        if high == 0:
            return pool.node("and", bits, inverse, logic_of(pool, low, rest, bits))
        if high == everything:
            return pool.node("or", bits, value, logic_of(pool, low, rest, bits))
        if low == everything:
            return pool.node("or", bits, inverse, logic_of(pool, high, rest, bits))
        if low == high ^ everything:
            return pool.node("xor", bits, value, logic_of(pool, low, rest, bits))
    _, low, high, _ = ways[0]
    inverse = pool.node("xor", bits, values[0], ones)
    taken = pool.node("and", bits, values[0], logic_of(pool, high, values[1:], bits))
    return pool.node(
        "or", bits, taken, pool.node("and", bits, inverse, logic_of(pool, low, values[1:], bits))
    )


def logic_of(pool: ValuePool, table: int, values: Sequence[Value], bits: int) -> Value:
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


def _single_bit(pool: ValuePool, value: Value) -> Value:
    """``x & 2^n`` where x is put together from masks: ptxas keeps predicates in bits of a register.

    What the other bits are does not matter, nor does what they were before.
    """
    mask = value.args[1].unsigned if value.op == "and" else None
    if mask is None or mask & (mask - 1):
        return value
    done: dict[Value, Value] = {}
    for node in in_order([value.args[0]]):
        number = node.args[1].unsigned if len(node.args) == 2 else None
        if node.op == "const":
            masked = pool.const(node.payload & mask, value.bits)
        elif node.op == "and" and number is not None:
            masked = done[node.args[0]] if number & mask else pool.const(0, value.bits)
        elif node.op == "or" and number is not None:
            masked = value.args[1] if number & mask else done[node.args[0]]
        elif node.op == "or":
            masked = pool.node("or", value.bits, *(done[a] for a in node.args))
        elif (place := _flag(node)) is not None:
            masked = node if mask >> place & 1 else pool.const(0, value.bits)
        elif node.op == "select":
            masked = pool.node(
                "select", value.bits, node.args[0], *(done[a] for a in node.args[1:])
            )
        elif node.bits == value.bits:
            masked = pool.node("and", value.bits, node, value.args[1])
        else:
            masked = node
        done[node] = masked
    return done[value.args[0]]


def _flag(value: Value) -> int | None:
    """The place of the only bit of ``value`` that can be 1: a predicate as a number, shifted."""
    if value.op == "zext" and value.args[0].bits == 1:
        return 0
    if value.op == "shl" and _flag(value.args[0]) == 0:
        amount = value.args[1].unsigned
        return amount if amount is not None and amount < value.bits else None
    return None


def nonzero(pool: ValuePool, value: Value) -> Value:
    """Whether ``value`` is not 0; of predicates that were put into bits, these again."""
    if value.op == "zext":
        return nonzero(pool, value.args[0])
    if value.bits == 1:
        return value
    if _flag(value) is not None:
        return nonzero(pool, value.args[0])
    if value.op == "or":
        return pool.node("or", 1, *(nonzero(pool, a) for a in value.args))
    if value.op == "select":
        return pool.node("select", 1, value.args[0], *(nonzero(pool, a) for a in value.args[1:]))
    return pool.node("ne", 1, value, pool.const(0, value.bits))


def three_inputs(context: SassContext) -> Results:
    """``LOP3.LUT R, a, b, c, table, P``, ``LOP3.LUT P, R, …``: the predicate says "not zero"."""
    places, sources = context.split()
    table = context.read(sources[3], 32).unsigned
    if table is None or not context.has("LUT"):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    value = logic(context.pool, table, [context.read(o, 32) for o in sources[:3]])
    value = _single_bit(context.pool, value)
    results: Results = {places[-1]: value}
    if len(places) > 1:
        held = nonzero(context.pool, value)
        other = context.read(sources[4], 1) if len(sources) > 4 else context.number(0, 1)
        results[0] = context.make("and" if context.has("PAND") else "or", 1, held, other)
    return results


def predicate_logic(context: SassContext) -> Results:
    """``PLOP3.LUT P, Q, a, b, c, table, table``: a table for either result."""
    operands = context.instruction.operands
    values = [context.read(o, 1) for o in operands[2:5]]
    tables = [context.read(o, 32).unsigned for o in operands[5:7]]
    if None in tables or len(tables) != 2 or not context.has("LUT"):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    return {p: logic(context.pool, t or 0, values) for p, t in enumerate(tables)}


def funnel(context: SassContext) -> Results:
    """``SHF.{L,R}.{U32,S32,U64,S64}[.HI] R, low, amount, high``: one half of a shifted pair."""
    _, low_operand, amount_operand, high_operand = context.instruction.operands
    low, high = context.read(low_operand, 32), context.read(high_operand, 32)
    amount = context.read(amount_operand, 32)
    if not context.has("W", "U64", "S64"):
        amount = context.make("minu", 32, amount, context.number(32))
    elif context.has("W"):
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


def extend(context: SassContext) -> Results:
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


def mask(context: SassContext) -> Results:
    """``BMSK R, position, width``: ones."""
    position, width = (context.read(o, 32).unsigned for o in context.instruction.operands[1:3])
    if position is None or width is None:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    return {0: context.number(((1 << min(width, 32)) - 1) << min(position, 32))}


def permute(context: SassContext) -> Results:
    """``PRMT R, a, selector, b`` with a constant selector."""
    _, low, chosen, high = context.instruction.operands
    selector = context.read(chosen, 32).unsigned
    if selector is None or len(context.parts) > 1:
        raise NotModelled(f"{context.instruction.opcode} with this selector is not evaluated")
    both = [context.read(low, 32), context.read(high, 32)]
    total = context.number(0)
    for index in range(4):
        choice = selector >> (4 * index) & 0xF
        source, place = both[choice >> 2 & 1], choice & 3
        if choice & 8:  # the sign of the byte, eight times
            up = context.make("shl", 32, source, context.number(24 - 8 * place))
            byte = context.make("shrs", 32, up, context.number(31))
        else:
            byte = context.make("shru", 32, source, context.number(8 * place))
        byte = context.make("and", 32, byte, context.number(0xFF))
        placed = context.make("shl", 32, byte, context.number(8 * index))
        total = context.make("or", 32, total, placed)
    return {0: total}


def population(context: SassContext) -> Results:
    """``POPC R, a``: how many bits are ones."""
    return {0: context.make("popc", 32, context.read(context.instruction.operands[1], 32))}


# ---------------------------------------------------------------- comparisons

_COMPARISONS = {
    "LT": ("lt", False), "LE": ("le", False), "GT": ("lt", True), "GE": ("le", True),
    "EQ": ("eq", False), "NE": ("ne", False),
}  # fmt: skip


def compare(context: SassContext) -> Results:
    """``ISETP.GE.U32.AND P, Q, a, b, R``: P is ``a >= b and R``, Q ``not a >= b and R``."""
    operands = context.instruction.operands
    comparison = next((_COMPARISONS[p] for p in context.parts[1:] if p in _COMPARISONS), None)
    bits = bits_of(context)
    if comparison is None:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    kind, swapped = comparison
    left, right = (context.read(o, bits) for o in operands[2:4])
    if swapped:
        left, right = right, left
    sign = "" if kind in ("eq", "ne") else "u" if context.has("U32", "U64") else "s"
    if context.has("EX"):
        held = _extended(context, kind, sign, (left, right), context.read(operands[5], 1))
    elif kind in ("eq", "ne") and right.unsigned == 0:
        held = nonzero(context.pool, left)
        held = held if kind == "ne" else negation(context.pool, held)
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
    context: SassContext, kind: str, sign: str, sides: tuple[Value, Value], low: Value
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
