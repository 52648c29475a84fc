"""What stands in a kernel: the passes behind ``kanalyze ptx``, from a target to a report.

For each target: `kanalyze.frontend.targets` compiles or reads it (modules of PTX, machine code).
For each module: `kanalyze.kernel.resources` asks the assembler for registers and machine code.
For each kernel (`_report`):

1. `launch_for`, `arguments_of`: the launch and the author's names, as far as they are known.
2. `describe`: control flow, values, names, accesses, loops (passes of its own, listed there).
3. `AssembledKernels.with_sass`: the machine code beside the PTX.
4. `runner.of_kernel`: the rules, and the proofs of what they find.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from kanalyze.findings import runner
from kanalyze.findings.facts import Facts
from kanalyze.frontend.compile import DEFAULT_ARCH
from kanalyze.frontend.subject import Settings, Subject, arguments_of, launch_for
from kanalyze.frontend.targets import Target, resolve
from kanalyze.kernel.describe import describe
from kanalyze.kernel.resources import AssembledKernels, assemble
from kanalyze.kernel.sources import Sources
from kanalyze.launch.record import Launch
from kanalyze.ptx import ir
from kanalyze.results import kernel as doc


def analyze(
    target: Target,
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
    subjects = resolve(target, options, launch)
    return report_on(subjects, listing, sass, runner.RuleOptions(ignore, prove))


def report_on(
    subjects: Iterable[Subject],
    listing: bool = False,
    sass: bool = True,
    wanted: runner.RuleOptions | None = None,
) -> doc.Report:
    """Describe every kernel of the subjects, with what the rules find in them."""
    options = _Options(listing, sass, wanted or runner.RuleOptions(), Sources())
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
        functions += [f.name for f in module.functions if f.kind != "entry" and f.body is not None]
        assembled = assemble(subject)
        for function in module.entries:
            if function.body is None:
                continue
            try:
                add(*_report(subject, function, assembled, options))
            except Exception as error:  # a fault of ours must not cost the other kernels
                skipped.append(_fault(subject.file, function, error))
        for name in subject.bare:
            add(*assembled.bare(name))
    return doc.Report(tuple(kernels), tuple(functions), tuple(skipped), tuple(unknown))


@dataclass(frozen=True, slots=True)
class _Options:
    """What is made of each kernel, and the source files that were read for it."""

    listing: bool
    sass: bool
    findings: runner.RuleOptions
    sources: Sources


def _report(
    subject: Subject, function: ir.Function, assembled: AssembledKernels, options: _Options
) -> tuple[doc.Kernel, list[doc.UnknownField]]:
    """The passes over one kernel: its document, and what of it is not known."""
    launch = launch_for(subject, function)
    arguments = arguments_of(subject, function, subject.launch)
    resources = assembled.resources(function.name)
    warnings = tuple(
        f"line {d.pos.line}: {d.message}"
        for d in subject.module.diagnostics
        if d.severity != "error"
    )
    description = describe(
        subject.module, function, subject.file, arguments, resources, subject.notes + warnings,
        options.sources, options.listing, launch,
    )  # fmt: skip
    followed, places = description.cfg.function, description.addresses.places
    kernel, no_sass = assembled.with_sass(description.kernel, followed, options.sass, places)

    def with_estimate() -> Facts:  # imported where it is needed: it reads the table of GPUs
        from kanalyze.analysis.launch import facts_of

        assert launch is not None
        return facts_of(subject, function, launch)

    facts = Facts(
        subject, function, description, assembled, resources, arguments, launch, options.sources,
        with_code=options.sass, with_estimate=with_estimate,
    )  # fmt: skip
    findings, failed = runner.of_kernel(facts, options.findings)
    assumed = () if subject.compiled is None else subject.compiled.assumptions
    return replace(kernel, findings=findings, assumptions=assumed), [
        *description.unknown,
        *no_sass,
        *failed,
    ]


FAULT = "internal error"


def _fault(file: str, function: ir.Function, error: Exception) -> doc.Skipped:
    what = f"{type(error).__name__}: {error}"[:200]
    message = f"{FAULT} in kernel {function.name} (please report it): {what}"
    return doc.Skipped(file, function.pos.line, message)
