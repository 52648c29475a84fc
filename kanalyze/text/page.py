"""Lines of styled text: wrapped with hanging indents, coloured where that is wanted.

Text is never read as markup, and characters that could steer a terminal become escapes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from rich.cells import cell_len
from rich.color import ColorSystem
from rich.style import Style

from kanalyze.text.safe import escaped

Segment = tuple[str, str]
"""A text and the name of its style in `STYLES`."""

STYLES = {
    "title": "bold",
    "label": "dim",
    "dim": "dim",
    "good": "green",
    "warn": "bold yellow",
    "bad": "bold red",
    "source": "bold cyan",
    "file": "cyan",
    "memory": "yellow",
    "tensor": "bold magenta",
    "note": "green",
    "address": "blue",
    "mark": "bold blue",
    "loop": "blue",
}
NBSP = "\N{NO-BREAK SPACE}"
"""Stands for a space at which a line is not broken."""

LABEL = 11
"""Columns of the labels at the left."""

_BREAK_AFTER = " ,;)*/"


class Page:
    """Collects lines of at most ``width`` columns, in sections of a name each."""

    def __init__(self, width: int):
        self.width = max(20, width)
        self._lines: list[tuple[str, list[Segment]]] = []
        self._section = ""

    def section(self, name: str) -> None:
        """Begin a section: the lines from here on belong to it."""
        self._section = name

    def blank(self) -> None:
        """An empty line; never two together, nor one at the top."""
        self._add([])

    def fits(self, *texts: str) -> bool:
        """Whether texts fit on one line."""
        return sum(cell_len(escaped(t)) for t in texts) <= self.width

    def rule(self, style: str = "dim") -> None:
        """A line across."""
        self._add([("─" * self.width, style)])

    def row(self, label: str, *segments: Segment) -> None:
        """Add text beside a label, which begins the section of its name; "" goes on with one."""
        if label:
            self.section(label)
        self.line(*segments, lead=[(f"{label:<{LABEL}} ", "label")], hang=2)

    def line(
        self,
        *segments: Segment,
        hang: int = 0,
        lead: Sequence[Segment] = (),
        rest: Sequence[Segment] | None = None,
    ) -> None:
        """Add text, wrapped where it is too long.

        Args:
            segments: the text.
            hang: by how much further lines are indented (behind ``rest``).
            lead: stands in front of the first line.
            rest: stands in front of further lines; spaces as wide as ``lead`` if left out.
        """
        lead = _safe(lead)
        taken = sum(cell_len(t) for t, _ in lead)
        after = _safe(rest) if rest is not None else [(" " * taken, "")]
        room = max(12, self.width - taken)
        hang = min(hang, room // 2)
        parts = _wrapped(_safe(segments), room, hang)
        for index, part in enumerate(parts):
            if index == 0:
                self._add([*lead, *part])
            else:
                self._add([*after, (" " * hang, ""), *part])

    def _add(self, line: list[Segment]) -> None:
        self._lines.append((self._section, line))

    def text(self, color: bool, sections: Collection[str] = ()) -> str:
        """The lines as text, with ANSI colours or without.

        Args:
            color: whether to use ANSI colours.
            sections: the names of the sections that are wanted; all lines where empty.
        """
        lines: list[list[Segment]] = []
        for section, line in self._lines:
            wanted = not sections or section in sections
            if wanted and (line or (lines and lines[-1])):
                lines.append(line)
        if lines and not lines[-1]:
            lines.pop()
        shown = _colored if color else _plain
        return "".join(shown(line) + "\n" for line in lines).replace(NBSP, " ")


def _safe(segments: Iterable[Segment]) -> list[Segment]:
    return [(escaped(t.replace("\t", "    "), NBSP), style) for t, style in segments if t]


def _plain(line: Iterable[Segment]) -> str:
    return "".join(text for text, _ in line).rstrip()


def _colored(line: Iterable[Segment]) -> str:
    return "".join(
        Style.parse(STYLES[style]).render(text, color_system=ColorSystem.STANDARD)
        if style and text.strip()
        else text
        for text, style in line
    )


def _wrapped(segments: list[Segment], room: int, hang: int) -> list[list[Segment]]:
    """Break segments into lines of ``room`` columns (``room - hang`` from the second on)."""
    text = "".join(t for t, _ in segments)
    if cell_len(text) <= room:
        return [segments]
    cuts: list[int] = []
    start = 0
    while True:
        limit = room if not cuts else room - hang
        end = _fitting(text, start, limit)
        if end >= len(text):
            break
        cut = max((text.rfind(c, start + limit // 3, end) + 1 for c in " "), default=0)
        if cut <= start:
            cut = max(text.rfind(c, start + limit // 3, end) + 1 for c in _BREAK_AFTER)
        if cut <= start:
            cut = end
        while cut < len(text) and text[cut] == " ":
            cut += 1
        cuts.append(cut)
        start = cut
    return _cut(segments, [*cuts, len(text)])


def _fitting(text: str, start: int, limit: int) -> int:
    """The end of the longest piece from ``start`` that takes at most ``limit`` columns."""
    end = min(len(text), start + limit)
    while end > start + 1 and cell_len(text[start:end]) > limit:
        end -= 1
    return end


def _cut(segments: list[Segment], cuts: list[int]) -> list[list[Segment]]:
    lines: list[list[Segment]] = [[]]
    position = 0
    for text, style in segments:
        while text:
            take = cuts[len(lines) - 1] - position
            lines[-1].append((text[:take], style))
            position += min(take, len(text))
            text = text[take:]
            if position == cuts[len(lines) - 1] and len(lines) < len(cuts):
                lines.append([])
    return [_stripped(line) for line in lines if line]


def _stripped(line: list[Segment]) -> list[Segment]:
    """The line without spaces at its end, which may stand beyond the last column."""
    while line and not line[-1][0].strip(" "):
        line = line[:-1]
    return [*line[:-1], (line[-1][0].rstrip(" "), line[-1][1])] if line else []
