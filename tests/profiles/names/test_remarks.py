"""What names mean in sentences; suffixes of old Triton, operators that can be read in two ways."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze import decode
from kanalyze.cli.app import cli
from kanalyze.profiles.names.aten_ops import split_ops, ways_to_split

QUESTIONS = Path(__file__).parents[3] / "samples" / "questions"


def expected(folder: str) -> dict[str, object]:
    data = json.loads((QUESTIONS / folder / "expected.json").read_text("utf-8"))
    data.pop("source")
    return data  # type: ignore[no-any-return]


def kernel_suffix(marks: list[str]) -> str:
    """As Triton 2.x writes it (compiler.py, kernel_suffix)."""
    return "".join(f"{index}{mark}" for index, mark in enumerate(marks))


@pytest.mark.parametrize(
    "marks",
    [["d"], ["d", ""], ["", "d"], ["e", "c", "de"], ["d"] * 12, ["de", ""] * 8, [""] * 11 + ["d"]],
)
def test_suffixes_are_read_as_they_are_written(marks: list[str]) -> None:
    name = decode(f"some_kernel_{kernel_suffix(marks)}")
    assert name.family == "triton_other"
    assert name.decoded["function"] == "some_kernel"
    assert name.decoded["specialization"] == tuple(marks)


@pytest.mark.parametrize(
    "name",
    ["copy_0d", "reduce_0c", "fft_0", "f_0123", "conv_0c1f", "gemm_0dd1d", "k_0d2d", "k_1d2d",
     "x_0ed1d", "layer_00d", "stage_0d1d3"],
)  # fmt: skip
def test_names_that_merely_end_so(name: str) -> None:
    decoded = decode(name)
    assert "specialization" not in decoded.decoded
    assert not decoded.remarks


def test_the_argument_without_d_is_named() -> None:
    told, lost = decode("add_kernel_0d1d2d3").remarks
    assert told == "compiled for arguments 0, 1, 2 divisible by 16"
    assert lost.startswith("argument 3 without d: not known to be divisible by 16")
    assert "not vectorised" in lost
    (told,) = decode("k_kernel_0d1de2c").remarks
    assert told == "compiled for arguments 0, 1 divisible by 16; argument 2 equal to 1"
    lost = decode("k_kernel_0d1e2").remarks[1]
    assert lost.startswith("arguments 1, 2 without d")


def test_text_gives_each_argument_its_index() -> None:
    result = CliRunner().invoke(cli, ["decode", "--explain", "kernel_0d1d2de3"])
    assert "specialization = 0:d 1:d 2:de 3:-" in result.stdout
    assert "argument 3 without d" in result.stdout
    details = CliRunner().invoke(cli, ["decode", "--name", "kernel_0d1d2de3", "--details"])
    assert "  remark    argument 3 without d" in details.stdout
    data = json.loads(
        CliRunner().invoke(cli, ["decode", "--name", "kernel_0d1d2de3", "--format", "json"]).stdout
    )
    (kernel,) = data["kernels"]
    assert kernel["decoded"]["specialization"] == ["d", "d", "de", ""]
    assert kernel["remarks"][1].startswith("argument 3 without d")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("cutlass_80_tensorop_f16_s16816gemm_relu_f16_128x128_32x4_tn_align8",
         "alignment 8: 16 bytes of f16"),
        ("cutlass_80_tensorop_f16_s16816gemm_f16_128x128_32x4_tn_align4",
         "alignment 4: narrow 8-byte global loads; pad the leading dimension to a multiple of 8"),
        ("cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1",
         "alignment 1: scalar 2-byte global loads, no cp.async"),
        ("cutlass_tensorop_s1688tf32gemm_256x128_16x3_nn_align1",
         "alignment 1: scalar 4-byte global loads; pad"),
        ("cutlass_simt_sgemm_128x128_8x2_nn_align1", "alignment 1: 4 bytes of f32"),
    ],
)  # fmt: skip
def test_alignment(name: str, said: str) -> None:
    assert any(remark.startswith(said) for remark in decode(name).remarks)


def test_closed_sources_say_what_is_undocumented() -> None:
    xmma = decode(
        "sm90_xmma_gemm_f16f16_f16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_"
        "segment_k_off_kernel__5x_cublas"
    )
    assert any("undocumented: execute, kernel" in remark for remark in xmma.remarks)
    assert not any("layout" in remark for remark in xmma.remarks)
    ampere = decode("ampere_sgemm_128x128_nn").remarks
    assert any("not CUTLASS" in remark for remark in ampere)


def test_operators_that_can_be_read_in_two_ways() -> None:
    name = decode("triton_per_fused__scaled_mm__to_copy_abs_clamp_max_mul_reciprocal_sigmoid_0")
    listed = name.decoded["fused_ops_list"]
    assert isinstance(listed, tuple)
    assert listed[3:5] == ("clamp", "max")
    assert any("abs, clamp_max, mul" in remark for remark in name.remarks)
    assert split_ops("index_put") == ("index_put",)
    assert split_ops("_softmax_backward_data_mul") == ("_softmax_backward_data", "mul")
    assert len(ways_to_split("index_put")) == 2
    assert split_ops("not_an_operator_at_all") is None
    assert ways_to_split("add_relu") == (("add", "relu"),)
    assert decode("triton_").remarks[0].startswith("TorchInductor's name with unique_kernel_names")


def test_every_name_of_the_questions_has_its_words() -> None:
    names = expected("28_cutlass_kernel_names")["names"]
    assert isinstance(names, dict)
    major = {"row": "row-major", "col": "column-major"}
    for name, right in names.items():
        text = " ".join(decode(name).remarks)
        for matrix in "ABC":
            if f"layout{matrix}" in right:
                assert f"{matrix} {major[right[f'layout{matrix}']]}" in text, name
        if "align_bytes" in right:
            size = right["align_bytes"]
            assert f"{size} bytes of" in text or f"{size}-byte global loads" in text, name
        if "runs on newer GPUs" in str(right.get("arch")):
            assert "it runs on newer GPUs" in text
        if "undocumented" in str(right.get("rest")):
            assert "undocumented" in text
