"""Launches side by side: bytes against closed forms and recorded launches, tables, errors, JSON."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from kanalyze import schemas
from kanalyze.analysis.versus import baselines
from kanalyze.analysis.versus.running import Asked, compare, growth, totals
from kanalyze.cli.app import cli
from kanalyze.errors import InputError, UsageError
from kanalyze.frontend.subject import Settings
from kanalyze.render.comparison_text import render
from kanalyze.results import comparison as doc

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]
ROOT = Path(__file__).parents[2]
UNFUSED = "samples/unfused/baselines.toml:layers"


@pytest.fixture(autouse=True)
def _at_root(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    monkeypatch.chdir(ROOT)


def compared(target: str, settings: dict[str, object] | None = None, **more: Any) -> doc.Comparison:
    more.setdefault("simulate", False)
    return compare(Asked(target, Settings(settings=settings or {}), **more))


def run(*words: str) -> Any:
    return CliRunner().invoke(cli, ["traffic", *words])


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize("causal", [0, 1])
def test_attention_by_its_closed_form(causal: int) -> None:
    B, H, D = 2, 3, 64
    found = compared(
        "flash_attention",
        {"B": B, "H": H, "D": D, "causal": causal},
        other="standard",
        over=("T", (128, 384, 1024)),
    )
    for point in found.points:
        T = point.value
        assert T is not None
        vectors, scores = B * H * T * D * 2, B * H * T * T * 2  # of fp16
        flash, standard = point.sides
        assert flash.totals.compulsory_bytes == 4 * vectors  # Q, K, V, O
        # Q, K and V are read, O is written; S is written and read, and so is P
        assert standard.totals.compulsory_bytes == 4 * vectors + 4 * scores
        assert [step.launches for step in standard.steps] == [1, 1, 1]


def test_the_distinct_bytes_grow_as_the_lecture_says() -> None:
    found = compared("flash_attention", {"B": 1, "H": 1}, other="standard",
                     over=("T", (1024, 8192)))  # fmt: skip
    (exponents,) = [g.exponents for g in found.growth if g.quantity == "compulsory_bytes"]
    assert exponents[0] == pytest.approx(1, abs=1e-12)
    assert 1.9 < (exponents[1] or 0) < 2


def test_gelu_in_nine_kernels_as_pytorch_runs_it() -> None:
    """The launches of the baseline are those of a recorded profile of the formula."""
    table = json.loads((ROOT / "samples/dumps/gelu_naive.kernels.json").read_text("utf-8"))
    recorded = {"unary": 0, "tanh": 0, "multiply": 0, "add": 0}
    for name, (calls, _) in table.items():
        kind = (
            "tanh" if "tanh" in name
            else "add" if "CUDAFunctor_add" in name
            else "multiply" if "::BinaryFunctor<" in name.partition(", std::array")[0]
            else "unary"
        )  # fmt: skip
        recorded[kind] += calls
    rounds = recorded["tanh"]
    steps = baselines.read(baselines.bundled_file())["naive"].steps
    by_kind = {"unary": 0, "tanh": 0, "multiply": 0, "add": 0}
    for step in steps:
        flag = step.settings.get("tanh", step.settings.get("add"))
        first, second = ("unary", "tanh") if "tanh" in step.settings else ("multiply", "add")
        by_kind[second if flag else first] += step.launches
    assert by_kind == {kind: calls / rounds for kind, calls in recorded.items()}

    n = 1 << 20
    found = compared("gelu", {"n": n}, other="naive")
    fused, naive = found.points[0].sides
    assert fused.totals.compulsory_bytes == 2 * 4 * n
    assert naive.totals.compulsory_bytes == (5 * 2 + 4 * 3) * 4 * n
    assert naive.totals.launches == 9


def test_layers_fused_and_not() -> None:
    M, N, K = 256, 512, 128
    found = compared("samples/layer_norm_linear_gelu.py", {"M": M, "N": N, "K": K}, other=UNFUSED)
    fused, layers = (side.totals.compulsory_bytes for side in found.points[0].sides)
    once = M * K + K * N + M * N + N + 2 * K  # X, W, the output, bias, gamma and beta
    assert fused == 2 * once
    assert layers == 2 * (once + 2 * M * K + 2 * M * N)  # besides, Y and Z, written and read


def test_tiles_ask_for_less_than_no_tiles() -> None:
    M = N = K = 256
    found = compared("matmul_relu", {"M": M, "N": N, "K": K}, other="samples/naive_matmul.py")
    tiled, naive = (side.totals.l1_bytes for side in found.points[0].sides)
    # Tiles of 128 x 128 read each operand twice. Without them, a warp of 32 columns reads in each
    # step one element of A (a sector) and 32 of B (two sectors).
    assert tiled == 2 * (2 * M * K + 2 * K * N + M * N)
    assert naive == (M * N // 32) * K * 3 * 32 + 2 * M * N


def test_the_same_kernel_with_another_setting() -> None:
    found = compared("matmul_relu", {"M": 512, "N": 512, "K": 128, "BLOCK_M": 64},
                     other_settings={"BLOCK_M": "128"})  # fmt: skip
    assert [side.steps[0].grid for side in found.points[0].sides] == [(32, 1, 1), (16, 1, 1)]
    assert found.sides == ("matmul_relu_kernel", "with BLOCK_M=128")


def test_another_kernel_gets_the_shape_and_its_own_settings() -> None:
    found = compared("matmul_relu", {"M": 200, "N": 300, "K": 64, "BLOCK_M": 64},
                     other="samples/naive_matmul.py", other_settings={"BLOCK_N": "64"})  # fmt: skip
    assert found.points[0].sides[1].steps[0].grid == (math.ceil(300 / 64), 200, 1)
    assert found.dtype == "fp16"


def test_estimates_are_those_of_single_launches() -> None:
    from kanalyze import compile_kernel, estimate

    found = compared("gelu", {"n": 1 << 20}, other="naive", simulate=True)
    one = estimate(compile_kernel("gelu", settings={"n": 1 << 20}))
    step = found.points[0].sides[0].steps[0]
    assert step.predicted_us == one.time.predicted_us
    assert step.dram_read_bytes == one.counters["dram_read_bytes"]
    assert step.bound_by == one.time.bound_by
    naive = found.points[0].sides[1]
    times = [(s.predicted_us or math.nan) * s.launches for s in naive.steps]
    assert naive.totals.predicted_us == pytest.approx(sum(times))
    assert any("cold caches" in text for text in found.assumptions)


# ---------------------------------------------------------------- sums and growth


def step(**more: Any) -> doc.Step:
    given: dict[str, Any] = {
        "what": "x", "kernel": "k", "launches": 1, "grid": (1, 1, 1), "compulsory_bytes": 10,
        "l1_bytes": 10, "l2_bytes": 10, "dram_read_bytes": 8, "dram_write_bytes": 2,
        "dram_read_interval": None, "flops": 1.0, "predicted_us": 2.0, "interval_us": None,
        "bound_by": "hbm", "tflops": None, "hbm_gb_per_s": None,
    }  # fmt: skip
    return doc.Step(**{**given, **more})


def test_sums_count_launches_and_keep_what_is_unknown() -> None:
    found = totals([step(launches=3), step(dram_write_bytes=None, predicted_us=0.5)])
    assert (found.launches, found.compulsory_bytes, found.predicted_us) == (4, 40, 6.5)
    assert found.dram_read_bytes == 32
    assert found.dram_write_bytes is None
    assert found.dram_bytes is None


def points(values: dict[int, float | None]) -> list[doc.Point]:
    return [
        doc.Point(value, (doc.Side((), totals([step(predicted_us=time)])),))
        for value, time in values.items()
    ]


def test_growth_is_that_of_the_last_doubling() -> None:
    sizes = [3, 10, 20, 30, 40]
    found = growth(points({x: 7.0 * x**1.5 for x in sizes}))
    (time,) = [g for g in found if g.quantity == "predicted_us"]
    assert (time.from_value, time.to_value) == (20, 40)
    slope = np.polyfit(np.log(sizes), np.log([7.0 * x**1.5 for x in sizes]), 1)[0]
    assert time.exponents == (pytest.approx(slope),)


def test_growth_of_what_is_unknown_or_does_not_vary() -> None:
    assert growth(points({5: 1.0})) == ()
    (time,) = [g for g in growth(points({5: 1.0, 6: None})) if g.quantity == "predicted_us"]
    assert time.exponents == (None,)


# ---------------------------------------------------------------- tables


GOOD = '[a]\nsummary = "s"\n[[a.step]]\ntarget = "gelu"\nset = { n = "M*N*2" }\n'


def test_a_table_of_the_users(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(GOOD)
    found = baselines.find(str(file))
    assert found is not None
    assert found == baselines.find(f"{file}:a")
    assert found.steps[0].values({"M": 3, "N": 5}, "a") == {"n": 30}
    with pytest.raises(UsageError, match="needs N"):
        found.steps[0].values({"M": 3}, "a")
    with pytest.raises(UsageError, match="no baseline 'b'"):
        baselines.find(f"{file}:b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[a\n", r"own.toml:1:3: not valid TOML"),
        ("a = 1\n", r"\[a\]: expected a table"),
        ("[a]\n", r"expected \[\[a.step\]\]"),
        (GOOD + "more = 1\n", "unknown key 'more'"),
        (GOOD.replace("target", "targt"), "unknown key 'targt'; did you mean target"),
        (GOOD.replace('"gelu"', "3"), "target: expected a text"),
        (GOOD.replace('"M*N*2"', '"M+N"'), "set.n: expected an integer, or a product"),
        (GOOD.replace('"M*N*2"', "true"), "set.n: expected an integer, or a product"),
        (GOOD + "launches = 0\n", "launches: expected an integer from 1"),
        ("[[a.step]]\nset = {}\n", "target: expected a text"),
    ],
)
def test_a_malformed_table(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text)
    with pytest.raises(InputError) as caught:
        baselines.find(str(file))
    assert caught.match(message)
    result = run("gelu", "--versus", str(file))
    assert (result.exit_code, result.stdout) == (3, "")


def test_every_baseline_of_the_tables_runs() -> None:
    shapes = {"B": 1, "H": 1, "T": 128, "D": 64, "causal": 0, "n": 4096, "M": 64, "N": 64, "K": 64}
    for table in (baselines.bundled_file(), ROOT / "samples/unfused/baselines.toml"):
        for name, baseline in baselines.read(table).items():
            assert baseline.summary
            for one in baseline.steps:
                found = compared(one.target, dict(one.values(shapes, name)))
                assert found.points[0].sides[0].totals.compulsory_bytes, name


# ---------------------------------------------------------------- the command


def test_json_follows_its_schema_and_comes_back() -> None:
    result = run("gelu", "--versus", "naive", "--over", "n=4096,65536", "--format", "json")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    jsonschema.validate(data, schemas.load("comparison"))
    found = doc.Comparison.from_dict(data)
    assert found.to_dict() == data
    assert [point.value for point in found.points] == [4096, 65536]
    text = render(found, width=100)
    assert "naive: gelu as its formula is written" in text
    assert max(map(len, text.splitlines())) <= 100


def test_without_simulation_nothing_is_estimated() -> None:
    result = run("gelu", "--versus", "naive", "--exact")
    assert result.exit_code == 0
    assert "HBM read" not in result.stdout
    assert "distinct bytes" in result.stdout
    for more in ((), ("--versus", "naive")):
        result = run("gelu", *more, "--exact", "--over", "n=4096,65536")
        assert result.exit_code == 0
        assert "?" not in result.stdout
        assert "HBM" not in result.stdout
        assert "1.00" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gelu", "--versus", "standard"], "needs B, and the shape"),
        (["gelu", "--versus", "softmx"], "did you mean softmax"),
        (["gelu", "--versus", "missing.toml:a"], "missing.toml: No such file"),
        (["gelu", "--versus", ""], "the name is empty"),
        (["gelu", "--versus", "naive", "--versus-set", "n=3"], "it takes no settings"),
        (["gelu", "--versus-set", "n"], "not NAME=VALUE"),
        (["gelu", "--over", "n"], "not NAME=V1,V2"),
        (["gelu", "--over", "n=1,x"], "not NAME=V1,V2"),
        (["gelu", "--over", "n=" + "9" * 30], "18 digits"),
        (["gelu", "--over", "k=3"], "unknown name 'k'"),
        (["gelu", "--over", "BLOCK_SIZE=3"], "expected a power of two"),
        (["gelu", "--over", "n=64", "--every"], "are for one launch"),
        (
            [str(ROOT / "samples/cuda/reduce.ptx"), "--over", "n=64"],
            "is PTX, expected a Triton kernel",
        ),
        (["--over", "n=64"], "give a TARGET"),
    ],
)
def test_wrong_requests(words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == (3 if "missing.toml:a" in words else 2), result.output
    assert message in result.stderr
    assert result.stdout == ""


def test_what_can_be_compiled_is_delivered() -> None:
    result = run("matmul_relu", "--exact", "--over", "BLOCK_N=128,512", "--format", "json")
    assert result.exit_code == 3
    assert "out of resource" in result.stderr
    data = json.loads(result.stdout)
    assert [point["value"] for point in data["points"]] == [128]
    reasons = [entry["reason"] for entry in data["unknown"]]
    assert any("BLOCK_N=512: out of resource" in reason for reason in reasons)
    other = run("matmul_relu", "--exact", "--versus-set", "BLOCK_N=512", "--format", "json")
    assert other.exit_code == 3
    sides = json.loads(other.stdout)["points"][0]["sides"]
    assert sides[0]["totals"]["compulsory_bytes"] > 0
    assert sides[1]["totals"]["compulsory_bytes"] is None
    assert "out of resource" in other.stdout
