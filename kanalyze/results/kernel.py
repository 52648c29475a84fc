"""The report on PTX as data: what every renderer shows and the JSON holds.

Frozen and plain; a field that is not known is None and stands in `Report.unknown` with its reason.
Field names are the keys of the JSON (``kanalyze/schemas/ptx.json``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Self

from kanalyze.models.coarsening import Coarsening
from kanalyze.models.static_counts import AccessClass
from kanalyze.text.plain import document, from_plain, of_schema

SCHEMA = "kanalyze.ptx/1"


def derive(result: object, **values: object) -> None:
    """Set fields of a frozen result that follow from its others."""
    for name, value in values.items():
        object.__setattr__(result, name, value)


class Document:
    """A result with a schema of its own, as JSON-ready data and back."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON-ready data."""
        return document(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`.

        Raises:
            TypeError: a key is missing, or a value has another type.
            ValueError: the data has another schema.
        """
        (schema,) = (f.default for f in fields(cls) if f.name == "schema")  # type: ignore[arg-type]
        return from_plain(cls, of_schema(data, str(schema)))


@dataclass(frozen=True, slots=True)
class Param:
    """A formal parameter of the kernel, in the order of the PTX.

    ``name`` is as in the PTX; ``source_name`` and ``source_type`` are what the kernel's author
    calls it (None: not known), ``facts`` what the compiler was told ("divisible by 16").
    ``pointer`` is the state space it points to, None for a value or where the PTX does not say.
    ``required_alignment`` is what the argument must be a multiple of, in bytes, for the accesses
    through it not to fault: the widest of them (None: no access is known to go through it).
    """

    name: str
    type: str
    pointer: str | None
    align: int | None
    source_name: str | None
    source_type: str | None
    facts: tuple[str, ...]
    required_alignment: int | None = None


@dataclass(frozen=True, slots=True)
class Source:
    """A line of the user's source: file, 1-based line and column."""

    file: str
    line: int
    column: int


@dataclass(frozen=True, slots=True)
class Access:
    """One memory instruction.

    ``line`` is its line in the PTX; ``address`` the address as an expression (None: not known,
    ``reason`` says why), ``shared_address`` that on the shared side of a copy; ``pointer`` the
    parameter or variable it starts from; ``condition`` when it is executed (for ``cp.async`` with a
    source size: when it reads), ``condition_source`` the same in the words of the source;
    ``bytes_per_warp`` the distinct bytes that the 32 lanes of a warp touch if all take part;
    ``pattern`` how the lanes' addresses lie. Where a launch is known, ``requests`` are the warps
    that execute it with a lane taking part, and ``cost`` the sectors or bank wavefronts
    (``cost_unit``) of all of them. ``stage`` is "prologue" for a copy in front of a
    pipelined loop whose steady part ("steady") does the same for later tiles.
    """

    line: int
    opcode: str
    space: str
    kind: str
    bytes_per_thread: int | None
    vector: int
    element_bits: int
    guard: str | None
    address: str | None
    shared_address: str | None
    reason: str | None
    pointer: str | None
    condition: str | None
    condition_source: str | None
    bytes_per_warp: int | None
    pattern: str | None
    hints: tuple[str, ...]
    requests: int | None
    cost: int | None
    cost_unit: str | None
    block: str
    loop_depth: int
    stage: str | None
    source: Source | None


@dataclass(frozen=True, slots=True)
class Loop:
    """A natural loop: its header's label, nesting depth, and how often its body runs.

    ``trip_count`` is an expression (once the loop is entered), None where it is not known;
    ``counter`` is the name of its iteration number in addresses, None for a loop that only waits.
    """

    header: str
    depth: int
    trip_count: str | None
    counter: str | None
    line: int
    last_line: int
    source: Source | None


@dataclass(frozen=True, slots=True)
class TensorCore:
    """Static counts of tensor-core instructions."""

    mma: int
    wgmma: int
    tcgen05: int


@dataclass(frozen=True, slots=True)
class Role:
    """What a special register selects: ``register`` "ctaid.x", ``role`` in words."""

    register: str
    role: str


@dataclass(frozen=True, slots=True)
class Proof:
    """What came out when the change that a finding advises was made.

    ``method``: "recompiled" (the kernel, with the change), "counted" (the launch's accesses, as if
    changed: exact) or "simulated" (an estimate of caches and time). ``change`` says what was
    changed; ``before`` and ``after`` are the same measures (names of the JSON, or with their
    unit) without it and with it.
    """

    method: str
    change: str
    before: Mapping[str, float]
    after: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth changing, or knowing.

    ``severity``: "error" (wrong results, or a launch that fails), "warning" (it costs something
    that can be had back), "info" (worth knowing; whether to change it depends). ``line`` is one of
    the PTX (0: none, of machine code alone), ``source`` the place in the source where it is known.
    ``numbers`` are what the message says, ``saves`` what the change would save ("sectors",
    "l1_bytes" through L1, "bytes" of memory, "wavefronts",
    "instructions", "time_us"). ``proof`` is None where the change was not tried; ``unproven`` then
    says why.
    """

    id: str
    severity: str
    line: int
    message: str
    advice: str
    source: Source | None = None
    numbers: Mapping[str, Any] = field(default_factory=dict)
    proof: Proof | None = None
    unproven: str | None = None
    saves: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Analysed:
    """How many memory accesses are fully known, out of how many; ``missing`` are the others."""

    accesses: int
    of: int
    missing: int = field(init=False)

    def __post_init__(self) -> None:
        derive(self, missing=self.of - self.accesses)


@dataclass(frozen=True, slots=True)
class Definition:
    """A name that addresses use for a part of them, and the expression it stands for."""

    name: str
    expression: str


@dataclass(frozen=True, slots=True)
class ListingLine:
    """One line of the annotated listing.

    ``kind``: "source" (text of a source line; ``line`` and ``file`` are its place), "instruction",
    "label", "declaration", "scope", "directive", "opaque" (``line`` is that of the PTX) or "mark"
    (a remark: where a loop begins, where its prologue is). ``notes`` are annotations of the line.
    """

    kind: str
    line: int
    text: str
    loop_depth: int
    file: str | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SassRow:
    """Accesses or tensor instructions of the machine code, of one category and width.

    ``width`` is the bytes of a thread ("16 B") or the shape of a tensor instruction. ``opcodes``
    are the mnemonics in full. ``sass`` counts them without ``dummies`` (``@!PT LDS RZ, [RZ]``).
    ``ptx`` is the same count in the PTX, and ``verdict`` "equal", "explained" (``explanation`` says
    by what) or "not explained"; all None where there is no PTX. ``hints`` are the cache hints with
    how many instructions have each; ``hints_added`` those on how much L2 fetches (``.LTC128B``)
    that the PTX does not ask for.
    """

    category: str
    width: str
    opcodes: Mapping[str, int]
    sass: int
    dummies: int
    ptx: int | None
    verdict: str | None
    explanation: str | None
    hints: Mapping[str, int]
    hints_added: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Sass:
    """What the machine code of a kernel holds; counts are static.

    ``origin`` says which machine code: "gelu.cubin", "assembled by ptxas 12.9.86".
    ``instructions`` counts all of the kernel's section; ``never_reached`` those among them behind
    the last exit (padding); ``not_read`` lines that could not be read. ``memory`` has the shape of
    the kernel's, ``vectors`` by bits. ``registers_per_thread``, ``stack_bytes`` and
    ``shared_bytes`` (static) are what the cubin says; ``local_*_bytes`` add up the local accesses;
    ``stack`` puts stack and spills into words. ``dummies`` adds up those of ``comparison``.
    """

    target: str | None
    origin: str
    instructions: int
    never_reached: int
    not_read: int
    memory: Mapping[str, Mapping[str, AccessClass]]
    tensor_core: TensorCore
    comparison: tuple[SassRow, ...]
    registers_per_thread: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    local_store_bytes: int
    local_load_bytes: int
    stack: str
    dummies: int = field(init=False)

    def __post_init__(self) -> None:
        derive(self, dummies=sum(row.dummies for row in self.comparison))


@dataclass(frozen=True, slots=True)
class MemoryTotal:
    """Instructions of several kinds in one state space added up, see `Kernel.memory`."""

    instructions: int
    bytes_per_thread: int | None


LOADS = ("load", "async_copy", "bulk_load")
"""Kinds of global memory that the headline adds up as loads."""
STORES = ("store", "bulk_store")


def memory_total(parts: Iterable[AccessClass]) -> MemoryTotal:
    """The sum; its bytes are None where those of a part are not known."""
    kinds = [part for part in parts if part.instructions]
    known = all(part.bytes_per_thread is not None for part in kinds)
    return MemoryTotal(
        sum(part.instructions for part in kinds),
        sum(part.bytes_per_thread or 0 for part in kinds) if known else None,
    )


@dataclass(frozen=True, slots=True)
class Kernel:
    """The report on one kernel.

    ``sass`` is None where no machine code is at hand or it was not asked for, ``assumptions`` say
    what of a launch's types and constants was inferred. What follows from the others:
    ``memory_totals`` by state space, of global memory "loads" (`LOADS`) and "stores" (`STORES`),
    atomics and reductions apart; ``accesses_in_loops`` of the accesses stand in loops,
    ``loop_depth`` the deepest of them.
    """

    kind: Literal["ptx"] = field(default="ptx", kw_only=True)
    file: str
    name: str
    target: str | None
    ptx_version: str | None
    params: tuple[Param, ...]
    reqntid: tuple[int, ...] | None
    maxntid: tuple[int, ...] | None
    minnctapersm: int | None
    instructions: int
    opcodes: Mapping[str, int]
    memory: Mapping[str, Mapping[str, AccessClass]]
    thread_coarsening: Coarsening
    accesses: tuple[Access, ...]
    analysed: Analysed
    definitions: tuple[Definition, ...]
    special_registers: Mapping[str, int]
    roles: tuple[Role, ...]
    blocks: int
    branches: Mapping[str, int]
    loops: tuple[Loop, ...]
    registers_per_thread: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    resources_from: str | None
    tensor_core: TensorCore
    findings: tuple[Finding, ...]
    notes: tuple[str, ...]
    listing: tuple[ListingLine, ...]
    sass: Sass | None = None
    assumptions: tuple[str, ...] = ()
    memory_totals: Mapping[str, MemoryTotal] = field(init=False)
    accesses_in_loops: int = field(init=False)
    loop_depth: int = field(init=False)

    def __post_init__(self) -> None:
        inside = self.memory.get("global", {})
        kinds = {"loads": LOADS, "stores": STORES, "atomics": ("atomic",),
                 "reductions": ("reduction",)}  # fmt: skip
        totals = {
            name: memory_total(inside[kind] for kind in some if kind in inside)
            for name, some in kinds.items()
        }
        for space, traffic in self.memory.items():
            if space != "global":
                totals[space] = memory_total(traffic.values())
        depths = [access.loop_depth for access in self.accesses if access.loop_depth]
        derive(
            self,
            memory_totals=totals,
            accesses_in_loops=len(depths),
            loop_depth=max(depths, default=0),
        )

    def opcodes_beyond(self, most: int) -> tuple[list[tuple[str, int]], int, int]:
        """The commonest opcodes; of the others their instructions, and how many they are."""
        ordered = sorted(self.opcodes.items(), key=lambda item: (-item[1], item[0]))
        rest = ordered[most:]
        return ordered[:most], sum(count for _, count in rest), len(rest)


@dataclass(frozen=True, slots=True)
class SassKernel:
    """The report on a kernel of which there is no PTX: the facts of its machine code.

    In the JSON it has the keys of `Kernel`; those that are not here are null there.
    """

    kind: Literal["sass"] = field(default="sass", kw_only=True)
    file: str
    name: str
    target: str | None
    registers_per_thread: int | None
    spill_store_bytes: int | None
    spill_load_bytes: int | None
    stack_bytes: int | None
    shared_bytes: int | None
    resources_from: str | None
    notes: tuple[str, ...]
    sass: Sass | None


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that is null: its path (``kernels[0].registers_per_thread``) and the reason."""

    field: str
    reason: str


@dataclass(frozen=True, slots=True)
class Skipped:
    """An input, or a part of it, that could not be read; ``line`` 0: the whole file."""

    file: str
    line: int
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What `kanalyze.analyze` returns; ``functions`` names the device functions with a body."""

    kernels: tuple[Kernel | SassKernel, ...]
    functions: tuple[str, ...]
    skipped: tuple[Skipped, ...]
    unknown: tuple[UnknownField, ...]
    schema: str = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON-ready data."""
        plain = document(self)
        plain["kernels"] = [dict.fromkeys(_KERNEL_KEYS) | kernel for kernel in plain["kernels"]]
        return plain

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> Report:
        """The inverse of `to_dict`.

        Raises:
            KeyError: a list is missing.
            TypeError: a key is missing, or a value has another type.
            ValueError: the data has another schema.
        """
        of_schema(data, SCHEMA)
        return Report(
            kernels=tuple(_kernel(item) for item in data["kernels"]),
            functions=tuple(data["functions"]),
            skipped=from_plain(tuple[Skipped, ...], data["skipped"]),
            unknown=from_plain(tuple[UnknownField, ...], data["unknown"]),
        )


_KERNEL_KEYS = tuple(f.name for f in fields(Kernel))
_SASS_KERNEL_KEYS = frozenset(f.name for f in fields(SassKernel))
PTX_KEYS = tuple(key for key in _KERNEL_KEYS if key not in _SASS_KERNEL_KEYS)
"""The keys of a kernel that say something about its PTX: null where there is none."""


def _kernel(data: Mapping[str, Any]) -> Kernel | SassKernel:
    return from_plain(Kernel, data) if data["kind"] == "ptx" else from_plain(SassKernel, data)
