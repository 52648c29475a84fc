"""Chrome traces: sums against another program's, layouts, damage, bounded memory."""

from __future__ import annotations

import gzip
import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kanalyze.errors import InputError
from kanalyze.profiles.readers import Event, read_dump
from kanalyze.profiles.readers.formats import NotADumpError

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "samples" / "dumps"
SHARED = ROOT.parent / "shared" / "dumps"


def _benchmark() -> Any:
    spec = importlib.util.spec_from_file_location("bench_decode", ROOT / "benchmarks/decode.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


write_trace: Callable[..., int] = _benchmark().write_trace


def sums(path: Path) -> tuple[dict[str, tuple[int, float]], InputError | None]:
    found: dict[str, tuple[int, float]] = {}
    try:
        for event in read_dump(path):
            calls, time = found.get(event.name, (0, 0.0))
            found[event.name] = (calls + event.calls, time + (event.total_us or 0.0))
    except InputError as error:
        return found, error
    return found, None


def events(path: Path) -> tuple[list[Event], InputError | None]:
    found: list[Event] = []
    try:
        found.extend(read_dump(path))  # what came before an error stays
    except InputError as error:
        return found, error
    return found, None


def kernel(name: str = "k", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": "kernel", "name": name, "ts": 1.0, "dur": 2.5, "args": args}


def trace(*found: object, **more: object) -> bytes:
    return json.dumps({**more, "traceEvents": found}).encode()


@pytest.mark.parametrize("path", sorted(SAMPLES.glob("*.trace.json.gz")), ids=lambda p: p.name)
def test_samples_add_up_to_what_another_program_found(path: Path) -> None:
    found, error = sums(path)
    assert error is None
    wanted = json.loads(path.with_name(path.name.split(".")[0] + ".kernels.json").read_text())
    assert {n: c for n, (c, _) in found.items()} == {n: c for n, (c, _) in wanted.items()}
    for name, (_, time) in wanted.items():
        assert found[name][1] == pytest.approx(time, rel=1e-9)


def test_the_training_step_adds_up() -> None:
    path = SHARED / "llama_train.trace.json.gz"
    if not path.is_file():
        pytest.skip("the trace of a training step is not here")
    found, error = sums(path)
    assert error is None
    wanted = json.loads((SHARED / "llama_train.kernels.json").read_text())
    assert {n: (c, pytest.approx(t, rel=1e-9)) for n, (c, t) in wanted.items()} == found


PUBLIC = {
    "chrome_hta_alexnet_a100.json.gz": (18, 98, 66203.0),
    "chrome_hta_triton_example.json.gz": (1, 1, 1.76),
    "chrome_sam_fast_a100_inductor.json.gz": (144, 2788, 500044.0),
    "chrome_tracelens_h100_bert_small.json.gz": (12, 61, 309.437),
    "chrome_tracelens_mi300_bert_small.json.gz": (12, 61, 390.748),
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_traces(name: str) -> None:
    path = SHARED / "public" / name
    if not path.is_file():
        pytest.skip("public dumps are not here")
    with gzip.open(path) as file:  # the oracle: everything at once, by the json module
        data = json.load(file)
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    wanted = [e for e in data["traceEvents"] if e.get("cat") in kinds]
    found, error = events(path)
    assert error is None
    assert [e.name for e in found] == [e["name"] for e in wanted]
    assert [e.total_us for e in found] == [e["dur"] for e in wanted]
    names, calls, total = PUBLIC[name]
    assert (len({e.name for e in found}), len(found)) == (names, calls)
    assert sum(e.total_us or 0.0 for e in found) == pytest.approx(total)


def test_launch_facts_device_and_operator() -> None:
    first = next(read_dump(SAMPLES / "gelu_naive.trace.json.gz"))
    assert (first.grid, first.block) == ((65536, 1, 1), (128, 1, 1))
    assert (first.registers_per_thread, first.shared_bytes, first.stream) == (32, 0, 7)
    assert first.start_us == 5142193828863.952
    assert first.device is not None
    assert (first.device.id, first.device.name) == (0, "NVIDIA H200")
    assert (first.device.capability, first.device.multiprocessors) == ((9, 0), 132)
    assert first.operator is not None
    assert first.operator.name == "aten::mul"
    assert first.operator.shapes == ((16384, 4096), ())
    assert first.operator.dtypes == ("float", "double")


def test_annotations_are_no_kernels() -> None:
    names = {e.name for e in read_dump(SAMPLES / "gelu_compiled.trace.json.gz")}
    assert names == {"triton_poi_fused_add_mul_tanh_0"}


def test_an_external_id_that_is_the_correlation_id_names_no_operator(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "args": {"External id": 7}}
    path = tmp_path / "t.json"
    path.write_bytes(
        trace(op, kernel(**{"External id": 7, "correlation": 9}),
              kernel(**{"External id": 7, "correlation": 7}))
    )  # fmt: skip
    linked, unlinked = events(path)[0]
    assert linked.operator is not None
    assert unlinked.operator is None


def test_names_of_2021(tmp_path: Path) -> None:
    op = {"ph": "X", "cat": "Operator", "name": "aten::mm",
          "args": {"external id": 3, "Input dims": [[2, 3], [3, 4]]}}  # fmt: skip
    event = {**kernel("k", **{"external id": 3, "device": 0}), "cat": "Kernel"}
    path = tmp_path / "t.json"
    path.write_bytes(trace(op, event, {**event, "cat": "Memcpy", "name": "Memcpy HtoD"}))
    first, second = events(path)[0]
    assert first.operator is not None
    assert first.operator.shapes == ((2, 3), (3, 4))
    assert (first.kind, second.kind) == ("kernel", "memcpy")


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("trace")
    write_trace(folder / "a.json", 8000)
    write_trace(folder / "b.json", 8000, compact=True)
    return {"pretty": (folder / "a.json").read_bytes(), "compact": (folder / "b.json").read_bytes()}


def layouts(small: dict[str, bytes]) -> dict[str, bytes]:
    data, compact = small["pretty"], small["compact"]
    listed = data[data.index(b'"traceEvents": [') + 15 : data.rindex(b"]") + 1]
    parsed = json.loads(data)
    reordered = {"traceEvents": parsed["traceEvents"], "a": 1, "z": {"traceEvents": [1, 2]}}
    before = {"m": {"traceEvents": [{"cat": "kernel"}], "s": '"traceEvents": ['}, **parsed}
    return {
        "pretty": data,
        "compact": compact,
        "list": listed,
        "list, open": listed[:-1],
        "gzip": gzip.compress(data, mtime=0),
        "gzip, two members": gzip.compress(data[:9999], mtime=0)
        + gzip.compress(data[9999:], mtime=0),
        "indented": json.dumps(parsed, indent=4).encode(),
        "events first": json.dumps(reordered).encode(),
        "a key of that name deeper": json.dumps(before).encode(),
        "windows line ends": data.replace(b"\n", b"\r\n"),
        "byte-order mark": b"\xef\xbb\xbf" + data,
        "utf-16": data.decode().encode("utf-16"),
        "utf-16 without mark": data.decode().encode("utf-16-le"),
    }


@pytest.mark.parametrize(
    "layout",
    ["pretty", "compact", "list", "list, open", "gzip", "gzip, two members", "indented",
     "events first", "a key of that name deeper", "windows line ends", "byte-order mark", "utf-16",
     "utf-16 without mark"],
)  # fmt: skip
def test_layouts(layout: str, small: dict[str, bytes], tmp_path: Path) -> None:
    path = tmp_path / "anything.bin"
    path.write_bytes(layouts(small)[layout])
    found, error = sums(path)
    assert error is None
    wanted: dict[str, tuple[int, float]] = {}
    for event in json.loads(small["pretty"])["traceEvents"]:
        if event["cat"] == "kernel":
            calls, time = wanted.get(event["name"], (0, 0.0))
            wanted[event["name"]] = (calls + 1, time + event["dur"])
    assert sum(calls for calls, _ in wanted.values()) == 1000
    assert found == wanted


def test_boundaries_inside_strings_and_args_are_not_believed(tmp_path: Path) -> None:
    tricky = kernel('a},{"ph":"X","cat":"kernel","name":"no', list=[{"ph": 1}, {"ph": 2}] * 3000)
    plain = {"ph": "X", "cat": "x", "name": '\\"},{"ph', "args": {"l": [{"name": 1}] * 2000}}
    path = tmp_path / "t.json"
    path.write_bytes(
        json.dumps({"traceEvents": [tricky, plain] * 40}, separators=(",", ":")).encode()
    )
    found, error = events(path)
    assert error is None
    assert [e.name for e in found] == [tricky["name"]] * 40


def test_a_long_string_of_brackets(tmp_path: Path) -> None:
    """A string that goes over many pieces, so that brackets are counted while it is open."""
    path = tmp_path / "t.json"
    for text in ("}" * 300_000, "{[" * 200_000, '\\"}' * 100_000):
        path.write_bytes(trace(kernel("a"), kernel("b", x=text), kernel("c")))
        found, error = events(path)
        assert error is None
        assert [e.name for e in found] == ["a", "b", "c"]


def test_fields_of_other_types(tmp_path: Path) -> None:
    odd = kernel("odd", device="0", stream=None, grid=["4", 2, 1.0], block=[1, "x", 2])
    odd["ts"], odd["dur"], odd["pid"] = "3.5", None, {"a": 1}
    path = tmp_path / "t.json"
    path.write_bytes(trace(odd, {"ph": "X", "cat": 5}, {"name": None}, 7, "x", kernel("fine")))
    first, second = events(path)[0]
    assert (first.start_us, first.total_us, first.grid, first.block) == (3.5, 0.0, (4, 2, 1), None)
    assert second.name == "fine"


def test_bare_nan_and_inf_are_read(tmp_path: Path) -> None:
    data = trace(kernel("a"), kernel("b", x=1), kernel("c")).replace(
        b'"x": 1', b'"x": -inf, "y": NaN'
    )
    path = tmp_path / "t.json"
    path.write_bytes(data)
    found, error = events(path)
    assert error is None
    assert [e.name for e in found] == ["a", "b", "c"]


@pytest.mark.parametrize(
    "time",
    ["1e308", "1e16", "-1", "1e999", "-1e999", "NaN", "Infinity", "-Infinity", "nan", "-inf",
     '"abc"', '"nan"', "[1]", "9" * 400, "9" * 5000],
)  # fmt: skip
def test_times_that_are_none_are_left_out(time: str, tmp_path: Path) -> None:
    bad = json.dumps(kernel("bad")).replace("2.5", time)
    good = json.dumps(kernel("good"))
    path = tmp_path / "t.json"
    path.write_text('{"traceEvents": [\n' + ",\n".join([good, good, bad, good, bad]) + "\n]}")
    found, error = events(path)
    assert [e.name for e in found] == ["good"] * 3
    assert error is not None
    assert "t.json:4:1: " in str(error)
    assert "(and 1 more)" in str(error)


def test_the_line_of_a_late_time_that_is_none(tmp_path: Path) -> None:
    lines = [json.dumps(kernel("k", n=n)) for n in range(5000)]
    lines[4000] = lines[4000].replace("2.5", "-2.5")
    path = tmp_path / "t.json"
    path.write_text("[\n" + ",\n".join(lines) + "\n]")
    found, error = events(path)
    assert len(found) == 4999
    assert "t.json:4002:1: left out 'k': found a time of -2.5 us" in str(error)


def test_absurd_facts_of_a_launch_are_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    big = 10**300
    path.write_bytes(trace(kernel("k", device=big, grid=[big, big, big], stream=-big)))
    (found,), error = events(path)
    assert error is None
    assert (found.grid, found.stream) == (None, None)


FOLLOWING = {
    "a trace": b'{"traceEvents": []}',
    "a list": b"[{}]",
    "text": b"garbage",
    "a bracket": b"}",
    "far away": b" " * 200_000 + b"x]}",
}


@pytest.mark.parametrize("what", FOLLOWING)
@pytest.mark.parametrize("listed", [False, True])
def test_what_follows_a_trace_is_told(what: str, listed: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    first = json.dumps([kernel(), kernel()]).encode() if listed else trace(kernel(), kernel())
    path.write_bytes(first + b"\n" + FOLLOWING[what])
    found, error = events(path)
    assert [e.name for e in found] == ["k", "k"]
    assert "t.json:2:1: found '" in str(error)
    assert "behind the trace" in str(error)


def test_several_lists_of_events(tmp_path: Path) -> None:
    listed = json.dumps([kernel("a"), kernel("b")]).encode()
    path = tmp_path / "t.json"
    for empty in (b"[]", listed):
        for more in (b"", b'"x": {"traceEvents": [1]}, "s": "' + b"]}" * 90_000 + b'",'):
            path.write_bytes(
                b'{"traceEvents": ' + empty + b"," + more + b'"traceEvents" : ' + listed + b"}"
            )
            found, error = events(path)
            assert error is None
            assert [e.name for e in found] == ["a", "b"] * (1 if empty == b"[]" else 2)
    path.write_bytes(b'{"traceEvents": [], "traceEvents": ' + listed + b', "s": "x')
    found, error = events(path)
    assert len(found) == 2
    assert "the JSON is cut, expected '}'" in str(error)


def test_lone_surrogates_are_replaced(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    pair = "\\ud83d\\ude00"
    name = "a\\ud800b\\uDC00" + pair
    call = {"ph": "X", "cat": "cpu_op", "name": "op@", "args": {"External id": 5,
            "Input type": ["@"], "Input Dims": [[1]]}}  # fmt: skip
    launch = kernel("@", **{"External id": 5, "correlation": 9})
    path.write_bytes(trace(call, launch, launch).replace(b"@", name.encode()))
    found, error = events(path)
    assert error is None
    wanted = "a\ufffdb\ufffd\U0001f600"
    assert [e.name for e in found] == [wanted] * 2
    assert found[0].operator is not None
    assert (found[0].operator.name, found[0].operator.dtypes) == ("op" + wanted, (wanted,))


DAMAGE = {
    "cut in an event": (
        lambda d: d[: len(d) * 3 // 4],
        "t.json:36775:1: the JSON is cut inside the event",
        399,
    ),
    "cut behind the events": (lambda d: d[:-3], "the JSON is cut, expected '}'", 1000),
    "cut in the head": (lambda d: d[:100], 'expected "traceEvents"', 0),
    "cut gzip": (
        lambda d: gzip.compress(d, mtime=0)[:-20000],
        "t.json: the gzip data ends early (the file is cut)",
        500,
    ),
    "more behind gzip": (
        lambda d: gzip.compress(d, mtime=0) + b"hello",
        "behind the gzip data",
        1000,
    ),
    "zeros behind gzip": (lambda d: gzip.compress(d, mtime=0) + bytes(512), None, 1000),
    "not UTF-8": (
        lambda d: d.replace(b"sgemm_64x64_nn", b"sgemm_\xe9"),
        "found byte 0xe9, expected UTF-8",
        1000,
    ),
    "zeros": (
        lambda d: d.replace(b'"queued": 0', b"\0" * 11, 1),
        "found an event that is not JSON, left out",
        999,
    ),
    "a damaged event": (
        lambda d: d.replace(b'"queued": 0', b'"queued": ', 1),
        "t.json:28011:1: found an event that is not JSON",
        999,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", DAMAGE)
def test_damage(case: str, small: dict[str, bytes], tmp_path: Path) -> None:
    change, message, least = DAMAGE[case]
    path = tmp_path / "t.json"
    path.write_bytes(change(small["pretty"]))
    found, error = events(path)
    assert len(found) >= least
    if message is None:
        assert error is None
        return
    assert error is not None
    assert message in str(error)
    assert "\n" not in str(error)
    if least < 1000:
        assert len(found) < 1000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'{"a": 1}', 'JSON without "traceEvents"'),
        (b'[{"a": 1}]', "a JSON list of something else"),
        (b"", "is empty"),
        (b"PK\x03\x04 and more", "a zip archive"),
        (b"\x28\xb5\x2f\xfd...", "Zstandard"),
        (gzip.compress(gzip.compress(b"x" * 999, mtime=0), mtime=0), "gzip data inside gzip data"),
        (gzip.compress(bytes(1 << 20), mtime=0), "binary data"),
        (b"\x01\x02\x03\x04" * 300, "binary data"),
    ],
    ids=["no events", "list of something else", "empty", "zip", "zstandard", "gzip twice",
         "zeros in gzip", "binary"],
)  # fmt: skip
def test_other_things_are_refused(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(data)
    with pytest.raises(NotADumpError) as caught:
        list(read_dump(path))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_absurd_expansion_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanalyze.profiles.readers.source.BOMB_BYTES", 1 << 22)
    event = json.dumps(kernel()).encode() + b"," + b" " * 400
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents":[' + event * 60_000 + b"{}]}", 9, mtime=0))
    found, error = events(path)
    assert 1000 < len(found) < 50_000
    assert error is not None
    assert "is not a profile" in str(error)


def test_an_endless_string_ends(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b'{"traceEvents":[' + json.dumps(kernel()).encode() + b',{"name":"'
                     + b"a" * (40 << 20) + b'"}]}')  # fmt: skip
    found, error = events(path)
    assert len(found) == 1
    assert error is not None
    assert "an event is longer than 16 MiB" in str(error)


def test_deep_nesting_is_no_crash(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    deep = b'{"name":' * 5000 + b"1" + b"}" * 5000
    path.write_bytes(b'{"traceEvents":[' + deep + b"," + json.dumps(kernel()).encode() + b"]}")
    found, error = events(path)
    assert [e.name for e in found] == ["k"]
    assert error is not None


CHILD = """
import resource, sys
from kanalyze.analysis.profile import decode_files
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
report = decode_files([sys.argv[1]])
assert not report.skipped, report.skipped
after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(sum(r.calls for r in report.kernels), (after - before) // 1024)
"""


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("compact", [False, True])
def test_memory_is_bounded(packed: bool, compact: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    kernels = write_trace(path, 100_000, compact=compact)
    assert path.stat().st_size > 24e6
    if packed:
        data = path.read_bytes()
        path.write_bytes(gzip.compress(data, 3, mtime=0))
    out = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], cwd=ROOT, capture_output=True, text=True
    )
    assert out.returncode == 0, out.stderr
    calls, grown = map(int, out.stdout.split())
    assert calls == kernels
    assert grown < 30  # MiB, names' grammars included; the trace alone is larger


def test_standard_input(small: dict[str, bytes]) -> None:
    code = (
        "from kanalyze.profiles.readers import read_dump\n"
        "print(sum(e.calls for e in read_dump('-')))"
    )
    for data in (small["pretty"], gzip.compress(small["compact"], mtime=0)):
        out = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, input=data, capture_output=True
        )
        assert out.stdout.strip() == b"1000", out.stderr
