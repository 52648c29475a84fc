"""Tiles of a matrix product: published examples, and counting one by one."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.errors import UsageError
from kanalyze.models.tiling import tile_efficiency, tiling

jsonschema = pytest.importorskip("jsonschema")
EXPECTED = Path(__file__).parents[2] / "samples/questions/23_wave_quantization/expected.json"
CASES = {k: v for k, v in json.loads(EXPECTED.read_text("utf-8")).items() if k != "source"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["waves", *arguments])


def of_case(name: str) -> list[str]:
    size, tile, sms, per_sm = name.split("_")
    return ["--gemm", size, "--tile", tile.removeprefix("tile"), "--sms", sms[2:],
            "--blocks-per-sm", per_sm[1:]]  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_published_examples(name: str) -> None:
    right = CASES[name]
    result = run(*of_case(name), "--format", "json")
    assert result.exit_code == 0
    data = json.loads(result.stdout)
    assert not list(jsonschema.Draft202012Validator(schemas.load("waves")).iter_errors(data))
    assert (data["tiles"], data["slots"]) == (right["tiles"], right["slots"])
    assert data["rounds"] == right["full_waves"]
    for key in ("waves", "efficiency", "tile_efficiency"):
        assert round(data[key], 4) == right[key]
    assert data["blocks"] == data["gemm"]["tiles"] == right["tiles"]


@pytest.mark.parametrize(("m", "n"), [(1, 1), (17, 8), (16, 8), (33, 7), (100, 50)])
@pytest.mark.parametrize("tile", [(16, 8), (8, 16), (64, 64)])
def test_counted_one_by_one(m: int, n: int, tile: tuple[int, int]) -> None:
    blocks = {(i // tile[0], j // tile[1]) for i in range(m) for j in range(n)}
    found = tiling(m, n, *tile, sms=5)
    assert found.tiles == len(blocks) == found.waves.blocks
    assert found.tile_efficiency == m * n / (len(blocks) * tile[0] * tile[1])
    rounds = math.ceil(len(blocks) / 5)
    assert found.efficiency == pytest.approx(m * n / (rounds * 5 * tile[0] * tile[1]))
    for size in found.better:
        other = tiling(size.m, size.n, *tile, sms=5)
        assert other.efficiency == pytest.approx(size.efficiency)
        assert other.efficiency > found.efficiency
        assert (other.tiles, other.waves.rounds) == (size.tiles, size.rounds)
        assert (size.m == m) != (size.n == n)


def test_better_sizes_are_the_nearest() -> None:
    found = tiling(1793, 1792, 256, 128, sms=108)
    assert [(s.m, s.n) for s in found.better][:2] == [(1792, 1792), (1793, 1664)]
    worse = [tiling(m, 1792, 256, 128, sms=108).efficiency for m in range(256, 1792, 256)]
    assert all(efficiency < found.better[0].efficiency for efficiency in worse)
    for m in (1025, 1281, 2817, 3000):
        now = tiling(m, 1792, 256, 128, sms=108)
        for size in now.better:
            between = range(min(m, size.m) // 256 + 1, -(-max(m, size.m) // 256))
            for count in between:  # a multiple that is nearer is not better
                nearer = tiling(256 * count, 1792, 256, 128, sms=108)
                assert nearer.efficiency <= now.efficiency
    assert tiling(256, 128 * 108, 256, 128, sms=108).better == ()


def test_the_cause_is_named() -> None:
    text = " ".join(run(*of_case("1793x1792_tile256x128_sm108_x1")).stdout.split())
    assert "cause wave quantisation: the last of 2 waves of 108 has 4 of its blocks" in text
    assert "tile quantisation: M = 1793 leaves 1 of the 256 of its last tile used" in text
    assert "better M = 1792 (-1): 98 tiles in 1 wave, 90.7%" in text
    small = " ".join(run(*of_case("257x256_tile64x64_sm108_x4")).stdout.split())
    assert "the 20 tiles are fewer than the 432 blocks that the GPU holds" in small
    (only,) = tiling(100, 108 * 128, 128, 128, sms=108).causes()
    assert "tile quantisation" in only
    full = run("--gemm", "256x13824", "--tile", "256x128", "--sms", "108").stdout
    assert "cause" not in full
    assert "better" not in full


def test_devices_and_depth() -> None:
    a100 = run("--gemm", "1793x1792x4096", "--tile", "256x128", "--device", "A100 SXM 80GB")
    assert "8 x 14 = 112" in a100.stdout
    assert "NVIDIA A100 80GB SXM" in a100.stdout
    assert tile_efficiency(257, 256, 64, 64) == pytest.approx(0.8031, abs=5e-5)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--gemm", "12", "--tile", "4x4", "--sms", "1"], "'12' is not MxN"),
        (["--gemm", "1x2", "--tile", "ax4", "--sms", "1"], "--tile 'ax4' is not MxN"),
        (["--gemm", "1x2", "--sms", "1"], "go together"),
        (["--tile", "1x2", "--blocks", "4", "--sms", "1"], "go together"),
        (["--gemm", "1x2", "--tile", "1x2", "--blocks", "4", "--sms", "1"], "give --blocks N"),
        (["--sms", "1"], "give --blocks N"),
        (["--gemm", "0x2", "--tile", "4x4", "--sms", "1"], "M: 0 is not a positive number"),
        (["--gemm", "1x2", "--tile", "4x4"], "a number of SMs"),
    ],
)
def test_wrong_requests(arguments: list[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2 or isinstance(result.exception, UsageError)
    assert said in result.stderr + str(result.exception)
