"""What a TARGET is, told by what it holds; a file's name decides only where that says nothing.

Python is the exception: a file is run to get at its kernels, so it must be called ``.py``.
"""

from __future__ import annotations

import ast
import io
import os
import re
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

from kanalyze import _bundled
from kanalyze.errors import InputError, UsageError, nearest
from kanalyze.frontend import files
from kanalyze.sass import cubin

EXPECTED = (
    "PTX, CUDA C++, a cubin, a fat binary, an executable with device code, or a Python file (.py) "
    "with a Triton kernel"
)
TRITON_KERNEL = "a Triton kernel: a bundled kernel's name or path/to/file.py:kernel"


class Kind(StrEnum):
    """What an input holds, in the words of messages."""

    BUNDLED = "a bundled kernel"
    PYTHON = "Python"
    PTX = "PTX"
    CUDA = "CUDA C++"
    MACHINE_CODE = "machine code"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of kernels.

    Attributes:
        kind: what it holds.
        name: what messages and reports call it: the file as given, ``<stdin>``, a kernel's name.
        path: the file; None for what can be read only once: a pipe, standard input.
        kernel: the kernel named behind a colon.
        data: the contents; empty for Python, which is run from its file.
    """

    kind: Kind
    name: str
    path: Path | None = None
    kernel: str | None = None
    data: bytes = b""

    @property
    def text(self) -> str:
        """The contents as text: UTF-8, or else Latin-1."""
        return _text(self.data)


def bundled_names() -> list[str]:
    """Return the names of the bundled kernels, sorted."""
    kernels = _bundled.folder("kernels").glob("*.py")
    return sorted(path.stem for path in kernels if path.stem != "__init__")


def inputs_of(target: str) -> list[str]:
    """Return the targets that one stands for: the files of a folder or a pattern, else itself.

    Raises:
        InputError: there are none.
    """
    return [target] if target == "-" or target in bundled_names() else files.files_of(target)


def identify(target: str) -> Input:
    """Say what a target is: a bundled kernel's name, ``FILE``, ``FILE:KERNEL`` or ``-``.

    Raises:
        UsageError: it is empty, or no file, and no bundled kernel has the name.
        InputError: the file cannot be read, or holds no kernels.
    """
    if not target:
        raise UsageError("the TARGET is empty")
    if target == "-":
        given = _contents(io.BytesIO(files.standard_input()), files.STANDARD_INPUT)
        return _read_once(*given, files.STANDARD_INPUT)
    known = bundled_names()
    if target in known:
        return Input(Kind.BUNDLED, target, _bundled.folder("kernels") / f"{target}.py")
    file, kernel = _split(target)
    pipe = files.is_pipe(file)
    if not os.path.exists(file) and not re.search(r"[/.:]", target):
        raise UsageError(
            f"unknown kernel '{target}': {nearest(target, known)} "
            "(a file of your own is written path/to/file.py:kernel)"
        )
    try:
        with open(file, "rb") as stream:
            kind, data = _contents(stream, file)
    except OSError as error:
        raise InputError(error.strerror or str(error), file=file) from None
    except ValueError as error:  # a NUL in the name
        raise InputError(str(error), file=repr(file)) from None
    if pipe:
        return _read_once(kind, data, file)
    return Input(kind, file, Path(file), kernel, data)


def _read_once(kind: Kind, data: bytes, name: str) -> Input:
    """What came from a pipe."""
    if kind in (Kind.CUDA, Kind.PYTHON):
        raise InputError(f"found {kind} in a pipe, expected a file to compile", file=name)
    return Input(kind, name, data=data)


def triton_kernel(target: str) -> Input:
    """Say which kernel Triton is to compile, bundled or in a Python file.

    Raises:
        UsageError: the target is something else, or unknown.
        InputError: the file cannot be read, or holds no kernels.
    """
    if target == "-":
        raise UsageError(f"expected {TRITON_KERNEL}, not '-'")
    if os.path.isdir(target) and target not in bundled_names():
        raise UsageError(f"{target} is a folder, expected {TRITON_KERNEL}")
    given = identify(target)
    if given.kind not in (Kind.BUNDLED, Kind.PYTHON):
        raise UsageError(f"{target} is {given.kind}, expected {TRITON_KERNEL}")
    return given


def _split(target: str) -> tuple[str, str | None]:
    """The file of a target, and the kernel behind a colon; a file may have colons in its name."""
    if not os.path.exists(target):
        for colon in re.finditer(":", target):
            file = target[: colon.start()]
            if os.path.isfile(file) or file.endswith((".py", ".cu")):
                return file, target[colon.end() :] or None
    return target, None


# ---------------------------------------------------------------- what a file holds

_HEAD = 1 << 16  # bytes that tell most kinds of files; the rest of other files is not read
_BINARY = (
    (b"\x1f\x8b", "gzip data"),
    (b"PK\x03\x04", "a ZIP archive"),
    (b"\xfd7zXZ", "xz data"),
    (b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"%PDF", "a PDF"),
    (b"\x89PNG", "a picture"),
)
_TEXTS = (
    (r"\A\s*(?:\{\s*\"|\[\s*[\[{\"\d])", "JSON"),
    (r"(?i)\A\s*<(?:!doctype|html|\?xml|svg)\b", "HTML or XML"),
    (r"^[ \t]*(?:tt\.func\b|ttg\.|module\b.*\{$)", "Triton's IR"),
    (r"^(?:target triple\s*=|define\b.*@.*\{$)", "LLVM IR"),
    (r"^[ \t]*/\*[0-9a-f]{4,}\*/[ \t]+(?:@!?U?P\S+[ \t]+)?[A-Z]", "disassembled machine code"),
    (r"^[ \t]*(?:```|~~~)|^\[?!?\[[^\]\n]*\]\(", "Markdown"),
)
_COMMENTS = r"//[^\n]*|/\*(?s:.*?\*/|.*)"
_SPACE = rf"\A\ufeff?(?:\s|{_COMMENTS})*+"
_BEGINS_AS_PTX = re.compile(rf"{_SPACE}\.version\b")
_PTX = re.compile(
    rf"{_SPACE}\.(?:target|address_size|visible|weak|extern|entry|func|file)\b"
    r"|^[ \t]*\.version\s+\d|^[ \t]*(?:\.visible\s+)?\.entry\b",
    re.MULTILINE,
)
_CUDA = re.compile(r"\b__global__\b[^;{}#]{0,400}?\(")
_FENCE = re.compile(r"^[ \t]*(?:```|~~~)", re.MULTILINE)


def _contents(stream: BinaryIO, name: str) -> tuple[Kind, bytes]:
    """What a file holds, and its bytes; those of a file without kernels are not all read.

    Raises:
        InputError: it holds no kernels.
    """
    head = stream.read(_HEAD)
    if cubin.is_machine_code(head):
        return Kind.MACHINE_CODE, head + stream.read()
    text = _text(head)
    if name.endswith(".py") and not _BEGINS_AS_PTX.match(text):
        return Kind.PYTHON, b""
    kind = _kind(text)
    if kind is None:
        other = _binary(head) or next((w for p, w in _TEXTS if re.search(p, text, re.M)), None)
        if other is not None and not name.endswith(".cu"):
            raise _no_kernels(other, name)
    data = head + stream.read()
    kind = kind or (_kind(_text(data)) if len(data) > len(head) else None)
    if kind is None and name.endswith(".cu"):
        kind = Kind.CUDA
    if kind is None and (name.endswith(".ptx") or name == files.STANDARD_INPUT):
        kind = Kind.PTX  # what is wrong with it is said with its place
    if kind is None:
        raise _no_kernels(_of_text(_text(data), name), name)
    return kind, data


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def _kind(text: str) -> Kind | None:
    """PTX or CUDA C++; None for other texts, such as one that shows some of it between fences."""
    if _BEGINS_AS_PTX.match(text):
        return Kind.PTX
    if _FENCE.search(text):
        return None
    if "__global__" in text and _CUDA.search(re.sub(_COMMENTS, " ", text)):
        return Kind.CUDA
    return Kind.PTX if _PTX.search(text) else None


def _binary(data: bytes) -> str | None:
    if not data:
        return "an empty file"
    known = (what for begin, what in _BINARY if data.startswith(begin))
    return next(known, "binary data" if b"\0" in data else None)


def _of_text(text: str, name: str) -> str:
    if name.endswith(".md"):
        return "Markdown"
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return "plain text"
    defines = any(isinstance(n, ast.FunctionDef | ast.Import | ast.ImportFrom) for n in tree.body)
    return (
        "Python, which is run only from a file whose name ends in .py" if defines else "plain text"
    )


def _no_kernels(what: str, name: str) -> InputError:
    return InputError(f"found {what}, expected {EXPECTED}", file=name)
