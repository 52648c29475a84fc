"""The state of the house in numbers: ``python benchmarks/house.py [CHECKOUT] [--list]``.

Entries of ``kanalyze/``, packages, pairs of imports between rooms and between modules, circles, lines of
code and of tests, names of classes that occur more than once, bindings of ``found``, functions that return
``X | str``. Nothing is imported: the syntax trees are read, so a checkout of any age will do. Every import
counts, in functions and under TYPE_CHECKING, too; the public door, ``kanalyze/__init__.py``, does not. With
``--list`` the names behind the numbers.
"""

from __future__ import annotations

import argparse
import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import networkx as nx

Trees = dict[str, ast.Module]
Places = dict[str, list[str]]


def trees_of(checkout: Path) -> Trees:
    """Dotted name to syntax tree of each module of the package."""
    trees = {}
    for path in sorted((checkout / "kanalyze").rglob("*.py")):
        parts = path.relative_to(checkout).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text("utf-8"))
    return trees


def entries(checkout: Path) -> list[str]:
    """The modules and folders directly in the package, data files included."""
    listed = (p for p in (checkout / "kanalyze").iterdir() if not p.name.startswith(("__", ".")))
    return sorted(p.name for p in listed)


def imports(trees: Trees) -> set[tuple[str, str]]:
    """Importing and imported module, each pair once."""
    pairs = set()
    for name, tree in trees.items():
        for node in ast.walk(tree):
            targets = []
            if isinstance(node, ast.Import):
                targets = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                targets = [f"{node.module}.{alias.name}" for alias in node.names]
            for target in targets:
                while target and target not in trees:
                    target = target.rpartition(".")[0]
                if target not in ("", name, "kanalyze") and name != "kanalyze":
                    pairs.add((name, target))
    return pairs


def room(module: str) -> str:
    return module.split(".")[1]


def circles(pairs: Iterable[tuple[str, str]]) -> list[str]:
    """Groups of names that import each other, directly or over others."""
    groups = nx.strongly_connected_components(nx.DiGraph(list(pairs)))
    return sorted(", ".join(sorted(group)) for group in groups if len(group) > 1)


def lines(paths: Iterable[Path]) -> int:
    return sum(len(path.read_text("utf-8").splitlines()) for path in paths)


def classes(trees: Trees) -> Places:
    """Names of classes that occur more than once, and the modules of each."""
    places: Places = defaultdict(list)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(name)
    return {name: where for name, where in sorted(places.items()) if len(where) > 1}


def bindings(trees: Trees, wanted: str) -> Places:
    """Where a name is bound: assigned, a parameter, a loop's or a pattern's variable."""
    places: Places = defaultdict(list)
    for name, tree in trees.items():
        for node in ast.walk(tree):
            match node:
                case (
                    ast.Name(id=bound, ctx=ast.Store())
                    | ast.arg(arg=bound)
                    | ast.MatchAs(name=bound)
                    | ast.MatchStar(name=bound)
                ) if bound == wanted:
                    places[name].append(f"line {node.lineno}")
    return places


def alternatives(node: ast.expr | None) -> Iterator[str]:
    """The parts of a union as it is written: ``X | str | None``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        yield from alternatives(node.left)
        yield from alternatives(node.right)
    elif node is not None:
        yield ast.unparse(node)


def returning_or_str(trees: Trees) -> Places:
    """Functions whose result is something or a ``str``, which says why there is none."""
    places: Places = defaultdict(list)
    plain = {"str", "None", "int", "float", "bool", "bytes"}
    for name, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                parts = set(alternatives(node.returns))
                if "str" in parts and parts - {"str", "None"}:
                    certain = "" if parts - plain else " (plain values)"
                    places[name].append(f"{node.name}{certain}")
    return places


def show(title: str, number: int | str, names: Iterable[str] = ()) -> None:
    print(f"{title:<44}{number:>10}")
    for name in names:
        print(f"    {name}")


def named(places: Places) -> list[str]:
    return [f"{key}: {', '.join(values)}" for key, values in places.items()]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    default = Path(__file__).resolve().parents[1]
    parser.add_argument("checkout", type=Path, nargs="?", default=default)
    parser.add_argument("--list", action="store_true", help="the names behind the numbers, too")
    options = parser.parse_args()
    checkout, listed = options.checkout, options.list
    trees = trees_of(checkout)
    pairs = imports(trees)
    rooms = {(room(a), room(b)) for a, b in pairs if room(a) != room(b)}
    packages = sorted(p.parent for p in (checkout / "kanalyze").rglob("__init__.py"))
    found, either, twice = (
        bindings(trees, "found"),
        returning_or_str(trees),
        classes(trees),
    )

    def shown(names: Iterable[str]) -> Iterable[str]:
        return names if listed else ()

    in_package = entries(checkout)
    show("entries of kanalyze/", len(in_package), shown(in_package))
    show("packages", len(packages), shown(str(p.relative_to(checkout)) for p in packages))
    show("modules", len(trees))
    show(
        "pairs of imports between rooms", len(rooms), shown(f"{a} -> {b}" for a, b in sorted(rooms))
    )
    show("pairs of imports between modules", len(pairs))
    show("circles between rooms", len(circles(rooms)), shown(circles(rooms)))
    show("circles between modules", len(circles(pairs)), shown(circles(pairs)))
    for title, folder in (("code", "kanalyze"), ("tests", "tests"), ("kernels", "kernels"),
                          ("benchmarks", "benchmarks")):  # fmt: skip
        show(f"lines of {title}", lines((checkout / folder).rglob("*.py")))
    show("names of classes that occur more than once", len(twice), shown(named(twice)))
    show("bindings of 'found'", sum(map(len, found.values())), shown(named(found)))
    show("modules that bind 'found'", len(found))
    show("functions that return X | str", sum(map(len, either.values())), shown(named(either)))


if __name__ == "__main__":
    main()
