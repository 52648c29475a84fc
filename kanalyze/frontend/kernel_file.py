"""Kernel files: what the files in ``kernels/`` say about themselves, and the launch they describe.

A kernel file holds one ``@triton.jit`` function ``<stem>_kernel``, literals that name its shape and
defaults, and three plain functions: ``arguments``, ``grid`` and ``reference``. ``read`` takes the
literals from the syntax tree, so it needs no Triton; ``plan`` calls the loaded module.

``kanalyze bench`` uses more, where the file has it: ``bound(dtype, roundoff)``, the relative norm
that its result may be off by; ``rivals(tensors, shape)``, names and functions of other ways to the
same result; ``BATCH_DIMS``, how many leading dimensions of all tensors are independent of each
other (a launch is compared part by part then); ``CHECKS``, further launches that check it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from kanalyze import _bundled
from kanalyze.errors import InputError, SourceSpot, UsageError, nearest

Pointer = tuple[str, str, tuple[int, ...]]
"""A tensor argument: ``("*", dtype, dims)``, its elements contiguous and row-major."""

Scalar = int | float

ELEMENT_TYPES = ("fp32", "fp16", "bf16")
INDEX_TYPES = ("i64", "i32", "i16", "i8", "u8")
OPTION_NAMES = ("num_warps", "num_stages")
MAX_GRID = (2**31 - 1, 65535, 65535)  # CUDA C++ Programming Guide, "Technical Specifications"
MAX_INTEGER = 2**63 - 1  # Triton passes larger integers as u64, which the kernels do not expect
MAX_WARPS = 32  # 1024 threads a block


@dataclass(frozen=True, slots=True)
class KernelFile:
    """What a kernel file says, as far as it can be read without running it.

    Attributes:
        name: the file's stem.
        path: the file.
        summary: the first line of its docstring.
        function: name of the ``@triton.jit`` function.
        parameters: the function's parameters in order.
        constexpr_parameters: those of them that are ``tl.constexpr``.
        dtypes: element types it can be compiled for, the default first.
        shape: for each name of the problem's shape, what it means.
        constexprs: default of each constexpr that a user may set; the function's other constexprs
            are derived from the shape by ``arguments``.
        options: defaults of ``num_warps`` and ``num_stages``.
        overrides: for some element types, constexprs and options that replace the defaults.
        outputs: pointer parameters that the kernel writes.
        example: launches; each a complete shape, and perhaps constexprs, options and ``"dtype"``.
            The first is the default of every command. A name of the shape that is 0 in one of them
            is a flag: 0 or 1.
    """

    name: str
    path: Path
    summary: str
    function: str
    parameters: tuple[str, ...]
    constexpr_parameters: tuple[str, ...]
    dtypes: tuple[str, ...]
    shape: Mapping[str, str]
    constexprs: Mapping[str, int]
    options: Mapping[str, int]
    overrides: Mapping[str, Mapping[str, int]]
    outputs: tuple[str, ...]
    example: tuple[Mapping[str, int | str], ...]

    @property
    def flags(self) -> frozenset[str]:
        """The names of the shape whose values are 0 or 1."""
        return frozenset(name for name in self.shape if any(e[name] == 0 for e in self.example))


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


def bundled() -> dict[str, KernelFile]:
    """Return the kernel files that ship with kanalyze, by name, sorted.

    Raises:
        FileNotFoundError: the installation is incomplete.
        InputError: one of the files is malformed.
    """
    files = sorted(_bundled.folder("kernels").glob("*.py"))
    return {path.stem: read(path) for path in files if path.stem != "__init__"}


def read(path: str | Path) -> KernelFile:
    """Read a kernel file's literals from its syntax tree; nothing of it is run.

    Raises:
        InputError: the file cannot be read, is not Python, or a part is missing or malformed.
    """
    return _Reader(Path(path)).kernel_file()


class _Reader:
    """The syntax tree of one kernel file, with the checks of each part."""

    def __init__(self, path: Path):
        self.path = path
        try:
            source = path.read_text(encoding="utf-8")
            self.tree = ast.parse(source, str(path))
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise InputError(f"cannot read: {reason}", file=str(path)) from error
        except SyntaxError as error:
            spot = SourceSpot(
                str(path), error.lineno or 1, error.offset or 1, (error.text or "").rstrip("\n")
            )
            raise InputError(f"not valid Python: {error.msg}", spot) from error
        except ValueError as error:  # a null byte
            raise InputError(f"not valid Python: {error}", file=str(path)) from error
        self.lines = source.splitlines() or [""]
        self.functions = {n.name: n for n in self.tree.body if isinstance(n, ast.FunctionDef)}
        self.values = {
            target.id: node.value
            for node in self.tree.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name)
        }

    def kernel_file(self) -> KernelFile:
        docstring = ast.get_docstring(self.tree)
        if not docstring:
            raise self.error("expected a docstring whose first line says what the kernel computes")
        name = self.path.stem
        kernel = self.function(f"{name}_kernel")
        for wanted in ("arguments", "grid", "reference"):
            self.function(wanted)
        parameters = [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]
        names = tuple(p.arg for p in parameters)
        constants = tuple(p.arg for p in parameters if _is_constexpr(p))

        dtypes = self.names("DTYPES", ELEMENT_TYPES)
        shape = self.mapping("SHAPE", None, str)
        constexprs = self.mapping("CONSTEXPRS", constants, int)
        options = self.mapping("OPTIONS", OPTION_NAMES, int)
        if missing := [name for name in OPTION_NAMES if name not in options]:
            raise self.error(f"OPTIONS: {missing[0]} is missing", self.values["OPTIONS"])
        return KernelFile(
            name=name,
            path=self.path,
            summary=docstring.splitlines()[0].strip(),
            function=kernel.name,
            parameters=names,
            constexpr_parameters=constants,
            dtypes=dtypes,
            shape=shape,
            constexprs=constexprs,
            options=options,
            overrides=self.overrides(dtypes, {*constexprs, *options}),
            outputs=self.names("OUTPUTS", names),
            example=self.example(dtypes, shape, {*constexprs, *options}),
        )

    def function(self, name: str) -> ast.FunctionDef:
        if name not in self.functions:
            raise self.error(f"expected a function {name!r}; {nearest(name, self.functions)}")
        return self.functions[name]

    def literal(self, name: str) -> tuple[Any, ast.expr]:
        node = self.values.get(name)
        if node is None:
            raise self.error(f"expected an assignment to {name}")
        try:
            return ast.literal_eval(node), node
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError) as error:
            raise self.error(f"{name}: expected a literal", node) from error

    def names(self, name: str, known: tuple[str, ...]) -> tuple[str, ...]:
        value, node = self.literal(name)
        if not (isinstance(value, tuple) and value and all(isinstance(v, str) for v in value)):
            raise self.error(f"{name}: expected a tuple of strings, not empty", node)
        for word in value:
            self.check_known(name, word, known, node)
        return value

    def mapping(self, name: str, known: tuple[str, ...] | None, kind: type) -> dict[str, Any]:
        value, node = self.literal(name)
        self.check_mapping(name, value, kind, node)
        for word in value:
            if known is not None:
                self.check_known(name, word, known, node)
        return dict(value)

    def overrides(self, dtypes: tuple[str, ...], known: set[str]) -> dict[str, dict[str, int]]:
        value, node = self.literal("OVERRIDES")
        self.check_mapping("OVERRIDES", value, dict, node)
        for dtype, replaced in value.items():
            self.check_known("OVERRIDES", dtype, dtypes, node)
            self.check_mapping(f"OVERRIDES[{dtype!r}]", replaced, int, node)
            for word in replaced:
                self.check_known(f"OVERRIDES[{dtype!r}]", word, tuple(sorted(known)), node)
        return dict(value)

    def example(
        self, dtypes: tuple[str, ...], shape: Mapping[str, str], settable: set[str]
    ) -> tuple[dict[str, int | str], ...]:
        value, node = self.literal("EXAMPLE")
        if not (isinstance(value, tuple) and value):
            raise self.error("EXAMPLE: expected a tuple of dicts, not empty", node)
        for index, launch in enumerate(value):
            where = f"EXAMPLE[{index}]"
            if not isinstance(launch, dict):
                raise self.error(f"{where}: expected a dict", node)
            sizes = {k: v for k, v in launch.items() if k != "dtype"}
            self.check_mapping(where, sizes, int, node)
            for word in sizes:
                self.check_known(where, word, (*shape, *sorted(settable)), node)
            for word in shape:
                if word not in launch:
                    raise self.error(f"{where}: {word} is missing", node)
            if "dtype" in launch:
                self.check_known(where, launch["dtype"], dtypes, node)
        return value

    def check_mapping(self, name: str, value: object, kind: type, node: ast.expr) -> None:
        if not (
            isinstance(value, dict)
            and all(isinstance(k, str) and type(v) is kind for k, v in value.items())
        ):
            raise self.error(f"{name}: expected a dict from strings to {kind.__name__}", node)

    def check_known(self, name: str, word: object, known: tuple[str, ...], node: ast.expr) -> None:
        if word not in known:
            raise self.error(f"{name}: unknown {word!r}; {nearest(str(word), known)}", node)

    def error(self, message: str, node: ast.expr | None = None) -> InputError:
        line, column = (1, 1) if node is None else (node.lineno, node.col_offset + 1)
        return InputError(
            message, SourceSpot(str(self.path), line, column, self.lines[line - 1].rstrip())
        )


def _is_constexpr(parameter: ast.arg) -> bool:
    annotation = parameter.annotation
    return (isinstance(annotation, ast.Attribute) and annotation.attr == "constexpr") or (
        isinstance(annotation, ast.Name) and annotation.id == "constexpr"
    )


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
