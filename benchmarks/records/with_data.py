"""Makes launch records of gathers with their data, and of copies through tensor maps, on a GPU.

``python3 with_data.py OUT``: like ``record.py``, for the kernels in ``tests/data/gathers.py`` and
``tests/data/tensor_copies.py``; writes OUT/records.json.gz. An index array stands in its parameter
as ``integers``: [seed, low, high, shape, type], from ``numpy.random.default_rng(seed)``.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path

from record import METRICS, profile

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / "tests" / "data"
MORE = [
    "sm__inst_executed_pipe_tma.sum",
    "l1tex__m_l1tex2xbar_write_sectors.sum",
    "lts__t_sectors_srcunit_tex.sum",
    "lts__t_sectors_op_red.sum",
]
SWIZZLES = (0, 32, 64, 128)


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, DATA / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def child(out: Path) -> None:
    """Launch every case, each between profiler start and stop; write what was launched."""
    import numpy as np
    import torch
    import triton
    from triton.tools.tensor_descriptor import TensorDescriptor

    gathers, copies = load("gathers"), load("tensor_copies")
    records = []
    cudart = torch.cuda.cudart()
    scratch = {}

    def allocate(size, alignment, stream):
        scratch["last"] = torch.empty(size, device="cuda", dtype=torch.int8)
        return scratch["last"]

    triton.set_allocator(allocate)

    def floats(*shape, kind=torch.float32):
        return torch.randn(*shape, device="cuda").to(kind)

    class Integers:
        def __init__(self, seed, low, high, shape, kind):
            self.made = [seed, low, high, shape, kind]
            array = np.random.default_rng(seed).integers(low, high, shape).astype(kind)
            self.tensor = torch.from_numpy(array).cuda()

    class Starts(Integers):
        """Where segments of random length begin."""

        def __init__(self, seed, most, count):
            lengths = np.random.default_rng(seed).integers(0, most, count)
            self.made = [seed, 0, most, count, "starts"]
            starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
            self.tensor = torch.from_numpy(starts).cuda()
            self.total = int(starts[-1])

    kinds = {
        torch.float32: "*fp32", torch.float16: "*fp16", torch.int64: "*i64", torch.int32: "*i32",
        torch.uint8: "*u8",
    }  # fmt: skip

    def described(name, value, meta):
        if isinstance(value, TensorDescriptor):
            size, rank = value.base.element_size(), len(value.shape)
            tensor_map = {
                "address": value.base.data_ptr(), "element_bytes": size,
                "dims": [int(n) for n in reversed(value.shape)],
                "strides": [int(n) * size for n in reversed(value.strides[:-1])],
                "box": [int(n) for n in reversed(meta["block_size"])],
                "swizzle": SWIZZLES[meta["swizzle"]],
            }  # fmt: skip
            rows = [{"name": name, "type": "nvTmaDesc", "tensor_map": tensor_map}]
            for i in range(rank):
                rows.append(
                    {"name": f"{name}.shape{i}", "type": "i32", "value": int(value.shape[i])}
                )
            for i in range(rank):
                rows.append(
                    {"name": f"{name}.stride{i}", "type": "i64", "value": int(value.strides[i])}
                )
            return rows
        made = value.made if isinstance(value, Integers) else None
        tensor = value.tensor if isinstance(value, Integers) else value
        if isinstance(tensor, torch.Tensor):
            row = {"name": name, "type": kinds[tensor.dtype], "address": tensor.data_ptr(),
                   "bytes": tensor.numel() * tensor.element_size()}  # fmt: skip
            return [{**row, "integers": made} if made else row]
        return [{"name": name, "type": "i32", "value": int(tensor)}]

    def launch(case, kernel, grid, values, constexprs, **options):
        names = [p.name for p in kernel.params if not p.is_constexpr]
        plain = [v.tensor if isinstance(v, Integers) else v for v in values]
        kernel[grid](*plain, **constexprs, **options)
        torch.cuda.synchronize()
        cudart.cudaProfilerStart()
        compiled = kernel[grid](*plain, **constexprs, **options)
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()
        metas = iter(getattr(compiled.metadata, "tensordesc_meta", None) or [])
        params = []
        for name, value in zip(names, values, strict=True):
            meta = next(metas) if isinstance(value, TensorDescriptor) else None
            params += described(name, value, meta)
        if compiled.metadata.global_scratch_size:
            address = scratch["last"].data_ptr()
            params.append({"name": "global_scratch", "type": "*i8", "address": address})
        records.append(
            {
                "case": case, "kernel": compiled.metadata.name,
                "device": torch.cuda.get_device_name(), "arch": "sm_90",
                "triton": triton.__version__, "torch": torch.__version__,
                "grid": [*grid, 1, 1][:3], "block": [32 * compiled.metadata.num_warps, 1, 1],
                "shared_bytes": compiled.metadata.shared,
                "registers_per_thread": compiled.n_regs, "params": params,
                "ptx": compiled.asm["ptx"], "cubin": compiled.asm["cubin"].hex(),
            }
        )  # fmt: skip

    g, c = gathers, copies
    n = 1 << 20
    for high in (1000, 50000, 4000000):
        launch(f"elements_{high}", g.elements, (n // 1024,),
               [Integers(1, 0, high, n, "int32"), floats(high), floats(n), n],
               {"BLOCK": 1024})  # fmt: skip
    launch("rows_300", g.rows, (1250,),
           [Integers(2, 0, 50000, 20000, "int64"), floats(50000, 300), floats(20000, 300), 20000, 300],
           {"ROWS": 16, "COLS": 512})  # fmt: skip
    launch("chained", g.chained, (977,),
           [Integers(3, 0, 256, 1000003, "uint8"), Integers(4, -1000, 1000, 256, "int32"),
            floats(1000), floats(1000003), 1000003], {"BLOCK": 1024})  # fmt: skip
    starts = Starts(5, 300, 4096)
    launch("segments", g.segments, (4096,),
           [starts, Integers(6, 0, 100000, starts.total, "int32"), floats(100000),
            floats(4096 * 128)], {"BLOCK": 128})  # fmt: skip
    launch("bins", g.counted, (977,),
           [Integers(7, 0, 200, 1000003, "int32"),
            torch.zeros(600, device="cuda", dtype=torch.int32), 1000003], {"BLOCK": 1024})  # fmt: skip
    launch("chosen", g.chosen, (4096,),
           [Integers(8, 0, 6, 4096, "int32"), floats(4096 * 256), floats(4096 * 256)],
           {"BLOCK": 256})  # fmt: skip
    half = torch.float16
    x, y = floats(1000, 1096, kind=half), floats(1000, 1096, kind=half)
    box = [64, 64]
    described_xy = [TensorDescriptor.from_tensor(t, box) for t in (x, y)]
    launch("host_copy", c.host_copy, (16, 18), described_xy, {"ROWS": 64, "COLS": 64})
    x, y = floats(777, 1004), floats(777, 1004)
    launch("device_copy", c.device_copy, (13, 32), [x, y, 777, 1004], {"ROWS": 64, "COLS": 32})
    launch("device_add", c.device_add, (13, 32), [x, y, 777, 1004], {"ROWS": 64, "COLS": 32})
    a, b, p = (
        floats(1024, 1000, kind=half),
        floats(1000, 1032, kind=half),
        floats(1024, 1032, kind=half),
    )
    maps = [TensorDescriptor.from_tensor(a, [128, 64]), TensorDescriptor.from_tensor(b, [64, 128]),
            TensorDescriptor.from_tensor(p, [128, 128])]  # fmt: skip
    launch("matmul_tma", c.matmul, (8, 9), [*maps, 1000],
           {"BLOCK_M": 128, "BLOCK_N": 128, "BLOCK_K": 64})  # fmt: skip
    (out / "launched.json").write_text(json.dumps(records))


def main() -> None:
    out = Path(sys.argv[1])
    if len(sys.argv) > 2:
        child(out)
        return
    profile(__file__, out, [*METRICS, *MORE])


if __name__ == "__main__":
    main()
