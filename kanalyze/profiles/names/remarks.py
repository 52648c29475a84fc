"""What a name means for the kernel's speed, and what it leaves open, in sentences.

Each follows from decoded fields alone. Sources: CUTLASS's ``gemm_operation.py`` (letters of
layouts, alignment in elements); PTX ISA, "cp.async" (copies of 4, 8 or 16 bytes); Triton's
``kernel_suffix`` (compiler.py of 2.x); PyTorch's ``_inductor/config.py``
(``unique_kernel_names``) and ``_inductor/codegen/triton.py``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from kanalyze.profiles.names.aten_ops import ways_to_split

_BITS = {"f64": 64, "f32": 32, "tf32": 32, "s32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8,
         "s8": 8, "u8": 8, "s4": 4, "u4": 4, "e2m1": 4, "cf32": 64, "cf64": 128}  # fmt: skip
_WIDEST_BYTES = 16
_LEAST_ASYNC_BYTES = 4
_MAJOR = {"n": "column-major", "t": "row-major"}
_CUTLASS = ("cutlass2x", "cutlass3x", "cublas_legacy")
_CLOSED = {
    "xmma": "NVIDIA's closed source",
    "nvjet": "cuBLASLt's closed source",
    "cublas_legacy": "cuBLAS's own closed source, not CUTLASS",
}
_CATEGORIES = {
    "pointwise": "each element by itself",
    "reduction": "a loop over the reduced dimension",
    "persistent_reduction": "a program holds a whole row of the reduction",
    "template": "from a hand-written template (matrix product, convolution, attention)",
    "foreach": "one operation on many tensors; the operators are not in the name",
}


class Part(Protocol):
    """A part of a name."""

    @property
    def text(self) -> str:
        """The part as it stands in the name."""


class Decoded(Protocol):
    """What a remark follows from; `KernelName` has it."""

    @property
    def family(self) -> str:
        """The family that claims the name."""

    @property
    def decoded(self) -> Mapping[str, object]:
        """What the name states, by key."""

    @property
    def undecoded(self) -> Sequence[Part]:
        """The parts of the name that say nothing known."""


def remarks(name: Decoded) -> tuple[str, ...]:
    """The sentences on a name; empty for most."""
    return tuple(text for source in _SOURCES for text in source(name))


def _specialization(name: Decoded) -> Iterator[str]:
    marks = name.decoded.get("specialization")
    if not isinstance(marks, tuple):
        return
    by_mark: dict[str, list[int]] = {}
    for index, mark in enumerate(marks):
        by_mark.setdefault("d" if "d" in mark else mark, []).append(index)
    words = {"d": "divisible by 16", "e": "divisible by 8", "c": "equal to 1"}
    known = [f"{_arguments(by_mark[m])} {words[m]}" for m in words if m in by_mark]
    if known:
        yield f"compiled for {'; '.join(known)}"
    without = [index for index, mark in enumerate(marks) if not set(mark) & {"c", "d"}]
    if without:
        yield (
            f"{_arguments(without)} without d: not known to be divisible by 16, so loads and "
            "stores whose address or mask depends on it are not vectorised through it (a "
            "floating-point argument never has a d)"
        )


def _arguments(indices: list[int]) -> str:
    listed = ", ".join(map(str, indices))
    return f"argument {listed}" if len(indices) == 1 else f"arguments {listed}"


def _layout(name: Decoded) -> Iterator[str]:
    layout = name.decoded.get("layout")
    if name.family in _CUTLASS and isinstance(layout, str) and set(layout) <= set(_MAJOR):
        matrices = zip("ABC", layout, strict=False)
        yield "layout " + ", ".join(f"{matrix} {_MAJOR[mark]}" for matrix, mark in matrices)


def _alignment(name: Decoded) -> Iterator[str]:
    decoded = name.decoded
    align, bits = decoded.get("align"), _BITS.get(str(decoded.get("dtype_a")))
    if not isinstance(align, int) or bits is None or align * bits % 8:
        return
    size = align * bits // 8
    text = f"alignment {align}: {size} bytes of {decoded['dtype_a']}"
    if decoded.get("op_class") == "simt" or size >= _WIDEST_BYTES:
        yield text
        return
    kind = "scalar" if align == 1 else "narrow"
    text = f"alignment {align}: {kind} {size}-byte global loads"
    if size < _LEAST_ASYNC_BYTES:
        text += f", no cp.async (it copies {_LEAST_ASYNC_BYTES} bytes at least)"
    whole = _WIDEST_BYTES * 8 // bits
    yield f"{text}; pad the leading dimension to a multiple of {whole} elements"


def _architecture(name: Decoded) -> Iterator[str]:
    arch = name.decoded.get("arch")
    digits = str(arch).removeprefix("sm").rstrip("af")
    if name.family == "cutlass2x" and digits.isdecimal() and int(digits) < 80:
        yield f"{arch} code path: it runs on newer GPUs, too, without their cp.async (from sm80)"


def _closed(name: Decoded) -> Iterator[str]:
    if name.family not in _CLOSED:
        return
    text = f"{_CLOSED[name.family]}: the readings marked observed or inferred are the community's"
    if name.undecoded:
        parts = ", ".join(dict.fromkeys(span.text for span in name.undecoded))
        text += f"; undocumented: {parts}"
    yield text


def _inductor(name: Decoded) -> Iterator[str]:
    decoded = name.decoded
    if name.family == "triton_other" and decoded.get("function") == "triton_":
        yield (
            "TorchInductor's name with unique_kernel_names=False: it says neither the kind nor the "
            "operators"
        )
    if name.family != "triton_inductor":
        return
    category = str(decoded.get("op"))
    if category in _CATEGORIES:
        yield f"{category.replace('_', ' ')}: {_CATEGORIES[category]}"
    ways = ways_to_split(str(decoded.get("fused_ops", "")))
    if len(ways) > 1:
        others = " or ".join(", ".join(way) for way in ways[1:3])
        yield f"the operators can be read otherwise, too: {others}"


_SOURCES = (_specialization, _architecture, _layout, _alignment, _closed, _inductor)
