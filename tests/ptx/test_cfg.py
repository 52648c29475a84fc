"""Control flow graphs of small functions, against dominators and loops found by definition."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from kanalyze.ptx.cfg import Cfg, Names, build
from kanalyze.ptx.graph import dominance_frontiers
from kanalyze.ptx.ir import Function
from kanalyze.ptx.parse import parse_ptx


def function(body: str, more: str = "") -> Function:
    module = parse_ptx(f".version 8.7\n.target sm_90\n.entry k()\n{{\n{body}\n}}\n{more}")
    assert module.diagnostics == ()
    return module.functions[0]


def edges(cfg: Cfg) -> set[tuple[str, str]]:
    names = [*(block.name for block in cfg.blocks), "exit"]
    return {(names[a], names[b]) for a, b in cfg.graph.edges}


def test_straight_line():
    cfg = build(function("mov.u32 %r1, 1;\nret;"))
    assert edges(cfg) == {("entry", "exit")}
    assert cfg.loops == ()
    assert cfg.order == (0,)


def test_diamond():
    cfg = build(function("@%p1 bra A;\nmov.u32 %r1, 1;\nbra.uni B;\nA:\nmov.u32 %r1, 2;\nB:\nret;"))
    assert [b.name for b in cfg.blocks] == ["entry", "bb1", "A", "B"]
    assert edges(cfg) == {
        ("entry", "A"), ("entry", "bb1"), ("bb1", "B"), ("A", "B"), ("B", "exit"),
    }  # fmt: skip
    assert cfg.idom == {1: 0, 2: 0, 3: 0, 4: 3}
    assert cfg.ipdom == {0: 3, 1: 3, 2: 3, 3: 4}
    assert cfg.dominates(0, 3)
    assert cfg.dominates(3, 3)
    assert not cfg.dominates(2, 3)
    assert [i.opcode for i in cfg.blocks[1].instructions] == ["mov.u32", "bra.uni"]
    assert cfg.block_at(4).name == "A"


NEST = """
mov.u32 %i, 0;
OUTER:
mov.u32 %j, 0;
INNER:
add.s32 %j, %j, 1;
@%q bra NEXT;
@%p1 bra INNER;
add.s32 %i, %i, 1;
NEXT:
@%p2 bra OUTER;
ret;
"""


def test_nested_loops():
    cfg = build(function(NEST))
    names = [block.name for block in cfg.blocks]
    outer, inner = cfg.loops
    assert (names[outer.header], outer.depth, outer.parent) == ("OUTER", 1, None)
    assert (names[inner.header], inner.depth, inner.parent) == ("INNER", 2, 0)
    assert {names[b] for b in inner.body} == {"INNER", "bb3"}
    assert {names[b] for b in outer.body} == {"OUTER", "INNER", "bb3", "bb4", "NEXT"}
    assert [names[b] for b in inner.latches] == ["bb3"]
    assert {(names[a], names[b]) for a, b in inner.exits} == {("INNER", "NEXT"), ("bb3", "bb4")}
    assert cfg.loop_depth == (0, 1, 2, 2, 1, 1, 0)
    assert cfg.innermost_loop(names.index("bb3")) == inner
    assert cfg.innermost_loop(0) is None


def test_two_latches_are_one_loop():
    cfg = build(function("L:\n@%p bra L;\n@%q bra L;\nret;"))
    (loop,) = cfg.loops
    assert len(loop.latches) == 2
    assert cfg.blocks[loop.header].label is None  # the entry block


def test_predicated_terminators_fall_through():
    cfg = build(function("@%p ret;\n@%q exit;\n@!%q trap;\nmov.u32 %r1, 1;"))
    assert edges(cfg) == {
        ("entry", "exit"), ("entry", "bb1"), ("bb1", "exit"), ("bb1", "bb2"), ("bb2", "exit"),
        ("bb2", "bb3"), ("bb3", "exit"),
    }  # fmt: skip


def test_debug_labels_begin_no_block():
    cfg = build(function("$L__tmp0:\nmov.u32 %r1, 1;\n$L__tmp1:\nadd.s32 %r1, %r1, 1;\nret;"))
    assert len(cfg.blocks) == 1


def test_labels_are_local_to_their_scope():
    wait = "{{\n.reg .pred done;\nwaitLoop:\nsetp.ne.u32 done, {0}, 0;\n@!done bra waitLoop;\n}}\n"
    cfg = build(function(wait.format("%r1") + wait.format("%r2") + "ret;"))
    headers = [loop.header for loop in cfg.loops]
    assert len(headers) == len(set(headers)) == 2
    assert all(loop.body == {loop.header} for loop in cfg.loops)
    assert cfg.unresolved == ()


def test_a_label_of_an_outer_scope():
    cfg = build(function("L:\nmov.u32 %r1, 1;\n{\n{\n@%p bra L;\n}\n}\nret;"))
    assert len(cfg.loops) == 1


def test_a_label_of_an_outer_scope_before_one_beside():
    cfg = build(function("{\nL:\nmov.u32 %r1, 1;\n}\n{\n@%p bra L;\n}\nret;\nL:\nexit;"))
    assert cfg.loops == ()
    assert ("entry", "L") in edges(cfg)


def test_brx():
    cfg = build(
        function("ts: .branchtargets A, B;\nbrx.idx %r1, ts;\nA:\nret;\nB:\nret;\nC:\nret;")
    )
    assert {b for a, b in edges(cfg) if a == "entry"} == {"A", "B"}


def test_unresolved():
    cfg = build(function("bra nowhere;"))
    assert edges(cfg) == {("entry", "exit")}
    assert len(cfg.unresolved) == 1


def test_unreachable_and_endless():
    cfg = build(function("L:\nbra L;\nret;"))
    assert cfg.order == (0,)
    assert cfg.idom == {}
    assert 0 not in cfg.ipdom
    assert cfg.loops[0].body == {0}


def test_irreducible():
    cfg = build(function("@%p bra B;\nA:\nmov.u32 %r1, 1;\nB:\n@%q bra A;\nret;"))
    assert cfg.irreducible
    assert cfg.loops == ()


def test_calls_that_never_return():
    body = "@%p bra A;\ncall fail, ();\nA:\nret;"
    assert ("bb1", "A") in edges(build(function(body)))
    assert ("bb1", "A") not in edges(build(function(body), noreturn={"fail"}))


def test_a_declaration():
    module = parse_ptx(".version 8.7\n.target sm_90\n.extern .func f;\n")
    cfg = build(module.functions[0])
    assert [b.instructions for b in cfg.blocks] == [()]


def test_a_long_chain_needs_no_recursion():
    body = "".join(f"@%p bra L{i};\nL{i}:\n" for i in range(5000)) + "ret;"
    assert len(build(function(body)).order) == 5001


def test_names_of_nested_registers():
    nested = function(
        ".reg .b32 %r<9>, t;\n{\n.reg .b32 t, %r<3>;\nmov.u32 t, 1;\n{\nmov.u32 t, 2;\n}\n}\n"
        "{\n.reg .b32 t;\n}\nmov.u32 t, 3;"
    )
    names = Names(nested)
    assert nested.scopes == (-1, 0, 1, 0)
    assert [names.unique("t", scope) for scope in range(4)] == ["t", "t@1", "t@1", "t@3"]
    assert [names.unique("%r2", scope) for scope in range(4)] == ["%r2", "%r2@1", "%r2@1", "%r2"]
    assert (names.unique("%r3", 2), names.unique("%r7", 2)) == ("%r3", "%r7")
    assert Names(function("{\nmov.u32 t, 1;\n}")).unique("t", 1) == "t"


# ---------------------------------------------------------------- against the definitions


def reached(graph: nx.DiGraph, start: int, without: int | None = None) -> set[int]:
    if start == without:
        return set()
    seen, waiting = {start}, [start]
    while waiting:
        for following in graph.successors(waiting.pop()):
            if following != without and following not in seen:
                seen.add(following)
                waiting.append(following)
    return seen


def immediate_dominators_by_definition(graph: nx.DiGraph, start: int) -> dict[int, int]:
    """d dominates n if n cannot be reached without d; the immediate one has most dominators."""
    nodes = reached(graph, start)
    over = {n: {d for d in nodes if d != n and n not in reached(graph, start, d)} for n in nodes}
    return {n: max(ds, key=lambda d: len(over[d])) for n, ds in over.items() if ds}


def random_body(seed: int) -> str:
    chance = random.Random(seed)
    count = chance.randint(1, 9)
    lines = []
    for index in range(count):
        lines.append(f"L{index}:\nmov.u32 %r{index}, 0;")
        kind = chance.randrange(6)
        guard = "@%p " if chance.random() < 0.7 else ""
        if kind < 4:
            lines.append(f"{guard}bra L{chance.randrange(count)};")
        elif kind == 4:
            lines.append(f"{guard}ret;")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(300))
def test_dominators_and_loops_by_definition(seed):
    cfg = build(function(random_body(seed)))
    graph = nx.DiGraph(cfg.graph.edges)
    graph.add_nodes_from(range(cfg.exit + 1))
    assert cfg.idom == immediate_dominators_by_definition(graph, 0)
    assert cfg.ipdom == immediate_dominators_by_definition(graph.reverse(), cfg.exit)
    expected = {n: joins - {0} for n, joins in nx.dominance_frontiers(graph, 0).items()}
    frontiers = dominance_frontiers(cfg.graph, cfg.idom)
    assert frontiers == {n: joins for n, joins in expected.items() if joins}
    nodes = reached(graph, 0)
    assert set(cfg.order) == nodes - {cfg.exit}
    # A loop: its header dominates it, and every member reaches the header inside of it.
    backs = {(a, b) for a, b in graph.edges if a in nodes and a not in reached(graph, 0, b)}
    assert {(latch, loop.header) for loop in cfg.loops for latch in loop.latches} == backs
    for loop in cfg.loops:
        inside = graph.subgraph(loop.body)
        without_header = graph.subgraph(nodes - {loop.header})
        expected = {loop.header} | {
            n for n in without_header
            if any(latch in reached(without_header, n) for latch in loop.latches if latch in
                   without_header)
        }  # fmt: skip
        assert loop.body == expected
        assert all(loop.header in reached(inside, n) for n in loop.body)
        around = [other for other in cfg.loops if loop.body < other.body]
        assert loop.depth == len(around) + 1
    cyclic = {n for part in nx.strongly_connected_components(graph.subgraph(nodes))
              for n in part if len(part) > 1 or graph.has_edge(n, n)}  # fmt: skip
    if not cfg.irreducible:
        assert cyclic == set().union(*(loop.body for loop in cfg.loops))
