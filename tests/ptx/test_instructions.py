"""The table of instructions: what is read and written, memory effects, classes."""

from __future__ import annotations

import pytest

from kanalyze.ptx import instructions as table
from kanalyze.ptx.instructions import definitions, uses
from kanalyze.ptx.ir import Address, Immediate, Instruction, Name
from kanalyze.ptx.memory import MemoryAccess, memory_access
from kanalyze.ptx.parse import parse_ptx


def read(statement: str) -> Instruction:
    module = parse_ptx(f".version 9.0\n.target sm_100a\n.entry k()\n{{\n{statement}\n}}\n")
    assert module.diagnostics == ()
    (instruction,) = module.functions[0].instructions
    return instruction


@pytest.mark.parametrize(
    ("statement", "written", "read_"),
    [
        ("add.s32 %r1, %r2, %r3;", "%r1", "%r2 %r3"),
        ("add.s32 %r1, %r1, 4;", "%r1", "%r1"),
        ("@%p1 mov.u32 %r1, %tid.x;", "%r1", "%p1 %tid.x"),
        ("mov.b64 {%r1, _}, %rd1;", "%r1", "%rd1"),
        ("mov.u32 %r1, %v.x;", "%r1", "%v"),
        ("setp.lt.and.s32 %p1|%p2, %r1, 5, !%p3;", "%p1 %p2", "%r1 %p3"),
        ("elect.sync _|%p1, -1;", "%p1", ""),
        ("shfl.sync.bfly.b32 %r1|%p1, %r2, 16, 31, -1;", "%r1 %p1", "%r2"),
        ("ld.global.v2.b32 {%r1, %r2}, [%rd1+4];", "%r1 %r2", "%rd1"),
        ("st.global.v2.b32 [%rd1], {%r1, %r2};", "", "%rd1 %r1 %r2"),
        ("atom.global.add.u32 %r1, [%rd1], %r2;", "%r1", "%rd1 %r2"),
        ("red.global.add.u32 [%rd1], %r2;", "", "%rd1 %r2"),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;", "", "%r1 %rd1 %r2"),
        ("cp.async.wait_group 0;", "", ""),
        ("bra $L1;", "", ""),
        ("@!%p1 bra.uni $L1;", "", "%p1"),
        ("brx.idx %r1, ts;", "", "%r1"),
        ("call (%r1), f, (%r2, 3);", "%r1", "%r2"),
        ("call (%r1), %rd1, (%r2), proto;", "%r1", "%rd1 %r2"),
        ("call f, (%r2);", "", "%r2"),
        ("bar.sync %r1, 128;", "", "%r1"),
        ("barrier.cta.red.popc.aligned.u32 %r1, 0, %p1;", "%r1", "%p1"),
        ("mbarrier.arrive.shared.b64 %rd1, [%r1];", "%rd1", "%r1"),
        ("mbarrier.arrive.expect_tx.shared::cluster.b64 _, [%r1], %r2;", "", "%r1 %r2"),
        ("mbarrier.try_wait.parity.shared.b64 %p1, [%r1], %r2;", "%p1", "%r1 %r2"),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1,%f2}, %rd1, %rd2, %p1, 1, 1;",
         "%f1 %f2", "%f1 %f2 %rd1 %rd2 %p1"),
        ("mma.sync.aligned.m16n8k16 {%f1,%f2}, {%r1}, {%r2}, {%f3,%f4};",
         "%f1 %f2", "%r1 %r2 %f3 %f4"),
        ("tcgen05.mma.cta_group::1.kind::f16 [%r1], %rd1, %rd2, %r2, %p1;", "",
         "%r1 %rd1 %rd2 %r2 %p1"),
        ("tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r1}, [%r2];", "%r1", "%r2"),
        ("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r1, 32;", "", "%r1"),
        ("tex.2d.v4.f32.f32 {%f1,%f2,_,%f4}, [t, {%f5, %f6}];", "%f1 %f2 %f4", "t %f5 %f6"),
        ("setmaxnreg.inc.sync.aligned.u32 232;", "", ""),
        ("vadd.u32.u32.u32 %r1, -%r2, %r3;", "%r1", "%r2 %r3"),
        ("newthing.b32 %r1, %r2;", "%r1", "%r2"),
    ],
)  # fmt: skip
def test_definitions_and_uses(statement, written, read_):
    instruction = read(statement)
    assert definitions(instruction) == tuple(written.split())
    assert set(uses(instruction)) == set(read_.split())
    assert len(uses(instruction)) == len(set(uses(instruction)))


def access(statement: str) -> tuple[object, ...] | None:
    found = memory_access(read(statement))
    if found is None:
        return None
    return found.space, found.kind, found.bytes_per_thread, found.vector, found.element_bits


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("ld.global.b32 %r1, [%rd1];", ("global", "load", 4, 1, 32)),
        ("ld.global.v4.b32 {%r1,%r2,%r3,%r4}, [%rd1];", ("global", "load", 16, 4, 32)),
        ("ld.global.v8.b32 {a,b,c,d,e,f,g,h}, [%rd1];", ("global", "load", 32, 8, 32)),
        ("ld.global.nc.L1::no_allocate.v2.f64 {%d1,%d2}, [%rd1];", ("global", "load", 16, 2, 64)),
        ("ldu.global.u8 %r1, [%rd1];", ("global", "load", 1, 1, 8)),
        ("ld.b128 %q1, [%rd1];", ("generic", "load", 16, 1, 128)),
        ("ld.param.u64 %rd1, [p];", ("param", "load", 8, 1, 64)),
        ("ld.param::entry.u64 %rd1, [p];", ("param", "load", 8, 1, 64)),
        ("ld.const.f32 %f1, [c+4];", ("const", "load", 4, 1, 32)),
        ("ld.local.u16 %rs1, [%r1];", ("local", "load", 2, 1, 16)),
        ("ld.shared::cluster.b32 %r1, [%r2];", ("shared", "load", 4, 1, 32)),
        ("ld.volatile.shared.b32 %r1, [%r2];", ("shared", "load", 4, 1, 32)),
        ("st.relaxed.gpu.global.b32 [%rd1], %r1;", ("global", "store", 4, 1, 32)),
        ("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r1], {a,b,c,d}, [%r2];",
         ("shared", "store", 16, 4, 32)),
        ("st.bulk.weak.shared::cta [%r1], 4096, 0;", ("shared", "store", 4096, 1, 8)),
        ("atom.global.add.u32 %r1, [%rd1], 1;", ("global", "atomic", 4, 1, 32)),
        ("atom.shared.cas.b64 %rd1, [%r1], 1, 2;", ("shared", "atomic", 8, 1, 64)),
        ("atom.global.v4.f16x2.add.noftz {a,b,c,d}, [%rd1], {e,f,g,h};",
         ("global", "atomic", 16, 4, 32)),
        ("red.global.add.f32 [%rd1], %f1;", ("global", "reduction", 4, 1, 32)),
        ("red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32"
         " [%r1], %r2, [%r3];", ("shared", "reduction", 4, 1, 32)),
        ("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {a,b,c,d}, [%rd1];",
         ("global", "load", 16, 4, 32)),
        ("multimem.red.relaxed.sys.global.add.f32 [%rd1], %f1;", ("global", "reduction", 4, 1, 32)),
        ("prefetch.global.L2 [%rd1];", ("global", "prefetch", None, 1, 0)),
        ("cp.async.cg.shared.global [%r1], [%rd1], 16;", ("global", "async_copy", 16, 1, 128)),
        ("cp.async.ca.shared.global [%r1], [%rd1], 0x4, %r2;",
         ("global", "async_copy", 4, 1, 32)),
        ("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
         " [%r1], [%rd1], 1024, [%r2];", ("global", "bulk_load", 1024, 1, 8)),
        ("cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r1], %r2;",
         ("global", "bulk_store", None, 1, 8)),
        ("cp.async.bulk.tensor.2d.shared::cta.global.tile.mbarrier::complete_tx::bytes"
         " [%r1], [%rd1, {%r2,%r3}], [%r4];", ("global", "bulk_load", None, 1, 8)),
        ("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r2}], [%r1];",
         ("global", "bulk_store", None, 1, 8)),
        ("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes"
         " [%r1], [%r2], 64, [%r3];", ("shared", "bulk_store", 64, 1, 8)),
        ("cp.reduce.async.bulk.global.shared::cta.bulk_group.add.f32 [%rd1], [%r1], 128;",
         ("global", "reduction", 128, 1, 8)),
        ("cp.async.bulk.prefetch.L2.global [%rd1], 256;", ("global", "prefetch", 256, 1, 8)),
        # 8 x 8 elements of 16 bits are 128 bytes, of which each of 32 threads gets 4.
        ("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {a,b,c,d}, [%r1];",
         ("shared", "load", 16, 4, 32)),
        ("stmatrix.sync.aligned.m8n8.x2.shared::cta.b16 [%r1], {a,b};",
         ("shared", "store", 8, 2, 32)),
        # 16 x 16 elements of 16 bits over 32 threads.
        ("wmma.load.a.sync.aligned.row.m16n16k16.shared.f16 {a,b,c,d,e,f,g,h}, [%r1], %r2;",
         ("shared", "load", 16, 1, 16)),
        ("cp.async.commit_group;", None),
        ("cp.async.mbarrier.arrive.noinc.shared.b64 [%r1];", None),
        ("cp.async.bulk.wait_group.read 0;", None),
        ("mbarrier.init.shared.b64 [%r1], 1;", None),
        ("tcgen05.st.sync.aligned.32x32b.x1.b32 [%r1], {%r2};", None),
        ("tcgen05.cp.cta_group::1.128x256b [%r1], %rd1;", None),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f1}, %rd1, %rd2, 1, 1, 1;", None),
        ("cvta.to.global.u64 %rd1, %rd2;", None),
        ("mapa.shared::cluster.u32 %r1, %r2, %r3;", None),
        ("tex.1d.v4.f32.s32 {a,b,c,d}, [t, {%r1}];", None),
    ],
)  # fmt: skip
def test_memory(statement, expected):
    assert access(statement) == expected


def test_operands_of_copies():
    found = memory_access(
        read("cp.async.ca.shared.global.L2::cache_hint.L2::128B [%r1+8], [%rd1+4], 8, %r2, %rd9;")
    )
    assert found == MemoryAccess(
        "global", "async_copy", 8, 1, 64, Address(Name("%rd1"), 4), Address(Name("%r1"), 8),
        Name("%r2"), (".ca", "L2::cache_hint", "L2::128B"),
    )  # fmt: skip
    plain = memory_access(read("cp.async.cg.shared.global.L2::cache_hint [%r1], [%rd1], 16, %rd9;"))
    assert plain.size is None
    store = memory_access(
        read("cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%rd1, {%r2}], [%r1];")
    )
    assert store.address.base == Name("%rd1")
    assert store.shared_address == Address(Name("%r1"))
    bulk = memory_access(
        read("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
             "[%r1], [%rd1], 64, [%r2];")
    )  # fmt: skip
    assert (bulk.address, bulk.shared_address) == (Address(Name("%rd1")), Address(Name("%r1")))
    assert bulk.size == Immediate("64", 64)


def test_hints():
    load = memory_access(read("ld.global.nc.L1::evict_last.L2::128B.b32 %r1, [%rd1];"))
    assert load.hints == (".nc", "L1::evict_last", "L2::128B")
    assert memory_access(read("st.global.cs.b32 [%rd1], %r1;")).hints == (".cs",)


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "mma"),
        ("mma.sp::ordered_metadata.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32", "mma"),
        ("wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32", "mma"),
        ("wmma.load.a.sync.aligned.row.m16n16k16.f16", None),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16", "wgmma"),
        ("wgmma.fence.sync.aligned", None),
        ("wgmma.wait_group.sync.aligned", None),
        ("tcgen05.mma.cta_group::1.kind::f16", "tcgen05"),
        ("tcgen05.mma.ws.cta_group::1.kind::f16", "tcgen05"),
        ("tcgen05.commit.cta_group::1.mbarrier::arrive::one.b64", None),
        ("tcgen05.fence::after_thread_sync", None),
        ("movmatrix.sync.aligned.m8n8.trans.b16", None),
    ],
)
def test_tensor_core(opcode, kind):
    instruction = read(f"{opcode} %r1;")
    assert table.tensor_core(instruction) == kind
    assert table.classify(instruction) == "tensor"


@pytest.mark.parametrize(
    ("opcode", "kind"),
    [
        ("add.s32", "integer"), ("add.f32", "float"), ("add.rn.f16x2", "half"),
        ("fma.rn.bf16x2", "half"), ("fma.rn.f32", "float"), ("mul.wide.u32", "integer"),
        ("max.f32", "float"), ("neg.s64", "integer"), ("setp.lt.f16", "compare"),
        ("lop3.b32", "logic"), ("cvt.rn.f16.f32", "move"), ("ld.global.b32", "memory"),
        ("cp.async.cg.shared.global", "async_copy"),
        ("cp.async.mbarrier.arrive.noinc.shared.b64", "synchronisation"),
        ("bar.sync", "synchronisation"), ("tcgen05.wait::ld.sync.aligned", "tensor"),
        ("fence.proxy.async", "synchronisation"), ("vote.sync.ballot.b32", "warp"),
        ("redux.sync.add.s32", "warp"), ("tex.2d.v4.f32.f32", "texture"), ("bra.uni", "control"),
        ("suld.b.1d.b32.trap", "surface"), ("vadd4.u32.u32.u32.add", "video"),
        ("nanosleep.u32", "special"), ("newthing.b32", None),
    ],
)  # fmt: skip
def test_classes(opcode, kind):
    assert table.classify(read(f"{opcode} %r1, %r2, %r3, %r4, [%r5];")) == kind


def test_rows_are_well_formed():
    kinds = {
        "arithmetic", "integer", "logic", "compare", "move", "memory", "async_copy", "tensor",
        "control", "synchronisation", "warp", "texture", "surface", "video", "special",
    }  # fmt: skip
    assert {row.kind for row in table.ROWS.values()} == kinds
    assert {row.writes for row in table.ROWS.values()} == {"first", "none", "update", "call"}
    listed = [m for *_, mnemonics in table._TABLE for m in mnemonics.split()]
    assert len(listed) == len(set(listed)) == len(table.ROWS)


def test_control():
    assert table.branch_targets(read("@%p1 bra.uni $L1;")) == ("$L1",)
    assert table.branch_targets(read("brx.idx %r1, ts;")) == ("ts",)
    assert [table.is_terminator(read(f"{t};")) for t in ("ret", "exit", "trap", "bar.sync 0")] == [
        True, True, True, False,
    ]  # fmt: skip
    assert table.is_branch(read("bra L;"))
    assert not table.is_branch(read("ret;"))
