"""The pipeline: target → PTX (and machine code) → module → described kernels → report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from kanalyze.findings import runner
from kanalyze.findings.facts import Facts
from kanalyze.frontend.compile import DEFAULT_ARCH, Compiled
from kanalyze.frontend.subject import Settings, Subject, arguments_of, launch_for
from kanalyze.frontend.targets import subjects_of
from kanalyze.kernel.describe import Sources, describe
from kanalyze.kernel.resources import AssembledKernels
from kanalyze.launch.record import Launch
from kanalyze.ptx import ir
from kanalyze.results import kernel as doc


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
    return report_on(subjects, listing, sass, runner.RuleOptions(ignore, prove))


def report_on(
    subjects: Iterable[Subject],
    listing: bool = False,
    sass: bool = True,
    wanted: runner.RuleOptions | None = None,
) -> doc.Report:
    """Describe every kernel of the subjects, with what the rules find in them."""
    sources = Sources()
    kernels: list[doc.Kernel | doc.SassKernel] = []
    functions: list[str] = []
    skipped: list[doc.Skipped] = []
    unknown: list[doc.UnknownField] = []

    def add(kernel: doc.Kernel | doc.SassKernel, reasons: Iterable[doc.UnknownField]) -> None:
        path = f"kernels[{len(kernels)}]"
        kernels.append(kernel)
        unknown.extend(doc.UnknownField(f"{path}.{u.field}", u.reason) for u in reasons)

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
                found, failed = runner.of_kernel(facts, wanted or runner.RuleOptions())
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


def resources_of(subject: Subject) -> AssembledKernels:
    """What says what the kernels of a subject need, by their names."""
    return AssembledKernels(subject)
