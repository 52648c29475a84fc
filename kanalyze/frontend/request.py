"""What Triton is told to compile: types, facts and constants of a kernel's arguments, and options.

They come from a file that describes its launches (`planned`), or from a signature, settings,
decorators and defaults (`signed`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from kanalyze.errors import UsageError, nearest
from kanalyze.frontend import inference, launch_plan
from kanalyze.frontend._triton_kernels import JitKernel
from kanalyze.frontend.given import evaluated, sized
from kanalyze.frontend.kernel_file import KernelFile
from kanalyze.frontend.specialize import (
    DIVISIBLE_BY_16,
    EQUAL_TO_1,
    Pointer,
    Specialization,
    TritonParameter,
    normalise_type,
    parse_signature,
    signature_text,
    specialise,
    with_value,
)
from kanalyze.launch.record import Launch

OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""Options of the compiler that settings may give."""


@dataclass
class CompileRequest:
    """Arguments as Triton is told, options, and what is known of the launch.

    ``assumed`` says in words what was inferred or taken by default, ``inferred`` of which
    parameters; ``arrays`` are those that were given.
    """

    arguments: dict[str, Specialization]
    options: dict[str, Any]
    values: dict[str, Any]
    grid: tuple[int, ...] | None = None
    assumed: list[str] = field(default_factory=list)
    inferred: list[str] = field(default_factory=list)
    arrays: dict[str, Pointer] = field(default_factory=dict)
    shape: dict[str, int] = field(default_factory=dict)
    dtype: str | None = None


def planned(
    description: KernelFile,
    module: ModuleType,
    kernel: JitKernel,
    given: Mapping[str, object],
    dtype: str | None,
    signature: str | None,
    arrays: Mapping[str, Pointer],
) -> CompileRequest:
    """Make a request from a file that describes its own launches."""
    plan = launch_plan.plan(description, module, shape_settings(given), dtype)
    options = dict(plan.options)
    values: dict[str, Any] = dict(plan.arguments)
    explicit = parse_signature(signature, kernel.parameters) if signature else {}
    arguments = {}
    for parameter in kernel.parameters:
        name = parameter.name
        if name in plan.constexprs:
            arguments[name] = Specialization("constexpr", (), plan.constexprs[name])
        elif name in values:
            value = values[name]
            pointer = Pointer(value[1]) if isinstance(value, tuple) else None
            arguments[name] = specialise(parameter, pointer or value)
        elif parameter.has_default:
            arguments[name] = specialise(parameter, parameter.default)
    for name, stated in explicit.items():
        parameter = next(p for p in kernel.parameters if p.name == name)
        value = values.get(name, plan.constexprs.get(name))
        if isinstance(value, tuple):
            if not stated.type.startswith("*"):
                raise UsageError(f"signature: '{name}' of {kernel.name} is a pointer")
            values[name] = ("*", stated.type.lstrip("*").removeprefix("k"), value[2])
            arguments[name] = stated
        else:
            arguments[name] = with_value(parameter, stated, value)
    request = CompileRequest(
        arguments, options, values, tuple(plan.grid), shape=dict(plan.shape), dtype=plan.dtype
    )
    known = {**plan.shape, **plan.constexprs, **plan.arguments}
    _put_arrays(kernel, request, {n: sized(n, array, known) for n, array in arrays.items()})
    return request


def _put_arrays(kernel: JitKernel, request: CompileRequest, arrays: Mapping[str, Pointer]) -> None:
    """Tell Triton of arrays that were given; their types, where not said, are known already."""
    for parameter in kernel.parameters:
        array = arrays.get(parameter.name)
        if array is None:
            continue
        before = request.arguments[parameter.name]
        if not before.type.startswith("*"):
            raise UsageError(f"'{parameter.name}' of {kernel.name} is no pointer: {before.type}")
        array = replace(array, dtype=array.dtype or before.type.lstrip("*").removeprefix("k"))
        request.arguments[parameter.name] = specialise(parameter, array)
        request.arrays[parameter.name] = array
        request.values[parameter.name] = ("*", array.dtype, array.shape)


def shape_settings(given: Mapping[str, object]) -> dict[str, str | int]:
    """The settings that are not options, as `launch_plan.plan` reads them: integers, or text."""
    return {
        name: int(value)
        if isinstance(value, int) or (isinstance(value, float) and value.is_integer())
        else str(value)
        for name, value in given.items()
        if name not in OPTIONS
    }


def signed(
    kernel: JitKernel,
    given: Mapping[str, object],
    signature: str | None,
    arrays: Mapping[str, Pointer],
    guess: tuple[str, int, int] = inference.GUESSES[0],
    launch: Launch | None = None,
) -> CompileRequest:
    """Make a request from a signature, arguments, settings, decorators and defaults, in this order.

    A record of a launch says what signature, arguments and settings do not.

    What none of them states is inferred from the kernel's body, with ``guess`` for element types
    and sizes of blocks; `CompileRequest.inferred` names it.
    """
    names = [parameter.name for parameter in kernel.parameters]
    for name in given:
        if name not in names and name not in OPTIONS:
            raise UsageError(
                f"{kernel.name} has no parameter '{name}': {nearest(name, [*names, *OPTIONS])}"
            )
    stated = parse_signature(signature or "", kernel.parameters)
    told = {} if launch is None else _of_record(kernel, launch)
    told = {n: s for n, s in told.items() if n not in given and n not in arrays}
    request = CompileRequest(told | stated, dict(kernel.options), {})
    if launch is not None:
        request.options |= launch.options
        request.values |= {p.name: p.value for p in launch.params if p.name in told and p.value}
    known = {p.name: p.default for p in kernel.parameters if p.has_default} | kernel.config
    known |= {name: value for name, value in given.items() if not isinstance(value, str)}
    arrays = {name: sized(name, array, known) for name, array in arrays.items()}
    constexprs = [parameter.name for parameter in kernel.parameters if parameter.constexpr]
    given = {n: _number(v, n in constexprs, {**known, **arrays}) for n, v in given.items()}
    request.arguments |= {n: Specialization(f"*{a.dtype}") for n, a in arrays.items() if a.dtype}
    for parameter in kernel.parameters:
        name = parameter.name
        if name in given:
            request.arguments[name] = with_value(parameter, stated.get(name), given[name])
            request.values[name] = given[name]
        elif name in request.arguments:
            continue
        elif name in kernel.config:
            request.arguments[name] = specialise(parameter, kernel.config[name])
            request.values[name] = kernel.config[name]
    missing = [
        p
        for p in kernel.parameters
        if not (p.name in request.arguments or p.has_default or p.name in kernel.heuristics)
    ]
    _infer(kernel, request, missing, guess)
    _apply_heuristics(kernel, request)
    for parameter in kernel.parameters:
        if parameter.name not in request.arguments and parameter.has_default:
            request.arguments[parameter.name] = specialise(parameter, parameter.default)
            request.values[parameter.name] = parameter.default
    rest = [p for p in kernel.parameters if p.name not in request.arguments]
    _infer(kernel, request, rest, guess)
    _put_arrays(kernel, request, arrays)
    guessed = {n: request.arguments[n] for n in names if n in request.inferred}
    constants = {n: a for n, a in guessed.items() if a.type == "constexpr"}
    types = {n: a for n, a in guessed.items() if n not in constants}
    for what, option, some in (
        ("types", "--arg or --signature", types), ("constexprs", "--set", constants),
    ):  # fmt: skip
        if some:
            request.assumed.append(
                f"{what} from the kernel's body and launches in its file, {option} changes them: "
                f"{signature_text(some)}"
            )
    said = inference.launched(kernel.function).constants
    own = {n: v for n, v in said.items() if n in OPTIONS and n not in given and n not in names}
    if own and not kernel.configs and launch is None:
        request.options |= own
        shown = ", ".join(f"{name}={value}" for name, value in own.items())
        request.assumed.append(f"options from launches in the file, --set changes them: {shown}")
    if kernel.configs:
        parts = [f"{k}={v}" for k, v in (kernel.config | kernel.options).items() if k not in given]
        over = [name for name in kernel.config | kernel.options if name in given]
        request.assumed.append(
            f"autotune: configuration {kernel.chosen} of {kernel.configs} (from 0; --config "
            f"changes it): {', '.join(parts)}"
            + (f"; given instead: {', '.join(over)}" if over else "")
        )
    return request


def _of_record(kernel: JitKernel, launch: Launch) -> dict[str, Specialization]:
    """The types, facts and constants of a launch that was recorded."""
    told: dict[str, Specialization] = {}
    params = {param.name: param for param in launch.params}
    for parameter in kernel.parameters:
        param = params.get(parameter.name)
        if parameter.name in launch.constexprs:
            value = launch.constexprs[parameter.name]
            one = value == 1 and not parameter.constexpr
            told[parameter.name] = Specialization("constexpr", (EQUAL_TO_1,) if one else (), value)
        elif param is not None:
            kind = normalise_type(param.type)
            whole = kind[0] in "*iu" and param.value is not None and param.value % 16 == 0
            marked = whole and parameter.specialise and parameter.specialise_alignment
            told[parameter.name] = Specialization(kind, (DIVISIBLE_BY_16,) if marked else ())
    return told


def _number(value: object, constexpr: bool, known: Mapping[str, object]) -> object:
    """The value of an argument; a text is an expression, or for a constexpr perhaps itself."""
    if not isinstance(value, str) or (constexpr and not re.search(r"[-+*/%(\[]", value)):
        return value
    try:
        return evaluated(value, known)
    except UsageError:
        if constexpr:
            return value
        raise


def _infer(
    kernel: JitKernel,
    request: CompileRequest,
    missing: Sequence[TritonParameter],
    guess: tuple[str, int, int],
) -> None:
    guessed = inference.inferred(kernel.function, missing, request.values, *guess)
    for name, argument in guessed.items():
        request.arguments[name] = argument
        request.inferred.append(name)
        if argument.type == "constexpr":
            request.values[name] = argument.value


def _apply_heuristics(kernel: JitKernel, request: CompileRequest) -> None:
    """Evaluate ``@triton.heuristics`` for what is not given, with what is known."""
    for name, function in kernel.heuristics.items():
        if name in request.arguments:
            continue
        known = {k: a.value for k, a in request.arguments.items() if a.type == "constexpr"}
        for parameter in kernel.parameters:
            if parameter.has_default:
                known.setdefault(parameter.name, parameter.default)
        known |= {k: object() for k, a in request.arguments.items() if a.type.startswith("*")}
        known |= request.values
        try:
            value = function(known)
        except Exception:
            continue  # it needs what is not known: the value is inferred
        parameter = next(
            (p for p in kernel.parameters if p.name == name), TritonParameter(name, True)
        )
        request.arguments[name] = specialise(parameter, value)
        request.values[name] = value
        request.assumed.append(f"heuristics, --set changes it: {name}={value!r}")


def put_facts(kernel: JitKernel, request: CompileRequest, facts: Mapping[str, str]) -> None:
    """Put facts on arguments in place of what their values say."""
    for name, fact in facts.items():
        argument = request.arguments.get(name)
        if argument is None or fact not in (DIVISIBLE_BY_16, EQUAL_TO_1):
            raise UsageError(f"{kernel.name}: '{name}' cannot be {fact}")
        if fact == EQUAL_TO_1:
            request.arguments[name] = Specialization("constexpr", (EQUAL_TO_1,), 1)
        elif argument.type != "constexpr":
            request.arguments[name] = replace(argument, facts=(DIVISIBLE_BY_16,))
