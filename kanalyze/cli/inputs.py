"""TARGETs of ``ptx``, ``cfg`` and ``traffic``: everything that can be read, and what could not."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kanalyze.analysis.kernels import FAULT, report_on
from kanalyze.cli import output
from kanalyze.cli.app import report_error, report_errors
from kanalyze.cli.options import TargetOptions, facts_of
from kanalyze.cli.progress import Progress
from kanalyze.errors import InputError, KanalyzeError, UsageError, system_reason
from kanalyze.findings.runner import RuleOptions
from kanalyze.frontend.contents import EXPECTED, Kind, identify, inputs_of
from kanalyze.frontend.subject import Subject, errors_of, launch_for
from kanalyze.frontend.targets import choose, subjects_of
from kanalyze.launch.assumptions import parse
from kanalyze.launch.record import Launch
from kanalyze.results import kernel as doc
from kanalyze.text.safe import escaped

_STANDARD_INPUTS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_ACCEPTED = (
    "accepted: a bundled kernel's name, path/to/file.py:kernel, a folder, - for standard input, "
    f"or a file with {EXPECTED}"
)


@dataclass
class Inputs:
    """What was read of targets.

    Attributes:
        subjects: what was read, in order.
        skipped: what could not be read, said already.
        exit_code: the exit code that goes with that.
    """

    subjects: list[Subject] = field(default_factory=list)
    skipped: list[doc.Skipped] = field(default_factory=list)
    exit_code: int = 0

    def skip(self, error: KanalyzeError, file: str) -> None:
        """Say an error, and note it."""
        report_error(error)
        message = error.message if isinstance(error, InputError) else str(error)
        line = error.spot.line if isinstance(error, InputError) and error.spot else 0
        place = error.file if isinstance(error, InputError) and error.file else file
        self.skipped.append(doc.Skipped(place, line, message))
        self.exit_code = max(self.exit_code, error.exit_code)


def read(targets: Sequence[str], options: TargetOptions, kernels: Sequence[str] = ()) -> Inputs:
    """Read targets; what is wrong with one is said, and costs the others nothing.

    Args:
        targets: as given; without one, the PTX beside the launch record.
        options: how they are compiled, the launch, and whether statements that cannot be read are
            warnings.
        kernels: the only ones wanted; all where empty.

    Raises:
        UsageError: no target, an unknown kernel, or a wrong option.
    """
    launch = options.launch()
    if not targets:
        if launch is None:
            raise UsageError(
                f"give a TARGET, or --launch RECORD.json with a .ptx beside it; {_ACCEPTED}"
            )
        if launch.ptx is None:
            raise InputError("there is no .ptx of the same stem beside it", file=options.record)
        targets = [str(launch.ptx)]
    if "" in targets:
        raise UsageError(f"a TARGET is empty; {_ACCEPTED}")
    if sum(target in _STANDARD_INPUTS for target in targets) > 1:
        raise UsageError("standard input (-) can be read only once")
    inputs = Inputs()
    files = [file for target in targets for file in _files(target, inputs)]
    compiled = False
    with Progress(len(files)) as progress:
        for file in progress.over(files, str):
            try:
                for subject, kind in _subjects(file, options, launch):
                    inputs.subjects.append(subject)
                    compiled = compiled or kind not in (Kind.PTX, Kind.MACHINE_CODE)
            except KanalyzeError as error:
                if len(files) == 1 and isinstance(error, UsageError):
                    raise
                progress.clear()
                inputs.skip(error, file)
    if kernels:
        inputs.subjects = choose(inputs.subjects, kernels, "what was read")
    ignored = options.for_compiling()
    if ignored and inputs.subjects and not compiled:
        output.say(f"nothing was compiled, so {', '.join(ignored)} had no effect", "warning")
    _say_errors(inputs, options.lenient)
    return inputs


def _say_errors(inputs: Inputs, lenient: bool) -> None:
    for _, group in groupby(inputs.subjects, lambda subject: subject.file):
        same = list(group)
        errors = [error for subject in same for error in errors_of(subject.module)]
        report_errors(errors, "warning" if lenient else "error")
        odd = [error for subject in same for error in errors_of(subject.module, "warning")]
        report_errors(odd, "warning")
        if not lenient:
            inputs.exit_code = max([inputs.exit_code, *(error.exit_code for error in errors)])
    for subject in inputs.subjects:
        if not subject.bare and not any(f.body is not None for f in subject.module.entries):
            output.say(f"{escaped(subject.file)}: there is no kernel in it", "warning")


def report_of(
    inputs: Inputs,
    listing: bool,
    sass: bool = True,
    assume: Mapping[str, str] | None = None,
    wanted: RuleOptions | None = None,
) -> tuple[doc.Report, int]:
    """Report on all kernels of what was read; return the exit code, too.

    Raises:
        UsageError: something is assumed of a launch, and none is known.
    """
    subjects = _assuming(inputs.subjects, assume) if assume else inputs.subjects
    with Progress(len(subjects)) as progress:
        shown = progress.over(subjects, lambda subject: subject.file)
        made = report_on(shown, listing, sass, wanted)
    code = inputs.exit_code
    for fault in made.skipped:
        if fault.reason.startswith(FAULT):
            output.say(escaped(f"{fault.file}:{fault.line}: {fault.reason}"), "error")
            code = max(code, InputError.exit_code)
    return dataclasses.replace(made, skipped=(*inputs.skipped, *made.skipped)), code


def _assuming(subjects: Sequence[Subject], assume: Mapping[str, str]) -> list[Subject]:
    """The subjects with what arrays hold, which matters where a launch is known."""
    notes = []
    for name, what in assume.items():
        drawn = parse(what).drawn
        notes.append(f"assumed: {name}={what}{', counts are of one draw' if drawn else ''}")
    assuming = [
        dataclasses.replace(subject, assume=assume, notes=(*subject.notes, *notes))
        for subject in subjects
    ]
    if not any(launch_for(s, f) for s in assuming for f in s.module.entries):
        raise UsageError("--assume is about a launch, and none is known: give --grid, or --launch")
    return assuming


def _files(target: str, inputs: Inputs) -> list[str]:
    """The files that a target stands for."""
    try:
        return inputs_of(target)
    except InputError as error:
        inputs.skip(error, target)
        return []


def _subjects(
    file: str, options: TargetOptions, launch: Launch | None
) -> Iterator[tuple[Subject, Kind]]:
    try:
        given = identify(file)
        settings = options.compile_settings()
        if settings.config == "best":
            from kanalyze.analysis.launch import with_best_config

            settings = with_best_config(file, settings)
        for subject in subjects_of(given, settings, launch):
            notes = [facts_of(subject.compiled)] if subject.compiled is not None else []
            notes = [*_launch_facts(launch, options.record), *notes, *subject.notes]
            yield dataclasses.replace(subject, notes=tuple(notes)), given.kind
    except OSError as error:  # of a path: a current folder that was deleted
        raise InputError(system_reason(error), file=file) from None


def _launch_facts(launch: Launch | None, record: str | None) -> list[str]:
    """What a launch record says, in one line."""
    if launch is None:
        return []
    values = [
        f"{p.name}={p.value}"
        for p in launch.params
        if p.value is not None and not p.type.startswith("*")
    ]
    device = f" on {launch.device}" if launch.device else ""
    shape = f"grid {' x '.join(map(str, launch.grid))}, block {' x '.join(map(str, launch.block))}"
    return [f"launch of {launch.kernel}{device} from {record}: {', '.join([shape, *values])}"]
