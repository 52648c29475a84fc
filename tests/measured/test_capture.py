"""Launches that are recorded where there is no GPU, and arrays beside records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import triton
import triton.language as tl

from kanalyze import InputError, Launch, capture, estimate, read_records, schemas
from kanalyze.measured.records.writer import pack

ROOT = Path(__file__).parents[2]
N, SEED = 1000, 3
pytestmark = pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")


@triton.autotune([triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 64})], ["n"])
@triton.jit
def gather(x, index, out, n, step, scale, BIAS: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i = tl.load(index + at * step, at < n, 0)
    value = tl.load(x + i) * scale
    if BIAS is not None:
        value += BIAS
    tl.store(out + at, value, at < n)


def launched(torch: Any) -> Any:
    """A wrapper as public ones are, with a backward pass that launches, too."""

    class Gather(torch.autograd.Function):  # type: ignore[misc]
        @staticmethod
        def forward(context: Any, x: Any, index: Any, scale: float) -> Any:
            context.save_for_backward(x, index)
            out = torch.empty(N, dtype=x.dtype, device=x.device)
            grid = lambda chosen: (triton.cdiv(N, chosen["BLOCK"]),)  # noqa: E731
            gather[grid](x, index, out, N, 1, scale, None)
            return out

        @staticmethod
        def backward(context: Any, gradient: Any) -> Any:
            x, index = context.saved_tensors
            assert x.is_cuda
            assert gradient.device == torch.device("cuda", 0)
            made = torch.empty_like(x)
            sms = torch.cuda.get_device_properties(x.device).multi_processor_count
            gather[(sms,)](x, index, made, N, 1, 0.5, None)
            return made, None, None

    return Gather


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a wrapper that was called three times, twice alike."""
    torch = pytest.importorskip("torch")
    made = tmp_path_factory.mktemp("captured") / "made" / "here"
    function = launched(torch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        with capture(made, fake=True) as records:
            index = torch.from_numpy(np.random.default_rng(SEED).integers(0, N, N + 8, np.int32))
            x = torch.randn(N + 1, dtype=torch.float16, device="cuda", requires_grad=True)
            for scale in (0.5, 0.25, 0.25):
                out = function.apply(x[1:], index.cuda()[8:], scale)
            out.sum().backward()
    assert not torch.cuda.is_available() or torch.cuda.get_device_name() != "NVIDIA H200"
    assert [path.name.partition(".")[0] for path in records] == ["gather"] * 3
    return made


def data_of(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


@pytest.mark.slow("compiles a kernel, with PyTorch")
def test_a_wrapper_without_a_gpu_gives_its_launches(folder: Path) -> None:
    forward = [data for data in data_of(folder) if data["grid"] == [8, 1, 1]]
    backward = [data for data in data_of(folder) if data["grid"] != [8, 1, 1]]
    assert sorted(data["params"][4]["value"] for data in forward) == [0.25, 0.5]
    assert [data["grid"] for data in backward] == [[132, 1, 1]]
    one = forward[0]
    types = {"x": "*fp16", "index": "*i32", "out": "*fp16", "n": "i32", "scale": "fp32"}
    assert {p["name"]: p["type"] for p in one["params"]} == types
    assert one["constexprs"] == {"step": 1, "BIAS": None, "BLOCK": 128}
    assert (one["block"], one["num_warps"], one["device"]) == ([64, 1, 1], 2, "NVIDIA H200")
    x, index, out = one["params"][:3]
    assert (x["address"] % 512, x["bytes"], x["shape"], x["strides"]) == (2, 2 * N, [N], [1])
    assert len({p["address"] // 512 for p in (x, index, out)}) == 3
    assert one["assumed"] == [
        "configuration: the first of 2 that fit, without a GPU to try them",
        "addresses: invented, aligned as PyTorch aligns them",
    ]


@pytest.mark.slow("compiles a kernel, with PyTorch")
def test_what_was_recorded_is_what_check_and_traffic_read(folder: Path, tmp_path: Path) -> None:
    records, skipped = read_records(str(folder))
    assert (len(records), skipped) == (3, [])
    index = np.random.default_rng(SEED).integers(0, N, N + 8, np.int32)[8:]
    (written_to,) = (r for r in records if r.launch.grid[0] != 8)
    assert written_to.arrays == {}  # by the first launch, for all that is known
    first = next(r for r in records if r.launch.grid[0] == 8)
    assert first.arrays["1"].data is not None
    assert np.array_equal(first.arrays["1"].data[: 4 * N].view(np.int32), index)
    launch = Launch.from_record(first.file)
    assert launch.ptx is not None
    known = estimate(launch.ptx, launch, simulate=False, findings=False)
    # by hand: a thread has two neighbours and loads them one by one (n is not known to be even), so
    # a request has every other one of 64; behind the end all read x[0]; x is 2 bytes off
    places = (2 + 2 * np.pad(index, (0, 24)).astype(np.int64)) // 32
    requests = places.reshape(16, 32, 2).transpose(0, 2, 1).reshape(32, 32)
    sectors = sum(len(set(request)) for request in requests)
    assert known.counters["global_load_sectors"] == sectors + 2 * (4 * N // 32)
    assert "addresses: invented, aligned as PyTorch aligns them" in known.assumptions
    other = estimate(launch.ptx, launch, assume={"index": "zero"}, simulate=False, findings=False)
    assert other.counters["global_load_sectors"] != known.counters["global_load_sectors"]
    assert pack(folder, tmp_path / "all.tar.xz") == 3
    packed, skipped = read_records(str(tmp_path / "all.tar.xz"))
    assert ([set(r.arrays) for r in packed], skipped) == ([set(r.arrays) for r in records], [])


@pytest.mark.slow("compiles a kernel, with PyTorch")
@pytest.mark.parametrize(
    ("name", "whole", "text"),
    [
        ("gone.npy", False, "there is no gone.npy beside it"),
        ("text.npy", False, "not an .npy file"),
        ("../text.npy", True, "expected the name of an .npy file"),
    ],
)
def test_an_array_that_cannot_be_read_is_said(
    folder: Path, tmp_path: Path, name: str, whole: bool, text: str
) -> None:
    one = next(iter(folder.glob("*.json")))
    data = json.loads(one.read_text())
    data["params"][1]["array"] = name
    (tmp_path / "r.json").write_text(json.dumps(data))
    (tmp_path / "text.npy").write_text("no array")
    shutil.copy(one.with_suffix(".ptx"), tmp_path / "r.ptx")
    records, (fault,) = read_records(str(tmp_path))
    assert (fault.whole, len(records)) == (whole, 0 if whole else 1)
    assert text in fault.reason
    with pytest.raises(InputError):
        Launch.from_record(tmp_path / "r.json")


PROGRAM = """
import sys
import triton
import triton.language as tl
assert "torch" not in sys.modules

class Array:
    dtype = "float32"
    def data_ptr(self):
        return 4096

@triton.jit
def fill(out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + at, 1.0, at < n)

for n in range(100, 112):
    fill[(2, 3)](Array(), n, 64)
fill[(0,)](Array(), 100, 64)
sys.exit(int(sys.argv[1]))
"""


@pytest.mark.slow("starts Python twice and compiles a kernel")
def test_the_command_records_a_program_and_ends_as_it_does(
    tmp_path: Path, process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    done = process(
        "capture", "--fake", "--arch", "sm_100", "-o", str(tmp_path / "made"), "--format", "json",
        "--", sys.executable, str(tmp_path / "program.py"), "7",
        env={"TRITON_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.returncode == 7, done.stderr
    said = json.loads(done.stdout)
    jsonschema.validate(said, schemas.load("capture"))
    assert (len(said["records"]), said["skipped"], said["exit_code"]) == (8, [], 7)
    assert said["left_out"] == 4  # no size is divisible by 16, so all are of one kernel
    data = json.loads(Path(said["records"][0]).read_text())
    assert (data["grid"], data["arch"], data["constexprs"]) == ([2, 3, 1], "sm_100", {"BLOCK": 64})


def test_a_program_without_launches_or_that_is_not_there(
    tmp_path: Path, process: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = process(
        "capture", "-o", str(tmp_path), "--", sys.executable, "-c", "raise SystemExit(5)"
    )
    assert (done.returncode, done.stdout) == (5, "")
    assert "no Triton launch was seen" in done.stderr
    gone = process("capture", "-o", str(tmp_path), "--", str(tmp_path / "gone"))
    assert gone.returncode == 4
    assert "No such file" in gone.stderr
