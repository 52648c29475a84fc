"""``kanalyze decode``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output
from kanalyze.cli.progress import Progress
from kanalyze.errors import UsageError

if TYPE_CHECKING:
    from kanalyze.results.profile import ProfileReport

_MB = 1_000_000
_GROUPS = ("op", "family", "arch", "device", "file", "operator", "kind")


@click.command("decode")
@click.argument("files", metavar="[FILE]...", nargs=-1)
@click.option("--name", "names", metavar="NAME", multiple=True,
              help="A kernel name instead of a file. Repeatable.")  # fmt: skip
@click.option("--explain", metavar="NAME", multiple=True,
              help="Show a name with its parts underlined and explained. Repeatable.")  # fmt: skip
@click.option("--list", "names_only", is_flag=True,
              help="The files are plain lists of names, one a line.")  # fmt: skip
@click.option("--group-by", type=click.Choice(_GROUPS), help="Show groups instead of kernels.")
@click.option("--sort", type=click.Choice(["time", "calls", "mean", "name"]), default="time",
              help="Order of the kernels.  [default: time]")  # fmt: skip
@click.option("--top", type=click.IntRange(1), metavar="N",
              help="Only the first N kernels.  [default: 25 in text, all elsewhere]")  # fmt: skip
@click.option("--match", metavar="REGEX", help="Only names in which this is found.")
@click.option("--details", is_flag=True,
              help="In text: launches, matrix products and counters of each kernel.")  # fmt: skip
@click.option("--enrich", metavar="OUT",
              help="Write the Chrome trace to OUT (.json or .json.gz) with the decoded fields in "
              "each kernel's args.")  # fmt: skip
@options.profile_finding_options
@options.output_options("csv", "markdown", help="Text to read, JSON, CSV or Markdown.", paged=True)
def command(
    files: tuple[str, ...],
    names: tuple[str, ...],
    explain: tuple[str, ...],
    names_only: bool,
    group_by: str | None,
    sort: str,
    top: int | None,
    match: str | None,
    details: bool,
    enrich: str | None,
    findings: options.FindingOptions,
    to: output.Destination,
) -> int:
    """What the kernels in profilers' output are, and where the time went.

    FILEs: PyTorch's key_averages().table(), Chrome traces (.json, .json.gz), Nsight Systems' stats
    and SQLite export, Nsight Compute's CSV and text, lists of names; folders, and - for standard
    input. The format is recognised by the content.

    \b
    Examples:
      kanalyze decode trace.json.gz
      kanalyze decode profile/ --group-by op
      kanalyze decode trace.json.gz --enrich decoded.json.gz
      kanalyze decode --explain ampere_sgemm_128x128_nn
      nsys stats --format csv report.nsys-rep | kanalyze decode - --format json
    """
    from kanalyze.analysis.profile import View, read, report_on

    if not (files or names or explain):
        raise UsageError("give a FILE, a folder, - or --name NAME (see 'kanalyze decode --help')")
    if names_only and not files:
        raise UsageError("--list reads names from FILEs: give one, or - for standard input")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    if explain and not files and not names and (findings.ignore or findings.fail_on):
        raise click.UsageError("--ignore and --fail-on are about profiles, not about --explain")
    if explain and not files and not names and to.format == "text":
        from kanalyze.profiles.names import decode
        from kanalyze.profiles.readers.source import clean
        from kanalyze.render.name_text import explained

        parsed = [decode(clean(name)) for name in explain]
        to.text(explained(parsed, width=to.columns, color=to.colored))
        return 0
    from kanalyze.cli.app import report_error

    progress = _BytesRead(files)
    with progress.bar:
        profile = read(
            files, (*names, *explain), names_only=names_only, on_error=report_error,
            progress=progress,
        )  # fmt: skip
        code = 3 if profile.failed else 0
        if enrich is not None:
            code = max(code, _enrich(files, enrich, progress))
    text_top = top if to.format != "text" else None
    report = report_on(profile, View(group_by, sort, text_top, match, findings.ignore))
    if report.kernels or to.format == "json":
        _deliver(report, to, top, details)
    elif match is not None and profile.files:
        output.say(f"no name matches '{match}'", "warning")
    elif profile.files and not profile.failed:
        output.say("nothing ran on the GPU in what was read", "warning")
    return max(code, findings.exit_code(f.severity for f in report.findings))


def _deliver(report: ProfileReport, to: output.Destination, top: int | None, details: bool) -> None:
    from kanalyze.render import profile_tables, profile_text

    if to.format == "json":
        to.json(report.to_dict())
    elif to.format == "csv":
        to.data(profile_tables.csv_text(report))
    elif to.format == "markdown":
        to.data(profile_tables.markdown(report))
    else:
        text = profile_text.render(
            report, width=to.columns, color=to.colored, top=top, details=details
        )
        to.text(text)


def _enrich(files: tuple[str, ...], out: str, progress: Callable[[str, int], None]) -> int:
    """Write the enriched trace; the exit code."""
    from kanalyze.cli.app import report_error
    from kanalyze.errors import InputError
    from kanalyze.profiles.enrich import enrich

    if len(files) != 1 or files[0] == "-" or Path(files[0]).is_dir():
        raise UsageError("--enrich takes one file, a Chrome trace")
    path = Path(out)
    if not path.parent.is_dir():
        raise InputError(f"there is no folder {path.parent}", file=out)
    if path.exists() and Path(files[0]).exists() and path.samefile(files[0]):
        raise UsageError(f"--enrich would overwrite its input {out}")
    try:
        count = enrich(files[0], path, progress)
    except InputError as error:
        report_error(error)
        return 3
    output.say(f"{out}: {count:,} launches with their decoded names")
    return 0


class _BytesRead:
    """Shows how much of the files is read."""

    def __init__(self, files: tuple[str, ...]):
        size = sum(Path(f).stat().st_size for f in files if Path(f).is_file())
        self.bar = Progress(size // _MB, " MB")
        self.done: dict[str, int] = {}

    def __call__(self, name: str, done: int) -> None:
        self.done[name] = done
        self.bar.show(sum(self.done.values()) // _MB, Path(name).name)
