"""``kanalyze check``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output
from kanalyze.cli.progress import Progress
from kanalyze.errors import UsageError

if TYPE_CHECKING:
    from kanalyze.measured.records.metrics import Metric
    from kanalyze.measured.records.reader import Record, SkippedRecord
    from kanalyze.results import check as doc

EXIT_PASSED = 1


@click.command("check")
@click.argument("records", metavar="RECORD...", nargs=-1)
@click.option("--counter", "counters", metavar="NAME", multiple=True,
              help="Only this counter, or kind of counter: exact, bound, estimate. "
              "Repeatable.")  # fmt: skip
@click.option("--purpose", type=click.Choice(["fit", "report"]),
              help="Only records that are marked so.")  # fmt: skip
@click.option("--max-error", "bounds", metavar="[NAME=]PERCENT", multiple=True,
              help="Exit 1 where an estimated counter (NAME: this one; NAME.median, .mean, .p90: "
              "of all launches) is off by more. exact=0 wants all exact ones equal. "
              "Repeatable.")  # fmt: skip
@click.option("--plot", metavar="FILE", callback=options.not_empty,
              help="Write predicted against measured, log-log, to FILE (.svg, .png).")  # fmt: skip
@click.option("-j", "--jobs", type=click.IntRange(1), default=1, metavar="N",
              help="Processes.  [default: 1]")  # fmt: skip
@click.option("--details", is_flag=True, help="In text: every counter of every launch, too.")
@options.output_options(
    "csv", help="Text to read, JSON, or CSV with a row for each launch and counter.", paged=True
)
def command(
    records: tuple[str, ...],
    counters: tuple[str, ...],
    purpose: str | None,
    bounds: tuple[str, ...],
    plot: str | None,
    jobs: int,
    details: bool,
    to: output.Destination,
) -> int:
    """Static estimates of recorded launches beside what was measured.

    RECORDs: folders of records, single ones (.json with the .ptx and .cubin beside it), archives
    (.tar.xz, .tar.gz, .zip), and - for an archive on standard input. Needs no GPU.

    \b
    Examples:
      kanalyze check samples/h200
      kanalyze check samples/h200 --purpose report --max-error dram_read_bytes.median=5
      kanalyze check out/ --counter estimate --plot errors.svg
      kanalyze check out/gelu_64M.json --details
    """
    from kanalyze.measured.check import runner, summary
    from kanalyze.render import check_plot, figures

    if not records:
        raise UsageError("give a RECORD, a folder or an archive of them (see --help)")
    if records.count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    metrics = summary.metrics_named(counters)
    wanted = [summary.parse_bound(text) for text in bounds]
    for name, _, _ in wanted:
        if not set(summary.metrics_named([name])) & set(metrics):
            raise UsageError(f"--max-error {name}: --counter leaves nothing of it to compare")
    if plot is not None:
        figures.check_suffix(plot)
    read, skipped, failed = _read(records)
    chosen = runner.of_purpose(read, purpose)
    if read and not chosen:
        output.say(f"no record has the purpose '{purpose}'", "warning")
    launches, interrupted = _compare(chosen, metrics, jobs)
    check = runner.document(records, len(chosen), launches, skipped, wanted)
    code = max(3 if failed or not all(s.remark for s in skipped) else 0, _faults(check))
    if launches or to.format == "json":
        _deliver(check, to, details)
    if plot is not None and launches:
        check_plot.plot(check, plot)
    for bound in check.bounds:
        if bound.found_percent is None and bound.held:
            output.say(f"--max-error: nothing to compare for {bound.counter}", "warning")
    if interrupted:
        output.say(f"interrupted: {len(launches)} of {len(chosen)} launches were checked")
        return 130
    return EXIT_PASSED if not all(bound.held for bound in check.bounds) else code


def _read(paths: tuple[str, ...]) -> tuple[list[Record], list[SkippedRecord], bool]:
    """The records, what was left out (already said), and whether a path could not be read."""
    from kanalyze.cli.app import report_error, report_errors
    from kanalyze.errors import InputError
    from kanalyze.frontend.files import standard_input
    from kanalyze.measured.records.reader import read_records

    read: list[Record] = []
    skipped: list[SkippedRecord] = []
    failed = False
    for path in paths:
        try:
            if path == "-":
                some, wrong = read_records("<stdin>", standard_input())
            else:
                some, wrong = read_records(path)
        except InputError as error:
            report_error(error)
            failed = True
            continue
        for remark, level in ((False, "error"), (True, "note")):
            report_errors([s.error for s in wrong if s.remark == remark], level)
        read += some
        skipped += wrong
    return read, skipped, failed


def _compare(
    records: list[Record], metrics: tuple[Metric, ...], jobs: int
) -> tuple[list[doc.CheckedLaunch], bool]:
    """The launches that were compared, in the order of the records, and whether it was stopped."""
    from kanalyze.measured.check.runner import compared

    done: dict[int, doc.CheckedLaunch] = {}
    stopped = False
    with Progress(len(records)) as progress:
        try:
            for launch, index in compared(records, metrics, jobs):
                done[index] = launch
                progress.show(len(done))
        except KeyboardInterrupt:
            stopped = True
    return [done[index] for index in sorted(done)], stopped


def _faults(check: doc.Check) -> int:
    """Say faults of kanalyze's; the exit code."""
    from kanalyze.cli.app import report_error
    from kanalyze.errors import InputError
    from kanalyze.measured.check.runner import faults

    code = 0
    for file, message in faults(check.launches):
        report_error(InputError(message, file=file))
        code = InputError.exit_code
    return code


def _deliver(check: doc.Check, to: output.Destination, details: bool) -> None:
    if to.format == "json":
        to.json(check.to_dict())
    elif to.format == "csv":
        from kanalyze.render import check_csv

        to.data(check_csv.render(check))
    else:
        from kanalyze.render import check_text

        to.text(check_text.render(check, width=to.columns, color=to.colored, details=details))
