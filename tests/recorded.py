"""Launches recorded on an H200: some lie in the checkout, others beside it or nowhere.

Tests are called by these names wherever they run; one whose record is not at hand is skipped.
"""

from collections.abc import Container
from pathlib import Path
from typing import Any

import pytest

BESIDE = Path(__file__).parents[2] / "shared" / "measured" / "h200"
NAMES = (
    "flash_1x16x16384x64", "flash_2x8x1000x64", "flash_4x32x2048x128",
    "flash_4x32x2048x128_causal", "gelu_1000003", "gelu_4M_f32", "gelu_64M_f16", "gelu_64M_f32",
    "gelu_unaligned", "inductor_channels_last_0", "inductor_cumsum_0", "inductor_embedding_add_0",
    "inductor_gelu_naive_0", "inductor_layernorm_0", "inductor_rope_0", "matmul_1000x1001x1003",
    "matmul_1024", "matmul_16384x16384x4096", "matmul_2048", "matmul_4000", "matmul_4096",
    "matmul_4096_f32", "matmul_4096_tile64", "matmul_8192", "rowsum_1024x65537",
    "rowsum_4096x10000", "rowsum_8192x16384", "softmax_32768x8192", "softmax_4096x4096_f16",
    "softmax_8192x1000", "softmax_8192x4096", "softmax_8192x781",
)  # fmt: skip
WHY_NOT = "the recorded launches are not beside this checkout"


def each_record(bundled: Container[str] = ()) -> Any:
    """A mark: once for the name of every record, skipped where it is not in the checkout."""
    absent = pytest.mark.skipif(not BESIDE.is_dir(), reason=WHY_NOT)
    return pytest.mark.parametrize(
        "name", [name if name in bundled else pytest.param(name, marks=absent) for name in NAMES]
    )
