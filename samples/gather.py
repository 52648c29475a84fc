"""y = table[index]: rows of a table, picked by an index that is data.

One program copies one row, as an embedding does. Where a row lies depends on what ``index_ptr``
points to: an analysis without a GPU must be told (``--assume``).
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16", "bf16")
SHAPE = {
    "rows": "number of rows that are picked",
    "N": "number of columns",
    "table_rows": "number of rows of the table",
}
CONSTEXPRS = {"BLOCK_SIZE": 512}
OPTIONS = {"num_warps": 4, "num_stages": 1}
OVERRIDES = {}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"rows": 65536, "N": 300, "table_rows": 50000},)


@triton.jit
def gather_kernel(index_ptr, table_ptr, y_ptr, N, BLOCK_SIZE: tl.constexpr):
    picked = tl.program_id(0)
    row = tl.load(index_ptr + picked)
    for start in range(0, N, BLOCK_SIZE):
        cols = start + tl.arange(0, BLOCK_SIZE)
        x = tl.load(table_ptr + row * N + cols, mask=cols < N)
        tl.store(y_ptr + picked * N + cols, x, mask=cols < N)


def arguments(shape, dtype, constexprs):
    return {
        "index_ptr": ("*", "i64", (shape["rows"],)),
        "table_ptr": ("*", dtype, (shape["table_rows"], shape["N"])),
        "y_ptr": ("*", dtype, (shape["rows"], shape["N"])),
        "N": shape["N"],
    }


def grid(shape, constexprs):
    return (shape["rows"], 1, 1)


def reference(tensors, shape):
    return {"y_ptr": tensors["table_ptr"][tensors["index_ptr"]]}
