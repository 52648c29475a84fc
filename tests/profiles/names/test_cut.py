"""Names that a profiler cut: what is decoded never contradicts the whole name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kanalyze.profiles.names import KernelName, decode

DATA = Path(__file__).parents[2] / "data" / "names"
PREFIXES = {"function_prefix": "function", "fused_ops_prefix": "fused_ops"}
LONGEST = 700


def sample() -> list[str]:
    names = []
    for path in sorted(DATA.glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        whole = [row["name"] for row in rows if not row["truncated"]]
        names.extend(name for name in whole[:4] if len(name) <= LONGEST)
    return names


def contradictions(whole: KernelName, part: KernelName) -> list[str]:
    """Return what the cut name states and the whole name does not bear out."""
    found = []
    for key, value in part.decoded.items():
        if key in PREFIXES:
            full = whole.decoded.get(PREFIXES[key])
            if full is None and key == "function_prefix":
                full = whole.text  # the family gives no function: any part of the name will do
                fine = str(value) in str(full)
            else:
                fine = str(full).startswith(str(value))
        elif key not in whole.decoded:
            fine = key == "function"  # a wrapper, or a word of a family without functions
        elif isinstance(value, tuple):
            full = whole.decoded[key]
            fine = isinstance(full, tuple) and full[: len(value)] == value
        else:
            fine = whole.decoded[key] == value
        if not fine:
            found.append(f"{key}={value!r}, whole: {whole.decoded.get(key)!r}")
    return found


@pytest.mark.parametrize("mark", ["...", "…", "?"])
@pytest.mark.parametrize("name", sample(), ids=lambda name: name[:50])
def test_cut_with_a_mark_at_every_place(name: str, mark: str) -> None:
    whole = decode(name)
    for end in range(1, len(name)):
        if name[end - 1] in ".…?":
            continue
        part = decode(name[:end] + mark)
        assert part.truncated
        assert not contradictions(whole, part), (name[:end], contradictions(whole, part))
        for field in part.fields:
            assert part.text[field.start : field.end] == field.text
            assert field.end <= end


@pytest.mark.parametrize("name", sample(), ids=lambda name: name[:50])
def test_cut_without_a_mark(name: str) -> None:
    """At the lengths at which profilers cut; a whole alignment or counter cannot be told apart."""
    whole = decode(name)
    for end in (55, 63, 64, 100):
        if end < len(name):
            part = decode(name[:end])
            wrong = [
                c for c in contradictions(whole, part) if not c.startswith(("align=", "index="))
            ]
            assert not wrong, (name[:end], wrong)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64...", "tile_n"),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3...", "stages"),
        ("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_nn_align8...", "align"),
        ("nvjet_sm100_qqtst_128x256_128x6_2x1...", "cluster_n"),
        ("triton_poi_fused_add_mul_12...", "index"),
        ("volta_sgemm_128x32…", "tile_n"),
        ("Cijk_Alik_Bljk_SB_MT64x64x8...", "tile_k"),
        ("void at::native::vectorized_elementwise_kernel<4...", "vec_size"),
    ],
)
def test_a_number_at_the_cut_is_not_trusted(name: str, key: str) -> None:
    kernel = decode(name)
    assert kernel.truncated
    assert key not in kernel.decoded


def test_a_number_at_the_end_of_a_name_of_suspect_length() -> None:
    name = "cutlass_80_tensorop_bf16_s16816gemm_bgrada_bf16_128x128_64x3_nn_align8"
    cut = name[: name.index("128x128") + len("128x128")]
    assert len(cut) == 55
    assert "tile_n" not in decode(cut).decoded
    assert decode(cut).decoded["tile_m"] == 128


def test_only_the_last_word_may_be_unfinished() -> None:
    assert decode("volta_sgemm_128x32_sliced1x4...").family == "cublas_legacy"
    assert decode("volta_sgemm_128x32_-_sliced1x4_nn...").family == "other"
    assert decode("nvjet_tst_64x64_64-16_2x1_v_bz_TNT...").family == "other"


def test_a_cut_return_type_is_not_the_function() -> None:
    assert dict(decode("std::enable_if<!(false), void>...").decoded) == {}
    assert dict(decode("void ...").decoded) == {}


def test_a_number_before_the_cut_is_trusted() -> None:
    decoded = decode("cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_128x64_64x3_n...").decoded
    assert decoded["tile_n"] == 64
    assert decoded["stages"] == 3
    assert "layout" not in decoded


def test_a_cut_in_the_parameters_leaves_the_rest_whole() -> None:
    name = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_16x6_nn_align1>(cutlass_80_t?"
    kernel = decode(name)
    assert kernel.truncated
    assert kernel.decoded["align"] == 1


def test_the_word_at_the_cut_is_not_part_of_a_name() -> None:
    assert decode("triton_red_fused_add_mean_native_lay...").decoded["fused_ops_prefix"] == (
        "add_mean_native"
    )
    kernel = decode("void at::native::(anonymous namespace)::upsample_nearest3d_out_f...")
    assert kernel.decoded["function_prefix"] == "upsample_nearest3d_out"
    assert "function" not in kernel.decoded


def test_a_name_that_only_looks_cut() -> None:
    """Short names without a mark are not cut, even where a grammar would go on."""
    for name in ("triton_poi_fused", "nvjet", "ampere_sgemm", "cutlass_80"):
        kernel = decode(name)
        assert (kernel.family, kernel.truncated) == ("other", False)
