"""``kanalyze capture``."""

from __future__ import annotations

from pathlib import Path

import click

from kanalyze.cli import options as shared
from kanalyze.cli import output
from kanalyze.errors import InputError
from kanalyze.text.safe import escaped


@click.command("capture", context_settings={"ignore_unknown_options": False})
@click.argument("program", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND...")
@click.option(
    "-o",
    "--output",
    "folder",
    metavar="DIR",
    required=True,
    callback=shared.not_empty,
    help="Where records go.",
)
@click.option("--fake", is_flag=True, help="Run no kernel and need no GPU: tensors hold nothing.")
@click.option("--arch", default="sm_90", metavar="ARCH", show_default=True,
              help="What --fake compiles for.")  # fmt: skip
@shared.output_options(to_file=False)
def command(
    program: tuple[str, ...], folder: str, fake: bool, arch: str, to: output.Destination
) -> int:
    """Record each distinct Triton launch of a program: arguments, grid, PTX, cubin.

    Launches of PyTorch's compiler are recorded, too. A record (JSON, with PTX and cubin beside it
    and an .npy for each array of up to 2^20 whole numbers) is what 'kanalyze traffic --launch' and
    'kanalyze check' read. The exit code is the program's.

    With --fake nothing runs: tensors on "cuda" have sizes and addresses but no contents, kernels
    are compiled for --arch, an autotuner keeps its first configuration.

    \b
    Examples:
      kanalyze capture -o records -- python train.py --steps 2
      kanalyze capture --fake --arch sm_100 -o records -- python layer.py
      kanalyze traffic --launch records/_rms_norm_forward_kernel.1f0c5a3e.json
    """
    from kanalyze.frontend.compile import normalise_arch
    from kanalyze.measured.capture import run

    made = run(program, Path(folder), normalise_arch(arch) if fake else None)
    if to.format == "json":
        to.json(
            {"schema": "kanalyze.capture/1", "command": list(program), "fake": fake,
             "records": list(made.records), "left_out": made.left_out,
             "skipped": list(made.troubles), "exit_code": made.exit_code}
        )  # fmt: skip
    else:
        for record in made.records:
            to.data(escaped(record))
    for trouble in made.troubles:
        output.say(escaped(f"not recorded: {trouble}"), "error")
    if made.left_out:
        output.say(f"left out: {made.left_out:,} launches that differ in numbers alone")
    if not made.records:
        output.say("no Triton launch was seen", "warning")
    return made.exit_code or (InputError.exit_code if made.troubles else 0)
