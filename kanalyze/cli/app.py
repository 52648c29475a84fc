"""The command group: commands loaded when they are called, errors turned into exit codes."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import click

from kanalyze.cli import output
from kanalyze.errors import InputError, KanalyzeError, SourceSpot, nearest, system_reason
from kanalyze.text.safe import escaped

COMMANDS = {
    "ptx": "The annotated assembly report of kernels.",
    "traffic": "What one launch moves, and how long it takes: sectors, bank conflicts, HBM, time.",
    "explain": "What a finding says, why it is slow, how it is detected and proven.",
    "cfg": "Control flow of kernels: blocks, loops, and which branches part the threads of a warp.",
    "ttir": "The TTIR of a Triton kernel, beside its source.",
    "check": "Static estimates of recorded launches beside what was measured.",
    "bench": "Measure kernels on this machine's GPU: results, times, counters; a record a launch.",
    "capture": "Record each distinct Triton launch of a program: arguments, grid, PTX, cubin.",
    "decode": "What the kernels in profilers' output are, and where the time went.",
    "resources": "Registers, spills, stack and shared memory of kernels, read from build logs.",
    "compile": "Write every stage of a Triton kernel; needs no GPU.",
    "occupancy": "Blocks and warps that an SM holds, what limits them, and the next cliff.",
    "waves": "Waves of a launch: how its blocks fill the SMs, and what stays idle.",
    "device": "The GPUs known: their numbers, with units, sources and grades.",
    "list": "The bundled kernels.",
    "cache": "Where the cache is, and its size.",
}
"""Each command (module ``kanalyze.cli.cmd_NAME``) with the line that the overview shows."""

MOST_MESSAGES = 20
"""Messages of one kind that are shown for one file."""
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130


class Overview(click.Group):
    """A group whose commands are imported only when they run.

    The overview shows `COMMANDS` without importing any of them; a test keeps these lines equal to
    the commands' own.
    """

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of `COMMANDS`."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """Import a command."""
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"kanalyze.cli.cmd_{name}").command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the overview."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest names."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            ctx.fail(f"unknown command '{name}': {nearest(name, COMMANDS)}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> NoReturn:
        """Run a command and exit: the one place where errors become exit codes."""
        output.open_streams()
        warnings.showwarning = _show_warning
        arguments = {
            "args": args,
            "prog_name": prog_name,
            "complete_var": complete_var,
            "standalone_mode": False,
            **extra,
        }
        sys.exit(_guarded(lambda: super(Overview, self).main(**arguments)))


def _guarded(run: Callable[[], Any]) -> int:
    """Run a command; return the exit code. Whatever goes wrong is said on standard error."""
    try:
        code = run()
        sys.stdout.flush()
    except click.ClickException as error:
        _usage(error)
        return error.exit_code
    except KanalyzeError as error:
        report_error(error)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        output.say("interrupted")
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        output.close_stdout()
        return 0
    except SystemExit as error:
        return error.code if isinstance(error.code, int) else 1
    except OSError as error:  # what no command expected: a full disk, a name that is too long
        if _printing(error):
            report_error(output.unwritten(error))
        elif _debug() or error.errno is None:
            return _internal(error)
        else:
            report_error(InputError(system_reason(error), file=_named(error)))
        return InputError.exit_code
    except Exception as error:
        return _internal(error)
    return code if isinstance(code, int) else 0


def _printing(error: OSError) -> bool:
    """Whether an error is one of standard output: of click's printing, or of the last flush."""
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    return click.echo.__code__ in codes or codes == [_guarded.__code__]


def _named(error: OSError) -> str | None:
    """The file that an error is about."""
    return None if error.filename is None else os.fsdecode(str(error.filename))


def _debug() -> bool:
    return os.environ.get("KANALYZE_DEBUG", "") not in ("", "0")


def _internal(error: Exception) -> int:
    """Say an error that is a fault of kanalyze's."""
    if _debug():
        raise error
    text = " ".join(f"{type(error).__name__}: {error}".split())[:300]
    output.say(
        f"internal error: {text}; please report it with the command and its input "
        "(KANALYZE_DEBUG=1 shows where it happened)",
        "error",
    )
    return EXIT_INTERNAL


def _usage(error: click.ClickException) -> None:
    context = getattr(error, "ctx", None)
    output.say(error.format_message(), "error")
    if context is not None:
        output.say(f"see '{context.command_path} --help'")


def report_error(error: KanalyzeError, kind: str = "error") -> None:
    """Say an error on standard error, its place and caret included."""
    if isinstance(error, InputError):
        spot = error.spot
        if spot is not None:
            before = " " * min(spot.window.start, len(spot.text))
            text = before + output.pictured(spot.text[spot.window])
            spot = SourceSpot(escaped(spot.file), spot.line, spot.column, text)
        file = escaped(error.file) if error.file else None
        error = InputError(error.message, spot, file)
    output.say(str(error), kind)


def report_errors(errors: Iterable[InputError], kind: str = "error") -> None:
    """Say errors: the first ones of each file, and how many more there are."""
    counts: Counter[str] = Counter()
    for error in errors:
        file = error.file or ""
        counts[file] += 1
        if counts[file] <= MOST_MESSAGES:
            report_error(error, kind)
    for file, count in counts.items():
        if count > MOST_MESSAGES:
            output.say(f"{escaped(file)}: and {count - MOST_MESSAGES:,} more", kind)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    output.say(str(message), "warning")


@click.group(
    cls=Overview,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    invoke_without_command=True,
)
@click.option("--version", is_flag=True, help="Show the version and exit.")
@click.pass_context
def cli(context: click.Context, version: bool) -> None:
    """Static analysis of GPU kernels: what a kernel's assembly does, without a GPU.

    \b
    Examples:
      kanalyze ptx gelu                         the annotated report of a bundled kernel
      kanalyze ptx my_kernels.py:attention --signature "*fp16, *fp16, i32"
      kanalyze ptx dumped/*.ptx --quiet         one line for each kernel
      kanalyze compile softmax --arch sm_100 -o out

    A TARGET is a bundled kernel (see 'kanalyze list'), path/to/file.py:kernel, a .ptx file, or -.
    """
    if version:
        import kanalyze

        click.echo(f"kanalyze {kanalyze.__version__}")
        context.exit(0)
    if context.invoked_subcommand is None:
        click.echo(context.get_help())
