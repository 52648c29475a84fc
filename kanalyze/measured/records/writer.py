"""Writing records: one launch a JSON file, with the PTX and the cubin beside it; packing a folder.

Paths of the machine that measured do not go out: in the PTX a file keeps its name (one of a Python
package its path below ``site-packages``), in the cubin, where nothing may move, the folders are
overwritten in place.
"""

from __future__ import annotations

import glob
import io
import json
import lzma
import os
import re
import tarfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kanalyze.cache import write_whole
from kanalyze.errors import InputError

_FILE = re.compile(r'^(\s*\.file\s+\d+\s+")(/[^"]*)(")', re.MULTILINE)
_PRESET = 6


def write_record(
    folder: Path, stem: str, data: Mapping[str, Any], ptx: str, cubin: bytes | None
) -> Path:
    """Write ``STEM.json``, ``STEM.ptx`` and ``STEM.cubin`` to a folder; return the first.

    The JSON is written last and whole or not at all, so that a record that is there is complete.

    Raises:
        InputError: a file cannot be written.
    """
    text, binary = without_paths(ptx, cubin)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / f"{stem}.ptx", text.encode(), 0o644)
        if binary is not None:
            write_whole(folder / f"{stem}.cubin", binary, 0o644)
        path = folder / f"{stem}.json"
        write_whole(path, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode(), 0o644)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(folder)) from None
    return path


def without_paths(ptx: str, cubin: bytes | None) -> tuple[str, bytes | None]:
    """The PTX with relative paths of its source files, and the cubin with the same folders gone."""
    folders = {os.path.dirname(match[2]) for match in _FILE.finditer(ptx)}
    text = _FILE.sub(lambda match: f"{match[1]}{relative(match[2])}{match[3]}", ptx)
    if cubin is not None:
        for folder in sorted(folders - {"/"}, key=len, reverse=True):
            cubin = cubin.replace(folder.encode(), b"." + b"/" * (len(folder.encode()) - 1))
    return text, cubin


def relative(path: str) -> str:
    """A source file's path without the machine's folders."""
    _, package, rest = path.rpartition("/site-packages/")
    return rest if package else os.path.basename(path)


def pack(folder: Path, file: Path, names: Iterable[str] = ()) -> int:
    """Pack the records of a folder into one ``.tar.xz``; return how many.

    The same files give the same bytes: members in order of their names, without owner or time.

    Args:
        folder: the records.
        file: the archive.
        names: further files of the folder that go in, where they are there.

    Raises:
        InputError: a file cannot be read or written.
    """
    try:
        stems = sorted(
            p.stem for p in folder.glob("*.json") if (folder / f"{p.stem}.ptx").is_file()
        )
        wanted = [f"{stem}{end}" for stem in stems for end in (".json", ".ptx", ".cubin")]
        wanted += [p.name for stem in stems for p in folder.glob(f"{glob.escape(stem)}.*.npy")]
        present = [name for name in {*wanted, *names} if (folder / name).is_file()]
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
            for name in sorted(present, key=lambda n: (n.rpartition(".")[2], n)):
                data = (folder / name).read_bytes()
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(data), 0o644
                archive.addfile(member, io.BytesIO(data))
        file.parent.mkdir(parents=True, exist_ok=True)
        packed = lzma.compress(buffer.getvalue(), preset=_PRESET | lzma.PRESET_EXTREME)
        write_whole(file, packed, 0o644)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InputError(f"cannot be packed: {reason}", file=str(file)) from None
    return len(stems)
