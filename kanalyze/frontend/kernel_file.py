"""Kernel files: what the files in ``kernels/`` say about themselves.

A kernel file holds one ``@triton.jit`` function ``<stem>_kernel``, literals that name its shape and
defaults, and three plain functions: ``arguments``, ``grid`` and ``reference``. ``read`` takes the
literals from the syntax tree, so it needs no Triton; `kanalyze.frontend.launch_plan` calls the
loaded module.

``kanalyze bench`` uses more, where the file has it: ``bound(dtype, roundoff)``, the relative norm
that its result may be off by; ``rivals(tensors, shape)``, names and functions of other ways to the
same result; ``BATCH_DIMS``, how many leading dimensions of all tensors are independent of each
other (a launch is compared part by part then); ``CHECKS``, further launches that check it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze import _bundled
from kanalyze.errors import InputError, SourceSpot, nearest

ELEMENT_TYPES = ("fp32", "fp16", "bf16")
OPTION_NAMES = ("num_warps", "num_stages")


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
    return _LiteralReader(Path(path)).kernel_file()


class _LiteralReader:
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
