"""Options that several commands share, and what they mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli.output import Destination
from kanalyze.errors import UsageError, nearest

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from kanalyze.frontend.compile import Compiled
    from kanalyze.frontend.subject import Settings
    from kanalyze.launch.record import Launch

Command = Callable[..., Any]
Decorator = Callable[[Command], Command]
DEFAULT_ARCH = "sm_90"


@dataclass(frozen=True)
class TargetOptions:
    """The options of a target as given; None where an option was not given."""

    arch: str | None
    settings: dict[str, str]
    dtype: str | None
    num_warps: int | None
    num_stages: int | None
    signature: str | None
    record: str | None
    args: dict[str, str] = field(default_factory=dict)
    grid: str | None = None
    config: int | str | None = None
    kernels: tuple[str, ...] = ()
    lenient: bool = False

    def compile_settings(self) -> Settings:
        """The same as `kanalyze.analysis.kernels.Settings`."""
        from kanalyze.frontend.subject import Settings

        given = {f.name: getattr(self, f.name) for f in fields(Settings)}
        return Settings(**{**given, "arch": self.arch or DEFAULT_ARCH})

    def for_compiling(self) -> list[str]:
        """The options given that only matter where a kernel is compiled."""
        names = ("arch", "settings", "dtype", "num_warps", "num_stages", "signature",
                 "args", "grid", "config")  # fmt: skip
        given = [name for name in names if getattr(self, name) not in (None, {})]
        words = {"settings": "set", "args": "arg"}
        return [f"--{words.get(name, name.replace('_', '-'))}" for name in given]

    def launch(self) -> Launch | None:
        """The launch record that ``--launch`` names."""
        if self.record is None:
            return None
        from kanalyze.frontend.files import is_pipe
        from kanalyze.launch.record import Launch

        is_pipe(self.record)  # refuses devices that have no end
        return Launch.from_record(self.record)


def settings_of(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    """Texts NAME=VALUE as a dict."""
    settings: dict[str, str] = {}
    for text in given:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or not name.isidentifier() or not value.strip():
            raise click.BadParameter(f"'{text}' is not NAME=VALUE", context, parameter)
        if name in settings and settings[name] != value.strip():
            raise click.BadParameter(f"{name} is set twice", context, parameter)
        settings[name] = value.strip()
    return settings


def _config(
    context: click.Context, parameter: click.Parameter, given: str | None
) -> int | str | None:
    if given is None or given == "best":
        return given
    if not given.isdecimal():
        raise click.BadParameter(f"'{given}' is not a number from 0, nor best", context, parameter)
    return int(given)


def _assumptions(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> dict[str, str]:
    assumed: dict[str, str] = {}
    for text in given:
        name, equals, what = text.partition("=")
        if not equals or not name.strip() or not what.strip():
            raise click.BadParameter(f"'{text}' is not PTR=WHAT", context, parameter)
        if name.strip() in assumed:
            raise click.BadParameter(f"{name} is said twice", context, parameter)
        assumed[name.strip()] = what.strip()
    return assumed


assume_option = click.option(
    "--assume",
    metavar="PTR=WHAT",
    multiple=True,
    callback=_assumptions,
    help="What the array behind a pointer holds, where addresses or branches depend on it: "
    "uniform:LO:HI (LO <= x < HI, drawn), const:VALUE, zero, range, range:START:STEP, or an .npy "
    "file. PTR is a parameter's name, or its place from 0. Repeatable.",
)
"""``--assume PTR=WHAT``."""


def _all(*options: Decorator) -> Decorator:
    """One decorator for several options, which the help then shows in this order."""

    def decorate(function: Command) -> Command:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


def gathered(name: str, kind: type, *options: Decorator) -> Decorator:
    """Options whose values the command gets as one ``kind``, a dataclass, under ``name``."""
    known = {f.name for f in fields(kind)}

    def decorate(function: Command) -> Command:
        @_all(*options)
        @functools.wraps(function)
        def wrapped(*positional: Any, **given: Any) -> Any:
            own = {key: given.pop(key) for key in known & given.keys()}
            return function(*positional, **{name: kind(**own)}, **given)

        return wrapped

    return decorate


def not_empty(context: click.Context, parameter: click.Parameter, given: str | None) -> str | None:
    """Refuse an empty name, which would be the current folder."""
    if given == "":
        raise click.BadParameter("the name is empty", context, parameter)
    return given


target_options = gathered(
    "options",
    TargetOptions,
    click.option(
        "--arch",
        metavar="ARCH",
        help="GPU architecture: sm_80, sm_86, sm_89, sm_90, sm_100, sm_103, sm_120; sm_90a and "
        "the like, too.  [default: sm_90]",
    ),
    click.option(
        "--set",
        "settings",
        metavar="NAME=VALUE",
        multiple=True,
        callback=settings_of,
        help="A shape, scalar argument or constexpr: --set M=4096. Repeatable.",
    ),
    click.option(
        "--dtype",
        metavar="TYPE",
        help="Element type of a bundled kernel: fp16, bf16, fp32.",
    ),
    click.option("--num-warps", type=click.IntRange(1), metavar="N", help="Warps of a block."),
    click.option(
        "--num-stages",
        type=click.IntRange(1),
        metavar="N",
        help="Depth of software pipelines.",
    ),
    click.option(
        "--signature",
        metavar="TYPES",
        help="Types of your own kernel's parameters: '*fp16:16, *fp16:16, i32'.",
    ),
    click.option(
        "--grid",
        metavar="X[,Y[,Z]]",
        callback=not_empty,
        help="Blocks of a launch: numbers, or expressions of arguments: 'cdiv(N,BLOCK)'.",
    ),
    click.option(
        "--arg",
        "args",
        metavar="NAME=VALUE",
        multiple=True,
        callback=settings_of,
        help="An argument of a launch: N=4096, 'x=bf16[4096,N]' (perhaps with strides=1,4096, "
        "align=4, and what it holds, as --assume says). Its type is compiled in. Repeatable.",
    ),
    click.option(
        "--config",
        callback=_config,
        metavar="N|best",
        help="Which configuration of @triton.autotune, from 0; best: that of the shortest estimate "
        "of the launch.  [default: the first]",
    ),
    click.option(
        "--launch",
        "record",
        metavar="RECORD",
        callback=not_empty,
        help="A launch record (JSON): arguments and grid. TARGET may then be left out: the .ptx "
        "beside the record is taken.",
    ),
)
"""The options of a target; the command gets one `TargetOptions` as ``options``."""

_PAGER = (
    click.option(
        "--width",
        type=click.IntRange(40, 1000),
        metavar="N",
        help="Columns.  [default: the terminal's; 100 where there is none]",
    ),
    click.option(
        "--pager/--no-pager",
        default=True,
        help="Page long text on a terminal ($PAGER).  [default: pager]",
    ),
)
_FILE = click.option(
    "-o",
    "--output",
    "file",
    metavar="FILE",
    callback=not_empty,
    help="Write to FILE instead of standard output.",
)


def reading_options(kernel_help: str) -> Decorator:
    """The options of commands that read targets: those of a target, ``--kernel``, ``--lenient``."""
    reading = _all(
        click.option("--kernel", "kernels", metavar="NAME", multiple=True, help=kernel_help),
        click.option(
            "--lenient",
            is_flag=True,
            help="Statements that cannot be read are warnings: exit 0.",
        ),
    )
    return lambda function: target_options(reading(function))


def output_options(
    *more_formats: str,
    help: str = "Text to read, or JSON.",
    paged: bool = False,
    to_file: bool = True,
) -> Decorator:
    """``--format`` and ``--color``; the command gets one `output.Destination` as ``to``.

    Args:
        more_formats: formats beside text and JSON.
        help: what ``--format`` is.
        paged: whether there are ``--width`` and ``--pager``, too.
        to_file: whether there is ``-o``, too.
    """
    return gathered(
        "to",
        Destination,
        click.option(
            "--format",
            type=click.Choice(["text", "json", *more_formats]),
            default="text",
            help=f"{help}  [default: text]",
        ),
        click.option(
            "--color",
            type=click.Choice(["auto", "always", "never"]),
            default="auto",
            help="Colours; auto heeds NO_COLOR and CLICOLOR_FORCE.  [default: auto]",
        ),
        *(_PAGER if paged else ()),
        *([_FILE] if to_file else ()),
    )


annotated_output_options = output_options(
    "sarif",
    "github",
    help="Text to read, JSON, or the findings alone: SARIF, annotations for GitHub.",
    paged=True,
)
"""The same for commands with findings that have a place."""


@dataclass(frozen=True)
class FindingOptions:
    """What was asked of the findings: ids left out, whether to prove, what fails the command."""

    ignore: tuple[str, ...]
    fail_on: str | None
    prove: bool = False

    @property
    def given(self) -> bool:
        """Whether anything was asked of them."""
        return bool(self.ignore) or not self.prove or self.fail_on is not None

    def exit_code(self, severities: Iterable[str]) -> int:
        """1 where a finding is as severe as ``--fail-on`` says, or more."""
        from kanalyze.findings.runner import SEVERITIES

        if self.fail_on is None:
            return 0
        failing = SEVERITIES[: SEVERITIES.index(self.fail_on) + 1]
        return int(any(severity in failing for severity in severities))


def _rule_ids(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> tuple[str, ...]:
    if not given:
        return ()
    from kanalyze.findings import catalogue

    return tuple(catalogue.known_id(id_) for text in given for id_ in text.split(","))


_ignore_option = click.option(
    "--ignore",
    metavar="ID",
    multiple=True,
    callback=_rule_ids,
    help="Leave out a finding (kanalyze explain lists them). Repeatable.",
)
_proof_option = click.option(
    "--proof/--no-proof",
    "prove",
    default=True,
    help="Make the changes that findings advise and show what they do, or not.  [default: proof]",
)
_fail_option = click.option(
    "--fail-on",
    type=click.Choice(["error", "warning", "info"]),
    help="Exit with 1 where there is a finding as severe as this.",
)


finding_options = gathered("findings", FindingOptions, _ignore_option, _proof_option, _fail_option)
"""The options of findings; the command gets `FindingOptions` as ``findings``."""
profile_finding_options = gathered("findings", FindingOptions, _ignore_option, _fail_option)
"""The same for a profile, of which nothing can be compiled again."""
dump_option = click.option(
    "--dump",
    type=click.Choice(["ssa", "loops", "predicates", "classes"]),
    help="For maintainers: what stands between the passes, instead of the report.",
)
"""``--dump FORM``."""


def section_option(known: Callable[[], Sequence[str]]) -> Decorator:
    """``--section NAME``: a decorator; ``known`` gives the names of sections, when they matter."""

    def check(
        context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
    ) -> tuple[str, ...]:
        for name in given:
            if name not in known():
                raise UsageError(f"there is no section '{name}': {nearest(name, known())}")
        return given

    return click.option(
        "--section",
        "sections",
        metavar="NAME",
        multiple=True,
        callback=check,
        help="Only this section of the text: a label at its left, such as findings. Repeatable.",
    )


def complete_target(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Bundled kernels and files, for the shell's completion."""
    from click.shell_completion import CompletionItem

    from kanalyze import _bundled

    names = sorted(path.stem for path in _bundled.folder("kernels").glob("*.py"))
    matching = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return [*matching, CompletionItem(incomplete, type="file")]


def compiled(target: str, options: TargetOptions, command: str) -> Compiled:
    """Compile a target with the options given.

    Raises:
        UsageError: it is not one that Triton compiles, or a launch record was given.
    """
    from kanalyze.frontend.targets import compiled_for

    if options.record is not None:
        raise UsageError(f"'{command}' compiles, it does not read launch records (--launch)")
    return compiled_for(target, options.compile_settings())


def facts_of(result: Compiled) -> str:
    """What a kernel was compiled from and with, in one line."""
    from kanalyze.source import SourceFile

    shown = SourceFile.read(result.source_file).shown
    values = [
        f"{name}={value}"
        for name, value in {**result.arguments, **result.constexprs}.items()
        if not isinstance(value, tuple)  # a pointer
    ]
    values += [
        f"{name}={result.metadata[name]}"
        for name in ("num_warps", "num_stages")
        if name in result.metadata
    ]
    grid = f"; grid {' x '.join(map(str, result.grid))}" if result.grid else ""
    return (
        f"compiled from {shown}:{result.source_function} for {result.arch} by Triton "
        f"{result.triton_version}: {', '.join(values)}{grid}"
    )
