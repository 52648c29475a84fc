"""``--time-us``: rates at a measured time."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import kanalyze
from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.frontend.subject import Settings

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]
SOFTMAX = ["traffic", "softmax", "--set", "M=4096", "--set", "N=1024", "--arch", "sm_80",
           "--no-proof"]  # fmt: skip


def test_bandwidth_of_a_softmax_at_40_us() -> None:
    pytest.importorskip("triton")
    settings = Settings(arch="sm_80", settings={"M": "4096", "N": "1024"})
    found = kanalyze.estimate("softmax", settings=settings, time_us=40, findings=False)
    assert found.at_time is not None
    size = 2 * 4096 * 1024 * 4
    assert found.at_time.distinct_bytes == size
    assert round(found.at_time.distinct_gb_per_s or 0, 1) == round(size / 40e-6 / 1e9, 1) == 838.9
    assert found.at_time.requested_gb_per_s == found.at_time.distinct_gb_per_s
    assert found.at_time.hbm_peak_gb_per_s == 2039
    assert found.at_time.hbm_peak_share == pytest.approx(838.8608 / 2039)
    assert found.at_time.tflops == pytest.approx((found.flops or 0) / 40e-6 / 1e12)
    predicted = found.time.predicted_us
    assert predicted is not None
    assert found.at_time.predicted_ratio == pytest.approx(40 / predicted)
    assert kanalyze.Traffic.from_dict(json.loads(json.dumps(found.to_dict()))) == found


def test_the_command() -> None:
    pytest.importorskip("triton")
    jsonschema = pytest.importorskip("jsonschema")
    run = CliRunner().invoke
    text = run(cli, [*SOFTMAX, "--exact", "--time-us", "40"]).stdout
    assert "40 µs: 838.9 GB/s of the 33,554,432 distinct bytes, 41.1 % of HBM's 2,039 GB/s" in text
    assert "predicted time" not in text
    assert "more than HBM can" not in text
    text = " ".join(run(cli, [*SOFTMAX, "--exact", "--time-us", "10"]).stdout.split())
    assert "165 % of HBM's 2,039 GB/s (more than HBM can" in text
    assert "measured" not in run(cli, [*SOFTMAX, "--exact"]).stdout
    data = json.loads(run(cli, [*SOFTMAX, "--exact", "--time-us", "40", "--format", "json"]).stdout)
    assert not list(jsonschema.Draft202012Validator(schemas.load("traffic")).iter_errors(data))
    assert data["at_time"]["hbm_gb_per_s"] is None
    for wrong in ("0", "-1", "x"):
        assert run(cli, [*SOFTMAX, "--time-us", wrong]).exit_code == 2
    assert run(cli, [*SOFTMAX, "--time-us", "4", "--over", "M=1,2"]).exit_code == 2
