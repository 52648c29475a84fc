"""The annotated listing as text: source lines as headers, the PTX that came from them beneath."""

from __future__ import annotations

import re

from kanalyze.report import document as doc
from kanalyze.report.layout import Page, Segment

_LIST = re.compile(r"\{[^{}]*\}")
_LONG_LIST = 10
_KEEP = 3


def shortened(text: str) -> str:
    """The text with long register lists shortened in the middle, their length said."""

    def short(match: re.Match[str]) -> str:
        items = [item.strip() for item in match[0][1:-1].split(",")]
        if len(items) <= _LONG_LIST:
            return match[0]
        head, tail = ", ".join(items[:_KEEP]), ", ".join(items[-_KEEP + 1 :])
        return f"{{{head}, … {len(items)} in all …, {tail}}}"

    return _LIST.sub(short, text)


def show(page: Page, kernel: doc.Kernel) -> None:
    """Add the listing of a kernel."""
    page.blank()
    page.line(
        (f"listing of {kernel.name}", "title"),
        (f"   line numbers are those of {kernel.file}", "dim"),
    )
    digits = max(3, *(len(str(line.line)) for line in kernel.listing))
    accesses = {(a.line, a.opcode) for a in kernel.accesses}
    shown_file: str | None = None
    for line in kernel.listing:
        bars = "│ " * line.loop_depth
        lead: list[Segment] = [(" " * digits + "  ", ""), (bars, "loop")]
        if line.kind == "source":
            page.blank() if not line.loop_depth else None
            if line.file != shown_file:
                shown_file = line.file
                page.line((f"{line.file}", "file"), lead=lead)
            page.line(
                (f"{line.file}:{line.line}  ", "file"), (line.text, "source"), lead=lead, hang=4
            )
        elif line.kind == "mark":
            page.line((f"── {line.text}", "mark"), lead=lead, hang=3)
        else:
            number: list[Segment] = [(f"{line.line:>{digits}}  ", "dim"), (bars, "loop")]
            _statement(page, line, number, lead, accesses)


def _statement(
    page: Page,
    line: doc.ListingLine,
    number: list[Segment],
    lead: list[Segment],
    accesses: set[tuple[int, str]],
) -> None:
    text = shortened(line.text)
    indent = "" if line.kind == "label" else "  "
    style = "dim" if line.kind in ("label", "scope", "directive", "declaration") else ""
    beside = len(line.notes) == 1
    segments: list[Segment] = [(indent + text, style)]
    if beside:
        segments.append((f"   // {line.notes[0]}", "note"))
    page.line(*segments, lead=number, rest=lead, hang=6)
    if not beside:
        for index, note in enumerate(line.notes):
            page.line(
                (note, "address" if index else "note"),
                lead=[*lead, ("      ", "")],
                rest=[*lead, ("      ", "")],
                hang=4,
            )
