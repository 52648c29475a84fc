"""A tensor-memory copy (TMA) breaks a rule of the hardware: it faults, or copies to a wrong place.

What it says
------------
Which rule is broken: strides of the array that are no multiples of 16 bytes, a box that is too
large or whose rows are no multiple of 16 bytes, an address in global memory that is no multiple of
16, a place in shared memory that is no multiple of 128.

Why it is slow
--------------
It is not slow, it is wrong: the driver refuses such a tensor map (cuTensorMapEncodeTiled returns
CUDA_ERROR_INVALID_VALUE), and a map that the kernel itself writes makes the copy fault.

How it is detected
------------------
In a launch, the fields of the tensor map that the kernel writes are evaluated and held against the
limits. The place in shared memory of a copy is looked at without a launch, too: a constant
distance from the beginning of its variable, and what that is declared to be aligned to.

How it is proven
----------------
By counting: the rules are exact.

Example
-------
    tl.make_tensor_descriptor(x, shape=[M, 511], strides=[511, 1], block_shape=[64, 64])  # fp16

    tl.make_tensor_descriptor(x, shape=[M, 511], strides=[512, 1], block_shape=[64, 64])

Source
------
CUDA Driver API 13.0, "Tensor Map Object Management", cuTensorMapEncodeTiled: globalAddress and
globalStrides multiples of 16, boxDim at most 256. PTX ISA 9.0, "cp.async.bulk.tensor" (shared
memory aligned to 128 bytes), "cp.async.bulk" (addresses and size multiples of 16).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from kanalyze.counting.bulk_copies import NO_MAP
from kanalyze.findings import access_groups
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.models import lane_strides
from kanalyze.results import kernel as doc
from kanalyze.results.kernel import Finding
from kanalyze.symbolic.accesses import AccessValue, is_bulk
from kanalyze.symbolic.value import leaves

_ID = "tensor-map"
_TILE, _RUN = 128, 16  # bytes: what the place in shared memory must be a multiple of


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Bulk copies that break a rule: one finding for each rule."""
    wrong: dict[tuple[str, str], list[doc.Access]] = {}
    for access, row in facts.accesses():
        if is_bulk(access.instruction, access.row):
            for said in (_map(facts, access), _place(facts, access)):
                if said is not None:
                    wrong.setdefault(said, []).append(row)
    for (what, advice), rows in wrong.items():
        pointers = ", ".join(dict.fromkeys(row.pointer for row in rows if row.pointer))
        yield Finding(
            _ID, "error", rows[0].line,
            f"{len(rows)} cop{'y' if len(rows) == 1 else 'ies'}"
            f"{f' through {pointers}' if pointers else ''}: {what}",
            advice, rows[0].source, {"pointers": pointers or None, "copies": len(rows)},
        )  # fmt: skip


def _map(facts: Facts, access: AccessValue) -> tuple[str, str] | None:
    """What is wrong with the tensor map that the kernel writes in this launch, and what to do."""
    launched = facts.launched
    reason = launched.transactions(access).reason if launched is not None else None
    if reason is None or not reason.startswith(NO_MAP):
        return None
    return (
        f"{reason} (bytes), the copy faults",
        "pad rows so that strides are multiples of 16 bytes, keep the box within 256 elements a "
        "dimension and its rows multiples of 16 bytes, or load without a descriptor",
    )


def _place(facts: Facts, access: AccessValue) -> tuple[str, str] | None:
    """What is wrong with the place in shared memory, and what to do."""
    if access.shared is None:
        return None
    wanted = _TILE if access.tensor is not None else _RUN
    first = lane_strides.start(access.shared, access_groups.extents(facts))
    names = {leaf.payload for leaf in leaves(access.shared, "address")}
    variable = facts.description.variables.get(names.pop()) if len(names) == 1 else None
    if first is None or variable is None:
        return None
    if variable.elements is None:  # what the launch adds begins at a multiple of 1,024
        declared = wanted
    else:
        declared = variable.align or variable.element_bytes or 1
    known = math.gcd(first.number, declared, wanted)
    if first.terms or known == wanted:
        return None
    return (
        f"its place in shared memory, {variable.name} + {first.number}, is only known to be a "
        f"multiple of {known} bytes: {access.instruction.opcode} needs {wanted}",
        f"declare {variable.name} __align__({wanted}), and begin every tile at a multiple of it",
    )


RULE = Rule(_ID, check_kernel=check_kernel)
