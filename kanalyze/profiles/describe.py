"""A decoded name in a few words."""

from __future__ import annotations

from kanalyze.profiles.names import KernelName

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
