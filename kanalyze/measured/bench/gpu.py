"""The GPU of this machine, and the versions of what measures it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kanalyze.errors import MissingToolError


@dataclass(frozen=True)
class LocalGpu:
    """The GPU that is measured, and the versions of what measures it."""

    device: str
    capability: int
    versions: Mapping[str, str]
    torch: Any

    @property
    def arch(self) -> str:
        """Such as ``sm_90``."""
        return f"sm_{self.capability}"


def local_gpu() -> LocalGpu:
    """The GPU of this machine.

    Raises:
        MissingToolError: PyTorch or a GPU is missing.
    """
    try:
        import torch
    except ImportError:
        raise MissingToolError("PyTorch is not installed: pip install torch") from None
    if not torch.cuda.is_available():
        why = "PyTorch was built without CUDA" if torch.version.cuda is None else "it finds none"
        raise MissingToolError(
            f"no GPU to measure: {why} (PyTorch {torch.__version__}); "
            "run this on a machine with an NVIDIA GPU (bench --dry-run needs none)"
        )
    major, minor = torch.cuda.get_device_capability()
    return LocalGpu(
        torch.cuda.get_device_name(),
        10 * major + minor,
        {"torch": torch.__version__, "cuda": str(torch.version.cuda), "driver": _driver_version()},
        torch,
    )


def _driver_version() -> str:
    try:
        text = Path("/proc/driver/nvidia/version").read_text("utf-8")
    except OSError:
        return "unknown"
    words = text.partition("\n")[0].split()
    return next((w for w in words if w[:1].isdigit() and "." in w), "unknown")
