"""The estimate for one launch as text. It computes nothing but sums and ratios of what is given."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kanalyze.render import findings_text, traffic_bytes_text, traffic_time_text
from kanalyze.render import traffic_rows as table
from kanalyze.render.traffic_rows import Row
from kanalyze.results import traffic as doc
from kanalyze.text.numbers import extents, human, percent, plural, whole
from kanalyze.text.page import NBSP, Page, Segment

_LABEL = 11
_TEXT_ROOM = 26  # columns that a table leaves for text, at least
_COUNTERS = (
    ("global_load", "loads"),
    ("global_store", "stores"),
    ("global_atomic", "atomics"),
    ("global_reduction", "reductions"),
    ("bulk_load", "bulk loads"),
    ("bulk_store", "bulk stores"),
    ("bulk_reduction", "bulk reductions"),
)
_ALSO = {"load": ("async_copy",)}


def render(
    traffic: doc.Traffic, *, width: int = 100, color: bool = False, every: bool = False
) -> str:
    """The estimate as text.

    Args:
        traffic: what `kanalyze.estimate` returned.
        width: columns; longer lines are wrapped.
        color: whether to use ANSI colours.
        every: a row for each instruction; else alike ones of a source line share one.
    """
    page = Page(width)
    _Report(page, traffic, every).show()
    return page.text(color)


class _Report:
    def __init__(self, page: Page, traffic: doc.Traffic, every: bool):
        self.page = page
        self.traffic = traffic
        self.reasons = {unknown.field: unknown.reason for unknown in traffic.unknown}
        self.said: set[str] = set()
        self.rows = table.rows(traffic.accesses, every)

    def show(self) -> None:
        """Add all of it."""
        traffic, page = self.traffic, self.page
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

    def row(self, label: str, *segments: Segment) -> None:
        """A labelled row."""
        self.page.line(*segments, lead=[(f"{label:<{_LABEL}} ", "label")], hang=2)

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
            self.row("accesses", (text, "warn"))
            return
        full = analysed.accesses == analysed.of
        style = "good" if full else "bad" if analysed.accesses == 0 else "warn"
        less = "" if full else ": totals that need the others are unknown, not less"
        self.row(
            "accesses",
            (f"{analysed.accesses} of {analysed.of} accesses evaluated", style),
            (less, ""),
        )

    def _launch(self) -> None:
        traffic = self.traffic
        blocks, threads = table.product(traffic.grid), table.product(traffic.block)
        warps = -(-threads // 32)
        self.row(
            "launch",
            (f"grid {extents(traffic.grid)}", "title"),
            (", ", ""),
            (f"block {extents(traffic.block)}", "title"),
            (
                f": {plural(blocks, 'block')} of {plural(threads, 'thread')} = "
                f"{plural(warps, 'warp')}",
                "",
            ),
        )
        if traffic.arguments:
            given = ", ".join(f"{name}{NBSP}={NBSP}{v}" for name, v in traffic.arguments.items())
            self.row("", (given, ""))

    def _occupancy(self) -> None:
        found = self.traffic.occupancy
        if found is None:
            self.row("occupancy", self.unknown("occupancy"))
            return
        self.row(
            "occupancy",
            (f"{percent(found.percent)}", "good" if found.percent >= 50 else "warn"),
            (
                f": {plural(found.blocks_per_sm, 'block')} = "
                f"{plural(found.warps_per_sm, 'warp')} per SM, limited by {found.limited_by}",
                "",
            ),
        )
        registers, size = self.traffic.registers_per_thread, self.traffic.shared_bytes
        needs = [f"{registers} registers per thread" if registers is not None else ""]
        needs += [f"{whole(size)} B of shared memory per block" if size is not None else ""]
        limits = ", ".join(f"{n} {whole(m)}" for n, m in found.limits.items() if m is not None)
        used = ", ".join(n for n in needs if n)
        self.row("", (f"{used}; blocks that fit: {limits}" if used else limits, "dim"))
        for text in found.better:
            self.row("", (f"next: {text}", ""))

    def _waves(self) -> None:
        found = self.traffic.waves
        if found is None:
            self.row("waves", self.unknown("waves"))
            return
        idle = found.idle_share
        self.row(
            "waves",
            (f"{found.waves:,.2f}", "title"),
            (f": {plural(found.blocks_per_wave, 'block')} at a time; the last wave has ", ""),
            (f"{whole(found.last_wave_blocks)}, {percent(100 * idle)} idle", ""),
        )

    # ------------------------------------------------------------ totals

    def _totals(self) -> None:
        self.page.blank()
        self._total_table("global", "sectors", _COUNTERS)
        self._shared_totals()

    def _total_table(self, space: str, unit: str, counters: Sequence[tuple[str, str]]) -> None:
        counts = self.traffic.counters
        lines: list[tuple[list[str], list[Segment]]] = []
        for name, label in counters:
            requests, sectors = (counts.get(f"{name}_{what}") for what in ("requests", unit))
            if name.startswith("bulk"):
                requests = table.added(a.requests for a in self._group(name))
            if requests == 0 and sectors == 0 and label not in ("loads", "stores"):
                continue
            cells = table.totals(requests, sectors, self._ideal_of(name))
            text: list[Segment] = [(label, "memory")]
            for what, value in (("requests", requests), (unit, sectors)):
                field = f"counters.{name}_{what}"
                if value is None and what == unit:
                    text += [(": ", ""), self.unknown(field)]
                elif value is None:
                    self.said.add(field)
                elif what == unit:
                    text += self._interval(f"{name}_{what}")
            lines.append((cells, text))
        self._table(space, ["requests", unit, "per request", "ideal", "efficiency"], lines)

    def _ideal_of(self, name: str) -> int | None:
        ideal = table.added(a.ideal_cost for a in self._group(name))
        sectors = self.traffic.counters.get(f"{name}_sectors")  # fewer where loads are merged
        return ideal if ideal is None or sectors is None else min(ideal, sectors)

    def _group(self, name: str) -> list[doc.AccessCounts]:
        """The accesses that a counter is the sum of."""
        space, _, kind = name.partition("_")
        bulk = space == "bulk"
        kinds = (f"bulk_{kind}", kind) if bulk else (kind, *_ALSO.get(kind, ()))
        return [
            a
            for a in self.traffic.accesses
            if a.space == ("global" if bulk else space)
            and a.kind in kinds
            and bulk == (a.opcode.startswith("cp.") and ".bulk" in a.opcode)
        ]

    def _interval(self, name: str) -> list[Segment]:
        """The range of a counter, where it depends on what cannot be known."""
        bounds = self.traffic.interval.get(name)
        if not bounds or min(bounds) == max(bounds):
            return []
        return [(f", an estimate: {whole(min(bounds))} to {whole(max(bounds))}", "warn")]

    def _shared_totals(self) -> None:
        shared = [a for a in self.traffic.accesses if a.space == "shared"]
        if not shared:
            self.row("shared", ("no accesses", "dim"))
            return
        lines: list[tuple[list[str], list[Segment]]] = []
        for kind in ("load", "store"):
            field = f"counters.shared_{kind}_wavefronts"
            some = [a for a in shared if a.kind == kind]
            wavefronts = table.added(a.cost for a in some)
            requests = table.added(a.requests for a in some)
            ideal = self._ideal_of(f"shared_{kind}")
            text: list[Segment] = [(f"{kind}s", "memory")]
            if wavefronts is None:
                text += [(": ", ""), self.unknown(field)]
            lines.append((table.shared_totals(requests, wavefronts, ideal), text))
        self._table(
            "shared", ["requests", "wavefronts", "per request", "ideal", "conflicts"], lines
        )

    def _more_counters(self) -> None:
        """Counters that no table above holds."""
        shown = ("global_", "shared_", "bulk_")
        for name, value in self.traffic.counters.items():
            if value is None or name.startswith(shown) or name in traffic_time_text.NAMES:
                continue
            text = human(value) if name.endswith("_bytes") else whole(value)
            bounds = self.traffic.interval.get(name)
            if bounds:
                text += f" (between {whole(min(bounds))} and {whole(max(bounds))})"
            label = name.removesuffix("_bytes").replace("_", " ")
            self.row("", (f"{label}: ", ""), (text, "title"))

    def _table(
        self, label: str, heads: Sequence[str], lines: Sequence[tuple[list[str], list[Segment]]]
    ) -> None:
        """Numbers in columns, text behind them; at narrow widths the last columns are left out."""
        grid = table.Columns(heads, [cells for cells, _ in lines])
        shown = grid.fitting(self.page.width - _LABEL - 1 - _TEXT_ROOM)
        lead = f"{label:<{_LABEL}} "
        self.page.line((grid.head(shown), "label"), lead=[(lead, "label")])
        for cells, text in lines:
            self.page.line(*text, lead=[(" " * len(lead) + grid.line(cells, shown) + "  ", "")])

    # ------------------------------------------------------------ bytes and operations

    def _moved(self) -> None:
        """Bytes, operations and branches; caches and time."""
        self.page.blank()
        for label, segments in traffic_bytes_text.lines(self.traffic, self.unknown):
            self.row(label, *segments)
        self.page.blank()
        for label, segments in traffic_time_text.lines(self.traffic, self.unknown):
            self.row(label, *segments)

    def _findings(self) -> None:
        self.page.blank()
        analysed = self.traffic.analysed
        findings_text.add(self.page, self.traffic.findings, analysed.accesses, analysed.of, _LABEL)

    # ------------------------------------------------------------ accesses

    def _accesses(self) -> None:
        titles = (
            ("global", ["requests", "sectors", "per req.", "ideal", "eff."]),
            ("shared", ["requests", "wavefr.", "per req.", "ideal", "worst"]),
            ("other", ["requests"]),
        )
        for space, heads in titles:
            rows = [row for row in self.rows if row.table == space]
            if not rows:
                continue
            count = sum(row.number for row in rows)
            done = sum(row.number for row in rows if row.requests is not None)
            self.page.blank()
            head = f"{space} memory" if space != "other" else "other memory, not evaluated"
            self.page.line(
                (head, "title"),
                (f"   {done} of {count} accesses evaluated, in source order", "dim"),
            )
            self._access_table(rows, heads, table.CELLS[space])

    def _access_table(
        self, rows: Sequence[Row], heads: Sequence[str], cells_of: Callable[[Row], list[str]]
    ) -> None:
        cells = [cells_of(row) for row in rows]
        grid = table.Columns(heads, cells)
        shown = grid.fitting(self.page.width - _TEXT_ROOM)
        self.page.line((grid.head(shown), "label"))
        place: object = ()
        for row, line in zip(rows, cells, strict=True):
            if row.place != place:
                place = row.place
                self.page.line(*_source(row), hang=4)
            missing = row.requests is None
            style = "bad" if missing else "warn" if row.wasteful else ""
            self.page.line(*_words(row), lead=[(grid.line(line, shown) + "  ", style)], hang=2)
            if missing:
                self.page.line(
                    (f"not evaluated: {row.reason or 'no reason'}", "bad"),
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
                self.row(label if index == 0 else "", (text, "dim"))

    def _unknown(self) -> list[str]:
        """The fields that are not known and stand nowhere above, by reason."""
        by_reason: dict[str, list[str]] = {}
        for unknown in self.traffic.unknown:
            if unknown.field not in self.said and not unknown.field.startswith("accesses["):
                name = unknown.field.removeprefix("counters.").removesuffix("_us")
                name = name.replace("_", " ").replace(".", " ")
                by_reason.setdefault(unknown.reason, []).append(name)
        return [f"{', '.join(names)}: {reason}" for reason, names in by_reason.items()]


def _source(row: Row) -> list[Segment]:
    if row.source is None:
        return [("no source line", "dim")]
    place = f"{row.source.file}:{row.source.line}"
    return [(place, "file"), (f"  {row.source_text}" if row.source_text else "", "source")]


def _words(row: Row) -> Iterable[Segment]:
    times = f"{row.number} × " if row.number > 1 else ""
    yield (f"{times}{row.opcode}".replace(" ", NBSP), "memory")
    if row.pointer is not None:
        yield (f" {row.pointer}", "address")
    yield (f", {row.lines}", "dim")
    if row.stage is not None:
        yield (f", {'prologue' if row.stage == 'prologue' else 'in the loop (steady)'}", "loop")
    elif row.loop_depth:
        yield (", in a loop" if row.loop_depth == 1 else f", {row.loop_depth} loops deep", "loop")
    if row.requests == 0:
        yield (", never executed", "warn")
    if row.pattern is not None and row.requests != 0:
        yield (f", {row.pattern}", "")
    if row.condition is not None:
        yield (f", if {row.condition}", "")
