"""The estimate for one launch as text."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kanalyze.render import findings_text, traffic_bytes_text, traffic_rows_text, traffic_time_text
from kanalyze.results import traffic as doc
from kanalyze.text.numbers import extents, human, percent, percent_of, plural, whole
from kanalyze.text.page import LABEL, NBSP, Page, Segment
from kanalyze.text.table import Columns

_TEXT_ROOM = 26  # columns that a table leaves for text, at least
SECTIONS = (
    "kernel", "accesses", "launch", "occupancy", "waves", "global", "shared", "counters", "bytes",
    "by threads", "operations", "intensity", "branches", "estimates", "caches", "time", "measured",
    "roofline", "findings", "global memory", "shared memory", "other memory", "assumed", "unknown",
)  # fmt: skip
"""The sections of the text: its labels at the left, and parts without one."""
_LABELS = {
    "global_load": "loads",
    "global_store": "stores",
    "global_atomic": "atomics",
    "global_reduction": "reductions",
    "bulk_load": "bulk loads",
    "bulk_store": "bulk stores",
    "bulk_reduction": "bulk reductions",
    "shared_load": "loads",
    "shared_store": "stores",
}


def render(
    traffic: doc.Traffic,
    *,
    width: int = 100,
    color: bool = False,
    every: bool = False,
    sections: Collection[str] = (),
) -> str:
    """The estimate as text.

    Args:
        traffic: what `kanalyze.estimate` returned.
        width: columns; longer lines are wrapped.
        color: whether to use ANSI colours.
        every: a row for each instruction; else alike ones of a source line share one.
        sections: only these of `SECTIONS`; all where empty.
    """
    page = Page(width)
    _TrafficReport(page, traffic, every).show()
    return page.text(color, sections)


class _TrafficReport:
    def __init__(self, page: Page, traffic: doc.Traffic, every: bool):
        self.page = page
        self.traffic = traffic
        self.reasons = {unknown.field: unknown.reason for unknown in traffic.unknown}
        self.said: set[str] = set()
        alone = doc.access_rows(traffic.accesses, every=True) if every else None
        self.rows = traffic.access_rows if alone is None else alone

    def show(self) -> None:
        """Add all of it."""
        traffic, page = self.traffic, self.page
        page.section("kernel")
        page.rule()
        page.line(
            (traffic.kernel, "title"),
            (f"   {traffic.device or 'device unknown'} · ", ""),
            (traffic.file, "file"),
            hang=2,
        )
        page.rule()
        self._evaluated()
        self._launch()
        self._occupancy()
        self._waves()
        self._totals()
        self._more_counters()
        self._moved()
        self._findings()
        self._accesses()
        self._rest()

    def unknown(self, field: str) -> Segment:
        """That a field is unknown, and why."""
        self.said.add(field)
        reason = self.reasons.get(field)
        return (f"unknown ({reason})" if reason else "unknown", "warn")

    # ------------------------------------------------------------ launch

    def _evaluated(self) -> None:
        analysed = self.traffic.analysed
        if analysed.of == 0:
            text = "0 of 0 accesses evaluated: the kernel accesses no memory but its arguments"
            self.page.row("accesses", (text, "warn"))
            return
        full = analysed.accesses == analysed.of
        style = "good" if full else "bad" if analysed.accesses == 0 else "warn"
        less = "" if full else ": totals that need the others are unknown, not less"
        self.page.row(
            "accesses",
            (f"{analysed.accesses} of {analysed.of} accesses evaluated", style),
            (less, ""),
        )

    def _launch(self) -> None:
        traffic = self.traffic
        self.page.row(
            "launch",
            (f"grid {extents(traffic.grid)}", "title"),
            (", ", ""),
            (f"block {extents(traffic.block)}", "title"),
            (
                f": {plural(traffic.blocks, 'block')} of "
                f"{plural(traffic.threads_per_block, 'thread')} = "
                f"{plural(traffic.warps_per_block, 'warp')}",
                "",
            ),
        )
        if traffic.arguments:
            given = ", ".join(f"{name}{NBSP}={NBSP}{v}" for name, v in traffic.arguments.items())
            self.page.row("", (given, ""))

    def _occupancy(self) -> None:
        occupancy = self.traffic.occupancy
        if occupancy is None:
            self.page.row("occupancy", self.unknown("occupancy"))
            return
        self.page.row(
            "occupancy",
            (f"{percent(occupancy.percent)}", "good" if occupancy.percent >= 50 else "warn"),
            (
                f": {plural(occupancy.blocks_per_sm, 'block')} = "
                f"{plural(occupancy.warps_per_sm, 'warp')} per SM, "
                f"limited by {occupancy.limited_by}",
                "",
            ),
        )
        registers, size = self.traffic.registers_per_thread, self.traffic.shared_bytes
        needs = [f"{registers} registers per thread" if registers is not None else ""]
        needs += [f"{whole(size)} B of shared memory per block" if size is not None else ""]
        limits = ", ".join(f"{n} {whole(m)}" for n, m in occupancy.limits.items() if m is not None)
        used = ", ".join(n for n in needs if n)
        self.page.row("", (f"{used}; blocks that fit: {limits}" if used else limits, "dim"))
        for text in occupancy.better:
            self.page.row("", (f"next: {text}", ""))

    def _waves(self) -> None:
        waves = self.traffic.waves
        if waves is None:
            self.page.row("waves", self.unknown("waves"))
            return
        self.page.row(
            "waves",
            (f"{waves.waves:,.2f}", "title"),
            (f": {plural(waves.blocks_per_wave, 'block')} at a time; the last wave has ", ""),
            (f"{whole(waves.last_wave_blocks)}, {percent_of(waves.idle_share)} idle", ""),
        )

    # ------------------------------------------------------------ totals

    def _totals(self) -> None:
        self.page.blank()
        totals = self.traffic.access_totals
        fates = [a.fate for a in self.traffic.accesses if a.space in ("global", "shared")]
        alone = [] if any(fates) or not fates else [(", of the PTX alone", "warn")]
        lines: list[tuple[list[str], list[Segment]]] = []
        for total in totals:
            label = _LABELS[total.name]
            if total.name.startswith("shared_"):
                continue
            if total.requests == 0 == total.cost and label not in ("loads", "stores"):
                continue
            text: list[Segment] = [(label, "memory"), *alone]
            if total.requests is None:
                self.said.add(f"counters.{total.name}_requests")
            if total.cost is None:
                text += [(": ", ""), self.unknown(f"counters.{total.name}_sectors")]
            else:
                text += self._interval(f"{total.name}_sectors")
            text += _no_ideal(total)
            lines.append((traffic_rows_text.global_cells(total), text))
        heads = ["requests", "sectors", "per request", "ideal", "efficiency"]
        self._table("global", heads, lines)
        if not any(a.space == "shared" for a in self.traffic.accesses):
            self.page.row("shared", ("no accesses", "dim"))
            return
        lines = []
        for total in totals:
            if total.name.startswith("shared_"):
                text = [(_LABELS[total.name], "memory"), *alone]
                if total.cost is None:
                    text += [(": ", ""), self.unknown(f"counters.{total.name}_wavefronts")]
                text += _no_ideal(total)
                lines.append((traffic_rows_text.shared_total_cells(total), text))
        heads = ["requests", "wavefronts", "per request", "ideal", "conflicts"]
        self._table("shared", heads, lines)

    def _interval(self, name: str) -> list[Segment]:
        """The range of a counter, where it depends on what cannot be known."""
        bounds = self.traffic.interval.get(name)
        if not bounds or bounds[0] == bounds[-1]:
            return []
        return [(f", an estimate: {whole(bounds[0])} to {whole(bounds[-1])}", "warn")]

    def _more_counters(self) -> None:
        """Counters that no table above holds."""
        self.page.section("counters")
        shown = ("global_", "shared_", "bulk_")
        for name, value in self.traffic.counters.items():
            if value is None or name.startswith(shown) or name in traffic_time_text.NAMES:
                continue
            text = human(value) if name.endswith("_bytes") else whole(value)
            bounds = self.traffic.interval.get(name)
            if bounds:
                text += f" (between {whole(bounds[0])} and {whole(bounds[-1])})"
            label = name.removesuffix("_bytes").replace("_", " ")
            self.page.row("", (f"{label}: ", ""), (text, "title"))

    def _table(
        self, label: str, heads: Sequence[str], lines: Sequence[tuple[list[str], list[Segment]]]
    ) -> None:
        """Numbers in columns, text behind them; at narrow widths the last columns are left out."""
        grid = Columns(heads, [cells for cells, _ in lines])
        shown = grid.fitting(self.page.width - LABEL - 1 - _TEXT_ROOM)
        lead = f"{label:<{LABEL}} "
        self.page.section(label)
        self.page.line((grid.head(shown), "label"), lead=[(lead, "label")])
        for cells, text in lines:
            self.page.line(*text, lead=[(" " * len(lead) + grid.line(cells, shown) + "  ", "")])

    # ------------------------------------------------------------ bytes and operations

    def _moved(self) -> None:
        """Bytes, operations and branches; caches and time."""
        self.page.blank()
        for label, segments in traffic_bytes_text.lines(self.traffic, self.unknown):
            self.page.row(label, *segments)
        self.page.blank()
        for label, segments in traffic_time_text.lines(self.traffic, self.unknown):
            self.page.row(label, *segments)

    def _findings(self) -> None:
        self.page.blank()
        findings_text.add(self.page, self.traffic.findings, self.traffic.analysed)

    # ------------------------------------------------------------ accesses

    def _accesses(self) -> None:
        titles = (
            ("global", ["requests", "sectors", "per req.", "ideal", "eff."]),
            ("shared", ["requests", "wavefr.", "per req.", "ideal", "worst"]),
            ("other", ["requests"]),
        )
        accesses = self.traffic.accesses
        for space, heads in titles:
            here = [a for a in accesses if traffic_rows_text.table_of(a) == space]
            if not here:
                continue
            done = len([a for a in here if a.requests is not None])
            self.page.blank()
            self.page.section(f"{space} memory")
            head = f"{space} memory" if space != "other" else "other memory, not evaluated"
            self.page.line(
                (head, "title"),
                (f"   {done} of {len(here)} accesses evaluated, in source order", "dim"),
            )
            self._access_table(space, heads)

    def _access_table(self, space: str, heads: Sequence[str]) -> None:
        groups = [([self.traffic.accesses[i] for i in row.accesses], row) for row in self.rows]
        groups = [g for g in groups if traffic_rows_text.table_of(g[0][0]) == space]
        cells = [traffic_rows_text.row_cells(space, row) for _, row in groups]
        grid = Columns(heads, cells)
        shown = grid.fitting(self.page.width - _TEXT_ROOM)
        self.page.line((grid.head(shown), "label"))
        place: object = ()
        for (group, row), line in zip(groups, cells, strict=True):
            source = group[0].source
            here = None if source is None else (source.file, source.line)
            if here != place:
                place = here
                self.page.line(*_source(group[0]), hang=4)
            missing = row.requests is None
            style = "bad" if missing else "warn" if traffic_rows_text.is_wasteful(row) else ""
            lead = [(grid.line(line, shown) + "  ", style)]
            self.page.line(*traffic_rows_text.words(group, row), lead=lead, hang=2)
            if missing:
                self.page.line(
                    (f"not evaluated: {group[0].reason or 'no reason'}", "bad"),
                    lead=[(" " * (grid.width(shown) + 4), "")],
                )

    # ------------------------------------------------------------ what is not known

    def _rest(self) -> None:
        for label, texts in (
            ("assumed", list(self.traffic.assumptions)),
            ("unknown", self._unknown()),
        ):
            if texts:
                self.page.blank()
            for index, text in enumerate(texts):
                self.page.row(label if index == 0 else "", (text, "dim"))

    def _unknown(self) -> list[str]:
        """The fields that are not known and stand nowhere above, by reason."""
        by_reason: dict[str, list[str]] = {}
        for unknown in self.traffic.unknown:
            if unknown.field not in self.said and not unknown.field.startswith("accesses["):
                name = unknown.field.removeprefix("counters.").removesuffix("_us")
                name = name.replace("_", " ").replace(".", " ")
                by_reason.setdefault(unknown.reason, []).append(name)
        return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _no_ideal(total: doc.AccessTotal) -> list[Segment]:
    """Why the ideal cost is not known, unless the cost is not known either."""
    if total.reason is None or total.cost is None:
        return []
    return [(": ideal ", ""), (f"unknown ({total.reason})", "warn")]


def _source(access: doc.AccessCounts) -> list[Segment]:
    if access.source is None:
        return [("no source line", "dim")]
    place = f"{access.source.file}:{access.source.line}"
    return [(place, "file"), (f"  {access.source_text}" if access.source_text else "", "source")]
