"""Calibration: the cyclic read by the interpreter and by brute force, rates from recorded times."""

from __future__ import annotations

import io
import json
import re
import tarfile
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from click.testing import CliRunner

from kanalyze import compile_kernel, estimate, schemas
from kanalyze.cli.app import cli
from kanalyze.devices.table import device
from kanalyze.errors import InputError
from kanalyze.measured.bench import calibration_solver, calibration_times
from kanalyze.measured.bench.calibration_solver import (
    CalibrationTimes,
    capacity,
    launches,
    rate_of,
    solve,
)
from kanalyze.performance.cache_sim import calibration
from kanalyze.performance.cache_sim.parameters import CacheParameter, machine, names
from tests.oracle.interpreter import run as interpret

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]
ROOT = Path(__file__).parents[3]
CYCLIC = (ROOT / "kanalyze/measured/bench/cyclic.ptx").read_text("utf-8")
MIB = 1 << 20
GOOD = (
    '[device."NVIDIA H200"]\n'
    'hbm_rate = { value = 3000.0, origin = "measured", note = "2026-01-01" }\n'
)


def run(*words: object, **more: Any) -> Any:
    return CliRunner().invoke(cli, [str(word) for word in words], **more)


# ---------------------------------------------------------------- the kernels


@pytest.mark.parametrize(("pieces", "steps"), [(4, 9), (3, 3), (1, 2)])
def test_each_block_reads_the_buffer_round_and_round(pieces: int, steps: int) -> None:
    blocks = 2
    data = np.zeros(pieces * calibration_times.PIECE // 4, dtype=np.uint32)
    sink = np.ones(1, np.uint32)
    params = [(1 << 40, data), sink, pieces, steps]
    where = [(block, 0, 0) for block in range(blocks)]
    trace = interpret(CYCLIC, "cyclic", (blocks,), (calibration_times.THREADS,), params, where)
    read = [access for access in trace.accesses if access.opcode.startswith("ld.global")]
    assert len(read) == blocks * steps
    for number, access in enumerate(read):
        piece = number % steps % pieces
        first = (1 << 40) + piece * calibration_times.PIECE
        assert access.addresses.tolist() == list(range(first, first + calibration_times.PIECE, 16))
    assert sink[0] == 1  # nothing is written


@pytest.mark.parametrize(("lines", "waiting"), [(150, 0), (200, 0), (201, 1), (300, 1)])
def test_every_step_waits_as_soon_as_a_side_does_not_hold_the_buffer(
    lines: int, waiting: int
) -> None:
    """Two least-recently-used caches of 200 lines, each of a half of the readers, which drift."""
    capacity_, readers = 200, 20
    sides: list[OrderedDict[int, None]] = [OrderedDict(), OrderedDict()]
    waited = set()
    for step in range(4 * lines):
        for reader in range(readers):
            place = max(0, step - reader // 7)
            side, line = sides[reader // 5 % 2], place % lines
            if line not in side:
                if place >= 2 * lines:
                    waited.add(place)
                side[line] = None
                if len(side) > capacity_:
                    side.popitem(last=False)
            side.move_to_end(line)
    assert len(waited) / (2 * lines) == pytest.approx(waiting, abs=0.02)


def test_the_kernels_compile() -> None:
    pytest.importorskip("triton")
    from kanalyze.toolchain import ptxas

    text = CYCLIC.replace("sm_70", "sm_90").replace(".version 7.0", ".version 7.8")
    assert ptxas.assemble(text).resources["cyclic"].registers <= 64
    for launch in launches():
        assert compile_kernel(
            launch.target, dtype=launch.dtype, settings=dict(launch.settings)
        ).grid


def test_sizes_lie_on_both_sides_of_the_capacity() -> None:
    for megabytes in (4, 30, 50, 126):
        found = calibration_times.sizes(megabytes * MIB)
        assert found[0] <= megabytes * MIB / 2.5
        assert found[-1] >= 1.7 * megabytes * MIB
        assert all(size % calibration_times.PIECE == 0 for size in found)
        assert list(found) == sorted(set(found))
        assert all(
            calibration_times.steps(size) * calibration_times.PIECE == 3 * size for size in found
        )


# ---------------------------------------------------------------- solving


def knee(size: float, low: float, high: float) -> list[tuple[int, float]]:
    """A curve whose reads begin to miss at 0.95 of a size, and all miss at 1.05 of it."""
    curve = []
    for part in range(4, 33):
        asked = part * 2 * MIB
        missing = min(1.0, max(0.0, (asked / size - 0.95) / 0.1))
        curve.append((asked, 1 / ((1 - missing) / high + missing / low)))
    return curve


@pytest.mark.parametrize("mebibytes", [26, 30, 35])
def test_the_capacity_is_found(mebibytes: int) -> None:
    found = capacity(knee(mebibytes * MIB, 2600, 6000), 32 * MIB)
    assert isinstance(found, int)
    assert found == pytest.approx(mebibytes * MIB, rel=0.03)


def test_no_capacity_is_made_up() -> None:
    assert "no size" in str(capacity(knee(500 * MIB, 2600, 6000), 32 * MIB))
    assert "no size" in str(capacity(knee(30 * MIB, 5900, 6000), 32 * MIB))
    assert "both sides" in str(capacity(knee(30 * MIB, 2600, 6000)[:3], 32 * MIB))


def recorded(case: str) -> float:
    """Microseconds of a recorded launch on an H200, with a cold L2."""
    data = (ROOT / "samples/h200/records.tar.xz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            if member.name.endswith(f"{case}.json"):
                file = archive.extractfile(member)
                assert file is not None
                return 1e3 * float(json.load(file)["time_ms"]["median"])
    raise AssertionError(case)


def test_a_rate_from_a_recorded_time() -> None:
    pytest.importorskip("triton")
    gpu, n = device("H200"), 1 << 26
    time = recorded("gelu-fp32-n67108864")
    made = compile_kernel("gelu", settings={"n": n})
    name, rate = rate_of(time, gpu, made, {})
    assert name == "hbm_rate"
    assert isinstance(rate, float)
    assert gpu.dram_gb_per_s is not None
    # What reaches HBM is between half a residue of L2 less and all 512 MiB.
    assert (2 * 4 * n - gpu.l2_bytes) / time / 1e3 < rate < gpu.dram_gb_per_s  # type: ignore[operator]
    own = {gpu.name: {"hbm_rate": CacheParameter(rate, "measured")}}
    assert estimate(made, calibration=own, findings=False).time.predicted_us == pytest.approx(
        time, rel=0.005
    )


def test_rates_are_recovered_from_the_models_own_times() -> None:
    pytest.importorskip("triton")
    gpu = device("H200")
    truth = {"hbm_rate": CacheParameter(3300.0, "measured")}
    one = launches()[0]
    made = compile_kernel(one.target, dtype=one.dtype, settings=dict(one.settings))
    time = estimate(
        made, device="H200", calibration={gpu.name: truth}, findings=False
    ).time.predicted_us
    assert time is not None
    measured = CalibrationTimes(gpu.name, "2026-01-01", {"driver": "1.2"},
                        tuple(knee(30 * MIB, 2600, 6000)), {one.name: time})  # fmt: skip
    solved = solve(measured, gpu, {one.name: made})
    assert solved.parameters["hbm_rate"].value == pytest.approx(3300, rel=0.01)
    assert "2026-01-01, NVIDIA H200, driver 1.2" in solved.parameters["hbm_rate"].note
    assert solved.parameters["l2_bytes_per_side"].origin == "measured"
    assert set(solved.reasons) == {"product", "product, wide tiles"}
    assert "was not measured" in solved.reasons["product"]


def test_a_launch_that_depends_on_no_rate() -> None:
    pytest.importorskip("triton")
    tiny = compile_kernel("gelu", settings={"n": 4096})
    assert "hardly depends" in str(rate_of(3.5, device("H200"), tiny, {}))
    made = compile_kernel("gelu", settings={"n": 1 << 24})
    assert "no fabric_rate makes" in str(rate_of(1e-3, device("H200"), made, {}))


# ---------------------------------------------------------------- the file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    parameters = {
        "hbm_rate": CacheParameter(4321.5, "measured", 'a "note" \\ of 2026'),
        "gpcs": CacheParameter([16, 18], "measured"),
        "ways": CacheParameter(16, "rule"),
    }
    text = calibration.write("NVIDIA H200", parameters, {"calibrated": {"date": "2026-01-01"}})
    file = tmp_path / "own.toml"
    file.write_text(text, "utf-8")
    assert calibration.read(file) == {"NVIDIA H200": parameters}


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("[device\n", "1:8", "not valid TOML"),
        ("a = 1\n", "1:1", "expected a section"),
        (
            GOOD.replace("hbm_rate", "hbm_rat"),
            "2:1",
            "unknown parameter 'hbm_rat'; did you mean hbm",
        ),
        (GOOD.replace("3000.0", "-1"), "2:1", "hbm_rate: -1 is not a number above 0"),
        (GOOD.replace("3000.0", "nan"), "2:1", "is not a number above 0"),
        (GOOD.replace("3000.0", "true"), "2:1", "is not a number above 0"),
        (GOOD.replace("3000.0", '"3"'), "2:1", "is not a number above 0"),
        (GOOD.replace("origin", "orign"), "2:1", "expected { value"),
        (GOOD.replace("note", "notes"), "2:1", "unknown key 'notes'"),
        (GOOD.replace('"2026-01-01"', "3"), "2:1", "note is no text"),
        (GOOD + "# x\ngpcs = { value = [0], origin = 'x' }\n", "4:1", "expected a list of SMs"),
        (GOOD + "\nl2_rate = 3\n", "4:1", "expected { value"),
        ("[device]\n'NVIDIA H200' = 3\n", "1:1", "expected a section of parameters"),
        (GOOD + "checked = { value = 1, origin = 'x' }\n", "3:1", "unknown parameter 'checked'"),
    ],
)
def test_a_malformed_file(tmp_path: Path, text: str, where: str, message: str) -> None:
    file = tmp_path / "own.toml"
    file.write_text(text, "utf-8")
    with pytest.raises(InputError) as caught:
        calibration.read(file)
    assert re.match(rf".*own.toml:{where}: .*", str(caught.value)), str(caught.value)
    assert message in str(caught.value)
    result = run("traffic", "gelu", "--calibration", file)
    assert (result.exit_code, result.stdout) == (3, "")


def test_no_file(tmp_path: Path) -> None:
    result = run("traffic", "gelu", "--calibration", tmp_path / "no.toml")
    assert result.exit_code == 3
    assert "no.toml: No such file" in result.stderr
    (tmp_path / "b.toml").write_bytes(b"\xff")
    assert "not UTF-8" in run("traffic", "gelu", "--calibration", tmp_path / "b.toml").stderr


def test_parameters_replace_the_models() -> None:
    gpu = device("H200")
    own = {"hbm_rate": CacheParameter(3000.0, "measured")}
    assert machine(gpu, own=own)["hbm_rate"] == 3000.0
    assert machine(gpu, {"hbm_rate": 2}, own)["hbm_rate"] == 6000.0
    assert machine(gpu, own=own)["l2_rate"] == machine(gpu)["l2_rate"]
    assert set(machine(gpu).parameters) - {"checked"} <= set(names())


def test_the_command_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton")
    file = tmp_path / "own.toml"
    file.write_text(GOOD)
    small = ("traffic", "gelu", "--set", f"n={1 << 24}", "--format", "json")
    plain = json.loads(run(*small).stdout)
    slower = json.loads(run(*small, "--calibration", file).stdout)
    assert slower["time"]["bounds_us"]["hbm"] > 1.3 * plain["time"]["bounds_us"]["hbm"]
    assert "calibrated: hbm_rate" in slower["assumptions"]
    monkeypatch.setenv("KANALYZE_CALIBRATION", str(file))
    assert json.loads(run(*small).stdout) == slower
    over = run("traffic", "gelu", "--over", f"n={1 << 24}", "--format", "json")
    data = json.loads(over.stdout)
    assert data["points"][0]["sides"][0]["totals"]["predicted_us"] == slower["time"]["predicted_us"]
    other = run(*small, "--device", "H100 SXM")
    assert other.exit_code == 0
    assert "parameters of NVIDIA H200, none of NVIDIA H100 SXM" in other.stderr


# ---------------------------------------------------------------- the command that measures


def test_without_a_gpu_it_says_so() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    result = run("device", "--calibrate")
    assert (result.exit_code, result.stdout) == (4, "")
    assert "no GPU" in result.stderr
    assert run("device", "H200", "--calibrate").exit_code == 2


def test_what_it_writes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Up to the launches, which give what an H200 is said to give."""
    pytest.importorskip("triton")
    from types import SimpleNamespace

    from kanalyze.measured.bench import gpu

    torch = SimpleNamespace(zeros=lambda *_, **__: None)
    found = gpu.LocalGpu("NVIDIA H200", 90, {"torch": "2", "driver": "5.6"}, torch)
    monkeypatch.setattr(gpu, "local_gpu", lambda: found)
    monkeypatch.setattr(calibration_times, "Driver", lambda: None)
    monkeypatch.setattr(calibration_times, "Stopwatch", lambda torch: None)
    curve = dict(knee(31 * MIB, 2600, 6000))

    def cyclic(torch: object, driver: object, size: int, blocks: int) -> float:
        assert blocks == 132
        return float(np.interp(size, list(curve), list(curve.values())))

    small = (replace(launches()[0], settings={"n": 1 << 25, "tanh": 0}),)
    for module in (calibration_times, calibration_solver):
        monkeypatch.setattr(module, "launches", lambda: small)
    monkeypatch.setattr(calibration_times, "_cyclic", cyclic)
    monkeypatch.setattr(calibration_times, "_time", lambda *_: 70.0)
    target = tmp_path / "own.toml"
    result = run("device", "--calibrate", "-o", target)
    assert result.exit_code == 0, result.output
    own = calibration.read(target)["NVIDIA H200"]
    assert own["l2_bytes_per_side"].value == pytest.approx(31 * MIB, rel=0.04)
    assert 2000 < own["hbm_rate"].value < 4800
    assert all("driver 5.6" in p.note and p.origin == "measured" for p in own.values())
    assert "[measured]" in target.read_text("utf-8")

    data = json.loads(run("device", "--calibrate", "--format", "json").stdout)
    jsonschema.validate(data, schemas.load("device"))
    known = data["calibrated"]["parameters"]
    assert known["hbm_rate"]["value"] == own["hbm_rate"].value
    assert data["calibrated"]["unknown"] == {}
    assert run("traffic", "gelu", "--set", "n=4096", "--calibration", target).exit_code == 0
