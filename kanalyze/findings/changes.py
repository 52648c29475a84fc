"""Changes of a Triton kernel that rules try: other tiles, warps, stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kanalyze.findings.facts import words

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts

_MOST_WARPS = 16
_SMALLEST = 16  # extent of a tile: the least of a tl.dot
_LARGEST = 1 << 20  # elements of a tensor: Triton's TRITON_MAX_TENSOR_NUMEL
_OPTIONS = ("num_warps", "num_stages", "maxnreg")


@dataclass(frozen=True, slots=True)
class Change:
    """Arguments of `Facts.recompiled`, and what they are called."""

    words: str
    changes: Mapping[str, Any]

    @property
    def of_tiles(self) -> bool:
        """Whether constexprs change: they may also say what is computed."""
        return any(name not in _OPTIONS for name in self.changes.get("settings", {}))

    def with_(self, more: Change) -> Change:
        """This one and another one, both of settings."""
        return settings(**{**self.changes.get("settings", {}), **more.changes["settings"]})


def settings(**values: object) -> Change:
    """A change of constexprs and options (``num_warps``, ``num_stages``, ``maxnreg``)."""
    changes = {"settings": values}
    return Change(words(changes), changes)


def tiles(facts: Facts) -> dict[str, int]:
    """Constexprs that may be the extents of a tile: powers of two; the largest first."""
    if facts.compiled is None:
        return {}
    extents = {
        name: value
        for name, value in facts.compiled.constexprs.items()
        if type(value) is int and _SMALLEST <= value <= _LARGEST and value & (value - 1) == 0
    }
    return dict(sorted(extents.items(), key=lambda pair: -pair[1]))


def constexprs_of(facts: Facts, value: int) -> list[str]:
    """Constexprs with this value: those that may be the extent of a tile."""
    if facts.compiled is None:
        return []
    return [
        name
        for name, given in facts.compiled.constexprs.items()
        if type(given) is int and given == value and name not in facts.compiled.specialization
    ]


def resized(facts: Facts, factors: Sequence[float] = (0.5, 2), least: int = 0) -> Iterator[Change]:
    """Each tile size of ``least`` and more by each factor."""
    for name, value in tiles(facts).items():
        for factor in factors:
            other = int(value * factor)
            if value >= least and _SMALLEST <= other <= _LARGEST:
                yield settings(**{name: other})


def other_warps(facts: Facts, factors: Sequence[float] = (0.5, 2)) -> Iterator[Change]:
    """Other numbers of warps: by default half and twice as many."""
    for factor in factors if facts.compiled is not None else ():
        other = int((facts.warps or 0) * factor)
        if 1 <= other <= _MOST_WARPS:
            yield settings(num_warps=other)


def more_stages(facts: Facts) -> Iterator[Change]:
    """One stage more, and two."""
    if facts.compiled is not None:
        now = facts.compiled.metadata["num_stages"]
        yield from (settings(num_stages=now + more) for more in (1, 2))
