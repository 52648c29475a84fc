"""Two neighbouring accesses of 16 bytes that one of 32 bytes could be.

What it says
------------
On GPUs of compute capability 10.0 and 10.3 a thread can load and store 32 bytes at once. Here it
moves contiguous 32 bytes with two accesses of 16.

Why it is slow
--------------
The second access takes another instruction and another pass through the load/store unit, and both
touch each sector that the warp needs: lanes 32 bytes apart fill half a sector with each. Where
HBM is the limit little is gained.

How it is detected
------------------
PTX for sm_100 or sm_103, of which loads or stores of 16 bytes of one thread are contiguous in pairs
and begin at multiples of 32 bytes, as far as the numbers in the address say (pointers are taken to
be aligned).

How it is proven
----------------
By counting: requests and sectors of the accesses as they are, and with 32 bytes each.

Example
-------
    ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
    ld.global.v4.b32 {%r5, %r6, %r7, %r8}, [%rd1+16];

    ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];   // mended

Source
------
PTX ISA 8.8, section "ld": .v8 of .b32 and .v4 of .b64 in global memory, sm_100 and higher; CUDA C++
Programming Guide 13.1, "Built-in Vector Types" (double4_32a and others of 32 bytes).
"""

from __future__ import annotations

from collections.abc import Iterator

from kanalyze.findings import access_groups
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.results.kernel import Finding, Proof

_ID = "wide-256-bit"
_CAPABILITIES = (100, 103)
_HALF, _WIDE = 16, 32


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Accesses of 16 bytes that are contiguous in pairs."""
    if facts.capability not in _CAPABILITIES:
        return
    every = access_groups.groups(facts)
    for group in access_groups.merge_unrolled(
        [g for g in every if access_groups.significant(g, every)]
    ):
        if group.size != _HALF or group.kind == "async_copy" or group.run < 2:
            continue
        aligned = access_groups.alignment(group, _WIDE)
        if aligned is None or aligned[0] % _WIDE or any(f % _WIDE for f in aligned[1].values()):
            continue
        yield _found(facts, group)


def _found(facts: Facts, group: AccessGroup) -> Finding:
    count = len(group.members)
    line, source = group.place
    proof = None
    if group.offsets is not None:
        now = access_groups.sectors_of(group.offsets, _HALF)
        then = access_groups.sectors_of(group.offsets, _WIDE)
        proof = Proof(
            "counted", "accesses of 32 B",
            {"requests": 2, "sectors": 2 * now}, {"requests": 1, "sectors": then},
        )  # fmt: skip
    if facts.compiled is not None:
        advice = f"Triton {facts.compiled.triton_version} makes none wider than 16 B by itself"
    else:
        advice = "access a type of 32 bytes (double4_32a, or inline PTX with ld.global.v8.b32)"
    return Finding(
        _ID, "info", line,
        f"{count} {group.noun} of 16 B through {group.pointer} are contiguous in pairs: "
        f"{-(-count // 2)} of 32 B would do on sm_{facts.capability}",
        f"{advice}; the pointer must then be aligned to 32 B",
        source,
        {"pointer": group.pointer, "accesses": count, "run": group.run},
        proof,
        None if proof is not None else "how the lanes lie depends on arguments",
    )  # fmt: skip


RULE = Rule(_ID, check_kernel=check_kernel)
