"""``kanalyze resources``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kanalyze.cli import options, output
from kanalyze.errors import InputError, KanalyzeError, UsageError, system_reason

if TYPE_CHECKING:
    from kanalyze.toolchain.ptxas_log import Message, Text, Usage

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
    from kanalyze.render import resources_text

    if not files:
        raise UsageError("give a FILE, or - for standard input (see 'kanalyze resources --help')")
    if files.count("-") > 1:
        raise UsageError("standard input (-) can be read only once")
    wanted = _pattern(match)
    texts: list[tuple[str, Text]] = []
    skipped: list[dict[str, Any]] = []
    code = 0
    for name in files:
        try:
            text = _read(name)
        except KanalyzeError as error:
            report_error(error)
            reason = error.message if isinstance(error, InputError) else str(error)
            skipped.append({"file": name, "line": 0, "reason": reason})
            code = max(code, error.exit_code)
            continue
        shown = "<stdin>" if name == "-" else name
        texts.append((shown, _chosen(text, wanted, sort)))
        skipped += [{"file": shown, "line": u.line, "reason": f"{u.text[:200]}: {u.reason}"}
                    for u in text.unread]  # fmt: skip
        for unread in text.unread:
            output.say(f"{shown}:{unread.line}: left out: {unread.reason}", "warning")
        for message in text.messages:
            if message.severity in _FATAL:
                output.say(f"{shown}:{message.line}: {message.text}", "error")
                code = InputError.exit_code
        if not text.usages:
            report_error(InputError(_NOTHING, file=shown))
            code = InputError.exit_code
    if not any(text.usages for _, text in texts):
        if match is not None and code == 0:
            output.say(f"no kernel's name matches '{match}'", "warning")
        if to.format == "text":
            return code
    usages = [usage for _, text in texts for usage in text.usages]
    failed = resources_text.failed(usages, max_registers, max_spills)
    if to.format == "json":
        _json(texts, skipped, failed, to)
    else:
        _text(texts, to)
    for usage, reason in failed:
        output.say(f"{resources_text.shown_name(usage)}: {reason}", "error")
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


def _chosen(text: Text, wanted: re.Pattern[str] | None, sort: str) -> Text:
    """The functions asked for, in the order asked for."""
    from dataclasses import replace

    from kanalyze.render.resources_text import shown_name, spilled

    chosen = [
        u
        for u in text.usages
        if wanted is None or wanted.search(u.name) or wanted.search(shown_name(u))
    ]
    if sort != "file":
        values: dict[str, Callable[[Usage], int | None]] = {
            "registers": lambda usage: usage.registers,
            "spills": spilled,
            "stack": lambda usage: usage.local_memory_bytes,
            "shared": lambda usage: usage.shared_bytes,
        }
        chosen.sort(key=lambda usage: -(values[sort](usage) or 0))
    return replace(text, usages=tuple(chosen))


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


def _text(texts: list[tuple[str, Text]], to: output.Destination) -> None:
    from kanalyze.render.resources_text import show, shown_name, unknown

    page = to.page()
    for name, text in texts:
        if not text.usages:
            continue
        page.blank()
        show(page, name, text.usages)
        for message in text.messages:
            page.line((f"  {message.severity}: {message.text}", "dim"),
                      (f"  (line {message.line})", "dim"), hang=4)  # fmt: skip
        for usage in text.usages:
            for field, reason in unknown(usage):
                if field == "shared_bytes":
                    page.line((f"  {shown_name(usage)}: {field}: {reason}", "warn"), hang=4)
    to.show(page)


def _json(
    texts: list[tuple[str, Text]],
    skipped: list[dict[str, Any]],
    failed: list[tuple[Usage, str]],
    to: output.Destination,
) -> None:
    from kanalyze.render.resources_text import unknown

    rows = [(name, usage) for name, text in texts for usage in text.usages]
    data = {
        "schema": "kanalyze.resources/1",
        "kernels": [_plain(name, usage) for name, usage in rows],
        "messages": [
            {"file": name, **_message(message)} for name, text in texts for message in text.messages
        ],
        "failed": [
            {"name": usage.name, "architecture": usage.architecture, "reason": reason}
            for usage, reason in failed
        ],
        "skipped": skipped,
        "unknown": [
            {"field": f"{usage.name}: {field}", "reason": reason}
            for _, usage in rows
            for field, reason in unknown(usage)
        ],
    }
    to.json(data)


def _message(message: Message) -> dict[str, Any]:
    return {"line": message.line, "severity": message.severity, "text": message.text}


def _plain(name: str, usage: Usage) -> dict[str, Any]:
    from kanalyze.render.resources_text import notes, shown_name

    return {
        "file": name,
        "line": usage.line,
        "name": usage.name,
        "demangled": shown if (shown := shown_name(usage)) != usage.name else None,
        "kernel": usage.kernel,
        "tool": usage.tool,
        "architecture": usage.architecture,
        "registers": usage.registers,
        "spill_store_bytes": usage.spill_store_bytes,
        "spill_load_bytes": usage.spill_load_bytes,
        "stack_bytes": usage.stack_bytes,
        "cumulative_stack_bytes": usage.cumulative_stack_bytes,
        "local_bytes": usage.local_bytes,
        "shared_bytes": usage.shared_bytes,
        "barriers": usage.barriers,
        "constant_bytes": {str(bank): size for bank, size in usage.constant_bytes},
        "textures": usage.textures,
        "surfaces": usage.surfaces,
        "samplers": usage.samplers,
        "compile_time_us": None if usage.compile_ms is None else round(usage.compile_ms * 1000, 3),
        "times": usage.times,
        "notes": list(notes(usage)),
        "messages": [_message(message) for message in usage.messages],
    }
