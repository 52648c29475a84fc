"""What a kernel calls: by name, through others, and which memory it touches."""

from __future__ import annotations

import re

import numpy as np
import pytest

from kanalyze import Launch, analyze, estimate, parse_ptx
from kanalyze.errors import MissingToolError, Unknown
from kanalyze.ptx.calls import called, dynamic_shared, followed, not_followed
from kanalyze.render.traffic_text import render
from kanalyze.toolchain import tools
from tests.oracle.interpreter import run

HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"
LEAF = """.func (.reg .b32 %v) leaf(.reg .b64 %a)
{
 ld.global.b32 %v, [%a];
 ld.global.b32 %v, [%a+4];
 ret;
}
"""
BY_ADDRESS = """.func (.reg .b32 %v) far(.param .b64 a)
{
 .reg .b64 %p;
 mov.u64 %p, a;
 ld.param.u64 %p, [%p];
 ld.global.b32 %v, [%p];
 ret;
}
"""
MIDDLE = """.func (.reg .b32 %v) middle(.reg .b64 %a)
{
 call.uni (%v), leaf, (%a);
 ret;
}
"""
PURE = """.func (.reg .b32 %v) pure(.reg .b32 %a)
{
 add.s32 %v, %a, 1;
 ret;
}
"""
OUTSIDE = ".extern .func (.reg .b32 %v) elsewhere(.reg .b64 %a);\n"


def kernel(name: str, argument: str = "%rd1") -> str:
    return f""".visible .entry k(.param .u64 x, .param .u64 y)
.reqntid 256
{{
 .reg .b32 %r<4>;
 .reg .b64 %rd<8>;
 ld.param.u64 %rd1, [x];
 ld.param.u64 %rd2, [y];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd3, %r1, 4;
 add.s64 %rd1, %rd1, %rd3;
 add.s64 %rd2, %rd2, %rd3;
 call.uni (%r2), {name}, ({argument});
 st.global.b32 [%rd2], %r2;
 ret;
}}
"""


def test_functions_are_found_through_others() -> None:
    module = parse_ptx(HEAD + LEAF + MIDDLE + kernel("middle"))
    (entry,) = module.entries
    assert set(called(module, entry)) == {"middle", "leaf"}
    count, reason = not_followed(module, entry)
    assert (count, reason) == (2, "it calls leaf, whose accesses are not followed")


def test_a_function_without_a_body_may_do_anything() -> None:
    module = parse_ptx(HEAD + OUTSIDE + kernel("elsewhere"))
    (entry,) = module.entries
    assert called(module, entry) == {"elsewhere": None}
    assert "elsewhere" in (not_followed(module, entry)[1] or "")


def test_a_function_that_only_computes_hides_nothing() -> None:
    module = parse_ptx(HEAD + PURE + kernel("pure", "%r1"))
    assert not_followed(module, module.entries[0]) == (0, None)


PARAMS = [
    {"name": "x", "type": "*fp32", "address": 1 << 40},
    {"name": "y", "type": "*fp32", "address": 1 << 41},
]
LAUNCH = Launch.from_record({"kernel": "k", "grid": [4], "block": [256], "params": PARAMS})
ONE_BLOCK = Launch.from_record({"kernel": "k", "grid": [1], "block": [64], "params": PARAMS})


def without_code(monkeypatch: pytest.MonkeyPatch) -> None:
    from kanalyze.kernel.resources import AssembledKernels

    monkeypatch.setattr(AssembledKernels, "code", lambda self: Unknown("there is no assembler"))


RECURSIVE = """.func (.reg .b32 %v) again(.reg .b64 %a)
{
 .reg .pred %p;
 .reg .b64 %b;
 ld.global.b32 %v, [%a];
 setp.eq.s32 %p, %v, 0;
 @%p ret;
 add.s64 %b, %a, 4;
 call.uni (%v), again, (%b);
 ret;
}
"""


def test_what_is_called_is_not_counted_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without machine code sums are unknown, by the function's name; none is 0."""
    without_code(monkeypatch)
    traffic = estimate(parse_ptx(HEAD + RECURSIVE + kernel("again")), LAUNCH)
    assert (traffic.analysed.accesses, traffic.analysed.of) == (1, 2)
    for name in ("global_load_requests", "global_load_sectors", "dram_read_bytes"):
        assert traffic.counters[name] is None
        assert any("again" in u.reason for u in traffic.unknown if u.field == f"counters.{name}")
    assert traffic.compulsory.read_bytes is None
    assert traffic.time.predicted_us is None


def test_the_machine_code_says_what_a_call_loads() -> None:
    """8 warps of 4 blocks load 128 B twice, the second time 4 B further: 4 and 5 sectors."""
    try:
        tools.find("ptxas")
    except MissingToolError as error:
        pytest.skip(f"no ptxas: {error}")
    traffic = estimate(parse_ptx(HEAD + LEAF + kernel("leaf")), LAUNCH)
    counters = traffic.counters
    # nothing reads the first load: the assembler drops it
    assert counters["global_load_requests"] == 4 * 8
    assert counters["global_load_sectors"] == 4 * 8 * 5
    traffic = estimate(parse_ptx(HEAD + BY_ADDRESS + kernel("far")), LAUNCH)
    assert traffic.counters["global_load_requests"] == 4 * 8
    loads, stores = traffic.access_totals[:2]
    assert (loads.ideal_cost, loads.efficiency, stores.efficiency) == (None, None, 1.0)
    text = render(traffic, width=200)
    assert "loads: ideal unknown (accesses of functions that the kernel calls" in text


def test_variables_of_one_name_in_two_functions_are_not_mixed_up() -> None:
    other = KEPT.replace("kept", "other").replace("1024", "512")
    module = parse_ptx(text_of(KEPT + other, "call kept, (%rd1, %r1); call other, (%rd1, %r1);"))
    assert not_followed(module, followed(module, module.entries[0]))[0] == 2


def test_accesses_stand_in_the_order_of_the_calls() -> None:
    (found,) = analyze(parse_ptx(text_of(*FOLLOWED["twice"])), sass=False).kernels
    lines = [access.line for access in found.accesses]
    assert lines[:4] == [6, 7, 6, 7]
    assert [found.accesses[i].address for i in (0, 2)] == ["x + 4*tid.x", "x + 8*tid.x"]


# ---------------------------------------------------------------- calls that are followed

PRELUDE = """ .reg .pred %p<4>;
 .reg .b16 %rs<4>;
 .reg .b32 %r<20>;
 .reg .b64 %rd<20>;
 ld.param.u64 %rd1, [x];
 ld.param.u64 %rd2, [y];
 mov.u32 %r1, %tid.x;
 mul.wide.u32 %rd3, %r1, 4;
 add.s64 %rd4, %rd2, %rd3;
"""
BY_VALUE = """.func (.param .align 8 .b8 f_ret[16]) f(.param .align 8 .b8 x[16], .param .b32 f_i)
{
 .reg .b32 %r<4>;
 .reg .b64 %rd<4>;
 ld.param.u64 %rd1, [x];
 ld.param.u32 %r1, [x+8];
 ld.param.u32 %r2, [f_i];
 mad.lo.s32 %r3, %r1, %r2, 1;
 mul.wide.s32 %rd2, %r3, 4;
 add.s64 %rd3, %rd1, %rd2;
 st.param.b64 [f_ret], %rd3;
 st.param.b32 [f_ret+8], %r3;
 ret;
}
"""
EARLY = """.func (.reg .b32 %v) early(.reg .b64 %a, .reg .b32 %n)
{
 .reg .pred %p<2>;
 .reg .b64 %rd<3>;
 .reg .b32 %r<3>;
 mov.u32 %v, 0;
 setp.ge.s32 %p1, %n, 40;
 @%p1 ret;
 mul.wide.s32 %rd1, %n, 12;
 add.s64 %rd2, %a, %rd1;
 ld.global.u32 %v, [%rd2];
 setp.lt.s32 %p1, %n, 8;
 @%p1 bra done;
 ld.global.u32 %r1, [%rd2+4];
done:
 ret;
}
"""
LOOP = """.func loop(.reg .b64 %a, .reg .b32 %n)
{
 .reg .pred %p1;
 .reg .b32 %r<3>;
 mov.u32 %r1, 0;
again:
 st.global.u32 [%a], %r1;
 add.s64 %a, %a, 128;
 add.s32 %r1, %r1, 1;
 setp.lt.s32 %p1, %r1, %n;
 @%p1 bra again;
 ret;
}
"""
NARROW = """.func (.param .b32 r) narrow(.param .b32 c, .param .b32 s)
{
 .reg .b16 %rs<3>;
 .reg .b32 %r<4>;
 ld.param.u8 %rs1, [c];
 ld.param.s8 %r1, [s];
 cvt.u32.u16 %r2, %rs1;
 add.s32 %r3, %r1, %r2;
 st.param.b32 [r], %r3;
 ret;
}
"""
KEPT = """.func kept(.param .b64 p, .reg .b32 %i)
{
 .reg .b64 %rd<3>;
 .reg .b32 %r<3>;
 .shared .align 4 .b8 buffer[1024];
 ld.param.u64 %rd1, [p];
 shl.b32 %r1, %i, 3;
 mov.u32 %r2, buffer;
 add.s32 %r1, %r1, %r2;
 st.shared.u32 [%r1], %i;
 ld.global.u32 %r2, [%rd1];
 ret;
}
"""
SWAPPED = """.func (.reg .b64 %r1, .reg .b64 %r2) swapped(.reg .b64 %rd1, .reg .b64 %rd2)
{
 mov.u64 %r1, %rd2;
 mov.u64 %r2, %rd1;
 ret;
}
"""
NESTED = """.func (.reg .b64 %v) nested(.reg .b64 %a)
{
 .reg .b64 %t;
 add.s64 %t, %a, 64;
 {
  .reg .b64 %t;
  add.s64 %t, %a, 4;
  mul.lo.s64 %t, %t, 2;
  sub.s64 %v, %t, %a;
 }
 add.s64 %v, %v, %t;
 sub.s64 %v, %v, %a;
 ret;
}
"""
LOADED = "ld.global.u32 %r9, [%rd9]; st.global.u32 [%rd4], %r9;"
FOLLOWED = {
    "in a register": (LEAF, "add.s64 %rd9, %rd1, %rd3; call.uni (%r2), leaf, (%rd9);"),
    "through another": (LEAF + MIDDLE, "add.s64 %rd9, %rd1, %rd3; call (%r2), middle, (%rd9);"),
    "twice": (
        LEAF,
        "add.s64 %rd9, %rd1, %rd3; call (%r2), leaf, (%rd9); add.s64 %rd9, %rd9, %rd3;"
        "call (%r3), leaf, (%rd9); st.global.u32 [%rd4], %r3;",
    ),
    "a structure": (
        BY_VALUE,
        "{ .param .align 8 .b8 x[16]; .param .b32 i; .param .align 8 .b8 z[16];"
        "st.param.b64 [x], %rd1; st.param.b32 [x+8], 3; st.param.b32 [i], %r1;"
        "call.uni (z), f, (x, i); ld.param.b64 %rd9, [z]; ld.param.b32 %r3, [z+8]; }"
        + LOADED
        + "mul.wide.s32 %rd10, %r3, 8; add.s64 %rd10, %rd1, %rd10;"
        "ld.global.u32 %r4, [%rd10];",
    ),
    "a structure in other pieces": (
        BY_VALUE,
        "{ .param .align 8 .b8 x[16]; .param .b32 i; .param .align 8 .b8 z[16];"
        "mov.b64 {%r6, %r7}, %rd1; st.param.v2.b32 [x], {%r6, %r7}; mov.u64 %rd5, 0x700000003;"
        "st.param.b64 [x+8], %rd5; st.param.b32 [i], %r1; call.uni (z), f, (x, i);"
        "ld.param.v2.b32 {%r6, %r7}, [z]; mov.b64 %rd9, {%r6, %r7}; }" + LOADED,
    ),
    "a structure twice": (
        BY_VALUE,
        "{ .param .align 8 .b8 x[16]; .param .align 8 .b8 z[16];"
        "st.param.b64 [x], %rd1; st.param.b32 [x+8], 3;"
        "call.uni (z), f, (x, %r1); call.uni (z), f, (z, 2); ld.param.b64 %rd9, [z]; }" + LOADED,
    ),
    "an early return": (EARLY, "call (%r2), early, (%rd1, %r1); st.global.u32 [%rd4], %r2;"),
    "under a predicate": (
        EARLY,
        "setp.lt.u32 %p1, %r1, 20; @%p1 call (%r2), early, (%rd1, %r1);"
        "@!%p1 call (%r2), early, (%rd2, %r1);",
    ),
    "in a loop": (
        LEAF,
        "mov.u32 %r5, 0; add.s64 %rd9, %rd1, %rd3;"
        "again: call (%r2), leaf, (%rd9); add.s64 %rd9, %rd9, 640; add.s32 %r5, %r5, 1;"
        "setp.lt.s32 %p1, %r5, 5; @%p1 bra again; st.global.u32 [%rd4], %r2;",
    ),
    "a loop in it": (LOOP, "call loop, (%rd4, 3); call loop, (%rd4, 2);"),
    "narrow parameters": (
        NARROW,
        "{ .param .b32 c; .param .b32 s; .param .b32 r; mad.lo.s32 %r2, %r1, 5, 257;"
        "st.param.b8 [c], %r2; neg.s32 %r3, %r1; and.b32 %r3, %r3, 131; st.param.b8 [s], %r3;"
        "call (r), narrow, (c, s); ld.param.b32 %r4, [r]; }"
        "mul.wide.s32 %rd5, %r4, 4; add.s64 %rd9, %rd1, %rd5; add.s64 %rd9, %rd9, 2048;" + LOADED,
    ),
    "shared memory of its own": (KEPT, "call kept, (%rd4, %r1); call kept, (%rd1, %r1);"),
    "scopes of its own": (
        NESTED,
        "call (%rd9), nested, (%rd1); { .reg .b64 %t; add.s64 %t, %rd9, %rd3;"
        "call (%rd9), nested, (%t); }" + LOADED,
    ),
    "registers of the same names": (
        SWAPPED,
        "call (%rd1, %rd2), swapped, (%rd1, %rd2); add.s64 %rd9, %rd1, %rd3;"
        "add.s64 %rd9, %rd9, 8; ld.global.u32 %r9, [%rd9]; st.global.u32 [%rd2], %r9;",
    ),
}


def text_of(functions: str, body: str) -> str:
    lines = body.replace("; ", ";").replace(": ", ":").replace(";", ";\n ").replace(":", ":\n ")
    return (
        f"{HEAD}{functions}.visible .entry k(.param .u64 x, .param .u64 y)\n.reqntid 64\n"
        f"{{\n{PRELUDE}{lines}ret;\n}}\n"
    )


@pytest.mark.parametrize("name", FOLLOWED)
def test_calls_are_followed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests, sectors and wavefronts are those of the threads that the interpreter runs."""
    without_code(monkeypatch)
    text = text_of(*FOLLOWED[name])
    arrays = [(1 << 40, np.zeros(1 << 14, np.uint8)), (1 << 41, np.zeros(1 << 14, np.uint8))]
    trace = run(text, "k", (1,), (64,), arrays)
    kinds = ("load", "store")
    expected = {f"{space}_{kind}_{what}": 0 for space, what in SPACES for kind in kinds}
    for record in trace.accesses:
        kind = "load" if record.opcode.startswith("ld") else "store"
        space = record.opcode.split(".")[1]
        for warp in (0, 32):
            lanes = np.flatnonzero(record.active[warp : warp + 32]) + warp
            if len(lanes) and space == "global":
                sectors = {int(record.addresses[t]) // 32 for t in lanes}
                expected[f"global_{kind}_requests"] += 1
                expected[f"global_{kind}_sectors"] += len(sectors)
            elif len(lanes):
                words = {int(record.addresses[t]) // 4 for t in lanes}
                expected[f"shared_{kind}_wavefronts"] += max(
                    sum(w % 32 == bank for w in words) for bank in range(32)
                )
    traffic = estimate(parse_ptx(text), ONE_BLOCK, simulate=False, findings=False)
    found = {key: traffic.counters[key] for key in expected}
    assert found == expected
    assert traffic.analysed.accesses == traffic.analysed.of
    (described,) = analyze(parse_ptx(text)).kernels
    assert all(access.address is not None for access in described.accesses)


def in_place(functions: str, text: str) -> str:
    """The kernel with the bodies of functions (of registers) written where they are called."""
    bodies = {
        name: (returns, takes, body.replace("ret;", "bra out;"))
        for returns, name, takes, body in re.findall(
            r"\.func (?:\((.*?)\) )?(\w+)\((.*?)\)\n\{\n(.*?)\n\}\n", functions, re.S
        )
    }

    def written(found: re.Match[str]) -> str:
        returns, takes, body = bodies[found[3]]
        formal = [p.split() for p in f"{takes}, {returns}".split(", ") if p]
        actual = [a for a in f"{found[4]}, {found[2] or ''}".split(", ") if a]
        declared = "".join(f".reg {kind} {name};\n" for _, kind, name in formal)
        passed = [(f"t{i}", kind, name) for i, (_, kind, name) in enumerate(formal)]
        count = len(takes.split(", "))
        into = "".join(f"mov{kind} {name}, {t};\n" for t, kind, name in passed[:count])
        out = "".join(f"mov{kind} {t}, {name};\n" for t, kind, name in passed[count:])
        pairs = list(zip(passed, actual, strict=True))
        before = "".join(f"mov{kind} {t}, {a};\n" for (t, kind, _), a in pairs[:count])
        after = "".join(f"mov{kind} {a}, {t};\n" for (t, kind, _), a in pairs[count:])
        temporary = "".join(f".reg {kind} {t};\n" for t, kind, _ in passed)
        negated = (found[1] or "").replace("@", "@!").replace("!!", "")
        skip = f"{negated} bra past;\n" if negated else ""
        inner = f"{{\n{declared}{into}{body}\nout:\n{out}}}\n"
        return f"{{\n{temporary}{skip}{before}{inner}{after}past:\n}}"

    call = r"(@!?%p\d )?call\S* (?:\(([^)]*)\), )?(\w+), \(([^)]*)\);"
    text = text[text.index(".visible") :]
    while re.search(call, text):
        text = re.sub(call, written, text)
    return HEAD + text


OF_REGISTERS = [name for name, (functions, _) in FOLLOWED.items() if ".param" not in functions]


@pytest.mark.parametrize("name", OF_REGISTERS)
def test_a_call_is_as_good_as_its_body(name: str) -> None:
    """A kernel with the bodies in place of the calls has the same accesses, loops and roles."""
    functions, body = FOLLOWED[name]
    called_text = text_of(functions, body)
    written = parse_ptx(in_place(functions, called_text))
    assert not any(i.base == "call" for i in written.entries[0].instructions)
    modules = parse_ptx(called_text), written
    first, second = (analyze(m, ONE_BLOCK, sass=False).kernels[0] for m in modules)
    rows = [
        sorted(
            (a.opcode, a.address, a.condition or "", a.pattern, a.requests, a.cost, a.loop_depth)
            for a in kernel.accesses
        )
        for kernel in (first, second)
    ]
    assert rows[0] == rows[1]
    assert first.roles == second.roles
    assert [loop.trip_count for loop in first.loops] == [loop.trip_count for loop in second.loops]
    assert first.thread_coarsening == second.thread_coarsening


SPACES = (("global", "requests"), ("global", "sectors"), ("shared", "wavefronts"))


def test_shared_memory_that_a_launch_chooses_is_that_of_the_kernel_that_uses_it() -> None:
    text = """.extern .shared .align 16 .b8 chosen[];
.visible .entry fixed()
{
 .shared .b8 own[512];
 st.shared.b32 [own], 0;
 ret;
}
.func touch()
{
 st.shared.b32 [chosen+4], 0;
 ret;
}
.visible .entry direct()
{
 .reg .b32 %r<2>;
 mov.u32 %r1, chosen;
 st.shared.b32 [%r1], 0;
 ret;
}
.visible .entry through()
{
 call.uni touch, ();
 ret;
}
"""
    module = parse_ptx(HEAD + text)
    assert [dynamic_shared(module, f) for f in module.entries] == [False, True, True]
