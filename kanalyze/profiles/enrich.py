"""A Chrome trace written back with the decoded fields in each kernel's ``args``.

Everything else stays as it is, byte for byte but for the blanks between events; Perfetto and
chrome://tracing show the fields when a kernel is selected.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import tempfile
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

import msgspec

from kanalyze.errors import InputError
from kanalyze.profiles.describe import describe
from kanalyze.profiles.names import decode
from kanalyze.profiles.readers.chrome_records import loads
from kanalyze.profiles.readers.chrome_scan import NotATraceError, Scanner
from kanalyze.profiles.readers.formats import opened
from kanalyze.profiles.tensorcores import uses_tensor_cores

_CATEGORIES = frozenset(("kernel", "Kernel", "gpu_memcpy", "gpu_memset", "Memcpy", "Memset"))
_ARGS = re.compile(rb'"args"\s*:\s*\{\s*(\}?)')


class _Look(msgspec.Struct, gc=False):
    """What is looked at of an event."""

    cat: Any = None
    name: Any = None


def enrich(trace: str | Path, out: Path, progress: Callable[[str, int], None] | None = None) -> int:
    """Write a trace with decoded kernels; returns how many there were.

    Args:
        trace: the Chrome trace, packed or not.
        out: written whole or not at all; packed if its name ends in ``.gz``.
        progress: told how far reading is.

    Raises:
        InputError: the input is no trace or damaged (then what could be read was written), or the
            output cannot be written.
    """
    with opened(trace) as source:
        head = source.head.lstrip()[:1]
        if head not in (b"{", b"["):
            raise InputError("expected a Chrome trace for --enrich", file=source.name)
        looks = msgspec.json.Decoder(_Look)
        decoder = msgspec.json.Decoder(list[msgspec.Raw])

        def many(data: bytes) -> list[bytes]:
            return [bytes(raw) for raw in decoder.decode(data)]

        def one(data: bytes) -> bytes | None:
            return None if loads(data) is None else data

        try:
            scanner: Scanner[bytes] = Scanner(source, many, one)
        except NotATraceError as error:
            raise InputError(
                f"found {error}, expected a Chrome trace for --enrich", file=source.name
            ) from None
        count = 0
        with _Output(out) as file:
            file.write(scanner.header)
            again = True
            while again:
                separator = b"\n"
                for batch in scanner.batches():
                    events = []
                    for raw in batch:
                        changed = _enriched(raw, looks)
                        count += changed is not None
                        events.append(raw if changed is None else changed)
                    file.write(separator + b",\n".join(events))
                    separator = b",\n"
                    if progress is not None:
                        progress(source.name, source.packed_read)
                file.write(b"\n")
                again = scanner.reopen(file.write)
            if not scanner.whole:
                closing = b"]" if scanner.header.lstrip()[:1] == b"[" else b"]}"
                file.write(closing[1:] if scanner.closed else closing)
        source.finish()
        return count


def _enriched(raw: bytes, looks: Any) -> bytes | None:
    """The event with the decoded fields; None where it is none of a kernel."""
    if b"ernel" not in raw and b"em" not in raw:
        return None
    try:
        look = looks.decode(raw)
        cat, name = look.cat, look.name
    except (msgspec.DecodeError, UnicodeDecodeError):
        event = loads(raw) or {}
        cat, name = event.get("cat"), event.get("name")
    if not isinstance(cat, str) or cat not in _CATEGORIES or not isinstance(name, str):
        return None
    fields = _fields(name)
    match = _ARGS.search(raw)
    if match is None:
        return raw[: raw.rindex(b"}")].rstrip() + b', "args": {' + fields + b"}}"
    place = match.start(1)
    return raw[:place] + fields + (b"" if match[1] else b", ") + raw[place:]


@lru_cache(maxsize=4096)
def _fields(name: str) -> bytes:
    """The members that are added, as JSON without its braces."""
    kernel = decode(name)
    added: dict[str, Any] = {"kanalyze": describe(kernel), "kernel family": kernel.family}
    tensor = uses_tensor_cores(kernel)
    if tensor is not None:
        added["tensor cores"] = tensor
    added["decoded"] = kernel.to_dict()["decoded"]
    return json.dumps(added)[1:-1].encode()


class _Output:
    """A file that appears when it is complete."""

    def __init__(self, path: Path):
        self.path = path
        self._temporary = ""
        self._raw: IO[bytes] | None = None
        self._file: IO[bytes] | None = None

    def __enter__(self) -> IO[bytes]:
        try:
            handle, self._temporary = tempfile.mkstemp(dir=self.path.parent, prefix=".kanalyze-")
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=str(self.path)) from None
        self._raw = os.fdopen(handle, "wb")
        self._file = self._raw
        if self.path.suffix == ".gz":
            packed: Any = gzip.GzipFile("", "wb", 6, self._raw, mtime=0)
            self._file = packed
        assert self._file is not None
        return self._file

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        assert self._file is not None
        assert self._raw is not None
        try:
            self._file.close()
            self._raw.close()
            if kind is None:
                mask = os.umask(0)
                os.umask(mask)
                os.chmod(self._temporary, 0o666 & ~mask)
                os.replace(self._temporary, self.path)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=str(self.path)) from None
        finally:
            Path(self._temporary).unlink(missing_ok=True)
