"""A benchmark from its cases to its records: check, time, then count.

The first pass compiles (in other processes), checks and times every launch and its rivals; the
second one counts them all in one run of Nsight Compute. A record is written as soon as its launch
was timed, and again when it was counted, so that whatever ends a run leaves finished records.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from kanalyze.errors import KanalyzeError
from kanalyze.frontend import user_file
from kanalyze.measured.bench import (
    build,
    counter_pass,
    driver,
    event_times,
    nsight,
    record,
    reference,
    rivals,
)
from kanalyze.measured.bench.cases import BenchCase
from kanalyze.measured.bench.gpu import LocalGpu
from kanalyze.measured.records.writer import write_record

_MOST_PROCESSES = 16
_STICKY = (700, 702, 709, 714, 715, 716, 717, 718, 719, 999)
"""Errors of CUDA after which nothing more can be launched in the process (cuda.h, CUresult)."""


@dataclass(frozen=True)
class Options:
    """What is measured besides times, where records go, and when to stop.

    ``seconds``: after which no further launch begins. ``resume``: take finished records as they
    are.
    """

    folder: Path
    counters: bool = True
    rivals: bool = True
    resume: bool = False
    seconds: float | None = None


@dataclass
class Outcome:
    """What came of one case: a record, or why there is none.

    ``status``: ``measured``, ``kept`` (from an earlier run), ``wrong`` (the result is), ``skipped``
    (it does not fit the GPU), ``failed``, ``left`` (not reached).
    """

    case: BenchCase
    status: str = "left"
    reason: str | None = None
    data: dict[str, Any] | None = None


@dataclass
class BenchResult:
    """All outcomes in order, the records of torch.compile's kernels, and how the run ended."""

    outcomes: list[Outcome]
    compiled: list[dict[str, Any]] = field(default_factory=list)
    interrupted: bool = False
    out_of_time: bool = False
    notes: list[str] = field(default_factory=list)


Progress = Callable[[str, int, int, str], None]
"""Is told: the pass, how many are done, of how many, and what was done last."""


def run(
    cases: Sequence[BenchCase], options: Options, gpu: LocalGpu, progress: Progress
) -> BenchResult:
    """Measure all cases; write their records.

    Raises:
        InputError: the records cannot be written.
    """
    return _BenchRun(cases, options, gpu, progress).run()


class _BenchRun:
    def __init__(
        self, cases: Sequence[BenchCase], options: Options, gpu: LocalGpu, progress: Progress
    ):
        self.options, self.machine, self.progress = options, gpu, progress
        self.torch = gpu.torch
        self.result = BenchResult([Outcome(case) for case in cases])
        self.measured: list[counter_pass.LaunchToCount] = []
        self.rivalled: set[tuple[Any, ...]] = set()
        self.began = time.monotonic()
        self.versions = dict(gpu.versions)
        self.ncu: str | None = None
        if options.counters:
            self._look_for_ncu()

    def _look_for_ncu(self) -> None:
        self.ncu = nsight.find_ncu()
        if self.ncu is None:
            self.result.notes.append(
                "Nsight Compute (ncu) is not installed here: times only, no counters "
                "(developer.nvidia.com/nsight-compute)"
            )
        else:
            self.versions["ncu"] = nsight.version(self.ncu) or "unknown"

    def run(self) -> BenchResult:
        """Both passes; an interrupt ends the pass and keeps what is finished."""
        try:
            self._times()
        except KeyboardInterrupt:
            self.result.interrupted = True
            return self.result
        if self.ncu is not None and self.measured:
            self._counters(self.ncu)
        return self.result

    def _late(self) -> bool:
        seconds = self.options.seconds
        return seconds is not None and time.monotonic() - self.began > seconds

    # ------------------------------------------------------------ first pass

    def _times(self) -> None:
        todo = []
        for outcome in self.result.outcomes:
            wanted = self.ncu is not None and outcome.case.counters
            kept = record.finished(self.options.folder, outcome.case, wanted)
            if self.options.resume and kept is not None:
                outcome.status, outcome.data = "kept", kept
                self.result.compiled += record.compiled_beside(self.options.folder, outcome.case)
                if kept.get("rivals"):
                    self.rivalled.add(outcome.case.group)
            else:
                todo.append(outcome)
        if not todo:
            return
        self.driver = driver.Driver()
        self.torch.zeros(1, device="cuda")
        self.stopwatch = event_times.Stopwatch(self.torch)
        self.capture = rivals.Capture()
        arch, device = self.machine.arch, self.machine.device
        with _compiling([o.case for o in todo], arch, device) as futures, self.capture():
            for index, (outcome, future) in enumerate(zip(todo, futures, strict=True)):
                if self._late():
                    self.result.out_of_time = True
                    return
                case = outcome.case
                with_rivals = (
                    self.options.rivals and case.rivals and case.group not in self.rivalled
                )
                if not self._one(outcome, future, with_rivals):
                    return
                if with_rivals and outcome.status == "measured":
                    self.rivalled.add(case.group)
                self.progress("timing", index + 1, len(todo), _line(outcome))

    def _one(
        self, outcome: Outcome, future: Future[build.Launchable | build.NotBuilt], rivals_too: bool
    ) -> bool:
        """Measure one case; False where nothing more can be launched."""
        try:
            built = future.result()
        except Exception as error:  # the process that compiled it died, or failed
            built = build.NotBuilt(f"it could not be compiled: {user_file.one_line(error)}", False)
        if isinstance(built, build.NotBuilt):
            outcome.status = "skipped" if built.impossible else "failed"
            outcome.reason = built.reason
            return True
        try:
            launch = self._measure(outcome.case, built, rivals_too)
        except Exception as error:  # one launch that fails does not hide the others
            text = str(error).strip() or type(error).__name__
            outcome.status, outcome.reason = "failed", text.splitlines()[0][:300]
            lost = getattr(error, "code", None) in _STICKY or "illegal" in text
            if lost:
                self.result.notes.append("after this error CUDA launches nothing more: --resume")
            else:
                self.torch.cuda.empty_cache()
            return not lost
        assert launch.check is not None
        outcome.status = "measured" if launch.check.good else "wrong"
        if not launch.check.good:
            outcome.reason = (
                f"relative norm {launch.check.relative_norm:.2e} where {launch.check.bound:.2e} is "
                f"allowed, {launch.check.not_finite} elements not finite"
            )
        outcome.data = self._write(launch)
        self.measured.append(counter_pass.LaunchToCount(launch, outcome.case))
        self.torch.cuda.empty_cache()
        return True

    def _measure(
        self, case: BenchCase, built: build.Launchable, rivals_too: bool
    ) -> record.MeasuredLaunch:
        torch, target = self.torch, case.target
        reference.contents_known(target, built.params)
        tensors = {
            p.name: reference.tensor(torch, p, poisoned=p.name in target.file.outputs)
            for p in built.params
            if p.type.startswith("*")
        }
        addresses = [
            tensors[p.name].data_ptr() if p.name in tensors else None for p in built.params
        ]
        stream = torch.cuda.current_stream().cuda_stream
        kernel, go = driver.launcher(self.driver, built, addresses, stream)
        go()
        torch.cuda.synchronize()
        limit = reference.bound(target, case.plan.dtype, built)
        check = reference.check(torch, target, case.plan, tensors, limit)
        cold, warm = self.stopwatch.measure(go)
        kernel.close()
        launch = record.MeasuredLaunch(
            case.name, built, addresses, cold, warm, target.text, case.plan.dtype, case.plan.shape,
            check=check, no_counters=self._why_no_counters(case),
        )  # fmt: skip
        if rivals_too:
            launch.rivals = list(self._rivals(case, tensors))
        return launch

    def _why_no_counters(self, case: BenchCase) -> str:
        if not self.options.counters or not case.counters:
            return "not asked for"
        return record.NOT_YET if self.ncu else "Nsight Compute (ncu) is not installed"

    def _rivals(self, case: BenchCase, tensors: Mapping[str, Any]) -> Iterator[rivals.Rival]:
        rivals.prepared(self.torch)
        for name, call in rivals.of(case, tensors).items():
            rival = rivals.Rival(name)
            try:
                self._rival(rival, call, case, tensors)
            except Exception as error:  # a rival that fails is no fault of the kernel's
                rival.error = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
            yield rival

    def _rival(
        self,
        rival: rivals.Rival,
        call: Callable[[], Any],
        case: BenchCase,
        tensors: Mapping[str, Any],
    ) -> None:
        torch, target = self.torch, case.target
        out = call()
        outputs = {target.file.outputs[0]: out.reshape(tensors[target.file.outputs[0]].shape)}
        rival.relative_norm = reference.check(
            torch, target, case.plan, tensors, 0.0, outputs
        ).relative_norm
        del out, outputs
        self.capture.on = True
        call()
        self.capture.on = False
        seen = self.capture.launchables(self.machine.arch, _triton_version())
        rival.kernels = rivals.launched_kernels(torch, call)
        rival.cold, rival.warm = self.stopwatch.measure(call)
        for number, one in enumerate(seen):
            try:
                self._captured(one, f"{case.name}-compiled{number}", case)
            except Exception as error:  # it is a by-product
                self.result.notes.append(
                    f"{case.name}: a compiled kernel was not measured: {error}"
                )

    def _captured(self, built: build.Launchable, name: str, case: BenchCase) -> None:
        """Measure a kernel that torch.compile wrote, alone, on random data."""
        tensors = [
            reference.tensor(self.torch, p) if p.type.startswith("*") else None
            for p in built.params
        ]
        addresses = [None if t is None else t.data_ptr() for t in tensors]
        stream = self.torch.cuda.current_stream().cuda_stream
        kernel, go = driver.launcher(self.driver, built, addresses, stream)
        cold, warm = self.stopwatch.measure(go)
        kernel.close()
        launch = record.MeasuredLaunch(
            name, built, addresses, cold, warm, case.target.text, case.plan.dtype, case.plan.shape,
            provider="torch.compile", no_counters=self._why_no_counters(case),
        )  # fmt: skip
        self.result.compiled.append(self._write(launch))
        self.measured.append(counter_pass.LaunchToCount(launch, case))

    def _write(self, launch: record.MeasuredLaunch) -> dict[str, Any]:
        data = launch.to_dict(self.machine.device, self.versions)
        write_record(self.options.folder, launch.name, data, launch.built.ptx, launch.built.cubin)
        return data

    # ------------------------------------------------------------ second pass

    def _counters(self, ncu: str) -> None:
        seconds = self.options.seconds
        left = None if seconds is None else max(1.0, seconds - (time.monotonic() - self.began))
        self.torch.cuda.empty_cache()
        wanted = [one for one in self.measured if one.case.counters]
        try:
            done = counter_pass.count_all(
                ncu, wanted, self.options.folder, self.machine.capability, left, self.progress
            )
        except KanalyzeError as error:
            self.result.notes.append(f"no counters: {error}")
            for one in wanted:
                one.launch.no_counters = str(error)
        else:
            self.result.notes += done.notes
            self.result.interrupted = done.interrupted
            self.result.out_of_time = self.result.out_of_time or (done.missing > 0 and self._late())
        for one in wanted:
            self._rewrite(one.launch)

    def _rewrite(self, launch: record.MeasuredLaunch) -> None:
        data = self._write(launch)
        for outcome in self.result.outcomes:
            if outcome.data is not None and outcome.data["case"] == launch.name:
                outcome.data = data
        kept = self.result.compiled
        kept[:] = [data if old["case"] == data["case"] else old for old in kept]


def _triton_version() -> str:
    from importlib.metadata import version

    return version("triton")


def _line(outcome: Outcome) -> str:
    if outcome.data is not None and outcome.status != "wrong":
        return f"{outcome.case.name} {1e3 * outcome.data['times_cold_ms']['median']:.1f} us"
    return f"{outcome.case.name} {outcome.status}"


# --- compiling -----------------------------------------------------------------------------------


@contextlib.contextmanager
def _compiling(
    cases: Sequence[BenchCase], arch: str, device: str
) -> Iterator[list[Future[build.Launchable | build.NotBuilt]]]:
    """Futures of every case's launch, compiled in other processes."""
    workers = min(_MOST_PROCESSES, os.cpu_count() or 1, len(cases))
    pool = ProcessPoolExecutor(workers, get_context("spawn"), _deaf)
    try:
        yield [
            pool.submit(
                build.build, one.target.text, one.plan.dtype, dict(one.settings), arch, device
            )
            for one in cases
        ]
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _deaf() -> None:
    """Leave Ctrl-C to the process that measures."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
