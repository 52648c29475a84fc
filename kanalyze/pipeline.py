"""The pipeline: target → PTX → module → described kernels → report."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kanalyze import tools
from kanalyze.compile import DEFAULT_ARCH, Compiled, compile_kernel
from kanalyze.describe import Argument, Resources, Sources, describe
from kanalyze.errors import InputError, KanalyzeError, MissingToolError, SourceSpot
from kanalyze.launch import Launch
from kanalyze.ptx import ir
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.report import document as doc

PTX_SUFFIX = ".ptx"


@dataclass(frozen=True)
class Subject:
    """PTX to report on: a module, what the report calls it, and what else is known of it.

    ``launch`` gives arguments by position, for the kernels of the module it belongs to.
    """

    module: ir.Module
    file: str
    compiled: Compiled | None = None
    launch: Launch | None = None
    notes: tuple[str, ...] = ()


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
) -> doc.Report:
    """Report on the kernels of a target, without a GPU.

    Args:
        target: a bundled kernel's name, ``file.py:kernel``, a ``.ptx`` file, a module that
            `kanalyze.parse_ptx` returned, or what `kanalyze.compile_kernel` returned.
        launch: arguments and grid of a launch, as far as known.
        arch, dtype, settings, num_warps, num_stages, signature: see `kanalyze.compile_kernel`;
            used only where something is compiled.
        listing: whether to make the annotated listing, too.

    Raises:
        KanalyzeError: the target cannot be found, read or compiled. Statements of PTX that cannot
            be read do not raise: they stand in ``skipped``.
    """
    options = Settings(arch, dtype, settings or {}, num_warps, num_stages, signature)
    subjects = list(subjects_of(target, options, launch))
    return report_on(subjects, listing)


def subjects_of(
    target: str | Path | ir.Module | Compiled, options: Settings, launch: Launch | None = None
) -> Iterator[Subject]:
    """Yield the modules that a target stands for (see `analyze`)."""
    if isinstance(target, ir.Module):
        yield Subject(target, target.name, launch=launch)
        return
    if isinstance(target, str | Path) and str(target).endswith(PTX_SUFFIX):
        for module in read_ptx(Path(target)):
            yield Subject(module, str(target), launch=launch)
        return
    if not isinstance(target, Compiled):
        target = compile_kernel(
            str(target),
            arch=options.arch,
            dtype=options.dtype,
            settings=options.settings,
            num_warps=options.num_warps,
            num_stages=options.num_stages,
            signature=options.signature,
        )
    name = f"{target.kernel or target.name}.ptx"
    for module in parse_ptx_modules(target.ptx, name):
        yield Subject(module, name, target, launch, target.notes)


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
    return parse_ptx_modules(text, str(path))


def report_on(subjects: Iterable[Subject], listing: bool = False) -> doc.Report:
    """Describe every kernel of the subjects."""
    sources = Sources()
    kernels: list[doc.Kernel] = []
    functions: list[str] = []
    skipped: list[doc.Skipped] = []
    unknown: list[doc.Unknown] = []
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
            description = describe(
                module,
                function,
                subject.file,
                arguments_of(subject, function, subject.launch),
                resources(function.name),
                subject.notes + warnings,
                sources,
                listing,
            )
            path = f"kernels[{len(kernels)}]"
            kernels.append(description.kernel)
            unknown += [doc.Unknown(f"{path}.{u.field}", u.reason) for u in description.unknown]
    return doc.Report(tuple(kernels), tuple(functions), tuple(skipped), tuple(unknown))


def errors_of(module: ir.Module) -> list[InputError]:
    """What could not be read in a module, as errors that show the place."""
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
        if d.severity == "error"
    ]


class _Assembled:
    """Resources of the kernels of a module, from the assembler, asked for once."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.dynamic = any(
            v.space == "shared" and v.elements is None for v in subject.module.variables
        )
        self.reason: str | None = None
        self.known: dict[str, tools.Resources] = {}
        compiled = subject.compiled
        if compiled is not None:
            self.known[compiled.name] = compiled.resources
            self.dynamic = False
            return
        try:
            self.known = tools.ptxas_resources(subject.module.text)
        except MissingToolError as error:
            self.reason = str(error)
        except InputError as error:
            self.reason = f"ptxas rejects the file: {error.message}"
        except KanalyzeError as error:
            self.reason = f"ptxas failed: {error}"

    def __call__(self, kernel: str) -> Resources:
        """The resources of one kernel."""
        found = self.known.get(kernel)
        if found is None:
            return Resources(reason=self.reason or "ptxas does not report on this kernel")
        shared: int | None = found.shared_bytes
        if self.dynamic:
            launch = self.subject.launch
            shared = launch.shared_bytes if launch is not None else None
        return Resources(
            registers=found.registers,
            spill_store_bytes=found.spill_store_bytes,
            spill_load_bytes=found.spill_load_bytes,
            stack_bytes=found.stack_bytes,
            shared_bytes=shared,
            tool=found.tool,
        )


def resources_of(subject: Subject) -> _Assembled:
    """What says what the kernels of a subject need, by their names."""
    return _Assembled(subject)


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
    names = [parameter.name for parameter in function.parameters]
    result = dict(zip(names, given, strict=False))
    if given:  # Triton appends pointers to scratch memory
        for index, name in enumerate(names[len(given) :]):
            result[name] = Argument(("global_scratch", "profile_scratch")[index % 2], "*i8")
    return result
