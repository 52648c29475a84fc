"""``kanalyze ttir``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output
from kanalyze.errors import UsageError

if TYPE_CHECKING:
    from kanalyze.frontend.ttir import Ttir
    from kanalyze.text.page import Page


@click.command("ttir")
@click.argument("target", metavar="TARGET", shell_complete=shared.complete_target)
@shared.target_options
@shared.output_options(paged=True)
def command(
    target: str,
    options: shared.TargetOptions,
    to: output.Destination,
) -> None:
    """The TTIR of a Triton kernel, beside its source.

    Each group of operations stands under the source line that it comes from; operations of inlined
    helpers stand under the line of the kernel that calls them.

    \b
    Examples:
      kanalyze ttir softmax
      kanalyze ttir my.py:add --signature "*fp32, *fp32, i32" --format json
    """
    from kanalyze.frontend import ttir
    from kanalyze.source import SourceFile

    result = shared.compiled(target, options, "ttir")
    if not result.ttir:
        raise UsageError(f"{result.source_function} is a Gluon kernel: it begins as TTGIR")
    shown = SourceFile.read(result.source_file).shown
    notes = (shared.facts_of(result), *result.notes)
    base = int(result.metadata.get("loc_column_base", 1))
    report = ttir.read(result.ttir, result.name, result.arch, shown, notes, base)
    if to.format == "json":
        to.json(report.to_dict())
        return
    page = to.page()
    _show(page, report)
    to.show(page)


def _show(page: Page, report: Ttir) -> None:
    from kanalyze.source import SourceFile

    page.line((report.kernel, "title"), (f"   TTIR · {report.file}", ""))
    for note in report.notes:
        page.line((note, "dim"), hang=2)
    files: dict[str, SourceFile] = {}
    digits = max((len(str(line.line)) for line in report.lines), default=1)
    previous = None
    for line in report.lines:
        source = line.source
        place = (source.file, source.line) if source is not None and not line.closes else None
        if source is not None and place is not None and place != previous:
            file = files.get(source.file) or SourceFile.read(Path(source.file))
            files[source.file] = file
            page.blank()
            text = (file.line(source.line) or "").strip()
            lead = [(" " * (digits + 2), "")]
            page.line(
                (f"{file.shown}:{source.line}  ", "file"), (text, "source"), lead=lead, hang=4
            )
            previous = place
        helper = ""
        if line.inner and not line.closes:
            inner = line.inner[0]
            helper = f"   // in {Path(inner.file).name}:{inner.line}"
        text = line.text
        indent = len(text) - len(text.lstrip())
        page.line(
            (text.strip(), ""),
            (helper, "note"),
            lead=[(f"{line.line:>{digits}}  {' ' * indent}", "dim")],
            hang=4,
        )
