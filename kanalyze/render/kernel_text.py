"""The report as text for a terminal, a pipe or a wall. It computes nothing about the kernel."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping

from kanalyze.models.static_counts import AccessClass
from kanalyze.render import findings_text, listing_text, sass_text
from kanalyze.results import kernel as doc
from kanalyze.text.numbers import plural
from kanalyze.text.page import NBSP, Page, Segment

_STATIC = "Counts are static: instructions in the listing, not executions."
_MNEMONIC = {
    "load": "ld", "store": "st", "async_copy": "cp.async", "bulk_load": "bulk copy in",
    "bulk_store": "bulk copy out", "atomic": "atom", "reduction": "red",
}  # fmt: skip
_TOP_OPCODES = 12
SECTIONS = (
    "kernel", "incomplete", "accesses", "loads", "stores", "atomics", "reductions", "shared",
    "local", "const", "generic", "coarsening", "tensor core", "registers", "shared mem.",
    "threads", "branches",
    *(f"%{name}.{axis}" for name in ("ctaid", "clusterid", "tid") for axis in "xyz"),
    "where", "loops", "parameters", "opcodes", "PTX", "SASS", "spills", "findings", "listing",
    "functions", "not read",
)  # fmt: skip
"""The sections of a report: its labels at the left, and parts without one."""


def render(
    report: doc.Report,
    *,
    width: int = 100,
    color: bool = False,
    quiet: bool = False,
    listing: bool = True,
    sections: Collection[str] = (),
) -> str:
    """The report as text.

    Args:
        report: what `kanalyze.analyze` returned.
        width: columns; longer lines are wrapped.
        color: whether to use ANSI colours.
        quiet: one line for each kernel, no more.
        listing: whether to show the listing, where the report has one.
        sections: only these of `SECTIONS`, and the names of kernels where there are several; all
            where empty.
    """
    page = Page(width)
    unread = Counter(skipped.file for skipped in report.skipped if skipped.line > 0)
    reasons = {unknown.field: unknown.reason for unknown in report.unknown}
    for index, kernel in enumerate(report.kernels):
        if quiet:
            if isinstance(kernel, doc.SassKernel):
                page.line(*sass_text.quiet(kernel), hang=2)
            else:
                page.line(*_quiet(kernel, unread[kernel.file]), hang=2)
            continue
        if index:
            page.blank()
            page.blank()
        path = f"kernels[{index}]"
        if isinstance(kernel, doc.SassKernel):
            sass_text.show_kernel(page, kernel, path, reasons)
            continue
        _Summary(page, kernel, path, reasons, unread[kernel.file]).show()
        if listing and kernel.listing:
            listing_text.show(page, kernel)
    if not quiet:
        _rest(page, report)
    heads = ["kernel"] if sections and len(report.kernels) > 1 else []
    return page.text(color, [*sections, *heads])


def loads_of(kernel: doc.Kernel) -> list[tuple[str, AccessClass]]:
    """The kinds of global memory traffic that the headline adds up as loads."""
    traffic = kernel.memory.get("global", {})
    return [(k, traffic[k]) for k in doc.LOADS if k in traffic and traffic[k].instructions]


def _size(size: int | None) -> str:
    return "? B per thread" if size is None else f"{size} B per thread"


def _widths(space: str, kind: str, traffic: AccessClass) -> str:
    mnemonic = _MNEMONIC.get(kind, kind.replace("_", " "))
    if kind in ("load", "store", "atomic", "reduction"):
        mnemonic += "" if space == "generic" else f".{space}"
    return f"{mnemonic}{NBSP}" + ", ".join(
        f"{n}{NBSP}×{NBSP}{w}" for w, n in traffic.vectors.items()
    )


def _quiet(kernel: doc.Kernel, unread: int) -> list[Segment]:
    loads, stores = kernel.memory_totals["loads"], kernel.memory_totals["stores"]
    parts = [
        f"{kernel.target or 'target ?'}",
        plural(kernel.instructions, "instruction"),
        f"{plural(loads.instructions, 'load')} ({_size(loads.bytes_per_thread)})",
        f"{plural(stores.instructions, 'store')} ({_size(stores.bytes_per_thread)})",
    ]
    elements = kernel.thread_coarsening.elements_per_thread
    counted = "? elements" if elements is None else plural(elements, "element")
    parts.append(f"{counted} per thread")
    core = kernel.tensor_core
    parts += [
        f"{n} {name}"
        for name, n in (("mma", core.mma), ("wgmma", core.wgmma), ("tcgen05", core.tcgen05))
        if n
    ]
    registers = kernel.registers_per_thread
    parts.append("? registers" if registers is None else plural(registers, "register"))
    if kernel.spill_store_bytes or kernel.spill_load_bytes:
        parts.append(f"spills {kernel.spill_store_bytes} B")
    analysed = kernel.analysed
    parts.append(f"{analysed.accesses} of {analysed.of} accesses analysed")
    if kernel.findings:
        parts.append(f"findings: {findings_text.numbers(kernel.findings)}")
    parts += [note for note in kernel.notes if "not understood" in note]
    if unread:
        parts.append(f"{plural(unread, 'statement')} of the file not read")
    return [(f"{kernel.file}: ", "file"), (kernel.name, "title"), (f"  {', '.join(parts)}", "")]


def _in_loops(kernel: doc.Kernel) -> str:
    """Which of the counts are not those of executions: accesses by how often they run."""
    if not kernel.accesses_in_loops:
        return ""
    nested = f" (up to {kernel.loop_depth} deep)" if kernel.loop_depth > 1 else ""
    return (
        f" {kernel.accesses_in_loops} of the {plural(len(kernel.accesses), 'access')} stand in "
        f"loops{nested} and run once an iteration."
    )


class _Summary:
    """The block of facts above the listing."""

    def __init__(
        self, page: Page, kernel: doc.Kernel, path: str, reasons: Mapping[str, str], unread: int
    ):
        self.path = path
        self.page = page
        self.kernel = kernel
        self.unread = unread
        self.reasons = reasons

    def show(self) -> None:
        """Add all of it."""
        kernel, page = self.kernel, self.page
        page.section("kernel")
        page.rule()
        page.line(
            (kernel.name, "title"),
            (f"   {kernel.target or 'target unknown'} · ", ""),
            (f"PTX {kernel.ptx_version or 'unknown'} · ", ""),
            (kernel.file, "file"),
            hang=2,
        )
        for note in (*kernel.notes, *(f"assumed: {text}" for text in kernel.assumptions)):
            page.line((note, "dim"), hang=2)
        page.rule()
        self._analysed()
        self._memory()
        self._threads()
        self._loops()
        self._params()
        self._opcodes()
        sass_text.add(page, sass_text.sass_rows(kernel.sass, self.reasons.get(f"{self.path}.sass")))
        page.section("")
        page.line((_STATIC + _in_loops(kernel), "dim"))
        page.blank()
        findings_text.add(page, kernel.findings, kernel.analysed)

    def value(self, field: str, value: object, unit: str = "") -> str:
        """A value, or that it is unknown and why."""
        if value is None:
            reason = self.reasons.get(f"{self.path}.{field}")
            return f"unknown ({reason})" if reason else "unknown"
        return f"{value}{unit}"

    def _analysed(self) -> None:
        if self.unread:
            self.page.row(
                "incomplete",
                (f"{plural(self.unread, 'statement')} of the file could not be read", "bad"),
                (" (listed at the end): the counts below lack them", ""),
            )
        analysed = self.kernel.analysed
        text = f"{analysed.accesses} of {analysed.of} accesses analysed"
        if analysed.of == 0:
            self.page.row(
                "accesses", ("none: the kernel has no memory access but its arguments", "warn")
            )
            return
        whole = analysed.accesses == analysed.of
        style = "good" if whole else "bad" if analysed.accesses == 0 else "warn"
        self.page.row("accesses", (text, style))
        if whole:
            return
        for access in self.kernel.accesses:
            if access.address is None:
                self.page.row(
                    "",
                    (f"line {access.line} {access.opcode}: {access.reason or 'no reason'}", "warn"),
                )

    def _memory(self) -> None:
        kernel = self.kernel
        traffic = kernel.memory.get("global", {})
        loads = loads_of(kernel)
        self._traffic("loads", "global", loads)
        for kind in doc.LOADS[1:]:
            stages = [a.stage for a in kernel.accesses if a.kind == kind and a.stage is not None]
            if stages:
                text = ", ".join(
                    f"{stages.count(s)} {where}"
                    for s, where in (
                        ("prologue", "in the prologue"),
                        ("steady", "in the loop (steady)"),
                    )
                )
                self.page.row("", (f"of {_MNEMONIC[kind]}: {text}", ""))
        self._traffic("stores", "global", [(k, traffic[k]) for k in doc.STORES if k in traffic])
        for kind, label in (("atomic", "atomics"), ("reduction", "reductions")):
            if kind in traffic and traffic[kind].instructions:
                self._traffic(label, "global", [(kind, traffic[kind])])
                opcodes = Counter(a.opcode for a in kernel.accesses if a.kind == kind)
                listed = ", ".join(f"{n} × {opcode}" for opcode, n in opcodes.items())
                self.page.row("", (f"{listed}: each reads and writes L2", ""))
        unused = []
        for space in kernel.memory:
            if space in ("global", "param"):
                continue
            used = [(k, t) for k, t in kernel.memory[space].items() if t.instructions]
            if used or space == "shared":
                self._traffic(space, space, used)
            else:
                unused.append(space)
        if unused:
            listed = " or ".join(", ".join(unused).rsplit(", ", 1))
            self.page.row("", (f"no {listed} accesses in the PTX", "dim"))

    def _traffic(self, label: str, space: str, parts: list[tuple[str, AccessClass]]) -> None:
        parts = [(kind, t) for kind, t in parts if t.instructions]
        if not parts:
            self.page.row(label, ("none", "dim"))
            return
        total = self.kernel.memory_totals[label]
        detail = "; ".join(_widths(space, k, t) for k, t in parts)
        self.page.row(
            label,
            (plural(total.instructions, "instruction"), "memory"),
            (f", {_size(total.bytes_per_thread)}: {detail}", ""),
        )

    def _threads(self) -> None:
        kernel = self.kernel
        coarse = kernel.thread_coarsening
        if coarse.elements_per_thread is None:
            self.page.row("coarsening", (f"unknown ({coarse.basis})", ""))
        else:
            self.page.row(
                "coarsening",
                (f"{plural(coarse.elements_per_thread, 'element')} per thread", "title"),
                (f", {coarse.basis}", ""),
            )
        core = kernel.tensor_core
        used = [
            f"{n} × {name}"
            for name, n in (("mma", core.mma), ("wgmma", core.wgmma), ("tcgen05.mma", core.tcgen05))
            if n
        ]
        self.page.row("tensor core", (", ".join(used) or "none", "tensor" if used else "dim"))
        spills = (kernel.spill_store_bytes, kernel.spill_load_bytes)
        if None not in spills and kernel.registers_per_thread is not None:
            spilled = any(spills)
            says = f" (says {kernel.resources_from})" if kernel.resources_from else ""
            self.page.row(
                "registers",
                (f"{kernel.registers_per_thread} per thread", ""),
                (
                    ", spills "
                    + (f"{spills[0]} B stored, {spills[1]} B loaded" if spilled else "none"),
                    "bad" if spilled else "",
                ),
                (f", stack {self.value('stack_bytes', kernel.stack_bytes, ' B')}", ""),
                (says, "dim"),
            )
        else:
            self.page.row(
                "registers", (self.value("registers_per_thread", kernel.registers_per_thread), "")
            )
        size = self.value("shared_bytes", kernel.shared_bytes, " B per block, static and dynamic")
        self.page.row("shared mem.", (size, ""))
        self.page.row("threads", (self._block(), ""))
        self._branches()
        for role in kernel.roles:
            self.page.row(f"%{role.register}", (role.role, ""))
        for index, definition in enumerate(kernel.definitions):
            self.page.row(
                "where" if index == 0 else "",
                (definition.name, "address"),
                (f" = {definition.expression}", ""),
            )

    def _branches(self) -> None:
        branches = self.kernel.branches
        words = {
            "divergent": "can diverge",
            "warp": "the same for a warp",
            "block": "the same for a block",
            "unknown": "not known",
        }
        parts = [f"{branches[kind]} {text}" for kind, text in words.items() if branches.get(kind)]
        if parts:
            self.page.row("branches", (", ".join(parts), ""))

    def _block(self) -> str:
        kernel = self.kernel
        parts = []
        if kernel.reqntid is not None:
            parts.append(f"{' x '.join(map(str, kernel.reqntid))} per block (.reqntid)")
        if kernel.maxntid is not None:
            parts.append(f"at most {' x '.join(map(str, kernel.maxntid))} per block (.maxntid)")
        if kernel.minnctapersm is not None:
            parts.append(f"at least {kernel.minnctapersm} blocks per SM (.minnctapersm)")
        return ", ".join(parts) or "unknown (the PTX does not say how many a block has)"

    def _loops(self) -> None:
        kernel = self.kernel
        if not kernel.loops:
            self.page.row("loops", ("none", "dim"))
        for index, loop in enumerate(kernel.loops):
            where = f", {loop.source.file}:{loop.source.line}" if loop.source else ""
            depth = f", depth {loop.depth}" if loop.depth > 1 else ""
            count = (
                f"runs {loop.trip_count} times"
                if loop.trip_count is not None
                else f"trip count {self.value(f'loops[{index}].trip_count', None)}"
            )
            self.page.row(
                "loops" if index == 0 else "",
                (loop.header, "loop"),
                (f", lines {loop.line}-{loop.last_line}{where}{depth}: ", ""),
                (count + (f", counter {loop.counter}" if loop.counter else ""), ""),
            )

    def _params(self) -> None:
        if not self.kernel.params:
            self.page.row("parameters", ("none", "dim"))
        for index, param in enumerate(self.kernel.params):
            known = [param.source_type] if param.source_type else []
            kind = f".{param.type}" + (f" to {param.pointer}" if param.pointer else "")
            need = param.required_alignment
            wide = [f"{need}-B accesses: needs {need}-byte alignment"] if need else []
            text = ", ".join([*known, kind, *param.facts, *wide])
            name = param.source_name or param.name
            self.page.row("parameters" if index == 0 else "", (name, "title"), (f": {text}", ""))

    def _opcodes(self) -> None:
        kernel = self.kernel
        common, rest, others = kernel.opcodes_beyond(_TOP_OPCODES)
        shown = ", ".join(f"{n}{NBSP}×{NBSP}{name}" for name, n in common)
        if others:
            shown += f", and {plural(rest, 'instruction')} of {plural(others, 'other opcode')}"
        blocks = plural(kernel.blocks, "basic block")
        self.page.row(
            "opcodes",
            (f"{plural(kernel.instructions, 'instruction')} in {blocks}", "title"),
            (f": {shown}", ""),
        )


def _rest(page: Page, report: doc.Report) -> None:
    if report.functions:
        page.blank()
        page.section("functions")
        page.line((f"device functions defined: {', '.join(report.functions)}", ""), hang=2)
    if report.skipped:
        page.blank()
        page.section("not read")
        page.line((f"not read ({len(report.skipped)}):", "bad"))
        for skipped in report.skipped:
            place = f"{skipped.file}:{skipped.line}" if skipped.line else skipped.file
            page.line((f"  {place}: {skipped.reason}", ""), hang=4)
