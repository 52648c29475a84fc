"""What one launch moves, and how long it takes: the passes behind ``kanalyze traffic``.

1. `_chosen`: which kernel of the target is meant; its launch.
2. `_described`: machine code, control flow, addresses, accesses (`kanalyze.kernel`).
3. `_counted`: the accesses in the launch, exactly (`kanalyze.counting`, `kanalyze.traffic`); once
   for each draw where arrays are drawn (`kanalyze.traffic.draws`): what follows is of the middle
   one.
4. `_traffic`: the document: device, occupancy, operations and bytes; `predict`, which simulates
   caches and time (`kanalyze.performance`); intensity and roofline at that time.
5. `runner.of_launch`: the rules, and the proofs of what they find (`kanalyze.findings`).

Each is a function of values that do not change; what one did not learn it returns as `Unknown`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from kanalyze.counting.bindings import arrays_of, decisive
from kanalyze.counting.ptx_launch import AccessTransactions, KernelLaunch
from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.devices.table import USUAL, Device
from kanalyze.devices.table import device as find_device
from kanalyze.errors import InputError, KanalyzeError, Unknown, UsageError, nearest
from kanalyze.findings import runner
from kanalyze.findings.facts import Facts
from kanalyze.frontend import launch_fit
from kanalyze.frontend.argument import Argument, Resources
from kanalyze.frontend.compile import Compiled, JitFunction
from kanalyze.frontend.given import Grid, names_nothing
from kanalyze.frontend.specialize import ALLOCATED
from kanalyze.frontend.subject import Settings, Subject, arguments_of, launch_of
from kanalyze.frontend.targets import Target, compiled_for, resolve
from kanalyze.kernel.describe import Description, describe
from kanalyze.kernel.resources import AssembledKernels, assemble
from kanalyze.kernel.sources import SourceLines, Sources
from kanalyze.launch.assume import assume as assume_contents
from kanalyze.launch.assume import draw, drawn
from kanalyze.launch.assumptions import DRAWS
from kanalyze.launch.record import Launch
from kanalyze.models.intensity import intensity
from kanalyze.performance.achieved import at_time
from kanalyze.performance.cache_sim.calibration import Calibration
from kanalyze.performance.cache_sim.results import COUNTERS as ESTIMATED
from kanalyze.performance.predict import Given, Prediction, achieved, predict
from kanalyze.performance.residency import occupancy_part, shared_bytes, waves_part
from kanalyze.performance.roofline import roofline_of
from kanalyze.ptx import ir
from kanalyze.ptx.calls import not_followed
from kanalyze.results import traffic as doc
from kanalyze.results.kernel import Analysed, UnknownField
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass import crosscheck
from kanalyze.sass import cubin as cubins
from kanalyze.traffic import draws
from kanalyze.traffic.counters import ExactCounters, exact_counters
from kanalyze.traffic.executed import branch_counts, bytes_by_space, executed_accesses, spilled
from kanalyze.traffic.rows import access_counts
from kanalyze.traffic.totals import LaunchTotals


def estimate(
    target: Target,
    launch: Launch | None = None,
    *,
    device: str | None = None,
    settings: Settings | None = None,
    kernel: str | None = None,
    cubin: str | Path | bytes | None = None,
    assume: Mapping[str, Any] | None = None,
    simulate: bool = True,
    what_if: Mapping[str, float] | None = None,
    calibration: Calibration | None = None,
    findings: bool = True,
    ignore: Collection[str] = (),
    prove: bool = True,
    time_us: float | None = None,
    grid: Grid | None = None,
    args: Mapping[str, Any] | None = None,
) -> doc.Traffic:
    """Estimate one launch of a kernel, without a GPU.

    Args:
        target: a bundled kernel's name, ``file.py:kernel``, a ``.ptx`` file, a module, or what
            `kanalyze.compile_kernel` returned; with exactly one kernel, or one that has the
            launch's name.
        launch: grid, block and arguments; may be left out where the target's own example says
            them.
        device: the GPU; the launch's, else a usual one of the architecture, if left out.
        settings: how a target is compiled.
        kernel: name of the kernel, where the target has several.
        cubin: the machine code of the kernel, a file or its contents: that of which executed
            instructions are counted. Without it that beside a ``.ptx`` file is taken, or what
            Triton's assembler makes of the PTX.
        assume: pointer parameter (its name, or its place from 0) to what its array holds: a text
            (``uniform:0:50000``, see `kanalyze.launch.assumptions`), an .npy file, or a NumPy
            array. What is loaded through other pointers is unknown.
        simulate: whether to estimate what caches, HBM and time depend on, too; without it only what
            is counted exactly is known.
        what_if: factors on the rates of the GPU: ``{"hbm": 2}``; see
            `kanalyze.performance.predict.WHAT_IF`.
        calibration: measured parameters of GPUs, see `kanalyze.performance.cache_sim.calibration`.
        findings: whether to look for what is worth changing.
        ignore: ids of findings that are left out.
        prove: whether to make the changes that findings advise (kernels are compiled again).
        time_us: a measured time, at which ``at_time`` says what the launch reaches.
        grid: blocks, of a launch that is said here; see `kanalyze.compile_kernel`.
        args: its arguments: numbers, tensors of PyTorch (``meta``, fake, on the CPU), arrays of
            NumPy, sizes, or texts.

    Raises:
        UsageError: no launch is known, or it is not clear which kernel is meant.
        KanalyzeError: the target cannot be found, read or compiled.
    """
    settings = settings or Settings()
    if grid is not None or args is not None:
        settings = replace(
            settings, grid=grid or settings.grid, args={**settings.args, **(args or {})}
        )
    if settings.config == "best" and not isinstance(target, ir.Module | Compiled | list):
        settings = with_best_config(target, settings, device)
    subject, function = _chosen(target, settings, launch, kernel)
    subject = replace(subject, assume=assume or {})
    if launch is None:
        launch = launch_of(subject.compiled)
    launch_fit.check(function, launch)
    if cubin is not None:
        subject = replace(subject, cubin=_cubin(cubin))
    if assume:
        launch = assume_contents(launch, [p.name for p in function.parameters], assume)
    asked = _Asked(device, dict(what_if or {}) if simulate else None, calibration or {})
    described = _described(subject, function, launch)
    traffic, counted = _estimated(described, launch, asked)
    if time_us is not None:
        traffic = replace(traffic, at_time=at_time(traffic, time_us))
    if not findings:
        return traffic
    facts = _facts(described, counted, traffic, asked)
    proven, failed = runner.of_launch(facts, runner.RuleOptions(ignore, prove))
    return replace(traffic, findings=proven, unknown=(*traffic.unknown, *failed))


def with_best_config(
    target: str | Path | JitFunction, settings: Settings, device: str | None = None
) -> Settings:
    """The settings with the autotune configuration whose launch is estimated to be the shortest.

    Raises:
        UsageError: the kernel has no list, no launch is known, or its grid fits one of them alone.
        KanalyzeError: the kernel cannot be compiled, or none of its configurations.
    """
    times: dict[int, float] = {}
    count, index, failed = 1, 0, None
    while index < count:
        try:
            compiled = compiled_for(target, replace(settings, config=index))
            count = compiled.configs
            if names_nothing(settings.grid) and count > 1:
                raise UsageError(
                    "--config best compares configurations: give a --grid that names what they "
                    "choose, as 'cdiv(N,BLOCK)'"
                )
            made = estimate(compiled, device=device, findings=False)
            if made.time.predicted_us is not None:
                times[index] = made.time.predicted_us
        except InputError as error:
            if index == 0 and count == 1:  # how many there are is not known
                raise
            failed = error
        index += 1
    if not times:
        raise failed or UsageError("--config best: no configuration has an estimated time")
    return replace(settings, config=min(times, key=lambda at: times[at]))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The GPU that is asked about; ``factors`` on its rates, None: nothing is simulated."""

    device: str | None
    factors: Mapping[str, float] | None
    calibration: Calibration


@dataclass(frozen=True)
class _DescribedKernel:
    """A kernel with its machine code and its document; why a launch of it does not start."""

    subject: Subject
    function: ir.Function
    arguments: dict[str, Argument]
    assembled: AssembledKernels
    resources: Resources
    sources: Sources
    description: Description
    refused: str | None = None

    @property
    def lines(self) -> SourceLines:
        """The source lines of its instructions."""
        return SourceLines(self.subject.module, self.sources)

    @property
    def unread(self) -> str | None:
        """Why sums over the kernel are not known, where a part of it could not be read."""
        unread = [d.pos.line for d in self.subject.module.diagnostics if d.severity == "error"]
        if unread:
            return f"statements could not be read (line {unread[0]})"
        return self.not_followed[1]

    @cached_property
    def not_followed(self) -> tuple[int, str | None]:
        """Accesses in functions that it calls, and why they are in no sum."""
        return not_followed(self.subject.module, self.description.cfg.function)


@dataclass(frozen=True, slots=True)
class _CountedLaunch:
    """What is known of a launch exactly; ``code`` is its machine code, or why there is none."""

    launch: Launch
    totals: LaunchTotals
    code: SassKernelLaunch | Unknown
    exact: ExactCounters
    assumptions: tuple[str, ...]


# ---------------------------------------------------------------- the kernel


def _chosen(
    target: Target,
    settings: Settings,
    launch: Launch | None,
    name: str | None,
) -> tuple[Subject, ir.Function]:
    """The kernel that is meant: the only one, that of the name, or that of the launch."""
    kernels = [
        (subject, function)
        for subject in resolve(target, settings, launch)
        for function in subject.module.entries
        if function.body is not None
    ]
    known = [function.name for _, function in kernels]
    if name is not None:
        if name not in known:
            raise UsageError(f"there is no kernel '{name}' in it: {nearest(name, known)}")
        kernels = [pair for pair in kernels if pair[1].name == name]
    elif launch is not None and len(kernels) > 1:
        kernels = [pair for pair in kernels if pair[1].name == launch.kernel] or kernels
    if not kernels:
        raise UsageError("there is no kernel in it")
    if len(kernels) != 1:
        names = ", ".join(known)
        raise UsageError(f"{len(kernels)} kernels where one is expected: say which of {names}")
    return kernels[0]


def _cubin(given: str | Path | bytes) -> cubins.Cubin:
    if isinstance(given, bytes):
        return cubins.parse(given, "the cubin")
    contents = cubins.read_file(Path(given)).cubins
    if len(contents) != 1:
        raise InputError(f"found {len(contents)} cubins, expected one", file=str(given))
    return contents[0]


def _described(subject: Subject, function: ir.Function, launch: Launch) -> _DescribedKernel:
    assembled = assemble(subject)
    resources = assembled.resources(function.name)
    arguments = arguments_of(subject, function, launch)
    sources = Sources()
    description = describe(
        subject.module, function, subject.file, arguments, resources, subject.notes, sources,
        with_listing=False, arrays=arrays_of(function.parameters, launch),
    )  # fmt: skip
    return _DescribedKernel(
        subject, function, arguments, assembled, resources, sources, description
    )


# ---------------------------------------------------------------- exact counts


def _estimated(
    kernel: _DescribedKernel, launch: Launch, asked: _Asked
) -> tuple[doc.Traffic, _CountedLaunch]:
    """The estimate, and the counts of the launch as it is; of several draws the middle one."""
    gpu = _known(_device(kernel, launch, asked)[0])
    wrong = next(launch_fit.refusals(kernel.function, launch, gpu, kernel.resources), None)
    if wrong is not None:
        kernel = replace(kernel, refused=f"the launch does not start: {': '.join(wrong)}")
    others = range(1, DRAWS if drawn(launch) and wrong is None else 1)
    counted = [_counted(kernel, each) for each in (launch, *(draw(launch, n) for n in others))]
    if not others:
        return _traffic(kernel, counted[0], asked), counted[0]
    counters = [each.exact.values for each in counted]
    middle = draws.middle(counters)
    exact = draws.known_in_all([each.exact for each in counted], middle)
    traffic = _traffic(kernel, replace(counted[middle], exact=exact), asked)
    ranges = draws.ranges(counters, draws.concerned(counted[0].totals.launched))
    return replace(traffic, interval={**traffic.interval, **ranges}), counted[0]


def _counted(kernel: _DescribedKernel, launch: Launch) -> _CountedLaunch:
    description = kernel.description
    launched = KernelLaunch(
        description.cfg, description.addresses, description.variables, launch, kernel.refused
    )
    draws.check(launched)
    code, origin = _machine_code(kernel, launched.launch)
    executed: list[AccessTransactions] = []
    if not isinstance(code, Unknown):
        places, module = description.addresses.places, kernel.subject.module
        matches = crosscheck.matches(description.cfg, code.cfg, places, module)
        transfers = [launched.transactions(each) for each in description.addresses.accesses]
        executed = executed_accesses(transfers, code, matches)
    totals = LaunchTotals(description, launched, kernel.unread, executed)
    exact = exact_counters(totals, code)
    assumptions = (*draws.said(launch, launched), *origin, *exact.assumptions)
    return _CountedLaunch(launch, totals, code, exact, assumptions)


def _machine_code(
    kernel: _DescribedKernel, launch: Launch
) -> tuple[SassKernelLaunch | Unknown, list[str]]:
    """The machine code in a launch, or why there is none; what it is, in words."""
    code, name = kernel.assembled.code(), kernel.function.name
    if kernel.refused is not None:
        return Unknown(kernel.refused), []
    if isinstance(code, Unknown):
        return code, []
    function = next((f for f in code.module.functions if f.name == name), None)
    if function is None:
        return Unknown(f"the machine code ({code.origin}) has no kernel '{name}'"), []
    try:
        executed = SassKernelLaunch(
            sass_cfg.build(function), code.module, kernel.function.parameters, launch
        )
    except KanalyzeError as error:
        return Unknown(str(error)), []
    beside = kernel.subject.cubin is not None
    return executed, [f"machine code: {Path(code.origin).name if beside else code.origin}"]


# ---------------------------------------------------------------- the document


def _traffic(kernel: _DescribedKernel, counted: _CountedLaunch, asked: _Asked) -> doc.Traffic:
    launch, totals, resources = counted.launch, counted.totals, kernel.resources
    rows, not_counted = access_counts(totals, kernel.lines)
    chosen, usual = _device(kernel, launch, asked)
    device = _known(chosen)
    by_unit = totals.flops()
    operations = None if isinstance(by_unit, Unknown) else sum(by_unit.values())
    compulsory, not_distinct = totals.compulsory()
    refused = Unknown(kernel.refused) if kernel.refused is not None else None
    residency = refused or occupancy_part(launch, resources, device)
    occupied = _known(residency)
    predicted = _predicted(kernel, counted, asked, device, compulsory, occupied)
    time = _time(predicted, counted, asked, device, operations)
    counters = {**counted.exact.values, **time.counters}
    by_level, no_intensity = _intensity(operations, counters, compulsory)
    roofline = (
        by_unit
        if isinstance(by_unit, Unknown)
        else roofline_of(
            by_unit,
            totals.tensor_flops(),
            counters,
            time.part.predicted_us,
            device,
            asked.factors or {},
            asked.calibration.get(device.name) if device is not None else None,
        )
    )
    moved, not_moved = bytes_by_space(totals.launched, totals.transactions, kernel.unread)
    spill_bytes = (resources.spill_store_bytes, resources.spill_load_bytes)
    in_code = None if None in spill_bytes else sum(n or 0 for n in spill_bytes)
    moved["spill"], not_spilled = spilled(counted.code, "local" in moved, in_code)
    waves = refused or waves_part(launch, occupied, device)
    compiled = kernel.subject.compiled
    said = (
        {}
        if compiled is None
        else {n: a for n, a in compiled.arrays.items() if a.align < ALLOCATED}
    )
    aligned = (
        f"{'other ' if said else ''}pointers are aligned to {ALLOCATED} bytes, as allocators "
        "return them"
    )
    return doc.Traffic(
        kernel=kernel.function.name,
        file=kernel.subject.file,
        device=device.name if device is not None else None,
        grid=launch.grid,
        block=launch.block,
        analysed=Analysed(
            sum(cost.counted is not None for cost in totals.transactions),
            len(totals.transactions) + kernel.not_followed[0],
        ),
        counters=counters,
        interval=time.interval,
        compulsory=compulsory,
        occupancy=occupied,
        waves=_known(waves),
        time=time.part,
        flops=operations,
        flops_by_unit={} if isinstance(by_unit, Unknown) else by_unit,
        arithmetic_intensity=by_level["hbm"],
        intensity=by_level,
        roofline=_known(roofline),
        bytes_by_space=moved,
        registers_per_thread=resources.registers,
        shared_bytes=shared_bytes(launch, resources),
        arguments={
            p.name: p.value
            for p in launch.params
            if not p.type.startswith("*") and p.value is not None
        },
        accesses=rows,
        branches=branch_counts(totals.launched, kernel.lines),
        layouts=totals.layouts(),
        findings=(),
        assumptions=(
            *launch.assumed,
            *counted.assumptions,
            *usual,
            *time.assumptions,
            *((*compiled.assumptions, aligned) if compiled is not None else ()),
        ),
        unknown=(
            *not_counted,
            *counted.exact.unknown,
            *_no_contents(kernel, launch),
            *_why("device", chosen),
            *_why("flops", by_unit),
            *not_distinct,
            *_why("occupancy", residency),
            *time.unknown,
            *no_intensity,
            *_why("roofline", roofline),
            *not_moved,
            *not_spilled,
            *_why("waves", waves),
        ),
    )


def _no_contents(kernel: _DescribedKernel, launch: Launch) -> Iterator[UnknownField]:
    """Which arrays have to be assumed, once, as options to copy."""
    names = decisive(kernel.function.parameters, launch, kernel.description.addresses)
    if names:
        yield UnknownField(
            "assume",
            "what some arrays hold decides addresses or branches: "
            + " ".join(f"--assume {name}=uniform:0:N" for name in names)
            + " (or const:VALUE, range, FILE.npy)",
        )


def _device(
    kernel: _DescribedKernel, launch: Launch, asked: _Asked
) -> tuple[Device | Unknown, list[str]]:
    """The GPU, or why none is known; what is assumed."""
    name = asked.device or launch.device
    if name is not None:
        return find_device(name), []
    target = kernel.subject.module.target[0] if kernel.subject.module.target else ""
    usual = USUAL.get(target.rstrip("af"))
    if usual is None:
        return Unknown(f"no device is given, and none is usual for {target or '?'}"), []
    return find_device(usual), [f"device: {usual}, a usual one for {target}"]


def _predicted(
    kernel: _DescribedKernel,
    counted: _CountedLaunch,
    asked: _Asked,
    device: Device | None,
    compulsory: doc.Compulsory,
    occupied: doc.OccupancyPart | None,
) -> Prediction | Unknown:
    """The simulated launch, or why there is none."""
    if asked.factors is None:
        return Unknown("not asked for")
    if kernel.refused is not None:
        return Unknown(kernel.refused)
    shared = shared_bytes(counted.launch, kernel.resources)
    if device is None or occupied is None or shared is None:
        return Unknown("the device, or how many blocks an SM holds, is not known")
    given = Given(
        kernel.description,
        counted.totals,
        counted.code,
        counted.exact.values,
        compulsory,
        occupied.blocks_per_sm,
        shared,
        kernel.resources.stack_bytes or 0,
    )
    return predict(given, device, asked.factors, asked.calibration.get(device.name))


@dataclass(frozen=True, slots=True)
class _EstimatedTime:
    """The time, with the counters of caches and HBM, which are estimates, too."""

    part: doc.TimePart
    counters: Mapping[str, int | None]
    interval: Mapping[str, tuple[int, ...]]
    assumptions: tuple[str, ...]
    unknown: tuple[UnknownField, ...]


def _time(
    predicted: Prediction | Unknown,
    counted: _CountedLaunch,
    asked: _Asked,
    device: Device | None,
    operations: float | None,
) -> _EstimatedTime:
    if isinstance(predicted, Unknown) or device is None:
        reason = predicted.reason if isinstance(predicted, Unknown) else "no device is known"
        fields = (*(f"counters.{name}" for name in ESTIMATED), "time.predicted_us")
        return _EstimatedTime(
            doc.TimePart({}, None, None),
            dict.fromkeys(ESTIMATED),
            {},
            (),
            tuple(UnknownField(field, reason) for field in fields),
        )
    times = predicted.times
    part = doc.TimePart(
        bounds_us=times.bounds_us,
        predicted_us=times.predicted_us,
        bound_by=times.bound_by,
        next_bound=times.next_bound,
        next_share=times.next_share,
        interval_us=predicted.time_interval,
        achieved=achieved(predicted, device, operations, counted.totals, asked.factors or {}),
    )
    broken = tuple(UnknownField(f"counters.{name}", why) for name, why in predicted.unknown.items())
    return _EstimatedTime(
        part, predicted.counters, predicted.interval, predicted.assumptions, broken
    )


def _intensity(
    operations: float | None, counters: Mapping[str, int | None], compulsory: doc.Compulsory
) -> tuple[dict[str, float | None], list[UnknownField]]:
    """Operations per byte by level, and where that is not known."""
    both = (compulsory.read_bytes, compulsory.write_bytes)
    size = None if None in both else sum(n or 0 for n in both)
    by_level = intensity(operations, counters, size)
    unknown = [u for level, value in by_level.items() for u in _why(f"intensity.{level}", value)]
    unknown += _why("arithmetic_intensity", by_level["hbm"])
    return {level: _known(value) for level, value in by_level.items()}, unknown


T = TypeVar("T")


def _known(value: T | Unknown | None) -> T | None:
    """What a pass returned, None where it returned the reason why there is nothing."""
    return None if isinstance(value, Unknown) else value


def _why(field: str, value: object) -> tuple[UnknownField, ...]:
    """The reason where a pass returned one."""
    return (UnknownField(field, value.reason),) if isinstance(value, Unknown) else ()


# ---------------------------------------------------------------- findings


def facts_of(subject: Subject, function: ir.Function, launch: Launch) -> Facts:
    """What rules look at in a launch, with its estimate on the launch's device or a usual one.

    Raises:
        KanalyzeError: the launch cannot be estimated.
    """
    kernel, asked = _described(subject, function, launch), _Asked(None, {}, {})
    traffic, counted = _estimated(kernel, launch, asked)
    return _facts(kernel, counted, traffic, asked)


def _facts(
    kernel: _DescribedKernel, counted: _CountedLaunch, traffic: doc.Traffic, asked: _Asked
) -> Facts:
    """What rules look at; `Facts.estimate` runs the passes on the kernel compiled otherwise."""

    def again(other: Facts) -> doc.Traffic:
        if other.launch is None:
            raise UsageError("the launch of the other compilation is not known")
        described = _DescribedKernel(
            other.subject, other.function, other.arguments, other.machine, other.resources,
            other.sources, other.description,
        )  # fmt: skip
        return _estimated(described, other.launch, asked)[0]

    return Facts(
        kernel.subject, kernel.function, kernel.description, kernel.assembled, kernel.resources,
        kernel.arguments, counted.launch, kernel.sources, traffic=traffic, totals=counted.totals,
        device=find_device(traffic.device) if traffic.device is not None else None,
        estimate=again,
    )  # fmt: skip
