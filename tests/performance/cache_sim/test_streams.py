"""What blocks ask for, in order, against the trace of every thread of the same launch.

The interpreter (tests/oracle/interpreter.py) runs every block; from its trace the sectors that a
block touches by one group of accesses in one iteration are collected in plain Python, and the order
in which it comes to them.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.frontend.argument import Resources
from kanalyze.kernel.describe import describe
from kanalyze.kernel.sources import Sources
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.models.warps import MixedError
from kanalyze.performance.cache_sim import tiles
from kanalyze.performance.cache_sim.streams import Stream, coarser, stream
from kanalyze.performance.cache_sim.tiles import ATOMIC, READ, WRITE
from kanalyze.ptx.parse import parse_ptx
from kanalyze.symbolic.grid import UnknownValueError
from tests.oracle.interpreter import Trace, parse, run

pytest.importorskip("triton")

from kanalyze.frontend.compile import compile_kernel
from tests.counting.test_ptx_launch import CASES, compiled_of, launch_of

pytestmark = pytest.mark.slow("runs every thread of whole launches in the interpreter")

PLACE = 1 << 40
KINDS = {"ld": READ, "cp": READ, "st": WRITE, "atom": ATOMIC, "red": ATOMIC}
Sets = list[frozenset[int]]


# ---------------------------------------------------------------- the oracle


def events(trace: Trace, text: str, kernel: str) -> dict[Any, dict[int, dict[Any, set[int]]]]:
    """By block and line: the sectors of each iteration of the loops around the line, outer first.

    Python keeps the order in which a block comes to its lines and iterations.
    """
    program = parse(text, kernel)
    heads = {
        instruction.line: [
            program.instructions[head].line
            for head, members in sorted(program.loops.items(), key=lambda item: -len(item[1]))
            if position in members
        ]
        for position, instruction in enumerate(program.instructions)
    }
    found: dict[Any, dict[int, dict[Any, set[int]]]] = {}
    for record in trace.accesses:
        parts = record.opcode.split(".")
        if parts[0] not in KINDS or (parts[0] != "cp" and "global" not in parts):
            continue
        active = record.active
        if record.source_size is not None:
            active = active & (record.source_size > 0)
        around = np.stack(
            [np.zeros(len(active), np.int64), *(record.iterations[h] for h in heads[record.line])],
            axis=1,
        )
        of_line = found.setdefault(record.block, {}).setdefault(record.line, {})
        for at in np.unique(around[record.reached], axis=0):
            here = active & (around == at).all(axis=1)
            ends = [record.addresses[here] + byte for byte in range(record.bytes)]
            some = np.unique(np.concatenate(ends).astype(np.int64) // 32)
            of_line.setdefault(tuple(at.tolist()), set()).update(some.tolist())
    return found


def program_order(trace: Trace, block: Any) -> list[int]:
    """The lines of a block's global accesses in the order in which they are first executed."""
    lines: dict[int, None] = {}
    for record in trace.accesses:
        if record.block == block and record.active.any():
            lines.setdefault(record.line)
    return list(lines)


def sectors(given: Stream, tile: int) -> frozenset[int]:
    if tile < 0:
        return frozenset()
    pattern, base = given.tiles.pattern[tile], given.tiles.base[tile]
    some = slice(given.tiles.starts[pattern], given.tiles.starts[pattern + 1])
    return frozenset(
        4 * int(base + line) + bit
        for line, mask in zip(given.tiles.lines[some], given.tiles.masks[some], strict=True)
        for bit in range(4)
        if mask >> bit & 1
    )


def of_block(given: Stream, block: int) -> Iterator[tuple[int, frozenset[int]]]:
    """The columns in which a block asks for something."""
    for column, tile in enumerate(given.tiles_of[block].tolist()):
        if tile >= 0:
            yield column, sectors(given, tile)


# ---------------------------------------------------------------- launches


@dataclasses.dataclass
class Case:
    """A kernel in a launch, its stream, and what all its threads did."""

    launched: KernelLaunch
    staged: list[Any]
    text: str
    trace: Trace
    blocks: list[tuple[int, int, int]]

    def line(self, index: int) -> int:
        return self.launched.addresses.accesses[index].instruction.pos.line


def case_of(text: str, launch: Launch, values: list[Any], blocks: list[Any] | None = None) -> Case:
    module = parse_ptx(text)
    (function,) = (f for f in module.entries if f.body is not None and f.name == launch.kernel)
    found = describe(
        module, function, "k.ptx", {}, Resources(reason="not asked"), (), Sources(), False
    )
    launched = KernelLaunch(found.cfg, found.addresses, found.variables, launch)
    x, y, z = launch.grid
    every = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    trace = run(text, function.name, launch.grid, launch.block, values, blocks or every)
    return Case(launched, list(found.staged), text, trace, blocks or every)


def check(case: Case, given: Stream, in_order: bool = True) -> None:
    """Every block asks for the sectors of its trace, iteration by iteration, in program order."""
    function = case.launched.cfg.function.name
    expected = events(case.trace, case.text, function)
    lines_of = [tuple(case.line(i) for i in members) for members in given.accesses]
    asked = 0
    width, height, _ = case.launched.launch.grid
    for block in case.blocks:
        number = block[0] + width * (block[1] + height * block[2])
        found: dict[tuple[int, ...], Sets] = defaultdict(list)
        order = []
        for column, some in of_block(given, number):
            found[lines_of[column]].append(some)
            order.append(lines_of[column])
        seen = set()
        for lines in set(lines_of):
            seen |= set(lines)
            by_iteration: dict[Any, set[int]] = defaultdict(set)
            for line in lines:
                for at, some in expected.get(block, {}).get(line, {}).items():
                    by_iteration[at] |= some
            sets = [frozenset(by_iteration[at]) for at in sorted(by_iteration) if by_iteration[at]]
            assert found[lines] == sets, (block, lines)
            asked += len(sets)
        touched = {
            line for line, its in expected.get(block, {}).items() if any(its.values())
        }  # fmt: skip
        assert touched <= seen
        if in_order:
            ranks = {line: rank for rank, line in enumerate(program_order(case.trace, block))}
            first = [min(ranks[line] for line in lines if line in ranks)
                     for lines in dict.fromkeys(order)]  # fmt: skip
            assert first == sorted(first)
    assert asked > 0
    kinds = [{KINDS[case.launched.addresses.accesses[i].instruction.base] for i in members}
             for members in given.accesses]  # fmt: skip
    assert [{kind} for kind in given.kind.tolist()] == kinds
    assert (np.diff(given.burst) >= 0).all()
    assert given.burst[0] == 0


@cache
def bundled(number: int, shift: int) -> Case:
    compiled = compiled_of(CASES[number])
    launch, values = launch_of(compiled, shift)
    return case_of(compiled.ptx, launch, values)


NUMBERED = [
    pytest.param(number, id=f"{case[0]}-{case[3]}-{'-'.join(map(str, case[1]))}")
    for number, case in enumerate(CASES)
]


def refuse(*_: object) -> None:
    raise MixedError


@pytest.mark.parametrize("shift", [0, 4112], ids=["aligned", "moved by 4112 bytes"])
@pytest.mark.parametrize("number", NUMBERED)
def test_bundled_kernels_ask_for_what_their_threads_touch(number: int, shift: int) -> None:
    made = bundled(number, shift)
    check(made, stream(made.launched, made.staged))


@pytest.mark.parametrize("number", NUMBERED)
def test_lane_by_lane_is_the_same(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    made = bundled(number, 0)
    by_classes = stream(made.launched, made.staged)
    monkeypatch.setattr(tiles, "by_classes", refuse)
    by_lanes = stream(made.launched, made.staged)
    assert by_classes.accesses == by_lanes.accesses
    for block in range(len(by_classes.tiles_of)):
        assert list(of_block(by_classes, block)) == list(of_block(by_lanes, block))


@pytest.mark.parametrize("number", NUMBERED)
def test_the_first_blocks_are_those_of_all(number: int) -> None:
    made = bundled(number, 0)
    every = stream(made.launched, made.staged)
    for most in (1, 2, len(every.tiles_of), len(every.tiles_of) + 5):
        some = stream(made.launched, made.staged, most)
        assert some.blocks == every.blocks == len(every.tiles_of)
        assert len(some.tiles_of) == min(most, every.blocks)
        for block in range(len(some.tiles_of)):
            assert by_burst(some, block) == by_burst(every, block)


def by_burst(given: Stream, block: int) -> list[tuple[int, bool, set[int]]]:
    """What a block asks for at once: alike for columns that a few blocks do not tell apart."""
    found: dict[int, tuple[int, bool, set[int]]] = {}
    for column, some in of_block(given, block):
        kept = (int(given.kind[column]), bool(given.cached[column]))
        found.setdefault(int(given.burst[column]), (*kept, set()))[2].update(some)
    return list(found.values())


@pytest.mark.parametrize("factor", [1, 2, 3, 7, 100])
@pytest.mark.parametrize("number", NUMBERED)
def test_coarser_bursts_keep_all_that_is_asked_for(number: int, factor: int) -> None:
    """Only bursts of reads are put together, at most as many as said; nothing else changes."""
    made = bundled(number, 0)
    given = stream(made.launched, made.staged)
    found = coarser(given, factor)
    for name in ("tiles", "tiles_of", "kind", "cached", "blocks", "accesses"):
        assert getattr(found, name) is getattr(given, name)
    members = defaultdict(set)
    for before, after in zip(given.burst.tolist(), found.burst.tolist(), strict=True):
        members[after].add(before)
    assert sorted(members) == list(range(len(members)))
    assert [b for after in sorted(members) for b in sorted(members[after])] == list(
        range(given.burst[-1] + 1)
    )
    reads = {b: bool((given.kind[given.burst == b] == READ).all()) for b in set(given.burst)}
    for some in members.values():
        assert len(some) <= factor
        assert len(some) == 1 or all(reads[b] for b in some)
    assert (found.depth > 0) == (given.depth > 0)
    if factor == 1:
        assert found.burst.tolist() == given.burst.tolist()


@pytest.mark.parametrize("stages", [2, 3, 4])
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_pipelined_loop_asks_ahead(arch: str, stages: int) -> None:
    """``num_stages - 1`` steps ahead; each burst has the tiles of one step of K."""
    compiled = compile_kernel(
        "matmul_relu", arch=arch, settings={"M": 128, "N": 256, "K": 512, "BLOCK_K": 64},
        num_stages=stages,
    )  # fmt: skip
    launch, values = launch_of(compiled, 0)
    made = case_of(compiled.ptx, launch, values)
    given = stream(made.launched, made.staged)
    check(made, given)
    assert given.depth == stages - 1
    reads = given.kind == READ
    for block in range(len(given.tiles_of)):
        by_burst: dict[int, set[int]] = defaultdict(set)
        for column, some in of_block(given, block):
            if reads[column]:
                by_burst[int(given.burst[column])] |= some
        a = {sector for burst in by_burst.values() for sector in burst}
        assert len(by_burst) == 512 // 64
        assert sum(map(len, by_burst.values())) == len(a) == 512 * (128 + 128) * 2 // 32
        assert len({len(some) for some in by_burst.values()}) == 1


# ---------------------------------------------------------------- made by hand

HEAD = """.version 8.7
.target sm_90
.address_size 64
.visible .entry k(.param .u64 .ptr .global .align 1 x, .param .u32 n) .reqntid 64
{
.reg .pred %p<9>;
.reg .b32 %r<40>;
.reg .b64 %rd<40>;
.shared .align 16 .b8 tile[4096];
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x;
mov.u32 %r3, %ctaid.x;
mov.u32 %r30, %ctaid.y;
mov.u32 %r31, %ctaid.z;
mad.lo.s32 %r4, %r3, 64, %r2;
mul.wide.u32 %rd2, %r4, 16;
add.s64 %rd3, %rd1, %rd2;
"""
BODIES = {
    "a condition that parts threads": """setp.lt.s32 %p1, %r4, %r1;
and.b32 %r5, %r2, 4;
setp.eq.s32 %p2, %r5, 0;
@%p1 ld.global.b32 %r6, [%rd3];
@%p2 ld.global.v4.b32 {%r7, %r8, %r9, %r10}, [%rd3];
@%p1 st.global.b32 [%rd3+8], %r6;
ret;
}
""",
    "a way round": """setp.ge.s32 %p1, %r4, %r1;
@%p1 bra END;
ld.global.b32 %r6, [%rd3];
setp.lt.s32 %p2, %r2, 20;
@%p2 bra END;
st.global.b32 [%rd3+1024], %r6;
END:
ret;
}
""",
    "as many rounds as the block's number": """mov.u32 %r5, 0;
mov.u64 %rd4, %rd3;
setp.eq.s32 %p1, %r3, 0;
@%p1 bra END;
LOOP:
ld.global.b32 %r6, [%rd4];
add.s64 %rd4, %rd4, 2048;
add.s32 %r5, %r5, 1;
setp.lt.s32 %p2, %r5, %r3;
@%p2 bra LOOP;
END:
st.global.b32 [%rd3], %r5;
ret;
}
""",
    "a loop in a loop": """mov.u32 %r5, 0;
OUTER:
mov.u32 %r6, 0;
mul.lo.s32 %r8, %r5, 4096;
INNER:
shl.b32 %r9, %r6, 8;
add.s32 %r10, %r8, %r9;
cvt.s64.s32 %rd5, %r10;
add.s64 %rd6, %rd3, %rd5;
ld.global.b32 %r7, [%rd6];
add.s32 %r6, %r6, 1;
setp.lt.s32 %p1, %r6, 3;
@%p1 bra INNER;
st.global.b32 [%rd6+4], %r7;
add.s32 %r5, %r5, 1;
setp.le.s32 %p2, %r5, %r3;
@%p2 bra OUTER;
ret;
}
""",
    "three axes": """mad.lo.s32 %r5, %r30, 37, %r4;
mad.lo.s32 %r5, %r31, 211, %r5;
mul.wide.u32 %rd4, %r5, 4;
add.s64 %rd5, %rd1, %rd4;
ld.global.b32 %r6, [%rd5];
st.global.b8 [%rd5+3], %r6;
ret;
}
""",
    "atomics": """ld.global.b32 %r6, [%rd3];
atom.global.add.u32 %r7, [%rd3], %r6;
red.global.add.u32 [%rd3+64], 1;
st.global.b32 [%rd3+4], %r7;
ret;
}
""",
    "blocks and threads mixed": """rem.u32 %r5, %r4, 5;
div.u32 %r6, %r4, 7;
shl.b32 %r7, %r5, 8;
shl.b32 %r8, %r6, 2;
add.s32 %r9, %r7, %r8;
xor.b32 %r9, %r9, %r3;
and.b32 %r9, %r9, 16380;
cvt.u64.u32 %rd4, %r9;
add.s64 %rd5, %rd1, %rd4;
ld.global.b32 %r10, [%rd5];
ret;
}
""",
    "copies of fewer bytes": """mov.u32 %r5, tile;
shl.b32 %r6, %r2, 4;
add.s32 %r7, %r5, %r6;
setp.lt.s32 %p1, %r4, %r1;
selp.b32 %r10, 16, 0, %p1;
cp.async.cg.shared.global [%r7], [%rd3], 16, %r10;
cp.async.ca.shared.global [%r7], [%rd3+8192], 8;
cp.async.commit_group;
cp.async.wait_group 0;
bar.sync 0;
@%p1 ld.global.nc.v2.b32 {%r11, %r12}, [%rd3+16];
ret;
}
""",
}
TO_BE_ALIGNED = {"a condition that parts threads": 16, "copies of fewer bytes": 16, "three axes": 4}


@pytest.mark.parametrize("n", [0, 1, 37, 64, 150, 4000])
@pytest.mark.parametrize("shift", [0, 48, 100])
@pytest.mark.parametrize("name", BODIES)
def test_kernels_made_by_hand(name: str, shift: int, n: int) -> None:
    shift -= shift % TO_BE_ALIGNED.get(name, 4)
    grid = (4, 3, 2) if name == "three axes" else (5, 1, 1)
    text = HEAD + BODIES[name]
    place = PLACE + shift
    params = (LaunchParam("x", "*i8", place), LaunchParam("n", "i32", n))
    launch = Launch("k", grid, (64, 1, 1), params)
    values = [(place, np.zeros(1 << 16, np.uint8)), n]
    made = case_of(text, launch, values)
    given = stream(made.launched, made.staged)
    if name == "a way round" and n == 0:
        assert [sectors(given, tile) for tile in given.tiles_of.reshape(-1)] == [frozenset()] * 5
        return
    check(made, given, in_order=name != "a way round")
    if name == "atomics":
        assert set(given.kind.tolist()) == {READ, WRITE, ATOMIC}
    if name == "copies of fewer bytes":
        of_kind = {made.text.splitlines()[made.line(a[0]) - 1].split()[0]: bool(c)
                   for a, c in zip(given.accesses, given.cached, strict=True)}  # fmt: skip
        assert of_kind["cp.async.ca.shared.global"]
        assert not of_kind["cp.async.cg.shared.global"]


def test_a_barrier_and_a_write_begin_a_burst() -> None:
    text = HEAD + (
        "ld.global.b32 %r6, [%rd3];\nld.global.b32 %r7, [%rd3+4096];\nbar.sync 0;\n"
        "ld.global.b32 %r8, [%rd3+8192];\nst.global.b32 [%rd3], %r8;\n"
        "ld.global.b32 %r9, [%rd3+12288];\nret;\n}\n"
    )
    params = (LaunchParam("x", "*i8", PLACE), LaunchParam("n", "i32", 1))
    launch = Launch("k", (1, 1, 1), (64, 1, 1), params)
    made = case_of(text, launch, [(PLACE, np.zeros(1 << 15, np.uint8)), 1])
    given = stream(made.launched, made.staged)
    of_line = {made.line(a): int(b) for accesses, b in zip(given.accesses, given.burst, strict=True)
               for a in accesses}  # fmt: skip
    first, second, third, store, fourth = (of_line[line] for line in sorted(of_line))
    assert first == second < third == fourth < store  # of one barrier, the reads come first


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("ld.global.b32 %r6, [%rd3];\nmul.wide.u32 %rd4, %r6, 4;\nadd.s64 %rd5, %rd1, %rd4;\n"
         "ld.global.b32 %r7, [%rd5];\nret;\n}\n", "depends on data loaded by ld.global.b32"),
        ("ld.global.b32 %r6, [%rd3];\nsetp.eq.s32 %p1, %r6, 0;\n"
         "@%p1 st.global.b32 [%rd3], %r6;\nret;\n}\n", "depends on data"),
    ],
    ids=["address", "condition"],
)  # fmt: skip
def test_what_depends_on_data_is_unknown(body: str, reason: str) -> None:
    params = (LaunchParam("x", "*i8", PLACE), LaunchParam("n", "i32", 1))
    launch = Launch("k", (1, 1, 1), (64, 1, 1), params)
    made = case_of(HEAD + body, launch, [(PLACE, np.zeros(1 << 15, np.uint8)), 1])
    with pytest.raises(UnknownValueError, match=reason):
        stream(made.launched, made.staged)


# ---------------------------------------------------------------- recorded launches

RECORDS = Path(__file__).parents[3] / "samples"
ON_DATA = {"gather_rows"}
ORACLE_LACKS = {"split_k_1024": "atomics of vectors"}


@cache
def recorded() -> dict[str, dict[str, Any]]:
    with gzip.open(RECORDS / "records" / "unfitted_h200.json.gz", "rt") as file:
        found = {record["case"]: record for record in json.load(file)}
    for path in (RECORDS / "h200_records").glob("*.json"):
        record = json.loads(path.read_text("utf-8"))
        found[path.stem] = record | {"ptx": path.with_suffix(".ptx").read_text("utf-8")}
    return found


@pytest.mark.parametrize("name", sorted(recorded()))
def test_blocks_of_recorded_launches(name: str) -> None:
    """The first block, the last and one between, of the full launch."""
    if name in ORACLE_LACKS:
        pytest.skip(f"the interpreter has no {ORACLE_LACKS[name]}")
    record = recorded()[name]
    launch = Launch.from_record(record)
    values = [
        (p["address"], np.zeros(p["bytes"], np.uint8)) if "address" in p else p["value"]
        for p in record["params"]
    ]
    x, y, z = launch.grid
    blocks = list(dict.fromkeys([(0, 0, 0), (x // 2, y // 2, z // 2), (x - 1, y - 1, z - 1)]))
    made = case_of(record["ptx"], launch, values, blocks)
    if name in ON_DATA:
        with pytest.raises(UnknownValueError):
            stream(made.launched, made.staged)
        return
    check(made, stream(made.launched, made.staged), in_order=False)
