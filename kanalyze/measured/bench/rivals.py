"""What a kernel is compared with: PyTorch's own ways to the same result, and how they get there.

A kernel file says them in ``rivals(tensors, shape)``: name to a function without arguments.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kanalyze.measured.bench.build import ELEMENT_BYTES, STATIC, BenchParam, Launchable, Static
from kanalyze.measured.bench.cases import BenchCase
from kanalyze.measured.bench.event_times import LaunchTimes, finite


@dataclass
class Rival:
    """One rival, measured. ``kernels``: the GPU kernels of one call, name to launches.

    ``relative_norm`` is that of its result against the same reference.
    """

    provider: str
    cold: LaunchTimes | None = None
    warm: LaunchTimes | None = None
    kernels: Mapping[str, int] = field(default_factory=dict)
    relative_norm: float | None = None
    counters: Mapping[str, float | None] | None = None
    error: str | None = None

    @property
    def launches(self) -> int | None:
        """GPU kernels of one call."""
        return sum(self.kernels.values()) if self.kernels else None

    def to_dict(self) -> dict[str, Any]:
        """The rival as records hold it."""
        return {
            "provider": self.provider,
            "times_cold_ms": self.cold and self.cold.to_dict(),
            "times_warm_ms": self.warm and self.warm.to_dict(),
            "launches": self.launches,
            "kernels": [{"name": n, "launches": c} for n, c in self.kernels.items()],
            "relative_norm": finite(self.relative_norm),
            "counters": None if self.counters is None else dict(self.counters),
            "error": self.error,
        }


def of(case: BenchCase, tensors: Mapping[str, Any]) -> dict[str, Callable[[], Any]]:
    """The rivals of a launch, by name; none where its file says none."""
    make = getattr(case.target.module, "rivals", None)
    return dict(make(tensors, case.plan.shape)) if make is not None else {}


def prepared(torch: Any) -> None:
    """Let PyTorch use the tensor cores for fp32, as Triton does, and forget compiled functions."""
    torch.set_float32_matmul_precision("high")
    with contextlib.suppress(ImportError, AttributeError):
        torch._dynamo.reset()


def launched_kernels(torch: Any, go: Callable[[], Any]) -> dict[str, int]:
    """The GPU kernels, copies and fills of one call, by ``torch.profiler``: name to launches."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as seen:
        go()
        torch.cuda.synchronize()
    launches: Counter[str] = Counter()
    for event in seen.events():
        if "cuda" in str(event.device_type).lower():
            launches[event.name] += 1
    return dict(launches)


# --- the kernels that torch.compile writes -------------------------------------------------------


@dataclass
class _SeenLaunch:
    binary: Any
    grid: tuple[int, int, int]
    arguments: tuple[Any, ...]


class Capture:
    """Sees the Triton kernels that code compiled by torch.compile launches, while it is ``on``.

    It stands in Inductor's launchers (``CompileResult._gen_launcher_code``, PyTorch 2.9 to 2.13),
    so it must be entered before anything is compiled. Where they look otherwise, nothing is seen.
    """

    def __init__(self) -> None:
        self.on = False
        self.seen: list[_SeenLaunch] = []

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Capture]:
        """Watch for a while."""
        try:
            import torch._inductor.config as config
            from torch._inductor.runtime import triton_heuristics

            results: Any = triton_heuristics.CompileResult
            make = results._gen_launcher_code
        except (ImportError, AttributeError):
            yield self
            return
        capture = self

        def watched(result: Any, scope: dict[str, Any], defined: Any, runner: Any) -> Any:
            run, binary = scope.get("runner"), scope.get("bin")
            if run is not None and binary is not None:

                def seen(x: int, y: int, z: int, *rest: Any) -> Any:
                    if capture.on:
                        count = len(binary.src.fn.arg_names)
                        capture.seen.append(_SeenLaunch(binary, (x, y, z), tuple(rest[-count:])))
                    return run(x, y, z, *rest)

                scope["runner"] = seen
            return make(result, scope, defined, runner)

        with contextlib.ExitStack() as stack:
            for name in ("use_static_cuda_launcher", "use_static_triton_launcher"):
                if hasattr(config, name):
                    stack.enter_context(config.patch({name: False}))
                    break
            results._gen_launcher_code = watched
            try:
                yield self
            finally:
                results._gen_launcher_code = make

    def launchables(self, arch: str, triton_version: str) -> list[Launchable]:
        """What was launched, each kernel once; forgets it."""
        distinct: dict[tuple[Any, ...], Launchable] = {}
        for launch in self.seen:
            one = _captured(launch, arch, triton_version)
            if one is not None:
                distinct.setdefault((one.kernel, one.grid), one)
        self.seen.clear()
        return list(distinct.values())


def _captured(launch: _SeenLaunch, arch: str, triton_version: str) -> Launchable | None:
    """A launch of Inductor's as ours; None where random data cannot stand for its arrays."""
    binary, source = launch.binary, launch.binary.src
    metadata = binary.metadata
    params = []
    for name, value in zip(source.fn.arg_names, launch.arguments, strict=True):
        kind = source.signature.get(name, "constexpr")
        if kind == "constexpr":
            continue
        if kind.startswith("*"):
            size = value.untyped_storage().nbytes() - value.storage_offset() * value.element_size()
            param = BenchParam(name, kind, None, (size // value.element_size(),))
            if param.element not in ELEMENT_BYTES or not value.is_floating_point():
                return None
        else:
            param = BenchParam(name, kind, value)
        params.append(param)
    ptx = binary.asm["ptx"]
    ptx = ptx if isinstance(ptx, str) else ptx.decode()
    entry = ptx.partition(".entry")[2].partition(")")[0]
    return Launchable(
        kernel=metadata.name,
        arch=arch,
        ptx=ptx,
        cubin=binary.asm["cubin"],
        grid=launch.grid,
        block=(32 * metadata.num_warps, 1, 1),
        dynamic_shared_bytes=metadata.shared,
        shared_bytes=metadata.shared,
        params=tuple(params),
        null_params=entry.count(".param") - len(params),
        constexprs={
            source.fn.arg_names[k[0]] if isinstance(k, tuple) else str(k): v
            for k, v in (source.constants or {}).items()
            if isinstance(v, int | float | str)
        },
        num_warps=metadata.num_warps,
        num_stages=metadata.num_stages,
        registers_per_thread=binary.n_regs or 0,
        spill_bytes=None,
        triton=triton_version,
        static=Static(unknown=dict.fromkeys(STATIC, "not estimated for kernels of torch.compile")),
    )
