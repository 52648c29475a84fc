"""What one PTX instruction does to integer registers: a `Value` from the operands' values.

`TRANSFER` has one function for each base mnemonic that computes an integer or a predicate;
whatever is not in it makes its destination unknown, with the reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from kanalyze.ptx import ir
from kanalyze.symbolic.value import Value, ValuePool, in_order

_WIDTH = re.compile(r"[busf]?(?P<bits>8|16|32|64|128)$")
_FLOATING = re.compile(r"(b?f16(x2)?|f32(x2)?|f64|tf32|e\dm\d.*)$")
_COMPARISONS = {
    "eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge",
    "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge",
}  # fmt: skip


class NotModelled(Exception):
    """The result of an instruction is not an integer function of its operands; says why."""


@dataclass(frozen=True, slots=True)
class PtxContext:
    """One instruction with what is needed to give its result a value.

    ``read`` gives the value of a source operand at a width in bits.
    """

    pool: ValuePool
    instruction: ir.Instruction
    read: Callable[[ir.Operand, int], Value]

    def source(self, index: int, bits: int) -> Value:
        """The value of operand ``index`` at ``bits``."""
        return self.read(self.instruction.operands[index], bits)

    def make(self, op: str, bits: int, *args: Value) -> Value:
        """A node of the pool."""
        return self.pool.node(op, bits, *args)


def type_bits(text: str) -> int:
    """Width of a PTX type: 32 for ``.b32``, ``.s32``…, 1 for ``.pred``.

    Raises:
        NotModelled: it is not the name of an integer type.
    """
    if text == "pred":
        return 1
    match = _WIDTH.match(text)
    if match is None:
        raise NotModelled(f"type .{text}")
    return int(match["bits"])


def _integer_type(context: PtxContext) -> tuple[str, int]:
    """Kind (``s``, ``u``, ``b``, ``p``) and width of the instruction's last type modifier."""
    kind = context.instruction.parts[-1]
    if _FLOATING.match(kind):
        raise NotModelled("computed in floating point")
    return kind[0], type_bits(kind)


def _binary(op: str, signed: str | None = None) -> Callable[[PtxContext], Value]:
    """An operation on two operands of one width, or on both halves (``s16x2``).

    ``signed`` is its signed form.
    """

    def transfer(context: PtxContext) -> Value:
        parts = context.instruction.parts
        if parts[1:2] == ("cc",) or {"sat", "relu"} & set(parts):
            raise NotModelled(f"{context.instruction.opcode} is not evaluated")
        name = signed if signed is not None and parts[-1][0] == "s" else op
        if parts[-1] in ("s16x2", "u16x2"):
            low, high = (
                context.make(name, 16, *(_field(context, i, at, 16) for i in (1, 2)))
                for at in (0, 16)
            )
            upper = context.make(
                "shl", 32, context.make("zext", 32, high), context.pool.const(16, 32)
            )
            return context.make("or", 32, context.make("zext", 32, low), upper)
        _, bits = _integer_type(context)
        return context.make(name, bits, context.source(1, bits), context.source(2, bits))

    return transfer


def _field(context: PtxContext, index: int, at: int, bits: int) -> Value:
    """Bits of a source of 32 bits, from bit ``at`` on."""
    moved = context.make("shru", 32, context.source(index, 32), context.pool.const(at, 32))
    return context.make("trunc", bits, moved)


def _dot(context: PtxContext) -> Value:
    """``dp4a.A.B d, a, b, c`` and ``dp2a.{lo,hi}.A.B``: products of bytes (halves), and c."""
    parts = context.instruction.parts
    count, width = (4, 8) if parts[0] == "dp4a" else (2, 16)
    extends = ["sext" if part == "s32" else "zext" for part in parts[-2:]]
    total = context.source(3, 32)
    for i in range(count):
        left = context.make(extends[0], 32, _field(context, 1, i * width, width))
        place = 8 * i + (16 if "hi" in parts else 0)
        right = context.make(extends[1], 32, _field(context, 2, place, 8))
        total = context.make("add", 32, total, context.make("mul", 32, left, right))
    return total


def _product(context: PtxContext, left: Value, right: Value, kind: str, bits: int) -> Value:
    """``mul`` by the instruction's mode: ``.lo`` (or none), ``.hi``, ``.wide``."""
    parts = context.instruction.parts
    if "wide" in parts:
        extend = "sext" if kind == "s" else "zext"
        wide = 2 * bits
        return context.make(
            "mul", wide, context.make(extend, wide, left), context.make(extend, wide, right)
        )
    if "hi" in parts:
        return context.make("mulhs" if kind == "s" else "mulhu", bits, left, right)
    return context.make("mul", bits, left, right)


def _mul(context: PtxContext) -> Value:
    kind, bits = _integer_type(context)
    return _product(context, context.source(1, bits), context.source(2, bits), kind, bits)


def _mad(context: PtxContext) -> Value:
    kind, bits = _integer_type(context)
    if "sat" in context.instruction.parts or "cc" in context.instruction.parts:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    product = _product(context, context.source(1, bits), context.source(2, bits), kind, bits)
    return context.make("add", product.bits, product, context.source(3, product.bits))


def _mul24(context: PtxContext) -> Value:
    kind, bits = _integer_type(context)
    if "hi" in context.instruction.parts:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    eight = context.pool.const(8, 32)

    def low24(index: int) -> Value:
        shifted = context.make("shl", bits, context.source(index, bits), eight)
        return context.make("shrs" if kind == "s" else "shru", bits, shifted, eight)

    product = context.make("mul", bits, low24(1), low24(2))
    if context.instruction.base == "mad24":
        return context.make("add", bits, product, context.source(3, bits))
    return product


def _shift(context: PtxContext) -> Value:
    kind, bits = _integer_type(context)
    op = "shl" if context.instruction.base == "shl" else ("shrs" if kind == "s" else "shru")
    amount = context.source(2, 32)
    extended = context.make("zext" if bits > 32 else "trunc", bits, amount)
    return context.make(op, bits, context.source(1, bits), extended)


def _not(context: PtxContext) -> Value:
    _, bits = _integer_type(context)
    return context.make("xor", bits, context.source(1, bits), context.pool.const(-1, bits))


def _neg(context: PtxContext) -> Value:
    _, bits = _integer_type(context)
    return context.make("sub", bits, context.pool.const(0, bits), context.source(1, bits))


def _abs(context: PtxContext) -> Value:
    _, bits = _integer_type(context)
    value = context.source(1, bits)
    negative = context.make("sub", bits, context.pool.const(0, bits), value)
    return context.make("maxs", bits, value, negative)


def _compare(context: PtxContext) -> Value:
    """``setp.CMP[.BOOL].TYPE p[|q], a, b[, c]``: the value of p."""
    return _combined(context, _comparison(context))


def opposite(context: PtxContext) -> Value:
    """The value of q in ``setp … p|q``: the comparison is negated before it is combined."""
    held = _comparison(context)
    return _combined(context, context.make("xor", 1, held, context.pool.const(1, 1)))


def _combined(context: PtxContext, result: Value) -> Value:
    combine = [p for p in context.instruction.parts[2:] if p in ("and", "or", "xor")]
    return context.make(combine[0], 1, result, context.source(3, 1)) if combine else result


def _comparison(context: PtxContext) -> Value:
    kind, bits = _integer_type(context)
    parts = context.instruction.parts
    comparison = _COMPARISONS.get(parts[1])
    if comparison is None:
        raise NotModelled("a floating-point comparison")
    left, right = context.source(1, bits), context.source(2, bits)
    if comparison in ("gt", "ge"):
        left, right, comparison = right, left, {"gt": "lt", "ge": "le"}[comparison]
    if comparison in ("lt", "le"):
        comparison += "s" if kind == "s" else "u"
    return context.make(comparison, 1, left, right)


def _select(context: PtxContext) -> Value:
    _, bits = _any_type(context)
    return context.make(
        "select", bits, context.source(3, 1), context.source(1, bits), context.source(2, bits)
    )


def _any_type(context: PtxContext) -> tuple[str, int]:
    """Kind and width where bits are only moved, so that ``.f32`` is as good as ``.b32``."""
    kind = context.instruction.parts[-1]
    match = re.match(r"([busfp])\D*?(\d+)?$", kind)
    if match is None:
        raise NotModelled(f"type .{kind}")
    return match[1], type_bits(kind)


def _mov(context: PtxContext) -> Value:
    _, bits = _any_type(context)
    source = context.instruction.operands[1]
    if isinstance(source, ir.Vector):  # mov.b64 %rd, {%r1, %r2}: the first item is the lowest
        width = bits // len(source.items)
        result = context.pool.const(0, bits)
        for index, item in enumerate(source.items):
            piece = context.make("zext", bits, context.read(item, width))
            shift = context.pool.const(index * width, bits)
            result = context.make("or", bits, result, context.make("shl", bits, piece, shift))
        return result
    return context.source(1, bits)


def _cvt(context: PtxContext) -> Value:
    parts = context.instruction.parts
    if (
        _FLOATING.match(parts[-1])
        or _FLOATING.match(parts[-2])
        or "sat" in parts
        or "pack" in parts
    ):
        raise NotModelled("computed in floating point")
    to, origin = type_bits(parts[-2]), type_bits(parts[-1])
    value = context.source(1, origin)
    if to <= origin:
        return context.make("trunc", to, value)
    return context.make("sext" if parts[-1][0] == "s" else "zext", to, value)


def _cvta(context: PtxContext) -> Value:
    return context.source(1, type_bits(context.instruction.parts[-1]))


def _bit_field_extract(context: PtxContext) -> Value:
    """``bfe`` with constant position and length, as compilers write it."""
    kind, bits = _integer_type(context)
    position, length = context.source(2, 32).unsigned, context.source(3, 32).unsigned
    if position is None or length is None:
        raise NotModelled("bfe with a position or length that is not constant")
    position, length = position & 0xFF, length & 0xFF
    if kind == "s":
        if position + length > bits or length == 0:
            raise NotModelled("bfe.s beyond the register")
        top = context.pool.const(bits - position - length, bits)
        shifted = context.make("shl", bits, context.source(1, bits), top)
        return context.make("shrs", bits, shifted, context.pool.const(bits - length, bits))
    shifted = context.make(
        "shru", bits, context.source(1, bits), context.pool.const(position, bits)
    )
    return context.make("and", bits, shifted, context.pool.const((1 << length) - 1, bits))


def _bit_field_insert(context: PtxContext) -> Value:
    """``bfi.b32 d, a, b, pos, len``: the low bits of ``a`` into ``b``."""
    _, bits = _integer_type(context)
    position, length = context.source(3, 32).unsigned, context.source(4, 32).unsigned
    if position is None or length is None:
        raise NotModelled("bfi with a position or length that is not constant")
    field = ((1 << (length & 0xFF)) - 1) << (position & 0xFF)
    inserted = context.make(
        "shl", bits, context.source(1, bits), context.pool.const(position, bits)
    )
    return context.make(
        "or",
        bits,
        context.make("and", bits, inserted, context.pool.const(field, bits)),
        context.make("and", bits, context.source(2, bits), context.pool.const(~field, bits)),
    )


def _lop3(context: PtxContext) -> Value:
    """``lop3.b32 d, a, b, c, table`` as a disjunction of its minterms."""
    table = context.source(4, 32).unsigned
    if table is None or len(context.instruction.parts) > 2:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    inputs = [context.source(i, 32) for i in (1, 2, 3)]
    ones = context.pool.const(-1, 32)
    result = context.pool.const(0, 32)
    for row in range(8):
        if not table >> row & 1:
            continue
        term = ones
        for position, value in zip((4, 2, 1), inputs, strict=True):
            literal = value if row & position else context.make("xor", 32, value, ones)
            term = context.make("and", 32, term, literal)
        result = context.make("or", 32, result, term)
    return result


def _permute(context: PtxContext) -> Value:
    """``prmt.b32 d, a, b, selector`` with a constant selector, default mode."""
    selector = context.source(3, 32).unsigned
    if selector is None or context.instruction.parts[1:] != ("b32",):
        raise NotModelled(f"{context.instruction.opcode} with this selector is not evaluated")
    both = [context.source(1, 32), context.source(2, 32)]
    result = context.pool.const(0, 32)
    for index in range(4):
        choice = selector >> (4 * index) & 0xF
        source = both[choice >> 2 & 1]
        shift = context.pool.const(8 * (choice & 3), 32)
        if choice & 8:  # the sign of the byte, eight times
            upper = context.pool.const(24 - 8 * (choice & 3), 32)
            source = context.make("shl", 32, source, upper)
            source = context.make("shrs", 32, source, context.pool.const(31, 32))
            shift = context.pool.const(0, 32)
        byte = context.make("and", 32, context.make("shru", 32, source, shift),
                            context.pool.const(0xFF, 32))  # fmt: skip
        placed = context.make("shl", 32, byte, context.pool.const(8 * index, 32))
        result = context.make("or", 32, result, placed)
    return result


def _funnel_shift(context: PtxContext) -> Value:
    """``shf.{l,r}.{wrap,clamp}.b32 d, a, b, c``: 32 bits out of ``b:a``."""
    direction, mode = context.instruction.parts[1:3]
    pair = context.make(
        "or", 64,
        context.make("shl", 64, context.make("zext", 64, context.source(2, 32)),
                     context.pool.const(32, 64)),
        context.make("zext", 64, context.source(1, 32)),
    )  # fmt: skip
    amount = context.source(3, 32)
    if mode == "wrap":
        amount = context.make("and", 32, amount, context.pool.const(31, 32))
    else:
        amount = context.make("minu", 32, amount, context.pool.const(32, 32))
    wide = context.make("zext", 64, amount)
    if direction == "r":
        return context.make("trunc", 32, context.make("shru", 64, pair, wide))
    shifted = context.make("shl", 64, pair, wide)
    return context.make("trunc", 32, context.make("shru", 64, shifted, context.pool.const(32, 64)))


def _population(context: PtxContext) -> Value:
    _, bits = _integer_type(context)
    count = context.make("popc", bits, context.source(1, bits))
    return context.make("trunc", 32, count) if bits > 32 else count


def _shuffle(context: PtxContext) -> Value:
    """``shfl.sync.idx`` of a value that all lanes of a warp share: that value."""
    value = context.source(1, 32)
    if context.instruction.parts[1:3] != ("sync", "idx") or not warp_uniform(value):
        raise NotModelled("exchanged between lanes (shfl)")
    return value


def warp_uniform(value: Value) -> bool:
    """Whether every lane of a warp has the same value.

    True only where it can be shown: ``tid.x`` may be used below a shift right by 5 or more or a
    mask without the low five bits (the x extent of such blocks is taken to be a multiple of the
    warp), lane registers and unknown values may not be used at all.
    """
    uniform: dict[Value, bool] = {}
    for node in in_order([value]):
        if not node.args:
            uniform[node] = node.op in ("const", "param", "iter", "address") or (
                node.op == "special" and node.payload.startswith(_SAME_FOR_A_BLOCK)
            )
            continue
        free_of_lane = all(uniform[a] for a in node.args)
        number = node.args[-1].unsigned
        if not free_of_lane and number is not None and _is_thread_index(node.args[0]):
            free_of_lane = (node.op == "shru" and number >= 5) or (
                node.op == "and" and number & 31 == 0
            )
        uniform[node] = free_of_lane
    return uniform[value]


_SAME_FOR_A_BLOCK = ("ctaid", "nctaid", "ntid", "cluster", "ncluster")


def _is_thread_index(value: Value) -> bool:
    return value.op == "special" and value.payload == "tid.x"


TRANSFER: dict[str, Callable[[PtxContext], Value]] = {
    "abs": _abs,
    "add": _binary("add"),
    "and": _binary("and"),
    "bfe": _bit_field_extract,
    "bfi": _bit_field_insert,
    "cvt": _cvt,
    "cvta": _cvta,
    "div": _binary("divu", "divs"),
    "dp2a": _dot,
    "dp4a": _dot,
    "lop3": _lop3,
    "mad": _mad,
    "mad24": _mul24,
    "max": _binary("maxu", "maxs"),
    "min": _binary("minu", "mins"),
    "mov": _mov,
    "mul": _mul,
    "mul24": _mul24,
    "neg": _neg,
    "not": _not,
    "or": _binary("or"),
    "popc": _population,
    "prmt": _permute,
    "rem": _binary("remu", "rems"),
    "selp": _select,
    "setp": _compare,
    "shf": _funnel_shift,
    "shfl": _shuffle,
    "shl": _shift,
    "shr": _shift,
    "sub": _binary("sub"),
    "xor": _binary("xor"),
}
