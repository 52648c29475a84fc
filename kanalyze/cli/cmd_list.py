"""``kanalyze list``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import options, output

if TYPE_CHECKING:
    from kanalyze.frontend.kernel_file import KernelFile
    from kanalyze.results.inventory import ListedKernel
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
    from kanalyze.results.inventory import KernelList

    kernels = tuple(map(_listed, kernel_file.bundled().values()))
    if to.format == "json":
        to.json(KernelList(kernels))
        return
    page = to.page()
    for kernel in kernels:
        _show(page, kernel)
    to.show(page)


def _listed(kernel: KernelFile) -> ListedKernel:
    from kanalyze.results.inventory import ListedKernel, ListedSize

    example: dict[str, Any] = dict(kernel.example[0])
    return ListedKernel(
        kernel.name,
        kernel.function,
        kernel.summary,
        kernel.parameters,
        {name: ListedSize(example[name], meaning) for name, meaning in kernel.shape.items()},
        {name: example.get(name, v) for name, v in kernel.constexprs.items()},
        {name: example.get(name, v) for name, v in kernel.options.items()},
        kernel.overrides,
        kernel.dtypes,
        str(example.get("dtype", kernel.dtypes[0])),
    )


def _show(page: Page, kernel: ListedKernel) -> None:
    first = kernel.default_dtype
    page.line((kernel.name, "title"), ("  ", ""), (kernel.summary, ""), hang=2)
    rows = [
        ("shape", [f"{n}={s.default} ({s.meaning})" for n, s in kernel.shape.items()]),
        ("constexprs", [f"{n}={v}" for n, v in kernel.constexprs.items()]),
        ("options", [f"{n}={v}" for n, v in kernel.options.items()]),
        ("dtypes", [first, *(d for d in kernel.dtypes if d != first)]),
    ]
    for label, values in rows:
        page.line((f"  {label:<11}", "label"), (", ".join(values), ""), hang=13)
    for dtype, replaced in kernel.overrides.items():
        text = ", ".join(f"{n}={v}" for n, v in replaced.items())
        page.line((f"  {'':<11}", ""), (f"for {dtype}: {text}", "dim"), hang=13)
    page.blank()
