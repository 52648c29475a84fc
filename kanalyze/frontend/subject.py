"""A module of PTX with all that is known of it: arguments, launch, machine code."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError, SourceSpot, UsageError
from kanalyze.frontend import launch_fit
from kanalyze.frontend.argument import Argument
from kanalyze.frontend.compile import DEFAULT_ARCH, Compiled, grid_with
from kanalyze.frontend.given import Grid
from kanalyze.frontend.specialize import ALLOCATED, Pointer
from kanalyze.launch.assume import assume
from kanalyze.launch.assumptions import Assumption
from kanalyze.launch.record import Launch, LaunchParam
from kanalyze.ptx import ir
from kanalyze.sass import cubin as cubins

_SPACING = 1 << 40  # between the addresses that pointers get where no launch says them


@dataclass(frozen=True)
class Subject:
    """What to report on: a module of PTX, what the report calls it, and what else is known of it.

    Attributes:
        module: the PTX; without a function where there is machine code alone.
        file: the input.
        compiled: what Triton made it from.
        launch: gives arguments by position, for the kernels of the module it belongs to.
        notes: remarks for the report.
        arguments: kernel to its parameters in order, where something beside the PTX names them.
        shared_bytes: shared memory of a block, static and dynamic, where something says it.
        cubin: the machine code that was given, or lies beside the PTX.
        given: whether ``cubin`` is the input itself, so that it says what the kernels need.
        bare: kernels of that cubin of which there is no PTX.
        assume: pointer parameter to what its array holds, see `kanalyze.launch.assumptions`.
    """

    module: ir.Module
    file: str
    compiled: Compiled | None = None
    launch: Launch | None = None
    notes: tuple[str, ...] = ()
    arguments: Mapping[str, tuple[Argument, ...]] = field(default_factory=dict)
    shared_bytes: int | None = None
    cubin: cubins.Cubin | None = None
    given: bool = False
    bare: tuple[str, ...] = ()
    assume: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse a launch whose arguments are not those of the kernel that it names."""
        for function in self.module.entries:
            if self.launch is not None and function.name == self.launch.kernel:
                launch_fit.check(function, self.launch)


@dataclass
class Settings:
    """How targets are compiled: the options of a target (see `kanalyze.compile_kernel`)."""

    arch: str = DEFAULT_ARCH
    dtype: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None
    signature: str | None = None
    args: Mapping[str, object] = field(default_factory=dict)
    grid: Grid | None = None
    config: int | str | None = None


def with_record(settings: Settings, launch: Launch) -> Settings:
    """The settings with the arguments of a recorded launch, for other sizes than its own.

    Raises:
        UsageError: no grid is given; that of the record is that of its sizes.
    """
    if settings.grid is None:
        raise UsageError("other sizes than the record's need a grid: --grid 'cdiv(n,BLOCK)'")
    args: dict[str, object] = dict(launch.constexprs)
    for param in launch.params:
        if param.type.startswith("*"):
            align = math.gcd(param.value or 0, ALLOCATED)
            args[param.name] = Pointer(param.type[1:].removeprefix("k"), align)
        elif param.value is not None:
            args[param.name] = param.value
    return replace(
        settings,
        args=args | dict(settings.args),
        num_warps=settings.num_warps or launch.options.get("num_warps"),
        num_stages=settings.num_stages or launch.options.get("num_stages"),
    )


def errors_of(module: ir.Module, severity: str = "error") -> list[InputError]:
    """What could not be read in a module, or is odd ("warning"), with the place."""
    lines = module.text.splitlines()
    return [
        InputError(
            d.message,
            SourceSpot(
                module.name,
                d.pos.line,
                d.pos.column,
                lines[d.pos.line - 1] if 0 < d.pos.line <= len(lines) else "",
            ),
        )
        for d in module.diagnostics
        if d.severity == severity
    ]


def launch_for(subject: Subject, function: ir.Function) -> Launch | None:
    """The launch of a kernel, where one is known: given, or that of the target's own example."""
    compiled = subject.compiled
    if subject.launch is not None:
        launch = subject.launch if _is_of(subject.launch, subject.module, function) else None
    elif compiled is None or compiled.grid is None or compiled.name != function.name:
        launch = None
    else:
        launch = launch_of(compiled)
    if launch is None or not subject.assume:
        return launch
    return assume(launch, [p.name for p in function.parameters], subject.assume)


def _is_of(launch: Launch, module: ir.Module, function: ir.Function) -> bool:
    """Whether a launch is one of this kernel: by name, or because there is no other."""
    fits = len(launch.params) <= len(function.parameters)
    return fits and (launch.kernel == function.name or len(module.entries) == 1)


def arguments_of(
    subject: Subject, function: ir.Function, launch: Launch | None
) -> dict[str, Argument]:
    """What is known of a kernel's parameters: PTX name to `Argument`, in the order of the PTX."""
    given: list[Argument] = []
    compiled = subject.compiled
    if compiled is not None and compiled.name == function.name:
        for name, kind in compiled.signature.items():
            if kind != "constexpr":
                value = compiled.arguments.get(name)
                number = value if isinstance(value, int) and not isinstance(value, bool) else None
                given.append(Argument(name, kind, compiled.specialization.get(name, ()), number))
    elif launch is not None and _is_of(launch, subject.module, function):
        given = [Argument(p.name, p.type, (), p.value) for p in launch.params]
    else:
        given = list(subject.arguments.get(function.name, ()))
    names = [parameter.name for parameter in function.parameters]
    result = dict(zip(names, given, strict=False))
    triton = compiled is not None or launch is not None or subject.shared_bytes is not None
    if given and triton:  # Triton appends pointers to scratch memory
        for index, name in enumerate(names[len(given) :]):
            result[name] = Argument(("global_scratch", "profile_scratch")[index % 2], "*i8")
    return result


def launch_of(compiled: Compiled | None) -> Launch:
    """The launch that a compiled kernel's example or settings describe.

    Raises:
        UsageError: grid or arguments are not known.
    """
    if compiled is None:
        raise UsageError(
            "no launch is known: give --launch RECORD.json (kernel, grid, block and params)"
        )
    missing = [
        name
        for name, kind in compiled.signature.items()
        if kind[0] in "iu" and not isinstance(compiled.arguments.get(name), int)
    ]
    if compiled.grid is None or missing:
        what = f"no value of {', '.join(missing)}" if compiled.grid else "no launch"
        raise UsageError(f"{what} is known; for example {_example(compiled)}")
    params: list[LaunchParam] = []
    contents: dict[str, Assumption] = {}
    for name, kind in compiled.signature.items():
        if kind == "constexpr":
            continue
        value = compiled.arguments.get(name)
        if kind.startswith("*"):
            array = compiled.arrays.get(name, Pointer(""))
            address = _SPACING * (len(params) + 1) + array.align % ALLOCATED
            params.append(LaunchParam(name, kind, address))
            if array.contents is not None:
                contents[name] = array.contents
        else:
            params.append(LaunchParam(name, kind, value if isinstance(value, int) else None))
    x, y, z = (*compiled.grid, 1, 1)[:3]
    threads = 32 * int(compiled.metadata["num_warps"])
    shared = compiled.resources.shared_bytes
    launch = Launch(compiled.name, (x, y, z), (threads, 1, 1), tuple(params), shared)
    return assume(launch, [], contents)


def _example(compiled: Compiled) -> str:
    """The command, or the call, that says a launch of a kernel, with what was given already."""
    asked = compiled.asked
    grid, args = asked.get("grid"), dict(asked.get("args", {}))
    axes = max((i + 1 for i, a in enumerate("xyz") if f"%ctaid.{a}" in compiled.ptx), default=1)
    size = 4096 if axes == 1 else 512
    numbers = [
        name
        for name, kind in compiled.signature.items()
        if kind[0] in "iu" and name not in args and name not in compiled.arguments
    ]
    for name, kind in compiled.signature.items():
        if kind.startswith("*") and name not in compiled.arrays:
            element = kind.lstrip("*").removeprefix("k")
            held = " arange" if element in ("i32", "i64") else ""  # an index, perhaps
            args[name] = f"{element}[{size}]{held}"
        elif name in numbers:
            args[name] = size
    if grid is None:
        block = next((n for n in compiled.constexprs if "BLOCK" in n.upper()), None)
        grid = {1: "64", 2: "64,64", 3: "16,16,16"}[axes]
        if axes == 1 and block and numbers:
            grid = f"cdiv({numbers[0]},{block})"
    if not isinstance(asked["target"], str | Path):
        return f"kanalyze.estimate({compiled.source_function}, grid={grid!r}, args={args!r})"
    words = [f"--arg {shlex.quote(f'{name}={value}')}" for name, value in args.items()]
    target = shlex.quote(str(asked["target"]))
    return " ".join([f"kanalyze traffic {target} --grid {shlex.quote(str(grid))}", *words])


def launch_again(given: Launch, before: Compiled, then: Compiled) -> Launch | None:
    """A launch that was given, of the same kernel compiled otherwise.

    Other constexprs may need another grid: that which the kernel's file says for the arguments of
    the launch. Where it says another one than was given, only a grid that does not change is known.

    Args:
        given: a launch of ``before``.
        before, then: both compilations.

    Returns:
        None where the grid is not known.
    """
    grid = given.grid
    if before.constexprs != then.constexprs:
        sizes = {p.name: p.value for p in given.params if p.name in before.shape}
        was, after = (grid_with(each, sizes) for each in (before, then))
        if was is None or after is None:
            return None
        if was != after:
            if (*was, 1, 1)[:3] != given.grid:
                return None
            x, y, z = (*after, 1, 1)[:3]
            grid = (x, y, z)
    return replace(
        given,
        kernel=then.name,
        grid=grid,
        block=(32 * int(then.metadata["num_warps"]), 1, 1),
        shared_bytes=then.resources.shared_bytes,
        registers_per_thread=None,
        ptx=None,
    )
