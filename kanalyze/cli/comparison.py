"""``kanalyze traffic --versus`` and ``--over``: launches side by side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options as shared
from kanalyze.cli.output import Destination

if TYPE_CHECKING:
    from kanalyze.performance.cache_sim.calibration import Calibration
    from kanalyze.results.comparison import Comparison

_MOST_VALUES = 100


@dataclass(frozen=True)
class Compared:
    """The options of a comparison as given; false where none was."""

    versus: str | None
    versus_set: dict[str, str]
    over: tuple[str, tuple[int, ...]] | None

    def __bool__(self) -> bool:
        return bool(self.versus is not None or self.versus_set or self.over)

    def check(self, plot: str | None) -> None:
        """Refuse a plot of what is not swept."""
        from kanalyze.errors import UsageError

        if plot is not None and self.over is None:
            raise UsageError("--plot with --versus draws over sizes: give --over NAME=V1,V2,…, too")

    def plot(self, comparison: Comparison, file: str | None) -> None:
        """Draw a comparison over sizes."""
        if file is not None:
            from kanalyze.render import traffic_plot

            traffic_plot.sweep(comparison, file)

    def run(
        self,
        target: str | None,
        options: shared.TargetOptions,
        device: str | None,
        what_if: dict[str, float],
        calibration: Calibration | None,
        simulate: bool,
    ) -> tuple[Comparison, int]:
        """Compare; the result, and the exit code. What went wrong with a launch has been said."""
        from kanalyze.analysis.versus.running import Asked, compare
        from kanalyze.cli.app import report_error
        from kanalyze.errors import KanalyzeError, UsageError
        from kanalyze.frontend.subject import with_record

        if target is None:
            raise UsageError("--versus and --over compile a kernel: give a TARGET")
        codes = [0]

        def failed(error: KanalyzeError) -> None:
            report_error(error)
            codes.append(error.exit_code)

        settings = options.compile_settings()
        launch = options.launch()
        if launch is not None:
            settings = with_record(settings, launch)
            device = device or launch.device
        asked = Asked(
            target=target,
            options=settings,
            other=self.versus,
            other_settings=self.versus_set or None,
            over=self.over,
            device=device,
            what_if=what_if,
            calibration=calibration,
            simulate=simulate,
        )
        return compare(asked, failed), max(codes)

    def deliver(self, comparison: Comparison, to: Destination) -> None:
        """Write a comparison as text or JSON."""
        if to.format == "json":
            to.json(comparison.to_dict())
            return
        from kanalyze.render import comparison_text

        to.text(comparison_text.render(comparison, width=to.columns, color=to.colored))


def _over(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> tuple[str, tuple[int, ...]] | None:
    """``T=256,512`` as a name and values, each once, rising."""
    if given is None:
        return None
    name, _, values = given.partition("=")
    parts = [part.strip() for part in values.split(",")]
    if not name.strip().isidentifier() or not all(part.isdecimal() for part in parts):
        raise click.BadParameter(f"'{given}' is not NAME=V1,V2,…", context, parameter)
    if any(len(part) > 18 for part in parts) or len(set(parts)) > _MOST_VALUES:
        raise click.BadParameter(f"at most {_MOST_VALUES} values of 18 digits", context, parameter)
    return name.strip(), tuple(sorted({int(part) for part in parts}))


compare_options = shared.gathered(
    "compared",
    Compared,
    click.option(
        "--versus",
        metavar="OTHER",
        callback=shared.not_empty,
        help="Compare with another kernel, or a sequence of kernels: standard (attention), unfused "
        "(softmax), naive (gelu), TABLE.toml:NAME.",
    ),
    click.option(
        "--versus-set",
        metavar="NAME=VALUE",
        multiple=True,
        callback=shared.settings_of,
        help="A setting of the other side alone; without --versus the same kernel is it.",
    ),
    click.option(
        "--over",
        metavar="NAME=V1,V2,…",
        callback=_over,
        help="One launch for each value of a size or constexpr, and how the bytes grow.",
    ),
)
"""The options of a comparison; the command gets one `Compared` as ``compared``."""
