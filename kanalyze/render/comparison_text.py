"""Launches side by side as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from kanalyze.results import comparison as doc
from kanalyze.text.numbers import bound_name, decimal, engineering, extents, giga, tera, whole
from kanalyze.text.page import NBSP, Page
from kanalyze.text.table import Columns

_SIDES = "AB"
_UNKNOWN = "?"
_ESTIMATES = "L2, HBM and time are estimates, see 'kanalyze traffic'"


def _bytes(value: float | None) -> str:
    return _UNKNOWN if value is None else f"{engineering(value)}B"


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else decimal(value)


def _rate(value: float | None, unit: str) -> str:
    return _UNKNOWN if value is None else f"{engineering(value)}{unit}"


_SWEPT: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("distinct bytes", "compulsory_bytes", _bytes),
    ("HBM bytes", "dram_bytes", _bytes),
    ("time, µs", "predicted_us", _number),
)
_COUNTED = ("launches", "flops", "compulsory_bytes", "l1_bytes")
_ROWS: tuple[tuple[str, str, Callable[[float | None], str]], ...] = (
    ("launches", "launches", lambda v: _UNKNOWN if v is None else whole(v)),
    ("operations", "flops", lambda v: _rate(v, "flop")),
    ("distinct bytes", "compulsory_bytes", _bytes),
    ("asked of L1", "l1_bytes", _bytes),
    ("between L2 and SMs", "l2_bytes", _bytes),
    ("HBM read", "dram_read_bytes", _bytes),
    ("HBM written", "dram_write_bytes", _bytes),
    ("HBM bytes", "dram_bytes", _bytes),
    ("time, µs", "predicted_us", _number),
)


def render(comparison: doc.Comparison, *, width: int = 100, color: bool = False) -> str:
    """The comparison as text.

    Args:
        comparison: what `kanalyze.analysis.versus.compare` returned.
        width: columns; longer lines are wrapped.
        color: whether to use ANSI colours.
    """
    page = Page(width)
    _ComparisonReport(page, comparison).show()
    return page.text(color)


class _ComparisonReport:
    def __init__(self, page: Page, comparison: doc.Comparison):
        self.page = page
        self.comparison = comparison
        self.two = len(comparison.sides) > 1
        self.swept = [row for row in _SWEPT if comparison.estimated or row[1] in _COUNTED]

    def show(self) -> None:
        """Add all of it."""
        self._head()
        if self.comparison.over is None:
            self._metrics()
        elif self.two:
            self._both()
        else:
            self._one()
        if self.two and self.comparison.estimated:
            self._steps()
        self._rest()

    def table(self, heads: Sequence[str], lines: Sequence[Sequence[str]], last: str = "") -> None:
        """Right-aligned columns; a column named ``last`` is left-aligned text behind them."""
        cut = len(heads) - bool(last)
        columns = Columns(heads[:cut], [line[:cut] for line in lines])
        shown = columns.fitting(self.page.width - (20 if last else 0))
        self.page.line((columns.head(shown) + (f"  {last}" if last else ""), "label"))
        for line in lines:
            lead = [(columns.line(line[:cut], shown) + ("  " if last else ""), "")]
            self.page.line((line[-1] if last else "", ""), lead=lead, hang=2)

    # ------------------------------------------------------------ parts

    def _head(self) -> None:
        comparison, page = self.comparison, self.page
        page.rule()
        device = comparison.device or "device unknown"
        about = " · ".join(t for t in (device, comparison.dtype) if t)
        page.line((comparison.sides[0], "title"), (f"   {about}", ""), hang=2)
        page.rule()
        if comparison.settings:
            given = ", ".join(f"{n}{NBSP}={NBSP}{v}" for n, v in comparison.settings.items())
            self.page.row("shape", (given, ""))
        if not self.two:
            return
        for letter, name, summary, side in zip(
            _SIDES, comparison.sides, comparison.summaries, comparison.points[0].sides, strict=False
        ):
            number = side.totals.launches
            text = f": {summary}" if summary else ""
            more = f", {number}{NBSP}launches" if number > 1 else ""
            self.page.row(letter, (name, "title"), (f"{text}{more}", ""))

    def _metrics(self) -> None:
        point = self.comparison.points[0]
        sides = point.sides
        self.page.blank()
        lines = []
        for label, name, shown in _ROWS:
            if not self.comparison.estimated and name not in _COUNTED:
                continue
            values = [getattr(side.totals, name) for side in sides]
            lines.append([f"{label:<18}", *(shown(v) for v in values), *self._ratio(point, name)])
        self.table([" " * 18, *_SIDES[: len(sides)], *(["B / A"] if self.two else [])], lines)

    def _ratio(self, point: doc.Point, name: str) -> list[str]:
        if not self.two:
            return []
        ratio = point.ratios[name]
        if ratio is not None:
            return [decimal(ratio)]
        unknown = any(getattr(side.totals, name) is None for side in point.sides)
        return [_UNKNOWN if unknown else "-"]

    def _both(self) -> None:
        comparison = self.comparison
        heads = [comparison.over or ""]
        for _ in self.swept:
            heads += ["A", "B", "B / A"]
        lines = []
        for point in comparison.points:
            cells = [str(point.value)]
            for _, name, shown in self.swept:
                values = [getattr(side.totals, name) for side in point.sides]
                cells += [*(shown(v) for v in values), *self._ratio(point, name)]
            lines.append(cells)
        lines += self._growth()
        columns = Columns(heads, lines)
        first = columns.widths[0]
        groups = [sum(columns.widths[i : i + 3]) + 4 for i in range(1, len(heads), 3)]
        above = "  ".join(
            f"{label:^{size}}" for (label, _, _), size in zip(self.swept, groups, strict=True)
        )
        self.page.blank()
        self.page.line((" " * (first + 2) + above.rstrip(), "label"))
        self.table(heads, lines)
        self._basis()

    def _growth(self) -> list[list[str]]:
        comparison = self.comparison
        by_name = {growth.quantity: growth.exponents for growth in comparison.growth}
        if not by_name:
            return []
        cells = [f"~ {comparison.over}^"]
        for _, name, _ in self.swept:
            exponents = by_name[name]
            cells += [_UNKNOWN if e is None else f"{e:.2f}" for e in exponents]
            if self.two:
                cells.append("")
        return [cells]

    def _basis(self) -> None:
        for growth in self.comparison.growth[:1]:
            text = f"the last row: exponents of {self.comparison.over} between "
            self.page.line((f"{text}{growth.from_value} and {growth.to_value}", "dim"))

    def _one(self) -> None:
        comparison = self.comparison
        heads = [comparison.over or "", "distinct bytes", "HBM read", "HBM written", "time, µs",
                 "flop/s", "HBM B/s", "bound by"]  # fmt: skip
        lines = []
        for point in comparison.points:
            total, step = point.sides[0].totals, point.sides[0].steps[0]
            lines.append(
                [
                    str(point.value),
                    _bytes(total.compulsory_bytes),
                    _bytes(total.dram_read_bytes),
                    _bytes(total.dram_write_bytes),
                    _number(total.predicted_us),
                    _UNKNOWN if step.tflops is None else tera(step.tflops),
                    _UNKNOWN if step.hbm_gb_per_s is None else giga(step.hbm_gb_per_s),
                    bound_name(step.bound_by),
                ]
            )
        for label, distinct, *rest in self._growth():
            lines.append([label, distinct, "", "", rest[-1] if rest else "", "", "", ""])
        self.page.blank()
        if comparison.estimated:
            self.table(heads, lines, "bound by")
        else:
            self.table(heads[:2], [line[:2] for line in lines])
        self._basis()

    def _steps(self) -> None:
        """The launches of both sides, at the last value."""
        comparison = self.comparison
        point = comparison.points[-1]
        at = "" if comparison.over is None else f" at {comparison.over} = {point.value}"
        lines = []
        for letter, side in zip(_SIDES, point.sides, strict=False):
            for step in side.steps:
                times = f"{step.launches} x " if step.launches > 1 else ""
                read = _bytes(step.dram_read_bytes)
                if step.dram_read_interval:
                    low, high = step.dram_read_interval[0], step.dram_read_interval[-1]
                    read = f"{_bytes(low)} to {_bytes(high)}"
                lines.append(
                    [
                        letter,
                        extents(step.grid),
                        read,
                        _bytes(step.dram_write_bytes),
                        _number(step.predicted_us),
                        f"{bound_name(step.bound_by)}: {times}{step.what}",
                    ]
                )
        self.page.blank()
        self.page.line((f"launches{at}", "title"))
        heads = ["", "grid", "HBM read", "HBM written", "time, µs", "bound by: what"]
        self.table(heads, lines, "bound by: what")

    def _rest(self) -> None:
        comparison = self.comparison
        if comparison.assumptions or comparison.unknown:
            self.page.blank()
        label = "assumed"
        first = (_ESTIMATES,) if comparison.estimated else ()
        for text in (*first, *comparison.assumptions):
            self.page.row(label, (text, ""))
            label = ""
        label = "unknown"
        for reason in dict.fromkeys(u.reason for u in comparison.unknown if comparison.estimated):
            self.page.row(label, (reason, "warn"))
            label = ""
