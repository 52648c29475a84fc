"""The calibrating kernels on this machine's GPU.

`kanalyze.measured.bench.calibration_solver` makes parameters of what is measured here. Times are
those of CUDA events with a cold L2 (`kanalyze.measured.bench.event_times`); of the cyclic reads,
which run for milliseconds, those of events alone. Takes some ten seconds and 2 GB of the GPU's
memory.
"""

from __future__ import annotations

import ctypes
import datetime
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kanalyze.devices.table import Device
from kanalyze.errors import KanalyzeError, UsageError
from kanalyze.frontend.compile import Compiled, compile_kernel
from kanalyze.measured.bench.build import ELEMENT_BYTES, Launchable, launchable
from kanalyze.measured.bench.calibration_solver import CalibrationTimes, launches
from kanalyze.measured.bench.driver import Driver, launcher
from kanalyze.measured.bench.event_times import Stopwatch
from kanalyze.measured.bench.gpu import LocalGpu
from kanalyze.measured.bench.reached_rates import median_seconds
from kanalyze.performance.cache_sim.parameters import machine as parameters_of

PIECE = 4096  # bytes that a block of cyclic.ptx reads in a step
THREADS = 256
_PASSES = 3
_PARTS = 16  # sizes are multiples of the expected capacity over this


def sizes(capacity: int) -> tuple[int, ...]:
    """Sizes of the buffer: from 3/8 of the expected capacity to 7/4 of it."""
    step = capacity // _PARTS
    parts = range(3 * _PARTS // 8, 7 * _PARTS // 4 + 1)
    return tuple(-(-step * part // PIECE) * PIECE for part in parts)


def steps(size: int) -> int:
    """Pieces that a block reads: some passes over the buffer."""
    return _PASSES * size // PIECE


def calibrate(
    machine: LocalGpu, device: Device, progress: Callable[[str], None]
) -> tuple[CalibrationTimes, dict[str, Compiled]]:
    """Run the kernels; what was measured, and what ran.

    Raises:
        UsageError: the device table does not know how many SMs the GPU has.
    """
    if device.sms is None:
        raise UsageError(f"the SMs of {device.name} are not known: {device.why_unknown('sms')}")
    torch, driver = machine.torch, Driver()
    torch.zeros(1, device="cuda")
    capacity = int(parameters_of(device)["l2_bytes_per_side"])
    curve = []
    for size in sizes(capacity):
        progress(f"L2, {size / 2**20:.1f} MiB")
        curve.append((size, _cyclic(torch, driver, size, device.sms)))
    times: dict[str, float] = {}
    reasons: dict[str, str] = {}
    compiled: dict[str, Compiled] = {}
    watch = Stopwatch(torch)
    for launch in launches():
        progress(launch.name)
        try:
            made = compile_kernel(
                launch.target, arch=machine.arch, dtype=launch.dtype, settings=dict(launch.settings)
            )
            times[launch.name] = _time(torch, driver, watch, launchable(made, None))
            compiled[launch.name] = made
        except (KanalyzeError, RuntimeError) as error:
            reasons[launch.name] = str(error).partition("\n")[0][:200]
    date = datetime.datetime.now(datetime.UTC).date().isoformat()
    return CalibrationTimes(
        device.name, date, machine.versions, tuple(curve), times, reasons
    ), compiled


def _cyclic(torch: Any, driver: Driver, size: int, blocks: int) -> float:
    """GB/s of reading a buffer cyclically, one block an SM."""
    kernel = driver.load(Path(__file__).with_name("cyclic.ptx").read_bytes(), "cyclic")
    data = torch.zeros(size // 4, dtype=torch.int32, device="cuda")
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    count = steps(size)
    values = [
        ctypes.c_uint64(data.data_ptr()), ctypes.c_uint64(sink.data_ptr()),
        ctypes.c_uint32(size // PIECE), ctypes.c_uint32(count),
    ]  # fmt: skip
    stream = torch.cuda.current_stream().cuda_stream
    go = kernel.launcher((blocks, 1, 1), (THREADS, 1, 1), 0, values, stream)
    rate = blocks * count * PIECE / median_seconds(torch, go) / 1e9
    kernel.close()
    return rate


def _time(torch: Any, driver: Driver, watch: Stopwatch, built: Launchable) -> float:
    """Microseconds of a launch on random data, with a cold L2."""
    buffers: list[Any] = []
    for param in built.params:
        if param.dims is None:
            buffers.append(None)
            continue
        number = param.bytes // ELEMENT_BYTES[param.element]
        kind = {"fp16": torch.float16, "fp32": torch.float32}[param.element]
        buffers.append(torch.randn(number, device="cuda").to(kind))
    addresses = [None if buffer is None else buffer.data_ptr() for buffer in buffers]
    stream = torch.cuda.current_stream().cuda_stream
    kernel, go = launcher(driver, built, addresses, stream)
    cold, _ = watch.measure(go)
    kernel.close()
    return 1e3 * cold.median
