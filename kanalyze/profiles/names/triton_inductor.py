"""TorchInductor: ``triton_per_fused__to_copy_add_mean_7``."""

from __future__ import annotations

from kanalyze.profiles.names.aten_ops import split_ops
from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note the fused operators."""
    category, ops = r.one("CATEGORY"), r.one("OPS")
    if category and r.cut and not r.has("INDEX"):
        _prefix(r, category.end)
    elif ops:
        r.add("fused_ops", ops.text, ops)
        r.add_span("fused_ops_list", split_ops(ops.text), r.base + ops.start, r.base + ops.end)


def _prefix(r: NameFields, after: int) -> None:
    """The operators of a cut name, without the word that the cut runs through."""
    start = r.base + after + len("_fused_")
    end = r.name.path[0].end if r.name.path else len(r.text)
    known = r.text[start:end].rpartition("_")[0]
    if known:
        r.add_span("fused_ops_prefix", known, start, start + len(known))
