"""cuDNN's older convolutions: ``cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1``."""

from __future__ import annotations

from kanalyze.profiles.names.cublas_legacy import unit
from kanalyze.profiles.names.fields import NameFields

_OPS = {"fprop": "conv_fprop", "dgrad": "conv_dgrad", "wgrad": "conv_wgrad"}


def transform(r: NameFields) -> None:
    """Note loads, unit and operation, which follow from several words."""
    loads = list(r.all("LDG_DIGITS"))
    if len(loads) == 1 and not r.cut:
        r.add("ldg", int(loads[0].text), loads[0])
    unit(r, "cudnn")
    word = next((token for token in r.tokens if token.text == "cudnn"), None)
    if kind := r.one("CONV_KIND"):
        r.add("op", _OPS[kind.text], kind)
    elif word and not r.cut:
        r.add("op", "conv", word)
    if word:
        r.add("library", "cudnn", word)
