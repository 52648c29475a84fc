"""Whether a launch computes what it says: fresh random inputs, poisoned outputs, float64 reference.

The measure is the relative norm ``||out - reference|| / ||reference||`` over all elements. Its
bound comes from the kernel file's ``bound(dtype, roundoff)``; the roundoff is 2**-24 for fp32,
2**-11 for fp16, 2**-8 for bf16, the most that rounding to the type costs. Outputs too small for a
normal fp16 are each off by up to 2**-25 besides.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kanalyze.errors import InputError
from kanalyze.frontend.launch_plan import LaunchPlan
from kanalyze.measured.bench.build import BenchParam, Launchable
from kanalyze.measured.bench.cases import Target

ROUNDOFF = {"fp32": 2**-24, "fp16": 2**-11, "bf16": 2**-8}
_CHUNK = 2**26  # elements compared at a time
_SUBNORMAL = 2**-25


@dataclass(frozen=True, slots=True)
class ReferenceCheck:
    """How far a launch was from the reference, and how far it may be."""

    relative_norm: float
    bound: float
    not_finite: int

    @property
    def good(self) -> bool:
        """Whether every element was written and the norm is within the bound."""
        return self.relative_norm <= self.bound and self.not_finite == 0


def element_type(torch: Any, name: str) -> Any:
    """PyTorch's type of elements that Triton calls so."""
    return {
        "fp64": torch.float64, "fp32": torch.float32, "fp16": torch.float16,
        "bf16": torch.bfloat16, "i64": torch.int64, "i32": torch.int32, "i16": torch.int16,
        "i8": torch.int8, "u8": torch.uint8, "i1": torch.bool,
    }[name]  # fmt: skip


def tensor(torch: Any, param: BenchParam, poisoned: bool = False, device: str = "cuda") -> Any:
    """Memory for a pointer: random numbers, NaN where it is an output."""
    kind = element_type(torch, param.element)
    dims = param.dims or (1,)
    if not kind.is_floating_point:
        return torch.zeros(dims, dtype=kind, device=device)
    if poisoned:
        return torch.full(dims, float("nan"), dtype=kind, device=device)
    return torch.randn(dims, dtype=kind, device=device)


def contents_known(target: Target, params: Sequence[BenchParam]) -> None:
    """Refuse inputs that random numbers cannot stand for.

    Raises:
        InputError: the kernel reads an array of integers, perhaps indices.
    """
    for param in params:
        pointer = param.type.startswith("*") and param.name not in target.file.outputs
        if pointer and not param.element.startswith(("fp", "bf")):
            raise InputError(
                f"what '{param.name}' ({param.type}) holds is not known: bench makes random "
                "floating-point numbers only",
                file=str(target.file.path),
            )


def bound(target: Target, dtype: str, built: Launchable | None = None) -> float:
    """The relative norm allowed of a kernel's output, subnormal numbers left aside.

    Of a file without ``bound``: two roundings to its element type, and on tensor cores the lower
    13 bits of fp32 operands lost (2**-10 each).
    """
    own = getattr(target.module, "bound", None)
    if own is not None:
        return float(own(dtype, ROUNDOFF))
    if dtype == "fp32" and built is not None and built.tensor_cores:
        return float(2**-9)
    return 2 * ROUNDOFF[dtype] + 16 * ROUNDOFF["fp32"]


def check(
    torch: Any,
    target: Target,
    plan: LaunchPlan,
    tensors: Mapping[str, Any],
    limit: float,
    outputs: Mapping[str, Any] | None = None,
) -> ReferenceCheck:
    """Compare outputs with the file's reference in float64.

    Args:
        torch: PyTorch.
        target: the kernel, whose file computes the reference.
        plan: the launch.
        tensors: what the kernel's pointers pointed to, after it ran.
        limit: the relative norm allowed.
        outputs: other tensors in place of the kernel's outputs.
    """
    compared = {name: tensors[name] for name in target.file.outputs} | dict(outputs or {})
    error = size = 0.0
    count = not_finite = 0
    for inputs, results in _pieces(target, tensors, compared):
        wide = {name: one.double() for name, one in inputs.items()}
        for name, expected in target.module.reference(wide, plan.shape).items():
            if name not in results:
                continue
            out = results[name].double()
            error += float((out - expected).square().sum())
            size += float(expected.square().sum())
            count += out.numel()
            not_finite += int((~out.isfinite()).sum())
    norm = max(size**0.5, 1e-150)
    if any(one.dtype == torch.float16 for one in compared.values()):
        limit += _SUBNORMAL * count**0.5 / norm
    return ReferenceCheck(error**0.5 / norm, limit, not_finite)


def _pieces(
    target: Target, tensors: Mapping[str, Any], outputs: Mapping[str, Any]
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Cut a launch into parts whose float64 reference fits in memory: (inputs, outputs).

    All tensors are cut alike along the file's first ``BATCH_DIMS`` dimensions, which are
    independent of each other; without any, the launch stays whole.
    """
    inputs = {n: t for n, t in tensors.items() if n not in target.file.outputs}
    depth = int(getattr(target.module, "BATCH_DIMS", 0))
    if depth == 0 or not inputs:
        yield inputs, dict(outputs)
        return
    first = next(iter(inputs.values()))
    leading = tuple(first.shape[: depth - 1])
    rows = max(1, _CHUNK * first.shape[depth - 1] * math.prod(leading) // max(1, first.numel()))
    if depth > 1:
        rows = 1  # a head of attention: its reference holds T x T numbers
    for index in itertools.product(*map(range, leading)):
        for start in range(0, first.shape[depth - 1], rows):
            cut = (*(slice(i, i + 1) for i in index), slice(start, start + rows))
            yield {n: t[cut] for n, t in inputs.items()}, {n: t[cut] for n, t in outputs.items()}
