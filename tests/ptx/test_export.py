"""Control flow for other programs: dot and GraphML read back, hostile names, the command."""

from __future__ import annotations

import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import pytest
from click.testing import CliRunner, Result

from kanalyze import schemas
from kanalyze.cli.app import cli
from kanalyze.ptx.cfg import build
from kanalyze.ptx.export import FlowGraph, dot, flow_graph, graphml
from kanalyze.ptx.parse import parse_ptx

HEAD = ".version 8.7\n.target sm_90\n.address_size 64\n"
KERNEL = """.visible .entry k(.param .u32 n)
.reqntid 128
{
.reg .pred %p<9>;
.reg .b32 %r<9>;
mov.u32 %r1, %tid.x;
ld.param.u32 %r2, [n];
setp.ge.u32 %p1, %r1, %r2;
@%p1 bra END;
LOOP:
add.s32 %r1, %r1, 128;
setp.lt.u32 %p2, %r1, %r2;
@%p2 bra LOOP;
END:
ret;
}
"""


def graph(text: str = KERNEL, **branches: str) -> FlowGraph:
    module = parse_ptx(HEAD + text)
    assert module.diagnostics == ()
    return flow_graph(build(module.functions[0]), {int(k[1:]): v for k, v in branches.items()})


def test_nodes_and_edges() -> None:
    found = graph(b0="divergent")
    assert [(n.name, n.line, n.last_line, n.instructions, n.loop_depth, n.loop, n.ends, n.branch)
            for n in found.nodes] == [
        ("entry", 9, 12, 4, 0, None, "bra", "divergent"),
        ("LOOP", 14, 16, 3, 1, 1, "bra", None),
        ("END", 18, 18, 1, 0, None, "ret", None),
    ]  # fmt: skip
    assert [(e.source, e.target, e.kinds, e.back) for e in found.edges] == [
        (0, 1, ("fallthrough",), False),
        (0, 2, ("taken",), False),
        (1, 1, ("taken",), True),
        (1, 2, ("fallthrough",), False),
        (2, None, ("exit",), False),
    ]


def kinds(body: str) -> set[tuple[int, int | None, str]]:
    found = graph(f".entry k()\n{{\n{body}\n}}\n")
    return {(e.source, e.target, "+".join(e.kinds)) for e in found.edges}


def test_kinds_of_edges() -> None:
    assert kinds("bra A;\nA: ret;") == {(0, 1, "taken"), (1, None, "exit")}
    assert kinds("@%p bra A;\nA: ret;") == {(0, 1, "taken+fallthrough"), (1, None, "exit")}
    assert kinds("@%p ret;\nmov.u32 %r1, 1;") == {
        (0, None, "exit"), (0, 1, "fallthrough"), (1, None, "exit"),
    }  # fmt: skip
    assert kinds("@%p bra nowhere;\nret;") == {
        (0, None, "exit"), (0, 1, "fallthrough"), (1, None, "exit"),
    }  # fmt: skip
    assert kinds("t: .branchtargets A, B;\n@%p brx.idx %r1, t;\nA: ret;\nB: ret;") == {
        (0, 1, "fallthrough"), (0, 2, "taken"),
        (1, None, "exit"), (2, None, "exit"),
    }  # fmt: skip


# ---------------------------------------------------------------- hostile names

HOSTILE = [
    'a"b', "back\\slash", "\\N\\G\\l", "<b>&amp;", "new\nline", "nul\0", "\x1b[31m",
    "é\ud800\uffff", '}"; x -> y', "\u202e", "",
]  # fmt: skip


def hostile(name: str) -> FlowGraph:
    found = graph()
    node = replace(found.nodes[0], name=name, label=name, branch=name)
    return replace(found, name=name, nodes=(node, *found.nodes[1:]))


_STRING = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ATTRIBUTES = r"\[\w+=\w+(?:, \w+=\w+)*\];"
_STATEMENT = re.compile(
    r"digraph cfg \{|subgraph cluster_\d+ \{|\}|label=S;"
    rf"|(?:node|edge) {_ATTRIBUTES}"
    rf"|f\d+(?:b\d+|exit)(?: -> f\d+(?:b\d+|exit))?(?:;| {_ATTRIBUTES})"
)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_dot(name: str) -> None:
    text = dot([hostile(name), graph()])
    assert text.encode("utf-8")
    without = _STRING.sub("S", text)  # what is not in a string is ours
    assert all(_STATEMENT.fullmatch(line.strip()) for line in without.splitlines())
    assert without == _STRING.sub("S", dot([hostile("plain"), graph()]))
    strings = _STRING.findall(text)
    assert all(s.isprintable() for s in strings)
    program = shutil.which("dot")
    if program:
        subprocess.run([program, "-Tplain"], input=text, text=True, check=True, capture_output=True)


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_in_graphml(name: str) -> None:
    read = nx.read_graphml(io.BytesIO(graphml([hostile(name), graph()]).encode("utf-8")))
    plain = nx.read_graphml(io.BytesIO(graphml([hostile("plain"), graph()]).encode("utf-8")))
    assert set(read.edges) == set(plain.edges)
    label = read.nodes["f0b0"].get("label") or ""
    if name.isprintable() and name.isascii():
        assert label == name
    else:
        assert "\\" in label or not name


def test_graphml_is_read_back() -> None:
    read = nx.read_graphml(io.BytesIO(graphml([graph(b0="divergent")]).encode("utf-8")))
    assert read.nodes["f0b1"] == {
        "label": "LOOP", "function": "k", "line": 14, "last_line": 16, "instructions": 3,
        "loop_depth": 1, "reached": True, "ends": "bra",
    }  # fmt: skip
    assert read.nodes["f0b0"]["branch"] == "divergent"
    assert {(a, b): (d["kind"], d["back"]) for a, b, d in read.edges(data=True)} == {
        ("f0b0", "f0b1"): ("fallthrough", False), ("f0b0", "f0b2"): ("taken", False),
        ("f0b1", "f0b1"): ("taken", True), ("f0b1", "f0b2"): ("fallthrough", False),
        ("f0b2", "f0exit"): ("exit", False),
    }  # fmt: skip


def test_no_function_at_all() -> None:
    assert dot([]).startswith("digraph")
    assert len(nx.read_graphml(io.BytesIO(graphml([]).encode()))) == 0


# ---------------------------------------------------------------- the command


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    path = tmp_path / "k.ptx"
    path.write_text(f"{HEAD}{KERNEL}.func f()\n{{\nret;\n}}\n", encoding="utf-8")
    return path


def run(*arguments: object, **options: Any) -> Result:
    return CliRunner().invoke(cli, ["cfg", *map(str, arguments)], **options)


def errors(data: object) -> list[str]:
    jsonschema = pytest.importorskip("jsonschema")
    validator = jsonschema.Draft202012Validator(schemas.load("cfg"))
    return [f"{e.json_path}: {e.message}" for e in validator.iter_errors(data)]


def test_json(kernel: Path) -> None:
    result = run(kernel, "--format", "json")
    assert (result.exit_code, result.stderr) == (0, "")
    data = json.loads(result.stdout)
    assert errors(data) == []
    (function,) = data["functions"]
    assert [b["name"] for b in function["blocks"]] == ["entry", "LOOP", "END"]
    assert [(b["kind"], b["line"], b["instruction"]) for b in function["branches"]] == [
        ("divergent", 12, "@%p1 bra END"), ("divergent", 16, "@%p2 bra LOOP"),
    ]  # fmt: skip
    assert function["branches"][0]["condition"] == "n <= tid.x"
    assert function["branches"][0]["depends_on"] == ["%tid.x", "n"]
    assert [(x["header"], x["blocks"], x["latches"]) for x in function["loops"]] == [(1, [1], [1])]


def test_unknown_fields_have_reasons(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    text = KERNEL.replace("add.s32 %r1, %r1, 128;", "ld.global.u32 %r1, [%rd1];")
    path.write_text(HEAD + text, encoding="utf-8")
    data = json.loads(run(path, "--format", "json").stdout)
    assert errors(data) == []
    reasons = {u["field"]: u["reason"] for u in data["unknown"]}
    assert set(reasons) == {
        "functions[0].loops[0].trip_count", "functions[0].branches[1].condition"
    }  # fmt: skip
    assert all("ld.global.u32" in reason for reason in reasons.values())


def test_a_device_function_by_name(kernel: Path) -> None:
    data = json.loads(run(kernel, "--kernel", "f", "--format", "json").stdout)
    assert [f["kind"] for f in data["functions"]] == ["func"]
    wrong = run(kernel, "--kernel", "g")
    assert wrong.exit_code == 2
    assert "there is no kernel 'g'" in wrong.stderr


def test_text_and_files(kernel: Path, tmp_path: Path) -> None:
    text = run(kernel).stdout
    assert "uniform" not in text
    assert re.search(r"line 12 +@%p1 bra END +divergent: differs between lanes by tid.x", text)
    assert run(kernel, "--format", "dot", "-o", tmp_path / "k.dot").stdout == ""
    assert (tmp_path / "k.dot").read_text("utf-8") == run(kernel, "--format", "dot").stdout
    assert "f0b1 -> f0b1" in (tmp_path / "k.dot").read_text("utf-8")
    read = nx.read_graphml(io.BytesIO(run(kernel, "--format", "graphml").stdout.encode("utf-8")))
    assert len(read) == 4


def test_standard_input(kernel: Path) -> None:
    assert "<stdin>" in run("-", input=kernel.read_text("utf-8")).stdout


def test_what_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(HEAD + KERNEL.replace("END:\n", "END:\nadd.s32 %r1, [;\n"), encoding="utf-8")
    result = run(path, "--format", "json")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert errors(data) == []
    assert [s["line"] for s in data["skipped"]] == [18]
    assert len(data["functions"]) == 1
    assert run(path, "--lenient").exit_code == 0
    missing = run(tmp_path / "none.ptx")
    assert (missing.exit_code, "none.ptx" in missing.stderr) == (3, True)
    empty = tmp_path / "empty.ptx"
    empty.write_text(HEAD, encoding="utf-8")
    assert "there is no kernel in it" in run(empty).stderr


@pytest.mark.usefixtures("shared_cache")
def test_a_bundled_kernel() -> None:
    pytest.importorskip("triton")
    data = json.loads(run("matmul_relu", "--format", "json").stdout)
    assert errors(data) == []
    (function,) = data["functions"]
    assert {b["kind"] for b in function["branches"]} == {"block"}
    assert [x["trip_count"] for x in function["loops"]] == ["ceil(K/64)"]
