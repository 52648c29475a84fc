"""Waves: examples of lectures, published notes on wave quantization, recorded counters."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kanalyze
from kanalyze.devices.table import devices
from kanalyze.errors import UsageError
from kanalyze.models.occupancy import occupancy
from kanalyze.models.waves import waves

SHARED = Path(__file__).parents[3] / "shared"


def test_the_lectures_example() -> None:
    got = waves(blocks=160, device="B200")
    assert (got.blocks_per_wave, got.full_waves, got.rounds) == (148, 1, 2)
    assert got.last_wave_blocks == 12
    assert got.waves == 160 / 148
    assert got.idle_share == 136 / 148
    assert got.launch_idle_share == 136 / 296
    assert got.efficiency == 160 / 296
    assert (got.fewer_blocks, got.more_blocks) == (148, 296)


@pytest.mark.parametrize(
    ("blocks", "sms", "per_sm", "expected", "rounds", "efficiency"),
    [  # published notes on wave quantization; the numbers of questions/23
        (98, 108, 1, 0.9074, 1, 0.9074),
        (112, 108, 1, 1.037, 2, 0.5185),
        (120, 108, 1, 1.1111, 2, 0.5556),
        (512, 108, 1, 4.7407, 5, 0.9481),
        (2048, 132, 1, 15.5152, 16, 0.9697),
        (1024, 132, 2, 3.8788, 4, 0.9697),
        (1600, 148, 1, 10.8108, 11, 0.9828),
        (20, 108, 4, 0.0463, 1, 0.0463),
    ],
)
def test_published_examples(
    blocks: int, sms: int, per_sm: int, expected: float, rounds: int, efficiency: float
) -> None:
    got = waves(blocks=blocks, sms=sms, blocks_per_sm=per_sm)
    assert round(got.waves, 4) == expected
    assert got.rounds == rounds
    assert round(got.efficiency, 4) == efficiency


def test_question_on_wave_quantization() -> None:
    path = SHARED / "questions" / "23_wave_quantization" / "expected.json"
    if not path.is_file():
        pytest.skip("no questions beside the repository (../shared/questions)")
    cases = json.loads(path.read_text("utf-8"))
    del cases["source"]
    for name, case in cases.items():
        sms = int(name.split("_sm")[1].split("_")[0])
        got = waves(blocks=case["tiles"], sms=sms, blocks_per_sm=case["slots"] // sms)
        assert got.blocks_per_wave == case["slots"]
        assert round(got.waves, 4) == case["waves"]
        assert got.rounds == case["full_waves"]
        assert round(got.efficiency, 4) == case["efficiency"]


def test_equal_to_the_counters_of_an_h200() -> None:
    found = sorted((SHARED / "measured" / "h200").glob("*.json"))
    if not found:
        pytest.skip("no records beside the repository (../shared/measured)")
    for path in found:
        record = json.loads(path.read_text("utf-8"))
        counters = record["counters"]
        blocks, threads = (x * y * z for x, y, z in (record["grid"], record["block"]))
        held = occupancy(
            threads=threads,
            registers=counters["launch__registers_per_thread"],
            shared_bytes=record["shared_bytes"],
            device=record["device"],
        ).blocks_per_sm
        got = waves(blocks=blocks, device=record["device"], blocks_per_sm=held)
        assert round(got.waves, 2) == counters["launch__waves_per_multiprocessor"], path.name


@pytest.mark.parametrize("blocks", [1, 131, 132, 133, 264, 1000, 65536])
@pytest.mark.parametrize("per_sm", [1, 3])
def test_shares_add_up(blocks: int, per_sm: int) -> None:
    got = waves(blocks=blocks, device="H200", blocks_per_sm=per_sm)
    assert got.full_waves * got.blocks_per_wave <= blocks
    before = (got.rounds - 1) * got.blocks_per_wave
    assert before + got.last_wave_blocks == blocks
    assert 1 <= got.last_wave_blocks <= got.blocks_per_wave
    assert got.efficiency + got.launch_idle_share == pytest.approx(1.0)
    if got.idle_share == 0:
        assert (got.fewer_blocks, got.more_blocks) == (None, None)
        assert got.full_waves == got.rounds
    for better in (got.fewer_blocks, got.more_blocks):
        if better is not None:
            assert waves(blocks=better, device="H200", blocks_per_sm=per_sm).idle_share == 0
            assert abs(better - blocks) < got.blocks_per_wave


def test_errors() -> None:
    for arguments in ({"blocks": 0}, {"blocks": 5, "blocks_per_sm": 0}, {"blocks": 5, "sms": -1}):
        with pytest.raises(UsageError, match="is not a positive number"):
            waves(device="H200", **arguments)
    with pytest.raises(UsageError, match="a device, or a number of SMs"):
        waves(blocks=5)
    unknown = [d for d in devices().values() if d.sms is None]
    for found in unknown:
        with pytest.raises(UsageError, match=f"SMs of {found.name} is not known"):
            waves(blocks=5, device=found)
        assert waves(blocks=5, device=found, sms=100).waves == 0.05


def test_the_public_function_is_this_one() -> None:
    assert kanalyze.waves is waves
