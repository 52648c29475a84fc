"""``kanalyze cfg``."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output
from kanalyze.text.safe import escaped

if TYPE_CHECKING:
    from kanalyze.frontend.argument import Argument
    from kanalyze.frontend.subject import Subject
    from kanalyze.kernel.describe import Description
    from kanalyze.kernel.sources import Sources
    from kanalyze.models.branches import Branch
    from kanalyze.ptx import ir
    from kanalyze.ptx.export import FlowGraph
    from kanalyze.results import kernel as doc
    from kanalyze.text.page import Page

_LONGEST = 400


@click.command("cfg")
@click.argument("target", metavar="TARGET", shell_complete=shared.complete_target)
@shared.reading_options(
    "Only this kernel, or this device function. Repeatable.  [default: all kernels]"
)
@shared.output_options(
    "dot", "graphml", help="Text to read, JSON, GraphViz, or GraphML.", paged=True
)
def command(
    target: str,
    options: shared.TargetOptions,
    to: output.Destination,
) -> int:
    """Control flow of kernels: blocks, loops, and which branches part the threads of a warp.

    TARGET is a bundled kernel, path/to/file.py:kernel, a .ptx, .cubin or .cu file, or - for PTX on
    standard input.

    \b
    Examples:
      kanalyze cfg matmul_relu
      kanalyze cfg kernel.ptx --kernel my_kernel --format dot | dot -Tsvg -o kernel.svg
      kanalyze cfg flash_attention --format graphml -o flash.graphml
    """
    from kanalyze.ptx import export

    graphs, skipped, exit_code = _read(target, options)
    if to.format == "dot":
        to.data(export.dot([graph.flow for graph in graphs]))
    elif to.format == "graphml":
        to.data(export.graphml([graph.flow for graph in graphs]))
    elif to.format == "json":
        to.json(_document(graphs, skipped))
    elif graphs:
        page = to.page()
        for number, graph in enumerate(graphs):
            if number:
                page.blank()
            _show(page, graph)
        to.show(page)
    return exit_code


# ---------------------------------------------------------------- reading


@dataclass(frozen=True)
class _Graph:
    """One function: its graph, loops and branches, as they are shown.

    ``conditions`` are the texts of the branches' conditions, None where they are not known.
    """

    file: str
    flow: FlowGraph
    loops: tuple[doc.Loop, ...]
    members: tuple[tuple[int, list[int], list[int]], ...]  # header, blocks and latches of each
    unknown: dict[int, str]  # why a loop's trip count is not known
    branches: tuple[Branch, ...]
    conditions: tuple[str | None, ...]
    irreducible: bool
    unresolved: tuple[ir.Instruction, ...]


def _read(
    target: str, options: shared.TargetOptions
) -> tuple[list[_Graph], list[dict[str, object]], int]:
    """Read a target: its graphs, what could not be read, and the exit code."""
    from kanalyze.cli.inputs import read
    from kanalyze.errors import UsageError, nearest
    from kanalyze.frontend.subject import errors_of
    from kanalyze.kernel.sources import Sources

    inputs = read([target], options)
    skipped = [asdict(one) for one in inputs.skipped]
    graphs: list[_Graph] = []
    known: dict[str, None] = {}
    wanted = options.kernels
    sources = Sources()
    for subject in inputs.subjects:
        for error in errors_of(subject.module):
            line = error.spot.line if error.spot else 0
            skipped.append({"file": subject.file, "line": line, "reason": error.message})
        for function in subject.module.functions:
            if function.body is None:
                continue
            known[function.name] = None
            if function.name in wanted if wanted else function.kind == "entry":
                graphs.append(_graph(subject, function, sources))
    for name in wanted:
        if name not in known:
            raise UsageError(
                f"there is no kernel '{name}' in what was read: {nearest(name, known)}"
            )
    for subject in inputs.subjects:
        if subject.bare:
            output.say(f"{escaped(subject.file)}: there is machine code alone in it", "warning")
    return graphs, skipped, inputs.exit_code


def _graph(subject: Subject, function: ir.Function, sources: Sources) -> _Graph:
    from kanalyze.frontend.argument import Resources
    from kanalyze.frontend.subject import arguments_of
    from kanalyze.kernel.describe import describe
    from kanalyze.models.branches import branches
    from kanalyze.ptx.export import flow_graph

    arguments = arguments_of(subject, function, subject.launch)
    nothing = Resources(reason="not asked for")
    described = describe(
        subject.module, function, subject.file, arguments, nothing, (), sources, False
    )
    cfg = described.cfg
    decided = branches(cfg, described.addresses.solved, _extents(function))
    loops = sorted(cfg.loops, key=lambda loop: loop.header)
    return _Graph(
        file=subject.file,
        flow=flow_graph(cfg, {branch.block: _in_words(branch) for branch in decided}),
        loops=described.kernel.loops,
        members=tuple((loop.header, sorted(loop.body), list(loop.latches)) for loop in loops),
        unknown={
            n: described.addresses.solved.trips[loop.header].reason or "its condition is not known"
            for n, loop in enumerate(loops)
        },
        branches=decided,
        conditions=_conditions(described, decided, arguments, function),
        irreducible=cfg.irreducible,
        unresolved=cfg.unresolved,
    )


def _extents(function: ir.Function) -> tuple[int, int, int] | None:
    given = function.directives.get("reqntid")
    if not given:
        return None
    x, y, z = (*given, 1, 1)[:3]
    return x, y, z


def _conditions(
    described: Description,
    branches: tuple[Branch, ...],
    arguments: dict[str, Argument],
    function: ir.Function,
) -> tuple[str | None, ...]:
    """The conditions of branches as text; None where they hold something unknown."""
    from kanalyze.symbolic.bits import Bits
    from kanalyze.symbolic.readable import Reader
    from kanalyze.symbolic.value import unknown_reasons

    extents = dict(zip(("tid.x", "tid.y", "tid.z"), _extents(function) or (), strict=False))
    loops = sorted(described.cfg.loops, key=lambda loop: loop.header)
    reader = Reader(
        names={name: argument.name for name, argument in arguments.items()},
        bits=Bits(
            {name: argument.divisor for name, argument in arguments.items()},
            {name: extent - 1 for name, extent in extents.items()},
        ),
        loops={
            loop.header: shown.counter or f"i_{shown.header}"
            for loop, shown in zip(loops, described.kernel.loops, strict=True)
        },
    )
    return tuple(
        None
        if branch.condition is None or unknown_reasons(branch.condition)
        else reader.condition(branch.condition)
        for branch in branches
    )


# ---------------------------------------------------------------- showing

_WORDS = {
    "divergent": "divergent",
    "warp": "uniform within a warp",
    "block": "uniform within a block",
    "unknown": "unknown",
}


def _in_words(branch: Branch) -> str:
    return _WORDS[branch.kind]


def _document(graphs: list[_Graph], skipped: list[dict[str, object]]) -> dict[str, Any]:
    unknown: list[dict[str, str]] = []

    def say_unknown(field: str, reason: str) -> None:
        unknown.append({"field": field, "reason": reason})

    functions = []
    for number, graph in enumerate(graphs):
        path = f"functions[{number}]"
        for at, loop in enumerate(graph.loops):
            if loop.trip_count is None:
                say_unknown(f"{path}.loops[{at}].trip_count", graph.unknown[at])
        for at, (branch, condition) in enumerate(
            zip(graph.branches, graph.conditions, strict=True)
        ):
            if condition is None:
                say_unknown(f"{path}.branches[{at}].condition", branch.reason)
        functions.append(_function(graph))
    return {
        "schema": "kanalyze.cfg/1",
        "functions": functions,
        "skipped": skipped,
        "unknown": unknown,
    }


def _function(graph: _Graph) -> dict[str, Any]:
    from kanalyze.ptx.write import instruction_text

    hidden = ("index", "branch")
    return {
        "file": graph.file,
        "name": graph.flow.name,
        "kind": graph.flow.kind,
        "irreducible": graph.irreducible,
        "blocks": [
            {name: value for name, value in asdict(node).items() if name not in hidden}
            for node in graph.flow.nodes
        ],
        "edges": [
            {"from": e.source, "to": e.target, "kinds": list(e.kinds), "back": e.back}
            for e in graph.flow.edges
        ],
        "loops": [
            {
                "header": header,
                "depth": loop.depth,
                "blocks": blocks,
                "latches": latches,
                "line": loop.line,
                "last_line": loop.last_line,
                "trip_count": loop.trip_count,
            }
            for loop, (header, blocks, latches) in zip(graph.loops, graph.members, strict=True)
        ],
        "branches": [
            {
                "block": branch.block,
                "line": branch.instruction.pos.line,
                "instruction": instruction_text(branch.instruction),
                "kind": branch.kind,
                "reason": branch.reason,
                "condition": condition,
                "depends_on": list(branch.depends_on),
            }
            for branch, condition in zip(graph.branches, graph.conditions, strict=True)
        ],
        "unresolved": [
            {"line": branch.pos.line, "instruction": instruction_text(branch)}
            for branch in graph.unresolved
        ],
    }


def _show(page: Page, graph: _Graph) -> None:
    from kanalyze.text.numbers import plural

    flow = graph.flow
    counted = [
        plural(len(flow.nodes), "block"),
        plural(len(graph.loops), "loop"),
        plural(len(graph.branches), "conditional branch"),
    ]
    page.line((flow.name, "title"), (f"  {graph.file}", "dim"))
    page.line((f"  {', '.join(counted)}", ""))
    if graph.irreducible:
        page.line(("  a cycle with more than one entry is in none of the loops", "warn"))
    for branch in graph.unresolved:
        page.line((f"  line {branch.pos.line}: the branch's target is not there", "warn"))
    _show_blocks(page, flow)
    _show_loops(page, graph)
    _show_branches(page, graph)


def _show_blocks(page: Page, flow: FlowGraph) -> None:
    page.line(("  blocks", "label"))
    names = max(len(node.name) + 2 * node.loop_depth for node in flow.nodes)
    edges: dict[int, list[str]] = {}
    for edge in flow.edges:
        target = "exit" if edge.target is None else flow.nodes[edge.target].name
        edges.setdefault(edge.source, []).append(f"{target} (back)" if edge.back else target)
    for node in flow.nodes:
        name = "  " * node.loop_depth + node.name
        lines = "" if node.line is None else f"{node.line}-{node.last_line}"
        page.line(
            (f"    {name:<{names}}  {lines:>11}  {node.instructions:>6}", ""),
            ("  never reached" if not node.reached else "", "warn"),
            (f"  -> {', '.join(edges.get(node.index, []))}", "dim"),
        )


def _show_loops(page: Page, graph: _Graph) -> None:
    if graph.loops:
        page.line(("  loops", "label"))
    for number, loop in enumerate(graph.loops):
        trips = f"{loop.trip_count} trips" if loop.trip_count is not None else "trips unknown: "
        reason = "" if loop.trip_count is not None else graph.unknown[number]
        page.line(
            (f"    {loop.header}", ""),
            (f"  lines {loop.line}-{loop.last_line}, depth {loop.depth}, ", "dim"),
            (trips, "" if loop.trip_count is not None else "warn"),
            (reason, "dim"),
        )


def _show_branches(page: Page, graph: _Graph) -> None:
    from kanalyze.ptx.write import instruction_text

    if graph.branches:
        page.line(("  branches", "label"))
    styles = {"divergent": "warn", "unknown": "dim"}
    for branch, condition in zip(graph.branches, graph.conditions, strict=True):
        page.line(
            (f"    line {branch.instruction.pos.line}", ""),
            (f"  {instruction_text(branch.instruction)}  ", ""),
            (_in_words(branch), styles.get(branch.kind, "good")),
            (f": {branch.reason}", "dim"),
        )
        if condition is not None:
            cut = condition if len(condition) <= _LONGEST else f"{condition[:_LONGEST]}…"
            page.line(("      if ", "dim"), (cut, ""))
