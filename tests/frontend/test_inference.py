"""Kernels without a signature: files that cannot be imported whole, and types from the body."""

from __future__ import annotations

from pathlib import Path

import pytest

from kanalyze.errors import InputError
from kanalyze.frontend._triton import stand_in
from kanalyze.frontend.compile import compile_kernel
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


def test_a_launch_in_the_file_gives_its_constants(tmp_path: Path) -> None:
    launch = "\ndef run(x, y, i):\n    scale[(1,)](x, y, i, 8, 2.0, BLOCK=256, USE_FACTOR=True)\n"
    made = compile_kernel(f"{written(tmp_path, a=HEAD + SCALE + launch)}/a.py:scale")
    assert made.constexprs == {"BLOCK": 256, "USE_FACTOR": True}


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


def test_what_cannot_be_imported_or_run_is_left_out_and_said(tmp_path: Path) -> None:
    text = f"""
from no_such_package.decorators import traced
import triton, torch
DEVICE = triton.runtime.driver.active.get_active_torch_device()
MAJOR = torch.cuda.get_device_capability()[0]
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
        assert load(tmp_path / "a.py").module.MAJOR == 9


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
