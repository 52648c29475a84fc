"""``kanalyze ptx``."""

from __future__ import annotations

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output


def _sections() -> tuple[str, ...]:
    from kanalyze.render.kernel_text import SECTIONS

    return SECTIONS


@click.command("ptx")
@click.argument("targets", metavar="[TARGET]...", nargs=-1, shell_complete=shared.complete_target)
@shared.reading_options("Only this kernel of what was read. Repeatable.")
@shared.assume_option
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
@shared.section_option(_sections)
@shared.dump_option
@shared.finding_options
@shared.annotated_output_options
def command(
    targets: tuple[str, ...],
    options: shared.TargetOptions,
    assume: dict[str, str],
    listing: bool | None,
    summary: bool,
    sass: bool,
    quiet: bool,
    sections: tuple[str, ...],
    dump: str | None,
    findings: shared.FindingOptions,
    to: output.Destination,
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
    from kanalyze.cli import ci_formats
    from kanalyze.cli.dump import dump_passes
    from kanalyze.cli.inputs import read, report_of
    from kanalyze.findings.runner import RuleOptions
    from kanalyze.render.findings_annotations import LocatedFinding

    if dump is not None:
        return dump_passes(targets, options, assume, dump, to)
    if listing and (summary or quiet):
        raise click.UsageError("--listing contradicts --summary and --quiet")
    as_text = to.format == "text"
    if sections and (quiet or not as_text):
        raise click.UsageError("--section is of the text alone, without --quiet")
    if "listing" in sections and (summary or listing is False):
        raise click.UsageError("--section listing contradicts --summary and --no-listing")
    with_listing = listing if listing is not None else as_text and not (summary or quiet)
    with_sass = sass and not (quiet and as_text)
    wanted = RuleOptions(findings.ignore, findings.prove)
    inputs = read(targets, options, options.kernels)
    report, code = report_of(inputs, with_listing, with_sass, assume, wanted)
    located = [
        LocatedFinding(finding, kernel.name, kernel.file)
        for kernel in report.kernels
        for finding in getattr(kernel, "findings", ())
    ]
    if to.format == "json":
        to.json(report.to_dict())
    elif to.format in ci_formats.FORMATS:
        to.data(ci_formats.render(located, to.format))
    elif report.kernels or report.functions:
        from kanalyze.render import kernel_text

        text = kernel_text.render(
            report,
            width=to.columns,
            color=to.colored,
            quiet=quiet,
            listing=with_listing,
            sections=sections,
        )
        if not text:
            output.say(f"the report has no {' and no '.join(sections)}", "note")
        to.text(text)
    return max(code, findings.exit_code(f.finding.severity for f in located))
