"""The exact counters of a launch: of the PTX, and of the machine code where that is at hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.counting.sass_launch import SassKernelLaunch
from kanalyze.errors import Unknown
from kanalyze.results.kernel import UnknownField
from kanalyze.traffic.totals import LaunchTotals

_OPERATIONS = ("load", "store", "atomic", "reduction")
PTX_ALONE = "counted from the PTX alone; the assembler may merge, drop or split accesses"


@dataclass(frozen=True, slots=True)
class ExactCounters:
    """Counters under the names of the JSON; those that are not known are None, with the reason."""

    values: Mapping[str, int | None]
    unknown: tuple[UnknownField, ...]
    assumptions: tuple[str, ...] = ()


def exact_counters(totals: LaunchTotals, code: SassKernelLaunch | Unknown) -> ExactCounters:
    """The counters of the accesses as they are executed (`LaunchTotals.executed`).

    What the machine code tells in all stands over their sum. Where it tells neither, and it is
    not known what became of an access, the counter is not known.

    Args:
        totals: the accesses in the launch.
        code: the machine code in the launch, or why there is none.
    """
    values, unknown = totals.counters()
    if isinstance(code, Unknown):
        values["instructions_executed"] = None
        unknown.append(UnknownField("counters.instructions_executed", code.reason))
        said = f"requests, sectors and wavefronts are {PTX_ALONE}: {code.reason}"
        counted = totals.transactions and totals.launched.refused is None
        return ExactCounters(values, tuple(unknown), (said,) if counted else ())
    became = values["global_atomic_requests"] and code.requests("atomic").value == 0

    def untold(name: str) -> bool:
        """Whether the PTX does not tell a counter: reductions are those that were atomics, too."""
        return bool(code.apart or totals.unmatched(name) or (became and "global_reduction" in name))

    executed = {"instructions_executed": code.instructions_executed}
    for kind in ("load", "store"):
        wavefronts = code.shared_load_wavefronts if kind == "load" else code.shared_store_wavefronts
        executed[f"shared_{kind}_wavefronts"] = wavefronts
    for operation in _OPERATIONS:
        name, requests = f"global_{operation}_requests", code.requests(operation)
        if requests.value not in (None, values[name]) or untold(name):
            executed |= {name: requests, f"global_{operation}_sectors": code.sectors(operation)}
    assumptions: list[str] = []
    for name, total in executed.items():
        field = f"counters.{name}"
        if total.value is None and values.get(name) is not None and not untold(name):
            continue
        if total.value is not None and values.get(name) not in (total.value, None):
            of = name.replace("_", " ")
            assumptions.append(f"{of}: those of the machine code, not the sum of the rows")
        values[name] = total.value
        unknown = [u for u in unknown if u.field != field]
        if total.value is None:
            reason = total.reason or "the machine code does not tell"
            unknown.append(UnknownField(field, f"{reason}; at least {total.at_least:,}"))
    return ExactCounters(values, tuple(unknown), tuple(assumptions))
