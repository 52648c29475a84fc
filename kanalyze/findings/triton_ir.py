"""Operations of a kernel in Triton's IR, with their places in the source."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kanalyze.findings.facts import Facts
from kanalyze.frontend import ttir
from kanalyze.results.kernel import Source


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


def operations(facts: Facts, stage: str, name: str) -> list[Operation]:
    """The operations of a name in a stage ("ttir", "ttgir"); none where there is only PTX."""
    compiled = facts.compiled
    text: str = getattr(compiled, stage) if compiled is not None else ""
    if compiled is None or f"{name} " not in text:
        return []
    # Columns as Triton writes them, from 0 or 1: those of the PTX are the same.
    lines = ttir.read(text, compiled.name, compiled.arch, "", first_column=1).lines
    matching = []
    for line in lines:
        if not re.search(rf"(?<![\w.]){re.escape(name)}\s", line.text):
            continue
        place = line.source
        source = None
        if place is not None:
            shown = facts.sources.get(place.file).shown
            source = Source(shown, place.line, place.column)
        matching.append(
            Operation(line.text.strip(), source, line.inner[0] if line.inner else place)
        )
    return matching


_DOT = re.compile(
    r"tensor<(?P<a>[^<>,]+)>\s*\*\s*tensor<(?P<b>[^<>,]+)>\s*->\s*tensor<(?P<c>[^<>,]+)>"
)


def dots(facts: Facts) -> list[Dot]:
    """The ``tl.dot`` of the source, as Triton's front end understood them."""
    products = []
    for operation in operations(facts, "ttir", "tt.dot"):
        types = _DOT.search(operation.text)
        if types is None:
            continue
        *batch, m, k = types["a"].split("x")[:-1]
        n = types["b"].split("x")[-2]
        said = re.search(r"inputPrecision\s*=\s*(\w+)", operation.text)
        products.append(
            Dot(
                int(batch[0]) if batch else 1, int(m), int(n), int(k),
                types["a"].split("x")[-1], types["b"].split("x")[-1],
                said[1] if said else "ieee", operation,
            )
        )  # fmt: skip
    return products
