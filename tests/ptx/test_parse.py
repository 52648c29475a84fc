"""Reading PTX: operands, declarations, functions, positions, line ends."""

from __future__ import annotations

import copy
import pickle
import struct
import subprocess
import sys

import pytest

from kanalyze.ptx.ir import (
    Address,
    Directive,
    Function,
    Guard,
    Immediate,
    Instruction,
    Label,
    Module,
    Name,
    Not,
    Opaque,
    Pair,
    Pos,
    RegisterDeclaration,
    ScopeClose,
    ScopeOpen,
    Variable,
    Vector,
)
from kanalyze.ptx.parse import parse_ptx, parse_ptx_modules

HEAD = ".version 8.7\n.target sm_90a, debug\n.address_size 64\n"


def module(body: str, head: str = HEAD) -> Module:
    return parse_ptx(f"{head}.visible .entry k(.param .u64 p)\n{{\n{body}\n}}\n")


def only(statement: str) -> Instruction:
    """The one instruction of a body; nothing may be reported."""
    read = module(statement)
    assert read.diagnostics == ()
    (instruction,) = read.functions[0].body
    assert isinstance(instruction, Instruction)
    return instruction


def n(*names: str) -> tuple[Name, ...]:
    return tuple(Name(name) for name in names)


OPERANDS = [
    ("ret;", ()),
    ("mov.u32 %r1, %tid.x;", n("%r1", "%tid.x")),
    ("mov.b64 {%r1, _}, %rd1;", (Vector(n("%r1", "_")), Name("%rd1"))),
    ("ld.global.b32 %r1, [%rd1];", (Name("%r1"), Address(Name("%rd1")))),
    ("ld.global.b32 %r1, [ %rd1 + 0 ];", (Name("%r1"), Address(Name("%rd1")))),
    ("ld.global.b32 %r1, [%rd1+16];", (Name("%r1"), Address(Name("%rd1"), 16))),
    ("ld.global.b32 %r1, [%rd1+-4];", (Name("%r1"), Address(Name("%rd1"), -4))),
    ("ld.global.b32 %r1, [%rd1-4];", (Name("%r1"), Address(Name("%rd1"), -4))),
    ("ld.global.b32 %r1, [%rd1+0x10];", (Name("%r1"), Address(Name("%rd1"), 16))),
    ("ld.global.b32 %r1, [%rd1+4*(2+1)];", (Name("%r1"), Address(Name("%rd1"), 12))),
    ("ld.global.b32 %r1, [%rd1-4-4];", (Name("%r1"), Address(Name("%rd1"), -8))),
    ("ld.shared.b32 %r1, [64];", (Name("%r1"), Address(Immediate("64", 64)))),
    ("ld.const.b32 %r1, t[3];", (Name("%r1"), Address(Name("t"), 0, (Immediate("3", 3),)))),
    (
        "ld.global.v4.b32 {%r1,%r2,%r3,%r4},[%rd1];",
        (Vector(n("%r1", "%r2", "%r3", "%r4")), Address(Name("%rd1"))),
    ),
    (
        "setp.lt.and.s32 %p1|%p2, %r1, -5, !%p3;",
        (Pair(*n("%p1", "%p2")), Name("%r1"), Immediate("-5", -5), Not(Name("%p3"))),
    ),
    ("elect.sync _|%p1, -1;", (Pair(*n("_", "%p1")), Immediate("-1", -1))),
    (
        "tex.2d.v4.f32.f32 {a,b,c,d}, [t, s, {%f1, %f2}];",
        (
            Vector(n("a", "b", "c", "d")),
            Address(Name("t"), 0, (Name("s"), Vector(n("%f1", "%f2")))),
        ),
    ),
    (
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
        " [%r1], [%rd1, {%r2, %r3}], [%r4+8];",
        (
            Address(Name("%r1")),
            Address(Name("%rd1"), 0, (Vector(n("%r2", "%r3")),)),
            Address(Name("%r4"), 8),
        ),
    ),
    (
        "call.uni (%r1), f, (%r2, 4), proto;",
        (Vector(n("%r1")), Name("f"), Vector((Name("%r2"), Immediate("4", 4))), Name("proto")),
    ),
    ("call (r), f, ();", (Vector(n("r")), Name("f"), Vector(()))),
    ("call f, (-1);", (Name("f"), Vector((Immediate("-1", -1),)))),
    ("call f;", n("f")),
    ("mov.u32 %r1, (3 | 4) << 2;", (Name("%r1"), Immediate("(3 | 4) << 2", 28))),
    ("mov.u32 %r1, 2+3*4;", (Name("%r1"), Immediate("2+3*4", 14))),
    ("mov.u32 %r1, 1 > 2 ? 3 : 4;", (Name("%r1"), Immediate("1 > 2 ? 3 : 4", 4))),
    ("mov.b64 %rd1, a+4;", (Name("%rd1"), Immediate("a+4", None))),
    (
        "mma.sync.aligned.m8n8k4 {{%r1,%r2},{%r3,%r4}}, %r5;",
        (Vector((Vector(n("%r1", "%r2")), Vector(n("%r3", "%r4")))), Name("%r5")),
    ),
]


@pytest.mark.parametrize(("statement", "operands"), OPERANDS)
def test_operands(statement, operands):
    # Twice: the first reading makes the shape, the second one binds to it.
    assert only(statement).operands == operands
    assert only(statement).operands == operands


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("42", 42), ("42U", 42), ("0x1F", 31), ("0X1fU", 31), ("017", 15), ("0b101", 5),
        ("1.5", 1.5), ("1.", 1.0), ("1.5e-3", 1.5e-3), ("2e5", 2e5),
        ("0f3F800000", 1.0), ("0F3f800000", 1.0), ("0fBF000000", -0.5), ("0d4000000000000000", 2.0),
        ("0f3D372713", struct.unpack(">f", bytes.fromhex("3D372713"))[0]),
    ],
)  # fmt: skip
def test_numbers(text, value):
    operand = only(f"mov.b32 %r1, {text};").operands[1]
    assert operand == Immediate(text, value)
    assert type(operand.value) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("-7 / 2", -3), ("7 % 4", 3), ("~0", -1), ("!5", 0), ("1 << 3 | 1", 9), ("5 - 3 - 1", 1),
     ("0x10 == 16 && 2 < 1", 0), ("(.s64) 0xffffffffffffffff", -1), ("1 << 200", None),
     ("1 / 0", None)],
)  # fmt: skip
def test_constant_expressions(text, value):
    operand = only(f"mov.b32 %r1, {text};").operands[1]
    assert operand == Immediate(text, value)


def test_guards():
    assert only("@%p1 bra L;").guard == Guard("%p1")
    assert only("@!%p1 bra L;").guard == Guard("%p1", negated=True)
    assert only("@!complete bra.uni L;").guard == Guard("complete", negated=True)
    assert only("bra L;").guard is None


def test_an_instruction_over_several_lines_with_comments():
    read = only("add.s32 %r1, // the sum\n  /* of */ %r2,\n  %r3;")
    assert read.operands == n("%r1", "%r2", "%r3")
    assert read.pos == Pos(6, 1)


def test_several_statements_on_a_line():
    body = module(".reg .b32 %r<4>; mov.b32 %r1, 1; L: add.s32 %r2,%r1,%r1; @%p bra L; ret;")
    kinds = [type(s) for s in body.functions[0].body]
    assert kinds == [RegisterDeclaration, Instruction, Label] + [Instruction] * 3
    assert body.functions[0].body[3].pos == Pos(6, 37)


def test_registers():
    body = module(".reg .b32 %r<121>;\n.reg .pred p, %q<2>;\n.reg .v4 .f32 v;").functions[0].body
    assert body == (
        RegisterDeclaration("b32", ("%r",), (121,), Pos(6, 1)),
        RegisterDeclaration("pred", ("p", "%q"), (None, 2), Pos(7, 1)),
        RegisterDeclaration("v4.f32", ("v",), (None,), Pos(8, 1)),
    )


def test_variables():
    read = parse_ptx(
        HEAD + ".extern .shared .align 16 .b8 smem[];\n"
        ".global .align 4 .b8 str[3] = {104, 105, 0};\n"
        ".visible .const .f32 a[4][5], b = 0f3F800000;\n"
        ".global .texref tex;\n.weak .global .v4 .f32 w;\n"
        ".global .attribute(.managed) .s32 m = -12;\n"
    )
    assert read.diagnostics == ()
    smem, text, a, b, tex, w, m = read.variables
    assert (smem.name, smem.space, smem.linkage, smem.align) == ("smem", "shared", "extern", 16)
    assert (smem.elements, smem.bytes) == (None, None)
    assert (text.name, text.elements, text.bytes, text.initializer) == (
        "str",
        3,
        3,
        "{104, 105, 0}",
    )
    assert (a.type, a.elements, a.bytes, a.initializer) == ("f32", 20, 80, None)
    assert (b.elements, b.bytes, b.initializer) == (1, 4, "0f3F800000")
    assert (tex.type, tex.bytes) == ("texref", 0)
    assert (w.type, w.bytes, w.linkage) == ("v4.f32", 16, "weak")
    assert (m.name, m.initializer, m.pos) == ("m", "-12", Pos(9, 1))


def test_functions():
    text = HEAD + (
        ".extern .func (.param .b32 r) f (.param .b64 a, .param .align 8 .b8 b[16]) .noreturn;\n"
        ".visible .entry k(\n"
        "\t.param .u64 .ptr .global .align 16 k_param_0, // pointer\n"
        "\t.param .u64 .ptr k_param_1,\n"
        "\t.param .align 64 .b8 k_param_2[128]\n"
        ")\n.maxntid 128, 1, 1\n.minnctapersm 2\n.explicitcluster\n{\nret;\n}\n"
        ".func g { ret; }\n"
    )
    f, k, g = parse_ptx(text).functions
    assert (f.kind, f.name, f.linkage, f.body, f.directives) == (
        "func", "f", "extern", None, {"noreturn": ()},
    )  # fmt: skip
    assert [(p.name, p.bytes) for p in f.returns] == [("r", 4)]
    assert [(p.name, p.bytes, p.align) for p in f.parameters] == [("a", 8, None), ("b", 16, 8)]
    assert (k.kind, k.linkage, k.pos, k.end) == ("entry", "visible", Pos(5, 1), Pos(15, 1))
    assert k.directives == {"maxntid": (128, 1, 1), "minnctapersm": (2,), "explicitcluster": ()}
    first, second, third = k.parameters
    assert (first.pointer, first.pointer_align, first.align) == ("global", 16, None)
    assert first.pos == Pos(6, 1 + text.splitlines()[5].index("k_param_0"))
    assert (second.pointer, second.pointer_align) == ("generic", None)
    assert (third.pointer, third.align, third.bytes) == (None, 64, 128)
    assert (g.name, g.parameters, len(g.body)) == ("g", (), 1)


def test_module():
    read = parse_ptx(
        HEAD + '.file 1 "/a/b.py", 12, 34\n.file 2 "/d" "e.py"\n.pragma "nounroll";\n'
        ".alias a, b;\n.section .debug_str\n{\n$L: .b8 1, 2\n.b32 .debug_abbrev\n}\n",
        "x.ptx",
    )
    assert read.diagnostics == ()
    assert (read.name, read.version, read.target) == ("x.ptx", "8.7", ("sm_90a", "debug"))
    assert (read.address_size, read.files) == (64, {1: "/a/b.py", 2: "/d/e.py"})
    assert [(d.name, d.text) for d in read.directives] == [
        ("pragma", '.pragma "nounroll";'), ("alias", ".alias a, b;"),
    ]  # fmt: skip


def test_scopes():
    function = module("{\n.reg .b32 t;\n{ ret; }\n}\n{ L: }").functions[0]
    assert function.scopes == (-1, 0, 1, 0)
    assert [(type(s), s.scope) for s in function.body] == [
        (ScopeOpen, 1), (RegisterDeclaration, 1), (ScopeOpen, 2), (Instruction, 2),
        (ScopeClose, 2), (ScopeClose, 1), (ScopeOpen, 3), (Label, 3), (ScopeClose, 3),
    ]  # fmt: skip


def test_body_directives():
    body = (
        module(
            '.pragma "used; {bytes} // mask";\nt: .branchtargets A, B;\n'
            "p: .callprototype (.param .b32 _) _ (.param .b64 _);\nA:\nB:\n"
            ".local .align 8 .b8 depot[88];\n.param .b32 retval0;"
        )
        .functions[0]
        .body
    )
    assert [s.name for s in body if isinstance(s, Directive)] == [
        "pragma", "branchtargets", "callprototype",
    ]  # fmt: skip
    assert [(s.name, s.space, s.bytes) for s in body if isinstance(s, Variable)] == [
        ("depot", "local", 88), ("retval0", "param", 4),
    ]  # fmt: skip


def test_loc_of_inline_assembly_is_the_one_before_it():
    first, load, second, after = (
        module(
            ".loc 1 10 16 // a.py:10:16\nadd.s32 %r1, %r2, %r3;\n"
            "// begin inline asm\n.loc 1 99 1\n@%p1 ld.global.b32 %r1, [%rd1];\n"
            ".loc 1 100 1\nmov.u32 %r2, 0;\n// end inline asm\nadd.s32 %r1, %r2, %r3;"
        )
        .functions[0]
        .body
    )
    assert [i.loc.line for i in (first, load, second, after)] == [10, 10, 10, 10]
    assert [i.inline_asm for i in (first, load, second, after)] == [False, True, True, False]


def test_loc_chains():
    one, two, three = (
        module(
            ".loc 1 20 4\nmov.u32 %r1, 1;\n"
            ".loc 2 7 3, function_name $L__info_string0, inlined_at 1 20 4\nmov.u32 %r1, 2;\n"
            ".loc 3 5 1, function_name $L__info_string1, inlined_at 2 7 3\nmov.u32 %r1, 3;"
        )
        .functions[0]
        .body
    )
    assert one.loc.inlined_at is None
    assert two.loc.inlined_at == one.loc
    assert three.loc.inlined_at == two.loc
    assert (three.loc.function, three.loc.inlined_at.function) == (
        "$L__info_string1", "$L__info_string0",
    )  # fmt: skip


def test_a_place_inlined_into_itself_gives_no_endless_chain():
    line = ".loc 1 5 1, function_name $L__s, inlined_at 1 5 1\nmov.u32 %r1, 1;\n"
    last = module(line * 5000).functions[0].body[-1]
    depth, loc = 0, last.loc
    while loc is not None:
        depth, loc = depth + 1, loc.inlined_at
    assert depth < 100


TEXT = f"{HEAD}.visible .entry k()\n{{\n\tmov.u32 %r1, 1;\n// c\n\n\tadd.s32 %r1, %r1, %r1;\n}}\n"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize(
    ("before", "after"), [("", ""), ("\ufeff", ""), ("", "\0\0"), ("", "\x1a")]
)
def test_line_ends_marks_and_trailing_nul(end, before, after):
    text = before + TEXT.replace("\n", end) + after
    read = parse_ptx(text)
    assert [d.severity for d in read.diagnostics] == ["warning"] * len(before)
    assert read.text == text
    assert [i.pos for i in read.functions[0].instructions] == [Pos(6, 2), Pos(9, 2)]
    assert read.functions == parse_ptx(TEXT).functions


def test_a_byte_order_mark_has_no_width():
    text = "\ufeff.version 8.7 .target sm_90 .entry k() { ret; }"
    read = parse_ptx(text)
    assert read.functions[0].pos == Pos(1, text.index(".entry"))
    assert [i.pos for i in read.functions[0].instructions] == [Pos(1, text.index("ret"))]


def test_things_in_comments_and_strings_are_no_statements():
    body = (
        module(
            "// ld.global.b32 %r1, [%rd1];\n/* ld.global.b32 %r1, [%rd1];\n} */ ret;"
            '\n.pragma "ld.global.b32 %r1, [%rd1]; } //";'
        )
        .functions[0]
        .body
    )
    assert [getattr(s, "opcode", s) for s in body[:-1]] == ["ret"]


def test_names_that_look_like_keywords():
    function = module("ld: mov.u32 st, ld.x;\nbra ld;\n_: ret;\n$entry: ret;").functions[0]
    assert [s.name for s in function.body if isinstance(s, Label)] == ["ld", "_", "$entry"]


def test_several_modules():
    dump = "\nFatbin ptx code:\n================\narch = sm_80\ncode version = [8,7]\n\n" + TEXT
    read = parse_ptx_modules(dump + dump)
    assert [len(m.entries) for m in read] == [1, 1]
    assert all(m.diagnostics == () for m in read)
    before = (dump + dump).rindex(".visible")
    assert read[1].functions[0].pos == Pos((dump + dump).count("\n", 0, before) + 1, 1)
    assert parse_ptx(dump).diagnostics == ()


def test_instructions_are_frozen_values():
    one, two = module("add.s32 %r1, %r2, %r3;\nadd.s32 %r1, %r2, %r3;").functions[0].body
    again = module("add.s32 %r1, %r2, %r3;").functions[0].body[0]
    built = Instruction("add.s32", n("%r1", "%r2", "%r3"), None, Pos(6, 1))
    assert one == again == built
    assert one != two
    assert hash(one) == hash(built)
    assert repr(one) == repr(built)
    assert (one.base, one.parts) == ("add", ("add", "s32"))
    with pytest.raises(AttributeError):
        one.opcode = "sub.s32"
    with pytest.raises(AttributeError):
        _ = one.nothing
    for copied in (copy.deepcopy(two), pickle.loads(pickle.dumps(two)), copy.copy(two)):
        assert copied == two


def test_operands_are_bound_to_their_own_slots():
    """Two statements of one shape keep their own names, numbers and signs."""
    body = (
        module(
            "ld.global.b32 %r1, [%rd1+4];\nld.global.b32 %r2, [%rd2+8];\n"
            "call (r1), f, (a);\ncall (r2), g, (b);\nmov.u32 a, (4);\nmov.u32 b, (5);\n"
            "call f, (a);\nmov.u32 f, (a);"
        )
        .functions[0]
        .body
    )
    assert body[1].operands == (Name("%r2"), Address(Name("%rd2"), 8))
    assert body[3].operands == (Vector(n("r2")), Name("g"), Vector(n("b")))
    assert [i.operands[1].value for i in body[4:6]] == [4, 5]
    assert body[6].operands == (Name("f"), Vector(n("a")))
    assert body[7].operands == (Name("f"), Immediate("(a)", None))


def test_importing_the_ir_does_not_import_lark():
    code = "import sys, kanalyze.ptx.parse; print('lark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_no_recursion_over_depth():
    deep = "{\n" * 20_000 + "ret;\n" + "}\n" * 20_000
    function = module(deep).functions[0]
    assert isinstance(function, Function)
    assert len(function.scopes) == 20_001
    nested = module(f"mov.b32 %r1, {'(' * 5000}1{')' * 5000};")
    assert [d.message for d in nested.diagnostics] == ["brackets are nested more than 32 deep"]
    assert isinstance(nested.functions[0].body[0], Opaque)
