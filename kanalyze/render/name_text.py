"""``--explain``: a name with its parts underlined, and what each of them says."""

from __future__ import annotations

from kanalyze.profiles.describe import describe
from kanalyze.profiles.names import KernelName, NamePart, explain
from kanalyze.text.page import Page
from kanalyze.text.safe import escaped

_MOST = 20_000
"""Characters of a name that are shown."""
_LABEL_LINES = 3


def explained(names: list[KernelName], *, width: int = 100, color: bool = False) -> str:
    """Names, each with its parts underlined and numbered, and the parts in a list."""
    page = Page(width)
    for index, name in enumerate(names):
        if index:
            page.blank()
        _explain(page, name, max(20, width))
    return page.text(color)


def _explain(page: Page, name: KernelName, width: int) -> None:
    rows = explain(name)
    spans = sorted({(r.start, r.end) for r in rows if r.end > r.start})
    number = {span: i + 1 for i, span in enumerate(spans)}
    text = name.text
    if name.demangled is not None:
        page.line((name.name[:_MOST], "dim"), hang=2)
    shown, places = _shown(text[:_MOST])
    end_of_all = places[-1]
    for start in range(0, len(shown), width):
        end = min(len(shown), start + width)
        marks = [" "] * (end - start)
        labels = [[" "] * (end - start) for _ in range(_LABEL_LINES)]
        for span in spans:
            first, last = (places[min(p, len(places) - 1)] for p in span)
            for place in range(max(first, start), min(last, end)):
                marks[place - start] = "─"
            if start <= first < min(end, end_of_all):
                marks[first - start] = "├" if last - first > 1 else "│"
                _put(labels, first - start, str(number[span]))
        page.line((shown[start:end].replace(" ", "\N{NO-BREAK SPACE}"), "title"))
        for line in (marks, *labels):
            if any(c != " " for c in line):
                page.line(("".join(line).rstrip().replace(" ", "\N{NO-BREAK SPACE}"), "mark"))
    cut = "; the name is cut: what stands at the cut is not decoded" if name.truncated else ""
    page.line((f"family {name.family}{cut}", "label"), hang=2)
    if name.demangled is not None:
        page.line(("demangled", "label"), hang=2)
    for row in rows:
        value = _value(row)
        label = number.get((row.start, row.end))
        lead = f"{label if label is not None else '-':>4}  "
        if row.key == "unknown":
            page.line((row.text, "title"), ("  not decoded: ", "warn"), (row.meaning, ""),
                      lead=[(lead, "mark")], hang=2)  # fmt: skip
            continue
        page.line(
            (f"{row.key} = {value}", "title"),
            (f"  {row.meaning}" if row.meaning else "", ""),
            (f"  ({row.basis})", "dim"),
            lead=[(lead, "mark")],
            hang=2,
        )
    if not rows:
        page.line(("no grammar accepts this name: nothing is decoded", "warn"), hang=2)
    says = describe(name)
    if says:
        page.line((says, ""), lead=[("  = ", "note")], hang=2)
    for remark in name.remarks:
        page.line((remark, ""), lead=[("    ", "")], hang=2)


def _value(row: NamePart) -> object:
    """A value as it is shown; what each argument was specialised to has its index in front."""
    if not isinstance(row.value, tuple):
        return row.value
    if row.key == "specialization":
        return " ".join(f"{index}:{mark or '-'}" for index, mark in enumerate(row.value))
    return "+".join(row.value)


def _put(lines: list[list[str]], place: int, text: str) -> None:
    """A number under its part, on the first line where there is room."""
    for labels in lines:
        room = labels[place : place + len(text) + 1]
        before = labels[place - 1] if place else " "
        if len(room) >= len(text) and all(c == " " for c in room) and before == " ":
            labels[place : place + len(text)] = list(text)
            return


def _shown(text: str) -> tuple[str, list[int]]:
    """The text with hostile characters escaped, and where each character went."""
    if text.isprintable():
        return text, list(range(len(text) + 1))
    parts, places, place = [], [], 0
    for character in text:
        part = escaped(character)
        parts.append(part)
        places.append(place)
        place += len(part)
    return "".join(parts), [*places, place]
