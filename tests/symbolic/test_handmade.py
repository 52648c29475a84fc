"""Addresses in small kernels written by hand, the answers worked out by hand.

Each case also runs in the interpreter of PTX (tests/oracle), which must agree with the answer.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import kanalyze
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import build
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.symbolic import accesses as addresses
from kanalyze.symbolic.value import evaluate, unknown_reasons
from tests.oracle.expression import Expression, definitions_of
from tests.oracle.interpreter import run

X, Y = 0x7F00_0010_0000, 0x7F00_0080_0000
MEMORY = 1 << 20  # bytes in front of X and Y, and behind
BLOCKS = 3
WORD = 1 << 32


@dataclasses.dataclass(frozen=True)
class At:
    """One thread in one iteration: thread, block, n, m and the loop counters."""

    t: int
    c: int
    n: int
    m: int
    i: int = 0
    j: int = 0
    ty: int = 0


def s32(x: int) -> int:
    """``x`` as a signed number of 32 bits."""
    return (x + WORD // 2) % WORD - WORD // 2


def toward_zero(a: int, b: int) -> int:
    """The quotient as C rounds it."""
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@dataclasses.dataclass(frozen=True)
class Case:
    """A body and, for each access in order, its address (a pattern: unknown for that reason).

    ``texts`` are the addresses as the report says them (None: not looked at), ``conditions`` those
    under which they are executed, ``trips`` the trip counts of loops in order of their headers.
    """

    name: str
    body: str
    answers: tuple[Callable[[At], int] | str, ...]
    texts: tuple[str | None, ...] = ()
    conditions: tuple[Callable[[At], bool], ...] = ()
    condition_texts: tuple[str | None, ...] = ()
    trips: tuple[Callable[[At], int] | str, ...] = ()
    trip_texts: tuple[str | None, ...] = ()
    numbers: tuple[tuple[int, int], ...] = ((40, 3), (7, 5))  # (n, m) to try
    block: tuple[int, int] = (64, 1)
    tests_first: bool = False  # whether its loop may run not at all once its header is reached
    runs: bool = True  # whether its addresses lie in memory and are aligned
    wraps: bool = False  # whether its index wraps at 32 bits, so that no text can be right


PRELUDE = """
.version 8.4
.target sm_90
.address_size 64
.extern .shared .align 16 .b8 smem[];
.func (.param .b32 result) helper(.param .b32 given);
.visible .entry kernel(
    .param .u64 x, .param .u64 y, .param .u32 n, .param .u32 m
)
{
    .local .align 16 .b8 depot[256];
    .reg .pred %p<20>;
    .reg .b16 %rs<20>;
    .reg .b32 %r<60>;
    .reg .f32 %f<10>;
    .reg .b64 %rd<60>;
    ld.param.u64 %rd50, [x];
    ld.param.u64 %rd51, [y];
    ld.param.u32 %r50, [n];
    ld.param.u32 %r51, [m];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
"""


def ptx_of(body: str) -> str:
    parts = body.replace(";", ";\n").splitlines()
    lines = "\n".join(part.strip() for part in parts if part.strip())
    return f"{PRELUDE}{lines}\nret;\n}}\n"


CASES = [
    Case(
        "stride and displacement",
        "mul.wide.s32 %rd2, %r1, 12; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3+8], %r1;",
        (lambda a: X + 12 * a.t + 8,),
        ("x + 12*tid.x + 8",),
    ),
    Case(
        "misaligned",
        "mul.wide.u32 %rd2, %r1, 2; add.s64 %rd3, %rd50, %rd2; st.global.u16 [%rd3+1], %rs1;",
        (lambda a: X + 2 * a.t + 1,),
        ("x + 2*tid.x + 1",),
        runs=False,
    ),
    Case(
        "widened, then shifted",
        "cvt.u64.u32 %rd2, %r1; shl.b64 %rd3, %rd2, 2; add.s64 %rd4, %rd50, %rd3;"
        "st.global.u32 [%rd4], %r1;",
        (lambda a: X + 4 * a.t,),
        ("x + 4*tid.x",),
    ),
    Case(
        "shifted at 32 bits, then widened: drops the upper bits",
        "shl.b32 %r3, %r1, 28; cvt.u64.u32 %rd2, %r3; add.s64 %rd4, %rd50, %rd2;"
        "st.global.u32 [%rd4], %r1;",
        (lambda a: X + (a.t << 28) % WORD,),
        runs=False,
    ),
    Case(
        "shifted at 32 bits, then widened with its sign",
        "shl.b32 %r3, %r1, 28; cvt.s64.s32 %rd2, %r3; add.s64 %rd4, %rd50, %rd2;"
        "st.global.u32 [%rd4], %r1;",
        (lambda a: X + s32(a.t << 28),),
        runs=False,
    ),
    Case(
        "negative index",
        "sub.s32 %r3, %r1, 16; mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2;"
        "st.global.u32 [%rd3], %r1;",
        (lambda a: X + 4 * (a.t - 16),),
        ("x + 4*(tid.x - 16)",),
    ),
    Case(
        "negative index widened without its sign",
        "add.s32 %r3, %r1, -16; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2;"
        "st.global.u32 [%rd3], %r1;",
        (lambda a: X + 4 * ((a.t - 16) % WORD),),
        runs=False,
    ),
    Case(
        "signed division as LLVM expands it",
        "sub.s32 %r3, %r50, %r1; shr.s32 %r4, %r3, 31; shr.u32 %r5, %r4, 27;"
        "add.s32 %r6, %r3, %r5; shr.s32 %r7, %r6, 5; mul.wide.s32 %rd2, %r7, 4;"
        "add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;",
        (lambda a: X + 4 * toward_zero(a.n - a.t, 32),),
        numbers=((40, 0), (0, 0), (-31, 0), (-1000, 0), (1000, 0)),
    ),
    Case(
        "signed remainder: minus what a mask keeps",
        "sub.s32 %r3, %r50, %r1; shr.s32 %r4, %r3, 31; shr.u32 %r5, %r4, 27;"
        "add.s32 %r6, %r3, %r5; and.b32 %r7, %r6, -32; sub.s32 %r8, %r3, %r7;"
        "mul.wide.s32 %rd2, %r8, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;",
        (lambda a: X + 4 * (a.n - a.t - 32 * toward_zero(a.n - a.t, 32)),),
        numbers=((40, 0), (0, 0), (-31, 0), (-1000, 0), (1000, 0)),
    ),
    Case(
        "division and remainder of numbers in registers",
        "div.u32 %r3, %r1, %r50; rem.u32 %r4, %r1, %r50; mad.lo.s32 %r5, %r3, 100, %r4;"
        "mul.wide.s32 %rd2, %r5, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;"
        "sub.s32 %r6, %r1, 20; div.s32 %r7, %r6, %r50; rem.s32 %r8, %r6, %r50;"
        "mad.lo.s32 %r9, %r7, 100, %r8; mul.wide.s32 %rd4, %r9, 4; add.s64 %rd5, %rd50, %rd4;"
        "st.global.u32 [%rd5], %r1;",
        (
            lambda a: X + 4 * (a.t // a.n * 100 + a.t % a.n),
            lambda a: (
                X
                + 4
                * (toward_zero(a.t - 20, a.n) * 100 + (a.t - 20) - a.n * toward_zero(a.t - 20, a.n))
            ),
        ),
        numbers=((7, 0), (64, 0), (1, 0)),
    ),
    Case(
        "the global index as nvcc computes it",
        "mov.u32 %r3, %ntid.x; mad.lo.s32 %r4, %r2, %r3, %r1; cvta.to.global.u64 %rd1, %rd50;"
        "mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r4;",
        (lambda a: X + 4 * (64 * a.c + a.t),),
        ("x + 4*(ctaid.x*ntid.x + tid.x)",),
    ),
    Case(
        "loop that counts up, tested at its end",
        """mov.u32 %r3, 0;
        $L1: shl.b32 %r4, %r3, 6; add.s32 %r5, %r4, %r1; mul.wide.s32 %rd2, %r5, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p1, %r3, %r50; @%p1 bra $L1;""",
        (lambda a: X + 4 * (64 * a.i + a.t),),
        ("x + 4*(64*i + tid.x)",),
        trips=(lambda a: max(a.n, 1),),
        trip_texts=("n",),
        numbers=((5, 0), (1, 0), (0, 0), (-3, 0)),
    ),
    Case(
        "loop tested at its start, step 4",
        """mov.u32 %r3, 0;
        $L1: setp.ge.s32 %p1, %r3, %r50; @%p1 bra $L2;
        add.s32 %r5, %r3, %r1; mul.wide.s32 %rd2, %r5, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r3, %r3, 4; bra.uni $L1;
        $L2: mul.wide.s32 %rd5, %r3, 4; add.s64 %rd6, %rd51, %rd5; st.global.u32 [%rd6], %r1;""",
        (lambda a: X + 4 * (4 * a.i + a.t), lambda a: Y + 16 * max(-(-a.n // 4), 0)),
        ("x + 4*(4*i + tid.x)",),
        trips=(lambda a: max(-(-a.n // 4), 0),),
        trip_texts=("ceil(n/4)",),
        tests_first=True,
        numbers=((5, 0), (1, 0), (0, 0), (-3, 0), (-8, 0), (8, 0)),
    ),
    Case(
        "loop that counts down",
        """mov.u32 %r3, %r50;
        $L1: mul.wide.s32 %rd2, %r3, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r3, %r3, -3; setp.gt.s32 %p1, %r3, 0; @%p1 bra $L1;""",
        (lambda a: X + 4 * (a.n - 3 * a.i),),
        trips=(lambda a: max(-(-a.n // 3), 1),),
        trip_texts=("ceil(n/3)",),
        numbers=((9, 0), (1, 0), (10, 0), (0, 0)),
    ),
    Case(
        "loop up to and with its bound",
        """mov.u32 %r3, %r51;
        $L1: mul.wide.s32 %rd2, %r3, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r3, %r3, 2; setp.le.s32 %p1, %r3, %r50; @%p1 bra $L1;""",
        (lambda a: X + 4 * (a.m + 2 * a.i),),
        trips=(lambda a: max((a.n - a.m) // 2 + 1, 1),),
        numbers=((9, 3), (3, 9), (10, 3), (4, 4)),
    ),
    Case(
        "loop until a number is met",
        """mov.u64 %rd2, 0;
        $L1: add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s64 %rd2, %rd2, 16; setp.ne.s64 %p1, %rd2, 256; @%p1 bra $L1;""",
        (lambda a: X + 16 * a.i,),
        ("x + 16*i",),
        trips=(lambda a: 16,),
        trip_texts=("16",),
    ),
    Case(
        "loop down until nothing is left",
        """mov.u32 %r3, %r50; mov.u64 %rd2, %rd50;
        $L1: st.global.u32 [%rd2], %r1; add.s64 %rd2, %rd2, 4;
        add.s32 %r3, %r3, -1; setp.eq.s32 %p1, %r3, 0; @%p1 bra $L2; bra.uni $L1; $L2:""",
        (lambda a: X + 4 * a.i,),
        ("x + 4*i",),
        trips=(lambda a: a.n,),
        trip_texts=("n",),
    ),
    Case(
        "two loops, one in the other",
        """mov.u32 %r3, 0;
        $L1: mov.u32 %r4, 0; mul.lo.s32 %r5, %r3, %r51;
        $L2: add.s32 %r6, %r5, %r4; mul.wide.s32 %rd2, %r6, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;
        add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, %r51; @%p1 bra $L2;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: X + 4 * (a.i * a.m + a.j),),
        ("x + 4*(i0*m + i1)",),
        trips=(lambda a: a.n, lambda a: a.m),
        trip_texts=("n", "m"),
    ),
    Case(
        "a pointer that an inner loop moves on",
        """mov.u32 %r3, 0; mov.u64 %rd2, %rd50;
        $L1: mov.u32 %r4, 0;
        $L2: st.global.u32 [%rd2], %r1; add.s64 %rd2, %rd2, 4;
        add.s32 %r4, %r4, 1; setp.lt.s32 %p1, %r4, 8; @%p1 bra $L2;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: X + 4 * (8 * a.i + a.j),),
        trips=(lambda a: a.n, lambda a: 8),
    ),
    Case(
        "a value used behind its loop",
        """mov.u32 %r3, 0; mov.u32 %r4, 5;
        $L1: add.s32 %r4, %r4, 3; add.s32 %r3, %r3, 1; setp.lt.s32 %p1, %r3, 10; @%p1 bra $L1;
        add.s32 %r5, %r4, %r1; mul.wide.s32 %rd2, %r5, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (35 + a.t),),
        ("x + 4*(tid.x + 35)",),
    ),
    Case(
        "a value used behind a loop that may run once only",
        """mov.u32 %r3, 0; mov.u32 %r4, 5;
        $L1: add.s32 %r4, %r4, 3; add.s32 %r3, %r3, 2; setp.lt.s32 %p1, %r3, %r50; @%p1 bra $L1;
        mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (5 + 3 * max(-(-a.n // 2), 1)),),
        numbers=((5, 0), (1, 0), (0, 0), (-3, 0), (8, 0)),
    ),
    Case(
        "paths that join",
        """setp.lt.s32 %p1, %r1, 16; @%p1 bra $L1; add.s32 %r3, %r1, 100; bra.uni $L2;
        $L1: shl.b32 %r3, %r1, 3;
        $L2: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (8 * a.t if a.t < 16 else a.t + 100),),
    ),
    Case(
        "a path around one statement",
        """mov.u32 %r3, 7; setp.gt.u32 %p1, %r1, %r50; @%p1 bra $L2; add.s32 %r3, %r1, 100;
        $L2: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (7 if a.t > a.n else a.t + 100),),
    ),
    Case(
        "three paths that join",
        """setp.lt.s32 %p1, %r1, 16; @%p1 bra $L1; setp.lt.s32 %p2, %r1, 32; @%p2 bra $L2;
        mov.u32 %r3, 3; bra.uni $L3;
        $L1: mov.u32 %r3, 1; bra.uni $L3;
        $L2: mov.u32 %r3, 2;
        $L3: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        ("differs by the path",),
    ),
    Case(
        "predicated move",
        """mov.u32 %r3, 9; setp.ge.s32 %p1, %r1, %r50; @%p1 mov.u32 %r3, %r1;
        @!%p1 add.s32 %r3, %r3, 1;
        mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (a.t if a.t >= a.n else 10),),
    ),
    Case(
        "gather",
        """mul.wide.s32 %rd2, %r1, 4; add.s64 %rd3, %rd50, %rd2; ld.global.u32 %r3, [%rd3];
        mul.wide.s32 %rd4, %r3, 4; add.s64 %rd5, %rd51, %rd4; st.global.u32 [%rd5], %r1;""",
        (lambda a: X + 4 * a.t, "data"),
        ("x + 4*tid.x", None),
    ),
    Case(
        "pointer chasing",
        """mov.u64 %rd2, %rd50; mov.u32 %r3, 0;
        $L1: ld.global.u64 %rd2, [%rd2]; add.s32 %r3, %r3, 1;
        setp.lt.s32 %p1, %r3, %r50; @%p1 bra $L1;
        st.global.u32 [%rd2], %r1;""",
        ("data", "data"),
        trips=(lambda a: a.n,),
        runs=False,
    ),
    Case(
        "a loop that data end",
        """mov.u64 %rd2, %rd50;
        $L1: ld.global.u32 %r3, [%rd2]; add.s64 %rd2, %rd2, 4;
        setp.ne.s32 %p1, %r3, 0; @%p1 bra $L1;
        st.global.u32 [%rd2], %r1;""",
        (lambda a: X + 4 * a.i, "loop|data"),
        ("x + 4*i", None),
        trips=("data",),
    ),
    Case(
        "lane shuffles",
        """shr.u32 %r3, %r1, 5; shfl.sync.idx.b32 %r4, %r3, 0, 31, -1;
        mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        shfl.sync.bfly.b32 %r5, %r1, 1, 31, -1;
        mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;""",
        (lambda a: X + 4 * (a.t // 32), "lanes"),
    ),
    Case(
        "what differs within a warp is not taken for shared",
        """shr.u32 %r3, %r1, 4; shfl.sync.idx.b32 %r4, %r3, 0, 31, -1;
        mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        mov.u32 %r6, %tid.y; shfl.sync.idx.b32 %r5, %r6, 0, 31, -1;
        mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;""",
        ("lanes", "lanes"),
        block=(8, 8),
    ),
    Case(
        "block of two dimensions",
        """mov.u32 %r3, %tid.y; mov.u32 %r4, %ntid.x; mad.lo.s32 %r5, %r3, %r4, %r1;
        mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (a.ty * 16 + a.t),),
        ("x + 4*(ntid.x*tid.y + tid.x)",),
        block=(16, 4),
    ),
    Case(
        "products that wrap at 32 bits",
        """mul.lo.s32 %r3, %r1, 0x10000001; cvt.s64.s32 %rd2, %r3; shl.b64 %rd3, %rd2, 2;
        add.s64 %rd4, %rd50, %rd3; st.global.u32 [%rd4], %r1;""",
        (lambda a: X + 4 * s32(a.t * 0x10000001),),
        runs=False,
    ),
    Case(
        "products of 24 bits with their sign",
        """sub.s32 %r3, %r1, 16; mul24.lo.s32 %r4, %r3, 3;
        mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        or.b32 %r5, %r1, 0x7f000000; mad24.lo.s32 %r6, %r5, %r3, %r2;
        mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;""",
        (lambda a: X + 4 * 3 * (a.t - 16), lambda a: X + 4 * (a.t * (a.t - 16) + a.c)),
        wraps=True,  # the upper bits are dropped
    ),
    Case(
        "products of 24 bits without a sign",
        """sub.s32 %r3, %r1, 16; mul24.lo.u32 %r4, %r3, 3;
        mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        or.b32 %r5, %r1, 0x800000; mul24.lo.s32 %r6, %r5, 5;
        mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;""",
        (
            lambda a: X + 4 * (3 * ((a.t - 16) % (1 << 24)) % WORD),
            lambda a: X + 4 * 5 * (a.t - (1 << 23)),
        ),
        runs=False,
    ),
    Case(
        "high half of a product: division by 3 as a multiplication",
        """mul.hi.u32 %r3, %r1, -1431655765; shr.u32 %r4, %r3, 1;
        mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        sub.s32 %r5, %r1, 30; mul.hi.s32 %r6, %r5, 1431655766; shr.u32 %r7, %r6, 31;
        add.s32 %r8, %r6, %r7;
        mul.wide.s32 %rd4, %r8, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;""",
        (lambda a: X + 4 * (a.t // 3), lambda a: X + 4 * toward_zero(a.t - 30, 3)),
    ),
    Case(
        "xor swizzle in shared memory",
        """shl.b32 %r3, %r1, 4; and.b32 %r4, %r1, 56; shl.b32 %r5, %r4, 1;
        xor.b32 %r6, %r3, %r5; mov.u32 %r7, smem; add.s32 %r8, %r7, %r6;
        st.shared.v4.b32 [%r8+1024], {%r1, %r1, %r1, %r1};""",
        (lambda a: 0x400 + ((16 * a.t) ^ (2 * (a.t & 56))) + 1024,),
    ),
    Case(
        "xor that swaps neighbours",
        """xor.b32 %r3, %r1, 1; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * (a.t ^ 1),),
        ("x + 4*(tid.x ^ 1)",),
    ),
    Case(
        "array on the stack",
        """mov.u64 %rd2, depot; cvta.local.u64 %rd3, %rd2; and.b32 %r3, %r1, 15;
        mul.wide.u32 %rd4, %r3, 4; add.s64 %rd5, %rd3, %rd4; st.u32 [%rd5+64], %r1;
        add.s64 %rd6, %rd2, %rd4; ld.local.u32 %r4, [%rd6+64];""",
        (
            lambda a: 0x1000_0000 + 4 * (a.t % 16) + 64,
            lambda a: 0x1000_0000 + 4 * (a.t % 16) + 64,
        ),
        (None, "depot + 4*((tid.x & 15) + 16)"),
    ),
    Case(
        "ring of three stages",
        """mov.u32 %r3, 0; mov.u32 %r4, 0;
        $L1: shl.b32 %r5, %r4, 10; mov.u32 %r6, smem; add.s32 %r7, %r6, %r5;
        st.shared.u32 [%r7], %r1;
        add.s32 %r8, %r4, 1; setp.gt.s32 %p1, %r8, 2; selp.b32 %r4, 0, %r8, %p1;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: 0x400 + 1024 * (a.i % 3),),
        ("smem + 1024*(i % 3)",),
        trips=(lambda a: a.n,),
    ),
    Case(
        "ring of three stages, moved on before its use",
        """mov.u32 %r3, 0; mov.u32 %r4, -1;
        $L1: add.s32 %r8, %r4, 1; setp.gt.s32 %p1, %r8, 2; selp.b32 %r4, 0, %r8, %p1;
        shl.b32 %r5, %r4, 10; mov.u32 %r6, smem; add.s32 %r7, %r6, %r5;
        st.shared.u32 [%r7], %r1;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: 0x400 + 1024 * (a.i % 3),),
        trips=(lambda a: a.n,),
    ),
    Case(
        "ring of three stages that starts at the second",
        """mov.u32 %r3, 0; mov.u32 %r4, 1;
        $L1: shl.b32 %r5, %r4, 10; mov.u32 %r6, smem; add.s32 %r7, %r6, %r5;
        st.shared.u32 [%r7], %r1;
        add.s32 %r8, %r4, 1; setp.gt.s32 %p1, %r8, 2; selp.b32 %r4, 0, %r8, %p1;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: 0x400 + 1024 * ((a.i + 1) % 3),),
        trips=(lambda a: a.n,),
    ),
    *(
        Case(
            f"ring of {stages} stages",
            f"""mov.u32 %r3, 0; mov.u32 %r4, 0;
            $L1: shl.b32 %r5, %r4, 2; mov.u32 %r6, smem; add.s32 %r7, %r6, %r5;
            st.shared.u32 [%r7], %r1;
            add.s32 %r8, %r4, 1; setp.lt.s32 %p1, %r8, {stages}; selp.b32 %r4, %r8, 0, %p1;
            add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
            (answer,),
            trips=(lambda a: a.n,),
            numbers=((200, 0),),
        )
        for stages, answer in (
            (64, lambda a: 0x400 + 4 * (a.i % 64)),
            (66, "carried around a loop"),  # longer than a round is followed
        )
    ),
    Case(
        "two buffers by xor",
        """mov.u32 %r3, 0; mov.u32 %r4, 0;
        $L1: mov.u32 %r6, smem; add.s32 %r7, %r6, %r4; st.shared.u32 [%r7], %r1;
        xor.b32 %r4, %r4, 4096;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: 0x400 + 4096 * (a.i % 2),),
        trips=(lambda a: a.n,),
    ),
    Case(
        "guards",
        """mul.wide.s32 %rd2, %r1, 4; add.s64 %rd3, %rd50, %rd2; setp.ge.s32 %p1, %r1, %r50;
        @!%p1 st.global.u32 [%rd3], %r1;
        setp.lt.u32 %p2, %r1, 32; setp.ne.s32 %p3, %r2, 0; and.pred %p4, %p2, %p3;
        @%p4 st.global.u32 [%rd3+4], %r1;
        setp.eq.s32 %p5|%p6, %r1, 5; @%p6 st.global.u32 [%rd3+8], %r1;""",
        (
            lambda a: X + 4 * a.t,
            lambda a: X + 4 * a.t + 4,
            lambda a: X + 4 * a.t + 8,
        ),
        conditions=(
            lambda a: a.t < a.n,
            lambda a: a.t < 32 and a.c != 0,
            lambda a: a.t != 5,
        ),
        condition_texts=("tid.x < n", "tid.x < 32 and ctaid.x != 0", "tid.x != 5"),
        numbers=((40, 0), (7, 0), (-1, 0)),
    ),
    Case(
        "asynchronous copy that reads under a condition",
        """shl.b32 %r3, %r1, 4; mov.u32 %r4, smem; add.s32 %r5, %r4, %r3;
        mul.wide.s32 %rd2, %r1, 16; add.s64 %rd3, %rd50, %rd2;
        setp.lt.s32 %p1, %r1, %r50; selp.b32 %r6, 16, 0, %p1;
        cp.async.cg.shared.global [%r5], [%rd3], 16, %r6;""",
        (lambda a: X + 16 * a.t,),
        ("x + 16*tid.x",),
        conditions=(lambda a: a.t < a.n,),
        condition_texts=("tid.x < n",),
    ),
    Case(
        "code that is not reached",
        """bra.uni $L1; $L0: st.global.u32 [%rd50+4], %r1; bra.uni $L0;
        $L1: st.global.u32 [%rd50], %r1;""",
        (lambda a: X,),
        ("x",),
    ),
    Case(
        "irreducible flow",
        """mov.u32 %r3, 0; setp.lt.s32 %p1, %r1, 8; @%p1 bra $L2;
        $L1: add.s32 %r3, %r3, 1;
        $L2: add.s32 %r3, %r3, 2; mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;
        st.global.u32 [%rd50], %r1;""",
        ("irreducible|path|loop", lambda a: X),
        (None, "x"),
    ),
    Case(
        "result of a call",
        """{ .param .b32 given; .param .b32 result; st.param.b32 [given], %r1;
        call.uni (result), helper, (given); ld.param.b32 %r3, [result]; }
        mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        ("called function",),
        runs=False,
    ),
    Case(
        "what special registers say of the machine",
        """mov.u32 %r3, %smid; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;""",
        ("smid",),
    ),
    Case(
        "bit fields",
        """bfe.u32 %r3, %r1, 2, 3; bfi.b32 %r4, %r3, 256, 4, 3; mul.wide.u32 %rd2, %r4, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        bfe.s32 %r5, %r1, 1, 3; mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd50, %rd4;
        st.global.u32 [%rd5], %r1;""",
        (
            lambda a: X + 4 * (256 + 16 * (a.t >> 2 & 7)),
            lambda a: X + 4 * ((a.t >> 1 & 7) - (8 if a.t >> 3 & 1 else 0)),
        ),
    ),
    Case(
        "the upper bits shifted out and back",
        """shl.b32 %r3, %r1, 29; shr.u32 %r4, %r3, 29; mul.wide.u32 %rd2, %r4, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        shl.b32 %r5, %r1, 27; shr.s32 %r6, %r5, 31; and.b32 %r7, %r6, 264; xor.b32 %r8, %r7, %r1;
        mul.wide.u32 %rd4, %r8, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;""",
        (
            lambda a: X + 4 * (a.t & 7),
            lambda a: X + 4 * ((264 if a.t & 16 else 0) ^ a.t),
        ),
    ),
    Case(
        "halves of a register",
        """cvt.u16.u32 %rs1, %r1; mul.lo.u16 %rs2, %rs1, 3; mov.b32 %r3, {%rs1, %rs2};
        add.s16x2 %r4, %r3, -131069; mov.b32 {%rs3, %rs4}, %r4; mul.wide.s16 %r5, %rs4, 4;
        cvt.s64.s32 %rd2, %r5; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        cvt.s32.s16 %r6, %r4; mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd50, %rd4;
        st.global.u32 [%rd5], %r1;
        min.s16x2 %r7, %r4, 1048580; max.u16x2 %r8, %r7, 458760; and.b32 %r9, %r8, 0xff00ff;
        shr.u32 %r10, %r9, 16; mul.wide.u32 %rd6, %r10, 4; add.s64 %rd7, %rd50, %rd6;
        st.global.u32 [%rd7], %r1;
        and.b32 %r11, %r9, 255; mul.wide.u32 %rd8, %r11, 4; add.s64 %rd9, %rd50, %rd8;
        st.global.u32 [%rd9], %r1;""",
        (
            lambda a: X + 4 * (3 * a.t - 2),  # -131069 is -2 in the upper half, 3 in the lower
            lambda a: X + 4 * (a.t + 3),
            lambda a: X + 4 * (max(min(3 * a.t - 2, 16) % 65536, 7) & 255),
            lambda a: X + 4 * max(min(a.t + 3, 4), 8),
        ),
        wraps=True,
    ),
    Case(
        "products of bytes, signs of bytes",
        """mov.u32 %r3, 0x030281fe; dp4a.u32.s32 %r4, %r1, %r3, %r2; mul.wide.s32 %rd2, %r4, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        mad.lo.s32 %r5, %r1, 65536, 7; dp2a.hi.s32.u32 %r6, %r5, %r3, 1;
        mul.wide.s32 %rd4, %r6, 4; add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;
        shl.b32 %r7, %r1, 10; prmt.b32 %r8, %r7, 0, 0x4491; and.b32 %r9, %r8, 0x5fc;
        mul.wide.u32 %rd6, %r9, 4; add.s64 %rd7, %rd50, %rd6; st.global.u32 [%rd7], %r1;""",
        (
            lambda a: X + 4 * (-2 * a.t + a.c),  # the bytes of %r3: -2, -127, 2, 3
            lambda a: X + 4 * (2 * 7 + 3 * a.t + 1),
            # byte 1 of 1024 tid is 4 tid; its sign is bit 5 of tid
            lambda a: X + 4 * ((4 * a.t & 0xFC) + (0x500 if a.t & 32 else 0)),
        ),
        wraps=True,
    ),
    Case(
        "bytes, tables of logic, double shifts",
        """prmt.b32 %r3, %r1, %r50, 0x3340; and.b32 %r4, %r3, 0xffff;
        mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        lop3.b32 %r5, %r1, %r2, 12, 0x96; mul.wide.u32 %rd4, %r5, 4; add.s64 %rd5, %rd50, %rd4;
        st.global.u32 [%rd5], %r1;
        shf.l.wrap.b32 %r6, %r1, %r2, 33; mul.wide.u32 %rd6, %r6, 4; add.s64 %rd7, %rd50, %rd6;
        st.global.u32 [%rd7], %r1;""",
        (
            lambda a: X + 4 * (a.t & 255),  # bytes 0 (of tid) and 4 (of n) are the lowest
            lambda a: X + 4 * (a.t ^ a.c ^ 12),
            lambda a: X + 4 * (2 * a.c),  # tid has no bit 31
        ),
        numbers=((0, 0),),
    ),
    Case(
        "two halves of a register",
        """mov.b64 %rd2, {%r1, %r2}; shr.u64 %rd3, %rd2, 30; add.s64 %rd4, %rd50, %rd3;
        st.global.u32 [%rd4], %r1; mov.b64 {%r3, %r4}, %rd2; add.s32 %r5, %r3, %r4;
        mul.wide.u32 %rd5, %r5, 4; add.s64 %rd6, %rd50, %rd5; st.global.u32 [%rd6], %r1;""",
        (lambda a: X + 4 * a.c, lambda a: X + 4 * (a.t + a.c)),
    ),
    Case(
        "one of two pointers",
        """setp.lt.s32 %p1, %r1, %r50; selp.b64 %rd2, %rd50, %rd51, %p1;
        mul.wide.u32 %rd3, %r1, 4; add.s64 %rd4, %rd2, %rd3; st.global.u32 [%rd4], %r1;""",
        (lambda a: (X if a.t < a.n else Y) + 4 * a.t,),
    ),
    Case(
        "least and greatest, signed and unsigned",
        """sub.s32 %r3, %r1, 30; max.s32 %r4, %r3, 0; min.s32 %r5, %r4, %r50;
        mul.wide.s32 %rd2, %r5, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        min.u32 %r6, %r3, 50; mul.wide.u32 %rd4, %r6, 4; add.s64 %rd5, %rd50, %rd4;
        st.global.u32 [%rd5], %r1;""",
        (
            lambda a: X + 4 * min(max(a.t - 30, 0), a.n),
            lambda a: X + 4 * min((a.t - 30) % WORD, 50),
        ),
        numbers=((40, 0), (7, 0), (-4, 0)),
        wraps=True,
    ),
    Case(
        "16-bit arithmetic",
        """cvt.u16.u32 %rs1, %r1; mul.lo.s16 %rs2, %rs1, 4096; shr.u16 %rs3, %rs2, 8;
        cvt.u64.u16 %rd2, %rs3; shl.b64 %rd3, %rd2, 2; add.s64 %rd4, %rd50, %rd3;
        st.global.u32 [%rd4], %r1; mul.wide.u16 %r3, %rs1, 100; mul.wide.u32 %rd5, %r3, 4;
        add.s64 %rd6, %rd50, %rd5; st.global.u32 [%rd6], %r1;""",
        (lambda a: X + 4 * ((a.t * 4096 & 0xFFFF) >> 8), lambda a: X + 400 * a.t),
    ),
    Case(
        "a swizzle in 16 bits, as LLVM narrows it",
        """and.b32 %r3, %r1, 5; prmt.b32 %r4, %r3, 0, 0x7701; cvt.u16.u32 %rs1, %r4;
        shl.b16 %rs2, %rs1, 7; shl.b16 %rs3, %rs1, 3; and.b16 %rs4, %rs3, 8192;
        or.b16 %rs5, %rs2, %rs4; shr.u16 %rs6, %rs5, 9; cvt.u32.u16 %r5, %rs6;
        mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        # 0x7701 swaps the two low bytes: %r4 is 256*(tid & 5). Times 128, only its lowest bit is
        # left (as bit 15); times 8, bit 2 of tid becomes bit 13, which the mask keeps.
        (lambda a: X + 4 * (64 * (a.t & 1) + 4 * (a.t & 4)),),
    ),
    Case(
        "a step that a condition chooses",
        """mov.u32 %r3, 0; mov.u32 %r4, 0; setp.lt.s32 %p1, %r1, 16;
        $L1: mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        @%p1 add.s32 %r4, %r4, 2;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: X + 4 * (2 * a.i if a.t < 16 else 0),),
        trips=(lambda a: a.n,),
    ),
    Case(
        "a step that grows",
        """mov.u32 %r3, 0; mov.u32 %r4, 0;
        $L1: mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r4, %r4, %r3;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        ("loop",),
        trips=(lambda a: a.n,),
    ),
    Case(
        "the value of the iteration before",
        """mov.u32 %r3, 0; mov.u32 %r4, 77;
        $L1: mul.wide.s32 %rd2, %r4, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        shl.b32 %r4, %r3, 1;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: X + 4 * (77 if a.i == 0 else 2 * (a.i - 1)),),
        trips=(lambda a: a.n,),
    ),
    Case(
        "a loop with two exits",
        """mov.u32 %r3, 0;
        $L1: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; ld.global.u32 %r4, [%rd3];
        setp.eq.s32 %p1, %r4, 9; @%p1 bra $L2;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;
        $L2: st.global.u32 [%rd50], %r1;""",
        (lambda a: X + 4 * a.i, lambda a: X),
        ("x + 4*i", "x"),
        trips=("exit",),
    ),
    Case(
        "an unsigned bound beyond 2**31",
        """mov.u32 %r3, 0;
        $L1: st.global.u32 [%rd50], %r1; add.s32 %r3, %r3, 1073741824;
        setp.lt.u32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: X,),
        trips=(lambda a: 3,),
        numbers=((0x80000010, 0),),
    ),
    Case(
        "a signed parameter widened as it is read",
        """ld.param.s32 %rd2, [n]; shl.b64 %rd3, %rd2, 2; add.s64 %rd4, %rd50, %rd3;
        st.global.u32 [%rd4], %r1;""",
        (lambda a: X + 4 * a.n,),
        numbers=((5, 0), (-5, 0)),
    ),
    Case(
        "half of a parameter",
        """ld.param.u16 %r3, [n+2]; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd4, %rd50, %rd2;
        st.global.u32 [%rd4], %r1;""",
        (lambda a: X + 4 * (a.n >> 16 & 0xFFFF),),
        numbers=((5, 0), (0x30007, 0)),
    ),
    Case(
        "an inner loop as long as the number of the outer iteration",
        """mov.u32 %r3, 0;
        $L1: mov.u32 %r4, 0; shl.b32 %r5, %r3, 4;
        $L2: add.s32 %r6, %r5, %r4; mul.wide.s32 %rd2, %r6, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;
        add.s32 %r4, %r4, 1; setp.le.s32 %p1, %r4, %r3; @%p1 bra $L2;
        add.s32 %r7, %r5, %r4; mul.wide.s32 %rd4, %r7, 4; add.s64 %rd5, %rd51, %rd4;
        st.global.u32 [%rd5], %r1;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        (lambda a: X + 4 * (16 * a.i + a.j), lambda a: Y + 4 * (16 * a.i + a.i + 1)),
    ),
    Case(
        "a sum over iterations of growing length",
        """mov.u32 %r3, 0; mov.u64 %rd2, %rd50;
        $L1: mov.u32 %r4, 0;
        $L2: st.global.u32 [%rd2], %r1; add.s64 %rd2, %rd2, 4;
        add.s32 %r4, %r4, 1; setp.le.s32 %p1, %r4, %r3; @%p1 bra $L2;
        add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, %r50; @%p2 bra $L1;""",
        ("loop",),
    ),
    Case(
        "a loop over the grid with a step in a register",
        """mov.u32 %r3, %r1; setp.ge.s32 %p2, %r3, %r50; @%p2 bra $L2;
        $L1: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r3, %r3, %r51; setp.lt.s32 %p1, %r3, %r50; @%p1 bra $L1; $L2:""",
        (lambda a: X + 4 * (a.t + a.i * a.m),),
        ("x + 4*(i*m + tid.x)",),
        numbers=((400, 64), (7, 5)),
    ),
    Case(
        "a loop that threads leave at different times",
        """mov.u32 %r3, %r1;
        $L1: mul.wide.s32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        add.s32 %r3, %r3, 64; setp.lt.s32 %p1, %r3, %r50; @%p1 bra $L1;
        mul.wide.s32 %rd4, %r3, 4; add.s64 %rd5, %rd51, %rd4; st.global.u32 [%rd5], %r1;""",
        (
            lambda a: X + 4 * (a.t + 64 * a.i),
            lambda a: Y + 4 * (a.t + 64 * max(-(-(a.n - a.t) // 64), 1)),
        ),
        numbers=((200, 0), (7, 0), (0, 0), (128, 0)),
    ),
    Case(
        "shifts by numbers in registers, beyond the width",
        """shl.b32 %r3, %r1, %r50; mul.wide.u32 %rd2, %r3, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;
        sub.s32 %r4, %r1, 32; shr.s32 %r5, %r4, %r50; mul.wide.s32 %rd4, %r5, 4;
        add.s64 %rd5, %rd50, %rd4; st.global.u32 [%rd5], %r1;
        shr.u32 %r6, %r1, %r50; mul.wide.s32 %rd6, %r6, 4; add.s64 %rd7, %rd50, %rd6;
        st.global.u32 [%rd7], %r1;""",
        (
            lambda a: X + 4 * ((a.t << a.n) % WORD),
            lambda a: X + 4 * ((a.t - 32) >> min(a.n, 31)),
            lambda a: X + 4 * (a.t >> a.n),
        ),
        numbers=((0, 0), (3, 0), (32, 0), (40, 0)),
        wraps=True,
    ),
    Case(
        "narrow numbers widened",
        """mul.lo.s32 %r3, %r1, 5; cvt.s32.s8 %r4, %r3; mul.wide.s32 %rd2, %r4, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        cvt.u32.u8 %r5, %r3; mul.wide.s32 %rd4, %r5, 4; add.s64 %rd5, %rd50, %rd4;
        st.global.u32 [%rd5], %r1;""",
        (
            lambda a: X + 4 * ((5 * a.t + 128) % 256 - 128),
            lambda a: X + 4 * (5 * a.t % 256),
        ),
        wraps=True,
    ),
    Case(
        "a narrow signed number in a wide register",
        """mul.lo.s32 %r3, %r1, 5; cvt.s8.s32 %r4, %r3; mul.wide.s32 %rd2, %r4, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 4 * ((5 * a.t + 128) % 256 - 128),),
        wraps=True,
    ),
    Case(
        "one operand each",
        """sub.s32 %r3, %r1, 20; abs.s32 %r4, %r3; mul.wide.s32 %rd2, %r4, 4;
        add.s64 %rd3, %rd50, %rd2; st.global.u32 [%rd3], %r1;
        neg.s32 %r5, %r3; mad.wide.s32 %rd4, %r5, 4, %rd50; st.global.u32 [%rd4], %r1;
        not.b32 %r6, %r1; mad.wide.s32 %rd5, %r6, -4, %rd50; st.global.u32 [%rd5], %r1;
        popc.b32 %r7, %r1; mad.wide.u32 %rd6, %r7, 4, %rd50; st.global.u32 [%rd6], %r1;""",
        (
            lambda a: X + 4 * abs(a.t - 20),
            lambda a: X + 4 * (20 - a.t),
            lambda a: X + 4 * (a.t + 1),
            lambda a: X + 4 * a.t.bit_count(),
        ),
        (None, "x + 4*(20 - tid.x)", None, None),
    ),
    Case(
        "comparisons that combine",
        """setp.lt.s32 %p1, %r1, %r50; setp.hs.u32 %p2, %r1, 4;
        setp.ne.and.s32 %p3, %r2, 1, !%p1; setp.lo.or.u32 %p4, %r1, 10, %p2;
        mad.wide.u32 %rd2, %r1, 4, %rd50;
        @%p3 st.global.u32 [%rd2], %r1; @%p4 st.global.u32 [%rd2], %r1;
        xor.pred %p6, %p1, %p2; @%p6 st.global.u32 [%rd2], %r1;
        not.pred %p7, %p1; or.pred %p8, %p7, %p2; @!%p8 st.global.u32 [%rd2], %r1;""",
        (lambda a: X + 4 * a.t,) * 4,
        conditions=(
            lambda a: a.c != 1 and not a.t < a.n,
            lambda a: True,
            lambda a: (a.t < a.n) != (a.t >= 4),
            lambda a: a.t < a.n and a.t < 4,
        ),
        numbers=((40, 0), (2, 0), (-1, 0)),
    ),
    Case(
        "two predicates that combine",
        """setp.lt.s32 %p1, %r1, %r50; setp.eq.and.u32 %p2|%p3, %r2, 1, %p1;
        mad.wide.u32 %rd2, %r1, 4, %rd50;
        @%p2 st.global.u32 [%rd2], %r1; @%p3 st.global.u32 [%rd2], %r1;""",
        (lambda a: X + 4 * a.t,) * 2,
        conditions=(
            lambda a: a.c == 1 and a.t < a.n,
            lambda a: a.c != 1 and a.t < a.n,
        ),
    ),
    Case(
        "a register written again and again",
        """mov.u32 %r3, %r1; shl.b32 %r3, %r3, 2; add.s32 %r3, %r3, 3; add.s32 %r3, %r3, %r3;
        mad.wide.u32 %rd2, %r3, 4, %rd50; st.global.u32 [%rd2], %r1;
        mov.u32 %r3, 1; mad.wide.u32 %rd2, %r3, 4, %rd50; st.global.u32 [%rd2], %r1;""",
        (lambda a: X + 4 * (8 * a.t + 6), lambda a: X + 4),
        ("x + 4*(8*tid.x + 6)", "x + 4"),
    ),
    Case(
        "a loop inside one branch",
        """mov.u32 %r4, 2; setp.ge.s32 %p1, %r1, 16; @%p1 bra $L2; mov.u32 %r3, 0;
        $L1: add.s32 %r4, %r4, 5; add.s32 %r3, %r3, 1; setp.lt.s32 %p2, %r3, 3; @%p2 bra $L1;
        $L2: mad.wide.u32 %rd2, %r4, 4, %rd50; st.global.u32 [%rd2], %r1;""",
        (lambda a: X + 4 * (17 if a.t < 16 else 2),),
    ),
    Case(
        "scopes hide names",
        """mov.u32 %r3, 1; { .reg .b32 %r3; mov.u32 %r3, 99; add.s32 %r4, %r3, 0; }
        add.s32 %r5, %r3, %r4; mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd50, %rd2;
        st.global.u32 [%rd3], %r1;""",
        (lambda a: X + 400,),
        ("x + 400",),
    ),
]


# ---------------------------------------------------------------- checking


def _read(case: Case) -> tuple[ir.Module, Any, addresses.Addresses]:
    (module,) = parse_ptx_modules(ptx_of(case.body), "handmade.ptx")
    assert not module.diagnostics
    (function,) = (f for f in module.entries if f.name == "kernel")
    variables = {v.name: v for v in module.variables}
    variables |= {s.name: s for s in function.body or () if isinstance(s, ir.Variable)}
    cfg = build(function)
    return module, cfg, addresses.find(cfg, variables)


def _parameters(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case.name) for case in cases]


def _situations(case: Case) -> list[At]:
    """Threads, blocks, numbers and iterations in which an answer is asked for."""
    width, height = case.block
    return [
        At(t, c, n, m, i, j, ty)
        for n, m in case.numbers
        for c in range(BLOCKS)
        for i in range(4 if "$L1" in case.body else 1)
        for j in range(3 if "$L2" in case.body else 1)
        for ty in range(height)
        for t in range(width)
    ]


def _evaluate(case: Case, cfg: Any, values: list[Any], at: list[At]) -> list[Any]:
    headers = sorted(loop.header for loop in cfg.loops)
    width, height = case.block
    specials = {
        "tid.x": np.array([a.t for a in at], np.uint64),
        "tid.y": np.array([a.ty for a in at], np.uint64),
        "ctaid.x": np.array([a.c for a in at], np.uint64),
        "ntid.x": width,
        "ntid.y": height,
    }
    iterations = dict(
        zip(
            headers,
            [np.array([a.i for a in at], np.uint64), np.array([a.j for a in at], np.uint64)],
            strict=False,
        )
    )
    results = []
    for value in values:
        numbers = np.zeros(len(at), np.uint64)
        for n, m in case.numbers:
            here = np.array([a.n == n and a.m == m for a in at])
            params = {("x", 0): X, ("y", 0): Y, ("n", 0): n, ("m", 0): m}
            params[("n", 2)] = n >> 16
            some = {k: v[here] if isinstance(v, np.ndarray) else v for k, v in specials.items()}
            counts = {k: v[here] for k, v in iterations.items()}
            places = {"smem": 0x400, "depot": 0x1000_0000}
            (result,) = evaluate([value], some, params, counts, places)
            numbers[here] = np.broadcast_to(result, (int(here.sum()),))
        results.append(numbers)
    return results


@pytest.mark.parametrize("case", _parameters(CASES))
def test_values(case: Case):
    _, cfg, found = _read(case)
    assert len(found.accesses) == len(case.answers)
    at = _situations(case)
    for number, (access, answer) in enumerate(zip(found.accesses, case.answers, strict=True)):
        if isinstance(answer, str):
            assert access.reasons, f"access {number} is not expected to be known"
            assert re.search(answer, access.reasons[0])
            continue
        assert not access.reasons
        (got,) = _evaluate(case, cfg, [access.address], at)
        mask = WORD - 1 if access.address.bits == 32 else (1 << 64) - 1
        for situation, address in zip(at, got, strict=True):
            expected = answer(situation) & mask
            assert int(address) == expected, (number, situation, hex(int(address)), hex(expected))


WITH_CONDITIONS = [c for c in CASES if c.conditions]


@pytest.mark.parametrize("case", _parameters(WITH_CONDITIONS))
def test_conditions(case: Case):
    _, cfg, found = _read(case)
    at = _situations(case)
    for access, answer in zip(found.accesses, case.conditions, strict=True):
        assert access.condition is not None
        (got,) = _evaluate(case, cfg, [access.condition], at)
        assert [bool(g) for g in got] == [answer(a) for a in at]


@pytest.mark.parametrize("case", _parameters([c for c in CASES if c.trips]))
def test_trip_counts(case: Case):
    _, cfg, found = _read(case)
    headers = sorted(loop.header for loop in cfg.loops)
    assert len(headers) == len(case.trips)
    for header, answer in zip(headers, case.trips, strict=True):
        trip = found.solved.trips[header]
        if isinstance(answer, str):
            assert trip.count is None
            assert re.search(answer, trip.reason or "")
            continue
        assert trip.count is not None, trip.reason
        assert not unknown_reasons(trip.count)
        at = [At(0, 0, n, m) for n, m in case.numbers]
        (got,) = _evaluate(case, cfg, [trip.count], at)
        signed = [int(g) if trip.count.bits == 64 else s32(int(g)) for g in got]
        assert signed == [answer(a) for a in at]


@pytest.mark.parametrize("case", _parameters([c for c in CASES if any(c.texts)]))
def test_texts_of_addresses(case: Case):
    module, _, _ = _read(case)
    kernel = kanalyze.analyze(module).kernels[0]
    for access, text in zip(kernel.accesses, case.texts, strict=False):
        if text is not None:
            assert access.address == text


TRUE_TEXTS = [c for c in CASES if c.runs and not c.wraps]


@pytest.mark.parametrize("case", _parameters(TRUE_TEXTS))
def test_texts_mean_the_address(case: Case):
    """Evaluated as Python, a text gives the address (no index wraps in these kernels)."""
    module, _, _ = _read(case)
    kernel = kanalyze.analyze(module).kernels[0]
    at = _situations(case)
    counters = [loop.counter for loop in kernel.loops]
    names = {
        "n[2]": np.array([a.n >> 16 for a in at]),
        "x": X, "y": Y, "smem": 0x400, "depot": 0x1000_0000,
        "n": np.array([s32(a.n) for a in at]), "m": np.array([s32(a.m) for a in at]),
        "tid.x": np.array([a.t for a in at]), "tid.y": np.array([a.ty for a in at]),
        "ctaid.x": np.array([a.c for a in at]), "ntid.x": case.block[0], "ntid.y": case.block[1],
    }  # fmt: skip
    names |= dict(zip(counters, [np.array([a.i for a in at]), np.array([a.j for a in at])],
                      strict=False))  # fmt: skip
    evaluated = Expression(names, definitions_of(kernel))
    for number, (access, answer) in enumerate(zip(kernel.accesses, case.answers, strict=True)):
        if isinstance(answer, str) or access.address is None:
            continue
        got = np.broadcast_to(evaluated(access.address), (len(at),))
        wrong = [(a, int(g)) for a, g in zip(at, got, strict=True) if answer(a) != g]
        assert not wrong, (number, access.address, wrong[0])
    for access, holds in zip(kernel.accesses, case.conditions, strict=False):
        got = np.broadcast_to(evaluated(access.condition or "always"), (len(at),))
        assert [bool(g) for g in got] == [holds(a) for a in at], access.condition


@pytest.mark.parametrize("case", _parameters([c for c in CASES if c.condition_texts]))
def test_texts_of_conditions(case: Case):
    module, _, _ = _read(case)
    kernel = kanalyze.analyze(module).kernels[0]
    assert [a.condition for a in kernel.accesses] == list(case.condition_texts)


WITH_TRIPS = [c for c in CASES if c.trip_texts]


@pytest.mark.parametrize("case", _parameters(WITH_TRIPS))
def test_texts_of_trip_counts(case: Case):
    module, _, _ = _read(case)
    kernel = kanalyze.analyze(module).kernels[0]
    assert [loop.trip_count for loop in kernel.loops] == list(case.trip_texts)


UNKNOWN = [c for c in CASES if any(isinstance(a, str) for a in c.answers)]


@pytest.mark.parametrize("case", _parameters(UNKNOWN))
def test_an_unknown_address_has_a_reason_in_the_report(case: Case):
    module, _, _ = _read(case)
    report = kanalyze.analyze(module)
    for number, answer in enumerate(case.answers):
        access = report.kernels[0].accesses[number]
        if isinstance(answer, str):
            assert access.address is None
            assert re.search(answer, access.reason or "")
            assert f"kernels[0].accesses[{number}].address" in {u.field for u in report.unknown}


@pytest.mark.parametrize("case", _parameters([c for c in CASES if c.runs]))
def test_the_answers_against_the_interpreter(case: Case):
    """The answers above are what really happens: the same kernel executed."""
    ptx = ptx_of(case.body)
    width, height = case.block
    blocks = [(c, 0, 0) for c in range(BLOCKS)]
    for n, m in case.numbers:
        memory = [(base - MEMORY, np.zeros(2 * MEMORY, np.uint8)) for base in (X, Y)]
        trace = run(ptx, "kernel", (BLOCKS,), (width, height), [X, Y, n, m], blocks, memory)
        lines = sorted({r.line for r in trace.accesses})
        known = case.answers
        assert len(lines) <= len(known)
        numbered = {line: i for i, line in enumerate(lines)}
        if len(lines) < len(known):
            continue  # something is not executed with these numbers
        headers = sorted({line for _, line in trace.loops})
        for record in trace.accesses:
            answer = known[numbered[record.line]]
            if isinstance(answer, str):
                continue
            for thread in np.flatnonzero(record.reached):
                counts = [int(record.iterations[h][thread]) for h in headers]
                at = At(int(thread) % width, record.block[0], n, m,
                        *([*counts, 0, 0][:2]), int(thread) // width)  # fmt: skip
                assert int(record.addresses[thread]) == answer(at), (record.line, at)
                if case.conditions:
                    moved = record.active[thread] and (
                        record.source_size is None or record.source_size[thread] > 0
                    )
                    assert moved == case.conditions[numbered[record.line]](at)
        for header, answer in zip(headers, case.trips, strict=False):
            for block in blocks:
                passes = trace.loops[block, header]
                assert passes.entered.min() >= 1
                if not isinstance(answer, str):
                    ran = passes.started - passes.entered * case.tests_first
                    assert (ran == passes.entered * answer(At(0, block[0], n, m))).all()
