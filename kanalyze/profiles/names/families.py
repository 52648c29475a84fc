"""The families of kernel names: which grammar reads them and what tells what they mean.

Adding one: a grammar in ``grammars/names/``, a transformer beside this file, a line here, a sample
file in ``tests/data/names/``. From another package: an entry point of group ``kanalyze.families``
that names a :class:`Family`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Literal

from kanalyze.profiles.names.fields import NameFields

Form = Literal["word", "path", "raw", "fallback"]
Transform = Callable[[NameFields], None]

GROUP = "kanalyze.families"

_FIRST = re.compile(r"[A-Za-z]+")


@dataclass(frozen=True, slots=True)
class Family:
    """One family of kernel names.

    Attributes:
        name: its name in ``KernelName.family``.
        grammar: file in ``grammars/names/`` (without ``.lark``), or the path of a ``.lark`` file.
        transform: what notes the fields: a function, or ``module:function``.
        form: ``word`` when the grammar reads the function's name, ``path`` when it reads the
            qualified name without its arguments (``at::native::f``), ``raw`` when it reads the
            whole text, ``fallback`` when no other grammar accepted it.
        first: the letters with which names of the family begin; empty: any. Only the grammar
            decides; this saves trying it.
        what: one line for people.
        wrapped: names of the family also stand in CUTLASS's wrappers (``cutlass::Kernel2<…>``);
            what is inside is tried first.
    """

    name: str
    grammar: str
    transform: Transform | str
    form: Form
    first: tuple[str, ...]
    what: str
    wrapped: bool = False

    def transformer(self) -> Transform:
        """Return the function that notes the fields, importing its module."""
        if not isinstance(self.transform, str):
            return self.transform
        module, _, function = self.transform.partition(":")
        transform: Transform = getattr(import_module(module), function or "transform")
        return transform


def _family(name: str, form: Form, first: str, what: str, *, wrapped: bool = False) -> Family:
    module = f"kanalyze.profiles.names.{name}:transform"
    return Family(name, name, module, form, tuple(first.split()), what, wrapped)


_CUBLAS = (
    "cublasLt internal epilogue gemv gemvNSP gemmSN gemmk splitKreduce dot reduce magma scal axpy "
    "asum nrm copy trsm batch"
)
_CUB = "cub thrust rocprim hipcub at cuda nv cccl THRUST"
_NCCL = " ".join(
    [
        "ncclDevKernel ncclDevKernelDebug ncclKernel ncclSymDevKernel ncclSymkDevKernel",
        "ncclSymmetricDevKernel",
        *(  # before 2.9: ncclAllReduceRingLLKernel_sum_f32
            f"nccl{collective}{algorithm}{protocol}Kernel"
            for collective in ("AllGather", "AllReduce", "Broadcast", "ReduceScatter", "Reduce")
            for algorithm in ("", "Ring", "Tree", "CollNet")
            for protocol in ("", "LL")
        ),
        "ncclSendRecvKernel",
    ]
)
_COPIES = "Memcpy Memset CUDA FillBuffer " + " ".join(
    f"Copy{a}To{b}" for a in ("Host", "Device") for b in ("Host", "Device")
)
_ARCHS = "maxwell pascal volta turing ampere ada hopper"

FAMILIES: tuple[Family, ...] = (
    _family("cutlass2x", "word", "cutlass", "CUTLASS 2.x, also in cuBLAS and cuDNN", wrapped=True),
    _family("cutlass3x", "word", "cutlass", "CUTLASS 3.x and 4.x, also in cuBLASLt", wrapped=True),
    _family("flash", "path", "flash pytorch FLASH FlashAttn", "FlashAttention 2/3", wrapped=True),
    _family("cutlass_template", "path", "cutlass", "CUTLASS kernels with their C++ type"),
    _family("cublas_legacy", "word", _ARCHS, "cuBLAS's own matrix products"),
    _family(
        "cublas_misc", "path", _CUBLAS, "cuBLAS's small kernels: gemv, split-K's second step, dot"
    ),
    _family("nvjet", "word", "nvjet", "cuBLASLt's generated matrix products"),
    _family("xmma", "word", "sm", "matrix products of cuBLAS, cuDNN and TensorRT"),
    _family("cudnn_legacy", "word", f"cudnn trt {_ARCHS}", "cuDNN's older convolutions"),
    _family("cudnn_template", "path", "cudnn cask", "cuDNN's C++ templates"),
    _family("cudnn_sdpa", "word", "cudnn", "cuDNN's generated attention"),
    _family("fmha_cutlass", "word", "fmha", "memory-efficient attention (xFormers, PyTorch)"),
    _family("fmha_trtllm", "word", "fmhaSm", "trtllm-gen attention (TensorRT-LLM, FlashInfer)"),
    _family("fmha_v2", "word", "fmha", "TensorRT-LLM's fmha_v2 attention"),
    _family("triton_inductor", "word", "triton", "kernels that TorchInductor generates"),
    _family("triton_other", "word", "", "other Triton kernels"),
    _family("at_native", "path", "at anonymous softmax", "PyTorch's own kernels (ATen)"),
    _family("cub_thrust", "path", _CUB, "CUB, Thrust, rocPRIM, hipCUB"),
    _family("nccl", "word", _NCCL, "NCCL and RCCL collectives"),
    _family("tensile", "word", "Cijk Custom", "AMD Tensile (rocBLAS) and hipBLASLt"),
    _family("miopen_igemm", "word", "igemm", "MIOpen's implicit GEMM convolutions"),
    _family("ck", "path", "ck", "AMD Composable Kernel, CK-Tile"),
    _family("cute_dsl", "word", "kernel", "CUTLASS's CuTe DSL (Python)"),
    _family("deepgemm", "path", "deep", "DeepGEMM"),
    _family("trtllm_gemm", "word", "bmm gemm", "trtllm-gen matrix products"),
    _family("memop", "raw", _COPIES, "copies and fills, not kernels"),
    _family("mangled", "fallback", "", "mangled names that cannot be demangled"),
    _family("other", "fallback", "", "every other function"),
)
"""The built-in families. A name is accepted by one grammar at most, whatever the order."""


@cache
def families() -> tuple[Family, ...]:
    """Return all families: the built-in ones, then those of other packages' entry points."""
    from importlib.metadata import entry_points

    every = list(FAMILIES)
    for entry in entry_points(group=GROUP):
        extra = entry.load()
        if isinstance(extra, Family):
            every.append(extra)
    return tuple(every)


@cache
def fallback(name: str) -> Family:
    """Return the family ``mangled`` or ``other``."""
    return next(family for family in FAMILIES if family.name == name)


@cache
def _by_first() -> tuple[dict[str, tuple[Family, ...]], tuple[Family, ...]]:
    table: dict[str, list[Family]] = {}
    anything: list[Family] = []
    for family in families():
        for first in family.first:
            table.setdefault(first, []).append(family)
        if not family.first and family.form != "fallback":
            anything.append(family)
    return {first: tuple(some) for first, some in table.items()}, tuple(anything)


def candidates(text: str) -> tuple[Family, ...]:
    """Return the families whose names can begin as ``text`` does."""
    table, anything = _by_first()
    match = _FIRST.search(text, 0, 64)
    return table.get(match.group() if match else "", ()) + anything
