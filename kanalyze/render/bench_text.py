"""The result of a benchmark as a table: a line a launch, its rivals under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kanalyze.text.numbers import plural, size, whole_percent
from kanalyze.text.page import NBSP, Page

_COLUMNS = (
    ("cold us", 9), ("warm us", 9), ("TFLOP/s", 8), ("GB/s", 6), ("peak", 6), ("occ.", 6),
    ("norm", 9),
)  # fmt: skip
_TAIL = sum(width for _, width in _COLUMNS)
_FEWEST = 24


def plan_text(document: Mapping[str, Any], page: Page) -> None:
    """What would run, a line each."""
    for launch in document["launches"]:
        grid = " x ".join(map(str, launch["grid"]))
        page.line((launch["case"], ""), (f"  grid {grid}, {launch['purpose']}", "dim"), hang=4)
    count = plural(len(document["launches"]), "launch")
    page.line((f"{count}; nothing was run", "label"))


def result_text(document: Mapping[str, Any], page: Page) -> None:
    """What was measured."""
    launches = document["launches"]
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    page.line((document["device"], "title"), (f"  {versions}", "dim"))
    name = max(_FEWEST, page.width - _TAIL)
    heads = "".join(f"{head:>{width}}" for head, width in _COLUMNS)
    page.line((f"{'launch':<{name}}{heads}".replace(" ", NBSP), "label"))
    page.rule()
    for launch in launches:
        _launch(page, launch, name)
    if document["compiled"]:
        page.line(("written by torch.compile, each kernel alone", "label"))
    for launch in document["compiled"]:
        _row(page, launch["case"], launch, name)
    page.rule()
    _summary(page, document)


def _launch(page: Page, launch: Mapping[str, Any], name: int) -> None:
    if launch["cold_us"] is None:
        status = f"{launch['status']}: {launch['reason']}" if launch["reason"] else launch["status"]
        style = "bad" if launch["status"] == "failed" else "dim"
        page.line((launch["case"], "dim"), (f"  {status}", style), hang=4)
        return
    _row(page, launch["case"], launch, name)
    if launch["status"] == "wrong":
        page.line((f"    wrong result: {launch['reason']}", "bad"), hang=6)
    if launch["dram_bytes"]["read"] is not None:
        text = f"    {_moved(launch['dram_bytes'])}; least {_moved(launch['compulsory_bytes'], '')}"
        page.line((text, "dim"))
    for rival in launch["rivals"]:
        _rival(page, rival, name)


def _row(page: Page, title: str, launch: Mapping[str, Any], name: int) -> None:
    cells = (
        _number(launch["cold_us"] and launch["cold_us"]["median"], ".1f"),
        _number(launch["warm_us"] and launch["warm_us"]["median"], ".1f"),
        _number(launch["tflops"], ".4g"),
        _number(launch["gb_per_s"], ".0f"),
        "?" if launch["bandwidth_share"] is None else whole_percent(launch["bandwidth_share"]),
        _percent(launch["occupancy_percent"]),
        _number(launch["relative_norm"], ".1e"),
    )
    tail = "".join(f"{c:>{w}}" for c, (_, w) in zip(cells, _COLUMNS, strict=True))
    if len(title) >= name:
        page.line((title, ""))
        title = ""
    page.line((f"{title:<{name}}{tail}".replace(" ", NBSP), ""))


def _rival(page: Page, rival: Mapping[str, Any], name: int) -> None:
    title = f"    {rival['provider']}"
    if rival["error"]:
        page.line((f"{title}: {rival['error']}", "warn"), hang=6)
        return
    cold = _number(rival["cold_us"]["median"], ".1f")
    warm = _number(rival["warm_us"]["median"], ".1f")
    launches = rival["launches"]
    words = [f"{rival['times_ours']:.2f} x the time"]
    words.append("launches unknown" if launches is None else plural(launches, "launch"))
    if rival["dram_bytes"]["read"] is not None:
        words.append(_moved(rival["dram_bytes"]))
    head = f"{title:<{name}}{cold:>9}{warm:>9}".replace(" ", NBSP)
    page.line((head, "dim"))
    page.line(("      " + ", ".join(words), "dim"), hang=6)


def _summary(page: Page, document: Mapping[str, Any]) -> None:
    launches: Sequence[Mapping[str, Any]] = document["launches"]
    counts = {
        status: len([one for one in launches if one["status"] == status])
        for status in ("measured", "kept", "wrong", "skipped", "failed", "left")
    }
    words = {
        "measured": "measured", "kept": "kept from an earlier run", "wrong": "wrong",
        "skipped": "skipped", "failed": "failed", "left": "not reached",
    }  # fmt: skip
    said = [f"{count} {words[status]}" for status, count in counts.items() if count]
    compiled = document["compiled"]
    if compiled:
        said.append(f"{len(compiled)} written by torch.compile")
    counted = len([one for one in (*launches, *compiled) if one["counted"]])
    page.line((f"{plural(len(launches), 'launch')}: {', '.join(said)}; {counted} counted", ""))
    page.line((f"records in {document['folder']}", "label"))


def _number(value: float | None, form: str) -> str:
    return "?" if value is None else format(value, form)


def _percent(value: float | None) -> str:
    return "?" if value is None else f"{value:.0f} %"


def _moved(moved: Mapping[str, float | None], what: str = "DRAM ") -> str:
    return f"{what}read {_bytes(moved['read'])}, written {_bytes(moved['written'])}"


def _bytes(count: float | None) -> str:
    return "?" if count is None else size(count)
