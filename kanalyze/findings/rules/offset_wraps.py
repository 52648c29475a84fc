"""An offset of 32 bits wraps around, and another element is accessed.

What it says
------------
In this launch the offset of an access, computed in 32 bits, passes 2^31 (or 2^32): it wraps around,
and the address is not the one that was meant. The finding says in how many of the accesses.

Why it is slow
--------------
It is not slow, it is wrong: what is read or written is another element of the array, or memory
outside of it. Small launches are right, so that tests often pass.

How it is detected
------------------
Addresses are evaluated for the launch with the widths of the PTX. Where an intermediate value that
goes into an address does not fit its 32 bits, the lanes that take part are counted, over all
accesses of one statement. Without a launch, or where a factor is loaded and not assumed, it is an
info that says from which product of arguments, block indices and loaded numbers on it happens.

How it is proven
----------------
By counting: the launch's arguments are put into the address of each lane.

Example
-------
    row = tl.program_id(0)
    x = tl.load(x_ptr + row * stride + cols)     # row * stride passes 2^31

    row = tl.program_id(0).to(tl.int64)          # mended

Source
------
PTX ISA 9.0, section 9.7.1, "Integer Arithmetic Instructions": results are truncated to their type.
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.counting.ptx_launch import widened_parts
from kanalyze.findings import access_groups
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding
from kanalyze.results.traffic import AccessCounts
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.symbolic.value import Value, in_order, leaves

_ID = "offset-wraps"
_CAST = "compute it in 64 bits, e.g. tl.program_id(0).to(tl.int64), or (size_t) in C++"
_LOADED = "cast the loaded index to 64 bits before it is multiplied, e.g. tl.load(…).to(tl.int64)"


_Products = dict[tuple[str, ...], int]  # names that are multiplied, and the number before them
_MOST_FACTORS = 8


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """From which sizes on an offset wraps around, where the launch does not say."""
    limits: dict[str, list[doc.Access]] = {}
    sizes = {access_groups.author_name(facts, p.name) for p in facts.function.parameters}
    loaded = False
    for access, row in facts.accesses():
        if row.space != "global" or (facts.launch is not None and not access.reasons):
            continue
        for part in widened_parts(access.address):
            limit = 1 << (31 if part.op == "sext" else 32)
            for names, factor in _products(facts, part.args[0]).items():
                data = any("[" in name for name in names)
                if (data and factor > 1) or (len(names) > 1 and (data or sizes & {*names})):
                    loaded |= data
                    text = f"{' * '.join(names)} ≥ {-(-limit // factor):,}"
                    limits.setdefault(text, []).append(row)
    if not limits:
        return
    rows = next(iter(limits.values()))
    pointers = dict.fromkeys(r.pointer for some in limits.values() for r in some if r.pointer)
    yield Finding(
        _ID, "info", rows[0].line,
        f"offsets through {', '.join(pointers)} are computed in 32 bits, and wrap around if "
        f"{' or '.join(limits)}",
        f"where sizes may be so large: {_LOADED if loaded else _CAST}",
        rows[0].source, {"limits": list(limits)},
        unproven="the launch would have to say the sizes"
        + (", --assume what is loaded" if loaded else ""),
    )  # fmt: skip


def _products(facts: Facts, root: Value) -> _Products:
    """What of a 32-bit offset grows with sizes: factors to the number that they are times.

    Bounded parts (thread indices, remainders) are left out; an argument that is known is a number.
    Each value once, operands first: an expression may double with each statement.
    """
    products: dict[Value, _Products] = {}
    for value in in_order([root]):
        products[value] = _products_of(facts, value, [products[arg] for arg in value.args])
        if any(len(n) > _MOST_FACTORS or f >> 64 for n, f in products[value].items()):
            return {}
    return products[root]


def _products_of(facts: Facts, value: Value, args: list[_Products]) -> _Products:
    if value.constant is not None:
        return {(): value.constant} if value.constant > 0 else {}
    if value.op == "param":
        name = access_groups.author_name(facts, value.payload[0])
        number = access_groups.values(facts).get(value.payload[0])
        return {(name,): 1} if number is None or facts.launch is None else {(): number}
    if value.op == "special":
        return {(value.payload,): 1} if value.payload.startswith(("ctaid", "ntid")) else {}
    if value.op == "unknown":
        key, reason = value.payload
        if "data loaded" not in reason or not isinstance(key, tuple):
            return {}
        through = [r.pointer for a, r in facts.accesses() if a.instruction.pos == key[0]]
        return {(f"{through[0]}[…]",): 1} if through else {}
    if value.op in ("add", "or", "sext", "zext"):
        return {names: factor for arg in args for names, factor in arg.items() if names}
    if value.op in ("mul", "shl"):
        left, right = args
        if value.op == "shl":
            right = {n: 1 << f for n, f in right.items() if not n and f < 32}
        return {tuple(sorted((*a, *b))): f * g for a, f in left.items() for b, g in right.items()}
    return {}


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Accesses of which an offset wraps around in 32 bits."""
    launched = facts.launched
    if launched is None or facts.traffic is None:
        return
    pairs = zip(facts.traffic.accesses, facts.description.addresses.accesses, strict=True)
    places: dict[object, list[tuple[AccessCounts, int, bool]]] = {}  # one statement is one cause
    for row, access in pairs:
        try:
            threads, offset = launched.wrapped(access) if row.requests else (0, None)
        except (UnknownValueError, TooLargeError):
            continue  # the access itself says why
        if offset is not None:
            key = (row.source, row.kind, row.pointer) if row.source is not None else row.line
            places.setdefault(key, []).append((row, threads, bool(leaves(offset, "load"))))
    for some in places.values():
        row, _, loaded = some[0]
        wrapped, accesses = sum(n for _, n, _ in some), sum(r.threads or 0 for r, _, _ in some)
        yield Finding(
            _ID,
            "error",
            row.line,
            f"a 32-bit offset wraps around in {wrapped:,} of {accesses:,} accesses through "
            f"{row.pointer or 'a pointer'}",
            _LOADED if loaded else _CAST,
            row.source,
            {"wrapped": wrapped, "accesses": accesses},
        )


RULE = Rule(_ID, check_kernel=check_kernel, check_launch=check_launch)
