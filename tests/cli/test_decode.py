"""``kanalyze decode``: outputs, exit codes, hostile names."""

from __future__ import annotations

import csv
import gzip
import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze.cli.app import cli
from kanalyze.profiles.names import decode
from kanalyze.profiles.readers import read_dump

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples" / "dumps"
NAIVE = str(SAMPLES / "gelu_naive.trace.json.gz")
EVIL = "evil\x1b[31m\x07\u202e_kernel<b>[red]x[/red]|`a`*b*</td><script>"


def run(*arguments: str, stdin: str | bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["decode", *arguments], input=stdin)


def plain(text: str) -> bool:
    return all(c == "\n" or c.isprintable() for c in text)


def test_text() -> None:
    result = run(NAIVE)
    assert (result.exit_code, result.stderr) == (0, "")
    assert "5 names, 27 launches, 4.13 ms on the GPU" in result.stdout
    assert "NVIDIA H200" in result.stdout
    assert "unfused-elementwise" in result.stdout
    assert all(len(line) <= 100 for line in result.stdout.splitlines())


@pytest.mark.parametrize("width", [40, 80, 200])
def test_width(width: int) -> None:
    result = run(NAIVE, str(SAMPLES / "gemms.trace.json.gz"), "--width", str(width), "--details")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= max(width, 75)  # the columns of numbers need some room


def test_color() -> None:
    assert "\x1b[" in run(NAIVE, "--color", "always").stdout
    assert "\x1b" not in run(NAIVE, "--color", "never").stdout
    assert "\x1b" not in run(NAIVE).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        [NAIVE],
        [str(SAMPLES)],
        [str(SAMPLES / "gemms.trace.json.gz"), "--group-by", "op"],
        [str(SAMPLES / "ncu_raw.csv")],
        ["--name", EVIL, "--name", "ampere_sgemm_128x128_nn"],
        [NAIVE, "missing.json"],
        ["--explain", "triton_poi_fused_add_mul_tanh_0"],
    ],
    ids=lambda a: " ".join(Path(w).name for w in a)[:40],
)
def test_json_follows_the_schema(arguments: list[str]) -> None:
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((ROOT / "kanalyze" / "schemas" / "decode.json").read_text())
    result = run(*arguments, "--format", "json")
    assert result.exit_code == (3 if "missing.json" in arguments else 0)
    assert plain(result.stdout)
    data = json.loads(result.stdout)
    found = jsonschema.Draft202012Validator(schema).iter_errors(data)
    assert [f"{e.json_path}: {e.message}" for e in found] == []


def test_json_of_the_contract() -> None:
    data = json.loads(run("--name", "ampere_sgemm_128x128_nn", "--format", "json").stdout)
    assert data["schema"] == "kanalyze.decode/1"
    (kernel,) = data["kernels"]
    assert (kernel["family"], kernel["truncated"], kernel["demangled"]) == (
        "cublas_legacy", False, None)  # fmt: skip
    assert kernel["decoded"] == {
        "op": "gemm", "arch_name": "ampere", "op_class": "simt", "tile_m": 128, "tile_n": 128,
        "layout": "nn", "dtype_a": "f32", "dtype_acc": "f32", "dtype_d": "f32"}  # fmt: skip
    assert kernel["fields"][0] == {
        "text": "ampere", "start": 0, "end": 6, "key": "arch_name", "value": "ampere",
        "basis": kernel["fields"][0]["basis"]}  # fmt: skip
    assert kernel["total_us"] is None
    assert {
        "field": "summary.total_us",
        "reason": "an input does not say how long kernels ran",
    } in (data["unknown"])


def test_csv() -> None:
    result = run(NAIVE, "--name", "=1+1_kernel", "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(result.stdout)))
    assert len(rows) == 6
    assert rows[0]["calls"] == "9"
    assert float(rows[0]["total_us"]) == pytest.approx(1675.526)
    assert json.loads(rows[0]["decoded"])["op"] == "elementwise"
    assert rows[-1]["name"] == "'=1+1_kernel"
    grouped = run(NAIVE, "--format", "csv", "--group-by", "family").stdout.splitlines()
    assert grouped[0] == "family,names,calls,total_us,share"
    assert grouped[1].startswith("at_native,5,27,4131.55")


def test_markdown() -> None:
    result = run(NAIVE, "--format", "markdown", "--top", "2")
    lines = [line for line in result.stdout.splitlines() if line.startswith("|")]
    assert len(lines) == 4
    assert {line.replace("\\|", "").count("|") for line in lines} == {7}


@pytest.mark.parametrize("format_", ["text", "json", "csv", "markdown"])
def test_hostile_names_steer_nothing(format_: str, tmp_path: Path) -> None:
    data = {"traceEvents": [{"ph": "X", "cat": "kernel", "name": EVIL, "ts": 1, "dur": 2.0,
                             "args": {"device": 0, "grid": [1, 1, 1]}}]}  # fmt: skip
    path = tmp_path / "evil.json"
    path.write_text(json.dumps(data))
    for more in ((), ("--details",), ("--group-by", "file")):
        result = run(str(path), "--format", format_, *more)
        assert result.exit_code == 0
        assert plain(result.stdout)
        assert plain(result.stderr)
    if format_ == "markdown":
        assert "<" not in run(str(path), "--format", "markdown").stdout
    if format_ == "json":
        assert json.loads(run(str(path), "--format", "json").stdout)["kernels"][0]["name"] == EVIL


def test_hostile_names_are_explained_safely() -> None:
    for name in (EVIL, "\x1b]0;title\x07" * 50, "a" * 1_000_000, "k<" * 10_000, "", " ", "\n\n"):
        result = run("--explain", name)
        assert result.exit_code == 0, result.stderr
        assert plain(result.stdout)
        assert len(result.stdout) < 200_000


def test_explain_underlines_the_parts() -> None:
    name = "ampere_sgemm_128x128_nn"
    result = run("--explain", name)
    lines = result.stdout.splitlines()
    assert lines[0] == name
    for field in decode(name).fields:
        assert lines[1][field.start] in "├│"
        assert set(lines[1][field.start + 1 : field.end]) <= {"─"}
        assert f"{field.key} = {field.value}" in result.stdout
    assert lines[1][6] == " "
    assert (lines[2].split(), lines[3].split()) == (["1", "2", "4", "5", "6"], ["3"])


def test_lists(tmp_path: Path) -> None:
    text = "ampere_sgemm_128x128_nn\n\nsome words\nampere_sgemm_128x128_nn\n"
    result = run("--list", "-", "--format", "json", stdin=text)
    data = json.loads(result.stdout)
    assert [(k["name"], k["calls"]) for k in data["kernels"]] == [
        ("ampere_sgemm_128x128_nn", 2), ("some words", 1)]  # fmt: skip
    assert data["files"] == ["<stdin>"]
    assert run("--list").exit_code == 2


def test_standard_input() -> None:
    data = Path(NAIVE).read_bytes()
    result = run("-", "--format", "json", stdin=data)
    assert json.loads(result.stdout)["summary"]["calls"] == 27
    assert run("-", "-", stdin=data).exit_code == 2


def test_folders_pass_over_what_is_no_dump(tmp_path: Path) -> None:
    (tmp_path / "rank0.json.gz").write_bytes(Path(NAIVE).read_bytes())
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "rank1.json").write_bytes(gzip.decompress(Path(NAIVE).read_bytes()))
    (tmp_path / "settings.json").write_text('{"a": 1}')
    result = run(str(tmp_path), "--format", "json")
    data = json.loads(result.stdout)
    assert result.exit_code == 0
    assert data["summary"]["calls"] == 54
    assert [Path(f).name for f in data["files"]] == ["rank0.json.gz", "rank1.json"]
    assert [Path(s["file"]).name for s in data["skipped"]] == ["settings.json"]
    (tmp_path / "empty").mkdir()
    assert run(str(tmp_path / "empty")).exit_code == 3


def test_what_came_before_damage_is_delivered(tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes(gzip.decompress(Path(NAIVE).read_bytes())[:36_000])
    result = run(str(cut), str(SAMPLES / "gelu_compiled.table.txt"), "--format", "json")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert data["files"] == [str(cut), str(SAMPLES / "gelu_compiled.table.txt")]
    assert 3 < data["summary"]["calls"] < 30
    (skipped,) = data["skipped"]
    assert skipped["file"] == str(cut)
    assert skipped["line"] > 100
    assert "the JSON is cut" in skipped["reason"]
    errors = result.stderr.splitlines()
    assert len(errors) == 1
    assert errors[0].startswith(f"error: {cut}:{skipped['line']}:1: the JSON is cut inside")


def test_what_cannot_be_is_skipped_and_the_rest_delivered(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    event = '{"ph": "X", "cat": "kernel", "name": "%s", "ts": 1, "dur": %s}'
    rows = [event % ("good", 2), event % ("bad", "1e308"), event % ("bad", "1e308")]
    path.write_text('{"traceEvents": [\n' + ",\n".join(rows) + "]}")
    result = run(str(path), "--format", "json")
    assert result.exit_code == 3
    data = json.loads(result.stdout)
    assert [(k["name"], k["total_us"]) for k in data["kernels"]] == [("good", 2.0)]
    (skipped,) = data["skipped"]
    assert (skipped["file"], skipped["line"]) == (str(path), 3)
    assert "found a time of 1e+308 us" in skipped["reason"]
    text = run(str(path))
    assert text.exit_code == 3
    assert "inf s" not in text.stdout
    assert "nan" not in text.stdout


@pytest.mark.parametrize("format_", ["text", "json", "csv", "markdown"])
def test_lone_surrogates_reach_no_output(format_: str, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(
        '{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\\ud800b", "ts": 1, "dur": 2}]}'
    )
    for arguments in ([str(path)], ["--name", "a\udcffb"], ["--explain", "a\udcffb"]):
        result = run(*arguments, "--format", format_)
        assert result.exit_code == 0
        assert "\ud800" not in result.stdout
        assert "\\ud" not in result.stdout.lower()
        assert "a\ufffdb" in result.stdout


def test_enrich_leaves_out_what_follows(tmp_path: Path) -> None:
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 1}
    listed = json.dumps([event])
    path, out = tmp_path / "t.json", tmp_path / "o.json"
    path.write_text('{"traceEvents": [], "traceEvents": ' + listed + ', "a": 1} {"b": 2}')
    assert run(str(path), "--enrich", str(out)).exit_code == 3
    after = json.loads(out.read_text())
    assert after["a"] == 1
    assert "decoded" in after["traceEvents"][0]["args"]


def test_exit_codes(tmp_path: Path) -> None:
    assert run().exit_code == 2
    assert run("--match", "(", NAIVE).exit_code == 2
    assert run("--group-by", "nothing", NAIVE).exit_code == 2
    assert run("--top", "0", NAIVE).exit_code == 2
    missing = run(str(tmp_path / "none.json"))
    assert missing.exit_code == 3
    assert "No such file" in missing.stderr
    (tmp_path / "x.json").write_text('{"a": 1}')
    assert run(str(tmp_path / "x.json")).exit_code == 3
    (tmp_path / "y.json").write_text('{"traceEvents": []}')
    nothing = run(str(tmp_path / "y.json"))
    assert nothing.exit_code == 0
    assert "nothing ran on the GPU" in nothing.stderr
    assert "no name matches" in run(NAIVE, "--match", "zzz").stderr


def test_output_file(tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    result = run(NAIVE, "--format", "json", "-o", str(out))
    assert result.stdout == ""
    assert json.loads(out.read_text())["summary"]["calls"] == 27


@pytest.mark.parametrize("packed", [False, True])
def test_enrich(packed: bool, tmp_path: Path) -> None:
    out = tmp_path / ("out.json.gz" if packed else "out.json")
    result = run(NAIVE, "--enrich", str(out))
    assert result.exit_code == 0
    assert "27 launches" in result.stderr
    data = out.read_bytes()
    after = json.loads(gzip.decompress(data) if packed else data)
    before = json.loads(gzip.decompress(Path(NAIVE).read_bytes()))
    for event in after["traceEvents"]:
        if event.get("cat") == "kernel":
            args = event["args"]
            assert args["decoded"]["op"] == "elementwise"
            assert args["kernel family"] == "at_native"
            assert args["tensor cores"] is False
            for key in ("kanalyze", "decoded", "kernel family", "tensor cores"):
                del args[key]
    assert after == before  # nothing else is changed
    assert [e.name for e in read_dump(out)] == [e.name for e in read_dump(NAIVE)]
    assert [p.name for p in tmp_path.iterdir()] == [out.name]


@pytest.mark.parametrize(
    ("category", "name"),
    [
        ("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)"),
        ("Memcpy", "Memcpy DtoD (Device -> Device)"),
        ("gpu_memset", "Memset (Device)"),
        ("Memset", "Memset (Device)"),
    ],
)
def test_enrich_describes_copies_of_memory_too(tmp_path: Path, category: str, name: str) -> None:
    event = {"ph": "X", "cat": category, "name": name, "ts": 1, "dur": 2, "args": {"bytes": 4}}
    host = {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "ts": 0, "dur": 1}
    path, out = tmp_path / "t.json", tmp_path / "o.json"
    path.write_text(json.dumps({"traceEvents": [host, event]}))
    result = run(str(path), "--enrich", str(out))
    assert "1 launch" in result.stderr
    unchanged, enriched = json.loads(out.read_text())["traceEvents"]
    assert unchanged == host
    added = enriched["args"]
    assert added["kernel family"] == "memop"
    assert added["tensor cores"] is False
    assert "decoded" in added
    assert added["bytes"] == 4


def test_enrich_copes_with_odd_events(tmp_path: Path) -> None:
    events = [
        {"ph": "X", "cat": "kernel", "name": "a_kernel", "ts": 1, "dur": 1},
        {"ph": "X", "cat": "kernel", "name": "b_kernel", "args": {}},
        {"args": {"s": '"args": {'}, "ph": "X", "cat": "kernel", "name": "c\u00e9\\\"_kernel"},
        {"ph": "X", "cat": "cpu_op", "name": "kernel", "args": {"kernel": 1}},
        {"name": "d_kernel", "cat": "kernel", "big": 123456789012345678901234567890},
    ]  # fmt: skip
    path, out = tmp_path / "t.json", tmp_path / "o.json"
    path.write_text(json.dumps(events))
    assert run(str(path), "--enrich", str(out)).exit_code == 0
    after = json.loads(out.read_text())
    assert [e["name"] for e in after] == [e["name"] for e in events]
    assert ["decoded" in e.get("args", {}) for e in after] == [True, True, True, False, True]
    assert after[2]["args"]["s"] == '"args": {'
    assert after[4]["big"] == 123456789012345678901234567890


def test_enrich_of_what_it_cannot(tmp_path: Path) -> None:
    out = str(tmp_path / "o.json")
    assert run(NAIVE, NAIVE, "--enrich", out).exit_code == 2
    assert run("-", "--enrich", out, stdin="x").exit_code == 2
    assert run(NAIVE, "--enrich", NAIVE).exit_code == 2
    assert run(str(SAMPLES / "ncu_text.txt"), "--enrich", out).exit_code == 3
    assert run(NAIVE, "--enrich", str(tmp_path / "no" / "o.json")).exit_code == 3
    cut = tmp_path / "cut.json"
    cut.write_bytes(gzip.decompress(Path(NAIVE).read_bytes())[:36_000])
    assert run(str(cut), "--enrich", out).exit_code == 3
    assert len(json.loads(Path(out).read_text())["traceEvents"]) > 10  # still JSON


def test_nothing_heavy_is_imported() -> None:
    code = (
        "import sys; from kanalyze.analysis.profile import decode_files; "
        "heavy = {'torch', 'triton', 'pandas', 'sympy', 'networkx', 'numpy'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )  # fmt: skip
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert out.stdout.strip() == "[]", out.stderr
