"""The memory model's parameters of a GPU, each with where it comes from.

What is measured or fitted stands in ``machine.toml``; what a GPU has no number of its own for is
scaled from its facts (`kanalyze.devices.table`) by the rules here, and says so.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from kanalyze.devices.table import Device
from kanalyze.errors import KanalyzeError

_FILE = Path(__file__).with_name("machine.toml")
_COALESCES = ("sm_90", "sm_100", "sm_103")
_SMS_OF_GPC = 18
_L2_OVER_HBM = 3.0  # 2.5 to 6.5 on the GPUs of the table of which both are known
_FABRIC_OVER_L2 = 0.22
_SCALED = ("clock", "sides", "l2_bytes_per_side", "gpcs", "hbm_rate", "link_rate", "l2_rate",
           "fabric_rate", "atomic_rate")  # fmt: skip


class NoParameterError(KanalyzeError):
    """A number of the GPU that the model needs is not known."""


@dataclass(frozen=True, slots=True)
class CacheParameter:
    """A number, its origin (measured, fitted, scaled, rule, guess) and a remark."""

    value: Any
    origin: str
    note: str = ""


@dataclass(frozen=True)
class MemoryMachine:
    """What the memory model knows of a GPU; bytes, ns, and bytes a ns (GB/s).

    ``calibrated`` are the parameters that the user's own file gives.
    """

    device: Device
    parameters: dict[str, CacheParameter]
    calibrated: tuple[str, ...] = ()

    def __getitem__(self, name: str) -> float:
        return float(self.parameters[name].value)

    @property
    def sms(self) -> int:
        """Streaming multiprocessors."""
        return len(self.gpc_of_sm)

    @property
    def clock(self) -> float:
        """SM clock under load, in GHz."""
        return self["clock"]

    @property
    def sides(self) -> int:
        """Parts of L2 that keep copies of each other's lines."""
        return int(self["sides"])

    @property
    def gpc_of_sm(self) -> npt.NDArray[np.int64]:
        """The GPC of each SM, in the order in which blocks are given out."""
        sizes = self.parameters["gpcs"].value
        return np.repeat(np.arange(len(sizes)), sizes).astype(np.int64)

    def light(self) -> MemoryMachine:
        """The same without load on the tensor cores: at the clock that it then keeps."""
        ratio = self["clock_share_light"] / self["clock_share"]
        faster = {
            name: replace(self.parameters[name], value=self[name] * ratio)
            for name in ("clock", "link_rate")
        }
        return replace(self, parameters=self.parameters | faster)

    @property
    def checked(self) -> bool:
        """Whether estimates for this GPU were compared with its counters."""
        return "checked" in self.parameters


def machine(
    device: Device,
    changes: dict[str, float] | None = None,
    own: Mapping[str, CacheParameter] | None = None,
) -> MemoryMachine:
    """The parameters of a GPU.

    Args:
        device: the GPU.
        changes: factors on ``hbm_rate``, ``l2_rate``, ``clock`` … (what-if).
        own: parameters that replace the model's (`kanalyze.performance.cache_sim.calibration`).

    Raises:
        NoParameterError: a fact that the model needs has no source.
    """
    common, table = _table()
    parameters = dict(common)
    parameters |= _scaled(device, common)
    parameters |= table.get(device.name, {}) | dict(own or {})
    for name, factor in (changes or {}).items():
        if name not in parameters:
            raise NoParameterError(f"there is no parameter '{name}' of the memory model")
        given = parameters[name]
        parameters[name] = CacheParameter(
            given.value * factor, "what-if", f"{factor:g} x {given.value:g}"
        )
    return MemoryMachine(device, parameters, tuple(own or ()))


def names() -> tuple[str, ...]:
    """The parameters that a GPU has a number of."""
    common, table = _table()
    every = [*common, *_SCALED, *(name for section in table.values() for name in section)]
    return tuple(name for name in dict.fromkeys(every) if name != "checked")


@cache
def _table() -> tuple[dict[str, CacheParameter], dict[str, dict[str, CacheParameter]]]:
    data = tomllib.loads(_FILE.read_text("utf-8"))

    def read(section: dict[str, Any]) -> dict[str, CacheParameter]:
        return {name: CacheParameter(**given) for name, given in section.items()}

    return read(data["common"]), {name: read(part) for name, part in data["device"].items()}


def _scaled(device: Device, common: dict[str, CacheParameter]) -> dict[str, CacheParameter]:
    """What follows from the facts of a GPU."""
    sms = _known(device, "sms")
    clock = _known(device, "clock_max_mhz") / 1000 * float(common["clock_share"].value)
    sides = int(device.l2_partitions or 1)
    size = _known(device, "l2_bytes")
    nominal = _known(device, "dram_gb_per_s")
    whole, rest = divmod(int(sms), _SMS_OF_GPC)
    measured = device.l2_measured_gb_per_s
    capability = device.capability.name
    parameters = {
        "clock": CacheParameter(clock, "scaled", "highest clock x clock_share"),
        "sides": CacheParameter(
            sides, "rule" if device.l2_partitions else "guess", "l2_partitions"
        ),
        "l2_bytes_per_side": CacheParameter(size / sides, "scaled", "l2_bytes / l2_partitions"),
        "gpcs": CacheParameter([_SMS_OF_GPC] * whole + ([rest] if rest else []), "guess"),
        "hbm_rate": CacheParameter(
            nominal * float(common["hbm_share"].value), "scaled", "hbm_share"
        ),
        "link_rate": CacheParameter(float(common["link_bytes_per_clock"].value) * clock, "scaled"),
    }
    if capability not in _COALESCES:
        parameters["window"] = CacheParameter(0.0, "rule", "no request coalescer")
    if measured is not None:
        parameters["l2_rate"] = CacheParameter(measured, "scaled", "l2_measured_gb_per_s")
    else:
        rate = _L2_OVER_HBM * float(parameters["hbm_rate"].value)
        parameters["l2_rate"] = CacheParameter(rate, "guess", f"{_L2_OVER_HBM:g} x hbm_rate")
    rate = _FABRIC_OVER_L2 * float(parameters["l2_rate"].value)
    parameters["fabric_rate"] = CacheParameter(rate, "guess", "as on the H200")
    parameters["atomic_rate"] = CacheParameter(
        parameters["l2_rate"].value / 10, "guess", "as on the H200"
    )
    return parameters


def _known(device: Device, field: str) -> float:
    value = getattr(device, field)
    if value is None:
        raise NoParameterError(
            f"{field} of {device.name} is not known: {device.why_unknown(field)}"
        )
    return float(value)
