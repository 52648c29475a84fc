"""AMD's Tensile and hipBLASLt: ``Cijk_Ailk_Bljk_BBS_BH_MT32x32x64_MI16x16x16x1_…``."""

from __future__ import annotations

import re

from kanalyze.profiles.names.fields import NameFields

_TYPES = {"S": "f32", "D": "f64", "H": "f16", "B": "bf16", "C": "cf32", "Z": "cf64", "I8": "s8",
          "I": "s32", "F8": "e4m3", "B8": "e5m2"}  # fmt: skip
_TYPE = re.compile(r"I8|F8|B8|[SDHBCZI]")
_OLD = re.compile(r"[SDHBCZ]B?H?")
_KEYS = {
    3: ("dtype_a dtype_b", "dtype_d", "dtype_acc"),
    4: ("dtype_a", "dtype_b", "dtype_d", "dtype_acc"),
}
_LAYOUTS = {"Ailk": "n", "Alik": "t", "Bljk": "n", "Bjlk": "t"}


def transform(r: NameFields) -> None:
    """Note layout, types and instruction, which follow from several words."""
    a, b = r.one("A_INDEX"), r.one("B_INDEX")
    if a and b and a.text in _LAYOUTS and b.text in _LAYOUTS:
        r.add_span("layout", _LAYOUTS[a.text] + _LAYOUTS[b.text], r.base + a.start, r.base + b.end)
    _types(r)
    if third := r.one("MI_THIRD"):
        r.add("inst_k", int(third.text) if r.has("INST_B") else None, third)


def _types(r: NameFields) -> None:
    """``SB``, ``HBH``: A's and B's type. ``HHS_BH``: A's and B's type, D's, the arithmetic's."""
    token = r.one("TYPES")
    if token is None:
        return
    text = token.text
    start = r.base + token.start
    after = next((t for t in r.tokens if t.start == token.end + 1), None)
    parts = list(_TYPE.finditer(text))
    keys = _KEYS.get(len(parts)) if "".join(p.group() for p in parts) == text else None
    marks = after.text if after is not None and after.name == "HIGH" else ""
    if not marks:
        # Older names: the type, B (uses beta), H (high-precision accumulation) in one word.
        keys = ("dtype_a dtype_b",) if _OLD.fullmatch(text) else None
    elif len(parts) == 1 and marks == "B":
        keys = ("dtype_a dtype_b",)
    if keys is None:
        r.add("dtype", None, token)
        return
    for key, part in zip(keys, parts, strict=False):
        for one in key.split():
            value = _TYPES[part.group()]
            r.add_span(one, value, start + part.start(), start + part.end())
