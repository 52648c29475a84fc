"""Source lines that the ``.loc`` directives of PTX name; each file is read once."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from kanalyze.ptx import ir
from kanalyze.ptx.lines import source_of
from kanalyze.results import kernel as doc
from kanalyze.source import SourceFile


@dataclass(frozen=True, slots=True)
class Sources:
    """Source files by path, read once."""

    files: dict[str, SourceFile] = field(default_factory=dict)

    def get(self, path: str) -> SourceFile:
        """The file that a ``.file`` directive names."""
        if path not in self.files:
            self.files[path] = SourceFile.read(Path(path))
        return self.files[path]


@dataclass(frozen=True, slots=True)
class SourceLines:
    """The source lines of one module's instructions."""

    module: ir.Module
    sources: Sources

    def place(self, instruction: ir.Instruction) -> doc.Source | None:
        """File, as it is shown, line and column; None where the compiler knows none."""
        line = source_of(instruction.loc, self.module)
        if line is None:
            return None
        return doc.Source(self.sources.get(line.file).shown, line.line, line.column)

    def line(self, instruction: ir.Instruction) -> tuple[str, int, str] | None:
        """Path, line and its text; None where it cannot be read."""
        place = source_of(instruction.loc, self.module)
        text = self.sources.get(place.file).line(place.line) if place is not None else None
        return (place.file, place.line, text) if place is not None and text is not None else None

    def text(self, instruction: ir.Instruction) -> str | None:
        """The source line without its margins; None where it cannot be read."""
        line = self.line(instruction)
        return line[2].strip() if line is not None else None

    def mask(self, instruction: ir.Instruction) -> str | None:
        """The mask of the ``tl.load`` or ``tl.store`` there, as its author wrote it."""
        place = source_of(instruction.loc, self.module)
        if place is None:
            return None
        return self.sources.get(place.file).mask_of(place.line, place.column)
