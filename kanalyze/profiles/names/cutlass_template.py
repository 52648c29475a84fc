"""CUTLASS kernels that carry their C++ type: ``cutlass::device_kernel<GemmUniversal<…>>``.

Of the types, the ones of CUTLASS 3.x's collectives are read (include/cutlass/gemm/collective):
``CollectiveMma<MainloopSm90…<Stages, Cluster, Schedule>, Tile, A, StrideA, B, StrideB, …>``.
"""

from __future__ import annotations

import re

from kanalyze.profiles.names.cpp import Arg, Qualified, read
from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.flash import static_shape
from kanalyze.profiles.names.words import arch_name

_POLICY = re.compile(r"MainloopSm(\d{2,3})[A-Za-z0-9]*$")
_DEEPEST = 4


def transform(r: NameFields) -> None:
    """Note, for CUTLASS 3.x types, tile, cluster, stages and types."""
    name: Qualified | None = r.name
    for _ in range(_DEEPEST):
        args = name.args() if name else []
        if name is None or not args:
            return
        if name.last.text == "GemmUniversal" and len(args) > 1:
            _mainloop(r, args[1], name)
            return
        name = read(name.source, args[0].start, args[0].end)


def _mainloop(r: NameFields, arg: Arg, kernel: Qualified) -> None:
    source = kernel.source
    collective = read(source, arg.start, arg.end)
    if collective is None or collective.last.text != "CollectiveMma":
        return
    r.add_span("op", "gemm", kernel.last.start, kernel.last.end)
    args = collective.args()
    policy = read(source, args[0].start, args[0].end) if args else None
    match = _POLICY.match(policy.last.text) if policy and policy.last.complete else None
    if policy is None or match is None:
        return
    digits, comp = match.group(1), policy.last
    r.add_span("arch", f"sm{digits}", comp.start, comp.end)
    r.add_span("arch_name", arch_name(digits), comp.start, comp.end)
    inner = policy.args()
    if digits == "90" and len(inner) > 1:
        r.number("stages", inner[0])
        static_shape(r, inner[1], ("cluster_m", "cluster_n", "cluster_k"))
    if digits == "90" and len(args) > 1:
        static_shape(r, args[1], ("tile_m", "tile_n", "tile_k"))
    for place, key in ((2, "dtype_a"), (4, "dtype_b")):
        if len(args) > place:
            r.dtype(key, args[place])
