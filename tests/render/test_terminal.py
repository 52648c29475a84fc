"""The report as text: nothing is lost, nothing is too wide, and what is not known does not hide."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from rich.cells import cell_len

from kanalyze import analyze
from kanalyze.analysis.kernels import report_on
from kanalyze.frontend.subject import Subject
from kanalyze.models.static_counts import AccessClass
from kanalyze.ptx.parse import parse_ptx
from kanalyze.render.kernel_text import render
from kanalyze.render.listing_text import shortened
from kanalyze.results import kernel as doc
from kanalyze.text.page import Page

pytestmark = pytest.mark.usefixtures("shared_cache")

CASES = [
    ("gelu", "sm_90"),
    ("softmax", "sm_120"),
    ("row_sum", "sm_80"),
    ("matmul_relu", "sm_90"),
    ("flash_attention", "sm_100"),
]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


@cache
def report(kernel: str, arch: str) -> doc.Report:
    pytest.importorskip("triton")
    return analyze(kernel, arch=arch, listing=True)


def squeezed(text: str) -> str:
    """The text without spaces and gutters: what is left must be the same at every width."""
    return re.sub(r"[\s│─]+", "", text)


def changed(original: doc.Report, **fields: object) -> doc.Report:
    """The report with some fields of its first kernel replaced."""
    kernel = dataclasses.replace(original.kernels[0], **fields)  # type: ignore[arg-type]
    return dataclasses.replace(original, kernels=(kernel,))


@pytest.mark.parametrize(("kernel", "arch"), CASES)
@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_no_line_is_too_wide_and_nothing_is_cut(kernel: str, arch: str, width: int) -> None:
    made = report(kernel, arch)
    text = render(made, width=width)
    deepest = max(line.loop_depth for line in made.kernels[0].listing)
    slack = 0 if width >= 60 or deepest < 2 else 8
    assert max(map(cell_len, text.splitlines())) <= width + slack
    assert not any(line != line.rstrip() for line in text.splitlines())
    found = squeezed(text)
    for line in made.kernels[0].listing:
        assert squeezed(shortened(line.text)) in found
        for note in line.notes:
            assert squeezed(note) in found
    for access in made.kernels[0].accesses:
        if access.address is not None:
            assert squeezed(access.address) in found


@pytest.mark.parametrize(("kernel", "arch"), CASES)
@pytest.mark.parametrize("width", [60, 100])
def test_colors_change_nothing_but_colors(kernel: str, arch: str, width: int) -> None:
    made = report(kernel, arch)
    colored = render(made, width=width, color=True)
    assert "\x1b[" in colored
    plain = "\n".join(line.rstrip() for line in ANSI.sub("", colored).split("\n"))
    assert plain == render(made, width=width)


def test_gelu(golden: Callable[[str, str], None]) -> None:
    triton = pytest.importorskip("triton")
    made = report("gelu", "sm_90")
    text = render(made, width=100)
    for fact in (
        "4 of 4 accesses analysed",
        "2 instructions, 32 B per thread: ld.global 2 × v4.b32",
        "2 instructions, 32 B per thread: st.global 2 × v4.b32",
        "8 elements per thread",
        "128 x 1 x 1 per block",
        "at x_ptr + 4*(1024*ctaid.x + 4*(tid.x & 127) + 512)",
        "16 B per thread, 512 B per warp, v4.b32, contiguous",
        "Counts are static: instructions in the listing, not executions.",
    ):
        assert fact in text
    assert "when offsets < n" in render(made, width=200)
    if triton.__version__.startswith("3.9."):
        golden("gelu.txt", re.sub(r"\S*gelu\.py", "gelu.py", text))


def test_a_pipelined_matmul_has_loads_and_a_prologue() -> None:
    made = report("matmul_relu", "sm_90")
    text = render(made, width=100)
    copies = made.kernels[0].memory["global"]["async_copy"]
    assert copies.instructions > 0
    assert f"{copies.instructions} instructions, {copies.bytes_per_thread} B per thread" in text
    stages = [a.stage for a in made.kernels[0].accesses if a.kind == "async_copy"]
    assert f"{stages.count('prologue')} in the prologue, {stages.count('steady')} in the" in text
    assert "── prologue of a pipelined loop" in text
    assert re.search(r"│ ── loop \S+: runs ceil\(K/64\) times", text)
    assert re.search(r"tensor core \d+ × wgmma", text)
    assert re.search(r"… 64 in all …", text)


def test_loads_add_up_load_copy_and_bulk_copy() -> None:
    made = report("gelu", "sm_90")
    memory = {space: dict(kinds) for space, kinds in made.kernels[0].memory.items()}
    memory["global"]["async_copy"] = AccessClass(3, 48, {"16B": 3})
    memory["global"]["bulk_load"] = AccessClass(1, None, {"tensor.2d": 1})
    text = render(changed(made, memory=memory), listing=False)
    assert "6 instructions, ? B per thread: ld.global 2 × v4.b32; cp.async 3 × 16B;" in text
    memory["global"]["bulk_load"] = AccessClass(1, 20, {"tensor.2d": 1})
    assert "6 loads (100 B per thread)" in render(
        changed(made, memory=memory), quiet=True, width=300
    )


def test_what_is_not_analysed_is_prominent() -> None:
    made = report("gelu", "sm_90")
    access = dataclasses.replace(
        made.kernels[0].accesses[0], address=None, reason="%rd9 comes from memory"
    )
    one = changed(
        made,
        accesses=(access, *made.kernels[0].accesses[1:]),
        analysed=doc.Analysed(3, 4),
    )
    text = render(one, listing=False)
    assert "3 of 4 accesses analysed" in text
    assert f"line {access.line} {access.opcode}: %rd9 comes from memory" in text
    none = changed(made, accesses=(access,), analysed=doc.Analysed(0, 1))
    assert "\x1b[1;31m0 of 1 accesses analysed" in render(none, color=True)


def test_unknown_stands_with_its_reason() -> None:
    made = report("gelu", "sm_90")
    unknown = dataclasses.replace(
        changed(made, registers_per_thread=None, spill_store_bytes=None, spill_load_bytes=None),
        unknown=(doc.UnknownField("kernels[0].registers_per_thread", "no ptxas here"),),
    )
    text = render(unknown, listing=False)
    assert "registers   unknown (no ptxas here)" in text
    assert "? registers" in render(unknown, quiet=True, width=300)
    assert "spills none" not in text


def test_spills_are_not_none() -> None:
    made = report("gelu", "sm_90")
    text = render(changed(made, spill_store_bytes=8, spill_load_bytes=12), listing=False)
    assert "spills 8 B stored, 12 B loaded" in text


def test_a_kernel_that_does_nothing() -> None:
    module = parse_ptx(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing() { ret; }\n"
    )
    text = render(report_on([Subject(module, "nothing.ptx")], listing=True))
    assert "the kernel has no memory access but its arguments" in text
    assert "parameters  none" in text
    assert "1 instruction in" in text


def test_quiet_is_one_line_for_each_kernel() -> None:
    made = report("gelu", "sm_90")
    twice = dataclasses.replace(made, kernels=made.kernels * 2)
    lines = render(twice, quiet=True, width=300).splitlines()
    assert len(lines) == 2
    assert lines[0] == lines[1]


def test_what_was_not_read_is_listed() -> None:
    made = report("gelu", "sm_90")
    skipped = (
        doc.Skipped("other.ptx", 0, "No such file or directory"),
        doc.Skipped(made.kernels[0].file, 7, "found ')'"),
    )
    text = render(dataclasses.replace(made, skipped=skipped), listing=False)
    assert "incomplete  1 statement of the file could not be read" in text
    assert "  other.ptx: No such file or directory\n" in text
    assert f"  {made.kernels[0].file}:7: found ')'\n" in text


def test_findings_are_shown() -> None:
    made = report("gelu", "sm_90")
    finding = doc.Finding("F1", "warning", 62, "half of each sector is unused.", "Use v4.")
    text = render(changed(made, findings=(finding,)), listing=False)
    assert "warning[F1] PTX line 62: half of each sector is unused.\n  > Use v4." in text


def test_long_register_lists_are_shortened_with_their_length() -> None:
    registers = ", ".join(f"%r{i}" for i in range(128))
    assert shortened(f"op {{{registers}}}, %rd1").replace("\N{NO-BREAK SPACE}", " ") == (
        "op {%r0, %r1, %r2, … 128 in all …, %r126, %r127}, %rd1"
    )
    short = "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1]"
    assert shortened(short) == short


def test_wrapping_keeps_styles_and_words() -> None:
    page = Page(20)
    page.line(("alpha beta ", "bad"), ("gamma delta epsilon", ""), lead=[("> ", "")], hang=2)
    assert page.text(False) == ">  alpha beta gamma\n    delta epsilon\n".replace(">  ", "> ")
    page = Page(24)
    page.line(("x" * 50, ""), hang=4)
    lines = page.text(False).splitlines()
    assert [len(line) for line in lines] == [24, 24, 10]
    assert "".join(line.strip() for line in lines) == "x" * 50


def test_wide_characters_are_counted_as_terminals_show_them() -> None:
    page = Page(20)
    page.line(("日本語" * 8, ""), hang=2)
    assert all(cell_len(line) <= 20 for line in page.text(False).splitlines())


def test_markup_and_escapes_in_text_are_only_text() -> None:
    page = Page(80)
    page.line(("[bold]a\x1b[31m\tb[/bold]", "title"))
    assert page.text(False) == "[bold]a\\x1b[31m    b[/bold]\n"


def test_static_counts_say_how_many_stand_in_loops() -> None:
    folder = Path(__file__).parents[2] / "samples/questions/35_static_count_vs_dynamic_and_sass"
    made = analyze(folder / "loops.sm_80.ptx")
    of = {kernel.name: kernel for kernel in made.kernels}
    in_loops = {name: sum(a.loop_depth > 0 for a in k.accesses) for name, k in of.items()}
    assert in_loops == {"grid4": 2, "dot16": 0, "dot16v": 0, "rows": 5}
    text = " ".join(render(made, width=100).split())
    assert "5 of the 6 accesses stand in loops and run once an iteration." in text
    assert text.count("stand in loops") == 2
