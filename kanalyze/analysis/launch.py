"""The static estimate for one launch: what Nsight Compute would count, computed from addresses."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kanalyze.analysis.kernels import resources_of
from kanalyze.counting.bindings import arrays_of
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.counting.sass_launch import SassKernelLaunch, Total
from kanalyze.devices.table import Device
from kanalyze.devices.table import device as find_device
from kanalyze.errors import InputError, KanalyzeError, Unknown, UsageError, nearest
from kanalyze.findings import runner
from kanalyze.findings.facts import Facts
from kanalyze.frontend.compile import Compiled
from kanalyze.frontend.subject import Settings, Subject, arguments_of, launch_of
from kanalyze.frontend.targets import subjects_of
from kanalyze.kernel.describe import Description, Sources, describe
from kanalyze.kernel.resources import AssembledKernels
from kanalyze.launch.assume import assume as assume_contents
from kanalyze.launch.assume import draw, drawn
from kanalyze.launch.assumptions import DRAWS
from kanalyze.launch.record import Launch
from kanalyze.models.intensity import intensity
from kanalyze.models.occupancy import occupancy
from kanalyze.models.waves import waves
from kanalyze.performance.achieved import at_time
from kanalyze.performance.cache_sim.calibration import Calibration
from kanalyze.performance.cache_sim.results import COUNTERS as ESTIMATED
from kanalyze.performance.predict import Given, Prediction, achieved, predict
from kanalyze.performance.roofline import roofline_of
from kanalyze.ptx import ir
from kanalyze.ptx.lines import source_of
from kanalyze.results import traffic as doc
from kanalyze.results.kernel import Source, UnknownField
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass import cubin as cubins
from kanalyze.traffic import draws
from kanalyze.traffic.executed import Bytes, branch_counts, bytes_by_space, spilled
from kanalyze.traffic.totals import Totals, ideal

DEFAULT_DEVICES = {
    "sm_75": "T4",
    "sm_80": "A100 SXM 80GB",
    "sm_86": "A10",
    "sm_89": "L40S",
    "sm_90": "H200",
    "sm_100": "B200",
    "sm_103": "B300",
    "sm_120": "RTX PRO 6000",
}
_ALIGNMENT = 256  # of what an allocator returns, and more than any rule here looks at


def estimate(
    target: str | Path | ir.Module | Compiled,
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

    Raises:
        UsageError: no launch is known, or it is not clear which kernel is meant.
        KanalyzeError: the target cannot be found, read or compiled.
    """
    options = settings or Settings()
    subjects = [
        (subject, function)
        for subject in subjects_of(target, options, launch)
        for function in subject.module.entries
        if function.body is not None
    ]
    known = [function.name for _, function in subjects]
    if kernel is not None:
        if kernel not in known:
            raise UsageError(f"there is no kernel '{kernel}' in it: {nearest(kernel, known)}")
        subjects = [pair for pair in subjects if pair[1].name == kernel]
    elif launch is not None and len(subjects) > 1:
        subjects = [pair for pair in subjects if pair[1].name == launch.kernel] or subjects
    if not subjects:
        raise UsageError("there is no kernel in it")
    if len(subjects) != 1:
        names = ", ".join(known)
        raise UsageError(f"{len(subjects)} kernels where one is expected: say which of {names}")
    subject, function = subjects[0]
    subject = replace(subject, assume=assume or {})
    if launch is None:
        launch = launch_of(subject.compiled)
    if cubin is not None:
        subject = replace(subject, cubin=_cubin(cubin))
    if assume:
        launch = assume_contents(launch, [p.name for p in function.parameters], assume)
    changes = dict(what_if or {}) if simulate else None
    found = _Estimate(
        subject, function, launch, device, changes, calibration or {}, resources_of(subject)
    )
    traffic = _of_draws(found)
    if time_us is not None:
        traffic = replace(traffic, at_time=at_time(traffic, time_us))
    if not findings:
        return traffic
    facts = found.facts(traffic)
    facts.estimate = found.of
    seen, failed = runner.of_launch(facts, runner.RuleOptions(ignore, prove))
    return replace(traffic, findings=seen, unknown=(*traffic.unknown, *failed))


def _of_draws(found: _Estimate) -> doc.Traffic:
    """The estimate; where arrays are drawn, the middle one of several draws."""
    if not drawn(found.launch):
        return found.run()
    counted = replace(found, changes=None)
    numbers = range(1, DRAWS)
    counts = [counted.run(), *(counted.again(number).run() for number in numbers)]
    middle = draws.middle(counts)
    counts[middle] = (found.again(middle) if middle else found).run()
    return draws.central(counts, middle, draws.concerned(found.totals.launched))


def _cubin(given: str | Path | bytes) -> cubins.Cubin:
    if isinstance(given, bytes):
        return cubins.parse(given, "the cubin")
    found = cubins.read_file(Path(given)).cubins
    if len(found) != 1:
        raise InputError(f"found {len(found)} cubins, expected one", file=str(given))
    return found[0]


@dataclass
class _Estimate:
    subject: Subject
    function: ir.Function
    launch: Launch
    device_name: str | None
    changes: dict[str, float] | None  # on the GPU's rates; None: nothing is simulated
    calibration: Calibration
    machine: AssembledKernels
    sources: Sources = field(default_factory=Sources)
    described: Description | None = None

    def __post_init__(self) -> None:
        self.resources = self.machine(self.function.name)
        unread = [d.pos.line for d in self.subject.module.diagnostics if d.severity == "error"]
        self.unread = f"statements could not be read (line {unread[0]})" if unread else None
        self.description: Description = self.described or describe(
            self.subject.module,
            self.function,
            self.subject.file,
            arguments_of(self.subject, self.function, self.launch),
            self.resources,
            self.subject.notes,
            self.sources,
            with_listing=False,
            arrays=arrays_of(self.function.parameters, self.launch),
        )
        self._count()

    def again(self, number: int) -> _Estimate:
        """The same with another draw of the arrays that are drawn."""
        other = copy(self)
        other.launch = draw(self.launch, number)
        other._count()
        return other

    def of(self, other: Facts) -> doc.Traffic:
        """The estimate of the launch of another compilation of the kernel, on the same GPU."""
        if other.launch is None:
            raise UsageError("the launch of the other compilation is not known")
        return _of_draws(
            _Estimate(
                other.subject, other.function, other.launch, self.device_name, self.changes,
                self.calibration, other.machine, other.sources, other.description,
            )
        )  # fmt: skip

    def _count(self) -> None:
        self.unknown: list[UnknownField] = []
        found = self.description
        launched = KernelLaunch(found.cfg, found.found, found.variables, self.launch)
        draws.check(launched)
        self.assumptions = list(draws.said(self.launch, launched))
        self.totals = Totals(found, launched, self.unread, self.unknown)
        self.code = self._executed()

    def facts(self, traffic: doc.Traffic) -> Facts:
        """What rules look at."""
        device = find_device(traffic.device) if traffic.device is not None else None
        return Facts(
            self.subject, self.function, self.description, self.machine, self.resources,
            arguments_of(self.subject, self.function, self.launch), self.launch, self.sources,
            traffic=traffic, totals=self.totals, device=device,
        )  # fmt: skip

    def run(self) -> doc.Traffic:
        costs = self.totals.costs
        rows = self._rows()
        counters = self._counters()
        device = self._device()
        total, by_unit = self.totals.flops()
        compulsory = self.totals.compulsory()
        layouts = self.totals.layouts()
        occupied = self._occupancy(device)
        found = self._predict(device, occupied, counters, compulsory)
        time, interval = self._time(found, counters, device, total)
        by_level = self._intensity(total, counters, compulsory)
        roofline = self._roofline(by_unit, counters, time, device)
        moved = self._moved()
        branches = branch_counts(self.totals.launched, self._place)
        if self.subject.compiled is not None:
            self.assumptions.append(
                f"pointers are aligned to {_ALIGNMENT} bytes, as allocators return them"
            )
        return doc.Traffic(
            kernel=self.function.name,
            file=self.subject.file,
            device=device.name if device is not None else None,
            grid=self.launch.grid,
            block=self.launch.block,
            analysed=doc.Analysed(sum(c.counted is not None for c in costs), len(costs)),
            counters=counters,
            interval=interval,
            compulsory=compulsory,
            occupancy=occupied,
            waves=self._waves(device, occupied),
            time=time,
            flops=total,
            flops_by_unit=by_unit,
            arithmetic_intensity=by_level["hbm"],
            intensity=by_level,
            roofline=roofline,
            bytes_by_space=moved,
            registers_per_thread=self.resources.registers,
            shared_bytes=self._shared_bytes(),
            arguments={
                p.name: p.value
                for p in self.launch.params
                if not p.type.startswith("*") and p.value is not None
            },
            accesses=rows,
            branches=branches,
            layouts=layouts,
            findings=(),
            assumptions=tuple(self.assumptions),
            unknown=tuple(self.unknown),
        )

    def _intensity(
        self, operations: float | None, counters: dict[str, int | None], least: doc.Compulsory
    ) -> dict[str, float | None]:
        both = (least.read_bytes, least.write_bytes)
        size = None if None in both else sum(n or 0 for n in both)
        found: dict[str, float | None] = {}
        for level, value in intensity(operations, counters, size).items():
            found[level] = None if isinstance(value, Unknown) else value
            if isinstance(value, Unknown):
                self._say(f"intensity.{level}", value.reason)
        if found["hbm"] is None:
            self._say("arithmetic_intensity", self.unknown[-1].reason)
        return found

    def _roofline(
        self,
        by_unit: Mapping[str, float],
        counters: Mapping[str, int | None],
        time: doc.TimePart,
        device: Device | None,
    ) -> doc.RooflinePart | None:
        by_operand = self.totals.tensor_flops()
        own = self.calibration.get(device.name) if device is not None else None
        found = roofline_of(
            by_unit, by_operand, counters, time.predicted_us, device, self.changes or {}, own
        )
        if isinstance(found, Unknown):
            self._say("roofline", found.reason)
            return None
        return found

    def _moved(self) -> Bytes:
        moved = bytes_by_space(self.totals.launched, self.totals.costs, self.unread, self._say)
        known = (self.resources.spill_store_bytes, self.resources.spill_load_bytes)
        in_code = None if None in known else sum(n or 0 for n in known)
        spilled(moved, self.code, in_code, self._say)
        return moved

    def _say(self, field: str, reason: str) -> None:
        self.unknown.append(UnknownField(field, reason))

    # ------------------------------------------------------------ caches and time

    def _predict(
        self,
        device: Device | None,
        occupied: doc.OccupancyPart | None,
        counters: Mapping[str, int | None],
        least: doc.Compulsory,
    ) -> Prediction | Unknown:
        """The simulated launch, or why there is none."""
        if self.changes is None:
            return Unknown("not asked for")
        shared = self._shared_bytes()
        if device is None or occupied is None or shared is None:
            return Unknown("the device, or how many blocks an SM holds, is not known")
        given = Given(
            self.description,
            self.totals,
            self.code,
            counters,
            least.read_bytes,
            least.write_bytes,
            occupied.blocks_per_sm,
            shared,
            self.resources.stack_bytes or 0,
        )
        return predict(given, device, self.changes, self.calibration.get(device.name))

    def _time(
        self,
        found: Prediction | Unknown,
        counters: dict[str, int | None],
        device: Device | None,
        operations: float | None,
    ) -> tuple[doc.TimePart, dict[str, tuple[int, ...]]]:
        """The time and the ranges; the counters of caches and HBM are filled in."""
        if isinstance(found, Unknown) or device is None:
            reason = found.reason if isinstance(found, Unknown) else "no device is known"
            for name in ESTIMATED:
                counters[name] = None
                self._say(f"counters.{name}", reason)
            self._say("time.predicted_us", reason)
            return doc.TimePart({}, None, None), {}
        counters |= found.counters
        self.assumptions += found.assumptions
        times = found.times
        part = doc.TimePart(
            bounds_us=times.bounds_us,
            predicted_us=times.predicted_us,
            bound_by=times.bound_by,
            next_bound=times.next_bound,
            next_share=times.next_share,
            interval_us=found.time_interval,
            achieved=achieved(found, device, operations, self.totals, self.changes or {}),
        )
        return part, dict(found.interval)

    # ------------------------------------------------------------ accesses

    def _rows(self) -> tuple[doc.AccessCounts, ...]:
        rows = []
        described = self.description.kernel.accesses
        for index, (cost, access) in enumerate(zip(self.totals.costs, described, strict=True)):
            counted = cost.counted
            if cost.reason is not None:
                self._say(f"accesses[{index}].requests", cost.reason)
            shared = access.space == "shared"
            rows.append(
                doc.AccessCounts(
                    line=access.line,
                    opcode=access.opcode,
                    space=access.space,
                    kind=access.kind,
                    pointer=access.pointer,
                    address=access.address,
                    condition=access.condition_source or access.condition,
                    pattern=self.totals.pattern(cost, access.pattern),
                    bytes_per_thread=access.bytes_per_thread or cost.moved,
                    requests=counted.requests if counted else None,
                    threads=counted.threads if counted else None,
                    unit="wavefronts" if shared else "sectors",
                    cost=counted.cost if counted else None,
                    ideal_cost=ideal(cost) if counted else None,
                    worst=max(counted.by_cost, default=0) if counted else None,
                    reason=cost.reason,
                    loop_depth=access.loop_depth,
                    stage=access.stage,
                    source=access.source,
                    source_text=self._place(cost.access.instruction)[1],
                )
            )
        return tuple(rows)

    def _place(self, instruction: ir.Instruction) -> tuple[Source | None, str | None]:
        """Where an instruction comes from, and that source line, where it can be read."""
        place = source_of(instruction.loc, self.subject.module)
        if place is None:
            return None, None
        file = self.sources.get(place.file)
        text = file.line(place.line)
        source = Source(file.shown, place.line, place.column)
        return source, text.strip() if text is not None else None

    # ------------------------------------------------------------ counters

    def _counters(self) -> dict[str, int | None]:
        counters = self.totals.counters()
        executed = self.code
        if isinstance(executed, Unknown):
            counters["instructions_executed"] = None
            self._say("counters.instructions_executed", executed.reason)
            if any(c.access.row.space == "shared" for c in self.totals.costs):
                self.assumptions.append(
                    "shared accesses are those of the PTX; the assembler may drop or merge some"
                )
            return counters
        of_machine_code = {
            "instructions_executed": executed.instructions_executed,
            "shared_load_wavefronts": executed.shared_load_wavefronts,
            "shared_store_wavefronts": executed.shared_store_wavefronts,
        }
        for name, total in of_machine_code.items():
            self._take(counters, name, total)
        self._loads(counters, executed)
        return counters

    def _loads(self, counters: dict[str, int | None], executed: SassKernelLaunch) -> None:
        """Loads that the assembler merges or drops: of loaded indices there are often several."""
        if not executed.follows_loads:
            return
        requests, sectors = executed.global_loads()
        listed = counters["global_load_requests"]
        if None in (requests.value, sectors.value) or requests.value == listed:
            return
        self._take(counters, "global_load_requests", requests)
        self._take(counters, "global_load_sectors", sectors)
        self.assumptions.append(
            "global loads in all are those of the machine code: some of the PTX's are merged"
        )

    def _take(self, counters: dict[str, int | None], name: str, total: Total) -> None:
        """Take a counter from the machine code, which is what runs."""
        field = f"counters.{name}"
        counters[name] = total.value
        self.unknown[:] = [u for u in self.unknown if u.field != field]
        if total.value is None:
            reason = total.reason or "the machine code does not tell"
            self._say(field, f"{reason}; at least {total.at_least:,}")

    def _executed(self) -> SassKernelLaunch | Unknown:
        """The machine code in this launch, or why there is none."""
        code = self.machine.code()
        if isinstance(code, Unknown):
            return code
        function = next((f for f in code.module.functions if f.name == self.function.name), None)
        if function is None:
            return Unknown(f"the machine code ({code.origin}) has no kernel '{self.function.name}'")
        try:
            found = SassKernelLaunch(
                sass_cfg.build(function), code.module, self.function.parameters,
                self.totals.launched.launch,
            )  # fmt: skip
        except KanalyzeError as error:
            return Unknown(str(error))
        beside = self.subject.cubin is not None
        origin = Path(code.origin).name if beside else code.origin
        self.assumptions.append(f"machine code: {origin}")
        return found

    # ------------------------------------------------------------ device

    def _device(self) -> Device | None:
        name = self.device_name or self.launch.device
        if name is None:
            target = self.subject.module.target[0] if self.subject.module.target else ""
            name = DEFAULT_DEVICES.get(target.rstrip("af"))
            if name is None:
                self._say("device", f"no device is given, and none is usual for {target or '?'}")
                return None
            self.assumptions.append(f"device: {name}, a usual one for {target}")
        return find_device(name)

    def _occupancy(self, device: Device | None) -> doc.OccupancyPart | None:
        registers = self.launch.registers_per_thread or self.resources.registers
        if device is None or registers is None:
            reason = self.resources.reason or "no device is known"
            self._say("occupancy", reason)
            return None
        shared = self._shared_bytes()
        if shared is None:
            self._say("occupancy", "dynamic shared memory: a launch chooses it")
            return None
        try:
            found = occupancy(
                threads=math.prod(self.launch.block),
                registers=registers,
                shared_bytes=shared,
                device=device,
            )
        except UsageError as error:
            self._say("occupancy", str(error))
            return None
        return doc.OccupancyPart(
            blocks_per_sm=found.blocks_per_sm,
            warps_per_sm=found.warps_per_sm,
            percent=found.percent,
            limited_by=found.limited_by,
            limits=found.limits,
            better=tuple(cliff.text for cliff in found.better),
        )

    def _shared_bytes(self) -> int | None:
        given = self.launch.shared_bytes
        return given if given is not None else self.resources.shared_bytes

    def _waves(
        self, device: Device | None, occupied: doc.OccupancyPart | None
    ) -> doc.WavesPart | None:
        if device is None or occupied is None or device.sms is None:
            self._say("waves", "the number of SMs or of blocks on one is not known")
            return None
        found = waves(
            blocks=math.prod(self.launch.grid),
            device=device,
            blocks_per_sm=occupied.blocks_per_sm,
        )
        return doc.WavesPart(
            blocks=found.blocks,
            blocks_per_wave=found.blocks_per_wave,
            waves=found.waves,
            last_wave_blocks=found.last_wave_blocks,
            idle_share=found.idle_share,
        )
