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
accesses of one statement.

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

from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding
from kanalyze.results.traffic import AccessCounts
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.symbolic.value import leaves

_ID = "offset-wraps"
_LOADED = "cast the loaded index to 64 bits before it is multiplied, e.g. tl.load(…).to(tl.int64)"


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
            _LOADED if loaded else "compute it in 64 bits, e.g. tl.program_id(0).to(tl.int64)",
            row.source,
            {"wrapped": wrapped, "accesses": accesses},
        )


RULE = Rule(_ID, check_launch=check_launch)
