"""A child process for a user's file: what the file does to its process costs its target alone.

The child is forked, so that it has at once what is imported already; a new Python would import
Triton again, for seconds. Of a process with several threads only the one that forks lives on, and
what the others have locked stays locked: where there are any, the file is run in place, with less
around it. A child serves one file, which is run once; another file gets another one.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import io
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from types import FunctionType
from typing import Any, TypeVar

from kanalyze.errors import InputError, KanalyzeError
from kanalyze.frontend import user_file

_PR_SET_PDEATHSIG = 1  # linux/prctl.h

T = TypeVar("T")


@dataclass
class _Child:
    """A child, and what it was made for: a file, and the state of the process that made it."""

    key: tuple[Any, ...]
    pid: int
    connection: Connection

    def end(self) -> str:
        """End it, and say how it ended."""
        self.connection.close()
        if self.key[0] != os.getpid():  # a forked process inherited it
            return ""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


_child: _Child | None = None


def call(path: Path, function: Callable[..., T], /, **arguments: object) -> T:
    """Call a function, which runs a user's file, in the child of that file.

    Args:
        path: the file.
        function: what is called, by its name in its module.
        arguments: its arguments, which are sent, as is its result. Of a result, values of classes
            that only the user's file has become texts.

    Raises:
        InputError: the file ended the process, or something in it did.
        BaseException: what the function raises.
    """
    global _child
    if threading.active_count() > 1:
        return function(**arguments)
    key = (os.getpid(), path, user_file.current_folder(), dict(os.environ))
    if _child is None or _child.key != key:
        end()
        _child = _forked(key)
    try:
        _child.connection.send((function, arguments))
        answer: tuple[bool, Any] = pickle.loads(_child.connection.recv_bytes())
    except (EOFError, OSError):
        os.waitid(os.P_PID, _child.pid, os.WEXITED | os.WNOWAIT)
        how, _child = _child.end(), None
        message = f"running it, or compiling, ended the process ({how}); expected definitions only"
        raise InputError(message, file=user_file.shown(path)) from None
    except BaseException:  # Ctrl-C
        end()
        raise
    done, result = answer
    if done:
        return result  # type: ignore[no-any-return]
    raise result


@atexit.register
def end() -> None:
    """End the child that there is."""
    global _child
    if _child is not None:
        _child.end()
        _child = None


def _forked(key: tuple[Any, ...]) -> _Child:
    here, there = Pipe()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    with warnings.catch_warnings():  # of the idle threads of NumPy's libraries, from Python 3.12
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        there.close()
        return _Child(key, pid, here)
    try:
        here.close()
        _serve(there)
    finally:
        os._exit(1)


def _serve(connection: Connection) -> None:
    """Answer calls until the other side is closed; end with the process that made this one."""
    with contextlib.suppress(AttributeError, OSError):  # Linux alone has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    with contextlib.suppress(OSError):  # standard error is closed
        os.dup2(2, 1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.stdin = io.TextIOWrapper(io.FileIO(0, closefd=False))
    sys.stdout = sys.stderr = io.TextIOWrapper(
        io.FileIO(2, "w", closefd=False), "utf-8", "backslashreplace", write_through=True
    )
    while True:
        try:
            function, arguments = connection.recv()
        except EOFError:
            os._exit(0)
        try:
            answer = True, function(**arguments)
        except BaseException as error:
            if not isinstance(error, KanalyzeError):
                error.add_note(traceback.format_exc())
            answer = False, error
        data = io.BytesIO()
        _Pickler(data).dump(answer)
        connection.send_bytes(data.getvalue())


class _Pickler(pickle.Pickler):
    """Makes texts of what the other process has no class for."""

    def reducer_override(self, value: Any) -> Any:
        named = value if isinstance(value, type | FunctionType) else type(value)
        room = (named.__module__ or "").split(".")
        known = room[0] in sys.stdlib_module_names or room[0] in ("kanalyze", "triton", "numpy")
        if (known and room[:2] != ["triton", "runtime"]) or isinstance(value, BaseException):
            return NotImplemented
        return str, (str(value),)
