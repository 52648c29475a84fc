"""The launch that a kernel file describes: its own functions called with a shape and settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from kanalyze.errors import InputError, UsageError, nearest
from kanalyze.frontend.kernel_file import ELEMENT_TYPES, OPTION_NAMES, KernelFile

Pointer = tuple[str, str, tuple[int, ...]]
"""A tensor argument: ``("*", dtype, dims)``, its elements contiguous and row-major."""

Scalar = int | float

INDEX_TYPES = ("i64", "i32", "i16", "i8", "u8")
MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Technical Specifications"
MAX_INTEGER = 2**63 - 1  # Triton passes larger integers as u64, which the kernels do not expect
MAX_WARPS = 32  # 1024 threads a block


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """One launch of a kernel file's kernel, complete.

    Attributes:
        shape: value of each name of the shape (elements).
        dtype: element type, ``"fp32"``, ``"fp16"`` or ``"bf16"``.
        constexprs: value of each ``tl.constexpr`` parameter, derived ones included.
        options: ``num_warps`` and ``num_stages``.
        arguments: the other parameters in the kernel's order, each a pointer
            ``("*", dtype, dims)`` (dims in elements) or a number.
        grid: blocks in x, y and z.
    """

    shape: Mapping[str, int]
    dtype: str
    constexprs: Mapping[str, int]
    options: Mapping[str, int]
    arguments: Mapping[str, Pointer | Scalar]
    grid: tuple[int, int, int]


def plan(
    kernel: KernelFile,
    module: ModuleType,
    settings: Mapping[str, str | int],
    dtype: str | None = None,
) -> LaunchPlan:
    """Return the launch that ``settings`` describe; what they leave open is the first example.

    Args:
        kernel: the kernel file as read.
        module: the same file, loaded.
        settings: values of names of the shape (elements), of constexprs, of ``num_warps`` and
            ``num_stages``, or of other numbers that the kernel takes, such as a stride (elements).
        dtype: element type; None for that of the first example.

    Raises:
        UsageError: an unknown name or element type, or a value that cannot be.
        InputError: the file's own functions fail or give something malformed.
    """
    example = kernel.example[0]
    dtype = dtype or str(example.get("dtype", kernel.dtypes[0]))
    if dtype not in kernel.dtypes:
        raise UsageError(f"{kernel.name}: unknown dtype {dtype!r}; {nearest(dtype, kernel.dtypes)}")

    base: dict[str, Any] = {**kernel.constexprs, **kernel.options, **example}
    base.pop("dtype", None)
    base.update(kernel.overrides.get(dtype, {}))
    base.update({name: _integer(name, v) for name, v in settings.items() if name in base})
    shape = {name: _size(name, base[name], name in kernel.flags) for name in kernel.shape}
    constexprs = {name: _constexpr(name, base[name]) for name in kernel.constexprs}
    options = {name: _option(name, base[name]) for name in OPTION_NAMES}

    given = _call(kernel, module.arguments, shape, dtype, constexprs)
    wanted = [name for name in kernel.parameters if name not in constexprs]
    if not isinstance(given, dict) or list(given) != wanted:
        raise InputError(f"arguments() gives not the dict of {wanted}", file=str(kernel.path))
    arguments = {n: v for n, v in given.items() if n not in kernel.constexpr_parameters}
    for name, value in arguments.items():
        if not (type(value) in (int, float) or _is_pointer(value)):
            message = f"arguments() gives {name}={value!r}, neither a number nor ('*', dtype, dims)"
            raise InputError(message, file=str(kernel.path))
    for name, value in settings.items():
        if name not in base:
            arguments[name] = _argument(kernel, given, name, value)

    grid = _call(kernel, module.grid, shape, constexprs)
    if not (isinstance(grid, tuple) and [type(n) for n in grid] == [int] * 3 and min(grid) > 0):
        raise InputError(f"grid() gives {grid}, not three positive integers", file=str(kernel.path))
    for axis, blocks, limit in zip("xyz", grid, MAX_GRID, strict=True):
        if blocks > limit:
            raise UsageError(f"{kernel.name}: {blocks} blocks in {axis}; CUDA allows {limit}")
    derived = {name: given[name] for name in kernel.constexpr_parameters if name in given}
    values = {**constexprs, **derived}
    return LaunchPlan(
        shape=shape,
        dtype=dtype,
        constexprs={name: values[name] for name in kernel.constexpr_parameters},
        options=options,
        arguments=arguments,
        grid=grid,
    )


def _call(kernel: KernelFile, function: Callable[..., Any], *arguments: Any) -> Any:
    """Call one of the file's own functions; whatever goes wrong in it is the file's error."""
    try:
        return function(*arguments)
    except Exception as error:
        name = function.__name__
        raise InputError(f"{name}() failed: {error!r}", file=str(kernel.path)) from error


def _is_pointer(value: object) -> bool:
    match value:
        case ("*", str(dtype), tuple(dims)):
            known = dtype in (*ELEMENT_TYPES, *INDEX_TYPES)
            return known and all(type(size) is int for size in dims)
    return False


def _integer(name: str, value: str | int) -> int:
    try:
        number = int(value)
    except ValueError as error:
        raise UsageError(f"{name}={value}: expected an integer") from error
    if abs(number) > MAX_INTEGER:
        raise UsageError(f"{name}={value}: expected an integer of 64 bits")
    return number


def _size(name: str, value: int, is_flag: bool) -> int:
    if is_flag and value not in (0, 1):
        raise UsageError(f"{name}={value}: expected 0 or 1")
    if not is_flag and value < 1:
        raise UsageError(f"{name}={value}: expected a size of at least 1")
    return value


def _constexpr(name: str, value: int) -> int:
    """Check a constexpr; one named BLOCK… is a tile's side, which must be a power of two."""
    if value < 1:
        raise UsageError(f"{name}={value}: expected at least 1")
    if name.startswith("BLOCK") and value & (value - 1):
        raise UsageError(f"{name}={value}: expected a power of two")
    return value


def _option(name: str, value: int) -> int:
    if name == "num_warps" and (value not in range(1, MAX_WARPS + 1) or value & (value - 1)):
        raise UsageError(f"{name}={value}: expected a power of two from 1 to {MAX_WARPS}")
    if value < 1:
        raise UsageError(f"{name}={value}: expected at least 1")
    return value


def _argument(
    kernel: KernelFile, given: Mapping[str, Any], name: str, value: str | int
) -> int | float:
    """Return the value set for an argument that is neither a shape name nor a constexpr."""
    numbers = [
        n
        for n, v in given.items()
        if n not in kernel.constexpr_parameters and not isinstance(v, tuple)
    ]
    if name in numbers:
        if isinstance(given[name], int):
            return _integer(name, value)
        try:
            return float(value)
        except ValueError as error:
            raise UsageError(f"{name}={value}: expected a number") from error
    if name in given:
        what = "a pointer" if isinstance(given[name], tuple) else "derived from the shape"
        raise UsageError(f"{kernel.name}: {name} is {what} and cannot be set")
    known = [*kernel.shape, *kernel.constexprs, *OPTION_NAMES, *numbers]
    raise UsageError(f"{kernel.name}: unknown name {name!r}; {nearest(name, dict.fromkeys(known))}")
