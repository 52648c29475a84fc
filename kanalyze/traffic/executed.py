"""What a launch executes: bytes that threads move by space and kind, warps that branches split."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from kanalyze.counting.ptx_launch import AccessTransactions, KernelLaunch, summed
from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.errors import Unknown
from kanalyze.kernel.sources import SourceLines
from kanalyze.models import banks
from kanalyze.models import branches as model
from kanalyze.models.warps import Counted
from kanalyze.results import traffic as doc
from kanalyze.results.kernel import UnknownField
from kanalyze.sass.explain import Match
from kanalyze.sass.ir import SassInstruction
from kanalyze.symbolic.accesses import AccessValue, is_bulk
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError
from kanalyze.traffic.totals import ideal_sectors

Bytes = dict[str, dict[str, int | None]]
_SPILLS = ("load", "store")

# ---------------------------------------------------------------- accesses


def executed_accesses(
    transfers: Sequence[AccessTransactions], code: SassKernelLaunch, matches: Iterable[Match]
) -> list[AccessTransactions]:
    """The accesses of the PTX with the transactions of the machine instructions that they became.

    Of several that became one, the first has what that costs, the others nothing. Copies of a
    loop's body are executed as often as the PTX says.
    """
    index = {transfer.access.instruction.pos: i for i, transfer in enumerate(transfers)}
    executed = list(transfers)
    for match in matches:
        places = sorted(
            i for item in match.before if (i := index.get(item.instruction.pos)) is not None
        )
        alike = match.fate in ("same", "copied")
        words = None if alike else match.text or "not found in the machine code"
        for number, place in enumerate(places):
            row, instruction = transfers[place].access.row, transfers[place].access.instruction
            ruled = row.space in ("global", "shared") and not is_bulk(instruction, row)
            transfer = replace(transfers[place], fate=match.fate, machine=words)
            counted = None
            if ruled and not alike and match.fate != "unknown":
                counted = _counted(code, match, transfer, number == 0)
            if isinstance(counted, Unknown):
                transfer = replace(transfer, counted=None, reason=counted.reason)
            elif counted is not None:
                ideal = _ideal(match, counted)
                transfer = replace(transfer, counted=counted, reason=None, ideal=ideal)
            executed[place] = transfer
    return executed


def _counted(
    code: SassKernelLaunch, match: Match, transfer: AccessTransactions, first: bool
) -> Counted | Unknown:
    """What an access is counted as that became others; ``first``: of those that became one."""
    if match.fate == "aggregated":
        if transfer.counted is None:
            return Unknown(transfer.reason or "not known")
        requests = transfer.counted.requests  # one lane, one sector
        return Counted(requests, requests, requests, {1: requests})
    parts = []
    for item in match.after if first else ():
        assert isinstance(item.instruction, SassInstruction)
        part = code.counted(item.instruction.address)
        if isinstance(part, Unknown):
            return part
        parts.append(part)
    return summed(parts)


def _ideal(match: Match, counted: Counted) -> int:
    """What the lanes of the machine instructions would cost if they lay contiguously."""
    sizes = [item.size for item in match.after]
    if not sizes or not counted.requests:
        return 0
    first = match.after[0]
    if first.category.startswith("shared"):
        kind = first.category.split()[1]
        return min(counted.transactions, counted.requests * banks.ideal(kind, max(sizes), None))
    return ideal_sectors(counted, max(sizes))


# ---------------------------------------------------------------- bytes


def bytes_by_space(
    launched: KernelLaunch, transfers: Iterable[AccessTransactions], unread: str | None
) -> tuple[Bytes, list[UnknownField]]:
    """Bytes that threads move, by state space and kind: executions by a thread times their width.

    A ``cp.async`` that reads nothing (source size 0) moves nothing. What is not known is None, and
    comes with the first reason.

    Args:
        launched: the kernel in its launch.
        transfers: its accesses, with the counts where they are known.
        unread: why sums over the kernel cannot be told, where a part of it could not be read.
    """
    total: Bytes = {}
    reasons: dict[str, str] = {}
    for transfer in transfers:
        row = transfer.access.row
        if row.kind == "prefetch":
            continue
        kinds = total.setdefault(row.space, {})
        moved = Unknown(unread) if unread else _moved(launched, transfer)
        if isinstance(moved, Unknown):
            reasons.setdefault(f"bytes_by_space.{row.space}.{row.kind}", moved.reason)
            kinds[row.kind] = None
        else:
            so_far = kinds.setdefault(row.kind, 0)
            kinds[row.kind] = None if so_far is None else so_far + moved
    return total, [UnknownField(field, reason) for field, reason in reasons.items()]


def _moved(launched: KernelLaunch, transfer: AccessTransactions) -> int | Unknown:
    size = transfer.access.row.bytes_per_thread or transfer.moved
    if size is None:
        return Unknown(
            f"line {transfer.access.instruction.pos.line}: how much is moved is not known"
        )
    if transfer.counted is not None:
        return transfer.counted.threads * size
    threads = _threads(launched, transfer.access)
    return threads * size if isinstance(threads, int) else threads


def _threads(launched: KernelLaunch, access: AccessValue) -> int | Unknown:
    """How often a thread executes an access, else the reason."""
    try:
        return launched.threads(access)
    except UnknownValueError as error:
        return Unknown(str(error))
    except TooLargeError:
        return Unknown("too many different cases to evaluate")


def spilled(
    code: SassKernelLaunch | Unknown, local: bool, in_code: int | None
) -> tuple[dict[str, int | None], list[UnknownField]]:
    """Bytes that threads spill from registers to local memory, and load again, as executed.

    They stand only in the machine code: its local accesses, where the PTX has none.

    Args:
        code: the machine code in the launch, or why there is none.
        local: whether the PTX has local accesses of its own.
        in_code: spilled bytes in the listing, as the assembler reports them; None: it does not.
    """
    moved: dict[str, int] | Unknown = dict.fromkeys(_SPILLS, 0)
    if in_code != 0:
        both = Unknown("local arrays and spills are not told apart")
        moved = code if isinstance(code, Unknown) else both if local else code.local_bytes()
    if not isinstance(moved, Unknown):
        return {**moved}, []
    unknown = [UnknownField(f"bytes_by_space.spill.{kind}", moved.reason) for kind in _SPILLS]
    return dict.fromkeys(_SPILLS), unknown


# ---------------------------------------------------------------- branches


def branch_counts(launched: KernelLaunch, lines: SourceLines) -> tuple[doc.BranchCounts, ...]:
    """How many warp executions of each conditional branch of the PTX take both of its sides.

    A warp execution is a warp that comes to the branch with a thread; it is split where the
    predicate holds for some of the threads that come to it and not for others. Threads of a warp
    are taken to come together wherever their ways have met.

    Args:
        launched: the kernel in its launch.
        lines: its source lines.
    """
    branches = model.branches(launched.cfg, launched.addresses.solved, launched.launch.block)
    return tuple(_branch(launched, branch, lines) for branch in branches)


def _branch(launched: KernelLaunch, branch: model.Branch, lines: SourceLines) -> doc.BranchCounts:
    warps, split, reason = _split(launched, branch)
    return doc.BranchCounts(
        line=branch.instruction.pos.line,
        opcode=branch.instruction.opcode,
        kind=branch.kind,
        basis=branch.reason,
        executed_warps=warps,
        divergent_warps=split,
        reason=reason,
        source=lines.place(branch.instruction),
        source_text=lines.text(branch.instruction),
    )


def _split(
    launched: KernelLaunch, branch: model.Branch
) -> tuple[int | None, int | None, str | None]:
    """Warp executions of a branch, those that take both sides, and why one is not known."""
    if branch.kind in (model.BLOCK, model.WARP):
        runs = launched.runs(branch.block)
        return runs.warps, 0, runs.reason
    if branch.condition is None:
        return launched.runs(branch.block).warps, None, branch.reason
    try:
        return (*launched.split(branch.block, branch.condition), None)
    except UnknownValueError as error:
        reason = str(error)
    except TooLargeError:
        reason = "too many different cases to evaluate"
    return launched.runs(branch.block).warps, None, reason
