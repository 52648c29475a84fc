"""CUTLASS 2.x: ``cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x4_tn_align8``.

Written by ``cutlass_library`` (gemm_operation.py, conv2d_operation.py, …): the first type is C's,
written when it is not the accumulator's; the last one is A's, likewise. cuBLAS and cuDNN add the
architecture's digits and epilogue words.
"""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.grammar import Token
from kanalyze.profiles.names.words import ACC_LETTER, INSTRUCTIONS

OPS = {
    "gemm": "gemm",
    "spgemm": "gemm",
    "fprop": "conv_fprop",
    "dgrad": "conv_dgrad",
    "wgrad": "conv_wgrad",
}
_SIDE = {"ls": "left", "rs": "right", "left": "left", "right": "right"}
_UPLO = {"l": "lower", "u": "upper", "lower": "lower", "upper": "upper"}
_DIAG = {"un": "unit", "nu": "nonunit", "unit": "unit", "nonunit": "nonunit"}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``cutlass2x.lark`` state."""
    r.named(
        "generator",
        tile_m="documented",
        tile_n="documented",
        tile_k="documented",
        stages="documented",
    )
    arch = r.one("ARCH_DIGITS")
    if arch:
        r.arch(arch, "observed")
    acc = r.one("ACC")
    if acc:
        r.add("dtype_acc", ACC_LETTER[acc.text], acc, "generator")
    shape = INSTRUCTIONS.get(inst.text) if (inst := r.one("INST")) else None
    if inst and shape:
        for key, value in zip(("inst_m", "inst_n", "inst_k"), shape, strict=True):
            r.add(key, value, inst, "generator")
    mma = r.one("MMA_TYPE")
    if mma:
        r.add("dtype_mma", mma.text, mma, "generator")
    _kind(r)
    _types(r, acc)
    r.epilogue()
    _middle(r, inst)
    for name, key, table in (("SIDE_WORD", "side", _SIDE), ("UPLO_WORD", "uplo", _UPLO)):
        if word := r.one(name):
            r.add(key, table[word.text], word, "generator")
    if word := r.one("DIAG_WORD"):
        r.add("diag", _DIAG[word.text], word, "generator")


def _kind(r: NameFields) -> None:
    kind = r.one("KIND")
    planar = r.one("PLANAR")
    if kind and not planar:
        r.add("op", OPS.get(kind.text, kind.text), kind, "generator")
    if dims := r.one("DIM_DIGIT"):
        r.add("dims", int(dims.text), dims, "generator")
    if kind and kind.text == "spgemm":
        r.add("sparse", True, kind, "generator")
    if planar:
        r.add("op", "gemm_planar_complex", planar, "generator")
        r.add("planar_complex", True, planar, "generator")
        if planar.text.endswith("_array"):
            r.add("ptr_array", True, planar, "generator")
    if word := r.one("GROUPED_WORD"):
        r.add("grouped", True, word, "generator")
    if word := r.one("FAST"):
        r.add("fast_accum", True, word, "generator")


def _types(r: NameFields, acc: Token | None) -> None:
    before = r.one("C_TYPE")
    after = list(r.all("TYPE"))
    if len(after) == 5:
        for key, token in zip(("a", "b", "acc", "c", "d"), after, strict=True):
            if key != "acc":
                r.add(f"dtype_{key}", token.text, token, "generator")
        return
    # A type that is left out equals the accumulator's; known only when the tile has come, so that
    # nothing was cut off in between.
    known = acc and r.has("TILE_M")
    kind = r.one("KIND")
    both = known and kind is not None and kind.text in ("gemm", "spgemm")
    if before:
        r.add("dtype_c", before.text, before, "generator")
    elif acc and known:
        r.add("dtype_c", ACC_LETTER[acc.text], acc, "generator")
    if after and (known or len(after) > 1):
        r.add("dtype_a", after[0].text, after[0], "generator")
        if both:
            r.add("dtype_b", after[-1].text, after[-1], "generator")
    elif acc and known:
        r.add("dtype_a", ACC_LETTER[acc.text], acc, "generator")
        if both:
            r.add("dtype_b", ACC_LETTER[acc.text], acc, "generator")


def _middle(r: NameFields, inst: Token | None) -> None:
    """``1x1x1`` between tile and stages: the cluster in sm90 names, warps in CUTLASS 2.0's."""
    sm90 = r.has("SM") or (inst is not None and inst.text == "1684")
    for key, name in zip("mnk", ("MID_M", "MID_N", "MID_K"), strict=True):
        if token := r.one(name):
            value = int(token.text) if sm90 else None
            r.add(f"cluster_{key}", value, token, "generator")
