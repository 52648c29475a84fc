"""``kanalyze traffic``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output
from kanalyze.cli.comparison import Compared, compare_options
from kanalyze.text.safe import escaped

if TYPE_CHECKING:
    from kanalyze.frontend.subject import Subject
    from kanalyze.performance.cache_sim.calibration import Calibration


def _factors(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, float]:
    """``hbm=2x`` as a name and a factor."""
    from kanalyze.errors import UsageError, nearest
    from kanalyze.performance.predict import WHAT_IF

    factors: dict[str, float] = {}
    for text in given:
        name, _, factor = text.partition("=")
        if name not in WHAT_IF:
            raise UsageError(f"--what-if {escaped(text)}: {nearest(name, list(WHAT_IF))}")
        try:
            factors[name] = float(factor.removesuffix("x"))
        except ValueError:
            factors[name] = 0.0
        if not 1e-3 <= factors[name] <= 1e3:
            raise UsageError(f"--what-if {escaped(text)}: expected a factor, as {name}=2x")
    return factors


def _time(context: click.Context, parameter: click.Parameter, given: float | None) -> float | None:
    """A time between a nanosecond and a year."""
    if given is not None and not 1e-3 <= given <= 3.2e13:  # NaN, too
        raise click.BadParameter(f"{given:g} is not the time of a launch in microseconds")
    return given


def _sections() -> tuple[str, ...]:
    from kanalyze.render.traffic_text import SECTIONS

    return SECTIONS


@click.command("traffic")
@click.argument("target", metavar="[TARGET]", required=False, shell_complete=shared.complete_target)
@shared.reading_options("This kernel, where what was read holds several.")
@shared.assume_option
@click.option(
    "--device",
    metavar="NAME",
    help="The GPU (see 'kanalyze device').  [default: the record's, else a usual one of the "
    "architecture]",
)
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    metavar="WHAT=FACTOR",
    callback=_factors,
    help="Estimate with another rate: hbm=2x, l2, fabric, link, clock, tensor or issue.",
)
@click.option(
    "--calibration",
    metavar="FILE",
    envvar="KANALYZE_CALIBRATION",
    callback=shared.not_empty,
    help="Measured parameters of GPUs, as 'kanalyze device --calibrate' writes them.  [env: "
    "KANALYZE_CALIBRATION]",
)
@compare_options
@click.option(
    "--plot",
    metavar="FILE",
    callback=shared.not_empty,
    help="Write the roofline, or with --over bytes and time over sizes, to FILE (.svg, .png).",
)
@click.option(
    "--time-us",
    type=float,
    callback=_time,
    metavar="T",
    help="A measured time in microseconds: what the launch reaches then (GB/s, Tflop/s).",
)
@click.option("--exact", is_flag=True, help="Only what is counted: no caches, HBM and time.")
@click.option(
    "--every",
    is_flag=True,
    help="A row for each instruction.  [default: alike ones of a source line are one row]",
)
@shared.section_option(_sections)
@shared.dump_option
@shared.finding_options
@shared.annotated_output_options
def command(
    target: str | None,
    options: shared.TargetOptions,
    assume: dict[str, str],
    device: str | None,
    what_if: dict[str, float],
    calibration: str | None,
    compared: Compared,
    plot: str | None,
    time_us: float | None,
    exact: bool,
    every: bool,
    sections: tuple[str, ...],
    dump: str | None,
    findings: shared.FindingOptions,
    to: output.Destination,
) -> int:
    """What one launch moves, and how long it takes: sectors, bank conflicts, HBM, time.

    Computed from the addresses, without a GPU: what Nsight Compute would count. What L1, L2 and HBM
    move, and the time, are estimates: the launch is simulated on a model of the GPU. A bundled
    kernel has a launch of its own, which --set changes; a .ptx file needs a launch record.

    \b
    Examples:
      kanalyze traffic gelu
      kanalyze traffic matmul_relu --arch sm_100 --set M=8192 --device B200
      kanalyze traffic gelu --section global --section time
      kanalyze traffic gelu --time-us 152.3
      kanalyze traffic gelu --what-if hbm=2x --plot roofline.svg
      kanalyze traffic --launch records/softmax_8192x781.json
      kanalyze traffic kernel.ptx --launch record.json --format json
      kanalyze traffic --launch gather.json --assume index=uniform:0:50000
      kanalyze traffic flash_attention --versus standard --over T=1024,2048,4096
      kanalyze traffic matmul_relu --set GROUP_M=1 --versus-set GROUP_M=8
    """
    from kanalyze.cli import ci_formats
    from kanalyze.cli.dump import dump_passes
    from kanalyze.render.findings_annotations import LocatedFinding

    if dump is not None:
        targets = () if target is None else (target,)
        return dump_passes(targets, options, assume, dump, to)
    if len(options.kernels) > 1:
        raise click.UsageError("one launch is of one --kernel")
    if plot is not None:
        from kanalyze.render import figures

        figures.check_suffix(plot)
    if sections and (compared or to.format != "text"):
        raise click.UsageError("--section is of the text on one launch alone")
    if compared:
        if assume or options.kernels or every or options.lenient or time_us is not None:
            words = "--assume, --kernel, --every, --lenient and --time-us are for one launch"
            raise click.UsageError(f"{words}, not for --versus and --over")
        if findings.given:
            raise click.UsageError("findings are of one launch, not of --versus and --over")
        if to.format in ci_formats.FORMATS:
            raise click.UsageError(f"--format {to.format} is for one launch: it shows its findings")
        compared.check(plot)
        comparison, code = compared.run(
            target, options, device, what_if, _calibration(calibration), simulate=not exact
        )
        _used(calibration, comparison.device)
        compared.deliver(comparison, to)
        compared.plot(comparison, plot)
        return code
    from kanalyze.analysis.launch import estimate

    measured = _calibration(calibration)
    subjects, unread = _read(target, options)
    if not subjects:
        return unread
    traffic = estimate(
        subjects,
        options.launch(),
        device=device,
        kernel=next(iter(options.kernels), None),
        assume=assume,
        simulate=not exact,
        what_if=what_if,
        calibration=measured,
        ignore=findings.ignore,
        prove=findings.prove,
        time_us=time_us,
    )
    _used(calibration, traffic.device)
    if to.format == "json":
        to.json(traffic.to_dict())
    elif to.format in ci_formats.FORMATS:
        located = [LocatedFinding(f, traffic.kernel, traffic.file) for f in traffic.findings]
        to.data(ci_formats.render(located, to.format))
    else:
        from kanalyze.render import traffic_text

        text = traffic_text.render(
            traffic, width=to.columns, color=to.colored, every=every, sections=sections
        )
        if not text:
            output.say(f"the report has no {' and no '.join(sections)}", "note")
        to.text(text)
    if plot is not None:
        from kanalyze.render import traffic_plot

        traffic_plot.roofline(traffic, plot)
    failed = findings.exit_code(f.severity for f in traffic.findings)
    return max(unread, failed)


def _calibration(file: str | None) -> Calibration | None:
    """The measured parameters in a file."""
    if file is None:
        return None
    from kanalyze.performance.cache_sim import calibration

    return calibration.read(file)


def _used(file: str | None, device: str | None) -> None:
    """Warn where a file of measured parameters has none of the GPU."""
    known = _calibration(file)
    if known is not None and device is not None and device not in known:
        had = ", ".join(known)
        output.say(f"{file} has parameters of {had}, none of {device}", "warning")


def _read(target: str | None, options: shared.TargetOptions) -> tuple[list[Subject], int]:
    """What a target stands for, and the exit code that goes with what could not be read."""
    from kanalyze.cli.inputs import read
    from kanalyze.errors import UsageError

    inputs = read([] if target is None else [target], options)
    subjects = inputs.subjects
    if subjects and options.record is None and all(s.compiled is None for s in subjects):
        raise UsageError(
            f"{escaped(subjects[0].file)}: no launch is known: give --launch RECORD.json, an "
            'object with "kernel", "grid", "block" and "params" in the order of the PTX '
            '({"name", "type": "i32", "value"}; a pointer: {"name", "type": "*fp32", '
            '"address"})'
        )
    if subjects and not any(s.module.entries for s in subjects) and any(s.bare for s in subjects):
        raise UsageError(
            f"{escaped(subjects[0].file)}: there is machine code alone in it, and a launch is "
            "estimated from PTX"
        )
    return subjects, inputs.exit_code
