"""THE table of what the static estimate is compared with: counter, Nsight Compute's metric, how.

Three kinds of comparison: ``exact`` (computed from addresses, must equal the counter), ``bound``
(never above the counter, which adds what cannot be known beforehand) and ``estimate`` (a model;
relative errors are reported).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of the estimate and what it is compared with.

    Attributes:
        counter: the key in `kanalyze.Traffic`, dotted: ``counters`` is left out.
        metrics: names that Nsight Compute has for it; GB202 has other ones for DRAM.
        kind: "exact", "bound" or "estimate".
        unit: of both, after ``scale``.
        reason: why it is of that kind.
        scale: what a metric's value is multiplied by.
        digits: decimals to which the profiler rounds; None: it does not.
        of_device: whether it depends on the GPU, not only on the architecture.
        of_code: whether it depends on the machine code, so that the record needs its cubin.
        optional: whether a record with counters may lack it without a word.
    """

    counter: str
    metrics: tuple[str, ...]
    kind: str
    unit: str
    reason: str
    scale: float = 1
    digits: int | None = None
    of_device: bool = False
    of_code: bool = False
    optional: bool = False


_LANES = "counted from the addresses of every warp"
_GLOBAL = tuple(
    Metric(
        f"global_{kind}_{what}",
        (f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum",),
        "exact",
        what,
        _LANES,
        optional=op in ("atom", "red"),
    )
    for kind, op in (("load", "ld"), ("store", "st"), ("atomic", "atom"), ("reduction", "red"))
    for what in ("requests", "sectors")
)
_SHARED = tuple(
    Metric(
        f"shared_{kind}_wavefronts",
        (f"l1tex__data_pipe_lsu_wavefronts_mem_shared_op_{op}.sum",),
        "bound",
        "wavefronts",
        "the counter adds wavefronts that arbitration between warps costs",
        of_code=True,
        optional=True,
    )
    for kind, op in (("load", "ld"), ("store", "st"))
)

METRICS = (
    *_GLOBAL,
    Metric(
        "instructions_executed",
        ("smsp__inst_executed.sum",),
        "exact",
        "instructions",
        "the machine code's instructions, times how often each is executed",
        of_code=True,
    ),
    Metric(
        "occupancy.percent",
        ("sm__maximum_warps_per_active_cycle_pct",),
        "exact",
        "%",
        "the rules of cuda_occupancy.h",
        digits=2,
        of_device=True,
        optional=True,
    ),
    Metric(
        "waves.waves",
        ("launch__waves_per_multiprocessor",),
        "exact",
        "waves",
        "blocks over blocks that fit on the GPU at a time",
        digits=2,
        of_device=True,
        optional=True,
    ),
    *_SHARED,
    Metric(
        "l1_miss_sectors",
        ("l1tex__m_xbar2l1tex_read_sectors.sum",),
        "estimate",
        "sectors",
        "what L1 still holds depends on how warps interleave",
        of_device=True,
    ),
    Metric(
        "l2_read_sectors",
        ("lts__t_sectors_srcunit_tex_op_read.sum",),
        "estimate",
        "sectors",
        "the request coalescer merges what happens to arrive together",
        of_device=True,
    ),
    Metric(
        "l2_write_sectors",
        ("lts__t_sectors_srcunit_tex_op_write.sum",),
        "estimate",
        "sectors",
        "partial writes may be merged on their way",
        of_device=True,
    ),
    Metric(
        "dram_read_bytes",
        ("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
        "estimate",
        "B",
        "what L2 still holds depends on how far blocks drift apart",
        of_device=True,
    ),
    Metric(
        "dram_write_bytes",
        ("dram__bytes_write.sum", "dram__bytes_op_write.sum"),
        "estimate",
        "B",
        "what stays dirty in L2 at the end is not written back in the measurement",
        of_device=True,
    ),
    Metric(
        "time.predicted_us",
        ("gpu__time_duration.sum",),
        "estimate",
        "µs",
        "bounds by bandwidth, units and issue rate; clocks are not fixed",
        scale=1e-3,
        of_device=True,
    ),
)
"""What is compared, in the order of reports."""

BY_COUNTER: Mapping[str, Metric] = {metric.counter: metric for metric in METRICS}


def absent(counters: Mapping[str, object]) -> list[str]:
    """Metrics that a record with counters should hold and does not (null counts as held)."""
    return [
        metric.metrics[0]
        for metric in METRICS
        if not metric.optional and not any(name in counters for name in metric.metrics)
    ]
