"""What comes with kanalyze and what it keeps: `kanalyze list` and `kanalyze cache` as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.results.kernel import UnknownField


@dataclass(frozen=True, slots=True)
class ListedSize:
    """A name of a kernel's shape: its default, and what it means."""

    default: int
    meaning: str


@dataclass(frozen=True, slots=True)
class ListedKernel:
    """A bundled kernel, see `kanalyze.frontend.kernel_file.KernelFile`; defaults for ``--set``."""

    name: str
    function: str
    summary: str
    parameters: tuple[str, ...]
    shape: Mapping[str, ListedSize]
    constexprs: Mapping[str, int]
    options: Mapping[str, int]
    overrides: Mapping[str, Mapping[str, int]]
    dtypes: tuple[str, ...]
    default_dtype: str


@dataclass(frozen=True, slots=True)
class KernelList:
    """The bundled kernels."""

    kernels: tuple[ListedKernel, ...]
    unknown: tuple[UnknownField, ...] = ()
    schema: str = "kanalyze.list/1"


@dataclass(frozen=True, slots=True)
class CacheState:
    """The cache's folder, its size, and what was freed; None where nothing was cleared."""

    folder: str
    bytes: int
    freed_bytes: int | None
    schema: str = "kanalyze.cache/1"
