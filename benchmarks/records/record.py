"""Makes launch records of kernels that nothing was fitted to, on a GPU with Nsight Compute.

``python3 record.py OUT``: launches every case once under ``ncu`` (this file calls itself) and writes
OUT/records.json.gz: a list of records with their PTX. Arrays hold random data.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from kanalyze.measured.bench import nsight  # noqa: E402

METRICS = [
    *(
        f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum"
        for what in ("requests", "sectors")
        for op in ("ld", "st", "red", "atom")
    ),
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",
    "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_st.sum",
    "l1tex__m_xbar2l1tex_read_sectors.sum",
    "lts__t_sectors_srcunit_tex_op_read.sum",
    "lts__t_sectors_srcunit_tex_op_write.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "gpu__time_duration.sum",
    "smsp__inst_executed.sum",
    "smsp__inst_executed_op_global_ld.sum",
    "smsp__inst_executed_op_global_st.sum",
    "smsp__inst_executed_op_ldgsts.sum",
    "smsp__inst_executed_op_shared_ld.sum",
    "smsp__inst_executed_op_shared_st.sum",
    "sm__maximum_warps_per_active_cycle_pct",
]


def child(out: Path) -> None:
    """Launch every case, each between profiler start and stop; write what was launched."""
    import numpy as np
    import torch
    import triton

    sys.path.insert(0, str(HERE))
    import kernels

    records = []
    cudart = torch.cuda.cudart()
    torch.manual_seed(0)

    def data(*shape, dtype=torch.float32):
        return torch.randn(*shape, device="cuda", dtype=torch.float32).to(dtype)

    def profiled(action):
        torch.cuda.synchronize()
        cudart.cudaProfilerStart()
        result = action()
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()
        return result

    def note(case, name, ptx, cubin, grid, block, params, shared, registers):
        records.append(
            {
                "case": case, "kernel": name, "device": torch.cuda.get_device_name(), "arch": "sm_90",
                "triton": triton.__version__, "torch": torch.__version__,
                "grid": [*grid, 1, 1][:3], "block": [*block, 1, 1][:3], "shared_bytes": shared,
                "registers_per_thread": registers, "params": params, "ptx": ptx,
                "cubin": cubin.hex(),
            }
        )  # fmt: skip

    def described(values, names):
        rows = []
        for name, value in zip(names, values, strict=True):
            if isinstance(value, torch.Tensor):
                kind = {torch.float32: "*fp32", torch.float16: "*fp16", torch.int64: "*i64",
                        torch.int32: "*i32", torch.uint8: "*u8"}[value.dtype]  # fmt: skip
                rows.append({"name": name, "type": kind, "address": value.data_ptr(),
                             "bytes": value.numel() * value.element_size()})  # fmt: skip
            elif isinstance(value, float):
                rows.append({"name": name, "type": "fp32", "value": value})
            else:
                rows.append({"name": name, "type": "i32", "value": int(value)})
        return rows

    def with_triton(case, kernel, grid, values, constexprs, **options):
        names = [p.name for p in kernel.params if not p.is_constexpr]
        kernel[grid](*values, **constexprs, **options)
        compiled = profiled(lambda: kernel[grid](*values, **constexprs, **options))
        kept = [(n, v) for n, v in zip(names, values, strict=True)
                if not (isinstance(v, int) and v == 1)]  # fmt: skip
        note(case, compiled.metadata.name, compiled.asm["ptx"], compiled.asm["cubin"], grid,
             [32 * compiled.metadata.num_warps], described([v for _, v in kept], [n for n, _ in kept]),
             compiled.metadata.shared, compiled.n_regs)  # fmt: skip

    k = kernels
    with_triton(
        "transpose_2048x3000",
        k.transpose_naive,
        (64, 94),
        [data(2048, 3000), data(3000, 2048), 2048, 3000],
        {"TILE": 32},
    )
    with_triton(
        "transpose_1001x777",
        k.transpose_naive,
        (16, 13),
        [data(1001, 777), data(777, 1001), 1001, 777],
        {"TILE": 64},
        num_warps=8,
    )
    for stride in (2, 3, 8, 33):
        with_triton(
            f"strided_{stride}",
            k.strided_copy,
            (512,),
            [data(524288 * stride), data(524288), 524287, stride],
            {"BLOCK": 1024},
        )
    with_triton(
        "layer_norm_4096x5120",
        k.layer_norm,
        (4096,),
        [
            data(4096, 5120, dtype=torch.float16),
            data(5120),
            data(5120),
            data(4096, 5120, dtype=torch.float16),
            data(4096),
            data(4096),
            5120,
            5120,
            1e-5,
        ],
        {"BLOCK": 1024},
    )
    with_triton(
        "layer_norm_1000x1234",
        k.layer_norm,
        (1000,),
        [
            data(1000, 1234),
            data(1234),
            data(1234),
            data(1000, 1234),
            data(1000),
            data(1000),
            1234,
            1234,
            1e-5,
        ],
        {"BLOCK": 2048},
        num_warps=8,
    )
    with_triton(
        "column_sum_4096x4096",
        k.column_sum_atomic,
        (64, 32),
        [data(4096, 4096), data(4096), 4096, 4096],
        {"ROWS": 64, "COLS": 128},
    )
    with_triton(
        "column_sum_1000x999",
        k.column_sum_atomic,
        (32, 16),
        [data(1000, 999), data(999), 1000, 999],
        {"ROWS": 32, "COLS": 64},
    )
    with_triton(
        "persistent_copy",
        k.persistent_copy,
        (132,),
        [data(10000003), data(10000003), 10000003],
        {"BLOCK": 2048},
    )
    index = torch.randint(0, 8192, (4096,), device="cuda")
    with_triton(
        "gather_rows",
        k.gather_rows,
        (4096,),
        [data(8192, 768), index, data(4096, 768), 768],
        {"BLOCK": 512},
    )
    with_triton(
        "conv1d",
        k.conv1d,
        (64, 8),
        [data(4093, 500), data(4, 500), data(4093, 500), 4093, 500],
        {"K": 4, "BLOCK_T": 64, "BLOCK_C": 64},
    )
    with_triton(
        "split_k_1024",
        k.split_k_matmul,
        (64, 4),
        [
            data(1024, 2048, dtype=torch.float16),
            data(2048, 1024, dtype=torch.float16),
            data(1024, 1024),
            1024,
            1024,
            2048,
        ],
        {"BM": 128, "BN": 128, "BK": 64, "SPLIT": 4},
        num_warps=8,
    )
    with_triton(
        "split_k_odd",
        k.split_k_matmul,
        (6, 3),
        [
            data(150, 700, dtype=torch.float16),
            data(700, 300, dtype=torch.float16),
            data(150, 300),
            150,
            300,
            700,
        ],
        {"BM": 64, "BN": 128, "BK": 32, "SPLIT": 3},
    )
    with_triton(
        "interleave", k.interleave, (977,), [data(2000001), data(2000001), 2000001], {"BLOCK": 1024}
    )
    with_triton(
        "upsample",
        k.upsample,
        (1954,),
        [data(500, 1000), data(1000, 2000), 500, 1000],
        {"BLOCK": 1024},
    )

    import ctypes

    from cuda.bindings import driver as cu

    def check(result):
        if int(result[0]) != 0:
            raise RuntimeError(result[0])
        return result[1] if len(result) == 2 else result[1:]

    ptx = Path("/tmp/cuda.ptx").read_text()
    cubin = Path("/tmp/cuda.cubin").read_bytes()
    module = check(cu.cuModuleLoadData(np.frombuffer(cubin, np.uint8).ctypes.data))

    def with_cuda(case, name, grid, block, values, names):
        function = check(cu.cuModuleGetFunction(module, name.encode()))
        plain = [v.data_ptr() if isinstance(v, torch.Tensor) else v for v in values]
        kinds = [
            ctypes.c_void_p
            if isinstance(v, torch.Tensor)
            else ctypes.c_float
            if isinstance(v, float)
            else ctypes.c_int
            for v in values
        ]
        g, b = [*grid, 1, 1][:3], [*block, 1, 1][:3]

        def go():
            return cu.cuLaunchKernel(function, *g, *b, 0, 0, (tuple(plain), tuple(kinds)), 0)

        check((*go(), None))
        profiled(lambda: check((*go(), None)))
        shared = check(
            cu.cuFuncGetAttribute(
                cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function
            )
        )
        registers = check(
            cu.cuFuncGetAttribute(cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NUM_REGS, function)
        )
        note(case, name, ptx, cubin, g, b, described(values, names), shared, registers)

    n = 1000003
    with_cuda(
        "vector_add",
        "vector_add",
        [3907],
        [256],
        [data(n), data(n), data(n), n],
        ["a", "b", "c", "n"],
    )
    with_cuda(
        "saxpy_stride",
        "saxpy_stride",
        [264],
        [256],
        [data(n), data(n), 2.0, n],
        ["y", "x", "a", "n"],
    )
    for stride in (2, 32):
        with_cuda(
            f"cuda_strided_{stride}",
            "strided_read",
            [1024],
            [256],
            [data(262144 * stride), data(262144), 262144, stride],
            ["x", "y", "n", "stride"],
        )
    for name in ("transpose_shared", "transpose_padded"):
        with_cuda(
            f"{name}_2048",
            name,
            [64, 64],
            [32, 8],
            [data(2048, 2048), data(2048, 2048), 2048, 2048],
            ["x", "y", "w", "h"],
        )
        with_cuda(
            f"{name}_1000x600",
            name,
            [32, 19],
            [32, 8],
            [data(600, 1000), data(1000, 600), 1000, 600],
            ["x", "y", "w", "h"],
        )
    with_cuda(
        "matmul_tiled_500",
        "matmul_tiled",
        [32, 32],
        [16, 16],
        [data(500, 500), data(500, 500), data(500, 500), 500],
        ["a", "b", "c", "n"],
    )
    with_cuda(
        "stencil7",
        "stencil7",
        [8, 32],
        [32, 8],
        [data(64, 256, 250), data(64, 256, 250), 250, 256, 64],
        ["x", "y", "nx", "ny", "nz"],
    )
    with_cuda(
        "histogram",
        "histogram",
        [264],
        [256],
        [
            torch.randint(0, 256, (n,), device="cuda", dtype=torch.uint8),
            torch.zeros(256, device="cuda", dtype=torch.int32),
            n,
        ],
        ["x", "bins", "n"],
    )
    with_cuda(
        "reduce_sum",
        "reduce_sum",
        [264],
        [256],
        [data(1 << 22), data(1), 1 << 20],
        ["x", "out", "n4"],
    )
    with_cuda("aos_update", "aos_update", [1024], [256], [data(3 * 262144), 262144], ["p", "n"])
    (out / "launched.json").write_text(json.dumps(records))


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        child(out)
        return
    for flags, target in ((["-ptx"], "/tmp/cuda.ptx"), (["-cubin"], "/tmp/cuda.cubin")):
        subprocess.run(
            ["nvcc", "-arch=sm_90", "-lineinfo", *flags, "-o", target, HERE / "cuda.cu"], check=True
        )
    profile(__file__, out, METRICS)


def profile(script: str, out: Path, metrics: list[str]) -> None:
    """Count what ``script OUT child`` launches, and write OUT/records.json.gz."""
    command = [
        "ncu",
        *nsight.OPTIONS,
        "--metrics",
        ",".join(metrics),
        sys.executable,
        script,
        out,
        "child",
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ)
    rows = list(nsight.table_rows(done.stdout.splitlines()))
    if not rows:
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    records = json.loads((out / "launched.json").read_text())
    print(len(records), "launches,", len(rows), "profiled")
    for record, row in zip(records, rows, strict=True):
        counters = nsight.counters_of(row, metrics)
        record["counters"] = {name: value for name, value in counters.items() if value is not None}
        print(record["case"], row["Kernel Name"][:30])
    (out / "launched.json").unlink()
    with gzip.open(out / "records.json.gz", "wt") as file:
        json.dump(records, file)


if __name__ == "__main__":
    main()
