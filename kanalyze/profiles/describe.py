"""A decoded name in a few words."""

from __future__ import annotations

from kanalyze.profiles.document import Launch, Problem, Row
from kanalyze.profiles.names import KernelName
from kanalyze.text.quantities import size

_LIST = 6


def describe(name: KernelName) -> str:
    """What a name states, in a fixed order: architecture, unit, types, tile, stages, …"""
    decoded = name.decoded
    parts: list[str] = []

    def add(*keys: str, before: str = "", after: str = "") -> None:
        values = [decoded[k] for k in keys if k in decoded]
        if values:
            parts.append(before + "x".join(map(str, values)) + after)

    if "arch" in decoded:
        add("arch")
    else:
        add("arch_name")
    add("op_class")
    types = _types(name)
    if types:
        parts.append(types)
    add("tile_m", "tile_n", "tile_k", before="tile ")
    add("block_m", "block_n", before="block ")
    add("head_dim", before="head ")
    add("stages", before="stages ")
    add("cluster_m", "cluster_n", before="cluster ")
    add("inst_m", "inst_n", "inst_k", before="mma ")
    add("layout")
    add("schedule")
    for key in ("split_k", "stream_k", "causal", "sparse"):
        if decoded.get(key) is True:
            parts.append(key.replace("_", "-"))
    add("direction")
    for key in ("collective", "functor_op", "functor"):
        if key in decoded:
            add(key)
            break
    else:
        if "functor" not in decoded and name.family not in ("at_native",):
            add("function")
    fused = decoded.get("fused_ops_list")
    if isinstance(fused, tuple):
        more = f" +{len(fused) - _LIST}" if len(fused) > _LIST else ""
        parts.append("fused " + ", ".join(fused[:_LIST]) + more)
    else:
        add("fused_ops", before="fused ")
        add("fused_ops_prefix", before="fused ", after="…")
    add("vec_size", before="vec ")
    epilogue = decoded.get("epilogue_in_name")
    if isinstance(epilogue, tuple):
        parts.append("epilogue " + "+".join(epilogue))
    if name.truncated:
        parts.append("(name cut)")
    return " ".join(parts)


def _types(name: KernelName) -> str:
    decoded = name.decoded
    order = [decoded.get(k) for k in ("dtype_a", "dtype_b", "dtype_acc", "dtype_d")]
    if not any(order):
        return str(decoded.get("dtype") or decoded.get("dtype_qkv") or "")
    a, b, acc, d = order
    d = d or decoded.get("dtype_c")
    text = str(a or b or acc)
    if b and a and b != a:
        text += f"*{b}"
    mma = decoded.get("dtype_mma")
    if mma and mma != a:
        text += f"({mma})"
    if d and acc and (d != a or acc != a):
        text += f">{acc}>{d}"
    elif acc and acc != a:
        text += f">{acc}"
    return text


def problem(found: Problem) -> str:
    """A matrix product in a few words."""
    batch = f"{found.batch} x " if found.batch != 1 else ""
    text = f"{batch}{found.m} x {found.n} x {found.k} {found.dtype}"
    if found.tflops is not None:
        text += f", {found.tflops:.3g} TFLOP/s"
    if found.peak_share is not None:
        text += f" ({found.peak_share:.0%} of peak)"
    return text


def launch(found: Launch) -> str:
    """A launch in a few words."""
    parts = []
    if found.grid is not None and found.block is not None:
        grid, block = ("x".join(map(str, d)) for d in (found.grid, found.block))
        parts.append(f"grid {grid} block {block}")
    if found.registers_per_thread is not None:
        parts.append(f"{found.registers_per_thread} registers")
    if found.shared_bytes:
        parts.append(f"{found.shared_bytes:,} B shared")
    if found.occupancy is not None:
        parts.append(f"occupancy {100 * found.occupancy:.3g} %")
    if found.waves is not None:
        parts.append(f"{found.waves:.3g} waves")
    return ", ".join(parts)


def counters(row: Row) -> str:
    """The counters of a row that say most, in a few words."""
    values = row.counters
    parts = []
    for label, names in _SHOWN:
        value = next((values[n] for n in names if n in values), None)
        if value is not None:
            parts.append(f"{label} {value:.0f} %")
    for label, metric in (("read", "dram__bytes_read.sum"), ("written", "dram__bytes_write.sum")):
        if metric in values:
            parts.append(f"DRAM {label} {size(values[metric])}")
    return ", ".join(parts)


_SHOWN = (
    ("compute", ("Compute (SM) Throughput", "sm__throughput.avg.pct_of_peak_sustained_elapsed")),
    ("memory", ("Memory Throughput", "Memory [%]",
                "gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed")),
    ("DRAM", ("DRAM Throughput", "dram__throughput.avg.pct_of_peak_sustained_elapsed")),
)  # fmt: skip
