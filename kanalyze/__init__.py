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
    from kanalyze.checking.document import Check as Check
    from kanalyze.checking.running import check as check
    from kanalyze.compile import Compiled as Compiled
    from kanalyze.compile import compile_kernel as compile_kernel
    from kanalyze.devices import Device as Device
    from kanalyze.devices import device as device
    from kanalyze.dumps import Event as Event
    from kanalyze.dumps import read_dump as read_dump
    from kanalyze.errors import InputError as InputError
    from kanalyze.errors import KanalyzeError as KanalyzeError
    from kanalyze.errors import MissingToolError as MissingToolError
    from kanalyze.errors import UsageError as UsageError
    from kanalyze.estimating import estimate as estimate
    from kanalyze.launch import Launch as Launch
    from kanalyze.models.occupancy import Occupancy as Occupancy
    from kanalyze.models.occupancy import occupancy as occupancy
    from kanalyze.models.waves import Waves as Waves
    from kanalyze.models.waves import waves as waves
    from kanalyze.names import KernelName as KernelName
    from kanalyze.names import decode as decode
    from kanalyze.names import families as families
    from kanalyze.pipeline import analyze as analyze
    from kanalyze.ptx.ir import Module as Module
    from kanalyze.ptx.parse import parse_ptx as parse_ptx
    from kanalyze.records.reading import Record as Record
    from kanalyze.records.reading import read_records as read_records
    from kanalyze.report.document import Report as Report
    from kanalyze.report.traffic_document import Traffic as Traffic

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
    "read_dump": "kanalyze.dumps",
    "families": "kanalyze.names",
    "decode": "kanalyze.names",
    "KernelName": "kanalyze.names",
    "Check": "kanalyze.checking.document",
    "check": "kanalyze.checking.running",
    "Record": "kanalyze.records.reading",
    "read_records": "kanalyze.records.reading",
    "Event": "kanalyze.dumps",
    "Compiled": "kanalyze.compile",
    "Device": "kanalyze.devices",
    "InputError": "kanalyze.errors",
    "KanalyzeError": "kanalyze.errors",
    "Launch": "kanalyze.launch",
    "MissingToolError": "kanalyze.errors",
    "Module": "kanalyze.ptx.ir",
    "Occupancy": "kanalyze.models.occupancy",
    "Report": "kanalyze.report.document",
    "Traffic": "kanalyze.report.traffic_document",
    "UsageError": "kanalyze.errors",
    "Waves": "kanalyze.models.waves",
    "analyze": "kanalyze.pipeline",
    "compile_kernel": "kanalyze.compile",
    "device": "kanalyze.devices",
    "estimate": "kanalyze.estimating",
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
