"""What one SASS instruction does to registers and predicates, as `Value`s.

`TRANSFER` has one function for each mnemonic that computes an integer or a predicate; each returns
the values of the written operands by their place. Whatever is not in it makes what it writes
unknown, with the reason.

NVIDIA does not document the semantics. What stands here was worked out from what ptxas makes of
PTX whose meaning is documented, and is tested by that: the same launches counted from either text.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace

from kanalyze.sass.ir import Constant, Operand, Predicate, Register, SassImmediate, Special
from kanalyze.symbolic.pairs import gathered, halves, pair
from kanalyze.symbolic.ptx_transfer import NotModelled
from kanalyze.symbolic.sass_bits import (
    Results,
    SassContext,
    bits_of,
    compare,
    extend,
    funnel,
    is_real,
    mask,
    permute,
    population,
    predicate_logic,
    three_inputs,
    uniform,
)
from kanalyze.symbolic.value import Value

# ---------------------------------------------------------------- moves


def _move(context: SassContext) -> Results:
    return {0: context.read(context.instruction.operands[1], bits_of(context))}


def _special(context: SassContext) -> Results:
    source = context.instruction.operands[1]
    if not isinstance(source, Special):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    value = context.special(source.name)
    if context.instruction.base == "CS2R" and not context.has("32"):
        value = context.make("zext", 64, value)
    return {0: value}


def _load_constant(context: SassContext) -> Results:
    operands = context.instruction.operands
    if context.has("U8", "S8", "U16", "S16"):
        kind = next(p for p in context.parts if p in ("U8", "S8", "U16", "S16"))
        width = int(kind[1:])
        narrow = context.make("trunc", width, context.read(operands[1], 32))
        return {0: context.make("sext" if kind[0] == "S" else "zext", 32, narrow)}
    place = operands[1]
    if not isinstance(place, Constant):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    words = 4 if context.has("128") else 2 if context.has("64") else 1
    if words == 1:
        return {0: context.read(place, 32)}
    wide = [
        context.read(replace(place, offset=place.offset + 4 * i), 64) for i in range(0, words, 2)
    ]
    return {0: tuple(half for value in wide for half in halves(context.pool, value))}


def _uniform_of(context: SassContext) -> Results:
    """``R2UR``: a value of one lane; known where the lanes agree."""
    places, sources = context.split()
    if len(places) > 1:
        raise NotModelled("R2UR with a predicate")
    value = context.read(sources[0], bits_of(context))
    if not uniform(context.pool, value):
        raise NotModelled("the value of one lane (R2UR)")
    return {places[-1]: value}


def _shuffle(context: SassContext) -> Results:
    """``SHFL.IDX`` of a value that the lanes agree in: that value."""
    value = context.read(context.instruction.operands[2], 32)
    if not context.has("IDX") or not uniform(context.pool, value):
        raise NotModelled("exchanged between lanes (SHFL)")
    return {1: value}


def _vote(context: SassContext) -> Results:
    """``VOTE.ANY`` and ``.ALL`` of a predicate that the lanes agree in, or ``.ANY`` of one lane."""
    operands = context.instruction.operands
    value = context.read(operands[-1], 1)
    if context.has("ANY"):
        value = context.pool.substitute(value, {_elected(context): context.number(1, 1)})
    if context.has("ANY", "ALL") and uniform(context.pool, value):
        return {p: value for p, o in enumerate(operands[:-1]) if isinstance(o, Predicate)}
    raise NotModelled("a vote of the lanes")


def _elected(context: SassContext) -> Value:
    return context.make("eq", 1, context.special("SR_LANEID"), context.number(0))


def _elect(context: SassContext) -> Results:
    """``ELECT P0, URZ, PT``: one lane of the warp."""
    return {0: _elected(context)}


def _predicates_to_register(context: SassContext) -> Results:
    """``P2R R0, PR, R1, 0x7f``: predicates into the bits of the mask, the others from R1."""
    operands = context.instruction.operands
    mask = context.read(operands[3], 32).unsigned
    if len(context.parts) > 1 or mask is None:
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    kept = context.make("and", 32, context.read(operands[2], 32), context.number(~mask))
    return {0: context.make("or", 32, kept, context.all_predicates(mask))}


def _constant_of_halves(context: SassContext) -> Results:
    """``HFMA2.MMA R0, -RZ, RZ, 1.875, 0``: how ptxas moves a constant with the half unit."""
    operands = context.instruction.operands
    zero = all(isinstance(o, Register) and o.number is None for o in operands[1:3])
    if not zero or len(operands) != 5:
        raise NotModelled("computed in floating point")
    number = 0
    for operand in operands[3:]:
        if not isinstance(operand, SassImmediate):
            raise NotModelled("computed in floating point")
        try:
            (half,) = struct.unpack("<H", struct.pack("<e", float(operand.value)))
        except (OverflowError, ValueError):
            raise NotModelled("computed in floating point") from None
        number = number << 16 | half
    return {0: context.number(number)}


# ---------------------------------------------------------------- division
# x / y is computed from an estimate of 2^32 / y, in floating point: I2F.RP, MUFU.RCP, less two
# units in the last place (+ 0xffffffe), F2I. One step of Newton's and two corrections make the
# quotient exact whatever the estimate's error, so (2^32 - 1) / y does for it.


def _stage(value: Value, name: str) -> Value | None:
    """The divisor, if ``value`` is at this stage of the computation."""
    if value.op == "unknown" and isinstance(value.payload[0], tuple):
        key = value.payload[0]
        if len(key) == 2 and key[0] == name and isinstance(key[1], Value):
            return key[1]
    return None


def _at_stage(context: SassContext, name: str, divisor: Value) -> Value:
    return context.pool.unknown((name, divisor), "computed in floating point", 32)


def _to_float(context: SassContext) -> Results:
    if context.has("RP") and not context.has("F64", "S64", "U64", "F16", "U16", "S16", "U8", "S8"):
        divisor = context.read(context.instruction.operands[1], 32)
        return {0: _at_stage(context, "divisor", divisor)}
    raise NotModelled("computed in floating point")


def _reciprocal(context: SassContext) -> Results:
    divisor = _stage(context.read(context.instruction.operands[1], 32), "divisor")
    if divisor is None or not context.has("RCP"):
        raise NotModelled("computed in floating point")
    return {0: _at_stage(context, "reciprocal", divisor)}


def _reciprocal_less(context: SassContext, terms: Sequence[Value]) -> Value | None:
    others = [term for term in terms if term.unsigned != 0]
    if len(others) != 2 or 0xFFFFFFE not in (others[0].unsigned, others[1].unsigned):
        return None
    (value,) = (term for term in others if term.unsigned is None)
    divisor = _stage(value, "reciprocal")
    return None if divisor is None else _at_stage(context, "estimate", divisor)


def _to_integer(context: SassContext) -> Results:
    divisor = _stage(context.read(context.instruction.operands[1], 32), "estimate")
    if divisor is None or not context.has("U32") or not context.has("TRUNC"):
        raise NotModelled("computed in floating point")
    return {0: context.make("divu", 32, context.number(-1), divisor)}


# ---------------------------------------------------------------- sums


def _carries(context: SassContext, operands: Sequence[Operand]) -> list[Value]:
    """Carries that come in: the predicates behind the sources (``!PT`` is none)."""
    predicates = [context.read(o, 1) for o in operands if isinstance(o, Predicate)]
    return [context.make("zext", 32, value) for value in predicates]


def _wide(context: SassContext, operand: Operand) -> Value:
    """A term of a sum with its carry: minus x is 2^32 - x."""
    if isinstance(operand, Register) and operand.negated and operand.number is not None:
        plain = Register(operand.file, operand.number, operand.suffixes)
        term = context.make("zext", 64, context.read(plain, 32))
        return context.make("sub", 64, context.number(1 << 32, 64), term)
    return context.make("zext", 64, context.read(operand, 32))


def _with_carry(
    context: SassContext, places: list[int], terms: list[Value], wide: Value
) -> Results:
    """A sum of 32 bits with the carry that goes out, if it is asked for."""
    total = terms[0]
    for term in terms[1:]:
        total = context.make("add", 32, total, term)
    results: Results = {places[0]: total}
    asked = [p for p in places[1:] if is_real(context.instruction.operands[p])]
    if asked and asked == places[1:2]:
        upper = context.make("shru", 64, wide, context.number(32, 64))
        results[asked[0]] = context.make("ne", 1, upper, context.number(0, 64))
    return results


def _add(context: SassContext) -> Results:
    """``IADD3 R, P, P, a, b, c, P, P`` and its shorter kin."""
    places, sources = context.split()
    numbers = [o for o in sources if not isinstance(o, Predicate)]
    if context.has("64"):
        values = [context.read(o, 64) for o in numbers]
        total = values[0]
        for value in values[1:]:
            total = context.make("add", 64, total, value)
        if any(is_real(o) for o in sources if isinstance(o, Predicate)):
            raise NotModelled("a sum of 64 bits with a carry")
        return {0: total}
    terms = [context.read(o, 32) for o in numbers]
    if not context.has("X") and (step := _reciprocal_less(context, terms)) is not None:
        return {0: step}
    wide = _wide(context, numbers[0])
    for operand in numbers[1:]:
        wide = context.make("add", 64, wide, _wide(context, operand))
    if context.has("X"):
        carries = _carries(context, sources)
        upper = _upper(context, terms, carries)
        for carry in carries:
            terms.append(carry)
            wide = context.make("add", 64, wide, context.make("zext", 64, carry))
        if upper is not None:
            return {**_with_carry(context, places, terms, wide), 0: upper}
    return _with_carry(context, places, terms, wide)


def _upper(context: SassContext, terms: Sequence[Value], carries: Sequence[Value]) -> Value | None:
    """The upper half of a 64-bit sum, from the carry of the lower half's; None if it is none."""
    real = [carry for carry in carries if carry.unsigned != 0]
    if len(real) != 1 or real[0].op != "zext" or real[0].args[0].op != "ne":
        return None
    shifted, zero = real[0].args[0].args
    if zero.unsigned != 0 or shifted.op != "shru" or shifted.args[1].unsigned != 32:
        return None
    whole = shifted.args[0]
    for term in terms:
        moved = context.make("zext", 64, term)
        moved = context.make("shl", 64, moved, context.number(32, 64))
        whole = context.make("add", 64, whole, moved)
    return halves(context.pool, gathered(context.pool, whole))[1]


def _multiply_add(context: SassContext) -> Results:
    """``IMAD`` with all its modes."""
    places, sources = context.split()
    signed = not context.has("U32")
    a, b = (context.read(o, 32) for o in sources[:2])
    if len(places) > 1 and any(is_real(context.instruction.operands[p]) for p in places[1:]):
        raise NotModelled("a product with a carry")
    if context.has("WIDE"):
        extend = "sext" if signed else "zext"
        product = context.make("mul", 64, *(context.make(extend, 64, v) for v in (a, b)))
        if context.has("X"):
            raise NotModelled("a product with a carry")
        return {0: context.make("add", 64, product, context.read(sources[2], 64))}
    if context.has("HI"):  # the addend has 64 bits
        addend = sources[2]
        product = context.make("mulhs" if signed else "mulhu", 32, a, b)
        if context.read(addend, 32).unsigned != 0:
            raise NotModelled("the upper half of a product and a sum")
        if isinstance(addend, Register) and addend.number is not None:
            upper_half = context.read(replace(addend, number=addend.number + 1), 32)
            product = context.make("add", 32, product, upper_half)
        return {0: product}
    product = context.make("mul", 32, a, b)
    total = context.make("add", 32, product, context.read(sources[2], 32))
    if context.has("X"):
        carries = _carries(context, sources)
        upper = _upper(context, [product, context.read(sources[2], 32)], carries)
        for carry in carries:
            total = context.make("add", 32, total, carry)
        total = total if upper is None else upper
    return {0: total}


def _scaled_add(context: SassContext) -> Results:
    """``LEA``: ``b + (a << s)``; ``.HI``: ``b`` plus what is shifted out of ``a``."""
    places, sources = context.split()
    carries = _carries(context, sources) if context.has("X") else []
    numbers = [o for o in sources if not isinstance(o, Predicate)]
    shift = context.read(numbers[-1], 32).unsigned
    if shift is None or context.has("64"):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    a, b = (context.read(o, 32) for o in numbers[:2])
    if not context.has("HI"):
        moved = context.make("shl", 32, a, context.number(shift))
    elif context.has("SX32"):
        moved = context.make("shrs", 32, a, context.number(32 - shift))
    else:
        upper = context.read(numbers[2], 32)
        if upper.unsigned == 0:
            moved = context.make("shru", 32, a, context.number(32 - shift))
        else:
            both = pair(context.pool, a, upper)
            both = context.make("shru", 64, both, context.number(32 - shift, 64))
            moved = context.make("trunc", 32, both)
    wide = context.make("add", 64, context.make("zext", 64, moved), _wide(context, numbers[1]))
    for carry in carries:
        wide = context.make("add", 64, wide, context.make("zext", 64, carry))
    sums = _with_carry(context, places, [b, moved, *carries], wide)
    whole = _upper(context, [b, moved], carries)
    return sums if whole is None else {**sums, places[0]: whole}


def _absolute(context: SassContext) -> Results:
    value = context.read(context.instruction.operands[1], 32)
    return {0: context.make("maxs", 32, value, context.make("sub", 32, context.number(0), value))}


def _extreme(context: SassContext) -> Results:
    """``IMNMX R, a, b, P``: the smaller where P holds, else the greater.

    ``VIADDMNMX R, a, b, c, P``: of ``a + b`` and ``c``.
    """
    places, sources = context.split()
    added = context.instruction.base == "VIADDMNMX"
    if (
        len(sources) != 3 + added
        or not isinstance(sources[-1], Predicate)
        or context.has("RELU", "64", "U64", "S64")
    ):
        raise NotModelled(f"{context.instruction.opcode} is not evaluated")
    sign = "u" if context.has("U32") else "s"
    *first, b = (context.read(o, 32) for o in sources[:-1])
    a = context.make("add", 32, *first) if added else first[0]
    smaller, greater = (context.make(op + sign, 32, a, b) for op in ("min", "max"))
    return {places[0]: context.make("select", 32, context.read(sources[-1], 1), smaller, greater)}


def _select(context: SassContext) -> Results:
    _, a, b, condition = context.instruction.operands
    bits = bits_of(context)
    one, other = context.read(a, bits), context.read(b, bits)
    return {0: context.make("select", bits, context.read(condition, 1), one, other)}


_FUNCTIONS: tuple[tuple[str, Callable[[SassContext], Results]], ...] = (
    ("MOV UMOV MOV32I", _move),
    ("S2R S2UR CS2R CS2UR", _special),
    ("LDC ULDC LDCU", _load_constant),
    ("R2UR", _uniform_of),
    ("SHFL", _shuffle),
    ("VOTE VOTEU", _vote),
    ("ELECT", _elect),
    ("P2R", _predicates_to_register),
    ("HFMA2", _constant_of_halves),
    ("I2F I2FP UI2F", _to_float),
    ("MUFU", _reciprocal),
    ("F2I", _to_integer),
    ("IADD3 UIADD3 VIADD UVIADD IADD", _add),
    ("IMAD UIMAD", _multiply_add),
    ("LEA ULEA", _scaled_add),
    ("IABS UIABS", _absolute),
    ("IMNMX UIMNMX VIMNMX UVIMNMX VIADDMNMX", _extreme),
    ("SEL USEL", _select),
    ("LOP3 ULOP3", three_inputs),
    ("PLOP3 UPLOP3", predicate_logic),
    ("SHF USHF", funnel),
    ("SGXT USGXT", extend),
    ("BMSK UBMSK", mask),
    ("PRMT UPRMT", permute),
    ("POPC UPOPC", population),
    ("ISETP UISETP", compare),
)

TRANSFER: dict[str, Callable[[SassContext], Results]] = {
    mnemonic: function for mnemonics, function in _FUNCTIONS for mnemonic in mnemonics.split()
}
