"""The SASS reader: against a count of lines, against cuobjdump, and against hand-made text."""

from __future__ import annotations

import re
import subprocess
import tempfile
from functools import lru_cache
from pathlib import Path

import pytest

from kanalyze.frontend.compile import Compiled, compile_kernel
from kanalyze.ptx import cfg as ptx_cfg
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass.cfg import build
from kanalyze.sass.crosscheck import compare
from kanalyze.sass.ir import (
    Barrier,
    Constant,
    Guard,
    Keyword,
    Operand,
    Predicate,
    Register,
    SassAddress,
    SassImmediate,
    SassInstruction,
    SassLabel,
    Special,
)
from kanalyze.sass.memory import memory_access
from kanalyze.sass.parse import parse_sass
from kanalyze.sass.registers import definitions, uses
from kanalyze.sass.table import TABLE, branch_targets
from kanalyze.symbolic.accesses import find
from kanalyze.toolchain import tools

pytestmark = pytest.mark.slow("compiles every bundled kernel")

KERNELS = ("gelu", "softmax", "row_sum", "matmul_relu", "flash_attention")
ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
COMBINATIONS = [(kernel, arch) for kernel in KERNELS for arch in ARCHS]


@lru_cache
def compiled(kernel: str, arch: str) -> Compiled:
    return compile_kernel(kernel, arch=arch)


@lru_cache
def listing(kernel: str, arch: str) -> str:
    return tools.disassemble(compiled(kernel, arch).cubin)


def run_tool(tool: str, cubin: bytes, *flags: str) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "input.cubin")
        path.write_bytes(cubin)
        done = subprocess.run(
            [tools.find(tool), *flags, path], capture_output=True, text=True, check=False
        )
    return done.stdout


@pytest.mark.parametrize(("kernel", "arch"), COMBINATIONS)
def test_every_line_of_code_is_read(kernel: str, arch: str) -> None:
    text = listing(kernel, arch)
    lines = [line for line in text.splitlines() if line.startswith("        /*")]
    code = [line.split("*/", 1)[1].strip() for line in lines]
    module = parse_sass(text)
    assert module.diagnostics == ()
    assert (module.target or "").startswith(arch)
    assert len(module.functions) == 1
    found = module.functions[0].instructions
    assert len(found) == len(code)
    for instruction, line in zip(found, code, strict=True):
        words = line.rstrip("; ").split()
        if words[0].startswith("@"):
            assert instruction.guard is not None
            assert words.pop(0) == f"@{'!' * instruction.guard.negated}{instruction.guard.name}"
        else:
            assert instruction.guard is None
        assert instruction.opcode == words[0]
        assert instruction.base in TABLE


@pytest.mark.parametrize(("kernel", "arch"), COMBINATIONS)
def test_cuobjdump_says_the_same(kernel: str, arch: str) -> None:
    one = parse_sass(listing(kernel, arch)).functions[0]
    module = parse_sass(run_tool("cuobjdump", compiled(kernel, arch).cubin, "-sass"))
    other = module.functions[0]
    assert module.diagnostics == ()
    assert one.name == other.name
    said = parse_sass(listing(kernel, arch)).target
    assert (module.target or "").rstrip("af") == (said or "").rstrip("af")  # older ones drop the a

    def plain(instruction: SassInstruction) -> tuple[object, ...]:
        places: list[Operand | int | float] = []
        for operand in instruction.operands:
            if isinstance(operand, SassLabel):
                places.append(one.labels[operand.name])
            else:
                places.append(operand.value if isinstance(operand, SassImmediate) else operand)
        return instruction.address, instruction.opcode, instruction.guard, str(places)

    assert [plain(i) for i in one.instructions] == [plain(i) for i in other.instructions]
    assert list(build(one).graph.edges) == list(build(other).graph.edges)


@pytest.mark.parametrize(("kernel", "arch"), COMBINATIONS)
def test_graph(kernel: str, arch: str) -> None:
    function = parse_sass(listing(kernel, arch)).functions[0]
    cfg = build(function)
    assert cfg.unresolved == ()
    assert not cfg.irreducible
    assert [i for block in cfg.blocks for i in block.instructions] == list(function.instructions)
    assert all(cfg.block_at(block.first) is block for block in cfg.blocks)
    left = [b for b in cfg.blocks if b.index not in cfg.order]
    assert {i.base for b in left for i in b.instructions} <= {"NOP", "BRA"}
    backward = {
        target
        for i in function.instructions
        for name in branch_targets(i)
        if isinstance(name, str) and (target := function.labels[name]) <= i.address
    }
    starts = {function.instructions[cfg.blocks[loop.header].first].address for loop in cfg.loops}
    assert starts <= backward


@pytest.mark.parametrize(("kernel", "arch"), COMBINATIONS)
def test_ptx_and_sass_agree_or_it_is_known_why(kernel: str, arch: str) -> None:
    entry = parse_ptx(compiled(kernel, arch).ptx).entries[0]
    text = listing(kernel, arch)
    places = find(ptx_cfg.build(entry), {}).places
    rows = compare(entry, parse_sass(text).functions[0], places)
    assert rows
    assert [row for row in rows if not row.explained] == []
    counted = sum(row.sass + row.dummies for row in rows if row.category != "tensor")
    memory = re.findall(r"\b(?:LDG|STG|LDGSTS|LDS|STS|LDSM|STSM|LDL|STL|ATOMS)(?:\.\S+)? ", text)
    assert counted == len(memory)


LISTING = """
	.target	sm_90a
	.section	.text.one,"ax",@progbits
one:
.text.one:
	//## File "/x/lib.py", line 5 inlined at "/x/mid.py", line 7
	//## File "/x/mid.py", line 7 inlined at "/x/user.py", line 9
	//## File "/x/user.py", line 9
        /*0000*/              @!P6 LDG.E.128.CONSTANT R4, desc[UR4][R10.64+-0x10] ;
        /*0010*/                   ??? what is this ;
	//## File "/x/user.py", line 11
        /*0020*/               @P0 BRA `(.L_x_1) ;
        /*0030*/                   FADD R1, |R2|.reuse, -c[0x0][0x210] &wr=0x0 ?trans1;
.L_x_1:
        /*0040*/                   EXIT ;
.L_x_9:
"""


def test_listing_by_hand() -> None:
    module = parse_sass(LISTING)
    (function,) = module.functions
    load, branch, add, leave = function.instructions
    assert (module.target, function.name) == ("sm_90a", "one")
    assert (load.address, load.guard, load.pos.line) == (0, Guard("P6", True), 9)
    assert load.parts == ("LDG", "E", "128", "CONSTANT")
    assert load.operands[1] == SassAddress(
        (Register("R", 10, ("64",)),), -16, descriptor=Register("UR", 4)
    )
    assert load.source is not None
    inlined = load.source.inlined_at
    assert inlined is not None
    assert (load.source.line, inlined.line, load.source.outermost.line) == (5, 7, 9)
    assert load.source.outermost.file == "/x/user.py"
    assert branch.source == leave.source
    assert branch.source is not None
    assert (branch.source.line, branch.source.inlined_at) == (11, None)
    assert add.operands[1] == Register("R", 2, ("reuse",), absolute=True)
    assert add.operands[2] == Constant(0, 0x210, negated=True)
    assert function.labels == {"one": 0, ".text.one": 0, ".L_x_1": 0x40, ".L_x_9": 0x50}
    assert [o.pos.line for o in function.opaque] == [d.pos.line for d in module.diagnostics] == [10]
    access = memory_access(load)
    assert access is not None
    assert (access.space, access.kind, access.bytes_per_thread) == ("global", "load", 16)
    assert access.hints == (".CONSTANT",)
    assert definitions(load) == ("R4", "R5", "R6", "R7")
    assert set(uses(load)) == {"P6", "UR4", "UR5", "R10", "R11"}


@pytest.mark.parametrize(
    ("text", "operand"),
    [
        ("-R5.reuse", Register("R", 5, ("reuse",), negated=True)),
        ("~R5", Register("R", 5, inverted=True)),
        ("R5.H0_H0", Register("R", 5, ("H0_H0",))),
        ("URZ", Register("UR", None)),
        ("!UPT", Predicate("UP", None, negated=True)),
        ("0x1f", SassImmediate("0x1f", 31)),
        ("-126", SassImmediate("-126", -126)),
        ("8.5e+37", SassImmediate("8.5e+37", 8.5e37)),
        ("-INF", SassImmediate("-INF", float("-inf"))),
        ("c[0x3][R4+0x8]", Constant(3, 8, Register("R", 4))),
        ("cx[UR4][0x10]", Constant(Register("UR", 4), 16)),
        ("[R2+UR4+0x10]", SassAddress((Register("R", 2), Register("UR", 4)), 16)),
        ("[UR4+-0x8]", SassAddress((Register("UR", 4),), -8)),
        ("[RZ]", SassAddress((Register("R", None),))),
        ("gdesc[UR8].tnspB", SassAddress((Register("UR", 8),), 0, "gdesc", suffixes=("tnspB",))),
        ("tmem[UR4+0x20]", SassAddress((Register("UR", 4),), 32, "tmem")),
        ("SR_TID.X", Special("SR_TID.X")),
        ("gsb0", Barrier("gsb0")),
        ("2D", Keyword("2D")),
    ],
)
def test_operands(text: str, operand: Operand) -> None:
    (function,) = parse_sass(f"Function : f\n        /*0000*/  MOV R0, {text} ;\n").functions
    assert function.instructions[0].operands[1] == operand


def test_indirect_branch() -> None:
    lines = """Function : f
        /*0000*/  BRX R2 -0x10 (*"BRANCH_TARGETS .L_1,.L_2"*) ;
.L_1:
        /*0010*/  EXIT ;
.L_2:
        /*0020*/  RET.REL.NODEC R4 `(f) ;
"""
    (function,) = parse_sass(lines).functions
    assert branch_targets(function.instructions[0]) == (".L_1", ".L_2")
    cfg = build(function)
    assert set(cfg.graph.successors(0)) == {1, 2}
    assert set(cfg.graph.successors(2)) == {cfg.exit}


def test_call_and_return() -> None:
    lines = """Function : f
        /*0000*/  @P0 CALL.REL.NOINC `(.L_1) ;
        /*0010*/  NOP ;
        /*0020*/  CALL.REL.NOINC `(.L_1) ;
        /*0030*/  EXIT ;
.L_1:
        /*0040*/  RET.REL.NODEC R4 `(f) ;
"""
    cfg = build(parse_sass(lines).functions[0])
    assert set(cfg.graph.edges) == {(0, 1), (0, 3), (1, 3), (2, cfg.exit), (3, 1), (3, 2)}


@pytest.mark.parametrize("text", ["", "\x00\xff", "/*0000*/", "   /*0000*/ ;", "x" * 10000])
def test_odd_text_raises_nothing(text: str) -> None:
    module = parse_sass(text)
    assert list(module.instructions) == []
    assert len(module.diagnostics) == text.count(";")


def test_damaged_listings_raise_nothing() -> None:
    text = listing("row_sum", "sm_90")
    lines = text.splitlines()
    for place in range(0, len(lines), 7):
        broken = list(lines)
        broken[place] = broken[place][: len(broken[place]) // 2]
        for function in parse_sass("\n".join(broken)).functions:
            for instruction in build(function).function.instructions:
                definitions(instruction)
                uses(instruction)
                memory_access(instruction)
