"""Where text goes: standard output, a file or a pager; and with what colours."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from kanalyze.cache import write_whole
from kanalyze.errors import InputError, system_reason
from kanalyze.text.safe import escaped, is_hostile

if TYPE_CHECKING:
    from kanalyze.text.page import Page

PIPED_WIDTH = 100
_ASCII = str.maketrans(
    {"─": "-", "│": "|", "┃": "|", "╭": ".", "╰": "`", "├": "+", "└": "`", "×": "x", "·": "-",
     "→": ">", "←": "<", "…": "...", "≤": "<=", "≥": ">=", "▌": "|", "┄": "-", "↳": ">", "✓": "ok"}
)  # fmt: skip


def pictured(text: str) -> str:
    """The text with hostile characters replaced one by one, so that a caret still fits."""
    return "".join(
        "\t" if c == "\t" else chr(0x2400 + ord(c)) if ord(c) < 32 else "\N{REPLACEMENT CHARACTER}"
        if is_hostile(c) else c
        for c in text
    )  # fmt: skip


def use_color(choice: str, stream: TextIO | None) -> bool:
    """Whether to colour what goes to a stream (None: a file).

    ``--color`` decides; "auto" heeds NO_COLOR (no-color.org), CLICOLOR_FORCE
    (bixense.com/clicolors), and whether the stream is a terminal.
    """
    if choice != "auto":
        return choice == "always"
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("CLICOLOR_FORCE", "0") not in ("", "0"):
        return True
    if stream is None or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def width_for(asked: int | None, to_file: bool) -> int:
    """Columns: as asked for, else the terminal's, else 100."""
    if asked is not None:
        return asked
    if not to_file and sys.stdout.isatty():
        return max(40, shutil.get_terminal_size((PIPED_WIDTH, 24)).columns)
    return PIPED_WIDTH


@dataclass(frozen=True)
class Destination:
    """Where the result of a command goes, and how it is shown, as asked for.

    Attributes:
        format: ``text``, ``json`` or another format of the command.
        color: ``auto``, ``always`` or ``never``.
        width: columns; None where they were not given.
        pager: whether long text may be paged.
        file: the file; None or ``-`` for standard output.
    """

    format: str
    color: str
    width: int | None = None
    pager: bool = False
    file: str | None = None

    @property
    def columns(self) -> int:
        """How wide text may be."""
        return width_for(self.width, self._stream is None)

    @property
    def colored(self) -> bool:
        """Whether text has colours."""
        return use_color(self.color, self._stream)

    @property
    def _stream(self) -> TextIO | None:
        return sys.stdout if self.file in (None, "-") else None

    def page(self) -> Page:
        """An empty page as wide as text may be."""
        from kanalyze.text.page import Page

        return Page(self.columns)

    def show(self, page: Page) -> None:
        """Deliver a page."""
        self.text(page.text(self.colored))

    def text(self, text: str) -> None:
        """Deliver a text to read, through a pager where that helps."""
        deliver(text, self.file, self.pager)

    def data(self, text: str) -> None:
        """Deliver a text for programs."""
        deliver(text, self.file)

    def json(self, document: object) -> None:
        """Deliver a document as JSON."""
        from kanalyze.text.plain import dumps

        self.data(dumps(document))


def open_streams() -> None:
    """Put something in the place of standard streams that were closed when the process started.

    What is written to standard output, and read from standard input, then fails as it does
    elsewhere on a closed file; messages go nowhere.
    """
    if sys.stdin is None:
        sys.stdin = os.fdopen(_null(0, os.O_WRONLY), "r", closefd=False)
    if sys.stdout is None:
        sys.stdout = os.fdopen(_null(1, os.O_RDONLY), "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(_null(2, os.O_WRONLY), "w", closefd=False)


def _null(number: int, flags: int) -> int:
    """Open the empty device under a file descriptor."""
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
    return number


def unwritten(error: OSError) -> InputError:
    """The error that standard output cannot be written; lets go of it."""
    close_stdout()
    return InputError(f"cannot be written: {system_reason(error)}", file="standard output")


def say(message: str, kind: str = "") -> None:
    """Write a message to standard error; ``kind`` ("error", "warning") stands in front of it."""
    text = escaped(message, "\n\t")
    if kind:
        head = f"{kind}:"
        if use_color("auto", sys.stderr):
            head = f"\x1b[1;{31 if kind == 'error' else 33}m{head}\x1b[0m"
        text = f"{head} {text}"
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        _write(sys.stderr, text + "\n")


def deliver(text: str, file: str | None, pager: bool = False) -> None:
    """Write a result to a file, or to standard output (through a pager where that helps).

    Raises:
        InputError: it cannot be written.
    """
    if text and not text.endswith("\n"):
        text += "\n"
    if file is not None and file != "-":
        write_file(Path(file), text)
        return
    if pager and sys.stdout.isatty():
        size = shutil.get_terminal_size()
        if text.count("\n") >= size.lines and _paged(text):
            return
    try:
        _write(sys.stdout, text)
    except BrokenPipeError:
        close_stdout()
    except OSError as error:
        raise unwritten(error) from None


def write_file(path: Path, text: str) -> None:
    """Write a file whole or not at all.

    Raises:
        InputError: the folder is missing, or the file cannot be written.
    """
    path = Path(os.path.realpath(path)) if os.path.islink(path) else path
    if not os.path.isdir(path.parent):
        raise InputError(f"there is no folder {path.parent}", file=str(path))
    data = text.encode("utf-8", "backslashreplace")
    try:
        if path.exists() and not path.is_file():  # a device or a pipe (or a folder: an error)
            path.write_bytes(data)
            return
        mask = os.umask(0)
        os.umask(mask)
        write_whole(path, data, path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", file=str(path)) from None


def close_stdout() -> None:
    """Let go of standard output after its reader did, so that the exit is silent."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
    except (OSError, ValueError):
        return


def _write(stream: TextIO, text: str) -> None:
    encoding = stream.encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        text = text.translate(_ASCII).encode(encoding, "backslashreplace").decode(encoding)
    stream.write(text)
    stream.flush()


def _paged(text: str) -> bool:
    """Show text in ``$PAGER`` (less, if not set) as git does; False where there is none."""
    command = os.environ.get("PAGER", "less")
    if command.strip() in ("", "cat"):
        return False
    if not shutil.which(command.split()[0]):
        return False
    environment = {"LESS": "FRX", "LV": "-c", **os.environ}
    process = subprocess.Popen(command, shell=True, stdin=subprocess.PIPE, env=environment)
    assert process.stdin is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(text.encode("utf-8", "backslashreplace"))
            process.stdin.close()
        while True:  # Ctrl-C is the pager's
            try:
                process.wait()
                return True
            except KeyboardInterrupt:
                continue
    finally:
        with contextlib.suppress(OSError):
            process.stdin.close()
