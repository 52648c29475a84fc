"""What a rule may look at: a kernel, and one launch of it where it is known."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from kanalyze.counting.bindings import arrays_of
from kanalyze.counting.ptx_launch import KernelLaunch
from kanalyze.errors import KanalyzeError, Unknown
from kanalyze.findings import suppressions
from kanalyze.findings.budget import Budget, SpentError
from kanalyze.frontend.argument import Argument, Resources
from kanalyze.frontend.compile import Compiled
from kanalyze.kernel.describe import Description, describe
from kanalyze.kernel.sources import Sources
from kanalyze.launch.record import Launch
from kanalyze.models import warp_patterns
from kanalyze.ptx import ir
from kanalyze.ptx.lines import source_of
from kanalyze.ptx.parse import parse_ptx_modules
from kanalyze.results import kernel as doc
from kanalyze.results.traffic import Traffic
from kanalyze.sass import cfg as sass_cfg
from kanalyze.sass import crosscheck
from kanalyze.symbolic.accesses import AccessValue

if TYPE_CHECKING:
    from kanalyze.devices.table import Device
    from kanalyze.frontend.subject import Subject
    from kanalyze.kernel.resources import AssembledKernels
    from kanalyze.sass.code import Code
    from kanalyze.traffic.totals import LaunchTotals

NO_SOURCE = "there is no source to compile again, only its PTX"
"""Why a change was not tried."""
_OF_NVCC = "NVIDIA NVVM Compiler"
_HEAD = 2000  # characters in which a compiler names itself
_NOT_ASKED_FOR = Unknown("it was not asked for (--no-sass)")
_TRITON_SHARED = "global_smem"  # what Triton calls a kernel's shared memory


@dataclass
class Facts:
    """A kernel, how it was made, and its launch.

    Attributes:
        subject: the module it stands in, and what it was compiled from (``subject.compiled``,
            None for PTX and machine code that was given).
        function: the kernel.
        description: its document, control-flow graph and evaluated accesses.
        machine: where machine code and resources come from.
        resources: registers, spills, stack and shared memory.
        arguments: PTX parameter to name, type and facts.
        launch: grid, block and arguments; None where no launch is known.
        sources: cache of source files.
        with_code: whether the machine code was asked for, see `code`.
        traffic, totals, device: the estimate of the launch, for `check_launch`.
        estimate: makes the estimate of the launch of the kernel compiled otherwise.
        with_estimate: makes the same facts with the estimate of the launch, see `in_launch`.
        budget: how often the kernel may yet be compiled and simulated.
        changed: what was changed, in words, of a kernel that was compiled again.
    """

    subject: Subject
    function: ir.Function
    description: Description
    machine: AssembledKernels
    resources: Resources
    arguments: dict[str, Argument]
    launch: Launch | None
    sources: Sources = field(default_factory=Sources)
    with_code: bool = True
    traffic: Traffic | None = None
    totals: LaunchTotals | None = None
    device: Device | None = None
    estimate: Callable[[Facts], Traffic] | None = None
    with_estimate: Callable[[], Facts] | None = None
    budget: Budget = field(default_factory=Budget)
    changed: str = ""
    cache: dict[str, Any] = field(default_factory=dict, repr=False)  # what several rules look at
    _recompilations: dict[str, Facts | Unknown] = field(default_factory=dict)
    _traffic_of_launch: Traffic | Unknown | None = None

    # ------------------------------------------------------------ the kernel

    @property
    def kernel(self) -> doc.Kernel:
        """The kernel's document."""
        return self.description.kernel

    @property
    def compiled(self) -> Compiled | None:
        """What Triton made it from."""
        return self.subject.compiled

    @property
    def capability(self) -> int | None:
        """The architecture that the PTX is for: 90 for ``sm_90a``."""
        digits = "".join(c for c in self.kernel.target or "" if c.isdigit())
        return int(digits) if digits else None

    def accesses(self) -> Iterator[tuple[AccessValue, doc.Access]]:
        """Every memory access: its values, and its row of the document."""
        return zip(self.description.addresses.accesses, self.kernel.accesses, strict=True)

    @property
    def of_triton(self) -> bool:
        """Whether Triton made the kernel."""
        return self.compiled is not None or _TRITON_SHARED in self.description.variables

    @property
    def of_nvcc(self) -> bool:
        """Whether nvcc made the PTX, from CUDA C++."""
        return self.compiled is None and _OF_NVCC in self.subject.module.text[:_HEAD]

    @property
    def warps(self) -> int | None:
        """Warps of a block, as far as they are fixed."""
        if self.compiled is not None:
            return int(self.compiled.metadata["num_warps"])
        extents = self.kernel.reqntid
        if extents is None and self.launch is not None:
            extents = self.launch.block
        return None if extents is None else -(-math.prod(extents) // warp_patterns.WARP)

    @property
    def code(self) -> Code | Unknown:
        """The machine code; else why there is none."""
        return self.machine.code() if self.with_code else _NOT_ASKED_FOR

    @cached_property
    def changed_by_assembler(self) -> frozenset[ir.Pos]:
        """The accesses that it merged, split or dropped, as far as the machine code is at hand."""
        name, code = self.function.name, self.code
        functions = () if isinstance(code, Unknown) else code.module.functions
        machine = next((f for f in functions if f.name == name), None)
        if machine is None:
            return frozenset()
        kernel = self.description
        graph, places = sass_cfg.build(machine), kernel.addresses.places
        matches = crosscheck.matches(kernel.cfg, graph, places, self.subject.module)
        changed = [m for m in matches if m.fate in ("merged", "split", "dropped")]
        return frozenset(item.instruction.pos for match in changed for item in match.before)

    @cached_property
    def launched(self) -> KernelLaunch | None:
        """The kernel with its launch: what each access costs."""
        if self.totals is not None:
            return self.totals.launched
        kernel = self.description
        if kernel.launched is not None or self.launch is None:
            return kernel.launched
        return KernelLaunch(kernel.cfg, kernel.addresses, kernel.variables, self.launch)

    @cached_property
    def in_launch(self) -> Facts:
        """The same with the estimate of the launch, for proofs that need the time.

        Itself where it has one, where no launch is known, or it cannot be estimated.
        """
        if self.traffic is not None or self.launch is None or self.with_estimate is None:
            return self
        try:
            return replace(self.with_estimate(), budget=self.budget, with_code=self.with_code)
        except KanalyzeError:
            return self

    # ------------------------------------------------------------ places

    @cached_property
    def place(self) -> tuple[int, doc.Source | None]:
        """The kernel itself: its line in the PTX, and its ``def`` in the source."""
        compiled = self.compiled
        source = None
        if compiled is not None:
            file = self.sources.get(str(compiled.source_file))
            head = f"def {compiled.source_function}("
            definitions = [
                n for n, text in enumerate(file.lines, 1) if text.strip().startswith(head)
            ]
            if definitions:
                source = doc.Source(file.shown, definitions[0], 1)
        return self.function.pos.line, source

    def at(self, instruction: ir.Instruction) -> tuple[int, doc.Source | None]:
        """The line of an instruction in the PTX, and its place in the source."""
        place = source_of(instruction.loc, self.subject.module)
        if place is None:
            return instruction.pos.line, None
        shown = self.sources.get(place.file).shown
        return instruction.pos.line, doc.Source(shown, place.line, place.column)

    def comments(self, finding: doc.Finding) -> list[str]:
        """The comments that stand at a finding: in the source, and in the PTX."""
        comments = []
        place = finding.source
        if place is not None:
            files = [f for f in self.sources.files.values() if f.shown == place.file]
            comments += [
                text for file in files for text in suppressions.comments_at(file, place.line)
            ]
        if 0 < finding.line <= len(self._ptx_lines):
            comments += suppressions.comments(self._ptx_lines[finding.line - 1])
        return comments

    @cached_property
    def _ptx_lines(self) -> list[str]:
        return self.subject.module.text.split("\n")

    # ------------------------------------------------------------ the same, changed

    def recompiled(self, **changes: Any) -> Facts | Unknown:
        """The kernel compiled with other arguments of `kanalyze.compile_kernel`; else why not.

        ``settings`` and ``facts`` are added to those that were given. What was compiled before is
        not compiled again.
        """
        if self.compiled is None:
            return Unknown(NO_SOURCE)
        key = repr(sorted((name, _ordered(value)) for name, value in changes.items()))
        if key not in self._recompilations:
            try:
                self.budget.compile(words(changes))
                self._recompilations[key] = self._of(self.compiled.again(**changes), words(changes))
            except SpentError as spent:
                return Unknown(str(spent))
            except KanalyzeError as error:
                self._recompilations[key] = Unknown(f"it does not compile so: {error}")
        return self._recompilations[key]

    def _of(self, compiled: Compiled, changed: str) -> Facts:
        """The same for another compilation of the kernel, in the same launch."""
        from kanalyze.frontend.subject import Subject, arguments_of, launch_again, launch_for
        from kanalyze.kernel.resources import assemble

        (module,) = parse_ptx_modules(compiled.ptx, f"{compiled.name}.ptx")
        (function,) = [f for f in module.entries if f.name == compiled.name]
        given = self.subject.launch
        if given is not None and self.compiled is not None:
            given = launch_again(given, self.compiled, compiled)
        subject = Subject(
            module, module.name, compiled, given, compiled.notes, assume=self.subject.assume
        )
        machine = assemble(subject)
        resources = machine.resources(function.name)
        known = given is not None or self.subject.launch is None
        launch = launch_for(subject, function) if known else None
        arguments = arguments_of(subject, function, launch)
        description = describe(
            module, function, subject.file, arguments, resources, subject.notes, self.sources,
            with_listing=False, arrays=arrays_of(function.parameters, launch),
        )  # fmt: skip
        return Facts(
            subject, function, description, machine, resources, arguments, launch, self.sources,
            with_code=self.with_code, device=self.device, budget=self.budget, changed=changed,
        )  # fmt: skip

    def estimated(self, other: Facts) -> Traffic | Unknown:
        """The estimate of the launch of another compilation; else why there is none."""
        if self.estimate is None or other.launch is None:
            return Unknown("there is no estimate of the launch")
        if other._traffic_of_launch is None:
            try:
                self.budget.simulate(other.changed)
                other._traffic_of_launch = self.estimate(other)
            except SpentError as spent:
                return Unknown(str(spent))
            except KanalyzeError as error:
                other._traffic_of_launch = Unknown(str(error))
        return other._traffic_of_launch


def _ordered(value: Any) -> Any:
    """The same for two mappings that differ in the order of their items."""
    return sorted(value.items()) if isinstance(value, dict) else value


def words(changes: Mapping[str, Any]) -> str:
    """Arguments of `Facts.recompiled` as one writes them: ``BLOCK=64, num_warps=8``."""
    parts = []
    for name, value in changes.items():
        if isinstance(value, Mapping):
            between = " " if name == "facts" else "="
            parts += [f"{key}{between}{item}" for key, item in value.items()]
        else:
            parts.append("another source" if name == "source" else f"{name}={value}")
    return ", ".join(parts)
