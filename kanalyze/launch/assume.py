"""A launch whose arrays are assumed to hold something (`--assume`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy.typing as npt

from kanalyze.errors import UsageError, nearest
from kanalyze.launch.assumptions import Assumption, parse
from kanalyze.launch.record import Launch, LaunchParam


def assume(
    launch: Launch,
    names: Sequence[str],
    given: Mapping[str, str | npt.NDArray[Any] | Assumption],
) -> Launch:
    """A launch whose pointers say what they point to.

    Args:
        launch: grid, block and arguments.
        names: the kernel's parameters in the PTX.
        given: parameter (its name in the launch or in the PTX, or its place, from 0) to what its
            array holds.

    Raises:
        UsageError: there is no such pointer, or it holds no such numbers.
        InputError: a file cannot be read, or has another type than the pointer.
    """
    params = list(launch.params)
    said: set[int] = set()
    for name, what in given.items():
        place = _place(name, params, names)
        param = params[place]
        if place in said:
            raise UsageError(f"what {param.name} points to is said twice")
        said.add(place)
        params[place] = param.holding(parse(what))
    return replace(launch, params=tuple(params))


def _place(name: str, params: Sequence[LaunchParam], names: Sequence[str]) -> int:
    pointers = [i for i, param in enumerate(params) if param.is_pointer]
    by_name: dict[str, int] = {str(i): i for i in range(len(params))}
    by_name |= {ptx: i for i, ptx in enumerate(names[: len(params)])}
    by_name |= {param.name: i for i, param in enumerate(params)}
    place = by_name.get(name)
    if place is None:
        known = [params[i].name for i in pointers]
        raise UsageError(f"there is no parameter '{name}': {nearest(name, known)}")
    if place not in pointers:
        raise UsageError(f"{params[place].name} is no pointer: it has no contents to assume")
    return place


def drawn(launch: Launch) -> list[LaunchParam]:
    """The pointers whose contents are drawn."""
    return [p for p in launch.params if p.data is not None and p.data.drawn]


def draw(launch: Launch, number: int) -> Launch:
    """The launch with the contents of another draw."""
    params = [replace(p, data=p.data.draw(number)) if p.data else p for p in launch.params]
    return replace(launch, params=tuple(params))


def without(launch: Launch, places: Iterable[int]) -> Launch:
    """The launch without what is assumed of some parameters."""
    left_out = set(places)
    return replace(
        launch,
        params=tuple(
            replace(p, data=None) if i in left_out else p for i, p in enumerate(launch.params)
        ),
    )
