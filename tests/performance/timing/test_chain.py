"""How long a warp takes by itself, by hand; and how often stores to a sector reach L2."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanalyze import parse_ptx, read_records
from kanalyze.performance.cache_sim.stores import rewrites
from kanalyze.performance.timing.chain import DependencyChain, chain
from kanalyze.sass import cfg
from kanalyze.sass.parse import parse_sass
from kanalyze.toolchain import tools

RECORDS = Path(__file__).parents[3] / "samples" / "h200" / "records.tar.xz"
HEAD = '        .section .text.k,"ax",@progbits\n.text.k:\n'
LDG = "LDG.E R{}, desc[UR4][R2.64+{:#x}]"


def graph(*lines: str) -> cfg.SassCfg:
    """The control-flow graph of a kernel of some instructions; a line with a colon is a label."""
    text, address = HEAD, 0
    for line in (*lines, "EXIT"):
        if line.endswith(":"):
            text += f"{line}\n"
            continue
        text += f"        /*{address:04x}*/                   {line} ;\n"
        address += 16
    (function,) = parse_sass(text).functions
    return cfg.build(function)


def walked(*lines: str, runs: dict[int, int] | None = None) -> DependencyChain:
    made = graph(*lines)
    return chain(made, (runs or {block.index: 1 for block in made.blocks}).items(), 1.0)


ADD = "FADD R{0}, R{0}, R{1}"


def test_instructions_that_depend_wait_for_each_other() -> None:
    apart = walked(*(ADD.format(n, 40) for n in range(10, 20)))
    behind = walked(*(ADD.format(10, 40) for _ in range(10)))
    assert apart.cycles == 11  # one a cycle, and the exit
    assert behind.cycles == 9 * 4 + 2
    assert apart.waits == behind.waits == 0


def test_loads_in_a_row_are_waited_for_once() -> None:
    loads = [LDG.format(n, 16 * n) for n in range(10, 14)]
    adds = [ADD.format(20, n) for n in range(10, 14)]
    together = walked(*loads, *adds)
    assert together.waits == pytest.approx(1.0)
    one_by_one = [line for pair in zip(loads, adds, strict=True) for line in pair]
    assert walked(*one_by_one).waits == pytest.approx(4.0)
    addresses = [f"LDG.E.64 R2, desc[UR4][R2.64+{n:#x}]" for n in range(4)]
    assert walked(*addresses, ADD.format(20, 2)).waits == pytest.approx(4.0)


def test_a_load_that_hits_waits_behind_one_that_missed() -> None:
    """L1 answers in order: a spilled register is there only when the load before it is."""
    spilled = ["LDL R7, [R1+0x10]", ADD.format(20, 7)]
    assert walked(*spilled).waits == 0
    assert walked(*spilled).local_waits == pytest.approx(1.0)
    assert walked(LDG.format(6, 0), *spilled).waits == pytest.approx(1.0, abs=0.01)


def test_an_atomic_with_acquire_and_release_waits_twice() -> None:
    atomic = ["ATOMG.E.ADD.F32.FTZ.RN.STRONG.GPU PT, RZ, desc[UR4][R2.64], R6"] * 3
    fenced = [line for one in atomic for line in ("MEMBAR.ALL.GPU", "ERRBAR", one, "CCTL.IVALL")]
    assert walked(*atomic).waits == 0  # nobody reads what they return
    assert walked(*fenced).waits == pytest.approx(6.0)
    assert walked(*(line.replace(".GPU", ".CTA") for line in fenced)).waits == pytest.approx(3.0)


def test_shared_memory_does_not_wait_for_global_memory() -> None:
    assert walked(LDG.format(6, 0), "LDS R7, [R8]", ADD.format(20, 7)).waits == 0


def test_blocks_count_as_often_as_they_are_executed() -> None:
    lines = ("MOV R9, RZ", ".L_x_0:", ADD.format(10, 40), ADD.format(10, 40),
             "@P0 BRA `(.L_x_0)", "MOV R9, RZ")  # fmt: skip
    made = graph(*lines)
    blocks = [block.index for block in made.blocks]
    once = walked(*lines, runs=dict.fromkeys(blocks, 1)).cycles
    often = walked(*lines, runs={**dict.fromkeys(blocks, 1), 1: 11}).cycles
    assert often - once == 10 * (4 + 1 + 6)  # an add, one that waits for it, and a branch


# ---------------------------------------------------------------- stores

STG = "STG.E desc[UR4][R2.64{:+#x}], R{}"
STG16 = "STG.E.U16 desc[UR4][R2.64{:+#x}], R{}"


def written(*lines: str) -> float:
    made = graph(*lines)
    return rewrites(made, ((block.index, 1) for block in made.blocks))


def test_stores_to_a_sector_are_sent_on_together() -> None:
    assert written(*(STG.format(4 * n, n) for n in range(4))) == 1.0
    assert written(*(STG.format(32 * n, n) for n in range(4))) == 1.0  # four sectors


def test_a_word_is_not_written_twice_together() -> None:
    assert written(*(STG16.format(2 * n, n) for n in range(8))) == 5.0  # 0 | 2 4 | 6 8 | 10 12 | 14


def test_stores_far_apart_are_sent_on_alone() -> None:
    between = [ADD.format(10, 40)] * 20
    assert written(STG.format(0, 5), *between, STG.format(4, 6), STG.format(8, 7)) == 2.0


def test_another_address_is_another_sector() -> None:
    assert written(STG.format(0, 5), "MOV R2, R6", STG.format(4, 6)) == 1.0


def test_writes_that_reach_l2_are_those_that_were_counted() -> None:
    """Kernels whose stores are split to elements: 4 of 4 bytes a lane, 8 of 2 bytes."""
    names = ("gelu-fp32-n33554431", "gelu-fp16-n33554431", "gelu-bf16-n33554431")
    found, _ = read_records(str(RECORDS))
    records = [record for record in found if record.case in names]
    assert len(records) == len(names)
    for record in records:
        assert isinstance(record.cubin, bytes)
        (function,) = parse_sass(tools.disassemble(record.cubin)).functions
        made = cfg.build(function)
        blocks = 32768 * 4
        ratio = rewrites(made, ((block.index, blocks) for block in made.blocks))
        counters = record.data["counters"]
        sectors = 33554432 * (4 if "fp32" in record.case else 2) / 32
        measured = counters["l1tex__m_l1tex2xbar_write_sectors.sum"] / sectors
        assert ratio == pytest.approx(measured, rel=0.08)
        assert parse_ptx(record.module.text).entries
