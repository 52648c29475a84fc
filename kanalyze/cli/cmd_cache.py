"""``kanalyze cache``."""

from __future__ import annotations

import json

import click

from kanalyze.cli import options, output
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

    freed = cache.clear() if clear else None
    data = {
        "schema": "kanalyze.cache/1",
        "folder": str(cache.cache_dir()),
        "bytes": cache.size(),
        "freed_bytes": freed,
    }
    if to.format == "json":
        text = json.dumps(data, indent=1)
    else:
        text = f"{escaped(str(data['folder']))}\n{_size(cache.size())}"
        if freed is not None:
            text += f" left, {_size(freed)} freed"
    to.data(text)


def _size(count: int) -> str:
    if count < 1024:
        return f"{count} B"
    size, unit = count / 1024, "KiB"
    for larger in ("MiB", "GiB"):
        if size >= 1024:
            size, unit = size / 1024, larger
    return f"{size:.1f} {unit}"
