"""The annotated listing: source lines, the PTX that came from them, and what each line means."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kanalyze.ptx import instructions as table
from kanalyze.ptx import ir
from kanalyze.ptx.cfg import Cfg
from kanalyze.ptx.lines import source_of
from kanalyze.ptx.memory import memory_access
from kanalyze.ptx.special import special_register
from kanalyze.ptx.write import instruction_text
from kanalyze.results import kernel as doc
from kanalyze.source import SourceFile
from kanalyze.symbolic.loops import WAITS_ON_MBARRIER

_SYNCHRONISATION = {
    "bar.warp": "waits for the lanes of the warp",
    "bar": "waits for all threads of the block",
    "barrier.cluster": "waits for all threads of the cluster",
    "barrier": "waits for all threads of the block",
    "cp.async.commit_group": "closes a group of asynchronous copies",
    "cp.async.wait_group": "waits until at most {} of the groups of copies are under way",
    "cp.async.wait_all": "waits for all asynchronous copies",
    "mbarrier.try_wait": "waits on an mbarrier",
    "wgmma.fence": "orders registers before wgmma",
    "wgmma.commit_group": "closes a group of wgmma",
    "wgmma.wait_group": "waits until at most {} of the groups of wgmma are under way",
    "tcgen05.commit": "signals an mbarrier when the tensor core is done",
    "tcgen05.wait": "waits for tensor-memory accesses",
}


def in_words(access: doc.Access) -> str:
    """An access in words: ``global load of x_ptr: 16 B per thread, 512 B per warp, v4.b32, …``."""
    kinds = {
        "load": "load", "store": "store", "async_copy": "load to shared memory (cp.async)",
        "bulk_load": "bulk load to shared memory", "bulk_store": "bulk store from shared memory",
        "atomic": "atomic", "reduction": "reduction",
    }  # fmt: skip
    kind = kinds.get(access.kind, access.kind.replace("_", " "))
    preposition = {"store": "to", "bulk_store": "to"}.get(access.kind, "of")
    what = f" {preposition} {access.pointer}" if access.pointer else ""
    parts = []
    if access.bytes_per_thread is not None:
        bulk = access.kind.startswith("bulk")
        parts.append(f"{access.bytes_per_thread} B{' in all' if bulk else ' per thread'}")
    if access.bytes_per_warp is not None:
        parts.append(f"{access.bytes_per_warp} B per warp")
    if access.opcode.startswith(("ldmatrix", "stmatrix")):
        parts.append(f"{access.vector} 8x8 matri{'ces' if access.vector > 1 else 'x'}")
    elif access.kind in ("load", "store") and access.vector > 1:
        parts.append(f"v{access.vector}.b{access.element_bits}")
    elif access.kind in ("load", "store"):
        parts.append(f"b{access.element_bits}")
    if access.pattern is not None:
        parts.append(access.pattern)
    if access.hints:
        parts.append(" ".join(access.hints))
    condition = access.condition_source or access.condition
    if condition is not None:
        parts.append(f"when {condition}")
    detail = ", ".join(parts)
    return f"{access.space} {kind}{what}: {detail}" if detail else f"{access.space} {kind}{what}"


def listing(
    module: ir.Module,
    cfg: Cfg,
    kernel: doc.Kernel,
    accesses: Mapping[int, doc.Access],
    names: Mapping[str, str],
    source: Callable[[str], SourceFile],
) -> tuple[doc.ListingLine, ...]:
    """The lines of a kernel in source order, annotated.

    Args:
        module: the module of the kernel.
        cfg: its control-flow graph.
        kernel: its document, without a listing.
        accesses: its accesses by the ``id`` of their instruction.
        names: PTX parameter name to what the author calls it.
        source: gives a source file by the path in ``.file``.
    """
    return _Listing(module, cfg, kernel, accesses, names, source).run()


class _Listing:
    def __init__(
        self,
        module: ir.Module,
        cfg: Cfg,
        kernel: doc.Kernel,
        accesses: Mapping[int, doc.Access],
        names: Mapping[str, str],
        source: Callable[[str], SourceFile],
    ):
        self.module = module
        self.cfg = cfg
        self.kernel = kernel
        self.names = names
        self.source = source
        self.accesses = accesses
        self.lines: list[doc.ListingLine] = []
        self.block_of = {id(i): b.index for b in cfg.blocks for i in b.instructions}
        headers = sorted(loop.header for loop in cfg.loops)
        self.header_loops = dict(zip(headers, kernel.loops, strict=True))
        self.starts = {block.first: block.index for block in cfg.blocks}
        self.shown_source: tuple[str, int] | None = None
        self.text_lines = module.text.splitlines()

    def run(self) -> tuple[doc.ListingLine, ...]:
        """Make the lines."""
        prologues = self._first_prologue_lines()
        depth = 0
        entered: set[int] = set()
        for index, statement in enumerate(self.cfg.function.body or ()):
            if index in self.starts:
                depth = self.cfg.loop_depth[self.starts[index]]
            match statement:
                case ir.Instruction():
                    block = self.cfg.blocks[self.block_of[id(statement)]]
                    depth = self.cfg.loop_depth[block.index]
                    if block.index in self.header_loops and block.index not in entered:
                        entered.add(block.index)
                        self._mark_loop(self.header_loops[block.index], depth)
                    self._source_line(statement.loc, depth)
                    if (statement.pos.line, statement.opcode) in prologues:
                        self._mark(prologues[statement.pos.line, statement.opcode], depth)
                    self._add("instruction", statement.pos, instruction_text(statement), depth,
                              self._notes(statement))  # fmt: skip
                case ir.Label(name=name):
                    if not name.startswith(("$L__tmp", "$L__func_begin", "$L__func_end")):
                        self._add("label", statement.pos, f"{name}:", depth, ())
                case ir.Opaque(text=text):
                    self._add(
                        "opaque", statement.pos, " ".join(text.split()), depth, ("not understood",)
                    )
                case ir.Variable(name=name):
                    self._add(
                        "declaration", statement.pos, self._line_text(statement.pos), depth, ()
                    )
                case ir.ScopeOpen():
                    self._add("scope", statement.pos, "{", depth, ())
                case ir.ScopeClose():
                    self._add("scope", statement.pos, "}", depth, ())
                case ir.Directive(text=text):
                    self._add("directive", statement.pos, " ".join(text.split()), depth, ())
                case ir.RegisterDeclaration():
                    pass
        return tuple(self.lines)

    # ------------------------------------------------------------ lines

    def _add(self, kind: str, pos: ir.Pos, text: str, depth: int, notes: tuple[str, ...]) -> None:
        self.lines.append(doc.ListingLine(kind, pos.line, text, depth, None, notes))

    def _mark(self, text: str, depth: int) -> None:
        self.lines.append(doc.ListingLine("mark", 0, text, depth, None, ()))

    def _mark_loop(self, loop: doc.Loop, depth: int) -> None:
        if loop.counter is None:
            self._mark(f"loop {loop.header}: {WAITS_ON_MBARRIER}", depth)
            return
        count = f"runs {loop.trip_count} times" if loop.trip_count else "trip count not known"
        steady = any(a.stage == "steady" for a in self.kernel.accesses)
        part = ", the steady part of a pipeline" if steady and self._is_pipelined(loop) else ""
        self._mark(f"loop {loop.header}: {count}, iteration {loop.counter}{part}", depth)

    def _is_pipelined(self, loop: doc.Loop) -> bool:
        return any(
            a.stage == "steady" and loop.line <= a.line <= loop.last_line
            for a in self.kernel.accesses
        )

    def _first_prologue_lines(self) -> dict[tuple[int, str], str]:
        first = [a for a in self.kernel.accesses if a.stage == "prologue"][:1]
        return {
            (a.line, a.opcode): "prologue of a pipelined loop: the copies for its first iterations"
            for a in first
        }

    def _line_text(self, pos: ir.Pos) -> str:
        text = self.text_lines[pos.line - 1] if pos.line <= len(self.text_lines) else ""
        return " ".join(text.partition("//")[0].split())

    def _source_line(self, loc: ir.Loc | None, depth: int) -> None:
        place = source_of(loc, self.module)
        if place is None or (place.file, place.line) == self.shown_source:
            return
        self.shown_source = (place.file, place.line)
        file = self.source(place.file)
        text = file.line(place.line)
        self.lines.append(
            doc.ListingLine("source", place.line, (text or "").strip(), depth, file.shown, ())
        )

    # ------------------------------------------------------------ annotations

    def _notes(self, instruction: ir.Instruction) -> tuple[str, ...]:
        access = self.accesses.get(id(instruction))
        if access is not None:
            address = access.address if access.address is not None else f"unknown: {access.reason}"
            stage = {"prologue": "prologue: ", "steady": "steady: "}.get(access.stage or "", "")
            notes = [stage + in_words(access), f"at {address}"]
            if access.shared_address is not None:
                notes.append(f"to {access.shared_address}")
            if access.requests and access.cost is not None:
                each = access.cost / access.requests
                notes.append(
                    f"in this launch: {access.requests:,} requests, {each:.4g} "
                    f"{access.cost_unit} each"
                )
            return tuple(notes)
        row = memory_access(instruction)
        if row is not None and row.space == "param" and row.kind == "load":
            return self._parameter(instruction)
        unit = table.tensor_core(instruction)
        if unit is not None:
            return ("tensor core",)
        for name in table.uses(instruction):
            special = special_register(name)
            if special is not None:
                axis = name.partition(".")[2]
                return (special.meaning + (f" ({axis})" if axis else ""),)
        return self._synchronisation(instruction)

    def _parameter(self, instruction: ir.Instruction) -> tuple[str, ...]:
        names = [n for n in table.uses(instruction) if n in self.names]
        if not names:
            return ()
        param = next(p for p in self.kernel.params if p.name == names[0])
        facts = "".join(f", {fact}" for fact in param.facts)
        kind = f" ({param.source_type}{facts})" if param.source_type else ""
        return (f"argument {self.names[names[0]]}{kind}",)

    def _synchronisation(self, instruction: ir.Instruction) -> tuple[str, ...]:
        for prefix, words in _SYNCHRONISATION.items():
            if instruction.opcode == prefix or instruction.opcode.startswith(prefix + "."):
                number = next(
                    (o.text for o in instruction.operands if isinstance(o, ir.Immediate)), "?"
                )
                return (words.format(number),)
        return ()
