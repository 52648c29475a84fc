"""CUTLASS 3.x/4.x: ``cutlass3x_sm90_tensorop_gemm_f16_f16_f32_f16_f16_128x128x64_…``.

The five types are A, B, accumulator, C, D (cutlass_library gemm_operation.py). On sm100 and sm103
the tile's M and N are the matrix instruction's, which with ``_2sm`` spans two blocks.
"""

from __future__ import annotations

from kanalyze.profiles.names.cutlass2x import OPS
from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.grammar import Token
from kanalyze.profiles.names.words import ACC_LETTER, INSTRUCTIONS

_ORDER = ("a", "b", "acc", "c", "d")
_FLAGS = {"stream_k": "STREAM_K", "ptr_array": "PTR_ARRAY", "fast_accum": "FAST"}
_SKIPPED = {"cluster_m", "cluster_n", "cluster_k", "stream_k", "ptr_array", "tensor_layout"}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``cutlass3x.lark`` state."""
    for token in r.tokens:
        if token.name.lower() not in _SKIPPED:
            _plain(r, token)
    for key, name in _FLAGS.items():
        if word := r.one(name):
            r.add(key, True, word, "generator")
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch, "generator")
    _cluster(r)
    _instruction(r)
    _kind(r)
    _types(r)
    if words := list(r.all("EPI")):
        start, end = r.base + words[0].start, r.base + words[-1].end
        value = tuple(word.text for word in words)
        r.add_span("epilogue_in_name", value, start, end, "observed")
    if layouts := list(r.all("TENSOR_LAYOUT")):
        r.add("tensor_layout", layouts[0].text, layouts[0], "observed")
        if len(layouts) == 3:
            r.add("tensor_layout_out", layouts[2].text, layouts[2], "observed")


_KEYS = {
    "OP_CLASS": "op_class",
    "TILE_M": "tile_m",
    "TILE_N": "tile_n",
    "TILE_K": "tile_k",
    "STAGES": "stages",
    "LAYOUT": "layout",
    "ALIGN": "align",
    "SCHEDULE": "schedule",
    "LOAD": "load",
    "CTA": "cta_group",
    "SCALE_VEC": "scale_vec",
    "SCALE_VEC_D": "scale_vec_d",
    "EPILOGUE": "epilogue",
    "MIXED_INPUT": "mixed_input",
    "EMULATION": "emulation",
    "MMA_TYPE": "dtype_mma",
    "DIMS": "dims",
    "FILTER_SIZE": "filter_size",
    "INST_M": "inst_m",
    "INST_N": "inst_n",
    "INST_K": "inst_k",
}


def _plain(r: NameFields, token: Token) -> None:
    key = _KEYS.get(token.name)
    if key:
        value = int(token.text) if token.text.isdigit() else token.text
        r.add(key, value, token, "generator")


def _cluster(r: NameFields) -> None:
    """The cluster, unless 0x0x1: chosen at run time."""
    tokens = [r.one(name) for name in ("CLUSTER_M", "CLUSTER_N", "CLUSTER_K")]
    if any(token is None or token.text == "0" for token in tokens):
        return
    for key, token in zip("mnk", tokens, strict=True):
        if token:
            r.add(f"cluster_{key}", int(token.text), token, "generator")


def _instruction(r: NameFields) -> None:
    if inst := r.one("INST"):
        shape = INSTRUCTIONS.get(inst.text)
        if shape:
            for key, value in zip("mnk", shape, strict=True):
                r.add(f"inst_{key}", value, inst, "generator")
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
                r.add(key, int(token.text), token, "generator")


def _kind(r: NameFields) -> None:
    if kind := r.one("KIND"):
        word = kind.text
        if word.startswith("implicit_gemm"):
            base = word.rpartition("_")[2]
            op = word if word == "implicit_gemm_fprop" else f"conv_{base}"
            r.add("op", op, kind, "observed")
        else:
            op = "gemm" if word.endswith("gemm") else OPS[word]
            r.add("op", op, kind, "generator")
            if word == "spgemm":
                r.add("sparse", True, kind, "generator")
    if conv := r.one("CONV_KIND"):
        r.add("op", OPS[conv.text], conv, "observed")
    if word_ := r.one("GROUPED_WORD"):
        r.add("grouped", True, word_, "generator")


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
        r.add(f"dtype_{key}", token.text, token, "generator")
        if scale and key in "abd":
            r.add(f"scale_{key}", scale.text, scale, "generator")
        if block and key in "ab":
            r.add(f"scale_block_{key}", block.text, block, "generator")
    if not any(token.name == "DATA" for token in r.tokens) and (acc := r.one("ACC")):
        r.add("dtype_acc", ACC_LETTER[acc.text], acc, "generator")
