"""Plots of estimated launches: what is drawn, and the files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanalyze import estimate
from kanalyze.analysis.versus.running import Asked, compare
from kanalyze.cli.app import cli
from kanalyze.devices.table import device
from kanalyze.errors import InputError
from kanalyze.frontend.subject import Settings
from kanalyze.render import traffic_plot

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("matplotlib")
    pytest.importorskip("triton")


def run(*words: object) -> Any:
    return CliRunner().invoke(cli, ["traffic", *map(str, words)])


def figure() -> Any:
    from matplotlib.figure import Figure

    return Figure()


def test_roofs_meet_at_the_ridges() -> None:
    found = estimate("gelu", settings=Settings(settings={"n": 1 << 22}))
    part, gpu = found.roofline, device("H200")
    assert part is not None
    assert gpu.dram_gb_per_s is not None
    drawn = figure()
    traffic_plot._roofs(drawn, found, part)
    (axes,) = drawn.axes
    lines = {line.get_label().partition(",")[0]: line for line in axes.get_lines()}
    x, y = lines["HBM"].get_data()
    assert [b / a for a, b in zip(x, y, strict=True)] == pytest.approx(
        [gpu.dram_gb_per_s / 1e3] * 2
    )  # TB/s
    assert y[-1] == pytest.approx(gpu.fp32_tflops)
    dots = [line for line in axes.get_lines() if line.get_label().startswith("this launch, HBM")]
    (place,), (rate,) = dots[0].get_data()
    moved = (found.counters["dram_read_bytes"] or 0) + (found.counters["dram_write_bytes"] or 0)
    assert place == pytest.approx((found.flops or 0) / moved)
    assert rate == pytest.approx((found.flops or 0) / (found.time.predicted_us or 0) / 1e6)
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_a_sweep_draws_the_points_of_both_sides(tmp_path: Path) -> None:
    options = Settings(settings={})
    found = compare(Asked("gelu", options, other="naive", over=("n", (4096, 65536))))
    for name, magic in (("a.svg", b"<?xml"), ("a.PNG", b"\x89PNG")):
        traffic_plot.sweep(found, str(tmp_path / name))
        first = (tmp_path / name).read_bytes()
        assert first.startswith(magic)
        traffic_plot.sweep(found, str(tmp_path / name))
        assert (tmp_path / name).read_bytes() == first
    assert "naive, ~ n^1.00" in (tmp_path / "a.svg").read_text("utf-8")
    series = traffic_plot._series(found, "compulsory_bytes")
    assert series == [[(4096, 8 * 4096), (65536, 8 * 65536)],
                      [(4096, 88 * 4096), (65536, 88 * 65536)]]  # fmt: skip


def test_the_command_writes_them(tmp_path: Path) -> None:
    result = run("gelu", "--set", "n=65536", "--plot", tmp_path / "r.svg")
    assert result.exit_code == 0, result.output
    assert "gelu_kernel" in (tmp_path / "r.svg").read_text("utf-8")
    assert "roofline" in result.stdout
    result = run("gelu", "--over", "n=4096,65536", "--plot", tmp_path / "s.svg", "--exact")
    assert result.exit_code == 0, result.output
    text = (tmp_path / "s.svg").read_text("utf-8")
    assert "distinct bytes" in text
    assert "time (estimated)" not in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["gelu", "--plot", "x.pdf"], 2, "ends in .svg or .png"),
        (["gelu", "--plot", ""], 2, "the name is empty"),
        (["gelu", "--versus", "naive", "--plot", "x.svg"], 2, "give --over"),
        (["gelu", "--exact", "--set", "n=4096", "--plot", "x.svg"], 3, "nothing to plot"),
        (["gelu", "--set", "n=4096", "--plot", "no/x.svg"], 3, "cannot be written"),
    ],
)
def test_wrong_requests(
    words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == code, result.output
    assert message in result.stderr
    assert bool(result.stdout) == (code == 3)  # the estimate is delivered all the same
    assert list(tmp_path.iterdir()) == []


def test_matplotlib_is_asked_for_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    result = run("gelu", "--plot", "a.svg")
    assert result.exit_code == 4
    assert "pip install 'kanalyze[plot]'" in result.stderr
    assert result.stdout == ""


def test_nothing_known_is_nothing_to_plot() -> None:
    found = compare(Asked("gelu", Settings(settings={}), over=("n", (4096,)), simulate=False))
    points = [p for series in traffic_plot._series(found, "predicted_us") for p in series]
    assert points == []
    empty = type(found)(**{**{f: getattr(found, f) for f in found.__slots__}, "points": ()})
    with pytest.raises(InputError, match="nothing to plot"):
        traffic_plot.sweep(empty, "never.svg")
