"""What the assembler or the cubin says of a module's kernels: resources, and the machine code.

A module has machine code from the first of these that is at hand: the cubin that was given, the one
that Triton made with it, the one beside the ``.ptx``, what ptxas makes of the text. The resources
come from ptxas (which alone reports spills), but for a cubin that was given itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from kanalyze.errors import InputError, KanalyzeError, MissingToolError, Unknown
from kanalyze.frontend.argument import Resources
from kanalyze.frontend.subject import Subject
from kanalyze.kernel import sass as sass_section
from kanalyze.ptx import ir
from kanalyze.ptx.calls import dynamic_shared
from kanalyze.ptx.write import write_ptx
from kanalyze.results import kernel as doc
from kanalyze.sass.code import Code, code_of, read_code
from kanalyze.sass.explain import Places
from kanalyze.toolchain import ptxas, tools
from kanalyze.toolchain.resources import KernelResources

LEFT_OUT = Unknown("left out as asked for (--no-sass)")
NO_PTX = "there is no PTX in the file"
_DYNAMIC = "part of it is chosen at launch: give --launch"
_Spills = tuple[int | None, int | None]
_NO_SPILLS = "a cubin does not record spills (sass.stack says what it has)"


@dataclass(frozen=True)
class AssembledKernels:
    """Resources and machine code of the kernels of a subject; see `assemble`.

    Attributes:
        subject: the module, and the machine code that came with it.
        dynamic: the kernels of which a launch chooses a part of the shared memory.
        known: what a tool says of each kernel, by name.
        cubin: what ptxas made of the PTX, where it was asked.
        reason: why ``known`` is empty, where something failed.
    """

    subject: Subject
    dynamic: Collection[str]
    known: Mapping[str, KernelResources]
    cubin: bytes | None = None
    reason: str | None = None

    # ------------------------------------------------------------ resources

    def resources(self, kernel: str) -> Resources:
        """The resources of one kernel."""
        known = self.known.get(kernel)
        if known is None:
            return Resources(reason=self.reason or "ptxas does not report on this kernel")
        given = self.subject.given
        return Resources(
            registers=known.registers,
            spill_store_bytes=None if given else known.spill_store_bytes,
            spill_load_bytes=None if given else known.spill_load_bytes,
            stack_bytes=known.stack_bytes,
            shared_bytes=self._shared(kernel, known),
            tool=known.tool,
            remarks=known.remarks,
        )

    def _shared(self, kernel: str, known: KernelResources) -> int | None:
        launch = self.subject.launch
        if kernel in self.dynamic and launch is not None:
            return launch.shared_bytes
        if self.subject.shared_bytes is not None:
            return self.subject.shared_bytes
        return None if kernel in self.dynamic else known.shared_bytes

    # ------------------------------------------------------------ machine code

    def code(self) -> Code | Unknown:
        """The machine code, disassembled once; else the reason why there is none."""
        return self._code

    @cached_property
    def _code(self) -> Code | Unknown:
        subject = self.subject
        try:
            if subject.cubin is not None:
                return code_of(subject.cubin)
            if subject.compiled is not None:
                tool = subject.compiled.resources.tool
                return read_code(subject.compiled.cubin, f"assembled by {tool}")
            if self.cubin is None:
                return Unknown(self.reason or "there is no machine code of this file")
            tool = next((row.tool for row in self.known.values()), "ptxas")
            return read_code(self.cubin, f"assembled by {tool}")
        except KanalyzeError as error:
            return Unknown(str(error))

    def _section(
        self,
        code: Code | Unknown,
        name: str,
        ptx: ir.Function | None = None,
        spills: _Spills = (None, None),
        places: Places | None = None,
    ) -> doc.Sass | Unknown:
        """The ``sass`` part of a kernel, or why there is none."""
        if isinstance(code, Unknown):
            return code
        try:
            module = self.subject.module if ptx is not None else None
            return sass_section.section(code, name, ptx, module, spills, places)
        except KanalyzeError as error:
            return Unknown(str(error))

    def with_sass(
        self, kernel: doc.Kernel, function: ir.Function, wanted: bool, places: Places
    ) -> tuple[doc.Kernel, list[doc.UnknownField]]:
        """A kernel's document with the ``sass`` part, and what of it is not known and why."""
        spills = (kernel.spill_store_bytes, kernel.spill_load_bytes)
        code = self.code() if wanted else LEFT_OUT
        sass = self._section(code, function.name, function, spills, places)
        unknown: list[doc.UnknownField] = []
        if isinstance(sass, Unknown):
            unknown.append(doc.UnknownField("sass", sass.reason))
        else:
            kernel = replace(kernel, sass=sass)
        known = self.known.get(function.name)
        if self.subject.given and known is not None:
            kernel, not_recorded = _with_spills(kernel)
            unknown += not_recorded
        if known is not None and kernel.shared_bytes is None:
            unknown.append(doc.UnknownField("shared_bytes", _DYNAMIC))
        return kernel, unknown

    def bare(self, name: str) -> tuple[doc.SassKernel, list[doc.UnknownField]]:
        """The document of a kernel without PTX, and what of it is not known and why."""
        section = self._section(self.code(), name)
        unknown = [doc.UnknownField(key, NO_PTX) for key in doc.PTX_KEYS]
        if isinstance(section, Unknown):
            unknown.append(doc.UnknownField("sass", section.reason))
        sass = None if isinstance(section, Unknown) else section
        known = self.known.get(name)
        capability = self.subject.cubin.capability if self.subject.cubin is not None else None
        kernel = doc.SassKernel(
            file=self.subject.file,
            name=name,
            target=sass.target if sass is not None else f"sm_{capability}",
            registers_per_thread=None if known is None else known.registers,
            spill_store_bytes=None,
            spill_load_bytes=None,
            stack_bytes=None if known is None else known.stack_bytes,
            shared_bytes=None if known is None else known.shared_bytes,
            resources_from=None if known is None else known.tool,
            notes=self.subject.notes,
            sass=sass,
        )
        if known is None:
            reason = self.reason or "cuobjdump does not report on this kernel"
            for key in ("registers_per_thread", "stack_bytes", "shared_bytes"):
                unknown.append(doc.UnknownField(key, reason))
        kernel, not_recorded = _with_spills(kernel)
        return kernel, [*unknown, *not_recorded]


def assemble(subject: Subject) -> AssembledKernels:
    """Ask the assembler, or the cubin, what the kernels of a subject need."""
    compiled = subject.compiled
    if compiled is not None:
        return AssembledKernels(subject, (), {compiled.name: compiled.resources})
    module = subject.module
    dynamic = {f.name for f in module.entries if dynamic_shared(module, f)}
    try:
        if subject.cubin is not None and subject.given:
            return AssembledKernels(subject, dynamic, tools.cubin_resources(subject.cubin.data))
        from_triton = subject.shared_bytes is not None
        made = ptxas.assemble(_text(subject.module), of_triton=from_triton)
        return AssembledKernels(subject, dynamic, made.resources, made.cubin)
    except MissingToolError as error:
        reason = str(error)
    except InputError as error:
        reason = f"{'cuobjdump' if subject.given else 'ptxas'} rejects the file: {error.message}"
    except KanalyzeError as error:
        reason = f"ptxas failed: {error}"
    return AssembledKernels(subject, dynamic, {}, reason=reason)


def _text(module: ir.Module) -> str:
    """The text of one module alone, where a file holds several; no NUL behind it (NVRTC's)."""
    several = len(re.findall(r"^\s*\.version\b", module.text, re.MULTILINE)) > 1
    return write_ptx(module) if several else module.text.rstrip("\0\x1a")


K = TypeVar("K", doc.Kernel, doc.SassKernel)


def _with_spills(kernel: K) -> tuple[K, list[doc.UnknownField]]:
    """Without any access to local memory nothing is spilled; else a cubin does not tell."""
    sass = kernel.sass
    if sass is not None and sass.local_store_bytes == sass.local_load_bytes == 0:
        return replace(kernel, spill_store_bytes=0, spill_load_bytes=0), []
    keys = ("spill_store_bytes", "spill_load_bytes")
    return kernel, [doc.UnknownField(key, _NO_SPILLS) for key in keys]
