"""CUTLASS 3.x/4.x: ``cutlass3x_sm90_tensorop_gemm_f16_f16_f32_f16_f16_128x128x64_…``.

The five types are A, B, accumulator, C, D (cutlass_library gemm_operation.py). On sm100 and sm103
the tile's M and N are the matrix instruction's, which with ``_2sm`` spans two blocks.
"""

from __future__ import annotations

from kanalyze.profiles.names.cutlass2x import OPS
from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.grammar import Token
from kanalyze.profiles.names.words import ACC_LETTER

_ORDER = ("a", "b", "acc", "c", "d")


def transform(r: NameFields) -> None:
    """Note cluster, instruction, operation and types, which follow from several words."""
    _cluster(r)
    _instruction(r)
    _kind(r)
    _types(r)
    layouts = list(r.all("TENSOR_LAYOUT"))
    if len(layouts) == 3:
        r.add("tensor_layout_out", layouts[2].text, layouts[2])


def _cluster(r: NameFields) -> None:
    """The cluster, unless 0x0x1: chosen at run time."""
    tokens = [r.one(name) for name in ("CLUSTER_M", "CLUSTER_N", "CLUSTER_K")]
    if any(token is None or token.text == "0" for token in tokens):
        return
    for key, token in zip("mnk", tokens, strict=True):
        if token:
            r.add(f"cluster_{key}", int(token.text), token)


def _instruction(r: NameFields) -> None:
    r.instruction()
    arch, op_class, kind = r.one("ARCH_DIGITS"), r.one("OP_CLASS"), r.one("KIND")
    if (
        arch
        and op_class
        and kind
        and arch.text in ("100", "103")
        and op_class.text != "simt"
        and kind.text in ("gemm", "spgemm", "moe_gemm")
        and not r.has("INST_M")
    ):
        for key, name in (("inst_m", "TILE_M"), ("inst_n", "TILE_N")):
            if token := r.one(name):
                r.add(key, int(token.text), token)


def _kind(r: NameFields) -> None:
    if kind := r.one("KIND"):
        word = kind.text
        if word.startswith("implicit_gemm"):
            base = word.rpartition("_")[2]
            op = word if word == "implicit_gemm_fprop" else f"conv_{base}"
            r.add("op", op, kind, "observed")
        else:
            op = "gemm" if word.endswith("gemm") else OPS[word]
            r.add("op", op, kind)
            if word == "spgemm":
                r.add("sparse", True, kind)
    if conv := r.one("CONV_KIND"):
        r.add("op", OPS[conv.text], conv, "observed")


def _types(r: NameFields) -> None:
    kind = r.one("KIND")
    if kind is None or kind.text.startswith("implicit_gemm"):
        return  # cuDNN's own order, without a public source
    scale: Token | None = None
    block: Token | None = None
    data: list[tuple[Token, Token | None, Token | None]] = []
    for token in r.tokens:
        if token.name == "BLOCK":
            block = token
        elif token.name == "SCALE":
            scale = token
        elif token.name == "DATA":
            data.append((token, scale, block))
            scale = block = None
    if len(data) > len(_ORDER) or (not r.cut and len(data) != len(_ORDER)):
        return
    for key, (token, scale, block) in zip(_ORDER, data, strict=False):
        r.add(f"dtype_{key}", token.text, token)
        if scale and key in "abd":
            r.add(f"scale_{key}", scale.text, scale)
        if block and key in "ab":
            r.add(f"scale_block_{key}", block.text, block)
    if not any(token.name == "DATA" for token in r.tokens) and (acc := r.one("ACC")):
        r.add("dtype_acc", ACC_LETTER[acc.text], acc)
