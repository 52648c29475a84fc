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
goes into an address does not fit its 32 bits, the lanes that take part are counted.

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
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError

_ID = "offset-wraps"


def check_launch(facts: Facts) -> Iterator[Finding]:
    """Accesses of which an offset wraps around in 32 bits."""
    launched = facts.launched
    if launched is None or facts.traffic is None:
        return
    pairs = zip(facts.traffic.accesses, facts.description.addresses.accesses, strict=True)
    for row, access in pairs:
        try:
            threads = launched.wrapped(access) if row.requests else 0
        except (UnknownValueError, TooLargeError):
            continue  # the access itself says why
        if threads:
            yield Finding(
                _ID,
                "error",
                row.line,
                f"a 32-bit offset wraps around in {threads:,} of {row.threads:,} accesses "
                f"through {row.pointer or 'a pointer'}",
                "compute it in 64 bits, e.g. tl.program_id(0).to(tl.int64)",
                row.source,
                {"wrapped": threads, "accesses": row.threads},
            )


RULE = Rule(_ID, check_launch=check_launch)
