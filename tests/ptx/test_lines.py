"""Source lines: chains of inlined helpers lead back to the user's line."""

from __future__ import annotations

from kanalyze.ptx.ir import Loc
from kanalyze.ptx.lines import SourceLine, source_of
from kanalyze.ptx.parse import parse_ptx

TEXT = """.version 8.7
.target sm_90
.entry k()
{
.loc 1 31 20
mov.u32 %r1, 0;
.loc 2 216 16, function_name $L__info_string0, inlined_at 1 31 20
mov.u32 %r1, 1;
.loc 2 196 12, function_name $L__info_string1, inlined_at 2 216 16
mov.u32 %r1, 2;
.loc 2 0 0, function_name $L__info_string1, inlined_at 1 31 20
mov.u32 %r1, 3;
.loc 1 0 0
mov.u32 %r1, 4;
}
.file 1 "/a/kernel.py"
.file 2 "/lib/standard.py"
.section .debug_str
{
$L__info_string0:
.b8 109,97,120,95,0 // string offset=0
$L__info_string1:
.b8 95,101,108,101,109,95,
.b8 109,97,120,0
}
"""


def test_chains():
    module = parse_ptx(TEXT)
    assert module.diagnostics == ()
    lines = [source_of(i.loc, module) for i in module.functions[0].instructions]
    user = SourceLine("/a/kernel.py", 31, 20)
    outer = SourceLine("/lib/standard.py", 216, 16, "max_")
    inner = SourceLine("/lib/standard.py", 196, 12, "_elem_max")
    assert lines[0] == user
    assert lines[1].chain[:-1] == (outer,)
    assert lines[2].inner == (inner, outer)
    assert [line and (line.file, line.line, line.column) for line in lines] == [
        ("/a/kernel.py", 31, 20), ("/a/kernel.py", 31, 20), ("/a/kernel.py", 31, 20),
        ("/a/kernel.py", 31, 20), None,
    ]  # fmt: skip


def test_no_line():
    module = parse_ptx(TEXT)
    assert source_of(None, module) is None
    assert source_of(Loc(9, 4, 1), module) == SourceLine("", 4, 1)
