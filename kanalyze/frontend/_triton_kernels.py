"""The kernels of a module, and what Triton's decorators add to them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kanalyze.errors import InputError, MissingToolError, SourceSpot, UsageError, nearest
from kanalyze.frontend import user_file
from kanalyze.frontend.specialize import TritonParameter


@dataclass(frozen=True, slots=True)
class JitKernel:
    """A ``@triton.jit`` function with what its decorators add.

    Attributes:
        function: the ``JITFunction``.
        parameters: its parameters in order.
        config: keyword arguments of the autotune configuration that was chosen.
        options: compilation options of that configuration (``num_warps``, …).
        configs: how many configurations there are, 0 without ``@triton.autotune``.
        chosen: which of them, from 0.
        heuristics: parameter → function of the known arguments.
        line: 1-based line of its ``def``.
    """

    function: Any
    name: str
    file: Path
    line: int
    parameters: tuple[TritonParameter, ...]
    config: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)
    configs: int = 0
    chosen: int = 0
    heuristics: dict[str, Callable[[dict[str, Any]], Any]] = field(default_factory=dict)

    def spot(self) -> SourceSpot:
        """Return the place of the kernel's ``def``."""
        text = user_file.line_of(self.file, self.line)
        column = len(text) - len(text.lstrip()) + 1
        return SourceSpot(user_file.shown(self.file), self.line, column, text)

    def column_base(self) -> int:
        """Return the number of the first column in Triton's locations: 1, or 0 up to 3.6."""
        return 1 if hasattr(self.function, "def_file_col_number") else 0


def import_triton() -> Any:
    """Import triton, with ``TRITON_INTERPRET`` out of the way.

    Raises:
        MissingToolError: it is not installed, or cannot be imported on this machine.
        UsageError: it was imported earlier in its interpreter mode, which cannot compile.
    """
    interpret = os.environ.pop("TRITON_INTERPRET", None)
    try:
        import triton
        import triton.language.standard as standard
        from triton.runtime.jit import JITFunction
    except ImportError as error:
        if isinstance(error, ModuleNotFoundError) and error.name == "triton":
            raise MissingToolError(
                "Triton is not installed (it exists for Linux): pip install triton"
            ) from None
        raise MissingToolError(
            f"Triton cannot be imported ({user_file.one_line(error)}): "
            "pip install --force-reinstall triton"
        ) from error
    finally:
        if interpret is not None:
            os.environ["TRITON_INTERPRET"] = interpret
    if not isinstance(standard.sum, JITFunction):
        raise UsageError(
            "Triton was imported with TRITON_INTERPRET=1 in this process and cannot compile; "
            "unset TRITON_INTERPRET"
        )
    return triton


def kernels_of(module: ModuleType) -> dict[str, Any]:
    """Return the kernels (decorated functions) among a module's globals, in order."""
    return {n: v for n, v in user_file.own_names(module).items() if innermost(v) is not None}


def entries_of(module: ModuleType, path: Path) -> list[str]:
    """Return the kernels defined in a file that no other kernel of it calls."""
    own = {}
    for name, value in kernels_of(module).items():
        code = innermost(value).fn.__code__
        if Path(code.co_filename) == path:
            own[name] = code
    called = {name for code in own.values() for name in code.co_names}
    return [name for name in own if name not in called] or list(own)


def innermost(value: Any) -> Any:
    """The ``JITFunction`` within decorators, Triton's or others'; None where there is none."""
    from triton.runtime.jit import JITFunction

    for _ in range(10):
        if isinstance(value, JITFunction):
            return value
        value = _within(value)
    return None


def _within(value: Any) -> Any:
    """What a decorator was put on, as it keeps it; None where it is no decorator."""
    if value is None or isinstance(value, user_file.Missing | type):
        return None
    kept = vars(value) if hasattr(value, "__dict__") else {}
    return kept.get("__wrapped__", kept.get("fn"))


def unwrap(name: str, value: Any, chosen: int | None = None) -> JitKernel:
    """Return a kernel with what ``@triton.autotune`` and ``@triton.heuristics`` add to it.

    Raises:
        UsageError: it has no such configuration.
    """
    from triton.runtime.autotuner import Autotuner, Heuristics
    from triton.runtime.jit import JITFunction

    config: dict[str, Any] = {}
    options: dict[str, Any] = {}
    heuristics: dict[str, Callable[[dict[str, Any]], Any]] = {}
    configs = 0
    while not isinstance(value, JITFunction):
        if isinstance(value, Autotuner):
            configs = len(value.configs)
            if chosen is not None and chosen >= configs:
                raise UsageError(f"{name} has {configs} configurations, counted from 0")
            first = value.configs[chosen or 0]
            config = dict(first.kwargs)
            for option in ("num_warps", "num_stages", "num_ctas", "maxnreg"):
                if (number := getattr(first, option, None)) is not None:
                    options[option] = number
        elif isinstance(value, Heuristics):
            heuristics |= value.values
        value = _within(value)
    if chosen is not None and not configs:
        raise UsageError(f"{name} has no list of configurations (@triton.autotune)")
    line = value.starting_line_number
    for index, text in enumerate(value.raw_src):
        if text.strip().startswith("def "):
            line += index
            break
    parameters = tuple(
        TritonParameter(
            name=p.name,
            constexpr=p.is_constexpr,
            specialise=not p.do_not_specialize,
            specialise_alignment=not p.do_not_specialize_on_alignment,
            const=p.is_const,
            type=p.annotation_type,
            has_default=p.has_default,
            default=p.default if p.has_default else None,
        )
        for p in value.params
    )
    file = Path(value.fn.__code__.co_filename)
    return JitKernel(
        value, name, file, line, parameters, config, options, configs, chosen or 0, heuristics
    )


def kernel_of(value: Any, config: int | None = None) -> JitKernel:
    """Return the kernel that a ``@triton.jit`` object is.

    Raises:
        UsageError: it is another object.
    """
    import_triton()
    function = innermost(value)
    if function is None:
        raise UsageError(f"{value!r} is not a @triton.jit function")
    return unwrap(function.fn.__name__, value, config)


def pick(
    loaded: user_file.UserModule, path: Path, function: str | None, config: int | None = None
) -> JitKernel:
    """Return a file's kernel of that name, or its only one for None, with a configuration.

    Raises:
        UsageError: there is no such kernel, or several to choose from.
        InputError: there is none at all, or what defines it fails.
    """
    module = loaded.module
    kernels = kernels_of(module)
    error = loaded.error()
    if error is not None and (not kernels if function is None else function not in kernels):
        raise error
    if not kernels:
        raise InputError("found no @triton.jit function, expected at least one", file=str(path))
    if function is None:
        entries = entries_of(module, path)
        if len(entries) != 1:
            names = ", ".join(entries or kernels)
            raise UsageError(f"{path.name} has several kernels, name one as FILE:KERNEL: {names}")
        function = entries[0]
    if function not in kernels:
        if hasattr(module, function):
            raise UsageError(
                f"'{function}' in {path.name} is not a @triton.jit function: {nearest('', kernels)}"
            )
        raise UsageError(f"no kernel '{function}' in {path.name}: {nearest(function, kernels)}")
    return unwrap(function, kernels[function], config)
