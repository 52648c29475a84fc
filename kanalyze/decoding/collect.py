"""Events added up by name, in memory that grows with distinct names, not with launches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from kanalyze.decoding.chains import Chains
from kanalyze.decoding.tensorcores import uses_tensor_cores
from kanalyze.dumps.event import Device, Event, Operator
from kanalyze.names import KernelName, decode

_MOST_LAUNCHES = 64
_MOST_OPERATORS = 512
_MOST_DEVICES = 4096


@dataclass(slots=True)
class Tally:
    """How often and for how long."""

    calls: int = 0
    total_us: float = 0.0
    timed: bool = True

    def add(self, calls: int, total_us: float | None) -> None:
        """Add launches."""
        self.calls += calls
        if total_us is None:
            self.timed = False
        else:
            self.total_us += total_us

    @property
    def time_us(self) -> float | None:
        """The time, or None where a part of it is not known."""
        return self.total_us if self.timed else None


@dataclass(slots=True, eq=False)
class Found:
    """What was found of one name."""

    name: KernelName
    kind: str
    tensor_core: bool | None
    tally: Tally = field(default_factory=Tally)
    launches: dict[tuple[Any, ...], tuple[Device | None, Tally]] = field(default_factory=dict)
    operators: dict[int, tuple[Operator, Device | None, Tally]] = field(default_factory=dict)
    counters: dict[str, float] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    devices: dict[int, tuple[Device, Tally]] = field(default_factory=dict)
    files: dict[str, Tally] = field(default_factory=dict)
    short_calls: int = 0

    @property
    def pointwise(self) -> bool:
        """Whether the kernel computes each element by itself."""
        return self.name.decoded.get("op") in ("elementwise", "pointwise")


SHORT_US = 5.0
"""A launch that takes less is short: about what launching it costs the host."""


class Collector:
    """Adds events up."""

    def __init__(self) -> None:
        self.found: dict[str, Found] = {}
        self.total = Tally()
        self.chains = Chains()
        self._devices: dict[Device, Device] = {}
        self._seen: dict[int, tuple[Device, Device]] = {}

    def add(self, event: Event) -> None:
        """Add an event."""
        found = self.found.get(event.name)
        if found is None:
            name = decode(event.name)
            found = Found(name, event.kind, uses_tensor_cores(name, event.kind))
            self.found[event.name] = found
        calls, time = event.calls, event.total_us
        found.tally.add(calls, time)
        self.total.add(calls, time)
        if time is not None and time < SHORT_US * calls:
            found.short_calls += calls
        device = event.device
        if device is not None:
            device = self._one_of(device)
            ran = found.devices.get(id(device))
            if ran is None:
                ran = found.devices[id(device)] = (device, Tally())
            ran[1].add(calls, time)
        key = (event.grid, event.block, event.registers_per_thread, event.shared_bytes, id(device))
        launch = found.launches.get(key)
        if launch is None and len(found.launches) < _MOST_LAUNCHES:
            launch = found.launches[key] = (device, Tally())
        if launch is not None:
            launch[1].add(calls, time)
        file = found.files.get(event.file)
        if file is None:
            file = found.files[event.file] = Tally()
        file.add(calls, time)
        operator = event.operator
        if operator is not None:
            called = found.operators.get(id(operator))
            if called is None and len(found.operators) < _MOST_OPERATORS:
                called = found.operators[id(operator)] = (operator, device, Tally())
            if called is not None:
                called[2].add(calls, time)
        for counter, value in event.counters.items():
            found.counters[counter] = found.counters.get(counter, 0.0) + value
            found.counted[counter] = found.counted.get(counter, 0) + 1
        if event.start_us is not None:
            self.chains.add(event, found)

    def _one_of(self, device: Device) -> Device:
        """The first of equal devices, found by identity, as hashing one takes long."""
        seen = self._seen.get(id(device))
        if seen is not None:
            return seen[1]
        first = self._devices.setdefault(device, device)
        if len(self._seen) < _MOST_DEVICES:
            self._seen[id(device)] = (device, first)  # held, so that its id stays its own
        return first

    def keep(self, wanted: Any) -> None:
        """Let go of names that are not wanted (a function of the name)."""
        self.found = {name: f for name, f in self.found.items() if wanted(name)}
