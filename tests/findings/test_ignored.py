"""Comments that leave findings out, and what looks like one and is none."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kanalyze.cli.app import cli
from kanalyze.findings.runner import unknown_ids
from kanalyze.findings.suppressions import comments, comments_at, suppressed
from kanalyze.source import SourceFile

pytestmark = pytest.mark.usefixtures("shared_cache")

SAMPLES = Path(__file__).parents[2] / "samples" / "findings"


@pytest.mark.parametrize(
    "comment",
    ["# kanalyze: ignore", "# kanalyze: ignore[narrow-access]", "# kanalyze:ignore[NARROW_ACCESS]",
     "# kanalyze: ignore [narrow-access]", "# why not; kanalyze: ignore[x, narrow-access]",
     "# kanalyze: ignore[waves] kanalyze: ignore[narrow-access]"],
)  # fmt: skip
def test_what_leaves_a_finding_out(comment: str) -> None:
    assert suppressed("narrow-access", [comment])


@pytest.mark.parametrize(
    "comment",
    ["# kanalyze: ignore[bank-conflicts]", "# kanalyze: ignore [bank-conflicts]",
     "# kanalyze: ignore[narrow-access", "# kanalyze: ignored by nobody", "# kanalyze: ignore[]",
     "# notkanalyze: ignore", "# ignore[narrow-access]"],
)  # fmt: skip
def test_what_does_not(comment: str) -> None:
    assert not suppressed("narrow-access", [comment])


def test_comments_of_ptx_and_cuda() -> None:
    assert comments("ld.global.f32 %f1, [%rd1]; // kanalyze: ignore") == [" kanalyze: ignore"]
    assert comments("x /* kanalyze: ignore[a] */ + y") == [" kanalyze: ignore[a] "]
    assert comments("no comment: kanalyze: ignore") == []


def test_a_comment_anywhere_in_a_statement(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text(
        "x = load(\n    a,\n    b,\n)  # kanalyze: ignore[narrow-access]\n"
        's = "# kanalyze: ignore"\n'
        "def f():\n    y = 1  # kanalyze: ignore\n    z = 2\n",
        "utf-8",
    )
    read = SourceFile.read(file)
    assert [bool(comments_at(read, line)) for line in range(1, 9)] == [
        True, True, True, True, False, False, True, False,
    ]  # fmt: skip


def test_lines_end_where_python_ends_them(tmp_path: Path) -> None:
    file = tmp_path / "k.py"
    file.write_text("a = 1  # form feed:\x0c \x0b \u2028\nb = 2\r\nc = 3\n", "utf-8")
    assert SourceFile.read(file).line(3) == "c = 3"


def test_an_unknown_id_is_said() -> None:
    assert unknown_ids(["# kanalyze: ignore[narow-access]"]) == [
        "'kanalyze: ignore[narow-access]' leaves nothing out: "
        "did you mean narrow-access or generic-access or uncoalesced-access?"
    ]
    assert unknown_ids(["# kanalyze: ignore[narrow-access]"]) == []


def found(path: Path) -> Any:
    line = ["ptx", str(path), "--no-proof", "--no-sass", "--format", "json"]
    done = CliRunner().invoke(cli, line)
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def test_in_a_source_file(tmp_path: Path) -> None:
    path = tmp_path / "fires.py"
    shutil.copy(SAMPLES / "narrow-access" / "fires.py", path)
    ids = [f["id"] for f in found(path)["kernels"][0]["findings"]]
    assert ids.count("narrow-access") == 2
    text = path.read_text("utf-8")
    path.write_text(
        text.replace(")\n    tl.store", ")  # kanalyze: ignore[narrow-access]\n    tl.store")
    )
    ids = [f["id"] for f in found(path)["kernels"][0]["findings"]]
    assert ids.count("narrow-access") == 1
    path.write_text(text.replace(")\n    tl.store", ")  # kanalyze: ignore[narow]\n    tl.store"))
    data = found(path)
    assert [f["id"] for f in data["kernels"][0]["findings"]].count("narrow-access") == 2
    assert any("ignore[narow]" in unknown["reason"] for unknown in data["unknown"])
