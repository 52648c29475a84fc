"""What rules on the compiler's work share: dots of the TTIR, other sources, changes to try."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze import ttir
from kanalyze.findings.facts import Facts
from kanalyze.report.document import Proof, Source
from kanalyze.report.traffic_document import Compulsory

NOISE = 0.05
"""Share of the time below which two simulated times count as equal: the model ranks alike
configurations of a kernel no better (docs/accuracy.md)."""


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of TTIR or TTGIR: its text, the user's line, and the line that it stands in.

    ``inner`` differs from ``source`` where a helper was inlined.
    """

    text: str
    source: Source | None
    inner: ttir.Place | None


@dataclass(frozen=True, slots=True)
class Dot:
    """A ``tt.dot``: C (m x n) += A (m x k) B (k x n), for each of ``batch`` matrices.

    ``a_type`` and ``b_type`` are element types in MLIR's words ("f16", "f8E4M3FN"), ``precision``
    the input precision of fp32 operands: "ieee", "tf32", "tf32x3", "bf16x3", ….
    """

    batch: int
    m: int
    n: int
    k: int
    a_type: str
    b_type: str
    precision: str
    place: Operation


@dataclass(frozen=True, slots=True)
class Change:
    """A change to try: in words, and as arguments of `Facts.again`."""

    words: str
    again: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Tried:
    """A change that compiles, and the time of the launch with it (None: not simulated)."""

    change: Change
    facts: Facts
    time_us: float | None


# ---------------------------------------------------------------- the compiler's stages


def operations(facts: Facts, stage: str, name: str) -> list[Operation]:
    """The operations of a name in a stage ("ttir", "ttgir"); none where there is only PTX."""
    compiled = facts.compiled
    text: str = getattr(compiled, stage) if compiled is not None else ""
    if compiled is None or f"{name} " not in text:
        return []
    base = int(compiled.metadata.get("loc_column_base", 1))
    lines = ttir.read(text, compiled.name, compiled.arch, "", first_column=base).lines
    found = []
    for line in lines:
        if not re.search(rf"(?<![\w.]){re.escape(name)}\s", line.text):
            continue
        place = line.source
        source = None
        if place is not None:
            shown = facts.sources.get(place.file).shown
            source = Source(shown, place.line, place.column)
        found.append(Operation(line.text.strip(), source, line.inner[0] if line.inner else place))
    return found


_DOT = re.compile(
    r"tensor<(?P<a>[^<>,]+)>\s*\*\s*tensor<(?P<b>[^<>,]+)>\s*->\s*tensor<(?P<c>[^<>,]+)>"
)


def dots(facts: Facts) -> list[Dot]:
    """The ``tl.dot`` of the source, as Triton's front end understood them."""
    found = []
    for operation in operations(facts, "ttir", "tt.dot"):
        types = _DOT.search(operation.text)
        if types is None:
            continue
        *batch, m, k = types["a"].split("x")[:-1]
        n = types["b"].split("x")[-2]
        said = re.search(r"inputPrecision\s*=\s*(\w+)", operation.text)
        found.append(
            Dot(
                int(batch[0]) if batch else 1, int(m), int(n), int(k),
                types["a"].split("x")[-1], types["b"].split("x")[-1],
                said[1] if said else "ieee", operation,
            )
        )  # fmt: skip
    return found


def warps(facts: Facts) -> int | None:
    """Warps of a block, as far as they are fixed."""
    if facts.compiled is not None:
        return int(facts.compiled.metadata["num_warps"])
    extents = facts.kernel.reqntid
    if extents is None and facts.launch is not None:
        extents = facts.launch.block
    if extents is None:
        return None
    threads = 1
    for extent in extents:
        threads *= extent
    return -(-threads // 32)


def settings(**values: object) -> Change:
    """A change of constexprs and options (``num_warps``, ``num_stages``, ``maxnreg``)."""
    shown = " and ".join(f"{name}={value}" for name, value in values.items())
    return Change(shown, {"settings": values})


def constexprs_of(facts: Facts, value: int) -> list[str]:
    """Constexprs with this value: those that may be the extent of a tile."""
    if facts.compiled is None:
        return []
    return [
        name
        for name, given in facts.compiled.constexprs.items()
        if given == value
        and isinstance(given, int)
        and not isinstance(given, bool)
        and name not in facts.compiled.specialization
    ]


def tiles(facts: Facts) -> Iterator[tuple[str, int]]:
    """Constexprs that can be extents of tiles: powers of two from 16 on, the largest first."""
    if facts.compiled is None:
        return
    given = [
        (name, value)
        for name, value in facts.compiled.constexprs.items()
        if isinstance(value, int) and value >= 16 and value & (value - 1) == 0
    ]
    yield from sorted(given, key=lambda pair: -pair[1])


# ---------------------------------------------------------------- another source


def with_keyword(
    facts: Facts,
    place: ttir.Place | None,
    function: str,
    name: str,
    value: str,
    add: bool = True,
) -> str | None:
    """The source with a keyword argument set in the calls of ``function`` that stand in a line.

    Args:
        facts: the kernel.
        place: the line of the call.
        function: its last name: ``dot`` for ``tl.dot``.
        name: the keyword.
        value: its text: ``'"tf32"'``.
        add: whether to add the keyword where it is not given.

    Returns:
        The whole text of the file; None where there is no such call in the kernel's file.
    """
    compiled = facts.compiled
    if compiled is None or place is None or not _same(place.file, compiled.source_file):
        return None
    try:
        text = compiled.source_file.read_text("utf-8")
        tree = ast.parse(text)
    except (OSError, ValueError, SyntaxError):
        return None
    data = text.encode()
    starts = [0]
    for line in data.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    edits: list[tuple[int, int, str]] = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or _last_name(node.func) != function:
            continue
        if not node.lineno <= place.line <= (node.end_lineno or node.lineno):
            continue
        given = next((k.value for k in node.keywords if k.arg == name), None)
        end = starts[(node.end_lineno or 1) - 1] + (node.end_col_offset or 0) - 1
        if given is None and not add:
            continue
        if given is None:
            before = data[:end].rstrip()
            comma = " " if before.endswith((b",", b"(")) else ", "
            edits.append((len(before), len(before), f"{comma}{name}={value}"))
        else:
            first = starts[given.lineno - 1] + given.col_offset
            last = starts[(given.end_lineno or 1) - 1] + (given.end_col_offset or 0)
            edits.append((first, last, value))
    for first, last, new in sorted(edits, reverse=True):
        data = data[:first] + new.encode() + data[last:]
    return data.decode() if edits else None


def _same(one: str, other: Path) -> bool:
    return Path(one).resolve() == other.resolve()


def _last_name(node: ast.expr) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


# ---------------------------------------------------------------- trying


def tried(facts: Facts, changes: Sequence[Change]) -> Iterator[Tried]:
    """The kernel with each change, where it compiles; simulated where a launch is known.

    Changes with which the launch writes less or more than it did are left out.
    """
    for change in changes:
        other = facts.again(**change.again)
        if isinstance(other, str):
            continue
        if facts.traffic is None or facts.traffic.time.predicted_us is None:
            yield Tried(change, other, None)
            continue
        found = facts.estimated(other)
        if isinstance(found, str):
            yield Tried(change, other, None)
        elif _same_bytes(facts.traffic.compulsory, found.compulsory):
            yield Tried(change, other, found.time.predicted_us)


def _same_bytes(one: Compulsory, other: Compulsory) -> bool:
    """Whether two launches write the same amount: a tile that covers less computes less."""
    return one.write_bytes == other.write_bytes


def now(facts: Facts) -> float | None:
    """The simulated time of the launch as it is, in microseconds."""
    return facts.traffic.time.predicted_us if facts.traffic is not None else None


def faster(facts: Facts, found: Tried) -> bool | None:
    """Whether a change makes the launch faster by more than the model's noise; None: not known."""
    before = now(facts)
    if before is None or found.time_us is None:
        return None
    return found.time_us < (1 - NOISE) * before


def proof(facts: Facts, found: Tried, before: Mapping[str, float], after: Mapping[str, float],
          words: str | None = None) -> Proof:  # fmt: skip
    """A proof by compiling again, with the simulated times where both are known."""
    times: tuple[dict[str, float], dict[str, float]] = ({}, {})
    was = now(facts)
    if was is not None and found.time_us is not None:
        times = ({"time_us": round(was, 3)}, {"time_us": round(found.time_us, 3)})
    return Proof(
        "recompiled", words or found.change.words, {**before, **times[0]}, {**after, **times[1]}
    )


def saved_time(facts: Facts, found: Tried) -> dict[str, float]:
    """What a change saves of the simulated time, where it does."""
    was = now(facts)
    if was is None or found.time_us is None or found.time_us >= was:
        return {}
    return {"time_us": round(was - found.time_us, 3)}
