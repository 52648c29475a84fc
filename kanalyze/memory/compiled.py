"""Functions compiled with Numba when they are first called; the machine code is kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """The function as machine code, without the interpreter's lock."""
    import numba

    return cast(Function, numba.njit(cache=True, nogil=True)(function))
