"""CUTLASS 2.x: ``cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x4_tn_align8``.

Written by ``cutlass_library`` (gemm_operation.py, conv2d_operation.py, …): the first type is C's,
written when it is not the accumulator's; the last one is A's, likewise. cuBLAS and cuDNN add the
architecture's digits and epilogue words.
"""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.grammar import Token
from kanalyze.profiles.names.words import ACC_LETTER

OPS = {"gemm": "gemm", "spgemm": "gemm", "fprop": "conv_fprop", "dgrad": "conv_dgrad",
       "wgrad": "conv_wgrad"}  # fmt: skip


def transform(r: NameFields) -> None:
    """Note instruction, operation, types, and what stands between tile and stages."""
    inst = r.instruction()
    _kind(r)
    _types(r)
    # 1x1x1 between tile and stages: the cluster in sm90 names, warps in CUTLASS 2.0's.
    sm90 = r.has("SM") or (inst is not None and inst.text == "1684")
    for key in "mnk":
        if token := r.one(f"MID_{key.upper()}"):
            r.add(f"cluster_{key}", int(token.text) if sm90 else None, token)


def _kind(r: NameFields) -> None:
    kind, planar = r.one("KIND"), r.one("PLANAR")
    if kind and not planar:
        r.add("op", OPS.get(kind.text, kind.text), kind)
    if kind and kind.text == "spgemm":
        r.add("sparse", True, kind)
    if planar:
        r.add("op", "gemm_planar_complex", planar)
        r.add("planar_complex", True, planar)
        if planar.text.endswith("_array"):
            r.add("ptr_array", True, planar)


def _types(r: NameFields) -> None:
    after = list(r.all("TYPE"))
    if len(after) == 5:
        for key, token in zip(("a", "b", "acc", "c", "d"), after, strict=True):
            if key != "acc":
                r.add(f"dtype_{key}", token.text, token)
        return
    # A type that is left out equals the accumulator's; known only when the tile has come, so that
    # nothing was cut off in between.
    acc, kind = r.one("ACC"), r.one("KIND")
    known = acc if r.has("TILE_M") else None

    def note(key: str, written: Token | None) -> None:
        if written:
            r.add(key, written.text, written)
        elif known:
            r.add(key, ACC_LETTER[known.text], known)

    note("dtype_c", r.one("C_TYPE"))
    if not after or known or len(after) > 1:
        note("dtype_a", after[0] if after else None)
        if known and kind is not None and kind.text in ("gemm", "spgemm"):
            note("dtype_b", after[-1] if after else None)
