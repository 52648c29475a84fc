"""``--dump``: what it says of two kernels, against runs of them by the interpreter."""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kanalyze.cli.app import cli
from kanalyze.symbolic.arithmetic import operate
from tests.oracle.expression import Expression
from tests.oracle.interpreter import Trace, _Block, natural_loops, parse, run

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"
CLIPPED = (
    HEAD
    + """.visible .entry clipped(.param .u64 x, .param .u32 n) .reqntid 64
{
.reg .pred %p<3>;
.reg .b32 %r<8>;
.reg .b64 %rd<5>;
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [n];
mov.u32 %r2, %ctaid.x;
mov.u32 %r3, %tid.x;
mad.lo.s32 %r4, %r2, 64, %r3;
setp.lt.s32 %p1, %r4, %r1;
@!%p1 bra $END;
$INSIDE:
mul.wide.s32 %rd2, %r4, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r4;
and.b32 %r5, %r3, 3;
setp.eq.s32 %p2, %r5, 0;
@!%p2 bra $OTHERS;
$FOURTH:
st.global.u32 [%rd3+4096], %r4;
bra.uni $MEET;
$OTHERS:
st.global.u32 [%rd3+8192], %r4;
$MEET:
@%p2 st.global.u32 [%rd3+12288], %r4;
$END:
ret;
}
"""
)
NESTED = (
    HEAD
    + """.visible .entry nested(.param .u64 x, .param .u32 n) .reqntid 64
{
.reg .pred %p<3>;
.reg .b32 %r<12>;
.reg .b64 %rd<5>;
ld.param.u64 %rd1, [x];
ld.param.u32 %r1, [n];
mov.u32 %r2, %tid.x;
mov.u32 %r3, 0;
mov.u32 %r4, 0;
$OUTER:
mov.u32 %r5, 0;
$INNER:
shl.b32 %r6, %r5, 6;
add.s32 %r7, %r6, %r2;
mad.lo.s32 %r8, %r3, 333, %r7;
mul.wide.s32 %rd2, %r8, 4;
add.s64 %rd3, %rd1, %rd2;
st.global.u32 [%rd3], %r4;
add.s32 %r5, %r5, 2;
setp.lt.s32 %p1, %r5, 9;
@%p1 bra $INNER;
add.s32 %r4, %r4, 7;
add.s32 %r3, %r3, 1;
setp.lt.s32 %p2, %r3, %r1;
@%p2 bra $OUTER;
ret;
}
"""
)
PLACE = 1 << 20


@dataclass(frozen=True)
class Case:
    name: str
    ptx: str
    grid: int
    n: int


CASES = {"clipped": Case("clipped", CLIPPED, 5, 283), "nested": Case("nested", NESTED, 2, 4)}
THREADS = 64


def invoke(folder: Path, case: Case, *arguments: str) -> Result:
    (folder / "k.ptx").write_text(case.ptx)
    params = [{"name": "x", "type": "*i32", "address": PLACE},
              {"name": "n", "type": "i32", "value": case.n}]  # fmt: skip
    record = {"kernel": case.name, "grid": [case.grid, 1, 1], "block": [THREADS, 1, 1],
              "params": params}  # fmt: skip
    (folder / "k.json").write_text(json.dumps(record))
    result = CliRunner().invoke(cli, [*arguments, "--launch", str(folder / "k.json")])
    assert result.exit_code == 0, result.output
    return result


def dumped(folder: Path, case: Case, form: str) -> list[str]:
    """The lines below the kernel's name; ``traffic`` says the same as ``ptx``."""
    text = invoke(folder, case, "ptx", "--dump", form).output
    assert invoke(folder, case, "traffic", "--dump", form).output == text
    head, *lines = text.splitlines()
    assert head == f"kernel {case.name}"
    return lines


def traced(case: Case) -> Trace:
    blocks = [(x, 0, 0) for x in range(case.grid)]
    array = (PLACE, np.zeros(1 << 14, np.uint8))
    return run(case.ptx, case.name, [case.grid], [THREADS], [array, case.n], blocks)


# ---------------------------------------------------------------- values


class Values:
    """Reads the values of ``--dump ssa`` and gives their numbers for all threads of a block."""

    def __init__(self, lines: list[str], case: Case, block: int, iterations: dict[str, int]):
        self.known: dict[str, tuple[Any, int]] = {}
        self.text = {a[0]: a[1] for line in lines if (a := line.strip().split(" = ", 1))[1:]}
        self.leaves: dict[str, Any] = {
            "%tid.x": np.arange(THREADS, dtype=np.uint64),
            "%ctaid.x": np.uint64(block),
            "[x]": np.uint64(PLACE),
            "[n]": np.uint64(case.n),
        }
        self.leaves |= {f"iter({name})": np.uint64(i) for name, i in iterations.items()}

    def operand(self, text: str) -> tuple[Any, int]:
        """The numbers of a value, and its width in bits."""
        if text not in self.known:
            self.known[text] = self._operand(text)
        return self.known[text]

    def _operand(self, text: str) -> tuple[Any, int]:
        name, _, width = text.rpartition(".b")
        value: Any
        if name.isdigit():
            value = np.uint64(name)
        elif name in self.leaves:
            value = self.leaves[name]
        elif name.startswith("phi("):
            register, header = name[4:-1].split("@")
            value = self.operand(self.text[f"{register} at {header}"])[0]
        else:
            op, *operands = re.split(r" |, ", self.text[text])
            given = [self.operand(operand) for operand in operands]
            value = operate(op, int(width), given[0][1], [np.atleast_1d(v) for v, _ in given])
        return np.broadcast_to(np.atleast_1d(value), (THREADS,)).astype(np.uint64), int(width)


def stated(lines: list[str]) -> dict[int, dict[str, str]]:
    """Line of the PTX to the registers that it writes and what they hold."""
    by_line: dict[int, dict[str, str]] = defaultdict(dict)
    number = 0
    for line in lines:
        statement = re.match(r"  (\d+): ", line)
        if statement is not None:
            number = int(statement[1])
        elif (written := re.fullmatch(r"    (%\w+) = (.*)", line)) is not None:
            by_line[number][written[1]] = written[2]
    return by_line


@pytest.mark.parametrize("name", CASES)
def test_registers_hold_what_a_run_leaves_in_them(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    lines = dumped(tmp_path, case, "ssa")
    by_line = stated(lines)
    compared = 0
    times: Counter[tuple[int, int]] = Counter()
    text = ["", *case.ptx.splitlines()]
    inner = range(0)
    if name == "nested":
        inner = range(text.index("$INNER:"), text.index("@%p1 bra $INNER;") + 1)
    values: dict[tuple[int, int, int], Values] = {}
    write: Callable[..., None] = _Block.write

    def check(self: Any, operand: Any, value: Any, *rest: Any) -> None:
        nonlocal compared
        write(self, operand, value, *rest)
        line, block = self.now.line, self.index[0]
        for register, held in by_line.get(line, {}).items():
            if register != operand.name:
                continue
            before = times[block, line]
            outer = before // 5 if line in inner else before  # the inner loop has 5 iterations
            key = (block, outer, before % 5)
            if key not in values:
                iterations = {"$OUTER": outer, "$INNER": before % 5}
                values[key] = Values(lines, case, block, iterations)
            expected, _ = values[key].operand(held)
            got = self.registers[operand.name]
            assert (got[self.active] == expected[self.active]).all(), (line, register, held)
            compared += 1
        times[block, line] += 1

    monkeypatch.setattr(_Block, "write", check)
    traced(case)
    assert compared >= 40
    data = {"%r4"} if name == "nested" else set()  # only stored: neither an address nor a branch
    every = set(re.findall(r"%(?:r|rd|p)\d+", case.ptx))
    assert set().union(*by_line.values()) == every - data


# ---------------------------------------------------------------- loops and predicates


def label_above(case: Case, line: int) -> str:
    above = [text[:-1] for text in case.ptx.splitlines()[:line] if text.startswith("$")]
    return above[-1] if above else "entry"


def test_loops_are_those_of_the_textbook_and_run_as_often(tmp_path: Path) -> None:
    case = CASES["nested"]
    lines = dumped(tmp_path, case, "loops")
    text = "\n".join(lines)
    program = parse(case.ptx, case.name)
    trace = traced(case)
    shown = re.findall(
        r"^( *)loop (\S+)\n +iteration: (\w+)\n +body: (.*)\n.*\n +trip count: (.*) \(tests after",
        text, re.MULTILINE,
    )  # fmt: skip
    bodies = {header: set(body.split()) for _, header, _, body, _ in shown}
    assert [(len(margin), header) for margin, header, *_ in shown] == [(0, "$OUTER"), (2, "$INNER")]
    assert bodies["$INNER"] < bodies["$OUTER"]
    for header, statements in natural_loops(program.instructions).items():
        label = label_above(case, program.instructions[header].line)
        inside = {label_above(case, program.instructions[i].line) for i in statements}
        assert inside <= bodies[label]
    counts = {header: int(Expression({"n": case.n})(trip)) for _, header, _, _, trip in shown}
    passes = {label_above(case, line): loop for (_, line), loop in trace.loops.items()}
    for label, loop in passes.items():
        assert (loop.started == loop.entered * counts[label]).all()
    assert counts == {"$OUTER": 4, "$INNER": 5}
    assert dumped(tmp_path, CASES["clipped"], "loops") == ["no loops"]


@pytest.mark.parametrize("name", CASES)
def test_blocks_are_executed_by_the_threads_of_their_predicates(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    said = dict(line.split(": ", 1) for line in dumped(tmp_path, case, "predicates"))
    compared = set()
    for access in traced(case).accesses:
        label = label_above(case, access.line)
        names = {"n": case.n, "tid.x": np.arange(THREADS), "ctaid.x": access.block[0]}
        expected = np.broadcast_to(Expression(names)(said[label]), (THREADS,))
        assert (access.reached == expected).all(), label
        compared.add(label)
    assert compared == {"clipped": {"$INSIDE", "$FOURTH", "$OTHERS", "$MEET"},
                        "nested": {"$INNER"}}[name]  # fmt: skip


# ---------------------------------------------------------------- classes


@pytest.mark.parametrize("name", CASES)
def test_classes_have_the_members_and_the_sectors_of_a_run(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    said: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    line = 0
    for text in dumped(tmp_path, case, "classes"):
        if (head := re.match(r"(\d+): ", text)) is not None:
            line = int(head[1])
        elif text != "  period 32 B":
            numbers = [int(n) for n in re.findall(r"\d+", text)]
            classes, members, requests, sectors = numbers
            assert 1 <= classes <= members
            said[line][requests, sectors] += members
    run_: dict[int, Counter[tuple[int, int]]] = defaultdict(Counter)
    for access in traced(case).accesses:
        requests = sectors = 0
        for warp in range(0, THREADS, 32):
            lanes = access.active[warp : warp + 32]
            requests += int(lanes.any())
            sectors += len(set((access.addresses[warp : warp + 32][lanes] // 32).tolist()))
        run_[access.line][requests, sectors] += 1
    for line, seen in run_.items():
        del said[line][0, 0], seen[0, 0]
        assert said[line] == seen, line
    rows = json.loads(invoke(tmp_path, case, "traffic", "--format", "json").output)["accesses"]
    for row in rows:
        total = sum(members * sectors for (_, sectors), members in said[row["line"]].items())
        assert row["cost"] == total


def test_classes_need_a_launch(tmp_path: Path) -> None:
    (tmp_path / "k.ptx").write_text(NESTED)
    result = CliRunner().invoke(cli, ["ptx", str(tmp_path / "k.ptx"), "--dump", "classes"])
    assert result.exit_code == 2
    assert "none is known: give --launch" in result.output
