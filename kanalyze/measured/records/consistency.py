"""Whether the PTX, the cubin, the architecture and the device of a record belong together."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kanalyze.devices import table as devices
from kanalyze.errors import InputError, KanalyzeError, UsageError
from kanalyze.ptx import ir
from kanalyze.ptx.parse import parse_ptx
from kanalyze.sass import cubin as cubins


@dataclass(frozen=True, slots=True)
class Ptx:
    """PTX that was read: the module, or why it cannot be used (with the place)."""

    module: ir.Module | None
    reason: str = ""
    line: int = 0
    column: int = 0


def read_ptx(text: str, name: str) -> Ptx:
    """Read the PTX of a record, which must be whole: one module without errors."""
    try:
        module = parse_ptx(text, name)
    except InputError as error:
        spot = error.spot
        return Ptx(None, error.message, spot.line if spot else 0, spot.column if spot else 0)
    except (KanalyzeError, ValueError, RecursionError) as error:
        return Ptx(None, f"the PTX cannot be read: {error}")
    for diagnostic in module.diagnostics:
        if diagnostic.severity == "error":
            return Ptx(None, diagnostic.message, diagnostic.pos.line, diagnostic.pos.column)
    return Ptx(module)


def device(name: str, module: ir.Module, arch: str | None) -> tuple[devices.Device | None, str]:
    """The GPU of that name (None: it is not known), and what is wrong with it ("": nothing).

    PTX for sm_90 runs on 9.0 and later GPUs, for sm_90a on 9.0 alone, for sm_100f on 10.x.
    """
    target = module.target[0] if module.target else ""
    if arch is not None and arch.rstrip("af") != target.rstrip("af"):
        return None, f"found the architecture {arch}, expected {target} as in the PTX"
    try:
        gpu = devices.device(name)
    except UsageError as error:
        return None, str(error)
    if not _runs(target, gpu.capability.name):
        return (
            None,
            f"found {gpu.name} ({gpu.capability.name}), expected a GPU that runs {target}",
        )
    return gpu, ""


def _runs(target: str, capability: str) -> bool:
    """Whether a GPU runs code for a target."""
    match = re.fullmatch(r"sm_(\d+)([af]?)", target)
    if match is None:
        return True
    wanted, has = int(match[1]), int(capability.removeprefix("sm_"))
    if match[2] == "a":
        return wanted == has
    if match[2] == "f":
        return wanted // 10 == has // 10 and has >= wanted
    return has >= wanted


def cubin(data: bytes, kernel: str, gpu: devices.Device | None) -> str | None:
    """Why a cubin cannot be the machine code that ran, or None.

    A cubin runs on GPUs of its major compute capability and the same or a later minor one.
    """
    try:
        code = cubins.parse(data, "the cubin") if data.startswith(b"\x7fELF") else None
    except InputError as error:
        return error.message
    if code is None:
        return f"found {'no ELF' if data else 'an empty'} file, expected a cubin"
    if kernel not in code.kernels:
        names = ", ".join(code.kernels[:5]) or "no kernel"
        return f"found {names}, expected {kernel} as in the PTX"
    has = int(gpu.capability.name.removeprefix("sm_")) if gpu is not None else code.capability
    if code.capability // 10 != has // 10 or code.capability > has:
        return f"found machine code for sm_{code.capability}, expected one for sm_{has}"
    return None
