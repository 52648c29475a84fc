"""GPUs and compute capabilities as facts: every number with its unit, source and grade.

The numbers stand in ``devices.toml``, one section per GPU and one per compute capability; nothing
is derived from another GPU. What has no source is absent there and None here, with a reason.
Grades: A printed by the device or stated by its vendor's header; B vendor documentation, or quoted
from it; C another project's table; D inferred from a measurement or a model.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from kanalyze.errors import UsageError, nearest

NO_SOURCE = "no source found"
_FILE = Path(__file__).with_name("devices.toml")
_NOISE = {"nvidia", "tesla", "geforce", "quadro", "gpu", "graphics", "tensor", "core", "edition"}
_NOISE |= {"hbm2", "hbm2e", "hbm3", "hbm3e", "gddr6", "gddr6x", "gddr7"}


@dataclass(frozen=True, slots=True)
class Fact:
    """A value, the short name of its source (see `sources`), its grade A to D, and a remark."""

    value: Any
    source: str
    grade: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class Capability:
    """What all GPUs of one compute capability have in common; ``facts`` holds the sources.

    Registers are 32-bit. ``register_unit`` is the granule in which a warp gets registers;
    ``shared_carveouts_bytes`` are the sizes of shared memory that an SM can be set to;
    ``shared_reserved_bytes`` is what the driver takes of it for every block; ``barriers_per_sm``
    are the hardware barriers that resident blocks share; ``l1_shared_bytes_per_sm`` L1 and shared
    memory together. ``*_lanes_per_sm`` are results of one type that an SM gives each clock: FMAs
    (``int32``: additions; ``sfu``: approximate functions such as ex2); ``warp_schedulers_per_sm``
    the warp instructions that it issues.
    """

    name: str
    max_threads_per_block: int
    max_warps_per_sm: int
    max_blocks_per_sm: int
    registers_per_sm: int
    registers_per_block: int
    max_registers_per_thread: int
    register_unit: int
    sub_partitions: int
    shared_unit_bytes: int
    shared_carveouts_bytes: tuple[int, ...]
    shared_per_block_bytes: int
    shared_reserved_bytes: int
    barriers_per_sm: int
    warp_schedulers_per_sm: int | None
    fp64_lanes_per_sm: int | None
    fp32_lanes_per_sm: int | None
    fp16_lanes_per_sm: int | None
    int32_lanes_per_sm: int | None
    sfu_lanes_per_sm: int | None
    l1_shared_bytes_per_sm: int | None
    facts: Mapping[str, Fact]

    @property
    def shared_per_sm_bytes(self) -> int:
        """The largest carve-out."""
        return self.shared_carveouts_bytes[-1]


@dataclass(frozen=True, slots=True)
class Device:
    """One GPU; a number that has no source is None (`why_unknown` says why).

    ``clock_max_mhz``: the highest SM clock. ``dram_nominal_gb``: as sold. ``dram_gb_per_s``: by bus
    width and data rate, or the data sheet; ``dram_measured_gb_per_s``: reached by a benchmark
    (10^9 B/s both).
    ``l2_partitions``: parts of L2 that keep copies of each other's lines. ``l2_full_hit_bytes``: up
    to which size re-read data was measured to stay in L2. Peak rates (10^12 operations a second,
    FMA = 2) are dense ones; tensor cores with fp32 (int8: int32) accumulation.
    """

    name: str
    aliases: tuple[str, ...]
    capability: Capability
    chip: str | None
    sms: int | None
    clock_max_mhz: float | None
    l2_bytes: int | None
    l2_partitions: int | None
    l2_full_hit_bytes: int | None
    l2_measured_gb_per_s: float | None
    dram_nominal_gb: float | None
    dram_gb_per_s: float | None
    dram_measured_gb_per_s: float | None
    fp32_tflops: float | None
    fp64_tflops: float | None
    fp64_tensor_tflops: float | None
    tf32_tensor_tflops: float | None
    fp16_tensor_tflops: float | None
    bf16_tensor_tflops: float | None
    fp8_tensor_tflops: float | None
    fp4_tensor_tflops: float | None
    int8_tensor_tops: float | None
    facts: Mapping[str, Fact]
    reasons: Mapping[str, str]

    def why_unknown(self, field: str) -> str | None:
        """Why a number is not known; None where it is."""
        return None if field in self.facts else self.reasons.get(field, NO_SOURCE)


USUAL = {
    "sm_75": "T4",
    "sm_80": "A100 SXM 80GB",
    "sm_86": "A10",
    "sm_89": "L40S",
    "sm_90": "H200",
    "sm_100": "B200",
    "sm_103": "B300",
    "sm_120": "RTX PRO 6000",
}
"""Target to the name of a usual GPU of it."""
_NOT_FACTS = {"name", "aliases", "capability", "facts", "reasons"}
DEVICE_FACTS = tuple(f.name for f in fields(Device) if f.name not in _NOT_FACTS)
"""The names of a device's numbers, in order."""
CAPABILITY_FACTS = tuple(f.name for f in fields(Capability) if f.name not in _NOT_FACTS)
"""The names of a compute capability's numbers, in order."""
_OPTIONAL = {name for name in CAPABILITY_FACTS if name.endswith("_lanes_per_sm")}
_OPTIONAL |= {"warp_schedulers_per_sm", "l1_shared_bytes_per_sm"}


@cache
def _toml() -> dict[str, Any]:
    return tomllib.loads(_FILE.read_text("utf-8"))


@cache
def sources() -> Mapping[str, str]:
    """What each short name of a source stands for: document, revision, place."""
    return MappingProxyType(dict(_toml()["source"]))


def _facts(section: Mapping[str, Any], known: tuple[str, ...], where: str) -> dict[str, Fact]:
    facts = {}
    for key, entry in section.items():
        if key not in known or entry["source"] not in sources():
            raise ValueError(f"{_FILE.name}: {where}: {key}: unknown key or source")
        value = entry["value"]
        value = tuple(value) if isinstance(value, list) else value
        facts[key] = Fact(value, entry["source"], entry["grade"], entry.get("note", ""))
    return facts


@cache
def capabilities() -> Mapping[str, Capability]:
    """All compute capabilities, by name (``sm_90``)."""
    known = {}
    for name, section in _toml()["capability"].items():
        facts = _facts(section, CAPABILITY_FACTS, name)
        values: dict[str, Any] = dict.fromkeys(_OPTIONAL)
        values |= {k: facts[k].value for k in CAPABILITY_FACTS if k not in _OPTIONAL or k in facts}
        known[name] = Capability(name=name, facts=MappingProxyType(facts), **values)
    return MappingProxyType(known)


SHARED_WITHOUT_OPT_IN_BYTES = 49152
"""Shared memory that a block may have on every GPU (CUDA C++ Programming Guide)."""


@cache
def shared_limits() -> Mapping[str, Fact]:
    """The most shared memory of a block in bytes, opted into, by compute capability (``sm_86``)."""
    older = _toml()["shared_per_block_bytes"]
    limits = _facts(older, tuple(older), "shared_per_block_bytes")
    limits |= {n: c.facts["shared_per_block_bytes"] for n, c in capabilities().items()}
    return MappingProxyType(limits)


@cache
def devices() -> Mapping[str, Device]:
    """All GPUs, by name, in the order of the table."""
    known = {}
    for name, section in _toml()["device"].items():
        rest = dict(section)
        own = capabilities()[rest.pop("capability")]
        aliases = tuple(rest.pop("aliases", ()))
        reasons = rest.pop("unknown", {})
        facts = _facts(rest, DEVICE_FACTS, name)
        values = {key: facts[key].value if key in facts else None for key in DEVICE_FACTS}
        known[name] = Device(
            name=name,
            aliases=aliases,
            capability=own,
            facts=MappingProxyType(facts),
            reasons=MappingProxyType(reasons),
            **values,
        )
    return MappingProxyType(known)


@dataclass(frozen=True, slots=True)
class LectureComparison:
    """A number of a lecture's table, [low, high], beside ours: ``value`` (None: unknown, ``how``).

    ``differs``: ours is more than 5 % outside of the lecture's range; 10 % where theirs is rounded
    to one digit.
    """

    quantity: str
    device: str
    low: float
    high: float
    value: float | None
    how: str
    differs: bool


def lecture() -> tuple[str, tuple[LectureComparison, ...]]:
    """The title of the lecture whose table of accelerators is compared with, and its numbers."""
    table = _toml()["lecture"]
    compared = []
    for quantity, cells in table["rows"].items():
        for name, (low, high) in zip(table["devices"], cells, strict=True):
            value, how = _reckoned(quantity, devices()[name])
            slack = 0.1 if high < 10 else 0.05
            differs = value is not None and not low * (1 - slack) <= value <= high * (1 + slack)
            compared.append(LectureComparison(quantity, name, low, high, value, how, differs))
    return table["title"], tuple(compared)


def _reckoned(quantity: str, gpu: Device) -> tuple[float | None, str]:
    """Our number in the lecture's unit, and how it comes about."""
    cap, sms, clock = gpu.capability, gpu.sms or 0, (gpu.clock_max_mhz or 0) / 1e6
    ways: dict[str, tuple[float | None, float, str]] = {
        "sms": (gpu.sms, 1, ""),
        "registers_kib_per_sm": (cap.registers_per_sm, 4 / 1024, "4 B a register"),
        "l1_shared_kib_per_sm": (cap.l1_shared_bytes_per_sm, 1 / 1024, ""),
        "l2_mib": (gpu.l2_bytes, 2**-20, ""),
        "dram_nominal_gb": (gpu.dram_nominal_gb, 1, ""),
        "registers_tb_per_s": (
            cap.fp32_lanes_per_sm,
            3 * 4 * sms * clock,
            "reckoned: 3 operands x 4 B x FP32 lanes x SMs x highest clock",
        ),
        "l1_shared_tb_per_s": (
            32 * 4,
            sms * clock,
            "reckoned: 32 banks x 4 B x SMs x highest clock",
        ),
        "l2_tb_per_s": (gpu.l2_measured_gb_per_s, 1e-3, "measured"),
        "dram_tb_per_s": (gpu.dram_gb_per_s, 1e-3, ""),
    }
    value, factor, how = ways[quantity]
    known = value is not None and factor > 0
    return (value * factor, how) if known and value is not None else (None, NO_SOURCE)


def capability(name: str) -> Capability:
    """Find a compute capability: ``sm_90``, ``sm_90a``, ``sm_100f``, ``9.0``.

    Raises:
        UsageError: it is not in the table.
    """
    text = name.strip().lower().replace("compute_", "sm_")
    match = re.fullmatch(r"(?:sm_?)?(?:(\d+)\.(\d)|(\d{2,3}))[af]?", text)
    wanted = f"sm_{match[3] or match[1] + match[2]}" if match else text
    if wanted not in capabilities():
        known = ", ".join(capabilities())
        raise UsageError(f"no limits are known for the architecture '{name}'; known: {known}")
    return capabilities()[wanted]


def device(name: str) -> Device:
    """Find a GPU by its name, spelled as in data sheets or as CUDA prints it.

    "H200", "nvidia h200", "h100 sxm", "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-40GB".

    Raises:
        UsageError: there is none of that name, or several (then they are named).
    """
    wanted = _words(name)
    joined = "".join(wanted)
    for gpu in devices().values():
        if joined in {"".join(_words(n)) for n in (gpu.name, *gpu.aliases)}:
            return gpu
    matches = [d for d in devices().values() if wanted and _fits(frozenset(wanted), d)]
    if len(matches) == 1:
        return matches[0]
    if matches:
        names = " or ".join(d.name.removeprefix("NVIDIA ") for d in matches)
        raise UsageError(f"there are several devices '{name}': say {names}")
    short = [n.removeprefix("NVIDIA ") for n in devices()]
    raise UsageError(f"unknown device '{name}': {_near(name, short)}")


def _near(name: str, names: list[str]) -> str:
    lowered = {"".join(_words(n)): n for n in names}
    words = "".join(_words(name))
    message = nearest(words, lowered)
    for word in sorted(lowered, key=len, reverse=True):
        message = re.sub(rf"(?<![a-z0-9]){re.escape(word)}(?![a-z0-9])", lowered[word], message)
    return message


def _fits(wanted: frozenset[str], gpu: Device) -> bool:
    """Whether each word asked for is one of a name, the model (its first word) among them."""
    for name in (gpu.name, *gpu.aliases):
        words = _words(name)
        if words[0] in wanted and wanted <= frozenset(words):
            return words[0] != "rtx" or set(words[1:3]) <= wanted or words[1] in wanted
    return False


def _words(name: str) -> tuple[str, ...]:
    text = re.sub(r"sxm\d?", " sxm ", name.lower())
    text = re.sub(r"pci-?e(xpress)?", " pcie ", text)
    text = re.sub(r"(\d+)\s*gi?b\b", r" \1gb ", text)
    text = re.sub(r"rtx(?=\d|a\d)", "rtx ", text)
    return tuple(w for w in re.split(r"[^a-z0-9]+", text) if w and w not in _NOISE)
