"""Machine code in files: cubins, fat binaries, and executables that hold either.

A cubin is an ELF file for NVIDIA's machine. Which of its functions are kernels stands in its symbol
table; the PTX that it was assembled from stands in its ``.nv_debug_ptx_txt`` section where it was
made with ``-lineinfo`` (Triton's cubins are), without the ``.loc`` lines and comments. Fat binaries
and executables are taken apart by ``cuobjdump``.
"""

from __future__ import annotations

import re
import struct
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kanalyze.errors import InputError
from kanalyze.toolchain import tools

_ELF = b"\x7fELF"
_FATBIN = (b"\x50\xed\x55\xba", b"\xb1\x43\x62\x46")
_CUDA = 190  # e_machine: EM_CUDA
_FUNCTION, _ENTRY = 2, 0x10  # st_info: STT_FUNC; st_other: STO_CUDA_ENTRY
_PTX_SECTION = ".nv_debug_ptx_txt"


@dataclass(frozen=True, slots=True)
class Cubin:
    """A cubin.

    Attributes:
        name: where it comes from, for messages: ``gelu.cubin``, ``a.out (sm_80)``.
        data: the ELF file.
        capability: 90 for sm_90.
        kernels: the symbols of its kernels, in the order of the symbol table.
        ptx: the PTX text that its debug section holds; None if there is none.
    """

    name: str
    data: bytes
    capability: int
    kernels: tuple[str, ...]
    ptx: str | None


@dataclass(frozen=True, slots=True)
class CodeContents:
    """What a file holds: its cubins, and PTX that stands beside them in a fat binary."""

    cubins: tuple[Cubin, ...]
    ptx: tuple[str, ...]


def is_machine_code(data: bytes) -> bool:
    """Tell whether a file that begins so is an ELF file or a fat binary."""
    return data.startswith((_ELF, *_FATBIN))


def read_file(path: Path) -> CodeContents:
    """Read a cubin, a fat binary, or an executable or library with device code.

    Raises:
        InputError: it cannot be read, or holds no device code.
        MissingToolError: it has to be taken apart, and there is no cuobjdump.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), file=str(path)) from None
    return read(data, str(path))


def read(data: bytes, name: str) -> CodeContents:
    """Read the bytes of a file; see `read_file`."""
    if not is_machine_code(data):
        what = "an empty file" if not data else "neither ELF nor a fat binary"
        raise InputError(f"found {what}, expected a cubin", file=name)
    try:
        if data.startswith(_ELF) and _machine(data) == _CUDA:
            return CodeContents((parse(data, name),), ())
        return _unpacked(data, name)
    except InputError as error:
        raise InputError(error.message, file=name) from None


def _machine(data: bytes) -> int:
    if len(data) < 52:
        raise InputError(f"found an ELF file cut short ({len(data)} bytes), expected a cubin")
    return int.from_bytes(data[18:20], "little")


# ---------------------------------------------------------------- one cubin


@dataclass(frozen=True, slots=True)
class _Section:
    name: str
    kind: int
    data: bytes
    link: int


def parse(data: bytes, name: str) -> Cubin:
    """Read the ELF file of a cubin.

    Raises:
        InputError: it is damaged, or of 32 bits.
    """
    if _machine(data) != _CUDA:
        raise InputError("found an ELF file for another machine, expected a cubin")
    if data[4:6] != b"\x02\x01":
        raise InputError("found a cubin of 32 bits, expected one of 64 bits")
    try:
        sections = _sections(data)
        kernels = _kernels(sections)
    except (struct.error, IndexError, ValueError, OverflowError):
        raise InputError("found a damaged cubin: its tables point outside of the file") from None
    ptx = next((s.data for s in sections if s.name == _PTX_SECTION), None)
    text = None if ptx is None else ptx.replace(b"\0", b"\n").decode("utf-8", "replace")
    if text is not None and not re.search(r"^\s*\.version\s", text, re.MULTILINE):
        text = None
    return Cubin(name, data, _capability(data), kernels, text)


def _capability(data: bytes) -> int:
    """Return what ``e_flags`` says: bits 0-7 in ELF ABI version 7, bits 8-15 in 8 (CUDA 13)."""
    (flags,) = struct.unpack_from("<I", data, 48)
    return int(flags & 0xFF if data[8] <= 7 else flags >> 8 & 0xFF)


def _sections(data: bytes) -> list[_Section]:
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names_at = struct.unpack_from("<3H", data, 58)
    rows = [struct.unpack_from("<2I4Q2I2Q", data, start + size * i) for i in range(count)]
    bodies = [b"" if row[1] == 8 else _slice(data, row[4], row[5]) for row in rows]  # 8: NOBITS
    names = bodies[names_at]
    return [
        _Section(_string(names, row[0]), row[1], body, row[6])
        for row, body in zip(rows, bodies, strict=True)
    ]


def _slice(data: bytes, start: int, size: int) -> bytes:
    if start + size > len(data):
        raise ValueError(start)
    return data[start : start + size]


def _string(table: bytes, at: int) -> str:
    return table[at : table.index(b"\0", at)].decode("utf-8", "replace")


def _kernels(sections: list[_Section]) -> tuple[str, ...]:
    entries: list[str] = []
    for section in sections:
        if section.kind == 2:  # SHT_SYMTAB
            names = sections[section.link].data
            for at in range(0, len(section.data) - 23, 24):
                name, info, other = struct.unpack_from("<IBB", section.data, at)
                if info & 15 == _FUNCTION and other & _ENTRY:
                    entries.append(_string(names, name))
    return tuple(dict.fromkeys(entries))


# ---------------------------------------------------------------- fat binaries


def _unpacked(data: bytes, name: str) -> CodeContents:
    tool = tools.find("cuobjdump")
    cubins: list[Cubin] = []
    texts: list[str] = []
    with tempfile.TemporaryDirectory(prefix="kanalyze-") as folder:
        Path(folder, "input").write_bytes(data)
        for flag in ("-xelf", "-xptx"):
            try:
                tools.run(tool, [flag, "all", "input"], folder)
            except tools.ToolError as error:
                if "does not contain device code" not in error.output and flag == "-xelf":
                    raise InputError(f"{error}, expected device code") from None
        for file in sorted(Path(folder).iterdir(), key=_number):
            if file.suffix == ".cubin":
                one = parse(file.read_bytes(), name)
                if one.kernels:
                    cubins.append(one)
            elif file.suffix == ".ptx":
                texts.append(file.read_text("utf-8", "replace"))
    if not cubins and not texts:
        raise InputError("found an ELF file or fat binary without kernels, expected device code")
    return CodeContents(tuple(cubins), tuple(texts))


def _number(path: Path) -> tuple[int, str]:
    match = re.search(r"\.(\d+)\.sm_\w+\.\w+$", path.name)
    return (int(match[1]) if match else 0, path.name)
