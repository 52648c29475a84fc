"""The counters that are read, for each architecture, as ``metrics.toml`` lists them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path

_LISTED = tomllib.loads(Path(__file__).with_name("metrics.toml").read_text("utf-8"))["counters"]

DRAM_BYTES = (("dram__bytes_read.sum", "dram__bytes_op_read.sum"),
              ("dram__bytes_write.sum", "dram__bytes_op_write.sum"))  # fmt: skip
"""Bytes read and written: the names, that of GB202 last."""


def metrics(capability: int) -> tuple[str, ...]:
    """The metrics for a compute capability: 90 for sm_90."""
    return tuple(
        name
        for some in _LISTED
        if some.get("from", 0) <= capability < some.get("below", 1000)
        and capability in some.get("only", [capability])
        for name in some["names"]
    )


def dram_bytes(counters: Mapping[str, float | None]) -> dict[str, float | None]:
    """Bytes ``read`` from and ``written`` to memory; None where they were not measured."""
    read, written = (
        next((counters[n] for n in names if counters.get(n) is not None), None)
        for names in DRAM_BYTES
    )
    return {"read": read, "written": written}
