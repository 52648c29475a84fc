"""Occupancy against NVIDIA's header, recorded counters and examples of lectures."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path
from types import ModuleType

import pytest

import kanalyze
from kanalyze.devices.table import Capability, capabilities, capability, device
from kanalyze.errors import UsageError
from kanalyze.models.occupancy import Occupancy, occupancy

HERE = Path(__file__).parents[1]
DATA = HERE / "data" / "occupancy"
SHARED = HERE.parents[1] / "shared"
ARCHITECTURES = sorted(path.name.removesuffix(".csv.gz") for path in DATA.glob("*.csv.gz"))
NONE = 2**31 - 1
FACTORS = {1: "warps", 2: "registers", 4: "shared memory", 8: "blocks", 16: "barriers"}
RESOURCES = ("registers", "shared memory", "warps", "blocks", "barriers")
INCLUDES = (
    "/usr/local/cuda/include",
    "/usr/local/cuda-13.0/include",
    "/usr/local/cuda-12/include",
)


def table(arch: str) -> list[dict[str, int]]:
    text = gzip.decompress((DATA / f"{arch}.csv.gz").read_bytes()).decode("ascii")
    return [{k: int(v) for k, v in row.items()} for row in csv.DictReader(io.StringIO(text))]


def check(cap: Capability, row: dict[str, int]) -> None:
    """One answer of NVIDIA's header."""
    percent = row["carveout_percent"]
    config = None if percent < 0 else percent * cap.shared_per_sm_bytes // 100
    arguments = {
        "threads": row["threads"],
        "registers": row["registers"],
        "shared_bytes": row["shared_bytes"],
        "shared_config_bytes": config,
        "barriers": row["barriers"],
        "capability": cap,
    }
    if row["blocks"] == 0:
        with pytest.raises(UsageError):
            occupancy(**arguments)
        return
    got = occupancy(**arguments)
    assert got.blocks_per_sm == row["blocks"], row
    keys = ("limit_registers", "limit_shared", "limit_warps", "limit_blocks", "limit_barriers")
    for resource, key in zip(RESOURCES, keys, strict=True):
        assert got.limits.get(resource) == (None if row[key] == NONE else row[key]), (resource, row)
    assert got.shared_allocated_bytes == row["allocated_shared_bytes"]
    factors = {name for bit, name in FACTORS.items() if row["factors"] & bit}
    if "barriers" in factors:  # the header does not take back what was the least without them
        factors = {name for name in factors if got.limits[name] == row["blocks"]}
    assert set(got.limiters) == factors


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_equal_to_nvidias_header(arch: str) -> None:
    rows = table(arch)
    launchable = sum(row["blocks"] > 0 for row in rows)
    assert launchable >= 1000
    assert len(rows) - launchable >= 50, "impossible ones are in the table, too"
    for row in rows:
        check(capability(arch), row)


def test_every_architecture_has_a_table() -> None:
    assert set(ARCHITECTURES) == set(capabilities())


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("occupancy_generate", DATA / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_header_itself_where_it_is_installed(tmp_path: Path) -> None:
    include = next((i for i in INCLUDES if (Path(i) / "cuda_occupancy.h").is_file()), None)
    if include is None or shutil.which("cc") is None:
        pytest.skip("needs cuda_occupancy.h and a C compiler; the recorded tables are tested")
    generate = generator()
    program = generate.build(include, str(tmp_path))
    columns = generate.COLUMNS.split(",")
    for arch in ARCHITECTURES:
        rng = random.Random(f"fresh {arch}")
        cap = capability(arch)
        cases = [generate.configuration(rng, cap.shared_per_block_bytes) for _ in range(300)]
        for case, answer in zip(cases, generate.ask(program, arch, cases), strict=True):
            values = [*case, *map(int, answer)]
            check(cap, dict(zip(columns, values, strict=True)))


def records() -> list[Path]:
    return sorted((SHARED / "measured" / "h200").glob("*.json"))


def test_equal_to_the_counters_of_an_h200() -> None:
    if not records():
        pytest.skip("no records beside the repository (../shared/measured)")
    for path in records():
        record = json.loads(path.read_text("utf-8"))
        counters = record["counters"]
        x, y, z = record["block"]
        arguments = {
            "threads": x * y * z,
            "registers": counters["launch__registers_per_thread"],
            "shared_bytes": record["shared_bytes"],
            "device": record["device"],
        }
        config = counters["launch__shared_mem_config_size"]
        got = occupancy(**arguments, shared_config_bytes=config)
        for resource, name in (
            ("registers", "registers"),
            ("shared memory", "shared_mem"),
            ("warps", "warps"),
            ("blocks", "blocks"),
        ):
            limit = counters[f"launch__occupancy_limit_{name}"]
            assert got.limits[resource] == limit, (path.name, resource)
        assert got.percent == counters["sm__maximum_warps_per_active_cycle_pct"], path.name
        allocated = counters["launch__shared_mem_per_block_allocated"]
        assert got.shared_allocated_bytes == allocated, path.name
        assert got.shared_config_bytes == config, path.name
        least = min(
            counters[f"launch__occupancy_limit_{n}"]
            for n in ("registers", "shared_mem", "warps", "blocks")
        )
        assert got.blocks_per_sm == least, path.name
        assert occupancy(**arguments).blocks_per_sm == least, (path.name, "default carve-out")


# --- examples ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["B200", "H100 SXM", "A100 80GB SXM"])
def test_the_lectures_example(name: str) -> None:
    got = occupancy(threads=128, registers=160, device=name)
    assert (got.blocks_per_sm, got.warps_per_sm, got.percent) == (3, 12, 18.75)
    assert got.limited_by == "registers"
    assert got.next_cliff == "32 registers fewer per thread (128): one block more per SM (25 %)"


SHARED_LIMITS = {
    "sm_75": 65536,
    "sm_80": 166912,
    "sm_86": 101376,
    "sm_89": 101376,
    "sm_90": 232448,
    "sm_120": 101376,
}  # triton-lang/triton#8182, vllm-project/vllm#12498, #36802: "Hardware limit"


@pytest.mark.parametrize(("arch", "limit"), SHARED_LIMITS.items())
def test_shared_memory_per_block(arch: str, limit: int) -> None:
    assert capability(arch).shared_per_block_bytes == limit
    occupancy(threads=128, registers=32, shared_bytes=limit, capability=arch)
    with pytest.raises(UsageError, match=f"at most {limit} B"):
        occupancy(threads=128, registers=32, shared_bytes=limit + 1, capability=arch)


# CUDA C++ Programming Guide, "Shared Memory" of each compute capability: what an SM can be set to.
KIB = {
    "7.0": (0, 8, 16, 32, 64, 96),
    "7.5": (32, 64),
    "8.0 8.7": (0, 8, 16, 32, 64, 100, 132, 164),
    "8.6 8.8 8.9 12.0 12.1": (0, 8, 16, 32, 64, 100),
    "9.0 10.0 10.3 11.0": (0, 8, 16, 32, 64, 100, 132, 164, 196, 228),
}
CARVEOUTS = {f"sm_{v.replace('.', '')}": kib for many, kib in KIB.items() for v in many.split()}


@pytest.mark.parametrize(("arch", "sizes"), CARVEOUTS.items())
def test_the_carve_out_is_the_least_that_holds_what_is_asked_for(
    arch: str, sizes: tuple[int, ...]
) -> None:
    assert set(CARVEOUTS) == set(capabilities())

    def chosen(size: int) -> int:
        got = occupancy(threads=32, registers=8, capability=arch, shared_config_bytes=size)
        return got.shared_config_bytes

    assert [chosen(size * 1024) for size in sizes[1:]] == [size * 1024 for size in sizes[1:]]
    for less, size in pairwise(sizes):
        assert chosen(less * 1024 + 1) == chosen(size * 1024 - 1) == size * 1024


def test_question_on_shared_memory() -> None:
    path = SHARED / "questions" / "06_out_of_shared_memory" / "expected.json"
    if not path.is_file():
        pytest.skip("no questions beside the repository (../shared/questions)")
    expected = json.loads(path.read_text("utf-8"))
    cases = [case for case in expected.values() if isinstance(case, dict) and "fits" in case]
    assert len(cases) >= 5
    for case in cases:
        for arch, fits in case["fits"].items():
            if arch not in capabilities():
                continue
            size = case["shared_bytes"]
            assert (size <= capability(arch).shared_per_block_bytes) is fits


def test_clusters_are_noted_not_modelled() -> None:
    got = occupancy(threads=256, registers=64, device="H200", cluster=4)
    assert "clusters of 4" in got.notes[0]
    assert occupancy(threads=256, registers=64, device="H200", cluster=1).notes == ()


# --- cliffs --------------------------------------------------------------------------------------


def brute(got: Occupancy, resource: str, value: int) -> int | None:
    """Blocks per SM by the formula written down once more; None: it cannot be launched."""
    cap = capability(got.architecture)
    registers, shared = got.registers, got.shared_bytes
    if resource == "registers":
        registers = value
    else:
        shared = value
    warps = -(-got.threads // 32)
    per_warp = -(-registers // 8) * 256
    if registers > 255 or per_warp * (-(-warps // 4) * 4) > 65536:
        return None
    if shared > cap.shared_per_block_bytes:
        return None
    unit, reserved = (256, 0) if int(cap.name[3:]) < 80 else (128, 1024)
    taken = -(-(shared + reserved) // unit) * unit
    return min(
        65536 // 4 // per_warp * 4 // warps,
        cap.shared_per_sm_bytes // taken if taken else 99,
        cap.max_warps_per_sm // warps,
        cap.max_blocks_per_sm,
    )


CASES = [
    ("sm_100", 128, 160, 0),
    ("sm_90", 256, 112, 98304),
    ("sm_90", 128, 72, 49152),
    ("sm_75", 96, 40, 5000),
    ("sm_86", 200, 50, 16385),
    ("sm_89", 64, 24, 100),
    ("sm_80", 1024, 64, 0),
    ("sm_120", 32, 16, 1),
]


@pytest.mark.parametrize(("arch", "threads", "registers", "shared"), CASES)
def test_a_cliff_is_the_nearest_one(arch: str, threads: int, registers: int, shared: int) -> None:
    got = occupancy(threads=threads, registers=registers, shared_bytes=shared, capability=arch)
    for resource, now in (("registers", registers), ("shared memory", shared)):
        for side, sign in ((got.better, -1), (got.worse, 1)):
            found = [c for c in side if c.resource == resource]
            at = None
            value = now + sign
            while value >= (resource == "registers"):
                blocks = brute(got, resource, value)
                if blocks is None:
                    break
                if (blocks - got.blocks_per_sm) * -sign > 0:
                    at = value
                    break
                value += sign
            assert [c.value for c in found] == ([] if at is None else [at]), (resource, sign)
    for cliff in (*got.better, *got.worse):
        keys = {"shared memory": "shared_bytes"}
        arguments = {"threads": threads, "registers": registers, "shared_bytes": shared}
        arguments[keys.get(cliff.resource, cliff.resource)] = cliff.value
        other = occupancy(**arguments, capability=arch)
        assert (cliff.blocks_per_sm, cliff.warps_per_sm, cliff.percent) == (
            other.blocks_per_sm,
            other.warps_per_sm,
            other.percent,
        )
        assert str(cliff.value) in cliff.text
    for cliff in got.better:
        assert cliff.warps_per_sm > got.warps_per_sm


def test_no_single_change_helps() -> None:
    got = occupancy(threads=256, registers=112, shared_bytes=98304, device="H200")
    assert got.limited_by == "registers and shared memory"
    assert not [c for c in got.better if c.resource != "threads"]
    full = occupancy(threads=256, registers=32, device="H200")
    assert full.percent == 100.0
    assert full.next_cliff == "none: every warp slot is taken"


def test_the_public_function_is_this_one() -> None:
    assert kanalyze.occupancy is occupancy
    assert kanalyze.device("H200") is device("NVIDIA H200")


# --- errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"threads": 0}, "a block has at least one"),
        ({"threads": 1025}, "1025 threads: a block on NVIDIA H200 has at most 1024"),
        ({"registers": 256}, "256 registers: a thread on NVIDIA H200 has at most 255"),
        ({"registers": -1}, "-1 registers"),
        (
            {"threads": 1024, "registers": 65},
            "1024 threads with 65 registers each take 73728 registers as they are allocated: "
            "a block on NVIDIA H200 has at most 65536",
        ),
        ({"shared_bytes": -1}, "-1 B of shared memory"),
        ({"shared_bytes": 232449}, "a block on NVIDIA H200 has at most 232448 B"),
        ({"shared_config_bytes": 233473}, "a carve-out of 233473 B: NVIDIA H200 has 0, 8192"),
        ({"barriers": 17}, "17 barriers: a block has at most 16"),
        ({"cluster": 17}, "a cluster of 17 blocks"),
        ({"cluster": 2, "device": "A100 40GB SXM"}, "has no clusters"),
        ({"device": "H201"}, "unknown device 'H201'"),
        ({"device": None}, "a device or a compute capability is needed"),
        ({"capability": "sm_80"}, "NVIDIA H200 is sm_90, not sm_80"),
        ({"device": None, "capability": "sm_1"}, "no limits are known for the architecture"),
    ],
)
def test_what_cannot_be_launched(change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"threads": 128, "registers": 32, "device": "H200"}
    with pytest.raises(UsageError) as caught:
        occupancy(**{**arguments, **change})  # type: ignore[arg-type]
    assert message in str(caught.value)
