"""Sums over one launch: counters, bytes that must be moved, operations, better layouts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from kanalyze.counting.ptx_launch import AccessTransactions, KernelLaunch
from kanalyze.counting.reuse import shared
from kanalyze.errors import Unknown
from kanalyze.kernel.describe import Description
from kanalyze.models import banks, coalescing, warp_patterns
from kanalyze.models.flops import Flops, descriptor_of, flops, tcgen05_flops
from kanalyze.models.footprint import Footprint
from kanalyze.models.layouts import Layout, best, candidates, lane_stride, widest
from kanalyze.models.tensor import operand_type
from kanalyze.models.warps import Counted, count
from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.results import traffic as doc
from kanalyze.results.kernel import UnknownField
from kanalyze.symbolic.accesses import is_bulk
from kanalyze.symbolic.grid import UnknownValueError
from kanalyze.symbolic.parts import TooLargeError

_COUNTERS = {
    ("global", "load"): "global_load",
    ("global", "async_copy"): "global_load",
    ("global", "store"): "global_store",
    ("global", "atomic"): "global_atomic",
    ("global", "reduction"): "global_reduction",
}
_NONE = Counted(0, 0, 0, {})
_BULK = {
    "bulk_load": "bulk_load",
    "bulk_store": "bulk_store",
    "reduction": "bulk_reduction",
}


@dataclass(frozen=True, slots=True)
class Better:
    """A layout of a shared array, its wavefronts, and those as the array is laid out now."""

    variable: str
    layout: Layout
    then: int
    now: int


class LaunchTotals:
    """What the accesses of one launch add up to; what is not known comes with the reason.

    Args:
        description: the kernel.
        launched: the kernel with its launch.
        unread: why sums over the kernel cannot be told, where a part of it could not be read.
        executed: the accesses as the machine code executes them, where it is known.

    ``transactions`` are those of the PTX.
    """

    def __init__(
        self,
        description: Description,
        launched: KernelLaunch,
        unread: str | None,
        executed: Sequence[AccessTransactions] = (),
    ):
        self.description = description
        self.launched = launched
        self.unread = unread
        self.transactions = [
            launched.transactions(access) for access in description.addresses.accesses
        ]
        self.executed = executed or self.transactions
        code = [i for block in description.cfg.blocks for i in block.instructions]
        self.read = {name for instruction in code for name in table.uses(instruction)}
        self.definitions: dict[str, list[ir.Instruction]] = defaultdict(list)
        for instruction in code:
            for name in table.definitions(instruction):
                self.definitions[name].append(instruction)

    # ------------------------------------------------------------ counters

    def counters(self) -> tuple[dict[str, int | None], list[UnknownField]]:
        """Requests, sectors and wavefronts by kind, under the names of the JSON."""
        groups: dict[str, list[AccessTransactions]] = {}
        for name in ("global_load", "global_store", "global_atomic", "global_reduction"):
            groups[name] = []
        shared: dict[str, list[AccessTransactions]] = {"shared_load": [], "shared_store": []}
        bulk: dict[str, list[AccessTransactions]] = {name: [] for name in _BULK.values()}
        for transfer in self.executed:
            row = transfer.access.row
            if is_bulk(transfer.access.instruction, row):
                bulk[_BULK[row.kind]].append(transfer)
                continue
            counter = _COUNTERS.get((row.space, self._kind(transfer)))
            if counter is not None:
                groups[counter].append(transfer)
            elif row.space == "shared" and row.kind in ("load", "store"):
                shared[f"shared_{row.kind}"].append(transfer)
            elif row.space == "generic":
                for other in ("global_load", "global_store"):
                    groups[other].append(transfer)
        copies = [
            self.launched.transactions(copy) for copy in self.description.addresses.map_copies
        ]
        groups["global_atomic"] += copies
        sums: dict[str, int | Unknown] = {}
        for name, group in groups.items():
            sums[f"{name}_requests"] = self._total(group, "requests")
            sums[f"{name}_sectors"] = self._total(group, "transactions")
        sums |= {
            f"{name}_sectors": self._total(group, "transactions") for name, group in bulk.items()
        }
        sums |= {
            f"{name}_wavefronts": self._total(group, "transactions")
            for name, group in shared.items()
        }
        return (
            {name: None if isinstance(total, Unknown) else total for name, total in sums.items()},
            [
                UnknownField(f"counters.{name}", total.reason)
                for name, total in sums.items()
                if isinstance(total, Unknown)
            ],
        )

    def unmatched(self, counter: str) -> bool:
        """Whether it is not known what became of an access that a counter is of."""
        place, kind, _ = counter.split("_")
        return any(
            each.fate in (None, "unknown")
            for each in self.executed
            if (f"{each.access.row.space}_{self._kind(each)}" == f"{place}_{kind}")
            or _COUNTERS.get((each.access.row.space, self._kind(each))) == f"{place}_{kind}"
        )

    def _kind(self, transfer: AccessTransactions) -> str:
        """A relaxed atomic whose result nobody reads: the assembler makes it a reduction."""
        instruction, kind = transfer.access.instruction, transfer.access.row.kind
        ordered = {"acq_rel", "acquire", "release", "cas", "exch"}
        if kind == "atomic" and not ordered & set(instruction.parts):
            written = set(table.definitions(instruction))
            if not written & self.read:
                return "reduction"
        return kind

    def _total(self, group: list[AccessTransactions], part: str) -> int | Unknown:
        """The sum over some accesses; the reason where it is not known."""
        reasons = [transfer.reason for transfer in group if transfer.reason is not None]
        if self.unread is not None:
            return Unknown(self.unread)
        if reasons:
            where = f"{len(reasons)} of {len(group)} accesses are not counted"
            return Unknown(f"{where}: {reasons[0]}")
        return sum(int(getattr(transfer.counted, part)) for transfer in group)

    # ------------------------------------------------------------ patterns

    def pattern(self, transfer: AccessTransactions, words: str | None) -> str | None:
        """How the lanes lie, and where contiguous ones begin if that costs sectors."""
        counted = transfer.counted
        excess = counted is not None and counted.transactions > (ideal(transfer) or 0)
        words = words or self._lie(transfer)
        if words is None or not words.startswith("contiguous") or not excess:
            return words
        if transfer.access.row.space != "global":
            return words
        begins = count(coalescing.BEGINS, *self.launched.place(transfer.access)).by_transactions
        inside = [at for at in begins if at]
        if len(begins) == len(inside) == 1:
            return f"{words}, misaligned by {inside[0]} B"
        share = sum(begins[at] for at in inside) / sum(begins.values())
        return f"{words}, misaligned in {100 * share:.3g} % of requests" if share else words

    def _lie(self, transfer: AccessTransactions) -> str | None:
        """How the lanes lie in blocks as long as the launch's, where the PTX does not say that."""
        access, size = transfer.access, transfer.access.row.bytes_per_thread
        plain = access.instruction.base not in ("ldmatrix", "stmatrix")
        if size is None or not plain or access.row.space not in ("global", "shared"):
            return None
        offsets = self.lane_offsets(transfer)
        return warp_patterns.warp_pattern(offsets, size).words if offsets is not None else None

    def lane_offsets(self, transfer: AccessTransactions) -> tuple[int, ...] | None:
        """Where the lanes of the first warp point; see `kanalyze.models.warp_patterns`."""
        return self._first_warp.offsets(transfer.access.address)

    @cached_property
    def _first_warp(self) -> warp_patterns.FirstWarp:
        given = {name: value for (name, _), value in self.launched.params.items()}
        return warp_patterns.FirstWarp(self.launched.launch.block, given)

    # ------------------------------------------------------------ layouts

    def layouts(self) -> tuple[doc.LayoutPart, ...]:
        """For each shared array with bank conflicts, a layout that takes fewer wavefronts."""
        return tuple(
            doc.LayoutPart(better.variable, better.layout.words, better.now, better.then)
            for better in self.better_layouts
        )

    @cached_property
    def better_layouts(self) -> tuple[Better, ...]:
        """The same, with the accesses."""
        by_variable: dict[str, list[AccessTransactions]] = defaultdict(list)
        for transfer, access in zip(self.executed, self.description.kernel.accesses, strict=True):
            if access.space == "shared" and access.pointer is not None:
                by_variable[access.pointer].append(transfer)
        layouts = []
        for variable, group in by_variable.items():
            counted = [c for c in group if c.counted is not None]
            ideals = [ideal(c) for c in counted]
            now = sum(c.counted.transactions for c in counted if c.counted is not None)
            if len(counted) < len(group) or None in ideals or now <= sum(i or 0 for i in ideals):
                continue
            if any(c.machine is not None for c in group):
                continue  # another layout would undo what the assembler made of them
            offsets = [self.lane_offsets(transfer) for transfer in counted]
            tried = candidates(
                widest([c.access.row.bytes_per_thread or 4 for c in counted]),
                [lane_stride(lie) for lie in offsets if lie is not None],
                self.launched.shared_places.get(variable, 0),
            )
            better = best(now, tried, partial(self.with_layout, counted))
            if better is not None:
                layouts.append(Better(variable, *better, now))
        return tuple(layouts)

    def with_layout(self, group: list[AccessTransactions], layout: Layout) -> int | None:
        """Wavefronts of all accesses of a shared array with another layout."""
        total = 0
        for transfer in group:
            counted = self.launched.transactions(transfer.access, layout).counted
            if counted is None:
                return None
            total += counted.transactions
        return total

    # ------------------------------------------------------------ bytes

    def compulsory(self) -> tuple[doc.Compulsory, list[UnknownField]]:
        """Distinct sectors by pointer, in bytes."""
        by_pointer: dict[str, dict[str, list[int]]] = {}
        accesses, dropped = self.description.addresses.accesses, set(self.dropped)
        for index, access in enumerate(self.description.kernel.accesses):
            row = accesses[index].row
            if row.space not in ("global", "generic"):
                continue
            pointer = access.pointer or "unknown"
            kinds = {
                "store": ("write",),
                "bulk_store": ("write",),
                "atomic": ("read", "write"),
                "reduction": ("read", "write"),
            }
            for kind in kinds.get(row.kind, ("read",)):
                by_pointer.setdefault(pointer, {"read": [], "write": []})[kind].append(index)
        rows = []
        for pointer, every in by_pointer.items():
            kinds_of = {
                kind: [i for i in indices if i not in dropped] for kind, indices in every.items()
            }
            reasons: list[str] = []
            amounts = {kind: self._distinct(indices, reasons) for kind, indices in kinds_of.items()}
            sharing = {
                kind: shared(self.launched, [self.transactions[i] for i in indices])
                for kind, indices in kinds_of.items()
                if amounts[kind]
            }
            said = [amount.reason for amount in sharing.values() if isinstance(amount, Unknown)]
            read, write = (
                None if isinstance(amount := sharing.get(kind), Unknown) else amount
                for kind in ("read", "write")
            )
            rows.append(
                doc.PointerBytes(
                    pointer,
                    amounts["read"],
                    amounts["write"],
                    reasons[0] if reasons else None,
                    read,
                    write,
                    said[0] if said else None,
                )
            )
        totals: dict[str, int | None] = {}
        unknown = []
        for kind in ("read", "write"):
            known = [getattr(row, f"{kind}_bytes") for row in rows]
            totals[kind] = None if None in known else sum(known)
            if totals[kind] is None:
                reason = next(row.reason for row in rows if row.reason is not None)
                unknown.append(UnknownField(f"compulsory.{kind}_bytes", reason or "not known"))
        return doc.Compulsory(totals["read"], totals["write"], tuple(rows)), unknown

    @property
    def dropped(self) -> list[int]:
        """The accesses of which the machine code makes no requests."""
        return [
            i for i, each in enumerate(self.executed)
            if each.machine is not None and each.counted == _NONE
        ]  # fmt: skip

    def _distinct(self, indices: list[int], reasons: list[str]) -> int | None:
        """Bytes of the distinct sectors that some accesses of one pointer touch."""
        if self.unread is not None:
            reasons.append(self.unread)
            return None
        if not indices:
            return 0
        accesses = [self.description.addresses.accesses[i] for i in indices]
        try:
            spans = [self.launched.span(access) for access in accesses]
            widest = max((a.row.bytes_per_thread or 1) for a in accesses)
            footprint = Footprint.over(min(s[0] for s in spans), max(s[1] for s in spans) + widest)
            for access in accesses:
                self.launched.mark(access, footprint)
        except UnknownValueError as error:
            reasons.append(str(error))
            return None
        except TooLargeError:
            reasons.append("too many different sectors")
            return None
        return footprint.sectors * coalescing.SECTOR

    # ------------------------------------------------------------ operations

    def flops(self) -> dict[str, float] | Unknown:
        """Executed floating-point operations by unit; else the reason."""
        return self._added_up(lambda instruction, work: work.unit)

    def tensor_flops(self) -> dict[str, float] | Unknown:
        """Operations of the tensor cores by the type of their operands; else the reason."""
        return self._by_operand

    @cached_property
    def _by_operand(self) -> dict[str, float] | Unknown:
        return self._added_up(lambda instruction, work: operand_type(instruction))

    def _added_up(
        self, group: Callable[[ir.Instruction, Flops], str | None]
    ) -> dict[str, float] | Unknown:
        """Executed operations by group (None: left out); the reason where they are not known."""
        if self.unread is not None:
            return Unknown(self.unread)
        total: dict[str, float] = {}
        for block in self.description.cfg.blocks:
            for instruction in block.instructions:
                work = self._work(instruction)
                name = group(instruction, work) if work is not None else None
                if work is None or name is None:
                    continue
                times = self._times(instruction, work.per, block.index)
                if isinstance(times, Unknown):
                    return times
                if work.number is None:
                    reason = f"line {instruction.pos.line}: the shape of tcgen05.mma is not known"
                    return Unknown(reason)
                total[name] = total.get(name, 0) + work.number * times
        return total

    def _work(self, instruction: ir.Instruction) -> Flops | None:
        """The operations of an instruction; their number None where it is not known."""
        if not instruction.opcode.startswith("tcgen05.mma"):
            return flops(instruction)
        return tcgen05_flops(instruction, self._constant(descriptor_of(instruction)))

    def _times(self, instruction: ir.Instruction, per: str, block: int) -> int | Unknown:
        """How often an instruction is executed, by warps or threads; else the reason."""
        runs = self.launched.runs(block)
        if runs.warps is None or runs.threads is None:
            return Unknown(runs.reason or "how often a block is executed is not known")
        guard = instruction.guard
        if guard is None:
            return runs.warps if per == "warp" else runs.threads
        chosen = self.definitions[guard.name]
        if not guard.negated and [i.opcode for i in chosen] == ["elect.sync"]:
            return runs.warps  # one thread of each warp
        where = f"line {instruction.pos.line}: {instruction.opcode}"
        return Unknown(f"{where} is executed under a condition")

    def _constant(self, operand: ir.Operand | None) -> int | None:
        """The value of an operand that is a literal, or a register that only ever holds one."""
        if isinstance(operand, ir.Immediate):
            return operand.value if isinstance(operand.value, int) else None
        if not isinstance(operand, ir.Name):
            return None
        made = self.definitions[operand.text]
        if len(made) != 1 or made[0].base != "mov" or made[0].guard is not None:
            return None
        return self._constant(made[0].operands[-1])


def ideal(transfer: AccessTransactions) -> int | None:
    """What the same lanes would cost if they lay contiguously, if that is less."""
    counted, row = transfer.counted, transfer.access.row
    if transfer.ideal is not None:
        return transfer.ideal
    if counted is None or row.bytes_per_thread is None:
        return None
    if row.space == "shared":
        matrices = (
            row.vector if transfer.access.instruction.base in ("ldmatrix", "stmatrix") else None
        )
        conflict_free = counted.requests * banks.ideal(row.kind, row.bytes_per_thread, matrices)
        return min(counted.transactions, conflict_free)
    return ideal_sectors(counted, row.bytes_per_thread)


def ideal_sectors(counted: Counted, bytes_per_thread: int) -> int:
    """Sectors that the same lanes would touch if they lay contiguously, if those are fewer."""
    moved = counted.threads * bytes_per_thread
    return min(counted.transactions, max(counted.requests, -(-moved // coalescing.SECTOR)))
