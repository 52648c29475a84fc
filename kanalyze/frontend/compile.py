"""Compiling a Triton kernel for a GPU that need not be there.

``compile_kernel(target)`` gives every stage (TTIR, TTGIR, LLVM IR, PTX, cubin, SASS) and the
resources that ptxas reports. Importing this module imports neither triton nor torch.
"""

from __future__ import annotations

import contextlib
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from kanalyze.errors import InputError, UsageError
from kanalyze.frontend import (
    _triton,
    _triton_kernels,
    child,
    contents,
    given,
    inference,
    kernel_file,
    launch_plan,
    limits,
    request,
    user_file,
)
from kanalyze.frontend.given import Grid
from kanalyze.frontend.kernel_file import KernelFile
from kanalyze.frontend.specialize import (
    DIVISIBLE_BY_16,
    Pointer,
    Specialization,
    parse_value,
    signature_text,
)
from kanalyze.launch.record import Launch
from kanalyze.toolchain import ptxas, tools
from kanalyze.toolchain.resources import KernelResources

ARCHS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
"""Architectures that are supported and tested."""

DEFAULT_ARCH = "sm_90"

T = TypeVar("T")

# Also accepted: Orin, Orin-class Ampere, Thor, DGX Spark (ptxas --help, option --gpu-name).
_MORE_CAPABILITIES = (87, 88, 110, 121)

_METADATA = (
    "num_warps", "num_stages", "num_ctas", "cluster_dims", "maxnreg", "shared", "tmem_size",
    "global_scratch_size", "global_scratch_align", "profile_scratch_size", "warp_size",
    "enable_fp_fusion", "launch_cooperative_grid", "launch_pdl", "ptx_version",
    "loc_column_base",
)  # fmt: skip


def normalise_arch(text: str) -> int:
    """Return the compute capability of an architecture's name: 90 for ``sm_90`` or ``sm_90a``.

    Raises:
        UsageError: the name is not an NVIDIA architecture that is supported.
    """
    known = {int(arch[3:]) for arch in ARCHS} | set(_MORE_CAPABILITIES)
    match = re.fullmatch(r"(?:sm|compute)?_?(\d{2,3})([af]?)", text.strip().lower())
    if match and int(match[1]) in known and (not match[2] or int(match[1]) >= 90):
        return int(match[1])
    raise UsageError(f"unknown architecture '{text}': known: {', '.join(ARCHS)}")


@dataclass(frozen=True)
class Compiled:
    """A kernel compiled for one architecture, and with what.

    Attributes:
        name: the kernel's symbol in PTX and cubin.
        arch: ``sm_90``, as asked for; the PTX's own target may be ``sm_90a``.
        ttir, ttgir, llir, ptx: the text of each stage; a Gluon kernel has no ``ttir``.
        cubin: the binary.
        resources: what ptxas reports for this PTX, with the dynamic shared memory added.
        metadata: Triton's, reduced to plain values (``num_warps``, ``num_stages``, ``shared``, …);
            ``loc_column_base`` is the number of the first column in ``.loc`` and in the IR's
            locations: 1 in Triton 3.9, 0 in 3.5 and 3.6.
        signature: parameter → ``*fp32``, ``i32``, …, or ``constexpr``; the latter also for an
            argument equal to 1. Those have no parameter in PTX; the others follow in this order.
        constexprs: parameter → constant, for all that are ``constexpr`` in ``signature``.
        specialization: parameter → facts compiled in, ``("divisible by 16",)`` or
            ``("equal to 1",)``; parameters without are absent.
        grid: blocks in x, y, z; None where no launch is known.
        arguments: parameter → number, or ``("*", dtype, dims)`` for a pointer (``dims`` None where
            not known). Scalars whose value is not known are absent.
        source_file: path of the Python file.
        source_function: name of the kernel in it.
        kernel: the bundled kernel's name, or None.
        triton_version: for example ``3.9.0``.
        notes: what was left out, and Triton's warnings.
        assumptions: what was inferred or taken by default, with the option that changes it.
        arrays: pointer → the array that was given for it.
        configs: how many configurations ``@triton.autotune`` lists.
        shape: for a file that describes its launches, the value of each name of the shape.
        dtype: for such a file, the element type.
        asked: the arguments of `compile_kernel`, for `again`.
    """

    name: str
    arch: str
    ttir: str = field(repr=False)
    ttgir: str = field(repr=False)
    llir: str = field(repr=False)
    ptx: str = field(repr=False)
    cubin: bytes = field(repr=False)
    resources: KernelResources
    metadata: dict[str, Any]
    signature: dict[str, str]
    constexprs: dict[str, Any]
    specialization: dict[str, tuple[str, ...]]
    grid: tuple[int, ...] | None
    arguments: dict[str, Any]
    source_file: Path
    source_function: str
    kernel: str | None
    triton_version: str
    notes: tuple[str, ...] = field(default=())
    assumptions: tuple[str, ...] = ()
    arrays: Mapping[str, Pointer] = field(default_factory=dict)
    configs: int = 0
    shape: dict[str, int] = field(default_factory=dict)
    dtype: str | None = None
    asked: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def again(self, **changes: Any) -> Compiled:
        """The same kernel compiled with other arguments of `compile_kernel`.

        ``settings`` and ``facts`` are added to those that were given, everything else takes their
        place. A grid of numbers alone is not known to be that of other constexprs.

        Raises:
            KanalyzeError: see `compile_kernel`.
        """
        if given.names_nothing(self.asked.get("grid")) and any(
            name in self.constexprs for name in changes.get("settings", {})
        ):
            changes["grid"] = None
        merged = {
            name: {**self.asked.get(name, {}), **changes.pop(name, {})}
            for name in ("settings", "facts")
        }
        stated = self._signature_without(set(merged["settings"]))
        return compile_kernel(**{**self.asked, "signature": stated, **merged, **changes})

    def _signature_without(self, names: Collection[str]) -> str | None:
        """The signature that was given, less constants of these names: settings say them."""
        signature: str | None = self.asked.get("signature")
        plain = all(isinstance(v, int | float | str | None) for v in self.constexprs.values())
        stated = plain and any(self.signature.get(n) == "constexpr" for n in names)
        if signature is None or not stated:
            return signature
        facts = self.specialization
        return signature_text(
            {
                name: Specialization(kind, facts.get(name, ()), self.constexprs.get(name))
                for name, kind in self.signature.items()
                if kind != "constexpr" or name not in names or name in facts
            }
        )

    @property
    def values(self) -> dict[str, Any]:
        """What expressions may name: numbers, constants, the arrays that were given, options."""
        numbers = {n: v for n, v in self.arguments.items() if not isinstance(v, tuple)}
        options = {n: self.metadata[n] for n in ("num_warps", "num_stages", "num_ctas")}
        return {**options, **self.shape, **numbers, **self.constexprs, **self.arrays}

    @cached_property
    def sass(self) -> str:
        """The disassembled cubin with source lines (``nvdisasm -c -gi``), made on first use."""
        return tools.disassemble(self.cubin)

    def write(self, folder: str | Path) -> list[Path]:
        """Write ``NAME.ttir .ttgir .llir .ptx .cubin .sass`` to a folder; return the paths.

        Raises:
            InputError: the folder cannot be made or written to.
        """
        folder = Path(folder)
        written = []
        try:
            folder.mkdir(parents=True, exist_ok=True)
            for stage in ("ttir", "ttgir", "llir", "ptx", "cubin", "sass"):
                content = getattr(self, stage)
                if not content:
                    continue
                path = folder / f"{self.name}.{stage}"
                path.write_bytes(content if stage == "cubin" else content.encode())
                written.append(path)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", file=str(folder)) from None
        return written


class JitFunction(Protocol):
    """A ``@triton.jit`` function, as an object."""

    @property
    def fn(self) -> Any:
        """The function that was decorated."""


def compile_kernel(
    target: str | Path | JitFunction,
    *,
    arch: str = DEFAULT_ARCH,
    dtype: str | None = None,
    settings: Mapping[str, object] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    signature: str | None = None,
    facts: Mapping[str, str] | None = None,
    source: str | None = None,
    args: Mapping[str, object] | None = None,
    grid: Grid | None = None,
    config: int | str | None = None,
    launch: Launch | None = None,
) -> Compiled:
    """Compile a bundled kernel or a user's ``@triton.jit`` function.

    Args:
        target: a bundled kernel's name, ``path/to/file.py:kernel``, ``path/to/file.py`` where the
            file has one kernel, or a ``@triton.jit`` function.
        arch: one of :data:`ARCHS`; ``sm_90a`` and the like are accepted too.
        dtype: ``fp16``, ``bf16`` or ``fp32``: element type of a bundled kernel (or of a file that
            describes its launches the same way).
        settings: name → value for shapes, scalar arguments and constexprs (texts are read as by
            :func:`kanalyze.frontend.specialize.parse_value`); also ``num_ctas`` and ``maxnreg``.
        num_warps: warps of a block, a power of two.
        num_stages: depth of software pipelines.
        signature: types and facts of a user's kernel; see
            :func:`kanalyze.frontend.specialize.parse_signature`.
        facts: parameter → :data:`~kanalyze.frontend.specialize.DIVISIBLE_BY_16` or
            :data:`~kanalyze.frontend.specialize.EQUAL_TO_1`: what Triton is told of it, whatever
            its value.
        source: text to compile in place of the file's.
        args: parameter → value: a number, an array as text (``"bf16[4096, N] align=4"``, see
            `kanalyze.frontend.given`), a tensor of PyTorch (``meta`` and fake ones, too), an array
            of NumPy, or a tuple of sizes. Types follow from them; ``settings`` come before them.
        grid: blocks in x, y, z: numbers, expressions of arguments, or a function of them.
        config: which of the configurations of ``@triton.autotune``, from 0; the first if left out.
        launch: a recorded launch, whose types and constants are compiled in where the file does not
            describe its launches.

    Raises:
        UsageError: unknown kernel, setting or architecture; a parameter without type or value.
        InputError: the file cannot be executed, or Triton or ptxas rejects the kernel.
        MissingToolError: Triton, its tools or a package that the file imports is missing.
    """
    asked_for: dict[str, Any] = {
        "target": target, "arch": arch, "dtype": dtype, "settings": dict(settings or {}),
        "num_warps": num_warps, "num_stages": num_stages, "signature": signature,
        "facts": dict(facts or {}), "source": source, "args": given.plain(args or {}),
        "config": config, "launch": launch,
    }  # fmt: skip
    own = isinstance(target, str | Path) and _locate(str(target))
    made = _made(**asked_for) if not own or own[2] else _apart(own[0], _made, **asked_for)
    if grid is not None:
        made = replace(made, grid=given.grid_of(grid, made.values))
    return replace(made, asked={**asked_for, "grid": grid})


def _apart(path: Path, function: Callable[..., T], /, **arguments: object) -> T:
    """Call a function in the child process of a user's file, which has what is made here."""
    _triton_kernels.import_triton()
    _triton.warm()
    _triton.import_torch(path)
    return child.call(path, function, **arguments)


def _made(
    target: str | Path | JitFunction,
    arch: str,
    dtype: str | None,
    settings: Mapping[str, object],
    num_warps: int | None,
    num_stages: int | None,
    signature: str | None,
    facts: Mapping[str, str],
    source: str | None,
    args: Mapping[str, object],
    config: int | str | None,
    launch: Launch | None,
) -> Compiled:
    """`compile_kernel` without the grid."""
    if isinstance(config, str):
        raise UsageError("--config best is chosen by an estimate: give a number here")
    capability = normalise_arch(arch)
    options: dict[str, object] = {"num_warps": num_warps, "num_stages": num_stages}
    if isinstance(target, str | Path):
        path, function, bundled = _locate(str(target))
        jitted = None
    else:
        jitted = _triton_kernels.kernel_of(target, config)
        path, function, bundled = jitted.file, jitted.name, None
    folder = path.parent
    if bundled is not None and signature is not None:
        raise UsageError(
            f"{target}: bundled kernels have a signature of their own; choose the dtype or settings"
        )
    triton = _triton_kernels.import_triton()
    with (
        _in_place(path, source) as path,
        _triton.environment(str(path)),
        _triton.stand_in(capability, path),
        user_file.importable(folder),
        user_file.quiet_stdout(),
    ):
        if jitted is None or source is not None:
            loaded = user_file.load(path, capability)
            module, notes = loaded.module, loaded.notes()
            kernel = _triton_kernels.pick(loaded, path, function, config)
        else:
            kernel = jitted
            name, notes = kernel.function.fn.__module__, ()
            module = sys.modules.get(name) or ModuleType(name)  # it may be run without being there
        arrays, others = given.parted(kernel.parameters, args, kernel.name)
        set_to = {name: parse_value(value) for name, value in {**others, **settings}.items()}
        description = bundled or _description(path, kernel.name, module, signature)
        if description is not None:
            wanted = request.planned(description, module, kernel, set_to, dtype, signature, arrays)
        else:
            if dtype is not None:
                raise UsageError(
                    f"{target}: a dtype can be chosen for bundled kernels only; "
                    "give the types with a signature"
                )
            wanted = request.signed(kernel, set_to, signature, arrays, launch=launch)
        stated = {k: v for k, v in set_to.items() if k in request.OPTIONS}
        options |= {k: v for k, v in stated.items() if k not in wanted.arguments}
        asked = {k: v for k, v in options.items() if v is not None}
        limits.check_options(asked)

        def made_of(wanted: request.CompileRequest) -> Compiled:
            request.put_facts(kernel, wanted, facts)
            chosen = wanted.options | asked
            return _compiled(kernel, wanted, chosen, capability, triton.__version__, bundled)

        try:
            made = made_of(wanted)
        except InputError as error:
            guesses = inference.GUESSES[1:] if wanted.inferred else ()
            for guess in guesses:
                with contextlib.suppress(InputError):
                    made = made_of(request.signed(kernel, set_to, signature, arrays, guess, launch))
                    break
            else:
                if notes:
                    raise InputError(f"{error.message} ({'; '.join(notes)})", error.spot) from error
                raise
        return replace(made, notes=(*notes, *made.notes))


def grid_with(compiled: Compiled, settings: Mapping[str, object]) -> tuple[int, ...] | None:
    """The grid with some settings changed, without compiling the kernel.

    None where neither its file nor the grid that was given says it.

    Args:
        compiled: the kernel as it is.
        settings: see `compile_kernel`; they are added to those that were given.

    Raises:
        KanalyzeError: the file cannot be executed, or refuses the settings.
    """

    path, capability = compiled.source_file, normalise_arch(compiled.arch)
    grid = compiled.asked.get("grid")
    if grid is not None:
        changed = {name: parse_value(value) for name, value in settings.items()}
        known = None if given.names_nothing(grid) else {**compiled.values, **changed}
        return None if known is None else given.grid_of(grid, known)
    if compiled.asked.get("source") is not None or compiled.asked.get("signature") is not None:
        return None
    merged = {**compiled.asked.get("settings", {}), **settings}
    own = request.shape_settings({k: parse_value(v) for k, v in merged.items()})
    asked: dict[str, Any] = {
        "path": path, "capability": capability, "function": compiled.source_function,
        "settings": own, "dtype": compiled.asked.get("dtype"),
    }  # fmt: skip
    return _planned_grid(**asked) if compiled.kernel else _apart(path, _planned_grid, **asked)


def _planned_grid(
    path: Path, capability: int, function: str, settings: dict[str, str | int], dtype: str | None
) -> tuple[int, ...] | None:
    """The grid that a file says itself."""
    _triton_kernels.import_triton()
    with (
        _triton.environment(str(path)),
        _triton.stand_in(capability, path),
        user_file.importable(path.parent),
        user_file.quiet_stdout(),
    ):
        module = user_file.load(path, capability).module
        description = _description(path, function, module, None)
        if description is None:
            return None
        return tuple(launch_plan.plan(description, module, settings, dtype).grid)


@contextlib.contextmanager
def _in_place(path: Path, source: str | None) -> Iterator[Path]:
    """The file, or one of the same name with another text for a while."""
    if source is None:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / path.name
        other.write_text(source, "utf-8")
        yield other


# --- finding the kernel --------------------------------------------------------------------------


def _locate(target: str) -> tuple[Path, str | None, KernelFile | None]:
    """Return a target's file, function ("" for the only one), and description if it is bundled."""
    target_file = contents.triton_kernel(target)
    assert target_file.path is not None
    path = target_file.path.absolute()
    if target_file.kind is not contents.Kind.BUNDLED:
        return path, target_file.kernel, None
    bundled = kernel_file.read(path)
    return path, bundled.function, bundled


def _description(
    path: Path, function: str, module: ModuleType, signature: str | None
) -> KernelFile | None:
    """Return the launch description of a user's file that is written like a bundled kernel."""
    if not all(hasattr(module, name) for name in ("EXAMPLE", "arguments", "grid")):
        return None
    try:
        description = kernel_file.read(path)
    except InputError:
        if signature is None and function == f"{path.stem}_kernel":
            raise
        return None
    return description if description.function == function else None


# --- compiling -----------------------------------------------------------------------------------


def _compiled(
    kernel: _triton_kernels.JitKernel,
    wanted: request.CompileRequest,
    options: Mapping[str, Any],
    capability: int,
    triton_version: str,
    bundled: KernelFile | None,
) -> Compiled:
    ordered = {p.name: wanted.arguments[p.name] for p in kernel.parameters}
    try:
        limits.check_options(options)
    except UsageError as error:  # it stands in the file's own configuration
        raise InputError(str(error), kernel.spot()) from None
    constexprs = {n: a.value for n, a in ordered.items() if a.type == "constexpr"}
    signature = {n: a.type for n, a in ordered.items()}
    made = partial(
        _triton.compile_source,
        kernel,
        signature,
        constexprs,
        {n: DIVISIBLE_BY_16 in a.facts for n, a in ordered.items()},
        capability,
    )
    chosen = {"enable_fp_fusion": True} | dict(options)
    output = made(chosen)

    def with_stages(stages: int) -> int | None:
        try:
            return made(chosen | {"num_stages": stages}).metadata.get("shared") or 0
        except InputError:
            return None

    metadata = {k: output.metadata[k] for k in _METADATA if k in output.metadata}
    limits.check_limits(metadata, capability, kernel, with_stages)
    ptx, name = output.asm["ptx"], output.metadata["name"]
    fmad = metadata.get("enable_fp_fusion", True)
    made_so = (output.log, output.asm["cubin"]) if output.log else None
    resources = ptxas.assemble(ptx, fmad=fmad, made=made_so).resources[name]
    resources = replace(
        resources, shared_bytes=resources.static_shared_bytes + metadata.get("shared", 0)
    )
    arguments = dict(wanted.values)
    for parameter, argument in ordered.items():
        if argument.type.startswith("*"):
            arguments.setdefault(
                parameter, ("*", argument.type.lstrip("*").removeprefix("k"), None)
            )
        elif argument.type == "constexpr" and argument.facts:
            arguments.setdefault(parameter, argument.value)
    plain = [n for n, a in ordered.items() if a.type != "constexpr" or a.facts]
    return Compiled(
        name=name,
        arch=f"sm_{capability}",
        ttir=output.asm.get("ttir", ""),
        ttgir=output.asm["ttgir"],
        llir=output.asm["llir"],
        ptx=ptx,
        cubin=output.asm["cubin"],
        resources=resources,
        metadata=metadata,
        signature=signature,
        constexprs=constexprs,
        specialization={n: a.facts for n, a in ordered.items() if a.facts},
        grid=wanted.grid,
        arguments={n: arguments[n] for n in plain if n in arguments},
        source_file=kernel.file,
        source_function=kernel.name,
        kernel=bundled.name if bundled else None,
        triton_version=triton_version,
        notes=tuple(output.warnings),
        assumptions=tuple(wanted.assumed),
        arrays=wanted.arrays,
        configs=kernel.configs,
        shape=wanted.shape,
        dtype=wanted.dtype,
    )
