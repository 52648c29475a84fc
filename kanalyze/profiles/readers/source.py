"""The bytes of a dump: unpacked, in UTF-8, in bounded pieces, with what is wrong with them."""

from __future__ import annotations

import codecs
import re
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO

from kanalyze.errors import InputError, SourceSpot

STANDARD_INPUT = "<stdin>"
PIECE = 1 << 16
LINE_LIMIT = 16 << 20
"""Bytes of the longest line that is read; longer ones are left out and reported."""
BOMB_BYTES = 1 << 28
BOMB_RATIO = 200
"""Unpacked data of more than `BOMB_BYTES` may be at most this many times as large as packed.

Real traces shrink 5 to 60 times; DEFLATE's limit is 1032."""

_HEAD = 1 << 16
_GZIP = b"\x1f\x8b"


@dataclass
class Trouble:
    """What was wrong with an input: the first thing is told, the others are counted."""

    line: int = 0
    message: str = ""
    more: int = 0

    def add(self, line: int, message: str) -> None:
        """Note that something is wrong at a line (0: not at one line)."""
        if self.message:
            self.more += 1
        else:
            self.line, self.message = line, message


@dataclass
class DumpSource:
    """An opened dump.

    Args:
        name: as shown in messages.
        stream: where the bytes come from.
        path: the file, where it can be opened again to count lines; None for a pipe.
    """

    name: str
    stream: IO[bytes]
    path: Path | None = None
    trouble: Trouble = field(default_factory=Trouble)
    packed_read: int = 0
    packed: bool = False
    _head: bytes = b""
    _pieces: Iterator[bytes] = field(default_factory=lambda: iter(()))
    _newlines: int = 0

    def __post_init__(self) -> None:
        self._pieces = self._decoded(self._unpacked())
        while len(self._head) < _HEAD:
            piece = next(self._pieces, b"")
            if not piece:
                break
            self._head += piece

    def __enter__(self) -> DumpSource:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.stream is not sys.stdin.buffer:
            self.stream.close()

    @property
    def head(self) -> bytes:
        """The first pieces (64 KiB or more, where there are so many)."""
        return self._head

    def pieces(self) -> Iterator[bytes]:
        """All bytes, about `PIECE` at a time; to be used once."""
        if self._head:
            head, self._head = self._head, b""
            self._count(head)
            yield head
        for piece in self._pieces:
            self._count(piece)
            yield piece

    def lines(self) -> Iterator[tuple[int, str]]:
        """All lines with their 1-based numbers, without line ends; a line feed or a carriage
        return inside a line (a progress bar) does not change the number."""
        number = 0
        for raw in self._raw_lines():
            number += 1
            if raw is None:
                self.trouble.add(
                    number, f"left out a line of more than {LINE_LIMIT >> 20} MiB, expected text"
                )
                continue
            if b"\0" in raw:
                self.trouble.add(number, "found NUL bytes, expected text")
                raw = raw.replace(b"\0", b"")
            try:
                text = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                bad = raw[error.start]
                self.trouble.add(
                    number,
                    f"found byte 0x{bad:02x}, expected UTF-8 (the line was read as Windows-1252)",
                )
                text = raw.decode("cp1252", "replace")
            for part in text.split("\r"):
                if part or not text:
                    yield number, part

    def line_at(self, offset: int) -> int:
        """The 1-based line of a byte in what `pieces` gave; 0 where it cannot be told."""
        if self.path is None:
            return self._newlines + 1
        line, left = 1, offset
        with open_source(self.path, self.name) as again:
            for piece in again.pieces():
                if left <= len(piece):
                    return line + piece.count(b"\n", 0, left)
                line += piece.count(b"\n")
                left -= len(piece)
        return line

    def finish(self) -> None:
        """Say what was wrong, if anything was.

        Raises:
            InputError: something was.
        """
        trouble = self.trouble
        if not trouble.message:
            return
        more = f" (and {trouble.more:,} more)" if trouble.more else ""
        message = trouble.message + more
        if trouble.line:
            raise InputError(message, SourceSpot(self.name, trouble.line, 1))
        raise InputError(message, file=self.name)

    def _count(self, piece: bytes) -> None:
        if self.path is None:
            self._newlines += piece.count(b"\n")

    def _raw_lines(self) -> Iterator[bytes | None]:
        rest: list[bytes] = []
        size, skipping = 0, False
        for piece in self.pieces():
            first, *others = piece.split(b"\n")
            rest.append(first)
            size += len(first)
            if others:
                yield None if skipping else b"".join(rest)
                yield from others[:-1]
                rest, size, skipping = [others[-1]], len(others[-1]), False
            elif size > LINE_LIMIT:
                rest, skipping = [], True
        if skipping or any(rest):
            yield None if skipping else b"".join(rest)

    def _packed(self) -> Iterator[bytes]:
        while True:
            try:
                piece = self.stream.read(PIECE)
            except OSError as error:
                self.trouble.add(0, f"reading stopped: {error.strerror or error}")
                return
            if not piece:
                return
            self.packed_read += len(piece)
            yield piece

    def _unpacked(self) -> Iterator[bytes]:
        packed = self._packed()
        first = next(packed, b"")
        if not first.startswith(_GZIP):
            if first:
                yield first
            yield from packed
            return
        self.packed = True
        unpacker = zlib.decompressobj(wbits=31)
        produced = 0
        data = first
        while True:
            try:
                piece = unpacker.decompress(data, PIECE)
            except zlib.error as error:
                text = str(error).rpartition(": ")[2]
                self.trouble.add(0, f"damaged gzip data near byte {self.packed_read:,}: {text}")
                return
            produced += len(piece)
            if piece:
                yield piece
            if produced > BOMB_BYTES and produced > BOMB_RATIO * self.packed_read:
                self.trouble.add(
                    0,
                    f"stopped after {produced >> 20} MiB: gzip data that unpacks to more than "
                    f"{BOMB_RATIO} times its size is not a profile",
                )
                return
            if unpacker.eof:
                data = unpacker.unused_data.lstrip(b"\0") or next(packed, b"").lstrip(b"\0")
                if not data:
                    return
                if not data.startswith(_GZIP[: len(data)]):
                    self.trouble.add(0, "found other data behind the gzip data, expected its end")
                    return
                unpacker = zlib.decompressobj(wbits=31)
                continue
            data = unpacker.unconsumed_tail or next(packed, b"")
            if not data:
                data = b""
                tail = unpacker.flush()
                if tail:
                    yield tail
                self.trouble.add(
                    0, "the gzip data ends early (the file is cut), expected its trailer"
                )
                return

    def _decoded(self, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """Drop a byte-order mark; turn UTF-16 and UTF-32 into UTF-8."""
        first = next(pieces, b"")
        encoding = _wide_encoding(first)
        if encoding is None:
            first = first.removeprefix(codecs.BOM_UTF8)
            if first:
                yield first
            yield from pieces
            return
        decoder = codecs.getincrementaldecoder(encoding)("replace")
        text = decoder.decode(first).removeprefix("\ufeff")
        yield text.encode("utf-8", "replace")
        for piece in pieces:
            yield decoder.decode(piece).encode("utf-8", "replace")
        yield decoder.decode(b"", True).encode("utf-8", "replace")


_SURROGATE = re.compile("[\ud800-\udfff]")


def clean(text: str) -> str:
    """The text with U+FFFD for lone surrogates, which are no characters."""
    return _SURROGATE.sub("\ufffd", text)


def open_source(path: Path, name: str | None = None) -> DumpSource:
    """Open a file.

    Raises:
        InputError: it cannot be opened.
    """
    shown = clean(str(path)) if name is None else name
    try:
        if path.is_dir():
            raise InputError("is a folder, expected a profiler dump", file=shown)
        return DumpSource(shown, path.open("rb"), path if path.is_file() else None)
    except OSError as error:
        raise InputError(error.strerror or str(error), file=shown) from None


def _wide_encoding(head: bytes) -> str | None:
    """UTF-16 or UTF-32 by their marks, or UTF-16 by its zeros."""
    if head.startswith((codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE)):
        return "utf-32"
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    sample = head[:2000]
    if len(sample) < 8 or sample.startswith(b"SQLite"):
        return None
    half = len(sample) // 2
    if sample[1::2].count(0) > 0.8 * half and sample[::2].count(0) < 0.1 * half:
        return "utf-16-le"
    if sample[::2].count(0) > 0.8 * half and sample[1::2].count(0) < 0.1 * half:
        return "utf-16-be"
    return None
