"""What kernels need, as text: a row for each kernel, and under it what stands out and why."""

from __future__ import annotations

from collections.abc import Sequence

from kanalyze.results.resources import FileMessage, FunctionResources
from kanalyze.text.numbers import plural
from kanalyze.text.page import Page

_COLUMNS = (("arch", 7), ("regs", 5), ("spills st/ld", 13), ("stack", 6), ("local", 6),
            ("shared", 7), ("bars", 5), ("cmem[0]", 8))  # fmt: skip
_HANG = sum(width for _, width in _COLUMNS) + 4


def show(
    page: Page, title: str, functions: Sequence[FunctionResources], messages: Sequence[FileMessage]
) -> None:
    """The kernels of one input, then its device functions, and what else it says."""
    kernels = [function for function in functions if function.kernel]
    others = [function for function in functions if not function.kernel]
    counted = [plural(len(kernels), "kernel")]
    if others:
        counted.append(plural(len(others), "device function"))
    said_by = ", ".join(dict.fromkeys(function.tool for function in functions))
    page.line((title, "title"), (f": {', '.join(counted)}, as {said_by} says", ""))
    head = "".join(f"{name:>{width}}" for name, width in _COLUMNS)
    page.line((f"  {head}  kernel", "label"))
    for function in (*kernels, *others):
        _row(page, function)
    for message in messages:
        page.line(
            (f"  {message.severity}: {message.text}", "dim"),
            (f"  (line {message.line})", "dim"),
            hang=4,
        )
    for function in functions:
        for field, reason in function.unknown():
            if field == "shared_bytes":
                page.line((f"  {function.shown_name}: {field}: {reason}", "warn"), hang=4)


def _row(page: Page, function: FunctionResources) -> None:
    spills, stack = function.spill_bytes, function.most_stack_bytes
    both = f"{function.spill_store_bytes or 0}/{function.spill_load_bytes or 0}"
    values = (
        function.architecture,
        function.registers,
        "?" if spills is None else both,
        stack,
        function.local_bytes,
        function.shared_bytes,
        function.barriers,
        function.constant_bytes.get("0"),
    )
    cells = []
    for value, (name, width) in zip(values, _COLUMNS, strict=True):
        bad = (name == "spills st/ld" and spills) or (name == "stack" and stack)
        cells.append((f"{'-' if value is None else value:>{width}}", "warn" if bad else ""))
    times = f" ({function.times} times)" if function.times > 1 else ""
    kind = "" if function.kernel else " (device function)"
    page.line(("  ", ""), *cells, ("  ", ""), (function.shown_name, "title"),
              (kind + times, "dim"), hang=_HANG)  # fmt: skip
    for note in function.notes:
        page.line((note, "warn" if "spill" in note else ""), lead=[("      ", "")], hang=2)
    for message in function.messages:
        style = "warn" if "Performance Loss" in message.text else "dim"
        page.line((f"{message.severity}: {message.text}", style), lead=[("      ", "")], hang=2)
