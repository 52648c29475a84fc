"""Every command and output in the documents is real: they are run and compared.

In a fenced block of the language ``console``, a line that begins with ``$ `` is a command, what
follows is its output, and a line of three dots stands for any lines. Commands run in the root of
the checkout; ``kanalyze`` is the one under test.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow("runs whole commands")

ROOT = Path(__file__).parents[1]
DOCUMENTED_TRITON = "3.9."
DOCUMENTS = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def sessions(document: Path) -> list[tuple[int, str, list[str]]]:
    """Line number, command and expected output of each command in a document."""
    found: list[tuple[int, str, list[str]]] = []
    inside, indent = False, 0
    for number, text in enumerate(document.read_text("utf-8").splitlines(), 1):
        line = text[indent:] if inside else text.lstrip()
        if line.startswith("```"):
            inside = line == "```console"
            indent = len(text) - len(line) if inside else 0
        elif inside and line.startswith("$ "):
            found.append((number, line[2:], []))
        elif inside:
            found[-1][2].append(line.rstrip())
    return found


def cases() -> list[object]:
    return [
        pytest.param(command, expected, id=f"{document.name}:{number}")
        for document in DOCUMENTS
        for number, command, expected in sessions(document)
    ]


def matches(expected: list[str], actual: list[str]) -> bool:
    """Whether ``actual`` is ``expected``, where ``...`` stands for any lines."""
    pattern = "".join(
        r"(?:.*\n)*?" if line.strip() == "..." else re.escape(line) + r"\n" for line in expected
    )
    return re.fullmatch(pattern, "".join(line + "\n" for line in actual)) is not None


@pytest.mark.parametrize(("command", "expected"), cases())
def test_output_is_as_documented(command: str, expected: list[str], tmp_path: Path) -> None:
    triton = pytest.importorskip("triton")
    if not triton.__version__.startswith(DOCUMENTED_TRITON):
        pytest.skip(f"the documents show Triton {DOCUMENTED_TRITON}x")
    shims = tmp_path / "bin"
    shims.mkdir()
    shim = shims / "kanalyze"
    shim.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m kanalyze "$@"\n')
    shim.chmod(0o755)
    path = os.pathsep.join([str(shims), str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=ROOT,
        env={**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "100"},
        capture_output=True,
        text=True,
        check=False,
    )
    shown = (done.stdout + done.stderr).splitlines()
    actual = [line.rstrip() for line in shown]
    assert matches(expected, actual), "\n".join(["the command prints:", *actual])


def test_a_wrong_document_would_be_noticed() -> None:
    assert matches(["a", "...", "z"], ["a", "b", "c", "z"])
    assert not matches(["a", "...", "z"], ["a", "b", "c"])
    assert not matches(["a"], ["a", "b"])


def test_ci_runs_the_command_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    block = text.split("<!-- test -->", 1)[1].split("```", 2)[1].strip()
    found = subprocess.run(
        ["awk", "/<!-- test -->/ {f = 1; next} f && /^```$/ {exit} f && !/^```/", "README.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == block.partition("\n")[2].strip() or found.stdout.strip() == block
    assert "pytest" in block or "make check test" in block
