"""Memory-efficient attention: ``fmha_cutlassF_bf16_aligned_32x128_gmem_sm80``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note what the tokens of ``fmha_cutlass.lark`` state."""
    r.named("generator")
    if fmha := r.one("FMHA"):
        r.add("op", "attention", fmha, "generator")
    if direction := r.one("PASS"):
        r.add("direction", "fwd" if direction.text == "F" else "bwd", direction, "generator")
    if aligned := r.one("ALIGNED_WORD"):
        r.add("aligned", aligned.text == "aligned", aligned, "generator")
    for name, key in (("DROPOUT_WORD", "dropout"), ("SEQ_WORD", "seq_aligned")):
        if word := r.one(name):
            r.add(key, True, word, "generator")
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch, "generator")
