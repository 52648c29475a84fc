"""CUDA C++ to PTX: ``nvcc`` where it is on the PATH, else NVRTC from its wheel.

No header, compiler or GPU comes with kanalyze. ``nvcc`` takes a whole file, with its host code;
NVRTC takes device code alone. Both have the same front end, whose errors become the file, line and
column of the first one.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache as memoise
from pathlib import Path
from typing import Any

from kanalyze import cache
from kanalyze.errors import InputError, MissingToolError, SourceSpot
from kanalyze.text.mangling import leading_names
from kanalyze.toolchain import tools

_NVRTC = "pip install 'kanalyze[cuda]'"


@dataclass(frozen=True, slots=True)
class Cuda:
    """PTX of a CUDA file: its text, the file, and what compiled it (``nvcc 13.0.88``)."""

    ptx: str
    source: Path
    tool: str


def compile_file(path: Path, source: bytes, arch: str) -> Cuda:
    """Compile a CUDA file to PTX with line information.

    Args:
        path: the file.
        source: what it holds.
        arch: ``sm_90``, ``sm_90a``, …

    Raises:
        InputError: it has an error; the spot is that of the first one.
        MissingToolError: there is neither nvcc nor NVRTC, or what there is does not know ``arch``.
    """
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        try:
            return _with_nvcc(Path(nvcc), path, source, arch)
        except _NoHostCompiler as error:
            if _nvrtc() is None:
                raise MissingToolError(
                    f"nvcc needs a host compiler ({error}): install g++, or {_NVRTC}"
                ) from None
    return _with_nvrtc(path, source, arch)


class _NoHostCompiler(Exception):
    """nvcc does not find g++, or not one that it takes."""


# ---------------------------------------------------------------- nvcc


def _with_nvcc(tool: Path, path: Path, source: bytes, arch: str) -> Cuda:
    said_by = tools.version(tool)
    flags = ["-x", "cu", "-ptx", "-lineinfo", f"-arch={arch}"]
    file = str(path.resolve())  # stands in .file, so that the source can be shown
    name = "nvcc-" + cache.key(source, said_by, file, *flags)
    own = re.search(rb'#\s*include\s*"', source) is not None  # may change without the file
    kept = None if own else cache.load(name)
    if kept is None:
        with tempfile.TemporaryDirectory(prefix="kanalyze-") as folder:
            out = Path(folder, "out.ptx")
            try:
                tools.run(tool, [*flags, file, "-o", str(out)], folder)
                kept = out.read_bytes()
            except tools.ToolError as error:
                raise _nvcc_failed(error, path, source, arch, said_by) from None
        if not own:
            cache.store(name, kept)
    return Cuda(kept.decode("utf-8", "replace"), path, said_by)


def _nvcc_failed(
    error: tools.ToolError, path: Path, source: bytes, arch: str, said_by: str
) -> Exception:
    said = error.output
    if re.search(r"[Ff]ailed to preprocess host compiler|cannot find (?:host )?compiler|"
                 r"cc1plus\W.*No such file|unsupported GNU version", said):  # fmt: skip
        return _NoHostCompiler(str(error))
    if re.search(
        r"Unsupported gpu architecture|is not defined for option 'gpu-architecture'", said
    ):
        return MissingToolError(f"{said_by} does not know {arch}: install a CUDA toolkit that does")
    return _first_error(said, path, source, str(error))


# ---------------------------------------------------------------- NVRTC


@memoise
def _nvrtc() -> Path | None:
    """The newest NVRTC of the wheels ``nvidia-cuda-nvrtc*``, else of ``$CUDA_HOME``."""
    folders = [
        folder
        for place in _folders_of("nvidia")
        for folder in (*place.glob("cu[0-9]*/lib"), *place.glob("cuda_nvrtc/lib"))
    ]
    libraries = [file for folder in folders for file in folder.glob("libnvrtc.so.*[0-9]")]
    if not libraries and (home := os.environ.get("CUDA_HOME")):
        libraries = list(Path(home, "lib64").glob("libnvrtc.so.*[0-9]"))
    return max(libraries, key=lambda f: [int(n) for n in re.findall(r"\d+", f.name)], default=None)


def _folders_of(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        spec = None
    return [Path(folder) for folder in (spec and spec.submodule_search_locations) or ()]


def _headers() -> list[Path]:
    """Folders with ``cuda_fp16.h`` and the like: of the wheels, of Triton, of a toolkit."""
    places = [
        place
        for folder in _folders_of("nvidia")
        for place in (*folder.glob("cu[0-9]*/include"), *folder.glob("cuda_runtime/include"))
    ]
    places += [folder / "backends/nvidia/include" for folder in _folders_of("triton")]
    if home := os.environ.get("CUDA_HOME"):
        places.append(Path(home, "include"))
    return [place for place in places if (place / "cuda_fp16.h").is_file()][:1]


def _with_nvrtc(path: Path, source: bytes, arch: str) -> Cuda:
    file = _nvrtc()
    if file is None:
        raise MissingToolError(
            f"CUDA C++ needs nvcc (on the PATH) or NVRTC, and there is neither: {_NVRTC}"
        )
    try:
        for part in file.parent.glob("libnvrtc-builtins.so.*"):
            ctypes.CDLL(str(part))  # NVRTC looks for it by its name alone
        library = ctypes.CDLL(str(file))
    except OSError as error:
        raise MissingToolError(
            f"{file.name} cannot be loaded ({error}): {_NVRTC} --force-reinstall"
        ) from None
    major, minor = ctypes.c_int(), ctypes.c_int()
    library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    said_by = f"NVRTC {major.value}.{minor.value}"
    flags = [
        f"--gpu-architecture={arch.replace('sm_', 'compute_')}",
        "--generate-line-info",
        "--device-as-default-execution-space",
        f"--include-path={path.resolve().parent}",
        *(f"--include-path={folder}" for folder in _headers()),
    ]
    code, ptx, log = _run_nvrtc(library, source, str(path.resolve()), flags)
    if code == 0:
        return Cuda(ptx, path, said_by)
    if "invalid value for --gpu-architecture" in log:
        raise MissingToolError(f"{said_by} does not know {arch}: {_NVRTC} --upgrade")
    message = f"{said_by} failed (code {code})"
    first = _first_error(log, path, source, message)
    hint = "; NVRTC compiles device code alone: with nvcc on the PATH, host code may stay"
    raise InputError(first.message + hint, first.spot, first.file)


def _run_nvrtc(
    library: ctypes.CDLL, source: bytes, name: str, flags: Sequence[str]
) -> tuple[int, str, str]:
    """Return NVRTC's code, the PTX and the log."""
    program = ctypes.c_void_p()
    text = ctypes.create_string_buffer(source)
    code = library.nvrtcCreateProgram(ctypes.byref(program), text, os.fsencode(name), 0, None, None)
    if code:
        return int(code), "", ""
    try:
        given = (ctypes.c_char_p * len(flags))(*(os.fsencode(flag) for flag in flags))
        code = int(library.nvrtcCompileProgram(program, len(flags), given))
        log = _read(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program)
        ptx = "" if code else _read(library.nvrtcGetPTXSize, library.nvrtcGetPTX, program)
        return code, ptx, log
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _read(size_of: Any, get: Any, program: ctypes.c_void_p) -> str:
    size = ctypes.c_size_t()
    if size_of(program, ctypes.byref(size)) or not size.value:
        return ""
    buffer = ctypes.create_string_buffer(size.value)
    get(program, buffer)
    return buffer.value.decode("utf-8", "replace")


# ---------------------------------------------------------------- errors

_EDG = re.compile(r"^(?P<file>.+?)\((?P<line>\d+)\): (?:catastrophic )?error: (?P<text>.+)$")
_GCC = re.compile(r"^(?P<file>.+?):(?P<line>\d+):(?P<column>\d+): (?:fatal )?error: (?P<text>.+)$")


def _first_error(said: str, path: Path, source: bytes, otherwise: str) -> InputError:
    """The first error of the compiler's output, at its place.

    The front end writes ``FILE(LINE): error: …``, the line and a caret; the host's preprocessor
    ``FILE:LINE:COLUMN: error: …``.
    """
    lines = said.splitlines()
    errors = [
        (at, m) for at, line in enumerate(lines) if (m := _EDG.match(line) or _GCC.match(line))
    ]
    if not errors:
        return InputError(otherwise, file=str(path))
    at, match = errors[0]
    more = f" (and {len(errors) - 1} more)" if len(errors) > 1 else ""
    number = int(match["line"])
    file, text = match["file"], ""
    if os.path.realpath(file) == os.path.realpath(path):
        file = str(path)
        listed = source.decode("utf-8", "replace").splitlines()
        text = listed[number - 1] if 0 < number <= len(listed) else ""
    column = int(match["column"]) if "column" in match.groupdict() else 0
    if not column:
        carets = (line.index("^") for line in lines[at + 1 : at + 4] if line.strip() == "^")
        column = _column(next(carets, None), lines[at + 1 : at + 2], text)
    return InputError(f"{match['text'].strip()}{more}", SourceSpot(file, number, column, text))


def _column(caret: int | None, shown: Sequence[str], text: str) -> int:
    """The column of a caret under a line that is shown without its blanks, macros expanded."""
    own = len(text) - len(text.lstrip())
    if caret is None or not shown:
        return own + 1
    at = text.rfind(shown[0][caret:].rstrip()) if shown[0][caret:].strip() else -1
    if at >= 0:
        return at + 1
    indent = len(shown[0]) - len(shown[0].lstrip())
    return min(max(1, caret - indent + own + 1), len(text) + 1)


# ---------------------------------------------------------------- what the source says


def source_name(symbol: str) -> str:
    """The name of a kernel as its author wrote it: ``add`` for ``_Z3addPKfPfi``."""
    names = leading_names(symbol) if symbol.startswith("_Z") else []
    return names[-1][0] if names else symbol


_TYPES = {
    "float": "fp32", "double": "fp64", "int": "i32", "unsigned": "i32", "unsigned int": "i32",
    "char": "i8", "signed char": "i8", "unsigned char": "i8", "bool": "i8", "short": "i16",
    "unsigned short": "i16", "long long": "i64", "unsigned long long": "i64", "long": "i64",
    "unsigned long": "i64", "size_t": "i64", "half": "fp16", "__half": "fp16",
    "__nv_bfloat16": "bf16", "int8_t": "i8", "uint8_t": "i8", "int16_t": "i16", "uint16_t": "i16",
    "int32_t": "i32", "uint32_t": "i32", "int64_t": "i64", "uint64_t": "i64",
}  # fmt: skip
"""C++ types in Triton's notation, in which the report has them."""

_QUALIFIERS = frozenset(
    ("const", "volatile", "__restrict__", "__restrict", "__grid_constant__", "std", ":")
)


def parameters(source: str, kernel: str) -> list[tuple[str, str | None]]:
    """The names of a kernel's parameters, with their types as far as they are plain ones.

    Args:
        source: the CUDA file.
        kernel: the kernel's name there.

    Returns an empty list where the list of parameters is not found or not understood.
    """
    text = re.sub(r"//[^\n]*|/\*.*?\*/", " ", source, flags=re.DOTALL)
    pattern = (
        rf"__global__[^;{{}}()]*(?:\([^()]*\)[^;{{}}()]*)*?\b{re.escape(kernel)}\s*\(([^()]*)\)"
    )
    match = re.search(pattern, text)
    if match is None or not match[1].strip() or match[1].strip() == "void":
        return []
    result: list[tuple[str, str | None]] = []
    for piece in match[1].split(","):
        words = re.findall(r"\w+|\*|[^\s\w]", piece.partition("=")[0])
        plain = [w for w in words if w not in _QUALIFIERS]
        if len(plain) < 2 or not plain[-1].isidentifier() or {"<", ">", "[", "&"} & set(plain):
            return []
        *kind, name = plain
        stars = kind.count("*")
        base = _TYPES.get(" ".join(word for word in kind if word != "*"))
        known = stars < 2 and base is not None
        result.append((name, f"{'*' * stars}{base}" if known else None))
    return result
