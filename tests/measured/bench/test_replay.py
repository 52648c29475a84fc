"""The process under ncu, and the kernels of torch.compile, with stand-ins for the GPU."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

from kanalyze.measured.bench import build, cases, replay, rivals  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("shared_cache"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of torch._inductor's own imports
]


class Gpu:
    """Writes down what is asked of the GPU, in order."""

    def __init__(self) -> None:
        self.log: list[str] = []
        note = self.log.append
        self.cuda = SimpleNamespace(
            synchronize=lambda: None,
            empty_cache=lambda: None,
            current_stream=lambda: SimpleNamespace(cuda_stream=5),
            cudart=lambda: SimpleNamespace(
                cudaProfilerStart=lambda: note("start"), cudaProfilerStop=lambda: note("stop")
            ),
            nvtx=SimpleNamespace(range_push=note, range_pop=lambda: note("pop")),
        )

    def __getattr__(self, name: str) -> Any:
        value = getattr(torch, name)
        if name not in ("randn", "full", "zeros", "empty"):
            return value
        return lambda *args, **options: value(*args, **{**options, "device": "cpu"})

    def load(self, image: bytes, kernel: str, shared: int) -> Any:
        def launcher(grid: Any, block: Any, shared: int, values: list[Any], stream: int) -> Any:
            sizes = [v.value for v in values]
            return lambda: self.log.append(
                f"{kernel} {grid} {block} {shared} {len(values)} {sizes[2]} stream {stream}"
            )

        assert image == b"cubin"
        return SimpleNamespace(launcher=launcher)


def manifest(tmp_path: Path, ranges: list[dict[str, Any]], **more: Any) -> Path:
    path = tmp_path / "ranges.json"
    wanted = {"ranges": ranges, "stop": str(tmp_path / "stop"), "seconds": None, **more}
    path.write_text(json.dumps(wanted))
    return path


@pytest.fixture
def ranges(tmp_path: Path) -> list[dict[str, Any]]:
    (case,) = cases.expand([cases.BenchRequest(("gelu",), ("fp32",), values={"n": (5000,)})])
    built = build.build("gelu", "fp32", {"n": 5000}, "sm_90", None)
    assert isinstance(built, build.Launchable)
    (tmp_path / "one.cubin").write_bytes(b"cubin")
    kernel = replay.kernel_range(built, str(tmp_path / "one.cubin"))
    return [kernel, replay.rival_range(case, "F.gelu"), {**kernel, "cubin": "missing"}]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    made = Gpu()
    monkeypatch.setattr(replay.driver, "Driver", lambda: made)
    monkeypatch.setattr(replay.rivals, "prepared", lambda _: None)
    return made


def test_each_launch_in_its_range(
    ranges: list[dict[str, Any]], gpu: Gpu, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert replay.run(manifest(tmp_path, ranges), gpu) == 1
    kernel = "gelu_kernel (5, 1, 1) (128, 1, 1) 0 5 5000 stream 5"
    assert gpu.log == [
        "kanalyze-launch-0", "start", kernel, "stop", "pop",
        "kanalyze-launch-1", "start", "stop", "pop",
    ]  # fmt: skip
    said = capsys.readouterr().out.splitlines()
    assert said[:3] == [f"kanalyze-launch-{index} begins" for index in range(3)]
    assert said[3].startswith("kanalyze-launch-2: FileNotFoundError")


def test_it_stops_between_launches_when_asked_to(
    ranges: list[dict[str, Any]], gpu: Gpu, tmp_path: Path
) -> None:
    (tmp_path / "stop").touch()
    assert replay.run(manifest(tmp_path, ranges), gpu) == 0
    (tmp_path / "stop").unlink()
    assert replay.run(manifest(tmp_path, ranges, seconds=0), gpu) == 0
    assert gpu.log == []


# --- kernels of torch.compile --------------------------------------------------------------------

PTX = """.visible .entry triton_poi_fused_0(
	.param .u64 .ptr .global .align 1 triton_poi_fused_0_param_0,
	.param .u64 .ptr .global .align 1 triton_poi_fused_0_param_1,
	.param .u32 triton_poi_fused_0_param_2,
	.param .u64 .ptr .global .align 1 triton_poi_fused_0_param_3,
	.param .u64 .ptr .global .align 1 triton_poi_fused_0_param_4
)
"""


def binary() -> Any:
    names = ["in_ptr0", "out_ptr0", "xnumel", "XBLOCK"]
    source = SimpleNamespace(
        fn=SimpleNamespace(arg_names=names),
        signature=dict(zip(names, ["*fp32", "*fp16", "i32", "constexpr"], strict=True)),
        constants={(3,): 1024},
    )
    metadata = SimpleNamespace(name="triton_poi_fused_0", num_warps=4, num_stages=1, shared=64)
    return SimpleNamespace(
        src=source, metadata=metadata, asm={"ptx": PTX, "cubin": b"cubin"}, n_regs=14
    )


def test_kernels_of_inductor_are_seen_while_it_is_on(monkeypatch: pytest.MonkeyPatch) -> None:
    heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    launched: list[Any] = []
    scope = {"bin": binary(), "runner": lambda *arguments: launched.append(arguments)}
    monkeypatch.setattr(
        heuristics.CompileResult, "_gen_launcher_code", lambda self, scope, a, b: "launcher"
    )
    own = heuristics.CompileResult._gen_launcher_code
    capture = rivals.Capture()
    x, y = torch.randn(5000), torch.empty(5000, dtype=torch.float16)
    with capture():
        made = heuristics.CompileResult._gen_launcher_code(object(), scope, [], [])
        assert made == "launcher"
        arguments = (5, 1, 1, "stream", "function", "meta", None, None, None, x, y, 5000, 1024)
        scope["runner"](*arguments)
        assert capture.launchables("sm_90", "3.6.0") == []
        capture.on = True
        scope["runner"](*arguments)
        scope["runner"](*arguments)
        (one,) = capture.launchables("sm_90", "3.6.0")
        assert capture.launchables("sm_90", "3.6.0") == []
    assert heuristics.CompileResult._gen_launcher_code is own
    assert len(launched) == 3
    assert [(p.name, p.type, p.value, p.dims) for p in one.params] == [
        ("in_ptr0", "*fp32", None, (5000,)),
        ("out_ptr0", "*fp16", None, (5000,)),
        ("xnumel", "i32", 5000, None),
    ]
    assert (one.kernel, one.grid, one.block) == ("triton_poi_fused_0", (5, 1, 1), (128, 1, 1))
    assert (one.null_params, one.dynamic_shared_bytes, one.registers_per_thread) == (2, 64, 14)
    assert one.constexprs == {"XBLOCK": 1024}
    assert one.spill_bytes is None


def test_arrays_of_indices_are_not_stood_in_for() -> None:
    launch = rivals._SeenLaunch(
        binary(), (5, 1, 1), (torch.zeros(8, dtype=torch.int64), torch.empty(8), 8, 1024)
    )
    assert rivals._captured(launch, "sm_90", "3.6.0") is None
