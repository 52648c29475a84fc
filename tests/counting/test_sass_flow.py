"""Branches, loops and early exits in SASS, against a count in plain Python over all threads.

Each case is a small PTX function whose ``st.global`` marks a place; which threads come there, and
how often, is said by a Python function. ptxas unrolls the loops, turns branches into guards, copies
code; the number of warps that execute a store with a thread taking part must stay the same.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import pytest

from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass.cfg import build
from kanalyze.sass.counts import before_join
from kanalyze.sass.parse import parse_sass
from kanalyze.toolchain import ptxas, tools

pytestmark = pytest.mark.slow("disassembles and counts machine code")

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
GRID, BLOCK = 3, 160

PTX = """
.version 8.7
.target {arch}
.address_size 64
.visible .entry k(.param .u64 out, .param .u32 n, .param .u32 m)
{{
    .reg .pred %p<20>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<20>;
    ld.param.u64 %rd1, [out];
    ld.param.u32 %r1, [n];
    ld.param.u32 %r2, [m];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    mad.lo.u32 %r5, %r4, {block}, %r3;
    mul.wide.u32 %rd2, %r5, 4;
    add.s64 %rd3, %rd1, %rd2;
    {body}
    ret;
}}
"""

Thread = Callable[[int, int, int, int], int]
"""Thread, block, n, m → how often it stores."""


@dataclass(frozen=True)
class Case:
    body: str
    stores: Thread
    numbers: tuple[tuple[int, int], ...] = ((0, 0), (1, 5), (7, 3), (64, 40), (100, 1), (333, 77))


STORE = "st.volatile.global.u32 [%rd3], %r5;"
CASES = {
    "one side": Case(
        f"setp.ge.u32 %p1, %r3, %r1; @%p1 bra END; {STORE} bar.sync 0; END:",
        lambda t, b, n, m: t < n,
    ),
    "early exit": Case(
        f"mad.lo.u32 %r6, %r4, {BLOCK}, %r3; setp.ge.u32 %p1, %r6, %r1; @%p1 exit; {STORE}",
        lambda t, b, n, m: b * BLOCK + t < n,
    ),
    "both sides": Case(
        f"and.b32 %r6, %r3, 3; setp.lt.u32 %p1, %r6, %r2; @%p1 bra LEFT;"
        f"{30 * STORE} bra END; LEFT: {10 * STORE} END: {STORE}",
        lambda t, b, n, m: 11 if t & 3 < m else 31,
        ((0, 0), (0, 2), (0, 5)),
    ),
    "a branch in a branch": Case(
        f"setp.lt.u32 %p1, %r3, %r1; @!%p1 bra OUT; and.b32 %r6, %r3, 1; setp.eq.u32 %p2, %r6, 0;"
        f"@%p2 bra EVEN; {STORE} {STORE} bra MEET; EVEN: {STORE} MEET: {STORE} OUT: {STORE}",
        lambda t, b, n, m: 1 + ((3 if t & 1 else 2) if t < n else 0),
    ),
    "a loop of one length": Case(
        f"mov.u32 %r6, 0; setp.ge.s32 %p1, %r6, %r1; @%p1 bra END;"
        f"LOOP: {STORE} add.s32 %r6, %r6, 1; setp.lt.s32 %p2, %r6, %r1; @%p2 bra LOOP; END:",
        lambda t, b, n, m: n,
    ),
    "a step": Case(
        f"mov.u32 %r6, %r2; LOOP: setp.ge.s32 %p1, %r6, %r1; @%p1 bra END;"
        f"{STORE} add.s32 %r6, %r6, 12; bra LOOP; END:",
        lambda t, b, n, m: max(0, -(-(n - m) // 12)),
    ),
    "a length for each block": Case(
        f"mov.u32 %r6, 0; LOOP: setp.gt.s32 %p1, %r6, %r4; @%p1 bra END;"
        f"{STORE} add.s32 %r6, %r6, 1; bra LOOP; END:",
        lambda t, b, n, m: b + 1,
    ),
    "a length for each thread": Case(
        f"and.b32 %r7, %r3, 7; mov.u32 %r6, 0; LOOP: setp.ge.s32 %p1, %r6, %r7; @%p1 bra END;"
        f"{STORE} add.s32 %r6, %r6, 1; bra LOOP; END:",
        lambda t, b, n, m: t & 7,
        ((0, 0),),
    ),
    "a long length for each thread": Case(
        f"mov.u32 %r6, 0; LOOP: setp.ge.s32 %p1, %r6, %r3; @%p1 bra END;"
        f"{STORE} add.s32 %r6, %r6, 1; bra LOOP; END: {STORE}",
        lambda t, b, n, m: t + 1,
        ((0, 0),),
    ),
    "a strided loop": Case(
        f"mov.u32 %r6, %r3; LOOP: setp.ge.s32 %p1, %r6, %r1; @%p1 bra END;"
        f"{STORE} add.s32 %r6, %r6, {BLOCK}; bra LOOP; END:",
        lambda t, b, n, m: max(0, -(-(n - t) // BLOCK)),
    ),
    "a wide counter": Case(
        f"cvt.s64.s32 %rd4, %r1; mov.u64 %rd5, 0; LOOP: setp.ge.s64 %p1, %rd5, %rd4; @%p1 bra END;"
        f"{STORE} add.s64 %rd5, %rd5, 3; bra LOOP; END:",
        lambda t, b, n, m: -(-n // 3),
    ),
    "a branch in a loop": Case(
        f"mov.u32 %r6, 0; LOOP: setp.ge.s32 %p1, %r6, %r1; @%p1 bra END; setp.lt.u32 %p2, %r6, %r2;"
        f"@!%p2 bra SKIP; {STORE} bar.sync 0; SKIP: add.s32 %r6, %r6, 1; bra LOOP; END:",
        lambda t, b, n, m: min(n, m),
    ),
    "a loop in a loop": Case(
        f"mov.u32 %r6, 0; OUTER: setp.ge.s32 %p1, %r6, 5; @%p1 bra END; mov.u32 %r7, 0;"
        f"INNER: setp.gt.s32 %p2, %r7, %r6; @%p2 bra NEXT; {STORE} add.s32 %r7, %r7, 1; bra INNER;"
        f"NEXT: add.s32 %r6, %r6, 1; bra OUTER; END:",
        lambda t, b, n, m: 15,
        ((0, 0),),
    ),
}


@lru_cache
def built(name: str, arch: str) -> tuple[str, str]:
    text = PTX.format(arch=arch, block=BLOCK, body=CASES[name].body)
    return text, tools.disassemble(ptxas.assemble(text, arch).cubin)


def launched(name: str, arch: str, n: int, m: int) -> SassKernelLaunch:
    text, listing = built(name, arch)
    module = parse_sass(listing)
    values = (("out", "*i32", 1 << 40), ("n", "i32", n), ("m", "i32", m))
    params = tuple(LaunchParam(*value) for value in values)
    launch = Launch("k", (GRID, 1, 1), (BLOCK, 1, 1), params)
    (entry,) = parse_ptx(text).entries
    return SassKernelLaunch(build(module.functions[0]), module, entry.parameters, launch)


def expected(case: Case, n: int, m: int) -> int:
    """Stores of warps: in each turn those with a thread that stores yet again.

    Threads that store at different places of the code do not store together; here it is enough to
    tell the sides apart by the number of stores that they hold.
    """
    total = 0
    for block in range(GRID):
        for warp in range(BLOCK // 32):
            counts = [case.stores(32 * warp + lane, block, n, m) for lane in range(32)]
            total += max(counts)
    return total


APART = ("both sides", "a branch in a branch", "a long length for each thread")
TOGETHER = [name for name in CASES if name not in APART]


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", TOGETHER)
def test_stores_of_warps(name: str, arch: str) -> None:
    for n, m in CASES[name].numbers:
        found = launched(name, arch, n, m)
        stores = [cost for cost in found.accesses if cost.instruction.base == "STG"]
        assert stores
        assert all(cost.active is not None for cost in stores), stores[0].reason
        assert (n, m, sum(cost.active or 0 for cost in stores)) == (
            n, m, expected(CASES[name], n, m),
        )  # fmt: skip


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", ["both sides", "a branch in a branch"])
def test_stores_of_warps_that_part(name: str, arch: str) -> None:
    case = CASES[name]
    for n, m in case.numbers:
        total = 0
        for warp in range(BLOCK // 32):
            lanes = range(32 * warp, 32 * warp + 32)
            if name == "both sides":
                left, right = (any((t & 3 < m) == side for t in lanes) for side in (True, False))
                total += 1 + 10 * left + 30 * right
            else:
                inside = [t for t in lanes if t < n]
                odd, even = any(t & 1 for t in inside), any(not t & 1 for t in inside)
                total += 1 + bool(inside) + 2 * odd + even
        found = launched(name, arch, n, m)
        stores = [cost for cost in found.accesses if cost.instruction.base == "STG"]
        assert (n, m, sum(cost.active or 0 for cost in stores)) == (n, m, GRID * total)


@pytest.mark.parametrize("arch", ARCHS)
def test_parts_of_a_warp_arrive_one_by_one(arch: str) -> None:
    found = launched("both sides", arch, 0, 2)  # two lanes of four go either way
    warps = GRID * BLOCK // 32
    joins = {b: n for b, n in found.arrivals.items() if before_join(found.cfg.blocks[b])}
    assert joins
    assert set(joins.values()) == {2 * warps}
    assert all(found.block_runs[block].warps == warps for block in joins)
    alike = launched("both sides", arch, 0, 5)  # all go one way
    assert set(alike.arrivals.values()) == {warps}
    apart = found.instructions_executed.value
    assert apart is not None
    assert apart > (alike.instructions_executed.value or 0)


@pytest.mark.parametrize("arch", ARCHS)
def test_threads_that_leave_a_loop_one_by_one_are_not_counted_where_they_meet(arch: str) -> None:
    found = launched("a long length for each thread", arch, 0, 0)
    total = found.instructions_executed
    assert total.value is None
    assert "different iterations" in (total.reason or "") or "stay apart" in (total.reason or "")
    together = launched("a loop of one length", arch, 9, 0)
    assert together.instructions_executed.value is not None


@pytest.mark.parametrize("arch", ARCHS)
def test_what_depends_on_data_is_unknown_and_the_rest_is_not(arch: str) -> None:
    body = (
        f"ld.global.u32 %r6, [%rd3]; setp.eq.s32 %p1, %r6, 0; @%p1 bra END;"
        f"{30 * STORE} END: {STORE}"
    )
    text = PTX.format(arch=arch, block=BLOCK, body=body)
    module = parse_sass(tools.disassemble(ptxas.assemble(text, arch).cubin))
    values = (("out", "*i32", 1 << 40), ("n", "i32", 9), ("m", "i32", 9))
    params = tuple(LaunchParam(*value) for value in values)
    launch = Launch("k", (GRID, 1, 1), (BLOCK, 1, 1), params)
    (entry,) = parse_ptx(text).entries
    found = SassKernelLaunch(build(module.functions[0]), module, entry.parameters, launch)
    total = found.instructions_executed
    assert total.value is None
    assert total.reason is not None
    assert "data loaded by LDG" in total.reason
    assert found.by_class["global load"].value == GRID * BLOCK // 32
    assert found.by_class["global store"].value is None
    assert found.by_class["global store"].at_least == GRID * BLOCK // 32
