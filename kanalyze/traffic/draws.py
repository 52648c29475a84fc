"""Estimates under assumptions on data: what is said of them, and several draws as one estimate.

What: where elements of arrays are drawn, a launch is counted for several draws; the document is
that of the draw with the median of sectors and wavefronts (`middle`), and ``interval`` has the
least and the greatest of each counter that depends on them (`ranges`).
Limits: a range over draws is no bound: other data of the same kind may lie outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from kanalyze.counting.bindings import arrays_of
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.errors import InputError, UsageError
from kanalyze.launch.assumptions import DRAWS, Assumption
from kanalyze.launch.record import Launch
from kanalyze.models.warps import EXECUTED, count
from kanalyze.results.kernel import UnknownField
from kanalyze.symbolic import parts
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.grid import UnknownValueError, both, comparison, either
from kanalyze.symbolic.parts import Parts, TooLargeError
from kanalyze.symbolic.value import array_of, in_order, pointer_of
from kanalyze.traffic.counters import ExactCounters

_COUNTERS = {
    "load": ("load",),
    "async_copy": ("load",),
    "store": ("store",),
    "atomic": ("atomic", "reduction"),
    "reduction": ("reduction",),
}


def said(given: Launch, launched: KernelLaunch) -> Iterator[str]:
    """What is assumed of each array, in words."""
    for param, used in zip(given.params, launched.launch.params, strict=True):
        if param.data is None:
            continue
        if used.data is None:
            yield f"{param.name}: {param.data.text} is not used: the kernel writes to it"
        else:
            yield f"{param.name}: {_words(param.data)}"


def _words(data: Assumption) -> str:
    if data.data is not None and data.element_bytes:
        elements = (data.length or 0) // data.element_bytes
        return f"{data.text}, {elements:,} elements of {data.dtype}"
    if data.kind == "uniform" and data.drawn:
        return (
            f"each element drawn from {data.first:,} to {data.first + data.span - 1:,} "
            f"({data.text}): what depends on it is an estimate, the middle one of {DRAWS} draws "
            f"(seeds {data.seed} to {data.seed + DRAWS - 1})"
        )
    if data.step == 0:
        return f"all elements are {data.first}"
    start = f"{data.first} + " if data.first else ""
    return f"element i is {start}{'' if data.step == 1 else f'{data.step}*'}i"


def check(launched: KernelLaunch) -> None:
    """Check that arrays of known length are as long as the launch reads.

    Raises:
        InputError: a file is shorter.
        UsageError: an array that was handed over is shorter.
    """
    arrays = arrays_of(launched.cfg.function.parameters, launched.launch)
    if arrays is None:
        return
    params = dict(
        zip(
            [p.name for p in launched.cfg.function.parameters], launched.launch.params, strict=False
        )
    )
    for access in launched.addresses.accesses:
        name = pointer_of(access.address, arrays)
        param = params.get(name) if name is not None else None
        data = param.data if param is not None else None
        if param is None or param.value is None or data is None or data.length is None:
            continue
        try:
            times = _outside(launched, access, param.value, param.value + data.length)
        except (UnknownValueError, TooLargeError):
            continue
        if times:
            elements = data.length // (data.element_bytes or 1)
            message = (
                f"{elements:,} elements of {data.dtype}, fewer than the launch reads of "
                f"{param.name}: outside of them are {times:,} of the loads in PTX line "
                f"{access.instruction.pos.line}"
            )
            if data.text.endswith(".npy"):
                raise InputError(message, file=data.text)
            raise UsageError(message)


def _outside(launched: KernelLaunch, access: AccessValue, low: int, high: int) -> int:
    """How often a thread accesses something below address ``low``, or ``high`` and beyond.

    Raises:
        UnknownValueError, TooLargeError: the addresses are not known, or too many.
    """
    total = 0
    for some in launched.parts(access):
        where, condition, shape = some.place(access)
        last = high - (access.row.bytes_per_thread or 1)
        above = comparison("negative", parts.add(parts.scale(where, -1), _number(last, where)))
        below = comparison("negative", parts.add(where, _number(-low, where)))
        beyond = both(condition, either(above, below))
        total += count(EXECUTED, _number(0, where), beyond, shape).threads
    return total


def _number(value: int, like: Parts) -> Parts:
    return parts.number(value, like.dimensions)


def _drawn(launched: KernelLaunch, access: AccessValue) -> tuple[bool, bool]:
    """Whether when an access is made, and where, depends on array elements that are drawn."""
    names = {name for name, data in launched.arrays.items() if data.drawn}
    values = [launched.executed[access.block]]
    values += [access.condition] if access.condition is not None else []
    for loop in launched.cfg.loops:
        if access.block in loop.body:
            trip = launched.addresses.solved.trips[loop.header]
            values += [launched.executed[loop.header]]
            values += [v for v in (trip.count, trip.goes_on) if v is not None]
    when, where = (
        any(node.op == "load" and array_of(node) in names for node in in_order(some))
        for some in (values, [access.address])
    )
    return when, where


def concerned(launched: KernelLaunch) -> set[str]:
    """The counters that depend on elements that are drawn."""
    names: set[str] = set()
    for access in launched.addresses.accesses:
        when, where = _drawn(launched, access)
        spaces = ("global", "shared") if access.row.space == "generic" else (access.row.space,)
        stems = [f"{s}_{kind}" for s in spaces for kind in _COUNTERS.get(access.row.kind, ())]
        if when:
            names |= {f"{stem}_requests" for stem in stems}
        if when or where:
            names |= {f"{stem}_{unit}" for stem in stems for unit in ("sectors", "wavefronts")}
    return names


def middle(draws: Sequence[Mapping[str, int | None]]) -> int:
    """Which draw has the median of those sectors and wavefronts that are known in all."""
    names = [
        name
        for name in draws[0]
        if name.endswith(("sectors", "wavefronts"))
        and all(counters[name] is not None for counters in draws)
    ]

    def size(number: int) -> int:
        return sum(draws[number][name] or 0 for name in names)

    return sorted(range(len(draws)), key=size)[len(draws) // 2]


def known_in_all(draws: Sequence[ExactCounters], chosen: int) -> ExactCounters:
    """The counters of one draw without those that are unknown in another."""
    values, unknown = dict(draws[chosen].values), list(draws[chosen].unknown)
    for name, value in draws[chosen].values.items():
        without = [draw for draw in draws if draw.values[name] is None]
        if value is not None and without:
            field = f"counters.{name}"
            reasons = (u.reason for u in without[0].unknown if u.field == field)
            missing = f"in {len(without)} of {len(draws)} draws"
            values[name] = None
            unknown.append(UnknownField(field, f"{missing}: {next(reasons, 'it is not known')}"))
    return replace(draws[chosen], values=values, unknown=tuple(unknown))


def ranges(
    draws: Sequence[Mapping[str, int | None]], depending: set[str]
) -> dict[str, tuple[int, int]]:
    """The least and the greatest of each counter that depends on what is drawn.

    Args:
        draws: the exact counters of each draw.
        depending: the counters that depend on it, see `concerned`.
    """
    interval = {}
    for name in draws[0]:
        known = [value for counters in draws if (value := counters[name]) is not None]
        if len(known) == len(draws) and (len(set(known)) > 1 or name in depending):
            interval[name] = (min(known), max(known))
    return interval
