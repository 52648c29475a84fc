"""Running a Python file that holds kernels, and finding the kernels in it.

Bundled kernels and a user's files are loaded by the same function. The file is executed, as an
import would: only analyse files that you would also run.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TextIO, cast

from kanalyze import cache
from kanalyze.errors import InputError, MissingToolError, SourceSpot

_lock = threading.RLock()
_loaded: dict[Path, tuple[dict[Path, bytes], ModuleType]] = {}
"""Each file's module, with the content of the files of its folder that it was made of."""

_siblings: set[str] = set()
"""Names of the modules that the file loaded last imported from its own folder."""


def load(path: Path) -> ModuleType:
    """Execute a Python file and return it as a module; unchanged files are executed once.

    The module is in ``sys.modules`` under a name made from the whole path, so two files of the same
    name do not meet. Imports from the file's own folder work (relative ones too, where the folder
    is a package). What the file prints goes to standard error.

    Raises:
        InputError: the file is missing, is not Python, or fails while it runs; with the place.
        MissingToolError: it imports a package that is not installed.
    """
    path = path.absolute()
    with _lock:
        source = _read(path)
        kept = _loaded.get(path)
        if kept is not None and all(_content(file) == was for file, was in kept[0].items()):
            return kept[1]
        module, files = _execute(path, source)
        _loaded[path] = ({file: _content(file) for file in files} | {path: source}, module)
        return module


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _read(path: Path) -> bytes:
    if path.is_dir():
        raise InputError("this is a directory, expected a Python file", file=str(path))
    try:
        return path.read_bytes()
    except ValueError as error:  # a null byte in the name
        raise InputError(str(error), file=repr(str(path))) from None
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else error.strerror
        raise InputError(f"{reason}, expected a Python file", file=str(path)) from None


def _execute(path: Path, source: bytes) -> tuple[ModuleType, list[Path]]:
    """Run the file; return its module and the files of its folder that it imported."""
    package, root = _package(path.parent)
    stem = re.sub(r"\W", "_", path.stem)
    name = f"{package + '.' if package else ''}_kanalyze_{stem}_{cache.key(str(path))[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("expected a Python file, with the ending .py", file=str(path))
    module = importlib.util.module_from_spec(spec)
    with importable(path.parent, root), quiet_stdout():
        _forget_siblings()
        before = set(sys.modules)
        sys.modules[name] = module
        try:
            code = compile(source, str(path), "exec", dont_inherit=True)
            exec(code, module.__dict__)
        except KeyboardInterrupt:
            sys.modules.pop(name, None)
            raise
        except BaseException as error:
            sys.modules.pop(name, None)
            raise _translated(error, path) from error
        finally:
            files = _note_siblings(path.parent, before)
    return module, files


def _package(folder: Path) -> tuple[str, Path]:
    """Return the dotted package that a folder is ("" for none) and the folder to import it from."""
    parts: list[str] = []
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


@contextlib.contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Put folders in front of ``sys.path`` for a while, without leaving byte code in them."""
    wanted = [str(folder) for folder in dict.fromkeys(folders)]
    dont_write, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path[:0] = wanted
    try:
        yield
    finally:
        for folder in wanted:
            with contextlib.suppress(ValueError):
                sys.path.remove(folder)
        sys.dont_write_bytecode = dont_write


@contextlib.contextmanager
def quiet_stdout() -> Iterator[None]:
    """Send what Python code or a process it starts prints to standard error for a while.

    Control characters that the Python code prints, to either stream, are escaped.
    """
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()
    try:
        saved = os.dup(1)
        os.dup2(2, 1)
    except OSError:  # one of the two is closed
        saved = None
    try:
        stream = sys.stderr
        if stream is not None and not isinstance(stream, _Escaping):
            stream = cast(TextIO, _Escaping(stream))
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield
    finally:
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


class _Escaping:
    """A text stream before which nothing steers the terminal."""

    def __init__(self, stream: TextIO):
        self._stream = stream

    def write(self, text: str) -> int:
        """Write a text with its control characters as escapes."""
        self._stream.write(
            "".join(
                c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode()
                for c in text
            )
        )
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _forget_siblings() -> None:
    """Make the next file import its own siblings, as they are now."""
    for name in _siblings:
        sys.modules.pop(name, None)
    _siblings.clear()
    importlib.invalidate_caches()
    linecache.clearcache()  # Triton reads sources through it; it trusts size and time of change


def _note_siblings(folder: Path, before: set[str]) -> list[Path]:
    files = []
    for name in set(sys.modules) - before:
        file = getattr(sys.modules[name], "__file__", None)
        if file and Path(file).is_relative_to(folder) and "site-packages" not in Path(file).parts:
            files.append(Path(file))
            if "_kanalyze_" not in name:
                _siblings.add(name)
    return files


# --- errors of a user's code ---------------------------------------------------------------------


def _translated(error: BaseException, path: Path) -> InputError | MissingToolError:
    if isinstance(error, InputError | MissingToolError):
        return error
    spot = spot_of(error, path)
    if isinstance(error, ModuleNotFoundError) and error.name:
        missing = error.name.split(".")[0]
        folder_has_it = (path.parent / missing).exists() or (path.parent / f"{missing}.py").exists()
        if (
            not folder_has_it
            and missing not in sys.stdlib_module_names
            and not _is_installed(missing)
        ):
            where = f"{spot.file}:{spot.line}" if spot else str(path)
            package = {"cv2": "opencv-python", "yaml": "pyyaml", "PIL": "pillow"}.get(missing)
            return MissingToolError(
                f"{where}: imports '{missing}', which is not installed: "
                f"pip install {package or missing}"
            )
    if isinstance(error, SystemExit):
        message = f"the file ends the program while it is loaded (SystemExit: {error.code})"
        return InputError(message + "; expected definitions only", spot, str(path))
    return InputError(one_line(error), spot, str(path))


def _is_installed(name: str) -> bool:
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def one_line(error: BaseException, limit: int = 300) -> str:
    """Return ``Type: message`` of an exception, on one line of at most ``limit`` characters."""
    if isinstance(error, SyntaxError):
        text = f"{type(error).__name__}: {error.msg}"
    else:
        text = "".join(traceback.format_exception_only(error)).strip()
        text = re.sub(r"^[\w.]*\.(\w+(?::|$))", r"\1", text)
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def spot_of(error: BaseException, path: Path) -> SourceSpot | None:
    """Return the innermost place in the user's folder that an exception came through."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        text = (error.text or line_of(Path(error.filename), error.lineno)).rstrip("\n")
        return SourceSpot(shown(Path(error.filename)), error.lineno, error.offset or 1, text)
    best: SourceSpot | None = None
    trace = error.__traceback__
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        if file.is_relative_to(path.parent) and "site-packages" not in file.parts:
            line, column = _position(trace)
            best = SourceSpot(shown(file), line, column, line_of(file, line))
        trace = trace.tb_next
    return best


def _position(trace: TracebackType) -> tuple[int, int]:
    positions = list(trace.tb_frame.f_code.co_positions())
    line, _, column, _ = positions[trace.tb_lasti // 2]
    return line or trace.tb_lineno, (column or 0) + 1


def line_of(file: Path, line: int) -> str:
    """Return the text of a 1-based line, "" where there is none."""
    try:
        lines = file.read_text("utf-8", "replace").splitlines()
    except OSError:
        return ""
    return lines[line - 1] if 0 < line <= len(lines) else ""


def shown(path: Path) -> str:
    """Return a path as messages show it: relative where it lies below the current folder."""
    try:
        return str(path.absolute().relative_to(Path(os.getcwd())))
    except (ValueError, OSError):
        return str(path)


def own_names(module: ModuleType) -> dict[str, object]:
    """Return a module's global names and values, in the order of their definition."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__") and not inspect.ismodule(value)
    }
