"""TARGETs of ``kanalyze ptx`` to one report: everything that can be read, and what could not."""

from __future__ import annotations

import dataclasses
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import TypeVar

from kanalyze.analysis.kernels import FAULT, report_on
from kanalyze.cli import output
from kanalyze.cli.app import report_error, report_errors
from kanalyze.cli.options import TargetOptions, facts_of
from kanalyze.errors import InputError, KanalyzeError, UsageError, nearest
from kanalyze.findings.runner import RuleOptions
from kanalyze.frontend import cuda
from kanalyze.frontend import files as inputs
from kanalyze.frontend.subject import Subject, errors_of, launch_for
from kanalyze.frontend.targets import of_machine_code, read_ptx, subjects_of
from kanalyze.launch.assumptions import parse
from kanalyze.launch.record import Launch
from kanalyze.results import kernel as doc
from kanalyze.sass import cubin
from kanalyze.text.safe import escaped

STANDARD_INPUT = "<stdin>"
_STANDARD_INPUTS = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_NOW = (
    "accepted: a bundled kernel's name, path/to/file.py:kernel, a .ptx, .cubin or .cu file, "
    "file.cu:kernel, a folder, or -"
)


@dataclass(frozen=True)
class Result:
    """A report, and the exit code that goes with it."""

    report: doc.Report
    exit_code: int


@dataclass
class _Trouble:
    """What went wrong so far."""

    skipped: list[doc.Skipped] = field(default_factory=list)
    exit_code: int = 0
    progress: Progress | None = None

    def add(self, error: KanalyzeError, file: str) -> None:
        """Say an error, and note it."""
        if self.progress is not None:
            self.progress.clear()
        report_error(error)
        message = error.message if isinstance(error, InputError) else str(error)
        line = error.spot.line if isinstance(error, InputError) and error.spot else 0
        place = error.file if isinstance(error, InputError) and error.file else file
        self.skipped.append(doc.Skipped(place, line, message))
        self.exit_code = max(self.exit_code, error.exit_code)


def read(
    targets: Sequence[str],
    options: TargetOptions,
    kernels: Sequence[str],
    listing: bool,
    lenient: bool,
    sass: bool = True,
    assume: Mapping[str, str] | None = None,
    wanted: RuleOptions | None = None,
) -> Result:
    """Read targets and report on all their kernels.

    Raises:
        UsageError: no target, an unknown kernel, or a wrong option.
    """
    launch = options.launch()
    if not targets:
        if launch is None:
            raise UsageError(f"give a TARGET; {_NOW}")
        if launch.ptx is None:
            raise InputError("there is no .ptx of the same stem beside it", file=options.record)
        targets = [str(launch.ptx)]
    if "" in targets:
        raise UsageError(f"a TARGET is empty; {_NOW}")
    if sum(target in _STANDARD_INPUTS for target in targets) > 1:
        raise UsageError("standard input (-) can be read only once")
    trouble = _Trouble()
    files = [file for target in targets for file in _files(target, trouble)]
    progress = trouble.progress = Progress(2 * len(files))
    subjects = [
        subject
        for file in progress.over(files, str)
        for subject in _subjects(file, options, launch, trouble, alone=len(files) == 1)
    ]
    if kernels:
        subjects = _chosen(subjects, kernels)
    if assume:
        subjects = _assuming(subjects, assume)
    ignored = [] if any(cuda.split(file) for file in files) else options.for_compiling()
    if ignored and subjects and all(subject.compiled is None for subject in subjects):
        output.say(f"nothing was compiled, so {', '.join(ignored)} had no effect", "warning")
    progress.clear()
    for _, group in groupby(subjects, lambda subject: subject.file):
        same = list(group)
        errors = [error for subject in same for error in errors_of(subject.module)]
        report_errors(errors, "warning" if lenient else "error")
        odd = [error for subject in same for error in errors_of(subject.module, "warning")]
        report_errors(odd, "warning")
        if not lenient:
            codes = [error.exit_code for error in errors]
            trouble.exit_code = max([trouble.exit_code, *codes])
    for subject in subjects:
        if not subject.bare and not any(f.body is not None for f in subject.module.entries):
            output.say(f"{escaped(subject.file)}: there is no kernel in it", "warning")
    progress.total = len(files) + len(subjects)
    report = report_on(progress.over(subjects, lambda subject: subject.file), listing, sass, wanted)
    progress.close()
    for fault in report.skipped:
        if fault.reason.startswith(FAULT):
            output.say(escaped(f"{fault.file}:{fault.line}: {fault.reason}"), "error")
            trouble.exit_code = max(trouble.exit_code, InputError.exit_code)
    report = dataclasses.replace(report, skipped=(*trouble.skipped, *report.skipped))
    return Result(report, trouble.exit_code)


def _assuming(subjects: Sequence[Subject], assume: Mapping[str, str]) -> list[Subject]:
    """The subjects with what arrays hold, which matters where a launch is known."""
    notes = []
    for name, what in assume.items():
        drawn = parse(what).drawn
        notes.append(f"assumed: {name}={what}{', counts are of one draw' if drawn else ''}")
    found = [
        dataclasses.replace(subject, assume=assume, notes=(*subject.notes, *notes))
        for subject in subjects
    ]
    if not any(launch_for(s, f) for s in found for f in s.module.entries):
        raise UsageError("--assume is about a launch, and none is known: give --launch RECORD.json")
    return found


def _files(target: str, trouble: _Trouble) -> list[str]:
    """The files that a target stands for."""
    if target == "-" or _is_bundled(target):
        return [target]
    try:
        return inputs.files_of(target)
    except InputError as error:
        trouble.add(error, target)
        return []


def _subjects(
    file: str, options: TargetOptions, launch: Launch | None, trouble: _Trouble, alone: bool
) -> Iterator[Subject]:
    try:
        for subject in _of_file(file, options, launch):
            notes = (*_launch_facts(launch, options.record), *subject.notes)
            yield dataclasses.replace(subject, notes=notes)
    except KanalyzeError as error:
        if alone and isinstance(error, UsageError):
            raise
        trouble.add(error, file)
    except OSError as error:  # of a path: too long a name, a current folder that was deleted
        trouble.add(InputError(output.reason(error), file=file), file)


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


def _of_file(target: str, options: TargetOptions, launch: Launch | None) -> Iterator[Subject]:
    if target == "-":
        from kanalyze.ptx.parse import parse_ptx_modules

        for module in parse_ptx_modules(output.standard_input(), STANDARD_INPUT):
            yield Subject(module, STANDARD_INPUT, launch=launch)
        return
    path = Path(target)
    bundled = _is_bundled(target)
    if not bundled and inputs.is_pipe(target):
        for module in read_ptx(path):
            yield Subject(module, target, launch=launch)
        return
    python = target.endswith(".py") or ".py:" in target
    known = python or target.endswith((".ptx", *cubin.SUFFIXES)) or cuda.split(target) is not None
    if not known and not bundled:
        if os.path.isfile(path):
            with path.open("rb") as stream:
                machine = cubin.is_machine_code(stream.read(4))
            if machine:
                yield from of_machine_code(path, launch)
                return
            for module in read_ptx(path):
                yield Subject(module, target, launch=launch)
            return
        if "/" in target:
            raise InputError("No such file or directory", file=target)
    for subject in subjects_of(target, options.compile_settings(), launch):
        if subject.compiled is not None:
            facts = facts_of(subject.compiled)
            subject = dataclasses.replace(subject, notes=(facts, *subject.notes))
        yield subject


def _is_bundled(target: str) -> bool:
    from kanalyze import _bundled

    return target.isidentifier() and os.path.isfile(_bundled.folder("kernels") / f"{target}.py")


def _chosen(subjects: Sequence[Subject], kernels: Sequence[str]) -> list[Subject]:
    """The subjects with only the kernels named."""
    known = [f.name for s in subjects for f in s.module.entries if f.body is not None]
    known += [name for s in subjects for name in s.bare]
    for name in kernels:
        if name not in known and name not in map(cuda.source_name, known):
            raise UsageError(
                f"there is no kernel '{name}' in what was read: {nearest(name, known)}"
            )

    def wanted(name: str) -> bool:
        return name in kernels or cuda.source_name(name) in kernels

    chosen = []
    for subject in subjects:
        functions = tuple(
            f for f in subject.module.functions if f.kind != "entry" or wanted(f.name)
        )
        bare = tuple(name for name in subject.bare if wanted(name))
        if bare or any(f.kind == "entry" for f in functions):
            module = dataclasses.replace(subject.module, functions=functions)
            chosen.append(dataclasses.replace(subject, module=module, bare=bare))
    return chosen


T = TypeVar("T")


class Progress:
    """A bar on standard error: only on a terminal, and only after a second of work."""

    def __init__(self, total: int):
        self.total = total
        self.done = 0
        self.shown = False
        self.on = total > 2 and sys.stderr.isatty()
        self.start = time.monotonic()
        self.last = 0.0

    def over(self, items: Iterable[T], name: Callable[[T], str]) -> Iterator[T]:
        """The items; each counts when the next one is asked for."""
        for item in items:
            self._show(name(item))
            yield item
            self.done += 1

    def _show(self, name: str) -> None:
        now = time.monotonic()
        if not self.on or now - self.start < 1 or now - self.last < 0.1:
            return
        self.last, self.shown = now, True
        columns = shutil.get_terminal_size().columns
        share = min(1.0, self.done / max(1, self.total))
        bar = "#" * round(20 * share)
        text = f"[{bar:<20}] {self.done}/{self.total}  {escaped(name)}"
        sys.stderr.write(f"\r\x1b[K{text[: columns - 1]}")
        sys.stderr.flush()

    def clear(self) -> None:
        """Take the bar away, so that a message can stand there."""
        if self.shown:
            self.shown = False
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def close(self) -> None:
        """Take the bar away for good."""
        self.clear()
        self.on = False
