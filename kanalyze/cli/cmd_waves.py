"""``kanalyze waves``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output

if TYPE_CHECKING:
    from kanalyze.models.waves import Waves
    from kanalyze.report.layout import Page


@click.command("waves")
@click.option("--blocks", type=int, required=True, metavar="N", help="Blocks of the grid.")
@click.option("--device", metavar="NAME", help="The GPU (see 'kanalyze device').")
@click.option("--sms", type=int, metavar="N", help="Number of SMs, where no device is given.")
@click.option(
    "--blocks-per-sm",
    type=int,
    default=1,
    metavar="N",
    help="Blocks that an SM holds at a time (see 'kanalyze occupancy').  [default: 1]",
)
@options.output_options
@options.file_option
def command(
    blocks: int,
    device: str | None,
    sms: int | None,
    blocks_per_sm: int,
    format_: str,
    color: str,
    file: str | None,
) -> None:
    """Waves of a launch: how its blocks fill the SMs, and what stays idle.

    \b
    Example:
      kanalyze waves --blocks 160 --device B200
    """
    from kanalyze.devices import device as find
    from kanalyze.errors import UsageError
    from kanalyze.models.waves import waves
    from kanalyze.report.as_json import dumps

    if device is not None and sms is not None:
        raise UsageError("give --device or --sms, not both")
    found = find(device) if device is not None else None
    result = waves(blocks=blocks, device=found, sms=sms, blocks_per_sm=blocks_per_sm)
    name = found.name if found is not None else None
    if format_ == "json":
        data = {"schema": "kanalyze.waves/1", "device": name, **result.to_dict(), "unknown": []}
        output.deliver(dumps(data), file)
        return
    from kanalyze.report.layout import Page

    to_file = file not in (None, "-")
    page = Page(output.width_for(None, to_file))
    _show(page, result, name)
    output.deliver(page.text(output.use_color(color, None if to_file else sys.stdout)), file)


def _show(page: Page, result: Waves, name: str | None) -> None:
    from kanalyze.report.layout import plural

    where = f"{name}, " if name else ""
    page.line(
        (f"{plural(result.blocks, 'block')} on {where}{plural(result.sms, 'SM')}", "title"),
        (f" x {plural(result.blocks_per_sm, 'block')} per SM", ""),
    )
    page.line(
        ("  waves       ", "label"),
        (f"{result.waves:.4g}", ""),
        (f": {result.rounds} with the last one, {result.blocks_per_wave} blocks each", "dim"),
    )
    if result.idle_share:
        page.line(
            ("  last wave   ", "label"),
            (f"{plural(result.last_wave_blocks, 'block')}, ", ""),
            (f"{result.idle_share:.1%} of its slots idle", "warn"),
        )
    else:
        page.line(("  last wave   ", "label"), ("full", "good"))
    page.line(
        ("  launch      ", "label"),
        (f"{result.efficiency:.1%} of all block slots used", ""),
        (" (blocks that last equally long)", "dim"),
    )
    better = [n for n in (result.fewer_blocks, result.more_blocks) if n is not None]
    if better:
        page.line(("  full waves  ", "label"), (f"{' or '.join(map(str, better))} blocks", ""))
