"""The house: one order of rooms, no import up or sideways, no circle; heavy packages are lazy."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kanalyze"

ROOMS = (
    "__main__",
    "cli",
    "measured",
    "analysis",
    "findings",
    "performance",
    "traffic",
    "kernel",
    "counting",
    "render",
    "results",
    "profiles",
    "models",
    "symbolic",
    "frontend",
    "sass",
    "ptx",
    "launch",
    "devices",
    "toolchain",
    "cache",
    "text",
    "source",
    "_bundled",
    "errors",
    "schemas",
)
"""Top to bottom, as in ARCHITECTURE.md: a room imports from the rooms below it."""

HEAVY = ("triton", "torch", "matplotlib", "numba", "pandas", "networkx")
MAY_IMPORT_TRITON = tuple(
    f"kanalyze.frontend.{name}"
    for name in ("_triton", "_triton_errors", "_triton_kernels", "_triton_launches")
)


@cache
def modules() -> dict[str, ast.Module]:
    """Dotted name to tree of every module but the public door, which stands above all rooms."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name != "kanalyze":
            found[name] = ast.parse(path.read_text("utf-8"))
    return found


def imports(tree: ast.AST) -> Iterator[str]:
    """What a module imports, wherever it stands: in functions and under TYPE_CHECKING, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide where a name comes from"
            for alias in node.names:
                yield f"{node.module}.{alias.name}"


def pairs(trees: dict[str, ast.Module]) -> Iterator[tuple[str, str]]:
    """Importing and imported module."""
    for name, tree in trees.items():
        for target in imports(tree):
            while target.startswith("kanalyze.") and target not in trees:
                target = target.rpartition(".")[0]
            if target in trees and target != name:
                yield name, target


def room(module: str) -> str:
    return module.split(".")[1]


def faults(trees: dict[str, ast.Module]) -> list[str]:
    """Imports that go up, and circles between modules."""
    graph = nx.DiGraph(pairs(trees))
    wrong = [f"{name} has no place in ROOMS" for name in trees if room(name) not in ROOMS]
    if wrong:
        return wrong
    wrong += [
        f"{a} imports {b}, above it"
        for a, b in sorted(graph.edges)
        if ROOMS.index(room(b)) < ROOMS.index(room(a))
    ]
    circles = (sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1)
    return wrong + [f"a circle: {', '.join(circle)}" for circle in circles]


def test_imports_point_downward_and_run_in_no_circle() -> None:
    assert faults(modules()) == []


@pytest.mark.parametrize(
    ("where", "line", "fault"),
    [
        ("kanalyze.ptx.ir", "from kanalyze.cli import output", "above it"),
        ("kanalyze.ptx.ir", "def f():\n    from kanalyze.symbolic.value import Value", "above it"),
        (
            "kanalyze.text.page",
            "if TYPE_CHECKING:\n    import kanalyze.launch.record",
            "above it",
        ),
        ("kanalyze.devices.table", "from kanalyze.launch import tensor_map", "above it"),
        ("kanalyze.ptx.ir", "from kanalyze.ptx.parse import parse_ptx", "a circle"),
        ("kanalyze.estimating", "", "no place"),
    ],
    ids=["up", "in a function", "for types only", "sideways", "circle", "new room"],
)
def test_a_wrong_import_is_a_fault(where: str, line: str, fault: str) -> None:
    trees = dict(modules())
    body = trees[where].body if where in trees else []
    trees[where] = ast.Module([*body, *ast.parse(line).body], [])
    (found,) = faults(trees)
    assert fault in found
    assert where in found


@pytest.mark.parametrize("name", sorted(modules()))
def test_heavy_packages_are_imported_where_they_are_used(name: str) -> None:
    tree = modules()[name]
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [n for node in top for n in imports(node) if n.split(".")[0] in HEAVY]
    if any(n.split(".")[0] == "triton" for n in imports(tree)):
        assert name in MAY_IMPORT_TRITON


def named_paths(text: str) -> list[str]:
    """Paths from the root that a document names."""
    return re.findall(r"`([\w-]+/[\w*-][\w./*-]*)`", text)


def is_there(path: str) -> bool:
    """Whether a path exists; a word in capitals, as in ``rules/ID.py``, stands for any name."""
    pattern = re.sub(r"\b[A-Z]{2,}\b", "*", path)
    return (ROOT / path).exists() or any(ROOT.glob(pattern))


DOCUMENTS = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"]
DOCUMENTS += sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_paths_in_documents_are_there(name: str) -> None:
    paths = named_paths((ROOT / name).read_text("utf-8"))
    assert [path for path in paths if not is_there(path)] == []


def test_a_path_that_went_would_be_noticed() -> None:
    assert named_paths("`kanalyze/pipeline.py`, `ID/`, `a b`") == ["kanalyze/pipeline.py"]
    assert not is_there("kanalyze/pipeline.py")
    assert not is_there("kanalyze/pipeline/ID.py")
    assert is_there("kanalyze/findings/rules/ID.py")


def test_the_rooms_of_the_document_are_those_of_the_package_in_their_order() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text("utf-8")
    table = text.split("| entry | what it is |\n| --- | --- |\n")[1].split("\n\n")[0]
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", table, re.MULTILINE))
    assert tuple(rows) == ROOMS
    inside = [
        (room, part)
        for room, said in rows.items()
        for part in re.findall(r"`(\w+\.py|\w+/)`", said)
        if room != "_bundled"
    ]
    assert len(inside) > 20
    assert [f"{room}/{part}" for room, part in inside if not (PACKAGE / room / part).exists()] == []


def test_help_imports_nothing_heavy() -> None:
    code = (
        "import sys\n"
        "from kanalyze.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({m.split('.')[0] for m in sys.modules}), file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    loaded = set(ast.literal_eval(done.stderr.strip().splitlines()[-1]))
    assert not loaded & {"triton", "torch", "matplotlib", "networkx", "numpy", "lark", "rich"}


def test_every_package_is_listed() -> None:
    listed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    found = {".".join(p.parent.relative_to(ROOT).parts) for p in PACKAGE.rglob("__init__.py")} | {
        "kanalyze.kernels",
        "kanalyze.grammars",
    }
    assert found == set(listed["packages"])
