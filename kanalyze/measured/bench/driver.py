"""Launching a cubin through the CUDA driver: the kernel that is measured is the one recorded.

``cuModuleLoadData``, ``cuFuncSetAttribute``, ``cuLaunchKernel`` (CUDA Driver API), in the context
that PyTorch made. Attributes are set as Triton's launcher sets them.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import struct
from collections.abc import Callable, Sequence
from typing import Any

from kanalyze.errors import KanalyzeError, MissingToolError
from kanalyze.measured.bench.build import BenchParam, Launchable

_SCALARS: dict[str, Callable[[Any], Any]] = {
    "i1": lambda v: ctypes.c_int8(int(v)), "i8": ctypes.c_int8, "i16": ctypes.c_int16,
    "i32": ctypes.c_int32, "i64": ctypes.c_int64, "u8": ctypes.c_uint8, "u16": ctypes.c_uint16,
    "u32": ctypes.c_uint32, "u64": ctypes.c_uint64, "fp32": ctypes.c_float,
    "fp64": ctypes.c_double, "fp16": lambda v: ctypes.c_uint16(_half(v)),
    "bf16": lambda v: ctypes.c_uint16(struct.unpack("<I", struct.pack("<f", v))[0] >> 16),
}  # fmt: skip
# CUfunction_attribute and CUfunc_cache of cuda.h.
_SHARED_SIZE_BYTES, _NUM_REGS, _MAX_DYNAMIC_SHARED = 1, 4, 8
_PREFER_SHARED = 1
_DEFAULT_SHARED = 48 << 10  # what a kernel may have without being asked for


class LaunchError(KanalyzeError):
    """The driver refuses something; ``code`` is its CUresult."""

    def __init__(self, what: str, code: int, text: str):
        super().__init__(f"{what}: {text} (CUDA error {code})")
        self.code = code


def _half(value: float) -> int:
    return int(struct.unpack("<H", struct.pack("<e", value))[0])


def packed(params: Sequence[BenchParam], addresses: Sequence[int | None], nulls: int) -> list[Any]:
    """The arguments as the kernel reads them: ctypes values, the compiler's own ones null.

    Args:
        params: the parameters.
        addresses: for each, the address of a pointer (None for a scalar).
        nulls: pointers that follow.

    Raises:
        LaunchError: a type that is not known.
    """
    values: list[Any] = []
    for param, address in zip(params, addresses, strict=True):
        if param.type.startswith("*"):
            values.append(ctypes.c_uint64(address or 0))
        elif param.type in _SCALARS:
            values.append(_SCALARS[param.type](param.value))
        else:
            raise LaunchError(f"argument {param.name}", 1, f"unknown type {param.type}")
    return [*values, *(ctypes.c_uint64(0) for _ in range(nulls))]


class Driver:
    """libcuda, with errors as exceptions."""

    def __init__(self) -> None:
        try:
            self.library = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise MissingToolError(
                f"NVIDIA's driver is not installed ({error}); bench needs a GPU"
            ) from None

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver.

        Raises:
            LaunchError: it returns an error.
        """
        code = int(getattr(self.library, name)(*arguments))
        if code:
            text = ctypes.c_char_p()
            self.library.cuGetErrorString(code, ctypes.byref(text))
            raise LaunchError(name, code, (text.value or b"unknown error").decode())

    def load(self, image: bytes, kernel: str, dynamic_shared_bytes: int = 0) -> LoadedKernel:
        """Load a cubin or PTX; raise the limit of shared memory as far as the kernel needs."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), image + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, kernel.encode())
        loaded = LoadedKernel(self, module, function)
        if dynamic_shared_bytes > _DEFAULT_SHARED:
            # As Triton's loader does: all that the GPU has, shared memory rather than L1.
            self.call("cuFuncSetCacheConfig", function, _PREFER_SHARED)
            most = self._shared_of_device() - loaded.attribute(_SHARED_SIZE_BYTES)
            self.call("cuFuncSetAttribute", function, _MAX_DYNAMIC_SHARED, most)
        return loaded

    def _shared_of_device(self) -> int:
        device, value = ctypes.c_int(), ctypes.c_int()
        self.call("cuCtxGetDevice", ctypes.byref(device))
        optin = 97  # CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN
        self.call("cuDeviceGetAttribute", ctypes.byref(value), optin, device)
        return value.value


class LoadedKernel:
    """A loaded kernel; `close` unloads it."""

    def __init__(self, driver: Driver, module: ctypes.c_void_p, function: ctypes.c_void_p):
        self.driver = driver
        self.module = module
        self.function = function

    def attribute(self, number: int) -> int:
        """A CUfunction_attribute."""
        value = ctypes.c_int()
        self.driver.call("cuFuncGetAttribute", ctypes.byref(value), number, self.function)
        return value.value

    @property
    def registers(self) -> int:
        """Registers per thread."""
        return self.attribute(_NUM_REGS)

    def launcher(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        shared: int,
        values: list[Any],
        stream: int,
    ) -> Callable[[], None]:
        """A function that launches it, with everything made ready beforehand."""
        pointers = (ctypes.c_void_p * max(1, len(values)))(
            *(ctypes.cast(ctypes.byref(v), ctypes.c_void_p) for v in values)
        )
        arguments = (
            self.function, *(ctypes.c_uint(n) for n in (*grid, *block, shared)),
            ctypes.c_void_p(stream), pointers, None,
        )  # fmt: skip
        launch = self.driver.library.cuLaunchKernel

        def go(kept: list[Any] = values) -> None:
            code = launch(*arguments)
            if code:
                raise LaunchError("cuLaunchKernel", code, "the launch is refused")

        return go

    def close(self) -> None:
        """Unload it."""
        self.driver.call("cuModuleUnload", self.module)


def launcher(
    driver: Driver, built: Launchable, addresses: Sequence[int | None], stream: int
) -> tuple[LoadedKernel, Callable[[], None]]:
    """Load a launch's cubin; return the kernel and the function that launches it once."""
    kernel = driver.load(built.cubin, built.kernel, built.dynamic_shared_bytes)
    values = packed(built.params, addresses, built.null_params)
    go = kernel.launcher(built.grid, built.block, built.dynamic_shared_bytes, values, stream)
    return kernel, go
