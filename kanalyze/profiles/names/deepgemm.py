"""DeepGEMM: ``deep_gemm::sm100_fp8_fp4_gemm_1d1d_impl<Major, Major, …, BLOCK_M, BLOCK_N, …>``.

The template parameters change between versions (deep_gemm/include/deep_gemm/impls/*.cuh); only
layouts that the arguments themselves tell apart are read.
"""

from __future__ import annotations

from kanalyze.profiles.names.cpp import Arg
from kanalyze.profiles.names.fields import NameFields

_BLOCK = ("tile_m", "tile_n", "tile_k")


def transform(r: NameFields) -> None:
    """Note, where the version is clear, tile and stages."""
    comp = r.name.last
    words = comp.text.split("_")
    if comp.complete and "gemm" in words:
        r.add_span("op", "gemm", comp.start, comp.end)
    args = r.name.args()
    block, stages = _places(r, comp.text, args)
    if block is not None:
        for key, arg in zip(_BLOCK, args[block : block + 3], strict=False):
            r.number(key, arg)
    if stages is not None and len(args) > stages:
        r.number("stages", args[stages])


def _places(r: NameFields, function: str, args: list[Arg]) -> tuple[int | None, int | None]:
    """Where BLOCK_M and kNumStages stand among the template arguments."""
    enums = 0
    while enums < len(args) and r.text[args[enums].start] == "(" and _is_major(r, args[enums]):
        enums += 1
    if function == "sm100_fp8_fp4_gemm_1d1d_impl" and enums == 2:
        return 7, 14
    if function == "sm90_fp8_gemm_1d2d_impl" and enums <= 1:
        return (5, 11) if enums else (4, 8)
    return None, None


def _is_major(r: NameFields, arg: Arg) -> bool:
    kind = r.text[arg.start + 1 : arg.end].partition(")")[0]
    return kind.rpartition("::")[2] == "Major"
