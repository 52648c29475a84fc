"""What the assembler or the cubin says of a module's kernels: resources, and the machine code.

A module has machine code from the first of these that is at hand: the cubin that was given, the one
that Triton made with it, the one beside the ``.ptx``, what ptxas makes of the text. The resources
come from ptxas (which alone reports spills), but for a cubin that was given itself.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from kanalyze.errors import InputError, KanalyzeError, MissingToolError, Unknown
from kanalyze.frontend.argument import Resources
from kanalyze.kernel import sass as sass_section
from kanalyze.ptx import ir
from kanalyze.ptx.calls import dynamic_shared
from kanalyze.ptx.write import write_ptx
from kanalyze.results import kernel as doc
from kanalyze.sass.code import Code, code_of, read_code
from kanalyze.toolchain import tools

if TYPE_CHECKING:
    from kanalyze.frontend.subject import Subject

LEFT_OUT = Unknown("left out as asked for (--no-sass)")
NO_PTX = "there is no PTX in the file"
_DYNAMIC = "part of it is chosen at launch: give --launch"
_NO_SPILLS = "a cubin does not record spills (sass.stack says what it has)"


def _text(module: ir.Module) -> str:
    """The text of one module alone, where a file holds several."""
    several = len(re.findall(r"^\s*\.version\b", module.text, re.MULTILINE)) > 1
    return write_ptx(module) if several else module.text


class AssembledKernels:
    """Resources and machine code of the kernels of a subject; each tool is asked once."""

    def __init__(self, subject: Subject):
        self.subject = subject
        self.dynamic = {f.name for f in subject.module.entries if dynamic_shared(subject.module, f)}
        self.reason: str | None = None
        self.known: dict[str, tools.Resources] = {}
        self._assembled: bytes | None = None
        self._code: Code | Unknown | None = None
        compiled = subject.compiled
        try:
            if compiled is not None:
                self.known[compiled.name] = compiled.resources
                self.dynamic.clear()
            elif subject.cubin is not None and subject.given:
                self.known = tools.cubin_resources(subject.cubin.data)
            else:
                from_triton = subject.shared_bytes is not None
                made = tools.assemble(_text(subject.module), of_triton=from_triton)
                self.known, self._assembled = made.resources, made.cubin
        except MissingToolError as error:
            self.reason = str(error)
        except InputError as error:
            who = "cuobjdump" if subject.given else "ptxas"
            self.reason = f"{who} rejects the file: {error.message}"
        except KanalyzeError as error:
            self.reason = f"ptxas failed: {error}"

    # ------------------------------------------------------------ resources

    def __call__(self, kernel: str) -> Resources:
        """The resources of one kernel."""
        found = self.known.get(kernel)
        if found is None:
            return Resources(reason=self.reason or "ptxas does not report on this kernel")
        spills = (found.spill_store_bytes, found.spill_load_bytes)
        return Resources(
            registers=found.registers,
            spill_store_bytes=None if self.subject.given else spills[0],
            spill_load_bytes=None if self.subject.given else spills[1],
            stack_bytes=found.stack_bytes,
            shared_bytes=self._shared(kernel, found),
            tool=found.tool,
            remarks=found.remarks,
        )

    def _shared(self, kernel: str, found: tools.Resources) -> int | None:
        launch = self.subject.launch
        if kernel in self.dynamic and launch is not None:
            return launch.shared_bytes
        if self.subject.shared_bytes is not None:
            return self.subject.shared_bytes
        return None if kernel in self.dynamic else found.shared_bytes

    # ------------------------------------------------------------ machine code

    def code(self) -> Code | Unknown:
        """The machine code, or the reason why there is none."""
        if self._code is None:
            try:
                self._code = self._read()
            except KanalyzeError as error:
                self._code = Unknown(str(error))
        return self._code

    def _read(self) -> Code | Unknown:
        subject = self.subject
        if subject.cubin is not None:
            return code_of(subject.cubin)
        if subject.compiled is not None:
            tool = subject.compiled.resources.tool
            return read_code(subject.compiled.cubin, f"assembled by {tool}")
        if self._assembled is None:
            return Unknown(self.reason or "there is no machine code of this file")
        tool = next((row.tool for row in self.known.values()), "ptxas")
        return read_code(self._assembled, f"assembled by {tool}")

    def with_sass(
        self, kernel: doc.Kernel, function: ir.Function, wanted: bool
    ) -> tuple[doc.Kernel, list[doc.UnknownField]]:
        """A kernel's document with the ``sass`` part, and what of it is not known and why."""
        code = self.code() if wanted else LEFT_OUT
        spills = (kernel.spill_store_bytes, kernel.spill_load_bytes)
        sass: doc.Sass | None = None
        unknown: list[doc.UnknownField] = []
        if not isinstance(code, Unknown):
            try:
                sass = sass_section.section(
                    code, function.name, function, self.subject.module, spills
                )
            except KanalyzeError as error:
                code = Unknown(str(error))
        if isinstance(code, Unknown):
            unknown.append(doc.UnknownField("sass", code.reason))
        else:
            kernel = replace(kernel, sass=sass)
        known = self.known.get(function.name)
        if self.subject.given and known is not None:
            kernel = _with_spills(kernel, sass, unknown)
        if known is not None and kernel.shared_bytes is None:
            unknown.append(doc.UnknownField("shared_bytes", _DYNAMIC))
        return kernel, unknown

    def bare(self, name: str) -> tuple[doc.SassKernel, list[doc.UnknownField]]:
        """The document of a kernel without PTX, and what of it is not known and why."""
        code = self.code()
        unknown = [doc.UnknownField(key, NO_PTX) for key in doc.PTX_KEYS]
        sass: doc.Sass | None = None
        if not isinstance(code, Unknown):
            try:
                sass = sass_section.section(code, name)
            except KanalyzeError as error:
                code = Unknown(str(error))
        if isinstance(code, Unknown):
            unknown.append(doc.UnknownField("sass", code.reason))
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
        return _with_spills(kernel, sass, unknown), unknown


K = TypeVar("K", doc.Kernel, doc.SassKernel)


def _with_spills(kernel: K, sass: doc.Sass | None, unknown: list[doc.UnknownField]) -> K:
    """Without any access to local memory nothing is spilled; else a cubin does not tell."""
    if sass is not None and sass.local_store_bytes == sass.local_load_bytes == 0:
        return replace(kernel, spill_store_bytes=0, spill_load_bytes=0)
    for key in ("spill_store_bytes", "spill_load_bytes"):
        unknown.append(doc.UnknownField(key, _NO_SPILLS))
    return kernel
