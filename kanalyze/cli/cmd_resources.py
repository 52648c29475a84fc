"""``kanalyze resources``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from kanalyze.cli import options, output
from kanalyze.errors import InputError, KanalyzeError, UsageError, system_reason

if TYPE_CHECKING:
    from kanalyze.results.resources import FileMessage, FunctionResources
    from kanalyze.toolchain.ptxas_log import Text

EXIT_PASSED = 1
_FATAL = ("error", "fatal")


@click.command("resources")
@click.argument("files", metavar="FILE...", nargs=-1)
@click.option("--max-registers", type=click.IntRange(0), metavar="N",
              help="Exit 1 where a kernel has more registers.")  # fmt: skip
@click.option("--max-spills", type=click.IntRange(0), metavar="BYTES",
              help="Exit 1 where spill stores and loads are more (0: no spills).")  # fmt: skip
@click.option("--sort", type=click.Choice(["file", "registers", "spills", "stack", "shared"]),
              default="file",
              help="Order of the kernels, the most first.  [default: file]")  # fmt: skip
@click.option("--match", metavar="REGEX", help="Only kernels in whose name this is found.")
@options.output_options(paged=True)
def command(
    files: tuple[str, ...],
    max_registers: int | None,
    max_spills: int | None,
    sort: str,
    match: str | None,
    to: output.Destination,
) -> int:
    """Registers, spills, stack and shared memory of kernels, read from build logs.

    FILEs (- for standard input) are build logs with the lines of 'ptxas -v' (nvcc -Xptxas -v,
    --resource-usage) of any age, or of nvlink; the output of 'cuobjdump -res-usage'; or .cubin and
    .ptx files. Lines of other programs in between do no harm.

    \b
    Examples:
      kanalyze resources build.log
      make 2>&1 | kanalyze resources - --max-registers 128 --max-spills 0
    """
    from kanalyze.cli.app import report_error
    from kanalyze.results import resources as doc
    from kanalyze.results.kernel import Skipped

    if not files:
        raise UsageError("give a FILE, or - for standard input (see 'kanalyze resources --help')")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    wanted = _pattern(match)
    texts: list[_FileResources] = []
    skipped: list[Skipped] = []
    code = 0
    for name in files:
        try:
            text = _read(name)
        except KanalyzeError as error:
            report_error(error)
            reason = error.message if isinstance(error, InputError) else str(error)
            skipped.append(Skipped(name, 0, reason))
            code = max(code, error.exit_code)
            continue
        shown = "<stdin>" if name == "-" else name
        texts.append(_chosen(shown, text, wanted, sort))
        for unread in text.unread:
            skipped.append(Skipped(shown, unread.line, f"{unread.text[:200]}: {unread.reason}"))
            output.say(f"{shown}:{unread.line}: left out: {unread.reason}", "warning")
        for message in text.messages:
            if message.severity in _FATAL:
                output.say(f"{shown}:{message.line}: {message.text}", "error")
                code = InputError.exit_code
        if not text.usages:
            report_error(InputError(_NOTHING, file=shown))
            code = InputError.exit_code
    functions = tuple(function for text in texts for function in text.functions)
    if not functions:
        if match is not None and code == 0:
            output.say(f"no kernel's name matches '{match}'", "warning")
        if to.format == "text":
            return code
    failed = list(doc.failures(functions, max_registers, max_spills))
    if to.format == "json":
        report = doc.ResourcesReport(
            kernels=functions,
            messages=tuple(message for text in texts for message in text.messages),
            failed=tuple(doc.ResourceFailure(f.name, f.architecture, why) for f, why in failed),
            skipped=tuple(skipped),
        )
        to.json(report)
    else:
        _text(texts, to)
    for function, reason in failed:
        output.say(f"{function.shown_name}: {reason}", "error")
    return code or (EXIT_PASSED if failed else 0)


_NOTHING = (
    "found nothing that a kernel needs, expected lines such as 'ptxas info    : Used 32 registers' "
    "(nvcc -Xptxas -v) or '  REG:32 STACK:0' (cuobjdump -res-usage)"
)


def _pattern(match: str | None) -> re.Pattern[str] | None:
    try:
        return re.compile(match) if match is not None else None
    except re.error as error:
        raise UsageError(f"--match '{match}' is not a regular expression: {error}") from None


@dataclass(frozen=True)
class _FileResources:
    """The functions of one file, and what else it says."""

    file: str
    functions: tuple[FunctionResources, ...]
    messages: tuple[FileMessage, ...]


def _chosen(file: str, text: Text, wanted: re.Pattern[str] | None, sort: str) -> _FileResources:
    """The functions asked for, in the order asked for."""
    from kanalyze.results.resources import file_message, function_resources

    chosen = [
        function
        for function in (function_resources(file, usage) for usage in text.usages)
        if wanted is None or wanted.search(function.name) or wanted.search(function.shown_name)
    ]
    if sort != "file":
        values: dict[str, Callable[[FunctionResources], int | None]] = {
            "registers": lambda function: function.registers,
            "spills": lambda function: function.spill_bytes,
            "stack": lambda function: function.local_memory_bytes,
            "shared": lambda function: function.shared_bytes,
        }
        chosen.sort(key=lambda function: -(values[sort](function) or 0))
    messages = tuple(file_message(file, message) for message in text.messages)
    return _FileResources(file, tuple(chosen), messages)


def _read(name: str) -> Text:
    """What a file says.

    Raises:
        KanalyzeError: it cannot be read, assembled or taken apart.
    """
    from kanalyze.frontend.files import standard_input
    from kanalyze.sass import cubin
    from kanalyze.toolchain import ptxas, ptxas_log, tools

    if name == "-":
        data = standard_input()
    else:
        try:
            data = Path(name).read_bytes()
        except OSError as error:
            raise InputError(system_reason(error), file=name) from None
        except ValueError as error:  # a NUL in the name
            raise InputError(str(error), file=name) from None
    if cubin.is_machine_code(data):
        try:
            return tools.usages_of_cubin(data)
        except InputError as error:
            raise InputError(error.message, file=name) from None
    text = ptxas_log.decoded(data)
    if re.search(r"^\s*\.version\s+\d", text, re.MULTILINE) and re.search(
        r"^\s*\.target\s", text, re.MULTILINE
    ):
        return ptxas.usages_of_ptx(text, name)
    return ptxas_log.read(text)


def _text(texts: list[_FileResources], to: output.Destination) -> None:
    from kanalyze.render.resources_text import show

    page = to.page()
    for text in texts:
        if text.functions:
            page.blank()
            show(page, text.file, text.functions, text.messages)
    to.show(page)
