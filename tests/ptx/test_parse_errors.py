"""What is said about text that cannot be read: the place, what was found, what was expected."""

from __future__ import annotations

import pytest

from kanalyze.errors import InputError
from kanalyze.ptx.ir import Instruction, Opaque, Pos
from kanalyze.ptx.parse import parse_ptx, parse_ptx_modules

HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n.visible .entry k()\n{\n"


def diagnosed(body: str) -> list[tuple[str, str, Pos]]:
    read = parse_ptx(f"{HEAD}{body}")
    return [(d.severity, d.message, d.pos) for d in read.diagnostics]


@pytest.mark.parametrize(
    ("statement", "message", "column"),
    [
        ("ld.global.v2.f32 {%f1, %f2, [%rd1];", "found ';', expected ',' or '}'", 35),
        ("add.s32 %r1, %r2 %r3;", "found '%r3', expected ',', '[', ';' or an operator", 18),
        ("add.s32 %r1,, %r3;", "found ','", 13),
        ("ld.global.b32 %r1, [%rd1;", "found ';', expected ',' or ']'", 25),
        ("mov.f32 %f1, 0f3F8;", "found '0f3F8'", 14),
        ("mov.u32 %r1, 12é;", "found 'é'", 16),
        ("@%p1 ;", "found ';'", 6),
        ("= 4;", "found '='", 1),
        (".reg .b32;", "found ';', expected", 10),
        (".what %r1;", "found '%r1', expected a number or ';'", 7),
    ],
)
def test_unreadable_statements(statement, message, column):
    read = parse_ptx(f"{HEAD}mov.u32 %r1, 1;\n{statement}\nret;\n}}\n")
    (found,) = read.diagnostics
    assert found.severity == "error"
    assert found.message.startswith(message)
    assert found.pos == Pos(7, column)
    before, opaque, after = read.functions[0].body
    assert isinstance(before, Instruction)
    assert opaque == Opaque(statement, Pos(7, 1))
    assert after.opcode == "ret"


def test_a_missing_semicolon_is_reported_at_the_next_statement():
    ((_, message, pos),) = diagnosed("add.s32 %r1, %r2, %r3\nsub.s32 %r1, %r2, %r3;\nret;\n}")
    assert message.startswith("found 'sub.s32', expected")
    assert pos == Pos(7, 1)


@pytest.mark.parametrize(
    ("body", "message", "pos"),
    [
        ("ret;\n", "found the end of the file in a body, expected '}'", Pos(6, 5)),
        ("ret;\n/* x\n}\n", "the comment is not terminated, expected '*/'", Pos(7, 1)),
        ("add.s32 %r1, /* x\n}\n", "the comment is not terminated, expected '*/'", Pos(6, 14)),
        ('.pragma "x;\n}\n', "the string is not terminated, expected '\"'", Pos(6, 9)),
        ("add.s32 %r1", "found the end of the file, expected ';'", Pos(6, 12)),
    ],
)
def test_unterminated(body, message, pos):
    assert diagnosed(body)[0] == ("error", message, pos)


def test_a_long_comment_at_the_end_takes_no_long_time():
    ((_, message, pos),) = diagnosed("ret;\n" + "/" * 1_000_000)
    assert message == "found the end of the file in a body, expected '}'"
    assert pos == Pos(7, 1_000_001)


def test_a_truncated_header_names_the_place():
    (found,) = parse_ptx(".version 8.7\n.target sm_90\n.entry k(.param .u64 p,\n\n").diagnostics
    assert found.message.startswith("found the end of the file in a function header, expected")
    assert found.pos == Pos(3, 24)


def test_module_level_problems_leave_the_rest():
    text = HEAD.replace(".visible", ".global .b32 x[;\n%%\n.visible") + "ret;\n}\n"
    read = parse_ptx(text)
    assert [(d.severity, d.pos) for d in read.diagnostics] == [
        ("error", Pos(4, 16)), ("error", Pos(5, 1)),
    ]  # fmt: skip
    assert len(read.entries) == 1


def test_warnings():
    body = ".entry k()\n{\nret;\n}\n"
    assert [d.message for d in parse_ptx(body).diagnostics] == [
        "found no .version directive", "found no .target directive",
    ]  # fmt: skip
    twice = parse_ptx(f".version 8.7\n.target sm_90\n{body}{body}")
    ((found),) = twice.diagnostics
    assert (found.severity, found.pos) == ("warning", Pos(7, 1))
    assert found.message == "found a second body of 'k', the first is in line 3"
    (found,) = parse_ptx(f".version 8.7\n.target gfx942\n{body}").diagnostics
    assert (found.severity, found.pos) == ("error", Pos(2, 1))
    captured = parse_ptx(f"loading …\n.version 8.7\n.target sm_90\n{body}tensor([1.])\n")
    assert [(d.severity, d.pos.line) for d in captured.diagnostics] == [
        ("warning", 1), ("warning", 8),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "an empty file"),
        (" \n\t\n", "an empty file"),
        ("// only\n/* comments */\n", "nothing but comments"),
        ("<!DOCTYPE html>\n<html></html>", "HTML or XML"),
        ('{"name": "k", "num_warps": 4}', "JSON"),
        ("#blocked = #ttg.blocked<{sizePerThread = [4]}>\nmodule {\n}\n", "MLIR"),
        ("module attributes {x = 1 : i32} {\n", "MLIR"),
        ("; ModuleID = 'x'\nsource_filename = \"x\"\n", "LLVM IR"),
        ("        /*0000*/                   LDC R1, c[0x0][0x28] ;\n", "SASS"),
        ("\x7fELF\x02\x01\x01\0\0\0", "an ELF file"),
        ("\x01\x02\0\0\ufffd\ufffd\x05\0", "binary data"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a git-lfs pointer"),
    ],
)
def test_what_is_no_ptx(text, what):
    with pytest.raises(InputError, match=f"found {what}.*expected PTX") as caught:
        parse_ptx(text, "f.ptx")
    assert str(caught.value).startswith("f.ptx:1:")


def test_any_other_text():
    with pytest.raises(InputError) as caught:
        parse_ptx("hello\nworld\n", "f.ptx")
    assert str(caught.value) == (
        "f.ptx:1:1: found no PTX, expected a '.version' directive\n  hello\n  ^"
    )


def test_several_modules_are_refused_by_the_function_for_one():
    text = ".version 8.7\n.target sm_90\n.entry a()\n{\nret;\n}\n"
    with pytest.raises(InputError, match=r"found 2 PTX modules.*parse_ptx_modules") as caught:
        parse_ptx(text + text, "f.ptx")
    assert caught.value.spot.line == 7
    assert len(parse_ptx_modules(text + text)) == 2
