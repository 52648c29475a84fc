"""Bounds on the time of a launch: numbers by hand, and pipes and wavefronts against counters."""

from __future__ import annotations

import re
import tarfile
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from kanalyze import parse_ptx, read_records
from kanalyze.analysis import launch as estimating
from kanalyze.devices.table import capability, device, devices
from kanalyze.errors import Unknown
from kanalyze.measured.records.reader import Record
from kanalyze.models import tensor
from kanalyze.performance import demand
from kanalyze.performance.cache_sim.parameters import machine
from kanalyze.performance.predict import Given
from kanalyze.performance.timing import bounds, pipes
from kanalyze.performance.timing.model import SmWork, sm_work, times
from kanalyze.ptx import ir
from kanalyze.sass.ir import SassInstruction
from kanalyze.sass.parse import parse_sass

pytestmark = pytest.mark.slow("estimates and simulates whole launches")

ROOT = Path(__file__).parents[3]
CORPUS = ROOT.parent / "shared" / "ptx" / "corpus.tar.gz"

# ---------------------------------------------------------------- bounds by hand

RATES = bounds.DeviceRates(hbm=4000.0, l2=10000.0, fabric=2000.0, link=100.0, clock=1.5, sms=4)


def test_bounds_by_hand() -> None:
    assert bounds.hbm(6e6, 2e6, RATES) == pytest.approx(2.0)  # 8 MB at 4 TB/s
    assert bounds.l2(1e5, 5e4, 5.2e6, RATES) == pytest.approx(1.0)  # 4.8 + 5.2 MB at 10 TB/s
    # 6 blocks on 4 SMs: the busiest has 2 of 6
    assert bounds.on_busiest(60.0, 6, RATES) == pytest.approx(20.0)
    assert bounds.on_busiest(60.0, 8, RATES) == pytest.approx(15.0)
    assert bounds.on_busiest(60.0, 1, RATES) == pytest.approx(60.0)
    assert bounds.fabric(62_500.0, RATES) == pytest.approx(1.0)  # 2 MB at 2 TB/s
    assert bounds.links(9375.0, 8, RATES) == pytest.approx(0.75)  # 300 kB, a quarter at 100 GB/s
    assert bounds.cycles(12_000.0, 1.0, 8, RATES) == pytest.approx(2.0)  # 3,000 at 1.5 GHz
    assert bounds.cycles(12_000.0, 0.5, 8, RATES) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("blocks", "per_sm", "rounds"), [(1, 1, 1), (4, 1, 1), (5, 1, 2), (9, 2, 2), (8, 2, 1)]
)
def test_latency_by_hand(blocks: int, per_sm: int, rounds: int) -> None:
    found = bounds.latency(blocks, per_sm, 3, 600.0, 700.0, RATES)
    assert found == pytest.approx(rounds * (3 * 600 + 700) / 1000)


def test_bounds_are_ranked_and_unknown_ones_left_out() -> None:
    assert bounds.ranked({"a": 1.0, "b": None, "c": 3.0}) == [("c", 3.0), ("a", 1.0)]


def test_the_largest_bound_is_the_diagnosis() -> None:
    chip = machine(device("H200"))
    asked = SmWork({"fma": 1e6, "tensor": 4e7}, 0.0)
    nothing = dict.fromkeys(
        ("l2_read_sectors", "l2_write_sectors", "l1_miss_sectors", "fabric_sectors",
         "dram_read_bytes", "dram_write_bytes"), 0.0,
    )  # fmt: skip
    moved = {**nothing, "dram_read_bytes": 4.4e8}
    found = times(asked, moved, 50.0, chip, 1320, 2, 0)
    assert found.bounds_us["hbm"] == pytest.approx(4.4e8 / chip["hbm_rate"] / 1000)
    assert found.bounds_us["tensor"] == pytest.approx(4e7 / 132 / chip.clock / 1000)
    assert found.bound_by == "tensor"
    assert found.next_bound == "hbm"
    assert found.next_share == pytest.approx(found.bounds_us["hbm"] / found.predicted_us)
    assert found.predicted_us == pytest.approx(found.bounds_us["tensor"])
    assert times(asked, moved, 400.0, chip, 1320, 2, 0).predicted_us == 400.0
    nothing_binds = times(SmWork({}, 0.0), nothing, 400.0, chip, 1320, 2, 0)
    assert nothing_binds.bound_by == "latency"


def test_atomics_on_one_address_take_turns() -> None:
    chip = machine(device("H200"))
    nothing = dict.fromkeys(
        ("l2_read_sectors", "l2_write_sectors", "l1_miss_sectors", "fabric_sectors",
         "dram_read_bytes", "dram_write_bytes"), 0.0,
    )  # fmt: skip
    found = times(SmWork({}, 0.0, serialization=1e6), nothing, 5.0, chip, 132, 1, 0)
    assert found.bound_by == "atomics"
    assert found.predicted_us == pytest.approx(1e6 * chip["atomic_turn"] / 1000)


def test_the_work_of_the_sms_is_that_of_the_busiest_pipe() -> None:
    chip = machine(device("H200"))
    total, by_tensor = sm_work(SmWork({"sfu": 1e6, "fma": 5e5}, 0.0), chip, 132, 4)
    assert total == pytest.approx(1e6 / chip["pipe_share"] / chip.clock)
    assert not by_tensor
    total, by_tensor = sm_work(SmWork({"tensor": 1e6, "fma": 5e5}, 0.0), chip, 132, 4)
    assert total == pytest.approx(1e6 / chip["tensor_share"] / chip.clock)
    assert by_tensor
    total, _ = sm_work(SmWork({"fma": 10.0}, 8e6), chip, 132, 4)
    assert total == pytest.approx(2e6 / chip.clock)  # 4 sectors a clock


def test_one_warp_alone_sets_the_pace_where_few_blocks_share_an_sm() -> None:
    chip = machine(device("H200"))
    asked = SmWork({"fma": 1e6}, 0.0, alone=8e6)
    few, _ = sm_work(asked, chip, 132, 4)  # a block on each SM
    assert few == pytest.approx(8e6 / chip.clock)
    many, _ = sm_work(asked, chip, 1320, 4)
    assert many == pytest.approx(2e6 / chip.clock)  # four hide each other's waits


def test_tensor_instructions_that_wait_add_up() -> None:
    chip = machine(device("H200"))
    cycles = {"tensor": 9e5, "issue": 1e5}
    apart, by_tensor = sm_work(SmWork(cycles, 0.0, alone=2e5), chip, 132, 1)
    assert by_tensor
    waiting, by_tensor = sm_work(SmWork(cycles, 0.0, alone=2e5, alternates=True), chip, 132, 1)
    assert not by_tensor
    most = 9e5 / chip["tensor_share"] / chip.clock
    chain = chip["chain_tensor"] * most + 2e5 / chip.clock
    power = chip["chain_power"]
    assert apart == pytest.approx(most)
    assert waiting == pytest.approx((most**power + chain**power) ** (1 / power))


def test_without_tensor_cores_the_clock_stays_up() -> None:
    chip = machine(device("H200"))
    light = chip.light()
    assert light.clock == pytest.approx(1.98 * chip["clock_share_light"])
    assert light.clock > chip.clock
    assert light["link_rate"] / chip["link_rate"] == pytest.approx(light.clock / chip.clock)
    assert light["hbm_rate"] == chip["hbm_rate"]


# ---------------------------------------------------------------- pipes

OPCODES = {
    "FFMA R1, R2, R3, R4": "fma",
    "FADD R1, R2, R3": "fma",
    "HADD2.F32 R1, -RZ, R2.H0_H0": "fma",
    "HFMA2.BF16 R1, R2, R3, R4": "fma",
    "VIADD R1, R2, 0x80": "fma",
    "IMAD.WIDE R2, R3, 0x4, R4": "fma_heavy",
    "IMAD.MOV.U32 R1, RZ, RZ, R2": "fma_heavy",
    "HFMA2.MMA R1, -RZ, RZ, 0, 0": None,
    "IADD3 R1, R2, R3, RZ": "alu",
    "LOP3.LUT R1, R2, 0x7f, RZ, 0xc0, !PT": "alu",
    "FMNMX R1, R2, R3, !PT": "alu",
    "FSETP.GT.AND P0, PT, R1, R2, PT": "alu",
    "CS2R R4, SRZ": "alu",
    "R2UR UR4, R5": "alu",
    "I2FP.F32.S32 R1, R2": "alu",
    "F2FP.BF16.F32.PACK_AB R1, R2, R3": "alu",
    "PRMT R1, R2, 0x7610, R3": "alu",
    "MUFU.EX2 R1, R2": "sfu",
    "I2F.RP R1, R2": "sfu",
    "F2I.FTZ.U32.TRUNC.NTZ R1, R2": "sfu",
    "DADD R2, R4, R6": "fp64",
    "LDG.E.128 R4, desc[UR4][R2.64]": "lsu",
    "STS.128 [R2], R4": "lsu",
    "SHFL.BFLY PT, R1, R2, 0x10, 0x1f": "lsu",
    "S2R R0, SR_TID.X": "lsu",
    "S2R R0, SR_CTAID.X": None,
    "S2UR UR4, SR_CTAID.X": None,
    "UIADD3 UR4, UR5, 0x1, URZ": "uniform",
    "ULDC.64 UR4, c[0x0][0x208]": None,
    "HGMMA.64x128x16.F32 R24, gdesc[UR8], R24": None,
    "BAR.SYNC.DEFER_BLOCKING 0x0": None,
    "EXIT": None,
}


def instructions(lines: list[str]) -> tuple[SassInstruction, ...]:
    code = "\n".join(f"        /*{16 * n:04x}*/  {line} ;" for n, line in enumerate(lines))
    (function,) = parse_sass(f"Function : k\n{code}\n").functions
    return function.instructions


@pytest.mark.parametrize("line", OPCODES)
def test_pipes_of_instructions(line: str) -> None:
    (instruction,) = instructions([line])
    assert pipes.pipe(instruction) == OPCODES[line]


def test_cycles_by_hand() -> None:
    """Hopper: 128 FP32 lanes, 64 integer ones, 16 of special functions, 4 issue slots."""
    ffma, imad, mufu, bar = instructions(
        ["FFMA R1, R2, R3, R4", "IMAD R1, R2, R3, R4", "MUFU.EX2 R1, R2", "BAR.SYNC 0x0"]
    )
    executed = [(ffma, 1000), (imad, 300), (mufu, 50), (bar, 10), (ffma, 200)]
    found = pipes.cycles(executed, capability("sm_90"))
    assert found == {
        "issue": 1560 / 4, "fma": 1200 / 4 + 300 / 4, "fma_heavy": 300 / 2, "sfu": 50 * 2,
    }  # fmt: skip


@cache
def recorded() -> dict[str, Record]:
    records, skipped = read_records(str(ROOT / "samples" / "h200" / "records.tar.xz"))
    assert not skipped
    return {record.case: record for record in sorted(records, key=lambda r: r.case)}


SOME = list(recorded())[3::14]


@cache
def given(case: str) -> Given | None:
    """What is known of a recorded launch before anything is estimated."""
    record = recorded()[case]
    found: list[Given] = []

    def take(launch: Given, *_: object) -> Unknown:
        found.append(launch)
        return Unknown("not asked for")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimating, "predict", take)
        estimating.estimate(record.module, record.launch, cubin=record.cubin, findings=False)
    return found[0] if found else None


@pytest.mark.parametrize("case", SOME)
def test_pipes_execute_what_the_counters_say(case: str) -> None:
    """Warp instructions of each pipe, to the last one."""
    launch = given(case)
    assert launch is not None
    assert not isinstance(launch.code, Unknown)
    if any(runs.warps is None for runs in launch.code.block_runs.values()):
        pytest.skip("how often a part runs depends on data")
    number: Counter[str | None] = Counter()
    for instruction, warps in demand._executed(launch.code):
        number[pipes.pipe(instruction)] += warps
    number["fma"] += number["fma_heavy"]
    counters = recorded()[case].counters
    for name, ours in (("fma", "fma"), ("alu", "alu"), ("lsu", "lsu"), ("xu", "sfu")):
        assert number[ours] == counters[f"sm__inst_executed_pipe_{name}.sum"], name


def test_there_are_enough_records() -> None:
    assert len(SOME) >= 20
    assert {case.split("-")[0] for case in SOME} >= {"gelu", "matmul_relu", "flash_attention"}


# ---------------------------------------------------------------- tensor cores

TYPES = {
    "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32": "f16",
    "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16": "f16",
    "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32": "bf16",
    "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32": "tf32",
    "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32": "e4m3",
    "mma.sync.aligned.m16n8k16.row.col.f16.e5m2.e5m2.f16": "e5m2",
    "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64": "f64",
    "mma.sync.aligned.m16n8k32.row.col.s32.s8.u8.s32": "s8",
    "mma.sync.aligned.m8n8k128.row.col.s32.b1.b1.s32.xor.popc": "b1",
    "mma.sp::ordered_metadata.sync.aligned.m16n8k128.row.col.s32.s4.s4.s32.satfinite": "s4",
    "mma.sync.aligned.kind::mxf4nvf4.block_scale.scale_vec::4X.m16n8k64.row.col.f32.e2m1.e2m1.f32"
    ".ue4m3": "mxf4nvf4",
    "wmma.mma.sync.aligned.row.col.m16n16k16.s32.u8.u8.s32": "u8",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32": "f16",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f16.f16": "f16",
    "wmma.mma.sync.aligned.row.col.m16n16k16.f32.bf16.bf16.f32": "bf16",
    "wmma.load.a.sync.aligned.row.m16n16k16.global.u8": None,
    "wmma.load.c.sync.aligned.row.m16n16k16.f32": None,
    "wmma.store.d.sync.aligned.row.m16n16k16.shared.s32": None,
    "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16": "f16",
    "wgmma.mma_async.sync.aligned.m64n128k8.f32.tf32.tf32": "tf32",
    "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e5m2": "e4m3",
    "wgmma.mma_async.sync.aligned.m64n64k32.s32.s8.s8": "s8",
    "wgmma.fence.sync.aligned": None,
    "wgmma.commit_group.sync.aligned": None,
    "tcgen05.mma.cta_group::1.kind::f16": "f16",
    "tcgen05.mma.cta_group::2.kind::mxf4nvf4.block_scale.block16": "mxf4nvf4",
    "tcgen05.ld.sync.aligned.32x32b.x16.b32": None,
    "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64": None,
    "fma.rn.f32": None,
    "ld.global.b32": None,
}


def an_instruction(text: str) -> ir.Instruction:
    module = parse_ptx(
        f".version 8.7\n.target sm_90a\n.address_size 64\n.entry k() {{\n{text};\nret;\n}}\n"
    )
    return next(i for i in module.entries[0].body or () if isinstance(i, ir.Instruction))


@pytest.mark.parametrize("opcode", TYPES)
def test_types_of_operands(opcode: str) -> None:
    assert tensor.operand_type(an_instruction(opcode)) == TYPES[opcode]


def products() -> Iterator[str]:
    """The opcodes of tensor products in public PTX, by a search of the text."""
    if not CORPUS.is_file():
        return
    found: set[str] = set()
    with tarfile.open(CORPUS) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.name.endswith(".ptx") else None
            if file is not None:
                text = file.read().decode("utf-8", "replace")
                found |= set(re.findall(r"^\s*((?:wg|w|tcgen05\.)?mma(?:\.[\w:]+)+)", text, re.M))
    yield from sorted(found)


def test_types_of_operands_in_public_ptx() -> None:
    """Of every product the word of the type before the last one, or the kind."""
    opcodes = [o for o in products() if not o.startswith("wgmma.") or "mma_async" in o]
    if not opcodes:
        pytest.skip("the public PTX is not here")
    assert len(opcodes) > 20
    for opcode in opcodes:
        kinds = re.findall(r"kind::(\w+)", opcode)
        words = re.findall(r"\.((?:e\dm\d|[fsub]f?\d+|tf32))(?=\.|$)", opcode)
        if opcode.startswith(("wmma.load", "wmma.store")):
            expected = None
        elif kinds:
            expected = kinds[0]
        else:
            expected = words[1]
        assert tensor.operand_type(an_instruction(opcode)) == expected, opcode


@pytest.mark.parametrize(
    ("text", "wavefronts"),
    [
        # B: 128 x 16 halves = 4,096 bytes; A: 64 x 16 = 2,048 bytes, where it is a descriptor
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1}, %rd1, %rd2, p, 1, 1, 0, 0",
         48),
        ("wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {%f1, %f2}, {%r1, %r2, %r3, %r4}, "
         "%rd2, p, 1, 1, 0", 32),
        ("wgmma.mma_async.sync.aligned.m64n8k8.f32.tf32.tf32 {%f1, %f2}, %rd1, %rd2, p, 1, 1", 18),
        ("wgmma.mma_async.sync.aligned.m64n256k32.f32.e4m3.e5m2 {%f1}, %rd1, %rd2, p, 1, 1", 80),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f2}", 0),
    ],
)  # fmt: skip
def test_wavefronts_of_operands_by_hand(text: str, wavefronts: int) -> None:
    assert tensor.operand_wavefronts(an_instruction(text)) == wavefronts


PRODUCTS = [c for c in recorded() if c.startswith(("matmul", "flash"))][::9]


@pytest.mark.parametrize("case", PRODUCTS)
def test_wavefronts_of_operands_equal_the_counter(case: str) -> None:
    launch = given(case)
    assert launch is not None
    found = sum(
        tensor.operand_wavefronts(instruction) * warps / 4
        for instruction, warps in demand._tensor(launch.totals, launch.description.cfg)
    )
    name = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
    assert found == recorded()[case].counters[name]


def test_some_products_read_their_operands_from_shared_memory() -> None:
    name = "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_gmma.sum"
    assert sum(bool(recorded()[case].counters[name]) for case in PRODUCTS) >= 5


# operations of an SM each clock, dense: NVIDIA's white papers (2 for each fused multiply-add)
PER_CLOCK = {
    "T4": {"f16": 1024},
    "A100 SXM 80GB": {"f16": 2048, "bf16": 2048, "tf32": 1024, "s8": 4096, "f64": 128},
    "H100 SXM": {"f16": 4096, "bf16": 4096, "tf32": 2048, "e4m3": 8192, "s8": 8192, "f64": 256},
    "H200": {"f16": 4096, "tf32": 2048, "e5m2": 8192, "f64": 256},
    "L40S": {"f16": 1024, "e4m3": 2048},
    "B200": {"f16": 8192, "tf32": 4096, "f8f6f4": 16384, "mxf4": 32768},
}


@pytest.mark.parametrize("name", PER_CLOCK)
def test_operations_of_a_clock(name: str) -> None:
    found = {kind: tensor.operations_per_clock(kind, device(name)) for kind in PER_CLOCK[name]}
    assert found == PER_CLOCK[name]
    assert tensor.operations_per_clock("b1", device(name)) is None


@pytest.mark.parametrize("name", devices())
def test_operations_of_a_clock_are_near_the_rated_peak(name: str) -> None:
    """Peaks are rated up to 12 % below the highest clock; halved types do twice as much."""
    gpu = device(name)
    for kind in ("f16", "bf16", "tf32", "e4m3", "s8", "f64", "e2m1"):
        number, highest = tensor.operations_per_clock(kind, gpu), tensor.peak(kind, gpu)
        if number is None or highest is None:
            continue
        assert gpu.sms is not None
        assert gpu.clock_max_mhz is not None
        assert 0.88 < highest * 1e6 / (gpu.sms * gpu.clock_max_mhz) / number < 1.06, kind
    half, single = (tensor.operations_per_clock(kind, gpu) for kind in ("f16", "tf32"))
    assert None in (half, single) or half == 2 * (single or 0)
