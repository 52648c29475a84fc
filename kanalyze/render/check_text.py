"""The result of `kanalyze check` as text."""

from __future__ import annotations

from collections.abc import Sequence

from kanalyze.results import check as doc
from kanalyze.text.numbers import figure, plural, share_of_all
from kanalyze.text.page import Page
from kanalyze.text.table import Columns

MOST_LINES = 20
"""Differences, reasons and cases that are shown."""
_TITLES = {
    "exact": "must be equal",
    "bound": "at most the counter",
    "estimate": "estimated",
}
_NAMED = 3


def render(
    check: doc.Check, *, width: int = 100, color: bool = False, details: bool = False
) -> str:
    """The check as text.

    Args:
        check: what was found.
        width: columns.
        color: whether to use ANSI colours.
        details: every comparison of every launch, too.
    """
    page = Page(width)
    _head(page, check)
    _counted(page, check)
    _estimates(page, check)
    _by_kernel(page, check)
    _differences(page, check)
    _unknown(page, check)
    _bounds(page, check)
    if details:
        _launches(page, check)
    return page.text(color)


def _head(page: Page, check: doc.Check) -> None:
    launches = check.launches
    kernels = len({launch.kernel for launch in launches})
    devices = list(dict.fromkeys(launch.device or "?" for launch in launches))
    parts = [f"{plural(len(launches), 'launch')} of {plural(kernels, 'kernel')}"]
    if devices:
        parts.append(", ".join(devices[:_NAMED]) + (" …" if len(devices) > _NAMED else ""))
    if check.left:
        parts.append(f"interrupted: {check.left} more were not checked")
    page.line(("; ".join(parts), "title"))
    if check.skipped:
        page.line((f"{plural(len(check.skipped), 'part')} of the input left out", "warn"))


# ---------------------------------------------------------------- tables


def table(
    page: Page, heads: Sequence[str], rows: Sequence[Sequence[str]], styles: Sequence[str] = ()
) -> int:
    """A table: the first column to the left, the others to the right.

    Where it is too wide, its last columns go. Returns how many are shown.
    """
    columns = Columns(heads, rows, left=True)
    shown = columns.fitting(page.width)
    page.line((columns.head(shown), "label"))
    for cells, style in zip(rows, styles or [""] * len(rows), strict=True):
        page.line((columns.line(cells, shown), style))
    return shown


def _counted(page: Page, check: doc.Check) -> None:
    """Exact counters and bounds: how many hold."""
    for kind, words in (("exact", ("equal", "differ")), ("bound", ("hold", "above it"))):
        summaries = [s for s in check.by_counter if s.kind == kind]
        if not summaries:
            continue
        bound = kind == "bound"
        heads = [_TITLES[kind], "compared", *words, "both 0", "unknown", "not measured"]
        heads += ["median below", "most"] if bound else []
        rows, styles = [], []
        for s in summaries:
            cells = [s.counter, *map(str, (s.compared, s.good, s.failed))]
            cells += [str(s.zeros), str(s.unknown), str(s.not_measured)]
            cells += [_percent(s.median_percent), _percent(s.worst_percent)] if bound else []
            rows.append(cells)
            styles.append("bad" if s.failed else "")
        page.blank()
        table(page, heads, rows, styles)


def _estimates(page: Page, check: doc.Check) -> None:
    summaries = [s for s in check.by_counter if s.kind == "estimate"]
    if not summaries:
        return
    page.blank()
    heads = [_TITLES["estimate"], "compared", "median", "mean", "90 %", "worst", "≤ 1 %", "≤ 5 %",
             "≤ 10 %", "in interval", "unknown"]  # fmt: skip
    table(page, heads, [_estimate_row(s) for s in summaries])
    for s in summaries:
        if s.off_zero:
            page.line(
                (f"{s.counter}: {plural(s.off_zero, 'launch')} measured 0 and estimated another "
                 "number, which has no relative error", "warn")
            )  # fmt: skip


def _estimate_row(s: doc.CounterSummary) -> list[str]:
    inside = f"{s.in_interval} of {s.with_interval}" if s.with_interval else "-"
    errors = (s.median_percent, s.mean_percent, s.p90_percent, s.worst_percent)
    shares = (s.within_1, s.within_5, s.within_10)
    return [
        s.counter,
        str(s.compared),
        *(_percent(error) for error in errors),
        *(_share(share) for share in shares),
        inside,
        str(s.unknown),
    ]


def _by_kernel(page: Page, check: doc.Check) -> None:
    """Kernels as rows: exact counters equal, and median and worst error of each estimate."""
    if len(check.kernels) < 2:
        return
    cells = {(s.kernel, s.counter): s for s in check.by_kernel}
    shown = [s.counter for s in check.by_counter if s.kind == "estimate" and s.compared]
    exact = [s.counter for s in check.by_counter if s.kind == "exact" and s.compared]
    rows = []
    for own in check.kernels:
        row = [_cut(own.kernel, 32), str(own.launches)]
        if exact:
            row.append(f"{own.equal} of {own.compared}")
        row += [_median_worst(cells[own.kernel, counter]) for counter in shown]
        rows.append(row)
    heads = ["kernel", "launches", *(["equal"] if exact else []), *shown]
    if len(heads) > 2:
        page.blank()
        done = table(page, heads, rows)
        while done < len(heads):  # further columns beneath
            page.blank()
            rest = [[row[0], *row[done:]] for row in rows]
            done += table(page, [heads[0], *heads[done:]], rest) - 1
        if shown:
            page.line(("median and worst error in %, by kernel", "dim"))


def _median_worst(s: doc.CounterSummary) -> str:
    if s.median_percent is None or s.worst_percent is None:
        return "-"
    return f"{_number(s.median_percent)} / {_number(s.worst_percent)}"


# ---------------------------------------------------------------- lists


def _differences(page: Page, check: doc.Check) -> None:
    wrong = [
        (launch, c)
        for launch in check.launches
        for c in launch.comparisons
        if c.result in (doc.DIFFERS, doc.ABOVE)
    ]
    worst = [s for s in check.by_counter if s.kind == "estimate" and s.worst_case is not None]
    if wrong:
        page.blank()
        page.line(("differences", "title"))
    for launch, c in wrong[:MOST_LINES]:
        page.line((f"  {launch.case}: ", ""), (_words(c), "bad"), hang=4)
    _more(page, len(wrong))
    if worst:
        page.blank()
        page.line(("worst", "title"))
    for s in worst:
        page.line((f"  {s.worst_case}: ", ""), (_words(check.worst(s)), ""), hang=4)


def _words(c: doc.ComparedCounter) -> str:
    text = f"{c.counter}: {figure(c.estimate)} {c.unit} estimated, {figure(c.measured)} measured"
    if c.error_percent is not None:
        text += f" ({_signed(c)})"
    if c.interval is not None:
        text += f", interval {figure(c.interval[0])} to {figure(c.interval[-1])}"
    return text


def _unknown(page: Page, check: doc.Check) -> None:
    """Reasons, each once, with the counters and launches that it is about."""
    counters_of: dict[doc.Reason, list[str]] = {}
    for s in check.by_counter:
        for reason in s.reasons:
            counters_of.setdefault(reason, []).append(s.counter)
    if not counters_of:
        return
    page.blank()
    page.line(("unknown", "title"))
    for reason, counters in list(counters_of.items())[:MOST_LINES]:
        cases = f" ({_cases(reason.cases)})" if len(reason.cases) < len(check.launches) else ""
        page.line(
            (f"  {', '.join(counters)}: {plural(reason.launches, 'launch')}{cases}: ", ""),
            (reason.reason, "dim"),
            hang=4,
        )
    _more(page, len(counters_of))


def _cases(cases: Sequence[str]) -> str:
    shown = ", ".join(cases[:_NAMED])
    return shown if len(cases) <= _NAMED else f"{shown}, …"


def _more(page: Page, count: int) -> None:
    if count > MOST_LINES:
        page.line((f"  and {count - MOST_LINES} more (--format json has all)", "dim"))


def _bounds(page: Page, check: doc.Check) -> None:
    if check.bounds:
        page.blank()
        page.line(("bounds (--max-error)", "title"))
    for bound in check.bounds:
        reached = (
            "nothing to compare" if bound.found_percent is None else _percent(bound.found_percent)
        )
        verdict = "holds" if bound.held else "PASSED"
        page.line(
            (f"  {bound.counter}, {bound.statistic}: ", ""),
            (f"{reached}, at most {bound.percent:g} %: ", ""),
            (verdict, "good" if bound.held else "bad"),
        )


def _launches(page: Page, check: doc.Check) -> None:
    for launch in check.launches:
        page.blank()
        facts = [launch.kernel, launch.dtype, launch.device, launch.purpose, launch.file]
        page.line((launch.case, "title"), (": " + ", ".join(f for f in facts if f), "dim"), hang=4)
        rows = [
            [
                f"  {c.counter}",
                figure(c.estimate),
                figure(c.measured),
                c.unit,
                _signed(c),
                c.result,
            ]
            for c in launch.comparisons
            if c.result != doc.NOT_MEASURED or c.estimate is not None
        ]
        styles = [_style(row[-1]) for row in rows]
        if rows:
            heads = ["  counter", "estimate", "measured", "unit", "error", "result"]
            table(page, heads, rows, styles)


def _signed(c: doc.ComparedCounter) -> str:
    if not c.error_percent:
        return "-" if c.error_percent is None else "0 %"
    return f"{c.error_percent:+.3g} %"


def _style(result: str) -> str:
    return {doc.DIFFERS: "bad", doc.ABOVE: "bad", doc.UNKNOWN: "dim"}.get(result, "")


# ---------------------------------------------------------------- numbers


def _number(value: float) -> str:
    return f"{value:.3g}" if value < 1000 else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{_number(value)} %"


def _share(share: float | None) -> str:
    return "-" if share is None else share_of_all(share)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"
