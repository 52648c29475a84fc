"""A device's peak rate for a kernel's type, from the device table; nothing is made up."""

from __future__ import annotations

from functools import cache

from kanalyze.errors import KanalyzeError, Unknown
from kanalyze.profiles.names import KernelName
from kanalyze.profiles.readers.event import ProfiledDevice

_TENSOR = {
    "f16": "fp16_tensor_tflops",
    "bf16": "bf16_tensor_tflops",
    "e4m3": "fp8_tensor_tflops",
    "e5m2": "fp8_tensor_tflops",
    "s8": "int8_tensor_tops",
    "f64": "fp64_tensor_tflops",
    "f32": "tf32_tensor_tflops",
}
_SIMT = {"f32": "fp32_tflops", "f64": "fp64_tflops"}
_ONE_PEAK = frozenset(("f16", "bf16", "e4m3", "e5m2", "s8"))
"""Types for which only tensor cores come near a peak worth comparing with."""

Peak = tuple[float, str]
"""A rate in 10^12 operations a second, and where it comes from."""


def peak_of(
    device: ProfiledDevice | None, dtype: str, name: KernelName, tensor_core: bool | None
) -> Peak | Unknown:
    """The dense peak that a matrix product of this type and path is up against, or why there is
    none to compare with."""
    if device is None or device.name is None:
        return Unknown("the dump does not name the device")
    if tensor_core is None and dtype not in _ONE_PEAK:
        return Unknown(f"the name does not say whether the {dtype} product ran on tensor cores")
    if tensor_core is False:
        field = _SIMT.get(dtype)
    else:
        field = _TENSOR.get(dtype)
        if dtype == "f32" and name.decoded.get("dtype_mma") not in (None, "tf32", "f32"):
            return Unknown("the matrix instruction's type is none of the product's")
    if field is None:
        return Unknown(f"no peak is known for {dtype} on this path")
    return _table(device.name, field)


@cache
def _table(device: str, field: str) -> Peak | Unknown:
    from kanalyze.devices import table as devices

    try:
        gpu = devices.device(device)
    except KanalyzeError as error:
        return Unknown(str(error))
    value = getattr(gpu, field)
    if value is None:
        return Unknown(f"{gpu.name}: {field}: {gpu.why_unknown(field)}")
    fact = gpu.facts[field]
    return float(value), devices.sources().get(fact.source, fact.source)
