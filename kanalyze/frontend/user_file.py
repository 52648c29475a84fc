"""Running a Python file that holds kernels, and finding the kernels in it.

Bundled kernels and a user's files are loaded by the same function. The file is executed, as an
import would: only analyse files that you would also run. A statement that fails, for want of a
package or a GPU, does not keep the rest from being read: what an import would have bound is then a
`Missing`, which a kernel rarely needs, and a function stays without the decorator that failed.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import importlib.machinery
import importlib.util
import inspect
import linecache
import os
import re
import sys
import threading
import traceback
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, TextIO, cast

from kanalyze import cache
from kanalyze.errors import InputError, MissingToolError, SourceSpot

_lock = threading.RLock()
_siblings: set[str] = set()
"""Names of the modules that the file loaded last imported from its own folder."""


@dataclass(frozen=True, slots=True)
class UserModule:
    """A file that was run.

    Attributes:
        module: the module, complete but for the statements that failed.
        failed: those statements' errors, with the file of each, in order.
        missing: dotted names that imports could not provide, with the file and error of each.
        files: what it was made of: the file and the files of its folder that it imported, with
            their content.
    """

    module: ModuleType
    failed: list[tuple[Path, Exception | SystemExit]] = field(default_factory=list)
    missing: dict[str, tuple[Path, Exception | SystemExit]] = field(default_factory=dict)
    files: dict[Path, bytes] = field(default_factory=dict)

    def notes(self) -> tuple[str, ...]:
        """What was left out, in words for a report."""
        said = []
        if self.missing:
            said.append(f"could not be imported, and left out: {', '.join(self.missing)}")
        if self.failed:
            file, error = self.failed[0]
            spot = spot_of(error, file)
            more = f" ({len(self.failed)} statements in all)" if len(self.failed) > 1 else ""
            place = f"{spot.file}:{spot.line}" if spot else shown(file)
            said.append(f"{place}: not run{more}: {one_line(error)}")
        return tuple(said)

    def error(self) -> InputError | MissingToolError | None:
        """The first failure, for when what was looked for is not in the module."""
        for file, error in (*self.failed, *self.missing.values()):
            return _translated(error, file)
        return None


_loaded: dict[tuple[Path, object], UserModule] = {}


def load(path: Path, variant: object = None) -> UserModule:
    """Execute a Python file; unchanged files are executed once.

    The module is in ``sys.modules`` under a name made from the whole path, so two files of the same
    name do not meet. Imports from the file's own folder and package work; a package's own
    ``__init__`` is run only when something is taken from it. What the file prints goes to standard
    error.

    Args:
        path: the file.
        variant: what else the result depends on (the device that is stood in for).

    Raises:
        InputError: the file is missing or is not Python; with the place.
    """
    path = path.absolute()
    with _lock:
        source = _read(path)
        kept = _loaded.get((path, variant))
        if kept is not None and all(content(file) == was for file, was in kept.files.items()):
            return kept
        loaded = _loaded[path, variant] = _execute(path, source)
        return loaded


def content(file: Path) -> bytes:
    """Return a file's content, nothing where it cannot be read."""
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


def _execute(path: Path, source: bytes) -> UserModule:
    package, root = _package(path.parent)
    stem = re.sub(r"\W", "_", path.stem)
    name = f"{package + '.' if package else ''}_kanalyze_{stem}_{cache.key(str(path))[:12]}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise InputError("expected a Python file, with the ending .py", file=str(path))
    loaded = UserModule(importlib.util.module_from_spec(spec))
    finder = _OwnFiles(loaded, path.parent, root)
    with importable(path.parent, root), quiet_stdout():
        _forget_siblings()
        before = set(sys.modules)
        sys.modules[name] = loaded.module
        sys.meta_path.insert(0, finder)
        try:
            _run(loaded, loaded.module, path, source)
        except BaseException as error:
            sys.modules.pop(name, None)
            if isinstance(error, SyntaxError | ValueError):
                raise _translated(error, path) from error
            raise
        finally:
            sys.meta_path.remove(finder)
            files = _note_siblings(path.parent, before)
    loaded.files.update({file: content(file) for file in files} | {path: source})
    return loaded


def _run(loaded: UserModule, module: ModuleType, path: Path, source: bytes) -> None:
    """Execute a module's statements, one by one; note those that fail."""
    tree = compile(source, str(path), "exec", ast.PyCF_ONLY_AST, dont_inherit=True)
    assert isinstance(tree, ast.Module)
    module.__doc__ = ast.get_docstring(tree, clean=False)
    flags = 0
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and statement.module == "__future__":
            for alias in statement.names:
                flags |= getattr(__future__, alias.name).compiler_flag
        part = ast.Module([statement], [])
        try:
            exec(compile(part, str(path), "exec", flags, dont_inherit=True), module.__dict__)
        except (Exception, SystemExit) as error:
            if isinstance(statement, ast.Import | ast.ImportFrom):
                for name in _stand_in(module, statement):
                    loaded.missing.setdefault(name, (path, error))
                if isinstance(error, ImportError):
                    continue
            elif isinstance(statement, ast.FunctionDef):
                _with_fewer_decorators(module, path, statement, flags)
            elif isinstance(statement, ast.Assign):
                for node in statement.targets:
                    if isinstance(node, ast.Name):
                        module.__dict__.setdefault(node.id, Missing(node.id))
            loaded.failed.append((path, error))


def _with_fewer_decorators(
    module: ModuleType, path: Path, statement: ast.FunctionDef, flags: int
) -> None:
    """Define a function whose decorators fail with those below the ones that do."""
    while len(statement.decorator_list) > 1:
        statement.decorator_list = statement.decorator_list[1:]
        part = ast.Module([statement], [])
        with contextlib.suppress(Exception):
            exec(compile(part, str(path), "exec", flags, dont_inherit=True), module.__dict__)
            return


def _stand_in(module: ModuleType, statement: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Bind the names of a failed import to `Missing`; yield them in full."""
    for alias in statement.names:
        if isinstance(statement, ast.ImportFrom):
            origin = f"{statement.module}." if statement.module else ""
            name, bound = f"{origin}{alias.name}", alias.asname or alias.name
        else:
            name, bound = alias.name, alias.asname or alias.name.split(".")[0]
        if bound not in module.__dict__:
            module.__dict__[bound] = Missing(name)
            yield name


class Missing:
    """Stands for what an import could not provide.

    What is taken from it or returned by it is missing, too; as a decorator it returns the function;
    as a condition it is false.
    """

    def __init__(self, name: str, *_: object):
        self._name = name

    def __repr__(self) -> str:
        return f"<{self._name}, which could not be imported>"

    def __getattr__(self, name: str) -> Missing:
        if name.startswith("__"):
            raise AttributeError(name)
        return Missing(f"{self._name}.{name}")

    def __call__(self, *arguments: Any, **_: Any) -> Any:
        """Return the function that is decorated, else something that is missing, too."""
        if len(arguments) == 1 and (callable(arguments[0]) or inspect.isclass(arguments[0])):
            return arguments[0]
        return Missing(f"{self._name}()")

    def __bool__(self) -> bool:
        return False

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __getitem__(self, _: object) -> Missing:
        return self

    def __lt__(self, _: object) -> bool:
        return False

    __gt__ = __le__ = __ge__ = __lt__


class _OwnFiles:
    """Finds the modules beside a file and in the packages it lies in; they run as the file does."""

    def __init__(self, loaded: UserModule, *folders: Path):
        self._loaded = loaded
        self._folders = folders

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module, as `importlib.abc.MetaPathFinder` says."""
        if path is None:
            around = [folder.parent for folder in self._folders[0].parents if folder.name == name]
            path = [str(folder) for folder in (*self._folders, *around)]
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        loader = spec and spec.loader
        if isinstance(loader, importlib.machinery.SourceFileLoader):
            if "site-packages" in Path(loader.path).parts:
                return None
            spec.loader = _OwnLoader(self._loaded, loader)  # type: ignore[union-attr]
        return spec


class _OwnLoader(importlib.machinery.SourceFileLoader):
    """Runs a module statement by statement; a package only when something is taken from it."""

    def __init__(self, loaded: UserModule, plain: importlib.machinery.SourceFileLoader):
        super().__init__(plain.name, plain.path)
        self._loaded = loaded

    def exec_module(self, module: ModuleType) -> None:
        """Run the module, or prepare it to be run."""
        source = content(Path(self.path))
        if not self.is_package(module.__name__):
            return _run(self._loaded, module, Path(self.path), source)

        def taken(name: str) -> Any:
            if name != "__all__" and (name.startswith("__") or not _may_bind(source, name)):
                raise AttributeError(name)
            del module.__dict__["__getattr__"]
            _run(self._loaded, module, Path(self.path), source)
            return getattr(module, name)

        module.__dict__["__getattr__"] = taken


def _may_bind(source: bytes, name: str) -> bool:
    text = source.decode("utf-8", "replace")
    return "import *" in text or "__getattr__" in text or bool(re.search(rf"\b{name}\b", text))


def _package(folder: Path) -> tuple[str, Path]:
    """Return the dotted package that a folder is ("" for none) and the folder to import it from."""
    parts: list[str] = []
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts), folder


@contextlib.contextmanager
def importable(*folders: Path) -> Iterator[None]:
    """Put folders in front of ``sys.path`` for a while, without leaving byte code in them.

    The current folder is the same behind it as before.
    """
    current = current_folder()
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
        if current is not None:
            with contextlib.suppress(OSError):
                os.chdir(current)


def current_folder() -> str | None:
    """Return the current folder, None where it was deleted."""
    try:
        return os.getcwd()
    except OSError:
        return None


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
        return str(path.absolute().relative_to(current_folder() or "/"))
    except (ValueError, OSError):
        return str(path)


def own_names(module: ModuleType) -> dict[str, object]:
    """Return a module's global names and values, in the order of their definition."""
    return {
        name: value
        for name, value in vars(module).items()
        if not name.startswith("__") and not inspect.ismodule(value)
    }
