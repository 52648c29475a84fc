"""The static estimate for one launch: what Nsight Compute would count, computed from addresses."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kanalyze.address.grid import UnknownValueError
from kanalyze.address.parts import TooLargeError
from kanalyze.compile import Compiled
from kanalyze.describe import Description, Sources, describe
from kanalyze.devices import Device
from kanalyze.devices import device as find_device
from kanalyze.errors import UsageError, nearest
from kanalyze.launch import Launch
from kanalyze.launched import Cost, Launched
from kanalyze.models import banks, coalescing
from kanalyze.models.flops import flops
from kanalyze.models.footprint import Footprint
from kanalyze.models.layouts import Layout, best, widest
from kanalyze.models.occupancy import occupancy
from kanalyze.models.waves import waves
from kanalyze.pipeline import (
    Settings,
    Subject,
    arguments_of,
    launch_of,
    resources_of,
    subjects_of,
)
from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.lines import source_of
from kanalyze.report import traffic_document as doc
from kanalyze.report.document import Unknown

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
_COUNTERS = {
    ("global", "load"): "global_load",
    ("global", "async_copy"): "global_load",
    ("global", "store"): "global_store",
    ("global", "atomic"): "global_atomic",
    ("global", "reduction"): "global_reduction",
}
_NOT_YET = {
    "l1_miss_sectors": "L1 hits are not modelled yet",
    "l2_read_sectors": "L2 is not modelled yet",
    "l2_write_sectors": "L2 is not modelled yet",
    "dram_read_bytes": "L2 is not modelled yet; compulsory.read_bytes is the least",
    "dram_write_bytes": "L2 is not modelled yet; compulsory.write_bytes is what is written",
    "instructions_executed": "executed SASS instructions are not counted yet",
}


def estimate(
    target: str | Path | ir.Module | Compiled,
    launch: Launch | None = None,
    *,
    device: str | None = None,
    settings: Settings | None = None,
    kernel: str | None = None,
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
    if launch is None:
        launch = launch_of(subject.compiled)
    return _Estimate(subject, function, launch, device).run()


@dataclass
class _Estimate:
    subject: Subject
    function: ir.Function
    launch: Launch
    device_name: str | None

    def __post_init__(self) -> None:
        self.unknown: list[Unknown] = []
        self.assumptions: list[str] = []
        arguments = arguments_of(self.subject, self.function, self.launch)
        self.read = {n for i in self.function.instructions for n in table.uses(i)}
        self.resources = resources_of(self.subject)(self.function.name)
        self.sources = Sources()
        unread = [d.pos.line for d in self.subject.module.diagnostics if d.severity == "error"]
        self.unread = f"statements could not be read (line {unread[0]})" if unread else None
        self.description: Description = describe(
            self.subject.module,
            self.function,
            self.subject.file,
            arguments,
            self.resources,
            self.subject.notes,
            self.sources,
            with_listing=False,
        )
        self.launched = Launched(
            self.description.cfg, self.description.found, self.description.variables, self.launch
        )

    def run(self) -> doc.Traffic:
        costs = [self.launched.cost(access) for access in self.description.found.accesses]
        rows = self._rows(costs)
        counters = self._counters(costs)
        device = self._device()
        total, by_unit = self._flops()
        compulsory = self._compulsory()
        occupied = self._occupancy(device)
        bytes_least = None
        if compulsory.read_bytes is not None and compulsory.write_bytes is not None:
            bytes_least = compulsory.read_bytes + compulsory.write_bytes
        self._say("time.predicted_us", "no bound on the time is computed yet")
        if self.subject.compiled is not None:
            self.assumptions.append(
                f"pointers are aligned to {_ALIGNMENT} bytes, as allocators return them"
            )
        if any(c.access.row.space == "shared" for c in costs):
            self.assumptions.append(
                "shared accesses are those of the PTX; the assembler may drop or merge some"
            )
        return doc.Traffic(
            kernel=self.function.name,
            file=self.subject.file,
            device=device.name if device is not None else None,
            grid=self.launch.grid,
            block=self.launch.block,
            analysed=doc.Analysed(sum(c.counted is not None for c in costs), len(costs)),
            counters=counters,
            interval={},
            compulsory=compulsory,
            occupancy=occupied,
            waves=self._waves(device, occupied),
            time=doc.TimePart({}, None, None),
            flops=total,
            flops_by_unit=by_unit,
            arithmetic_intensity=self._intensity(total, bytes_least),
            registers_per_thread=self.resources.registers,
            shared_bytes=self._shared_bytes(),
            arguments={
                p.name: p.value
                for p in self.launch.params
                if not p.type.startswith("*") and p.value is not None
            },
            accesses=rows,
            layouts=self._layouts(costs),
            assumptions=tuple(self.assumptions),
            unknown=tuple(self.unknown),
        )

    def _intensity(self, operations: float | None, size: int | None) -> float | None:
        if operations is not None and size:
            return operations / size
        missing = "operations or bytes are not known" if size != 0 else "no bytes are moved"
        self._say("arithmetic_intensity", missing)
        return None

    def _say(self, field: str, reason: str) -> None:
        self.unknown.append(Unknown(field, reason))

    # ------------------------------------------------------------ accesses

    def _rows(self, costs: list[Cost]) -> tuple[doc.AccessCounts, ...]:
        rows = []
        described = self.description.kernel.accesses
        for index, (cost, access) in enumerate(zip(costs, described, strict=True)):
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
                    bytes_per_thread=access.bytes_per_thread,
                    requests=counted.requests if counted else None,
                    threads=counted.threads if counted else None,
                    unit="wavefronts" if shared else "sectors",
                    cost=counted.cost if counted else None,
                    ideal_cost=self._ideal(cost) if counted else None,
                    worst=max(counted.by_cost, default=0) if counted else None,
                    reason=cost.reason,
                    loop_depth=access.loop_depth,
                    stage=access.stage,
                    source=access.source,
                    source_text=self._source_text(cost.access.instruction),
                )
            )
        return tuple(rows)

    def _source_text(self, instruction: ir.Instruction) -> str | None:
        place = source_of(instruction.loc, self.subject.module)
        text = self.sources.get(place.file).line(place.line) if place is not None else None
        return text.strip() if text is not None else None

    def _ideal(self, cost: Cost) -> int | None:
        """What the same lanes would cost if they lay contiguously, if that is less."""
        counted, row = cost.counted, cost.access.row
        if counted is None or row.bytes_per_thread is None:
            return None
        if row.space == "shared":
            matrices = (
                row.vector if cost.access.instruction.base in ("ldmatrix", "stmatrix") else None
            )
            apart = counted.requests * banks.ideal(row.kind, row.bytes_per_thread, matrices)
            return min(counted.cost, apart)
        moved = counted.threads * row.bytes_per_thread
        return min(counted.cost, max(counted.requests, -(-moved // coalescing.SECTOR)))

    def _counters(self, costs: list[Cost]) -> dict[str, int | None]:
        groups: dict[str, list[Cost]] = defaultdict(list)
        for name in ("global_load", "global_store", "global_atomic", "global_reduction"):
            groups[name] = []
        shared: dict[str, list[Cost]] = {"shared_load": [], "shared_store": []}
        for cost in costs:
            row = cost.access.row
            counter = _COUNTERS.get((row.space, self._kind(cost)))
            if counter is not None:
                groups[counter].append(cost)
            elif row.space == "shared" and row.kind in ("load", "store"):
                shared[f"shared_{row.kind}"].append(cost)
            elif row.space == "generic":
                for other in ("global_load", "global_store"):
                    groups[other].append(cost)
        counters: dict[str, int | None] = {}
        for name, group in groups.items():
            counters[f"{name}_requests"] = self._total(
                f"counters.{name}_requests", group, "requests"
            )
            counters[f"{name}_sectors"] = self._total(f"counters.{name}_sectors", group, "cost")
        for name, group in shared.items():
            field = f"{name}_wavefronts"
            counters[field] = self._total(f"counters.{field}", group, "cost")
        for name, reason in _NOT_YET.items():
            counters[name] = None
            self._say(f"counters.{name}", reason)
        return counters

    def _kind(self, cost: Cost) -> str:
        """A relaxed atomic whose result nobody reads: the assembler makes it a reduction."""
        instruction, kind = cost.access.instruction, cost.access.row.kind
        ordered = {"acq_rel", "acquire", "release", "cas", "exch"}
        if kind == "atomic" and not ordered & set(instruction.parts):
            written = set(table.definitions(instruction))
            if not written & self.read:
                return "reduction"
        return kind

    def _total(self, field: str, group: list[Cost], part: str) -> int | None:
        reasons = [cost.reason for cost in group if cost.reason is not None]
        if self.unread is not None:
            self._say(field, self.unread)
            return None
        if reasons:
            self._say(
                field, f"{len(reasons)} of {len(group)} accesses are not counted: {reasons[0]}"
            )
            return None
        return sum(int(getattr(cost.counted, part)) for cost in group)

    def _layouts(self, costs: list[Cost]) -> tuple[doc.LayoutPart, ...]:
        """For each shared array with bank conflicts, a layout that takes fewer wavefronts."""
        by_variable: dict[str, list[Cost]] = defaultdict(list)
        for cost, access in zip(costs, self.description.kernel.accesses, strict=True):
            if access.space == "shared" and access.pointer is not None:
                by_variable[access.pointer].append(cost)
        found = []
        for variable, group in by_variable.items():
            counted = [c for c in group if c.counted is not None]
            ideals = [self._ideal(c) for c in counted]
            now = sum(c.counted.cost for c in counted if c.counted is not None)
            if len(counted) < len(group) or None in ideals or now <= sum(i or 0 for i in ideals):
                continue
            better = best(
                now,
                widest([c.access.row.bytes_per_thread or 4 for c in counted]),
                partial(self._with, counted),
            )
            if better is not None:
                found.append(doc.LayoutPart(variable, better[0].words, now, better[1]))
        return tuple(found)

    def _with(self, group: list[Cost], layout: Layout) -> int | None:
        """Wavefronts of all accesses of a shared array with another layout."""
        total = 0
        for cost in group:
            counted = self.launched.cost(cost.access, layout).counted
            if counted is None:
                return None
            total += counted.cost
        return total

    # ------------------------------------------------------------ bytes

    def _compulsory(self) -> doc.Compulsory:
        by_pointer: dict[str, dict[str, list[int]]] = {}
        accesses = self.description.found.accesses
        for index, access in enumerate(self.description.kernel.accesses):
            row = accesses[index].row
            if row.space not in ("global", "generic"):
                continue
            pointer = access.pointer or "unknown"
            kinds = {
                "store": ("write",),
                "atomic": ("read", "write"),
                "reduction": ("read", "write"),
            }
            for kind in kinds.get(row.kind, ("read",)):
                by_pointer.setdefault(pointer, {"read": [], "write": []})[kind].append(index)
        rows = []
        for pointer, kinds_of in by_pointer.items():
            reasons: list[str] = []
            amounts = {kind: self._distinct(indices, reasons) for kind, indices in kinds_of.items()}
            rows.append(
                doc.PointerBytes(
                    pointer, amounts["read"], amounts["write"], reasons[0] if reasons else None
                )
            )
        totals: dict[str, int | None] = {}
        for kind in ("read", "write"):
            known = [getattr(row, f"{kind}_bytes") for row in rows]
            totals[kind] = None if None in known else sum(known)
            if totals[kind] is None:
                reason = next(row.reason for row in rows if row.reason is not None)
                self._say(f"compulsory.{kind}_bytes", reason or "not known")
        return doc.Compulsory(totals["read"], totals["write"], tuple(rows))

    def _distinct(self, indices: list[int], reasons: list[str]) -> int | None:
        """Bytes of the distinct sectors that some accesses of one pointer touch."""
        if self.unread is not None:
            reasons.append(self.unread)
            return None
        if not indices:
            return 0
        accesses = [self.description.found.accesses[i] for i in indices]
        try:
            spans = [self.launched.span(access) for access in accesses]
            widest = max((a.row.bytes_per_thread or 1) for a in accesses)
            footprint = Footprint.over(min(s[0] for s in spans), max(s[1] for s in spans) + widest)
            for access in accesses:
                self.launched.mark(access, footprint)
        except UnknownValueError as error:
            reasons.append(str(error))
            return None
        except TooLargeError:
            reasons.append("too many different sectors")
            return None
        return footprint.sectors * coalescing.SECTOR

    # ------------------------------------------------------------ operations

    def _flops(self) -> tuple[float | None, dict[str, float]]:
        by_unit: dict[str, float] = {}
        if self.unread is not None:
            self._say("flops", self.unread)
            return None, {}
        for block in self.description.cfg.blocks:
            some = [f for f in map(flops, block.instructions) if f is not None]
            wants_tcgen05 = any(i.opcode.startswith("tcgen05.mma") for i in block.instructions)
            if not some and not wants_tcgen05:
                continue
            runs = self.launched.runs(block.index)
            if runs.warps is None or runs.threads is None or wants_tcgen05:
                reason = runs.reason or "the shape of tcgen05.mma is in a register"
                self._say("flops", reason)
                return None, {}
            for work in some:
                times = runs.warps if work.per == "warp" else runs.threads
                by_unit[work.unit] = by_unit.get(work.unit, 0) + work.number * times
        return sum(by_unit.values()), by_unit

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
