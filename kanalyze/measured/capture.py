"""Capturing: every distinct Triton launch of a program becomes a record, as `bench` writes them.

A program that ``kanalyze capture`` starts gets this module through a ``sitecustomize`` of its own,
so that its Python need not have kanalyze installed; nothing here needs more than Triton.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from kanalyze import cache
from kanalyze.errors import InputError, MissingToolError, system_reason
from kanalyze.frontend._triton_launches import FakeGPU, SeenLaunch, held, seen
from kanalyze.measured.records.writer import relative, write_record

SCHEMA = "kanalyze.record/1"
MOST_ALIKE = 8
"""Records of launches that only numbers among their arguments tell apart."""
_ASKED = "KANALYZE_CAPTURE"  # the environment variable by which a program is told
_SITE = """\
import importlib.machinery, importlib.util, os, sys
here = os.path.dirname(os.path.abspath(__file__))
root = {root!r}
spec = importlib.util.spec_from_file_location(
    "kanalyze", os.path.join(root, "__init__.py"), submodule_search_locations=[root]
)
sys.modules["kanalyze"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(sys.modules["kanalyze"])
from kanalyze.measured.capture import begin
begin()
paths = [path for path in sys.path if os.path.abspath(path) != here]
own = importlib.machinery.PathFinder.find_spec("sitecustomize", paths)
if own is not None:
    own.loader.exec_module(importlib.util.module_from_spec(own))
"""


@contextlib.contextmanager
def capture(
    folder: str | os.PathLike[str], *, fake: bool = False, arch: str = "sm_90"
) -> Iterator[list[Path]]:
    """Record every distinct Triton launch of what runs in this context, PyTorch's compiler's too.

    A record is ``KERNEL.KEY.json`` with ``.ptx`` and ``.cubin``, and an ``.npy`` for each array of
    at most 2^20 whole numbers: what it held before the launch. Launches that differ in addresses or
    contents alone are one; of those that differ in numbers alone, the first 8 are kept.

    Args:
        folder: where records go; made where it is missing.
        fake: run nothing and need no GPU: tensors on ``cuda`` hold nothing (``meta``), addresses
            are invented, an autotuner keeps its first configuration.
        arch: what to compile for where ``fake``.

    Yields:
        The list of records, which grows with each launch that is new.

    Raises:
        InputError: the folder cannot be written to.
        UsageError: the architecture is unknown.
    """
    from kanalyze.frontend.compile import normalise_arch

    recorder = Recorder(Path(folder), FakeGPU(normalise_arch(arch)) if fake else None)
    with seen(recorder.launch, recorder.gpu):
        yield recorder.records


class Recorder:
    """Writes the launches that it is given, each once.

    Attributes:
        gpu: the GPU that is feigned; None: launches run.
        records: what was written, in order.
        left_out: launches that differ from a record in numbers alone and are beyond the first ones.
    """

    def __init__(self, folder: Path, gpu: FakeGPU | None):
        self.folder, self.gpu = folder, gpu
        self.records: list[Path] = []
        self.left_out = 0
        self._known: set[str] = set()
        self._alike: Counter[str] = Counter()

    def launch(self, one: SeenLaunch) -> None:
        """Write a launch that is new."""
        shape = [one.kernel.hash, one.grid, [_without_number(p) for p in one.params]]
        numbers = [[p.get("value"), (p.get("address") or 0) % 512] for p in one.params]
        key = cache.key(json.dumps([shape, numbers]))[:8]
        if key in self._known:
            return
        self._known.add(key)
        alike = cache.key(json.dumps(shape))
        self._alike[alike] += 1
        if self._alike[alike] > MOST_ALIKE:
            self.left_out += 1
            return
        asm = one.kernel.asm
        stem = f"{re.sub(r'[^A-Za-z0-9_]', '_', one.kernel.name)[:80]}.{key}"
        data = self._data(one, stem)
        for place, tensor in one.tensors.items():
            self._array(data, place, stem, tensor)
        ptx = asm["ptx"]
        self.records.append(write_record(self.folder, stem, data, ptx, asm["cubin"]))

    def _array(self, data: dict[str, Any], place: int, stem: str, tensor: Any) -> None:
        import numpy as np

        param = data["params"][place]
        array = held(tensor, self.gpu)
        if array is not None:
            param["array"] = f"{stem}.{param['name']}.npy"
            file = io.BytesIO()
            np.save(file, array, allow_pickle=False)
            with written(self.folder):
                self.folder.mkdir(parents=True, exist_ok=True)
                cache.write_whole(self.folder / param["array"], file.getvalue(), 0o644)

    def _data(self, one: SeenLaunch, stem: str) -> dict[str, Any]:
        kernel, told = one.kernel, one.kernel.metadata
        ctas = getattr(told, "num_ctas", 1)
        assumed = [f"configuration: {one.choice}, without a GPU to try them"] if one.choice else []
        if self.gpu is not None:
            assumed.append("addresses: invented, aligned as PyTorch aligns them")
        code = one.kernel.src.fn.fn.__code__
        return {
            "schema": SCHEMA,
            "case": stem,
            "kernel": kernel.name,
            "device": self._device(),
            "arch": f"sm_{told.target.arch}",
            "triton": metadata.version("triton"),
            **({"torch": metadata.version("torch")} if "torch" in sys.modules else {}),
            "grid": [one.grid[0] * ctas, *one.grid[1:]],
            "block": [told.num_warps * 32, 1, 1],
            **({"cluster": [ctas, 1, 1]} if ctas > 1 else {}),
            "shared_bytes": told.shared,
            "num_warps": told.num_warps,
            "num_stages": told.num_stages,
            **({"registers_per_thread": kernel.n_regs} if self.gpu is None else {}),
            "params": [dict(p) for p in one.params],
            "constexprs": one.constexprs,
            "source": relative(code.co_filename),
            "function": code.co_name,
            "provider": "torch.compile" if one.inductor else "kernel",
            "assumed": assumed,
            "counters": None,
            "unknown": [{"field": "counters", "reason": "captured, not measured"}],
        }

    def _device(self) -> str:
        if self.gpu is not None:
            return str(self.gpu.properties().name)
        torch = sys.modules.get("torch")
        return "unknown" if torch is None else str(torch.cuda.get_device_name())


def _without_number(param: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in param.items() if k not in ("address", "value", "tensor_map")} | {
        "tensor_map": {k: v for k, v in (param.get("tensor_map") or {}).items() if k != "address"}
    }


@contextlib.contextmanager
def written(folder: Path) -> Iterator[None]:
    """Turn what the system says about a folder's files into an `InputError`."""
    try:
        yield
    except OSError as error:
        raise InputError(f"cannot be written: {system_reason(error)}", file=str(folder)) from None


# ---------------------------------------------------------------- a program


@dataclass(frozen=True, slots=True)
class Captured:
    """What a program that was run left.

    ``exit_code`` is its own (128 and the signal's number where one ended it), ``left_out`` counts
    launches as in `Recorder`, ``troubles`` says of launches why they could not be recorded.
    """

    records: tuple[str, ...]
    left_out: int
    troubles: tuple[str, ...]
    exit_code: int


def run(command: Sequence[str], folder: Path, capability: int | None) -> Captured:
    """Run a program and record its launches and those of Python programs that it starts.

    Args:
        command: the program and its arguments.
        folder: where records go.
        capability: of the GPU that is feigned (90 for sm_90); None: launches run.

    Raises:
        InputError: the folder cannot be written to.
        MissingToolError: there is no such program, or it cannot be started.
    """
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="kanalyze-capture-") as site:
        log = Path(site, "log")
        root = str(Path(__file__).resolve().parents[1])
        Path(site, "sitecustomize.py").write_text(_SITE.format(root=root), "utf-8")
        asked = {"folder": str(folder.resolve()), "capability": capability, "log": str(log)}
        path = os.environ.get("PYTHONPATH")
        environment = {
            **os.environ, _ASKED: json.dumps(asked),
            "PYTHONPATH": os.pathsep.join([site, *([path] if path else [])]),
        }  # fmt: skip
        try:
            code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            raise MissingToolError(f"{command[0]}: {system_reason(error)}") from None
        said = log.read_text("utf-8").splitlines() if log.is_file() else []
    events = [json.loads(line) for line in said]
    return Captured(
        tuple(dict.fromkeys(e["record"] for e in events if "record" in e)),
        sum(e.get("left_out", 0) for e in events),
        tuple(dict.fromkeys(e["trouble"] for e in events if "trouble" in e)),
        code if code >= 0 else 128 - code,
    )


def begin() -> None:
    """Record this process's launches to its end, as the environment says."""
    asked = json.loads(os.environ[_ASKED])
    capability = asked["capability"]
    recorder = Recorder(Path(asked["folder"]), None if capability is None else FakeGPU(capability))

    def log(**event: Any) -> None:
        with open(asked["log"], "a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")

    def launch(one: SeenLaunch) -> None:
        count, left_out = len(recorder.records), recorder.left_out
        try:
            recorder.launch(one)
        except Exception as error:  # it must not cost the program
            log(trouble=f"{one.kernel.name}: {type(error).__name__}: {error}"[:300])
        for record in recorder.records[count:]:
            log(record=str(record))
        if recorder.left_out > left_out:
            log(left_out=1)

    kept = contextlib.ExitStack()
    atexit.register(kept.close)
    kept.enter_context(seen(launch, recorder.gpu))
