"""cuDNN's generated attention: ``cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_…``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note what the tokens of ``cudnn_sdpa.lark`` state."""
    r.named("observed")
    if word := r.one("SDPA"):
        r.add("op", "attention", word, "observed")
        start = r.base
        r.add_span("library", "cudnn", start, start + len("cudnn"), "observed")
    if arch := r.one("ARCH_DIGITS"):
        r.arch(arch, "observed")
    if direction := r.one("DIRECTION_WORD"):
        r.add("direction", "fwd" if direction.text == "fprop" else "bwd", direction, "observed")
