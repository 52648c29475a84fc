"""What a benchmark runs: every launch of a grid of shapes, element types and configurations."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from kanalyze.errors import InputError, UsageError, nearest
from kanalyze.frontend import _triton, kernel_file, launch_plan, user_file
from kanalyze.frontend._triton_kernels import import_triton
from kanalyze.frontend.contents import triton_kernel
from kanalyze.text import toml

Settings = Mapping[str, int | str]


@dataclass(frozen=True)
class Target:
    """A kernel that says what its launches are, loaded.

    ``text`` is the target as the user wrote it; ``name`` is what its launches are called after.
    """

    text: str
    name: str
    file: kernel_file.KernelFile
    module: ModuleType

    @property
    def checks(self) -> tuple[Settings, ...]:
        """Further launches of the file, that only the check of all kernels runs."""
        return tuple(getattr(self.module, "CHECKS", ()))


@dataclass(frozen=True)
class BenchCase:
    """One launch: its name (also the record's), its target, and what differs from the defaults.

    ``rivals`` and ``counters`` say what else is wanted of it.
    """

    name: str
    target: Target
    settings: Settings
    plan: launch_plan.LaunchPlan
    rivals: bool = True
    counters: bool = True

    @property
    def group(self) -> tuple[Any, ...]:
        """What rivals depend on: kernel, element type and shape, but no configuration."""
        return (self.target.name, self.plan.dtype, *sorted(self.plan.shape.items()))

    @property
    def purpose(self) -> str:
        """``fit`` or ``report``: see `purpose_of`."""
        return purpose_of(self.name)


@dataclass(frozen=True)
class BenchRequest:
    """Targets and the grid of values for each: an entry of a plan file, or a command line.

    ``shapes`` are sets of settings that belong together; each is combined with every combination
    of ``values``. ``checks`` adds the launches that only check.
    """

    targets: tuple[str, ...]
    dtypes: tuple[str, ...] = ()
    shapes: tuple[Settings, ...] = ()
    values: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    rivals: bool = True
    counters: bool = True
    checks: bool = False


def purpose_of(case: str) -> str:
    """Whether a launch may be used for fitting a model (``fit``), or only for reporting.

    By the parity of the first byte of the SHA-256 of its name: about half each, for ever the same.
    """
    return "report" if hashlib.sha256(case.encode()).digest()[0] % 2 else "fit"


def load(text: str) -> Target:
    """Load a bundled kernel, or ``path/to/file.py[:kernel]`` in the format of a kernel file.

    Raises:
        UsageError: it is neither.
        InputError: the file cannot be run, or does not say what its launches are.
        MissingToolError: Triton is missing.
    """
    given = triton_kernel(text)
    assert given.path is not None
    file = kernel_file.read(given.path)
    if given.kernel and given.kernel != file.function:
        raise UsageError(
            f"{given.path}: its launches are those of '{file.function}', not {given.kernel}"
        )
    import_triton()
    with _triton.environment(str(file.path)), user_file.importable(file.path.parent):
        return Target(text, file.name, file, user_file.load(Path(file.path)).module)


def expand(requests: Iterable[BenchRequest]) -> list[BenchCase]:
    """Every launch of the requests, each once, in order.

    Raises:
        UsageError: an unknown kernel, name or element type, or a value that cannot be.
        InputError: a file of the user's cannot be run or read.
    """
    cases: dict[tuple[Path, str], BenchCase] = {}
    loaded: dict[str, Target] = {}
    for request in requests:
        for text in request.targets:
            target = loaded.get(text) or loaded.setdefault(text, load(text))
            for dtype, settings in _grid(target, request):
                plan = launch_plan.plan(target.file, target.module, settings, dtype)
                name = _name(target, plan)
                case = BenchCase(name, target, settings, plan, request.rivals, request.counters)
                cases.setdefault((target.file.path, name), case)
    return _told_apart(list(cases.values()))


def _told_apart(cases: list[BenchCase]) -> list[BenchCase]:
    """Launches of files of the same name by the folders that they lie in.

    Raises:
        UsageError: the folders have the same name, too.
    """
    often = Counter(case.name for case in cases)
    named = [
        replace(case, name=f"{case.target.file.path.parent.name}-{case.name}")
        if often[case.name] > 1
        else case
        for case in cases
    ]
    for name, times in Counter(case.name for case in named).items():
        if times > 1:
            raise UsageError(f"{times} launches of different files would be called {name}")
    return named


def _grid(target: Target, request: BenchRequest) -> Iterator[tuple[str | None, Settings]]:
    """Element types and settings; without any, those of the file's own examples."""
    shapes: Sequence[Settings] = request.shapes
    if not shapes:
        own = [*target.file.example, *(target.checks if request.checks else ())]
        free = not set(request.values) & set(target.file.shape)
        shapes = own if free else [target.file.example[0]]
    names = list(request.values)
    combinations = [
        dict(zip(names, chosen, strict=True))
        for chosen in itertools.product(*request.values.values())
    ]
    for shape in shapes:
        settings = {name: value for name, value in shape.items() if name != "dtype"}
        dtypes = request.dtypes or (target.file.dtypes if request.checks else ())
        if "dtype" in shape and (request.checks or not request.dtypes):
            dtypes = (str(shape["dtype"]),)
        for dtype in dtypes or (None,):
            for combination in combinations:
                yield dtype, {**settings, **combination}


def _name(target: Target, plan: launch_plan.LaunchPlan) -> str:
    """``KERNEL-DTYPE-SHAPE-CONFIGURATION``; of the configuration, what is not the default."""
    file = target.file
    usual = {**file.constexprs, **file.options, **file.overrides.get(plan.dtype, {})}
    chosen = {**plan.constexprs, **plan.options}
    parts = [f"{name}{value}" for name, value in plan.shape.items()]
    parts += [f"{n}{chosen[n]}" for n in usual if chosen[n] != usual[n]]
    parts += [f"{name}{value:g}" for name, value in _set_arguments(target, plan).items()]
    return "-".join([target.name, plan.dtype, *parts])


def _set_arguments(target: Target, plan: launch_plan.LaunchPlan) -> dict[str, float]:
    """Numbers that the user set in place of what the file derives from the shape."""
    own = target.module.arguments(plan.shape, plan.dtype, plan.constexprs)
    return {
        name: value
        for name, value in plan.arguments.items()
        if not isinstance(value, tuple) and own.get(name) != value
    }


# --- plan files ----------------------------------------------------------------------------------

_KEYS = {"target", "dtype", "shapes", "set", "rivals", "counters"}


def read_plan(path: Path) -> list[BenchRequest]:
    """Read a plan file: TOML, ``[[bench]]`` entries with target, dtype, shapes, set.

    A target that names a file is looked for beside the plan.

    Raises:
        InputError: the file cannot be read, or an entry is malformed.
    """
    entries = toml.read(path)[1].get("bench")
    if not isinstance(entries, list) or not entries:
        raise InputError("expected [[bench]] entries", file=str(path))
    return [_entry(path, index, entry) for index, entry in enumerate(entries, start=1)]


def _entry(path: Path, index: int, entry: Any) -> BenchRequest:
    def wrong(message: str) -> InputError:
        return InputError(f"[[bench]] number {index}: {message}", file=str(path))

    if not isinstance(entry, dict):
        raise wrong("expected a table")
    for key in entry:
        if key not in _KEYS:
            raise wrong(f"unknown key '{key}'; {nearest(key, _KEYS)}")
    targets = [entry.get("target")] if isinstance(entry.get("target"), str) else entry.get("target")
    if not isinstance(targets, list) or not all(isinstance(t, str) for t in targets):
        raise wrong("expected target, a name or a list of names")
    shapes, values = entry.get("shapes", []), entry.get("set", {})
    if not isinstance(shapes, list) or not all(_settings(shape) for shape in shapes):
        raise wrong("shapes: expected a list of tables of integers")
    listed = isinstance(values, dict) and all(
        isinstance(v, list) and v and all(type(one) is int for one in v) for v in values.values()
    )
    if not listed:
        raise wrong("set: expected a table of lists of integers")
    dtypes = entry.get("dtype", [])
    if not isinstance(dtypes, list) or not all(isinstance(d, str) for d in dtypes):
        raise wrong("dtype: expected a list of names")
    return BenchRequest(
        targets=tuple(_beside(path, text) for text in targets),
        dtypes=tuple(dtypes),
        shapes=tuple(shapes),
        values={name: tuple(listed) for name, listed in values.items()},
        rivals=bool(entry.get("rivals", True)),
        counters=bool(entry.get("counters", True)),
    )


def _settings(shape: Any) -> bool:
    return isinstance(shape, dict) and all(type(value) is int for value in shape.values())


def _beside(path: Path, target: str) -> str:
    file, colon, kernel = target.partition(":")
    where = os.path.normpath(path.parent / file)
    return f"{where}{colon}{kernel}" if file.endswith(".py") else target
