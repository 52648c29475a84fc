"""TARGETs of ``kanalyze ptx`` to one report: everything that can be read, and what could not."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kanalyze.cli import output
from kanalyze.cli.app import report_error
from kanalyze.cli.options import TargetOptions, facts_of
from kanalyze.errors import InputError, KanalyzeError, MissingToolError, UsageError, nearest
from kanalyze.launch import Launch
from kanalyze.pipeline import Subject, errors_of, read_ptx, report_on, subjects_of
from kanalyze.report import document as doc

STANDARD_INPUT = "<stdin>"
_NOW = "accepted now: a bundled kernel's name, path/to/file.py:kernel, a .ptx file, a folder, or -"


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

    def add(self, error: KanalyzeError, file: str) -> None:
        """Say an error, and note it."""
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
    trouble = _Trouble()
    subjects = [
        subject for target in targets for subject in _subjects(target, options, launch, trouble)
    ]
    if kernels:
        subjects = _chosen(subjects, kernels)
    ignored = options.for_compiling()
    if ignored and subjects and all(subject.compiled is None for subject in subjects):
        output.say(f"nothing was compiled, so {', '.join(ignored)} had no effect", "warning")
    for subject in subjects:
        for error in errors_of(subject.module):
            report_error(error, "warning" if lenient else "error")
            if not lenient:
                trouble.exit_code = max(trouble.exit_code, error.exit_code)
        if not any(f.body is not None for f in subject.module.entries):
            output.say(f"{output.escaped(subject.file)}: there is no kernel in it", "warning")
    report = report_on(subjects, listing)
    report = dataclasses.replace(report, skipped=(*trouble.skipped, *report.skipped))
    return Result(report, trouble.exit_code)


def _subjects(
    target: str, options: TargetOptions, launch: Launch | None, trouble: _Trouble
) -> Iterator[Subject]:
    try:
        for file in _files(target):
            try:
                for subject in _of_file(file, options, launch):
                    notes = (*_launch_facts(launch, options.record), *subject.notes)
                    yield dataclasses.replace(subject, notes=notes)
            except (InputError, MissingToolError) as error:
                trouble.add(error, file)
    except InputError as error:
        trouble.add(error, target)


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


def _files(target: str) -> list[str]:
    """The target itself, or the PTX files below a folder."""
    path = Path(target)
    if target == "-" or _is_bundled(target) or not path.is_dir():
        return [target]
    found = sorted(str(p) for p in path.rglob("*.ptx") if p.is_file())
    if not found:
        raise InputError("there is no .ptx file in this folder", file=target)
    return found


def _of_file(target: str, options: TargetOptions, launch: Launch | None) -> Iterator[Subject]:
    if target == "-":
        from kanalyze.ptx.parse import parse_ptx_modules

        text = sys.stdin.buffer.read().decode("utf-8", "replace")
        for module in parse_ptx_modules(text, STANDARD_INPUT):
            yield Subject(module, STANDARD_INPUT, launch=launch)
        return
    name = target.partition(":")[0] if ".cu:" in target else target
    if name.endswith((".cubin", ".cu")):
        raise InputError(f"this kind of file cannot be read yet; {_NOW}", file=target)
    path = Path(target)
    python = target.endswith(".py") or ".py:" in target
    if not _is_bundled(target) and not python and not target.endswith(".ptx"):
        if path.is_file():
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

    return target.isidentifier() and (_bundled.folder("kernels") / f"{target}.py").is_file()


def _chosen(subjects: Sequence[Subject], kernels: Sequence[str]) -> list[Subject]:
    """The subjects with only the kernels named."""
    known = [f.name for s in subjects for f in s.module.entries if f.body is not None]
    for name in kernels:
        if name not in known:
            raise UsageError(
                f"there is no kernel '{name}' in what was read: {nearest(name, known)}"
            )
    chosen = []
    for subject in subjects:
        functions = tuple(
            f for f in subject.module.functions if f.kind != "entry" or f.name in kernels
        )
        if any(f.kind == "entry" for f in functions):
            module = dataclasses.replace(subject.module, functions=functions)
            chosen.append(dataclasses.replace(subject, module=module))
    return chosen
