"""PyTorch's own kernels: ``at::native::vectorized_elementwise_kernel<4, CUDAFunctor_add<float>>``.

The template parameters are those of ATen/native/cuda/{CUDALoops,Reduce,ScatterGatherKernel,…}.cuh.
The operation is in the functor, which is often a lambda inside ``xxx_kernel_cuda``.
"""

from __future__ import annotations

from kanalyze.profiles.names.cpp import ANONYMOUS, Arg, Qualified, number, read
from kanalyze.profiles.names.fields import NameFields
from kanalyze.profiles.names.words import cpp_dtype

_INT, _FUNCTOR, _SKIP, _REDUCE = "int", "functor", "skip", "reduce"

# Operation of a function, and its template parameters in order: (key, what).
_LOOP = (("vec_size", _INT), ("functor", _FUNCTOR))
_LONE = (("functor", _FUNCTOR),)
_UNROLLED = (("num_threads", _INT), ("items_per_thread", _INT), ("functor", _FUNCTOR))
_SECOND = (("", _SKIP), ("functor", _FUNCTOR))
_SIGNATURES: dict[str, tuple[str | None, tuple[tuple[str, str], ...]]] = {
    "vectorized_elementwise_kernel": ("elementwise", _LOOP),
    "vectorized_templated_elementwise_kernel": ("elementwise", _LOOP),
    "unrolled_elementwise_kernel": ("elementwise", _LONE),
    "unrolled_templated_elementwise_kernel": ("elementwise", _LONE),
    "elementwise_kernel": ("elementwise", _UNROLLED),
    "elementwise_kernel_manual_unroll": ("elementwise", _UNROLLED),
    "index_elementwise_kernel": ("elementwise", _UNROLLED),
    "_scatter_gather_elementwise_kernel": ("gather", _UNROLLED),
    "unrolled_elementwise_kernel_for_multi_outputs": ("elementwise", _SECOND),
    "elementwise_kernel_with_index": ("elementwise", _SECOND),
    "reduce_kernel": (
        "reduce",
        (("max_threads", _INT), ("output_vec_size", _INT), ("functor", _REDUCE)),
    ),
    "multi_tensor_apply_kernel": ("multi_tensor_apply", _SECOND),
}

# How other functions' names begin. ATen names its kernels after the operator
# (aten/src/ATen/native/cuda/{UpSample*,*Pool*,*Loss*,Shape,Indexing,SoftMax,Sort*,ScanUtils}.cu*).
_BEGINNINGS = {
    "upsample": ("upsample_",),
    "pool": ("max_pool_", "avg_pool2d_", "avg_pool3d_", "adaptive_average_pool", "adaptivemaxpool",
             "adaptiveaveragepool", "atomicadaptivemaxpool", "atomicadaptiveaveragepool"),
    "loss": ("nll_loss_", "nll_loss2d_", "ctc_loss_"),
    "cat": ("CatArrayBatchedCopy",),
    "softmax": ("cunn_SoftMax", "cunn_SpatialSoftMax", "softmax_warp_"),
    "index": ("indexSelect", "indexFuncLargeIndex", "indexFuncSmallIndex",
              "indexing_backward_kernel", "index_put_"),
    "gather": ("vectorized_gather_kernel",),
    "roll": ("roll_cuda_kernel",),
    "sort": ("bitonicSortKVInPlace", "radixSortKVInPlace"),
    "scan": ("tensor_kernel_scan_",),
    "batchnorm": ("batch_norm_",),
}  # fmt: skip

# Functions that take a functor only to call it in a loop: the functor is their template argument.
_ADAPTERS = {
    "gpu_kernel_impl": 0,
    "gpu_kernel_impl_nocast": 0,
    "gpu_kernel_with_scalars": 0,
    "gpu_index_kernel": 0,
    "_cuda_scatter_gather_internal_kernel": -1,
    "apply": 0,
    "func_wrapper_t": 1,
}
# Functors that adapt another one: types of the arguments, the result, then the functor.
_APPLIERS = {"BinaryFunctor": 2, "AUnaryFunctor": 2, "BUnaryFunctor": 2}
_TYPED = frozenset({"CUDAFunctor_add", "CUDAFunctorOnSelf_add", "CUDAFunctorOnOther_add"})
_DEEPEST = 8


def transform(r: NameFields) -> None:
    """Note the operation and what its template arguments say."""
    comp = r.name.last
    if not comp.complete:
        r.begins(_BEGINNINGS, comp.text.rpartition("_")[0] + "_")
        return
    op, parameters = _SIGNATURES.get(comp.text, (None, ()))
    if op:
        r.add_span("op", op, comp.start, comp.end)
    else:
        r.begins(_BEGINNINGS)
    for (key, what), arg in zip(parameters, r.name.args(), strict=False):
        if what == _INT:
            if arg.complete and number(r.text[arg.start : arg.end]) is None:
                break  # an overload with other parameters (at::native::modern::elementwise_kernel)
            r.number(key, arg)
        elif what == _FUNCTOR:
            _functor(r, "functor", arg)
        elif what == _REDUCE:
            _reduction(r, arg)


def _functor(r: NameFields, key: str, arg: Arg) -> None:
    """The functor that is applied: adapters are looked through, a lambda is its function's."""
    source = r.name.source
    for _ in range(_DEEPEST):
        name = read(source, arg.start, arg.end)
        if name is None:
            return
        index = _named_index(name)
        if index is None:
            return
        comp = name.path[index]
        which = _ADAPTERS.get(comp.text)
        if which is not None:
            inner = source.args(comp.args)
            if which < 0 or len(inner) <= which:
                return
            arg = inner[which]
            continue
        if not comp.complete or (comp.end >= source.end and source.cut):
            return
        r.add_span(key, comp.text, comp.start, comp.end)
        _types(r, key, name, index)
        return


def _named_index(name: Qualified) -> int | None:
    for index in range(len(name.path) - 1, -1, -1):
        text = name.path[index].text
        if text == ANONYMOUS:
            return None
        if text != "lambda" and not text.startswith("operator"):
            return index
    return None


def _types(r: NameFields, key: str, name: Qualified, index: int) -> None:
    source = name.source
    comp, last = name.path[index], name.last
    args = source.args(comp.args)
    if comp.text in _TYPED or comp.text == "FillFunctor":
        if args:
            r.dtype("dtype", args[0])
    elif (count := _APPLIERS.get(comp.text)) and key == "functor":
        _arguments(r, args[:count])
        if len(args) > count + 1:
            _functor(r, "functor_op", args[count + 1])
    elif last.text == "lambda" and key == "functor":
        _arguments(r, source.args(last.params))


def _arguments(r: NameFields, args: list[Arg]) -> None:
    """Types of the functor's arguments; what it computes with need not be what is stored."""
    if not args or not all(arg.complete for arg in args):
        return
    types = [cpp_dtype(r.text[arg.start : arg.end]) for arg in args]
    known = tuple(word for word in types if word)
    if len(known) == len(types):
        r.add_span("functor_args", known, args[0].start, args[-1].end)


def _reduction(r: NameFields, arg: Arg) -> None:
    """``ReduceOp<scalar, Ops, index, out, …>``."""
    name = read(r.name.source, arg.start, arg.end)
    if name is None or name.last.text != "ReduceOp":
        return
    args = name.args()
    if args:
        r.dtype("dtype", args[0])
    if len(args) > 1:
        _functor(r, "functor", args[1])
