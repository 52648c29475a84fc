"""cuBLAS's own products: ``ampere_fp16_s16816gemm_fp16_64x64_ldg8_f2f_stages_64x6_tn``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.words import ACC_LETTER, INSTRUCTIONS

TYPES = {
    "fp16": "f16",
    "bf16": "bf16",
    "fp32": "f32",
    "fp64": "f64",
    "tf32": "tf32",
    "cf32": "cf32",
    "int8": "s8",
    "s8": "s8",
    "u8": "u8",
    "int32": "s32",
}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``cublas_legacy.lark`` state."""
    r.named(
        "observed", stages="documented", tile_k="documented", layout="documented", ldg="inferred"
    )
    product(r, "gemm")
    uplo = r.one("UPLO")
    if acc := r.one("ACC"):
        word = next((t for t in r.tokens if t.text == "gemm"), None)
        # A triangular result (upper, lower) is syrk, herk or a relative: the name does not say.
        if word and uplo is None and r.has("LAYOUT" if not r.cut else "TILE_M"):
            r.add("op", "gemm", word, "documented")
        _types(r, acc.text)


def product(r: NameFields, word: str) -> None:
    """Note accumulator, instruction and unit; shared with cuDNN's names of the same make."""
    if acc := r.one("ACC"):
        r.add("dtype_acc", ACC_LETTER[acc.text], acc, "documented")
        inst = r.one("INST")
        shape = INSTRUCTIONS.get(inst.text) if inst else None
        if inst:
            r.add("op_class", "tensorop", inst, "observed")
        elif any(t.text == word for t in r.tokens):
            r.add("op_class", "simt", acc, "observed")
        if inst and shape:
            for key, value in zip("mnk", shape, strict=True):
                r.add(f"inst_{key}", value, inst, "observed")
    r.epilogue()
    if split := r.one("SPLIT"):
        r.add("split_k", True, split, "observed")


def _types(r: NameFields, letter: str) -> None:
    """A's and D's types: as written, else the accumulator's. Complex products (gc) stay open."""
    acc = r.one("ACC")
    before, after = r.one("D_TYPE"), r.one("A_TYPE")
    known = r.has("TILE_M")
    if before:
        r.add("dtype_d", TYPES.get(before.text), before, "observed")
    elif acc and known and letter in "shd":
        r.add("dtype_d", ACC_LETTER[letter], acc, "observed")
    if after:
        r.add("dtype_a", TYPES.get(after.text.partition("x")[0]), after, "observed")
    elif acc and known and letter in "shd":
        r.add("dtype_a", ACC_LETTER[letter], acc, "observed")
