"""NVIDIA's command-line tools: where they lie, how they are called, what they say.

``ptxas``, ``cuobjdump`` and ``nvdisasm`` come with Triton's wheel (``triton/backends/nvidia/bin``),
so no CUDA toolkit is needed; the wheel's are looked for first, then ``$CUDA_HOME``, then ``$PATH``.
Triton's own variables (``TRITON_PTXAS_PATH``, …) come before all. Triton itself is not imported.
Outcomes are kept in :mod:`kanalyze.cache`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache as memoise
from pathlib import Path
from typing import Any

from kanalyze import cache
from kanalyze.errors import InputError, KanalyzeError, MissingToolError, SourceSpot
from kanalyze.toolchain import ptxas_log

TIMEOUT_S = 300.0
"""Seconds that one run of a tool may take; ptxas needs tens of seconds for very large kernels."""

SHORT_TIMEOUT_S = 60.0
"""Seconds that ptxas may take for a text of less than a million characters."""


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one block or thread of a kernel needs, in registers and bytes.

    Attributes:
        registers: 32-bit registers of a thread.
        spill_store_bytes: bytes that a thread stores to local memory because registers ran out,
            summed over the spill instructions in the code (not over their executions).
        spill_load_bytes: the same for loads.
        stack_bytes: stack frame of a thread (spill slots, local arrays), of the entry only or
            cumulative over its calls, whichever is larger.
        static_shared_bytes: shared memory of a block that the code itself declares, without the
            1024 bytes that the system keeps to itself from sm_80 on.
        shared_bytes: static and dynamic shared memory of a block; equals ``static_shared_bytes``
            where the dynamic part is not known (a bare PTX file).
        barriers: hardware barriers of a block, None where the tool does not say.
        constant_bytes: constant bank 0 (parameters and driver data).
        tool: what said so, for example ``ptxas 12.9.86``.
        remarks: what else ptxas said of the kernel ("(C7511) Potential Performance Loss: …").
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    shared_bytes: int
    barriers: int | None
    constant_bytes: int
    tool: str
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assembled:
    """What ptxas makes of a PTX text: the binary, and each entry's resources by its symbol."""

    cubin: bytes
    resources: dict[str, KernelResources]


def find(name: str) -> Path:
    """Return the path of a tool (``ptxas``, ``ptxas-blackwell``, ``cuobjdump``, ``nvdisasm``).

    Raises:
        MissingToolError: neither Triton's wheel nor a CUDA toolkit has it.
    """
    path = _installed(name)
    if path is None:
        raise MissingToolError(
            f"{name} was found neither in Triton's package nor in $CUDA_HOME/bin nor on $PATH: "
            "pip install triton"
        )
    return path


def _installed(name: str) -> Path | None:
    own = os.environ.get(_variable(name))
    if own and os.access(own, os.X_OK):
        return Path(own)
    return _find(name, os.environ.get("CUDA_HOME"), os.environ.get("PATH"))


def _variable(name: str) -> str:
    return f"TRITON_{name.upper().replace('-', '_')}_PATH"  # triton/knobs.py


@memoise
def _find(name: str, cuda_home: str | None, search_path: str | None) -> Path | None:
    folders = [_triton_folder() / "backends/nvidia/bin"]
    if cuda_home:
        folders.append(Path(cuda_home) / "bin")
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    path = shutil.which(name, path=search_path)
    return Path(path) if path else None


@memoise
def _triton_folder() -> Path:
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


# --- ptxas ---------------------------------------------------------------------------------------


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
    if _find("ptxas-blackwell", None, "") is None:
        return "ptxas"
    return "ptxas-blackwell" if capability >= _blackwell_from() else "ptxas"


@memoise
def _blackwell_from() -> int:
    try:
        text = (_triton_folder() / "backends/nvidia/compiler.py").read_text("utf-8", "replace")
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
        return flag in (_triton_folder() / "backends/nvidia/compiler.py").read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def ptxas_resources(
    ptx: str, arch: str | None = None, *, fmad: bool = True
) -> dict[str, KernelResources]:
    """Return the resources of every entry in a PTX text, as ``ptxas -v`` reports them.

    Args:
        ptx: the PTX text.
        arch: for example ``sm_90a``; None takes the text's ``.target``.
        fmad: whether ptxas may fuse multiplications and additions (Triton's default).

    Raises:
        InputError: ptxas rejects the text; the spot is the line that it names.
        MissingToolError: there is no ptxas, or none that knows this architecture or PTX version.
    """
    return assemble(ptx, arch, fmad=fmad).resources


def assemble(
    ptx: str,
    arch: str | None = None,
    *,
    fmad: bool = True,
    file: str = "<ptx>",
    of_triton: bool = True,
) -> Assembled:
    """Assemble a PTX text; see :func:`ptxas_resources`.

    Where the ptxas that Triton would take is too old for the text, the wheel's other one is tried.

    Args:
        of_triton: whether with all of Triton's flags, or as ``ptxas -v`` does.
        file: the name that errors show.
    """
    target = arch or ptx_target(ptx)
    first = ptxas_for(int(re.sub(r"\D", "", target) or 0))
    other = "ptxas" if first == "ptxas-blackwell" else "ptxas-blackwell"
    try:
        return _assemble(ptx, target, find(first), fmad, of_triton)
    except ToolError as error:
        complaint = error
    too_old = re.compile(r"Unsupported \.version|not defined for option 'gpu-name'|not supported")
    second = _installed(other)
    if too_old.search(complaint.output):
        if second is not None:
            try:
                return _assemble(ptx, target, second, fmad, of_triton)
            except ToolError as error:
                if not too_old.search(error.output):
                    complaint = error
        if re.search(r"Unsupported \.version|option 'gpu-name'", complaint.output):
            raise MissingToolError(
                f"{version(find(first))} cannot assemble this ({complaint}): "
                "pip install --upgrade triton"
            )
    raise _rejected(ptx, complaint, file)


def _assemble(ptx: str, arch: str, tool: Path, fmad: bool, of_triton: bool) -> Assembled:
    flags = ptxas_flags(arch, fmad, tool, of_triton)
    said_by = version(tool)
    name = "ptxas-" + cache.key(ptx, said_by, *flags, "with remarks")
    kept, kept_cubin = cache.load(name), cache.load(name + ".cubin")
    if kept is not None and kept_cubin is not None:
        try:
            rows = json.loads(kept)
            return Assembled(kept_cubin, {k: _kept(row) for k, row in rows.items()})
        except (ValueError, TypeError, AttributeError, KeyError):
            pass  # written by another version of kanalyze: made anew below
    with tempfile.TemporaryDirectory(prefix="kanalyze-") as folder:
        Path(folder, "input.ptx").write_text(ptx, encoding="utf-8")
        limit = SHORT_TIMEOUT_S if len(ptx) < 1_000_000 else TIMEOUT_S
        log = run(tool, [*flags, "input.ptx", "-o", "output.cubin"], folder, limit)
        cubin = Path(folder, "output.cubin").read_bytes()
    resources = parse_ptxas_log(log, said_by)
    if any("cmem[0]" not in log for _ in resources):
        of_cubin = cubin_resources(cubin)
        for symbol, row in resources.items():
            if symbol in of_cubin:
                constant = of_cubin[symbol].constant_bytes
                resources[symbol] = replace(row, constant_bytes=constant)
    cache.store(name + ".cubin", cubin)
    cache.store(name, json.dumps({k: asdict(row) for k, row in resources.items()}).encode())
    return Assembled(cubin, resources)


def _kept(row: dict[str, Any]) -> KernelResources:
    return KernelResources(**{**row, "remarks": tuple(row["remarks"])})


def parse_ptxas_log(log: str, tool: str) -> dict[str, KernelResources]:
    """Return each kernel's resources from the text of ``ptxas -v``; device functions are left out.

    See :mod:`kanalyze.toolchain.ptxas_log` for the texts that are read.
    """
    return _resources(ptxas_log.read(log), tool)


def _resources(text: ptxas_log.Text, tool: str) -> dict[str, KernelResources]:
    """The kernels of a text, what it leaves out of a kernel as 0."""
    return {
        usage.name: KernelResources(
            registers=usage.registers,
            spill_store_bytes=usage.spill_store_bytes or 0,
            spill_load_bytes=usage.spill_load_bytes or 0,
            stack_bytes=usage.local_memory_bytes or 0,
            static_shared_bytes=usage.shared_bytes or 0,
            shared_bytes=usage.shared_bytes or 0,
            barriers=usage.barriers,
            constant_bytes=dict(usage.constant_bytes).get(0, 0),
            tool=tool,
            remarks=tuple(message.text for message in usage.messages),
        )
        for usage in text.usages
        if usage.registers is not None
    }


def _rejected(ptx: str, error: ToolError, file: str) -> InputError:
    message = str(error)
    place = re.search(r"input\.ptx, line (\d+); (?:error|fatal)\s*:\s*(.+)", error.output)
    if place is None:
        return InputError(message, file=file)
    lines, number = ptx.splitlines(), int(place[1])
    text = lines[number - 1] if 0 < number <= len(lines) else ""
    column = len(text) - len(text.lstrip()) + 1
    name = message.split(":", 1)[0]
    return InputError(f"{name}: {place[2].strip()}", SourceSpot(file, number, column, text))


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
    return _resources(ptxas_log.read(text, f"sm_{_elf_capability(cubin)}"), version(tool))


def usages_of_cubin(data: bytes) -> ptxas_log.Text:
    """Return what ``cuobjdump -res-usage`` says of a cubin, a fat binary, or an object with device
    code; errors: see :func:`cubin_resources`.
    """
    is_cubin = data[:4] == b"\x7fELF" and data[18:20] == _EM_CUDA
    architecture = f"sm_{_elf_capability(data)}" if is_cubin else None
    return ptxas_log.read(_of_cubin(find("cuobjdump"), ["-res-usage"], data), architecture)


_EM_CUDA = (190).to_bytes(2, "little")


def usages_of_ptx(ptx: str, file: str = "<ptx>") -> ptxas_log.Text:
    """Return what ptxas says of a PTX text; errors: see :func:`ptxas_resources`."""
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


def _elf_capability(cubin: bytes) -> int:
    """Return the capability in a cubin's ELF header: ``e_flags`` bits 0-7, or 8-15 in CUDA 13."""
    flags = int.from_bytes(cubin[48:52], "little")
    return flags & 0xFF if cubin[8:9] == b"\x07" else (flags >> 8) & 0xFF


def disassemble(cubin: bytes) -> str:
    """Return the SASS of a cubin, with a comment of source line where it changes.

    Made by ``nvdisasm -c -gi``: the code sections alone, with ``//## File "…", line N`` comments
    (and the chain of inlined calls) wherever the cubin has line information.

    Raises:
        InputError: the bytes are not a cubin that nvdisasm can read.
        MissingToolError: there is no nvdisasm.
    """
    return _of_cubin(find("nvdisasm"), ["-c", "-gi"], cubin)


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
