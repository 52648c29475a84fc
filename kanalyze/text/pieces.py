"""Texts cut at separators, such as the commas of a list of parameters."""

from __future__ import annotations


def pieces(text: str, separator: str = ",", quotes: str = '"') -> list[str]:
    """The pieces of a text between separators that stand outside of quotes and brackets.

    In quotes a backslash makes the next character plain. A bracket that closes more than was opened
    ends the text.
    """
    parts: list[str] = []
    depth = start = 0
    quote = ""
    plain = False  # the next character, behind a backslash
    for at, character in enumerate(text):
        if quote:
            quote = "" if character == quote and not plain else quote
            plain = character == "\\" and not plain
        elif character in quotes:
            quote = character
        elif character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
            if depth < 0:
                return [*parts, text[start:at]]
        elif depth == 0 and text.startswith(separator, at):
            parts.append(text[start:at])
            start = at + len(separator)
    return [*parts, text[start:]]
