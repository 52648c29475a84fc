"""Reading kernel files, and the launches they describe."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kanalyze.errors import InputError, UsageError
from kanalyze.frontend.kernel_file import KernelFile, bundled, read
from kanalyze.frontend.launch_plan import LaunchPlan, plan

ROOT = Path(__file__).resolve().parents[2]

SCALE = '''\
"""y = factor * x, of every element.

More words.
"""

import triton
import triton.language as tl

DTYPES = ("fp32", "fp16")
SHAPE = {"n": "number of elements", "wide": "1: count in 64 bits"}
CONSTEXPRS = {"BLOCK_SIZE": 1024, "REPEAT": 1}
OPTIONS = {"num_warps": 4, "num_stages": 3}
OVERRIDES = {"fp16": {"BLOCK_SIZE": 2048, "num_warps": 8}}
OUTPUTS = ("y_ptr",)
EXAMPLE = ({"n": 4096, "wide": 0}, {"n": 7, "wide": 1, "BLOCK_SIZE": 64, "dtype": "fp16"})


@triton.jit
def scale_kernel(
    x_ptr, y_ptr, n, stride, factor, WIDE: tl.constexpr, BLOCK_SIZE: tl.constexpr,
    REPEAT: tl.constexpr,
):
    pass


def arguments(shape, dtype, constexprs):
    x = ("*", dtype, (shape["n"],))
    return {"x_ptr": x, "y_ptr": x, "n": shape["n"], "stride": 1, "factor": 2.0,
            "WIDE": bool(shape["wide"])}


def grid(shape, constexprs):
    return (-(-shape["n"] // constexprs["BLOCK_SIZE"]), 1, 1)


def reference(tensors, shape):
    return {"y_ptr": 2 * tensors["x_ptr"]}
'''


class _Anything:
    """Stands for triton where a test needs only the plain functions of a kernel file."""

    constexpr = None
    jit = staticmethod(lambda function: function)


def written(folder: Path, text: str = SCALE, stem: str = "scale") -> Path:
    path = folder / f"{stem}.py"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(path: Path) -> ModuleType:
    """Run a kernel file with a stand-in for Triton."""
    module = ModuleType(path.stem)
    source = path.read_text(encoding="utf-8").replace("import triton.language as tl", "")
    code = compile(source.replace("import triton", ""), str(path), "exec")
    exec(code, {**module.__dict__, "triton": _Anything, "tl": _Anything}, module.__dict__)
    return module


@pytest.fixture
def scale(tmp_path: Path) -> tuple[KernelFile, ModuleType]:
    path = written(tmp_path)
    return read(path), loaded(path)


def test_bundled_kernels_are_those_of_the_contract() -> None:
    files = bundled()
    of_contract = {
        "flash_attention": ("B", "H", "T", "D", "causal", "BLOCK_Q", "BLOCK_KV"),
        "gelu": ("n", "BLOCK_SIZE"),
        "matmul_relu": ("M", "N", "K", "BLOCK_M", "BLOCK_N", "BLOCK_K", "GROUP_M"),
        "row_sum": ("M", "N", "BLOCK_SIZE"),
        "softmax": ("M", "N", "BLOCK_SIZE"),
    }
    for name, words in of_contract.items():
        assert (*files[name].shape, *files[name].constexprs) == words
    assert list(files) == sorted(files)
    for name, file in files.items():
        assert file.function == f"{name}_kernel"
        assert file.summary.endswith(".")
        assert set(file.dtypes) == {"fp32", "fp16", "bf16"}
    assert files["flash_attention"].flags == {"causal"}


def test_bundled_kernels_can_be_listed_without_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = sys.modules['torch'] = None\n"
        "from kanalyze.frontend.kernel_file import bundled; print(*bundled())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == list(bundled())


def test_read(tmp_path: Path) -> None:
    path = written(tmp_path)
    assert read(path) == KernelFile(
        name="scale",
        path=path,
        summary="y = factor * x, of every element.",
        function="scale_kernel",
        parameters=("x_ptr", "y_ptr", "n", "stride", "factor", "WIDE", "BLOCK_SIZE", "REPEAT"),
        constexpr_parameters=("WIDE", "BLOCK_SIZE", "REPEAT"),
        dtypes=("fp32", "fp16"),
        shape={"n": "number of elements", "wide": "1: count in 64 bits"},
        constexprs={"BLOCK_SIZE": 1024, "REPEAT": 1},
        options={"num_warps": 4, "num_stages": 3},
        overrides={"fp16": {"BLOCK_SIZE": 2048, "num_warps": 8}},
        outputs=("y_ptr",),
        example=(
            {"n": 4096, "wide": 0},
            {"n": 7, "wide": 1, "BLOCK_SIZE": 64, "dtype": "fp16"},
        ),
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ('OUTPUTS = ("y_ptr",)\n', "", 1, "expected an assignment to OUTPUTS"),
        ('"""y = factor * x, of every element.\n\nMore words.\n"""', "", 1, "docstring"),
        ('("fp32", "fp16")', '["fp32"]', 9, "DTYPES: expected a tuple of strings"),
        ('("fp32", "fp16")', "()", 9, "DTYPES: expected a tuple of strings, not empty"),
        ('("fp32", "fp16")', '("fp32", "fp61")', 9, "unknown 'fp61'; did you mean fp16"),
        ('"BLOCK_SIZE": 1024', '"BLOCK_SIZE": 2**10', 11, "CONSTEXPRS: expected a literal"),
        ('"BLOCK_SIZE": 1024', '"BLOCK": 1024', 11, "'BLOCK'; did you mean BLOCK_SIZE"),
        ('"BLOCK_SIZE": 1024', '"BLOCK_SIZE": 1.5', 11, "a dict from strings to int"),
        ('"number of elements"', "3", 10, "SHAPE: expected a dict from strings to str"),
        ('"num_stages": 3', '"num_stage": 3', 12, "'num_stage'; did you mean num_stages"),
        (', "num_stages": 3', "", 12, "OPTIONS: num_stages is missing"),
        ('{"fp16": {"BLOCK', '{"bf16": {"BLOCK', 13, "unknown 'bf16'"),
        ('{"BLOCK_SIZE": 2048', '{"BLOC_SIZE": 2048', 13, "did you mean BLOCK_SIZE"),
        ('{"BLOCK_SIZE": 2048, "num_warps": 8}', "5", 13, "OVERRIDES: expected a dict"),
        ('("y_ptr",)', '("z_ptr",)', 14, "unknown 'z_ptr'; did you mean"),
        ('"n": 4096, ', "", 15, "EXAMPLE[0]: n is missing"),
        ('"n": 7', '"n": "7"', 15, "EXAMPLE[1]: expected a dict from strings to int"),
        ('"n": 7', '"n": 7, "m": 1', 15, "EXAMPLE[1]: unknown 'm'"),
        ('"dtype": "fp16"', '"dtype": "bf16"', 15, "EXAMPLE[1]: unknown 'bf16'"),
        ("def scale_kernel", "def scaled", 1, "expected a function 'scale_kernel'"),
        ("def grid", "def grit", 1, "expected a function 'grid'; did you mean grit"),
        ("    pass\n", "    pass (\n", 23, "not valid Python: "),
    ],
)
def test_read_says_where_a_file_is_wrong(
    tmp_path: Path, old: str, new: str, line: int, message: str
) -> None:
    assert old in SCALE
    path = written(tmp_path, SCALE.replace(old, new))
    with pytest.raises(InputError) as raised:
        read(path)
    assert str(raised.value).startswith(f"{path}:{line}:")
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [(None, "cannot read: No such file"), (b"\xff\xfe", "not UTF-8"), (b"a\0", "not valid Python")],
)
def test_read_what_is_no_text(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "scale.py"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=message) as raised:
        read(path)
    assert raised.value.file == str(path)


def test_read_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"scale\.py:1:1: expected a docstring"):
        read(written(tmp_path, ""))


def test_plan_of_the_first_example(scale: tuple[KernelFile, ModuleType]) -> None:
    assert plan(*scale, {}) == LaunchPlan(
        shape={"n": 4096, "wide": 0},
        dtype="fp32",
        constexprs={"WIDE": False, "BLOCK_SIZE": 1024, "REPEAT": 1},
        options={"num_warps": 4, "num_stages": 3},
        arguments={
            "x_ptr": ("*", "fp32", (4096,)),
            "y_ptr": ("*", "fp32", (4096,)),
            "n": 4096,
            "stride": 1,
            "factor": 2.0,
        },
        grid=(4, 1, 1),
    )


def test_plan_takes_overrides_then_settings(scale: tuple[KernelFile, ModuleType]) -> None:
    launch = plan(*scale, {}, "fp16")
    assert (launch.constexprs["BLOCK_SIZE"], launch.options["num_warps"]) == (2048, 8)
    settings = {"BLOCK_SIZE": "512", "num_warps": 2, "n": "1_000", "wide": 1, "stride": "3"}
    launch = plan(*scale, {**settings, "factor": "0.5"}, "fp16")
    assert launch.constexprs == {"WIDE": True, "BLOCK_SIZE": 512, "REPEAT": 1}
    assert launch.options == {"num_warps": 2, "num_stages": 3}
    assert launch.arguments == {
        "x_ptr": ("*", "fp16", (1000,)),
        "y_ptr": ("*", "fp16", (1000,)),
        "n": 1000,
        "stride": 3,
        "factor": 0.5,
    }
    assert launch.grid == (2, 1, 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"m": 1}, "scale: unknown name 'm'; "),
        ({"BLOCKSIZE": 1}, "unknown name 'BLOCKSIZE'; did you mean BLOCK_SIZE"),
        ({"dtype": "fp16"}, "unknown name 'dtype'"),
        ({"n": "many"}, "n=many: expected an integer"),
        ({"n": "4.5"}, "n=4.5: expected an integer"),
        ({"n": ""}, "n=: expected an integer"),
        ({"n": 2**63}, "expected an integer of 64 bits"),
        ({"n": "9" * 5000}, "expected an integer"),
        ({"n": 0}, "n=0: expected a size of at least 1"),
        ({"n": -5}, "n=-5: expected a size of at least 1"),
        ({"wide": 2}, "wide=2: expected 0 or 1"),
        ({"BLOCK_SIZE": 1000}, "BLOCK_SIZE=1000: expected a power of two"),
        ({"BLOCK_SIZE": 0}, "BLOCK_SIZE=0: expected at least 1"),
        ({"REPEAT": -1}, "REPEAT=-1: expected at least 1"),
        ({"num_warps": 3}, "num_warps=3: expected a power of two from 1 to 32"),
        ({"num_warps": 64}, "num_warps=64: expected a power of two from 1 to 32"),
        ({"num_stages": 0}, "num_stages=0: expected at least 1"),
        ({"stride": "x"}, "stride=x: expected an integer"),
        ({"factor": "x"}, "factor=x: expected a number"),
        ({"x_ptr": 1}, "x_ptr is a pointer and cannot be set"),
        ({"WIDE": 1}, "WIDE is derived from the shape and cannot be set"),
        ({"n": 2**62, "BLOCK_SIZE": 1}, "blocks in x; CUDA allows 2147483647"),
    ],
)
def test_plan_says_what_is_wrong_with_settings(
    scale: tuple[KernelFile, ModuleType], settings: dict[str, str | int], message: str
) -> None:
    with pytest.raises(UsageError) as raised:
        plan(*scale, settings)
    assert message in str(raised.value)


def test_plan_keeps_dtype_apart_from_settings(tmp_path: Path) -> None:
    path = written(tmp_path, SCALE.replace('"wide": 0}', '"wide": 0, "dtype": "fp16"}'))
    assert plan(read(path), loaded(path), {}).dtype == "fp16"
    with pytest.raises(UsageError, match="unknown name 'dtype'"):
        plan(read(path), loaded(path), {"dtype": "fp32"})


def test_plan_of_an_unknown_dtype(scale: tuple[KernelFile, ModuleType]) -> None:
    with pytest.raises(UsageError, match="unknown dtype 'fp8'; did you mean"):
        plan(*scale, {}, "fp8")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"stride": 1', '"stride": "1"', r"arguments\(\) gives stride='1', neither a number"),
        ('("*", dtype,', '("*", "int4",', r"arguments\(\) gives x_ptr=.*, neither"),
        ('"stride": 1, ', "", r"arguments\(\) gives not the dict of"),
        ('x = ("*", dtype, (shape["n"],))', "return shape['m']", r"arguments\(\) failed: KeyError"),
        ('shape["n"] // constexprs["BLOCK_SIZE"]', "0 // 1", r"grid\(\) gives \(0, 1, 1\)"),
        (", 1, 1)\n\n\ndef ref", ", 1)\n\n\ndef ref", r"grid\(\) gives \(4, 1\), not three"),
        ("return (-(-", "return 1 or (-(-", r"grid\(\) gives 1, not three"),
    ],
)
def test_plan_names_the_file_whose_functions_are_wrong(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    assert old in SCALE
    path = written(tmp_path, SCALE.replace(old, new))
    with pytest.raises(InputError, match=message) as raised:
        plan(read(path), loaded(path), {})
    assert raised.value.file == str(path)
