"""Reader of Chrome traces: PyTorch's (Kineto) and what looks like them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kanalyze.profiles.readers.chrome_ops import Operators, devices_at_the_end, devices_of
from kanalyze.profiles.readers.chrome_records import (
    KINDS,
    Decoder,
    KernelRecord,
    LaunchArgs,
    OperatorRecord,
    Record,
    one,
)
from kanalyze.profiles.readers.chrome_scan import NotATraceError, Scanner
from kanalyze.profiles.readers.event import Event, ProfiledDevice
from kanalyze.profiles.readers.numbers import MOST_US, is_time, wrong_time
from kanalyze.profiles.readers.source import DumpSource

_NO_ARGS = LaunchArgs()


def read(source: DumpSource) -> Iterator[Event]:
    """Yield what ran on the GPU.

    Raises:
        NotATraceError: the JSON is something else.
        InputError: after everything that could be read was yielded.
    """
    old = b'"External id"' not in source.head and b'"external id"' in source.head
    if source.head.lstrip()[:1] == b"[" and b"{" in source.head and b'"ph"' not in source.head:
        raise NotATraceError("a JSON list of something else")
    scanner: Scanner[Record] = Scanner(source, Decoder(old).many, one)
    devices = devices_of(scanner.header) or devices_at_the_end(source)
    operators = Operators()
    note, launched_by = operators.note, operators.launched_by
    file, kinds, no_device = source.name, KINDS, ProfiledDevice()
    for batch in scanner.every():
        for record in batch:
            made = type(record)  # isinstance is slow on these classes
            if made is OperatorRecord:
                note(record)
            elif made in kinds:
                launch: Any = record
                if not 0.0 <= launch.dur <= MOST_US:
                    scanner.note_event(_mistimed, wrong_time(launch.name, launch.dur))
                    continue
                args: LaunchArgs = launch.args or _NO_ARGS
                identity = args.device
                device = devices.get(identity) if identity is not None else no_device
                if device is None:
                    device = devices[identity] = ProfiledDevice(identity)
                yield Event(
                    launch.name,
                    kinds[made],
                    1,
                    launch.dur,
                    launch.ts,
                    args.grid,
                    args.block,
                    args.registers,
                    args.shared,
                    args.stream,
                    device,
                    launched_by(args),
                    {},
                    file,
                )
    source.finish()


def _mistimed(record: Record) -> bool:
    return isinstance(record, KernelRecord) and not is_time(record.dur)


def is_trace(head: bytes) -> bool:
    """Whether a text begins like JSON."""
    text = head.lstrip(b" \t\r\n")
    return text[:1] == b"{" or re.match(rb"\[\s*[{\]]", text) is not None
