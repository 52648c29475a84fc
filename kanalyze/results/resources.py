"""What kernels need, as build logs say: what `kanalyze resources` shows and its JSON holds.

A number that the text does not state is None.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from kanalyze.results.kernel import Document, Skipped, UnknownField, derive
from kanalyze.text.mangling import demangle
from kanalyze.toolchain.ptxas_log import SYSTEM_SHARED_BYTES, Message, Usage

SCHEMA = "kanalyze.resources/1"
MOST_REGISTERS = 255
"""Registers that a thread can have (CUDA C++ Programming Guide, compute capabilities)."""
MOST_BARRIERS = 16
"""Barriers of a block (PTX ISA, "bar.sync": numbers 0 to 15)."""


@dataclass(frozen=True, slots=True)
class FunctionMessage:
    """A warning or remark of a tool on one function."""

    line: int
    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class FileMessage:
    """A warning or remark of a tool that names no function."""

    file: str
    line: int
    severity: str
    text: str


@dataclass(frozen=True, slots=True)
class FunctionResources:
    """One kernel or device function of one text, see `kanalyze.toolchain.ptxas_log.Usage`.

    ``demangled`` is None where ``name`` is not mangled; ``constant_bytes`` are by bank. What
    follows from the others: ``spill_bytes`` of stores and loads together, ``most_stack_bytes``
    (the frame, or that with its calls, whichever is larger), and ``notes``: what stands out.
    """

    file: str
    line: int
    name: str
    demangled: str | None
    kernel: bool
    tool: str
    architecture: str | None
    registers: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    stack_bytes: int | None
    cumulative_stack_bytes: int | None
    local_bytes: int | None
    shared_bytes: int | None
    barriers: int | None
    constant_bytes: Mapping[str, int]
    textures: int | None
    surfaces: int | None
    samplers: int | None
    compile_time_us: float | None
    times: int
    messages: tuple[FunctionMessage, ...]
    spill_bytes: int | None = field(init=False)
    most_stack_bytes: int | None = field(init=False)
    notes: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        spills = [n for n in (self.spill_store_bytes, self.spill_load_bytes) if n is not None]
        stacks = [n for n in (self.stack_bytes, self.cumulative_stack_bytes) if n is not None]
        derive(
            self,
            spill_bytes=sum(spills) if spills else None,
            most_stack_bytes=max(stacks, default=None),
        )
        derive(self, notes=tuple(self._notes()))

    @property
    def shown_name(self) -> str:
        """The name as a person writes it."""
        return self.demangled or self.name

    @property
    def local_memory_bytes(self) -> int:
        """Local memory of a thread, however the text calls it; 0 where it does not say."""
        return max(self.most_stack_bytes or 0, self.local_bytes or 0)

    def _notes(self) -> Iterator[str]:
        local = self.local_memory_bytes
        if self.spill_bytes:
            limit = f" at {self.registers}" if self.registers is not None else ""
            yield (
                f"spills: registers ran out{limit}, a thread's code stores "
                f"{self.spill_store_bytes or 0} B to local memory and loads "
                f"{self.spill_load_bytes or 0} B"
            )
        elif local and self.spill_bytes == 0:
            yield (
                f"{local} B of stack without spills: a local array that is indexed at run time (it "
                "lies in local memory), or the frames of calls"
            )
        elif local:
            yield (
                f"{local} B of local memory: this text does not say whether they are spills, a "
                "local array that is indexed at run time, or the frames of calls"
            )
        if self.registers == MOST_REGISTERS:
            yield f"{MOST_REGISTERS} registers: the most that a thread can have"
        if self.barriers == MOST_BARRIERS:
            yield (
                f"{MOST_BARRIERS} barriers: all that a block can have, also where the number of "
                "one is not a constant"
            )

    def unknown(self) -> Iterator[tuple[str, str]]:
        """Fields that the text leaves open, and why."""
        if self.kernel and self.registers is None:
            yield "registers", "the text does not state them"
        if self.spill_bytes is None:
            yield "spill_store_bytes, spill_load_bytes", "the text does not state spills"
        bare = self.tool == "cuobjdump" and self.architecture is None
        if bare and (self.shared_bytes or 0) >= SYSTEM_SHARED_BYTES:
            yield (
                "shared_bytes",
                f"the text names no architecture: from sm_90 on {SYSTEM_SHARED_BYTES} of these "
                "bytes are the system's",
            )


def function_resources(file: str, usage: Usage) -> FunctionResources:
    """One function of a text of ``file``."""
    name = demangle(usage.name)[0] if usage.name.startswith(("_Z", "?")) else None
    same = {f.name for f in fields(FunctionResources)} & {f.name for f in fields(Usage)}
    said: dict[str, Any] = {name: getattr(usage, name) for name in same}
    said |= {
        "file": file,
        "demangled": name if name and name != usage.name else None,
        "constant_bytes": {str(bank): size for bank, size in usage.constant_bytes},
        "compile_time_us": None if usage.compile_ms is None else round(usage.compile_ms * 1000, 3),
        "messages": tuple(FunctionMessage(m.line, m.severity, m.text) for m in usage.messages),
    }
    return FunctionResources(**said)


def file_message(file: str, message: Message) -> FileMessage:
    """A message of a text of ``file``."""
    return FileMessage(file, message.line, message.severity, message.text)


@dataclass(frozen=True, slots=True)
class ResourceFailure:
    """A function that does not keep to a bound, and in what."""

    name: str
    architecture: str | None
    reason: str


def failures(
    functions: Iterable[FunctionResources], max_registers: int | None, max_spills: int | None
) -> Iterator[tuple[FunctionResources, str]]:
    """The functions that do not keep to the bounds, and in what; what is not stated does not."""
    for function in functions:
        registers, spills = function.registers, function.spill_bytes
        if max_registers is not None and function.kernel:
            if registers is None:
                yield function, "its registers are not stated"
            elif registers > max_registers:
                yield function, f"{registers} registers, at most {max_registers}"
        if max_spills is not None:
            if spills is None:
                yield function, "its spills are not stated"
            elif spills > max_spills:
                yield function, f"{spills} B of spills, at most {max_spills} B"


@dataclass(frozen=True, slots=True)
class ResourcesReport(Document):
    """What `kanalyze resources` says of all inputs; ``failed`` are the bounds not kept to."""

    kernels: tuple[FunctionResources, ...]
    messages: tuple[FileMessage, ...]
    failed: tuple[ResourceFailure, ...]
    skipped: tuple[Skipped, ...]
    schema: str = SCHEMA
    unknown: tuple[UnknownField, ...] = field(init=False)

    def __post_init__(self) -> None:
        unknown = tuple(
            UnknownField(f"{function.name}: {name}", reason)
            for function in self.kernels
            for name, reason in function.unknown()
        )
        derive(self, unknown=unknown)
