"""Records: the good ones are read as they stand, each damaged one gets a clear line."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kanalyze.errors import InputError
from kanalyze.measured.records import files as files
from kanalyze.measured.records.reader import Record, SkippedRecord, read_records

ROOT = Path(__file__).parents[3]
OURS = ROOT / "samples" / "h200_records"
MORE = ROOT.parent / "shared" / "measured" / "h200"
READ = "dram__bytes_read.sum"
SECTORS = "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
REQUESTS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of one record, to be damaged, beside another one that stays good."""
    for path in OURS.glob("*.*"):
        if path.stem in ("softmax_8192x781", "gelu_unaligned"):
            shutil.copy(path, tmp_path)
    return tmp_path


def change(folder: Path, action: Callable[[dict[str, Any]], object]) -> None:
    path = folder / "gelu_unaligned.json"
    data = json.loads(path.read_text("utf-8"))
    action(data)
    path.write_text(json.dumps(data), "utf-8")


def lines(skipped: list[SkippedRecord]) -> list[str]:
    return [str(s.error).splitlines()[0] for s in skipped]


def test_good_records_are_what_the_files_say() -> None:
    records, skipped = read_records(str(OURS))
    assert skipped == []
    assert [Path(r.file).stem for r in records] == sorted(p.stem for p in OURS.glob("*.json"))
    for record in records:
        path = Path(record.file)
        data = json.loads(path.read_text("utf-8"))
        assert record.data == data
        assert record.case == data["case"]
        assert record.counters == data["counters"]
        assert record.ptx == path.with_suffix(".ptx").read_text("utf-8")
        assert record.cubin == path.with_suffix(".cubin").read_bytes()
        assert record.launch.grid == tuple(data["grid"])
        assert record.entry in record.ptx
        assert record.device is not None
        assert record.device.name == "NVIDIA H200"


def test_a_single_file_and_a_list_of_records() -> None:
    (one,), skipped = read_records(str(OURS / "gelu_unaligned.json"))
    assert (one.case, skipped) == ("gelu_unaligned", [])
    listed, skipped = read_records(str(ROOT / "samples" / "records" / "unfitted_h200.json.gz"))
    assert skipped == []
    assert len(listed) == 30
    assert all(r.cubin and r.ptx and r.file.endswith(f"[{i}]") for i, r in enumerate(listed))


def test_the_records_of_another_collection() -> None:
    if not MORE.is_dir():
        pytest.skip("the other recorded launches are not here")
    records, skipped = read_records(str(MORE))
    assert len(records) == len(list(MORE.glob("*.json")))
    assert skipped == []


# ---------------------------------------------------------------- archives


def same(first: list[Record], second: list[Record]) -> bool:
    def plain(r: Record) -> tuple[object, ...]:
        return r.case, dict(r.data), r.launch, r.ptx, r.cubin

    return [plain(r) for r in first] == [plain(r) for r in second]


@pytest.mark.parametrize("mode", ["", "gz", "xz", "bz2"])
def test_archives_hold_the_same_as_their_folder(mode: str, tmp_path: Path) -> None:
    packed = tmp_path / "records.tar"
    with tarfile.open(packed, f"w:{mode}") as archive:
        archive.add(OURS, "some/folder")
    records, skipped = read_records(str(packed))
    assert skipped == []
    assert same(records, read_records(str(OURS))[0])
    assert records[0].file == f"{packed}/some/folder/gelu_unaligned.json"
    piped, skipped = read_records("<stdin>", packed.read_bytes())
    assert skipped == []
    assert same(piped, records)


def test_zip_archives_and_archives_in_a_folder(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "records.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(OURS.glob("*.*")):
            archive.write(path, path.name)
    assert same(read_records(str(tmp_path))[0], read_records(str(OURS))[0])


def tar_of(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as archive:
        for info, body in members:
            info.size = len(body)
            archive.addfile(info, io.BytesIO(body))
    return stream.getvalue()


def test_names_in_an_archive_are_labels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, nothing outside of the archive is read."""
    (tmp_path / "inside").mkdir()
    monkeypatch.chdir(tmp_path / "inside")
    link = tarfile.TarInfo("stolen.json")
    link.type, link.linkname = tarfile.SYMTYPE, str(OURS / "gelu_unaligned.json")
    body = (OURS / "gelu_unaligned.json").read_bytes()
    climbing = tarfile.TarInfo("../../gelu_unaligned.json")
    absolute = tarfile.TarInfo(str(OURS / "softmax_8192x781.json"))
    data = tar_of((link, b""), (climbing, body), (absolute, body))
    before = sorted(tmp_path.rglob("*"))
    records, skipped = read_records("a.tar", data)
    assert sorted(tmp_path.rglob("*")) == before
    assert records == []
    assert lines(skipped)[0] == "a.tar/stolen.json: found a link or a device, expected a file"
    assert [s.key for s in skipped[1:]] == ["ptx", "ptx"]  # of the archive, where there is none


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a record"),
        (b"\xfd7zXZ\0" + b"junk" * 50, "the packed data is damaged"),
        (b"\x1f\x8b\x08\0", "the packed data ends early"),
        (b"PK\3\4" + b"\0" * 60, "the archive is damaged"),
        (b"\0" * 257 + b"ustar" + b"\xff" * 300, "the archive is damaged"),
        (b"[" * 100_000, "not a record"),
        (b'{"kernel": NaN}', "found NaN"),
        (b"[1, \"x\"]", "found 1, expected a record"),
        (b"{", "not a record"),
        (b"\xff\xfe{}", "not a record"),
    ],
)  # fmt: skip
def test_damaged_files_get_a_line(data: bytes, reason: str) -> None:
    records, skipped = read_records("it", data)
    assert records == []
    assert any(reason in line for line in lines(skipped))


@pytest.mark.parametrize("keep", [0.3, 0.9, 0.99])
def test_a_cut_archive_gives_what_is_whole(keep: float, tmp_path: Path) -> None:
    packed = tmp_path / "records.tar.gz"
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(OURS, "records")
    data = packed.read_bytes()
    records, skipped = read_records("cut", data[: int(keep * len(data))])
    assert len(records) < 4
    assert any("ends early" in line for line in lines(skipped))
    assert any("damaged" in line for line in lines(skipped))
    names = {Path(r.file).stem for r in records}
    assert same(records, [r for r in read_records(str(OURS))[0] if Path(r.file).stem in names])


@pytest.mark.parametrize(
    "pack",
    [partial(gzip.compress, mtime=0), lzma.compress, bz2.compress],
    ids=["gzip", "xz", "bz2"],
)
def test_several_packed_streams_are_one(pack: Callable[[bytes], bytes]) -> None:
    data = (ROOT / "samples" / "records" / "unfitted_h200.json.gz").read_bytes()
    text = gzip.decompress(data)
    cut = len(text) // 3
    for packed in (
        pack(text[:cut]) + pack(text[cut:]),
        pack(text[:cut]) + pack(b"") + pack(text[cut:]) + bytes(512),
    ):
        records, skipped = read_records("it", packed)
        assert (len(records), skipped) == (30, [])
    _, skipped = read_records("it", pack(text) + b"more")
    assert "damaged" in lines(skipped)[0] or "ends early" in lines(skipped)[0]


def test_bombs_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(files, "FILE_BYTES", 1 << 16)
    for packed in (gzip.compress(bytes(1 << 22), mtime=0), lzma.compress(bytes(1 << 22))):
        _, skipped = read_records("bomb", packed)
        assert "unpacks to more than 1 MiB" in lines(skipped)[0]
    _, skipped = read_records("long", tar_of((tarfile.TarInfo("a.json"), bytes(1 << 17))))
    assert "found 131,072 bytes" in lines(skipped)[0]
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.json", bytes(1 << 17))
        for index in range(40):
            archive.writestr(f"{index}.json", bytes(1 << 15))
    _, skipped = read_records("zip", stream.getvalue())
    assert "found 131,072 bytes" in lines(skipped)[0]
    assert any("more than 1 MiB" in line for line in lines(skipped))


def test_what_is_no_record(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_records(str(tmp_path / "missing"))
    with pytest.raises(InputError, match="no record"):
        read_records(str(tmp_path))
    with pytest.raises(InputError, match="neither a file nor a pipe"):
        read_records("/dev/zero")
    (tmp_path / "summary.json").write_text('{"schema": "kanalyze.bench/1"}')
    with pytest.raises(InputError, match="no record"):
        read_records(str(tmp_path))


# ---------------------------------------------------------------- one value that cannot be


def test_each_fault_is_told_and_the_rest_is_read(folder: Path) -> None:
    """A truncated PTX, a missing counter, another device, a negative time."""
    good = read_records(str(folder))[0]
    for name in ("cut", "lacking", "other", "negative"):
        for suffix in ("json", "ptx", "cubin"):
            shutil.copy(OURS / f"gelu_unaligned.{suffix}", folder / f"{name}.{suffix}")
    text = (folder / "cut.ptx").read_text("utf-8")
    (folder / "cut.ptx").write_text(text[: len(text) // 2], "utf-8")
    for name, action in {
        "lacking": lambda d: d["counters"].pop(READ),
        "other": lambda d: d.update(device="NVIDIA A100-SXM4-40GB"),
        "negative": lambda d: d["time_ms"].update(median=-1.5),
    }.items():
        path = folder / f"{name}.json"
        data = json.loads(path.read_text("utf-8"))
        action(data)
        path.write_text(json.dumps(data), "utf-8")
    records, skipped = read_records(str(folder))
    assert [Path(r.file).stem for r in records] == [
        "gelu_unaligned", "lacking", "negative", "softmax_8192x781",
    ]  # fmt: skip
    assert same([records[0], records[3]], good)
    assert READ not in records[1].counters
    assert "median" not in records[2].data["time_ms"]
    cut, lacking, negative, other = lines(skipped)
    assert "cut.ptx:" in cut
    assert "found the end of the file" in cut
    assert lacking.endswith(f"lacking.json: counters.{READ}: is missing, expected a number or null")
    assert "negative.json: time_ms.median: found -1.5, expected a time in milliseconds" in negative
    assert "other.json: device: found NVIDIA A100 40GB SXM (sm_80), expected a GPU" in other


def test_no_ptx_and_unreadable_ptx(folder: Path) -> None:
    (folder / "gelu_unaligned.ptx").unlink()
    records, skipped = read_records(str(folder))
    assert len(records) == 1
    assert "gelu_unaligned.json: ptx: there is no PTX: expected " in lines(skipped)[0]
    for text in ("", "hello", ".version 8.7\n"):
        (folder / "gelu_unaligned.ptx").write_text(text)
        records, skipped = read_records(str(folder))
        assert len(records) == 1
        assert len(skipped) == 1
        assert skipped[0].whole


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (lambda d: d.pop("grid"), "grid: is missing, expected [x, y, z], blocks"),
        (lambda d: d.update(grid=[0, 1, 1]), "grid[0]: found 0, expected"),
        (lambda d: d.update(block="128"), "block: found '128', expected [x, y, z]"),
        (lambda d: d.update(block=[64, 1, 1]), "found 64 x 1 x 1, expected 128 x 1 x 1 (.reqntid)"),
        (lambda d: d["params"].pop(), "params: found 2 arguments, expected 5"),
        (lambda d: d["params"].append({"name": "y", "type": "i32", "value": 1}),
         "params[3]: found i32 (4 B) for y, expected .u64 (8 B)"),
        (lambda d: d["params"][2].update(type="i64"), "params[2]: found i64 (8 B)"),
        (lambda d: d["params"].extend([{"name": "a", "type": "*i8"}] * 9), "found 12 arguments"),
        (lambda d: d.update(grid=[2**31, 1, 1]), "grid[0]: found 2,147,483,648, expected blocks"),
        (lambda d: d.update(grid=[1, 1, 65536]), "grid[2]: found 65,536, expected blocks, 1 to 65"),
        (lambda d: d.update(block=[1024, 2, 1]), "expected at most 1,024"),
        (lambda d: d.update(shared_bytes=10**6), "shared_bytes: found 1,000,000 B of shared"),
        (lambda d: d["params"][2].update(value=2**32), "found 4,294,967,296, expected i32"),
        (lambda d: d["params"][0].update(address=2**64), "params[0].address: found 18,446,744,073"),
        (lambda d: d["params"][0].update(integers=[1, 5, 5, 9, "int32"]), "expected low below"),
        (lambda d: d["params"][0].update(integers=[1, 0, 5, 9, "int3"]), "[4]: found 'int3'"),
        (lambda d: d["params"][0].update(integers=[1, 0]), "found [1, 0], expected [seed"),
        (
            lambda d: [p.update(integers=[1, 0, 5, 2**26, "int8"]) for p in d["params"][:2]],
            "found 134,217,728 integers in all, expected at most 67,108,864",
        ),
        (lambda d: d.update(arch="sm_80"), "found the architecture sm_80, expected sm_90a"),
        (lambda d: d.update(schema="something/1"), 'schema: found \'something/1\', expected "kan'),
        (lambda d: d.update(kernel=None), "kernel: found None, expected the kernel's name"),
    ],
)  # fmt: skip
def test_records_that_cannot_be_used(
    folder: Path, action: Callable[[dict[str, Any]], object], message: str
) -> None:
    change(folder, action)
    records, skipped = read_records(str(folder))
    assert [r.case for r in records] == ["softmax_8192x781"]
    assert all(s.whole for s in skipped)
    assert any(message in line for line in lines(skipped)), lines(skipped)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (READ, -32, "found -32, expected a number that is not negative"),
        (READ, 33, "found 33, expected a multiple of 32"),
        (REQUESTS, 0.5, "found 0.5, expected a whole number"),
        (REQUESTS, "12", "found '12', expected a number, or null"),
        (REQUESTS, True, "found True, expected a number, or null"),
        (REQUESTS, 1e400, "found Infinity"),
        ("gpu__time_duration.sum", 0, "found 0, expected a number above 0"),
        ("gpu__time_duration.sum", -1, "found -1, expected a number that is not negative"),
        ("sm__maximum_warps_per_active_cycle_pct", 101, "expected at most 100 %"),
    ],
)
def test_counters_that_cannot_be(folder: Path, name: str, value: object, message: str) -> None:
    change(folder, lambda d: d["counters"].update({name: value}))
    records, skipped = read_records(str(folder))
    (line,) = lines(skipped)
    assert message in line
    if value != 1e400:  # no JSON
        assert f"counters.{name}" in line
        assert name not in records[0].counters
        assert len(records) == 2


@pytest.mark.parametrize(
    ("first", "second", "factor"),
    [
        (REQUESTS, SECTORS, 1.1),
        (SECTORS, REQUESTS, 33),
        ("smsp__thread_inst_executed.sum", "smsp__inst_executed.sum", 33),
        ("smsp__inst_executed_op_global_ld.sum", "smsp__inst_executed.sum", 2),
    ],
)
def test_counters_that_contradict_each_other(
    folder: Path, first: str, second: str, factor: float
) -> None:
    change(
        folder,
        lambda d: d["counters"].update({first: int(factor * d["counters"][second])}),
    )
    records, skipped = read_records(str(folder))
    assert len(records) == 2
    assert first not in records[0].counters
    assert second not in records[0].counters
    assert first in lines(skipped)[0]


def test_null_is_not_measured_and_no_fault(folder: Path) -> None:
    change(folder, lambda d: d["counters"].update({READ: None}))
    records, skipped = read_records(str(folder))
    assert skipped == []
    assert records[0].counters[READ] is None
    change(folder, lambda d: d.update(counters=None))
    records, skipped = read_records(str(folder))
    assert skipped == []
    assert records[0].counters == {}


def test_times_out_of_order(folder: Path) -> None:
    change(folder, lambda d: d["time_ms"].update(p20=9.0))
    records, skipped = read_records(str(folder))
    assert "time_ms.p20, median: found 9.0 and " in lines(skipped)[0]
    assert set(records[0].data["time_ms"]) == {"p80"}


def test_an_unknown_gpu_leaves_what_depends_on_none(folder: Path) -> None:
    change(folder, lambda d: d.update(device="NVIDIA H9000"))
    records, skipped = read_records(str(folder))
    assert len(records) == 2
    assert records[0].device is None
    assert "device: unknown device 'NVIDIA H9000'" in lines(skipped)[0]
    assert not skipped[0].whole


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "found an empty file, expected a cubin"),
        (b"hello", "found no ELF file, expected a cubin"),
        (b"\x7fELF" + bytes(60), "found an ELF file for another machine"),
        ((OURS / "softmax_8192x781.cubin").read_bytes(), "found softmax, expected gelu"),
        ((OURS / "gelu_unaligned.cubin").read_bytes()[:5000], "found a damaged cubin"),
    ],
    ids=["empty", "text", "zeros", "another", "cut"],
)
def test_cubins_of_something_else(folder: Path, data: bytes, message: str) -> None:
    (folder / "gelu_unaligned.cubin").write_bytes(data)
    records, skipped = read_records(str(folder))
    assert len(records) == 2
    assert records[0].cubin is None
    (line,) = lines(skipped)
    assert f"cubin: {message}" in line


def test_a_record_without_a_cubin_is_whole(folder: Path) -> None:
    (folder / "gelu_unaligned.cubin").unlink()
    records, skipped = read_records(str(folder))
    assert skipped == []
    assert [r.cubin is None for r in records] == [True, False]


def test_fuzzed_records_never_fail_otherwise(folder: Path) -> None:
    """Each value replaced by others: a record, or lines, and no other exception."""
    path = folder / "gelu_unaligned.json"
    original = json.loads(path.read_text("utf-8"))
    for key in original:
        for value in (None, -1, 0, 1e300, "", "x", [], {}, [None], {"a": None}, True, 2**70):
            path.write_text(json.dumps({**original, key: value}), "utf-8")
            records, skipped = read_records(str(path))
            assert bool(records) != any(s.whole for s in skipped)


def test_reading_from_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    if os.fork() == 0:
        with pipe.open("wb") as stream:
            stream.write((ROOT / "samples" / "records" / "unfitted_h200.json.gz").read_bytes())
        os._exit(0)
    records, _ = read_records(str(pipe))
    os.wait()
    assert len(records) == 30
