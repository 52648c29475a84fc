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
    """Whether ``actual`` is ``expected``, where ``...`` stands for any lines.

    Each part between two of them is looked for once, from the end of the part before it.
    """
    parts: list[list[str]] = [[]]
    for line in expected:
        if line.strip() == "...":
            parts.append([])
        else:
            parts[-1].append(line)
    first, *others = parts
    if not others:
        return actual == first
    if actual[: len(first)] != first:
        return False
    at = len(first)
    for part in others[:-1]:
        places = range(at, len(actual) - len(part) + 1)
        place = next((i for i in places if actual[i : i + len(part)] == part), None)
        if place is None:
            return False
        at = place + len(part)
    last = others[-1]
    return len(actual) - len(last) >= at and actual[len(actual) - len(last) :] == last


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
    assert matches(["...", "b", "...", "b", "..."], ["a", "b", "b"])
    assert not matches(["...", "b", "...", "b", "..."], ["a", "b", "c"])
    assert not matches(["a", "...", "a"], ["a"])
    assert not matches(["...", "a"] * 9, ["a"] * 8 + ["b"] * 400)


def test_what_examples_import_is_there() -> None:
    text = "".join(document.read_text("utf-8") for document in DOCUMENTS)
    lines = re.findall(r"^(?:from kanalyze|import kanalyze)\b.*", text, re.MULTILINE)
    assert len(lines) > 5
    for line in lines:
        exec(line, {})


def test_ci_runs_the_command_of_the_readme() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    block = text.split("<!-- test -->", 1)[1].split("```", 2)[1].strip()
    found = subprocess.run(
        ["awk", "/<!-- test -->/ {f = 1; next} f && /^```$/ {exit} f && !/^```/", "README.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert found.stdout.strip() == block.partition("\n")[2].strip() or found.stdout.strip() == block
    assert "pytest" in block or "make check test" in block
