"""``kanalyze device --measure``: what this machine's GPU reaches, beside the table's numbers."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from kanalyze.cli import output
from kanalyze.errors import UsageError

if TYPE_CHECKING:
    from kanalyze.report.layout import Page


def measured(page: Page) -> dict[str, Any]:
    """Measure; show it on a page; return it as plain data.

    Raises:
        MissingToolError: there is no GPU.
    """
    from kanalyze import devices
    from kanalyze.bench import gpu, measure
    from kanalyze.report.measured_terminal import measured_text

    machine = gpu.machine()
    try:
        known = devices.device(machine.device)
        table = {name: fact.value for name, fact in known.facts.items()}
    except UsageError as error:
        output.say(f"{error}; nothing to compare with", "note")
        table = {}
    found = measure.measure(machine, _progress).to_dict()
    measured_text(found, table, page)
    return found


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        output.say(f"measuring {what}")
