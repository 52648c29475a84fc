"""cuBLAS's own products: ``ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.words import ACC_LETTER, words


def transform(r: NameFields) -> None:
    """Note operation and types, which follow from several words."""
    unit(r, "gemm")
    acc = r.one("ACC")
    if acc is None:
        return
    word = next((t for t in r.tokens if t.text == "gemm"), None)
    # A triangular result (upper, lower) is syrk, herk or a relative: the name does not say.
    if word and not r.has("UPLO") and r.has("LAYOUT" if not r.cut else "TILE_M"):
        r.add("op", "gemm", word)
    # A's and D's types: as written, else the accumulator's. Complex products (gc) stay open.
    for key, name in (("dtype_d", "D_TYPE"), ("dtype_a", "A_TYPE")):
        if token := r.one(name):
            r.add(key, words("blas_types").get(token.text), token)
        elif r.has("TILE_M") and acc.text in "shd":
            r.add(key, ACC_LETTER[acc.text], acc)


def unit(r: NameFields, word: str) -> None:
    """Note instruction and unit; shared with cuDNN's names of the same make."""
    if acc := r.one("ACC"):
        if inst := r.one("INST"):
            r.add("op_class", "tensorop", inst)
            r.instruction()
        elif any(t.text == word for t in r.tokens):
            r.add("op_class", "simt", acc)
