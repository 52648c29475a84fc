"""Reading records: every file that a path stands for, validated, with what is wrong in words.

A record that cannot be used is left out; a value in it that cannot be is left out of it. Both are
told, and the rest is delivered.
"""

from __future__ import annotations

import copy
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from kanalyze.devices.table import Device
from kanalyze.errors import InputError, SourceSpot, Unknown
from kanalyze.frontend import launch_fit
from kanalyze.launch import arrays, assumptions, limits
from kanalyze.launch.record import Launch
from kanalyze.measured.records import consistency, plausibility
from kanalyze.measured.records.files import SUFFIXES, RecordFiles, contents, of_bytes
from kanalyze.measured.records.metrics import absent
from kanalyze.ptx import ir

SCHEMA = "kanalyze.record/1"
_WHOLE = {"kernel", "device", "grid", "block", "params", "ptx", "schema"}
"""Keys without which a record cannot be used; a bad value of another one is left out."""


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """Something of an input that is left out.

    Attributes:
        file: the file; in an archive ``records.tar.xz/gelu.json``.
        key: the key in the record (``counters.dram__bytes_read.sum``); empty: the file itself.
        reason: what was found and what was expected.
        line, column: the place in the file, 1-based; 0 where it is not known.
        whole: whether the record is left out, not only the value.
        remark: whether nothing is wrong with the record.
    """

    file: str
    key: str
    reason: str
    line: int = 0
    column: int = 0
    whole: bool = False
    remark: bool = False

    @property
    def error(self) -> InputError:
        """The same as an error, for messages."""
        text = f"{self.key}: {self.reason}" if self.key else self.reason
        if self.line:
            return InputError(text, SourceSpot(self.file, self.line, self.column))
        return InputError(text, file=self.file)


@dataclass(frozen=True, slots=True)
class Record:
    """One measured launch.

    Attributes:
        case: its name.
        data: the record as it stands in the file, without what is told as `SkippedRecord`.
        launch: grid, block and arguments.
        ptx: the text of the PTX that ran.
        cubin: the machine code that ran; None where the record has none.
        file: where it comes from.
        module: the PTX, read.
        entry: the name of the kernel in the PTX.
        device: the GPU; None where kanalyze does not know it.
        arrays: what arrays held, of which files lie beside it, by their parameters' places.
    """

    case: str
    data: Mapping[str, Any]
    launch: Launch
    ptx: str
    cubin: bytes | None
    file: str
    module: ir.Module
    entry: str
    device: Device | None
    arrays: Mapping[str, assumptions.Assumption]

    @property
    def counters(self) -> Mapping[str, float | None]:
        """What was measured, by Nsight Compute's metric names; None: not measured, it says."""
        counters: Mapping[str, float | None] = self.data.get("counters") or {}
        return counters


def read_records(
    path: str, standard_input: bytes | None = None
) -> tuple[list[Record], list[SkippedRecord]]:
    """Read and validate the records that a path stands for.

    Args:
        path: a folder (the records and archives in it), a ``.json`` with the ``.ptx`` and
            ``.cubin`` of the same stem and its arrays (``.npy``) beside it, or an archive of such
            files (``.tar``, also packed with xz, gzip or bzip2; ``.zip``). A JSON list holds
            several records, which then have their PTX as text and their cubin in hexadecimal under
            ``ptx`` and ``cubin``.
        standard_input: what stands for the file, where ``path`` is only its name.

    Returns:
        The records in order of their files, and everything that is left out.

    Raises:
        InputError: the path cannot be read, or holds no records.
    """
    files = contents(path) if standard_input is None else of_bytes(standard_input, path)
    reader = _RecordReader(files)
    records = list(reader.records())
    skipped = [SkippedRecord(name, "", reason, whole=True) for name, reason in files.troubles]
    skipped += reader.skipped
    if not records and not skipped:
        raise InputError("there is no record in it", file=path)
    return records, skipped


class _RecordReader:
    """Reads the records of one path; PTX that several of them share is parsed once."""

    def __init__(self, files: RecordFiles):
        self.files = files.files
        self.skipped: list[SkippedRecord] = []
        self._modules: dict[str, consistency.Ptx] = {}

    def records(self) -> Iterator[Record]:
        for name, data in self.files.items():
            if name.endswith(SUFFIXES[1:]):
                continue
            for shown, record in self._objects(name, data):
                one = self._record(name, shown, record)
                if one is not None:
                    yield one

    def _left_out(self, file: str, problems: Iterable[tuple[str, str]], whole: bool) -> None:
        self.skipped += [SkippedRecord(file, key, reason, whole=whole) for key, reason in problems]

    def _objects(self, name: str, data: bytes) -> Iterator[tuple[str, dict[str, Any]]]:
        """The records in a JSON file: one object, or a list of them."""
        try:
            read = json.loads(data.decode("utf-8"), parse_constant=_no_constant)
        except json.JSONDecodeError as error:
            reason = f"not a record: {error.msg}"
            self.skipped.append(SkippedRecord(name, "", reason, error.lineno, error.colno, True))
            return
        except (ValueError, RecursionError) as error:
            self._left_out(name, [("", f"not a record: {error}")], True)
            return
        listed = isinstance(read, list)
        for index, record in enumerate(read if listed else [read]):
            shown = f"{name}[{index}]" if listed else name
            if not isinstance(record, dict):
                what = limits.shown(record)
                self._left_out(shown, [("", f"found {what}, expected a record, an object")], True)
            elif not _other_document(record):
                yield shown, record

    def _record(self, name: str, shown: str, data: dict[str, Any]) -> Record | None:
        data = copy.deepcopy(data)
        given = data.get("counters")
        missing = absent(given) if isinstance(given, dict) and given else []
        fatal, minor = _against_schema(data)
        minor += [(f"counters.{m}", "is missing, expected a number or null") for m in missing]
        stem = name.removesuffix(".json")
        text, ptx_file = self._ptx_text(stem, shown, data)
        if text is None and not any(key == "ptx" for key, _ in fatal):
            fatal.append(("ptx", f"there is no PTX: expected {stem}.ptx beside it"))
        self._left_out(shown, minor, False)
        self._left_out(shown, fatal, True)
        if fatal or text is None:
            return None
        try:
            launch = Launch.from_record(data)
        except InputError as error:
            self._left_out(shown, [("", error.message)], True)
            return None
        return self._fitted(shown, stem, data, launch, text, ptx_file)

    def _ptx_text(self, stem: str, shown: str, data: dict[str, Any]) -> tuple[str | None, str]:
        beside = self.files.get(f"{stem}.ptx")
        if beside is not None:
            try:
                return beside.decode("utf-8"), f"{stem}.ptx"
            except UnicodeDecodeError:
                return beside.decode("latin-1"), f"{stem}.ptx"
        text = data.pop("ptx", None)
        return (text, f"{shown}: ptx") if isinstance(text, str) else (None, "")

    def _fitted(
        self, shown: str, stem: str, data: dict[str, Any], launch: Launch, text: str, ptx_file: str
    ) -> Record | None:
        """The record, where its PTX is whole and the kernel of the launch."""
        ptx = self._modules.get(text)
        if ptx is None:
            ptx = self._modules[text] = consistency.read_ptx(text, ptx_file)
        if ptx.module is None:
            self.skipped.append(
                SkippedRecord(ptx_file, "", f"{ptx.reason}; its record is left out", ptx.line,
                              ptx.column, True)
            )  # fmt: skip
            return None
        function = launch_fit.kernel_of(ptx.module, launch)
        if isinstance(function, Unknown):
            self._left_out(shown, [("kernel", function.reason)], True)
            return None
        problems = [*launch_fit.parameters(function, launch), *arrays.problems(data)]
        device, wrong = consistency.device(str(data["device"]), ptx.module, data.get("arch"))
        unknown_device = bool(wrong) and wrong.startswith("unknown device")
        if wrong and not unknown_device:
            problems.append(("device", wrong))
        problems += launch_fit.refusals(function, launch, device)
        self._left_out(shown, problems, True)
        if problems:
            return None
        if unknown_device:
            self._left_out(shown, [("device", f"{wrong}; left out is what depends on it")], False)
        self._clean(shown, data)
        cubin = self._cubin(shown, stem, data, function.name, device)
        held = self._arrays(shown, stem, data)
        launch = replace(launch, device=device.name if device is not None else None)
        case = str(data.get("case") or stem.rpartition("/")[2])
        return Record(
            case, data, launch, text, cubin, shown, ptx.module, function.name, device, held
        )

    def _cubin(
        self, shown: str, stem: str, data: dict[str, Any], entry: str, device: Device | None
    ) -> bytes | None:
        text = data.pop("cubin", None)
        cubin = self.files.get(f"{stem}.cubin")
        if cubin is None and isinstance(text, str):
            cubin = bytes.fromhex(text)
        if cubin is None:
            return None
        wrong = consistency.cubin(cubin, entry, device)
        if wrong is not None:
            self._left_out(shown, [("cubin", f"{wrong}; the cubin is left out")], False)
        return None if wrong is not None else cubin

    def _arrays(
        self, shown: str, stem: str, data: dict[str, Any]
    ) -> dict[str, assumptions.Assumption]:
        held = {}
        for place, name in arrays.files_of(data).items():
            file = os.path.join(os.path.dirname(stem), name)
            content = self.files.get(file)
            try:
                if content is None:
                    raise InputError(f"there is no {name} beside it")
                held[place] = assumptions.of_npy(io.BytesIO(content), file)
            except InputError as error:
                key = f"params[{place}].array"
                self._left_out(shown, [(key, f"{error.message}; it is left out")], False)
        return held

    def _clean(self, shown: str, data: dict[str, Any]) -> None:
        """Take what cannot be out of the measurements."""
        for key, check in (("counters", plausibility.counters), ("time_ms", plausibility.times)):
            given = data.get(key)
            if not isinstance(given, dict):
                continue
            for names, reason in list(check(given)):
                for name in names:
                    given.pop(name, None)
                text = ", ".join(names)
                left = "they are" if len(names) > 1 else "it is"
                spins = plausibility.of_passes(names)
                if spins:
                    reason += ", or atomics that spin, which differ between the profiler's passes"
                problem = (f"{key}.{text}", f"{reason}; {left} left out")
                self.skipped.append(SkippedRecord(shown, *problem, remark=spins))


def _no_constant(text: str) -> None:
    raise ValueError(f"found {text}, which is not JSON")


def _other_document(data: Mapping[str, Any]) -> bool:
    """Whether an object says that it is another document of kanalyze's, such as a summary."""
    schema = data.get("schema")
    return isinstance(schema, str) and schema.startswith("kanalyze.") and schema != SCHEMA


@cache
def _validator() -> Any:
    import jsonschema

    from kanalyze import schemas

    return jsonschema.Draft202012Validator(schemas.load("record"))


def _against_schema(data: dict[str, Any]) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """What does not follow the schema: keys that are needed, and others, which are taken out."""
    fatal: list[tuple[str, str]] = []
    minor: list[tuple[str, str]] = []
    bad: list[tuple[Any, ...]] = []
    for error in _validator().iter_errors(data):
        path = tuple(error.absolute_path)
        if error.validator == "required":
            for missing in (key for key in error.validator_value if key not in error.instance):
                expected = error.schema["properties"][missing]["description"]
                fatal.append((_dotted((*path, missing)), f"is missing, expected {expected}"))
            continue
        expected = error.schema.get("description", "a record")
        text = f"found {limits.shown(error.instance)}, expected {expected}"
        if path and path[0] not in _WHOLE:
            if path not in bad:
                minor.append((_dotted(path), f"{text}; it is left out"))
                bad.append(path)
        else:
            fatal.append((_dotted(path), text))
    for path in bad:
        _take_out(data, path)
    return list(dict.fromkeys(fatal)), minor


def _take_out(data: Any, path: tuple[Any, ...]) -> None:
    for key in path[:-1]:
        data = data[key]
    if isinstance(data, dict):
        data.pop(path[-1], None)


def _dotted(path: Iterable[Any]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
