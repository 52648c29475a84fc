"""Addresses and branches on loaded data, under an assumption, against the same launch run.

The interpreter (tests/oracle/interpreter.py) runs every block with the arrays in memory; what
kanalyze counts of each access must be equal. Draws are compared with what their distribution gives.
"""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from kanalyze import InputError, Launch, UsageError, parse_ptx
from kanalyze.cli.app import cli
from kanalyze.counting import ptx_launch
from kanalyze.launch.assume import assume
from kanalyze.launch.assumptions import DRAWS, parse
from kanalyze.launch.record import LaunchParam
from tests.oracle.interpreter import Access, run

pytest.importorskip("triton")

from kanalyze.frontend.compile import Compiled, compile_kernel
from tests.counted import estimate

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.slow("runs every thread of whole launches in the interpreter"),
]

ROOT = Path(__file__).parents[2]
KERNELS = Path(__file__).parents[1] / "data" / "gathers.py"
RECORDS = ROOT / "samples" / "records" / "unfitted_h200.json.gz"
EMBEDDING = ROOT.parent / "shared" / "measured" / "h200" / "inductor_embedding_add_0.json"
PLACES = 1 << 40
TYPES = {
    "*i64": np.int64, "*i32": np.int32, "*u8": np.uint8, "*fp32": np.float32, "*i16": np.int16,
}  # fmt: skip


def random(kind: type, low: int, high: int, size: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).integers(low, high, size).astype(kind)


def starts_of(rows: int, most: int) -> Any:
    return np.concatenate([[0], np.cumsum(random(np.int64, 0, most, rows))]).astype(np.int32)


STARTS = starts_of(9, 300)


def zeros(size: int) -> Any:
    return np.zeros(size, np.float32)


CASES: dict[str, tuple[str, str, dict[str, Any], int, list[Any], list[int]]] = {
    # kernel, signature, constexprs, blocks, arguments, those of them that are assumed
    "elements of 32 bits": (
        "elements", "*i32:16, *fp32:16, *fp32:16, i32", {"BLOCK": 256}, 4,
        [random(np.int32, 0, 5000, 1000), zeros(5000), zeros(1000), 1000], [0],
    ),
    "elements of 64 bits, two at a time": (
        "elements", "*i64:16, *fp32:16, *fp32:16, i32:16", {"BLOCK": 512}, 2,
        [random(np.int64, 0, 5000, 1024), zeros(5000), zeros(1024), 1024], [0],
    ),
    "rows": (
        "rows", "*i64:16, *fp32:16, *fp32:16, i32, i32", {"ROWS": 16, "COLS": 64}, 5,
        [random(np.int64, 0, 90, 75), zeros(90 * 50), zeros(75 * 50), 75, 50], [0],
    ),
    "an index of an index, negative ones from the end": (
        "chained", "*u8:16, *i32:16, *fp32:16, *fp32:16, i32", {"BLOCK": 256}, 3,
        [random(np.uint8, 0, 256, 700), random(np.int32, -1000, 1000, 256), zeros(1000),
         zeros(700), 700], [0, 1],
    ),
    "rows of different lengths": (
        "segments", "*i32:16, *i32:16, *fp32:16, *fp32:16", {"BLOCK": 128}, 9,
        [STARTS, random(np.int32, 0, 4000, int(STARTS[-1])), zeros(4000), zeros(9 * 128)], [0, 1],
    ),
    "bins": (
        "counted", "*i32, *i32:16, i32", {"BLOCK": 512}, 2,
        [random(np.int32, 0, 200, 1000), np.zeros(600, np.int32), 1000], [0],
    ),
    "a branch": (
        "chosen", "*i16, *fp32:16, *fp32:16", {"BLOCK": 256}, 12,
        [random(np.int16, -3, 7, 12), zeros(12 * 256), zeros(12 * 256)], [0],
    ),
}  # fmt: skip


@cache
def compiled(
    kernel: str, signature: str, constexprs: tuple[tuple[str, int], ...], arch: str
) -> Compiled:
    return compile_kernel(
        f"{KERNELS}:{kernel}",
        arch=arch,
        settings=dict(constexprs),
        signature=signature,
        num_warps=4,
    )


def launch_of(case: str, arch: str, shift: int = 0) -> tuple[Compiled, Launch, list[Any]]:
    """What was compiled, a launch of it, and the interpreter's arguments."""
    kernel, signature, constexprs, blocks, values, _ = CASES[case]
    result = compiled(kernel, signature, tuple(constexprs.items()), arch)
    names = [n for n, kind in result.signature.items() if kind != "constexpr"]
    params, given = [], []
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        kind = result.signature[name]
        place = PLACES * (index + 1) + shift
        isarray = isinstance(value, np.ndarray)
        params.append(LaunchParam(name, kind, place if isarray else value))
        given.append((place, value.copy()) if isarray else value)
    return result, Launch(result.name, (blocks, 1, 1), (128, 1, 1), tuple(params)), given


def traced(
    result: Compiled, launch: Launch, given: list[Any]
) -> dict[int, list[tuple[Any, Any, int]]]:
    """Addresses and lanes of each executed warp, and the bytes of a lane, by PTX line."""
    blocks = [(x, 0, 0) for x in range(launch.grid[0])]
    trace = run(result.ptx, result.name, launch.grid, launch.block, given, blocks)
    by_line: dict[int, list[tuple[Any, Any, int]]] = defaultdict(list)
    record: Access
    for record in trace.accesses:
        lanes = zip(record.addresses.reshape(-1, 32), record.active.reshape(-1, 32), strict=True)
        by_line[record.line] += [(where, on, record.bytes) for where, on in lanes if on.any()]
    return by_line


def turns(addresses: list[int]) -> int:
    """What an atomic or a reduction costs: per sector, the most lanes at one address."""
    at: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for address in addresses:
        at[address // 32][address] += 1
    return sum(max(lanes.values()) for lanes in at.values())


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize("case", CASES)
def test_counts_equal_those_of_the_launch_that_is_run(case: str, arch: str) -> None:
    result, launch, given = launch_of(case, arch, shift=64 if arch == "sm_80" else 0)
    values, assumed = CASES[case][4:]
    by_line = traced(result, launch, given)
    traffic = estimate(result, launch, assume={str(i): values[i] for i in assumed})
    counted = 0
    for row in traffic.accesses:
        warps = by_line.get(row.line, [])
        assert row.reason is None or row.space == "shared", row.reason
        if row.reason is not None:
            continue
        assert row.requests == len(warps)
        assert row.threads == sum(int(on.sum()) for _, on, _ in warps)
        if row.space == "global":
            cost = (
                (lambda places: len({p // 32 for p in places}))
                if row.kind in ("load", "store")
                else turns
            )
            assert row.cost == sum(cost([int(a) for a in where[on]]) for where, on, _ in warps)
            counted += 1
    assert counted >= 2
    for pointer in traffic.compulsory.pointers:
        for kind, touched in (("load", pointer.read_bytes), ("store", pointer.write_bytes)):
            lines = {
                a.line for a in traffic.accesses if a.pointer == pointer.pointer and a.kind == kind
            }
            sectors = {
                int(a + b) // 32
                for line in lines for where, on, size in by_line.get(line, [])
                for a in where[on] for b in (0, size - 1)
            }  # fmt: skip
            if lines:
                assert touched == 32 * len(sectors)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("case", CASES)
def test_machine_code_gives_the_same(case: str, arch: str) -> None:
    """Loads that the assembler merges are of one address: fewer requests, all else equal."""
    result, launch, given = launch_of(case, arch)
    values, assumed = CASES[case][4:]
    by_line = traced(result, launch, given)
    traffic = estimate(result, launch, assume={str(i): values[i] for i in assumed})
    executed = traffic.counters["instructions_executed"]
    reasons = {u.field: u.reason for u in traffic.unknown}
    if case != "rows of different lengths":
        assert executed is not None, reasons["counters.instructions_executed"]
    lines = {row.line for row in traffic.accesses if row.space == "global" and row.kind == "load"}
    distinct = {
        tuple(int(a) if lane else -1 for a, lane in zip(where, on, strict=True))
        for line in lines for where, on, _ in by_line.get(line, [])
    }  # fmt: skip
    requests, sectors = (
        traffic.counters[f"global_load_{what}"] for what in ("requests", "sectors")
    )
    assert requests is not None
    assert sectors is not None
    assert requests >= len(distinct)
    assert sectors >= sum(len({a // 32 for a in places if a >= 0}) for places in distinct)
    merged = any("machine code: some" in text for text in traffic.assumptions)
    listed = sum(row.requests or 0 for row in traffic.accesses if row.line in lines)
    assert (requests < listed) == merged


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("range", np.arange(1000)),
        ("range:7:4", 7 + 4 * np.arange(1000)),
        ("const:11", np.full(1000, 11)),
        ("zero", np.zeros(1000)),
        ("uniform:5:6", np.full(1000, 5)),
    ],
)
def test_words_mean_their_arrays(text: str, array: Any) -> None:
    result, launch, _ = launch_of("elements of 32 bits", "sm_90")
    words = estimate(result, launch, assume={"index_ptr": text})
    itself = estimate(result, launch, assume={"index_ptr": array.astype(np.int32)})
    assert words.accesses == itself.accesses
    assert words.counters == itself.counters
    assert words.compulsory == itself.compulsory
    assert words.interval == itself.interval == {}


def test_bytes_of_an_array_can_be_read_in_any_width() -> None:
    array = random(np.int16, -(1 << 15), 1 << 15, 4096)
    data = array.tobytes()
    for what in (parse(array), parse("range:-5:3"), parse("uniform:-9:12345:4")):
        for unit in (2, None):
            element = what if what.data is not None else _with_element(what, unit or 8)
            for size in (1, 2, 4, 8):
                offsets = np.arange(0, 512, size)
                pieces = element.read(np.arange(0, 512), 1)
                whole = element.read(offsets, size)
                joined = pieces.astype(np.uint8).reshape(-1, size)
                expected = [int.from_bytes(row.tobytes(), "little") for row in joined]
                assert [int(x) % (1 << 8 * size) for x in whole] == expected
    assert bytes(parse(array).read(np.arange(len(data)), 1).astype(np.uint8)) == data


def _with_element(what: Any, size: int) -> Any:
    launch = Launch("k", (1, 1, 1), (32, 1, 1), (LaunchParam("p", f"*i{8 * size}", 0),))
    return assume(launch, ["k_param_0"], {"p": what}).params[0].data


# ---------------------------------------------------------------- draws


def test_an_estimate_is_what_the_distribution_gives() -> None:
    """Sectors of 32 lanes that each read a float anywhere: the mean and deviation are known."""
    kernel, signature, constexprs, *_ = CASES["elements of 64 bits, two at a time"]
    result = compiled(kernel, signature, tuple(constexprs.items()), "sm_90")
    n, span = 1 << 19, 8192
    params = [
        LaunchParam(f"p{i}", kind, PLACES * (i + 1))
        for i, kind in enumerate(("*i64", "*fp32", "*fp32"))
    ]
    launch = Launch(
        result.name, (n // 512, 1, 1), (128, 1, 1), (*params, LaunchParam("n", "i32", n))
    )
    traffic = estimate(result, launch, assume={"p0": f"uniform:0:{span}"})
    sectors, warps, lanes = span * 4 // 32, n // 32, 32
    empty = (1 - 1 / sectors) ** lanes
    two_empty = (1 - 2 / sectors) ** lanes
    mean = sectors * (1 - empty)
    variance = sectors * (sectors - 1) * two_empty + sectors * empty - (sectors * empty) ** 2
    gathered = [row for row in traffic.accesses if row.pointer == "x_ptr"]
    found = sum(row.cost or 0 for row in gathered)
    assert sum(row.requests or 0 for row in gathered) == warps
    assert abs(found - warps * mean) < 5 * (warps * variance) ** 0.5
    low, high = traffic.interval["global_load_sectors"]
    counted = traffic.counters["global_load_sectors"]
    assert counted is not None
    assert low < counted < high
    assert high - low < 10 * (warps * variance) ** 0.5
    assert set(traffic.interval) == {"global_load_sectors"}
    assert f"the middle one of {DRAWS} draws" in traffic.assumptions[0]
    again = estimate(result, launch, assume={"p0": f"uniform:0:{span}"})
    other = estimate(result, launch, assume={"p0": f"uniform:0:{span}:77"})
    assert again.to_dict() == traffic.to_dict()
    assert other.counters["global_load_sectors"] != counted


def test_a_recorded_gather_has_the_counters() -> None:
    """Rows of 3072 bytes: any row costs the same, so that the estimate has no deviation."""
    with gzip.open(RECORDS, "rt") as file:
        record = next(r for r in json.load(file) if r["case"] == "gather_rows")
    traffic = estimate(
        parse_ptx(record["ptx"]), Launch.from_record(record),
        cubin=bytes.fromhex(record["cubin"]), assume={"index": "uniform:0:8192"},
    )  # fmt: skip
    measured = record["counters"]
    for what in ("requests", "sectors"):
        counter = measured[f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum"]
        assert traffic.counters[f"global_load_{what}"] == counter
    assert traffic.interval["global_load_sectors"] == (409600, 409600)
    assert traffic.counters["instructions_executed"] == measured["smsp__inst_executed.sum"]


def test_an_embedding_that_torch_wrote_has_the_counters() -> None:
    """Its index is loaded eight times in the PTX and twice in the machine code."""
    if not EMBEDDING.is_file():
        pytest.skip("the recorded launch is not beside this checkout")
    launch = Launch.from_record(EMBEDDING)
    assert launch.ptx is not None
    traffic = estimate(launch.ptx, launch, assume={"in_ptr0": "uniform:0:50000"})
    measured = json.loads(EMBEDDING.read_text("utf-8"))["counters"]
    for what in ("requests", "sectors"):
        counter = measured[f"l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum"]
        assert traffic.counters[f"global_load_{what}"] == counter
    low, high = traffic.interval["global_load_sectors"]
    assert low == high


# ---------------------------------------------------------------- what is not followed


def test_without_an_assumption_it_is_unknown() -> None:
    result, launch, _ = launch_of("elements of 32 bits", "sm_90")
    for given in (None, {"x_ptr": np.zeros(5000, np.float32)}):
        traffic = estimate(result, launch, assume=given)
        assert traffic.counters["global_load_sectors"] is None
        reasons = {u.field: u.reason for u in traffic.unknown}
        assert "depends on data loaded by" in reasons["counters.global_load_sectors"]


def test_data_that_passes_through_shared_memory_is_unknown() -> None:
    result = compiled("sorted_rows", "*i32:16, *fp32:16, *fp32:16", (("BLOCK", 256),), "sm_90")
    params = [
        LaunchParam(f"p{i}", kind, PLACES * (i + 1))
        for i, kind in enumerate(("*i32", "*fp32", "*fp32"))
    ]
    launch = Launch(result.name, (1, 1, 1), (128, 1, 1), tuple(params))
    traffic = estimate(result, launch, assume={"p0": "range"})
    row = next(r for r in traffic.accesses if r.kind == "load" and r.requests is None)
    assert row.reason is not None
    assert "shared" in row.reason or "shfl" in row.reason


def test_an_array_that_the_kernel_writes_is_not_assumed() -> None:
    result = compiled("own", "*i32:16, *fp32:16, *fp32:16", (("BLOCK", 256),), "sm_90")
    params = [
        LaunchParam(f"p{i}", kind, PLACES * (i + 1))
        for i, kind in enumerate(("*i32", "*fp32", "*fp32"))
    ]
    launch = Launch(result.name, (2, 1, 1), (128, 1, 1), tuple(params))
    traffic = estimate(result, launch, assume={"p0": "range"})
    assert traffic.counters["global_load_sectors"] is None
    assert traffic.assumptions[0] == "p0: range is not used: the kernel writes to it"


# ---------------------------------------------------------------- requests that are wrong


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"indexptr": "zero"}, "did you mean index_ptr"),
        ({"n": "zero"}, "n is no pointer"),
        ({"index_ptr": "uniform:5"}, "expected uniform:LO:HI"),
        ({"index_ptr": "uniform:9:5"}, "there is no number"),
        ({"index_ptr": "uniform:a:5"}, "'a' in 'uniform:a:5' is no whole number"),
        ({"index_ptr": "normal:0:1"}, "expected uniform"),
        ({"index_ptr": "const:5000000000"}, "does not fit into i32"),
        ({"x_ptr": "zero"}, "points to fp32"),
        ({"0": "zero", "index_ptr": "zero"}, "said twice"),
    ],
)  # fmt: skip
def test_what_cannot_be_assumed_is_a_usage_error(given: dict[str, str], message: str) -> None:
    result, launch, _ = launch_of("elements of 32 bits", "sm_90")
    with pytest.raises(UsageError, match=message):
        estimate(result, launch, assume=given)


def test_files_say_what_is_wrong_with_them(tmp_path: Path) -> None:
    result, launch, _ = launch_of("elements of 32 bits", "sm_90")
    index = CASES["elements of 32 bits"][4][0]
    files = {
        "short.npy": (index[:900], "900 elements of int32, fewer than the launch reads"),
        "wide.npy": (index.astype(np.int64), "an array of int64, expected the type"),
        "real.npy": (index.astype(np.float32), "an array of float32, expected the type"),
        "words.npy": (np.array(["a"]), "expected whole numbers or floats"),
    }
    for name, (array, message) in files.items():
        np.save(tmp_path / name, array)
        with pytest.raises(InputError, match=message) as caught:
            estimate(result, launch, assume={"index_ptr": str(tmp_path / name)})
        assert caught.value.file == str(tmp_path / name)
    (tmp_path / "text.npy").write_text("1, 2, 3")
    np.savez(tmp_path / "several.npy.npz", index)
    for name, message in (
        ("text.npy", "not an .npy file"),
        ("none.npy", "No such file"),
        ("several.npy.npz", "an .npz archive"),
    ):
        with pytest.raises(InputError, match=message):
            estimate(result, launch, assume={"index_ptr": str(tmp_path / name)})
    np.save(tmp_path / "good.npy", index)
    from_file = estimate(result, launch, assume={"index_ptr": str(tmp_path / "good.npy")})
    handed = estimate(result, launch, assume={"index_ptr": index})
    assert from_file.counters == handed.counters
    with pytest.raises(UsageError, match="fewer than the launch reads"):
        estimate(result, launch, assume={"index_ptr": index[:999]})


def test_the_command_line(tmp_path: Path) -> None:
    target = str(ROOT / "samples" / "gather.py") + ":gather_kernel"
    settings = ["--set", "rows=2048", "--format", "json"]

    def traffic(*given: str) -> tuple[int, dict[str, Any], str]:
        result = CliRunner().invoke(cli, ["traffic", target, *settings, *given])
        return result.exit_code, json.loads(result.stdout or "{}"), result.stderr

    index = random(np.int64, 0, 50000, 2048)
    np.save(tmp_path / "index.npy", index)
    code, exact, _ = traffic("--assume", f"index_ptr={tmp_path / 'index.npy'}")
    assert code == 0
    starts = index * 1200
    by_hand = sum(
        len({(start + 4 * col) // 32 for col in range(warp, min(warp + 32, 300))})
        for start in starts.tolist()
        for warp in range(0, 300, 32)
    )
    assert exact["counters"]["global_load_sectors"] == by_hand + 4 * 2048  # and the index
    assert exact["interval"] == {}
    code, drawn, _ = traffic("--assume", "index_ptr=uniform:0:50000")
    assert code == 0
    assert list(drawn["interval"]) == ["global_load_sectors"]
    assert traffic("--assume", "index=zero")[0] == 2
    assert traffic("--assume", "index_ptr")[0] == 2
    code, _, message = traffic("--assume", f"index_ptr={tmp_path / 'no.npy'}")
    assert code == 3
    assert "no.npy" in message


@pytest.mark.parametrize("case", CASES)
def test_a_launch_in_parts_is_counted_alike(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result, launch, _ = launch_of(case, "sm_90")
    values, assumed = CASES[case][4:]
    given = {str(i): values[i] for i in assumed}
    whole = estimate(result, launch, assume=given)
    monkeypatch.setattr(ptx_launch, "_PART_THREADS", 256)
    cut = estimate(result, launch, assume=given)
    assert cut.accesses == whole.accesses
    assert cut.counters == whole.counters
    assert cut.compulsory == whole.compulsory
