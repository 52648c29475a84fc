"""cuDNN's own C++ templates: ``cudnn::ops::nchwToNhwcKernel<float, float, float, …>``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields

# How the functions' names begin -> operation, as seen in profiles; the template parameters have no
# public source. implicit_convolve_sgemm: CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, a convolution.
_BEGINNINGS = (
    ("nchwToNhwcKernel", "layout_transform"),
    ("nhwcToNchwKernel", "layout_transform"),
    ("nchwToFoldedNhwcKernel", "layout_transform"),
    ("nhwcToFoldedNhwcKernel", "layout_transform"),
    ("nchwAddPaddingKernel", "layout_transform"),
    ("nhwcAddPaddingKernel", "layout_transform"),
    ("foldedNhwcToNhwcKernel", "layout_transform"),
    ("bn_fw_", "batchnorm"),
    ("bn_bw_", "batchnorm"),
    ("wgrad_", "conv_wgrad"),
    ("reduce_wgrad_", "conv_wgrad"),
    ("winogradWgrad", "conv_wgrad"),
    ("computeWgrad", "conv_wgrad"),
    ("wgrad2d_", "conv_wgrad"),
    ("dgrad_", "conv_dgrad"),
    ("dgrad2d_", "conv_dgrad"),
    ("conv2d_grouped_direct_kernel", "conv"),
    ("explicit_convolve_", "conv"),
    ("implicit_convolve_", "conv"),
    ("precomputed_convolve_", "conv"),
    ("pooling_", "pooling"),
    ("softmax_", "softmax"),
)


def transform(r: NameFields) -> None:
    """Note the function and its operation."""
    comp = r.name.last
    r.function(basis="observed")
    if root := r.one("ROOT"):
        r.add("library", "cudnn", root, "observed")
    if comp.complete:
        for beginning, op in _BEGINNINGS:
            if comp.text.startswith(beginning):
                r.add_span(
                    "op", op, comp.start, comp.start + len(beginning.rstrip("_")), "observed"
                )
                break
