"""What arrays are taken to hold, where addresses or branches depend on loaded data.

An `Assumption` answers what the bytes of an array are, for many places at once; elements that are
drawn come from a counter-based generator, so that no array has to be made, however long it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from kanalyze.errors import InputError, UsageError

Array = npt.NDArray[np.int64]

FORMS = "uniform:LO:HI[:SEED], const:VALUE, zero, range, range:START:STEP, or an .npy file"
DRAWS = 5
"""How many draws an estimate is made from, where elements are drawn."""


@dataclass(frozen=True, slots=True, eq=False)
class Assumption:
    """The contents of one array.

    ``kind`` is "uniform" (each element drawn by itself, from ``first`` to below ``first + span``,
    by ``seed`` plus the ``number`` of the draw), "progression" (element i holds ``first + i·step``)
    or "array" (``data``, its bytes, padded to a multiple of 8; ``length`` of them count).
    ``element_bytes`` is the size of an element; None: the size of what is loaded.
    """

    text: str
    kind: str
    first: int = 0
    step: int = 0
    span: int = 0
    seed: int = 0
    number: int = 0
    data: npt.NDArray[np.uint8] | None = None
    length: int | None = None
    dtype: str | None = None
    element_bytes: int | None = None

    @property
    def drawn(self) -> bool:
        """Whether the contents are drawn, so that what is computed from them is an estimate."""
        return self.kind == "uniform" and self.span > 1

    def draw(self, number: int) -> Assumption:
        """The same with the seed of another draw."""
        return replace(self, number=number) if self.drawn else self

    def read(self, offsets: Array, size: int) -> Array:
        """The numbers of ``size`` bytes (1, 2, 4, 8) that lie ``offsets`` bytes from the start.

        Little-endian and unsigned, of 8 bytes as the same bits signed. Beyond the end of an array
        of known length lies its last element.
        """
        unit = size if self.data is not None else self.element_bytes or size
        place, inside = np.divmod(offsets, np.int64(unit))
        if self.data is not None and bool(inside.any()):  # by bytes
            unit, place, inside = 1, offsets, np.zeros_like(offsets)
        if unit >= size:
            return _low(self._elements(place, unit) >> (8 * inside), size)
        total = np.zeros_like(offsets)
        for index in range(size // unit):
            piece = _low(self._elements(place + index, unit), unit)
            total |= piece << np.int64(8 * unit * index)
        return total

    def _elements(self, index: Array, unit: int) -> Array:
        if self.data is not None:
            whole = self.data.view(f"<u{unit}")
            last = max(0, (self.length or 0) // unit - 1)
            elements: Array = whole[np.clip(index, 0, last)].astype(np.int64)
            return elements
        if self.kind == "uniform":
            drawn = _scrambled(index, self.seed + self.number) % np.uint64(self.span)
            return drawn.astype(np.int64) + np.int64(_wrapped(self.first))
        return index * np.int64(_wrapped(self.step)) + np.int64(_wrapped(self.first))


def _wrapped(number: int) -> int:
    """The number as a signed one of 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _low(numbers: Array, size: int) -> Array:
    return numbers if size == 8 else numbers & np.int64((1 << 8 * size) - 1)


def _scrambled(index: Array, seed: int) -> npt.NDArray[np.uint64]:
    """Independent 64-bit numbers by place and seed (splitmix64: Steele, Lea, Flood, 2014)."""
    start = np.uint64((seed * 0xD1342543DE82EF95 + 0x2545F4914F6CDD1D) % (1 << 64))
    with np.errstate(over="ignore"):
        z = (index.astype(np.uint64) ^ start) * np.uint64(0x9E3779B97F4A7C15) + start
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


# ---------------------------------------------------------------- reading


def parse(given: str | npt.NDArray[Any] | Assumption) -> Assumption:
    """Read what an array is taken to hold: one of `FORMS`, or the array itself.

    Raises:
        UsageError: it is none of these.
        InputError: the file cannot be read, or holds no array of numbers.
    """
    if isinstance(given, Assumption):
        return given
    if isinstance(given, np.ndarray):
        return _of_array(given, "an array", None)
    word, _, rest = given.partition(":")
    fields = rest.split(":") if rest else []
    if word in ("uniform", "const", "zero", "range") and not Path(given).is_file():
        return _of_words(given, word, [_whole(field, given) for field in fields])
    if not given.endswith(".npy") and not Path(given).is_file():
        raise UsageError(f"'{given}' says of no array what it holds: expected {FORMS}")
    return of_npy(given, given)


def _whole(text: str, given: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise UsageError(f"'{text}' in '{given}' is no whole number; expected {FORMS}") from None


def _of_words(given: str, word: str, numbers: list[int]) -> Assumption:
    match word, numbers:
        case "zero", []:
            return Assumption(given, "progression")
        case "const", [value]:
            return Assumption(given, "progression", value)
        case "range", []:
            return Assumption(given, "progression", 0, 1)
        case "range", [start, step]:
            return Assumption(given, "progression", start, step)
        case "uniform", [low, high, *seed] if len(seed) < 2:
            if not low < high:
                raise UsageError(f"'{given}': from {low} to below {high} there is no number")
            return Assumption(given, "uniform", low, span=high - low, seed=sum(seed))
        case _:
            raise UsageError(f"'{given}': expected {FORMS}")


def of_npy(file: str | BinaryIO, name: str) -> Assumption:
    """Read an ``.npy`` file.

    Raises:
        InputError: it cannot be read, or holds no array of numbers.
    """
    wanted = "not an .npy file: expected one array of numbers in NumPy's format"
    try:
        array = np.load(file, allow_pickle=False)
    except OSError as error:
        raise InputError(error.strerror or wanted, file=name) from None
    except (ValueError, EOFError, MemoryError, RecursionError, SyntaxError, TokenError):
        raise InputError(wanted, file=name) from None
    if not isinstance(array, np.ndarray):
        raise InputError("an .npz archive, expected an .npy file of one array", file=name)
    return _of_array(array, name, name)


def _of_array(array: npt.NDArray[Any], text: str, file: str | None) -> Assumption:
    if array.dtype.kind not in "iubf" or array.dtype.itemsize not in (1, 2, 4, 8):
        message = f"an array of {array.dtype}, expected whole numbers or floats of 1 to 8 bytes"
        raise InputError(message, file=file) if file else UsageError(message)
    little = array.astype(array.dtype.newbyteorder("<"), copy=False)
    data = little.ravel(order="K").view(np.uint8)  # as it lies in memory
    missing = -len(data) % 8 if len(data) else 8
    padded = np.pad(data, (0, missing)) if missing else data
    return Assumption(
        text, "array", data=padded, length=len(data), dtype=array.dtype.name,
        element_bytes=array.dtype.itemsize,
    )  # fmt: skip


# ---------------------------------------------------------------- parameters
