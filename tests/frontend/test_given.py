"""A launch said in words or in Python: arrays, numbers, grids; and what is missing of it."""

from __future__ import annotations

import importlib.util
import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kanalyze.analysis.launch import estimate, with_best_config
from kanalyze.errors import UsageError
from kanalyze.frontend.compile import Compiled, compile_kernel
from kanalyze.frontend.given import evaluated, grid_of, parted, plain, sized
from kanalyze.frontend.specialize import Pointer, TritonParameter
from kanalyze.frontend.subject import Settings, launch_of, with_record
from kanalyze.launch.record import Launch

GATHER = """
import triton
import triton.language as tl

@triton.autotune([triton.Config({"BLOCK": 64}), triton.Config({"BLOCK": 1024})], key=["n"])
@triton.jit
def gather(x_ptr, ids, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(ids + i, mask=i < n)
    tl.store(y_ptr + i, tl.load(x_ptr + row, mask=i < n), mask=i < n)
"""


def array(text: object, **known: object) -> Pointer:
    arrays, _ = parted([TritonParameter("x")], plain({"x": text}), "kernel")
    return sized("x", arrays["x"], known)


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "a.py").write_text(GATHER, "utf-8")
    return f"{tmp_path}/a.py:gather"


@pytest.mark.parametrize(
    ("text", "dtype", "shape", "steps", "align"),
    [
        ("bf16[4096,N]", "bf16", (4096, 512), (512, 1), 256),
        ("float32[2*N]", "fp32", (1024,), (1,), 256),
        ("[3, 4]", "", (3, 4), (4, 1), 256),
        ("*fp16", "fp16", None, (), 256),
        ("fp16[8,N] strides=1,8 align=4", "fp16", (8, 512), (1, 8), 4),
        ((3, 4), "", (3, 4), (4, 1), 256),
    ],
)
def test_an_array_in_words(text: Any, dtype: str, shape: Any, steps: Any, align: int) -> None:
    given = array(text, N=512)
    assert (given.dtype, given.shape, given.steps, given.align) == (dtype, shape, steps, align)


def test_what_an_array_holds() -> None:
    drawn = array("i32[100] uniform:0:50000").contents
    assert drawn is not None
    assert (drawn.kind, drawn.span) == ("uniform", 50000)
    rising = array("i32 arange").contents
    assert rising is not None
    assert list(rising.read(np.arange(0, 12, 4), 4)) == [0, 1, 2]
    own = array(np.array([5, 7], np.int32)).contents
    assert own is not None
    assert list(own.read(np.array([0, 4]), 4)) == [5, 7]
    assert array(np.zeros((4, 4), np.int32)[:, ::2]).contents is None  # it lies otherwise there


def test_tensors_that_hold_nothing() -> None:
    torch = pytest.importorskip("torch")
    x = torch.empty(6, 8, dtype=torch.bfloat16, device="meta")
    assert array(x) == Pointer("bf16", 256, (6, 8), (8, 1))
    assert array(x.t()[3:]) == Pointer("bf16", 2, (5, 6), (1, 8))


@pytest.mark.parametrize(
    ("grid", "blocks"),
    [
        ("4096", (4096,)),
        ("cdiv(N, BLOCK), 2", (8, 2)),
        ("triton.cdiv(x.shape[0], META['BLOCK']) * x.stride(0)", (128 * 3,)),
        ((4, "N // 2"), (4, 500)),
        (lambda meta: (meta["N"],), (1000,)),
    ],
)
def test_a_grid(grid: Any, blocks: tuple[int, ...]) -> None:
    x = Pointer("fp16", shape=(16384, 3))
    assert grid_of(grid, {"N": 1000, "BLOCK": 128, "x": x}) == blocks


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ("0", "one to three numbers of at least 1"),
        ("cdiv(M, 2)", "M is not known"),
        ("N / 3", "expected a whole number"),
        ("N // 0", "no expression"),
        ("__import__('os').getpid()", "no expression"),
        ("N ** 99", "no expression"),
        ("1,1,1,1", "one to three"),
    ],
)
def test_a_grid_that_is_none(grid: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        grid_of(grid, {"N": 1000})


def test_expressions() -> None:
    assert evaluated("-N + max(3, next_power_of_2(5)) % 7", {"N": 2}) == -1


def launched(target: str, **more: Any) -> tuple[Compiled, Launch]:
    compiled = compile_kernel(target, **more)
    return compiled, launch_of(compiled)


def test_types_and_addresses_follow_from_the_arguments(target: str) -> None:
    args = {"x_ptr": "fp32[n] align=4", "ids": "i32[n] arange", "n": "4099"}
    compiled, launch = launched(target, args=args, grid="cdiv(n,BLOCK)")
    assert launch.grid == (65, 1, 1)
    assert [(p.type, p.data is not None) for p in launch.params] == [
        ("*fp32", False), ("*i32", True), ("*fp16", False), ("i32", False),
    ]  # fmt: skip
    assert compiled.specialization == {"ids": ("divisible by 16",), "y_ptr": ("divisible by 16",)}
    assert [p.value % 256 for p in launch.params[:3] if p.value is not None] == [4, 0, 0]
    bigger = compiled.again(settings={"BLOCK": 256, "n": 8192})
    assert launch_of(bigger).grid == (32, 1, 1)


def test_arguments_of_a_bundled_kernel() -> None:
    args = {"n": 5000, "x_ptr": "fp32[n] align=4"}
    compiled, launch = launched("gelu", args=args)
    assert (launch.grid, launch.params[0].value) == ((5, 1, 1), (1 << 40) + 4)
    assert "x_ptr" not in compiled.specialization
    assert launch_of(replace(compiled, grid=grid_of("cdiv(n, 2)", compiled.values))).grid[0] == 2500
    with pytest.raises(UsageError, match="'n' of gelu_kernel is no pointer"):
        launched("gelu", args={"n": "fp32[4]"})


def test_a_grid_of_numbers_fits_one_set_of_constexprs(target: str) -> None:
    compiled, launch = launched(target, args={"n": 64}, grid=1)
    assert launch.grid == (1, 1, 1)
    assert compiled.again(settings={"BLOCK": 32}).grid is None


def test_what_is_missing_is_a_command_that_works(target: str) -> None:
    with pytest.raises(
        UsageError, match="no launch is known; for example kanalyze traffic"
    ) as error:
        launched(target)
    words = shlex.split(str(error.value).partition("for example ")[2])
    assert words[2:5] == [target, "--grid", "cdiv(n,BLOCK)"]
    args = dict(text.split("=", 1) for text in words[6::2])
    assert list(args) == ["x_ptr", "ids", "y_ptr", "n"]
    _, launch = launched(target, args=args, grid=words[4])
    assert launch.grid == (64, 1, 1)
    with pytest.raises(UsageError, match=r"no value of n is known; .* --grid 3 --arg 'x_ptr"):
        launched(target, grid=3)


RECORD = Launch.from_record(
    {
        "kernel": "gather", "grid": [3, 1, 1], "block": [128, 1, 1],
        "constexprs": {"BLOCK": 256, "n": 1}, "num_warps": 2,
        "params": [{"name": "x_ptr", "type": "*bf16", "address": 4}]
        + [{"name": n, "type": "*i64", "address": 256} for n in ("ids", "y_ptr")],
    }
)  # fmt: skip


def test_other_sizes_of_a_record(target: str) -> None:
    with pytest.raises(UsageError, match="need a grid"):
        with_record(Settings(), RECORD)
    settings = with_record(Settings(grid="cdiv(n,BLOCK)", settings={"n": "4096"}), RECORD)
    compiled, launch = launched(target, **vars(settings))
    assert launch.grid == (16, 1, 1)
    assert [(p.type, (p.value or 0) % 256) for p in launch.params] == [
        ("*bf16", 4), ("*i64", 0), ("*i64", 0), ("i32", 0),
    ]  # fmt: skip
    assert compiled.metadata["num_warps"] == 2
    assert compiled.again(settings={"n": 1000}).grid == (4,)


def test_types_of_a_record(target: str) -> None:
    compiled = compile_kernel(target, launch=RECORD)
    assert compiled.signature == {
        "x_ptr": "*bf16", "ids": "*i64", "y_ptr": "*i64", "n": "constexpr", "BLOCK": "constexpr",
    }  # fmt: skip
    assert compiled.specialization == {
        "ids": ("divisible by 16",), "y_ptr": ("divisible by 16",), "n": ("equal to 1",),
    }  # fmt: skip
    assert compiled.constexprs["BLOCK"] == 256
    assert compiled.metadata["num_warps"] == 2


def test_the_configuration_of_the_shortest_estimate(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def estimate(compiled: Compiled, **_: object) -> Any:
        assert compiled.grid == (4096 // compiled.constexprs["BLOCK"],)
        time = SimpleNamespace(predicted_us={64: 9.0, 1024: 3.0}[compiled.constexprs["BLOCK"]])
        return SimpleNamespace(time=time)

    monkeypatch.setattr("kanalyze.analysis.launch.estimate", estimate)
    settings = Settings(args={"n": 4096}, grid="cdiv(n,BLOCK)", config="best")
    assert with_best_config(target, settings).config == 1
    with pytest.raises(UsageError, match="names what they choose"):
        with_best_config(target, replace(settings, grid=64))


def test_an_estimate_of_a_function(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    (tmp_path / "a_gather.py").write_text(GATHER, "utf-8")
    spec = importlib.util.spec_from_file_location("a_gather", tmp_path / "a_gather.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    x = torch.empty(4096, dtype=torch.float32, device="meta")
    ids = torch.zeros(4096, dtype=torch.int64)
    traffic = estimate(
        module.gather, grid=lambda meta: (4096 // meta["BLOCK"],), simulate=False, findings=False,
        args={"x_ptr": x, "ids": ids, "y_ptr": x, "n": 4096},
    )  # fmt: skip
    assert traffic.grid == (64, 1, 1)
    # 4096 indices of 8 B in 1024 sectors; of x each warp reads one element: 128 sectors; the 64
    # elements of a block lie twice in its 128 threads
    assert traffic.counters["global_load_sectors"] == 2 * (1024 + 128)
    assert "assume" not in {u.field for u in traffic.unknown}
    unknown = estimate(
        module.gather, grid=64, args={"x_ptr": x, "ids": x.long(), "y_ptr": x, "n": 4096},
        simulate=False, findings=False,
    ).unknown  # fmt: skip
    (asked,) = [u.reason for u in unknown if u.field == "assume"]
    assert "branches: --assume ids=uniform:0:N (or" in asked
    with pytest.raises(UsageError, match=r"for example kanalyze\.estimate\(gather, grid="):
        estimate(module.gather)
