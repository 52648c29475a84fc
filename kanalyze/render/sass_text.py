"""The ``sass`` part of a report as rows of text: what agrees with the PTX, and what does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kanalyze.results import kernel as doc
from kanalyze.text.numbers import plural
from kanalyze.text.page import NBSP, Page, Segment

Row = tuple[str, tuple[Segment, ...]]
"""A label and the text beside it."""


def show_kernel(page: Page, kernel: doc.SassKernel, path: str, reasons: Mapping[str, str]) -> None:
    """Add the report on a kernel of which there is no PTX."""
    page.section("kernel")
    page.rule()
    page.line(
        (kernel.name, "title"),
        (f"   {kernel.target or 'target unknown'} · ", ""),
        ("no PTX", "warn"),
        (" · ", ""),
        (kernel.file, "file"),
        hang=2,
    )
    for note in kernel.notes:
        page.line((note, "dim"), hang=2)
    page.rule()

    def known(field: str, value: object, unit: str = "") -> str:
        reason = reasons.get(f"{path}.{field}")
        return f"{value}{unit}" if value is not None else f"unknown ({reason})"

    rows: list[Row] = [
        ("PTX", (("there is none: no addresses, loops or parameters are analysed", ""),))
    ]
    rows += sass_rows(kernel.sass, reasons.get(f"{path}.sass"))
    if kernel.registers_per_thread is None:
        text = known("registers_per_thread", None)
    else:
        text = f"{kernel.registers_per_thread} per thread, stack {kernel.stack_bytes} B, static "
        text += f"shared memory {kernel.shared_bytes} B (says {kernel.resources_from})"
    rows.append(("registers", ((text, ""),)))
    spilled = known("spill_store_bytes", kernel.spill_store_bytes, " B")
    rows.append(("spills", (("none" if kernel.spill_store_bytes == 0 else spilled, ""),)))
    add(page, rows)
    page.section("")
    page.line(("Counts are static: instructions in the machine code, not executions.", "dim"))


def add(page: Page, rows: Iterable[Row]) -> None:
    """Add labelled rows."""
    for label, segments in rows:
        page.row(label, *segments)


def sass_rows(sass: doc.Sass | None, reason: str | None) -> Iterator[Row]:
    """The rows on a kernel's machine code; none where it was not asked for."""
    if sass is None:
        if reason is not None and "as asked for" not in reason:
            yield "SASS", ((f"unknown ({reason})", "dim"),)
        return
    padding = f", {sass.never_reached} of them never reached" if sass.never_reached else ""
    head = f"{plural(sass.instructions, 'instruction')}{padding}, {sass.target or 'target ?'}"
    yield "SASS", ((head, "title"), (f" ({sass.origin})", "dim"))
    if sass.not_read:
        yield "", ((f"{plural(sass.not_read, 'line')} of code could not be read", "bad"),)
    yield from _comparison(sass)
    if sass.stack_bytes or sass.local_load_bytes or sass.local_store_bytes:
        yield "", ((sass.stack, "warn"),)


def _comparison(sass: doc.Sass) -> Iterator[Row]:
    rows = [row for row in sass.comparison if row.sass or row.ptx]
    bare = [row for row in rows if row.verdict is None]
    equal = [row for row in rows if row.verdict == "equal"]
    if bare:
        yield "", (("memory and tensor instructions: ", ""), (_opcodes(bare), "memory"))
    elif not rows:
        yield "", (("no memory accesses, no tensor instructions", "dim"),)
    if equal:
        whole = len(equal) == len(rows)
        says = "agrees with the PTX: " if whole else "the same as in the PTX: "
        yield "", ((says, "good"), (_opcodes(equal), ""))
    for row in rows:
        if row.verdict in ("explained", "not explained"):
            text = f": PTX {row.ptx}, SASS {row.sass}"
            text += f" ({_opcodes([row])})" if row.opcodes else ""
            why = row.explanation or "not explained"
            style = "bad" if row.verdict == "not explained" else ""
            yield (
                "",
                ((f"{row.category} {row.width}".strip(), "warn"), (text, ""), (f": {why}", style)),
            )
    hints = _hints(sass.comparison)
    if hints:
        yield "", ((f"L2 fetch hints that the PTX does not have: {hints}", ""),)
    if sass.dummies:
        text = f"{plural(sass.dummies, 'access')} always off (@!PT), not counted"
        yield "", ((text, "dim"),)


def _opcodes(rows: Sequence[doc.SassRow]) -> str:
    total: Counter[str] = Counter()
    for row in rows:
        total.update(row.opcodes)
    return ", ".join(f"{n}{NBSP}×{NBSP}{name}" for name, n in total.items())


def _hints(rows: Sequence[doc.SassRow]) -> str:
    total: Counter[str] = Counter()
    for row in rows:
        total.update({hint: row.hints[hint] for hint in row.hints_added})
    return ", ".join(f"{n}{NBSP}×{NBSP}{hint}" for hint, n in total.items())


def quiet(kernel: doc.SassKernel) -> list[Segment]:
    """One line."""
    parts = [kernel.target or "target ?", "no PTX"]
    if kernel.sass is not None:
        parts.append(plural(kernel.sass.instructions, "SASS instruction"))
        used = [row for row in kernel.sass.comparison if row.sass]
        parts += [_opcodes(used)] if used else []
    registers = kernel.registers_per_thread
    parts.append("? registers" if registers is None else plural(registers, "register"))
    return [(f"{kernel.file}: ", "file"), (kernel.name, "title"), (f"  {', '.join(parts)}", "")]
