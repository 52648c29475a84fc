"""Launches random kernels on a GPU with Nsight Compute: ``python3 random_device.py OUT``.

Writes OUT/records.json.gz; ``kanalyze check OUT/records.json.gz`` then compares every counter, and
needs no GPU. CUDA's ``nvcc``, torch and Triton are taken as they are there.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "records")]

import record  # noqa: E402

from benchmarks.random_sources import BYTES, Sample, Shot, sample  # noqa: E402

COUNTS = {"cuda": 60, "ptx": 20, "triton": 20}
FIRST = 5000
GUARD = 1 << 16
DTYPES = {"*fp32": "float32", "*fp16": "float16", "*i8": "int8", "*i16": "int16", "*i32": "int32",
          "*fp64": "float64", "*bf16": "bfloat16", "*i64": "int64"}  # fmt: skip


def compiled(made: Sample, folder: Path) -> Path | None:
    """The PTX of a kernel, its cubin beside it; None if it cannot be compiled."""
    ptx = folder / f"{made.language}{made.seed}.ptx"
    source = ptx.with_suffix(".cu" if made.language == "cuda" else ".ptx")
    source.write_text(made.source)
    outputs = ["-cubin"] if source == ptx else ["-ptx", "-cubin"]
    for flag in outputs:
        command = [
            "nvcc",
            "-w",
            "-arch=sm_90",
            "-lineinfo",
            flag,
            source,
            "-o",
            ptx.with_suffix("." + flag[1:]),
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(ptx.name, done.stderr[-300:])
            return None
    return ptx


def child(out: Path) -> None:
    """Launch every case, each between profiler start and stop; write what was launched."""
    import torch
    import triton
    from cuda.bindings import driver as cu

    records: list[dict[str, Any]] = []
    cudart = torch.cuda.cudart()
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    arrays = [
        torch.randint(0, 64, (BYTES + 2 * GUARD,), device="cuda", dtype=torch.uint8)
        for _ in range(5)
    ]

    def profiled(action: Any) -> Any:
        torch.cuda.synchronize()
        cudart.cudaProfilerStart()
        result = action()
        torch.cuda.synchronize()
        cudart.cudaProfilerStop()
        return result

    def check(result: Any) -> Any:
        if int(result[0]) != 0:
            raise RuntimeError(result[0])
        return result[1] if len(result) == 2 else result[1:]

    def note(made: Sample, number: int, shot: Shot, ptx: str, cubin: bytes, params: list[Any],
             shared: int, registers: int, name: str = "k") -> None:  # fmt: skip
        records.append({
            "case": f"{made.language}_{made.seed}_{number}", "kernel": name, "arch": "sm_90",
            "device": torch.cuda.get_device_name(), "grid": list(shot.grid), "block": list(made.block),
            "shared_bytes": shared, "registers_per_thread": registers, "params": params, "ptx": ptx,
            "cubin": cubin.hex(),
        })  # fmt: skip

    def moved(made: Sample, index: int, shot: Shot) -> int:
        argument = made.arguments[index]
        return GUARD + argument.align * shot.shifts.get(argument.name, 0)

    def with_driver(made: Sample, ptx: Path) -> None:
        cubin = ptx.with_suffix(".cubin").read_bytes()
        module = check(cu.cuModuleLoadData(cubin))
        function = check(cu.cuModuleGetFunction(module, b"k"))
        wanted = cu.CUfunction_attribute
        shared = check(cu.cuFuncGetAttribute(wanted.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        registers = check(cu.cuFuncGetAttribute(wanted.CU_FUNC_ATTRIBUTE_NUM_REGS, function))
        for number, shot in enumerate(made.shots):
            buffers, params = [], []
            for index, argument in enumerate(made.arguments):
                row: dict[str, Any] = {"name": argument.name, "type": argument.type}
                if argument.fields:
                    data = bytearray(sum(argument.fields[-1]))
                    for at, size in argument.fields:
                        value = shot.numbers.get(f"{argument.name}.{at}")
                        if value is None:
                            value = arrays[4].data_ptr() + GUARD
                        data[at : at + size] = value.to_bytes(size, "little")
                    buffers.append((ctypes.c_char * len(data)).from_buffer(data))
                    row |= {"value": None}
                elif argument.type.startswith("*"):
                    place = arrays[index].data_ptr() + moved(made, index, shot)
                    buffers.append(ctypes.c_uint64(place))
                    row |= {"address": place, "bytes": BYTES}
                else:
                    buffers.append(ctypes.c_int32(shot.numbers[argument.name]))
                    row |= {"value": shot.numbers[argument.name]}
                params.append(row)
            pointers = (ctypes.c_void_p * len(buffers))(*(ctypes.addressof(b) for b in buffers))
            profiled(lambda p=pointers, s=shot: check(
                (*cu.cuLaunchKernel(function, *s.grid, *made.block, 0, 0, ctypes.addressof(p), 0), None)
            ))  # fmt: skip
            note(made, number, shot, ptx.read_text(), cubin, params, shared, registers)

    def with_triton(made: Sample) -> None:
        path = out / f"triton{made.seed}.py"
        path.write_text(made.source)
        found = importlib.util.spec_from_file_location(path.stem, path)
        assert found is not None
        assert found.loader is not None
        loaded = importlib.util.module_from_spec(found)
        found.loader.exec_module(loaded)
        constants = [int(n) for n in made.signature.split(", ")[-3:]]
        for number, shot in enumerate(made.shots):
            values, params = [], []
            for index, argument in enumerate(made.arguments):
                row = {"name": argument.name, "type": argument.type}
                if argument.type.startswith("*"):
                    part = arrays[index][moved(made, index, shot) :][:BYTES]
                    values.append(part.view(getattr(torch, DTYPES[argument.type])))
                    row |= {"address": values[-1].data_ptr(), "bytes": BYTES}
                else:
                    values.append(shot.numbers[argument.name])
                    row |= {"value": values[-1]}
                params.append(row)

            def go(values: Any = values, shot: Any = shot) -> Any:
                return loaded.k[shot.grid](*values, *constants, num_warps=made.warps)

            go()
            kernel = profiled(go)
            note(made, number, shot, kernel.asm["ptx"], kernel.asm["cubin"], params,
                 kernel.metadata.shared, kernel.n_regs)  # fmt: skip

    for language, count in COUNTS.items():
        for seed in range(FIRST, FIRST + count):
            made = sample(language, seed)
            ptx = out / f"{language}{seed}.ptx"
            if language == "triton":
                try:
                    with_triton(made)
                except triton.compiler.errors.CompilationError as error:
                    print(language, seed, str(error)[-300:])
            elif ptx.with_suffix(".cubin").exists():
                with_driver(made, ptx)
    (out / "launched.json").write_text(json.dumps(records))


def main() -> None:
    out = Path(sys.argv[1]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if len(sys.argv) > 2:
        child(out)
        return
    made = [sample(language, seed) for language in ("cuda", "ptx")
            for seed in range(FIRST, FIRST + COUNTS[language])]  # fmt: skip
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda one: compiled(one, out), made))
    record.profile(__file__, out, record.METRICS)


if __name__ == "__main__":
    main()
