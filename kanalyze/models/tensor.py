"""Work of the tensor cores: operations by type of the operands, and shared memory that they read.

What: for one tensor-core instruction of the PTX the type of its operands, and the bytes that it
reads through descriptors.
Formula: ``wgmma`` reads B (k×n) from shared memory, and A (m×k) where that is a descriptor, too;
128 bytes a wavefront.
Source: PTX ISA, "wgmma.mma_async"; equal to
``l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum`` of an H200.
Limits: ``mma`` reads registers; of ``tcgen05.mma`` the reads are not counted.
"""

from __future__ import annotations

from kanalyze.devices.table import Device
from kanalyze.models.flops import shape_of
from kanalyze.ptx import ir

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "f64": 64,
         "b1": 1, "s4": 4, "u4": 4, "e2m1": 4}  # fmt: skip
_FACT = {"f16": "fp16_tensor_tflops", "bf16": "bf16_tensor_tflops", "tf32": "tf32_tensor_tflops",
         "e4m3": "fp8_tensor_tflops", "e5m2": "fp8_tensor_tflops", "f8f6f4": "fp8_tensor_tflops",
         "s8": "int8_tensor_tops", "u8": "int8_tensor_tops", "i8": "int8_tensor_tops",
         "f64": "fp64_tensor_tflops", "e2m1": "fp4_tensor_tflops", "mxf4": "fp4_tensor_tflops",
         "mxf4nvf4": "fp4_tensor_tflops", "mxf8f6f4": "fp8_tensor_tflops"}  # fmt: skip
_WAVEFRONT = 128


def operand_type(instruction: ir.Instruction) -> str | None:
    """The type of A and B of a tensor-core instruction: None if it is none."""
    if instruction.parts[0] not in ("mma", "wmma", "wgmma", "tcgen05"):
        return None
    for part in instruction.parts:
        if part.startswith("kind::"):
            return part.removeprefix("kind::")
    types = [part for part in instruction.parts if part in _BITS or part in ("f32", "s32")]
    if instruction.parts[:2] == ("wmma", "mma") and len(types) == 2:
        return "f16"  # those of D and C alone: the first form, of half precision
    inner = types[1:-1] if instruction.parts[0] == "mma" and len(types) > 2 else types[1:]
    return next((part for part in inner if part in _BITS), None)


def operand_wavefronts(instruction: ir.Instruction) -> int:
    """Wavefronts of shared memory that one execution by a warpgroup takes for its operands."""
    if instruction.parts[0] != "wgmma":
        return 0
    shape = shape_of(instruction)
    kind = operand_type(instruction)
    if shape is None or kind is None or len(instruction.operands) < 3:
        return 0
    m, n, k = shape
    from_shared = 0 if isinstance(instruction.operands[1], ir.Vector) else m * k
    return -(-(from_shared + n * k) * _BITS[kind] // 8 // _WAVEFRONT)


def peak(kind: str, device: Device) -> float | None:
    """The peak rate of a GPU for operands of a type, 10^12 operations a second."""
    fact = _FACT.get(kind)
    rate: float | None = getattr(device, fact) if fact is not None else None
    return rate


def operations_per_clock(kind: str, device: Device) -> float | None:
    """Dense operations of one type that an SM does each clock; None where it is not known.

    Tensor cores do a power of two of them, or half as many again (4-bit types of sm_103): the one
    nearest to the peak rate at the highest clock, which peaks are rated a little below.
    """
    highest = peak(kind, device)
    if highest is None or device.sms is None or device.clock_max_mhz is None:
        return None
    rate = highest * 1e12 / (device.sms * device.clock_max_mhz * 1e6)
    possible = [n << power for power in range(18) for n in (2, 3)]
    return float(min(possible, key=lambda n: abs(n - rate)))
