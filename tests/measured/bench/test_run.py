"""A benchmark from its cases to its records, on the CPU, with stand-ins for the GPU and ncu.

The stand-in for a launch reads and writes the memory that the kernel's arguments point to, so that
a wrong address, size or order of arguments gives a wrong result.
"""

from __future__ import annotations

import ctypes
import json
import math
import stat
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kanalyze.measured.bench import build, cases, event_times, gpu, metrics, nsight, run  # noqa: E402
from kanalyze.measured.records.reader import read_records  # noqa: E402

pytestmark = [
    pytest.mark.slow("runs whole commands"),
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch._inductor's own imports
]
DEVICE = "NVIDIA H200"
TYPES = {"fp32": torch.float32, "fp16": torch.float16}

FAKE_NCU = '''\
#!{python}
"""Stands in for ncu: counts as many kernels in each range as the file beside it says."""
import json, sys
from pathlib import Path
words = sys.argv[1:]
if words == ["--version"]:
    print("NVIDIA (R) Nsight Compute\\nVersion 2025.3.1.0 (build 1)")
    sys.exit()
mode = Path(__file__).with_name("mode").read_text().split()
log = Path(words[words.index("--log-file") + 1])
names = words[words.index("--metrics") + 1].split(",")
ranges = json.loads(Path(words[-1]).read_text())["ranges"]
if "refuse" in mode:
    log.write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission\\n")
    sys.exit(1)
if "old" in mode and "lrc__xbar2lrc_requests.sum" in names:
    log.write_text("==ERROR== Failed to find metric lrc__xbar2lrc_requests.sum\\n")
    sys.exit(1)
domain = "thread Domain:Push/Pop_Range:PL_Type:PL_Value:CLR_Type:Color:Msg_Type:Msg"
rows = [["ID", domain, "Kernel Name", *names], ["", "", "", *("" for _ in names)]]
for index, one in enumerate(ranges):
    print(f"kanalyze-launch-{{index}} begins", flush=True)
    for _ in range(3 if one.get("provider") == "naive" else 1):
        kernel = one.get("kernel", "at::native::something") + "(float *)"
        values = ["n/a" if n == "dram__bytes_read.sum" else "50" if "pct" in n else "1,024"
                  for n in names]
        where = f"9 <default domain>:kanalyze-launch-{{index}}:none"
        rows.append([str(len(rows)), where, kernel, *values])
text = "\\n".join(",".join('"' + cell + '"' for cell in row) for row in rows)
log.write_text("==PROF== Connected\\n" + text + "\\n")
'''


class OnTheCpu:
    """PyTorch with the CPU in place of the GPU."""

    cuda = SimpleNamespace(
        synchronize=lambda: None,
        empty_cache=lambda: None,
        current_stream=lambda: SimpleNamespace(cuda_stream=0),
    )

    def __getattr__(self, name: str) -> Any:
        value = getattr(torch, name)
        if name not in ("randn", "full", "zeros", "empty"):
            return value
        return lambda *args, **options: value(*args, **{**options, "device": "cpu"})


def at(address: int, param: build.BenchParam) -> Any:
    """The memory of a pointer argument as a tensor."""
    raw = (ctypes.c_char * param.bytes).from_address(address)
    return torch.frombuffer(raw, dtype=TYPES[param.element]).reshape(param.dims)


class Launches:
    """Launches by the reference; ``spoil`` changes the outputs, ``stop_at`` interrupts."""

    def __init__(self, found: list[cases.BenchCase]):
        self.targets = {case.target.file.function: case for case in found}
        self.count = 0
        self.spoil: Callable[[Any], None] = lambda out: None
        self.stop_at: int | None = None
        self.fail: set[str] = set()

    def launcher(
        self, _: object, built: build.Launchable, addresses: list[int | None], stream: int
    ) -> tuple[Any, Callable[[], None]]:
        case = self.targets[built.kernel]
        memory = {
            p.name: at(address, p)
            for p, address in zip(built.params, addresses, strict=True)
            if address is not None
        }

        def go() -> None:
            self.count += 1
            if self.stop_at == self.count:
                raise KeyboardInterrupt
            if case.target.name in self.fail:
                raise RuntimeError("the launch is refused\nand more")
            wide = {n: t.double() for n, t in memory.items()}
            for name, value in case.target.module.reference(wide, case.plan.shape).items():
                memory[name].copy_(value)
                self.spoil(memory[name])

        return SimpleNamespace(close=lambda: None), go


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[cases.BenchCase]]:
    """Two kernels' launches; what surrounds them replaced."""
    listed = cases.expand(
        [
            cases.BenchRequest(("gelu",), ("fp32",), values={"n": (5000,)}),
            cases.BenchRequest(("row_sum",), ("fp16",), values={"M": (33,), "N": (70,)}),
            cases.BenchRequest(("gelu",), ("fp32",), values={"n": (5000,), "BLOCK_SIZE": (256,)}),
        ]
    )
    torch.compiler.set_stance("force_eager")

    @contextmanager
    def compiling(
        wanted: list[cases.BenchCase], arch: str, device: str
    ) -> Iterator[list[Future[build.Launchable | build.NotBuilt]]]:
        futures: list[Future[build.Launchable | build.NotBuilt]] = []
        for case in wanted:
            futures.append(Future())
            built = build.build(
                case.target.text, case.plan.dtype, dict(case.settings), arch, device
            )
            futures[-1].set_result(built)
        yield futures

    class Stopwatch:
        def __init__(self, _: object) -> None:
            pass

        def measure(
            self, go: Callable[[], Any]
        ) -> tuple[event_times.LaunchTimes, event_times.LaunchTimes]:
            go()
            return event_times.LaunchTimes(0.03, 0.029, 0.031, 20), event_times.LaunchTimes(
                0.02, 0.019, 0.021, 20
            )

    monkeypatch.setattr(run, "_compiling", compiling)
    monkeypatch.setattr(run.event_times, "Stopwatch", Stopwatch)
    monkeypatch.setattr(run.driver, "Driver", lambda: None)
    monkeypatch.setattr(
        run.rivals, "launched_kernels", lambda _, go: {"some_kernel": 3, "other_kernel": 1}
    )
    monkeypatch.setattr(run.nsight, "find_ncu", lambda: None)
    yield listed
    torch.compiler.set_stance("default")


@pytest.fixture
def launches(found: list[cases.BenchCase], monkeypatch: pytest.MonkeyPatch) -> Launches:
    made = Launches(found)
    monkeypatch.setattr(run.driver, "launcher", made.launcher)
    return made


@pytest.fixture
def ncu(found: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    path = tmp_path / "bin" / "ncu"
    path.parent.mkdir()
    path.write_text(FAKE_NCU.format(python=sys.executable))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setattr(run.nsight, "find_ncu", lambda: str(path))
    return lambda mode: path.with_name("mode").write_text(mode) and None


def go(found: list[cases.BenchCase], folder: Path, **options: Any) -> run.BenchResult:
    machine = gpu.LocalGpu(DEVICE, 90, {"torch": "2.11.0"}, OnTheCpu())
    return run.run(found, run.Options(folder, **options), machine, lambda *_: None)


def statuses(result: run.BenchResult) -> list[str]:
    return [outcome.status for outcome in result.outcomes]


def test_records_are_written_and_read_back(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    folder = tmp_path / "out"
    result = go(found, folder)
    assert statuses(result) == ["measured"] * 3
    records, skipped = read_records(str(folder))
    assert skipped == []
    assert {r.case for r in records} == {case.name for case in found}
    for record in records:
        data = record.data
        assert data["relative_norm"] <= data["relative_norm_bound"]
        assert data["time_ms"] == {"median": 0.03, "p20": 0.029, "p80": 0.031}
        assert data["counters"] is None
        assert {"field": "counters", "reason": "Nsight Compute (ncu) is not installed"} in (
            data["unknown"]
        )
        assert record.cubin is not None
        assert str(Path.cwd()) not in record.ptx
        pointers = [p for p in data["params"] if p["type"].startswith("*")]
        assert all(p["address"] > 0 for p in pointers)
        assert [p["name"] for p in data["params"]] == [p.name for p in record.launch.params]


def test_rivals_are_measured_once_for_each_shape(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    result = go(found, tmp_path)
    listed = [
        [r["provider"] for r in outcome.data["rivals"]] if outcome.data else None
        for outcome in result.outcomes
    ]
    assert listed == [["naive", "F.gelu", "torch.compile"], ["x.sum(-1)", "torch.compile"], []]
    first = result.outcomes[0].data
    assert first is not None
    assert [r["launches"] for r in first["rivals"]] == [4, 4, 4]
    assert all(r["relative_norm"] < 1e-6 and r["error"] is None for r in first["rivals"])
    assert statuses(go(found, tmp_path / "more", rivals=False)) == ["measured"] * 3


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: out.view(-1)[-1].fill_(math.nan),  # an element that stayed poisoned
        lambda out: out.mul_(1 + 1e-4),
        lambda out: out.copy_(out.flip(0)),
    ],
)
def test_a_wrong_result_is_told(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path, spoil: Callable[[Any], None]
) -> None:
    launches.spoil = spoil
    result = go(found[:2], tmp_path, rivals=False)
    assert statuses(result) == ["wrong", "wrong"]
    reason = result.outcomes[0].reason
    assert reason is not None
    assert reason.startswith("relative norm ")


def test_one_launch_that_fails_does_not_hide_the_others(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    launches.fail = {"gelu"}
    result = go(found, tmp_path)
    assert statuses(result) == ["failed", "measured", "failed"]
    assert result.outcomes[0].reason == "the launch is refused"


def test_an_interrupt_keeps_what_is_finished_and_the_next_run_goes_on(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    launches.stop_at = 3  # the check of the second launch; the first takes one check, one time
    result = go(found, tmp_path, rivals=False)
    assert result.interrupted
    assert statuses(result) == ["measured", "left", "left"]
    assert len(list(tmp_path.glob("*.json"))) == 1
    launches.stop_at = None
    again = go(found, tmp_path, rivals=False, resume=True)
    assert statuses(again) == ["kept", "measured", "measured"]
    assert not again.interrupted
    assert again.outcomes[0].data == result.outcomes[0].data


def test_time_that_is_over(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    result = go(found, tmp_path, seconds=0.0)
    assert result.out_of_time
    assert statuses(result) == ["left"] * 3


def test_a_configuration_that_does_not_fit_is_skipped(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    large = cases.expand(
        [cases.BenchRequest(("matmul_relu",), ("fp32",), values={"num_stages": (9,), "M": (512,)})]
    )
    result = go([*large, found[0]], tmp_path, rivals=False)
    assert statuses(result) == ["skipped", "measured"]
    assert str(result.outcomes[0].reason).startswith(
        "out of resource: shared memory: a block needs"
    )


# --- counters ------------------------------------------------------------------------------------


def test_counters_of_kernels_and_of_rivals(
    found: list[cases.BenchCase], launches: Launches, ncu: Callable[[str], None], tmp_path: Path
) -> None:
    ncu("")
    result = go(found, tmp_path / "out")
    records, skipped = read_records(str(tmp_path / "out"))
    assert skipped == []
    assert len(records) == 3
    names = metrics.metrics(90)
    for record in records:
        assert set(record.data["counters"]) == set(names)
        assert record.data["counters"]["smsp__inst_executed.sum"] == 1024
        assert record.data["counters"]["dram__bytes_read.sum"] is None
        assert record.data["ncu"] == "2025.3.1.0"
        unknown = {entry["field"] for entry in record.data["unknown"]}
        assert "counters.dram__bytes_read.sum" in unknown
    first = result.outcomes[0].data
    assert first is not None
    naive, built_in, _ = first["rivals"]
    assert naive["counters"]["smsp__inst_executed.sum"] == 3 * 1024
    assert naive["counters"]["dram__bytes_read.sum"] is None
    assert naive["counters"]["launch__registers_per_thread"] is None  # no sum
    assert built_in["counters"]["launch__registers_per_thread"] == 1024


def test_counters_that_are_not_permitted(
    found: list[cases.BenchCase], launches: Launches, ncu: Callable[[str], None], tmp_path: Path
) -> None:
    ncu("refuse")
    result = go(found, tmp_path / "out", rivals=False)
    assert statuses(result) == ["measured"] * 3
    assert result.notes == [f"no counters: {nsight.NOT_PERMITTED}"]
    data = result.outcomes[0].data
    assert data is not None
    assert data["counters"] is None
    assert {"field": "counters", "reason": nsight.NOT_PERMITTED} in data["unknown"]


def test_an_ncu_that_does_not_know_a_metric(
    found: list[cases.BenchCase], launches: Launches, ncu: Callable[[str], None], tmp_path: Path
) -> None:
    ncu("old")
    result = go(found[:1], tmp_path / "out", rivals=False)
    data = result.outcomes[0].data
    assert data is not None
    assert "lrc__xbar2lrc_requests.sum" not in data["counters"]
    assert data["counters"]["smsp__inst_executed.sum"] == 1024
    assert result.notes == [
        "this Nsight Compute does not know 1 metric: lrc__xbar2lrc_requests.sum"
    ]


def test_resuming_takes_up_launches_without_counters(
    found: list[cases.BenchCase], launches: Launches, ncu: Callable[[str], None], tmp_path: Path
) -> None:
    ncu("refuse")
    go(found, tmp_path / "out", rivals=False)
    ncu("")
    assert statuses(go(found, tmp_path / "out", rivals=False, resume=True)) == ["measured"] * 3
    assert statuses(go(found, tmp_path / "out", rivals=False, resume=True)) == ["kept"] * 3
    assert (
        statuses(go(found, tmp_path / "out", rivals=False, resume=True, counters=False))
        == ["kept"] * 3
    )


def test_a_recorded_output_of_ncu() -> None:
    """From one H200: torch's x + 1 of 1000 elements, in the NVTX range kanalyze-launch-7."""
    text = (Path(__file__).parents[2] / "data" / "bench" / "ncu_nvtx.csv").read_text()
    wanted = [
        "dram__bytes_read.sum",
        "smsp__inst_executed.sum",
        "launch__registers_per_thread",
        "x",
    ]
    ((index, counted),) = nsight.parse(text.splitlines(), wanted).items()
    assert index == 7
    ((name, values),) = counted.kernels
    assert name.startswith("void vectorized_elementwise_kernel<4, CUDAFunctorOnSelf_add<float>")
    assert values == {
        "dram__bytes_read.sum": 9472,
        "smsp__inst_executed.sum": 532,
        "launch__registers_per_thread": 32,
        "x": None,
    }


def test_an_output_of_ncu_that_is_cut_off() -> None:
    text = (Path(__file__).parents[2] / "data" / "bench" / "ncu_nvtx.csv").read_text()
    for end in (0, 10, len(text) // 3, len(text) - 200):
        assert nsight.parse(text[:end].splitlines(), ["smsp__inst_executed.sum"]) == {}


def test_the_manifest_holds_what_a_replay_needs(
    found: list[cases.BenchCase], launches: Launches, ncu: Callable[[str], None], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    seen: list[dict[str, Any]] = []

    def count(_: str, ranges: list[dict[str, Any]], *rest: Any) -> Any:
        seen.extend(json.loads(json.dumps(ranges)))
        return {}, (), False

    monkeypatch.setattr(run.counter_pass.nsight, "count", count)
    result = go(found[:1], tmp_path / "out")
    kernel, *others = seen
    assert Path(kernel["cubin"]).read_bytes()[:4] == b"\x7fELF"
    assert kernel["kernel"] == "gelu_kernel"
    assert kernel["params"] == [
        ["x_ptr", "*fp32", None, [5000]], ["y_ptr", "*fp32", None, [5000]], ["n", "i32", 5000, None]
    ]  # fmt: skip
    assert kernel["nulls"] == 2
    assert [one["provider"] for one in others] == ["naive", "F.gelu", "torch.compile"]
    assert result.notes == ["4 of 4 launches were not counted"]


def test_arrays_of_indices_are_refused(
    found: list[cases.BenchCase], launches: Launches, tmp_path: Path
) -> None:
    sample = Path(__file__).parents[3] / "samples" / "gather.py"
    result = go([*cases.expand([cases.BenchRequest((str(sample),))])[:1], found[0]], tmp_path)
    assert statuses(result) == ["failed", "measured"]
    assert "(*i64) holds is not known" in str(result.outcomes[0].reason)


@pytest.mark.parametrize(
    ("result", "code"),
    [
        (run.BenchResult([], interrupted=True), 130),
        (run.BenchResult([], out_of_time=True), 0),
        (run.BenchResult([], notes=["no counters: as it is"]), 0),
        ("failed", 3),
        ("wrong", 1),
        ("skipped", 0),
    ],
)
def test_exit_codes(
    result: Any,
    code: int,
    found: list[cases.BenchCase],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from click.testing import CliRunner

    from kanalyze.cli.app import cli

    if isinstance(result, str):
        result = run.BenchResult([run.Outcome(found[0], result, "a reason")])
    monkeypatch.setattr(gpu, "local_gpu", lambda: gpu.LocalGpu(DEVICE, 90, {}, None))
    monkeypatch.setattr(run, "run", lambda *_: result)
    done = CliRunner().invoke(cli, ["bench", "gelu", "-o", str(tmp_path)])
    assert done.exit_code == code
    assert all(f"note: {note}" in done.stderr for note in result.notes)
    assert ("interrupted: --resume goes on" in done.stderr) == result.interrupted
