"""What CUDA cannot launch is refused, with the field and what was expected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanalyze import InputError, Launch
from kanalyze.cli.app import cli
from kanalyze.launch.record import LaunchParam

PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry scale(.param .u64 x, .param .u32 n)
{
.reg .b64 %rd<3>;
ld.param.u64 %rd1, [x];
ld.global.u32 %r1, [%rd1];
ret;
}
"""
GOOD: dict[str, Any] = {
    "kernel": "scale",
    "grid": [4, 1, 1],
    "block": [128, 1, 1],
    "params": [
        {"name": "x", "type": "*i32", "address": 1 << 40},
        {"name": "n", "type": "i32", "value": 512},
    ],
}


def with_value(index: int, **changed: Any) -> dict[str, Any]:
    params = [dict(p) for p in GOOD["params"]]
    params[index] |= changed
    return {"params": params}


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({"grid": [1 << 31, 1, 1]}, "grid[0]", "from 1 to 2,147,483,647"),
    ({"grid": [1, 65_536, 1]}, "grid[1]", "from 1 to 65,535"),
    ({"grid": [1, 1, 65_536]}, "grid[2]", "from 1 to 65,535"),
    ({"grid": [0]}, "grid[0]", "found 0"),
    ({"grid": [4.0]}, "grid[0]", "found 4.0"),
    ({"grid": [True]}, "grid[0]", "found True"),
    ({"grid": ["4"]}, "grid[0]", "found '4'"),
    ({"grid": "444"}, "grid", "one to three whole numbers"),
    ({"grid": [1, 1, 1, 1]}, "grid", "one to three whole numbers"),
    ({"grid": []}, "grid", "one to three whole numbers"),
    ({"block": [1025]}, "block[0]", "from 1 to 1,024"),
    ({"block": [1, 1, 65]}, "block[2]", "from 1 to 64"),
    ({"block": [32, 33]}, "block", "found 32 x 33 = 1,056 threads, expected at most 1,024"),
    ({"cluster": [3]}, "grid[0]", "a multiple of the cluster's 3"),
    ({"cluster": [4, 5], "grid": [4, 5]}, "cluster", "20 blocks, expected at most 16"),
    ({"shared_bytes": "x"}, "shared_bytes", "found 'x'"),
    ({"shared_bytes": -1}, "shared_bytes", "found -1"),
    ({"registers_per_thread": 3.5}, "registers_per_thread", "found 3.5"),
    ({"device": 5}, "device", "found 5, expected the name of a GPU"),
    ({"kernel": 5}, "kernel", "found 5"),
    ({"params": {}}, "params", "expected a list"),
    ({"params": [7]}, "params[0]", "found 7"),
    (with_value(1, value="9"), "params[1].value", "found '9'"),
    (with_value(1, value=1 << 31), "params[1].value", "i32, from -2,147,483,648 to 2,147,483,647"),
    (with_value(1, type="u32", value=-1), "params[1].value", "u32, from 0 to 4,294,967,295"),
    (with_value(1, type=None), "params[1].type", "expected a text"),
    (with_value(0, address=-4), "params[0].address", "an address of 64 bits"),
    (with_value(0, bytes="4"), "params[0].bytes", "found '4'"),
]


@pytest.mark.parametrize(("changed", "field", "text"), BAD, ids=[f"{i}" for i in range(len(BAD))])
def test_a_record_of_a_launch_that_cannot_be(
    changed: dict[str, Any], field: str, text: str
) -> None:
    with pytest.raises(InputError) as caught:
        Launch.from_record({**GOOD, **changed})
    assert f"not a launch: {field}: " in caught.value.message
    assert text in caught.value.message


@pytest.mark.parametrize("key", ["kernel", "grid", "block", "params"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(InputError, match=f"not a launch: {key}: is missing"):
        Launch.from_record({k: v for k, v in GOOD.items() if k != key})


@pytest.mark.parametrize(
    "changed",
    [
        {"grid": [(1 << 31) - 1, 65_535, 65_535]},
        {"block": [1024]},
        {"block": [4, 4, 64]},
        {"cluster": [4]},
        with_value(1, type="u32", value=(1 << 32) - 1),
        with_value(1, value=-(1 << 31)),
        with_value(1, type="fp32", value=1e300),
        {"device": None, "shared_bytes": None},
    ],
)
def test_what_is_just_allowed(changed: dict[str, Any]) -> None:
    assert Launch.from_record({**GOOD, **changed}).kernel == "scale"


def test_a_launch_made_by_hand_keeps_to_the_same_limits() -> None:
    params = (LaunchParam("n", "i32", 1 << 40),)
    with pytest.raises(InputError, match=r"params, n: found 1,099,511,627,776"):
        Launch("k", (1, 1, 1), (32, 1, 1), params)
    with pytest.raises(InputError, match=r"block\[2\]"):
        Launch("k", (1, 1, 1), (1, 1, 65), ())


def test_traffic_says_the_file_and_the_field(tmp_path: Path) -> None:
    ptx, record = tmp_path / "scale.ptx", tmp_path / "launch.json"
    ptx.write_text(PTX)
    record.write_text(json.dumps({**GOOD, "grid": [4, 70_000]}))
    done = CliRunner().invoke(cli, ["traffic", str(ptx), "--launch", str(record)])
    assert done.exit_code == 3
    assert f"{record}: not a launch: grid[1]: found 70,000" in done.output
