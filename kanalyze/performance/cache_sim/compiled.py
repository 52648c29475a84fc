"""Functions compiled with Numba when they are first called; the machine code is kept on disk.

Numba takes kept machine code where the file of the function is as it was; what the function calls
may have changed. So it is kept below kanalyze's cache, in a folder of its own for each state of the
sources here. Where that cannot be written to, every process compiles.

References to arrays are counted only where a function makes arrays: counting them at every call of
a small function takes more time than all else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

from kanalyze import cache

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function as machine code, without the interpreter's lock; it makes no arrays."""
    return _made(function, counted=False)


def making_arrays(function: Function) -> Function:
    """The same of a function that makes arrays."""
    return _made(function, counted=True)


def _made(function: Function, counted: bool) -> Function:
    import numba

    folder, config, njit = _folder(), cast(Any, numba.config), cast(Any, numba.njit)
    before = config.CACHE_DIR
    config.CACHE_DIR = before if folder is None else str(folder)
    try:
        made = njit(cache=folder is not None, nogil=True, _nrt=counted)(function)
    finally:
        config.CACHE_DIR = before
    return cast(Function, made)


@functools.cache
def _folder() -> Path | None:
    sources = sorted(Path(__file__).parent.glob("*.py"))
    state = cache.key(*(source.read_bytes() for source in sources))
    return cache.folder("numba", state[:16])
