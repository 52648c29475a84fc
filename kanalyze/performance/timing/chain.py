"""How long a warp takes by itself: a walk over its machine code with the latency of each result.

What: cycles from a warp's first instruction to its last if it had an SM for itself and every load
hit L1; and how many times it waits for global memory, one wait after the other.
Formula: an instruction issues when the one before it has and its operands are there; its results
are there after its latency. L1 answers loads in order, so a load that hits waits behind one that
missed. A fence for the GPU waits for all of them and then for an answer of its own; what
invalidates L1 waits for all of them. The waits are what loads of ``_FAR`` cycles add, in such
latencies. A block of a loop is walked three times and counts as in the last round; each block
counts as often as warps execute it.
Source: latencies on Hopper and Ampere as microbenchmarks found them (Luo et al., "Benchmarking and
Dissecting the Nvidia Hopper GPU Architecture via Microbenchmarking", 2024; Abdelkhalik et al.,
"Demystifying the Nvidia Ampere Architecture through Microbenchmarking and Instruction-level
Analysis", 2022), rounded; Nsight Compute, "Metrics guide", L1TEX: a queue in order.
Limits: asynchronous copies and warpgroup instructions are waited for by barriers, which are not
followed here; other warps take no slots.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from kanalyze.performance.timing.pipes import SLOW_ARITHMETIC
from kanalyze.sass.cfg import SassCfg
from kanalyze.sass.ir import SassInstruction
from kanalyze.sass.registers import definitions, uses
from kanalyze.sass.table import lookup

_NEAR, _FAR = 35, 635  # cycles of a load that hits L1, and of one that goes to memory
_LATENCY = {
    "integer": 5, "float": 4, "half": 5, "double": 16, "predicate": 8, "convert": 6, "move": 5,
    "warp": 24, "shared": 30, "const": 10, "tensor": 33, "tensor_memory": 40, "texture": 400,
    "surface": 400, "sync": 2,
}  # fmt: skip
_OTHER = 6
_SLOW = 22  # special functions and most conversions
_SPECIAL_REGISTER = 25
_UNIFORM = 10
_IN_ORDER = ("global", "local", "generic")
_GAPS = {"shared": 2, "local": 2, "global": 2}  # cycles until the next instruction may issue
_BRANCH, _BARRIER = 6, 25
_FENCES = ("MEMBAR", "FENCE")
_INVALIDATES = "CCTL.IVALL"


@dataclass(frozen=True, slots=True)
class DependencyChain:
    """One warp of each block: cycles with loads that hit L1, waits for global and local memory.

    Means over the warps of the launch.
    """

    cycles: float
    waits: float
    local_waits: float


def chain(cfg: SassCfg, runs: Iterable[tuple[int, int]], warps: float) -> DependencyChain:
    """Walk over a kernel.

    Args:
        cfg: its machine code.
        runs: blocks of the graph with how many warps execute them.
        warps: of the launch.
    """
    near, far, local = _cycles(cfg, ()), _cycles(cfg, ("global",)), _cycles(cfg, ("local",))
    total, waits, local_waits = 0.0, 0.0, 0.0
    for index, times in runs:
        total += times * near[index]
        waits += times * (far[index] - near[index]) / (_FAR - _NEAR)
        local_waits += times * (local[index] - near[index]) / (_FAR - _NEAR)
    return DependencyChain(total / warps, max(0.0, waits / warps), max(0.0, local_waits / warps))


def _cycles(cfg: SassCfg, far: tuple[str, ...]) -> dict[int, float]:
    """Cycles of each block, where loads from some spaces go to memory."""
    walk = _Walk(far)
    cycles = {block.index: walk.through(block.instructions) for block in cfg.blocks}
    for loop in sorted(cfg.loops, key=lambda loop: loop.depth):
        body = sorted(loop.body)
        for _ in range(2):
            for index in body:
                cycles[index] = walk.through(cfg.blocks[index].instructions)
    return cycles


@dataclass
class _Walk:
    """Where a warp is, when its registers are there, and when L1 has answered all loads."""

    far: tuple[str, ...]
    now: float = 0.0
    ready: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    answered: float = 0.0

    def through(self, instructions: Iterable[SassInstruction]) -> float:
        """Execute some instructions; returns how long that took."""
        start = self.now
        for instruction in instructions:
            row = lookup(instruction)
            kind = row.kind if row is not None else None
            issued = max([self.now, *(self.ready[unit] for unit in uses(instruction))])
            fences = instruction.base in _FENCES and ".CTA" not in instruction.opcode
            if fences or instruction.opcode == _INVALIDATES:
                issued = max(issued, self.answered)
            there = issued + self._latency(instruction, kind, row is not None and row.uniform)
            written = definitions(instruction)
            if kind in _IN_ORDER and row is not None and row.writes != "none":
                there = self.answered = max(there, self.answered)
            for unit in written:
                self.ready[unit] = there
            self.now = issued + _gap(instruction, kind)
            if fences:
                self.now = issued + (_FAR if "global" in self.far else _NEAR)
        return self.now - start

    def _latency(self, instruction: SassInstruction, kind: str | None, uniform: bool) -> int:
        if kind in _IN_ORDER:
            return _FAR if kind in self.far else _NEAR
        if instruction.base in SLOW_ARITHMETIC:
            return _SLOW
        if instruction.base in ("S2R", "S2UR"):
            return _SPECIAL_REGISTER
        if uniform and kind != "const":
            return _UNIFORM
        return _LATENCY.get(kind or "", _OTHER)


def _gap(instruction: SassInstruction, kind: str | None) -> int:
    if instruction.base in SLOW_ARITHMETIC:
        return 2
    if instruction.base == "BRA":
        return _BRANCH
    if instruction.base == "BAR":
        return _BARRIER
    return _GAPS.get(kind or "", 1)
