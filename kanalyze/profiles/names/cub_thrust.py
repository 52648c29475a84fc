"""CUB, Thrust, rocPRIM and hipCUB: ``cub::DeviceScanKernel<cub::DeviceScanPolicy<int>::…>``."""

from __future__ import annotations

from kanalyze.profiles.names.fields import NameFields

# How the device kernels' names begin -> operation (NVIDIA/cccl cub/cub/device/dispatch/,
# ROCm/rocPRIM rocprim/include/rocprim/device/).
_BEGINNINGS = (
    ("DeviceScan", "scan"),
    ("DeviceRadixSort", "sort"),
    ("DeviceSegmentedRadixSort", "sort"),
    ("DeviceSegmentedSort", "sort"),
    ("DeviceMergeSort", "sort"),
    ("DeviceReduce", "reduce"),
    ("DeviceSegmentedReduce", "reduce"),
    ("lookback_scan_kernel", "scan"),
    ("radix_sort_", "sort"),
    ("onesweep_", "sort"),
    ("block_sort_", "sort"),
    ("block_reduce_kernel", "reduce"),
    ("segmented_reduce_kernel", "reduce"),
)


def transform(r: NameFields) -> None:
    """Note the function and its operation."""
    comp = r.name.last
    r.function()
    if root := r.one("ROOT"):
        r.add("library", root.text, root)
    if comp.complete:
        for beginning, op in _BEGINNINGS:
            if comp.text.startswith(beginning):
                r.add_span("op", op, comp.start, comp.start + len(beginning.rstrip("_")))
                break
