"""The split of a list of PyTorch operators that is joined by underscores.

Their names (``aten_ops.txt``) are those of the schemas that PyTorch 2.13 registers under ``aten``
and ``prims`` (without variants that end in ``_`` or ``_out``, which Inductor does not see).
"""

from __future__ import annotations

from functools import cache, lru_cache
from pathlib import Path

_MOST = 64
"""Longest list of operators that is split."""

_APART = {"clamp_max": 3}
"""What an operator counts that is commoner as two in one kernel (clamp and max scale to FP8)."""


def split_ops(joined: str) -> tuple[str, ...] | None:
    """Return the operators of a joined, sorted set of them, the likeliest way; None: there is none.

    Args:
        joined: for example ``_to_copy_add_native_layer_norm``.
    """
    ways = ways_to_split(joined)
    return ways[0] if ways else None


@lru_cache(maxsize=4096)
def ways_to_split(joined: str) -> tuple[tuple[str, ...], ...]:
    """Return the ways to split a joined, sorted set of operators, the likeliest first.

    That is the one with the fewest operators (``index_put`` is not ``index`` and ``put``), but for
    those of `_APART`.
    """
    words = joined.split("_")
    if len(words) > _MOST:
        return ()
    known, longest = _operators()
    # ways[i]: the ways to split what stands before word i
    ways: list[list[tuple[str, ...]]] = [[()], *([] for _ in words)]
    for end in range(1, len(words) + 1):
        for begin in range(max(0, end - longest), end):
            name = "_".join(words[begin:end])
            if name not in known:
                continue
            for way in ways[begin]:
                if (not way or way[-1] < name) and len(ways[end]) < _MOST:
                    ways[end].append((*way, name))
    return tuple(sorted(ways[-1], key=lambda way: sum(_APART.get(name, 1) for name in way)))


@cache
def _operators() -> tuple[frozenset[str], int]:
    names = frozenset(Path(__file__).with_name("aten_ops.txt").read_text("utf-8").split())
    return names, max(name.count("_") for name in names) + 1
