"""Every bundled kernel's values, run on the CPU by Triton's interpreter, against float64 PyTorch.

The interpreter replaces ``triton.jit`` when ``TRITON_INTERPRET`` is set before Triton is imported,
so the launches run in a second process: this file is its own script. Each launch writes into a
poisoned output between guard elements; a case fails when an element stays poisoned, a guard
changes, or the relative error ``||out - reference|| / ||reference||`` passes the bound.

Bounds. The inputs are rounded to the element type before both sides see them, so what differs is
the arithmetic in fp32 and the rounding of the output to the element type, a relative error of at
most u = 2**-24 for fp32, 2**-11 for fp16, and 2**-7 for bf16 (2**-8 on a GPU; the interpreter cuts
instead of rounding). The norm of the error is then at most u times that of the output. To this
fp32 arithmetic adds some 2**-24: 8 are allowed, 32 where sums are long, in attention and row_sum.
In attention the weights are rounded to the element type too: twice u. Scores up to 2000 carry
rounding errors of 2000 * 2**-24, which the exponential turns into relative ones. gelu and softmax
have no cancellation, so their extreme values are bounded one by one, with 256 * 2**-24 since the
exponents reach 88 and their relative error counts as often. (tf32 is a matter of the hardware; the
interpreter multiplies in fp32.)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("compiles every bundled kernel")

ROOT = Path(__file__).resolve().parents[2]
ROUNDOFF = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-7}
FP32 = 2**-24
ALL = ("fp32", "fp16", "bf16")

# Each case: kernel, settings, dtypes, and what is special about it:
#   "data": how the inputs are made; "strides": elements, in place of the contiguous ones.
CASES = {
    "gelu_ragged": ("gelu", {"n": 3001}, ALL, {}),
    "gelu_one": ("gelu", {"n": 1}, ALL, {}),
    "gelu_block": ("gelu", {"n": 512, "BLOCK_SIZE": 256}, ALL, {}),
    "gelu_extremes": ("gelu", {"n": 1000}, ALL, {"data": "extremes"}),
    "softmax_ragged": ("softmax", {"M": 3, "N": 1000}, ALL, {}),
    "softmax_one_column": ("softmax", {"M": 5, "N": 1}, ALL, {}),
    "softmax_full_block": ("softmax", {"M": 2, "N": 256, "BLOCK_SIZE": 256}, ALL, {}),
    "softmax_long_row": ("softmax", {"M": 3, "N": 1000, "BLOCK_SIZE": 128}, ALL, {}),
    "softmax_extremes": ("softmax", {"M": 9, "N": 300}, ALL, {"data": "rows"}),
    "softmax_extremes_long": (
        "softmax",
        {"M": 9, "N": 300, "BLOCK_SIZE": 64},
        ALL,
        {"data": "rows"},
    ),
    "softmax_strides": (
        "softmax",
        {"M": 4, "N": 77, "BLOCK_SIZE": 32},
        ("fp32",),
        {"strides": {"x_ptr": (100, 1), "y_ptr": (80, 1)}},
    ),
    "row_sum_ragged": ("row_sum", {"M": 3, "N": 5003, "BLOCK_SIZE": 1024}, ALL, {}),
    "row_sum_one": ("row_sum", {"M": 4, "N": 1}, ALL, {}),
    "row_sum_short": ("row_sum", {"M": 2, "N": 100}, ALL, {}),
    "row_sum_ones": ("row_sum", {"M": 2, "N": 9000}, ALL, {"data": "ones"}),
    "row_sum_stride": (
        "row_sum",
        {"M": 3, "N": 130, "BLOCK_SIZE": 64},
        ("fp32",),
        {"strides": {"x_ptr": (131, 1)}},
    ),
    "matmul_tails": (
        "matmul_relu",
        {"M": 70, "N": 45, "K": 83, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32},
        ALL,
        {},
    ),
    "matmul_defaults": ("matmul_relu", {"M": 130, "N": 70, "K": 100}, ALL, {}),
    "matmul_one": ("matmul_relu", {"M": 1, "N": 1, "K": 1}, ALL, {"data": "ones"}),
    "matmul_nan": (
        "matmul_relu",
        {"M": 20, "N": 18, "K": 40, "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16},
        ALL,
        {"data": "odd"},
    ),
    "matmul_k1": (
        "matmul_relu",
        {"M": 33, "N": 50, "K": 1, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 16},
        ALL,
        {},
    ),
    "matmul_plain_order": (
        "matmul_relu",
        {"M": 100, "N": 60, "K": 40, "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 1},
        ("fp16",),
        {},
    ),
    "matmul_bands": (
        "matmul_relu",
        {"M": 100, "N": 60, "K": 40, "BLOCK_M": 16, "BLOCK_N": 16, "BLOCK_K": 16, "GROUP_M": 3},
        ("fp16",),
        {},
    ),
    "matmul_a_transposed": (
        "matmul_relu",
        {"M": 50, "N": 40, "K": 70, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32},
        ("fp16", "fp32"),
        {"strides": {"a_ptr": (1, 50)}},
    ),
    "matmul_all_transposed": (
        "matmul_relu",
        {"M": 50, "N": 40, "K": 70, "BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32},
        ("fp16",),
        {"strides": {"a_ptr": (1, 53), "b_ptr": (1, 71), "c_ptr": (1, 60)}},
    ),
    **{
        f"attention_{'causal' if causal else 'full'}_T{T}_D{D}": (
            "flash_attention",
            {"B": 1, "H": 2, "T": T, "D": D, "causal": causal, "BLOCK_Q": 32, "BLOCK_KV": 16},
            ("fp16", "fp32") if D == 64 else ("bf16",),
            {},
        )
        for causal in (0, 1)
        for T, D in ((1, 64), (77, 64), (64, 32), (50, 128), (33, 80), (19, 8))
    },
    "attention_defaults": (
        "flash_attention",
        {"B": 2, "H": 1, "T": 150, "D": 64, "causal": 1},
        ALL,
        {},
    ),
    "attention_wide_block_kv": (
        "flash_attention",
        {"B": 1, "H": 1, "T": 70, "D": 32, "causal": 1, "BLOCK_Q": 16, "BLOCK_KV": 64},
        ("fp16",),
        {},
    ),
    "attention_large_scores": (
        "flash_attention",
        {"B": 1, "H": 1, "T": 40, "D": 32, "causal": 1, "BLOCK_Q": 16, "BLOCK_KV": 16},
        ("fp32",),
        {"data": "large"},
    ),
    "attention_token_major": (  # (B, T, H, D) in memory
        "flash_attention",
        {"B": 2, "H": 3, "T": 20, "D": 16, "causal": 0, "BLOCK_Q": 16, "BLOCK_KV": 16},
        ("fp16",),
        {"strides": dict.fromkeys(("q_ptr", "k_ptr", "v_ptr", "o_ptr"), (960, 16, 48, 1))},
    ),
}
# The kernel's name for the stride of each dimension; None where it takes no stride.
STRIDE_NAMES = {
    "softmax": {"x_ptr": ("x_row_stride", None), "y_ptr": ("y_row_stride", None)},
    "row_sum": {"x_ptr": ("x_row_stride", None)},
    "matmul_relu": {
        "a_ptr": ("stride_am", "stride_ak"),
        "b_ptr": ("stride_bk", "stride_bn"),
        "c_ptr": ("stride_cm", "stride_cn"),
    },
    "flash_attention": {"q_ptr": ("stride_b", "stride_h", "stride_t", None)},
}


def bound(case: str, dtype: str) -> float:
    """The relative error allowed (no unit); the module's docstring says where it comes from."""
    kernel, _, _, special = CASES[case]
    if kernel == "row_sum":  # its output is fp32 for every input type
        return 32 * FP32
    if kernel == "flash_attention":
        scores = 2000 if special.get("data") == "large" else 0
        return 2 * ROUNDOFF[dtype] + (32 + scores) * FP32
    return ROUNDOFF[dtype] + 8 * FP32


@pytest.fixture(scope="module")
def results() -> dict[str, dict]:
    """Run every case in one process with the interpreter; return what it found, by case id."""
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("needs torch and triton")
    env = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", __file__],  # numpy's, of exp overflowing
        env=env,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("case", "dtype"), [(case, dtype) for case, spec in CASES.items() for dtype in spec[2]]
)
def test_value(results: dict[str, dict], case: str, dtype: str) -> None:
    result = results[f"{case}-{dtype}"]
    assert result["unwritten"] == 0, "elements of the output that were never written"
    assert result["guards_changed"] == 0, "elements outside the output that were written"
    assert result["odd_differences"] == 0, "NaN or inf where the reference has none, or vice versa"
    assert result["relative_error"] <= bound(case, dtype)
    if CASES[case][3].get("data") in ("extremes", "rows"):
        assert result["largest_relative_error"] <= ROUNDOFF[dtype] + 256 * FP32


def test_every_kernel_and_dtype_has_a_case() -> None:
    from kanalyze.frontend.kernel_file import bundled

    tested = {(kernel, dtype) for kernel, _, dtypes, _ in CASES.values() for dtype in dtypes}
    assert tested == {(name, dtype) for name, file in bundled().items() for dtype in file.dtypes}


# ---- the script ----

GUARD = 12345.0  # a value that no output has
MARGIN = 64  # guard elements before and after each tensor


def make_input(torch, kind: str, dims: tuple[int, ...], element_type):
    """A fresh random tensor, or the named special one, already rounded to the element type."""
    x = torch.randn(dims)
    if kind == "extremes":  # each lands at both ends of the block and in its middle
        inf, nan = float("inf"), float("nan")
        odd = torch.tensor(
            [1e4, -1e4, inf, -inf, nan, 0.0, -0.0, 88.0, -88.0, 1e-7, -1e-7, -5.0, -10.0, -14.0]
        )
        x[: len(odd)] = odd
        x[500 : 500 + len(odd)] = odd
        x[-len(odd) :] = odd
    elif kind == "rows":  # one sort of trouble in each row
        inf = float("inf")
        x[0] = -inf
        x[1, 5] = 3e4
        x[2, 5] = -3e4
        x[3, :] = 3e4
        x[4, : x.shape[1] // 2] = -inf  # whole tiles of -inf, then numbers
        x[5, 1:] = -inf
        x[6, :-1] = -inf
        x[7, 7] = inf
        x[8, 9] = float("nan")
    elif kind == "odd":  # a NaN and an infinity; relu(NaN) is NaN
        x[..., 3, 5] = float("nan")
        x[..., 17, 2] = float("inf")
    elif kind == "ones":  # partial sums in a narrow type would stop growing
        x = torch.ones(dims)
    elif kind == "large":  # scores in the hundreds: exp overflows without the running maximum
        x = 20 * x
    return x.to(element_type)


def place(torch, values, strides, poison):
    """Put ``values`` with ``strides`` into guarded memory; return the view and the memory.

    Around an input (no ``poison``) lies NaN, so that what is read outside shows in the output.
    """
    span = 1 + sum((size - 1) * step for size, step in zip(values.shape, strides, strict=True))
    guard = float("nan") if poison is None else GUARD
    memory = torch.full((span + 2 * MARGIN,), guard, dtype=values.dtype)
    view = memory.as_strided(values.shape, strides, MARGIN)
    view.copy_(values if poison is None else torch.full_like(values, poison))
    return view, memory


def run_case(torch, file, module, settings, dtype, data="normal", strides=None):
    from kanalyze.frontend.launch_plan import plan

    types = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
    strides = strides or {}
    settings = dict(settings)
    for pointer, names in STRIDE_NAMES.get(file.name, {}).items():
        if pointer in strides:
            settings.update({n: s for n, s in zip(names, strides[pointer], strict=True) if n})
    launch = plan(file, module, settings, dtype)

    tensors, memories, call = {}, {}, []
    poison = (
        -777.0 if data in ("rows", "extremes", "odd") else float("nan")
    )  # those have NaN outputs
    for name, value in launch.arguments.items():
        if not isinstance(value, tuple):
            call.append(value)
            continue
        _, element, dims = value
        values = make_input(torch, data, dims, types[element])
        steps = strides.get(name, values.stride())
        is_output = name in file.outputs
        view, memory = place(torch, values, steps, poison if is_output else None)
        tensors[name], memories[name] = view, memory
        call.append(view)
    kernel = getattr(module, file.function)
    kernel[launch.grid](*call, **launch.constexprs)

    found = {"unwritten": 0, "guards_changed": 0, "odd_differences": 0, "relative_error": 0.0}
    wide = {name: tensor.double() for name, tensor in tensors.items() if name not in file.outputs}
    for name, expected in module.reference(wide, launch.shape).items():
        out, memory = tensors[name], memories[name]
        poisoned = out.isnan() if poison != poison else out == poison
        found["unwritten"] += int(poisoned.sum())
        outside = torch.ones_like(memory, dtype=torch.bool)
        outside.as_strided(out.shape, out.stride(), MARGIN).fill_(False)
        guard = torch.tensor(GUARD, dtype=memory.dtype)
        found["guards_changed"] += int((memory[outside] != guard).sum())
        plain = expected.isfinite()
        odd = ~torch.isclose(out[~plain].double(), expected[~plain], equal_nan=True)
        found["odd_differences"] += int(odd.sum()) + int((~out[plain].isfinite()).sum())
        error, size = (out.double() - expected)[plain].abs(), expected[plain].abs()
        found["relative_error"] = float(error.norm() / size.norm().clamp(min=1e-300))
        floor = 2**-24 if dtype == "fp16" else 1e-14  # smallest fp16; float64's own cancellation
        found["largest_relative_error"] = float(((error - floor) / size.clamp(min=1e-30)).max())
    return found


def repair_bf16_dot() -> None:
    """Let the interpreter's ``tl.dot`` read bf16 as numbers; it multiplies their bit patterns."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder

    plain_dot = InterpreterBuilder.create_dot

    def dot(self, a, b, *rest):
        a, b = (
            self.create_fp_ext(x, tl.float32) if x.dtype.scalar == tl.bfloat16 else x
            for x in (a, b)
        )
        return plain_dot(self, a, b, *rest)

    InterpreterBuilder.create_dot = dot


def main() -> None:
    import importlib.util

    import torch

    from kanalyze.frontend.kernel_file import bundled

    torch.set_num_threads(1)
    repair_bf16_dot()
    files = bundled()
    modules = {}
    for name, file in files.items():
        spec = importlib.util.spec_from_file_location(f"kernel_{name}", file.path)
        modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(modules[name])
    results = {}
    for case, (name, settings, dtypes, special) in CASES.items():
        for dtype in dtypes:
            torch.manual_seed(len(results))
            results[f"{case}-{dtype}"] = run_case(
                torch, files[name], modules[name], settings, dtype, **special
            )
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
