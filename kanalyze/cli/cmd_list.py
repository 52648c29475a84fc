"""``kanalyze list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import options, output

if TYPE_CHECKING:
    from kanalyze.frontend.kernel_file import KernelFile
    from kanalyze.text.page import Page


@click.command("list")
@options.output_options()
def command(to: output.Destination) -> None:
    """The bundled kernels.

    Each with what it computes, its shape and constexprs with their defaults (all for --set), and
    its element types, the default first.

    \b
    Example:
      kanalyze list
    """
    from kanalyze.frontend import kernel_file

    kernels = [_plain(kernel) for kernel in kernel_file.bundled().values()]
    if to.format == "json":
        to.json({"schema": "kanalyze.list/1", "kernels": kernels, "unknown": []})
        return
    page = to.page()
    for kernel in kernels:
        _show(page, kernel)
    to.show(page)


def _dtype(kernel: KernelFile) -> str:
    return str(kernel.example[0].get("dtype", kernel.dtypes[0]))


def _plain(kernel: KernelFile) -> dict[str, Any]:
    example = kernel.example[0]
    return {
        "name": kernel.name,
        "function": kernel.function,
        "summary": kernel.summary,
        "parameters": list(kernel.parameters),
        "shape": {
            name: {"default": example[name], "meaning": meaning}
            for name, meaning in kernel.shape.items()
        },
        "constexprs": {name: example.get(name, v) for name, v in kernel.constexprs.items()},
        "options": {name: example.get(name, v) for name, v in kernel.options.items()},
        "overrides": {dtype: dict(values) for dtype, values in kernel.overrides.items()},
        "dtypes": list(kernel.dtypes),
        "default_dtype": _dtype(kernel),
    }


def _show(page: Page, plain: dict[str, Any]) -> None:
    first = plain["default_dtype"]
    page.line((plain["name"], "title"), ("  ", ""), (plain["summary"], ""), hang=2)
    rows = [
        ("shape", [f"{n}={s['default']} ({s['meaning']})" for n, s in plain["shape"].items()]),
        ("constexprs", [f"{n}={v}" for n, v in plain["constexprs"].items()]),
        ("options", [f"{n}={v}" for n, v in plain["options"].items()]),
        ("dtypes", [first, *(d for d in plain["dtypes"] if d != first)]),
    ]
    for label, values in rows:
        page.line((f"  {label:<11}", "label"), (", ".join(values), ""), hang=13)
    for dtype, values in plain["overrides"].items():
        text = ", ".join(f"{n}={v}" for n, v in values.items())
        page.line((f"  {'':<11}", ""), (f"for {dtype}: {text}", "dim"), hang=13)
    page.blank()
