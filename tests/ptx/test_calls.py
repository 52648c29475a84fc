"""What a kernel calls: by name, through others, and which memory it touches."""

from __future__ import annotations

import pytest

from kanalyze import Launch, estimate, parse_ptx
from kanalyze.errors import MissingToolError, Unknown
from kanalyze.ptx.calls import called, dynamic_shared, not_followed
from kanalyze.render.traffic_text import render
from kanalyze.toolchain import tools

HEAD = ".version 8.4\n.target sm_90\n.address_size 64\n"
LEAF = """.func (.reg .b32 %v) leaf(.reg .b64 %a)
{
 ld.global.b32 %v, [%a];
 ld.global.b32 %v, [%a+4];
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


LAUNCH = Launch.from_record(
    {
        "kernel": "k",
        "grid": [4],
        "block": [256],
        "params": [
            {"name": "x", "type": "*fp32", "address": 1 << 40},
            {"name": "y", "type": "*fp32", "address": 1 << 41},
        ],
    }
)


def test_what_is_called_is_not_counted_as_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without machine code sums are unknown, by the function's name; none is 0."""
    from kanalyze.kernel.resources import AssembledKernels

    monkeypatch.setattr(AssembledKernels, "code", lambda self: Unknown("there is no assembler"))
    traffic = estimate(parse_ptx(HEAD + LEAF + kernel("leaf")), LAUNCH)
    assert (traffic.analysed.accesses, traffic.analysed.of) == (1, 3)
    for name in ("global_load_requests", "global_load_sectors", "dram_read_bytes"):
        assert traffic.counters[name] is None
        assert any("leaf" in u.reason for u in traffic.unknown if u.field == f"counters.{name}")
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
    loads, stores = traffic.access_totals[:2]
    assert (loads.ideal_cost, loads.efficiency, stores.efficiency) == (None, None, 1.0)
    text = render(traffic, width=200)
    assert "loads: ideal unknown (accesses of functions that the kernel calls" in text


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
