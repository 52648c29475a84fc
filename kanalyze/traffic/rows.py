"""The accesses of a launch as the rows of its document."""

from __future__ import annotations

from kanalyze.kernel.sources import SourceLines
from kanalyze.results import traffic as doc
from kanalyze.results.kernel import UnknownField
from kanalyze.traffic.totals import LaunchTotals, ideal


def access_counts(
    totals: LaunchTotals, lines: SourceLines
) -> tuple[tuple[doc.AccessCounts, ...], list[UnknownField]]:
    """A row for each access of the PTX, in source order, and what is not counted."""
    rows = []
    unknown = []
    described = totals.description.kernel.accesses
    for index, (transfer, access) in enumerate(zip(totals.executed, described, strict=True)):
        counted = transfer.counted
        if transfer.reason is not None:
            unknown.append(UnknownField(f"accesses[{index}].requests", transfer.reason))
        rows.append(
            doc.AccessCounts(
                line=access.line,
                opcode=access.opcode,
                space=access.space,
                kind=access.kind,
                pointer=access.pointer,
                address=access.address,
                condition=access.condition_source or access.condition,
                pattern=totals.pattern(transfer, access.pattern),
                bytes_per_thread=access.bytes_per_thread or transfer.moved,
                requests=counted.requests if counted else None,
                threads=counted.threads if counted else None,
                unit="wavefronts" if access.space == "shared" else "sectors",
                cost=counted.transactions if counted else None,
                ideal_cost=ideal(transfer) if counted else None,
                worst=max(counted.by_transactions, default=0) if counted else None,
                reason=transfer.reason,
                fate=transfer.fate,
                machine=transfer.machine,
                loop_depth=access.loop_depth,
                stage=access.stage,
                source=access.source,
                source_text=lines.text(transfer.access.instruction),
            )
        )
    return tuple(rows), unknown
