"""``kanalyze ptx``."""

from __future__ import annotations

import sys

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output


def _sections() -> tuple[str, ...]:
    from kanalyze.render.kernel_text import SECTIONS

    return SECTIONS


@click.command("ptx")
@click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=shared.complete_target)
@shared.target_options
@shared.assume_option
@click.option(
    "--kernel",
    "kernels",
    metavar="NAME",
    multiple=True,
    help="Only this kernel of what was read. Repeatable.",
)
@click.option(
    "--listing/--no-listing",
    default=None,
    help="The listing, or not.  [default: in text, not in JSON]",
)
@click.option("--summary", is_flag=True, help="The same as --no-listing.")
@click.option(
    "--sass/--no-sass",
    default=True,
    help="Compare with the machine code, or not.  [default: compare, but not with --quiet]",
)
@click.option("-q", "--quiet", is_flag=True, help="One line for each kernel.")
@click.option(
    "--lenient",
    is_flag=True,
    help="Statements that cannot be read are warnings: exit 0.",
)
@shared.section_option(_sections)
@shared.dump_option
@shared.finding_options
@shared.annotated_output_options
@shared.pager_options
@shared.file_option
def command(
    targets: tuple[str, ...],
    options: shared.TargetOptions,
    assume: dict[str, str],
    kernels: tuple[str, ...],
    listing: bool | None,
    summary: bool,
    sass: bool,
    quiet: bool,
    lenient: bool,
    sections: tuple[str, ...],
    dump: str | None,
    findings: shared.FindingOptions,
    format_: str,
    color: str,
    width: int | None,
    pager: bool,
    file: str | None,
) -> int:
    """The annotated assembly report of kernels.

    TARGETs: bundled kernels, path/to/file.py:kernel, .ptx files, .cubin and .fatbin files (and
    executables with device code), file.cu or file.cu:kernel, folders (all .ptx and .cubin below,
    such as Triton's cache), patterns in quotes, and - for PTX on standard input. What cannot be
    read is said on standard error, everything else is shown, and the exit code is 3.

    \b
    Examples:
      kanalyze ptx gelu
      kanalyze ptx matmul_relu --arch sm_100 --set M=8192 --summary
      kanalyze ptx flash_attention --section loops --section findings
      kanalyze ptx dumps/ other.ptx --quiet
      kanalyze ptx vector_add.cu:add --arch sm_80
      cat kernel.ptx | kanalyze ptx - --format json
    """
    from kanalyze.cli import ci_formats, dumping, reading
    from kanalyze.findings.runner import RuleOptions
    from kanalyze.render.findings_annotations import LocatedFinding

    if dump is not None:
        return dumping.deliver(targets, options, assume, kernels, dump, file)
    if listing and (summary or quiet):
        raise click.UsageError("--listing contradicts --summary and --quiet")
    if sections and (quiet or format_ != "text"):
        raise click.UsageError("--section is of the text alone, without --quiet")
    if "listing" in sections and (summary or listing is False):
        raise click.UsageError("--section listing contradicts --summary and --no-listing")
    with_listing = listing if listing is not None else not (summary or quiet) and format_ == "text"
    with_sass = sass and not (quiet and format_ == "text")
    wanted = RuleOptions(findings.ignore, findings.prove)
    inputs = reading.read(targets, options, lenient, kernels)
    report, code = reading.report(inputs, with_listing, with_sass, assume, wanted)
    found = [
        LocatedFinding(finding, kernel.name, kernel.file)
        for kernel in report.kernels
        for finding in getattr(kernel, "findings", ())
    ]
    if format_ == "json":
        from kanalyze.text.plain import dumps

        output.deliver(dumps(report.to_dict()), file)
    elif format_ in ci_formats.FORMATS:
        output.deliver(ci_formats.render(found, format_), file)
    elif report.kernels or report.functions:
        from kanalyze.render import kernel_text

        to_file = file not in (None, "-")
        text = kernel_text.render(
            report,
            width=output.width_for(width, to_file),
            color=output.use_color(color, None if to_file else sys.stdout),
            quiet=quiet,
            listing=with_listing,
            sections=sections,
        )
        if not text:
            output.say(f"the report has no {' and no '.join(sections)}", "note")
        output.deliver(text, file, pager)
    return max(code, findings.exit_code(f.finding.severity for f in found))
