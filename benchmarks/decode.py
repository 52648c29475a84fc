"""Reading a Chrome trace: kanalyze against json, orjson and msgspec, in one run.

    python benchmarks/decode.py                 # 800,000 events, 248 MB, plain and packed
    python benchmarks/decode.py --events 80000 --repeat 1

Each rival adds up calls and time by kernel name, in a process of its own, so that its peak memory
can be told. The yardstick is msgspec decoding structs of the fields that are needed (also the
operators' shapes), in chunks of 4 MiB cut at the separator that this trace is known to have.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Sums = dict[str, list[float]]


def kernel_names() -> list[str]:
    """189 names of different lengths, as in a profile of a training step."""
    element = "at::native::vectorized_elementwise_kernel"
    names = []
    for width in (2, 4, 8):
        for functor in ("add", "mul", "sub"):
            for dtype in ("float", "c10::Half", "c10::BFloat16"):
                for arrays in (2, 3):
                    what = f"at::native::CUDAFunctor_{functor}<{dtype}>"
                    array = f"std::array<char*, {arrays}ul>"
                    names.append(f"void {element}<{width}, {what}, {array} >(int, {what}, {array})")
    names += [
        f"nvjet_sm90_tst_{m}x{n}_64x{stages}_2x1_v_bz_{layout}"
        for m in (64, 128, 192, 256)
        for n in (64, 128, 256)
        for stages in (4, 5, 6)
        for layout in ("NNT", "TNT", "NTN")
    ]
    names += [
        f"ampere_sgemm_{m}x{n}_{layout}"
        for m in (32, 64, 128)
        for n in (32, 64, 128)
        for layout in ("nn", "nt", "tn")
    ]
    return names


def write_trace(path: Path, events: int, *, compact: bool = False, seed: int = 1) -> int:
    """Write a trace laid out as Kineto does; of 8 events 4 are operators and 1 is a kernel.

    Returns the number of kernels.
    """
    rng = random.Random(seed)
    names = kernel_names()
    operators = ["aten::mul", "aten::add", "aten::mm", "aten::copy_", "aten::view", "aten::linear"]
    groups = events // 8
    now = 5142193825667.0
    first = True

    def write(text: str) -> None:
        nonlocal first
        if not first:
            text = ",\n" + text
        first = False
        if compact:
            text = ("," if text.startswith(",") else "") + json.dumps(
                json.loads(text.lstrip(",\n")), separators=(",", ":")
            )
        file.write(text)

    with path.open("w", encoding="utf-8") as file:
        head = (
            '{\n  "schemaVersion": 1,\n  "deviceProperties": [\n    {\n      "id": 0, "name": '
            '"NVIDIA H200",\n      "computeMajor": 9, "computeMinor": 0, "numSms": 132\n    }\n'
            '  ],\n  "record_shapes": 1,\n  "traceEvents": [\n'
        )
        file.write(head.replace("\n", "").replace("  ", "") if compact else head)
        for number in range(groups * 4):
            now += rng.random() * 20
            size = rng.choice((512, 1024, 4096))
            write(
                f'  {{\n    "ph": "X", "cat": "cpu_op", "name": "{rng.choice(operators)}", '
                f'"pid": 415, "tid": 415,\n    "ts": {now:.3f}, "dur": {rng.random() * 50:.3f},\n'
                f'    "args": {{\n      "External id": {number + 1},"Record function id": 0, '
                '"Concrete Inputs": ["", ""], "Input type": ["float", "float"], '
                f'"Input Strides": [[{size}, 1], [{size}, 1]], '
                f'"Input Dims": [[{size}, {size}], [{size}, {size}]], "Ev Idx": {number}\n'
                "    }\n  }"
            )
        for number in range(groups):
            now += rng.random() * 20
            link = number + 10_000_000
            write(
                f'  {{\n    "ph": "X", "cat": "kernel", "name": "{rng.choice(names)}", "pid": 0, '
                f'"tid": 7,\n    "ts": {now:.3f}, "dur": {rng.random() * 100:.3f},\n'
                f'    "args": {{\n      "External id": {number * 4 + 1},      "queued": 0, '
                '"device": 0, "context": 1,      "stream": 7, '
                f'"correlation": {link},      "registers per thread": 32,      '
                '"shared memory": 0,      "blocks per SM": 496.484863,      '
                '"warps per SM": 1985.939453,      "grid": [65536, 1, 1],      '
                '"block": [128, 1, 1],      "est. achieved occupancy %": 100\n    }\n  }'
            )
            write(
                f'  {{\n    "ph": "f", "id": {link}, "pid": 0, "tid": 7, "ts": {now:.3f},\n'
                '    "cat": "ac2g", "name": "ac2g", "bp": "e"\n  }'
            )
            write(
                '  {\n    "ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", '
                f'"pid": 415, "tid": 415,\n    "ts": {now - 50:.3f}, "dur": 6.123,\n'
                f'    "args": {{\n      "External id": {number * 4 + 1}, "cbid": 211, '
                f'"correlation": {link}\n    }}\n  }}'
            )
            write(
                f'  {{\n    "ph": "s", "id": {link}, "pid": 415, "tid": 415, '
                f'"ts": {now - 50:.3f},\n    "cat": "ac2g", "name": "ac2g"\n  }}'
            )
        file.write('],"traceName":"x.json"}' if compact else '\n  ],\n  "traceName": "x.json"\n}\n')
    return groups


def _add(sums: Sums, name: str, duration: float) -> None:
    sums_of = sums.get(name)
    if sums_of is None:
        sums[name] = [1, duration]
    else:
        sums_of[0] += 1
        sums_of[1] += duration


def _opened(path: Path):  # type: ignore[no-untyped-def]
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")


def with_json(path: Path) -> Sums:
    sums: Sums = {}
    with _opened(path) as file:
        for event in json.load(file)["traceEvents"]:
            if event.get("cat") == "kernel":
                _add(sums, event["name"], event["dur"])
    return sums


def with_orjson(path: Path) -> Sums:
    import orjson

    sums: Sums = {}
    with _opened(path) as file:
        for event in orjson.loads(file.read())["traceEvents"]:
            if event.get("cat") == "kernel":
                _add(sums, event["name"], event["dur"])
    return sums


def _structs():  # type: ignore[no-untyped-def]
    import msgspec

    args = msgspec.defstruct(
        "Args",
        [
            ("external_id", int | None, msgspec.field(name="External id", default=None)),
            ("dims", msgspec.Raw, msgspec.field(name="Input Dims", default=msgspec.Raw())),
            ("types", msgspec.Raw, msgspec.field(name="Input type", default=msgspec.Raw())),
            ("device", int | None, None),
            ("stream", int | None, None),
            ("correlation", int | None, None),
            ("registers", int | None, msgspec.field(name="registers per thread", default=None)),
            ("shared", int | None, msgspec.field(name="shared memory", default=None)),
            ("grid", tuple[int, int, int] | None, None),
            ("block", tuple[int, int, int] | None, None),
        ],
        gc=False,
    )
    return msgspec.defstruct(
        "Event",
        [("name", str, ""), ("cat", str, ""), ("ts", float, 0.0), ("dur", float, 0.0),
         ("args", args | None, None)],
        gc=False,
    )  # fmt: skip


def with_msgspec_chunks(path: Path) -> Sums:
    import msgspec

    size, separator = 4 << 20, b"},\n  {"
    decoder = msgspec.json.Decoder(list[_structs()])  # type: ignore[misc]
    sums: Sums = {}
    with _opened(path) as file:
        rest = b""
        start = b'"traceEvents": ['
        while True:
            chunk = file.read(size)
            buffer = rest + chunk
            if start:
                buffer = buffer[buffer.index(start) + len(start) :]
                start = b""
            end = buffer.rfind(separator) if len(chunk) == size else buffer.rfind(b"}\n  ]")
            for event in decoder.decode(b"[" + buffer[: end + 1] + b"]"):
                if event.cat == "kernel":
                    _add(sums, event.name, event.dur)
            rest = buffer[end + 2 :]
            if len(chunk) < size:
                return sums


def with_msgspec_whole(path: Path) -> Sums:
    import msgspec

    fields = [("events", list[_structs()], msgspec.field(name="traceEvents"))]  # type: ignore[misc]
    trace = msgspec.defstruct("Trace", fields)
    sums: Sums = {}
    with _opened(path) as file:
        for event in msgspec.json.decode(file.read(), type=trace).events:
            if event.cat == "kernel":
                _add(sums, event.name, event.dur)
    return sums


def with_read_dump(path: Path) -> Sums:
    from kanalyze.profiles.readers import read_dump

    sums: Sums = {}
    for event in read_dump(path):
        _add(sums, event.name, event.total_us or 0.0)
    return sums


def with_report(path: Path) -> Sums:
    """All of ``kanalyze decode``: names decoded, summary and findings, JSON."""
    from kanalyze.analysis.profile import decode_files
    from kanalyze.text.plain import dumps

    report = decode_files([path])
    dumps(report.to_dict())
    return {r.name.name: [r.calls, r.total_us or 0.0] for r in report.kernels}


RIVALS: dict[str, Callable[[Path], Sums]] = {
    "msgspec, 4-MiB chunks": with_msgspec_chunks,
    "kanalyze read_dump": with_read_dump,
    "kanalyze decode": with_report,
    "msgspec, whole file": with_msgspec_whole,
    "orjson": with_orjson,
    "json": with_json,
}


def child(name: str, path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    try:
        start = time.perf_counter()
        sums = RIVALS[name](path)
        seconds = time.perf_counter() - start
    except ImportError as error:
        print(json.dumps({"missing": str(error)}))
        return
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    calls = sum(s[0] for s in sums.values())
    total = round(sum(s[1] for s in sums.values()), 3)
    print(json.dumps({"seconds": seconds, "mib": memory, "calls": calls, "total_us": total}))


def measure(path: Path, repeat: int, quick: bool) -> None:
    print(f"{path.name}: {path.stat().st_size / 1e6:,.0f} MB")
    best: dict[str, dict[str, float]] = {}
    for _ in range(repeat):
        for name in RIVALS:
            if quick and name in ("orjson", "json", "msgspec, whole file"):
                continue
            if name in best and best[name].get("seconds", 0) > 5:
                continue
            run = [sys.executable, __file__, "--child", name, "--file", str(path)]
            out = subprocess.run(run, check=True, capture_output=True, text=True)
            result = json.loads(out.stdout)
            if "missing" in result:
                continue
            if name not in best or result["seconds"] < best[name]["seconds"]:
                best[name] = result
    yardstick = best["msgspec, 4-MiB chunks"]
    for name, result in best.items():
        same = (result["calls"], round(result["total_us"])) == (
            yardstick["calls"],
            round(yardstick["total_us"]),
        )
        ratio = result["seconds"] / yardstick["seconds"]
        print(
            f"  {name:<24}{result['seconds']:>8.2f} s {ratio:>6.2f} x"
            f"{result['mib']:>8,.0f} MiB{'' if same else '   other sums!'}"
        )


def names_speed() -> None:
    sys.path.insert(0, str(ROOT))
    from kanalyze.profiles.names import decode

    names = kernel_names()
    for name in names:
        decode(name)
    start = time.perf_counter()
    for _ in range(1_000_000 // len(names)):
        for name in names:
            decode(name)
    calls = 1_000_000 // len(names) * len(names)
    print(f"decode, names seen before: {calls:,} calls in {time.perf_counter() - start:.2f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, default=800_000)
    parser.add_argument("--repeat", type=int, default=3, help="rounds, of which the best counts")
    parser.add_argument("--quick", action="store_true", help="leave out the slow rivals")
    parser.add_argument("--child", choices=list(RIVALS), help=argparse.SUPPRESS)
    parser.add_argument("--file", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.file)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        write_trace(path, options.events)
        measure(path, options.repeat, options.quick)
        packed = Path(folder) / "trace.json.gz"
        with path.open("rb") as source, gzip.open(packed, "wb", 6) as target:
            while piece := source.read(1 << 20):
                target.write(piece)
        path.unlink()
        measure(packed, options.repeat, options.quick)
    names_speed()


if __name__ == "__main__":
    main()
