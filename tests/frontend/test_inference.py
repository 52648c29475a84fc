"""Kernels without a signature: files that cannot be imported whole, and types from the body."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanalyze.errors import InputError
from kanalyze.frontend._triton import stand_in
from kanalyze.frontend._triton_kernels import kernels_of, unwrap
from kanalyze.frontend.compile import compile_kernel
from kanalyze.frontend.inference import inferred
from kanalyze.frontend.specialize import TritonParameter
from kanalyze.frontend.user_file import load

HEAD = "import triton\nimport triton.language as tl\n"
SCALE = """
@triton.jit
def scale(x, y, index, n, factor, BLOCK: tl.constexpr, USE_FACTOR: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    row = tl.load(index + tl.program_id(0))
    value = tl.load(x + row * n + i, mask=i < n)
    if USE_FACTOR:
        value = value * factor
    tl.store(y + i, value, mask=i < n)
"""


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


def test_types_follow_from_the_body(tmp_path: Path) -> None:
    made = compile_kernel(f"{written(tmp_path, a=HEAD + SCALE)}/a.py:scale")
    assert made.signature == {
        "x": "*fp16", "y": "*fp16", "index": "*i64", "n": "i32", "factor": "fp32",
        "BLOCK": "constexpr", "USE_FACTOR": "constexpr",
    }  # fmt: skip
    assert made.constexprs == {"BLOCK": 1024, "USE_FACTOR": False}
    types, constexprs = made.assumptions
    assert "index=*i64:16" in types
    assert "--signature" in types
    assert "--set changes them: BLOCK=1024, USE_FACTOR=False" in constexprs
    said = ", ".join(text.rpartition(": ")[2] for text in (types, constexprs))
    again = compile_kernel(f"{tmp_path}/a.py:scale", signature=said)  # what it suggests compiles
    assert (again.signature, again.ptx, again.assumptions) == (made.signature, made.ptx, ())


def test_a_launch_in_the_file_gives_its_constants(tmp_path: Path) -> None:
    launch = (
        "\ndef run(x, y, i):\n    scale[(1,)](x, y, i, 8, 2.0, 256, USE_FACTOR=True, num_warps=8)"
    )
    target = f"{written(tmp_path, a=HEAD + SCALE + launch)}/a.py:scale"
    made = compile_kernel(target)
    assert made.constexprs == {"BLOCK": 256, "USE_FACTOR": True}
    assert made.metadata["num_warps"] == 8
    assert made.assumptions[-1].endswith("--set changes them: num_warps=8")
    assert compile_kernel(target, num_warps=2).metadata["num_warps"] == 2


@pytest.mark.parametrize(
    ("index", "block"), [("tl.arange(0, BLOCK)", 512), ("4 + tl.arange(0, BLOCK)", 1024)]
)
def test_a_block_that_is_a_whole_row_covers_it(tmp_path: Path, index: str, block: int) -> None:
    body = f"""
@triton.jit
def norm(x, n, BLOCK: tl.constexpr):
    i = {index}
    value = tl.load(x + tl.program_id(0) * n + i, mask=i < n, other=0)
    tl.store(x + i, value / tl.sum(value, 0), mask=i < n)
"""
    target = f"{written(tmp_path, a=HEAD + body)}/a.py:norm"
    assert compile_kernel(target, settings={"n": 257}).constexprs["BLOCK"] == block


def test_what_is_stated_is_not_guessed(tmp_path: Path) -> None:
    target = f"{written(tmp_path, a=HEAD + SCALE)}/a.py:scale"
    made = compile_kernel(target, signature="x=*fp32:16, n=i64", settings={"BLOCK": 128})
    assert (made.signature["x"], made.signature["n"]) == ("*fp32", "i64")
    assert made.constexprs["BLOCK"] == 128
    types, constexprs = made.assumptions
    assert types.endswith(": y=*fp16:16, index=*i64:16, factor=fp32")
    assert constexprs.endswith(": USE_FACTOR=False")


def test_the_next_guess_is_tried_where_triton_rejects_one(tmp_path: Path) -> None:
    text = """
@triton.jit
def total(x, y, n, BLOCK: tl.constexpr):
    sum = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        sum = sum + tl.load(x + start + tl.arange(0, BLOCK))
        sum = tl.inline_asm_elementwise("mov.b32 $0, $1;", "=r,r", [sum], x.dtype.element_ty, True, 1)
    tl.store(y + tl.arange(0, BLOCK), sum)
"""  # noqa: E501
    made = compile_kernel(f"{written(tmp_path, a=HEAD + text)}/a.py:total")
    assert made.signature["x"] == "*fp32"


def test_the_first_error_is_shown_where_no_guess_compiles(tmp_path: Path) -> None:
    text = "\n@triton.jit\ndef wrong(x):\n    tl.store(x, nothing)\n"
    with pytest.raises(InputError, match=r"a\.py:6:\d+: .*nothing"):
        compile_kernel(f"{written(tmp_path, a=HEAD + text)}/a.py:wrong")


def test_a_function_that_kernels_call(tmp_path: Path) -> None:
    text = "\n@triton.jit\ndef twice(x):\n    return x * 2\n"
    with pytest.raises(InputError, match=r"a\.py:6:\d+: 'twice' returns a value: kernels call it"):
        compile_kernel(f"{written(tmp_path, a=HEAD + text)}/a.py:twice")


def test_what_cannot_be_imported_or_run_is_left_out_and_said(tmp_path: Path) -> None:
    text = f"""
from no_such_package.decorators import traced
import triton, torch
DEVICE = triton.runtime.driver.active.get_active_torch_device()
MAJOR = torch.cuda.get_device_capability()[0]
SMS = torch.cuda.get_device_properties(DEVICE).multi_processor_count
SAME = triton.runtime.driver.active.utils.get_device_properties(DEVICE.index)
{HEAD}
{SCALE.replace("@triton.jit", "@traced" + chr(10) + "@triton.jit")}
x = torch.ones(4, device=DEVICE)
"""
    written(tmp_path, a=text)
    made = compile_kernel(f"{tmp_path}/a.py:scale")
    assert any("left out: no_such_package.decorators.traced" in note for note in made.notes)
    line = text[: text.index("x = torch")].count("\n") + 1
    assert any(f"a.py:{line}: not run: " in note for note in made.notes)
    with stand_in(90, tmp_path / "a.py"):
        module = load(tmp_path / "a.py").module
    assert (module.MAJOR, module.SMS, module.SAME["multiprocessor_count"]) == (9, 132, 132)


def test_decorators_of_others(tmp_path: Path) -> None:
    text = """
import functools
jit = triton.jit

class Entry:
    def __init__(self, fn):
        self.fn = fn

def traced(function):
    @functools.wraps(function)
    def run(*arguments):
        return function(*arguments)
    run.__wrapped__ = function
    return run

CONFIGS = no_such_name.configs()

@Entry
@traced
@jit
def one(x):
    tl.store(x, 1.0)

@CONFIGS.of("one")
@no_such_name.entry
@triton.jit(do_not_specialize=["n"])
def two(x, n):
    tl.store(x, n)
"""
    module = load(written(tmp_path, a=HEAD + text) / "a.py")
    assert list(kernels_of(module.module)) == ["one", "two"]
    two = unwrap("two", module.module.two)
    assert [p.specialise for p in two.parameters] == [True, False]
    assert unwrap("one", module.module.one).function.fn.__name__ == "one"
    assert len(module.failed) == 2


def test_a_package_is_run_only_for_what_is_taken_from_it(tmp_path: Path) -> None:
    package = tmp_path / "kernels_of_mine"
    package.mkdir()
    written(
        package,
        __init__="raise RuntimeError('has side effects')",
        helpers=f"import no_such_package\n{HEAD}\n@triton.jit\ndef twice(x):\n    return x * 2\n",
        a="from .helpers import twice\nfrom kernels_of_mine import helpers\n"
        + HEAD
        + SCALE.replace("value * factor", "twice(value)").replace("if USE_FACTOR", "if True"),
    )
    made = compile_kernel(f"{package}/a.py:scale")
    assert [n for n in made.notes if "not run" in n] == []
    assert any("left out: no_such_package" in note for note in made.notes)


def test_a_kernel_that_needs_what_is_missing_says_so(tmp_path: Path) -> None:
    text = (
        "from no_such_package import twice\n"
        + HEAD
        + SCALE.replace("value * factor", "twice(value)")
    )
    written(tmp_path, a=text.replace("if USE_FACTOR", "if True"))
    with pytest.raises(InputError, match=r"twice.*left out: no_such_package\.twice"):
        compile_kernel(f"{tmp_path}/a.py:scale")


def test_a_file_whose_kernel_is_not_reached_gives_the_error(tmp_path: Path) -> None:
    written(tmp_path, a=HEAD + "make = 1 / 0\nscale = make.kernel\n")
    with pytest.raises(InputError, match=r"a\.py:3:\d+: ZeroDivisionError"):
        compile_kernel(f"{tmp_path}/a.py:scale")


ODD = """
@triton.jit
def odd(x_ptr, stride, seen_ptr, out_ptr, n, width, last, KIND: tl.constexpr, BLOCK: tl.constexpr,
        ROWS: tl.constexpr, PRECISION: tl.constexpr, SHIFT: tl.constexpr, DEEP: tl.constexpr):
    tl.static_assert(ROWS == 16)
    i = tl.arange(0, ROWS)[:, None, None] * width + tl.arange(0, BLOCK)[None, :, None]
    x_ptrs = x_ptr + i
    for k in range(n):
        x_ptrs += stride
    at = seen_ptr + i
    seen = tl.load(at)
    seen = (seen & 0xF) << SHIFT
    at = out_ptr + i
    if KIND == "add":
        seen += 1
    elif KIND == "sub":
        seen -= 1
    if DEEP == 3:
        tl.store(out_ptr + i, tl.load(x_ptrs) + seen)
    d = tl.make_tensor_descriptor(x_ptr, [n, n], [stride, last], [ROWS, BLOCK])
    t = tl.dot(d.load([0, 0]), d.load([0, 0]).T, input_precision=PRECISION)
"""


def test_how_parameters_are_used(tmp_path: Path) -> None:
    launch = """
def run(a, n):
    out = torch.empty(n, dtype=torch.uint8)
    grid = (1,)
    odd[grid](a, 1, a, out, n, 8, 1, SHIFT=2)
"""
    (tmp_path / "a.py").write_text(HEAD + ODD + launch, "utf-8")
    function = load(tmp_path / "a.py").module.odd
    parameters = [TritonParameter(p.name, p.is_constexpr) for p in function.params]
    found = inferred(function, parameters, {}, "fp16", 64, 64)
    assert {name: a.type for name, a in found.items() if a.type != "constexpr"} == {
        "x_ptr": "*fp16", "stride": "i32", "seen_ptr": "*i32", "out_ptr": "*u8", "n": "i32",
        "width": "i32",
    }  # fmt: skip
    assert {name: a.value for name, a in found.items() if a.type == "constexpr"} == {
        "last": 1, "KIND": "add", "BLOCK": 16, "ROWS": 16, "PRECISION": "tf32", "SHIFT": 2,
        "DEEP": 3,
    }  # fmt: skip


def test_a_gluon_kernel(tmp_path: Path) -> None:
    pytest.importorskip("triton.experimental.gluon")
    text = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
jit = gluon.jit

def made(factor):
    @jit
    def copy(x_ptr, y_ptr, n, BLOCK: gl.constexpr):
        layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
        i = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
        gl.store(y_ptr + i, gl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)
    return copy

copy = made(gl.constexpr(2))
"""
    made = compile_kernel(f"{written(tmp_path, a=text)}/a.py:copy")
    assert (made.signature["x_ptr"], made.constexprs["BLOCK"], made.ttir) == ("*fp16", 1024, "")
    assert "ld.global" in made.ptx
