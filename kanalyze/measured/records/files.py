"""The files that a path stands for: a folder's, an archive's, or one file with what lies beside it.

Archives are read in memory, within bounds, and never unpacked to disk: a name in an archive is a
label, not a path. Links and devices in them are left out and told.
"""

from __future__ import annotations

import bz2
import glob
import lzma
import os
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError

MOST_BYTES = 1 << 29
"""Bytes that an archive may hold, unpacked."""
MOST_FILES = 100_000
FILE_BYTES = 1 << 26
"""Bytes of the longest file that is read."""
SUFFIXES = (".json", ".ptx", ".cubin", ".npy")
ARCHIVES = (".tar", ".tar.xz", ".txz", ".tar.gz", ".tgz", ".tar.bz2", ".zip", ".json.gz")
_PIECE = 1 << 16


@dataclass
class RecordFiles:
    """Files by the names that messages show, and what could not be read: (name, reason)."""

    files: dict[str, bytes] = field(default_factory=dict)
    troubles: list[tuple[str, str]] = field(default_factory=list)


def contents(path: str) -> RecordFiles:
    """Read what a path stands for: records with the PTX, cubin and arrays of the same stem.

    A folder stands for the records and archives directly in it.

    Raises:
        InputError: it is missing, cannot be read, or is a folder without records.
    """
    if os.path.isdir(path):
        return _folder(Path(path))
    files = RecordFiles()
    _add_file(files, path)
    if path.endswith(".json"):
        stem = path.removesuffix(".json")
        arrays = sorted(glob.glob(f"{glob.escape(stem)}.*.npy"))
        for beside in (f"{stem}.ptx", f"{stem}.cubin", *arrays):
            if os.path.isfile(beside):
                files.files[beside] = read(beside)
    return files


def of_bytes(data: bytes, name: str) -> RecordFiles:
    """Read what came through a pipe: an archive, or JSON."""
    files = RecordFiles()
    _add(files, name, data)
    return files


def read(path: str) -> bytes:
    """The bytes of a file, within bounds.

    Raises:
        InputError: it cannot be read, is too long, or neither a file nor a pipe.
    """
    try:
        with open(path, "rb") as stream:
            mode = os.fstat(stream.fileno()).st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
                raise InputError("this is neither a file nor a pipe", file=path)
            data = stream.read(MOST_BYTES + 1)
    except OSError as error:
        raise InputError(error.strerror or str(error), file=path) from None
    except ValueError as error:  # a name with a zero in it
        raise InputError(str(error), file=path) from None
    if len(data) > MOST_BYTES:
        raise InputError(f"found more than {MOST_BYTES >> 20} MiB, expected records", file=path)
    return data


def _folder(folder: Path) -> RecordFiles:
    try:
        names = sorted(p for p in os.listdir(folder) if p.endswith((*SUFFIXES, *ARCHIVES)))
    except OSError as error:
        raise InputError(error.strerror or str(error), file=str(folder)) from None
    if not any(name.endswith((".json", *ARCHIVES)) for name in names):
        raise InputError("there is no record (.json) in this folder, and no archive of records",
                         file=str(folder))  # fmt: skip
    files = RecordFiles()
    for name in names:
        path = str(folder / name)
        if os.path.isfile(path):
            try:
                _add_file(files, path)
            except InputError as error:
                files.troubles.append((path, error.message))
    return files


def _add_file(files: RecordFiles, path: str) -> None:
    _add(files, path, read(path))


def _add(files: RecordFiles, name: str, data: bytes) -> None:
    """Add a file, or the files in it where it is an archive; told by its first bytes."""
    packed = data
    for magic, unpacker in _UNPACKERS.items():
        if data.startswith(magic):
            data, trouble = _unpacked(packed, unpacker)
            if trouble:
                files.troubles.append((name, trouble))
            break
    if data[257:262] == b"ustar":
        _of_tar(files, name, data)
    elif data.startswith((b"PK\3\4", b"PK\5\6")):
        _of_zip(files, name, data)
    elif len(data) > FILE_BYTES:
        files.troubles.append((name, _too_long(len(data))))
    elif data or not packed:
        files.files[name] = data


_UNPACKERS: dict[bytes, Callable[[], Any]] = {
    b"\x1f\x8b": lambda: zlib.decompressobj(wbits=31),
    b"\xfd7zXZ\0": lambda: lzma.LZMADecompressor(memlimit=1 << 28),
    b"BZh": bz2.BZ2Decompressor,
}
"""The first bytes of packed data, and what unpacks one stream of it."""


def _unpacked(data: bytes, unpacker: Callable[[], Any]) -> tuple[bytes, str | None]:
    """The data unpacked as far as it goes, and what is wrong with it.

    Several streams in a row are one, as ``cat a.gz b.gz`` and parallel packers make them.
    """
    pieces: list[bytes] = []
    size, at = 0, 0
    for _ in range(MOST_FILES):
        one = unpacker()
        rest = b""
        while not one.eof:
            fed = rest or data[at : at + _PIECE]
            at += 0 if rest else len(fed)
            try:
                piece = one.decompress(fed, _PIECE)
            except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                return b"".join(pieces), f"the packed data is damaged: {error}"
            rest = getattr(one, "unconsumed_tail", b"")
            pieces.append(piece)
            size += len(piece)
            if size > MOST_BYTES:
                return b"", f"it unpacks to more than {MOST_BYTES >> 20} MiB, which is not read"
            if not fed and not piece and not one.eof:
                return b"".join(pieces), "the packed data ends early, expected its end"
        at -= len(one.unused_data)
        while at < len(data) and data[at] == 0:
            at += 1
        if at >= len(data):
            return b"".join(pieces), None
    return b"".join(pieces), f"it is packed in more than {MOST_FILES:,} pieces"


def _of_tar(files: RecordFiles, name: str, data: bytes) -> None:
    try:
        with tarfile.open(fileobj=BytesIO(data), mode="r:", errorlevel=0) as archive:
            for count, member in enumerate(archive):
                if count >= MOST_FILES:
                    raise tarfile.TarError(f"it holds more than {MOST_FILES:,} files")
                shown = f"{name}/{member.name}"
                if member.isdir() or not (member.issym() or _wanted(member.name)):
                    continue
                if not member.isreg() or member.issparse():
                    files.troubles.append((shown, "found a link or a device, expected a file"))
                elif member.size > FILE_BYTES:
                    files.troubles.append((shown, _too_long(member.size)))
                else:
                    stream = archive.extractfile(member)
                    body = stream.read() if stream is not None else b""
                    if len(body) < member.size:
                        raise tarfile.TarError(f"it ends inside {member.name}")
                    _keep(files, shown, body)
    except (tarfile.TarError, ValueError, OSError, EOFError, OverflowError, RecursionError,
            struct.error) as error:  # fmt: skip
        files.troubles.append((name, f"the archive is damaged: {error}"))


def _of_zip(files: RecordFiles, name: str, data: bytes) -> None:
    total = 0
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            members = archive.infolist()
            if len(members) > MOST_FILES:
                raise zipfile.BadZipFile(f"it holds more than {MOST_FILES:,} files")
            for member in members:
                shown = f"{name}/{member.filename}"
                if member.is_dir() or not _wanted(member.filename):
                    continue
                if member.file_size > FILE_BYTES:
                    files.troubles.append((shown, _too_long(member.file_size)))
                    continue
                try:
                    with archive.open(member) as stream:
                        body = stream.read(FILE_BYTES)
                except (RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error,
                        lzma.LZMAError, OSError, EOFError, struct.error) as error:  # fmt: skip
                    files.troubles.append((shown, f"cannot be unpacked: {error}"))
                    continue
                total += len(body)
                if total > MOST_BYTES:
                    raise zipfile.BadZipFile(f"it unpacks to more than {MOST_BYTES >> 20} MiB")
                _keep(files, shown, body)
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, struct.error) as error:
        files.troubles.append((name, f"the archive is damaged: {error}"))


def _wanted(name: str) -> bool:
    return name.endswith(SUFFIXES)


def _too_long(size: int) -> str:
    return f"found {size:,} bytes, expected at most {FILE_BYTES:,}"


def _keep(files: RecordFiles, name: str, body: bytes) -> None:
    if name in files.files:
        files.troubles.append((name, "the archive holds it twice; the first one is taken"))
    else:
        files.files[name] = body
