"""``kanalyze bench``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output
from kanalyze.cli.progress import Progress
from kanalyze.errors import UsageError

if TYPE_CHECKING:
    from kanalyze.measured.bench.cases import BenchRequest

EXIT_WRONG = 1
EXIT_INTERRUPTED = 130
DEFAULT_FOLDER = "kanalyze-bench"


def _values(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    settings: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, values = text.partition("=")
        name, listed = name.strip(), tuple(v.strip() for v in values.split(","))
        if not equals or not name.isidentifier() or not all(listed):
            raise click.BadParameter(f"'{text}' is not NAME=VALUE,VALUE", context, parameter)
        if name in settings:
            raise click.BadParameter(f"{name} is set twice", context, parameter)
        settings[name] = listed
    return settings


@click.command("bench")
@click.argument("targets", nargs=-1, metavar="[TARGET]...", shell_complete=shared.complete_target)
@click.option("--all", "everything", is_flag=True, help="All bundled kernels: every element type, "
              "their examples, and ragged shapes that check them.")  # fmt: skip
@click.option(
    "--set",
    "values",
    metavar="NAME=V1,V2",
    multiple=True,
    callback=_values,
    help="Values of a shape, scalar argument, constexpr, num_warps or num_stages; every "
    "combination runs. Repeatable.",
)
@click.option("--dtype", metavar="TYPE,TYPE", help="Element types: fp16,bf16,fp32.")
@click.option(
    "--plan",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="What to run, as TOML: [[bench]] entries with target, dtype, shapes and set.",
)
@click.option("--no-counters", is_flag=True, help="Times only, even where ncu is installed.")
@click.option("--no-rivals", is_flag=True, help="Without PyTorch's ways to the same result.")
@click.option("--dry-run", is_flag=True, help="List what would run, a line each; needs no GPU.")
@click.option("--resume", is_flag=True, help="Keep the records that are finished in DIR.")
@click.option(
    "--minutes",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    help="Begin no launch after N minutes; --resume goes on.",
)
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    default=DEFAULT_FOLDER,
    callback=shared.not_empty,
    help="Where records go.  [default: ./kanalyze-bench]",
)
@click.option(
    "--pack",
    metavar="FILE",
    callback=shared.not_empty,
    help="Pack DIR's records into one .tar.xz, too.",
)
@shared.output_options(to_file=False)
def command(
    targets: tuple[str, ...],
    everything: bool,
    values: dict[str, tuple[str, ...]],
    dtype: str | None,
    plan: Path | None,
    no_counters: bool,
    no_rivals: bool,
    dry_run: bool,
    resume: bool,
    minutes: float | None,
    folder: str,
    pack: str | None,
    to: output.Destination,
) -> int:
    """Measure kernels on this machine's GPU: results, times, counters; a record a launch.

    Each result is compared with a float64 reference first. Times are CUDA events with a cold and a
    warm L2. Where Nsight Compute (ncu) is installed, hardware counters are read. A record in DIR
    (JSON, with PTX and cubin) says all of it.

    \b
    Examples:
      kanalyze bench gelu --set n=1000003,67108864 --dtype fp16,fp32 -o records
      kanalyze bench matmul_relu --set BLOCK_M=64,128 --set num_stages=2,3,4 --dry-run
      kanalyze bench --all --no-counters
    """
    from kanalyze.measured.bench import cases as bench_cases

    requests = _requests(targets, everything, values, dtype, plan)
    cases = bench_cases.expand(requests)
    if dry_run:
        from kanalyze.measured.bench import summary

        _deliver(summary.planned(cases, Path(folder)), to)
        return 0
    return _run(cases, folder, to, pack, {
        "counters": not no_counters, "rivals": not no_rivals, "resume": resume,
        "seconds": None if minutes is None else 60 * minutes,
    })  # fmt: skip


def _requests(
    targets: tuple[str, ...],
    everything: bool,
    values: dict[str, tuple[str, ...]],
    dtype: str | None,
    plan: Path | None,
) -> list[BenchRequest]:
    from kanalyze.measured.bench.cases import BenchRequest, read_plan

    if sum((bool(targets), everything, plan is not None)) != 1:
        raise UsageError("give TARGETs, or --all, or --plan FILE")
    if plan is not None:
        if values or dtype:
            raise UsageError("--plan says shapes and types: leave --set and --dtype out")
        return read_plan(plan)
    dtypes = tuple(t.strip() for t in dtype.split(",")) if dtype else ()
    if everything:
        from kanalyze.frontend import kernel_file

        if values:
            raise UsageError("--set needs TARGETs: names differ between kernels")
        return [BenchRequest(tuple(kernel_file.bundled()), dtypes, checks=True)]
    return [BenchRequest(targets, dtypes, values=dict(values))]


def _run(
    cases: list[Any], folder: str, to: output.Destination, pack: str | None, asked: dict[str, Any]
) -> int:
    from kanalyze.measured.bench import gpu, run, summary

    machine = gpu.local_gpu()
    where = Path(folder)
    result = run.run(cases, run.Options(where, **asked), machine, _Passes())
    document = summary.document(result, machine, where)
    for note in result.notes:
        output.say(note, "note")
    _deliver(document, to)
    if pack is not None:
        from kanalyze.measured.records.writer import pack as pack_records

        count = pack_records(where, Path(pack))
        output.say(f"{count} records packed into {pack}")
    if result.interrupted:
        output.say("interrupted: --resume goes on")
        return EXIT_INTERRUPTED
    if result.out_of_time:
        output.say("the time is over: --resume goes on")
    statuses = {outcome.status for outcome in result.outcomes}
    if "failed" in statuses:
        return 3
    return EXIT_WRONG if "wrong" in statuses else 0


def _deliver(document: dict[str, Any], to: output.Destination) -> None:
    if to.format == "json":
        to.json(document)
        return
    from kanalyze.render import bench_text

    page = to.page()
    planned = document["device"] is None
    (bench_text.plan_text if planned else bench_text.result_text)(document, page)
    to.show(page)


class _Passes:
    """Shows how far each pass is."""

    def __init__(self) -> None:
        self.bars: dict[str, Progress] = {}

    def __call__(self, what: str, done: int, total: int, last: str) -> None:
        bar = self.bars.setdefault(what, Progress(total, f" {what}", lines=True))
        bar.show(done, last)
        if done == total:
            bar.close()
