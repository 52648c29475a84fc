"""TOML files of a user's, with the place of what is wrong in them."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from kanalyze.errors import InputError, SourceSpot, system_reason


def read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a file, and what it says.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    try:
        text = path.read_text("utf-8")
        return text, tomllib.loads(text)
    except OSError as error:
        raise InputError(system_reason(error), file=str(path)) from None
    except UnicodeDecodeError:
        raise InputError("it is not UTF-8 text", file=str(path)) from None
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        place = re.search(r"line (\d+), column (\d+)", str(error))
        lines = text.splitlines()
        spot = None
        if place is not None:
            line, column = int(place[1]), int(place[2])
            shown = lines[line - 1] if line <= len(lines) else ""
            spot = SourceSpot(str(path), line, column, shown)
        raise InputError(f"not valid TOML: {error}", spot, str(path)) from None
