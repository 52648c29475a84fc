"""The special registers of PTX: width in bits, meaning, and whether a launch fixes their value.

Source: PTX ISA, chapter "Special Registers".
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SpecialRegister:
    """``known`` tells whether grid, block and position in them determine the value."""

    bits: int
    meaning: str
    known: bool


def _known(meaning: str, bits: int = 32) -> SpecialRegister:
    return SpecialRegister(bits, meaning, True)


def _moving(meaning: str, bits: int = 32) -> SpecialRegister:
    return SpecialRegister(bits, meaning, False)


SPECIAL: dict[str, SpecialRegister] = {
    "tid": _known("thread index in the block"),
    "ntid": _known("threads in the block"),
    "laneid": _known("lane of the warp"),
    "warpid": _moving("warp slot of the SM"),
    "nwarpid": _moving("warp slots of the SM"),
    "ctaid": _known("block index in the grid"),
    "nctaid": _known("blocks in the grid"),
    "smid": _moving("SM that runs the block"),
    "nsmid": _moving("SM numbers"),
    "gridid": _moving("number of the launch", 64),
    "is_explicit_cluster": _moving("whether the launch has clusters", 1),
    "clusterid": _known("cluster index in the grid"),
    "nclusterid": _known("clusters in the grid"),
    "cluster_ctaid": _known("block index in the cluster"),
    "cluster_nctaid": _known("blocks in the cluster"),
    "cluster_ctarank": _known("rank of the block in the cluster"),
    "cluster_nctarank": _known("blocks in the cluster"),
    "lanemask_eq": _moving("mask of this lane"),
    "lanemask_le": _moving("mask of this lane and those below"),
    "lanemask_lt": _moving("mask of the lanes below"),
    "lanemask_ge": _moving("mask of this lane and those above"),
    "lanemask_gt": _moving("mask of the lanes above"),
    "clock": _moving("cycle counter"),
    "clock_hi": _moving("cycle counter, upper half"),
    "clock64": _moving("cycle counter", 64),
    "globaltimer": _moving("nanosecond timer", 64),
    "globaltimer_lo": _moving("nanosecond timer, lower half"),
    "globaltimer_hi": _moving("nanosecond timer, upper half"),
    "reserved_smem_offset_begin": _moving("reserved shared memory"),
    "reserved_smem_offset_end": _moving("reserved shared memory"),
    "reserved_smem_offset_cap": _moving("reserved shared memory"),
    "total_smem_size": _moving("shared memory of the block"),
    "aggr_smem_size": _moving("shared memory of the block"),
    "dynamic_smem_size": _moving("dynamic shared memory of the block"),
    "current_graph_exec": _moving("graph that is executed", 64),
}
SPECIAL |= {f"pm{i}": _moving("performance counter") for i in range(8)}
SPECIAL |= {f"pm{i}_64": _moving("performance counter", 64) for i in range(8)}
SPECIAL |= {f"envreg{i}": _moving("set by the driver") for i in range(32)}
SPECIAL |= {f"reserved_smem_offset_{i}": _moving("reserved shared memory") for i in range(2)}


def special_register(name: str) -> SpecialRegister | None:
    """Return the row of ``%tid.x`` (with ``%``, with or without a component), None for others."""
    return SPECIAL.get(name[1:].partition(".")[0]) if name.startswith("%") else None
