"""xmma of cuBLAS, cuDNN and TensorRT: ``sm80_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize64x32x64_…``.

Without a public grammar: types are read as input and output, then what the instruction reads and
adds up in, as holds for every name in the shipped libraries.
"""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.grammar import Token

_WORDS = {"i8": "s8", "i32": "s32", "i4": "s4"}
_TENSOR_ONLY = frozenset({"tf32", "bf16", "e4m3", "e5m2"})


def transform(r: NameFields) -> None:
    """Note algorithm, types, layout and unit, which follow from several words."""
    words = list(r.all("ALGO_WORD"))
    if words and r.has("G1"):
        start, end = r.base + words[0].start, r.base + words[-1].end
        r.add_span("algo", r.text[start:end], start, end)
    if r.has("OP_WORD"):
        _types(r)
        ab, c = r.one("LAYOUT_AB"), r.one("LAYOUT_C")
        if ab and c:
            r.add_span("layout", ab.text + c.text, r.base + ab.start, r.base + c.end)
    _unit(r)


def _unit(r: NameFields) -> None:
    unit = r.one("TENSOR_WORD") or r.one("GROUP_WORD")
    second = r.one("G2")
    if unit:
        r.add("op_class", "tensorop", unit)
    elif ffma := r.one("FFMA"):
        r.add("op_class", "simt", ffma)
    elif second and second.text in _TENSOR_ONLY:
        r.add("op_class", "tensorop", second, "inferred")


def _types(r: NameFields) -> None:
    first, second, third = list(r.all("G1")), list(r.all("G2")), r.one("G3")
    if not second:
        return  # the first group may go on behind the cut
    if len(first) in (2, 3):
        _add(r, "dtype_a", first[0])
        _add(r, "dtype_b", first[1] if len(first) == 3 else first[0])
        _add(r, "dtype_d", first[-1])
    if third is None:
        return
    if len(second) in (2, 3):
        _add(r, "dtype_mma", second[0])
        _add(r, "dtype_acc", second[-1])
    _add(r, "dtype_epilogue", third)


def _add(r: NameFields, key: str, token: Token) -> None:
    r.add(key, _WORDS.get(token.text, token.text), token)
