"""cuDNN's older convolutions: ``cudnn_infer_volta_scudnn_128x64_relu_xregs_large_nn_v1``."""

from __future__ import annotations

from kanalyze.profiles.names.cublas_legacy import TYPES, product
from kanalyze.profiles.names.fields import NameFields

_OPS = {"fprop": "conv_fprop", "dgrad": "conv_dgrad", "wgrad": "conv_wgrad"}


def transform(r: NameFields) -> None:
    """Note what the tokens of ``cudnn_legacy.lark`` state."""
    r.named("observed")
    loads = list(r.all("LDG_DIGITS"))
    if len(loads) == 1 and not r.cut:
        r.add("ldg", int(loads[0].text), loads[0], "inferred")
    product(r, "cudnn")
    word = next((token for token in r.tokens if token.text == "cudnn"), None)
    kind = r.one("CONV_KIND")
    if kind:
        r.add("op", _OPS[kind.text], kind, "observed")
    elif word and not r.cut:
        r.add("op", "conv", word, "observed")
    if word:
        r.add("library", "cudnn", word, "observed")
    if before := r.one("D_TYPE"):
        r.add("dtype_d", TYPES.get(before.text.partition("x")[0]), before, "observed")
    if after := r.one("A_TYPE"):
        r.add("dtype_a", TYPES.get(after.text.partition("x")[0]), after, "observed")
    if algo := r.one("ALGO_WORD"):
        r.add("algo", algo.text, algo, "observed")
