"""What a GPU reaches: memory, L2 by the size of what is read, and matrix products.

Copy: bytes read and written by ``Tensor.copy_`` between two buffers far larger than L2. L2: a
buffer of each size is read cyclically, past L1 (``sweep.ptx``); as long as it fits, it comes from
L2. Matrix products: PyTorch's, square, of random data. All by CUDA events, medians.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze.measured.bench.driver import Driver
from kanalyze.measured.bench.gpu import LocalGpu

SIZES_MIB = (1, 2, 4, 6, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 72, 80, 96, 112,
             128, 160, 192, 256, 512, 1024)  # fmt: skip
_PIECE = 65536  # bytes that a block of sweep.ptx reads
_THREADS = 1024
_SWEPT = 4 << 30  # bytes read at each size
_COPY = 2 << 30
_SIDE = 8192
_RUNS = 7


@dataclass(frozen=True)
class MeasuredRates:
    """What was reached. GB/s are 10^9 B/s; ``tflops``: 10^12 operations a second, FMA = 2.

    ``copy_gb_per_s`` counts bytes read and written; ``l2_curve`` is the size read (bytes) and the
    rate; ``reasons`` says of a name why it was not measured.
    """

    device: str
    versions: Mapping[str, str]
    copy_gb_per_s: float
    l2_curve: tuple[tuple[int, float], ...]
    tflops: Mapping[str, float | None]
    reasons: Mapping[str, str]

    @property
    def l2_gb_per_s(self) -> float:
        """The highest rate of the curve."""
        return max(rate for _, rate in self.l2_curve)

    @property
    def read_gb_per_s(self) -> float:
        """The rate of the largest buffer: memory."""
        return self.l2_curve[-1][1]

    def plateaus(self) -> list[tuple[int, int, float]]:
        """Where the curve is flat; see `flat`."""
        return flat(self.l2_curve)

    def to_dict(self, table: Mapping[str, float]) -> dict[str, Any]:
        """The ``measured`` object of the JSON; ``table``: what is known of the GPU otherwise.

        ``shares`` are what was reached over the number of the table, by its name.
        """
        reached = {
            "copy_gb_per_s": (self.copy_gb_per_s, table.get("dram_gb_per_s")),
            "read_gb_per_s": (self.read_gb_per_s, table.get("dram_gb_per_s")),
            "l2_gb_per_s": (self.l2_gb_per_s, table.get("l2_measured_gb_per_s")),
            **{name: (value, table.get(name)) for name, value in self.tflops.items()},
        }
        return {
            "device": self.device,
            "versions": dict(self.versions),
            "copy_gb_per_s": self.copy_gb_per_s,
            "read_gb_per_s": self.read_gb_per_s,
            "l2_gb_per_s": self.l2_gb_per_s,
            "l2_plateaus": [
                {"from_bytes": low, "to_bytes": high, "gb_per_s": rate}
                for low, high, rate in self.plateaus()
            ],
            "l2_curve": [{"bytes": size, "gb_per_s": rate} for size, rate in self.l2_curve],
            "tflops": dict(self.tflops),
            "shares": {
                name: rate / known if rate is not None and known else None
                for name, (rate, known) in reached.items()
            },
            "unknown": [{"field": f"tflops.{k}", "reason": v} for k, v in self.reasons.items()],
        }


def flat(curve: Sequence[tuple[int, float]]) -> list[tuple[int, int, float]]:
    """The plateaus of a curve of rates: smallest size, largest size, median rate.

    A plateau is at least three neighbouring sizes whose rates lie within 5 % of their median. One
    ends where a capacity does: between its largest size and the next one measured.
    """
    plateaus = []
    start = 0
    while start < len(curve):
        end = start + 1
        while end < len(curve) and _level([rate for _, rate in curve[start : end + 1]]):
            end += 1
        if end - start >= 3:
            rates = [rate for _, rate in curve[start:end]]
            plateaus.append((curve[start][0], curve[end - 1][0], statistics.median(rates)))
            start = end
        else:
            start += 1
    return plateaus


def _level(rates: Sequence[float]) -> bool:
    middle = statistics.median(rates)
    return all(abs(rate - middle) <= 0.05 * middle for rate in rates)


def measure(machine: LocalGpu, progress: Callable[[str], None]) -> MeasuredRates:
    """Measure this machine's GPU; takes some ten seconds and 5 GB of its memory."""
    torch = machine.torch
    torch.zeros(1, device="cuda")
    progress("copy")
    copied = _copy(torch)
    torch.cuda.empty_cache()
    curve = tuple(_sweep(torch, Driver(), progress))
    products, reasons = _products(torch, progress)
    return MeasuredRates(machine.device, machine.versions, copied, curve, products, reasons)


def median_seconds(torch: Any, go: Callable[[], Any]) -> float:
    """The median time of a function after two warm-ups."""
    go()
    go()
    times: list[float] = []
    for _ in range(_RUNS):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        go()
        end.record()
        torch.cuda.synchronize()
        times.append(float(start.elapsed_time(end)) / 1e3)
    return statistics.median(times)


def _copy(torch: Any) -> float:
    source = torch.randint(0, 2**31 - 1, (_COPY // 4,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    rate = 2 * _COPY / median_seconds(torch, lambda: target.copy_(source)) / 1e9
    return rate


def _sweep(torch: Any, driver: Driver, progress: Callable[[str], None]) -> list[tuple[int, float]]:
    import ctypes

    text = Path(__file__).with_name("sweep.ptx").read_bytes()
    kernel = driver.load(text, "sweep")
    largest = SIZES_MIB[-1] << 20
    data = torch.randint(0, 2**31 - 1, (largest // 4,), dtype=torch.int32, device="cuda")
    sink = torch.zeros(1, dtype=torch.int32, device="cuda")
    stream = torch.cuda.current_stream().cuda_stream
    curve = []
    for mib in SIZES_MIB:
        progress(f"L2, {mib} MiB")
        size = mib << 20
        values = [
            ctypes.c_uint64(data.data_ptr()), ctypes.c_uint64(sink.data_ptr()),
            ctypes.c_uint32(size // _PIECE),
        ]  # fmt: skip
        blocks = _SWEPT // _PIECE
        go = kernel.launcher((blocks, 1, 1), (_THREADS, 1, 1), 0, values, stream)
        curve.append((size, _SWEPT / median_seconds(torch, go) / 1e9))
    kernel.close()
    return curve


def _products(
    torch: Any, progress: Callable[[str], None]
) -> tuple[dict[str, float | None], dict[str, str]]:
    """TFLOP/s by the names that the device table uses, and why one is missing."""
    rates: dict[str, float | None] = {}
    reasons: dict[str, str] = {}
    makers: dict[str, Callable[[Any], Callable[[], Any]]] = {
        "fp16_tensor_tflops": lambda t: _matmul(t, t.float16),
        "bf16_tensor_tflops": lambda t: _matmul(t, t.bfloat16),
        "tf32_tensor_tflops": lambda t: _matmul(t, t.float32, "high"),
        "fp32_tflops": lambda t: _matmul(t, t.float32, "highest"),
        "fp64_tensor_tflops": lambda t: _matmul(t, t.float64),
        "fp8_tensor_tflops": _fp8,
        "int8_tensor_tops": _int8,
    }
    for name, make in makers.items():
        progress(name)
        try:
            seconds = median_seconds(torch, make(torch))
            rates[name] = 2 * _SIDE**3 / seconds / 1e12
        except (RuntimeError, AttributeError, TypeError) as error:
            rates[name] = None
            reasons[name] = f"PyTorch cannot: {str(error).splitlines()[0][:200]}"
        torch.cuda.empty_cache()
    return rates, reasons


def _matmul(torch: Any, kind: Any, precision: str = "highest") -> Callable[[], Any]:
    torch.set_float32_matmul_precision(precision)
    a, b = (torch.randn(_SIDE, _SIDE, device="cuda", dtype=kind) for _ in range(2))
    out = torch.empty_like(a)
    return lambda: torch.matmul(a, b, out=out)


def _fp8(torch: Any) -> Callable[[], Any]:
    a, b = (torch.randn(_SIDE, _SIDE, device="cuda").to(torch.float8_e4m3fn) for _ in range(2))
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16)


def _int8(torch: Any) -> Callable[[], Any]:
    a, b = (
        torch.randint(-128, 128, (_SIDE, _SIDE), device="cuda", dtype=torch.int8) for _ in range(2)
    )
    return lambda: torch._int_mm(a, b.t())
