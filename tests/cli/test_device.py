"""``kanalyze device``, ``occupancy`` and ``waves`` on the command line."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.devices.table import capabilities, devices, shared_limits

OCCUPANCY = ["occupancy", "--threads", "128", "--registers", "160", "--shared", "0"]
WAVES = ["waves", "--blocks", "160", "--device", "B200"]


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def data_of(*words: str) -> dict[str, Any]:
    jsonschema = pytest.importorskip("jsonschema")
    result = run(*words, "--format", "json")
    assert result.exit_code == 0, result.stderr
    data: dict[str, Any] = json.loads(result.stdout)
    validator = jsonschema.Draft202012Validator(schemas.load(words[0]))
    assert [f"{e.json_path}: {e.message}" for e in validator.iter_errors(data)] == []
    return data


def test_occupancy_as_text() -> None:
    result = run(*OCCUPANCY, "--device", "B200")
    assert result.exit_code == 0
    assert "3 blocks, 12 of 64 warps = 18.75 %, limited by registers" in result.stdout
    assert "32 registers fewer per thread (128): one block more per SM (25 %)" in result.stdout
    assert result.stderr == ""


def test_occupancy_as_json() -> None:
    data = data_of(*OCCUPANCY, "--device", "B200")
    assert (data["blocks_per_sm"], data["warps_per_sm"], data["percent"]) == (3, 12, 18.75)
    assert data["limited_by"] == "registers"
    assert data["device"] == "NVIDIA B200"
    data = data_of(*OCCUPANCY, "--arch", "sm_75", "--carveout", "32768", "--barriers", "1")
    assert data["device"] is None
    assert data["limits"]["shared memory"] is None
    data = data_of(*OCCUPANCY, "--arch", "sm_90a", "--cluster", "2")
    assert data["unknown"][0]["field"] == "clusters"
    assert "note" in run(*OCCUPANCY, "--arch", "sm_90a", "--cluster", "2").stdout


def test_waves_as_text_and_json() -> None:
    result = run(*WAVES)
    assert "12 blocks, 91.9% of its slots idle" in result.stdout
    assert "148 or 296 blocks" in result.stdout
    assert "full" in run("waves", "--blocks", "264", "--sms", "132").stdout
    data = data_of(*WAVES)
    assert (data["blocks_per_wave"], data["last_wave_blocks"]) == (148, 12)
    assert data["idle_share"] == pytest.approx(136 / 148)
    assert data_of("waves", "--blocks", "65536", "--sms", "132", "--blocks-per-sm", "16")[
        "waves"
    ] == pytest.approx(31.03, abs=0.005)


def test_the_table_of_devices() -> None:
    result = run("device")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert len([line for line in lines if line.startswith(("NVIDIA", "Tesla"))]) == len(devices())
    assert max(map(len, lines)) <= 100
    data = data_of("device")
    assert [d["name"] for d in data["devices"]] == list(devices())
    assert data["unknown"]


def test_one_device() -> None:
    result = run("device", "h100", "sxm")
    assert "NVIDIA H100 SXM (sm_90)" in result.stdout
    assert "sources" in result.stdout
    data = data_of("device", "B300")
    one = data["devices"][0]
    assert one["facts"]["int8_tensor_tops"] is None
    reasons = {u["field"]: u["reason"] for u in one["unknown"]}
    assert "sources disagree" in reasons["int8_tensor_tops"]
    assert reasons["capability.int32_lanes_per_sm"] == "no source found"
    assert one["capability"]["max_warps_per_sm"]["value"] == 64
    assert "sources disagree" in run("device", "B300").stdout


def test_a_device_whose_number_of_sms_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    found = dict(devices())
    found["NVIDIA B300"] = dataclasses.replace(found["NVIDIA B300"], sms=None)
    monkeypatch.setattr("kanalyze.devices.table.devices", lambda: found)
    result = run("waves", "--blocks", "5", "--device", "B300")
    assert result.exit_code == 2
    assert "SMs of NVIDIA B300 is not known" in result.stderr


def test_the_lecture() -> None:
    table = run("device").stdout
    assert "NVIDIA B200, l1 shared: 19 TB/s there, 37.22 here" in table
    result = run("device", "--lecture")
    assert "NVIDIA B200, l1 shared: 19 TB/s there, 37.22 here" in result.stdout
    data = data_of("device", "--lecture")
    assert len(data["lecture"]["rows"]) == 27


@pytest.mark.parametrize("words", [[*OCCUPANCY, "--device", "B200"], WAVES, ["device", "H200"]])
def test_into_a_file(words: list[str], tmp_path: Path) -> None:
    target = tmp_path / "out.txt"
    result = run(*words, "-o", str(target), "--color", "always")
    assert (result.exit_code, result.stdout) == (0, "")
    assert "\x1b[" in target.read_text("utf-8")
    assert "\x1b[" not in run(*words, "--color", "never").stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (OCCUPANCY, "give --device NAME"),
        ([*OCCUPANCY, "--device", "H100"], "say H100 PCIe or H100 SXM"),
        ([*OCCUPANCY, "--device", "H202"], "did you mean H200"),
        ([*OCCUPANCY, "--arch", "sm_9"], "no limits are known"),
        (["occupancy", "--threads", "2048", "--registers", "8", "--arch", "sm_90"], "at most 1024"),
        (["occupancy", "--threads", "x", "--registers", "8"], "not a valid integer"),
        (["occupancy", "--threads", "32"], "--registers"),
        (["waves", "--blocks", "0", "--device", "H200"], "not a positive number"),
        (["waves", "--blocks", "5"], "a number of SMs"),
        ([*WAVES, "--sms", "4"], "not both"),
        (["device", "H202"], "did you mean H200"),
        (["device", "H200", "--lecture"], "not both"),
    ],
)
def test_errors(words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""


SHARED = Path(__file__).parents[2] / "samples/questions/06_out_of_shared_memory/expected.json"


def test_where_shared_memory_fits() -> None:
    right = json.loads(SHARED.read_text("utf-8"))
    limits = right["limits"]
    cases = [case for case in right.values() if isinstance(case, dict) and "fits" in case]
    assert len(cases) == 5
    for case in cases:
        data = data_of("device", "--fits", str(case["shared_bytes"]))["fits"]
        found = {row["architecture"]: row for row in data["architectures"]}
        assert {name: found[name]["fits"] for name in case["fits"]} == case["fits"]
        assert {name: found[name]["limit_bytes"] for name in limits} == limits
    text = run("device", "--fits", "147456").stdout
    assert "sm_86    101376 B  does not fit, 46080 B too much" in text
    assert "sm_80    166912 B  fits" in text
    assert "opted into" in text
    assert "opted into" not in run("device", "--fits", "49152").stdout
    assert "fits on 0 of" in run("device", "--fits", "232449").stdout
    assert run("device", "--fits", "1", "H200").exit_code == 2


def test_limits_of_shared_memory_are_those_of_the_capabilities() -> None:
    limits = shared_limits()
    for name, capability in capabilities().items():
        assert limits[name].value == capability.shared_per_block_bytes
        assert limits[name].value <= capability.shared_per_sm_bytes
