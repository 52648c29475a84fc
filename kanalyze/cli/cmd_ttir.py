"""``kanalyze ttir``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output

if TYPE_CHECKING:
    from kanalyze.frontend.ttir import Ttir


@click.command("ttir")
@click.argument("target", metavar="TARGET", shell_complete=shared.complete_target)
@shared.target_options
@shared.output_options
@shared.pager_options
@shared.file_option
def command(
    target: str,
    options: shared.TargetOptions,
    format_: str,
    color: str,
    width: int | None,
    pager: bool,
    file: str | None,
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
    shown = SourceFile.read(result.source_file).shown
    notes = (shared.facts_of(result), *result.notes)
    base = int(result.metadata.get("loc_column_base", 1))
    report = ttir.read(result.ttir, result.name, result.arch, shown, notes, base)
    if format_ == "json":
        from kanalyze.text.plain import dumps

        output.deliver(dumps(report.to_dict()), file)
        return
    to_file = file not in (None, "-")
    text = _text(report, output.width_for(width, to_file),
                 output.use_color(color, None if to_file else sys.stdout))  # fmt: skip
    output.deliver(text, file, pager)


def _text(report: Ttir, width: int, color: bool) -> str:
    from kanalyze.source import SourceFile
    from kanalyze.text.page import Page

    page = Page(width)
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
    return page.text(color)
