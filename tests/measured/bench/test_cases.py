"""Benchmarks up to the launch: what would run, what a kernel is given, how times become numbers."""

from __future__ import annotations

import ctypes
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.errors import InputError, KanalyzeError, UsageError
from kanalyze.measured.bench import build, driver, event_times, metrics, reached_rates
from kanalyze.measured.bench.build import BenchParam
from kanalyze.render.bench_text import result_text
from kanalyze.render.measured_text import measured_text
from kanalyze.text.page import Page

pytest.importorskip("triton")

pytestmark = pytest.mark.usefixtures("shared_cache")
ROOT = Path(__file__).parents[3]


def dry(*words: str) -> Any:
    result = CliRunner().invoke(cli, ["bench", *words, "--dry-run", "--format", "json"])
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def names(*words: str) -> list[str]:
    return [launch["case"] for launch in dry(*words)["launches"]]


# --- what would run ------------------------------------------------------------------------------


def test_every_combination_once_in_order() -> None:
    found = names("gelu", "--set", "n=16,1000003", "--set", "num_warps=4,8", "--dtype", "fp16,fp32")
    assert found == [
        f"gelu-{dtype}-n{n}{warps}"
        for dtype in ("fp16", "fp32")
        for n in (16, 1000003)
        for warps in ("", "-num_warps8")
    ]
    assert names("gelu", "gelu", "--set", "n=16,16") == ["gelu-fp32-n16"]


def test_files_of_the_same_name_are_told_apart_by_their_folders(tmp_path: Path) -> None:
    text = (ROOT / "samples" / "naive_matmul.py").read_text("utf-8")
    for folder in ("one", "two", "two/one"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "naive_matmul.py").write_text(text)
    one, two, again = (str(tmp_path / f / "naive_matmul.py") for f in ("one", "two", "two/one"))
    case = "naive_matmul-fp16-M1024-N1024-K1024"
    assert names(one, two) == [f"one-{case}", f"two-{case}"]
    assert names(one, one) == [case]
    result = CliRunner().invoke(cli, ["bench", one, again, "--dry-run"])
    assert result.exit_code == 2
    assert "2 launches of different files" in result.stderr


def test_without_settings_the_files_examples() -> None:
    assert names("softmax") == [
        "softmax-fp32-M8192-N4096", "softmax-fp32-M4096-N1000", "softmax-fp16-M1024-N50257",
    ]  # fmt: skip
    listed = names("--all")
    assert len(listed) == len(set(listed))
    assert {name.split("-")[0] for name in listed} == {
        "gelu", "softmax", "row_sum", "matmul_relu", "flash_attention"
    }  # fmt: skip
    assert {name.split("-")[1] for name in listed} == {"fp32", "fp16", "bf16"}
    assert "row_sum-bf16-M77-N65537" in listed  # a ragged one


def test_a_configuration_is_part_of_the_name() -> None:
    first, second = dry("matmul_relu", "--set", "M=256", "--set", "GROUP_M=1,8")["launches"]
    assert first["case"] == "matmul_relu-fp16-M256-N4096-K4096-GROUP_M1"
    assert second["case"] == "matmul_relu-fp16-M256-N4096-K4096"
    assert first["grid"] == [64, 1, 1]
    assert first["constexprs"]["GROUP_M"] == 1
    assert names("matmul_relu", "--set", "stride_am=4104", "--set", "M=256") == [
        "matmul_relu-fp16-M256-N4096-K4096-stride_am4104"
    ]


def test_the_purpose_hangs_on_the_name_alone_and_halves() -> None:
    launches = dry("--all")["launches"]
    purposes = {one["case"]: one["purpose"] for one in launches}
    assert purposes["gelu-fp16-n67108864"] == "fit"
    assert purposes["gelu-fp32-n67108864"] == "report"
    assert purposes == {one["case"]: one["purpose"] for one in dry("--all")["launches"]}
    share = sum(value == "fit" for value in purposes.values()) / len(purposes)
    assert 0.35 < share < 0.65


def test_a_users_kernel_and_a_plan(tmp_path: Path) -> None:
    assert names(f"{ROOT}/samples/naive_matmul.py:naive_matmul_kernel") == [
        "naive_matmul-fp16-M1024-N1024-K1024"
    ]
    (tmp_path / "own.py").write_text((ROOT / "samples" / "naive_matmul.py").read_text()
                                     .replace("naive_matmul_kernel", "own_kernel"))  # fmt: skip
    plan = tmp_path / "plan.toml"
    plan.write_text(
        '[[bench]]\ntarget = "own.py"\ndtype = ["fp32"]\nshapes = [{M = 8, N = 8, K = 8}]\n'
        'set = {num_warps = [1, 2]}\n[[bench]]\ntarget = ["gelu", "row_sum"]\nrivals = false\n'
    )
    listed = names("--plan", str(plan))
    assert listed[:2] == ["own-fp32-M8-N8-K8-num_warps1", "own-fp32-M8-N8-K8-num_warps2"]
    assert {name.split("-")[0] for name in listed[2:]} == {"gelu", "row_sum"}


@pytest.mark.parametrize(
    "plan", sorted((ROOT / "samples" / "plans").glob("*.toml")), ids=lambda path: path.stem
)
def test_the_plans_that_ship(plan: Path) -> None:
    assert len(names("--plan", str(plan))) >= 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected [[bench]] entries"),
        ("[[bench]]\n", "[[bench]] number 1: expected target, a name or a list of names"),
        ('[[bench]]\ntarget = "gelu"\nshape = 1\n', "unknown key 'shape'; did you mean shapes"),
        ('[[bench]]\ntarget = "gelu"\nshapes = [1]\n', "shapes: expected a list of tables"),
        ('[[bench]]\ntarget = "gelu"\nset = {n = 4}\n', "set: expected a table of lists"),
        ('[[bench]]\ntarget = "gelu"\ndtype = "fp16"\n', "dtype: expected a list of names"),
        ("bench = 1\n", "expected [[bench]] entries"),
        ("=", "not valid TOML"),
    ],
)
def test_plans_that_are_malformed(text: str, message: str, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(text)
    result = CliRunner().invoke(cli, ["bench", "--plan", str(plan), "--dry-run"])
    assert result.exit_code == 3
    assert "plan.toml:" in result.stderr
    assert message in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        ([], 2, "give TARGETs, or --all, or --plan FILE"),
        (["gelu", "--all"], 2, "give TARGETs, or --all, or --plan FILE"),
        (["--all", "--set", "n=4"], 2, "--set needs TARGETs"),
        (["--plan", "x.toml", "--dtype", "fp16"], 2, "leave --set and --dtype out"),
        (["gleu"], 2, "unknown kernel 'gleu': did you mean gelu?"),
        (["gelu", "--set", "n"], 2, "'n' is not NAME=VALUE,VALUE"),
        (["gelu", "--set", "n=4,"], 2, "'n=4,' is not NAME=VALUE,VALUE"),
        (["gelu", "--set", "n=4", "--set", "n=5"], 2, "n is set twice"),
        (["gelu", "--set", "m=4"], 2, "unknown name 'm'"),
        (["gelu", "--set", "n=0"], 2, "n=0: expected a size of at least 1"),
        (["gelu", "--set", "n=many"], 2, "n=many: expected an integer"),
        (["gelu", "--dtype", "fp8"], 2, "unknown dtype 'fp8'"),
        (["gelu", "--minutes", "0"], 2, "--minutes"),
        (["missing.py:k"], 3, "missing.py: No such file"),
        (["--plan", "missing.toml"], 3, "missing.toml: No such file"),
    ],
)
def test_requests_that_are_wrong(words: list[str], code: int, message: str) -> None:
    result = CliRunner().invoke(cli, ["bench", *words, "--dry-run"])
    assert result.exit_code == code, result.output
    assert message in " ".join(result.stderr.split())


def test_without_a_gpu_the_reason_and_exit_4(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    for words in (["bench", "gelu", "-o", str(tmp_path / "out")], ["device", "--measure"]):
        result = CliRunner().invoke(cli, words)
        assert result.exit_code == 4
        assert "no GPU to measure" in result.stderr
    assert not (tmp_path / "out").exists()


def test_a_dry_run_follows_the_schema_and_is_a_line_a_launch() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    document = dry("gelu", "--set", "n=16,32")
    jsonschema.validate(document, schemas.load("bench"))
    result = CliRunner().invoke(cli, ["bench", "gelu", "--set", "n=16,32", "--dry-run"])
    assert result.stdout.splitlines() == [
        "gelu-fp32-n16  grid 1 x 1 x 1, fit",
        "gelu-fp32-n32  grid 1 x 1 x 1, fit",
        "2 launches; nothing was run",
    ]


# --- what a kernel is given ----------------------------------------------------------------------


def test_a_launch_as_a_gpu_needs_it() -> None:
    built = build.build("softmax", "fp16", {"M": 5, "N": 77}, "sm_90", "NVIDIA H200")
    assert isinstance(built, build.Launchable)
    assert built.grid == (5, 1, 1)
    assert built.block == (256, 1, 1)
    assert [(p.name, p.type) for p in built.params] == [
        ("x_ptr", "*fp16"), ("y_ptr", "*fp16"), ("x_row_stride", "i32"), ("y_row_stride", "i32"),
        ("N", "i32"),
    ]  # fmt: skip
    assert built.params[0].bytes == 5 * 77 * 2
    # what ptxas counts, against what the launch passes
    assert built.ptx.partition(".entry")[2].partition(")")[0].count(".param") == (
        len(built.params) + built.null_params
    )
    assert built.cubin[:4] == b"\x7fELF"
    assert built.static.read_bytes == -(-5 * 77 * 2 // 32) * 32
    assert built.static.occupancy_percent is not None


def test_an_unknown_gpu_leaves_the_occupancy_unknown() -> None:
    built = build.build("gelu", "fp32", {"n": 64}, "sm_90", "NVIDIA H9000")
    assert isinstance(built, build.Launchable)
    assert built.static.occupancy_percent is None
    assert "H9000" in built.static.unknown["occupancy_percent"]
    assert built.static.read_bytes == 256


@pytest.mark.parametrize(
    ("settings", "impossible"), [({"num_stages": 9, "BLOCK_K": 128}, True), ({"BLOCK_K": 8}, False)]
)
def test_configurations_that_cannot_be_built(settings: dict[str, int], impossible: bool) -> None:
    shape = {"M": 512, "N": 512, "K": 4096}
    built = build.build("matmul_relu", "fp16", {**shape, **settings}, "sm_90", "NVIDIA H200")
    assert isinstance(built, build.NotBuilt)
    assert built.impossible is impossible
    assert built.reason


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        ("i32", -2, struct.pack("<i", -2)),
        ("i64", 2**40, struct.pack("<q", 2**40)),
        ("u32", 2**32 - 1, struct.pack("<I", 2**32 - 1)),
        ("i1", True, b"\1"),
        ("fp32", 0.1, struct.pack("<f", 0.1)),
        ("fp64", 0.1, struct.pack("<d", 0.1)),
        ("fp16", 0.5, b"\x00\x38"),
        ("bf16", 1.0, b"\x80\x3f"),
    ],
)
def test_arguments_as_bytes(kind: str, value: float, expected: bytes) -> None:
    first, second, third = driver.packed(
        [BenchParam("a", kind, value), BenchParam("p", "*fp32", None, (4,))],
        [None, 0x7F0000001000],
        1,
    )
    assert bytes(first) == expected
    assert bytes(second) == struct.pack("<Q", 0x7F0000001000)
    assert bytes(third) == bytes(8)


def test_a_type_that_is_not_known() -> None:
    with pytest.raises(KanalyzeError, match="argument a: unknown type nvTmaDesc"):
        driver.packed([BenchParam("a", "nvTmaDesc", 1)], [None], 0)


def test_errors_of_the_driver_are_exceptions() -> None:
    class Library:
        def cuModuleLoadData(self, *_: object) -> int:
            return 209

        def cuGetErrorString(self, code: int, text: Any) -> int:
            text._obj.value = b"no kernel image"
            return 0

    found = driver.Driver.__new__(driver.Driver)
    found.library = Library()  # type: ignore[assignment]
    with pytest.raises(driver.LaunchError) as error:
        found.load(b"", "k")
    assert str(error.value) == "cuModuleLoadData: no kernel image (CUDA error 209)"
    assert error.value.code == 209


def test_the_launch_passes_what_it_was_given() -> None:
    seen: list[Any] = []

    class Library:
        def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
            *dims, stream, pointers, extra = rest
            values = [ctypes.cast(pointers[i], ctypes.POINTER(ctypes.c_int32))[0] for i in (0, 1)]
            seen.append(([d.value for d in dims], stream.value, values, extra))
            return 0

    found = driver.Driver.__new__(driver.Driver)
    found.library = Library()  # type: ignore[assignment]
    kernel = driver.LoadedKernel(found, ctypes.c_void_p(1), ctypes.c_void_p(2))
    values = driver.packed([BenchParam("a", "i32", 7), BenchParam("b", "i32", -9)], [None, None], 0)
    kernel.launcher((3, 2, 1), (128, 1, 1), 4096, values, 77)()
    assert seen == [([3, 2, 1, 128, 1, 1, 4096], 77, [7, -9], None)]


# --- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 10, 101])
def test_medians_and_percentiles_as_numpy_has_them(count: int) -> None:
    np = pytest.importorskip("numpy")
    samples = np.random.default_rng(count).exponential(size=count)
    found = event_times.summarised([float(x) for x in samples])
    assert found.median == pytest.approx(np.median(samples))
    assert found.p20 == pytest.approx(np.percentile(samples, 20))
    assert found.p80 == pytest.approx(np.percentile(samples, 80))
    assert found.runs == count


def test_a_stopwatch_flushes_before_cold_runs_only() -> None:
    log: list[str] = []

    class Recorded:
        def __init__(self, enable_timing: bool):
            assert enable_timing

        def record(self) -> None:
            log.append("event")

        def elapsed_time(self, other: object) -> float:
            return 2.0

    class Cuda:
        Event = Recorded
        _sleep = staticmethod(lambda cycles: log.append("busy"))
        synchronize = staticmethod(lambda: log.append("wait"))

    class Torch:
        cuda = Cuda()
        int32 = "int32"

        def empty(self, *_: object, **__: object) -> Any:
            return type("Buffer", (), {"zero_": lambda self: log.append("flush")})()

    cold, warm = event_times.Stopwatch(Torch()).measure(lambda: log.append("go"))
    assert (cold.median, warm.median) == (2.0, 2.0)
    text = " ".join(log)
    assert cold.runs == 50
    assert text.count("flush event go event") == 5 + 12 + cold.runs
    assert log.count("flush") == 5 + 12 + cold.runs
    assert "go busy event go event event go event" in text  # warm: nothing between


def test_counters_by_architecture() -> None:
    newest, hopper, ada = (set(metrics.metrics(c)) for c in (120, 90, 89))
    assert "dram__bytes_op_read.sum" in newest
    assert "dram__bytes_read.sum" not in newest
    assert "lrc__xbar2lrc_requests.sum" in hopper
    assert not {n for n in newest | ada if n.startswith("lrc__") or "ltcfabric" in n}
    assert not {n for n in metrics.metrics(70) if "ldgsts" in n}
    read = {"dram__bytes_op_read.sum": 64.0, "dram__bytes_op_write.sum": None}
    assert metrics.dram_bytes(read) == {"read": 64.0, "written": None}
    assert metrics.dram_bytes({}) == {"read": None, "written": None}


def test_plateaus() -> None:
    curve = [(1, 11.3), (2, 10.1), (4, 9.2), (8, 9.1), (40, 8.9), (44, 6.3), (52, 4.8), (64, 4.7),
             (128, 4.7)]  # fmt: skip
    assert reached_rates.flat(curve) == [(4, 40, 9.1), (52, 128, 4.7)]
    assert reached_rates.flat([(1, 5.0), (2, 9.0)]) == []
    assert reached_rates.flat([]) == []


# --- tables --------------------------------------------------------------------------------------


def _times(median: float) -> dict[str, float]:
    return {"median": median, "p20": median, "p80": median, "runs": 20}


@pytest.mark.parametrize("width", [80, 100, 120])
def test_the_table(width: int) -> None:
    rival = {
        "provider": "naive", "cold_us": _times(1021.3), "warm_us": _times(1000), "times_ours": 7.8,
        "launches": 9, "kernels": [], "relative_norm": None, "error": None,
        "dram_bytes": {"read": 3.2e9, "written": 2.4e9},
    }  # fmt: skip
    row = {
        "case": "gelu-fp32-n67108864", "status": "measured", "reason": None,
        "cold_us": _times(130.8), "warm_us": _times(128.0), "relative_norm": 3.9e-8, "flops": 8e8,
        "tflops": 6.7, "compulsory_bytes": {"read": 268435456, "written": 268435456},
        "gb_per_s": 4104.0, "bandwidth_share": 0.855, "occupancy_percent": 100.0,
        "dram_bytes": {"read": 268440000, "written": 2.1e8}, "counted": True, "rivals": [rival],
    }  # fmt: skip
    skipped = {**row, "status": "skipped", "reason": "too large", "cold_us": None, "rivals": []}
    document = {
        "device": "NVIDIA H200", "versions": {"torch": "2.11"}, "folder": "out", "compiled": [],
        "launches": [row, {**skipped, "counted": False}],
    }  # fmt: skip
    page = Page(width)
    result_text(document, page)
    text = page.text(False)
    assert all(len(line) <= width for line in text.splitlines())
    flat = " ".join(text.split())
    assert "130.8 128.0 6.7 4104 86 % 100 % 3.9e-08" in flat
    assert (
        "naive 1021.3 1000.0 7.80 x the time, 9 launches, DRAM read 3.2 GB, written 2.4 GB" in flat
    )
    assert "DRAM read 268 MB, written 210 MB; least read 268 MB, written 268 MB" in flat
    assert "skipped: too large" in flat
    assert "2 launches: 1 measured, 1 skipped; 1 counted" in flat


def test_measured_rates_beside_the_table() -> None:
    rates = reached_rates.MeasuredRates(
        "NVIDIA H200", {"torch": "2.11"}, 4216.7, ((1 << 20, 11311.0), (1 << 30, 4667.0)),
        {"fp16_tensor_tflops": 761.7, "fp8_tensor_tflops": None},
        {"fp8_tensor_tflops": "PyTorch cannot"},
    )  # fmt: skip
    jsonschema = pytest.importorskip("jsonschema")
    part = schemas.load("device")["properties"]["measured"]
    table = {"dram_gb_per_s": 4800, "fp16_tensor_tflops": 989.0}
    reached = rates.to_dict(table)
    jsonschema.validate(reached, part)
    page = Page(100)
    measured_text(reached, table, page)
    text = page.text(False)
    assert "memory, copy                    4217       4800 GB/s  88 %" in text
    assert "fp16 tensor                      762        989 TFLOP/s  77 %" in text
    assert "fp8_tensor_tflops: PyTorch cannot" in text


def test_errors_of_loading() -> None:
    from kanalyze.measured.bench import cases

    with pytest.raises(UsageError, match="its launches are those of 'naive_matmul_kernel'"):
        cases.load(f"{ROOT}/samples/naive_matmul.py:other")
    with pytest.raises(InputError, match="expected a function 'user_kernels_kernel'"):
        cases.load(f"{ROOT}/samples/user_kernels.py:scale_rows")


def test_the_tables_of_the_document_are_those_of_the_records() -> None:
    import importlib.util

    spec = importlib.util.spec_from_file_location("tables", ROOT / "benchmarks" / "bench_tables.py")
    assert spec is not None
    assert spec.loader is not None
    tables = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tables)
    document = (ROOT / "docs" / "bench.md").read_text("utf-8")
    assert all(f"<!-- {name} -->" in document for name in tables.TABLES)
    assert tables.filled(document) == document, "python benchmarks/bench_tables.py --write"
