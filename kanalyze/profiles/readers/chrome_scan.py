"""A Chrome trace cut into batches of whole events, in bounded memory, whatever its layout.

A batch is cut at the last text that looks like a boundary between two events. Whether it is one
is decided by decoding the batch: events in front of a place inside a string or a deeper level are
no valid JSON list, so a wrong cut cannot pass. Only where that fails are the brackets counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

import msgspec

from kanalyze.profiles.readers.source import DumpSource

T = TypeVar("T")

EVENT_LIMIT = 16 << 20
"""Bytes of the longest event (and of the longest header) that is read."""

_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*"|["{}\[\]]', re.DOTALL)
_BOUNDARY = re.compile(rb'\}\s*,\s*\{\s*"(?:ph|name|cat|pid|tid|ts|dur|id|args|s|bp)"')
"""What stands between two events, up to the first key of the second one."""
_OPENING = re.compile(rb"\s*:\s*\[")
_NEAR = 64
"""Bytes behind a key in which its value begins."""
_TRIES = 3
_LOOK_BACK = 1 << 16
_SPACE = b" \t\r\n"


class NotATraceError(Exception):
    """The JSON is no Chrome trace; the text says why."""


class Scanner(Generic[T]):
    """Batches of the events of a trace.

    Args:
        source: the bytes.
        many: decodes a JSON list of events; raises `msgspec.DecodeError`
            or RecursionError.
        one: decodes a single event as well as it can; None where it is no JSON object.
    """

    def __init__(
        self, source: DumpSource, many: Callable[[bytes], list[T]], one: Callable[[bytes], T | None]
    ):
        self.source = source
        self.header = b""
        """The bytes in front of the first event, its ``[`` included."""
        self._many = many
        self._one = one
        self._pieces = source.pieces()
        self._buffer = b""
        self._offset = 0
        self._separator: bytes | None = None
        self._ended = False
        self.closed = False
        """Whether the ``]`` of the events was reached."""
        self._wait = 0  # bytes to have before the buffer is looked at again
        self.whole = False
        """Whether the trace's last bracket was reached (by `reopen`)."""
        self._last = b""  # what the last batch was read from
        self._last_offset = 0
        self._open()

    def batches(self) -> Iterator[list[T]]:
        """All events, in the order of the file. Ends early, with a note in ``source.trouble``,
        where the rest cannot be read."""
        final = False
        while not self._ended:
            self._last, self._last_offset = self._buffer, self._offset
            batch = self._quick()
            if batch is None:
                batch = self._exact(final)
                if batch:
                    yield batch
                if self._ended or final:
                    return
                self._wait = 0 if batch else 2 * len(self._buffer)
            else:
                yield batch
            more = [self._buffer]
            size = len(self._buffer)
            while not final:
                piece = next(self._pieces, None)
                if piece is None:
                    final = True
                    break
                more.append(piece)
                size += len(piece)
                if size >= self._wait:
                    break
            self._buffer = b"".join(more)

    def every(self) -> Iterator[list[T]]:
        """The same as `batches`, of every list of events that the trace has."""
        yield from self.batches()
        while self.reopen():
            yield from self.batches()

    def reopen(self, write: Callable[[bytes], object] = len) -> bool:
        """Go on to a further ``"traceEvents"``; to be called when `batches` has ended.

        False where there is none; then what is wrong behind the events was noted in
        ``source.trouble``: the file ends before its JSON does, or goes on behind it.

        Args:
            write: given the trace's bytes behind the events, up to those of the further list.
        """
        if not self.closed:
            return False
        depth = 2 if self.header.lstrip(_SPACE)[:1] == b"{" else 1
        final = False
        while True:
            buffer, done = self._buffer, 0
            for token, text, level in _levels(buffer, 0, depth):
                if text == b'"':
                    break
                depth = level
                if depth == 0 and text in b"}]":
                    self._pass(token.end(), write)
                    self.whole = True
                    self._check_end()
                    return False
                if depth == 1 and text == b'"traceEvents"':
                    opening = _OPENING.match(buffer, token.end())
                    if opening is not None:
                        self._pass(opening.end(), write)
                        self._ended = self.closed = False
                        self._wait = 0
                        return True
                    if not final and len(buffer) - token.end() < _NEAR:
                        break
                done = token.end()
            self._pass(done, write)
            if final:
                self._pass(len(self._buffer), write)
                self._note_cut(self._offset, "the JSON is cut, expected '}'")
                return False
            if len(self._buffer) > EVENT_LIMIT:
                self._note(
                    self._offset, f"a text is longer than {EVENT_LIMIT >> 20} MiB; reading stopped"
                )
                return False
            final = self._more(2 * len(self._buffer))

    def _pass(self, place: int, write: Callable[[bytes], object]) -> None:
        write(self._buffer[:place])
        self._offset += place
        self._buffer = self._buffer[place:]

    def _more(self, wanted: int) -> bool:
        """Read until the buffer is longer than that; whether that was all."""
        pieces = [self._buffer]
        size = len(self._buffer)
        while size <= wanted:
            piece = next(self._pieces, None)
            if piece is None:
                break
            pieces.append(piece)
            size += len(piece)
        self._buffer = b"".join(pieces)
        return size <= wanted

    def _check_end(self) -> None:
        """Note what follows the trace."""
        while True:
            rest = self._buffer.lstrip(_SPACE)
            self._offset += len(self._buffer) - len(rest)
            if rest:
                beginning = " ".join(rest[:60].decode("utf-8", "replace").split())[:40]
                self._note(
                    self._offset,
                    f"found '{beginning}' behind the trace, left out; expected the end of the file",
                )
                return
            piece = next(self._pieces, None)
            if piece is None:
                return
            self._buffer = piece

    def note_event(self, wrong: Callable[[T], bool], message: str) -> None:
        """Note what is wrong with an event of the last batch, at the first one that is so."""
        place = 0
        if not self.source.trouble.message:
            for start, end in _spans(self._last):
                event = self._one(self._last[start:end]) if end else None
                if event is not None and wrong(event):
                    place = start
                    break
        self._note(self._last_offset + place, message)

    def _note(self, offset: int, message: str) -> None:
        if self.source.trouble.message:  # lines are counted only for what is told
            self.source.trouble.more += 1
        else:
            self.source.trouble.add(self.source.line_at(offset), message)

    def _note_cut(self, offset: int, message: str) -> None:
        """Note that the JSON is cut, unless that follows from what was noted before."""
        if not self.source.trouble.message:
            self._note(offset, message)

    def _open(self) -> None:
        """Read up to the ``[`` of the events."""
        buffer, wait = b"", 0
        for piece in self._pieces:
            buffer += piece
            if len(buffer) < wait:
                continue
            wait = 2 * len(buffer)
            place = self._events_at(buffer)
            if place is not None:
                self.header = buffer[:place]
                self._buffer = buffer[place:]
                self._offset = place
                return
            if len(buffer) > EVENT_LIMIT:
                break
        place = self._events_at(buffer)
        if place is not None:
            self.header, self._buffer, self._offset = buffer[:place], buffer[place:], place
            return
        self.header, self._ended = buffer, True
        if self.source.trouble.message:
            return
        if _TOKEN.search(buffer) is None or _closed(buffer):
            raise NotATraceError('JSON without "traceEvents"')
        self._note_cut(len(buffer), 'the JSON is cut before its events, expected "traceEvents"')

    @staticmethod
    def _events_at(buffer: bytes) -> int | None:
        start = len(buffer) - len(buffer.lstrip(_SPACE))
        if buffer[start : start + 1] == b"[":
            return start + 1
        for token, text, depth in _levels(buffer, start):
            if text == b'"':
                return None
            if depth == 1 and text == b'"traceEvents"':
                opening = _OPENING.match(buffer, token.end())
                if opening:
                    return opening.end()
        return None

    def _quick(self) -> list[T] | None:
        buffer = self._buffer
        if self._separator is None:
            first = _BOUNDARY.search(buffer)
            if first is None:
                return None
            self._separator = first[0]
        separator = self._separator
        end = len(buffer)
        for _ in range(_TRIES):
            place = buffer.rfind(separator, 0, end)
            if place < 0:
                place = self._other_boundary(end)
                if place < 0:
                    return None
            try:
                batch = self._many(b"[" + buffer[: place + 1] + b"]")
            except (msgspec.DecodeError, RecursionError):
                end = place + 1
                continue
            except UnicodeDecodeError:
                return None
            self._keep(place + 1)
            return batch
        return None

    def _other_boundary(self, end: int) -> int:
        """The last boundary written in another way, which is then the one to look for."""
        start = max(0, end - _LOOK_BACK)
        place = -1
        for boundary in _BOUNDARY.finditer(self._buffer, start, end):
            place, self._separator = boundary.start(), boundary[0]
        return place

    def _keep(self, place: int) -> None:
        """Let go of the buffer up to a place, and of a comma behind it."""
        rest = self._buffer[place:].lstrip(_SPACE)
        if rest.startswith(b","):
            rest = rest[1:]
        self._offset += len(self._buffer) - len(rest)
        self._buffer = rest

    def _exact(self, final: bool) -> list[T]:
        """The whole events of the buffer, by counting brackets."""
        buffer = self._buffer
        batch: list[T] = []
        done = 0
        for start, end in _spans(buffer):
            if end == 0:
                self._check_encoding(buffer[:done])
                self._ended = self.closed = True
                self._offset += start
                self._buffer = buffer[start:]
                return batch
            done = end
            event = self._one(buffer[start:done])
            if event is None:
                self._note(self._offset + start, "found an event that is not JSON, left out")
            else:
                batch.append(event)
        self._check_encoding(buffer[:done])
        self._keep(done)
        if final:
            self._finish()
        elif not batch and len(self._buffer) > EVENT_LIMIT:
            self._note(
                self._offset, f"an event is longer than {EVENT_LIMIT >> 20} MiB; reading stopped"
            )
            self._ended = True
        return batch

    def _check_encoding(self, data: bytes) -> None:
        try:
            data.decode("utf-8")
        except UnicodeDecodeError as error:
            self._note(
                self._offset + error.start,
                f"found byte 0x{data[error.start]:02x}, expected UTF-8 (it is shown as U+FFFD)",
            )

    def _finish(self) -> None:
        rest = self._buffer.strip(_SPACE)
        plain_list = self.header.lstrip(_SPACE)[:1] == b"["
        if not rest and plain_list:
            return  # the format allows a list that is not closed
        if rest:
            beginning = " ".join(rest[:60].decode("utf-8", "replace").split())[:40]
            self._note_cut(
                self._offset + len(self._buffer), f"the JSON is cut inside the event '{beginning}…'"
            )
        else:
            self._note_cut(self._offset, "the JSON is cut between events, expected ']'")


def _spans(buffer: bytes) -> Iterator[tuple[int, int]]:
    """Start and end of the whole events; last, if it is there, of the list's end, with 0."""
    start = 0
    for token, text, depth in _levels(buffer):
        if text == b'"':
            return
        if depth == 1 and text in b"{[":
            start = token.start()
        elif depth == 0 and text in b"}]":
            yield start, token.end()
        elif depth < 0:
            yield token.start(), 0
            return


def _levels(
    buffer: bytes, start: int = 0, depth: int = 0
) -> Iterator[tuple[re.Match[bytes], bytes, int]]:
    """The brackets and strings of JSON, each with its text and the depth behind it."""
    for token in _TOKEN.finditer(buffer, start):
        text = token[0]
        depth += (text in b"{[") - (text in b"}]")
        yield token, text, depth


def _closed(buffer: bytes) -> bool:
    depth = 0
    for _, text, depth in _levels(buffer):  # noqa: B007
        if text == b'"':
            return False
    return depth <= 0
