"""One kernel of a module, described: the `Kernel` document from its function.

The passes, each a function of what comes before it (`describe` has them in this order):

1. `kanalyze.kernel.evaluate`: control flow; what addresses, conditions and loops are as values.
2. `kanalyze.kernel.naming`: the names under which those values are shown.
3. `kanalyze.kernel.accesses`: stages of pipelines, then a row for each memory access.
4. here: loops, parameters, what they add up to, and the document.
5. `kanalyze.kernel.listing`: the annotated listing, where it is asked for.

Nothing depends on the kernel's name.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from kanalyze.counting.bindings import arrays_of
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.frontend.argument import Argument, Resources
from kanalyze.kernel.accesses import access_rows, pipeline_stages
from kanalyze.kernel.evaluate import EvaluatedKernel, evaluate
from kanalyze.kernel.listing import listing
from kanalyze.kernel.naming import Notation, notation_of
from kanalyze.kernel.sources import SourceLines, Sources
from kanalyze.launch.record import Launch
from kanalyze.models import roles, static_counts
from kanalyze.models.branches import branches
from kanalyze.models.coarsening import Coarsening, MovedBytes, coarsening
from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.memory import memory_access
from kanalyze.results import kernel as doc
from kanalyze.symbolic.accesses import Addresses
from kanalyze.symbolic.loops import TripCount
from kanalyze.symbolic.readable import Reader
from kanalyze.symbolic.value import Arrays, Value, in_order, leaves, unknown_reasons
from kanalyze.symbolic.value import evaluate as evaluate_values


@dataclass(frozen=True, slots=True)
class Description:
    """A kernel's document, and what it was made from.

    Attributes:
        kernel: the document.
        cfg: its control-flow graph.
        addresses: its accesses and loops as values.
        variables: the variables in sight, by name.
        staged: of each access, see `kanalyze.kernel.accesses.pipeline_stages`.
        launched: the kernel in the launch with which accesses were counted; None: there was none.
        unknown: fields of the document that are not known and why (paths within the kernel).
    """

    kernel: doc.Kernel
    cfg: Cfg
    addresses: Addresses
    variables: Mapping[str, ir.Variable]
    staged: Sequence[tuple[str, int] | None]
    launched: KernelLaunch | None
    unknown: tuple[doc.UnknownField, ...]


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
    lines = SourceLines(module, sources)
    code = evaluate(module, function, arrays or arrays_of(function.parameters, launch))
    launched = None
    if launch is not None:
        launched = KernelLaunch(code.cfg, code.addresses, code.variables, launch)
    threads = code.required_block or (launch.block if launch is not None else None)
    notation = notation_of(code, arguments, lines.line)
    staged = pipeline_stages(code, notation)
    accesses, no_address = access_rows(code, notation, arguments, lines, staged, threads, launched)
    loops, no_trips = _loops(code, notation.reader, lines)
    definitions = notation.definitions(
        [t for a in accesses for t in (a.address, a.condition) if t is not None]
        + [loop.trip_count for loop in loops if loop.trip_count is not None]
    )
    threads_total = None if threads is None else math.prod(threads)
    coarsened, not_coarsened = _coarsening(code, notation, arguments, accesses, threads_total)
    instructions = list(function.instructions)
    executed = list(code.function.instructions)  # with those of called functions
    not_understood = _not_understood(executed)
    per_warp = Counter(table.tensor_core(i) for i in executed)
    rows = [(i, row) for i in executed if (row := memory_access(i)) is not None]
    kernel = doc.Kernel(
        file=file,
        name=function.name,
        target=module.target[0] if module.target else None,
        ptx_version=module.version,
        params=_params(function, arguments, accesses),
        reqntid=code.required_block,
        maxntid=_triple(function, "maxntid"),
        minnctapersm=(function.directives.get("minnctapersm") or (None,))[0],
        instructions=len(instructions),
        opcodes=static_counts.opcodes(instructions),
        memory=static_counts.memory(rows),
        thread_coarsening=coarsened,
        accesses=accesses,
        analysed=doc.Analysed(sum(a.address is not None for a in accesses), len(accesses)),
        definitions=definitions,
        special_registers=static_counts.special_registers(executed),
        roles=_roles(code, notation, accesses, definitions),
        blocks=len(code.cfg.blocks),
        branches=_branches(code),
        loops=loops,
        registers_per_thread=resources.registers,
        spill_store_bytes=resources.spill_store_bytes,
        spill_load_bytes=resources.spill_load_bytes,
        stack_bytes=resources.stack_bytes,
        shared_bytes=resources.shared_bytes,
        resources_from=resources.tool,
        tensor_core=doc.TensorCore(per_warp["mma"], per_warp["wgmma"], per_warp["tcgen05"]),
        findings=(),
        notes=(*not_understood, *_clusters(function), *notes),
        listing=(),
    )
    if with_listing:
        names = {p: a.name for p, a in arguments.items()}
        at = {
            id(value.instruction): access
            for value, access in zip(code.addresses.accesses, accesses, strict=True)
        }
        listed = listing(module, code.cfg, kernel, at, names, sources.get)
        kernel = replace(kernel, listing=listed)
    unknown = (
        *(
            doc.UnknownField("opcodes", f"{t}; what they access is in no count")
            for t in not_understood
        ),
        *no_address,
        *no_trips,
        *_no_resources(resources),
        *not_coarsened,
    )
    return Description(kernel, code.cfg, code.addresses, code.variables, staged, launched, unknown)


# ---------------------------------------------------------------- instructions and resources


def _not_understood(instructions: Sequence[ir.Instruction]) -> list[str]:
    """Instructions whose opcode is in no row of the table (counted, and nothing else), in words."""
    unknown = Counter(i.opcode for i in instructions if table.lookup(i) is None)
    if not unknown:
        return []
    listed = ", ".join(f"{n} × {opcode}" for opcode, n in unknown.most_common(5))
    more = f" and {len(unknown) - 5} more opcodes" if len(unknown) > 5 else ""
    return [f"{unknown.total()} instructions are not understood: {listed}{more}"]


def _no_resources(resources: Resources) -> list[doc.UnknownField]:
    if resources.reason is None:
        return []
    names = ("registers_per_thread", "spill_store_bytes", "spill_load_bytes", "stack_bytes",
             "shared_bytes")  # fmt: skip
    return [doc.UnknownField(name, resources.reason) for name in names]


def _branches(code: EvaluatedKernel) -> dict[str, int]:
    """Conditional branches by whether they can part a warp."""
    every = branches(code.cfg, code.addresses.solved, code.required_block)
    by_kind = Counter(branch.kind for branch in every)
    return {kind: by_kind[kind] for kind in ("divergent", "warp", "block", "unknown")}


def _clusters(function: ir.Function) -> list[str]:
    """The shape of clusters that the kernel requires, in words."""
    shape = _triple(function, "reqnctapercluster")
    extents = " x ".join(map(str, shape or ()))
    return [f"clusters of {extents} blocks (.reqnctapercluster)"] if shape else []


def _triple(function: ir.Function, name: str) -> tuple[int, ...] | None:
    given = function.directives.get(name)
    return tuple((*given, 1, 1)[:3]) if given else None


# ---------------------------------------------------------------- parameters


def _params(
    function: ir.Function, arguments: Mapping[str, Argument], accesses: Sequence[doc.Access]
) -> tuple[doc.Param, ...]:
    params = []
    for parameter in function.parameters:
        argument = arguments.get(parameter.name)
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
                required_alignment=(
                    None
                    if parameter.element_bytes == 1  # a struct, perhaps of pointers
                    else _alignment([a for a in accesses if a.pointer == shown])
                ),
            )
        )
    return tuple(params)


def _alignment(through: Sequence[doc.Access]) -> int | None:
    """What a pointer must be a multiple of, in bytes: the widest access through it.

    Source: PTX ISA 9.0, section 6.4.1, "Addresses as Operands": an address must be aligned to the
    size of the access (of all elements of a vector); section 9.7.9.25: 16 bytes for bulk copies.
    """
    plain = [a for a in through if "tensor" not in a.opcode.split(".")]
    sizes = [a.bytes_per_thread or 0 for a in plain if a.kind not in ("bulk_load", "bulk_store")]
    sizes += [16 for a in plain if a.opcode.startswith("cp.") and "bulk" in a.opcode.split(".")]
    return max((size for size in sizes if size), default=None)


# ---------------------------------------------------------------- loops


def _loops(
    code: EvaluatedKernel, reader: Reader, lines: SourceLines
) -> tuple[tuple[doc.Loop, ...], list[doc.UnknownField]]:
    """The loops by their headers, and the trip counts that are not known."""
    rows: list[doc.Loop] = []
    unknown = []
    blocks = code.cfg.blocks
    for loop in sorted(code.cfg.loops, key=lambda loop: loop.header):
        trip = code.addresses.solved.trips[loop.header]
        text = _trip_count(trip, reader)
        if text is None:
            unknown.append(doc.UnknownField(f"loops[{len(rows)}].trip_count", trip.reason or ""))
        inside = [i.pos.line for b in loop.body for i in blocks[b].instructions]
        latches = [blocks[b].instructions[-1] for b in loop.latches if blocks[b].instructions]
        rows.append(
            doc.Loop(
                header=blocks[loop.header].name,
                depth=loop.depth,
                trip_count=text,
                counter=reader.loops.get(loop.header),
                line=min(inside, default=0),
                last_line=max(inside, default=0),
                source=lines.place(latches[-1]) if latches else None,
            )
        )
    return tuple(rows), unknown


def _trip_count(trip: TripCount, reader: Reader) -> str | None:
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
    return reader.text(count)


# ---------------------------------------------------------------- what it adds up to


def _element_bytes(
    code: EvaluatedKernel, notation: Notation, arguments: Mapping[str, Argument]
) -> dict[str, tuple[int, str]]:
    """Size in bytes of what pointers point to, and how it is known."""
    known = {
        a.name: (size, f"{a.name}: {a.type}")
        for a in arguments.values()
        if (size := a.element_bytes) is not None
    }
    for access in code.addresses.accesses:
        base = notation.base(access.address)
        if base is None or base in known or access.reasons:
            continue
        terms = notation.reader.polynomial(access.address).terms
        rest = [c for m, c in terms.items() if m != (base,)]
        size = notation.reader.element_size(access.address, math.gcd(*rest) if rest else 0)
        if rest and size > 1:
            known[base] = (size, "by which the PTX scales its index")
    return known


def _iterations(code: EvaluatedKernel) -> dict[int | None, int]:
    """Iterations of the loops that run equally often in all threads of every launch, by header."""
    limit = code.required_block or _triple(code.function, "maxntid")
    extents = np.indices(limit).reshape(3, -1) if limit is not None else None
    result: dict[int | None, int] = {}
    for header, trip in code.addresses.solved.trips.items():
        if trip.count is None:
            continue
        below = in_order([trip.count])
        names = {node.payload for node in below if node.op == "special"}
        kinds = {node.op for node in below if not node.args}
        if kinds - {"const", "special"} or names - {"tid.x", "tid.y", "tid.z"}:
            continue
        if names and extents is None:
            continue
        tids = (
            {} if extents is None else dict(zip(("tid.x", "tid.y", "tid.z"), extents, strict=True))
        )
        (counts,) = evaluate_values([trip.count], tids, {}, {}, {})
        if (counts == np.ravel(counts)[0]).all():
            result[header] = int(np.ravel(counts)[0])
    return result


def _coarsening(
    code: EvaluatedKernel,
    notation: Notation,
    arguments: Mapping[str, Argument],
    accesses: Sequence[doc.Access],
    threads: int | None,
) -> tuple[Coarsening, list[doc.UnknownField]]:
    """Elements of a thread, with what is not known of them."""
    moved = []
    iterations = _iterations(code)
    for value, access in zip(code.addresses.accesses, accesses, strict=True):
        by_thread = any(
            leaf.payload.startswith(("tid", "laneid", "warpid"))
            for leaf in leaves(value.address, "special")
        )
        if (
            access.space in ("global", "generic")
            and access.kind in ("store", "load", "async_copy")
            and access.pointer is not None
            and access.bytes_per_thread is not None
            and access.stage != "prologue"
            and by_thread
        ):
            loop = code.cfg.innermost_loop(value.block)
            header = None if loop is None else loop.header
            moved.append(
                MovedBytes(
                    access.pointer, access.opcode, access.bytes_per_thread,
                    access.kind == "store", access.loop_depth, header, iterations.get(header),
                )
            )  # fmt: skip
    result = coarsening(moved, _element_bytes(code, notation, arguments), threads)
    unknown = [
        doc.UnknownField(
            f"thread_coarsening.{name}",
            result.basis if name != "threads_per_block" else "no .reqntid in the PTX",
        )
        for name in ("elements_per_thread", "element_bytes", "threads_per_block")
        if getattr(result, name) is None
    ]
    return result, unknown


def _roles(
    code: EvaluatedKernel,
    notation: Notation,
    accesses: Sequence[doc.Access],
    definitions: Sequence[doc.Definition],
) -> tuple[doc.Role, ...]:
    """What special registers are used for."""
    known = []
    elsewhere: dict[str, list[str]] = {}
    texts: tuple[tuple[Value | None, str], ...]
    for value, access in zip(code.addresses.accesses, accesses, strict=True):
        through = access.space in ("global", "generic") and access.address and access.pointer
        if through:
            known.append(
                roles.AddressPolynomial(
                    access.pointer or "",
                    notation.reader.polynomial(value.address).terms,
                    notation.pointers.get(access.pointer or ""),
                    access.pattern,
                    access.bytes_per_thread,
                )
            )
        words = (
            "an address that is not known" if access.address is None
            else f"an address of {access.space} memory"
        )  # fmt: skip
        texts = (
            (None if through else value.address, words),
            (value.shared, "an address of shared memory"),
        )
        for address, place in texts:
            for leaf in leaves(address, "special") if address is not None else ():
                elsewhere.setdefault(str(leaf.payload), []).append(place)
    named = {d.name: d.expression for d in definitions}
    unknown = sum(a.address is None for a in accesses)
    return tuple(
        doc.Role(name[1:], text)
        for name in static_counts.special_registers(code.function.instructions)
        if (text := roles.role(name[1:], known, named, elsewhere.get(name[1:], ()), unknown))
        is not None
    )
