"""Errors of Triton's compiler as ours, with the place in the user's file."""

from __future__ import annotations

import os
import re
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from kanalyze.errors import InputError, KanalyzeError, MissingToolError, SourceSpot
from kanalyze.frontend import user_file
from kanalyze.frontend._triton_kernels import JitKernel, innermost


def while_reading(error: BaseException) -> bool:
    """Whether an exception arose where Triton reads the files of a kernel that it kept."""
    from triton.compiler.compiler import CompiledKernel

    for frame, _ in traceback.walk_tb(error.__traceback__):
        if frame.f_code is CompiledKernel.__init__.__code__:
            frame.f_locals["self"].module = None  # half made: else its __del__ complains
            return True
    return False


def _in_cache(error: BaseException) -> bool:
    """Whether an exception arose in Triton's cache of files."""
    from triton.runtime import cache as of_triton

    return any(
        frame.f_code.co_filename == of_triton.__file__
        for frame, _ in traceback.walk_tb(error.__traceback__)
    )


def translated(
    error: BaseException, output: str, errors: str, kernel: JitKernel, capability: int
) -> KanalyzeError:
    """What went wrong in Triton's compiler as an error of ours, with the place in the user's file.

    Args:
        error: what was raised.
        output: what Python printed meanwhile.
        errors: what was written to standard error meanwhile.
        kernel: what was compiled.
        capability: for which compute capability.
    """
    from triton.compiler.errors import CompilationError

    if isinstance(error, KanalyzeError):
        return error
    if isinstance(error, OSError) and (_in_cache(error) or while_reading(error)):
        return _unusable_cache(error)
    if isinstance(error, CompilationError):
        return _front_end(error, kernel)
    text = str(error)
    if type(error).__name__ == "PTXASError" or "ptxas" in text:
        return _ptxas(text, output, kernel, capability)
    for message in diagnostics(errors, "error"):
        place = re.match(r"(.+?):(\d+):(\d+): (.+)", message)
        if place is None:
            return InputError(message, kernel.spot())
        file, line = Path(place[1]), int(place[2])
        column = int(place[3]) + 1 - kernel.column_base()
        spot = SourceSpot(user_file.shown(file), line, column, user_file.line_of(file, line))
        reason = place[4]
        if "operation 'tt.return'" in reason:
            reason = f"'{kernel.name}' returns a value: kernels call it, it is none itself"
        return InputError(reason, spot if _in_user_code(file) else kernel.spot())
    return InputError(f"Triton: {short(user_file.one_line(error))}", kernel.spot())


def _unusable_cache(error: OSError) -> InputError:
    from triton import knobs

    own = "TRITON_CACHE_DIR" if os.environ.get("TRITON_CACHE_DIR") else "KANALYZE_CACHE_DIR"
    return InputError(
        f"Triton cannot keep its cache in this folder ({error.strerror or error}): "
        f"set {own} to one that can be written to",
        file=str(knobs.cache.dir),
    )


def _in_user_code(file: Path) -> bool:
    triton_folder = Path(sys.modules["triton"].__file__ or "").parent
    return not file.is_relative_to(triton_folder) and file.exists()


def _front_end(error: BaseException, kernel: JitKernel) -> InputError:
    """Translate a CompilationError: place of the innermost user's line, the innermost reason."""
    spot, reason = kernel.spot(), ""
    link: BaseException | None = error
    while link is not None:
        node, source = getattr(link, "node", None), getattr(link, "src", None)
        if source is not None and hasattr(node, "lineno"):
            spot = _spot_in(source, node, kernel) or spot
        own = getattr(link, "error_message", None) if node is not None else user_file.one_line(link)
        reason = own or (reason if node is not None else type(link).__name__) or reason
        link = link.__cause__
    reason = short(reason or str(error))
    # The symbol of a function whose code is still being made, as Triton 3.5 to 3.9 look it up.
    symbol = re.match(r"KeyError\('(.+)'\)", reason)
    again = [f.__name__ for f in _jitted(kernel) if symbol and f".{f.__name__}__" in symbol[1]]
    if again:
        reason = f"'{again[0]}' calls itself (recursion), which Triton cannot compile"
    elif name := re.match(r"invalid function identifier: (\w+)", reason):
        reason = f"'{name[1]}' is not a name for a kernel: Triton takes ASCII letters, digits and _"
    return InputError(reason or type(error).__name__, spot)


def _spot_in(source: str, node: Any, kernel: JitKernel) -> SourceSpot | None:
    """Return the place of an AST node of a jitted function, if that is in the user's files."""
    for function in _jitted(kernel):
        if function.src != source:
            continue
        file = Path(function.fn.__code__.co_filename)
        if not _in_user_code(file):
            return None
        line = function.starting_line_number
        indent = 0
        for index, text in enumerate(function.raw_src):
            if text.strip().startswith("def "):
                line, indent = line + index, len(text) - len(text.lstrip())
                break
        line += node.lineno - 1
        text = user_file.line_of(file, line)
        return SourceSpot(user_file.shown(file), line, node.col_offset + indent + 1, text)
    return None


def _jitted(kernel: JitKernel) -> list[Any]:
    """Return the kernel's function and every jitted function reachable through its globals."""
    functions: list[Any] = []
    queue = [kernel.function]
    while queue:
        function = queue.pop()
        if any(function is other for other in functions):
            continue
        functions.append(function)
        scope = function.fn.__globals__
        for name in function.fn.__code__.co_names:
            value = scope.get(name)
            candidates = vars(value).values() if isinstance(value, ModuleType) else [value]
            for candidate in candidates:
                candidate = innermost(candidate)
                if isinstance(getattr(candidate, "raw_src", None), list) and _in_user_code(
                    Path(candidate.fn.__code__.co_filename)
                ):
                    queue.append(candidate)
    return functions


def _ptxas(text: str, printed: str, kernel: JitKernel, capability: int) -> KanalyzeError:
    """Translate ptxas's complaint; the PTX that Triton printed leads to the user's line."""
    complaints = re.findall(r"^ptxas\S*[^\n]*?\b(?:error|fatal)\s*:\s*(.+)$", text, re.MULTILINE)
    complaint = complaints[0].strip() if complaints else short(text)
    if "'gpu-name'" in complaint or "Unsupported .version" in complaint:
        version = getattr(sys.modules["triton"], "__version__", "")
        return MissingToolError(
            f"the ptxas of Triton {version} does not know sm_{capability} ({complaint}): "
            "pip install --upgrade triton"
        )
    number = re.search(r"\.ptx, line (\d+);", text)
    _, header, body = printed.partition("//\n// Generated by LLVM")
    base = kernel.column_base()
    spot = _spot_of_ptx(header + body, int(number[1]), base) if number else None
    return InputError(f"ptxas: {complaint}", spot or kernel.spot())


def _spot_of_ptx(ptx: str, number: int, base: int) -> SourceSpot | None:
    """Return the user's line that a line of PTX comes from: the last ``.loc`` before it.

    Inside inline assembly it is the last one before that begins: those inside drift.
    """
    files = {n: Path(name) for n, name in re.findall(r'\.file\s+(\d+)\s+"([^"]+)"', ptx)}
    before = ptx.splitlines()[:number]
    for index in range(len(before) - 1, -1, -1):
        if "// end inline asm" in before[index]:
            break
        if "// begin inline asm" in before[index]:
            before = before[:index]
            break
    for text in reversed(before):
        if (location := re.search(_LOC, text)) is None:
            continue
        file, line = files.get(location[1]), int(location[2])
        column = int(location[3]) + 1 - base
        if file is not None and line and _in_user_code(file):
            text = user_file.line_of(file, line)
            return SourceSpot(user_file.shown(file), line, column or 1, text)
    return None


_LOC = r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)"


def diagnostics(text: str, severity: str) -> list[str]:
    """Return MLIR's diagnostics of one severity, each ``FILE:LINE:COLUMN: message``."""
    messages = re.findall(rf"^(?:loc\(.*?\)|(\S+?:\d+:\d+)): {severity}: (.+)$", text, re.M)
    return [
        f"{place}: {message}" if place else message for place, message in dict.fromkeys(messages)
    ]


def short(text: str, limit: int = 300) -> str:
    """Return a message of Triton's on one line, without the ``repr`` of an exception around it."""
    text = text.strip()
    wrapped = re.fullmatch(r"(\w*(?:Error|Exception|Failure))\((['\"])(.*)\2,?\)", text, re.DOTALL)
    if wrapped and " " in wrapped[3]:
        text = wrapped[3].replace("\\n", "\n").replace("\\'", "'")
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
