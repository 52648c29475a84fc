"""``kanalyze traffic``: what it says of caches, HBM and time; --what-if and --exact."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from functools import cache as once
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from kanalyze import Launch, Traffic, cache, estimate, schemas
from kanalyze.cli.app import cli
from kanalyze.performance.cache_sim import compiled
from kanalyze.performance.cache_sim.results import COUNTERS
from kanalyze.render.traffic_text import render

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("estimates and simulates whole launches"),
]

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "samples" / "h200_records" / "softmax_8192x781.json"


def kanalyze(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["traffic", "--launch", str(RECORD), *arguments])


@once
def estimated() -> Traffic:
    return estimate(RECORD.with_suffix(".ptx"), Launch.from_record(RECORD))


def flat(text: str) -> str:
    return " ".join(text.replace("\u00a0", " ").split())


# ---------------------------------------------------------------- options


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("hmb=2x", "--what-if hmb=2x: did you mean hbm?"),
        ("hbm", "--what-if hbm: expected a factor, as hbm=2x"),
        ("hbm=", "--what-if hbm=: expected a factor, as hbm=2x"),
        ("hbm=fast", "--what-if hbm=fast: expected a factor, as hbm=2x"),
        ("hbm=0", "--what-if hbm=0: expected a factor, as hbm=2x"),
        ("hbm=-2x", "expected a factor"),
        ("l2=1e9", "expected a factor, as l2=2x"),
        ("hbm=nan", "expected a factor"),
        ("=2", "--what-if =2: "),
        ("\x1b[31m=2", "--what-if \\x1b[31m=2: "),
    ],
)
def test_what_if_says_what_was_expected(given: str, message: str) -> None:
    result = kanalyze("--what-if", given)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stdout == ""
    assert "Traceback" not in result.stderr


def test_what_if_scales_a_rate_and_says_so() -> None:
    result = kanalyze("--what-if", "hbm=2x", "--what-if", "clock=1.5", "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    usual = estimated().time.bounds_us
    found = data["time"]["bounds_us"]
    assert found["hbm"] == pytest.approx((usual["hbm"] or 0) / 2, rel=0.05)
    assert found["issue"] == pytest.approx((usual["issue"] or 0) / 1.5)
    (said,) = (text for text in data["assumptions"] if text.startswith("what if: "))
    assert "hbm_rate 2 x" in said
    assert "clock 1.5 x" in said
    exact = {name: value for name, value in data["counters"].items() if name not in COUNTERS}
    assert exact == {
        name: value for name, value in estimated().counters.items() if name not in COUNTERS
    }


def test_exact_estimates_nothing() -> None:
    result = kanalyze("--exact", "--format", "json")
    assert result.exit_code == 0, result.stderr
    data = json.loads(result.stdout)
    assert {data["counters"][name] for name in COUNTERS} == {None}
    assert data["time"]["predicted_us"] is None
    reasons = {u["field"]: u["reason"] for u in data["unknown"]}
    for field in (*(f"counters.{name}" for name in COUNTERS), "time.predicted_us"):
        assert reasons[field] == "not asked for"
    assert data["counters"]["global_load_sectors"] == estimated().counters["global_load_sectors"]
    text = flat(kanalyze("--exact").stdout)
    assert "unknown (not asked for)" in text
    assert "simulated" not in text


@pytest.mark.parametrize("options", [[], ["--exact"], ["--what-if", "l2=0.5x"]])
def test_the_json_fits_its_schema(options: list[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    data = json.loads(kanalyze("--format", "json", *options).stdout)
    validator = jsonschema.Draft202012Validator(schemas.load("traffic"))
    assert [e.message for e in validator.iter_errors(data)] == []


# ---------------------------------------------------------------- the text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_text_fits_the_width(width: int) -> None:
    text = render(estimated(), width=width)
    assert max(cell_len(line) for line in text.splitlines()) <= width
    counters, time = estimated().counters, estimated().time
    assert counters["dram_read_bytes"] is not None
    assert time.predicted_us is not None
    words = flat(text)
    assert f"HBM {counters['dram_read_bytes'] / 1e6:.1f} MB read" in words
    assert f"time {time.predicted_us:.1f} µs" in words
    assert "bound by" in words
    assert "at least, µs:" in words
    assert "L1, L2, HBM and time are estimates" in words


def test_ranges_are_shown_and_what_they_depend_on() -> None:
    traffic = dataclasses.replace(
        estimated(),
        counters={**estimated().counters, "dram_read_bytes": 3_000_000_000},
        interval={"dram_read_bytes": (2_000_000_000, 4_500_000_000)},
        time=dataclasses.replace(estimated().time, predicted_us=100.0, interval_us=(90.0, 130.0)),
    )
    text = flat(render(traffic, width=120))
    assert "HBM 3 GB read, between 2 GB and 4.5 GB" in text
    assert "time 100 µs (between 90 and 130)" in text


def test_one_reason_stands_once() -> None:
    traffic = estimate(RECORD.with_suffix(".ptx"), Launch.from_record(RECORD), simulate=False)
    text = flat(render(traffic, width=120))
    assert text.count("not asked for") == 2  # caches, time


# ---------------------------------------------------------------- compiled code


def in_process(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False,
        timeout=300, env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["traffic", "--help"], ["device", "H200"], ["ptx", "samples/cuda/reduce.ptx"]],
    ids=" ".join,
)
def test_numba_is_imported_only_where_something_is_simulated(arguments: list[str]) -> None:
    done = in_process(
        "import sys\nfrom kanalyze.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit:\n    pass\n"
        "print('numba' in sys.modules, file=sys.stderr)\n"
    )
    assert done.stderr.splitlines()[-1] == "False"


def test_an_exact_estimate_needs_no_numba() -> None:
    launch = f"kanalyze.Launch.from_record({str(RECORD)!r})"
    given = f"{str(RECORD.with_suffix('.ptx'))!r}, {launch}, simulate=False"
    done = in_process(
        "import sys\nsys.modules['numba'] = None\nimport kanalyze\n"
        f"found = kanalyze.estimate({given})\n"
        "print(found.counters['global_load_sectors'])\n"
    )
    assert done.stdout.strip() == str(estimated().counters["global_load_sectors"]), done.stderr


COMPILED = """
import numpy as np
from kanalyze.performance.cache_sim import levels, simulate
from tests.simulated import caches_of, chip_of, program_of
chip = chip_of([0])
program = program_of([[[(0, True, [(1, 15)])]]], work=5.0)
end = simulate.run(program, chip, caches_of(chip), np.zeros(levels.COUNTS), 1)
stats = simulate.run.stats
print(round(end, 3), sum(stats.cache_hits.values()), sum(stats.cache_misses.values()))
"""


def test_machine_code_is_kept_for_the_next_process(tmp_path: Path) -> None:
    """Without any compiler on the path: Numba has its own."""
    there = {"KANALYZE_CACHE_DIR": str(tmp_path), "PATH": str(Path(sys.executable).parent)}
    first = in_process(COMPILED, **there)
    assert first.returncode == 0, first.stderr
    end, *cached = first.stdout.split()
    assert cached == ["0", "1"]
    assert [path.name for path in tmp_path.iterdir()] == ["numba"]
    again = in_process(COMPILED, **there)
    assert again.stdout.split() == [end, "1", "0"]


@pytest.mark.parametrize("changed", [False, True])
def test_machine_code_of_other_sources_is_not_taken(
    changed: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The folder's name is a hash of all that is compiled, not of the function's file alone."""
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "cache"))
    sources = tmp_path / "memory"
    sources.mkdir()
    for name in ("compiled.py", "levels.py", "simulate.py"):
        (sources / name).write_text(name)
    monkeypatch.setattr(compiled, "__file__", str(sources / "compiled.py"))
    find = compiled._folder.__wrapped__
    before = find()
    (sources / "levels.py").write_text("levels.py, changed" if changed else "levels.py")
    assert before is not None
    assert before.parent == tmp_path / "cache" / "numba"
    assert (find() != before) == changed


def test_without_a_place_for_it_every_process_compiles(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KANALYZE_CACHE_DIR", str(tmp_path / "file" / "below"))
    monkeypatch.setattr(cache, "_warned", set())
    monkeypatch.setattr(compiled, "_folder", compiled._folder.__wrapped__)
    with pytest.warns(RuntimeWarning, match="cannot be written to"):
        twice = compiled.compiled(lambda x: 2 * x)
    assert twice(21) == 42
