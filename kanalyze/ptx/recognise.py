"""What a text is that is not PTX."""

from __future__ import annotations

import re

_MARKS = (
    (re.compile(r"\x7fELF"), "an ELF file (a cubin?)"),
    (re.compile(r"\x1f\ufffd|\x1f\x8b"), "a gzip file"),
    (re.compile(r"PK\x03\x04"), "a zip file"),
    (re.compile(r"\s*(?:<!doctype|<html|<\?xml)", re.IGNORECASE), "HTML or XML"),
    (re.compile(r"version https://git-lfs\.github\.com"), "a git-lfs pointer"),
    (re.compile(r"\s*[\[{]\s*(?:[\"\[{}\]]|-?\d)"), "JSON"),
    (
        re.compile(
            r"(?:\s*(?://[^\n]*|#[\w-]+(?:\.\w+)?\s*=[^\n]*|#loc[^\n]*)\n)*"
            r"\s*(?:\"builtin\.module\"|module\b|(?:tt|func|gpu)\.func\b)",
        ),
        "MLIR (ttir, ttgir, …)",
    ),
    (re.compile(r"\s*#\w+\s*=\s*(?:#|loc\()"), "MLIR (ttir, ttgir, …)"),
    (
        re.compile(
            r"(?:\s*;[^\n]*\n)*\s*"
            r"(?:source_filename\s*=|target (?:datalayout|triple)\s*=|define\s|declare\s|"
            r"@[\w.$\"]+\s*=|%[\w.]+\s*=\s*type\b|; ModuleID)",
        ),
        "LLVM IR",
    ),
    (re.compile(r"BC\xc0\xde|BC\ufffd\ufffd"), "LLVM bitcode"),
)
_SASS = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?[A-Z][A-Z0-9.]+[ ;]|^\s*\.headerflags",
                   re.MULTILINE)  # fmt: skip
_PTX = re.compile(r"^[ \t]*\.version\s+\d", re.MULTILINE)


def looks_like(text: str, start: int) -> str | None:
    """Return what the text is in words, or None if it may be PTX.

    Args:
        text: the whole text.
        start: where its first character behind blanks and comments is.
    """
    if not text.strip("\0 \t\r\n\f\v\ufeff\x1a"):
        return "an empty file"
    for pattern, what in _MARKS:
        if pattern.match(text):
            return what
    trimmed = text.rstrip("\0 \t\r\n\x1a")
    head = trimmed[:4096]
    odd = sum(1 for c in head if (c < " " and c not in "\t\r\n\f\v\x1b") or c == "\ufffd")
    if "\0" in trimmed or odd > len(head) // 50:
        return None if _PTX.search(head) and odd < 8 else "binary data"
    if start >= len(trimmed):
        return "nothing but comments"
    if _PTX.search(text):
        return None
    if _SASS.search(text[:200_000]):
        return "SASS (disassembled machine code)"
    return None
