"""The user's source: lines of it, and what a load or store says about its mask."""

from __future__ import annotations

import ast
import io
import tokenize
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from kanalyze import _bundled

_SUFFIXES = {
    ".py", ".pyi", ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl",
    ".cl", ".f", ".f90", ".cuf", ".jl", ".rs", ".mojo", ".ll", ".mlir", ".ttir", ".ptx", ".zig",
}  # fmt: skip
_MOST_BYTES = 16 << 20
_MASKED = {"load": 1, "store": 2}  # function → position of `mask` among the arguments


@dataclass
class SourceFile:
    """A source file that a ``.loc`` names; without lines where it is not there any more."""

    path: Path
    shown: str
    lines: list[str] = field(default_factory=list)

    @staticmethod
    def read(path: Path) -> SourceFile:
        """Read ``path``; what is no file of source code, or cannot be read, has no lines.

        The path comes from the PTX, which may come from anywhere.
        """
        lines: list[str] = []
        try:
            known = path.suffix.lower() in _SUFFIXES and path.is_file()
            if known and path.stat().st_size <= _MOST_BYTES:
                text = path.read_text("utf-8", errors="replace")  # only \n, \r\n, \r end a line
                lines = text.removesuffix("\n").split("\n") if text else []
        except (OSError, ValueError):
            pass
        return SourceFile(path, _shown(path), lines)

    def line(self, number: int) -> str | None:
        """The text of a 1-based line, None where there is none."""
        return self.lines[number - 1] if 0 < number <= len(self.lines) else None

    @cached_property
    def comments(self) -> tuple[dict[int, str], list[tuple[int, int]]]:
        """Python: comments by line, and first and last lines of statements that have no body."""
        text = "\n".join(self.lines) + "\n"
        by_line: dict[int, str] = {}
        try:
            for token in tokenize.generate_tokens(io.StringIO(text).readline):
                if token.type == tokenize.COMMENT:
                    by_line[token.start[0]] = token.string
            tree = ast.parse(text)
        except (tokenize.TokenError, SyntaxError, ValueError, RecursionError):
            return by_line, []
        spans = [
            (node.lineno, node.end_lineno or node.lineno)
            for node in ast.walk(tree)
            if isinstance(node, ast.stmt) and not hasattr(node, "body")
        ]
        return by_line, spans

    @cached_property
    def _calls(self) -> list[tuple[ast.Call, ast.AST]]:
        """Calls of ``load`` and ``store`` with the function that they stand in."""
        try:
            tree = ast.parse("\n".join(self.lines))
        except (SyntaxError, ValueError, RecursionError):
            return []
        calls: list[tuple[ast.Call, ast.AST]] = []
        for function in ast.walk(tree):
            if isinstance(function, ast.FunctionDef):
                for node in ast.walk(function):
                    if (
                        isinstance(node, ast.Call)
                        and isinstance(node.func, ast.Attribute)
                        and node.func.attr in _MASKED
                    ):
                        calls.append((node, function))
        return calls

    def mask_of(self, line: int, column: int) -> str | None:
        """The mask of the ``tl.load`` or ``tl.store`` at a place, as written.

        Where the mask is a variable, the expression that was last assigned to it above.
        """
        here = [
            (call, function)
            for call, function in self._calls
            if call.lineno <= line <= (call.end_lineno or call.lineno)
        ]
        if len(here) > 1:
            here = [
                (call, function)
                for call, function in here
                if call.col_offset <= column <= (call.end_col_offset or 0) + 1
            ][-1:]
        if not here:
            return None
        call, function = here[0]
        assert isinstance(call.func, ast.Attribute)
        position = _MASKED[call.func.attr]
        given = [k.value for k in call.keywords if k.arg == "mask"]
        given += call.args[position : position + 1]
        if not given or (isinstance(given[0], ast.Constant) and given[0].value is None):
            return None
        mask = given[0]
        if isinstance(mask, ast.Name):
            assigned = [
                node.value
                for node in ast.walk(function)
                if isinstance(node, ast.Assign)
                and node.lineno < call.lineno
                and any(isinstance(t, ast.Name) and t.id == mask.id for t in node.targets)
            ]
            if assigned:
                mask = assigned[-1]
        return ast.unparse(mask)


def _shown(path: Path) -> str:
    """The path as reports show it: relative where it lies below the working folder.

    Of a bundled kernel only the file's name, so that it looks alike wherever kanalyze is installed.
    """
    if path.parent == _bundled.folder("kernels"):
        return path.name
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except (ValueError, OSError):
        return path.name
