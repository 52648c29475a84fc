"""What a launch reaches at a time that was measured: rates, and shares of the GPU's peak.

What: bytes over time. Formula: distinct bytes (each 32-byte sector that the launch reads, and each
that it writes, once), bytes that requests ask of L1 (sectors x 32), bytes of HBM (estimated), and
operations, each over the time. Source: the counts of the launch; the peak is the device's.
Limits: "distinct" is what an author calls the effective bandwidth; HBM moves more where data are
fetched again, and less where what is written is still in L2 at the end.
"""

from __future__ import annotations

from kanalyze.devices.table import device as find_device
from kanalyze.results import traffic as doc

_SECTOR_BYTES = 32
_ASKED = ("global_load_sectors", "global_store_sectors", "global_atomic_sectors",
          "global_reduction_sectors")  # fmt: skip


def at_time(traffic: doc.Traffic, time_us: float) -> doc.AtTime:
    """Rates of a launch that took so many microseconds; None where what they need is unknown."""
    compulsory, counters = traffic.compulsory, traffic.counters
    distinct = _sum(compulsory.read_bytes, compulsory.write_bytes)
    sectors = [counters[name] for name in _ASKED if name in counters]
    asked = _sum(*sectors)
    hbm = _sum(counters.get("dram_read_bytes"), counters.get("dram_write_bytes"))
    peak = find_device(traffic.device).dram_gb_per_s if traffic.device is not None else None
    rate = None if distinct is None else distinct / time_us / 1e3
    predicted = traffic.time.predicted_us
    return doc.AtTime(
        time_us=time_us,
        distinct_bytes=distinct,
        distinct_gb_per_s=rate,
        requested_gb_per_s=None if asked is None else _SECTOR_BYTES * asked / time_us / 1e3,
        hbm_gb_per_s=None if hbm is None else hbm / time_us / 1e3,
        hbm_peak_gb_per_s=peak,
        hbm_peak_share=None if rate is None or not peak else rate / peak,
        tflops=None if traffic.flops is None else traffic.flops / time_us / 1e6,
        predicted_ratio=None if predicted is None else time_us / predicted,
    )


def _sum(*numbers: int | None) -> int | None:
    return None if None in numbers else sum(n or 0 for n in numbers)
