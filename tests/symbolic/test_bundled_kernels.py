"""Addresses, conditions and trip counts of the bundled kernels against an interpreter of PTX.

The interpreter (tests/oracle/interpreter.py) runs whole blocks with real memory and shares no code
with the package. First it is itself compared with PyTorch.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

from kanalyze import analyze
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg, build
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.symbolic import accesses as addresses
from kanalyze.symbolic.value import evaluate, unknown_reasons
from tests.oracle.expression import Expression, definitions_of
from tests.oracle.interpreter import Access, PtxError, Trace, run

pytest.importorskip("triton")

from kanalyze.frontend.compile import Compiled, compile_kernel

pytestmark = pytest.mark.slow("runs every thread of whole launches in the interpreter")

ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
CASES: list[tuple[str, dict[str, int], str | None]] = [
    ("gelu", {"n": 3000}, None),
    ("gelu", {"n": 4096}, "fp16"),
    ("gelu", {"n": 3001}, "bf16"),
    ("softmax", {"M": 3, "N": 1000}, None),
    ("softmax", {"M": 3, "N": 1001}, "fp16"),
    ("softmax", {"M": 2, "N": 8192}, None),
    ("softmax", {"M": 2, "N": 4099}, "bf16"),
    ("row_sum", {"M": 3, "N": 6144}, None),
    ("row_sum", {"M": 3, "N": 4099}, None),
    ("row_sum", {"M": 3, "N": 5000}, "fp16"),
    ("matmul_relu", {"M": 256, "N": 384, "K": 256}, None),
    ("matmul_relu", {"M": 200, "N": 192, "K": 200, "GROUP_M": 1}, None),
    ("matmul_relu", {"M": 300, "N": 272, "K": 40, "GROUP_M": 2}, "bf16"),
    ("matmul_relu", {"M": 200, "N": 193, "K": 133}, None),
    ("matmul_relu", {"M": 160, "N": 144, "K": 100}, "fp32"),
    ("flash_attention", {"B": 2, "H": 2, "T": 256, "D": 64, "causal": 0}, None),
    ("flash_attention", {"B": 1, "H": 2, "T": 200, "D": 64, "causal": 1}, None),
    ("flash_attention", {"B": 1, "H": 2, "T": 131, "D": 72, "causal": 1}, "bf16"),
    ("flash_attention", {"B": 1, "H": 1, "T": 100, "D": 32, "causal": 0}, "fp32"),
]


def _id(case: tuple[str, dict[str, int], str | None]) -> str:
    name, shape, dtype = case
    return "-".join([name, *(f"{k}{v}" for k, v in shape.items()), *([dtype] if dtype else [])])


# Two architectures for each case in turn, so that each kernel is run on all four.
IN_TURN = [
    pytest.param(i, ARCHS[(i + j) % 4], id=f"{_id(case)}-{ARCHS[(i + j) % 4]}")
    for i, case in enumerate(CASES)
    for j in (0, 2)
]
STORAGE = {"fp32": np.float32, "fp16": np.uint16, "bf16": np.uint16, "i8": np.uint8}


@dataclasses.dataclass
class Launch:
    """A compiled kernel with what some of its blocks did."""

    compiled: Compiled
    trace: Trace
    threads: int
    blocks: list[tuple[int, int, int]]


def _blocks(grid: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """The first block of a grid, one in the middle and the last."""
    x, y, z = (*grid, 1, 1)[:3]
    return list(dict.fromkeys([(0, 0, 0), (x // 2, y // 2, z // 2), (x - 1, y - 1, z - 1)]))


def _arrays(compiled: Compiled) -> list[Any]:
    """Values for the kernel's parameters: arrays of just the size that the kernel may touch."""
    values: list[Any] = []
    for name, kind in compiled.signature.items():
        if kind == "constexpr":
            continue
        value = compiled.arguments[name]
        if isinstance(value, tuple):
            values.append(np.zeros(value[2], STORAGE[value[1]]))
        else:
            values.append(value)
    return values


@cache
def _compiled(index: int, arch: str) -> Compiled:
    name, settings, dtype = CASES[index]
    return compile_kernel(name, arch=arch, settings=settings, dtype=dtype)


@cache
def _launch(index: int, arch: str) -> Launch:
    compiled = _compiled(index, arch)
    threads = 32 * compiled.metadata["num_warps"]
    blocks = _blocks(compiled.grid or (1,))
    trace = run(
        compiled.ptx, compiled.name, compiled.grid or (1,), (threads,), _arrays(compiled), blocks
    )
    return Launch(compiled, trace, threads, blocks)


def _specials(launch: Launch, block: tuple[int, int, int]) -> dict[str, Any]:
    grid = (*(launch.compiled.grid or (1,)), 1, 1)[:3]
    lanes = np.arange(launch.threads, dtype=np.uint64)
    specials: dict[str, Any] = {"laneid": lanes % np.uint64(32)}
    for axis, letter in enumerate("xyz"):
        specials[f"tid.{letter}"] = lanes if axis == 0 else lanes * np.uint64(0)
        specials[f"ntid.{letter}"] = launch.threads if axis == 0 else 1
        specials[f"ctaid.{letter}"] = block[axis]
        specials[f"nctaid.{letter}"] = grid[axis]
    return specials


# ---------------------------------------------------------------- the interpreter itself


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gelu", {"n": 3001}),
        ("softmax", {"M": 3, "N": 1001}),
        ("softmax", {"M": 2, "N": 4099}),
        ("row_sum", {"M": 3, "N": 4099}),
    ],
)
def test_the_interpreter_computes_what_pytorch_computes(name, shape, arch):
    torch = pytest.importorskip("torch")
    compiled = compile_kernel(name, arch=arch, settings=shape)
    generator = np.random.default_rng(0)
    values = _arrays(compiled)
    x, y = values[0], values[1]
    x[...] = generator.normal(size=x.shape).astype(np.float32)
    threads = 32 * compiled.metadata["num_warps"]
    everything = [(i, 0, 0) for i in range(compiled.grid[0])]
    run(compiled.ptx, compiled.name, compiled.grid, (threads,), values, everything)
    given = torch.from_numpy(x.astype(np.float64))
    expected = {
        "gelu": lambda: torch.nn.functional.gelu(given, approximate="tanh"),
        "softmax": lambda: torch.softmax(given, 1),
        "row_sum": lambda: given.sum(1),
    }[name]()
    np.testing.assert_allclose(y, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_the_interpreter_copies_rounds_and_shuffles():
    """fp16 softmax: conversions, packed registers; a row with -inf only gives NaN."""
    torch = pytest.importorskip("torch")
    compiled = compile_kernel("softmax", arch="sm_90", settings={"M": 3, "N": 1000}, dtype="fp16")
    values = _arrays(compiled)
    x = np.random.default_rng(1).normal(size=(3, 1000)).astype(np.float16)
    x[1] = -np.inf
    values[0][...] = x.view(np.uint16)
    threads = 32 * compiled.metadata["num_warps"]
    run(compiled.ptx, compiled.name, (3,), (threads,), values, [(i, 0, 0) for i in range(3)])
    y = values[1].view(np.float16).astype(np.float64)
    expected = torch.softmax(torch.from_numpy(x.astype(np.float64)), 1).numpy()
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=1e-6)


def test_the_interpreter_finds_an_access_out_of_bounds():
    compiled = compile_kernel("gelu", settings={"n": 3000})
    values = _arrays(compiled)
    values[0] = values[0][:2000].copy()
    with pytest.raises(PtxError, match=r"line \d+: address 0x\w+ of global memory"):
        run(compiled.ptx, compiled.name, (3,), (128,), values, [(0, 0, 0), (1, 0, 0), (2, 0, 0)])


# ---------------------------------------------------------------- (a) values


def _function(ptx: str, kernel: str) -> tuple[ir.Module, ir.Function]:
    for module in parse_ptx_modules(ptx, "test.ptx"):
        for function in module.entries:
            if function.name == kernel:
                return module, function
    raise AssertionError(kernel)


def _variables(module: ir.Module, function: ir.Function) -> dict[str, ir.Variable]:
    variables = {v.name: v for v in module.variables}
    return variables | {s.name: s for s in function.body or () if isinstance(s, ir.Variable)}


def _header_lines(cfg: Cfg) -> dict[int, int]:
    """Header block of a loop to the line of its first statement."""
    return {loop.header: cfg.blocks[loop.header].instructions[0].pos.line for loop in cfg.loops}


def _by_iteration(records: list[Access], lines: Mapping[int, int]) -> list[list[Access]]:
    """Records of one block, those of the same iterations together."""
    groups: dict[bytes, list[Access]] = {}
    for record in records:
        key = b"".join(record.iterations[line].tobytes() for line in lines.values())
        groups.setdefault(key, []).append(record)
    return list(groups.values())


def _expected_condition(record: Access) -> np.ndarray:
    """The threads that moved something."""
    if record.source_size is None:
        return record.active
    return record.active & (record.source_size > 0)


@pytest.mark.parametrize(("index", "arch"), IN_TURN)
def test_values_of_addresses_and_conditions(index, arch):
    launch = _launch(index, arch)
    module, function = _function(launch.compiled.ptx, launch.compiled.name)
    cfg = build(function)
    found = addresses.find(cfg, _variables(module, function))
    lines = _header_lines(cfg)
    at = {a.instruction.pos.line: a for a in found.accesses}
    assert len(at) == len(found.accesses)
    assert {r.line for r in launch.trace.accesses} <= set(at)
    assert not {line: a.reasons for line, a in at.items() if a.reasons}
    params = {
        (parameter.name, 0): value if isinstance(value, int) else 0
        for parameter, value in zip(
            function.parameters,
            [*launch.trace.bases, *[0] * len(function.parameters)],
            strict=False,
        )
    }
    wrong = []
    for block in launch.blocks:
        records = [r for r in launch.trace.accesses if r.block == block]
        for group in _by_iteration(records, lines):
            iterations = {h: group[0].iterations[line] for h, line in lines.items()}
            values = [v for r in group for v in _wanted(at[r.line])]
            numbers = dict(
                zip(
                    values,
                    evaluate(values, _specials(launch, block), params, iterations,
                             launch.trace.variables),
                    strict=True,
                )
            )  # fmt: skip
            for record in group:
                wrong += _differences(record, at[record.line], numbers)
    assert not wrong, "\n".join(wrong[:10])


def _wanted(access: addresses.AccessValue) -> list[Any]:
    values = [access.address]
    if access.condition is not None:
        assert not unknown_reasons(access.condition)
        values.append(access.condition)
    if access.shared is not None and not unknown_reasons(access.shared):
        values.append(access.shared)
    return values


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("index", [10, 13, 16], ids=lambda i: _id(CASES[i]))
def test_the_shared_side_of_copies_is_known(index, arch):
    compiled = _compiled(index, arch)
    module, function = _function(compiled.ptx, compiled.name)
    found = addresses.find(build(function), _variables(module, function))
    assert not [a for a in found.accesses if a.shared is not None and unknown_reasons(a.shared)]


def _differences(record: Access, access: addresses.AccessValue, numbers: Any) -> list[str]:
    place = f"line {record.line} ({record.opcode}), block {record.block}, time {record.ordinal}"
    result = []
    for what, value, expected in (
        ("address", access.address, record.addresses),
        ("shared address", access.shared, record.shared),
    ):
        if value is None or value not in numbers:
            continue
        got = np.broadcast_to(numbers[value], record.addresses.shape)
        bad = record.active & (got != expected)
        if bad.any():
            lane = int(np.argmax(bad))
            result.append(
                f"{place}: {what} of thread {lane} is {int(got[lane]):#x}, "
                f"expected {int(expected[lane]):#x}"
            )
    condition = np.asarray(True if access.condition is None else numbers[access.condition] != 0)
    bad = record.reached & (condition != _expected_condition(record))
    if bad.any():
        result.append(f"{place}: condition of threads {np.flatnonzero(bad)[:8]}")
    return result


# ---------------------------------------------------------------- (b) what the report says


def _names(
    launch: Launch, kernel: Any, block: tuple[int, int, int], source_names: bool
) -> dict[str, Any]:
    """What the names in a report's texts stand for."""
    names: dict[str, Any] = {k: np.asarray(v).astype(np.int64)
                             for k, v in _specials(launch, block).items()}  # fmt: skip
    names |= {re.sub(r"[$]", "ˍ", k): np.int64(v) for k, v in launch.trace.variables.items()}
    for parameter, value in zip(kernel.params, launch.trace.bases, strict=False):
        if isinstance(value, int):
            shown = parameter.source_name if source_names else parameter.name
            names[shown] = np.int64(value)
    return names


def _text_differences(
    launch: Launch, kernel: Any, ptx: str, name: str, source_names: bool = True
) -> list[str]:
    """Where the texts of a report give other numbers than the trace."""
    _, function = _function(ptx, name)
    cfg = build(function)
    headers = sorted(_header_lines(cfg).items())
    assert len(headers) == len(kernel.loops)
    counters = {loop.counter: line for loop, (_, line) in zip(kernel.loops, headers, strict=True)}
    at = {a.line: a for a in kernel.accesses}
    definitions = definitions_of(kernel)
    wrong = []
    for block in launch.blocks:
        fixed = _names(launch, kernel, block, source_names)
        records = [r for r in launch.trace.accesses if r.block == block]
        for group in _by_iteration(records, {i: line for i, (_, line) in enumerate(headers)}):
            counts = {c: group[0].iterations[line] for c, line in counters.items()}
            evaluated = Expression({**fixed, **counts}, definitions)
            seen: dict[str, Any] = {}
            for record in group:
                access = at[record.line]
                place = f"line {record.line} ({record.opcode}), block {block}, "
                place += f"time {record.ordinal}"
                if access.address is None:
                    wrong.append(f"{place}: address not known: {access.reason}")
                    continue
                for text in (access.address, access.condition or "always"):
                    if text not in seen:
                        seen[text] = np.broadcast_to(evaluated(text), record.addresses.shape)
                got = seen[access.address]
                bad = record.active & (got != record.addresses.astype(np.int64))
                if bad.any():
                    lane = int(np.argmax(bad))
                    wrong.append(
                        f"{place}: thread {lane}: {access.address} is {int(got[lane]):#x}, "
                        f"expected {int(record.addresses[lane]):#x}"
                    )
                condition = seen[access.condition or "always"]
                bad = record.reached & (condition != _expected_condition(record))
                if bad.any():
                    wrong.append(
                        f"{place}: threads {np.flatnonzero(bad)[:8]}: when {access.condition}"
                    )
    return wrong


@cache
def _report(index: int, arch: str) -> Any:
    return analyze(_compiled(index, arch), listing=False, prove=False)


@pytest.mark.parametrize(("index", "arch"), IN_TURN)
def test_the_text_of_addresses_and_conditions(index, arch):
    launch = _launch(index, arch)
    kernel = _report(index, arch).kernels[0]
    assert kernel.analysed.accesses == kernel.analysed.of == len(kernel.accesses)
    wrong = _text_differences(launch, kernel, launch.compiled.ptx, launch.compiled.name)
    assert not wrong, "\n".join(wrong[:10])


# ---------------------------------------------------------------- (c) loops


def _observed(launch: Launch, cfg: Cfg, header: int, block: tuple[int, int, int]) -> np.ndarray:
    """How often the body of a loop ran each time that a thread entered it; -1: never entered.

    Counted by an access in its body that no inner loop repeats; where there is none, by how often
    the header was reached.
    """
    line = cfg.blocks[header].instructions[0].pos.line
    passes = launch.trace.loops[block, line]
    loop = next(item for item in cfg.loops if item.header == header)
    inner = {b for item in cfg.loops if item.depth > loop.depth for b in item.body}
    lines = {
        i.pos.line
        for b in loop.body - inner
        for i in cfg.blocks[b].instructions
        if _accesses_memory(i)
    }
    runs = {line: np.zeros(launch.threads, np.int64) for line in lines}
    for record in launch.trace.accesses:
        if record.block == block and record.line in lines:
            runs[record.line] += record.reached
    total = np.max(list(runs.values()), axis=0) if runs else passes.started
    return np.where(passes.entered > 0, total // np.maximum(passes.entered, 1), -1)


def _accesses_memory(instruction: ir.Instruction) -> bool:
    return instruction.base in ("ld", "st", "cp", "ldmatrix", "stmatrix") and not (
        instruction.opcode.startswith(("ld.param", "cp.async.wait", "cp.async.commit"))
    )


@pytest.mark.parametrize(("index", "arch"), IN_TURN)
def test_trip_counts(index, arch):
    launch = _launch(index, arch)
    kernel = _report(index, arch).kernels[0]
    _, function = _function(launch.compiled.ptx, launch.compiled.name)
    cfg = build(function)
    headers = sorted(loop.header for loop in cfg.loops)
    assert len(headers) == len(kernel.loops)
    for loop, header in zip(kernel.loops, headers, strict=True):
        spinning = any(i.base == "mbarrier" for i in cfg.blocks[header].instructions)
        if spinning:  # waits for hardware: its trip count is not to be known
            assert loop.trip_count is None
            continue
        assert loop.trip_count is not None, f"loop at line {loop.line}"
        for block in launch.blocks:
            evaluated = Expression(_names(launch, kernel, block, True), definitions_of(kernel))
            told = np.broadcast_to(evaluated(loop.trip_count), (launch.threads,))
            observed = _observed(launch, cfg, header, block)
            bad = (observed >= 0) & (observed != told)
            assert not bad.any(), (
                f"loop at line {loop.line}, block {block}: {loop.trip_count} is "
                f"{told[bad][0]}, but it ran {observed[bad][0]} times"
            )


# ---------------------------------------------------------------- names do not matter


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("index", [0, 6, 8, 13, 17], ids=lambda i: _id(CASES[i]))
def test_names_of_kernel_and_parameters_do_not_matter(index, arch):
    """Renamed throughout, and told to the analysis as a user's own kernel, all stays the same."""
    launch = _launch(index, arch)
    compiled = launch.compiled
    ptx = re.sub(rf"\b{compiled.name}_param_(\d+)\b", r"zebra_\1", compiled.ptx)
    ptx = re.sub(rf"\b{compiled.name}\b", "quagga", ptx)
    assert compiled.name not in re.sub(r"//.*|\.section.*", "", ptx, flags=re.S)
    renamed = dataclasses.replace(
        compiled, name="quagga", ptx=ptx, kernel=None, source_function="quagga",
        resources=dataclasses.replace(compiled.resources),
    )  # fmt: skip
    before, after = _report(index, arch).kernels[0], analyze(renamed, prove=False).kernels[0]
    assert after.name == "quagga"
    for field in ("accesses", "loops", "roles", "thread_coarsening", "analysed", "opcodes"):
        assert getattr(after, field) == getattr(before, field), field
    assert definitions_of(after) == definitions_of(before)

    # Without any knowledge of the launch: parameters are called as in the PTX.
    (module,) = parse_ptx_modules(ptx, "zebra.ptx")
    bare = analyze(module).kernels[0]
    assert len(bare.accesses) == len(before.accesses)
    wrong = _text_differences(launch, bare, ptx, "quagga", source_names=False)
    assert not wrong, "\n".join(wrong[:10])
