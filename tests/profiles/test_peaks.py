"""The peak that a product is compared with: by its type and its path, from the device table."""

from __future__ import annotations

import pytest

from kanalyze.devices import table
from kanalyze.profiles.names import KernelName
from kanalyze.profiles.peaks import peak_of
from kanalyze.profiles.readers.event import ProfiledDevice

H100 = ProfiledDevice(name="NVIDIA H100 80GB HBM3")


def product(**decoded: str) -> KernelName:
    return KernelName("k", "cutlass2x", False, None, {"op": "gemm", **decoded}, (), ())


@pytest.mark.parametrize(
    ("dtype", "tensor_core", "field"),
    [
        ("f16", True, "fp16_tensor_tflops"),
        ("bf16", None, "bf16_tensor_tflops"),
        ("e4m3", True, "fp8_tensor_tflops"),
        ("s8", True, "int8_tensor_tops"),
        ("f64", True, "fp64_tensor_tflops"),
        ("f64", False, "fp64_tflops"),
        ("f32", True, "tf32_tensor_tflops"),
        ("f32", False, "fp32_tflops"),
    ],
)
def test_the_peak_of_a_type(dtype: str, tensor_core: bool | None, field: str) -> None:
    peak = peak_of(H100, dtype, product(), tensor_core)
    assert not isinstance(peak, str)
    assert peak[0] == getattr(table.device("H100 SXM"), field)


@pytest.mark.parametrize(
    ("instruction", "known"),
    [(None, True), ("tf32", True), ("f32", True), ("bf16", False), ("f16", False)],
)
def test_the_peak_of_tf32_is_not_that_of_another_instruction(
    instruction: str | None, known: bool
) -> None:
    """fp32 matrices that are multiplied as bf16 run at another rate than TF32."""
    name = product(**({} if instruction is None else {"dtype_mma": instruction}))
    assert isinstance(peak_of(H100, "f32", name, True), tuple) == known


def test_a_peak_that_is_not_known_has_a_reason() -> None:
    assert "does not name the device" in str(peak_of(None, "f16", product(), True))
    assert "whether the f32 product ran" in str(peak_of(H100, "f32", product(), None))
    assert "no peak is known for f16" in str(peak_of(H100, "f16", product(), False))
