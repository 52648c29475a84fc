"""NVIDIA's command-line tools: where they lie, how they are run; cubins through two of them.

``ptxas``, ``cuobjdump`` and ``nvdisasm`` come with Triton's wheel (``triton/backends/nvidia/bin``),
so no CUDA toolkit is needed; the wheel's are looked for first, then ``$CUDA_HOME``, then ``$PATH``.
Triton's own variables (``TRITON_PTXAS_PATH``, …) come before all. Triton itself is not imported.
Outcomes are kept in :mod:`kanalyze.cache`.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache as memoise
from pathlib import Path

from kanalyze import cache
from kanalyze.errors import InputError, KanalyzeError, MissingToolError
from kanalyze.toolchain import ptxas_log
from kanalyze.toolchain.resources import KernelResources, resources_of

TIMEOUT_S = 300.0
"""Seconds that one run of a tool may take; ptxas needs tens of seconds for very large kernels."""


def find(name: str) -> Path:
    """Return the path of a tool (``ptxas``, ``ptxas-blackwell``, ``cuobjdump``, ``nvdisasm``).

    Raises:
        MissingToolError: neither Triton's wheel nor a CUDA toolkit has it.
    """
    path = installed(name)
    if path is None:
        raise MissingToolError(
            f"{name} was found neither in Triton's package nor in $CUDA_HOME/bin nor on $PATH: "
            "pip install triton"
        )
    return path


def installed(name: str) -> Path | None:
    """The path of a tool, None where there is none; Triton's own variable comes first."""
    own = os.environ.get(_variable(name))
    if own and os.access(own, os.X_OK):
        return Path(own)
    return search(name, os.environ.get("CUDA_HOME"), os.environ.get("PATH"))


def _variable(name: str) -> str:
    return f"TRITON_{name.upper().replace('-', '_')}_PATH"  # triton/knobs.py


@memoise
def search(name: str, cuda_home: str | None, search_path: str | None) -> Path | None:
    """A tool in Triton's wheel, else below a CUDA toolkit, else on a search path."""
    folders = [triton_folder() / "backends/nvidia/bin"]
    if cuda_home:
        folders.append(Path(cuda_home) / "bin")
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    path = shutil.which(name, path=search_path)
    return Path(path) if path else None


@memoise
def triton_folder() -> Path:
    """The folder of the installed Triton; one that does not exist where there is none."""
    try:
        spec = importlib.util.find_spec("triton")
    except (ImportError, ValueError):
        spec = None
    locations = (spec.submodule_search_locations if spec else None) or ["/nonexistent"]
    return Path(next(iter(locations)))


def version(tool: Path) -> str:
    """Return a tool's name and version, for example ``ptxas 12.9.86``.

    The answer of ``TOOL --version`` is kept under the file's path, size and time of change.

    Raises:
        MissingToolError: one of Triton's variables names this file, and it is another program.
    """
    stat = tool.stat()
    expected = next((n for n in _TOOLS if os.environ.get(_variable(n)) == str(tool)), "")
    name = "version-" + cache.key(str(tool), str(stat.st_size), str(stat.st_mtime_ns), expected)
    if (kept := cache.load(name)) is not None:
        return kept.decode()
    try:
        said = run(tool, ["--version"])
    except KanalyzeError:
        if not expected:
            raise
        said = ""
    if expected and not re.match(rf"{expected.partition('-')[0]}\S*: NVIDIA", said.strip()):
        raise MissingToolError(
            f"{_variable(expected)} is {tool}, which is not {expected}: "
            f"unset it or give the path of {expected}"
        )
    number = re.search(r"\bV(\d+(?:\.\d+)+)", said) or re.search(r"release (\d+(?:\.\d+)+)", said)
    text = f"{tool.name} {number[1] if number else '(unknown version)'}"
    cache.store(name, text.encode())
    return text


_TOOLS = ("ptxas", "ptxas-blackwell", "cuobjdump", "nvdisasm")


class ToolError(KanalyzeError):
    """A tool ended with an error; ``output`` holds everything that it said."""

    def __init__(self, message: str, output: str):
        super().__init__(message)
        self.output = output


def run(
    tool: Path, arguments: Sequence[str], folder: str | None = None, most_s: float | None = None
) -> str:
    """Run a tool and return its standard output and standard error, in that order.

    Raises:
        ToolError: it failed, or took longer than ``most_s`` seconds (:data:`TIMEOUT_S`).
        MissingToolError: the file cannot be executed here.
    """
    limit = TIMEOUT_S if most_s is None else most_s
    try:
        done = subprocess.run(
            [str(tool), *arguments],
            capture_output=True,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            timeout=limit,
            check=False,
        )
    except subprocess.TimeoutExpired:
        name = tool.name.removesuffix("-blackwell")
        raise ToolError(f"{name} took longer than {limit:.0f} s", "") from None
    except OSError as error:
        raise MissingToolError(
            f"{tool} cannot be run ({error.strerror}): pip install --force-reinstall triton"
        ) from None
    text = (done.stdout + done.stderr).decode("utf-8", "replace")
    if done.returncode != 0:
        raise ToolError(f"{tool.name}: {_first_complaint(text, done.returncode)}", text)
    return text


def _first_complaint(text: str, code: int) -> str:
    pattern = r"^[^\n]*?\b(?:error|fatal)\b\s*:\s*(.+)$"
    complaint = re.search(pattern, text, re.MULTILINE | re.IGNORECASE)
    if complaint:
        return complaint[1].strip()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else f"ended with code {code} and no message"


# --- cubins --------------------------------------------------------------------------------------


def cubin_resources(cubin: bytes) -> dict[str, KernelResources]:
    """Return the resources of every function of a cubin, as ``cuobjdump -res-usage`` reports them.

    A cubin does not record spills as such: both spill counts are 0 here and ``stack_bytes`` tells
    that there are some. ``static_shared_bytes`` is the tool's ``SHARED`` without the 1024 bytes
    that the system reserves and that the tool includes for sm_90 and later.

    Raises:
        InputError: the bytes are not a cubin that cuobjdump can read.
        MissingToolError: there is no cuobjdump.
    """
    tool = find("cuobjdump")
    text = _of_cubin(tool, ["-res-usage"], cubin)
    return resources_of(ptxas_log.read(text, f"sm_{_elf_capability(cubin)}"), version(tool))


def usages_of_cubin(data: bytes) -> ptxas_log.Text:
    """Return what ``cuobjdump -res-usage`` says of a cubin, a fat binary, or an object with device
    code; errors: see :func:`cubin_resources`.
    """
    is_cubin = data[:4] == b"\x7fELF" and data[18:20] == _EM_CUDA
    architecture = f"sm_{_elf_capability(data)}" if is_cubin else None
    return ptxas_log.read(_of_cubin(find("cuobjdump"), ["-res-usage"], data), architecture)


_EM_CUDA = (190).to_bytes(2, "little")


def _elf_capability(cubin: bytes) -> int:
    """Return the capability in a cubin's ELF header: ``e_flags`` bits 0-7, or 8-15 in CUDA 13."""
    flags = int.from_bytes(cubin[48:52], "little")
    return flags & 0xFF if cubin[8:9] == b"\x07" else (flags >> 8) & 0xFF


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a cubin, with comments of source line and PTX line where they change.

    Made by ``nvdisasm -c -gi -gp``: the code sections alone, with ``//## File "…", line N``
    comments (and the chain of inlined calls; ``.nv_debug_ptx_txt`` is the PTX) wherever the cubin
    has line information.

    Raises:
        InputError: the bytes are not a cubin that nvdisasm can read.
        MissingToolError: there is no nvdisasm.
    """
    return _of_cubin(find("nvdisasm"), ["-c", "-gi", "-gp"], cubin)


def _of_cubin(tool: Path, flags: Sequence[str], cubin: bytes) -> str:
    name = f"{tool.name}-{cache.key(cubin, version(tool), *flags)}"
    if (kept := cache.load(name)) is not None:
        return kept.decode("utf-8", "replace")
    with tempfile.TemporaryDirectory(prefix="kanalyze-") as folder:
        Path(folder, "input.cubin").write_bytes(cubin)
        try:
            text = run(tool, [*flags, "input.cubin"], folder)
        except ToolError as error:
            if re.search(
                r"[Cc]annot decode architecture|[Uu]nsupported architecture", error.output
            ):
                raise MissingToolError(
                    f"{version(tool)} does not know this architecture ({error}): "
                    "pip install --upgrade triton"
                ) from None
            raise InputError(str(error)) from None
    text = "".join(
        line
        for line in text.splitlines(keepends=True)
        if not re.match(rf"{re.escape(tool.name)} (warning|info)\s*:", line)
    )
    cache.store(name, text.encode("utf-8", "replace"))
    return text
