"""Copies and fills between memories: ``Memcpy DtoH (Device -> Pinned)``. Not kernels."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields


def transform(r: NameFields) -> None:
    """Note what the tokens of ``memop.lark`` state."""
    copy = r.one("MEMCPY") or r.one("CUDA_COPY") or r.one("ROCM_COPY")
    fill = r.one("MEMSET") or r.one("CUDA_SET") or r.one("ROCM_FILL")
    if copy:
        r.add("kind", "memcpy", copy)
    if fill:
        r.add("kind", "memset", fill)
    if direction := r.one("DIRECTION_WORD"):
        r.add("copy", direction.text, direction)
    elif (rocm := r.one("ROCM_COPY")) is not None:
        start = r.base + rocm.start + len("Copy")
        r.add_span("copy", r.text[start : r.base + rocm.end], start, r.base + rocm.end)
    if memory := r.one("MEMORY_TEXT"):
        r.add("memory", memory.text, memory)
