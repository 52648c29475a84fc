"""One kernel of a module, described: the `Kernel` document from its function.

Every step is a function of what comes before it; nothing depends on the kernel's name.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kanalyze.counting.bindings import arrays_of
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.frontend.argument import Argument, Resources
from kanalyze.kernel.listing import listing
from kanalyze.kernel.naming import name_values
from kanalyze.launch.record import Launch
from kanalyze.models import counts, lanes, roles, stages
from kanalyze.models.branches import branches
from kanalyze.models.coarsening import Coarsening, Moved, coarsening
from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg, build
from kanalyze.ptx.lines import source_of
from kanalyze.results import kernel as doc
from kanalyze.source import SourceFile
from kanalyze.symbolic import accesses as addresses
from kanalyze.symbolic.bits import Bits
from kanalyze.symbolic.descriptors import descriptor_of
from kanalyze.symbolic.loops import WAITS_ON_MBARRIER, TripCount
from kanalyze.symbolic.reach import reach
from kanalyze.symbolic.readable import TOO_LONG, Reader
from kanalyze.symbolic.value import Arrays, Value, leaves, unknown_reasons


@dataclass
class Description:
    """A kernel's document with its fields that are not known and why (paths within the kernel).

    ``staged`` says of each access whether it is a pipelined loop's prologue or its steady part, and
    of which loop (`kanalyze.models.stages`).
    """

    kernel: doc.Kernel
    cfg: Cfg
    found: addresses.Addresses
    variables: Mapping[str, ir.Variable]
    staged: Sequence[tuple[str, int] | None]
    unknown: list[doc.UnknownField] = field(default_factory=list)


@dataclass
class Sources:
    """Source files by path, read once."""

    files: dict[str, SourceFile] = field(default_factory=dict)

    def get(self, path: str) -> SourceFile:
        """The file that a ``.file`` directive names."""
        if path not in self.files:
            self.files[path] = SourceFile.read(Path(path))
        return self.files[path]


def describe(
    module: ir.Module,
    function: ir.Function,
    file: str,
    arguments: Mapping[str, Argument],
    resources: Resources,
    notes: tuple[str, ...],
    sources: Sources,
    with_listing: bool,
    launch: Launch | None = None,
    arrays: Arrays | None = None,
) -> Description:
    """Describe one kernel.

    Args:
        module: the module it stands in.
        function: an entry of it, with a body.
        file: the input, as the report names it.
        arguments: PTX parameter name to what else is known of it.
        resources: what the assembler says.
        notes: remarks to pass on.
        sources: cache of source files.
        with_listing: whether to make the annotated listing, too.
        launch: a launch, with which each access is counted.
        arrays: pointers whose arrays are assumed; those of the launch, if left out.
    """
    describer = _Describer(
        module, function, file, arguments, resources, notes, sources, launch,
        arrays or arrays_of(function.parameters, launch),
    )  # fmt: skip
    return describer.run(with_listing)


def _alignment(through: Sequence[doc.Access]) -> int | None:
    """What a pointer must be a multiple of, in bytes: the widest access through it.

    Source: PTX ISA 9.0, section 6.4.1, "Addresses as Operands": an address must be aligned to the
    size of the access (of all elements of a vector); section 9.7.9.25: 16 bytes for bulk copies.
    """
    plain = [a for a in through if "tensor" not in a.opcode.split(".")]
    sizes = [a.bytes_per_thread or 0 for a in plain if a.kind not in ("bulk_load", "bulk_store")]
    sizes += [16 for a in plain if a.opcode.startswith("cp.") and "bulk" in a.opcode.split(".")]
    return max((size for size in sizes if size), default=None)


class _Describer:
    def __init__(
        self,
        module: ir.Module,
        function: ir.Function,
        file: str,
        arguments: Mapping[str, Argument],
        resources: Resources,
        notes: tuple[str, ...],
        sources: Sources,
        launch: Launch | None,
        arrays: Arrays | None,
    ):
        self.module = module
        self.function = function
        self.file = file
        self.arguments = arguments
        self.resources = resources
        self.notes = list(notes)
        self.sources = sources
        self.unknown: list[doc.UnknownField] = []
        self.cfg: Cfg = build(function)
        self.variables = {v.name: v for v in module.variables}
        self.variables |= {s.name: s for s in function.body or () if isinstance(s, ir.Variable)}
        self.found = addresses.find(self.cfg, self.variables, arrays)
        self.executed = reach(self.cfg, self.found.solved)
        self.required = self._block_extents()
        self.threads = self.required or (launch.block if launch is not None else None)
        self.launched = (
            KernelLaunch(self.cfg, self.found, self.variables, launch)
            if launch is not None
            else None
        )
        self.reader = Reader(
            names={name: a.name for name, a in arguments.items()},
            bits=Bits({name: a.divisor for name, a in arguments.items()}, self._greatest()),
            loops=self._counters(),
        )
        self.values = {name: a.value for name, a in arguments.items() if a.value is not None}
        self.pointers = self._pointers()
        self.reader.named = self._named()

    # ------------------------------------------------------------ small facts

    def _say_unknown(self, name: str, reason: str) -> None:
        self.unknown.append(doc.UnknownField(name, reason))

    def _say_not_understood(self, instructions: list[ir.Instruction]) -> None:
        """Instructions whose opcode is in no row of the table: counted, and nothing else."""
        unknown = Counter(i.opcode for i in instructions if table.lookup(i) is None)
        if not unknown:
            return
        listed = ", ".join(f"{n} × {opcode}" for opcode, n in unknown.most_common(5))
        more = f" and {len(unknown) - 5} more opcodes" if len(unknown) > 5 else ""
        text = f"{unknown.total()} instructions are not understood: {listed}{more}"
        self.notes.insert(0, text)
        self._say_unknown("opcodes", f"{text}; what they access is in no count")

    def _block_extents(self) -> tuple[int, int, int] | None:
        given = self.function.directives.get("reqntid")
        if not given or not all(given):  # 0 threads: the assembler says what is wrong
            return None
        x, y, z = (*given, 1, 1)[:3]
        return x, y, z

    def _greatest(self) -> dict[str, int]:
        axes = zip("xyz", self.required or (), strict=False)
        return {f"tid.{axis}": extent - 1 for axis, extent in axes}

    def _counters(self) -> dict[int, str]:
        """Names of iteration numbers; a loop that only waits for something needs none."""
        trips = self.found.solved.trips
        counting = sorted(h for h, trip in trips.items() if trip.reason != WAITS_ON_MBARRIER)
        return {h: "i" if len(counting) == 1 else f"i{n}" for n, h in enumerate(counting)}

    def _named(self) -> dict[Value, str]:
        """Names of the author's for parts of addresses and conditions."""
        values = [v for a in self.found.accesses for v in (a.address, a.condition) if v is not None]
        values += [t.count for t in self.found.solved.trips.values() if t.count is not None]
        taken = [*self.reader.names.values(), *self.reader.loops.values(), *self.variables]
        return name_values(values, self.found.solved.registers.origins, self._line_of, taken)

    def _line_of(self, instruction: ir.Instruction) -> tuple[str, int, str] | None:
        place = source_of(instruction.loc, self.module)
        text = self.sources.get(place.file).line(place.line) if place is not None else None
        return (place.file, place.line, text) if place is not None and text is not None else None

    def _definitions(self, texts: list[str]) -> tuple[doc.Definition, ...]:
        """The names that occur in ``texts``, and in each other, with what they stand for."""
        definitions = {n: self.reader.definition(v) for v, n in self.reader.named.items()}
        wanted: set[str] = set()
        pending = list(texts)
        while pending:
            words = set(re.findall(r"(?<![\w.$%])[A-Za-z_]\w*(?![\w.])", pending.pop()))
            new = (words & definitions.keys()) - wanted
            wanted |= new
            pending += [definitions[name] for name in new]
        return tuple(doc.Definition(n, e) for n, e in definitions.items() if n in wanted)

    def _pointers(self) -> dict[str, int | None]:
        """Names, as shown, of what an address can start from, with the size of an element."""
        result: dict[str, int | None] = {}
        for parameter in self.function.parameters:
            argument = self.arguments.get(parameter.name)
            shown = argument.name if argument is not None else parameter.name
            if argument is not None and argument.type is not None:
                if argument.type.startswith("*"):
                    result[shown] = argument.element_bytes
            elif parameter.pointer is not None or parameter.element_bytes == 8:
                result[shown] = None
        return result | {name: None for name in self.variables}

    # ------------------------------------------------------------ the document

    def run(self, with_listing: bool) -> Description:
        """Make the document."""
        instructions = list(self.function.instructions)
        self._say_not_understood(instructions)
        rows = [(i, row) for i in instructions if (row := table.memory_access(i)) is not None]
        accesses = self._accesses()
        loops = self._loops()
        per_warp = Counter(table.tensor_core(i) for i in instructions)
        analysed = doc.Analysed(sum(a.address is not None for a in accesses), len(accesses))
        definitions = self._definitions(
            [t for a in accesses for t in (a.address, a.condition) if t is not None]
            + [loop.trip_count for loop in loops if loop.trip_count is not None]
        )
        if self.resources.reason is not None:
            for name in ("registers_per_thread", "spill_store_bytes", "spill_load_bytes",
                         "stack_bytes", "shared_bytes"):  # fmt: skip
                self._say_unknown(name, self.resources.reason)
        kernel = doc.Kernel(
            file=self.file,
            name=self.function.name,
            target=self.module.target[0] if self.module.target else None,
            ptx_version=self.module.version,
            params=self._params(accesses),
            reqntid=self.required,
            maxntid=self._triple("maxntid"),
            minnctapersm=(self.function.directives.get("minnctapersm") or (None,))[0],
            instructions=len(instructions),
            opcodes=counts.opcodes(instructions),
            memory=counts.memory(rows),
            thread_coarsening=self._coarsening(accesses),
            accesses=tuple(accesses),
            analysed=analysed,
            definitions=definitions,
            special_registers=counts.special_registers(instructions),
            roles=self._roles(accesses, definitions),
            blocks=len(self.cfg.blocks),
            branches=self._branches(),
            loops=tuple(loops),
            registers_per_thread=self.resources.registers,
            spill_store_bytes=self.resources.spill_store_bytes,
            spill_load_bytes=self.resources.spill_load_bytes,
            stack_bytes=self.resources.stack_bytes,
            shared_bytes=self.resources.shared_bytes,
            resources_from=self.resources.tool,
            tensor_core=doc.TensorCore(per_warp["mma"], per_warp["wgmma"], per_warp["tcgen05"]),
            findings=(),
            notes=tuple(self.notes),
            listing=(),
        )
        if with_listing:
            names = {p: a.name for p, a in self.arguments.items()}
            at = {
                id(found.instruction): access
                for found, access in zip(self.found.accesses, accesses, strict=True)
            }
            lines = listing(self.module, self.cfg, kernel, at, names, self.sources.get)
            kernel = replace(kernel, listing=lines)
        return Description(kernel, self.cfg, self.found, self.variables, self.staged, self.unknown)

    def _branches(self) -> dict[str, int]:
        """Conditional branches by whether they can diverge."""
        found = Counter(b.kind for b in branches(self.cfg, self.found.solved, self.required))
        return {kind: found[kind] for kind in ("divergent", "warp", "block", "unknown")}

    def _triple(self, name: str) -> tuple[int, ...] | None:
        given = self.function.directives.get(name)
        return tuple((*given, 1, 1)[:3]) if given else None

    def _params(self, accesses: list[doc.Access]) -> tuple[doc.Param, ...]:
        params = []
        for parameter in self.function.parameters:
            argument = self.arguments.get(parameter.name)
            shown = argument.name if argument else parameter.name
            params.append(
                doc.Param(
                    name=parameter.name,
                    type=parameter.type,
                    pointer=parameter.pointer,
                    align=parameter.pointer_align or parameter.align,
                    source_name=argument.name if argument else None,
                    source_type=argument.type if argument else None,
                    facts=argument.facts if argument else (),
                    required_alignment=_alignment([a for a in accesses if a.pointer == shown]),
                )
            )
        return tuple(params)

    def _source(self, loc: ir.Loc | None) -> doc.Source | None:
        line = source_of(loc, self.module)
        if line is None:
            return None
        return doc.Source(self.sources.get(line.file).shown, line.line, line.column)

    # ------------------------------------------------------------ accesses

    def _accesses(self) -> list[doc.Access]:
        copies = [
            stages.Copy(a.block, self._origin(a)) if a.row.kind in ("async_copy", "bulk_load")
            else stages.Copy(a.block, None)
            for a in self.found.accesses
        ]  # fmt: skip
        self.staged = stages.stages(self.cfg, copies)
        result = []
        for index, (access, stage) in enumerate(zip(self.found.accesses, self.staged, strict=True)):
            result.append(self._access(index, access, stage[0] if stage else None))
        return result

    def _origin(self, access: addresses.AccessValue) -> tuple[object, ...] | None:
        loc = access.instruction.loc
        return None if loc is None else (loc.file, loc.line, loc.column, self._base(access.address))

    def _base(self, address: Value) -> str | None:
        """The pointer parameter or variable that an address starts from."""
        bases = self.reader.polynomial(address).bases(self.pointers)
        return bases[0][0] if len(bases) == 1 else None

    def _access(self, index: int, access: addresses.AccessValue, stage: str | None) -> doc.Access:
        row, instruction = access.row, access.instruction
        reasons = access.reasons
        if "tensor" in instruction.parts:  # the operand is the descriptor, not the data
            reasons = ["a tensor map says where the data is (TMA)"]
        text = None if reasons else self.reader.address(access.address, self.pointers)
        if text is not None and TOO_LONG in text:
            text, reasons = None, ["the expression is too long to show"]
        if reasons:
            self._say_unknown(f"accesses[{index}].address", reasons[0])
        when = self._when(access)
        condition = self.reader.condition(when) if when is not None else None
        pattern = self._pattern(access)
        counted = self.launched.cost(access).counted if self.launched is not None else None
        block = self.cfg.blocks[access.block]
        guard = instruction.guard
        source = source_of(instruction.loc, self.module)
        mask = None
        if source is not None and condition is not None:
            mask = self.sources.get(source.file).mask_of(source.line, source.column)
        return doc.Access(
            line=instruction.pos.line,
            opcode=instruction.opcode,
            space=row.space,
            kind=row.kind,
            bytes_per_thread=row.bytes_per_thread,
            vector=row.vector,
            element_bits=row.element_bits,
            guard=None if guard is None else f"{'!' if guard.negated else ''}{guard.name}",
            address=text,
            shared_address=self._shared(access),
            reason=reasons[0] if reasons else None,
            pointer=self._pointer(access),
            condition=condition,
            condition_source=mask,
            bytes_per_warp=pattern.bytes_per_warp if pattern else None,
            pattern=pattern.words if pattern else None,
            hints=row.hints,
            requests=counted.requests if counted else None,
            cost=counted.cost if counted else None,
            cost_unit=("wavefronts" if row.space == "shared" else "sectors") if counted else None,
            block=block.name,
            loop_depth=self.cfg.loop_depth[access.block],
            stage=stage,
            source=self._source(instruction.loc),
        )

    def _pointer(self, access: addresses.AccessValue) -> str | None:
        """What an access goes through: a pointer, a variable, or a tensor map among parameters."""
        tensor = access.tensor
        if tensor is None:
            return self._base(access.address)
        if tensor.fields is not None:
            start = tensor.fields.get("global_address")
            return self._base(start) if start is not None else None
        name = descriptor_of(tensor)
        argument = self.arguments.get(name) if name is not None else None
        return argument.name if argument is not None else name

    def _when(self, access: addresses.AccessValue) -> Value | None:
        """When the access is executed: its guard, and the branches that lead to its block.

        Branches that are the same for the whole launch say nothing of an access and are left out.
        """
        reached = self.executed.get(access.block)
        parts = leaves(reached, "special") if reached is not None else []
        if reached is None or not any(
            p.payload.startswith(("tid", "ctaid", "lane")) for p in parts
        ):
            return access.condition
        if access.condition is None:
            return reached
        return self.found.solved.registers.pool.make("and", 1, reached, access.condition)

    def _shared(self, access: addresses.AccessValue) -> str | None:
        if access.shared is None or unknown_reasons(access.shared):
            return None
        text = self.reader.address(access.shared, self.pointers)
        return text if TOO_LONG not in text else None

    def _pattern(self, access: addresses.AccessValue) -> lanes.WarpPattern | None:
        row = access.row
        size = row.bytes_per_thread
        if self.threads is None or size is None or row.kind in ("bulk_load", "bulk_store"):
            return None
        if row.space == "local":
            return lanes.WarpPattern(lanes.WARP * size, "each thread in memory of its own", ())
        offsets = lanes.lane_offsets(access.address, self.threads, self.values)
        if offsets is None:
            return None
        if access.instruction.base in ("ldmatrix", "stmatrix"):  # rows of 16 bytes, 8 a matrix
            return lanes.warp_pattern(offsets[: 8 * row.vector], lanes.MATRIX_ROW)
        return lanes.warp_pattern(offsets, size)

    # ------------------------------------------------------------ what it adds up to

    def _element_bytes(self) -> dict[str, tuple[int, str]]:
        known = {a.name: (size, f"{a.name}: {a.type}") for a in self.arguments.values()
                 if (size := a.element_bytes) is not None}  # fmt: skip
        for access in self.found.accesses:
            base = self._base(access.address)
            if base is None or base in known or access.reasons:
                continue
            rest = [
                c for m, c in self.reader.polynomial(access.address).terms.items() if m != (base,)
            ]
            size = self.reader.element_size(access.address, math.gcd(*rest) if rest else 0)
            if rest and size > 1:
                known[base] = (size, "by which the PTX scales its index")
        return known

    def _coarsening(self, accesses: list[doc.Access]) -> Coarsening:
        moved = []
        for value, access in zip(self.found.accesses, accesses, strict=True):
            by_thread = any(leaf.payload.startswith(("tid", "laneid", "warpid"))
                            for leaf in leaves(value.address, "special"))  # fmt: skip
            if (
                access.space in ("global", "generic")
                and access.kind in ("store", "load", "async_copy")
                and access.pointer is not None
                and access.bytes_per_thread is not None
                and access.stage != "prologue"
                and by_thread
            ):
                moved.append(
                    Moved(access.pointer, access.opcode, access.bytes_per_thread,
                          access.kind == "store", access.loop_depth)
                )  # fmt: skip
        threads = None if self.threads is None else math.prod(self.threads)
        result = coarsening(moved, self._element_bytes(), threads)
        for name in ("elements_per_thread", "element_bytes", "threads_per_block"):
            if getattr(result, name) is None:
                reason = result.basis if name != "threads_per_block" else "no .reqntid in the PTX"
                self._say_unknown(f"thread_coarsening.{name}", reason)
        return result

    def _roles(
        self, accesses: list[doc.Access], definitions: tuple[doc.Definition, ...]
    ) -> tuple[doc.Role, ...]:
        used = counts.special_registers(self.function.instructions)
        known = []
        for value, access in zip(self.found.accesses, accesses, strict=True):
            if access.space in ("global", "generic") and access.address and access.pointer:
                known.append(
                    roles.Known(
                        access.pointer,
                        self.reader.polynomial(value.address).terms,
                        self.pointers.get(access.pointer),
                        access.pattern,
                        access.bytes_per_thread,
                    )
                )
        named = {d.name: d.expression for d in definitions}
        return tuple(
            doc.Role(name[1:], text)
            for name in used
            if (text := roles.role(name[1:], known, named)) is not None
        )

    def _loops(self) -> list[doc.Loop]:
        result: list[doc.Loop] = []
        for loop in sorted(self.cfg.loops, key=lambda loop: loop.header):
            trip = self.found.solved.trips[loop.header]
            text = self._trip(trip)
            header = self.cfg.blocks[loop.header]
            if text is None:
                self._say_unknown(f"loops[{len(result)}].trip_count", trip.reason or "")
            lines = [i.pos.line for b in loop.body for i in self.cfg.blocks[b].instructions]
            branches = [self.cfg.blocks[latch].instructions[-1] for latch in loop.latches
                        if self.cfg.blocks[latch].instructions]  # fmt: skip
            result.append(
                doc.Loop(
                    header=header.name,
                    depth=loop.depth,
                    trip_count=text,
                    counter=self.reader.loops.get(loop.header),
                    line=min(lines, default=0),
                    last_line=max(lines, default=0),
                    source=self._source(branches[-1].loc) if branches else None,
                )
            )
        return result

    def _trip(self, trip: TripCount) -> str | None:
        if trip.count is None or unknown_reasons(trip.count):
            return None
        count = trip.count
        while True:  # the bound by 0 or 1 is what "once it is entered" means
            if count.op in ("maxs", "maxu") and count.args[1].op == "const":
                count = count.args[0]
            elif count.op == "select" and count.args[2].unsigned in (0, 1):
                count = count.args[1]
            else:
                break
        return self.reader.text(count)
