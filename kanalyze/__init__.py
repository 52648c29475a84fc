"""Static analysis of GPU kernels, without a GPU.

This is the public door: what stands in ``__all__`` is meant for other programs and stays. Nothing
is imported before it is used, so ``import kanalyze`` is quick and needs neither Triton nor NumPy.

    >>> import kanalyze
    >>> report = kanalyze.analyze("gelu", arch="sm_90")
    >>> report.kernels[0].instructions
    105
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kanalyze.analysis.kernels import analyze as analyze
    from kanalyze.analysis.launch import estimate as estimate
    from kanalyze.devices.table import Device as Device
    from kanalyze.devices.table import device as device
    from kanalyze.errors import InputError as InputError
    from kanalyze.errors import KanalyzeError as KanalyzeError
    from kanalyze.errors import MissingToolError as MissingToolError
    from kanalyze.errors import UsageError as UsageError
    from kanalyze.frontend.compile import Compiled as Compiled
    from kanalyze.frontend.compile import compile_kernel as compile_kernel
    from kanalyze.launch.record import Launch as Launch
    from kanalyze.measured.capture import capture as capture
    from kanalyze.measured.check.runner import check as check
    from kanalyze.measured.records.reader import Record as Record
    from kanalyze.measured.records.reader import read_records as read_records
    from kanalyze.models.occupancy import Occupancy as Occupancy
    from kanalyze.models.occupancy import occupancy as occupancy
    from kanalyze.models.waves import Waves as Waves
    from kanalyze.models.waves import waves as waves
    from kanalyze.profiles.names import KernelName as KernelName
    from kanalyze.profiles.names import decode as decode
    from kanalyze.profiles.names import families as families
    from kanalyze.profiles.readers import Event as Event
    from kanalyze.profiles.readers import read_dump as read_dump
    from kanalyze.ptx.ir import Module as Module
    from kanalyze.ptx.parse import parse_ptx as parse_ptx
    from kanalyze.results.check import Check as Check
    from kanalyze.results.kernel import Report as Report
    from kanalyze.results.traffic import Traffic as Traffic

    __version__: str

__all__ = [
    "Check",
    "Compiled",
    "Device",
    "Event",
    "InputError",
    "KanalyzeError",
    "KernelName",
    "Launch",
    "MissingToolError",
    "Module",
    "Occupancy",
    "Record",
    "Report",
    "Traffic",
    "UsageError",
    "Waves",
    "__version__",
    "analyze",
    "capture",
    "check",
    "compile_kernel",
    "decode",
    "device",
    "estimate",
    "families",
    "occupancy",
    "parse_ptx",
    "read_dump",
    "read_records",
    "waves",
]

_HOME = {
    "read_dump": "kanalyze.profiles.readers",
    "families": "kanalyze.profiles.names",
    "decode": "kanalyze.profiles.names",
    "KernelName": "kanalyze.profiles.names",
    "capture": "kanalyze.measured.capture",
    "Check": "kanalyze.results.check",
    "check": "kanalyze.measured.check.runner",
    "Record": "kanalyze.measured.records.reader",
    "read_records": "kanalyze.measured.records.reader",
    "Event": "kanalyze.profiles.readers",
    "Compiled": "kanalyze.frontend.compile",
    "Device": "kanalyze.devices.table",
    "InputError": "kanalyze.errors",
    "KanalyzeError": "kanalyze.errors",
    "Launch": "kanalyze.launch.record",
    "MissingToolError": "kanalyze.errors",
    "Module": "kanalyze.ptx.ir",
    "Occupancy": "kanalyze.models.occupancy",
    "Report": "kanalyze.results.kernel",
    "Traffic": "kanalyze.results.traffic",
    "UsageError": "kanalyze.errors",
    "Waves": "kanalyze.models.waves",
    "analyze": "kanalyze.analysis.kernels",
    "compile_kernel": "kanalyze.frontend.compile",
    "device": "kanalyze.devices.table",
    "estimate": "kanalyze.analysis.launch",
    "occupancy": "kanalyze.models.occupancy",
    "parse_ptx": "kanalyze.ptx.parse",
    "waves": "kanalyze.models.waves",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the module where it lives, on first use."""
    if name == "__version__":
        value: Any = _version()
    elif name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _version() -> str:
    """The version of the checkout that runs, else that of the installed distribution."""
    from pathlib import Path

    project = Path(__file__).resolve().parent.parent / "pyproject.toml"
    if project.is_file():
        import tomllib

        try:
            data = tomllib.loads(project.read_text("utf-8"))["project"]
        except (KeyError, OSError, ValueError):
            data = {}
        if data.get("name") == "kanalyze":
            return str(data["version"])
    from importlib import metadata

    try:
        return metadata.version("kanalyze")
    except metadata.PackageNotFoundError:
        return "0+unknown"
