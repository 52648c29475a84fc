"""The machine code of a kernel, disassembled and read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.errors import InputError
from kanalyze.sass.cubin import Cubin
from kanalyze.sass.ir import SassModule
from kanalyze.sass.parse import parse_sass
from kanalyze.toolchain import tools
from kanalyze.toolchain.resources import KernelResources


@dataclass(frozen=True, slots=True)
class Code:
    """The machine code at hand for the kernels of a module.

    ``origin`` says where it comes from: ``gelu.cubin``, ``assembled by ptxas 12.9.86``.
    """

    origin: str
    module: SassModule
    resources: Mapping[str, KernelResources]


def read_code(data: bytes, origin: str) -> Code:
    """Disassemble a cubin.

    Raises:
        KanalyzeError: the tools are missing, or cannot read it.
    """
    module = parse_sass(tools.disassemble(data))
    return Code(origin, module, tools.cubin_resources(data))


def code_of(cubin: Cubin) -> Code:
    """The same of a cubin that was read from a file.

    Raises:
        KanalyzeError: the tools are missing, or cannot read it; the file is named.
    """
    try:
        return read_code(cubin.data, cubin.name)
    except InputError as error:
        raise InputError(error.message, file=cubin.name) from None
