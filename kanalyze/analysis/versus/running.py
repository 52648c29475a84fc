"""Launches side by side: compiled, estimated one by one, and summed up."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kanalyze.analysis.launch import estimate
from kanalyze.analysis.versus.baselines import Baseline, find
from kanalyze.errors import InputError, KanalyzeError, UsageError
from kanalyze.frontend import kernel_file
from kanalyze.frontend.compile import Compiled
from kanalyze.frontend.subject import Settings
from kanalyze.frontend.targets import compiled_for
from kanalyze.performance.cache_sim.calibration import Calibration
from kanalyze.results import comparison as doc
from kanalyze.results import traffic
from kanalyze.results.kernel import UnknownField

GROWING = ("compulsory_bytes", "dram_bytes", "predicted_us")
COLD = (
    "each launch begins with cold caches, as Nsight Compute measures: what a launch leaves in L2 "
    "for the next one is read from HBM"
)
RESIDUE = "what is still modified in L2 when a launch ends is not written to HBM, nor counted as it"
_REQUESTED = tuple(f"global_{kind}_sectors" for kind in ("load", "store", "atomic", "reduction"))
_OF_A_LAUNCH = (
    "device: ", "machine code: ", "the memory model was never", "time: ", "what if: ",
    "calibrated: ", "types from", "constexprs from", "autotune: ", "heuristics",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Asked:
    """What is compared.

    Args:
        target: a bundled kernel, or ``file.py:kernel``.
        options: how it is compiled: settings, element type, architecture.
        other: a baseline (see `kanalyze.analysis.versus.baselines`) or another target; None: no
        other, or
            the target itself where ``other_settings`` are given.
        other_settings: settings of the other side alone, on top of what it gets from the target.
        over: a name of the settings, and the values that it takes.
        device: the GPU; a usual one of the architecture if left out.
        what_if: factors on its rates.
        calibration: measured parameters of GPUs.
        simulate: whether caches, HBM and time are estimated, too.
    """

    target: str
    options: Settings
    other: str | None = None
    other_settings: Mapping[str, str] | None = None
    over: tuple[str, tuple[int, ...]] | None = None
    device: str | None = None
    what_if: Mapping[str, float] | None = None
    calibration: Calibration | None = None
    simulate: bool = True


@dataclass(frozen=True, slots=True)
class _Wanted:
    """A launch to estimate: what it is called, and how it is compiled."""

    what: str
    target: str
    options: Settings
    launches: int = 1


def compare(
    asked: Asked, on_error: Callable[[KanalyzeError], None] | None = None
) -> doc.Comparison:
    """Estimate all launches of both sides, at every value.

    Args:
        asked: what is compared.
        on_error: gets what went wrong with a single launch, which is unknown then; raised if left
            out.

    Raises:
        UsageError: an unknown kernel, baseline, name or value.
        KanalyzeError: the target or the baseline cannot be read.
    """
    return _Comparing(asked, on_error).run()


class _Comparing:
    def __init__(self, asked: Asked, on_error: Callable[[KanalyzeError], None] | None):
        self.asked = asked
        self.on_error = on_error
        self.unknown: list[UnknownField] = []
        self.assumed: dict[str, None] = {}
        self.device: str | None = None
        self.known: dict[str, traffic.Traffic | KanalyzeError] = {}
        self.baseline = find(asked.other) if asked.other is not None else None

    def run(self) -> doc.Comparison:
        asked = self.asked
        name, values = asked.over if asked.over is not None else (None, (None,))
        points: list[doc.Point] = []
        first: Compiled | None = None
        for value in values:
            options = asked.options
            if name is not None:
                options = replace(options, settings={**options.settings, name: str(value)})
            compiled = self._compiled(options, None if name is None else f"{name}={value}")
            if compiled is None:
                continue
            first = first or compiled
            wanted = [[_Wanted(compiled.source_function, asked.target, options)]]
            if asked.other is not None or asked.other_settings is not None:
                wanted.append(self._other(compiled, options))
            sides = tuple(
                self._side(side, f"points[{len(points)}].sides[{index}]")
                for index, side in enumerate(wanted)
            )
            points.append(doc.Point(value, sides))
        if first is None:
            raise InputError("none of the values can be compiled", file=asked.target)
        names, summaries = self._named(first)
        if asked.simulate:
            self.assumed[RESIDUE] = None
            if any(side.totals.launches > 1 for side in points[0].sides):
                self.assumed[COLD] = None
        return doc.Comparison(
            device=self.device,
            sides=names,
            summaries=summaries,
            dtype=first.dtype,
            over=name,
            settings={k: v for k, v in first.shape.items() if k != name},
            estimated=asked.simulate,
            points=tuple(points),
            growth=growth(points) if name is not None else (),
            assumptions=tuple(self.assumed),
            unknown=tuple(self.unknown),
        )

    def _compiled(self, options: Settings, value: str | None) -> Compiled | None:
        """The first side, compiled; None where a value cannot be, and the others can do without."""
        try:
            return compiled_for(self.asked.target, options)
        except InputError as error:
            if value is None or self.on_error is None:
                raise
            self.on_error(error)
            self.unknown.append(UnknownField("points", f"{value}: {error.message}"))
            return None

    # ------------------------------------------------------------ what is compared

    def _named(self, first: Compiled) -> tuple[tuple[str, ...], tuple[str, ...]]:
        asked = self.asked
        given = ", ".join(f"{k}={v}" for k, v in (asked.other_settings or {}).items())
        if self.baseline is not None:
            other, summary = self.baseline.name, self.baseline.summary
        elif asked.other is not None:
            other, summary = asked.other, given
        elif given:
            other, summary = f"with {given}", "the same kernel"
        else:
            return (first.source_function,), ("",)
        return (first.source_function, other), ("", summary)

    def _other(self, first: Compiled, options: Settings) -> list[_Wanted]:
        own = dict(self.asked.other_settings or {})
        if self.baseline is not None:
            return self._steps(self.baseline, first, own)
        if self.asked.other is None:
            both = {**options.settings, **own}
            return [_Wanted(first.source_function, self.asked.target,
                            replace(options, settings=both))]  # fmt: skip
        target = self.asked.other
        shape = _shape_of(target)
        if shape is None:
            settings: dict[str, object] = {**options.settings, **own}
            return [_Wanted(target, target, replace(options, settings=settings))]
        settings = {name: value for name, value in first.shape.items() if name in shape}
        made = Settings(options.arch, first.dtype, {**settings, **own})
        return [_Wanted(target, target, made)]

    def _steps(self, baseline: Baseline, first: Compiled, own: dict[str, str]) -> list[_Wanted]:
        if own:
            raise UsageError(f"'{baseline.name}' is a sequence of kernels: it takes no settings")
        return [
            _Wanted(
                step.what,
                step.target,
                Settings(
                    self.asked.options.arch, first.dtype, step.values(first.shape, baseline.name)
                ),
                step.launches,
            )
            for step in baseline.steps
        ]

    # ------------------------------------------------------------ estimates

    def _side(self, wanted: Sequence[_Wanted], field: str) -> doc.Side:
        steps = tuple(
            self._step(one, f"{field}.steps[{index}]") for index, one in enumerate(wanted)
        )
        return doc.Side(steps, totals(steps))

    def _step(self, wanted: _Wanted, field: str) -> doc.Step:
        options = wanted.options
        given = {name: str(value) for name, value in sorted(options.settings.items())}
        key = repr((wanted.target, replace(options, settings=given)))
        if key not in self.known:
            self.known[key] = self._estimate(wanted)
        estimated = self.known[key]
        if isinstance(estimated, KanalyzeError):
            reason = estimated.message if isinstance(estimated, InputError) else str(estimated)
            self.unknown.append(UnknownField(field, reason))
            return doc.Step(wanted.what, wanted.target, wanted.launches, (), *[None] * 12)
        self.unknown += [UnknownField(f"{field}.{u.field}", u.reason) for u in _why(estimated)]
        for text in estimated.assumptions:
            if text.startswith(_OF_A_LAUNCH):
                self.assumed[text] = None
        self.device = self.device or estimated.device
        return _as_step(wanted, estimated)

    def _estimate(self, wanted: _Wanted) -> traffic.Traffic | KanalyzeError:
        asked = self.asked
        try:
            return estimate(
                compiled_for(wanted.target, wanted.options),
                device=asked.device,
                what_if=asked.what_if,
                calibration=asked.calibration,
                simulate=asked.simulate,
                findings=False,
            )
        except KanalyzeError as error:
            if self.on_error is None or isinstance(error, UsageError):
                raise
            self.on_error(error)
            return error


def _shape_of(target: str) -> Mapping[str, str] | None:
    """The names of the shape of a kernel file; None if the target is no such file."""
    known = kernel_file.bundled()
    if target in known:
        return known[target].shape
    path = target.partition(".py:")[0]
    try:
        return kernel_file.read(path if path.endswith(".py") else f"{path}.py").shape
    except InputError:
        return None


def _why(estimated: traffic.Traffic) -> list[UnknownField]:
    """The reasons that concern what a step shows, and are not known from what was asked for."""
    shown = ("counters.dram", "counters.l1_miss", "counters.global", "time.", "compulsory", "flops")
    return [u for u in estimated.unknown if u.field.startswith(shown)]


def _bytes(estimated: traffic.Traffic, *counters: str) -> int | None:
    sectors = _sum([estimated.counters.get(name) for name in counters])
    return None if sectors is None else int(32 * sectors)


def _as_step(wanted: _Wanted, estimated: traffic.Traffic) -> doc.Step:
    least = estimated.compulsory
    both = (least.read_bytes, least.write_bytes)
    return doc.Step(
        what=wanted.what,
        kernel=estimated.kernel,
        launches=wanted.launches,
        grid=estimated.grid,
        compulsory_bytes=None if None in both else sum(n or 0 for n in both),
        l1_bytes=_bytes(estimated, *_REQUESTED),
        l2_bytes=_bytes(estimated, "l1_miss_sectors", "l2_write_sectors"),
        dram_read_bytes=estimated.counters.get("dram_read_bytes"),
        dram_write_bytes=estimated.counters.get("dram_write_bytes"),
        dram_read_interval=estimated.interval.get("dram_read_bytes"),
        flops=estimated.flops,
        predicted_us=estimated.time.predicted_us,
        interval_us=estimated.time.interval_us,
        bound_by=estimated.time.bound_by,
        tflops=estimated.time.achieved.get("tflops"),
        hbm_gb_per_s=estimated.time.achieved.get("hbm_gb_per_s"),
    )


def totals(steps: Sequence[doc.Step]) -> doc.SideTotals:
    """Sums over launches, each as often as it is launched."""

    def added(name: str) -> float | None:
        return _sum([None if (v := getattr(s, name)) is None else v * s.launches for s in steps])

    def whole(name: str) -> int | None:
        value = added(name)
        return None if value is None else int(value)

    read, write = whole("dram_read_bytes"), whole("dram_write_bytes")
    return doc.SideTotals(
        launches=sum(step.launches for step in steps),
        compulsory_bytes=whole("compulsory_bytes"),
        l1_bytes=whole("l1_bytes"),
        l2_bytes=whole("l2_bytes"),
        dram_read_bytes=read,
        dram_write_bytes=write,
        dram_bytes=None if read is None or write is None else read + write,
        flops=added("flops"),
        predicted_us=added("predicted_us"),
    )


def _sum(numbers: Sequence[float | None]) -> float | None:
    known = [number for number in numbers if number is not None]
    return sum(known) if len(known) == len(numbers) else None


def growth(points: Sequence[doc.Point]) -> tuple[doc.Growth, ...]:
    """How each side's sums grow over the last doubling of what is swept.

    Formula: ``log(y / y0) / log(x / x0)``, from the greatest value ``x0`` of at most half the last
    one (the one before the last, if there is none) to the last.
    """
    ordered = sorted((p for p in points if p.value is not None), key=lambda p: p.value or 0)
    if len({p.value for p in ordered}) < 2:
        return ()
    last = ordered[-1]
    assert last.value is not None
    halves = [p for p in ordered if (p.value or 0) * 2 <= last.value]
    start = (halves or [p for p in ordered if p.value != last.value])[-1]
    assert start.value is not None
    rows = []
    for quantity in GROWING:
        exponents = []
        for before, after in zip(start.sides, last.sides, strict=True):
            low, high = getattr(before.totals, quantity), getattr(after.totals, quantity)
            known = bool(low) and bool(high)
            ratio = math.log(last.value / start.value)
            exponents.append(math.log(high / low) / ratio if known else None)
        rows.append(doc.Growth(quantity, start.value, last.value, tuple(exponents)))
    return tuple(rows)
