"""`kanalyze check`: estimates beside measurements, against sums made by hand and by numpy."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from kanalyze import schemas
from kanalyze.analysis.launch import estimate
from kanalyze.cli.app import cli
from kanalyze.errors import UsageError
from kanalyze.measured.check import comparison, runner, summary
from kanalyze.measured.records.metrics import BY_COUNTER, METRICS
from kanalyze.measured.records.reader import Record, read_records
from kanalyze.render import check_plot, check_text
from kanalyze.results import check as document
from kanalyze.results.traffic import TimePart, Traffic
from kanalyze.text.plain import dumps

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]

ROOT = Path(__file__).parents[3]
OURS = ROOT / "samples" / "h200_records"
MORE = ROOT.parent / "shared" / "measured" / "h200"
WITH_DATA = ROOT / "samples" / "records" / "with_data_h200.json.gz"
UNFITTED = ROOT / "samples" / "records" / "unfitted_h200.json.gz"
EXACT = ("--counter", "exact", "--counter", "bound")
"""Without estimates, which simulate caches."""


def run(*arguments: str | Path, **options: Any) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, arguments)], **options)


def checked(*arguments: str | Path, code: int = 0) -> dict[str, Any]:
    result = run(*arguments, "--format", "json")
    assert result.exit_code == code, result.stderr
    data: dict[str, Any] = json.loads(result.stdout)
    return data


# ---------------------------------------------------------------- the table of counters


def test_every_counter_is_one_of_the_estimate_and_of_the_records() -> None:
    (record, *_), _ = read_records(str(OURS))
    traffic = estimate(record.module, record.launch, cubin=record.cubin, findings=False)
    for metric in METRICS:
        part, _, attribute = metric.counter.partition(".")
        if attribute:
            assert hasattr(getattr(traffic, part), attribute)
        else:
            assert part in traffic.counters
        assert metric.metrics[0] in record.counters
    without = {name for name in traffic.counters if name.startswith("bulk_")}  # TMA has no counter
    assert set(traffic.counters) - without <= set(BY_COUNTER)


# ---------------------------------------------------------------- real records


def test_our_records_equal_what_the_files_hold() -> None:
    """Estimates are those of `estimate`, measurements those of the files."""
    data = checked(OURS)
    assert data["records"] == len(data["launches"]) == 4
    for launch in data["launches"]:
        counters = json.loads(Path(launch["file"]).read_text("utf-8"))["counters"]
        (record,), _ = read_records(launch["file"])
        traffic = estimate(
            record.module, record.launch, cubin=record.cubin, findings=False
        ).to_dict()
        for c in launch["comparisons"]:
            part, _, attribute = c["counter"].partition(".")
            own = traffic[part][attribute] if attribute else traffic["counters"][part]
            assert c["estimate"] == own
            factor = 1e-3 if c["metric"] == "gpu__time_duration.sum" else 1
            assert c["measured"] == pytest.approx(factor * counters[c["metric"]])


@pytest.mark.parametrize("where", [OURS, UNFITTED, MORE], ids=["ours", "unfitted", "more"])
def test_exact_counters_are_equal_or_unknown_on_real_records(where: Path) -> None:
    if not where.exists():
        pytest.skip("the other recorded launches are not here")
    data = checked(where, *EXACT, "-j", "2", "--max-error", "exact=0")
    assert data["skipped"] == []
    assert all(bound["held"] for bound in data["bounds"])
    results = {c["result"] for launch in data["launches"] for c in launch["comparisons"]}
    assert results <= {"equal", "holds", "unknown", "not measured"}


def test_arrays_that_a_record_tells_are_what_the_kernels_load() -> None:
    """Gathers: unknown without the arrays, equal with them, but where the index goes through shared
    memory first."""
    data = checked(WITH_DATA, "--counter", "exact")
    results = {
        launch["case"]: {c["counter"]: c["result"] for c in launch["comparisons"]}
        for launch in data["launches"]
    }
    for case in ("elements_1000", "rows_300", "chained", "segments", "chosen"):
        assert results[case]["global_load_sectors"] == "equal"
        assert results[case]["instructions_executed"] == "equal"
    assert results["bins"]["global_reduction_sectors"] == "unknown"
    assert "differs" not in {r for own in results.values() for r in own.values()}


def test_a_wrong_estimate_would_be_noticed(tmp_path: Path) -> None:
    for path in OURS.glob("gelu_unaligned.*"):
        shutil.copy(path, tmp_path)
    file = tmp_path / "gelu_unaligned.json"
    data = json.loads(file.read_text("utf-8"))
    name = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    data["counters"][name] += 1
    data["counters"]["l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum"] = 0
    file.write_text(json.dumps(data), "utf-8")
    result = run(file, *EXACT)
    assert result.exit_code == 0
    assert "global_load_sectors: " in result.stdout.partition("differences\n")[2]
    result = run(file, *EXACT, "--max-error", "exact=0")
    assert result.exit_code == 1
    assert "PASSED" in result.stdout
    (launch,) = checked(file, *EXACT)["launches"]
    (wrong,) = (c for c in launch["comparisons"] if c["result"] == "differs")
    assert (wrong["counter"], wrong["difference"]) == ("global_load_sectors", -1)


# ---------------------------------------------------------------- estimates: a model by hand


@pytest.fixture
def modelled(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Give every launch estimates that are off by known percents: bytes read, time."""

    def give(*percents: float, reach: float = 2.0) -> None:
        real, counter = comparison.estimate, itertools.cycle(percents)

        def fake(*arguments: Any, **options: Any) -> Traffic:
            traffic = real(*arguments, **{**options, "simulate": False})
            record = next(r for r in records if r.module is arguments[0])
            read = record.counters["dram__bytes_read.sum"]
            duration = record.counters["gpu__time_duration.sum"]
            assert read is not None
            assert duration is not None
            value = read * (1 + next(counter) / 100)
            counters = {**traffic.counters, "dram_read_bytes": value, "dram_write_bytes": None}
            return replace(
                traffic,
                counters=counters,
                interval={"dram_read_bytes": (value / reach, value * reach)},
                time=TimePart({}, duration / 2000, "hbm"),
            )

        records: list[Record] = []
        reading = runner.read_records

        def noted(path: str, *more: Any) -> Any:
            found = reading(path, *more)
            records.extend(found[0])
            return found

        monkeypatch.setattr(comparison, "estimate", fake)
        monkeypatch.setattr(runner, "read_records", noted)

    return give


def test_errors_are_those_of_numpy(modelled: Callable[..., None]) -> None:
    percents = [0.5, -4.0, 9.0, 300.0]
    modelled(*percents)
    check = runner.check([str(OURS)])
    (found,) = (s for s in check.by_counter if s.counter == "dram_read_bytes")
    sizes = np.abs(percents)
    assert found.median_percent == pytest.approx(np.median(sizes))
    assert found.mean_percent == pytest.approx(sizes.mean())
    assert found.p90_percent == pytest.approx(np.percentile(sizes, 90))
    assert found.worst_percent == pytest.approx(300)
    assert found.worst_case == check.launches[3].case
    assert (found.within_1, found.within_5, found.within_10) == (0.25, 0.5, 0.75)
    assert (found.with_interval, found.in_interval) == (4, 3)
    assert (found.compared, found.unknown, found.good) == (4, 0, None)
    signed = [
        c.error_percent
        for launch in check.launches
        for c in launch.comparisons
        if c.counter == "dram_read_bytes"
    ]
    assert signed == pytest.approx(percents)
    (duration,) = (s for s in check.by_counter if s.counter == "time.predicted_us")
    assert duration.median_percent == pytest.approx(50)
    (write,) = (s for s in check.by_counter if s.counter == "dram_write_bytes")
    assert (write.compared, write.unknown, write.worst_percent) == (0, 4, None)
    for kernel in {launch.kernel for launch in check.launches}:
        own = [abs(p) for p, x in zip(percents, check.launches, strict=True) if x.kernel == kernel]
        (of_kernel,) = (
            s for s in check.by_kernel if (s.kernel, s.counter) == (kernel, "dram_read_bytes")
        )
        assert of_kernel.median_percent == pytest.approx(np.median(own))
        assert of_kernel.compared == len(own)
    text = check_text.render(check)
    assert "median and worst error in %, by kernel" in text
    assert "(+300 %)" in text


@pytest.mark.parametrize(
    ("bound", "held"),
    [
        ("299", False),
        ("dram_read_bytes=300.001", True),
        ("dram_read_bytes=299", False),
        ("dram_read_bytes.median=7", True),
        ("dram_read_bytes.median=6", False),
        ("dram_read_bytes.mean=78.4%", True),
        ("dram_read_bytes.mean=78.3", False),
        ("dram_read_bytes.p90=212", False),
        ("dram_write_bytes=0", True),
        ("global_load_sectors=0", True),
    ],
)
def test_bounds(modelled: Callable[..., None], bound: str, held: bool) -> None:
    modelled(0.5, -4.0, 9.0, 300.0)
    check = runner.check([str(OURS)], bounds=[summary.parse_bound(bound)])
    assert all(b.held for b in check.bounds) == held
    assert check.bounds


@pytest.mark.parametrize("text", ["", "x", "-1", "nan", "inf", "nothing=1", "=1", "x.median=1"])
def test_bounds_that_are_none(text: str) -> None:
    with pytest.raises(UsageError):
        summary.parse_bound(text)
    result = run(OURS, "--max-error", text)
    assert result.exit_code == 2


def test_zero_measured_has_no_relative_error() -> None:
    assert comparison.relative_error(0, 0) == 0
    assert comparison.relative_error(5, 0) is None
    assert comparison.relative_error(5, 4) == 25
    assert comparison.relative_error(3, 4) == -25
    metric = BY_COUNTER["dram_write_bytes"]
    rows = [
        document.CheckedLaunch(
            str(i), "k", "f", None, None, None, None,
            (document.ComparedCounter(
                metric.counter, "m", "estimate", "B", e, m, e - m, comparison.relative_error(e, m),
                None, None, "compared", None),),
        )
        for i, (e, m) in enumerate([(32.0, 0.0), (0.0, 0.0), (64.0, 64.0)])
    ]  # fmt: skip
    (found,) = summary.by_counter(rows)
    assert (found.off_zero, found.compared, found.worst_percent) == (1, 3, 0)
    assert found.within_10 == pytest.approx(2 / 3)
    (bound,) = summary.bounds([("dram_write_bytes", "worst", 50.0)], [found])
    assert not bound.held


def test_what_is_not_estimated_is_no_error() -> None:
    """Never an error of 100 %: unknown with its reason, whatever the model gives by now."""
    data = checked(OURS)
    for launch in data["launches"]:
        for c in launch["comparisons"]:
            if c["estimate"] is None:
                assert c["result"] in ("unknown", "not measured")
                assert c["error_percent"] is None
                assert c["reason"]
    fields = {u["field"] for u in data["unknown"]}
    assert all(u["reason"] for u in data["unknown"])
    for i, launch in enumerate(data["launches"]):
        for j, c in enumerate(launch["comparisons"]):
            assert (f"launches[{i}].comparisons[{j}].estimate" in fields) == (
                c["result"] == "unknown"
            )


# ---------------------------------------------------------------- faults


def test_each_fault_is_a_line_and_the_rest_is_checked(tmp_path: Path) -> None:
    shutil.copytree(OURS, tmp_path, dirs_exist_ok=True)
    for name in ("cut", "lacking", "other", "negative"):
        for suffix in ("json", "ptx", "cubin"):
            shutil.copy(OURS / f"gelu_unaligned.{suffix}", tmp_path / f"{name}.{suffix}")
    text = (tmp_path / "cut.ptx").read_text("utf-8")
    (tmp_path / "cut.ptx").write_text(text[: len(text) // 2], "utf-8")
    for name, action in {
        "lacking": lambda d: d["counters"].pop("dram__bytes_read.sum"),
        "other": lambda d: d.update(device="NVIDIA A100-SXM4-40GB"),
        "negative": lambda d: d["counters"].update({"gpu__time_duration.sum": -5}),
    }.items():
        path = tmp_path / f"{name}.json"
        data = json.loads(path.read_text("utf-8"))
        action(data)
        data["case"] = name
        path.write_text(json.dumps(data), "utf-8")
    result = run(tmp_path, "--format", "json")
    assert result.exit_code == 3
    errors = result.stderr.splitlines()
    assert len(errors) == 4
    for name in ("cut.ptx", "lacking.json", "other.json", "negative.json"):
        assert sum(name in line for line in errors) == 1
    data = json.loads(result.stdout)
    assert len(data["skipped"]) == 4
    cases = {launch["case"]: launch["comparisons"] for launch in data["launches"]}
    assert len(cases) == 6
    (lacking,) = (c for c in cases["lacking"] if c["counter"] == "dram_read_bytes")
    assert lacking["result"] == "not measured"
    (negative,) = (c for c in cases["negative"] if c["counter"] == "time.predicted_us")
    assert negative["result"] == "not measured"
    assert sum(c["result"] == "equal" for c in cases["negative"]) >= 10
    assert run(tmp_path, *EXACT, "--max-error", "exact=0").exit_code == 3


def test_an_estimate_that_fails_costs_one_record(monkeypatch: pytest.MonkeyPatch) -> None:
    real = comparison.estimate
    calls = iter(range(10))

    def failing(*arguments: Any, **options: Any) -> Traffic:
        if next(calls) == 1:
            raise ZeroDivisionError("a fault")
        return real(*arguments, **options)

    monkeypatch.setattr(comparison, "estimate", failing)
    result = run(OURS, *EXACT, "--format", "json")
    assert result.exit_code == 3
    assert "internal error (please report it): ZeroDivisionError: a fault" in result.stderr
    launches = json.loads(result.stdout)["launches"]
    assert [all(c["estimate"] is None for c in x["comparisons"]) for x in launches] == [
        False, True, False, False,
    ]  # fmt: skip


def test_without_a_cubin_what_the_machine_code_decides_is_unknown(tmp_path: Path) -> None:
    for suffix in ("json", "ptx"):
        shutil.copy(OURS / f"softmax_8192x781.{suffix}", tmp_path)
    (launch,) = checked(tmp_path, *EXACT)["launches"]
    results = {c["counter"]: c for c in launch["comparisons"]}
    for counter in ("instructions_executed", "shared_load_wavefronts"):
        assert results[counter]["result"] == "unknown"
        assert "no cubin" in results[counter]["reason"]
    assert results["global_load_sectors"]["result"] == "equal"


def test_on_an_unknown_gpu_what_does_not_depend_on_it_is_checked(tmp_path: Path) -> None:
    for path in OURS.glob("softmax_8192x781.*"):
        shutil.copy(path, tmp_path)
    file = tmp_path / "softmax_8192x781.json"
    data = json.loads(file.read_text("utf-8"))
    data["device"] = "NVIDIA X1"
    file.write_text(json.dumps(data), "utf-8")
    (launch,) = checked(tmp_path, code=3)["launches"]
    assert launch["device"] == "NVIDIA X1"
    for c in launch["comparisons"]:
        if BY_COUNTER[c["counter"]].of_device:
            assert (c["result"], c["reason"]) == ("unknown", comparison.NO_DEVICE)
        else:
            assert c["result"] in ("equal", "holds")


# ---------------------------------------------------------------- command line


def test_json_follows_its_schema() -> None:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schemas.load("check"))
    for arguments, code in (([OURS, "--max-error", "5"], 1), ([OURS, "missing", *EXACT], 3)):
        data = checked(*arguments, code=code)
        assert [e.message for e in validator.iter_errors(data)] == []
    assert list(validator.iter_errors({**data, "more": 1}))


def test_numbers_that_are_not_pythons_own_become_json() -> None:
    """NumPy's numbers and truths, and numbers that are not finite, from estimate or record."""
    comparison = document.ComparedCounter(
        "flops", "m", "exact", "flop", np.int64(3), np.float32(1.5), np.float64("nan"),
        float("inf"), (np.int64(1), np.int64(4)), np.bool_(True), "equal", None,
    )  # fmt: skip
    launch = document.CheckedLaunch("a", "k", "f", None, None, None, None, (comparison,))
    check = document.Check(("f",), 1, (launch,), (), (), (), ())
    data = json.loads(dumps(check.to_dict()))
    (got,) = data["launches"][0]["comparisons"]
    assert (got["estimate"], got["measured"], got["in_interval"]) == (3, 1.5, True)
    assert got["interval"] == [1, 4]
    assert got["difference"] is got["error_percent"] is None
    reasons = {u["field"]: u["reason"] for u in data["unknown"]}
    assert reasons["launches[0].comparisons[0].difference"] == "not a finite number: nan"
    assert reasons["launches[0].comparisons[0].error_percent"] == "not a finite number: inf"
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(data, schemas.load("check"))


def test_csv_is_the_same_as_json() -> None:
    data = checked(OURS)
    result = run(OURS, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    flat = [(launch, c) for launch in data["launches"] for c in launch["comparisons"]]
    assert len(rows) == len(flat)
    for row, (launch, c) in zip(rows, flat, strict=True):
        assert row["case"] == launch["case"]
        for key in ("counter", "metric", "kind", "result"):
            assert row[key] == c[key]
        for key in ("estimate", "measured", "difference", "error_percent"):
            assert row[key] == ("" if c[key] is None else str(c[key]))


def test_choices(tmp_path: Path) -> None:
    data = checked(OURS, "--counter", "dram_read_bytes", "--counter", "bound")
    assert [s["counter"] for s in data["by_counter"]] == [
        "shared_load_wavefronts", "shared_store_wavefronts", "dram_read_bytes",
    ]  # fmt: skip
    shutil.copytree(OURS, tmp_path, dirs_exist_ok=True)
    for index, path in enumerate(sorted(tmp_path.glob("*.json"))):
        record = json.loads(path.read_text("utf-8"))
        record["purpose"] = ("fit", "report", "report", None)[index]
        path.write_text(json.dumps(record), "utf-8")
    assert len(checked(tmp_path, "--purpose", "fit", *EXACT)["launches"]) == 1
    assert len(checked(tmp_path, "--purpose", "report", *EXACT)["launches"]) == 2
    assert len(checked(tmp_path, *EXACT)["launches"]) == 4
    result = run(OURS, "--purpose", "fit")
    assert result.exit_code == 0
    assert "no record has the purpose 'fit'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "give a RECORD"),
        ([OURS, "--counter", "dram_read_byte"], 2, "did you mean dram_read_bytes"),
        ([OURS, "--plot", "x.pdf"], 2, "ends in .svg or .png"),
        (["missing"], 3, "missing: No such file"),
        (["-", "-"], 2, "only once"),
        ([ROOT / "kanalyze"], 3, "there is no record"),
    ],
)
def test_wrong_requests(arguments: list[str | Path], code: int, message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == code
    assert message in result.stderr
    assert result.stdout == ""


def test_a_missing_path_does_not_cost_the_others() -> None:
    result = run("missing", OURS, *EXACT)
    assert result.exit_code == 3
    assert "4 launches" in result.stdout


def test_standard_input() -> None:
    result = run("-", *EXACT, input=UNFITTED.read_bytes())
    assert result.exit_code == 0
    assert result.stdout.startswith("30 launches of 20 kernels")


def test_several_processes_give_the_same() -> None:
    assert run(OURS, "-j", "3", "--format", "json").stdout == run(OURS, "--format", "json").stdout


def test_details_and_names_that_steer_a_terminal(tmp_path: Path) -> None:
    for path in OURS.glob("gelu_unaligned.*"):
        shutil.copy(path, tmp_path)
    file = tmp_path / "gelu_unaligned.json"
    data = json.loads(file.read_text("utf-8"))
    data["case"] = data["kernel"] = "\x1b[31mred"
    file.write_text(json.dumps(data), "utf-8")
    for format_ in ("text", "json", "csv"):
        result = run(file, *EXACT, "--details", "--format", format_)
        assert result.exit_code == 0
        assert "\x1b" not in result.stdout
    text = run(file, *EXACT, "--details").stdout
    assert "global_load_sectors" in text.partition("counter  ")[2]


def test_text_fits() -> None:
    check = runner.check([str(OURS)])
    for width in (40, 60, 100, 200):
        text = check_text.render(check, width=width, details=True)
        assert max(map(len, text.splitlines())) <= width
        kernels = text.partition("\nkernel ")[2].partition("median and worst")[0]
        for s in check.by_counter:  # in one table or in several beneath each other
            if s.kind == "estimate" and s.compared:
                assert kernels.count(s.counter) == 1
    result = run(OURS, *EXACT, "--details", "--width", "40")
    assert max(map(len, result.stdout.splitlines())) <= 40


def test_interrupted_prints_what_is_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    real, calls = comparison.estimate, iter(range(10))

    def stopping(*arguments: Any, **options: Any) -> Traffic:
        if next(calls) == 2:
            raise KeyboardInterrupt
        return real(*arguments, **options)

    monkeypatch.setattr(comparison, "estimate", stopping)
    result = run(OURS, *EXACT)
    assert result.exit_code == 130
    assert "2 launches" in result.stdout
    assert "interrupted: 2 of 4 launches were checked" in result.stderr


def test_ctrl_c_of_a_process_with_several_workers(shared_cache: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.py"
    slow.write_text(
        "import time\n"
        "from kanalyze.measured.check import comparison\n"
        "real = comparison.estimate\n"
        "def fake(module, launch, **options):\n"
        "    found = real(module, launch, **options)\n"
        "    if launch.kernel == 'softmax':\n"
        "        open('started', 'w').close()\n"
        "        time.sleep(3)\n"
        "    return found\n"
        "comparison.estimate = fake\n"
        "from kanalyze.cli import main\n"
        f"main(['check', {str(OURS)!r}, {str(OURS)!r}, '-j', '2'])\n"
    )
    child = subprocess.Popen(
        [sys.executable, str(slow)], cwd=tmp_path, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    while not (tmp_path / "started").exists() and child.poll() is None:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 130, err
    assert "of 8 launches were checked" in err
    assert "launches of" in out
    assert "Traceback" not in err


# ---------------------------------------------------------------- plots


def test_points_are_those_compared(modelled: Callable[..., None]) -> None:
    modelled(0.5, -4.0, 9.0, 300.0)
    check = runner.check([str(OURS)])
    found = check_plot.points(check)
    assert len(found["dram_read_bytes"]) == 4
    assert "dram_write_bytes" not in found
    assert all(m > 0 and e > 0 for some in found.values() for _, m, e in some)
    kernel, measured, value = found["dram_read_bytes"][3]
    assert kernel == check.launches[3].kernel
    assert value == pytest.approx(4 * measured)


def test_plots_are_images(modelled: Callable[..., None], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    modelled(0.5, -4.0, 9.0, 300.0)
    few = summary.metrics_named(["dram_read_bytes", "global_load_sectors"])
    check = runner.check([str(OURS)], metrics=few)
    for name, magic in (("a.svg", b"<?xml"), ("a.png", b"\x89PNG")):
        check_plot.plot(check, str(tmp_path / name))
        first = (tmp_path / name).read_bytes()
        assert first.startswith(magic)
        check_plot.plot(check, str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == first


def test_plots_of_the_command(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one = OURS / "softmax_8192x781.json"
    assert run(one, "--plot", tmp_path / "b.SVG").exit_code == 0
    assert "global_load_sectors" in (tmp_path / "b.SVG").read_text("utf-8")
    assert run(one, "--plot", tmp_path / "no" / "b.svg").exit_code == 3


def test_matplotlib_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run(OURS, "--plot", "a.svg")
    assert result.exit_code == 4
    assert "pip install 'kanalyze[plot]'" in result.stderr
