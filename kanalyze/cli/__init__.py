"""The command line: the only code that prints, reads the environment or sets an exit code."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``kanalyze`` and exit with its code (see `kanalyze.cli.app`)."""
    from kanalyze.cli.app import cli

    cli.main(args=None if arguments is None else list(arguments), prog_name="kanalyze")
