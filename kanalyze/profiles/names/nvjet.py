"""cuBLASLt's nvjet: ``nvjet_sm100_qqtst_128x256_128x6_2x1_2cta_v_bz_bias_TNT``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields, Reject

# nvMatmulHeuristics.h (supported precisions); CUTLASS cutlass_library/heuristics_provider.py.
_LETTERS = {
    "h": "f16",
    "t": "bf16",
    "s": "f32",
    "d": "f64",
    "b": "s8",
    "i": "s32",
    "q": "e4m3",
    "r": "e5m2",
    "o": "e2m1",
}
_ORDERS = {
    3: ("dtype_a dtype_b", "dtype_acc", "dtype_c dtype_d"),
    5: ("dtype_a", "dtype_b", "dtype_c", "dtype_acc", "dtype_d"),
}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``nvjet.lark`` state."""
    layout = r.one("LAYOUT")
    if layout and (len(layout.text) == 4) != r.has("WARP_M"):
        raise Reject  # sm120's form has four letters, the other one three
    r.named("documented", hv="observed", coop="observed", tma="observed", layout="inferred")
    if nvjet := r.one("NVJET"):
        r.add("op", "gemm", nvjet, "documented")
        r.add("library", "cublas", nvjet, "documented")
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch)
    _unit(r)
    _types(r)
    if cta := r.one("CTA"):
        r.add("cta_group", int(cta.text), cta, "inferred")
    if split := r.one("SPLIT"):
        r.add("split_k", True, split, "observed")
    if sparse := r.one("SPARSE_WORD"):
        r.add("sparse", True, sparse, "inferred")
    if batch := r.one("PTR_BATCH"):
        r.add("ptr_array", True, batch, "inferred")
    _epilogue(r)
    for name, key in (("A_SCALE", "scale_a"), ("B_SCALE", "scale_b"), ("D_SCALE", "scale_d")):
        if scale := r.one(name):
            r.add(key, scale.text.lower(), scale, "inferred")
    if vector := r.one("D_SCALE_VEC"):
        r.add("scale_vec_d", int(vector.text), vector, "inferred")
    vectors = list(r.all("VEC"))
    if vectors and len({vector.text for vector in vectors}) == 1:
        r.add("scale_vec", int(vectors[0].text), vectors[0], "inferred")


def _unit(r: NameFields) -> None:
    """Tensor cores; left open for f32 and f64 operands without the word tf32."""
    nvjet, tag = r.one("NVJET"), r.one("TAG")
    if nvjet and tag and (tag.text[0] not in "sdcz" or r.has("TAG_WORD")):
        r.add("op_class", "tensorop", nvjet, "observed")


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
            r.add_span(key, value, start, start + 1, "documented")
    word = r.one("TAG_WORD")
    if word and word.text == "tf32":
        r.add("dtype_mma", "tf32", word, "inferred")
    elif word:
        r.add("dtype_mma", None, word)


def _epilogue(r: NameFields) -> None:
    words = list(r.all("EPI", "EPI_AUX"))
    if words:
        texts = ["aux" if word.name == "EPI_AUX" else word.text for word in words]
        value = tuple(dict.fromkeys(texts))
        start, end = r.base + words[0].start, r.base + words[-1].end
        r.add_span("epilogue_in_name", value, start, end, "observed")
