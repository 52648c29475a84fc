"""What kernels need, as text: a row for each kernel, and under it what stands out and why."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kanalyze.text.mangling import demangle
from kanalyze.text.page import Page, plural
from kanalyze.toolchain.ptxas_log import SYSTEM_SHARED_BYTES, Usage

MOST_REGISTERS = 255
"""Registers that a thread can have (CUDA C++ Programming Guide, compute capabilities)."""
MOST_BARRIERS = 16
"""Barriers of a block (PTX ISA, "bar.sync": numbers 0 to 15)."""

_COLUMNS = (("arch", 7), ("regs", 5), ("spills st/ld", 13), ("stack", 6), ("local", 6),
            ("shared", 7), ("bars", 5), ("cmem[0]", 8))  # fmt: skip


def shown_name(usage: Usage) -> str:
    """The name as a person writes it."""
    name = demangle(usage.name)[0] if usage.name.startswith(("_Z", "?")) else None
    return name or usage.name


def spilled(usage: Usage) -> int | None:
    """Bytes of spill instructions, stores and loads together; None: the text does not say."""
    if usage.spill_store_bytes is None and usage.spill_load_bytes is None:
        return None
    return (usage.spill_store_bytes or 0) + (usage.spill_load_bytes or 0)


def notes(usage: Usage) -> tuple[str, ...]:
    """What stands out in a row, and what it comes from."""
    found = []
    local, spills = usage.local_memory_bytes or 0, spilled(usage)
    if spills:
        limit = f" at {usage.registers}" if usage.registers is not None else ""
        found.append(
            f"spills: registers ran out{limit}, a thread's code stores "
            f"{usage.spill_store_bytes or 0} B to local memory and loads "
            f"{usage.spill_load_bytes or 0} B"
        )
    elif local and spills == 0:
        found.append(
            f"{local} B of stack without spills: a local array that is indexed at run time (it "
            "lies in local memory), or the frames of calls"
        )
    elif local:
        found.append(
            f"{local} B of local memory: this text does not say whether they are spills, a local "
            "array that is indexed at run time, or the frames of calls"
        )
    if usage.registers == MOST_REGISTERS:
        found.append(f"{MOST_REGISTERS} registers: the most that a thread can have")
    if usage.barriers == MOST_BARRIERS:
        found.append(
            f"{MOST_BARRIERS} barriers: all that a block can have, also where the number of one "
            "is not a constant"
        )
    return tuple(found)


def unknown(usage: Usage) -> tuple[tuple[str, str], ...]:
    """Fields that the text leaves open, and why."""
    found = []
    if usage.kernel and usage.registers is None:
        found.append(("registers", "the text does not state them"))
    if spilled(usage) is None:
        found.append(("spill_store_bytes, spill_load_bytes", "the text does not state spills"))
    if (
        usage.tool == "cuobjdump"
        and usage.architecture is None
        and (usage.shared_bytes or 0) >= SYSTEM_SHARED_BYTES
    ):
        found.append(
            (
                "shared_bytes",
                f"the text names no architecture: from sm_90 on {SYSTEM_SHARED_BYTES} of these "
                "bytes are the system's",
            )
        )
    return tuple(found)


def show(page: Page, title: str, usages: Sequence[Usage]) -> None:
    """The kernels of one input, then its device functions."""
    kernels = [usage for usage in usages if usage.kernel]
    others = [usage for usage in usages if not usage.kernel]
    counted = [plural(len(kernels), "kernel")]
    if others:
        counted.append(plural(len(others), "device function"))
    said_by = ", ".join(dict.fromkeys(usage.tool for usage in usages))
    page.line((title, "title"), (f": {', '.join(counted)}, as {said_by} says", ""))
    head = "".join(f"{name:>{width}}" for name, width in _COLUMNS)
    page.line((f"  {head}  kernel", "label"))
    for usage in (*kernels, *others):
        _row(page, usage)


def _row(page: Page, usage: Usage) -> None:
    spills = spilled(usage)
    both = f"{usage.spill_store_bytes or 0}/{usage.spill_load_bytes or 0}"
    stack = max(usage.stack_bytes or 0, usage.cumulative_stack_bytes or 0)
    no_stack = usage.stack_bytes is None and usage.cumulative_stack_bytes is None
    values = (
        usage.architecture,
        usage.registers,
        "?" if spills is None else both,
        None if no_stack else stack,
        usage.local_bytes,
        usage.shared_bytes,
        usage.barriers,
        dict(usage.constant_bytes).get(0),
    )
    cells = []
    for value, (name, width) in zip(values, _COLUMNS, strict=True):
        bad = (name == "spills st/ld" and spills) or (name == "stack" and stack)
        cells.append((f"{'-' if value is None else value:>{width}}", "warn" if bad else ""))
    times = f" ({usage.times} times)" if usage.times > 1 else ""
    kind = "" if usage.kernel else " (device function)"
    page.line(("  ", ""), *cells, ("  ", ""), (shown_name(usage), "title"),
              (kind + times, "dim"), hang=sum(width for _, width in _COLUMNS) + 4)  # fmt: skip
    for note in notes(usage):
        page.line((note, "warn" if "spill" in note else ""), lead=[("      ", "")], hang=2)
    for message in usage.messages:
        style = "warn" if "Performance Loss" in message.text else "dim"
        page.line((f"{message.severity}: {message.text}", style), lead=[("      ", "")], hang=2)


def failed(
    usages: Iterable[Usage], max_registers: int | None, max_spills: int | None
) -> list[tuple[Usage, str]]:
    """The functions that do not keep to the bounds, and in what; what is not stated does not."""
    found = []
    for usage in usages:
        spills = spilled(usage)
        if max_registers is not None and usage.kernel:
            if usage.registers is None:
                found.append((usage, "its registers are not stated"))
            elif usage.registers > max_registers:
                found.append((usage, f"{usage.registers} registers, at most {max_registers}"))
        if max_spills is not None:
            if spills is None:
                found.append((usage, "its spills are not stated"))
            elif spills > max_spills:
                found.append((usage, f"{spills} B of spills, at most {max_spills} B"))
    return found
