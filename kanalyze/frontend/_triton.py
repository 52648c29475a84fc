"""The adapter to Triton's compiler.

Only this file, `_triton_kernels`, `_triton_errors` and `_triton_launches` import Triton, and only
inside functions.
Everything here works without a GPU or a driver. Written against the interfaces of Triton 3.5 to
3.9: ``triton.compile``, ``ASTSource``, ``GPUTarget``, ``triton.knobs``, and the attributes of
``JITFunction``, ``Autotuner`` and ``Heuristics``.
"""

from __future__ import annotations

import contextlib
import functools
import io
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from kanalyze import cache
from kanalyze.devices.table import USUAL
from kanalyze.devices.table import device as find_device
from kanalyze.frontend import _triton_errors, user_file
from kanalyze.frontend._triton_kernels import JitKernel, import_triton
from kanalyze.toolchain import ptxas, tools

_lock = threading.RLock()


@contextlib.contextmanager
def environment(place: str) -> Iterator[None]:
    """Set Triton's cache folder and compiling mode for a while, and put them back.

    Triton's cache key does not hold the path of a kernel's file, while its PTX does (``.file``), so
    each path has a folder of its own: a copied file is never shown under the other's name.

    Args:
        place: what names the folder below the cache (the kernel's path).
    """
    import_triton()
    from triton import knobs

    with _lock, contextlib.ExitStack() as stack:
        stack.enter_context(knobs.runtime.scope())
        stack.enter_context(knobs.compilation.scope())
        stack.enter_context(knobs.cache.scope())
        stack.enter_context(knobs.nvidia.scope())
        knobs.nvidia.dump_ptxas_log = True  # else ptxas runs once more for it
        knobs.runtime.interpret = False
        knobs.compilation.store_binary_only = False
        if not os.environ.get("TRITON_CACHE_DIR"):
            folder = cache.triton_dir()
            if folder is None:
                temporary = tempfile.TemporaryDirectory(prefix="kanalyze-triton-")
                folder = Path(stack.enter_context(temporary))
            triton_folder = str(Path(sys.modules["triton"].__file__ or "").parent)
            knobs.cache.dir = str(folder / cache.key(place, triton_folder)[:16])
        yield


class StandInDevice:
    """Triton's driver for a device that is not there: says what it is, and does nothing else.

    Its numbers are those of a usual GPU of the capability. Source: ``DriverBase`` and ``GPUDriver``
    in ``triton/backends/driver.py``, ``CudaUtils`` in ``triton/backends/nvidia/driver.py``, which
    is ``utils`` here, and ``torch.cuda.get_device_properties``.
    """

    def __init__(self, capability: int):
        self._capability = capability
        self.utils = SimpleNamespace(get_device_properties=lambda _: vars(self.properties()))

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        return 0

    def get_device_capability(self, device: object = None) -> tuple[int, int]:
        return divmod(self._capability, 10)

    def get_active_torch_device(self) -> Any:
        import torch

        return torch.device("cuda", 0)

    def properties(self, device: object = None) -> SimpleNamespace:
        gpu = find_device(USUAL[f"sm_{self._capability}"])
        major, minor = self.get_device_capability()
        limits = gpu.capability
        of_triton = {
            "max_shared_mem": limits.shared_per_block_bytes, "warpSize": 32,
            "max_num_regs": limits.registers_per_block, "multiprocessor_count": gpu.sms,
        }  # fmt: skip
        return SimpleNamespace(
            **of_triton, name=gpu.name, major=major, minor=minor, warp_size=32,
            multi_processor_count=gpu.sms, L2_cache_size=gpu.l2_bytes,
            total_memory=int((gpu.dram_nominal_gb or 0) * 10**9),
            regs_per_multiprocessor=limits.registers_per_sm,
            shared_memory_per_block_optin=limits.shared_per_block_bytes,
            shared_memory_per_multiprocessor=limits.shared_per_sm_bytes,
            max_threads_per_multi_processor=32 * limits.max_warps_per_sm,
        )  # fmt: skip


@contextlib.contextmanager
def stand_in(capability: int, path: Path) -> Iterator[None]:
    """Where no GPU is, let Triton and PyTorch name one of a CUDA capability for a while.

    Files ask for the device when they are imported; without a driver Triton raises
    ``RuntimeError: 0 active drivers``.

    Args:
        capability: 90 for sm_90.
        path: the file that is to be run; PyTorch is imported where it does.
    """
    from triton.backends import backends
    from triton.runtime import driver

    if backends["nvidia"].driver.is_active():  # to ask those of AMD takes seconds
        yield
        return
    with contextlib.ExitStack() as stack:
        patch: Any = lambda *a: stack.enter_context(mock.patch.object(*a))  # noqa: E731
        device = StandInDevice(capability)
        patch(driver, "_active", device)
        if (torch := import_torch(path)) is not None:
            patch(torch.cuda, "is_available", lambda: True)
            patch(torch.cuda, "device_count", lambda: 1)
            patch(torch.cuda, "current_device", device.get_current_device)
            patch(torch.cuda, "get_device_capability", device.get_device_capability)
            patch(torch.cuda, "get_device_properties", device.properties)
            patch(torch.cuda, "get_device_name", lambda _=None: device.properties().name)
        yield


@functools.cache
def warm() -> None:
    """Give Triton the sum of all its own files, which its cache needs and takes 0.3 s to reckon.

    It is kept by the paths, sizes and times of these files.
    """
    with contextlib.suppress(ImportError):  # up to 3.5 it has another place
        from triton.runtime import cache as own
        from triton.runtime.cache import triton_key

        root = Path(own.__file__).parents[1]
        files = [own.__file__, *(root / "_C").glob("libtriton.*")]
        files += [
            f for part in ("compiler", "backends", "language") for f in (root / part).rglob("*.py")
        ]
        stats = ((str(file), os.stat(file)) for file in sorted(map(str, files)))
        state = (f"{f} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns}" for f, s in stats)
        name = f"triton-key-{cache.key(*state)}"
        kept = cache.load(name)
        if kept is None:
            kept = triton_key().encode()
            cache.store(name, kept)
        text = kept.decode()
        own.triton_key = lambda: text


def import_torch(path: Path) -> Any:
    """PyTorch, where a file imports it and it is installed; else None."""
    if re.search(rb"(?m)^(import|from)\b.*\btorch\b", user_file.content(path)):
        with contextlib.suppress(ImportError):
            import torch

            return torch
    return None


@dataclass(frozen=True, slots=True)
class Output:
    """What one compilation gave: texts and binary by stage, Triton's metadata, its warnings.

    ``log`` is what ptxas said; "" where Triton's cache held the binary.
    """

    asm: dict[str, Any]
    metadata: dict[str, Any]
    warnings: tuple[str, ...]
    log: str


def compile_source(
    kernel: JitKernel,
    signature: Mapping[str, str],
    constexprs: Mapping[str, Any],
    divisible: Mapping[str, bool],
    capability: int,
    options: Mapping[str, Any],
) -> Output:
    """Run Triton's compiler for a CUDA capability (90 for sm_90).

    Raises:
        InputError: Triton or ptxas rejects the kernel; the spot lies in the user's file.
        MissingToolError: this Triton's ptxas does not know the architecture, or is another program.
    """
    triton = import_triton()
    warm()
    tools.version(tools.find(ptxas.ptxas_for(capability)))
    from triton import knobs
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source_class: Any = ASTSource
    if getattr(kernel.function, "is_gluon", lambda: False)():
        from triton.experimental.gluon import _runtime

        source_class = _runtime.GluonASTSource
    names = [parameter.name for parameter in kernel.parameters]
    constants = {(names.index(name),): _constant(value) for name, value in constexprs.items()}
    attributes = {
        (names.index(name),): [["tt.divisibility", 16]] for name, yes in divisible.items() if yes
    }
    debug = bool(getattr(kernel.function, "debug", False))  # keeps tl.device_assert
    given = dict(options) | ({"debug": True} if debug else {})
    said = _Said()
    try:
        with _captured(said):
            for attempt in (1, 2):
                source = source_class(
                    fn=kernel.function,
                    signature=dict(signature),
                    constexprs=constants,
                    attrs=attributes,
                )
                try:
                    done = triton.compile(
                        source, target=GPUTarget("cuda", capability, 32), options=given
                    )
                    asm = dict(done.asm)
                    sums = "triton-" + cache.key(str(knobs.cache.dir), str(kernel.file), done.hash)
                    if attempt == 2 or (_is_of(asm, kernel.file) and _is_whole(asm, sums)):
                        break
                    # Damaged, or kept from a file of the same text under another path, which is
                    # not to be shown.
                except Exception as error:
                    if not _triton_errors.while_reading(error) or attempt == 2:
                        raise
                knobs.compilation.always_compile = True
            cache.store(sums, _sum(asm))
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise _triton_errors.translated(
            error, said.output, said.errors, kernel, capability
        ) from error
    log = re.search(r"^ptxas\S* .*", said.output, re.MULTILINE | re.DOTALL)
    if printed := said.output[: log.start()] if log else said.output:
        print(printed, end="", file=sys.stderr)  # tl.static_print
    metadata = done.metadata._asdict()
    own = knobs.compilation.disable_line_info or knobs.nvidia.disable_ptxas_opt
    of_flags = log and not own and not metadata.get("ptx_options")
    metadata["name"] = done.name
    metadata["loc_column_base"] = kernel.column_base()
    warnings = tuple(_triton_errors.diagnostics(said.errors, "warning"))
    return Output(asm, metadata, warnings, log[0] if log and of_flags else "")


def _constant(value: object) -> object:
    """Return a constexpr's value; a text such as ``tl.float16`` stands for the type."""
    if isinstance(value, str) and value.startswith("tl."):
        import triton.language as tl

        constant = getattr(tl, value[3:], None)
        if isinstance(constant, tl.dtype):
            return constant
    return value


def _is_of(asm: Mapping[str, Any], file: Path) -> bool:
    ptx = asm.get("ptx")
    if ptx is None or not re.search(r"^\s*\.target\b", ptx, re.M):
        return False
    return not re.search(r"^\s*\.file\b", ptx, re.M) or str(file) in ptx


def _is_whole(asm: Mapping[str, Any], name: str) -> bool:
    """Whether the stages are still those that our cache holds a sum of (or it holds none)."""
    return cache.load(name) in (None, _sum(asm))


def _sum(asm: Mapping[str, Any]) -> bytes:
    parts = [part for stage in sorted(asm) for part in (stage, asm[stage])]
    return cache.key(*parts).encode()


@dataclass
class _Said:
    output: str = ""
    errors: str = ""


@contextlib.contextmanager
def _captured(said: _Said) -> Iterator[None]:
    """Keep what Python prints and what C++ writes to file descriptor 2 off the terminal."""
    output, errors = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        sink = stack.enter_context(tempfile.TemporaryFile())
        try:
            saved = os.dup(2)
        except OSError:  # no standard error at all
            saved = None
        stack.enter_context(contextlib.redirect_stdout(output))
        stack.enter_context(contextlib.redirect_stderr(errors))
        try:
            if saved is not None:
                os.dup2(sink.fileno(), 2)
            yield
        finally:
            if saved is not None:
                os.dup2(saved, 2)
                os.close(saved)
            sink.seek(0)
            said.output = output.getvalue()
            said.errors = sink.read().decode("utf-8", "replace") + errors.getvalue()
