"""Every number of every question, through the public commands; and the cause, by name.

``samples/questions`` holds the inputs (``docs/questions.md`` answers them); a few large ones lie
beside the checkout only. What is compared is ticked off: a number that no test looks at fails.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import kanalyze
from kanalyze.cli.app import cli
from kanalyze.errors import InputError, MissingToolError
from kanalyze.sass import parse as sass_parse
from kanalyze.toolchain import ptxas, tools

pytestmark = [pytest.mark.usefixtures("shared_cache"), pytest.mark.slow("runs whole commands")]
ROOT = Path(__file__).parents[1]
SAMPLES = ROOT / "samples" / "questions"
SHARED = ROOT.parent / "shared" / "questions"
IN_WORDS = {"source", "note", "rest", "vendor", "api", "warning"}
"""Keys whose values are sentences; `CAUSES` looks for what they say."""


class Right:
    """The right answers of one question, and which of them were compared."""

    def __init__(self, folder: Path):
        self.data: Any = json.loads((folder / "expected.json").read_text("utf-8"))
        self.seen: set[str] = set()

    def at(self, *path: str) -> Any:
        """What stands there."""
        found = self.data
        for key in path:
            found = found[key]
        return found

    def take(self, *path: str) -> Any:
        """What stands there; it counts as compared."""
        found = self.at(*path)
        self.seen |= {place for place, _ in leaves(found, "/".join(path))}
        return found

    def left(self) -> list[str]:
        """The places that nothing was compared with."""
        return [place for place, _ in leaves(self.data) if place not in self.seen]


def leaves(data: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its place, sentences and sources left out."""
    if isinstance(data, dict):
        for key, value in data.items():
            if key not in IN_WORDS:
                yield from leaves(value, f"{place}/{key}" if place else key)
    elif isinstance(data, list):
        for index, value in enumerate(data):
            yield from leaves(value, f"{place}/{index}")
    else:
        yield place, data


def folder(number: str) -> Path:
    return next(SAMPLES.glob(f"{number}_*"))


def file(number: str, name: str) -> Path:
    """An input: of the samples, else beside the checkout."""
    own = folder(number) / name
    if own.exists():
        return own
    beside = SHARED / folder(number).name / name
    if not beside.exists():
        pytest.skip(f"{name} lies beside the checkout only (../shared/questions)")
    return beside


def run(*arguments: object) -> str:
    result = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert result.exit_code == 0, result.stderr
    return result.stdout


def data_of(*arguments: object) -> Any:
    return json.loads(run(*arguments, "--format", "json"))


@cache
def kernels(path: Path) -> dict[str, Any]:
    """`kanalyze ptx`: the kernels of a file by name."""
    pytest.importorskip("triton")
    found = data_of("ptx", path, "--no-proof")["kernels"]
    return {kernel["name"]: kernel for kernel in found}


@cache
def machine_code(path: Path) -> dict[str, Counter[str]]:
    """SASS instructions by mnemonic, of each kernel."""
    text = tools.disassemble(ptxas.assemble(path.read_text("utf-8"), of_triton=False).cubin)
    return {
        function.name: Counter(i.opcode for i in function.instructions)
        for function in sass_parse.parse_sass(text).functions
    }


def traffic(
    path: Path, kernel: str, grid: tuple[int, ...], block: tuple[int, ...], arguments: str,
    *options: str, tmp: Path,
) -> Any:  # fmt: skip
    """`kanalyze traffic` of a launch: arguments are numbers, or ``*`` for an aligned pointer."""
    params = [
        {"name": f"p{i}", "type": "*i8", "address": (i + 1) << 40}
        if word == "*"
        else {"name": f"p{i}", "type": "i32", "value": int(word)}
        for i, word in enumerate(arguments.split())
    ]
    record = tmp / "launch.json"
    sizes = [(*extent, 1, 1)[:3] for extent in (grid, block)]
    launch = {"kernel": kernel, "grid": sizes[0], "block": sizes[1], "params": params}
    record.write_text(json.dumps({**launch, "shared_bytes": 0}))
    return data_of("traffic", path, "--launch", record, "--exact", "--no-proof", *options)


def widths(accesses: list[Any], kind: str, space: str = "global") -> dict[str, Any]:
    """As the questions write it: instructions, by width, bytes of a thread."""
    sizes = [a["bytes_per_thread"] for a in accesses if (a["space"], a["kind"]) == (space, kind)]
    by_width = Counter(f"{size}B" for size in sizes)
    return {"count": len(sizes), "by_width": dict(by_width), "total_bytes_per_thread": sum(sizes)}


def per_request(found: Any, kind: str, space: str = "global") -> float:
    """Sectors or wavefronts per request, the same of all accesses of a kind."""
    rows = [a for a in found["accesses"] if (a["space"], a["kind"]) == (space, kind)]
    (value,) = {a["cost"] / a["requests"] for a in rows if a["requests"]}
    return float(value)


def loads_and_stores(right: Right, path: tuple[str, ...], kernel: Any, space: str) -> None:
    for short, kind in (("ld", "load"), ("st", "store")):
        if f"{short}_{space}" in right.at(*path):
            assert right.take(*path, f"{short}_{space}") == widths(kernel["accesses"], kind, space)


# ------------------------------------------------------------------ each question


def check_02(right: Right, tmp: Path) -> None:
    for variant in ("ptr_aligned16", "ptr_unknown", "src_only_aligned"):
        path = file("02", f"{variant}.sm86.ptx")
        (kernel,) = kernels(path).values()
        loads_and_stores(right, (variant,), kernel, "global")
        mnemonics = machine_code(path)[kernel["name"]]
        for name, count in right.take(variant, "sass").items():
            assert mnemonics[name] == count, name
        needed = [p["required_alignment"] for p in kernel["params"][:2]]
        if variant in right.data["required_alignment_bytes"]:
            both = right.take("required_alignment_bytes", variant)
            assert needed == [both["dst"], both["src"]]
        else:
            assert needed == [4, 16]


def check_03(right: Right, tmp: Path) -> None:
    sectors = "sectors_per_warp_request"
    for variant in ("row_major", "both_col_major", "src_col_dst_row", "both_strided"):
        path = file("03", f"{variant}.sm80.ptx")
        (kernel,) = kernels(path).values()
        loads_and_stores(right, (variant,), kernel, "global")
        mnemonics = machine_code(path)[kernel["name"]]
        for name, count in right.take(variant, "sass").items():
            assert mnemonics[name] == count, name
        strided = variant == "both_strided"
        strides = "4096 64 4096 64" if strided else "64 64"
        found = traffic(path, "tile_copy", (4,), (128,), f"* * {strides}", tmp=tmp)
        key = "stride_64_elems_4B" if strided else "unit_stride_16B"
        for kind in ("load", "store"):
            assert per_request(found, kind) == right.take(sectors, key)
        if strided:
            ideal = {a["ideal_cost"] / a["requests"] for a in found["accesses"]}
            assert ideal == {right.take(sectors, "unit_stride_4B")}


def check_05(right: Right, tmp: Path) -> None:
    for variant in [key for key in right.data if key != "source"]:
        path = file("05", f"fp16_{variant}.sm80.ptx")
        (kernel,) = kernels(path).values()
        loads_and_stores(right, (variant,), kernel, "global")
        mnemonics = machine_code(path)[kernel["name"]]
        for name, count in right.take(variant, "sass").items():
            assert mnemonics[name] == count, name
        elements = right.take(variant, "elements_per_thread")
        assert kernel["thread_coarsening"]["elements_per_thread"] == elements


def check_06(right: Right, tmp: Path) -> None:
    pytest.importorskip("triton")
    signature = "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, 1, i32:16, 1, i32:16, 1"
    for config in [key for key in right.data if "_stages" in key]:
        m, n, k, stages = map(int, re.findall(r"\d+", config))
        settings = {"BM": str(m), "BN": str(n), "BK": str(k), "PREC": "tf32"}
        try:
            compiled = kanalyze.compile_kernel(
                f"{folder('06') / 'mm.py'}:mm", arch="sm_80", signature=signature,
                settings=settings, num_warps=8 if n == 256 else 4, num_stages=stages,
            )  # fmt: skip
            needed, ptx = compiled.resources.shared_bytes, compiled.ptx
        except InputError as error:
            said = re.search(r"a block needs (\d+) bytes, sm_80 has (\d+)", error.message)
            assert said is not None
            assert int(said[2]) == right.take("limits", "sm_80")
            needed = int(said[1])
        assert needed == right.take(config, "shared_bytes")
        formula = (m * k + k * n) * 2 * (stages - 1)
        assert formula == right.take(config, "formula_bytes")
        table = data_of("device", "--fits", formula)["fits"]["architectures"]
        fits = {row["architecture"]: row["fits"] for row in table}
        for arch, whether in right.take(config, "fits").items():
            assert fits[arch] == whether, (config, arch)
        limits = {row["architecture"]: row["limit_bytes"] for row in table}
        for arch, limit in right.take("limits").items():
            assert limits[arch] == limit
        extern = re.search(r"\.extern \.shared", ptx) is not None
        assert extern == right.take("ptx_declares_extern_shared")
    (kernel,) = kernels(file("06", "mm_128x128x64_s4.sm80.ptx")).values()
    assert kernel["shared_bytes"] is None, "it is not in the PTX: unknown, not 0"


def check_10(right: Right, tmp: Path) -> None:
    for variant in [key for key in right.data if key.startswith("warps")]:
        path = file("10", f"mm_{variant.replace('warps', 'w')}.sm100.ptx")
        (kernel,) = kernels(path).values()
        for start in [key for key in right.data[variant] if key != "sass_mma"]:
            count = sum(
                n for op, n in kernel["opcodes"].items() if f"{op}.".startswith(start + ".")
            )
            assert count == right.take(variant, start), (variant, start)
        mnemonics = machine_code(path)[kernel["name"]]
        for name, count in right.take(variant, "sass_mma").items():
            assert mnemonics[name] == count, (variant, name)


def check_12(right: Right, tmp: Path) -> None:
    for variant in [key for key in right.data if key != "source"]:
        path = file("12", f"{variant}.ptx")
        (kernel,) = kernels(path).values()
        loads_and_stores(right, (variant,), kernel, "global")
        atomics = {
            a["opcode"]: sum(b["opcode"] == a["opcode"] for b in kernel["accesses"])
            for a in kernel["accesses"]
            if a["kind"] in ("atomic", "reduction")
        }
        assert atomics == right.take(variant, "atom")
        mnemonics = machine_code(path)[kernel["name"]]
        for name, count in right.take(variant, "sass").items():
            assert mnemonics[name] == count, (variant, name)


def check_15(right: Right, tmp: Path) -> None:
    path = file("15", "transpose.sm_80.ptx")
    resources = {k["name"]: k for k in data_of("resources", path)["kernels"]}
    for row in right.take("ptxas"):
        same_resources(resources[row["entry"]], row)
    for pad in (0, 1, 2):
        name = f"tr_pad{pad}"
        found = traffic(path, name, (32, 32), (32, 8), "* * 1024", tmp=tmp)
        assert per_request(found, "load", "shared") == right.take(f"pad{pad}", "load_ways")
        assert per_request(found, "store", "shared") == right.take(f"pad{pad}", "store_ways")
        assert resources[name]["shared_bytes"] == right.take(f"pad{pad}", "smem_bytes")
        for short, kind in (("ld", "load"), ("st", "store")):
            counted = widths(found["accesses"], kind, "shared")
            assert counted == right.take(f"{short}_shared", name)
    ways, size = strided(tmp, "b32", 4 * (32 + 4), 32 * 4 * (32 + 4))
    assert (ways, size) == (right.take("pad4", "load_ways"), right.take("pad4", "smem_bytes"))
    assert strided(tmp, "b32", 4, 128)[0] == right.take("pad4", "store_ways")


STRIDED = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry strided(.param .u64 strided_param_0)
{{
    .reg .b32 %r<4>;
    .reg .b64 %rd<3>;
    .shared .align 16 .b8 t[{size}];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, t;
    mad.lo.s32 %r3, %r1, {stride}, %r2;
    ld.volatile.shared.{type} {to}, [%r3];
    ret;
}}
"""


def strided(tmp: Path, type_: str, stride: int, size: int) -> tuple[float, int]:
    """Wavefronts per request of 32 lanes so many bytes apart, and the shared memory declared."""
    to = {"b64": "%rd2", "v4.b32": "{%r1, %r1, %r1, %r1}"}.get(type_, "%r1")
    path = tmp / "strided.ptx"
    path.write_text(STRIDED.format(type=type_, stride=stride, size=size, to=to))
    found = traffic(path, "strided", (1,), (32,), "*", tmp=tmp)
    (kernel,) = data_of("resources", path)["kernels"]
    return per_request(found, "load", "shared"), kernel["shared_bytes"]


def check_16(right: Right, tmp: Path) -> None:
    path = file("16", "strides.sm_80.ptx")
    launches = {"s_f1": "* 2", "s_f32": "*", "s_b3": "*", "s_d1": "*", "s_v4": "*", "s_bc": "*"}
    keys = {"s_f1": "float_stride2", "s_f32": "float_stride32", "s_b3": "float_stride3",
            "s_d1": "double_stride1", "s_v4": "float4_stride1", "s_bc": "broadcast"}  # fmt: skip
    for name, arguments in launches.items():
        threads = 256 if name in ("s_d1", "s_v4", "s_bc") else 32
        found = traffic(path, name, (1,), (threads,), arguments, tmp=tmp)
        assert per_request(found, "load", "shared") == right.take(keys[name], "wavefronts")
        (load,) = (a for a in found["accesses"] if (a["space"], a["kind"]) == ("shared", "load"))
        assert load["ideal_cost"] / load["requests"] == right.take(keys[name], "minimum")
        counted = widths(found["accesses"], "load", "shared")
        assert counted == right.take("ld_shared_in_ptx", name)
    for key, type_, stride in (("double_stride2", "b64", 16), ("float_stride8", "b32", 32),
                               ("byte_stride1", "u8", 1)):  # fmt: skip
        assert strided(tmp, type_, stride, 1024)[0] == right.take(key, "wavefronts")
        width = {"b64": 8, "b32": 4, "u8": 1}[type_]
        assert math.ceil(32 * width / 128) == right.take(key, "minimum")


def check_18(right: Right, tmp: Path) -> None:
    path = file("18", "shift.sm_75.ptx")
    for offset in (0, 1, 8, 11, 31, 32):
        arguments = f"* * * {offset} {1 << 30}"
        found = traffic(path, "shifted", (64,), (256,), arguments, "--device", "T4", tmp=tmp)
        sectors = right.take("sectors", f"offset{offset}_float")
        assert per_request(found, "load") == per_request(found, "store") == sectors
    for name in ("shifted", "shifted11"):
        assert right.take("ld_global", name) == widths(kernels(path)[name]["accesses"], "load")
        assert right.take("st_global", name) == widths(kernels(path)[name]["accesses"], "store")


def check_19(right: Right, tmp: Path) -> None:
    path = file("19", "far.sm_80.ptx")
    for name in ("far", "near"):
        found = traffic(path, name, (64,), (256,), "* * 5", tmp=tmp)
        assert per_request(found, "load") == right.take(name, "sectors_per_request")
        loads = [a for a in found["accesses"] if a["kind"] == "load"]
        asked = sum(a["threads"] * a["bytes_per_thread"] for a in loads)
        sectors = found["counters"]["global_load_sectors"]
        assert 32 * sectors / asked == right.take(name, "overfetch")
        assert right.take("ld_global", name) == widths(kernels(path)[name]["accesses"], "load")
        assert right.take("st_global", name) == widths(kernels(path)[name]["accesses"], "store")
    large = right.take("coalesced_copy_1Gi_floats")
    copy = tmp / "copy.py"
    copy.write_text(
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\n"
        "def copy(x, y, B: tl.constexpr):\n    i = tl.program_id(0).to(tl.int64) * B\n"
        "    o = i + tl.arange(0, B)\n    tl.store(y + o, tl.load(x + o))\n"
    )
    compiled = kanalyze.compile_kernel(
        f"{copy}:copy", arch="sm_80", signature="*fp32, *fp32", settings={"B": "128"}
    )
    path = tmp / "copy.ptx"
    path.write_text(compiled.ptx)
    found = traffic(path, "copy", (2**30 // 128,), (128,), "* *", tmp=tmp)
    assert found["counters"]["global_load_requests"] == large["warps"]
    assert found["counters"]["global_load_sectors"] == large["read_sectors"]
    assert per_request(found, "load") == large["sectors_per_request"]
    assert found["compulsory"]["read_bytes"] == large["bytes_read"]
    assert found["compulsory"]["write_bytes"] == large["bytes_written"]


def check_23(right: Right, tmp: Path) -> None:
    for case in [key for key in right.data if key != "source"]:
        size, tile, sms, per_sm = case.split("_")
        found = data_of("waves", "--gemm", size, "--tile", tile.removeprefix("tile"), "--sms",
                        sms[2:], "--blocks-per-sm", per_sm[1:])  # fmt: skip
        for key in ("tiles", "slots"):
            assert found[key] == right.take(case, key)
        for key in ("waves", "efficiency", "tile_efficiency"):
            assert round(found[key], 4) == right.take(case, key)
        assert found["rounds"] == right.take(case, "full_waves")


def check_25(right: Right, tmp: Path) -> None:
    path = file("25", "row_softmax.sm80.ptx")
    (kernel,) = kernels(path).values()
    for space in ("global", "shared"):
        loads_and_stores(right, (), kernel, space)
    assert kernel["reqntid"] == [right.take("threads"), 1, 1]
    programs = right.take("programs")
    arguments = ("row_softmax", (programs,), (128,), "* * 1024 1024", "--time-us", "40")
    found = traffic(path, *arguments, tmp=tmp)  # type: ignore[arg-type]
    moved = found["bytes_by_space"]["global"]
    assert moved["load"] + moved["store"] == right.take("bytes_from_ptx")
    assert found["at_time"]["distinct_bytes"] == right.take("fused_bytes")
    assert round(found["at_time"]["distinct_gb_per_s"], 1) == right.take("gbps_at_40us")
    setting = ("--set", "M=4096", "--set", "N=1024", "--arch", "sm_80")
    both = data_of("traffic", "softmax", *setting, "--versus", "unfused", "--exact")
    sides = both["points"][0]["sides"]
    fused, naive = (side["totals"]["compulsory_bytes"] for side in sides)
    assert (fused, naive) == (right.take("fused_bytes"), right.take("naive_bytes"))
    assert round(naive / fused, 3) == right.take("ratio")
    setting = ("--set", "M=4096", "--set", "N=781", "--set", "BLOCK_SIZE=1024", "--exact")
    least = data_of("traffic", "softmax", *setting, "--no-proof")["compulsory"]
    assert least["read_bytes"] + least["write_bytes"] == right.take("bytes_n781")


def check_26(right: Right, tmp: Path) -> None:
    path = file("26", "add_rms.sm80.ptx")
    (kernel,) = kernels(path).values()
    loads_and_stores(right, (), kernel, "global")
    assert kernel["reqntid"] == [right.take("threads"), 1, 1]
    launch = ("add_rms", (1024,), (256,), "* * * 4096 0", "--time-us", "20")
    found = traffic(path, *launch, tmp=tmp)  # type: ignore[arg-type]
    moved = found["bytes_by_space"]["global"]
    asked = moved["load"] + moved["store"]
    assert asked == right.take("bytes_from_ptx") == right.take("requested_bytes")
    assert found["at_time"]["distinct_bytes"] == right.take("compulsory_bytes")
    by_pointer = {p["pointer"]: p for p in found["compulsory"]["pointers"]}
    rest = [p for name, p in by_pointer.items() if name != "p1"]
    without = sum((p["read_bytes"] or 0) + (p["write_bytes"] or 0) for p in rest)
    assert without == right.take("without_residual")


def check_28(right: Right, tmp: Path) -> None:
    keys = {"arch": "arch", "op_class": "op_class", "out": "dtype_c", "acc": "dtype_acc",
            "inp": "dtype_a", "stages": "stages", "align_elements": "align", "math": "dtype_mma",
            "A": "dtype_a", "B": "dtype_b", "C": "dtype_c", "D": "dtype_d", "schedule": "schedule",
            "arch_family": "arch_name", "load_elements": "ldg"}  # fmt: skip
    major = {"row": "row-major", "col": "column-major"}
    for name in right.data["names"]:
        (kernel,) = data_of("decode", "--name", name)["kernels"]
        decoded, words = kernel["decoded"], " ".join(kernel["remarks"])
        for key in [k for k in right.data["names"][name] if k not in IN_WORDS]:
            value = right.take("names", name, key)
            if key == "arch":
                assert decoded["arch"] == value.split()[0]
            elif key == "stages":
                assert decoded.get("stages") == (0 if value == "auto (0)" else value)
            elif key in keys:
                assert decoded[keys[key]] == value, (name, key)
            elif key == "tile":
                names = ("tile_m", "tile_n", "tile_k")[: len(value)]
                assert [decoded.get(n) for n in names] == value
            elif key == "cluster":
                assert [decoded[f"cluster_{d}"] for d in "mnk"] == value
            elif key == "mma":
                assert "m{inst_m}n{inst_n}k{inst_k}".format(**decoded) == value
            elif key.startswith("layout") and key != "layout":
                assert f"{key[-1]} {major[value]}" in words, (name, key)
            elif key == "layout":
                assert decoded["layout"] == value.replace("_", "")
            elif key == "epilogue":
                stated = [decoded.get("epilogue"), *decoded.get("epilogue_in_name", [])]
                assert value.split()[0] in stated
            elif key == "slice_k":
                assert decoded["sliced"] == "x".join(map(str, value))
            elif key == "segment_k":
                assert (decoded["segment_k"] != "off") == value
            else:
                assert key == "align_bytes"
                assert re.search(rf"\b{value}(-byte| bytes)", words), name
        said = right.data["names"][name]
        if "rest" in said:
            assert "undocumented" in words
        if "warning" in said:
            assert "scalar 2-byte global loads, no cp.async" in words
            assert "pad the leading dimension" in words
        if "cuBLAS" in said.get("vendor", ""):
            assert "closed source" in words
            assert "cublas" in (kernel["family"], decoded.get("library")) or "cuBLAS" in words


def check_29(right: Right, tmp: Path) -> None:
    for name in [key for key in right.data if key != "source"]:
        (kernel,) = data_of("decode", "--name", name)["kernels"]
        assert kernel["family"] == "triton_other"
        assert kernel["decoded"]["function"] == right.take(name, "base")
        marks = kernel["decoded"]["specialization"]
        assert [[i, mark] for i, mark in enumerate(marks)] == right.take(name, "args")
        lost = [i for i, mark in enumerate(marks) if not mark]
        assert bool(lost) == any("without d" in remark for remark in kernel["remarks"])


def check_30(right: Right, tmp: Path) -> None:
    for name in [key for key in right.data if key != "source"]:
        (kernel,) = data_of("decode", "--name", name)["kernels"]
        decoded = kernel["decoded"]
        category = right.take(name, "category")
        assert decoded.get("op", "unknown") == category
        if category == "unknown":
            assert "unique_kernel_names=False" in kernel["remarks"][0]
            continue
        assert decoded.get("fused_ops_list", []) == right.take(name, "ops")
        assert decoded["index"] == right.take(name, "index")


def same_resources(found: Any, row: Any) -> None:
    keys = {"stack": "stack_bytes", "spill_st": "spill_store_bytes", "regs": "registers",
            "spill_ld": "spill_load_bytes", "smem": "shared_bytes", "barriers": "barriers",
            "spill_stores": "spill_store_bytes", "spill_loads": "spill_load_bytes",
            "entry": "name", "local": "local_bytes"}  # fmt: skip
    for key, value in row.items():
        assert found[keys[key]] == value, (row["entry"], key)


def check_34(right: Right, tmp: Path) -> None:
    for name in [key for key in right.data if key not in ("source", "real")]:
        (kernel,) = data_of("resources", file("34", f"{name}.txt"))["kernels"]
        same_resources(kernel, right.take(name))
    found = data_of("resources", file("34", "real_13.0.txt"))["kernels"]
    for kernel, row in zip(found, right.take("real"), strict=True):
        same_resources(kernel, row)


def check_35(right: Right, tmp: Path) -> None:
    path = file("35", "loops.sm_80.ptx")
    resources = {k["name"]: k for k in data_of("resources", path)["kernels"]}
    for row in right.take("ptxas"):
        same_resources(resources[row["entry"]], row)
    for name, kernel in kernels(path).items():
        for short, kind in (("ld", "load"), ("st", "store")):
            assert right.take(f"ptx_{short}", name) == widths(kernel["accesses"], kind)
        mnemonics = machine_code(path)[name]
        for mnemonic, count in right.take("sass", name).items():
            assert mnemonics[mnemonic] == count, (name, mnemonic)
        in_loops = sum(a["loop_depth"] > 0 for a in kernel["accesses"])
        assert bool(in_loops) == (name in ("rows", "grid4"))
    for name in ("dot16", "dot16v"):
        found = traffic(path, name, (1,), (256,), "* * *", tmp=tmp)
        assert per_request(found, "load") == right.take(f"{name}_sectors_per_request")
    loads = [a for a in kernels(path)["dot16"]["accesses"] if a["kind"] == "load"]
    stride = right.take("dot16_lane_stride_bytes")
    apart = (f" {stride}*tid.x", f"4*({stride // 4}*tid.x ")
    assert all(any(text in a["address"] for text in apart) for a in loads)


CHECKS = {name.removeprefix("check_"): check for name, check in globals().items()
          if name.startswith("check_")}  # fmt: skip


@pytest.mark.parametrize("number", sorted(p.name[:2] for p in SAMPLES.iterdir() if p.is_dir()))
def test_every_number(number: str, tmp_path: Path) -> None:
    if number not in ("23", "28", "29", "30", "34"):
        pytest.importorskip("triton")
    right = Right(folder(number))
    check: Callable[[Right, Path], None] = CHECKS[number]
    try:
        check(right, tmp_path)
    except MissingToolError as error:  # PTX that is newer than the assembler here
        pytest.skip(str(error))
    assert right.left() == []


MM = ("mm.py:mm", "--signature",
      "*fp16:16, *fp16:16, *fp16:16, i32:16, i32:16, 1, i32:16, 1, i32:16, 1",
      "--set", "BM=128", "--set", "BN=256", "--set", "BK=64", "--set", "PREC=tf32",
      "--num-warps", "8", "--num-stages", "4", "--arch", "sm_86")  # fmt: skip
SOFTMAX = ("--set", "M=4096", "--set", "N=1024", "--arch", "sm_80", "--exact")
CAUSES = [
    ("02", "ptx ptr_aligned16.sm86.ptx --no-proof", ["needs 16-byte alignment"]),
    ("02", "ptx ptr_unknown.sm86.ptx --no-proof",
     ["needs 4-byte alignment", "[narrow-access]", "divisible by 16"]),
    ("03", "traffic both_strided.sm80.ptx --launch both_strided.json --exact --no-proof",
     ["[uncoalesced-access]", "lanes are sn = 64 elements (256 B) apart", "32 sectors per request",
      "8 times the bytes needed"]),
    ("05", "ptx fp16_block128_warps4.sm80.ptx --no-proof",
     ["[narrow-access]", "a thread has 1 element of 2 B", "1 element per thread"]),
    ("06", ("compile", *MM), ["a block needs 147456 bytes, sm_86 has 101376", "num_stages=3"]),
    ("06", "ptx mm_128x128x64_s4.sm80.ptx --no-proof", ["shared mem. unknown"]),
    ("10", "ptx mm_w16.sm100.ptx --no-proof",
     ["[tensor-core-fallback]", "the block has 16 warps", "only with 4 or 8 warps"]),
    ("12", "ptx scatter_sum.sm80.ptx --no-proof",
     ["stores none", "8 × atom.global.gpu.acq_rel.add.f32: each reads and writes L2",
      "[atomic-without-use]", "red would do"]),
    ("12", "ptx scatter_sum_relaxed.sm80.ptx --no-proof", ["8 × red.global.gpu.relaxed.add.f32"]),
    ("15", "traffic transpose.sm_80.ptx --launch tr_pad0.json --exact --no-proof",
     ["32-way bank conflict", "padded by 4 bytes", "1,048,576 → 32,768"]),
    ("16", "ptx strides.sm_80.ptx --no-proof",
     ["2-way bank conflict", "lanes 8 B apart", "32-way bank conflict", "lanes 128 B apart"]),
    ("18", "traffic shift.sm_75.ptx --launch shifted11.json --exact --no-proof",
     ["[misaligned-access]", "12 B inside a sector", "an offset of 11 elements", "80 %"]),
    ("19", "traffic far.sm_80.ptx --launch far.json --exact --no-proof",
     ["[uncoalesced-access]", "lanes are 65,536 elements (262,144 B) apart", "8 times the bytes"]),
    ("23", ("waves", "--gemm", "1793x1792", "--tile", "256x128", "--device", "A100 SXM 80GB"),
     ["wave quantisation", "tile quantisation", "M = 1792 (-1)"]),
    ("25", ("traffic", "softmax", *SOFTMAX, "--versus", "unfused"), ["33.6 MB 134 MB 4"]),
    ("25", ("traffic", "softmax", *SOFTMAX, "--no-proof", "--time-us", "40"), ["838.9 GB/s"]),
    ("26", "traffic add_rms.sm80.ptx --launch add_rms.json --exact --no-proof --time-us 20",
     ["res: 8,388,608 B = 8 MiB read", "33,562,624 distinct bytes", "by 1,024 blocks"]),
    ("28", "decode --explain cutlass_75_tensorop_bf16_s1688gemm_bf16_256x128_nn_align1",
     ["scalar 2-byte global loads, no cp.async", "it runs on newer GPUs"]),
    ("29", "decode --explain add_kernel_0d1d2d3", ["argument 3 without d", "not vectorised"]),
    ("30", "decode --explain triton_per_fused__safe_softmax_3",
     ["a program holds a whole row", "fused _safe_softmax"]),
    ("34", "resources real_13.0.txt",
     ["256 B of stack without spills: a local array that is indexed at run time"]),
    ("35", "ptx loops.sm_80.ptx --kernel rows --no-proof",
     ["Counts are static", "5 of the 6 accesses stand in loops"]),
    ("35", "traffic loops.sm_80.ptx --launch dot16.json --exact --no-proof",
     ["[narrow-access]", "lanes are 64 B apart", "float4"]),
]  # fmt: skip


@pytest.mark.parametrize(("number", "command", "said"), CAUSES)
def test_the_cause_is_named(
    number: str, command: str | tuple[str, ...], said: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command.split() if isinstance(command, str) else list(command)
    if words[0] not in ("waves", "decode", "resources"):
        pytest.importorskip("triton")
    monkeypatch.chdir(folder(number))
    monkeypatch.setenv("COLUMNS", "1000")
    result = CliRunner().invoke(cli, words)
    assert result.exit_code == (3 if words[0] == "compile" else 0)
    text = " ".join((result.stdout + result.stderr).split())
    for part in said:
        assert part in text


def test_every_question_has_a_cause_and_a_check() -> None:
    numbers = {place.name[:2] for place in SAMPLES.iterdir() if place.is_dir()}
    assert numbers == {number for number, _, _ in CAUSES} == set(CHECKS)


def test_the_questions_are_those_beside_the_checkout() -> None:
    if not SHARED.is_dir():
        pytest.skip("the questions are not beside the checkout (../shared/questions)")
    for place in (p for p in SHARED.iterdir() if p.is_dir()):
        own = SAMPLES / place.name / "expected.json"
        assert own.read_bytes() == (place / "expected.json").read_bytes()
