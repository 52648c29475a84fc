"""``kanalyze occupancy``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output

if TYPE_CHECKING:
    from kanalyze.devices.table import Capability
    from kanalyze.models.occupancy import Occupancy
    from kanalyze.text.page import Page


@click.command("occupancy")
@click.option("--threads", type=int, required=True, metavar="N", help="Threads of a block.")
@click.option("--registers", type=int, required=True, metavar="N", help="Registers per thread.")
@click.option(
    "--shared",
    type=int,
    default=0,
    metavar="BYTES",
    help="Shared memory of a block, static and dynamic.  [default: 0]",
)
@click.option("--device", metavar="NAME", help="The GPU (see 'kanalyze device').")
@click.option("--arch", metavar="ARCH", help="An architecture instead of a GPU: sm_90.")
@click.option(
    "--carveout",
    type=int,
    metavar="BYTES",
    help="Shared memory of an SM as the driver set it (ncu: launch__shared_mem_config_size).  "
    "[default: the largest]",
)
@click.option("--cluster", type=int, metavar="N", help="Blocks of a cluster.")
@click.option("--barriers", type=int, metavar="N", help="Barriers that a block uses.")
@options.output_options()
def command(
    threads: int,
    registers: int,
    shared: int,
    device: str | None,
    arch: str | None,
    carveout: int | None,
    cluster: int | None,
    barriers: int | None,
    to: output.Destination,
) -> None:
    """Blocks and warps that an SM holds, what limits them, and the next cliff.

    \b
    Example:
      kanalyze occupancy --threads 128 --registers 160 --device B200
    """
    from kanalyze.devices.table import capability
    from kanalyze.errors import UsageError
    from kanalyze.models.occupancy import occupancy

    if device is None and arch is None:
        raise UsageError(
            "give --device NAME (see 'kanalyze device') or --arch sm_90; where shared memory fits "
            "says 'kanalyze device --fits BYTES'"
        )
    result = occupancy(
        threads=threads,
        registers=registers,
        shared_bytes=shared,
        device=device,
        capability=arch,
        shared_config_bytes=carveout,
        cluster=cluster,
        barriers=barriers,
    )
    if to.format == "json":
        unknown = [{"field": "clusters", "reason": note} for note in result.notes]
        to.json({"schema": "kanalyze.occupancy/1", **result.to_dict(), "unknown": unknown})
        return
    page = to.page()
    _show(page, result, capability(result.architecture))
    to.show(page)


def _show(page: Page, result: Occupancy, cap: Capability) -> None:
    where = f"{result.device} ({cap.name})" if result.device else cap.name
    page.line(
        (where, "title"),
        (f": {result.threads} threads x {result.registers} registers, ", ""),
        (f"{result.shared_bytes} B of shared memory a block", ""),
    )
    page.line(
        ("  per SM         ", "label"),
        (f"{result.blocks_per_sm} block{'' if result.blocks_per_sm == 1 else 's'}, ", ""),
        (f"{result.warps_per_sm} of {result.max_warps_per_sm} warps = ", ""),
        (f"{result.percent:.5g} %", "good" if result.percent >= 50 else "warn"),
        (f", limited by {result.limited_by}", ""),
    )
    reserved = f" with {cap.shared_reserved_bytes} reserved" if cap.shared_reserved_bytes else ""
    how = {
        "registers": f"{result.registers_allocated} of {cap.registers_per_sm} a block",
        "shared memory": f"{result.shared_allocated_bytes} of {result.shared_config_bytes} B "
        f"a block{reserved}",
        "warps": f"{result.warps_per_block} of {cap.max_warps_per_sm} a block",
        "blocks": "",
        "barriers": f"of {cap.barriers_per_sm}",
    }
    for index, (name, most) in enumerate(result.limits.items()):
        page.line(
            ("  limits         " if not index else " " * 17, "label"),
            (f"{name:<15}", ""),
            (f"{'-' if most is None else most:>4}", "warn" if name in result.limiters else ""),
            (f"   {how[name]}", "dim"),
            hang=19,
        )
    for label, cliffs in (("more", result.better), ("fewer", result.worse)):
        for index, cliff in enumerate(cliffs):
            head = f"  {label + ' with' if not index else '':<15}"
            page.line((head, "label"), (cliff.text, ""), hang=17)
    if not result.better:
        page.line(("  next cliff     ", "label"), (result.next_cliff, ""), hang=17)
    for note in result.notes:
        page.line(("  note           ", "label"), (note, "dim"), hang=17)
