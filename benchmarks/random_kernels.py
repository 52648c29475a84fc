"""Random kernels: what kanalyze says of them against an interpreter that runs every lane.

``python benchmarks/random_kernels.py [--count 200] [--first 0] [--language cuda]`` compares: every
number and every sentence on addresses must be equal, or unknown. `random_device.py` compares the
numbers of the machine code with the counters of a GPU.
"""

from __future__ import annotations

import argparse
import re
import struct
import subprocess
import sys
import tempfile
import traceback
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.random_sources import BYTES, Argument, Sample, Shot, sample  # noqa: E402

PLACE = 1 << 40
GUARD = 1 << 16  # bytes on either side of an array
LANGUAGES = ("ptx", "cuda", "triton")


@dataclass
class Outcome:
    """What came of one kernel: faults, how much was compared, what was unknown and why."""

    wrong: list[str] = field(default_factory=list)
    equal: Counter[str] = field(default_factory=Counter)
    unknown: Counter[str] = field(default_factory=Counter)
    skipped: str | None = None

    def compare(self, what: str, told: Any, right: Any, reason: str | None, where: str) -> None:
        """One number: equal, unknown, or wrong."""
        if told is None:
            self.unknown[f"{what}: {reason}"] += 1
        elif told != right:
            self.wrong.append(f"{what} {told}, {right} by lanes ({where})")
        else:
            self.equal[what] += 1


# ---------------------------------------------------------------- compiling and running


def ptx_of(made: Sample) -> Any:
    """The PTX of a sample (a text), or what Triton compiled."""
    if made.language == "ptx":
        return made.source
    with tempfile.TemporaryDirectory() as folder:
        if made.language == "triton":
            from kanalyze import compile_kernel

            path = Path(folder) / "k.py"
            path.write_text(made.source)
            return compile_kernel(
                f"{path}:k", arch="sm_90", signature=made.signature, num_warps=made.warps
            )
        path = Path(folder) / "k.cu"
        path.write_text(made.source)
        command = [
            "nvcc",
            "-w",
            "-arch=sm_90",
            "-lineinfo",
            "-ptx",
            "-o",
            path.with_suffix(".ptx"),
            path,
        ]
        subprocess.run(command, check=True, capture_output=True)
        return path.with_suffix(".ptx").read_text()


def place_of(index: int, argument: Argument, shot: Shot) -> int:
    """The address of an array: arrays are far apart, each a little off where the launch says so."""
    return PLACE * (index + 1) + argument.align * shot.shifts.get(argument.name, 0)


def values_of(made: Sample, shot: Shot) -> list[int | bytes]:
    """The arguments as they are passed."""
    values: list[int | bytes] = []
    for index, argument in enumerate(made.arguments):
        if argument.type.startswith("*"):
            values.append(place_of(index, argument, shot))
        elif argument.fields:
            data = bytearray(sum(argument.fields[-1]))
            for number, (at, size) in enumerate(argument.fields):
                value = shot.numbers.get(f"{argument.name}.{at}", PLACE * (20 + number))
                data[at : at + size] = value.to_bytes(size, "little")
            values.append(bytes(data))
        else:
            values.append(shot.numbers[argument.name])
    return values


def memory_of(values: list[int | bytes]) -> list[tuple[int, np.ndarray]]:
    """An array of small numbers behind every pointer."""
    places = [v for v in values if isinstance(v, int) and v >= PLACE // 2]
    for value in values:
        if isinstance(value, bytes):
            places += [
                w for (w,) in struct.iter_unpack("<Q", value) if w >= PLACE // 2 and w % PLACE == 0
            ]
    rng = np.random.default_rng(0)
    return [(p - GUARD, rng.integers(0, 64, BYTES + 2 * GUARD).astype(np.uint8)) for p in places]


# ---------------------------------------------------------------- comparing


def examine(made: Sample, shots: int = 2) -> Outcome:
    """Compile a sample, run its launches, compare."""
    from tests.oracle.interpreter import PtxError

    outcome = Outcome()
    try:
        compiled = ptx_of(made)
    except subprocess.CalledProcessError as error:
        outcome.skipped = f"not compiled: {error.stderr.decode()[-300:]}"
        return outcome
    except Exception as error:
        outcome.skipped = f"not compiled: {str(error)[-300:]}"
        return outcome
    for shot in made.shots[:shots]:
        try:
            _examine(made, compiled, shot, outcome)
        except PtxError as error:
            text = re.sub(r"line \d+: ", "", str(error))
            outcome.skipped = f"the interpreter: {re.sub(r'0x[0-9a-f]+', '…', text)}"
        except Exception:
            outcome.wrong.append("an internal error: " + traceback.format_exc(limit=-4))
    return outcome


def _examine(made: Sample, compiled: Any, shot: Shot, outcome: Outcome) -> None:
    from kanalyze import Launch, estimate, parse_ptx
    from kanalyze.launch.record import LaunchParam
    from tests.oracle.interpreter import run

    text = compiled if isinstance(compiled, str) else compiled.ptx
    values = values_of(made, shot)
    x, y, z = shot.grid
    blocks = [(i, j, k) for k in range(z) for j in range(y) for i in range(x)]
    trace = run(text, "k", shot.grid, made.block, values, blocks, memory_of(values))
    params = tuple(
        LaunchParam(a.name, a.type, v if isinstance(v, int) else None)
        for a, v in zip(made.arguments, values, strict=True)
    )
    launch = Launch("k", shot.grid, made.block, params, registers_per_thread=32)
    module = parse_ptx(text)
    told = estimate(module, launch, simulate=False, findings=False)
    by_line = defaultdict(list)
    for record in trace.accesses:
        by_line[record.line].append(record)
    _counts(told, by_line, outcome)
    _branches(told, trace, outcome)
    _distinct(told, by_line, values, outcome)
    _sentences(module, launch, made, shot, values, trace, by_line, outcome)


def _counts(told: Any, by_line: Any, outcome: Outcome) -> None:
    """Requests, lanes, sectors and wavefronts of every access."""
    from tests.oracle.lanes import sectors, serialized, warps_of, wavefronts

    for line in set(by_line) - {a.line for a in told.accesses}:
        if any(r.active.any() for r in by_line[line]):
            what = f"{by_line[line][0].opcode} at line {line}"
            if told.analysed.missing == 0:
                outcome.wrong.append(f"{what}: not listed, and none is said to be missing")
            else:
                outcome.unknown["an access that is not listed, and said to be missing"] += 1
    listed = Counter(a.line for a in told.accesses)
    for access in told.accesses:
        if listed[access.line] > 1:  # a function that is called from several places
            outcome.unknown["a line in several places"] += 1
            continue
        if access.space not in ("global", "shared"):
            continue
        if access.fate not in (None, "same", "copied"):  # counted as the machine code has it
            outcome.unknown[f"an access that is {access.fate} in the machine code"] += 1
            continue
        width, opcode = access.bytes_per_thread, access.opcode
        warps = [(w, on) for r in by_line[access.line] for w, on in warps_of(r) if on.any()]
        if access.space == "global" and access.kind in ("atomic", "reduction"):
            costs = [serialized(w, on) for w, on in warps]
        elif access.space == "global":
            costs = [sectors(w, on, width) for w, on in warps]
        else:
            vector = next((int(p[1]) for p in opcode.split(".") if re.fullmatch(r"x[124]", p)), 1)
            costs = [
                wavefronts(opcode.split(".")[0], access.kind, width, vector, w, on)
                for w, on in warps
            ]
        where = f"line {access.line}, {opcode}"
        reason = access.reason and re.sub(r"\d+", "…", access.reason)
        outcome.compare("requests", access.requests, len(warps), reason, where)
        if access.kind not in ("atomic", "reduction") or access.space == "global":
            outcome.compare(access.unit, access.cost, sum(costs), reason, where)
        lanes = sum(int(on.sum()) for _, on in warps)
        outcome.compare("lanes", access.threads, lanes, reason, where)
        if (
            access.worst is not None
            and access.cost is not None
            and access.kind in ("load", "store")
        ):
            outcome.compare("worst", access.worst, max(costs, default=0), reason, where)


def _branches(told: Any, trace: Any, outcome: Outcome) -> None:
    """How often warps come to a branch, and how often they part there."""
    from tests.oracle.interpreter import WARP

    executed: Counter[int] = Counter()
    parted: Counter[int] = Counter()
    for record in trace.branches:
        missing = -len(record.reached) % WARP
        reached, taken = (
            np.pad(a, (0, missing)).reshape(-1, WARP) for a in (record.reached, record.taken)
        )
        executed[record.line] += int(reached.any(axis=1).sum())
        parted[record.line] += int((taken.any(axis=1) & (reached & ~taken).any(axis=1)).sum())
    listed = Counter(b.line for b in told.branches)
    for branch in told.branches:
        if listed[branch.line] > 1:
            continue
        where, reason = f"line {branch.line}, {branch.opcode}", branch.reason
        reason = reason and re.sub(r"\d+", "…", reason)
        outcome.compare(
            "warps at a branch", branch.executed_warps, executed[branch.line], reason, where
        )
        outcome.compare("warps parted", branch.divergent_warps, parted[branch.line], reason, where)
        if branch.kind in ("warp", "block") and parted[branch.line]:
            outcome.wrong.append(f"{where}: the same for a {branch.kind}, but it parts warps")


def _distinct(told: Any, by_line: Any, values: list[Any], outcome: Outcome) -> None:
    """Distinct sectors that are read and written, of all pointers together."""
    if any(access.fate not in (None, "same", "copied") for access in told.accesses):
        return
    read, written = set(), set()
    for records in by_line.values():
        for r in records:
            parts = r.opcode.split(".")
            if "global" not in r.opcode or parts[0] == "cp":
                continue
            touched = {int(a + b) // 32 for a in r.addresses[r.active] for b in (0, r.bytes - 1)}
            if parts[0] != "st":
                read |= touched
            if parts[0] not in ("ld", "ldu"):
                written |= touched
    for what, number, right in (("read", told.compulsory.read_bytes, read),
                                ("write", told.compulsory.write_bytes, written)):  # fmt: skip
        outcome.compare(f"distinct bytes {what}", number, 32 * len(right), "of an address", "all")


def _sentences(
    module: Any, launch: Any, made: Sample, shot: Shot, values: list[Any], trace: Any, by_line: Any,
    outcome: Outcome,
) -> None:  # fmt: skip
    """What the report says of addresses, conditions, loops, patterns and special registers."""
    from kanalyze import analyze

    kernel = analyze(module, launch, prove=False, sass=False).kernels[0]
    _patterns(kernel, made, by_line, outcome)
    _roles(kernel, made, trace, by_line, outcome)
    if made.language != "ptx":  # texts mean numbers that do not wrap
        _texts(module, kernel, made, shot, values, trace, by_line, outcome)


def _first_warp(records: list[Any]) -> Any | None:
    """The lanes of a block's first warp in the block and iteration that a report speaks of."""
    for r in records:
        first = min(32, len(r.addresses))
        here = r.block == (0, 0, 0) and r.active[:first].all() and r.reached[:first].all()
        if here and all((count[:first] == 0).all() for count in r.iterations.values()):
            return r.addresses[:first].astype(np.int64)
    return None


def _patterns(kernel: Any, made: Sample, by_line: Any, outcome: Outcome) -> None:
    listed = Counter(a.line for a in kernel.accesses)
    for access in kernel.accesses:
        lanes = _first_warp(by_line[access.line])
        if (
            access.pattern is None
            or lanes is None
            or access.space == "local"
            or listed[access.line] > 1
        ):
            continue
        where, width = (
            f"line {access.line}, {access.opcode}: {access.pattern}",
            access.bytes_per_thread,
        )
        if access.opcode.startswith(("ldmatrix", "stmatrix")):
            continue
        touched = {int(a) + b for a in lanes for b in range(width)}
        outcome.compare("bytes a warp", access.bytes_per_warp, len(touched), None, where)
        runs = sum(t - 1 not in touched for t in touched)
        outcome.compare("pattern", _meant(access.pattern, width, lanes, touched, runs), True, None,
                        f"{where}; lanes at {(lanes - lanes[0]).tolist()}")  # fmt: skip


def _meant(words: str, width: int, lanes: Any, touched: set[int], runs: int) -> bool:
    """Whether the words on a pattern are true of these lanes."""
    lengths = sorted(touched)
    starts = [t for t in lengths if t - 1 not in touched]
    if words.startswith("contiguous"):
        each = re.search(r"(\d+) lanes at each", words)
        shared = len(lanes) * width != len(touched)
        return runs == 1 and bool(each) == shared
    if words == "all lanes at one address":
        return len(set(lanes.tolist())) == 1
    if found := re.fullmatch(r"stride (\d+) B", words):
        gaps = set(np.diff(np.sort(lanes)).tolist())
        return gaps == {int(found[1])} and runs == len(lanes)
    if found := re.fullmatch(r"(\d+) runs of (\d+) B, (\d+) B apart", words):
        count, length, gap = (int(n) for n in found.groups())
        return (runs == count and len(touched) == count * length
                and set(np.diff(starts).tolist()) == {gap})  # fmt: skip
    if found := re.fullmatch(r"scattered over (\d+) places", words):
        return runs == int(found[1])
    return True


def _roles(kernel: Any, made: Sample, trace: Any, by_line: Any, outcome: Outcome) -> None:
    """ "in no address" must be true: lanes (blocks) that differ in that register alone point alike."""
    for role in kernel.roles:
        if "in no address" not in role.role:
            continue
        stem, _, axis = role.register.partition(".")
        for line, records in by_line.items():
            seen: dict[Any, int] = {}
            for r in records:
                threads = np.arange(len(r.addresses))
                tid = [threads % made.block[0], threads // made.block[0] % made.block[1],
                       threads // (made.block[0] * made.block[1])]  # fmt: skip
                for t in np.flatnonzero(r.active):
                    at = [int(c[t]) for c in tid] + list(r.block)
                    at["xyz".index(axis or "x") + (0 if stem == "tid" else 3)] = -1
                    key = (*at, r.ordinal, *(int(c[t]) for c in r.iterations.values()))
                    if seen.setdefault(key, int(r.addresses[t])) != int(r.addresses[t]):
                        outcome.wrong.append(
                            f"role of {role.register}: {role.role} (line {line}, {r.opcode})"
                        )
                        return
        outcome.equal["role"] += 1


def _texts(
    module: Any, kernel: Any, made: Sample, shot: Shot, values: list[Any], trace: Any, by_line: Any,
    outcome: Outcome,
) -> None:  # fmt: skip
    """The texts of addresses and conditions, evaluated."""
    from kanalyze.ptx.cfg import build
    from tests.oracle.expression import Expression, definitions_of

    cfg = build(module.entries[0])
    headers = sorted(loop.header for loop in cfg.loops)
    lines = [cfg.blocks[h].instructions[0].pos.line for h in headers]
    if len(lines) != len(kernel.loops) or len(set(lines)) != len(lines):
        outcome.unknown["loops whose lines are not told apart"] += 1
        return
    counters = {loop.counter: line for loop, line in zip(kernel.loops, lines, strict=True)}
    threads = np.arange(made.block[0] * made.block[1] * made.block[2])
    bx, by, _ = made.block
    fixed: dict[str, Any] = {"tid.x": threads % bx, "tid.y": threads // bx % by, "tid.z": threads // (bx * by),
                             "laneid": threads % 32, "warpid": threads // 32}  # fmt: skip
    for k, axis in enumerate("xyz"):
        fixed[f"ntid.{axis}"], fixed[f"nctaid.{axis}"] = made.block[k], shot.grid[k]
    fixed |= {re.sub(r"[$]", "ˍ", k): np.int64(v) for k, v in trace.variables.items()}
    for parameter, value, argument in zip(kernel.params, values, made.arguments, strict=False):
        for name in {parameter.name, parameter.source_name, argument.name} - {None}:
            if isinstance(value, int):
                fixed[name] = np.int64(value)
            for at, size in argument.fields:
                part = int.from_bytes(value[at : at + size], "little")
                fixed[f"{name}[{at}]"] = np.int64(part)
                if at == 0:
                    fixed[name] = np.int64(part)
    listed = Counter(a.line for a in kernel.accesses)
    definitions = definitions_of(kernel)
    for access in kernel.accesses:
        if listed[access.line] > 1:
            continue
        for r in by_line[access.line][:12]:
            names = dict(fixed) | {
                c: r.iterations.get(line, 0) for c, line in counters.items() if c
            }
            names |= {f"ctaid.{a}": np.int64(r.block[k]) for k, a in enumerate("xyz")}
            evaluated = Expression(names, definitions)
            where = f"line {access.line}, {access.opcode}"
            try:
                if access.address is not None and r.active.any():
                    got = np.broadcast_to(evaluated(access.address), r.addresses.shape)
                    bad = r.active & (got != r.addresses.astype(np.int64))
                    outcome.compare(
                        "address", not bad.any(), True, None, f"{where}: {access.address}"
                    )
                if access.condition is not None:
                    right = r.active if r.source_size is None else r.active & (r.source_size > 0)
                    got = np.broadcast_to(evaluated(access.condition), right.shape)
                    outcome.compare("condition", not (r.reached & (got != right)).any(), True, None,
                                    f"{where}: {access.condition}")  # fmt: skip
            except SyntaxError:
                outcome.unknown["a part of a text"] += 1
            except KeyError as error:
                outcome.unknown[f"the name {re.sub(r'[0-9]+', '…', str(error))} in a text"] += 1
            except AssertionError as error:
                outcome.unknown[f"text: {re.sub(r'[0-9]+', '…', str(error))}"[:100]] += 1


# ---------------------------------------------------------------- the commands


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=100, help="kernels of each language")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--language", choices=LANGUAGES, action="append")
    given = parser.parse_args()
    total = Outcome()
    skipped: Counter[str] = Counter()
    compared = 0
    for language in given.language or LANGUAGES:
        for seed in range(given.first, given.first + given.count):
            outcome = examine(sample(language, seed))
            if outcome.skipped:
                skipped[f"{language}: {outcome.skipped}"] += 1
            compared += bool(outcome.equal)
            for fault in outcome.wrong:
                print(f"{language} {seed}: {fault}", flush=True)
            total.wrong += outcome.wrong
            total.equal += outcome.equal
            total.unknown += outcome.unknown
    print(f"{compared} kernels compared, {len(total.wrong)} statements wrong")
    for title, counted in (
        ("equal", total.equal),
        ("unknown", total.unknown),
        ("left out", skipped),
    ):
        print(f"{title}:")
        for what, count in counted.most_common(40):
            print(f"{count:9,}  {what}")
    sys.exit(bool(total.wrong))


if __name__ == "__main__":
    main()
