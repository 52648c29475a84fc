"""TorchInductor: ``triton_per_fused__to_copy_add_mean_7``."""

from __future__ import annotations

from kanalyze.profiles.names.aten_ops import split_ops
from kanalyze.profiles.names.fields import NameFields

# First three letters of the heuristics decorator (torch/_inductor/codegen/triton.py).
_CATEGORY = {
    "poi": "pointwise",
    "red": "reduction",
    "per": "persistent_reduction",
    "tem": "template",
    "for": "foreach",
    "spl": "split_scan",
    "mix": "mix_order_reduction",
}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``triton_inductor.lark`` state."""
    category = r.one("CATEGORY")
    if category is None:
        return
    r.add("op", _CATEGORY[category.text], category, "generator")
    r.add_span("generator", "inductor", r.base, r.base + 6, "generator")
    if index := r.one("INDEX"):
        r.add("index", int(index.text), index, "generator")
    if r.cut and index is None:
        _prefix(r, category.end)
        return
    ops = r.one("OPS")
    if ops is None:
        return
    r.add("fused_ops", ops.text, ops, "generator")
    known = split_ops(ops.text)
    if known:
        r.add("fused_ops_list", known, ops, "inferred")


def _prefix(r: NameFields, after: int) -> None:
    """The operators of a cut name, without the word that the cut runs through."""
    start = r.base + after + len("_fused_")
    end = r.name.path[0].end if r.name.path else len(r.text)
    known = r.text[start:end].rpartition("_")[0]
    if known:
        r.add_span("fused_ops_prefix", known, start, start + len(known), "generator")
