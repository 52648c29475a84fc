"""The counters that are read, by Nsight Compute's metric names, for each architecture.

Which unit has which counter was looked up in the metric database of CUPTI 13.0 for each chip:
`ltcfabric` exists where L2 has two parts (GA100, GH100, GB100), `lrc` (the coalescer between SMs
and L2) in GH100 and GB100, wavefronts of `wgmma` operands in GH100 alone, `stmatrix` and TMA from
GH100 on, `cp.async` from GA100 on; GB202 calls the bytes of DRAM otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

_L1 = "l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"

_EVERYWHERE = (
    *(
        _L1.format(what=w, op=o)
        for w in ("requests", "sectors")
        for o in ("ld", "st", "red", "atom")
    ),
    "l1tex__t_sectors_pipe_lsu_mem_global_op_ld_lookup_hit.sum",
    *(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared{op}.sum" for op in ("", "_op_ld", "_op_st")),
    *(f"l1tex__data_pipe_lsu_wavefronts_mem_shared{op}.sum" for op in ("", "_op_ld", "_op_st")),
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "l1tex__m_l1tex2xbar_write_sectors.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "lts__t_sectors_srcunit_tex_lookup_hit.sum",
    "lts__t_sectors_srcunit_tex_lookup_miss.sum",
    "lts__t_sectors_op_read.sum",
    "lts__t_sectors_op_write.sum",
    "sm__cycles_elapsed.max",
    "gpu__time_duration.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "sm__maximum_warps_per_active_cycle_pct",
    "smsp__inst_executed.sum",
    "smsp__thread_inst_executed.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    *(f"sm__inst_executed_pipe_{pipe}.sum" for pipe in ("alu", "fma", "lsu", "tensor", "xu")),
    "launch__registers_per_thread",
    "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers",
    "launch__occupancy_limit_shared_mem",
    "launch__occupancy_limit_warps",
    "launch__shared_mem_config_size",
    "launch__waves_per_multiprocessor",
)
_DRAM = (
    "dram__bytes_read.sum", "dram__bytes_write.sum",
    "dram__sectors_read.sum", "dram__sectors_write.sum",
)  # fmt: skip
_DRAM_GB202 = ("dram__bytes_op_read.sum", "dram__bytes_op_write.sum")
_FROM_SM_80 = (
    "sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum",
    "sm__sass_l1tex_t_sectors_pipe_lsu_mem_global_op_ldgsts.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__inst_executed_op_ldsm.sum",
)
_FROM_SM_90 = ("smsp__inst_executed_op_shared_stsm.sum", "sm__inst_executed_pipe_tma.sum")
_FABRIC = ("lts__t_sectors_srcunit_ltcfabric.sum",)
_LRC = ("lrc__xbar2lrc_requests.sum",)
_GMMA = ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum",)

DRAM_BYTES = (("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
              ("dram__bytes_write.sum", "dram__bytes_op_write.sum"))  # fmt: skip
"""Bytes read and written: the names, that of GB202 last."""


def metrics(capability: int) -> tuple[str, ...]:
    """The metrics for a compute capability: 90 for sm_90."""
    names = [*_EVERYWHERE, *(_DRAM_GB202 if capability >= 120 else _DRAM)]
    if capability >= 80:
        names += _FROM_SM_80
    if capability >= 90:
        names += _FROM_SM_90
    if capability in (80, 90, 100, 103):
        names += _FABRIC
    if capability in (90, 100, 103):
        names += _LRC
    if capability == 90:
        names += _GMMA
    return tuple(names)


def dram_bytes(counters: Mapping[str, float | None]) -> dict[str, float | None]:
    """Bytes ``read`` from and ``written`` to memory; None where they were not measured."""
    read, written = (
        next((counters[n] for n in names if counters.get(n) is not None), None)
        for names in DRAM_BYTES
    )
    return {"read": read, "written": written}
