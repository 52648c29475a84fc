"""One launch of a kernel: grid, block and arguments, as far as they are known."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kanalyze.errors import InputError, UsageError
from kanalyze.launch import limits
from kanalyze.launch.tensor_map import TensorMap

if TYPE_CHECKING:
    from kanalyze.launch.assumptions import Assumption


_ELEMENT = re.compile(r"\*(i|u|fp|bf)(1|8|16|32|64)(?:e\w+)?")


@dataclass(frozen=True, slots=True)
class LaunchParam:
    """An argument: ``value`` is the number of a scalar or the address of a pointer (None: unknown).

    ``bytes`` is the size of what a pointer points to, ``data`` what is assumed to lie there.
    ``tensor_map`` is the tensor map that the argument is, or points to.
    """

    name: str
    type: str
    value: int | None
    bytes: int | None = None
    data: Assumption | None = None
    tensor_map: TensorMap | None = None

    @property
    def is_pointer(self) -> bool:
        """Whether it is the address of an array."""
        return self.type.startswith("*") or self.bytes is not None

    @property
    def element(self) -> tuple[str | None, int | None]:
        """Kind ("int", "float", "bits") and bytes of what a pointer points to, as far as known.

        "bits" are types that NumPy has no name for, and bits of one byte each (``i1``).
        """
        match = _ELEMENT.fullmatch(self.type)
        if match is None:
            return None, None
        kind, bits = match[1], int(match[2])
        if kind == "bf" or bits < 8 or (kind == "fp" and bits == 8):
            return "bits", max(1, bits // 8)
        return "float" if kind == "fp" else "int", bits // 8

    def holding(self, what: Assumption) -> LaunchParam:
        """The same with what it points to, if the type fits.

        Raises:
            UsageError, InputError: it does not.
        """
        kind, size = self.element
        if what.data is not None:
            fits = size in (None, what.element_bytes) and (
                kind is None
                or kind == "bits"
                or (kind == "float") == (what.dtype or "")[:5].startswith("float")
            )
            if not fits:
                raise InputError(
                    f"an array of {what.dtype}, expected the type that {self.name} points to "
                    f"({self.type[1:]}, {size} bytes an element)", file=what.text,
                )  # fmt: skip
            return replace(self, data=what)
        if kind == "float":
            raise UsageError(
                f"{self.name} points to {self.type[1:]}: of that an array (.npy) can be assumed, "
                f"not '{what.text}'"
            )
        last = what.first + max(what.span - 1, 0)
        if size is not None and not (-(1 << 8 * size - 1) <= what.first and last < 1 << 8 * size):
            raise UsageError(f"'{what.text}' does not fit into {self.type[1:]} of {self.name}")
        return replace(self, data=replace(what, element_bytes=size))


@dataclass(frozen=True, slots=True)
class Launch:
    """Grid and block (x, y, z), dynamic plus static shared bytes, and arguments in PTX order.

    ``registers_per_thread`` are those of the binary that ran, where a record says them;
    ``cluster`` the blocks of a cluster, where the launch says them and not the PTX; ``constexprs``
    and ``options`` (``num_warps``, …) what the kernel was compiled with; ``assumed`` what a record
    says that it took for granted.
    """

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    params: tuple[LaunchParam, ...]
    shared_bytes: int | None = None
    device: str | None = None
    ptx: Path | None = None
    registers_per_thread: int | None = None
    cluster: tuple[int, int, int] | None = None
    constexprs: Mapping[str, Any] = field(default_factory=dict, hash=False)
    options: Mapping[str, int] = field(default_factory=dict, hash=False)
    assumed: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what CUDA cannot launch.

        Raises:
            InputError: an extent or an argument is out of range; it names the field.
        """
        wrong = list(limits.dimensions(self.grid, self.block, self.cluster))
        for param in self.params:
            text = limits.number(param.type, param.value)
            wrong += [(f"params, {param.name}", text)] if text else []
        for place, text in wrong:
            raise InputError(f"not a launch: {place}: {text}", file=f"launch of {self.kernel}")

    @staticmethod
    def from_record(record: str | Path | Mapping[str, Any]) -> Launch:
        """Read a launch record: a JSON file, or the object itself.

        A ``.ptx`` of the same stem beside the file becomes ``ptx``; what it says that arrays hold
        is what they hold.

        Raises:
            InputError: it cannot be read, or a key is missing or malformed.
        """
        if isinstance(record, Mapping):
            return _launch(record, "<record>", None)
        path = Path(record)
        try:
            data = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise InputError(error.strerror or str(error), file=str(path)) from None
        except (ValueError, RecursionError) as error:
            raise InputError(f"not a launch record: {error}", file=str(path)) from None
        if not isinstance(data, dict):
            raise InputError("not a launch record: expected a JSON object", file=str(path))
        beside = path.with_suffix(".ptx")
        launch = _launch(data, str(path), beside if beside.is_file() else None)
        return _with_arrays(launch, data, path)


def _launch(data: Mapping[str, Any], file: str, ptx: Path | None) -> Launch:
    for place, text in limits.record(data):
        raise InputError(f"not a launch: {place}: {text}", file=file)
    try:
        return Launch(
            kernel=data["kernel"],
            grid=_triple(data["grid"]),
            block=_triple(data["block"]),
            params=tuple(_param(p) for p in data["params"]),
            shared_bytes=data.get("shared_bytes"),
            device=data.get("device"),
            ptx=ptx,
            registers_per_thread=data.get("registers_per_thread"),
            cluster=_triple(data["cluster"]) if data.get("cluster") else None,
            constexprs=dict(data["constexprs"] or {}) if "constexprs" in data else {},
            assumed=tuple(map(str, data.get("assumed") or ())),
            options={
                name: data[name]
                for name in ("num_warps", "num_stages")
                if limits.is_whole(data.get(name))
            },
        )
    except (TypeError, ValueError) as error:  # a tensor map, constexprs
        raise InputError(f"not a launch: {error}", file=file) from None


def _with_arrays(launch: Launch, data: Mapping[str, Any], path: Path) -> Launch:
    """The launch with the contents of arrays that its record tells."""
    from kanalyze.launch import arrays, assumptions

    try:
        for place, text in arrays.problems(data):
            raise InputError(f"not a launch: {place}: {text}", file=str(path))
        told: dict[str, Any] = {**arrays.of_record(data)}
    except (TypeError, ValueError, LookupError):
        text = "params: integers are no [seed, low, high, shape, type]"
        raise InputError(f"not a launch: {text}", file=str(path)) from None
    told |= {at: str(path.parent / name) for at, name in arrays.files_of(data).items()}
    params = list(launch.params)
    for at, what in told.items():
        params[int(at)] = params[int(at)].holding(assumptions.parse(what))
    return replace(launch, params=tuple(params))


def _triple(numbers: Sequence[int]) -> tuple[int, int, int]:
    x, y, z = (*numbers, 1, 1)[:3]
    return x, y, z


def _param(data: Mapping[str, Any]) -> LaunchParam:
    value = data.get("value", data.get("address"))
    name, tensor_map = str(data["name"]), None
    if data.get("tensor_map") is not None:
        try:
            tensor_map = TensorMap.read(data["tensor_map"])
        except ValueError as error:
            raise ValueError(f"tensor_map of {name}: {error}") from None
    return LaunchParam(
        name,
        str(data["type"]),
        value if limits.is_whole(value) else None,
        data.get("bytes"),
        None,
        tensor_map,
    )
