"""Records as files and archives: whole, the same bytes each time, no paths of a machine."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from kanalyze.errors import InputError
from kanalyze.measured.records.reader import read_records
from kanalyze.measured.records.writer import pack, relative, without_paths, write_record
from kanalyze.toolchain import tools

ROOT = Path(__file__).parents[3]
SAMPLE = ROOT / "samples" / "h200_records" / "gelu_unaligned"


def sample() -> tuple[dict[str, Any], str, bytes]:
    data = json.loads(SAMPLE.with_suffix(".json").read_text())
    return data, SAMPLE.with_suffix(".ptx").read_text(), SAMPLE.with_suffix(".cubin").read_bytes()


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    data, ptx, cubin = sample()
    path = write_record(tmp_path / "new", "one", data, ptx, cubin)
    assert sorted(os.listdir(tmp_path / "new")) == ["one.cubin", "one.json", "one.ptx"]
    (record,), skipped = read_records(str(path))
    assert skipped == []
    assert record.data["counters"] == data["counters"]
    assert record.launch.grid == tuple(data["grid"])


def test_the_same_records_give_the_same_archive(tmp_path: Path) -> None:
    data, ptx, cubin = sample()
    for folder in ("a", "b"):
        for stem in ("x", "y") if folder == "a" else ("y", "x"):
            write_record(tmp_path / folder, stem, {**data, "case": stem}, ptx, cubin)
        (tmp_path / folder / "notes.txt").write_text("left out")
        (tmp_path / folder / "summary.json").write_text("{}")  # no record: no PTX beside it
        os.utime(tmp_path / folder / "x.json", (1, 1))
        assert pack(tmp_path / folder, tmp_path / f"{folder}.tar.xz") == 2
    assert (tmp_path / "a.tar.xz").read_bytes() == (tmp_path / "b.tar.xz").read_bytes()
    with tarfile.open(tmp_path / "a.tar.xz") as archive:
        members = archive.getmembers()
    assert sorted(m.name for m in members) == [
        f"{stem}.{end}" for stem in "xy" for end in ("cubin", "json", "ptx")
    ]
    assert {(m.mtime, m.uid, m.uname) for m in members} == {(0, 0, "")}
    records, skipped = read_records(str(tmp_path / "a.tar.xz"))
    assert (len(records), skipped) == (2, [])


def test_paths_of_the_machine_are_gone(shared_cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    compiled = compile_kernel("softmax", settings={"M": 5, "N": 77})
    folder = str(ROOT / "kernels")
    assert folder in compiled.ptx
    assert folder.encode() in compiled.cubin
    ptx, cubin = without_paths(compiled.ptx, compiled.cubin)
    assert cubin is not None
    assert '"softmax.py"' in ptx
    assert '"triton/language/standard.py"' in ptx
    for text in (str(ROOT), "site-packages"):
        assert text not in ptx
        assert text.encode() not in cubin
    # nothing has moved, and the machine code is the same
    assert len(cubin) == len(compiled.cubin)
    code = [tools.disassemble(one).split("//--")[-1] for one in (cubin, compiled.cubin)]
    strip = ["\n".join(x for x in c.splitlines() if "//## File" not in x) for c in code]
    assert strip[0] == strip[1]
    assert tools.cubin_resources(cubin) == tools.cubin_resources(compiled.cubin)


def test_paths() -> None:
    assert relative("/opt/x/site-packages/triton/language/standard.py") == (
        "triton/language/standard.py"
    )
    assert relative("/home/me/own.py") == "own.py"
    text, cubin = without_paths('\t.file\t1 "own.py"\n\t.file\t2 "/a.py"\n', b"/x")
    assert text == '\t.file\t1 "own.py"\n\t.file\t2 "a.py"\n'
    assert cubin == b"/x"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    data, ptx, cubin = sample()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="cannot be written"):
        write_record(tmp_path / "file", "one", data, ptx, cubin)
    with pytest.raises(InputError, match="cannot be packed"):
        pack(tmp_path, tmp_path / "file" / "out.tar.xz")


def test_a_number_that_json_has_not_leaves_no_record(tmp_path: Path) -> None:
    data, ptx, cubin = sample()
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(tmp_path, "one", {**data, "x": float("nan")}, ptx, cubin)
    assert not (tmp_path / "one.json").exists()
