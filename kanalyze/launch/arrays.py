"""Arrays of a recorded launch: a file beside the record, or how to make them again.

A parameter's ``array`` names an ``.npy`` file; its ``integers`` are
``[seed, low, high, shape, type]`` of
``numpy.random.default_rng(seed).integers(low, high, shape)``; the type ``starts`` is the 32-bit
running sum of such lengths, with 0 in front: where segments begin.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64")
STARTS = "starts"
MOST = 2**26
"""Elements of all arrays of one record together."""


def made(spec: tuple[int, int, int, int, str] | list[Any]) -> npt.NDArray[np.integer[Any]]:
    """Make an array again."""
    import numpy as np

    seed, low, high, shape, kind = spec
    drawn = np.random.default_rng(seed).integers(low, high, shape)
    if kind != STARTS:
        return drawn.astype(kind)
    return np.concatenate([[0], np.cumsum(drawn)]).astype(np.int32)


def problems(data: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the keys of arrays that cannot be made, and what was found and expected."""
    for place, param in enumerate(data["params"]):
        spec, file = param.get("integers"), param.get("array")
        named = isinstance(file, str) and os.path.basename(file) == file
        if file and not (named and file.endswith(".npy")):
            yield f"params[{place}].array", f"found {file!r}, expected the name of an .npy file"
        if spec and not spec[1] < spec[2]:
            yield f"params[{place}].integers", f"found {spec}, expected low below high"
    total = sum(param["integers"][3] for param in data["params"] if param.get("integers"))
    if total > MOST:
        yield "params", f"found {total:,} integers in all, expected at most {MOST:,}"


def of_record(data: Mapping[str, Any]) -> dict[str, npt.NDArray[np.integer[Any]]]:
    """The arrays that a record says how to make, by their parameters' places ("0", "1", …)."""
    return {
        str(place): made(param["integers"])
        for place, param in enumerate(data["params"])
        if param.get("integers")
    }


def files_of(data: Mapping[str, Any]) -> dict[str, str]:
    """The files that hold a record's arrays, by their parameters' places."""
    return {str(at): p["array"] for at, p in enumerate(data["params"]) if p.get("array")}
