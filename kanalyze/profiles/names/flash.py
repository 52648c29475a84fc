"""FlashAttention 2 and 3 (Dao-AILab/flash-attention), also as PyTorch builds it in.

Version 2 carries its shape in ``Flash_fwd_kernel_traits<head, M, N, warps, …, type>``; version 3 in
``CollectiveMainloopFwdSm90<stages, cluster, tile, head of V, type, …>``.
"""

from __future__ import annotations

from kanalyze.profiles.names.cpp import Arg, Qualified, read, truth
from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.words import cpp_dtype

_TRAITS = {
    "Flash_fwd_kernel_traits": ("head_dim", "block_m", "block_n", "num_warps"),
    "Flash_bwd_kernel_traits": ("head_dim", "block_m", "block_n", "num_warps"),
}
# Kernels whose bools after the traits begin with dropout and causal; or with causal.
_DROPOUT_FIRST = frozenset(
    {
        "flash_fwd_kernel",
        "flash_bwd_dq_dk_dv_loop_kernel",
        "flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel",
    }
)
_CAUSAL_FIRST = frozenset({"flash_fwd_splitkv_kernel"})
_DEEPEST = 6


def transform(r: NameFields) -> None:
    """Note direction, shape, type and masks."""
    name: Qualified | None = r.name
    for _ in range(_DEEPEST):
        if name is None or not name.last.text.startswith("enable_sm"):
            break
        args = name.args()
        name = read(name.source, args[0].start, args[0].end) if args else None
    if name is None:
        return
    comp = name.last
    if name.path[0].text not in ("flash", "pytorch_flash") and len(name.path) > 1:
        return
    r.add_span("op", "attention", comp.start, comp.end)
    for word, direction in (("fwd", "fwd"), ("bwd", "bwd"), ("Fwd", "fwd"), ("Bwd", "bwd")):
        if comp.text.startswith((f"flash_{word}_", f"FlashAttn{word}")):
            r.add_span("direction", direction, comp.start, comp.end)
    if comp.text.startswith("flash_"):
        if comp.complete:
            r.function(comp)
        _version2(r, name)
    else:
        _version3(r, name)


def _version2(r: NameFields, name: Qualified) -> None:
    args = name.args()
    for place, arg in enumerate(args):
        traits = read(name.source, arg.start, arg.end)
        if traits is None or traits.last.text not in _TRAITS:
            continue
        comp = traits.last
        # Version 2 is written for sm80 (csrc/flash_attn/src/flash_fwd_launch_template.h).
        r.add_span("arch", "sm80", comp.start, comp.end)
        r.add_span("arch_name", "ampere", comp.start, comp.end)
        inner = traits.args()
        combine = name.last.text == "flash_fwd_splitkv_combine_kernel"
        for key, value in zip(_TRAITS[comp.text], inner, strict=False):
            if not (combine and key.startswith("block_")):
                r.number(key, value)
        _element(r, inner)
        _bools(r, name, args[place + 1 :])
        return


def _bools(r: NameFields, name: Qualified, args: list[Arg]) -> None:
    whole = name.source.closed(name.last.args)
    if name.last.text in _DROPOUT_FIRST:
        keys = ["dropout", "causal"]
        count = sum(truth(r.text[a.start : a.end]) is not None for a in args)
        if whole and count >= 6:
            keys.append("local")
    elif name.last.text in _CAUSAL_FIRST:
        keys = ["causal"]
    else:
        return
    for key, arg in zip(keys, args, strict=False):
        r.truth(key, arg)


def _element(r: NameFields, args: list[Arg]) -> None:
    """The first argument that is an element type."""
    for arg in args:
        text = r.text[arg.start : arg.end]
        if arg.complete and "::" in text and cpp_dtype(text):
            r.dtype("dtype", arg)
            return


def _version3(r: NameFields, name: Qualified) -> None:
    args = name.args()
    if not args:
        return
    mainloop = read(name.source, args[0].start, args[0].end)
    if mainloop is None or not mainloop.last.text.startswith("CollectiveMainloop"):
        mainloop = None
    inner = mainloop.args() if mainloop else args
    _element(r, inner)
    for arg in inner:
        if arg.complete and r.text[arg.start : arg.end].startswith("cutlass::arch::Sm"):
            digits = r.text[arg.start + len("cutlass::arch::Sm") : arg.end]
            if digits.isdigit():
                r.add_span("arch", f"sm{digits}", arg.start, arg.end)
                if digits == "90":
                    r.add_span("arch_name", "hopper", arg.start, arg.end)
            break
    if mainloop and mainloop.last.text == "CollectiveMainloopFwdSm90":
        _forward90(r, mainloop, inner)


def _forward90(r: NameFields, mainloop: Qualified, args: list[Arg]) -> None:
    if len(args) < 4:
        return
    r.number("stages", args[0])
    static_shape(r, args[1], ("cluster_m", "cluster_n", "cluster_k"))
    static_shape(r, args[2], ("block_m", "block_n", "head_dim"))
    before = len(r.fields)
    r.number("head_dim_v", args[3])
    if len(r.fields) > before and len(args) > 8:
        # <…, HeadDimV, Element, ElementAccum, Arch, Is_causal, Is_local, …>; forks without HeadDimV
        # have other parameters there.
        r.truth("causal", args[7])
        r.truth("local", args[8])


def static_shape(r: NameFields, arg: Arg, keys: tuple[str, ...]) -> None:
    """``cute::tuple<cute::C<128>, cute::C<64>, …>``: one number each."""
    source = r.name.source
    shape = read(source, arg.start, arg.end)
    if shape is None or shape.last.text != "tuple":
        return
    for key, item in zip(keys, shape.args(), strict=False):
        constant = read(source, item.start, item.end)
        if constant is not None and constant.last.text in ("C", "constant"):
            values = constant.args()
            if values and source.closed(constant.last.args):
                r.number(key, values[-1])
