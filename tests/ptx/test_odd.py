"""Odd PTX that ptxas takes is read; of broken PTX the place is said, and the rest is read."""

from __future__ import annotations

import pytest

from kanalyze import analyze, parse_ptx
from kanalyze.errors import MissingToolError
from kanalyze.ptx.instructions import least_operands
from kanalyze.toolchain import ptxas, tools

HEAD = ".version 8.0\n.target sm_90\n.address_size 64\n"


def kernel(*lines: str, name: str = "k") -> str:
    body = "\n".join(lines)
    return f"""{HEAD}.visible .entry {name}(.param .u64 x)
{{
.reg .b64 %rd<4>;
.reg .b32 %r<4>;
.reg .pred %p<2>;
ld.param.u64 %rd1, [x];
{body}
ret;
}}
"""


ACCEPTED = {
    "a blank before a modifier": (
        kernel("ld.global .u32 %r1, [%rd1];", "st .global\t.u32 [%rd1], %r1;"),
        ["ld.global.u32", "st.global.u32"],
    ),
    "no blank behind the last modifier": (
        kernel("ld.global.u32%r1,[%rd1];", "st.global.u32 [%rd1],%r1;"),
        ["ld.global.u32", "st.global.u32"],
    ),
}


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_the_assembler_takes_is_read(case: str) -> None:
    text, opcodes = ACCEPTED[case]
    module = parse_ptx(text)
    assert [d for d in module.diagnostics if d.severity == "error"] == []
    found = [i.opcode for i in module.entries[0].instructions]
    assert found == ["ld.param.u64", *opcodes, "ret"]
    try:
        ptxas.assemble(text)
    except MissingToolError as error:
        pytest.skip(str(error))


BROKEN = {
    "no address": ("ld.global.u32 %r1;", "at least 2 operands, one in [ ]"),
    "a register for an address": ("ld.global.u32 %r1, %r2;", "one in [ ]"),
    "two of three operands": ("add.s32 %r1, %r2;", "at least 3 operands"),
    "one of two operands": ("mov.u32 %r1;", "at least 2 operands"),
    "a huge number": (f"mov.u32 %r1, {'9' * 5000};", "more than 64 bits"),
    "a huge number in hexadecimal": (f"mov.b64 %rd2, 0x{'f' * 17};", "more than 64 bits"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_statement_costs_nothing_but_itself(case: str) -> None:
    line, message = BROKEN[case]
    text = kernel(line, "st.global.u32 [%rd1], %r1;")
    module = parse_ptx(text)
    (error,) = [d for d in module.diagnostics if d.severity == "error"]
    assert message in error.message
    assert (error.pos.line, error.pos.column) == (text.splitlines().index(line) + 1, 1)
    report = analyze(module, prove=False)
    assert [a.opcode for a in report.kernels[0].accesses] == ["st.global.u32"]
    assert not any("internal error" in s.reason for s in report.skipped)


def test_the_largest_numbers_are_read() -> None:
    text = kernel("mov.b64 %rd2, 0xffffffffffffffff;", "mov.b64 %rd3, 18446744073709551615;")
    assert parse_ptx(text).diagnostics == ()


@pytest.mark.parametrize(
    ("opcode", "least"),
    [("ld.global.v4.f32", (2, True)), ("fma.rn.f32", (4, False)), ("bar.sync", (0, False))],
)
def test_operands_that_an_instruction_has_at_least(opcode: str, least: tuple[int, bool]) -> None:
    assert least_operands(opcode) == least


def test_a_cycle_with_two_entries_is_reported_on() -> None:
    """The cycle of IN and BACK is entered at both; what is behind it is still reported."""
    text = kernel(
        "mov.u32 %r1, %tid.x;",
        "setp.eq.s32 %p1, %r1, 0;",
        "@%p1 bra BACK;",
        "IN:",
        "@%p1 bra OUT;",
        "BACK:",
        "bra IN;",
        "OUT:",
        "@%p1 bra IN;",
        "st.global.u32 [%rd1], %r1;",
    )
    report = analyze(parse_ptx(text), prove=False)
    assert report.skipped == ()
    assert [a.opcode for a in report.kernels[0].accesses] == ["st.global.u32"]


def test_a_prototype_without_its_semicolon() -> None:
    text = f"""{HEAD}
.visible .func (.param .s32 out) twice (.param .s32 a)

.visible .func (.param .s32 out) twice (.param .s32 a)
{{
.reg .u32 %r<3>;
ld.param.u32 %r1, [a];
add.s32 %r2, %r1, %r1;
st.param.s32 [out], %r2;
ret;
}}
"""
    module = parse_ptx(text)
    assert module.diagnostics == ()
    assert [(f.name, f.body is not None) for f in module.functions] == [
        ("twice", False),
        ("twice", True),
    ]


def test_a_section_with_braces_and_quotes_in_it_is_skipped() -> None:
    text = (
        kernel("st.global.u32 [%rd1], 7;")
        + """
.nv_other_source_section {
.code_block { .name: "with } and {"
entry @k(%a: t<p>) { // {
return
} }
}
"""
    )
    module = parse_ptx(text)
    assert module.diagnostics == ()
    (section,) = module.sections
    assert section.text.endswith("}\n}")
    broken = parse_ptx(text.rstrip().rstrip("}"))
    (error,) = [d for d in broken.diagnostics if d.severity == "error"]
    assert "section is not terminated" in error.message


def test_a_trailing_nul_is_not_given_to_the_assembler() -> None:
    try:
        tools.find("ptxas")
    except MissingToolError as error:
        pytest.skip(str(error))
    report = analyze(parse_ptx(kernel("st.global.u32 [%rd1], 7;") + "\0"), prove=False)
    assert report.kernels[0].registers_per_thread is not None
