"""Divergence of branches whose answer is known: by hand, and against lanes counted one by one."""

from __future__ import annotations

import random

import numpy as np
import pytest

from kanalyze.models.branches import KINDS, Branch, branches
from kanalyze.ptx.cfg import build
from kanalyze.ptx.parse import parse_ptx
from kanalyze.symbolic.accesses import find
from kanalyze.symbolic.value import evaluate

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"


def sorted_branches(body: str, directives: str = "", params: str = ".param .u32 n") -> list[Branch]:
    module = parse_ptx(
        f"{HEAD}.entry k({params}) {directives}\n{{\n"
        ".reg .pred %p<99>;\n.reg .b32 %r<99>;\n.reg .b64 %rd<99>;\n"
        f"{body}\nEND:\nret;\n}}\n"
    )
    assert module.diagnostics == ()
    (function,) = module.functions
    cfg = build(function)
    given = function.directives.get("reqntid")
    extents = tuple((*given, 1, 1)[:3]) if given else None
    return list(branches(cfg, find(cfg, {}).solved, extents))  # type: ignore[arg-type]


N = "ld.param.u32 %r9, [n];\n"
X = "mov.u32 %r1, %tid.x;\n"
Y = "mov.u32 %r2, %tid.y;\n"
GLOBAL = X + "mov.u32 %r3, %ctaid.x;\nmad.lo.s32 %r4, %r3, {size}, %r1;\n"

#: body, directives, kind, a part of the reason
CASES = {
    "parameter": (N + "setp.eq.s32 %p1, %r9, 0;", "", "block", "does not depend on the thread"),
    "block index": (
        N + "mov.u32 %r1, %ctaid.y;\nsetp.lt.u32 %p1, %r1, %r9;", "", "block", "",
    ),
    "bounds check": (
        GLOBAL.format(size=256) + N + "setp.ge.s32 %p1, %r4, %r9;", "", "divergent", "tid.x",
    ),
    "odd threads": (
        X + "and.b32 %r2, %r1, 1;\nsetp.eq.b32 %p1, %r2, 1;", "", "divergent", "tid.x",
    ),
    "one thread": (X + "setp.eq.s32 %p1, %r1, 0;", "", "divergent", "tid.x"),
    "lane": ("mov.u32 %r1, %laneid;\nsetp.eq.s32 %p1, %r1, 0;", "", "divergent", "laneid"),
    "lanes of the lower half": (
        "mov.u32 %r1, %laneid;\nsetp.lt.u32 %p1, %r1, 16;", "", "divergent", "laneid",
    ),
    "every lane": (
        "mov.u32 %r1, %laneid;\nsetp.lt.u32 %p1, %r1, 32;", "", "block", "the same for every",
    ),
    "warp by shift": (
        X + "shr.u32 %r2, %r1, 5;\nsetp.eq.s32 %p1, %r2, 0;", "", "warp", "multiple of 32",
    ),
    "warp by division": (
        X + "div.u32 %r2, %r1, 32;\nsetp.eq.s32 %p1, %r2, 1;", "", "warp", "by warp only",
    ),
    "half a warp by shift": (
        X + "shr.u32 %r2, %r1, 4;\nsetp.eq.s32 %p1, %r2, 0;", "", "divergent", "",
    ),
    "warp group by comparison": (X + "setp.lt.u32 %p1, %r1, 128;", "", "warp", ""),
    "within a warp by comparison": (X + "setp.lt.u32 %p1, %r1, 100;", "", "divergent", ""),
    "comparison that always holds": (
        X + "setp.lt.u32 %p1, %r1, 128;", ".reqntid 128", "block", "the same for every tid.x",
    ),
    "mask, then shift": (
        X + "and.b32 %r2, %r1, 127;\nshr.u32 %r3, %r2, 5;\nsetp.eq.s32 %p1, %r3, 0;",
        ".reqntid 256", "warp", "",
    ),
    "global warp": (
        GLOBAL.format(size=128) + N + "shr.u32 %r5, %r4, 5;\nsetp.lt.u32 %p1, %r5, %r9;",
        ".reqntid 128", "warp", "",
    ),
    "global warp of odd blocks": (
        GLOBAL.format(size=100) + N + "shr.u32 %r5, %r4, 5;\nsetp.lt.u32 %p1, %r5, %r9;",
        ".reqntid 100", "divergent", "",
    ),
    "a bound that is a multiple of 32": (
        GLOBAL.format(size=128) + "setp.lt.s32 %p1, %r4, 4096;", ".reqntid 128", "warp", "",
    ),
    "a bound that is none": (
        GLOBAL.format(size=128) + "setp.lt.s32 %p1, %r4, 4095;", ".reqntid 128", "divergent", "",
    ),
    "the same bound inclusive": (
        GLOBAL.format(size=128) + "setp.gt.s32 %p1, %r4, 4095;", ".reqntid 128", "divergent", "",
    ),
    "at least a multiple of 32": (
        GLOBAL.format(size=128) + "setp.ge.s32 %p1, %r4, 4096;", ".reqntid 128", "warp", "",
    ),
    "rows of 16": (Y + "setp.eq.s32 %p1, %r2, 0;", ".reqntid 16, 16, 1", "divergent", "tid.y"),
    "rows of 32": (Y + "setp.eq.s32 %p1, %r2, 0;", ".reqntid 32, 8, 1", "warp", "tid.y"),
    "pairs of rows of 16": (
        Y + "shr.u32 %r3, %r2, 1;\nsetp.eq.s32 %p1, %r3, 0;", ".reqntid 16, 16", "warp", "",
    ),
    "shift where rows are 48": (
        X + "shr.u32 %r2, %r1, 5;\nsetp.eq.s32 %p1, %r2, 0;", ".reqntid 48, 2, 1", "divergent", "",
    ),
    "rows of a length not known": (Y + "setp.eq.s32 %p1, %r2, 0;", "", "divergent", "tid.y"),
    "half the block, extents known": (
        X + "mov.u32 %r2, %ntid.x;\nshr.u32 %r3, %r2, 1;\nsetp.lt.u32 %p1, %r1, %r3;",
        ".reqntid 128", "warp", "",
    ),
    "half the block, extents unknown": (
        X + "mov.u32 %r2, %ntid.x;\nshr.u32 %r3, %r2, 1;\nsetp.lt.u32 %p1, %r1, %r3;",
        "", "divergent", "",
    ),
    "loaded": (
        "ld.global.u32 %r2, [%rd1];\nsetp.eq.s32 %p1, %r2, 0;", "", "unknown", "ld.global.u32",
    ),
    "loaded, of thread 0": (
        X + "ld.global.u32 %r2, [%rd1];\nsetp.eq.s32 %p2, %r1, 0;\n"
        "setp.eq.and.s32 %p1, %r2, 0, %p2;", "", "unknown", "ld.global.u32",
    ),
    "floating point": (
        "ld.param.f32 %r2, [n];\nsetp.lt.f32 %p1, %r2, 0f00000000;", "", "unknown", "floating",
    ),
    "elected": ("elect.sync %r1|%p1, -1;", "", "divergent", "elected"),
    "warp slot": ("mov.u32 %r1, %warpid;\nsetp.eq.s32 %p1, %r1, 0;", "", "warp", "by warp"),
    "SM": ("mov.u32 %r1, %smid;\nsetp.eq.s32 %p1, %r1, 0;", "", "block", ""),
    "set by the driver": ("mov.u32 %r1, %envreg2;\nsetp.eq.s32 %p1, %r1, 0;", "", "block", ""),
    "lane mask": (
        "mov.u32 %r1, %lanemask_lt;\nsetp.eq.s32 %p1, %r1, 0;", "", "divergent", "",
    ),
    "clock": ("mov.u32 %r1, %clock;\nsetp.eq.s32 %p1, %r1, 0;", "", "unknown", "%clock"),
    "broadcast warp index": (
        X + "shr.u32 %r2, %r1, 5;\nshfl.sync.idx.b32 %r3, %r2, 0, 31, -1;\n"
        "setp.eq.s32 %p1, %r3, 0;", "", "warp", "",
    ),
    "exchanged": (
        X + "shfl.sync.bfly.b32 %r3, %r1, 1, 31, -1;\nsetp.eq.s32 %p1, %r3, 0;",
        "", "unknown", "shfl",
    ),
    "huge extents": (Y + "setp.eq.s32 %p1, %r2, 0;", ".reqntid 100000, 100000, 9", "divergent", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_hand_made(name: str) -> None:
    body, directives, kind, reason = CASES[name]
    (branch,) = sorted_branches(f"{body}\n@%p1 bra END;\nmov.u32 %r50, 1;", directives)
    assert branch.kind == kind in KINDS
    assert reason in branch.reason
    (negated,) = sorted_branches(f"{body}\n@!%p1 bra END;\nmov.u32 %r50, 1;", directives)
    assert negated.kind == kind


def test_asserted_by_the_ptx() -> None:
    body = (
        "ld.global.u32 %r2, [%rd1];\nsetp.eq.s32 %p1, %r2, 0;\n@%p1 bra.uni END;\nmov.u32 %r1, 1;"
    )
    (branch,) = sorted_branches(body)
    assert (branch.kind, branch.reason) == ("warp", "the PTX says so (.uni)")


def test_constants() -> None:
    (branch,) = sorted_branches("setp.eq.s32 %p1, 1, 1;\n@%p1 bra END;\nmov.u32 %r1, 1;")
    assert (branch.kind, branch.reason, branch.depends_on) == ("block", "always taken", ())


LOOP = """
mov.u32 %r2, {start};
L:
add.s32 %r2, %r2, {step};
setp.lt.s32 %p1, %r2, {bound};
@%p1 bra L;
"""


@pytest.mark.parametrize(
    ("start", "step", "bound", "directives", "kind"),
    [
        ("0", "1", "%r9", "", "block"),
        ("%r3", "%r9", "100", "", "block"),  # from the block index
        ("%r1", "128", "%r9", "", "divergent"),  # grid-stride: the last trip is not whole
        ("%r1", "128", "4096", ".reqntid 128", "warp"),
        ("%r1", "128", "4000", ".reqntid 128", "warp"),
        ("%r1", "128", "4001", ".reqntid 128", "divergent"),
        ("%r4", "1", "10", "", "warp"),  # from the warp index
    ],
)
def test_loops(start: str, step: str, bound: str, directives: str, kind: str) -> None:
    before = X + N + "mov.u32 %r3, %ctaid.x;\nshr.u32 %r4, %r1, 5;\n"
    body = before + LOOP.format(start=start, step=step, bound=bound)
    (branch,) = sorted_branches(body, directives)
    assert branch.kind == kind
    assert any(name == "loop L" for name in branch.depends_on)


def test_a_branch_inside_a_divergent_one() -> None:
    body = (
        X + N + "setp.lt.s32 %p1, %r1, %r9;\n@%p1 bra A;\nmov.u32 %r2, 1;\nbra B;\n"
        "A: mov.u32 %r2, 2;\nB: setp.eq.s32 %p2, %r2, 1;\n@%p2 bra END;\nmov.u32 %r3, 3;"
    )
    kinds = [branch.kind for branch in sorted_branches(body)]
    assert kinds == ["divergent", "divergent"]  # %r2 differs where the paths met


def test_what_is_listed() -> None:
    """Unconditional branches, returns and code that is never reached are not in the list."""
    body = X + "setp.eq.s32 %p1, %r1, 0;\n@%p1 bra A;\nbra END;\nA: bra END;\n@%p1 bra A;"
    (branch,) = sorted_branches(body)
    assert (branch.block, branch.depends_on) == (0, ("%tid.x",))


def test_not_followed() -> None:
    body = (
        "setp.eq.s32 %p1, 1, 1;\n@%p1 exit;\nmov.u32 %r1, 0;\n"
        "ts: .branchtargets A, END;\nbrx.idx %r1, ts;\nA: mov.u32 %r1, 1;"
    )
    first, second = sorted_branches(body)
    assert (first.kind, second.kind) == ("unknown", "unknown")
    assert "predicated exit" in first.reason
    assert "indexed branch" in second.reason


# ---------------------------------------------------------------- against lanes

OPERATIONS = (
    "add.s32 {d}, {a}, {k};", "sub.s32 {d}, {a}, {k};", "and.b32 {d}, {a}, {k};",
    "shr.u32 {d}, {a}, {s};", "shl.b32 {d}, {a}, {s};", "mul.lo.s32 {d}, {a}, {k};",
    "div.u32 {d}, {a}, {k};", "rem.u32 {d}, {a}, {k};", "add.s32 {d}, {a}, {b};",
    "xor.b32 {d}, {a}, {b};", "min.u32 {d}, {a}, {k};", "or.b32 {d}, {a}, {b};",
)  # fmt: skip
EXTENTS = ((128, 1, 1), (32, 4, 1), (16, 8, 2), (48, 2, 1), (100, 1, 1), (8, 8, 8))


@pytest.mark.parametrize("seed", range(150))
def test_against_lanes(seed: int) -> None:
    """No condition called the same for a warp (block) ever differs within one."""
    chance = random.Random(seed)
    extents = chance.choice(EXTENTS)
    lines = [X, Y, N, "mov.u32 %r3, %ctaid.x;\nmov.u32 %r4, %laneid;\n"]
    known = ["%r1", "%r2", "%r3", "%r4", "%r9"]
    for number in range(chance.randint(1, 6)):
        fields = {
            "d": f"%r{20 + number}", "a": chance.choice(known), "b": chance.choice(known),
            "k": chance.choice([1, 2, 5, 16, 31, 32, 64, 96, 128, -32]), "s": chance.randint(0, 7),
        }  # fmt: skip
        lines.append(chance.choice(OPERATIONS).format(**fields) + "\n")
        known.append(fields["d"])
    compare = chance.choice(["lt.s32", "le.u32", "eq.s32", "ge.s32", "gt.u32", "ne.s32"])
    right = chance.choice([*known, "32", "64", "63", "0", "7"])
    lines.append(f"setp.{compare} %p1, {known[-1]}, {right};\n@%p1 bra END;\nmov.u32 %r50, 1;")
    (branch,) = sorted_branches("".join(lines), f".reqntid {', '.join(map(str, extents))}")
    assert branch.condition is not None
    x, y, z = extents
    linear = np.arange(x * y * z)
    specials = {"tid.x": linear % x, "tid.y": linear // x % y, "laneid": linear % 32}
    witnesses = 0
    for _ in range(12):
        block, n = chance.randrange(1 << 16), chance.choice([0, 1, 31, 32, 100, 1 << 31, 99991])
        (held,) = evaluate(
            [branch.condition], {**specials, "ctaid.x": np.full_like(linear, block)}, {("n", 0): n}
        )
        held = np.broadcast_to(held, linear.shape)
        in_warps = all(len(set(held[i : i + 32])) == 1 for i in range(0, len(held), 32))
        witnesses += not in_warps
        if branch.kind in ("warp", "block"):
            assert in_warps
        if branch.kind == "block":
            assert len(set(held)) == 1
    assert branch.kind in ("warp", "block", "divergent")
