"""ptxas: PTX assembled as Triton does it, and what it says of each kernel.

Outcomes are kept in :mod:`kanalyze.cache`, under the text, the tool's version and the flags.
"""

from __future__ import annotations

import json
import re
import tempfile
from dataclasses import asdict, dataclass, replace
from functools import cache as memoise
from pathlib import Path
from typing import Any

from kanalyze import cache
from kanalyze.errors import InputError, MissingToolError, SourceSpot
from kanalyze.toolchain import ptxas_log, tools
from kanalyze.toolchain.resources import KernelResources, parse_ptxas_log

SHORT_TIMEOUT_S = 60.0
"""Seconds that ptxas may take for a text of less than a million characters."""


@dataclass(frozen=True, slots=True)
class Assembled:
    """What ptxas makes of a PTX text: the binary, and each entry's resources by its symbol."""

    cubin: bytes
    resources: dict[str, KernelResources]


def ptx_target(ptx: str) -> str:
    """Return the architecture of a PTX text's ``.target`` line, for example ``sm_90a``.

    Raises:
        InputError: there is no such line.
    """
    target = re.search(r"^\s*\.target\s+(sm_\d+[af]?)\b", ptx, re.MULTILINE)
    if target is None:
        raise InputError("found no .target line, expected one such as '.target sm_90a'")
    return target[1]


def ptxas_for(capability: int) -> str:
    """Return the name of the ptxas that the installed Triton uses for a capability (90 for sm_90).

    Source: ``get_ptxas`` in ``triton/backends/nvidia/compiler.py``: one ptxas up to 3.5,
    ``ptxas-blackwell`` from sm_100 on in 3.6, from sm_90 on in 3.9. The bound is read from that
    file, so that the versions between them are right too.
    """
    if tools.search("ptxas-blackwell", None, "") is None:
        return "ptxas"
    return "ptxas-blackwell" if capability >= _blackwell_from() else "ptxas"


@memoise
def _blackwell_from() -> int:
    try:
        text = (tools.triton_folder() / "backends/nvidia/compiler.py").read_text("utf-8", "replace")
    except OSError:
        return 100
    body = re.search(r"^def get_ptxas\(.*?(?=^\S)", text, re.MULTILINE | re.DOTALL)
    bound = re.search(r"\barch\s*(?:<|>=)\s*(\d+)", body[0]) if body else None
    return int(bound[1]) if bound else 100


def ptxas_flags(arch: str, fmad: bool, tool: Path, of_triton: bool) -> list[str]:
    """Return the flags for ptxas; those of Triton are in ``make_cubin`` of its NVIDIA backend."""
    flags = ["-lineinfo", *([] if fmad else ["--fmad=false"]), "-v"]
    own = of_triton and tool.parent.parent.name == "nvidia"
    if own and _triton_passes("--regAllocOptLevel=2"):
        flags.append("--regAllocOptLevel=2")
    return [*flags, f"--gpu-name={arch}"]


@memoise
def _triton_passes(flag: str) -> bool:
    try:
        return flag in (tools.triton_folder() / "backends/nvidia/compiler.py").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def assemble(
    ptx: str,
    arch: str | None = None,
    *,
    fmad: bool = True,
    file: str = "<ptx>",
    of_triton: bool = True,
    made: tuple[str, bytes] | None = None,
) -> Assembled:
    """Assemble a PTX text.

    Where the ptxas that Triton would take is too old for the text, the wheel's other one is tried.

    Args:
        ptx: the PTX text.
        arch: for example ``sm_90a``; None takes the text's ``.target``.
        fmad: whether ptxas may fuse multiplications and additions (Triton's default).
        of_triton: whether with all of Triton's flags, or as ``ptxas -v`` does.
        file: the name that errors show.
        made: what Triton's own run with the same flags said, and its cubin; ptxas is not run again.

    Raises:
        InputError: ptxas rejects the text; the spot is the line that it names.
        MissingToolError: there is no ptxas, or none that knows this architecture or PTX version.
    """
    target = arch or ptx_target(ptx)
    first = ptxas_for(int(re.sub(r"\D", "", target) or 0))
    other = "ptxas" if first == "ptxas-blackwell" else "ptxas-blackwell"
    try:
        return _assemble(ptx, target, tools.find(first), fmad, of_triton, made)
    except tools.ToolError as error:
        complaint = error
    too_old = re.compile(r"Unsupported \.version|not defined for option 'gpu-name'|not supported")
    second = tools.installed(other)
    if too_old.search(complaint.output):
        if second is not None:
            try:
                return _assemble(ptx, target, second, fmad, of_triton)
            except tools.ToolError as error:
                if not too_old.search(error.output):
                    complaint = error
        if re.search(r"Unsupported \.version|option 'gpu-name'", complaint.output):
            raise MissingToolError(
                f"{tools.version(tools.find(first))} cannot assemble this ({complaint}): "
                "pip install --upgrade triton"
            )
    raise _rejected(ptx, complaint, file)


def _assemble(
    ptx: str,
    arch: str,
    tool: Path,
    fmad: bool,
    of_triton: bool,
    made: tuple[str, bytes] | None = None,
) -> Assembled:
    flags = ptxas_flags(arch, fmad, tool, of_triton)
    said_by = tools.version(tool)
    name = "ptxas-" + cache.key(ptx, said_by, *flags, "with remarks")
    kept, kept_cubin = cache.load(name), cache.load(name + ".cubin")
    if kept is not None and kept_cubin is not None:
        try:
            rows = json.loads(kept)
            return Assembled(kept_cubin, {k: _kept(row) for k, row in rows.items()})
        except (ValueError, TypeError, AttributeError, KeyError):
            pass  # written by another version of kanalyze: made anew below
    log, cubin = made or _run(ptx, tool, flags)
    resources = parse_ptxas_log(log, said_by)
    if any("cmem[0]" not in log for _ in resources):
        of_cubin = tools.cubin_resources(cubin)
        for symbol, row in resources.items():
            if symbol in of_cubin:
                constant = of_cubin[symbol].constant_bytes
                resources[symbol] = replace(row, constant_bytes=constant)
    cache.store(name + ".cubin", cubin)
    cache.store(name, json.dumps({k: asdict(row) for k, row in resources.items()}).encode())
    return Assembled(cubin, resources)


def _run(ptx: str, tool: Path, flags: list[str]) -> tuple[str, bytes]:
    with tempfile.TemporaryDirectory(prefix="kanalyze-") as folder:
        Path(folder, "input.ptx").write_text(ptx, encoding="utf-8")
        limit = SHORT_TIMEOUT_S if len(ptx) < 1_000_000 else tools.TIMEOUT_S
        log = tools.run(tool, [*flags, "input.ptx", "-o", "output.cubin"], folder, limit)
        return log, Path(folder, "output.cubin").read_bytes()


def _kept(row: dict[str, Any]) -> KernelResources:
    return KernelResources(**{**row, "remarks": tuple(row["remarks"])})


def _rejected(ptx: str, error: tools.ToolError, file: str) -> InputError:
    message = str(error)
    place = re.search(r"input\.ptx, line (\d+); (?:error|fatal)\s*:\s*(.+)", error.output)
    if place is None:
        return InputError(message, file=file)
    lines, number = ptx.splitlines(), int(place[1])
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    column = len(text) - len(text.lstrip()) + 1
    name = message.split(":", 1)[0]
    return InputError(f"{name}: {place[2].strip()}", SourceSpot(file, number, column, text))


def usages_of_ptx(ptx: str, file: str = "<ptx>") -> ptxas_log.Text:
    """Return what ptxas says of a PTX text; errors: see :func:`assemble`."""
    return ptxas_log.Text(
        tuple(
            ptxas_log.Usage(
                name=name,
                kernel=True,
                tool="ptxas",
                architecture=ptx_target(ptx),
                line=0,
                registers=row.registers,
                spill_store_bytes=row.spill_store_bytes,
                spill_load_bytes=row.spill_load_bytes,
                stack_bytes=row.stack_bytes,
                shared_bytes=row.static_shared_bytes,
                barriers=row.barriers,
                constant_bytes=((0, row.constant_bytes),),
                messages=tuple(ptxas_log.Message(0, "info", r, name) for r in row.remarks),
            )
            for name, row in assemble(ptx, file=file, of_triton=False).resources.items()
        ),
        (),
        (),
    )
