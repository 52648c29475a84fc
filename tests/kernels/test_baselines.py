"""Values of the kernels that baselines are made of, by Triton's interpreter, against PyTorch.

What a baseline computes step by step, with the settings that its table gives, must be what the
kernel computes that it is compared with. The interpreter replaces ``triton.jit`` in a process of
its own: this file is its script.
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
SINGLE = {
    "batched": ("kernels/baselines/batched_matmul.py",
                {"batch": 2, "M": 40, "N": 70, "K": 50, "transposed": 0, "causal": 0}),
    "batched transposed causal": ("kernels/baselines/batched_matmul.py",
                                  {"batch": 2, "M": 70, "N": 70, "K": 50, "transposed": 1,
                                   "causal": 1}),
    "unary": ("kernels/baselines/unary.py", {"n": 3001, "tanh": 0}),
    "unary tanh": ("kernels/baselines/unary.py", {"n": 3001, "tanh": 1}),
    "binary": ("kernels/baselines/binary.py", {"n": 3001, "add": 0}),
    "binary add": ("kernels/baselines/binary.py", {"n": 3001, "add": 1}),
    "row max": ("kernels/baselines/row_max.py", {"M": 5, "N": 1077}),
    "by row": ("kernels/baselines/by_row.py", {"M": 5, "N": 1077, "divide": 0}),
    "exp": ("kernels/baselines/exp.py", {"n": 3001}),
    "layer norm": ("samples/unfused/layer_norm.py", {"M": 5, "N": 77}),
    "linear": ("samples/unfused/linear.py", {"M": 70, "N": 45, "K": 83}),
    "naive matmul": ("samples/naive_matmul.py", {"M": 3, "N": 200, "K": 50}),
}  # fmt: skip
CHAINS = ("standard 0", "standard 1", "unfused", "layers")
BOUND = 1e-5  # of fp32 arithmetic, relative to the norm


@pytest.fixture(scope="module")
def errors() -> dict[str, float]:
    """Relative errors by case, found in one process with the interpreter."""
    if find_spec("torch") is None or find_spec("triton") is None:
        pytest.skip("needs torch and triton")
    done = subprocess.run(
        [sys.executable, __file__],
        env={**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT)},
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, float] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("case", [*SINGLE, *CHAINS])
def test_values(errors: dict[str, float], case: str) -> None:
    assert errors[case] < BOUND


# ---- the script ----


def main() -> None:
    import importlib.util

    import torch

    from kanalyze.analysis.versus import baselines
    from kanalyze.frontend import kernel_file, launch_plan

    torch.set_num_threads(1)
    torch.manual_seed(0)

    def load(target: str):  # type: ignore[no-untyped-def]
        known = kernel_file.bundled()
        file = known[target] if target in known else kernel_file.read(Path(target).resolve())
        spec = importlib.util.spec_from_file_location(f"kernel_{file.name}", file.path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return file, module

    def launch(target, settings, given=()):  # type: ignore[no-untyped-def]
        """Run a kernel on tensors; the output, and what the reference says."""
        file, module = load(target)
        plan = launch_plan.plan(file, module, settings, "fp32")
        tensors, call, left = {}, [], list(given)
        for name, value in plan.arguments.items():
            if isinstance(value, tuple):
                is_output = name in file.outputs
                x = torch.full(value[2], float("nan")) if is_output else torch.randn(value[2])
                if not is_output and left:
                    x = left.pop(0).reshape(value[2])
                tensors[name] = value = x
            call.append(value)
        getattr(module, file.function)[plan.grid](*call, **plan.constexprs)
        wide = {n: t.double() for n, t in tensors.items() if n not in file.outputs}
        return tensors[file.outputs[0]], module.reference(wide, plan.shape)[file.outputs[0]], wide

    def error(found, expected):  # type: ignore[no-untyped-def]
        plain = expected.isfinite()
        assert torch.equal(found.isfinite(), plain), "NaN or inf where there should be none"
        off = (found.double() - expected)[plain]
        return float(off.norm() / expected[plain].norm())

    results = {name: error(*launch(*case)[:2]) for name, case in SINGLE.items()}

    for causal in (0, 1):
        shape = {"B": 1, "H": 2, "T": 50, "D": 32, "causal": causal}
        scores, weights, values = baselines.find("standard").steps
        q, k, v = (torch.randn(1, 2, 50, 32) for _ in range(3))
        s = launch(scores.target, scores.values(shape, ""), (q, k))[0]
        p = launch(weights.target, weights.values(shape, ""), (s,))[0]
        o = launch(values.target, values.values(shape, ""), (p, v))[0]
        _, module = load("flash_attention")
        wide = {"q_ptr": q.double(), "k_ptr": k.double(), "v_ptr": v.double()}
        expected = module.reference(wide, shape)["o_ptr"]
        results[f"standard {causal}"] = error(o.reshape(expected.shape), expected)

    shape = {"M": 7, "N": 1500}
    largest, minus, exp, total, over = baselines.find("unfused").steps
    x = torch.randn(7, 1500)
    m = launch(largest.target, largest.values(shape, ""), (x,))[0]
    z = launch(minus.target, minus.values(shape, ""), (x, m))[0]
    e = launch(exp.target, exp.values(shape, ""), (z,))[0]
    s = launch(total.target, total.values(shape, ""), (e,))[0]
    y = launch(over.target, over.values(shape, ""), (e, s))[0]
    _, module = load("softmax")
    expected = module.reference({"x_ptr": x.double()}, shape)["y_ptr"]
    results["unfused"] = error(y.reshape(expected.shape), expected)

    shape = {"M": 33, "N": 40, "K": 50}
    norm, linear, gelu = baselines.find("samples/unfused/baselines.toml:layers").steps
    y, _, inputs = launch(norm.target, norm.values(shape, ""))
    z, _, more = launch(linear.target, linear.values(shape, ""), (y,))
    out = launch(gelu.target, gelu.values(shape, ""), (z,))[0]
    inputs |= {name: more[name] for name in ("w_ptr", "bias_ptr")}
    _, module = load("samples/layer_norm_linear_gelu.py")
    expected = module.reference(inputs, shape)["y_ptr"]
    results["layers"] = error(out.reshape(expected.shape), expected)
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()
