"""What stands between the passes over kernels, as text for maintainers (`kanalyze.render.dump`)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Sequence

from kanalyze.counting.bindings import arrays_of
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.errors import Unknown, UsageError
from kanalyze.frontend.subject import Subject, arguments_of, launch_for
from kanalyze.kernel.evaluate import EvaluatedKernel, evaluate
from kanalyze.kernel.naming import notation_of
from kanalyze.kernel.sources import SourceLines, Sources
from kanalyze.launch.record import Launch
from kanalyze.models.warps import AlikeClasses
from kanalyze.ptx import ir
from kanalyze.render import dump as render
from kanalyze.symbolic.accesses import AccessValue
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError


def dump(subjects: Iterable[Subject], form: str, kernels: Container[str]) -> str:
    """The text for each of the named kernels.

    Args:
        subjects: where the kernels stand.
        form: what is shown: "ssa" (values of registers by statement), "loops" (the nest with trip
            counts), "predicates" (when each basic block is executed), or "classes" (those by which
            the accesses of a launch are counted).
        kernels: names of the kernels.

    Raises:
        UsageError: "classes" of a kernel without a known launch.
    """
    return "".join(
        f"{line}\n"
        for subject in subjects
        for function in subject.module.entries
        if function.body is not None and function.name in kernels
        for line in (f"kernel {function.name}", *_lines(subject, function, form))
    )


def _lines(subject: Subject, function: ir.Function, form: str) -> Iterator[str]:
    launch = launch_for(subject, function)
    code = evaluate(subject.module, function, arrays_of(function.parameters, launch))
    if form == "ssa":
        return render.ssa(code.cfg, code.addresses)
    if form == "classes":
        return _classes(code, launch)
    arguments = arguments_of(subject, function, subject.launch)
    notation = notation_of(code, arguments, SourceLines(subject.module, Sources()).line)
    show = render.loops if form == "loops" else render.predicates
    return show(code.cfg, code.addresses, notation.reader)


def _classes(code: EvaluatedKernel, launch: Launch | None) -> Iterator[str]:
    if launch is None:
        raise UsageError("--dump classes is about a launch, and none is known: give --launch")
    launched = KernelLaunch(code.cfg, code.addresses, code.variables, launch)
    rows: list[tuple[AccessValue, tuple[int, Sequence[AlikeClasses]] | Unknown]] = []
    for access in code.addresses.accesses:
        try:
            rows.append((access, launched.classes(access)))
        except UnknownValueError as error:
            rows.append((access, Unknown(str(error))))
        except TooLargeError:
            rows.append((access, Unknown("too many different cases to evaluate")))
    return render.classes(rows)
