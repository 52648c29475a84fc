"""The house: imports point downward, heavy packages are lazy, packaging lists every package.

The layers below are the diagram of ARCHITECTURE.md; a module may import from its own layer and
from those under it.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "kanalyze"

LAYERS = [
    ("cli", "__main__"),
    ("checking", "versus"),
    ("bench",),
    ("estimating",),
    ("roofs", "timed"),
    ("predicted",),
    ("pipeline", "decoding", "findings"),
    ("demanded",),
    ("totals", "executed", "sharing", "draws", "contention"),
    ("describe", "machine"),
    ("timing",),
    ("memory",),
    ("launched", "sass_launched"),
    ("bulk", "contents", "stretches"),
    ("listing", "naming", "sass_section"),
    ("report", "ttir"),
    ("models",),
    ("address",),
    ("ptx", "sass", "cubin", "cuda", "inputs", "compile", "_triton", "dumps", "names", "records"),
    ("kernelfile", "userfile", "specialize", "tools", "assuming", "launch", "source", "devices"),
    ("ptxas_text",),
    ("tensormap",),
    ("cache",),
    ("errors", "_bundled", "schemas"),
]
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms}
HEAVY = ("triton", "torch", "matplotlib", "numba", "pandas")
MAY_IMPORT_TRITON = ("_triton",)


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0].removesuffix(".py")


def imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module is not None and node.level == 0:
        if node.module == "kanalyze":
            return [f"kanalyze.{alias.name}" for alias in node.names]
        return [node.module]
    return []


def in_type_checking(tree: ast.Module) -> set[int]:
    return {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_point_downward(path: Path) -> None:
    assert room(path) in LEVEL, f"{room(path)} has no place in LAYERS"
    tree = ast.parse(path.read_text("utf-8"))
    typing_only = in_type_checking(tree)
    for node in ast.walk(tree):
        if not isinstance(node, ast.stmt) or id(node) in typing_only:
            continue
        for name in imported(node):
            parts = name.split(".")
            if parts[0] != "kanalyze" or len(parts) < 2 or parts[1].startswith("__"):
                continue
            assert LEVEL[parts[1]] >= LEVEL[room(path)], f"{path.name} imports {name}, above it"


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_heavy_packages_are_imported_where_they_are_used(path: Path) -> None:
    tree = ast.parse(path.read_text("utf-8"))
    top = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    assert not [n for node in top for n in imported(node) if n.split(".")[0] in HEAVY]
    anywhere = [n for node in ast.walk(tree) if isinstance(node, ast.stmt) for n in imported(node)]
    if any(n.split(".")[0] == "triton" for n in anywhere):
        assert room(path) in MAY_IMPORT_TRITON


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
