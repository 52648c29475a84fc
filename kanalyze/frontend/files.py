"""Which files a target stands for, pipes and standard input, and what lies beside a file.

A folder stands for the ``.ptx`` and ``.cubin`` files below it, a pattern that the shell left as it
is (``'dumps/**/*.ptx'``) for what it matches. A ``.cubin`` of the same stem as a ``.ptx`` belongs
to it. Triton's cache, and Inductor's, keep the stages of a kernel and its metadata side by side.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import stat
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError, system_reason
from kanalyze.text.pieces import pieces

STANDARD_INPUT = "<stdin>"
IN_FOLDERS = (".ptx", ".cubin")
IN_PATTERNS = (".ptx", ".cubin", ".fatbin", ".cu")


def files_of(target: str) -> list[str]:
    """Return the files that a folder or a pattern stands for; any other target is returned as is.

    Raises:
        InputError: there are none.
    """
    if os.path.isdir(target):
        inputs = _below(Path(target))
        if not inputs:
            raise InputError("there is no .ptx file in this folder, and no .cubin", file=target)
        return inputs
    if not glob.has_magic(target) or os.path.exists(target):
        return [target]
    matched = sorted(glob.glob(target, recursive=True))
    files = [m for m in matched if os.path.isfile(m)]
    wanted = [f for f in files if f.endswith(IN_PATTERNS)] or files
    for folder in (m for m in matched if os.path.isdir(m)):
        wanted += _below(Path(folder))
    if not wanted:
        raise InputError("nothing matches this pattern", file=target)
    return _folded(wanted)


def is_pipe(file: str) -> bool:
    """Whether a file is a pipe, or the empty device: it is read once.

    A file that is not there is not a pipe; what reads it says that it is missing.

    Raises:
        InputError: it is a device or a socket, which may have no end, or cannot be looked at.
    """
    try:
        mode = os.stat(file).st_mode
    except (FileNotFoundError, ValueError):
        return False
    except OSError as error:
        if "/" not in file and "." not in file:  # the name of a kernel
            return False
        raise InputError(error.strerror or str(error), file=file) from None
    if stat.S_ISFIFO(mode) or os.path.realpath(file) == os.devnull:
        return True
    if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise InputError("this is neither a file nor a pipe", file=file)
    return False


def standard_input() -> bytes:
    """Return everything on standard input.

    Raises:
        InputError: it cannot be read.
    """
    with contextlib.suppress(OSError):  # it is not a file of the system
        status = os.fstat(sys.stdin.fileno())
        empty = status.st_rdev == os.stat(os.devnull).st_rdev
        if stat.S_ISCHR(status.st_mode) and not empty and not sys.stdin.isatty():
            raise InputError("this is neither a file nor a pipe", file="standard input")
    try:
        return sys.stdin.buffer.read()
    except OSError as error:
        raise InputError(f"cannot be read: {system_reason(error)}", file="standard input") from None


def _below(folder: Path) -> list[str]:
    paths = []
    for parent, _, names in os.walk(folder, followlinks=False):
        paths += [os.path.join(parent, name) for name in names if name.endswith(IN_FOLDERS)]
    return _folded(str(Path(f)) for f in paths if os.path.isfile(f))


def _folded(files: Iterable[str]) -> list[str]:
    """The files in order, each once, without cubins that lie beside their PTX."""
    every = sorted({str(Path(f)) for f in files}, key=lambda f: Path(f).parts)
    ptx = {f.removesuffix(".ptx") for f in every if f.endswith(".ptx")}
    return [f for f in every if not (f.endswith(".cubin") and f.removesuffix(".cubin") in ptx)]


# ---------------------------------------------------------------- what lies beside a file


@dataclass(frozen=True, slots=True)
class Named:
    """A parameter by its author's name, in Triton's notation: ``x_ptr``, ``*fp32``."""

    name: str
    type: str
    facts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Beside:
    """What lies beside a ``.ptx`` file.

    Attributes:
        cubin: the file of the same stem, None where there is none.
        kernel: the kernel's name by Triton's metadata.
        parameters: its parameters in order, by its TTIR; empty where there is none.
        shared_bytes: shared memory of a block, static and dynamic, by the metadata.
        notes: the metadata in one line.
    """

    cubin: Path | None = None
    kernel: str | None = None
    parameters: tuple[Named, ...] = ()
    shared_bytes: int | None = None
    notes: tuple[str, ...] = ()


def beside(path: Path) -> Beside:
    """Look at what lies beside a PTX file; what cannot be read counts as absent."""
    machine_code = path.with_suffix(".cubin")
    cubin = machine_code if machine_code != path and os.path.isfile(machine_code) else None
    metadata = _metadata(path.with_suffix(".json"))
    if metadata is None:
        return Beside(cubin)
    kernel = metadata.get("name")
    kernel = kernel if isinstance(kernel, str) else path.stem
    shared = metadata.get("shared")
    shared = shared if isinstance(shared, int) and shared >= 0 else None
    return Beside(cubin, kernel, _of_ttir(path, kernel), shared, _note(metadata))


def _metadata(path: Path) -> dict[str, Any] | None:
    """What Triton writes beside a kernel: ``{"hash": …, "target": {…}, "num_warps": 4, …}``."""
    try:
        if not path.is_file() or path.stat().st_size > 1_000_000:
            return None
        data = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if isinstance(data, dict) and {"hash", "target", "num_warps"} <= data.keys():
        return data
    return None


def _note(metadata: dict[str, Any]) -> tuple[str, ...]:
    names = ("num_warps", "num_stages", "num_ctas", "maxnreg", "shared", "triton_version")
    shown = [
        f"{name}={metadata[name]}"
        for name in names
        if isinstance(metadata.get(name), int | str) and (name, metadata[name]) != ("num_ctas", 1)
    ]
    return (f"Triton's metadata beside it: {', '.join(shown)}",) if shown else ()


_FUNCTION = r"tt\.func\s+(?:public\s+)?@\"?{name}\"?\("
_PARAMETER = re.compile(r"%(?P<name>[\w.$-]+):\s*(?P<type>!tt\.ptr<[^<>]*>|[if]\d+|bf16|index)")
_TYPES = {
    "f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8E4M3FN": "fp8e4nv",
    "f8E5M2": "fp8e5",
}  # fmt: skip


def _of_ttir(path: Path, kernel: str) -> tuple[Named, ...]:
    """The parameters of a kernel by its TTIR; empty where they are not those of the PTX."""
    for suffix in (".ttir", ".source", ".ttgir"):
        try:
            if not path.with_suffix(suffix).is_file():
                continue
            text = path.with_suffix(suffix).read_text("utf-8", "replace")
        except OSError:
            continue
        start = re.search(_FUNCTION.format(name=re.escape(kernel)), text)
        if start is not None:
            return _parameters(text[start.end() :].partition("\n")[0])
    return ()


def _parameters(line: str) -> tuple[Named, ...]:
    result = []
    for piece in filter(None, map(str.strip, pieces(line))):
        match = _PARAMETER.match(piece)
        if match is None:  # descriptors and tuples become several parameters in PTX
            return ()
        divisor = re.search(r"tt\.divisibility\s*=\s*(\d+)", piece)
        facts = (f"divisible by {divisor[1]}",) if divisor else ()
        name = re.search(r'loc\("([^"]+)"', piece)
        shown = name[1] if name else match["name"]
        result.append(Named(shown, _triton_type(match["type"]), facts))
    return tuple(result)


def _triton_type(text: str) -> str:
    pointee = re.fullmatch(r"!tt\.ptr<\s*([^,>]+?)\s*(?:,.*)?>", text)
    if pointee:
        return f"*{_TYPES.get(pointee[1], pointee[1])}"
    return _TYPES.get(text, text)
