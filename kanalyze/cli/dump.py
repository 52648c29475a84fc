"""``--dump`` of ``kanalyze ptx`` and ``kanalyze traffic``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kanalyze.analysis.dump import dump
from kanalyze.cli.options import TargetOptions
from kanalyze.cli.output import Destination
from kanalyze.errors import UsageError, nearest
from kanalyze.frontend.targets import resolve


def dump_passes(
    targets: Sequence[str],
    options: TargetOptions,
    assume: Mapping[str, str],
    form: str,
    to: Destination,
) -> int:
    """Write what stands between the passes over the kernels of targets; the exit code.

    Raises:
        UsageError: no target, no kernel of that name, or no launch where one is needed.
        KanalyzeError: a target cannot be found, read or compiled.
    """
    launch = options.launch()
    if not targets and launch is not None and launch.ptx is not None:
        targets = [str(launch.ptx)]
    if not targets:
        raise UsageError("give a TARGET, or --launch RECORD.json with a .ptx beside it")
    subjects = [
        replace(subject, assume=assume)
        for target in targets
        for subject in resolve(target, options.compile_settings(), launch)
    ]
    known = [f.name for s in subjects for f in s.module.entries if f.body is not None]
    for name in options.kernels:
        if name not in known:
            raise UsageError(f"there is no kernel '{name}' in it: {nearest(name, known)}")
    to.data(dump(subjects, form, options.kernels or known))
    return 0
