"""Readers of profilers' output, one for each format; none knows what the names mean.

>>> from kanalyze.profiles.readers import read_dump
>>> events = list(read_dump("samples/dumps/gelu_naive.trace.json.gz"))
>>> len(events), events[0].grid, events[0].operator.name
(27, (65536, 1, 1), 'aten::mul')
"""

from __future__ import annotations

from kanalyze.profiles.readers.event import Event, Operator, ProfiledDevice
from kanalyze.profiles.readers.formats import files_in, read_dump

__all__ = ["Event", "Operator", "ProfiledDevice", "files_in", "read_dump"]
