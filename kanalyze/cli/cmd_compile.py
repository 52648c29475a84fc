"""``kanalyze compile``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output
from kanalyze.errors import InputError
from kanalyze.text.safe import escaped

if TYPE_CHECKING:
    from kanalyze.frontend.compile import Compiled


@click.command("compile")
@click.argument("target", metavar="TARGET", shell_complete=shared.complete_target)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    callback=shared.not_empty,
    help="The folder, made if missing.  [default: ./KERNEL-ARCH]",
)
@shared.target_options
@shared.output_options(to_file=False)
def command(
    target: str, folder: str | None, options: shared.TargetOptions, to: output.Destination
) -> None:
    """Write every stage of a Triton kernel; needs no GPU.

    TARGET is a bundled kernel or path/to/file.py:kernel. Written are NAME.ttir, .ttgir, .llir,
    .ptx, .cubin and .sass, by default into a new folder such as ./gelu_kernel-sm_90.

    \b
    Examples:
      kanalyze compile gelu --arch sm_100 -o out
      kanalyze compile my.py:add --signature "*fp32:16, *fp32:16, i32" --set BLOCK=512
    """
    if folder is not None and os.path.exists(folder) and not os.path.isdir(folder):
        raise InputError("this is not a folder", file=folder)
    result = shared.compiled(target, options, "compile")
    where = Path(folder) if folder is not None else Path(f"{result.name}-{result.arch}")
    paths = result.write(where)
    for note in result.notes:
        output.say(note, "note")
    if to.format == "json":
        to.json(_plain(result, paths))
        return
    page = to.page()
    page.line((shared.facts_of(result), "dim"), hang=2)
    used = result.resources
    page.line(
        (f"{used.registers} registers per thread, spills {used.spill_store_bytes} B stored and "
         f"{used.spill_load_bytes} B loaded, stack {used.stack_bytes} B, shared memory "
         f"{used.shared_bytes} B (says {used.tool})", ""),
        hang=2,
    )  # fmt: skip
    to.show(page)
    to.data("".join(f"{escaped(str(path))}\n" for path in paths))


def _plain(result: Compiled, paths: list[Path]) -> dict[str, Any]:
    return {
        "schema": "kanalyze.compile/1",
        "name": result.name,
        "kernel": result.kernel,
        "arch": result.arch,
        "triton_version": result.triton_version,
        "source": {"file": str(result.source_file), "function": result.source_function},
        "files": {path.suffix[1:]: str(path) for path in paths},
        "resources": result.resources,
        "metadata": {k: _value(v) for k, v in result.metadata.items()},
        "signature": result.signature,
        "specialization": result.specialization,
        "constexprs": {k: _value(v) for k, v in result.constexprs.items()},
        "arguments": {k: _argument(v) for k, v in result.arguments.items()},
        "grid": result.grid,
        "notes": result.notes,
        "unknown": []
        if result.grid is not None
        else [{"field": "grid", "reason": "no launch is known of a kernel with a signature only"}],
    }


def _argument(value: object) -> Any:
    match value:
        case ("*", str(dtype), dims):
            return {"pointer": dtype, "dims": list(dims) if isinstance(dims, tuple) else None}
    return _value(value)


def _value(value: object) -> Any:
    """A value as JSON can hold it: numbers, texts, lists; anything else as text."""
    if isinstance(value, float):
        return value if value == value and abs(value) != float("inf") else str(value)
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, tuple | list):
        return [_value(item) for item in value]
    return str(value)
