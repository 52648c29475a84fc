"""PTX written from the IR reads as an equal module: by hand, bundled kernels, a corpus."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
import struct
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from kanalyze.errors import InputError
from kanalyze.ptx import ir
from kanalyze.ptx.ir import Instruction, Loc, Module, Pos
from kanalyze.ptx.parse import parse_ptx, parse_ptx_modules
from kanalyze.ptx.write import instruction_text, operand_text, write_ptx

pytestmark = pytest.mark.slow("compiles every bundled kernel")

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
SHARED = Path(__file__).parents[3] / "shared" / "ptx"
CORPUS = pytest.mark.skipif(
    not (SHARED / "corpus.tar.gz").is_file(), reason="the corpus of PTX files is not here"
)

# ---------------------------------------------------------------- equality but for positions


def equal_but_for_positions(one: object, other: object) -> bool:
    """Whether nodes of the IR differ in positions, diagnostics and the module's text at most."""
    return next(differences(one, other), None) is None


def differences(one: object, other: object, path: str = "module") -> Iterator[str]:
    if one is other:
        return
    if type(one) is not type(other):
        yield f"{path}: {one!r:.120} is not {other!r:.120}"
    elif dataclasses.is_dataclass(one):
        for field in dataclasses.fields(one):
            if field.name in ("pos", "end", "diagnostics"):
                continue
            if field.name == "text" and isinstance(one, Module):
                continue
            mine, theirs = getattr(one, field.name), getattr(other, field.name)
            yield from differences(mine, theirs, f"{path}.{field.name}")
    elif isinstance(one, tuple) and isinstance(other, tuple):
        if len(one) != len(other):
            yield f"{path}: {len(one)} items are not {len(other)}"
        for number, (mine, theirs) in enumerate(zip(one, other, strict=False)):
            yield from differences(mine, theirs, f"{path}[{number}]")
    elif one != other and not (one != one and other != other):  # two NaN
        yield f"{path}: {one!r:.120} is not {other!r:.120}"


def test_the_equality_sees_every_field() -> None:
    text = HEAD + ".entry k()\n{\n.reg .b32 %r<4>;\n.loc 1 2 3\nmov.b32 %r1, t[2];\n}\n"
    one = parse_ptx(text)
    assert equal_but_for_positions(one, parse_ptx("\n\n" + text.replace("\n", "\n  ")))
    for old, new in [
        ("8.7", "8.6"), ("sm_90", "sm_80"), ("64", "32"), ("entry k", "entry j"), ("entry", "func"),
        ("<4>", "<5>"), ("1 2 3", "1 2 4"), ("t[2]", "[t, 2]"), ("t[2]", "t"),
        ("k()", "k(.param .b32 a)"),
        ("mov", "@p mov"), ("mov", "// begin inline asm\nmov"), ("mov", "{\nmov"),
        ("{\n", ".maxntid 3\n{\n"), ("{\n", '.pragma "x";\n{\n'),
    ]:  # fmt: skip
        other = parse_ptx(text.replace(old, new, 1))
        assert not equal_but_for_positions(one, other), new
    assert equal_but_for_positions(float("nan"), float("nan"))


def round_trip(text: str, *, clean: bool = True) -> str:
    """Write what ``text`` reads as; the text written, which must read as the same."""
    module = parse_ptx(text, "x.ptx")
    written = write_ptx(module)
    again = parse_ptx(written, "x.ptx")
    assert list(differences(module, again)) == []
    if clean:
        assert module.diagnostics == ()
    assert [d.message for d in again.diagnostics] == [d.message for d in module.diagnostics]
    assert write_ptx(again) == written
    return written


# ---------------------------------------------------------------- by hand

MODULES = {
    "directives": HEAD + '.file 1 "/a/b.py"\n.file 2 "/d" "e.py", 12, 34\n.pragma "nounroll";\n'
    ".func f { ret; }\n.alias g, f;\n.section .debug_str\n{\n$L: .b8 1, 2 // }\n}\n",
    "target options": ".version 1.4\n.target sm_10, map_f64_to_f32\n.entry k { exit; }\n",
    "no head": ".entry k { exit; }\n",
    "variables": HEAD + ".visible .global .align 4 .b8 a[4] = {1, 2, 3, 4};\n"
    ".global .attribute(.managed) .u32 m;\n.global .u32 grid[2][3] = {{1,2,3},{4,5,6}};\n"
    ".extern .shared .align 16 .b8 s[];\n.const .f32 pi = 0f40490FDB, e;\n.tex .u32 t;\n"
    ".global .texref tr;\n.weak .global .v4 .f32 v;\n.common .global .b32 c;\n"
    ".global .u64 p = generic(m)+4;\n.global .b32 open[][2] = {{1,2}};\n.global .b32 one[1];\n"
    ".global .s32 n = -12;\n.global .b8 mask[] = {0xFF(m), 0};\n",
    "functions": HEAD + ".extern .func (.param .b32 r) f (.param .b64 a, .param .align 8 .b8 b[16])"
    " .noreturn;\n.visible .entry k(\n\t.param .u64 .ptr .global .align 16 p0,\n"
    "\t.param .u64 .ptr p1,\n"
    "\t.param .align 64 .b8 p2[128],\n\t.param .b8 p3[1]\n)\n.maxntid 128, 1, 1\n.minnctapersm 2\n"
    '.explicitcluster\n.pragma "used_bytes_mask 1";\n.pragma "another";\n{\nret;\n}\n'
    ".func (.reg .u32 r) twice(.reg .u32 a, .reg .v2 .f32 b) { add.u32 r, a, a; ret; }\n"
    ".weak .func .attribute(.unified(1, 2)) h;\n",
}  # fmt: skip


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    round_trip(MODULES[name], clean=name != "no head")


def test_what_a_variable_has_is_written() -> None:
    written = round_trip(MODULES["variables"])
    for line in (
        ".global .attribute(.managed) .u32 m;",
        ".global .u32 grid[2][3] = {{1,2,3},{4,5,6}};",
        ".extern .shared .align 16 .b8 s[];",
        ".const .f32 pi = 0f40490FDB;",
        ".const .f32 e;",
        ".weak .global .v4 .f32 v;",
        ".global .b32 open[][2] = {{1,2}};",
        ".global .b32 one[1];",
    ):
        assert f"{line}\n" in written


def test_what_a_function_has_is_written() -> None:
    written = round_trip(MODULES["functions"])
    for line in (
        ".extern .func (.param .b32 r) f(",
        "\t.param .u64 .ptr .global .align 16 p0,",
        "\t.param .u64 .ptr p1,",
        "\t.param .b8 p3[1]",
        ".maxntid 128, 1, 1",
        ".explicitcluster",
        '.pragma "used_bytes_mask 1";',
        ".func (.reg .u32 r) twice(",
        ".weak .func .attribute(.unified(1, 2)) h();",
    ):
        assert f"{line}\n" in written


def test_the_order_of_the_source_stays() -> None:
    text = HEAD + ".global .b32 a;\n.func f { ret; }\n.global .b32 b;\n.alias g, f;\n.func h;\n"
    written = round_trip(text)
    marks = [written.index(w) for w in (" a;", ".func f", " b;", ".alias", ".func h")]
    assert marks == sorted(marks)


BODIES = {
    "registers": ".reg .b32 %r<121>, x;\n.reg .v4 .f32 %f<8>;\n.reg .pred p, q;\nret;",
    "scopes": "{\n.reg .b32 t;\n{ mov.b32 t, 1; }\n}\n{ L: bra L; }\nret;",
    "labels": "L1:\nL2: bra L1;\nL3:",
    "locals": ".local .align 8 .b8 depot[88];\n.param .b32 r0;\n.shared .b32 s[2][2];\nret;",
    "directives": '.pragma "used; {bytes} // mask";\nt: .branchtargets A, B;\nbrx.idx %r1, t;\n'
    "p: .callprototype (.param .b32 _) _ (.param .b64 _, .param .b8 _[4]);\nA:\nB:\nret;",
    "calls": "call.uni (r0), f, (p0, p1);\ncall f;\ncall f, ();\ncall (r0), %rd1, (p0), proto;\n"
    "@p call (r0), f, (1, %r2);\ncall (), f, (a);",
    "operands": "mov.b64 %rd1, {%r1, %r2};\nmov.b64 {_, %r2}, %rd1;\n"
    "setp.eq.s32 %p1|%p2, %r1, -5;\n"
    "setp.eq.and.s32 %p1|_, %r1, 5, !%p2;\nld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1+-16];\n"
    "ld.const.b32 %r1, t[3];\nld.const.b32 %r1, t[%r3];\n"
    "ld.shared.b32 %r1, [64];\nld.b32 %r1, [-4];\n"
    "ld.b32 %r1, [a+4*(2+1)];\nld.b32 %r1, [a+b];\nmov.b32 %r1, (4+5)/3;\n"
    "mov.f32 %f1, 0f3F800000;\n"
    "mov.b32 %r1, 0x10;\nmov.f64 %fd1, 1.5e-3;\nmov.b32 %r1, a+4;\nmov.s64 %rd1, (.s64)1;\n"
    "mov.f32 %f1, 0f7FC00000;\nmov.b32 %r1, 1 ? 2 : 3;\nst.b32 [%rd1], 010;",
    "textures": "tex.2d.v4.f32.f32 {%f1,%f2,%f3,%f4}, [t, s, {%f5,%f6}];\n"
    "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [t, {%r1}];\n"
    "tex.1d.v4.f32.s32 {%f1,%f2,%f3,%f4}, [t, %r1];\n"
    "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
    "[%r1], [%rd1, {%r2, %r3}], [%r4+8];\nsuld.b.1d.b32.trap %r1, [surf, {%r2}];",
    "guards": "@%p1 add.s32 %r1, %r2, %r3;\n@!p ret;\n@! %p1 exit;",
    "inline assembly": "mov.b32 %r1, 0;\n// begin inline asm\nmov.b32 %r2, 1;\n// end inline asm\n"
    "// begin inline asm\n{ .reg .pred q; @q mov.b32 %r3, 2; }\n// end inline asm\nmov.b32 %r4, 3;",
    "inline assembly with lines": ".loc 1 2 3\n// begin inline asm\nmov.b32 %r2, 1;\n"
    "// end inline asm\n.loc 1 4 5\n// begin inline asm\n.loc 1 9 9\nmov.b32 %r2, 1;\n"
    "// end inline asm\nmov.b32 %r1, 2;",
    "inlined lines": ".loc 1 10 2\nmov.b32 %r1, 1;\n"
    ".loc 2 5 6, function_name $L1, inlined_at 1 10 2\n"
    "mov.b32 %r1, 2;\n.loc 3 7 8, function_name $L1+4, inlined_at 2 5 6\nmov.b32 %r1, 3;\n"
    ".loc 1 10 2\nmov.b32 %r1, 4;\n.loc 2 5 6\nmov.b32 %r1, 5;\n"
    ".loc 3 7 8, function_name $L1, inlined_at 2 5 6\nmov.b32 %r1, 6;\n"
    ".loc 3 7 8, function_name $L1, inlined_at 9 9 9\nmov.b32 %r1, 7;",
    "inlined into itself": ".loc 1 1 1\nmov.b32 %r1, 1;\n"
    + ".loc 1 1 1, function_name $L, inlined_at 1 1 1\nmov.b32 %r1, 2;\n" * 70,
    "comments": "mov.b32 /* a */ %r1, // b\n %r2;\n/* begin inline asm */ ret;",
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_bodies(name: str, end: str) -> None:
    round_trip(f"{HEAD}.entry k()\n{{\n{BODIES[name]}\n}}\n.func g {{ ret; }}\n".replace("\n", end))


def test_callers_stand_before_what_is_inlined_into_them() -> None:
    """As ptxas wants it, also where the caller's own line has no instruction."""
    text = BODIES["inlined lines"].split("\n", 2)[2]
    lines = round_trip(f"{HEAD}.entry k()\n{{\n{text}\n}}\n").splitlines()
    assert lines.index("\t.loc 1 10 2") < lines.index(
        "\t.loc 2 5 6, function_name $L1, inlined_at 1 10 2"
    )


UNREADABLE = {
    "statement": "add.s32 %r1, [;\nret;\n}",
    "brace": "foo }",
    "opening brace": "foo {\nret;\n}\n}",
    "end of the file": "ret;\nadd.s32 %r1, %r2",
    "comment": "ret;\n/* add.s32",
    "comment in a statement": "ret;\nadd.s32 /* add.s32",
    "string": 'ret;\n.pragma "abc;\nret;\n}\n',
    "scope": "{\n{\nret;",
    "directive": ".nonsense { ret; }\n}",
    "nothing": "",
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_unreadable_statements_stand_as_they_are(name: str) -> None:
    module = parse_ptx(f"{HEAD}.entry k()\n{{\n{UNREADABLE[name]}", "x.ptx")
    again = parse_ptx(write_ptx(module), "x.ptx")
    assert list(differences(module, again)) == []
    assert any(d.severity == "error" for d in module.diagnostics)


def test_nodes_made_by_hand() -> None:
    """No positions, dimensions or source to go by."""
    at = Pos(0, 0)
    body = (
        ir.RegisterDeclaration("b32", ("%r",), (3,), at),
        ir.Variable("d", "local", "b8", 1, 64, 8, None, None, at),
        Instruction("mov.u32", (ir.Name("%r1"), ir.Immediate("7", 7)), None, at, Loc(1, 2, 3)),
        Instruction("ret", (), ir.Guard("%p", True), at, None, True),
    )
    parameter = ir.Parameter("a", "u64", 8, 1, None, "global", 16, at)
    function = ir.Function(
        "entry", "k", (), (parameter,), {"reqntid": (32, 1, 1)}, "visible", body, (-1,), at, at
    )
    shared = ir.Variable("s", "shared", "b8", 1, None, 16, "extern", None, at)
    module = Module("x", "8.7", ("sm_90", "debug"), 64, (shared,), (function,), {1: "a.py"}, (), "")
    assert write_ptx(module) == (
        '.version 8.7\n.target sm_90, debug\n.address_size 64\n.file 1 "a.py"\n'
        ".extern .shared .align 16 .b8 s[];\n\n"
        ".visible .entry k(\n\t.param .u64 .ptr .global .align 16 a\n)\n.reqntid 32, 1, 1\n{\n"
        "\t.reg .b32 %r<3>;\n\t.local .align 8 .b8 d[64];\n\t.loc 1 2 3\n\tmov.u32 %r1, 7;\n"
        "\t// begin inline asm\n\t@!%p ret;\n\t// end inline asm\n}\n"
    )
    empty = Module("x", None, (), None, (), (), {}, (), "")
    assert write_ptx(empty) == "\n"


def test_labels_are_frozen_values() -> None:
    (label,) = parse_ptx(f"{HEAD}.entry k() {{\nL:\n}}\n").functions[0].body or ()
    built = ir.Label("L", Pos(5, 1))
    for each in (label, copy.deepcopy(label), pickle.loads(pickle.dumps(label))):
        assert (each, hash(each), repr(each)) == (built, hash(built), repr(built))
    with pytest.raises(AttributeError):
        label.name = "M"  # type: ignore[misc,union-attr]
    with pytest.raises(AttributeError):
        _ = label.nothing  # type: ignore[union-attr]


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_lines_are_counted_alike_with_any_line_ends(mark: str) -> None:
    text = f"{mark}{HEAD}.entry k()\n{{\n\nL: // \x0b\x1c\u2028\n\tret;\n\n}}"
    plain = parse_ptx(text).functions[0]
    for end in ("\r\n", "\r"):
        other = parse_ptx(text.replace("\n", end)).functions[0]
        assert (other.body, other.end) == (plain.body, plain.end)


def test_texts_of_operands() -> None:
    address = ir.Address(ir.Name("t"), 0, (ir.Name("s"), ir.Vector((ir.Name("%f1"),))))
    assert operand_text(address) == "[t, s, {%f1}]"
    call = Instruction("call", (ir.Name("f"), ir.Vector(())), None, Pos(1, 1))
    assert instruction_text(call) == "call f, ()"


# ---------------------------------------------------------------- real files


@pytest.mark.usefixtures("shared_cache")
@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize(
    "path", sorted((Path(__file__).parents[2] / "kernels").glob("*.py")), ids=lambda p: p.stem
)
def test_bundled_kernels(path: Path, arch: str) -> None:
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    round_trip(compile_kernel(path.stem, arch=arch).ptx)


def corpus(archive: str) -> Iterator[tuple[str, str]]:
    with tarfile.open(SHARED / archive) as files:
        for member in files:
            stream = files.extractfile(member) if member.isfile() else None
            if stream is not None:
                data = stream.read()
                try:
                    yield member.name, data.decode("utf-8")
                except UnicodeDecodeError:
                    yield member.name, data.decode("latin-1")


@CORPUS
def test_corpus() -> None:
    """Every module of every file up to 60 kB, and of every fourth one of the larger files."""
    modules = 0
    for name, text in corpus("corpus.tar.gz"):
        if len(text) > 60_000 and zlib.crc32(name.encode()) % 4:
            continue
        try:
            read = parse_ptx_modules(text, name)
        except InputError:
            continue
        for module in read:
            again = parse_ptx(write_ptx(module), name)
            assert next(differences(module, again, name), None) is None
            modules += 1
            if not module.diagnostics:
                assert again.diagnostics == (), name
    assert modules > 250


@CORPUS
def test_odd_files() -> None:
    modules = 0
    for name, text in corpus("odd.tar.gz"):
        try:
            read = parse_ptx_modules(text, name)
        except InputError:
            continue
        for module in read:
            again = parse_ptx(write_ptx(module), name)
            assert next(differences(module, again, name), None) is None
            modules += 1
    assert modules > 20


def machine_code(path: Path, arch: str) -> dict[str, bytes | int] | None:
    """The sections of a cubin that hold code, constants and variables, from NVIDIA's assembler."""
    cubin = path.with_suffix(".cubin")
    command = ["ptxas", f"-arch={arch}", "-O1", "-o", str(cubin), str(path)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        return None
    data = cubin.read_bytes()
    (table,) = struct.unpack_from("<Q", data, 0x28)
    size, count, names = struct.unpack_from("<HHH", data, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", data, table + i * size) for i in range(count)]
    found: dict[str, bytes | int] = {}
    for name, kind, _, _, offset, length in headers:
        start = headers[names][4] + name
        text = data[start : data.index(b"\0", start)].decode()
        if text.startswith((".text", ".nv.global", ".nv.constant", ".nv.shared")):
            found[text] = length if kind == 8 else data[offset : offset + length]
    return found


@CORPUS
@pytest.mark.skipif(shutil.which("ptxas") is None, reason="ptxas is not on the PATH")
def test_ptxas_makes_the_same_code_of_it(tmp_path: Path) -> None:
    """Of a sample of files, one in eight; code for debuggers is made of ``.loc``, too."""
    compared = 0
    files = [(n, t) for n, t in corpus("corpus.tar.gz") if len(t) < 12_000 and n.endswith("0.ptx")]
    for name, text in files:
        module = parse_ptx(text, name)
        if "debug" in module.target or not module.target or module.diagnostics:
            continue
        given, written = tmp_path / "given.ptx", tmp_path / "written.ptx"
        given.write_text(text, "utf-8")
        written.write_text(write_ptx(module), "utf-8")
        code = machine_code(given, module.target[0])
        if code is not None:
            assert machine_code(written, module.target[0]) == code, name
            compared += 1
    assert compared >= 5
