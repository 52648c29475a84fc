"""Words that several families share: element types, architectures, matrix instructions."""

from __future__ import annotations

# BLAS-style letter -> accumulator type (reference BLAS naming; CUTLASS cutlass_library/library.py
# ShortDataTypeNames). A leading g marks the Gaussian (3M) complex product.
ACC_LETTER = {
    "s": "f32",
    "h": "f16",
    "d": "f64",
    "i": "s32",
    "c": "cf32",
    "z": "cf64",
    "gc": "cf32",
    "gz": "cf64",
}

# Digits of a matrix instruction, which the names write without separators. A table, because the
# digits alone are ambiguous (cutlass_library: f"{m}{n}{k}" of the instruction shape).
INSTRUCTIONS = {
    "884": (8, 8, 4),
    "1684": (16, 8, 4),
    "1688": (16, 8, 8),
    "16816": (16, 8, 16),
    "16832": (16, 8, 32),
    "16864": (16, 8, 64),
    "168128": (16, 8, 128),
    "168256": (16, 8, 256),
    "8816": (8, 8, 16),
    "8832": (8, 8, 32),
    "88128": (8, 8, 128),
    "161616": (16, 16, 16),
    "16168": (16, 16, 8),
    "32816": (32, 8, 16),
    "83216": (8, 32, 16),
    "888": (8, 8, 8),
}

# Compute capability -> name (CUDA programming guide).
_ARCH_NAMES = {
    "50": "maxwell",
    "52": "maxwell",
    "53": "maxwell",
    "60": "pascal",
    "61": "pascal",
    "62": "pascal",
    "70": "volta",
    "72": "volta",
    "75": "turing",
    "80": "ampere",
    "86": "ampere",
    "87": "ampere",
    "89": "ada",
    "90": "hopper",
    "100": "blackwell",
    "101": "blackwell",
    "103": "blackwell",
    "110": "blackwell",
    "120": "blackwell",
    "121": "blackwell",
}


def arch_name(digits: str) -> str | None:
    """Return ``ampere`` for ``80``; None for a capability without a public name."""
    return _ARCH_NAMES.get(digits)


# C++ spelling of an element type (without const, namespaces kept) -> vocabulary.
_CPP_TYPES = {
    "float": "f32",
    "double": "f64",
    "half": "f16",
    "__half": "f16",
    "_Float16": "f16",
    "__fp16": "f16",
    "c10::Half": "f16",
    "at::Half": "f16",
    "cutlass::half_t": "f16",
    "cute::half_t": "f16",
    "__half2": "f16",
    "bfloat16": "bf16",
    "__nv_bfloat16": "bf16",
    "nv_bfloat16": "bf16",
    "__hip_bfloat16": "bf16",
    "hip_bfloat16": "bf16",
    "__bf16": "bf16",
    "std::bfloat16_t": "bf16",
    "c10::BFloat16": "bf16",
    "at::BFloat16": "bf16",
    "cutlass::bfloat16_t": "bf16",
    "cute::bfloat16_t": "bf16",
    "cutlass::tfloat32_t": "tf32",
    "cute::tfloat32_t": "tf32",
    "cutlass::float_e4m3_t": "e4m3",
    "cutlass::float_e5m2_t": "e5m2",
    "cute::float_e4m3_t": "e4m3",
    "cute::float_e5m2_t": "e5m2",
    "__nv_fp8_e4m3": "e4m3",
    "__nv_fp8_e5m2": "e5m2",
    "c10::Float8_e4m3fn": "e4m3",
    "c10::Float8_e5m2": "e5m2",
    "c10::complex<float>": "cf32",
    "c10::complex<double>": "cf64",
    "c10::complex<c10::Half>": "cf16",
    "signed char": "s8",
    "char": "s8",
    "int8_t": "s8",
    "unsigned char": "u8",
    "uint8_t": "u8",
    "short": "s16",
    "unsigned short": "u16",
    "int": "s32",
    "int32_t": "s32",
    "unsigned int": "u32",
    "unsigned": "u32",
    "uint32_t": "u32",
    "long": "s64",
    "long long": "s64",
    "int64_t": "s64",
    "unsigned long": "u64",
    "unsigned long long": "u64",
    "bool": "bool",
}


def cpp_dtype(text: str) -> str | None:
    """Return the vocabulary's word for a C++ element type, or None."""
    text = text.strip()
    if text.startswith("const "):
        text = text[6:]
    text = text.removesuffix(" const").removesuffix("const").strip()
    return _CPP_TYPES.get(text.replace(" >", ">"))
