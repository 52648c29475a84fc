"""Where constant bank 0 of SASS holds the extents of a launch, and the parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from kanalyze.ptx import ir


@dataclass(frozen=True, slots=True)
class ConstantLayout:
    """Where constant bank 0 holds the extents of block and grid, and the parameters.

    Read off what ptxas 12.9 makes of a kernel that uses them, for each architecture.
    """

    block: int
    grid: int
    parameters: int

    @staticmethod
    def of(target: str | None) -> ConstantLayout:
        """The layout of an architecture: ``sm_90`` (None: an unknown one, taken to be sm_90)."""
        digits = re.search(r"\d+", target or "")
        number = int(digits[0]) if digits else 90
        if number >= 100:
            return ConstantLayout(0x360, 0x370, 0x380)
        return ConstantLayout(0x0, 0xC, 0x210 if number >= 90 else 0x160)


@dataclass(frozen=True, slots=True)
class ConstantPlace:
    """A parameter: its name, and its offset from where parameters begin and size, in bytes."""

    name: str
    offset: int
    bytes: int


def parameter_places(
    parameters: Iterable[ir.Parameter], target: str | None = None
) -> tuple[ConstantPlace, ...]:
    """Where the parameters of a PTX function lie: in order, each aligned within the bank."""
    begin = ConstantLayout.of(target).parameters
    offset = 0
    places = []
    for parameter in parameters:
        size = parameter.element_bytes * (parameter.elements or 1)
        align = max(parameter.align or 1, parameter.element_bytes)
        offset = -(-(begin + offset) // align) * align - begin
        places.append(ConstantPlace(parameter.name, offset, size))
        offset += size
    return tuple(places)
