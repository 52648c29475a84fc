"""The public door: ``import kanalyze``."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import kanalyze

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("name", kanalyze.__all__)
def test_every_public_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(kanalyze, name)
    assert name in dir(kanalyze)
    if name != "__version__":
        assert value.__doc__
        assert value.__name__ == name


def test_an_unknown_name() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        kanalyze.nonsense  # noqa: B018


def test_checkers_see_every_name() -> None:
    tree = ast.parse((ROOT / "kanalyze" / "__init__.py").read_text("utf-8"))
    (block,) = (n for n in tree.body if isinstance(n, ast.If))
    seen = {a.asname for n in block.body if isinstance(n, ast.ImportFrom) for a in n.names}
    assert seen == set(kanalyze.__all__) - {"__version__"}


def test_importing_kanalyze_imports_nothing_heavy() -> None:
    code = "import sys, kanalyze; kanalyze.__version__; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not loaded & {"triton", "torch", "lark", "networkx", "numpy", "rich", "click"}
