"""The annotated listing as text: source lines as headers, the PTX that came from them beneath."""

from __future__ import annotations

import re

from kanalyze.results import kernel as doc
from kanalyze.text.page import NBSP, Page, Segment

_LIST = re.compile(r"\{[^{}]*\}")
_LONG_LIST = 10
_KEEP = 3
_QUIET_KINDS = ("label", "scope", "directive", "declaration")


def shortened(text: str) -> str:
    """The text with long register lists shortened in the middle, their length said."""

    def short(match: re.Match[str]) -> str:
        items = [item.strip() for item in match[0][1:-1].split(",")]
        if len(items) <= _LONG_LIST:
            return match[0]
        head, tail = ", ".join(items[:_KEEP]), ", ".join(items[-_KEEP + 1 :])
        count = f"… {len(items)} in all …".replace(" ", NBSP)
        return f"{{{head}, {count}, {tail}}}"

    return _LIST.sub(short, text)


def show(page: Page, kernel: doc.Kernel) -> None:
    """Add the listing of a kernel."""
    page.blank()
    page.section("listing")
    page.line(
        (f"listing of {kernel.name}", "title"),
        (f"   line numbers are those of {kernel.file}", "dim"),
    )
    digits = max(3, *(len(str(line.line)) for line in kernel.listing))
    margin = " " * (digits + 2)
    accesses: dict[int, list[str]] = {}
    for access in kernel.accesses:
        accesses.setdefault(access.line, []).append(access.opcode)
    for line in kernel.listing:
        bars = "│ " * line.loop_depth
        lead: list[Segment] = [(margin, ""), (bars, "loop")]
        if line.kind == "source":
            if line.loop_depth:
                page.line((" ", ""), lead=lead)
            else:
                page.blank()
            page.line(
                (f"{line.file}:{line.line}  ", "file"),
                (line.text, "source"),
                lead=lead,
                rest=lead,
                hang=4,
            )
        elif line.kind == "mark":
            page.line((f"── {line.text}", "mark"), lead=lead, rest=lead, hang=3)
        else:
            _statement(page, line, f"{line.line:>{digits}}  ", bars, accesses)


def _statement(
    page: Page,
    line: doc.ListingLine,
    number: str,
    bars: str,
    accesses: dict[int, list[str]],
) -> None:
    """An instruction or another line of PTX, its notes beside it or beneath."""
    lead: list[Segment] = [(number, "dim"), (bars, "loop")]
    rest: list[Segment] = [(" " * len(number), ""), (bars, "loop")]
    text = ("" if line.kind == "label" else "  ") + shortened(line.text)
    style = "dim" if line.kind in _QUIET_KINDS else "bad" if line.kind == "opaque" else ""
    is_access = any(opcode in line.text for opcode in accesses.get(line.line, ()))
    segments: list[Segment] = [(text, "memory" if is_access else style)]
    note = f"   // {line.notes[0]}" if len(line.notes) == 1 else ""
    note_style = "tensor" if note.endswith("// tensor core") else "note"
    if note and page.fits(number, bars, text, note):
        page.line(*segments, (note, note_style), lead=lead)
        return
    page.line(*segments, lead=lead, rest=rest, hang=6)
    beneath: list[Segment] = [*rest, ("      ", "")]
    for index, note in enumerate(line.notes):
        page.line((note, "address" if index else note_style), lead=beneath, rest=beneath, hang=3)
