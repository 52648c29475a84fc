"""A control flow graph for other programs: GraphViz dot, GraphML, and rows for JSON.

A `FlowGraph` is plain data: blocks with names, lines and counts, edges with what they are. `dot`
and `graphml` write one or several of them into one file. Names come from the input and may hold
anything: they are quoted for dot, and characters that XML has no place for become escapes.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.graph import BasicBlock
from kanalyze.ptx.instructions import is_branch, is_terminator
from kanalyze.ptx.ir import Instruction

TAKEN, FALLTHROUGH, LEAVE = "taken", "fallthrough", "exit"


@dataclass(frozen=True, slots=True)
class Node:
    """A block: its lines in the PTX (None: it holds no instruction) and what is in it.

    ``loop`` is the index of the block that is the header of the innermost loop around it. ``ends``
    is the last instruction's opcode where it branches or leaves; ``branch`` tells in the caller's
    words how the threads part there.
    """

    index: int
    name: str
    label: str | None
    line: int | None
    last_line: int | None
    instructions: int
    loop_depth: int
    loop: int | None
    reached: bool
    ends: str | None
    branch: str | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """``source`` to ``target``, block indices; ``target`` None where the function is left.

    ``kinds`` holds "taken" (a branch jumps), "fallthrough" (on to the next block) or both, or
    "exit"; ``back`` tells that it leads to the header of a loop around its source.
    """

    source: int
    target: int | None
    kinds: tuple[str, ...]
    back: bool


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """The control flow graph of one function."""

    name: str
    kind: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]


def flow_graph(cfg: Cfg, branches: Mapping[int, str] | None = None) -> FlowGraph:
    """The graph of a function.

    Args:
        cfg: its control flow graph.
        branches: what to say of the branch at the end of a block, by the block's index.
    """
    reached = set(cfg.order)
    nodes = tuple(_node(cfg, block, block.index in reached) for block in cfg.blocks)
    if branches:
        nodes = tuple(replace(node, branch=branches.get(node.index)) for node in nodes)
    edges = tuple(
        _edge(cfg, block, target)
        for block in cfg.blocks
        for target in sorted(cfg.graph.successors(block.index))
    )
    return FlowGraph(cfg.function.name, cfg.function.kind, nodes, edges)


def _node(cfg: Cfg, block: BasicBlock[Instruction], reached: bool) -> Node:
    lines = [instruction.pos.line for instruction in block.instructions]
    loop = cfg.innermost_loop(block.index)
    last = block.instructions[-1] if block.instructions else None
    return Node(
        index=block.index,
        name=block.name,
        label=block.label,
        line=min(lines, default=None),
        last_line=max(lines, default=None),
        instructions=len(lines),
        loop_depth=cfg.loop_depth[block.index],
        loop=loop.header if loop is not None else None,
        reached=reached,
        ends=last.opcode if last is not None and is_terminator(last) else None,
    )


def _edge(cfg: Cfg, block: BasicBlock[Instruction], target: int) -> Edge:
    last = block.instructions[-1] if block.instructions else None
    following = block.index + 1
    kinds: list[str] = []
    if target == cfg.exit:
        kinds.append(LEAVE)
    elif last is None or not is_branch(last):
        kinds.append(FALLTHROUGH)
    else:
        only = len(cfg.graph.successors(block.index)) == 1
        if target != following or last.guard is None or only:
            kinds.append(TAKEN)
        if target == following and last.guard is not None:
            kinds.append(FALLTHROUGH)
    back = any(loop.header == target and block.index in loop.latches for loop in cfg.loops)
    return Edge(block.index, None if target == cfg.exit else target, tuple(kinds), back)


# ---------------------------------------------------------------- GraphViz


def dot(graphs: Sequence[FlowGraph]) -> str:
    """The graphs as GraphViz dot, each in a cluster of its own."""
    lines = [
        "digraph cfg {",
        '\tnode [shape=box, fontname="monospace"];',
        '\tedge [fontname="monospace"];',
    ]
    for number, graph in enumerate(graphs):
        lines += _cluster(number, graph)
    return "\n".join([*lines, "}"]) + "\n"


def _cluster(number: int, graph: FlowGraph) -> list[str]:
    lines = [f"\tsubgraph cluster_{number} {{", f"\t\tlabel={_quoted(graph.name)};"]
    for node in graph.nodes:
        style = "" if node.reached else ", style=dotted"
        label = _quoted(*_label(node), left=True)
        lines.append(f"\t\tf{number}b{node.index} [label={label}{style}];")
    if any(edge.target is None for edge in graph.edges):
        lines.append(f'\t\tf{number}exit [label="exit", shape=oval];')
    for edge in graph.edges:
        target = "exit" if edge.target is None else f"b{edge.target}"
        shown = [kind for kind in edge.kinds if kind != LEAVE]
        attributes = [f"label={_quoted(' or '.join(shown))}"] if shown else []
        attributes += ["style=bold", "constraint=false"] if edge.back else []
        tail = f" [{', '.join(attributes)}]" if attributes else ""
        lines.append(f"\t\tf{number}b{edge.source} -> f{number}{target}{tail};")
    return [*lines, "\t}"]


def _label(node: Node) -> list[str]:
    lines = [node.name]
    if node.line is not None:
        between = f"{node.line}" if node.line == node.last_line else f"{node.line}-{node.last_line}"
        lines.append(f"line{'' if node.line == node.last_line else 's'} {between}")
    lines.append(f"{node.instructions} instruction{'' if node.instructions == 1 else 's'}")
    if node.loop_depth:
        lines.append(f"loop depth {node.loop_depth}")
    if node.branch:
        lines.append(f"{node.ends}: {node.branch}")
    return lines


def _quoted(*lines: str, left: bool = False) -> str:
    r"""Lines as a quoted string of dot, in which ``\N`` and the like have no meaning."""
    end = r"\l" if left else r"\n"
    escaped = [_printable(line).replace("\\", "\\\\").replace('"', '\\"') for line in lines]
    return '"' + end.join(escaped) + (end if left else "") + '"'


def _printable(text: str) -> str:
    r"""Whatever has no place in XML, or steers a terminal, as escapes: ``\x1b``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


# ---------------------------------------------------------------- GraphML


def graphml(graphs: Sequence[FlowGraph]) -> str:
    """The graphs as one GraphML graph; ``function`` tells nodes of several functions apart.

    An edge that falls through and is taken has the kind ``taken or fallthrough``.
    """
    import networkx as nx

    whole: Any = nx.DiGraph()
    for number, graph in enumerate(graphs):
        function = _printable(graph.name)
        for node in graph.nodes:
            whole.add_node(f"f{number}b{node.index}", **_attributes(node, function))
        for edge in graph.edges:
            target = f"f{number}exit" if edge.target is None else f"f{number}b{edge.target}"
            if target not in whole:
                whole.add_node(target, label="exit", function=function)
            kind = " or ".join(edge.kinds)
            whole.add_edge(f"f{number}b{edge.source}", target, kind=kind, back=edge.back)
    buffer = io.BytesIO()
    nx.write_graphml_xml(whole, buffer)
    return buffer.getvalue().decode("utf-8")


def _attributes(node: Node, function: str) -> dict[str, str | int | bool]:
    attributes: dict[str, str | int | bool | None] = {
        "label": _printable(node.name),
        "function": function,
        "line": node.line,
        "last_line": node.last_line,
        "instructions": node.instructions,
        "loop_depth": node.loop_depth,
        "reached": node.reached,
        "ends": None if node.ends is None else _printable(node.ends),
        "branch": None if node.branch is None else _printable(node.branch),
    }
    return {name: value for name, value in attributes.items() if value is not None}
