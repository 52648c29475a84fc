"""``kanalyze cache``."""

from __future__ import annotations

import click

from kanalyze.cli import options, output
from kanalyze.text.numbers import binary
from kanalyze.text.page import NBSP
from kanalyze.text.safe import escaped


@click.command("cache")
@click.option("--clear", is_flag=True, help="Delete what kanalyze keeps there.")
@options.output_options()
def command(clear: bool, to: output.Destination) -> None:
    """Where the cache is, and its size.

    It holds compiled kernels, outcomes of NVIDIA's tools, and the memory model's machine code;
    deleting it is always safe.
    $KANALYZE_CACHE_DIR moves it.

    \b
    Example:
      kanalyze cache --clear
    """
    from kanalyze import cache
    from kanalyze.results.inventory import CacheState

    freed = cache.clear() if clear else None
    state = CacheState(str(cache.cache_dir()), cache.size(), freed)
    if to.format == "json":
        to.json(state)
        return
    size = binary(state.bytes) + ("" if freed is None else f" left, {binary(freed)} freed")
    to.data(f"{escaped(state.folder)}\n{size.replace(NBSP, ' ')}")
