"""kanalyze as a process: streams, signals, pipes, and what is imported."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("runs whole commands")

Process = Callable[..., subprocess.CompletedProcess[str]]
ROOT = Path(__file__).parents[2]
HEAVY = ("triton", "torch", "lark", "networkx", "numpy", "rich")


def modules_after(code: str) -> set[str]:
    listing = "import sys; print('\\n'.join(sys.modules), file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\n{listing}"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return {name.partition(".")[0] for name in done.stderr.split()}


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["ptx", "--help"]])
def test_help_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        "from kanalyze.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as error:\n    assert not error.code"
    )
    loaded = modules_after(code)
    assert "kanalyze" in loaded
    assert not loaded & set(HEAVY)


def test_list_works_without_triton() -> None:
    code = (
        "import sys\nsys.modules['triton'] = None\n"
        "from kanalyze.cli import main\n"
        "try:\n    main(['list'])\nexcept SystemExit as error:\n    assert not error.code"
    )
    assert "numpy" not in modules_after(code)


def test_results_go_to_standard_output_and_the_rest_to_standard_error(process: Process) -> None:
    done = process("ptx", "gelu", "missing.ptx", "-q")
    assert done.returncode == 3
    assert "gelu_kernel" in done.stdout
    assert "missing.ptx" not in done.stdout
    assert done.stderr == "error: missing.ptx: No such file or directory\n"


def test_a_reader_that_leaves_early(process: Process, shared_cache: Path) -> None:
    process("ptx", "flash_attention", "--arch", "sm_100", "-q", "--no-proof")
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", f"{sys.executable} -m kanalyze ptx flash_attention"
         " --arch sm_100 --no-proof --format json --listing | head -1"],
        cwd=ROOT, capture_output=True, text=True,
        env={**os.environ, "KANALYZE_CACHE_DIR": str(shared_cache)},
    )  # fmt: skip
    assert done.stdout == "{\n"
    assert done.stderr == ""
    assert done.returncode == 0


def test_ctrl_c_while_compiling(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "kanalyze", "ptx", "flash_attention", "--arch", "sm_100"],
        cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "KANALYZE_CACHE_DIR": str(tmp_path / "cache")},
    )  # fmt: skip
    deadline = time.monotonic() + 60
    while not (tmp_path / "cache" / "triton").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    # CPython may die by the signal itself (a shell shows 130, too) if it was inside of exec().
    assert process.returncode in (130, -signal.SIGINT)
    assert out == ""
    assert "Traceback" not in err
    assert "interrupted" in err


def test_a_full_disk_is_an_error(process: Process) -> None:
    with open("/dev/full", "w") as full:
        done = process("list", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 3
    assert done.stderr == "error: standard output: cannot be written: No space left on device\n"


def test_a_terminal_that_knows_ascii_only(process: Process) -> None:
    done = process("ptx", "gelu", env={"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()
    assert "ld.global 2 x v4.b32" in done.stdout


def test_only_long_text_on_a_terminal_is_paged(shared_cache: Path) -> None:
    pty = pytest.importorskip("pty")

    def run(*arguments: str) -> str:
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ |= {"PAGER": "sed s/^/paged:/", "TERM": "xterm", "LINES": "24"}
            os.execv(sys.executable, [sys.executable, "-m", "kanalyze", *arguments])
        shown = b""
        try:
            while piece := os.read(terminal, 65536):
                shown += piece
        except OSError:
            pass
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        return shown.decode()

    shown = run("ptx", "gelu")
    assert "paged:" in shown
    assert "\x1b[" in shown
    assert "paged:" not in run("ptx", "gelu", "--no-pager")
    assert "paged:" not in run("ptx", "gelu", "--quiet")


def test_the_module_and_the_script_are_the_same(process: Process) -> None:
    done = process("--version")
    code = "import sys; sys.argv = ['kanalyze', '--version']; from kanalyze.cli import main; main()"
    script = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == script.stdout != ""


# ------------------------------------------------------------------ streams that are closed or full

GOOD = """\
.version 8.0
.target sm_80
.address_size 64
.visible .entry good()
{
    ret;
}
"""


@pytest.fixture
def shell(shared_cache: Path, tmp_path: Path) -> Callable[[str], tuple[int, str, str]]:
    """Run a line of bash, in which K is kanalyze; good.ptx lies in the folder."""
    (tmp_path / "good.ptx").write_text(GOOD)

    def run(line: str, unbuffered: str = "") -> tuple[int, str, str]:
        done = subprocess.run(
            ["bash", "-c", f'K() {{ "{sys.executable}" -m kanalyze "$@"; }}\n{line}'],
            cwd=tmp_path, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
            env={**os.environ, "KANALYZE_CACHE_DIR": str(shared_cache), "PYTHONPATH": str(ROOT),
                 "PYTHONUNBUFFERED": unbuffered},
        )  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    return run


Shell = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("command", ["list", "ptx good.ptx -q", "--help", "--version", "cfg -h"])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_standard_output_closed_or_full(shell: Shell, command: str, unbuffered: str) -> None:
    for where, why in ((">&-", "it is closed"), (">/dev/full", "No space left on device")):
        said = f"error: standard output: cannot be written: {why}\n"
        assert shell(f"K {command} {where}", unbuffered) == (3, "", said)


def test_standard_output_closed_but_not_used(shell: Shell, tmp_path: Path) -> None:
    assert shell("K list -o list.txt >&-") == (0, "", "")
    assert "gelu" in (tmp_path / "list.txt").read_text()


def test_standard_error_closed(shell: Shell) -> None:
    assert shell("K ptx /nonexist.ptx 2>&-") == (3, "", "")
    assert shell("K ptx --nonsense 2>&-") == (2, "", "")
    assert shell("K ptx /nonexist.ptx >&- 2>&- <&-") == (3, "", "")


@pytest.mark.parametrize("command", ["ptx", "cfg"])
def test_standard_input_closed(shell: Shell, command: str) -> None:
    code, out, err = shell(f"K {command} - <&-")
    assert (code, out) == (3, "")
    assert "cannot be read: it is closed" in err


# ------------------------------------------------------------------ pipes, devices, paths


def test_pipes_are_read(shell: Shell) -> None:
    for line in ("K ptx <(cat good.ptx) -q", "mkfifo p.ptx; cat good.ptx > p.ptx & K ptx p.ptx -q",
                 "K cfg <(cat good.ptx)", "cat good.ptx | K ptx /dev/stdin -q"):  # fmt: skip
        code, out, err = shell(line)
        assert (code, err) == (0, "")
        assert "good" in out


def test_devices(shell: Shell) -> None:
    for command in ("ptx", "cfg"):
        code, _, err = shell(f"K {command} /dev/null")
        assert code == 3
        assert "found an empty file" in err
    for line in ("K ptx /dev/zero", "ln -s /dev/zero z.ptx; K ptx z.ptx",
                 "ln -s /dev/zero z.cubin; K ptx z.cubin", "ln -s /dev/zero z.cu; K cfg z.cu",
                 "ln -s /dev/zero z.py; K ttir z.py:k", "K ptx --launch /dev/zero",
                 "K ptx - </dev/zero"):  # fmt: skip
        code, _, err = shell(line)
        assert code == 3, line
        assert "this is neither a file nor a pipe" in err


def test_the_current_folder_is_gone(shell: Shell) -> None:
    for command in ("ptx", "cfg", "ttir"):
        code, out, err = shell(f"mkdir d; cd d; rmdir ../d; K {command} x.py:k")
        assert (code, out) == (3, "")
        assert "internal" not in err
