"""What a kernel may ask of Triton's compiler and of a block on its GPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kanalyze.devices.table import capability as find_capability
from kanalyze.errors import InputError, UsageError
from kanalyze.frontend._triton_kernels import JitKernel

_MAX_THREADS = 1024
_MAX_TENSOR_MEMORY_COLUMNS = 512  # triton/compiler/compiler.py, CompiledKernel._init_handles


def check_options(options: Mapping[str, object]) -> None:
    """Refuse options of the compiler that cannot be.

    Raises:
        UsageError: one is not an integer in its range, or not a power of two where it must be.
    """
    for name, value in options.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise UsageError(f"{name} is {value!r}, expected an integer of at least 1")
        if value >= 2**31:
            raise UsageError(f"{name} is {value}, expected an integer of at most {2**31 - 1}")
        most = _MAX_THREADS // 32
        if name == "num_warps" and (value & (value - 1) or value > most):
            raise UsageError(f"num_warps is {value}, expected a power of two up to {most}")
        if name == "num_ctas" and (value & (value - 1) or value > 16):
            raise UsageError(f"num_ctas is {value}, expected a power of two up to 16")


def check_limits(
    metadata: Mapping[str, Any],
    capability: int,
    kernel: JitKernel,
    with_stages: Callable[[int], int | None],
) -> None:
    """Raise what Triton's launcher would raise on the device (``OutOfResources``).

    ``with_stages`` gives the shared memory of a block with another ``num_stages``.
    """
    limit = find_capability(f"sm_{capability}").shared_per_block_bytes
    checks = (
        ("shared memory", metadata.get("shared") or 0, limit, "bytes"),
        ("tensor memory", metadata.get("tmem_size") or 0, _MAX_TENSOR_MEMORY_COLUMNS, "columns"),
        ("threads", metadata.get("num_warps", 4) * 32, _MAX_THREADS, "threads"),
    )
    for what, needed, most, unit in checks:
        if needed <= most:
            continue
        advice = "reduce block sizes or num_stages"
        if what == "shared memory":
            stages = metadata.get("num_stages") or 1
            fitting = _fitting_stages(stages, needed, most, with_stages)
            advice = f"reduce block sizes: no num_stages below {stages} fits"
            if fitting is not None:
                advice = f"num_stages={fitting[0]} needs {fitting[1]}"
            elif stages == 1:
                advice = "reduce block sizes"
        raise InputError(
            f"out of resource: {what}: a block needs {needed} {unit}, sm_{capability} has {most}; "
            f"{advice}",
            kernel.spot(),
        )


def _fitting_stages(
    stages: int, needed: int, most: int, with_stages: Callable[[int], int | None]
) -> tuple[int, int] | None:
    """The largest lower ``num_stages`` that fits, and what it needs; None: none does.

    A stage less tells what a stage takes: those that are sure to need too much are passed over.
    """
    tried = stages - 1
    while tried >= 1:
        size = with_stages(tried)
        if size is not None and size <= most:
            return tried, size
        a_stage = (needed - size) // (stages - tried) if size is not None else 0
        over = size - most if size is not None else 0
        tried -= max(1, over // a_stage if a_stage > 0 else 1)
    return None
