"""Events added up by name, in memory that grows with distinct names, not with launches."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kanalyze.profiles.chains import Chains
from kanalyze.profiles.names import KernelName, decode
from kanalyze.profiles.readers.event import Event, Operator, ProfiledDevice
from kanalyze.profiles.tensorcores import uses_tensor_cores

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
class KernelTotals:
    """What was read of one name; ``pointwise``: each element is computed by itself."""

    name: KernelName
    kind: str
    tensor_core: bool | None
    pointwise: bool
    tally: Tally = field(default_factory=Tally)
    launches: dict[tuple[Any, ...], tuple[ProfiledDevice | None, Tally]] = field(
        default_factory=dict
    )
    operators: dict[int, tuple[Operator, ProfiledDevice | None, Tally]] = field(
        default_factory=dict
    )
    counters: dict[str, float] = field(default_factory=dict)
    counted: dict[str, int] = field(default_factory=dict)
    files: dict[str, Tally] = field(default_factory=dict)
    short_calls: int = 0

    def devices(self) -> dict[ProfiledDevice, Tally]:
        """The devices that it ran on."""
        tallies: dict[ProfiledDevice, Tally] = {}
        for device, tally in self.launches.values():
            if device is not None:
                tallies.setdefault(device, Tally()).add(tally.calls, tally.time_us)
        return tallies


SHORT_US = 5.0
"""A launch that takes less is short: about what launching it costs the host."""


class Collector:
    """Adds events up."""

    def __init__(self) -> None:
        self.by_name: dict[str, KernelTotals] = {}
        self.chains = Chains()
        self._let_go = Tally()
        self._devices: dict[ProfiledDevice, ProfiledDevice] = {}
        self._seen: dict[int, tuple[ProfiledDevice, ProfiledDevice]] = {}

    @property
    def total(self) -> Tally:
        """Everything that was added, also what was let go of."""
        tally = Tally()
        for part in (self._let_go, *(kernel.tally for kernel in self.by_name.values())):
            tally.add(part.calls, part.time_us)
        return tally

    def add(self, event: Event) -> None:
        """Add an event."""
        kernel = self.by_name.get(event.name)
        if kernel is None:
            kernel = self._new(event)
        calls, time = event.calls, event.total_us
        kernel.tally.add(calls, time)
        if time is not None and time < SHORT_US * calls:
            kernel.short_calls += calls
        device = event.device
        if device is not None:
            seen = self._seen.get(id(device))
            device = self._one_of(device) if seen is None else seen[1]
        key = (event.grid, event.block, event.registers_per_thread, event.shared_bytes, id(device))
        launch = kernel.launches.get(key)
        if launch is None:
            launch = self._new_launch(kernel, key, device)
        launch[1].add(calls, time)
        file = kernel.files.get(event.file)
        if file is None:
            file = kernel.files[event.file] = Tally()
        file.add(calls, time)
        operator = event.operator
        if operator is not None:
            called = kernel.operators.get(id(operator))
            if called is None and len(kernel.operators) < _MOST_OPERATORS:
                called = kernel.operators[id(operator)] = (operator, device, Tally())
            if called is not None:
                called[2].add(calls, time)
        if event.counters:
            for counter, value in event.counters.items():
                kernel.counters[counter] = kernel.counters.get(counter, 0.0) + value
                kernel.counted[counter] = kernel.counted.get(counter, 0) + 1
        if kernel.pointwise or self.chains.open:
            self.chains.add(event, kernel.pointwise)

    def _new(self, event: Event) -> KernelTotals:
        name = decode(event.name)
        pointwise = name.decoded.get("op") in ("elementwise", "pointwise")
        kernel = KernelTotals(name, event.kind, uses_tensor_cores(name, event.kind), pointwise)
        self.by_name[event.name] = kernel
        return kernel

    @staticmethod
    def _new_launch(
        kernel: KernelTotals, key: tuple[Any, ...], device: ProfiledDevice | None
    ) -> tuple[ProfiledDevice | None, Tally]:
        """A place for a launch of a new kind; where there are too many kinds, for all the rest."""
        if len(kernel.launches) >= _MOST_LAUNCHES:
            key = (None, None, None, None, key[-1])
        return kernel.launches.setdefault(key, (device, Tally()))

    def _one_of(self, device: ProfiledDevice) -> ProfiledDevice:
        """The first of equal devices, kernel by identity, as hashing one takes long."""
        seen = self._seen.get(id(device))
        if seen is not None:
            return seen[1]
        first = self._devices.setdefault(device, device)
        if len(self._seen) < _MOST_DEVICES:
            self._seen[id(device)] = (device, first)  # held, so that its id stays its own
        return first

    def keep(self, wanted: Callable[[str], object]) -> None:
        """Let go of names that are not wanted."""
        for name in [n for n in self.by_name if not wanted(n)]:
            part = self.by_name.pop(name).tally
            self._let_go.add(part.calls, part.time_us)
