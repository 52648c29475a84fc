"""The command line: the only code that prints, reads the environment or sets an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run ``kanalyze`` and exit with its code (see `kanalyze.cli.app`)."""
    try:
        from kanalyze.cli.app import cli
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main(args=None if arguments is None else list(arguments), prog_name="kanalyze")
