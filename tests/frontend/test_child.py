"""What a user's file does to its process, and that it costs the caller nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kanalyze.errors import InputError, UsageError
from kanalyze.frontend import child, user_file


@pytest.fixture(autouse=True)
def no_child() -> Iterator[None]:
    yield
    child.end()


def run(path: Path, name: str) -> Any:
    return os.getpid(), getattr(user_file.load(path).module, name, None)


def failing(path: Path) -> None:
    raise UsageError(f"{path.stem} is wrong")


def written(folder: Path, text: str) -> Path:
    path = folder / "kernels.py"
    path.write_text(text, "utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "how"),
    [
        ("import os\nos._exit(7)", "exit code 7"),
        ("import os\nos.abort()", "SIGABRT"),
        ("import os\nos.closerange(0, 100)", "exit code 1"),
    ],
)
def test_a_file_that_ends_its_process(text: str, how: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(InputError, match=rf"kernels\.py: .*ended the process \({how}\)"):
        child.call(path, run, path=path, name="x")
    path = written(tmp_path, "x = 1")  # another child is made
    assert child.call(path, run, path=path, name="x")[1] == 1


def test_a_file_that_changes_its_process(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = written(
        tmp_path,
        "import os, signal, sys, threading, time\nos.chdir('/')\nos.environ['CHANGED'] = '1'\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
        "os.write(1, b'by descriptor ')\nprint('by name')\nsys.stdin.read()\nx = os.getcwd()",
    )
    folder = os.getcwd()
    pid, there = child.call(path, run, path=path, name="x")
    assert there == "/"
    assert pid != os.getpid()
    assert (os.getcwd(), os.environ.get("CHANGED")) == (folder, None)
    assert threading.active_count() == 1
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    child.end()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    captured = capfd.readouterr()
    assert captured.out == ""
    assert "by descriptor by name\n" in captured.err


def test_a_file_is_run_once_and_each_has_a_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "import os\nx = os.environ.get('X', 'none')")
    first = child.call(path, run, path=path, name="x")
    assert child.call(path, run, path=path, name="x") == first
    monkeypatch.setenv("X", "some")
    second = child.call(path, run, path=path, name="x")
    assert second[1] == "some"
    other = tmp_path / "other.py"
    other.write_text("x = 2", "utf-8")
    assert len({first[0], second[0], child.call(other, run, path=other, name="x")[0]}) == 3


def test_errors_and_values_come_back(tmp_path: Path) -> None:
    path = written(tmp_path, "class Own:\n    def __str__(self): return 'own'\nx = [Own(), 2.5]")
    assert child.call(path, run, path=path, name="x")[1] == ["own", 2.5]
    with pytest.raises(UsageError, match="kernels is wrong"):
        child.call(path, failing, path=path)
    with pytest.raises(TypeError) as error:
        child.call(path, run, path=path)
    assert "Traceback" in "".join(error.value.__notes__)


def test_beside_other_threads_the_file_is_run_in_place(tmp_path: Path) -> None:
    path, wait = written(tmp_path, "x = 1"), threading.Event()
    thread = threading.Thread(target=wait.wait)
    thread.start()
    try:
        assert child.call(path, run, path=path, name="x") == (os.getpid(), 1)
    finally:
        wait.set()
        thread.join()


def test_a_child_ends_with_the_process_that_made_it(tmp_path: Path) -> None:
    path = written(tmp_path, "import time, sys\nprint('begun', file=sys.stderr)\ntime.sleep(1000)")
    script = (
        "from pathlib import Path; from kanalyze.frontend import child, user_file; import sys\n"
        "path = Path(sys.argv[1]); child.call(path, user_file.load, path=path)"
    )
    command = [sys.executable, "-c", script, str(path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        process.stderr.readline()  # the file is being run
        process.kill()
        assert process.stderr.read() == b""  # which waits until nobody can write to it
