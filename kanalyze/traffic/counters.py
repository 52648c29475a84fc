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
    others. Where the machine code executes as many accesses as the PTX, they are those of the PTX;
    so they are where it is not known how many, and both list the same widths.

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
        same = (
            totals.widths(operation) == code.widths(operation)
            if requests.value is None
            else requests.value == values[name]
        )
        if not same:
            executed |= {name: requests, f"global_{operation}_sectors": code.sectors(operation)}
            assumptions.append(
                f"global {operation}s in all are those of the machine code: the assembler merges, "
                "drops or splits some of the PTX's"
            )
    for name, total in executed.items():
        field = f"counters.{name}"
        values[name] = total.value
        unknown = [u for u in unknown if u.field != field]
        if total.value is None:
            reason = total.reason or "the machine code does not tell"
            unknown.append(UnknownField(field, f"{reason}; at least {total.at_least:,}"))
    return ExactCounters(values, tuple(unknown), tuple(assumptions))
