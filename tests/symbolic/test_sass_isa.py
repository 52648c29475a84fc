"""SASS instructions as values: small PTX functions, evaluated from their PTX and from their SASS.

ptxas makes the SASS, and the meaning of the PTX is documented (and tested by its own oracle), so
each case says that some instructions of SASS mean what kanalyze takes them to mean. Which ones
occur is checked, too. The last tests compare single functions with plain Python.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from kanalyze.ptx import cfg as ptx_cfg
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass.memory import memory_access
from kanalyze.sass.parse import parse_sass
from kanalyze.symbolic import accesses
from kanalyze.symbolic.execution_predicates import ExecutionPredicates
from kanalyze.symbolic.loops import solve
from kanalyze.symbolic.registers import OperandRequest, follow_code
from kanalyze.symbolic.sass_bits import logic
from kanalyze.symbolic.sass_isa import SassIsa
from kanalyze.symbolic.sass_places import ConstantLayout, parameter_places
from kanalyze.symbolic.value import Value, ValuePool, evaluate, leaves
from kanalyze.toolchain import ptxas, tools

pytestmark = pytest.mark.slow("disassembles and counts machine code")

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")

PTX = """
.version 8.7
.target {arch}
.address_size 64
.shared .align 16 .b8 buffer[16384];
.visible .entry k(.param .u32 a, .param .u32 b, .param .u64 c, .param .u16 d, .param .u64 e)
.reqntid 64, 2, 1
{{
    .reg .pred %p<20>;
    .reg .b16 %h<4>;
    .reg .b32 %r<40>;
    .reg .b64 %rd<20>;
    ld.param.u32 %r1, [a];
    ld.param.u32 %r2, [b];
    ld.param.u64 %rd1, [c];
    ld.param.u16 %h1, [d];
    ld.param.u64 %rd2, [e];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %tid.y;
    {body}
    and.b32 %r30, %r20, 0x3ffc;
    mov.u32 %r31, buffer;
    add.u32 %r32, %r31, %r30;
    {guard} st.shared.u32 [%r32], %r3;
    ret;
}}
"""


NUMBERS = (0, 1, 7, 4096, 2**31 - 1, 2**31, 2**32 - 1, 123456789)


@dataclass(frozen=True)
class Case:
    """``body`` computes %r20 (which shared word is written), and %p1 if ``guarded``."""

    body: str
    uses: tuple[str, ...] = ()  # mnemonics of SASS that some architecture makes of it
    guarded: bool = False


CASES = {
    "sum": Case("add.u32 %r6, %r1, %r3; sub.u32 %r20, %r6, %r2;", ("IADD3",)),
    "product": Case("mad.lo.u32 %r20, %r3, %r1, %r2;", ("IMAD",)),
    "shifts": Case("shl.b32 %r6, %r3, 5; shr.u32 %r7, %r1, 3; shr.s32 %r8, %r2, 4;"
                   "add.u32 %r9, %r6, %r7; add.u32 %r20, %r9, %r8;", ("SHF",)),
    "shift by a register": Case("shl.b32 %r6, %r1, %r3; shr.u32 %r7, %r2, %r3;"
                                "shr.s32 %r8, %r1, %r5; xor.b32 %r9, %r6, %r7;"
                                "xor.b32 %r20, %r9, %r8;", ("SHF", "LOP3")),
    "funnel": Case("shf.l.wrap.b32 %r6, %r1, %r2, %r3; shf.r.wrap.b32 %r7, %r1, %r2, %r3;"
                   "shf.r.clamp.b32 %r8, %r2, %r1, %r3; shf.l.clamp.b32 %r9, %r3, %r1, 7;"
                   "xor.b32 %r10, %r6, %r7; xor.b32 %r11, %r8, %r9; xor.b32 %r20, %r10, %r11;",
                   ("SHF",)),
    "logic": Case("lop3.b32 %r6, %r1, %r2, %r3, 0xe8; lop3.b32 %r7, %r6, %r3, %r1, 0x1d;"
                  "not.b32 %r8, %r7; lop3.b32 %r20, %r8, %r2, %r6, 0x6a;", ("LOP3",)),
    "bytes": Case("prmt.b32 %r6, %r1, %r2, 0x2541; prmt.b32 %r7, %r3, %r6, 0x7016;"
                  "xor.b32 %r20, %r6, %r7;", ("PRMT",)),
    "fields": Case("bfe.u32 %r6, %r1, 5, 9; bfe.s32 %r7, %r2, 3, 6; bfi.b32 %r8, %r3, %r1, 7, 5;"
                   "add.u32 %r9, %r6, %r7; xor.b32 %r20, %r9, %r8;", ("SGXT",)),
    "smaller and greater": Case("min.s32 %r6, %r1, %r2; max.u32 %r7, %r1, %r3;"
                                "max.s32 %r8, %r2, %r3; min.u32 %r9, %r2, %r1;"
                                "xor.b32 %r10, %r6, %r7; xor.b32 %r11, %r8, %r9;"
                                "xor.b32 %r20, %r10, %r11;", ("IMNMX", "VIMNMX")),
    "absolute": Case("abs.s32 %r6, %r1; neg.s32 %r7, %r6; add.u32 %r20, %r7, %r3;", ("IABS",)),
    "upper half": Case("mul.hi.u32 %r6, %r1, %r2; mul.hi.s32 %r7, %r1, %r2;"
                       "add.u32 %r8, %r6, %r7; add.u32 %r20, %r8, %r3;", ("IMAD",)),
    "constant quotient": Case("div.u32 %r6, %r1, 7; rem.s32 %r7, %r2, 12; add.u32 %r8, %r3, 100;"
                              "div.s32 %r9, %r8, 24; add.u32 %r10, %r6, %r7;"
                              "add.u32 %r20, %r10, %r9;", ("IMAD",)),
    "quotient": Case("or.b32 %r6, %r2, 1; div.u32 %r7, %r1, %r6; mad.lo.u32 %r20, %r7, 64, %r3;",
                     ("I2F", "MUFU", "F2I")),
    "remainder": Case("or.b32 %r6, %r2, 1; add.u32 %r8, %r1, %r3; rem.u32 %r7, %r8, %r6;"
                      "shl.b32 %r20, %r7, 2;", ("I2F", "MUFU", "F2I")),
    "signed quotient": Case("or.b32 %r6, %r2, 1; add.u32 %r8, %r1, %r3; div.s32 %r7, %r8, %r6;"
                            "rem.s32 %r9, %r8, %r6; xor.b32 %r10, %r7, %r9; shl.b32 %r20, %r10, 2;",
                            ("I2F", "MUFU", "F2I", "IABS")),
    "choice": Case("setp.lt.s32 %p2, %r1, %r2; setp.ge.u32 %p3, %r1, %r3; setp.ne.s32 %p4, %r2, 9;"
                   "selp.b32 %r6, %r1, %r3, %p2; selp.b32 %r7, %r6, 12, %p3;"
                   "selp.b32 %r20, %r7, %r2, %p4;", ("SEL", "ISETP")),
    "predicates": Case("setp.lt.s32 %p2, %r1, %r2; setp.gt.u32 %p3, %r3, 17;"
                       "setp.eq.and.s32 %p4, %r5, 1, %p3; or.pred %p5, %p2, %p4;"
                       "xor.pred %p6, %p5, %p3; not.pred %p7, %p6; and.pred %p1, %p7, %p5;"
                       "or.pred %p1, %p1, %p4; mov.u32 %r20, 4;", ("ISETP", "PLOP3"), guarded=True),
    "a mask of lanes": Case("and.b32 %r6, %r3, 0x1f; setp.eq.s32 %p2, %r6, 0;"
                            "setp.lt.u32 %p3, %r3, 40; and.pred %p1, %p2, %p3;"
                            "shr.u32 %r7, %r3, 3; and.b32 %r20, %r7, 12;", ("LOP3",), guarded=True),
    "wide sum": Case("cvt.u64.u32 %rd3, %r3; mul.wide.s32 %rd4, %r1, %r2; add.s64 %rd5, %rd3, %rd4;"
                     "add.s64 %rd6, %rd5, %rd1; shr.u64 %rd7, %rd6, 20; cvt.u32.u64 %r6, %rd7;"
                     "cvt.u32.u64 %r7, %rd6; xor.b32 %r20, %r6, %r7;", ("IMAD",)),
    "wide difference": Case("cvt.u64.u32 %rd3, %r3; sub.s64 %rd5, %rd1, %rd3;"
                            "sub.s64 %rd6, %rd5, %rd2; shr.s64 %rd7, %rd6, 33;"
                            "cvt.u32.u64 %r6, %rd7; cvt.u32.u64 %r7, %rd6;"
                            "xor.b32 %r20, %r6, %r7;", ("IADD3",)),
    "wide order": Case("cvt.s64.s32 %rd3, %r3; add.s64 %rd4, %rd3, %rd1;"
                       "setp.lt.s64 %p2, %rd4, %rd2; setp.gt.u64 %p3, %rd4, %rd2;"
                       "setp.ge.s64 %p4, %rd1, %rd2; setp.le.u64 %p5, %rd2, %rd4;"
                       "xor.pred %p6, %p2, %p3; xor.pred %p7, %p4, %p5;"
                       "xor.pred %p1, %p6, %p7; mov.u32 %r20, 4;", ("ISETP",), guarded=True),
    "wide equality": Case("cvt.s64.s32 %rd3, %r3; add.s64 %rd4, %rd3, %rd1;"
                          "setp.eq.s64 %p2, %rd4, %rd2; setp.ne.s64 %p3, %rd1, %rd2;"
                          "and.pred %p1, %p2, %p3; mov.u32 %r20, 4;",
                          ("ISETP",), guarded=True),
    "wide shift": Case("shl.b64 %rd3, %rd1, 11; shr.u64 %rd4, %rd2, 13; shr.s64 %rd5, %rd1, 40;"
                       "xor.b64 %rd6, %rd3, %rd4; xor.b64 %rd7, %rd6, %rd5; shr.u64 %rd8, %rd7, 9;"
                       "cvt.u32.u64 %r6, %rd8; add.u32 %r20, %r6, %r3;", ("USHF",)),
    "extents": Case("mov.u32 %r6, %ntid.y; mov.u32 %r7, %nctaid.x; mov.u32 %r8, %nctaid.z;"
                    "mad.lo.u32 %r9, %r6, %r7, %r8; mad.lo.u32 %r10, %r4, %r9, %r3;"
                    "shl.b32 %r20, %r10, 2;", ("IMAD",)),
    "a short parameter": Case("cvt.u32.u16 %r6, %h1; cvt.s32.s16 %r7, %h1;"
                              "mad.lo.u32 %r8, %r3, %r6, %r7; shl.b32 %r20, %r8, 2;"),
    "scaled sums": Case("shl.b32 %r6, %r3, 3; add.u32 %r7, %r6, %r1; shr.u32 %r8, %r1, 31;"
                        "add.u32 %r9, %r1, %r8; shr.s32 %r10, %r9, 1; shr.s32 %r11, %r2, 31;"
                        "shr.u32 %r12, %r11, 25; add.u32 %r13, %r2, %r12; shr.s32 %r14, %r13, 7;"
                        "add.u32 %r15, %r7, %r10; add.u32 %r20, %r15, %r14;", ("LEA",)),
    "a branch": Case("mov.u32 %r20, 8; setp.lt.s32 %p2, %r1, 5; @%p2 bra DONE;"
                     "bar.sync 0; mad.lo.u32 %r20, %r3, 4, %r1; DONE:", ("BRA",)),
    "population": Case("popc.b32 %r6, %r1; shl.b32 %r7, %r6, 2; add.u32 %r20, %r7, %r3;",
                       ("POPC",)),
}  # fmt: skip


@lru_cache
def built(name: str, arch: str) -> tuple[str, str]:
    case = CASES[name]
    guard = "@%p1" if case.guarded else ""
    text = PTX.format(arch=arch, body=case.body, guard=guard)
    assembled = ptxas.assemble(text, arch)
    return text, tools.disassemble(assembled.cubin)


def under(predicates: ExecutionPredicates, block: int, guard: Value | None) -> Value:
    """The condition of an instruction, wherever ptxas put it: its guard, or a branch around it."""
    pool = predicates.pool
    held = predicates.by_block[block]
    return held if guard is None else pool.node("and", 1, held, guard)


def of_ptx(text: str) -> tuple[Value, Value]:
    module = parse_ptx(text)
    cfg = ptx_cfg.build(module.entries[0])
    found = accesses.find(cfg, {v.name: v for v in module.variables})
    (store,) = [a for a in found.accesses if a.row.space == "shared" and a.row.kind == "store"]
    return store.address, under(
        ExecutionPredicates(cfg, found.solved), store.block, store.condition
    )


def of_sass(text: str, listing: str) -> tuple[Value, Value]:
    (entry,) = parse_ptx(text).entries
    module = parse_sass(listing)
    cfg = sass_cfg.build(module.functions[0])
    pool = ValuePool()
    isa = SassIsa(cfg, pool, module.target, parameter_places(entry.parameters))
    (store,) = [i for i in module.functions[0].instructions if i.base == "STS"]
    access = memory_access(store)
    assert access is not None
    registers = follow_code(cfg, isa, pool, [OperandRequest(store, ((access.address, 32),))])
    (answer,) = registers.answers
    solved = solve(registers)
    guard = None if answer.guard is None else solved.resolve([answer.guard], answer.block)[0]
    held = under(ExecutionPredicates(cfg, solved), answer.block, guard)
    return solved.resolve(answer.values, answer.block)[0], held


def launches() -> tuple[dict[str, Any], dict[tuple[str, int], Any]]:
    """Special registers and parameters: 128 threads for each of many arguments."""
    rng = random.Random(0)
    rows = []
    for a in NUMBERS:
        for b in NUMBERS[::-1]:
            c, e = (rng.getrandbits(rng.choice((64, 33, 8))) for _ in "ce")
            if len(rows) % 3 == 0:
                e = (c + rng.randrange(-40, 80)) % (1 << 64)
            if len(rows) % 7 == 0:
                e = c
            rows.append((a, b, c, rng.getrandbits(16), e))
    lanes = np.tile(np.arange(128, dtype=np.uint64), len(rows))
    specials: dict[str, Any] = {
        "tid.x": lanes % 64, "tid.y": lanes // 64, "tid.z": 0, "ctaid.x": 5, "ctaid.y": 0,
        "ctaid.z": 0, "ntid.x": 64, "ntid.y": 2, "ntid.z": 1, "nctaid.x": 9, "nctaid.y": 3,
        "nctaid.z": 11, "laneid": lanes % 32, "cluster_ctarank": 0,
    }  # fmt: skip
    columns = [np.repeat(np.array(column, np.uint64), 128) for column in zip(*rows, strict=True)]
    return specials, {(name, 0): column for name, column in zip("abcde", columns, strict=True)}


def numbers(value: Value) -> np.ndarray:
    specials, params = launches()
    addresses = {leaf.payload: 0 for leaf in leaves(value, "address")}
    (found,) = evaluate([value], specials, params, {}, addresses)
    return np.broadcast_to(found, specials["tid.x"].shape)


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("name", CASES)
def test_sass_means_what_its_ptx_means(name: str, arch: str) -> None:
    text, listing = built(name, arch)
    address, condition = of_ptx(text)
    machine_address, machine_condition = of_sass(text, listing)
    assert (numbers(machine_condition) == numbers(condition)).all()
    bases = (numbers(machine_address) - numbers(address)) & np.uint64(0xFFFFFFFF)
    assert len(np.unique(bases)) == 1  # where the buffer lies


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.uses])
def test_the_instructions_meant_are_there(name: str) -> None:
    seen = {
        instruction.base
        for arch in ARCHS
        for instruction in parse_sass(built(name, arch)[1]).instructions
    }
    assert set(CASES[name].uses) <= seen


def test_every_table_of_three_inputs() -> None:
    pool = ValuePool()
    inputs = [pool.special(f"tid.{axis}") for axis in "xyz"]
    numbers = np.array([0b00001111, 0b00110011, 0b01010101], np.uint64)
    given = dict(zip(("tid.x", "tid.y", "tid.z"), numbers, strict=True))
    for table in range(256):
        (found,) = evaluate([logic(pool, table, inputs)], given, {})
        rows = [int(found[0]) >> (7 - row) & 1 for row in range(8)]
        assert rows == [table >> row & 1 for row in range(8)]


def test_a_constant_input_leaves_a_table_of_two() -> None:
    pool = ValuePool()
    x, y = pool.special("tid.x"), pool.special("tid.y")
    zero, ones = pool.const(0, 32), pool.const(-1, 32)
    assert logic(pool, 0xF8, [x, zero, y]) is x  # x | (0 & y)
    assert logic(pool, 0xC0, [x, y, zero]) is pool.node("and", 32, x, y)
    assert logic(pool, 0x3C, [x, ones, zero]) is pool.node("xor", 32, x, ones)


@pytest.mark.parametrize(
    ("target", "block", "grid", "parameters"),
    [
        ("sm_75", 0x0, 0xC, 0x160),
        ("sm_80", 0x0, 0xC, 0x160),
        ("sm_89", 0x0, 0xC, 0x160),
        ("sm_90a", 0x0, 0xC, 0x210),
        ("sm_100a", 0x360, 0x370, 0x380),
        ("sm_121", 0x360, 0x370, 0x380),
    ],
)
def test_where_constants_lie(target: str, block: int, grid: int, parameters: int) -> None:
    assert ConstantLayout.of(target) == ConstantLayout(block, grid, parameters)
