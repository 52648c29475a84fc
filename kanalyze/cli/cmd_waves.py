"""``kanalyze waves``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output

if TYPE_CHECKING:
    from kanalyze.models.tiling import Tiling
    from kanalyze.models.waves import Waves
    from kanalyze.text.page import Page


@click.command("waves")
@click.option("--blocks", type=int, metavar="N", help="Blocks of the grid.")
@click.option("--gemm", metavar="MxN", help="Instead of --blocks: the result of a matrix product "
              "(MxNxK, too), one tile a block.")  # fmt: skip
@click.option("--tile", metavar="MxN", help="Tile of a block, with --gemm.")
@click.option("--device", metavar="NAME", help="The GPU (see 'kanalyze device').")
@click.option("--sms", type=int, metavar="N", help="Number of SMs, where no device is given.")
@click.option(
    "--blocks-per-sm",
    type=int,
    default=1,
    metavar="N",
    help="Blocks that an SM holds at a time (see 'kanalyze occupancy').  [default: 1]",
)
@options.output_options()
def command(
    blocks: int | None,
    gemm: str | None,
    tile: str | None,
    device: str | None,
    sms: int | None,
    blocks_per_sm: int,
    to: output.Destination,
) -> None:
    """Waves of a launch: how its blocks fill the SMs, and what stays idle.

    \b
    Examples:
      kanalyze waves --blocks 160 --device B200
      kanalyze waves --gemm 1793x1792 --tile 256x128 --device "A100 SXM 80GB"
    """
    from kanalyze.devices.table import device as find
    from kanalyze.errors import UsageError
    from kanalyze.models.tiling import tiling
    from kanalyze.models.waves import waves

    if device is not None and sms is not None:
        raise UsageError("give --device or --sms, not both")
    if (blocks is None) == (gemm is None):
        raise UsageError("give --blocks N, or --gemm MxN with --tile MxN")
    if (gemm is None) != (tile is None):
        raise UsageError("--gemm MxN and --tile MxN go together")
    gpu = find(device) if device is not None else None
    product = None
    if gemm is not None and tile is not None:
        some = waves(blocks=1, device=gpu, sms=sms, blocks_per_sm=blocks_per_sm)
        m, n, *_ = _extents(gemm, "--gemm")
        rows, columns, *_ = _extents(tile, "--tile")
        product = tiling(m, n, rows, columns, some.sms, blocks_per_sm)
        result = product.waves
    else:
        result = waves(blocks=blocks or 0, device=gpu, sms=sms, blocks_per_sm=blocks_per_sm)
    name = gpu.name if gpu is not None else None
    if to.format == "json":
        data = {
            "schema": "kanalyze.waves/1",
            "device": name,
            **result.to_dict(),
            "slots": result.blocks_per_wave,
            "tiles": product.tiles if product else None,
            "tile_efficiency": product.tile_efficiency if product else None,
            "gemm": product.to_dict() if product else None,
            "unknown": [],
        }
        to.json(data)
        return
    page = to.page()
    _show(page, result, name, product)
    to.show(page)


def _extents(text: str, option: str) -> list[int]:
    """The numbers of ``1793x1792`` (or ``MxNxK``)."""
    from kanalyze.errors import UsageError

    parts = text.lower().replace("×", "x").split("x")
    if len(parts) not in (2, 3) or not all(part.strip().isdecimal() for part in parts):
        raise UsageError(f"{option} '{text}' is not MxN, such as 4096x4096")
    return [int(part) for part in parts]


def _show(page: Page, result: Waves, name: str | None, product: Tiling | None) -> None:
    from kanalyze.text.numbers import plural

    where = f"{name}, " if name else ""
    what = plural(result.blocks, "block")
    if product is not None:
        what = f"{product.m} x {product.n} in tiles of {product.tile_m} x {product.tile_n}"
    page.line(
        (f"{what} on {where}{plural(result.sms, 'SM')}", "title"),
        (f" x {plural(result.blocks_per_sm, 'block')} per SM", ""),
    )
    if product is not None:
        page.line(
            ("  tiles       ", "label"),
            (f"{product.tiles_m} x {product.tiles_n} = {product.tiles}, ", ""),
            (f"{product.tile_efficiency:.1%} of their elements are the result's",
             "" if product.tile_efficiency == 1 else "warn"),
        )  # fmt: skip
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
    if product is not None:
        _show_product(page, product)
        return
    better = [n for n in (result.fewer_blocks, result.more_blocks) if n is not None]
    if better:
        page.line(("  full waves  ", "label"), (f"{' or '.join(map(str, better))} blocks", ""))


def _show_product(page: Page, product: Tiling) -> None:
    """What both kinds of quantisation cost together, why, and sizes near by that cost less."""
    from kanalyze.text.numbers import plural

    page.line(
        ("  together    ", "label"),
        (f"{product.efficiency:.1%} of what the slots could compute is the result's", ""),
    )
    for index, cause in enumerate(product.causes()):
        head = "  cause       " if not index else " " * 14
        page.line((head, "label"), (cause, "warn" if not index else ""), hang=14)
    for index, size in enumerate(product.better):
        change = size.m - product.m or size.n - product.n
        side = f"M = {size.m}" if size.m != product.m else f"N = {size.n}"
        page.line(
            ("  better      " if not index else " " * 14, "label"),
            (f"{side} ({change:+}): ", ""),
            (f"{size.tiles} tiles in {plural(size.rounds, 'wave')}, {size.efficiency:.1%}", ""),
        )
