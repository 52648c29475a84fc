"""Numbers of single precision are computed with in double precision.

What it says
------------
A statement widens float (or half) to double, computes, and narrows the result again. The finding
says which instructions, in which lines.

Why it is slow
--------------
An SM has half as many FP64 units as FP32 units at best (sm_80, sm_90, sm_100), and one for 64 on
other GPUs; each conversion costs an instruction of a slow unit, too. Mostly nobody wanted it: in
C++ 1.0 is a double, and so is what is computed with it.

How it is detected
------------------
In one source line (without line numbers: in one basic block) a value is converted to f64, there is
arithmetic in f64, and a result is converted back. Sums that are kept in double over several
statements are not meant. It is an info where a launch's estimate says that the FP64 units take less
than 5 % of the time.

How it is proven
----------------
It is not: the source would have to be changed.

Example
-------
    y[i] = x[i] * 0.5 + 1.0;     // float x, y: in double

    y[i] = x[i] * 0.5f + 1.0f;

Source
------
CUDA C++ Best Practices Guide 13.0, section "Arithmetic Instructions" (throughput of native
arithmetic instructions; single-precision literals need the suffix f).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from kanalyze.findings import bounds
from kanalyze.findings.facts import Facts
from kanalyze.findings.rule import Rule
from kanalyze.ptx import ir
from kanalyze.results.kernel import Finding

_ID = "double-precision"
_COSTLY = 0.05  # of the launch's time
_ARITHMETIC = ("add", "sub", "mul", "fma", "div", "sqrt", "rcp", "min", "max", "mad")


def check_kernel(facts: Facts) -> Iterator[Finding]:
    """Statements that are in double precision inside alone; one finding for all of them."""
    by_place: dict[object, list[ir.Instruction]] = defaultdict(list)
    for block in facts.description.cfg.blocks:
        for instruction in block.instructions:
            if "f64" in instruction.parts:
                source = facts.at(instruction)[1]
                place = block.index if source is None else (source.file, source.line)
                by_place[place].append(instruction)
    doubled: list[ir.Instruction] = []
    for some in by_place.values():
        converted = {i.parts[-2:] for i in some if i.base == "cvt"}
        wider = any(pair[0] == "f64" and pair[1][0] in "fb" for pair in converted)
        back = any(pair[1] == "f64" and pair[0][0] in "fb" for pair in converted)
        if wider and back:
            doubled += [i for i in some if i.base in _ARITHMETIC]
    if not doubled:
        return
    places = [facts.at(instruction) for instruction in doubled]
    lines = list(dict.fromkeys(str(s.line) for _, s in places if s is not None))
    where = f" (lines {', '.join(lines)})" if len(lines) > 1 else ""
    share = bounds.share(facts.traffic, "fp64") if facts.traffic is not None else None
    of_time = f"; the FP64 units take {100 * share:.3g} % of the time" if share else ""
    advice = (
        "keep the constants and arguments of the statement in fp32"
        if facts.of_triton
        else "write constants with f (0.5f), call the functions for float (sqrtf, fabsf); "
        "ptxas --warn-on-double-precision-use names each"
    )
    yield Finding(
        _ID, "info" if share is not None and share < _COSTLY else "warning", places[0][0],
        f"numbers of single precision are computed with in double: {len(doubled)} × "
        f"{doubled[0].opcode}{' and others' if len({i.opcode for i in doubled}) > 1 else ''}"
        f"{where}{of_time}",
        advice, places[0][1], {"instructions": len(doubled), "share_of_time": share},
        unproven="the source would have to be changed by hand",
    )  # fmt: skip


RULE = Rule(_ID, check_kernel=check_kernel)
