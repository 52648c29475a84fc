"""Triton's launches in this process: seen as they happen, or, without a GPU, in place of them.

Triton asks `CompiledKernel.launch_metadata` for what its launch hooks are told just before it
launches, Inductor's launchers do the same where a hook is set. What calls of an autotuner measure
is not seen. Without a GPU (`fake`) nothing runs: tensors on ``cuda`` are PyTorch's ``meta`` tensors
that say that they are there, and kernels are compiled for the GPU that is asked for.
"""

from __future__ import annotations

import contextlib
import importlib.machinery
import math
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

from kanalyze.frontend import _triton

CONTENTS = 1 << 20
"""Elements of the longest array of whole numbers whose contents are kept."""
_KEPT = 64  # arrays from the host
_START, _ALIGN = 0x7F00_0000_0000, 512  # where invented addresses start, and PyTorch's granularity


@dataclass(frozen=True, slots=True)
class SeenLaunch:
    """One launch.

    Attributes:
        kernel: Triton's ``CompiledKernel``.
        grid: blocks in x, y, z, as Triton counts them (of clusters, where there are any).
        params: the arguments in the order of the PTX parameters, as objects of a launch record.
        constexprs: constants by name, those equal to 1 and None among them.
        tensors: place of a parameter to its tensor.
        choice: how the configuration was chosen where there was no GPU to try them.
        inductor: whether PyTorch's compiler launches it.
    """

    kernel: Any
    grid: tuple[int, int, int]
    params: list[dict[str, Any]]
    constexprs: dict[str, Any]
    tensors: dict[int, Any]
    choice: str | None
    inductor: bool


class _State(threading.local):
    """What this thread is within: measurements of an autotuner, Inductor's launcher."""

    measuring = 0
    inductor = 0
    choice: str | None = None


@contextlib.contextmanager
def seen(sink: Callable[[SeenLaunch], None], gpu: FakeGPU | None = None) -> Iterator[None]:
    """Give every launch to a function while the context is open.

    Args:
        sink: is called before the launch; what it raises is raised there.
        gpu: the GPU that is feigned; None: launches run.
    """
    state = _State()
    with contextlib.ExitStack() as stack:

        def within(owner: Any, name: str, attribute: str) -> None:
            """Count a method as what this thread is within."""
            method = getattr(owner, name)

            def counted(*args: Any, **kwargs: Any) -> Any:
                setattr(state, attribute, getattr(state, attribute) + 1)
                try:
                    return method(*args, **kwargs)
                finally:
                    setattr(state, attribute, getattr(state, attribute) - 1)

            stack.enter_context(mock.patch.object(owner, name, counted))

        def compiler(module: ModuleType) -> None:
            kept = module.CompiledKernel.launch_metadata

            def launch_metadata(kernel: Any, grid: Any, stream: Any, *args: Any) -> Any:
                x, y, z = (*map(int, grid), 1, 1)[:3]
                if gpu is None:
                    kernel._init_handles()
                if not state.measuring and x * y * z > 0:
                    one = _seen(kernel, (x, y, z), args, state, gpu)
                    sink(one)
                    if gpu is not None:
                        gpu.forget(one.tensors.values())
                return kept(kernel, grid, stream, *args) if gpu is None else None

            patch = mock.patch.object(module.CompiledKernel, "launch_metadata", launch_metadata)
            stack.enter_context(patch)
            if gpu is not None:
                nothing = property(lambda kernel: lambda *args: None)
                stack.enter_context(mock.patch.object(module.CompiledKernel, "run", nothing))

        def autotuner(module: ModuleType) -> None:
            if gpu is None:
                within(module.Autotuner, "_bench", "measuring")
                return
            run = module.Autotuner.run

            def chosen(tuner: Any, *args: Any, **kwargs: Any) -> Any:
                first = len(tuner.configs) > 1
                state.choice = f"the first of {len(tuner.configs)} that fit" if first else None
                try:
                    return run(tuner, *args, **kwargs)
                finally:
                    state.choice = None

            stack.enter_context(mock.patch.object(module.Autotuner, "run", chosen))
            alike = mock.patch.object(module.Autotuner, "_bench", return_value=[1.0] * 3)
            stack.enter_context(alike)

        def inductor(module: ModuleType) -> None:
            within(module.CachingAutotuner, "bench", "measuring")
            within(module.CachingAutotuner, "run", "inductor")

        def hooked(module: ModuleType) -> None:
            chain = module.runtime.launch_enter_hook
            hook = lambda metadata: None  # noqa: E731
            if hasattr(chain, "add"):
                chain.add(hook)
                stack.callback(chain.remove, hook)
            else:
                stack.enter_context(mock.patch.object(module.runtime, "launch_enter_hook", hook))

        wanted: dict[str, Callable[[ModuleType], None]] = {
            "triton.compiler.compiler": compiler,
            "triton.runtime.autotuner": autotuner,
            "torch._inductor.runtime.triton_heuristics": inductor,
        }
        if gpu is None:
            name = "TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER"  # it passes Triton's hooks by
            stack.enter_context(mock.patch.dict(os.environ, {name: "0"}))
            wanted["triton.knobs"] = hooked
            if (config := sys.modules.get("torch._inductor.config")) is not None:
                stack.enter_context(config.patch(use_static_cuda_launcher=False))
        else:

            def driver(module: ModuleType) -> None:
                stack.enter_context(mock.patch.object(module.driver, "_active", gpu))

            wanted |= {"triton.runtime.driver": driver}
            wanted |= {"torch": lambda torch: gpu.stand_in(torch, stack)}
        with _imported(wanted):
            yield


@contextlib.contextmanager
def _imported(wanted: dict[str, Callable[[ModuleType], None]]) -> Iterator[None]:
    """Call functions with modules: now, where they are there, else as soon as they are imported."""

    class Finder:
        def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
            if name not in wanted:
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            if spec is None or spec.loader is None:
                return spec
            execute = spec.loader.exec_module

            def executed(module: ModuleType) -> None:
                execute(module)
                wanted[name](module)

            spec.loader.exec_module = executed  # type: ignore[method-assign]
            return spec

    for name in wanted.keys() & sys.modules.keys():
        wanted[name](sys.modules[name])
    finder: Any = Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def _seen(
    kernel: Any, grid: tuple[int, int, int], args: Sequence[Any], state: _State, gpu: FakeGPU | None
) -> SeenLaunch:
    signature: dict[str, Any] = dict(kernel.src.signature)
    names = list(signature)
    if len(args) != len(names):  # Inductor leaves constants out
        given = iter(args)
        args = [None if signature[name] == "constexpr" else next(given) for name in names]
    arguments = _Arguments(kernel.metadata, gpu)
    for name, value in zip(names, args, strict=True):
        arguments.add(name, signature[name], value)
    constants = {}
    for place, value in kernel.src.constants.items():
        first, *inner = place if isinstance(place, tuple) else (names.index(place),)
        constants[".".join([names[first], *map(str, inner)])] = _plain(value)
    return SeenLaunch(
        kernel, grid, arguments.params, constants, arguments.tensors, state.choice,
        state.inductor > 0,
    )  # fmt: skip


@dataclass
class _Arguments:
    """The arguments of a launch as PTX has them: tuples and descriptors are several."""

    metadata: Any
    gpu: FakeGPU | None
    params: list[dict[str, Any]] = field(default_factory=list)
    tensors: dict[int, Any] = field(default_factory=dict)
    _descriptors: int = 0

    def add(self, name: str, kind: Any, value: Any) -> None:
        """Add one argument of Triton's."""
        if isinstance(kind, tuple):
            for index, one in enumerate(kind):
                self.add(f"{name}.{index}", one, value[index])
        elif kind == "constexpr":
            return
        elif kind.startswith("tensordesc"):
            self._add_descriptor(name, kind, value)
        elif kind.startswith("*"):
            self._add_pointer(name, kind, value)
        else:
            number = float(value) if kind[0] in "fb" else int(value)
            whole = isinstance(number, int) or math.isfinite(number)
            self.params.append({"name": name, "type": kind, "value": number if whole else None})

    def _add_pointer(self, name: str, kind: str, value: Any) -> None:
        tensor = getattr(value, "base", value) if not hasattr(value, "untyped_storage") else value
        param: dict[str, Any] = {"name": name, "type": kind, "address": self._address(value)}
        if hasattr(tensor, "element_size"):
            before = tensor.storage_offset() * tensor.element_size()
            size = int(tensor.untyped_storage().nbytes() - before)
            shape, strides = [*map(int, tensor.shape)], [*map(int, tensor.stride())]
            param |= {"bytes": size, "shape": shape, "strides": strides}
            self.tensors[len(self.params)] = tensor
        self.params.append(param)

    def _address(self, value: Any) -> int:
        if isinstance(value, int):
            return value
        invented = self.gpu is not None and hasattr(value, "untyped_storage")
        return self.gpu.address(value) if self.gpu and invented else int(value.data_ptr())

    def _add_descriptor(self, name: str, kind: str, value: Any) -> None:
        """A host's tensor descriptor: a tensor map, or what stands for it; sizes and strides."""
        shape, strides = [*map(int, value.shape)], [*map(int, value.strides)]
        listed = getattr(self.metadata, "tensordesc_meta", None) or []
        meta = listed[self._descriptors] if self._descriptors < len(listed) else None
        self._descriptors += 1

        def scalar(name: str, kind: str, number: int) -> None:
            self.params.append({"name": name, "type": kind, "value": number})

        if meta:
            size, packed = meta["elem_size"], 2 if meta.get("fp4_padded") else 1
            tensor_map = {
                "address": self._address(value.base), "element_bytes": size,
                "dims": [shape[-1] * packed, *shape[-2::-1]],
                "strides": [stride * size for stride in strides[-2::-1]],
                "box": [*reversed(meta["block_size"])],
                "swizzle": (0, 32, 64, 128)[meta["swizzle"]],
            }  # fmt: skip
            self.params.append({"name": name, "type": "nvTmaDesc", "tensor_map": tensor_map})
        else:
            self._add_pointer(name, "*" + kind.partition("<")[2].partition("[")[0], value.base)
            for index, number in enumerate([*shape, *strides]):
                scalar(f"{name}.{index}", "i64", number)
            scalar(f"{name}.padding", "i1", int(getattr(value, "padding", "zero") == "nan"))
            if hasattr(value, "round_f32_to_tf32"):
                scalar(f"{name}.round_f32_to_tf32", "i1", int(value.round_f32_to_tf32))
        for index, number in enumerate(shape):
            scalar(f"{name}.shape{index}", "i32", number)
        for index, number in enumerate(strides):
            scalar(f"{name}.stride{index}", "i64", number)


def _plain(value: Any) -> Any:
    """A constant as a record holds it; types as ``tl.float16``, functions by their names."""
    value = getattr(value, "value", value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, tuple | list):
        return [_plain(item) for item in value]
    if type(value).__name__ == "dtype":
        import triton.language as tl

        return next((f"tl.{n}" for n, t in vars(tl).items() if t is value), str(value))
    return getattr(value, "__name__", str(value))


def held(tensor: Any, gpu: FakeGPU | None) -> Any:
    """What an array of whole numbers holds, as a NumPy array in the order of its memory.

    None where it is of other numbers, too long, or not to be had: during a CUDA graph's capture.
    """
    import torch

    whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype == torch.bool)
    span = tensor.untyped_storage().nbytes() // tensor.element_size() - tensor.storage_offset()
    if not whole or not 0 < span <= CONTENTS:
        return None
    real, start = tensor, tensor.storage_offset()
    if gpu is not None:
        real = gpu.contents(tensor)
        if real is None:
            return None
    elif torch.cuda.is_current_stream_capturing():
        return None
    return real.detach().as_strided((span,), (1,), start).cpu().numpy()


class FakeGPU(_triton.StandInDevice):
    """A GPU that is not there, for Triton (its driver) and PyTorch (``cuda``)."""

    def __init__(self, capability: int):
        super().__init__(capability)
        self._next = _START
        self._placed: dict[int, tuple[int, int]] = {}
        self._held: dict[int, tuple[Any, int, Any]] = {}

    def get_current_device(self) -> int:
        """A number of its own: Triton keeps what it compiled by device."""
        return 1000 + self._capability

    def get_current_stream(self, device: object = None) -> int:
        """The stream of launches that do not run."""
        return 0

    def get_device_interface(self) -> Any:
        """PyTorch's module for the device."""
        import torch

        return torch.cuda

    def get_benchmarker(self) -> Any:
        """Nothing runs, so nothing takes time."""
        return lambda call, quantiles=(0.5, 0.2, 0.8), **_: [0.0 for _ in quantiles]

    def address(self, tensor: Any) -> int:
        """Where a tensor lies: an invented address for each storage, aligned as PyTorch does."""
        storage, offset = tensor.untyped_storage(), tensor.storage_offset() * tensor.element_size()
        key, size = storage._cdata, int(storage.nbytes())
        start, known = self._placed.get(key, (0, -1))
        if known != size:
            start = self._next
            self._next += -(-max(size, 1) // _ALIGN) * _ALIGN
            self._placed[key] = (start, size)
        return start + int(offset)

    def keep(self, tensor: Any, real: Any) -> None:
        """Know what a tensor holds that has come from the host; of many the last ones."""
        if not real.is_floating_point() and real.numel() <= CONTENTS:
            key = tensor.untyped_storage()._cdata
            self._held[key] = (tensor, tensor._version, real.detach().clone())
            if len(self._held) > _KEPT:
                del self._held[next(iter(self._held))]

    def contents(self, tensor: Any) -> Any:
        """What lies where a tensor does, where nothing can have written to it; else None."""
        kept = self._held.get(tensor.untyped_storage()._cdata)
        known = kept is not None and kept[0]._version == kept[1] and kept[2].dtype == tensor.dtype
        return kept[2] if kept is not None and known else None

    def forget(self, tensors: Iterable[Any]) -> None:
        """A launch may have written to them."""
        for tensor in tensors:
            self._held.pop(tensor.untyped_storage()._cdata, None)

    def stand_in(self, torch: Any, stack: contextlib.ExitStack) -> None:
        """Let PyTorch say that the GPU is there, and put what is made on it on ``meta``."""

        def answering(answer: Any) -> Any:  # one function each: PyTorch's compiler lists them
            return lambda *args, **kwargs: answer

        cuda = torch.device("cuda", 0)
        stream = SimpleNamespace(cuda_stream=0, device=cuda, synchronize=answering(None))
        answers = {
            "is_available": True, "is_initialized": True, "is_bf16_supported": True,
            "is_current_stream_capturing": False, "device_count": 1, "current_device": 0,
            "_exchange_device": 0, "_maybe_exchange_device": 0, "current_stream": stream,
            "get_device_capability": self.get_device_capability(),
            "get_device_name": self.properties().name, "get_device_properties": self.properties(),
        }  # fmt: skip
        does_nothing = ("synchronize", "set_device", "_lazy_init", "manual_seed", "empty_cache")
        for name, answer in {**answers, **dict.fromkeys(does_nothing)}.items():
            stack.enter_context(mock.patch.object(torch.cuda, name, answering(answer)))
        mode, run = _on_meta(torch, self), torch.autograd._engine_run_backward

        def run_backward(*args: Any, **kwargs: Any) -> Any:
            with mode:  # PyTorch has left it where it calls `Tensor.backward`
                return run(*args, **kwargs)

        stack.enter_context(mock.patch.object(torch.autograd, "_engine_run_backward", run_backward))
        stack.enter_context(mode)


def _on_meta(torch: Any, gpu: FakeGPU) -> Any:
    """The mode in which ``cuda`` is ``meta`` and ``meta`` says that it is ``cuda``."""
    cuda, tensor = torch.device("cuda", 0), torch.Tensor
    answers = {
        tensor.device.__get__: cuda, tensor.is_cuda.__get__: True, tensor.is_meta.__get__: False,
        tensor.get_device: 0,
    }  # fmt: skip

    def moved(value: Any) -> Any:
        if isinstance(value, int) or value is None:
            return value
        named = isinstance(value, str) and value.partition(":")[0] == "cuda"
        return (
            "meta" if named or (isinstance(value, torch.device) and value.type == "cuda") else value
        )

    class OnMeta(torch.overrides.TorchFunctionMode):  # type: ignore[misc]
        def __torch_function__(
            self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
        ) -> Any:
            kwargs = dict(kwargs or {})
            of_meta = bool(args) and isinstance(args[0], tensor) and args[0].is_meta
            if of_meta and func in answers:
                return answers[func]
            if of_meta and func is tensor.data_ptr:
                return gpu.address(args[0])
            if func is tensor.cuda:
                func, args, kwargs = tensor.to, (args[0], "meta"), {}
            elif of_meta and func in (tensor.pin_memory,):
                return args[0]
            if func is torch.device:
                return func(*args, **kwargs)
            args = tuple(moved(a) for a in args) if func is not torch.tensor else args
            if kwargs.get("device") is not None:
                kwargs["device"] = moved(kwargs["device"])
            made = func(*args, **kwargs)
            if func is tensor.to and not of_meta and made.is_meta:
                gpu.keep(made, args[0].to(made.dtype))
            return made

    return OnMeta()
