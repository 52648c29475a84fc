"""Matrix products of fp32 numbers run on CUDA cores.

What it says
------------
Which part of the time goes to fp32 matrix products whose kernels use fused multiply-adds (SIMT), on
a GPU that has TF32 tensor cores.

Why it is slow
--------------
Since compute capability 8.0 tensor cores multiply fp32 matrices whose operands are rounded to TF32
(10 bits of mantissa), many times as fast as CUDA cores: 8 times on an A100, more on later ones.
PyTorch leaves that off by default, because results are less exact.

How it is detected
------------------
By the names of the kernels: products and convolutions of the class "simt" with fp32 operands and an
fp32 accumulator, which take 5 % of the time and more. Nothing is said of GPUs before 8.0.

How it is proven
----------------
It is not: a profile holds nothing that could be run again. The time is that of the profile.

Example
-------
    torch.set_float32_matmul_precision("high")   # TF32
    with torch.autocast("cuda", torch.bfloat16): ...

Source
------
PyTorch, "Numerical accuracy", section "TensorFloat-32 (TF32) on Nvidia Ampere (and later) devices";
NVIDIA A100 Tensor Core GPU Architecture, table "Comparison of NVIDIA Data Center GPUs".
"""

from __future__ import annotations

from kanalyze.findings.profile import WORTH, Profile, capability, names, sums
from kanalyze.findings.rule import ProfileRule
from kanalyze.results.profile import ProfileFinding
from kanalyze.text.numbers import duration, launches

_ID = "fp32-simt-gemm"


def check(profile: Profile) -> list[ProfileFinding]:
    """Products of fp32 matrices on CUDA cores, where the device has TF32 tensor cores."""
    chosen = []
    for row in profile.rows:
        decoded = row.name.decoded
        having = capability(row)
        if (
            row.tensor_core is False
            and decoded.get("op_class") == "simt"
            and str(decoded.get("op")).startswith(("gemm", "conv", "implicit_gemm"))
            and decoded.get("dtype_a") == "f32"
            and decoded.get("dtype_acc", "f32") == "f32"
            and not (having is not None and having < (8, 0))
        ):
            chosen.append(row)
    calls, time = sums(chosen)
    share = time / profile.total_us
    if share < WORTH:
        return []
    where = "" if any(capability(r) for r in chosen) else ", if the GPU is an Ampere or later"
    return [
        ProfileFinding(
            _ID,
            "warning",
            f"{share:.0%} of the time ({duration(time)}, {launches(calls)}) "
            "goes to fp32 matrix products on CUDA cores (SIMT), not tensor cores",
            'torch.set_float32_matmul_precision("high") lets them use TF32 tensor cores (10 bits '
            f"of mantissa){where}; bf16 or fp16 inputs (autocast) are faster still",
            names(chosen),
            {"calls": calls, "total_us": time, "share": share},
        )
    ]


RULE = ProfileRule(_ID, check)
