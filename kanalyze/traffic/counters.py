"""The exact counters of a launch: of the PTX, and of the machine code where that is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.errors import Unknown
from kanalyze.results.kernel import UnknownField
from kanalyze.traffic.totals import LaunchTotals

_OPERATIONS = ("load", "store", "atomic", "reduction")


@dataclass(frozen=True, slots=True)
class ExactCounters:
    """Counters under the names of the JSON; those that are not known are None, with the reason."""

    values: Mapping[str, int | None]
    unknown: tuple[UnknownField, ...]
    assumptions: tuple[str, ...] = ()


def exact_counters(totals: LaunchTotals, code: SassKernelLaunch | Unknown) -> ExactCounters:
    """The counters of the PTX's accesses; what the machine code executes, which is what runs.

    The assembler makes one load of several of equal addresses or of neighbours, drops and splits
    others. Where the machine code executes as many accesses as the PTX, they are those of the PTX.
    Where it is not known how many, see `_alike`.

    Args:
        totals: the accesses of the PTX in the launch.
        code: the machine code in the launch, or why there is none.
    """
    values, unknown = totals.counters()
    if isinstance(code, Unknown):
        values["instructions_executed"] = None
        unknown.append(UnknownField("counters.instructions_executed", code.reason))
        shared = any(transfer.access.row.space == "shared" for transfer in totals.transactions)
        said = "shared accesses are those of the PTX; the assembler may drop or merge some"
        return ExactCounters(values, tuple(unknown), (said,) if shared else ())
    executed = {
        "instructions_executed": code.instructions_executed,
        "shared_load_wavefronts": code.shared_load_wavefronts,
        "shared_store_wavefronts": code.shared_store_wavefronts,
    }
    assumptions: list[str] = []
    for operation in _OPERATIONS:
        requests, name = code.requests(operation), f"global_{operation}_requests"
        if requests.value is None:
            same = _alike(totals, code, operation)
        else:
            same = requests.value == values[name]
        if not same:
            executed |= {name: requests, f"global_{operation}_sectors": code.sectors(operation)}
            differs = (
                ""
                if values[name] is None
                else (": the assembler merges, drops or splits some of the PTX's")
            )
            assumptions.append(f"global {operation}s in all are those of the machine code{differs}")
    for name, total in executed.items():
        field = f"counters.{name}"
        values[name] = total.value
        unknown = [u for u in unknown if u.field != field]
        if total.value is None:
            reason = total.reason or "the machine code does not tell"
            unknown.append(UnknownField(field, f"{reason}; at least {total.at_least:,}"))
    return ExactCounters(values, tuple(unknown), tuple(assumptions))


def _alike(totals: LaunchTotals, code: SassKernelLaunch, operation: str) -> bool:
    """Whether the machine code has the accesses of the PTX, as far as their widths tell.

    Either as many of each width, or, where no two could be merged, a multiple of them: the copies
    of an unrolled loop.
    """
    listed, left = totals.widths(operation), code.widths(operation)
    if listed == left:
        return True
    multiples = listed.keys() == left.keys() and all(left[w] % listed[w] == 0 for w in listed)
    return multiples and not totals.may_merge(operation)
