"""Chains of element-wise kernels: launched one after another on one stream, over as many elements.

The chain is all that a trace shows: whether a kernel reads what the one before it wrote, it does
not say. Repetitions (a loop over steps) are folded into the shortest period.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kanalyze.profiles.operators import OperatorBytes, elements_of, moved_by
from kanalyze.profiles.readers.event import Event, Operator

SHORTEST = 3
"""Kernels of the shortest chain that is looked at."""
_LONGEST = 4096
_MOST = 2000

_Link = tuple[str, Operator | None]


@dataclass(slots=True)
class KernelChain:
    """A chain and its repetitions: names in order, calling operators, how often, how long."""

    names: tuple[str, ...]
    operators: tuple[Operator | None, ...]
    elements: int | None
    times: int = 0
    total_us: float = 0.0

    def moved(self) -> list[OperatorBytes] | None:
        """What each kernel moves; None where one of them is not known."""
        moved = [None if o is None else moved_by(o) for o in self.operators]
        return None if None in moved else [m for m in moved if m is not None]


@dataclass(slots=True)
class _OpenChain:
    elements: Any
    start_us: float
    links: list[tuple[str, Operator | None, float]]


class Chains:
    """Finds chains while events go by; memory is bounded."""

    def __init__(self) -> None:
        self.open: dict[tuple[Any, ...], _OpenChain] = {}
        self._closed: dict[tuple[Any, ...], KernelChain] = {}
        self._elements: dict[int, int | None] = {}
        self._held: list[Operator] = []

    def add(self, event: Event, pointwise: bool) -> None:
        """Take the next event of a stream: one that may be a link, or one that ends a chain."""
        device = event.device
        stream = (event.file, event.stream, device.id if device else None)
        current = self.open.get(stream)
        if not pointwise or event.start_us is None or event.total_us is None:
            if current is not None:
                self._close(self.open.pop(stream))
            return
        elements = self._count(event)
        if current is not None and (
            current.elements != elements
            or event.start_us < current.start_us
            or len(current.links) >= _LONGEST
        ):
            self._close(current)
            current = None
        if current is None:
            current = self.open[stream] = _OpenChain(elements, event.start_us, [])
        current.start_us = event.start_us
        current.links.append((event.name, event.operator, event.total_us))

    def all(self) -> list[KernelChain]:
        """The chains so far, those that take most time first."""
        for current in self.open.values():
            self._close(current)
        self.open.clear()
        return sorted(self._closed.values(), key=lambda c: -c.total_us)

    def _count(self, event: Event) -> Any:
        """The elements that a kernel works on: by its operator's inputs, else by its threads."""
        operator = event.operator
        if operator is None:
            return (event.grid, event.block)
        key = id(operator)
        if key not in self._elements:
            self._elements[key] = elements_of(operator)
            self._held.append(operator)
        return self._elements[key]

    def _close(self, current: _OpenChain) -> None:
        links = current.links
        if len(links) < SHORTEST:
            return
        keys = [(name, id(operator)) for name, operator, _ in links]
        period = _period(keys)
        if period < SHORTEST:
            return
        key = tuple(keys[:period])
        chain = self._closed.get(key)
        if chain is None:
            if len(self._closed) >= _MOST:
                return
            elements = current.elements if isinstance(current.elements, int) else None
            first = links[:period]
            chain = KernelChain(
                tuple(n for n, _, _ in first), tuple(o for _, o, _ in first), elements
            )
            self._closed[key] = chain
        chain.times += len(links) // period
        chain.total_us += sum(time for _, _, time in links)


def _period(keys: Sequence[Any]) -> int:
    """The length of the shortest piece that the whole repeats."""
    failure = [0] * len(keys)
    length = 0
    for place in range(1, len(keys)):
        while length and keys[place] != keys[length]:
            length = failure[length - 1]
        if keys[place] == keys[length]:
            length += 1
        failure[place] = length
    period = len(keys) - failure[-1]
    return period if len(keys) % period == 0 else len(keys)
