"""AMD's Tensile and hipBLASLt: ``Cijk_Ailk_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_…``."""

from __future__ import annotations

from kanalyze.names.grammar import Token
from kanalyze.names.reading import Reading

_TYPES = {"S": "f32", "D": "f64", "H": "f16", "B": "bf16", "C": "cf32", "Z": "cf64"}
_LAYOUTS = {"Ailk": "n", "Alik": "t", "Bljk": "n", "Bjlk": "t"}


def transform(r: Reading) -> None:
    """Note what the tokens of ``tensile.lark`` state."""
    r.named("generator")
    if cijk := r.one("CIJK"):
        r.add("op", "gemm", cijk, "generator")
        r.add("vendor", "amd", cijk, "generator")
    a, b = r.one("A_INDEX"), r.one("B_INDEX")
    if a and b and a.text in _LAYOUTS and b.text in _LAYOUTS:
        value = _LAYOUTS[a.text] + _LAYOUTS[b.text]
        r.add_span("layout", value, r.base + a.start, r.base + b.end, "generator")
    _types(r)
    if word := r.one("MI_WORD"):
        r.add("op_class", "mfma", word, "generator")
        third, blocks = r.one("MI_THIRD"), r.one("INST_B")
        if third and blocks:
            r.add("inst_k", int(third.text), third, "generator")
        elif third:
            r.add("inst_k", None, third)
    if isa := r.one("ISA"):
        r.add("arch", f"gfx{isa.text}", isa, "generator")
    if stream := r.one("SK"):
        r.add("stream_k", stream.text != "0", stream, "generator")
    if bias := r.one("EPI"):
        r.add("epilogue_in_name", ("bias",), bias, "generator")


def _types(r: Reading) -> None:
    """``SB``: A's type and "uses beta". ``HHS_BH``: A's and B's type, D's, the arithmetic's."""
    token = r.one("TYPES")
    if token is None:
        return
    text = token.text
    after = next((t for t in r.tokens if t.start == token.end + 1), None)
    if len(text) == 2 and text[1] == "B" and text[0] in _TYPES:
        _ab(r, token, text[0])
    elif len(text) == 3 and all(letter in _TYPES for letter in text):
        _ab(r, token, text[0])
        for place, key in ((1, "dtype_d"), (2, "dtype_acc")):
            start = r.base + token.start + place
            r.add_span(key, _TYPES[text[place]], start, start + 1, "generator")
    elif len(text) == 1 and after and after.text == "B" and text in _TYPES:
        _ab(r, token, text)


def _ab(r: Reading, token: Token, letter: str) -> None:
    start = r.base + token.start
    r.add_span("dtype_a", _TYPES[letter], start, start + 1, "generator")
    r.add_span("dtype_b", _TYPES[letter], start, start + 1, "generator")
