"""``kanalyze device --measure``: what this machine's GPU reaches, beside the table's numbers."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from kanalyze.cli import output
from kanalyze.errors import UsageError

if TYPE_CHECKING:
    from kanalyze.text.page import Page


def measured(page: Page) -> dict[str, Any]:
    """Measure; show it on a page; return it as plain data.

    Raises:
        MissingToolError: there is no GPU.
    """
    from kanalyze.devices import table as devices
    from kanalyze.measured.bench import gpu, reached_rates
    from kanalyze.render.measured_text import measured_text

    machine = gpu.local_gpu()
    try:
        known = devices.device(machine.device)
        table = {name: fact.value for name, fact in known.facts.items()}
    except UsageError as error:
        output.say(f"{error}; nothing to compare with", "note")
        table = {}
    rates = reached_rates.measure(machine, _progress).to_dict(table)
    measured_text(rates, table, page)
    return rates


def calibrated() -> tuple[str, dict[str, Any]]:
    """Run the calibrating kernels; the file of parameters as text, and the same as plain data.

    Raises:
        MissingToolError: there is no GPU.
        UsageError: the device table does not know the GPU.
    """
    from kanalyze.devices import table as devices
    from kanalyze.measured.bench import calibration_solver, calibration_times, gpu
    from kanalyze.performance.cache_sim import calibration

    machine = gpu.local_gpu()
    device = devices.device(machine.device)
    measured, compiled = calibration_times.calibrate(machine, device, _progress)
    solved = calibration_solver.solve(measured, device, compiled, _progress)
    remarks = calibration_solver.remarks(measured, solved.reasons)
    data = {
        **remarks,
        "unknown": dict(solved.reasons),
        "device": device.name,
        "parameters": {name: asdict(p) for name, p in solved.parameters.items()},
    }
    return calibration.write(device.name, solved.parameters, remarks), data


def _progress(what: str) -> None:
    if sys.stderr.isatty():
        output.say(f"measuring {what}")
