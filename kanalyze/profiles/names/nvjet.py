"""cuBLASLt's nvjet: ``nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields, Reject

# nvMatmulHeuristics.h (supported precisions); CUTLASS cutlass_library/heuristics_provider.py.
_LETTERS = {"h": "f16", "t": "bf16", "s": "f32", "d": "f64", "b": "s8", "i": "s32", "q": "e4m3",
            "r": "e5m2", "o": "e2m1"}  # fmt: skip
_ORDERS = {
    3: ("dtype_a dtype_b", "dtype_acc", "dtype_c dtype_d"),
    5: ("dtype_a", "dtype_b", "dtype_c", "dtype_acc", "dtype_d"),
}


def transform(r: NameFields) -> None:
    """Note unit, types, epilogue and scales, which follow from several words."""
    layout = r.one("LAYOUT")
    if layout and (len(layout.text) == 4) != r.has("WARP_M"):
        raise Reject  # sm120's form has four letters, the other one three
    _unit(r)
    _types(r)
    r.epilogue("EPI", "EPI_AUX")
    for key in "abd":
        if scale := r.one(f"{key.upper()}_SCALE"):
            r.add(f"scale_{key}", scale.text.lower(), scale)
    vectors = list(r.all("VEC"))
    if vectors and len({vector.text for vector in vectors}) == 1:
        r.add("scale_vec", int(vectors[0].text), vectors[0])


def _unit(r: NameFields) -> None:
    """Tensor cores; left open for f32 and f64 operands without the word tf32."""
    nvjet, tag = r.one("NVJET"), r.one("TAG")
    if nvjet and tag and (tag.text[0] not in "sdcz" or r.has("TAG_WORD")):
        r.add("op_class", "tensorop", nvjet)


def _types(r: NameFields) -> None:
    """One letter per type. Tags of other lengths, and the letters u and w, are not understood."""
    tag = r.one("TAG")
    order = _ORDERS.get(len(tag.text)) if tag else None
    if tag is None:
        return
    if order is None:
        r.add("dtype", None, tag)
        return
    for place, (letter, keys) in enumerate(zip(tag.text, order, strict=True)):
        value = _LETTERS.get(letter)
        start = r.base + tag.start + place
        for key in keys.split():
            r.add_span(key, value, start, start + 1)
    word = r.one("TAG_WORD")
    if word and word.text == "tf32":
        r.add("dtype_mma", "tf32", word)
    elif word:
        r.add("dtype_mma", None, word)
