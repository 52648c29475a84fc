"""The pipeline: target → PTX (and machine code) → module → described kernels → report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kanalyze import assuming, cuda, inputs, sass_section
from kanalyze import cubin as cubins
from kanalyze.compile import DEFAULT_ARCH, Compiled, compile_kernel, normalise_arch
from kanalyze.describe import Argument, Sources, describe
from kanalyze.errors import InputError, KanalyzeError, SourceSpot, UsageError, nearest
from kanalyze.findings import running
from kanalyze.findings.facts import Facts
from kanalyze.launch import Launch, LaunchParam
from kanalyze.machine import Machine
from kanalyze.ptx import ir
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.report import document as doc

PTX_SUFFIX = ".ptx"
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
        assume: pointer parameter to what its array holds, see `kanalyze.assuming`.
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


@dataclass
class Settings:
    """How targets are compiled: the options of a target (see `kanalyze.compile_kernel`)."""

    arch: str = DEFAULT_ARCH
    dtype: str | None = None
    settings: Mapping[str, object] = field(default_factory=dict)
    num_warps: int | None = None
    num_stages: int | None = None
    signature: str | None = None


def analyze(
    target: str | Path | ir.Module | Compiled,
    launch: Launch | None = None,
    *,
    arch: str = DEFAULT_ARCH,
    dtype: str | None = None,
    settings: Mapping[str, object] | None = None,
    num_warps: int | None = None,
    num_stages: int | None = None,
    signature: str | None = None,
    listing: bool = False,
    sass: bool = True,
    ignore: Collection[str] = (),
    prove: bool = True,
) -> doc.Report:
    """Report on the kernels of a target, without a GPU.

    Args:
        target: a bundled kernel's name, ``file.py:kernel``, a ``.ptx``, ``.cubin`` or ``.cu`` file,
            ``file.cu:kernel``, a module that `kanalyze.parse_ptx` returned, or what
            `kanalyze.compile_kernel` returned.
        launch: arguments and grid of a launch, as far as known.
        arch, dtype, settings, num_warps, num_stages, signature: see `kanalyze.compile_kernel`;
            used only where something is compiled.
        listing: whether to make the annotated listing, too.
        sass: whether to compare PTX with the machine code, too, where that is at hand.
        ignore: ids of findings that are left out.
        prove: whether to make the changes that findings advise (kernels are compiled again).

    Raises:
        KanalyzeError: the target cannot be found, read or compiled. Statements of PTX that cannot
            be read do not raise: they stand in ``skipped``.
    """
    options = Settings(arch, dtype, settings or {}, num_warps, num_stages, signature)
    subjects = list(subjects_of(target, options, launch))
    return report_on(subjects, listing, sass, running.Wanted(ignore, prove))


def subjects_of(
    target: str | Path | ir.Module | Compiled, options: Settings, launch: Launch | None = None
) -> Iterator[Subject]:
    """Yield the modules that a target stands for (see `analyze`)."""
    if isinstance(target, ir.Module):
        yield Subject(target, target.name, launch=launch)
        return
    if isinstance(target, str | Path):
        of_file = _of_file(str(target), options, launch)
        if of_file is not None:
            yield from of_file
            return
    if not isinstance(target, Compiled):
        target = compiled_for(str(target), options)
    name = f"{target.name}.ptx"
    for module in parse_ptx_modules(target.ptx, name):
        yield Subject(module, name, target, launch, target.notes)


def compiled_for(target: str, options: Settings) -> Compiled:
    """Compile a target as its options say; errors: see `kanalyze.compile_kernel`."""
    return compile_kernel(
        target,
        arch=options.arch,
        dtype=options.dtype,
        settings=options.settings,
        num_warps=options.num_warps,
        num_stages=options.num_stages,
        signature=options.signature,
    )


def _of_file(target: str, options: Settings, launch: Launch | None) -> Iterator[Subject] | None:
    """The subjects of a file that needs no Triton; None if the target is no such file."""
    if target.endswith(PTX_SUFFIX):
        return _of_ptx(Path(target), launch)
    source = cuda.split(target)
    if source is not None:
        return _of_cuda(Path(source[0]), source[1], options, launch)
    if target.endswith(cubins.SUFFIXES):
        return of_machine_code(Path(target), launch)
    return None


def read_ptx(path: Path) -> tuple[ir.Module, ...]:
    """Read the PTX modules in a file.

    Raises:
        InputError: the file cannot be read, or holds no PTX.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(error.strerror or str(error), file=str(path)) from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    try:
        return parse_ptx_modules(text, str(path))
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits and the like
        raise InputError(f"the PTX cannot be read: {error}", file=str(path)) from error


def _of_ptx(path: Path, launch: Launch | None) -> Iterator[Subject]:
    beside = inputs.beside(path)
    cubin = None
    notes = beside.notes
    if beside.cubin is not None:
        try:
            (cubin,) = cubins.read_file(beside.cubin).cubins
        except (KanalyzeError, ValueError) as error:
            notes += (f"the cubin beside it is left out: {error}",)
    named = tuple(Argument(p.name, p.type, p.facts) for p in beside.parameters)
    arguments = {beside.kernel: named} if beside.kernel and named else {}
    for module in read_ptx(path):
        yield Subject(module, str(path), None, launch, notes, arguments, beside.shared_bytes, cubin)


def of_machine_code(path: Path, launch: Launch | None = None) -> Iterator[Subject]:
    """Yield what stands in a cubin, a fat binary or an executable: PTX with its cubin, or either.

    Raises:
        InputError: it cannot be read, or holds no device code.
        MissingToolError: there is no PTX in it, and no tool to read its machine code with.
    """
    contents = cubins.read_file(path)
    modules = [m for text in contents.ptx for m in parse_ptx_modules(text, str(path))]
    for cubin in contents.cubins:
        note = "PTX from the cubin's debug section, which keeps no .loc lines"
        found: tuple[ir.Module, ...] = ()
        if cubin.ptx is not None:
            found = parse_ptx_modules(cubin.ptx, str(path))
        else:
            fitting = [m for m in modules if _fits(m, cubin)][:1]
            modules = [m for m in modules if m not in fitting]
            found, note = tuple(fitting), "PTX embedded in the file"
        if not any(f.body is not None for m in found for f in m.entries):
            sass_section.code_of(cubin)  # says now that it cannot be read
            found, note = (
                (ir.Module(str(path), None, (), None, (), (), {}, (), ""),),
                "machine code alone",
            )
        known = {f.name for m in found for f in m.entries if f.body is not None}
        bare = tuple(name for name in cubin.kernels if name not in known)
        for module in found:
            last = bare if module is found[-1] else ()
            yield Subject(
                module, str(path), None, launch, (note,), cubin=cubin, given=True, bare=last
            )
    for module in modules:
        yield Subject(module, str(path), launch=launch, notes=("PTX embedded in the file",))


def _fits(module: ir.Module, cubin: cubins.Cubin) -> bool:
    """Whether a cubin can be what was made of a module: the same kernels, the same target."""
    names = {f.name for f in module.entries if f.body is not None}
    target = (module.target or ("",))[0].removeprefix("sm_").rstrip("af")
    return bool(names) and names <= set(cubin.kernels) and target == str(cubin.capability)


def _of_cuda(
    path: Path, kernel: str | None, options: Settings, launch: Launch | None
) -> Iterator[Subject]:
    normalise_arch(options.arch)
    compiled = cuda.compile_file(path, options.arch)
    name = f"{path.stem}{PTX_SUFFIX}"
    source = path.read_text("utf-8", "replace")
    note = f"compiled from {path} for {options.arch} by {compiled.tool}"
    for module in parse_ptx_modules(compiled.ptx, name):
        known = {f.name: cuda.source_name(f.name) for f in module.entries}
        if kernel is not None:
            if kernel not in (*known, *known.values()):
                raise UsageError(
                    f"{path} has no kernel '{kernel}': {nearest(kernel, known.values())}"
                )
            module = replace(
                module,
                functions=tuple(
                    f
                    for f in module.functions
                    if f.kind != "entry" or kernel in (f.name, known[f.name])
                ),
            )
        arguments = {}
        for function in module.entries:
            listed = cuda.parameters(source, known[function.name])
            if len(listed) == len(function.parameters):
                arguments[function.name] = tuple(Argument(n, kind) for n, kind in listed)
        yield Subject(module, name, None, launch, (note,), arguments)


def report_on(
    subjects: Iterable[Subject],
    listing: bool = False,
    sass: bool = True,
    wanted: running.Wanted | None = None,
) -> doc.Report:
    """Describe every kernel of the subjects, with what the rules find in them."""
    sources = Sources()
    kernels: list[doc.Kernel | doc.SassKernel] = []
    functions: list[str] = []
    skipped: list[doc.Skipped] = []
    unknown: list[doc.Unknown] = []

    def add(kernel: doc.Kernel | doc.SassKernel, reasons: Iterable[doc.Unknown]) -> None:
        path = f"kernels[{len(kernels)}]"
        kernels.append(kernel)
        unknown.extend(doc.Unknown(f"{path}.{u.field}", u.reason) for u in reasons)

    for subject in subjects:
        module = subject.module
        skipped += [
            doc.Skipped(subject.file, d.pos.line, d.message)
            for d in module.diagnostics
            if d.severity == "error"
        ]
        warnings = tuple(
            f"line {d.pos.line}: {d.message}" for d in module.diagnostics if d.severity != "error"
        )
        functions += [f.name for f in module.functions if f.kind != "entry" and f.body is not None]
        resources = resources_of(subject)
        for function in module.entries:
            if function.body is None:
                continue
            launch = launch_for(subject, function)
            try:
                arguments = arguments_of(subject, function, subject.launch)
                description = describe(
                    module,
                    function,
                    subject.file,
                    arguments,
                    resources(function.name),
                    subject.notes + warnings,
                    sources,
                    listing,
                    launch,
                )
                kernel, reasons = resources.with_sass(description.kernel, function, sass)
                facts = Facts(
                    subject, function, description, resources, resources(function.name),
                    arguments, launch, sources, with_code=sass,
                )  # fmt: skip
                found, failed = running.of_kernel(facts, wanted or running.Wanted())
                kernel = replace(kernel, findings=found)
            except Exception as error:  # a fault of ours must not cost the other kernels
                skipped.append(_fault(subject.file, function, error))
                continue
            add(kernel, [*description.unknown, *reasons, *failed])
        for name in subject.bare:
            add(*resources.bare(name))
    return doc.Report(tuple(kernels), tuple(functions), tuple(skipped), tuple(unknown))


FAULT = "internal error"


def _fault(file: str, function: ir.Function, error: Exception) -> doc.Skipped:
    what = f"{type(error).__name__}: {error}"[:200]
    message = f"{FAULT} in kernel {function.name} (please report it): {what}"
    return doc.Skipped(file, function.pos.line, message)


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


def resources_of(subject: Subject) -> Machine:
    """What says what the kernels of a subject need, by their names."""
    return Machine(subject)


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
    return assuming.assume(launch, [p.name for p in function.parameters], subject.assume)


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
    if compiled is None or compiled.grid is None:
        raise UsageError(
            "no launch is known: give --launch RECORD.json (kernel, grid, block and params), or "
            "say EXAMPLE, arguments and grid in the file (docs/traffic.md)"
        )
    params: list[LaunchParam] = []
    for name, kind in compiled.signature.items():
        if kind == "constexpr":
            continue
        value = compiled.arguments.get(name)
        if kind.startswith("*"):
            params.append(LaunchParam(name, kind, _SPACING * (len(params) + 1)))
        else:
            params.append(LaunchParam(name, kind, value if isinstance(value, int) else None))
    x, y, z = (*compiled.grid, 1, 1)[:3]
    threads = 32 * int(compiled.metadata["num_warps"])
    shared = compiled.resources.shared_bytes
    return Launch(compiled.name, (x, y, z), (threads, 1, 1), tuple(params), shared)
