"""Instructions counted by the reader and by a dumb counter that knows no grammar.

On every bundled kernel for four architectures, and on the corpus of other producers where it is.
"""

from __future__ import annotations

import csv
import re
import tarfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kanalyze._bundled import folder
from kanalyze.errors import InputError
from kanalyze.ptx.cfg import build
from kanalyze.ptx.instructions import lookup
from kanalyze.ptx.ir import Module, Opaque
from kanalyze.ptx.lines import source_of
from kanalyze.ptx.memory import memory_access
from kanalyze.ptx.parse import parse_ptx, parse_ptx_modules

pytestmark = pytest.mark.slow("compiles every bundled kernel")

SHARED = Path(__file__).resolve().parents[3] / "shared" / "ptx"
KERNELS = sorted(path.stem for path in folder("kernels").glob("*.py"))
ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")

# Python before 3.11.4 has no filters
_SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def bodies(text: str) -> list[str]:
    """The text between the braces behind each ``.entry``/``.func``, comments and strings gone."""
    text = re.sub(r'"(?:[^"\\\r\n]|\\.)*"', '""', re.sub(r"/\*.*?\*/", " ", text, flags=re.S))
    text = re.sub(r"//[^\r\n]*", " ", text)
    found = []
    at = 0
    while header := re.compile(r"\.(?:entry|func)\b").search(text, at):
        at = header.end()
        depth = 0
        while at < len(text) and (depth or text[at] not in ";{"):
            depth += {"(": 1, ")": -1}.get(text[at], 0)
            at += 1
        if at >= len(text) or text[at] == ";":
            continue
        start, depth, at = at + 1, 1, at + 1
        while depth and at < len(text):
            depth += {"{": 1, "}": -1}.get(text[at], 0)
            at += 1
        found.append(text[start : at - 1])
    return found


def counted(text: str) -> Counter[str]:
    """Opcodes by cutting at semicolons and taking the first word."""
    opcodes: Counter[str] = Counter()
    for body in bodies(text):
        body = re.sub(r"\.loc\b[^\r\n]*", " ", body)
        for piece in body.split(";"):
            while True:
                cut = re.sub(r"^(?:[\s{}]+|[%$\w]+\s*:(?!:))", "", piece)
                if cut == piece:
                    break
                piece = cut
            piece = re.sub(r"^@!?\s*[%$\w]+\s*", "", piece)
            if piece and not piece.startswith("."):
                opcodes[re.split(r"[\s{\[(]", piece, maxsplit=1)[0]] += 1
    return opcodes


def check(text: str, *modules: Module) -> None:
    functions = [f for module in modules for f in module.functions]
    assert not [s for f in functions for s in f.body or () if isinstance(s, Opaque)]
    assert not [d for module in modules for d in module.diagnostics if d.severity == "error"]
    read = Counter(i.opcode for f in functions for i in f.instructions)
    assert read == counted(text)


def test_the_counter_itself():
    text = ".entry k(.param .u64 p)\n{ // mov\n.reg .b32 a;\nL: @p add.s32 a, a, 1; {ret;}\n}"
    assert counted(text) == {"add.s32": 1, "ret": 1}


@pytest.mark.parametrize("arch", ARCHS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_bundled_kernels(kernel, arch):
    pytest.importorskip("triton")
    from kanalyze.frontend.compile import compile_kernel

    text = compile_kernel(kernel, arch=arch).ptx
    module = parse_ptx(text)
    assert module.diagnostics == ()
    check(text, module)
    (entry,) = module.entries
    assert all(lookup(i) is not None for i in entry.instructions)
    cfg = build(entry)
    assert not cfg.unresolved
    assert not cfg.irreducible
    assert sum(len(b.instructions) for b in cfg.blocks) == len(list(entry.instructions))
    for instruction in entry.instructions:
        found = memory_access(instruction)
        if found is not None and found.space == "global":
            source = source_of(instruction.loc, module)
            if found.kind in ("load", "store", "async_copy"):
                assert source is not None
                assert source.file.endswith(f"{kernel}.py")
                assert source.line > 0


# ---------------------------------------------------------------- the corpora


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    if not (SHARED / "corpus.tar.gz").exists():
        pytest.skip("no corpus of PTX files beside the repository")
    place = tmp_path_factory.mktemp("corpus")
    for name in ("corpus", "odd"):
        with tarfile.open(SHARED / f"{name}.tar.gz") as archive:
            archive.extractall(place, **_SAFELY)
    return place


def rows(name: str) -> list[dict[str, str]]:
    with (SHARED / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))


def text_of(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "replace")


def test_every_valid_file_of_the_corpus_is_read(corpus):
    valid = [row["file"] for row in rows("INDEX.tsv") if row["ptxas"].startswith("OK")]
    assert len(valid) > 400
    unknown: Counter[str] = Counter()
    total = 0
    for file in valid:
        text = text_of(corpus / file)
        modules = parse_ptx_modules(text, file)
        check(text, *modules)
        for function in (f for module in modules for f in module.functions):
            total += sum(1 for _ in function.instructions)
            unknown.update(i.base for i in function.instructions if lookup(i) is None)
            assert not build(function).unresolved
    assert total > 300_000
    assert unknown == {}


def test_loads_and_stores_of_the_corpus(corpus):
    valid = {row["file"] for row in rows("INDEX.tsv") if row["ptxas"].startswith("OK")}
    for row in rows("COUNTS.tsv"):
        if row["file"] not in valid:
            continue
        text = text_of(corpus / row["file"])
        counts: Counter[str] = Counter()
        widths: dict[str, Counter[int]] = {"ld_global": Counter(), "st_global": Counter()}
        tensor_memory: Counter[str] = Counter()
        for module in parse_ptx_modules(text, row["file"]):
            for instruction in (i for f in module.functions for i in f.instructions):
                found = memory_access(instruction)
                if instruction.base in ("ld", "ldu", "st"):
                    key = f"{instruction.base[:2]}_{found.space}"
                    counts[key] += 1
                    if key in widths:
                        widths[key][found.bytes_per_thread] += 1
                elif instruction.opcode.startswith(("tcgen05.wait::ld", "tcgen05.wait::st")):
                    tensor_memory[f"{instruction.opcode[14:16]}_generic"] += 1
                elif found is not None and instruction.base in ("atom", "red"):
                    counts[instruction.base] += 1
                elif found is not None and found.kind == "async_copy":
                    counts["cp_async"] += 1
        for key in ("ld_global", "st_global", "ld_shared", "st_shared", "ld_local", "st_local",
                    "ld_generic", "st_generic", "atom", "red", "cp_async"):  # fmt: skip
            # The method behind the file takes "tcgen05.wait::ld" for a generic "ld".
            expected = int(row[key]) - tensor_memory[key]
            assert counts[key] == expected, (row["file"], key)
        for key, found in widths.items():
            shown = "|".join(f"{width}B:{count}" for width, count in sorted(found.items()))
            assert shown == (row[f"{key}_by_width"] or ""), (row["file"], key)


def answer(path: Path) -> set[str]:
    """The severities of what is said about a file."""
    try:
        modules = parse_ptx_modules(text_of(path), path.name)
    except InputError as error:
        return {"error"} if str(error).startswith(f"{path.name}:") else set()
    return {d.severity for module in modules for d in module.diagnostics}


def test_odd_files(corpus):
    answers = {row["file"]: row["expected"] for row in rows("ODD.tsv")}
    assert len(answers) > 30
    for file, expected in answers.items():
        if not (corpus / file).exists():
            continue  # a dangling link
        said = answer(corpus / file)
        if expected == "reject":
            assert "error" in said, file
        if expected == "accept":
            assert "error" not in said, file
