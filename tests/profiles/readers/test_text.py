"""Text dumps, tables and databases: vintages, countries, program output between, damage."""

from __future__ import annotations

import math
import sqlite3
from pathlib import Path

import pytest

from kanalyze.errors import InputError
from kanalyze.profiles.readers import Event, files_in, read_dump
from kanalyze.profiles.readers.formats import NotADumpError
from kanalyze.profiles.readers.numbers import NumberForm, base_unit, form_of, time_us

ROOT = Path(__file__).resolve().parents[3]
SAMPLES = ROOT / "samples" / "dumps"
PUBLIC = ROOT.parent / "shared" / "dumps" / "public"


def read(text: str | bytes, folder: Path) -> tuple[list[Event], str]:
    """The events of a text, and what was wrong with it."""
    path = folder / "dump.dat"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    found: list[Event] = []
    try:
        found.extend(read_dump(path))
    except InputError as error:
        return found, str(error)
    return found, ""


def brief(found: list[Event]) -> list[tuple[str, int, float | None]]:
    return [(e.name, e.calls, None if e.total_us is None else round(e.total_us, 4)) for e in found]


# --- PyTorch ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("gelu_naive", [9, 9, 3, 3, 3]),
        ("gelu_builtin", [3]),
        ("gelu_compiled", [3]),
        ("llama_train", None),
    ],
)
def test_tables_of_pytorch(name: str, wanted: list[int] | None) -> None:
    found = list(read_dump(SAMPLES / f"{name}.table.txt"))
    if wanted is not None:
        assert [e.calls for e in found] == wanted
    assert all(e.kind == "kernel" and e.total_us for e in found)
    names = {e.name for e in found}
    assert not any(n.startswith(("aten::", "cuda", "Optimizer", "##", "autograd")) for n in names)


def test_a_table_equals_its_trace() -> None:
    table = list(read_dump(SAMPLES / "gelu_naive.table.txt"))
    trace = list(read_dump(SAMPLES / "gelu_naive.trace.json.gz"))
    assert sum(e.calls for e in table) == len(trace)
    total = sum(e.total_us or 0.0 for e in trace)
    assert sum(e.total_us or 0.0 for e in table) == pytest.approx(total, rel=1e-3)


def table(columns: list[str], rows: list[list[str]], name_width: int = 55) -> str:
    widths = [name_width] + [12] * (len(columns) - 1)
    rule = "  ".join("-" * w for w in widths) + "  "
    lines = [rule, "  ".join(c.rjust(w) for c, w in zip(columns, widths, strict=True)) + "  ", rule]
    lines += ["  ".join(c.rjust(w) for c, w in zip(r, widths, strict=True)) + "  " for r in rows]
    return "\n".join(
        [*lines, rule, "Self CPU time total: 7.1ms", "Self CUDA time total: 4.1ms", ""]
    )


CPU = ["Name", "Self CPU %", "Self CPU", "CPU total %", "CPU total", "CPU time avg"]
NOTHING = ["0.00%", "0.000us", "0.00%", "0.000us", "0.000us"]


@pytest.mark.parametrize("device", ["CUDA", "XPU", "Device"])
def test_vintages(device: str, tmp_path: Path) -> None:
    columns = [*CPU, f"Self {device}", f"Self {device} %", f"{device} total", f"{device} time avg",
               "CPU Mem", f"{device} Mem", "# of Calls"]  # fmt: skip
    text = table(columns, [
        ["aten::mm", "1.00%", "3.5us", "2.00%", "4.000us", "1.000us", "7.000us", "9 %", "7.000us",
         "3.500us", "0 b", "1.00 Kb", "2"],
        ["ampere_sgemm_128x64_nn", *NOTHING, "7.000us", "99 %", "7.000us", "3.500us",
         "0 b", "0 b", "2"],
        ["Memcpy HtoD (Pinned -> Device)", *NOTHING, "1.500ms", "1 %", "1.500ms", "1.5ms",
         "0 b", "0 b", "1"],
        ["ProfilerStep*", *NOTHING, "9.500s", "1 %", "1.500s", "1.5ms", "0 b", "0 b", "1"],
        ["my region", *NOTHING, "9.500s", "1 %", "1.500s", "1.5ms", "0 b", "0 b", "1"],
        ["my region", "1.00%", "3.5us", "2.00%", "4.000us", "1.000us", "0.000us", "9 %", "7.000us",
         "3.500us", "0 b", "1.00 Kb", "2"],
    ])  # fmt: skip
    found, wrong = read(text, tmp_path)
    assert wrong == ""
    assert brief(found) == [
        ("ampere_sgemm_128x64_nn", 2, 7.0),
        ("Memcpy HtoD (Pinned -> Device)", 1, 1500.0),
    ]
    assert [e.kind for e in found] == ["kernel", "memcpy"]


def test_a_table_without_self_times(tmp_path: Path) -> None:
    columns = ["Name", "Self CPU total %", "Self CPU total", "CPU total %", "CPU total",
               "CPU time avg", "CUDA total %", "CUDA total", "CUDA time avg",
               "Number of Calls"]  # fmt: skip
    rows = [["aten::mm", "1%", "3.5us", "2%", "4us", "1us", "7%", "9.0us", "7us", "2"],
            ["sgemm_kernel", "0%", "0.0us", "0%", "0us", "0us", "7%", "9.0us", "4.5us",
             "2"]]  # fmt: skip
    found, wrong = read(table(columns, rows), tmp_path)
    assert (brief(found), wrong) == ([("sgemm_kernel", 2, 9.0)], "")
    found, wrong = read(table(columns, rows[:1]), tmp_path)
    assert found == []
    assert "dump.dat:2:1: found a table of operators only" in wrong


def test_tables_among_other_output(tmp_path: Path) -> None:
    one = (SAMPLES / "gelu_builtin.table.txt").read_text()
    text = f"step 1 loss=0.3\r\x1b[32mok\x1b[0m\n{one}\nstep 2\n"
    text += "".join(f"[rank0]: {line}\n" for line in one.splitlines())
    found, wrong = read(text, tmp_path)
    assert wrong == ""
    assert [e.calls for e in found] == [3, 3]


def test_wide_names_with_blanks(tmp_path: Path) -> None:
    name = "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float,  float> >(T3)" * 2
    columns = [*CPU, "Self CUDA", "Self CUDA %", "CUDA total", "CUDA time avg", "# of Calls"]
    text = table(columns, [[name, *NOTHING, "7.0us", "9%", "7.0us", "3.5us", "2"]], 200)
    assert brief(read(text, tmp_path)[0]) == [(name, 2, 7.0)]


def test_a_cut_table(tmp_path: Path) -> None:
    text = (SAMPLES / "gelu_naive.table.txt").read_text().splitlines()[:8]
    found, wrong = read("\n".join(text), tmp_path)
    assert [e.calls for e in found] == [9, 9, 3]
    assert "the table is cut" in wrong


def test_printed_averages(tmp_path: Path) -> None:
    text = (
        "[<FunctionEventAvg key=aten::mm self_cpu_time=3.5us cpu_time=2.0us  self_cuda_time=7.000us"
        " cuda_time=3.500us input_shapes= cpu_memory_usage=0 cuda_memory_usage=0>, "
        "<FunctionEventAvg key=void k<4, a>(int, b) self_cpu_time=0.000us cpu_time=0.000us  "
        "self_cuda_time=7.000us cuda_time=3.500us input_shapes= cpu_memory_usage=0 "
        "cuda_memory_usage=0>]\n"
    )
    assert brief(read(text, tmp_path)[0]) == [("void k<4, a>(int, b)", 2, 7.0)]


# --- Nsight Systems -----------------------------------------------------------------------------

SUMMARY = (
    "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
    '75.0,1234567,3,411522.3,411000.0,400000,420000,100.5,"void k<(int)4, float>(T1, T2)"\n'
    "25.0,400000,1,400000.0,400000.0,400000,400000,0.0,ampere_sgemm_32x32_nn\n"
)


def test_nsys_summary_among_other_reports(tmp_path: Path) -> None:
    text = (
        "Generating SQLite file\nProcessing [r.sqlite] with [cuda_api_sum.py]...\n\n"
        "Time (%),Total Time (ns),Num Calls,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"
        "60.0,9999999,5,1.0,1.0,1,1,0.0,cudaLaunchKernel\n\n"
        f"Processing [r.sqlite] with [cuda_gpu_kern_sum.py]...\n\n{SUMMARY}\n"
        "Processing [r.sqlite] with [cuda_gpu_mem_time_sum.py]...\n\n"
        "Time (%),Total Time (ns),Count,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Operation\n"
        "100.0,5000,2,2500.0,2500.0,1,1,0.0,[CUDA memcpy Host-to-Device]\n\n"
        "Total (MB),Count,Avg (MB),Med (MB),Min (MB),Max (MB),StdDev (MB),Operation\n"
        "1.0,2,1.0,1.0,1.0,1.0,0.0,[CUDA memcpy Host-to-Device]\n\n"
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
        "DymSMem (MB),Bytes (MB),Device,Strm,Name\n"
        "5,411522,7,1,1,1,128,1,1,16,0.0,0.0,,NVIDIA H200 (0),7,ampere_sgemm_32x32_nn\n"
    )
    found, wrong = read(text, tmp_path)
    assert wrong == ""
    assert brief(found) == [
        ("void k<(int)4, float>(T1, T2)", 3, 1234.567),
        ("ampere_sgemm_32x32_nn", 1, 400.0),
        ("[CUDA memcpy Host-to-Device]", 2, 5.0),
    ]
    assert [e.kind for e in found] == ["kernel", "kernel", "memcpy"]


COUNTRIES = {
    "comma decimal, semicolons": (
        "Time (%);Total Time (ns);Instances;Avg (ns);Name\n"
        '75,0;1234567;3;411522,3;"void k<(int)4, float>(T1, T2)"\n'
        "25,0;400000;1;400000,0;ampere_sgemm_32x32_nn\n"
    ),
    "dot thousands, comma decimal": (
        "Time (%);Total Time (ns);Instances;Avg (ns);Name\n"
        '75,0;1.234.567;3;411.522,3;"void k<(int)4, float>(T1, T2)"\n'
        "25,0;400.000;1;400.000,0;ampere_sgemm_32x32_nn\n"
    ),
    "dot thousands, no decimals at all": (
        "Time (%);Total Time (ns);Instances;Avg (ns);Name\n"
        '75;1.234.567;3;411.522;"void k<(int)4, float>(T1, T2)"\n'
        "25;400.000;1;400.000;ampere_sgemm_32x32_nn\n"
    ),
    "narrow blanks": (
        "Time (%);Total Time (ns);Instances;Avg (ns);Name\n"
        '75,0;1\u202f234\u202f567;3;411\u00a0522,3;"void k<(int)4, float>(T1, T2)"\n'
        "25,0;400 000;1;400 000,0;ampere_sgemm_32x32_nn\n"
    ),
    "English thousands, quoted": (
        "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
        '75.0,"1,234,567",3,"411,522.3","void k<(int)4, float>(T1, T2)"\n'
        '25.0,"400,000",1,"400,000.0",ampere_sgemm_32x32_nn\n'
    ),
    "Swiss": (
        "Time (%),Total Time (ns),Instances,Avg (ns),Name\n"
        "75.0,1’234’567,3,411’522.3,\"void k<(int)4, float>(T1, T2)\"\n"
        "25.0,400'000,1,400'000.0,ampere_sgemm_32x32_nn\n"
    ),
    "tabs and microseconds": (
        "Time (%)\tTotal Time (us)\tInstances\tAvg (us)\tName\n"
        "75.0\t1234.567\t3\t411.5\tvoid k<(int)4, float>(T1, T2)\n"
        "25.0\t400.000\t1\t400.000\tampere_sgemm_32x32_nn\n"
    ),
    "units row": (
        '"Type","Time(%)","Time","Calls","Avg","Min","Max","Name"\n,%,ms,,us,us,us,\n'
        '"GPU activities",75.0,1.234567,3,411.5,1,1,"void k<(int)4, float>(T1, T2)"\n'
        '"GPU activities",25.0,0.400000,1,400,1,1,"ampere_sgemm_32x32_nn"\n'
        '"API calls",99.0,5.0,9,1,1,1,"cudaMalloc"\n'
    ),
    "columns": (
        " Time (%)  Total Time (ns)  Instances  Avg (ns)   Name                           \n"
        " --------  ---------------  ---------  ---------  -------------------------------\n"
        "     75.0        1,234,567          3  411,522.3  void k<(int)4, float>(T1, T2)\n"
        "     25.0          400,000          1  400,000.0  ampere_sgemm_32x32_nn\n\n"
    ),
    "UTF-16, as PowerShell writes": SUMMARY,
    "windows line ends": SUMMARY.replace("\n", "\r\n"),
}  # fmt: skip


@pytest.mark.parametrize("country", COUNTRIES)
def test_countries(country: str, tmp_path: Path) -> None:
    text = COUNTRIES[country]
    data = text.encode("utf-16") if country.startswith("UTF-16") else text.encode()
    found, wrong = read(data, tmp_path)
    assert wrong == ""
    assert brief(found) == [
        ("void k<(int)4, float>(T1, T2)", 3, 1234.567),
        ("ampere_sgemm_32x32_nn", 1, 400.0),
    ]


def test_blanks_of_windows_1252_are_told(tmp_path: Path) -> None:
    text = COUNTRIES["narrow blanks"].replace("\u202f", "\u00a0").encode("cp1252")
    found, wrong = read(text, tmp_path)
    assert [e.total_us for e in found] == [1234.567, 400.0]
    assert "dump.dat:2:1: found byte 0xa0, expected UTF-8" in wrong


def test_an_nsys_trace(tmp_path: Path) -> None:
    text = (
        "Start (ns),Duration (ns),CorrId,GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
        "DymSMem (MB),Bytes (MB),Throughput (MBps),SrcMemKd,DstMemKd,Device,Ctx,GreenCtx,Strm,"
        "Name\n"
        "1000,2500,7,64,2,1,128,1,1,32,0.016,0.032,,,,,NVIDIA H200 (1),1,,7,sgemm_x\n"
        "9000,500,8,,,,,,,,,,4.000,8000.0,Pageable,Device,NVIDIA H200 (1),1,,7,"
        "[CUDA memcpy Host-to-Device]\n"
    )
    found, wrong = read(text, tmp_path)
    assert wrong == ""
    first, second = found
    assert (first.start_us, first.total_us, first.grid, first.block) == (
        1.0, 2.5, (64, 2, 1), (128, 1, 1))  # fmt: skip
    assert (first.registers_per_thread, first.shared_bytes, first.stream) == (32, 48000, 7)
    assert first.device is not None
    assert (first.device.id, first.device.name) == (1, "NVIDIA H200")
    assert (second.kind, second.grid, second.shared_bytes) == ("memcpy", None, None)


def test_a_cut_nsys_row(tmp_path: Path) -> None:
    text = SUMMARY[: SUMMARY.rindex("400000,0.0")]
    found, wrong = read(text, tmp_path)
    assert [e.calls for e in found] == [3]
    assert "dump.dat:3:1: found 7 cells, expected the 9 columns" in wrong


@pytest.mark.parametrize("time", ["-5", "9" * 5000, "1e308", "-1e999", "nan", "inf", "9" * 19])
def test_nsys_times_that_are_none_are_left_out(time: str, tmp_path: Path) -> None:
    lines = SUMMARY.splitlines()
    row = lines[1].replace(lines[1].split(",")[1], time)
    found, wrong = read("\n".join([lines[0], row, *lines[2:]]) + "\n", tmp_path)
    assert [e.total_us for e in found] == [400.0]
    assert "dump.dat:2:1: " in wrong


@pytest.mark.parametrize("calls", ["-3", "9" * 5000, "1e300", "x"])
def test_nsys_calls_that_are_none_are_left_out(calls: str, tmp_path: Path) -> None:
    lines = SUMMARY.splitlines()
    cells = lines[1].split(",")
    row = ",".join([*cells[:2], calls, *cells[3:]])
    found, wrong = read("\n".join([lines[0], row, *lines[2:]]) + "\n", tmp_path)
    assert [e.total_us for e in found] == [400.0]
    assert "dump.dat:2:1: " in wrong
    assert "expected a number of calls" in wrong


def test_absurd_facts_of_an_nsys_launch_are_no_crash(tmp_path: Path) -> None:
    big = "9" * 5000
    text = (
        "Start (ns),Duration (ns),GrdX,GrdY,GrdZ,BlkX,BlkY,BlkZ,Reg/Trd,StcSMem (MB),"
        "DymSMem (MB),Device,Strm,Name\n" + f"{big},2500," + f"{big}," * 9 + f"x ({big}),{big},k\n"
    )
    (found,), wrong = read(text, tmp_path)
    assert wrong == ""
    assert (found.start_us, found.total_us, found.grid) == (None, 2.5, None)


@pytest.mark.parametrize("kind", ["KERNEL", "MEMCPY"])
@pytest.mark.parametrize("end", ["'late'", "x'00'", "0", "9e999", "9223372036854775807"])
def test_database_times_that_are_none_are_left_out(kind: str, end: str, tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    database(path)
    with sqlite3.connect(path) as base:
        base.execute(f"update CUPTI_ACTIVITY_KIND_{kind} set end = {end} where streamId = 7 "
                     "and start in (1000, 5000)")  # fmt: skip
    base.close()
    found: list[Event] = []
    with pytest.raises(InputError, match=f"{kind}: left out") as caught:
        found.extend(read_dump(path))
    assert caught.value.file == str(path)
    assert len(found) == 2


def test_text_in_every_column_of_a_database(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    database(path)
    with sqlite3.connect(path) as base:
        base.execute("update CUPTI_ACTIVITY_KIND_KERNEL set deviceId = 'a', streamId = 'b', "
                     "registersPerThread = 'c', gridX = 'd', staticSharedMemory = 'e'")  # fmt: skip
        base.execute("update TARGET_INFO_GPU set cuDevice = 'a', smCount = 'b', name = 3")
    base.close()
    first, *_ = read_dump(path)
    assert (first.total_us, first.grid, first.shared_bytes, first.stream) == (2.5, None, None, None)


def database(path: Path, devices: bool = True) -> None:
    base = sqlite3.connect(path)
    base.executescript(
        "create table StringIds (id integer primary key, value text);"
        "insert into StringIds values (1, 'void k<4>(int)'), (2, 'k');"
        "create table CUPTI_ACTIVITY_KIND_KERNEL (start int, end int, deviceId int, streamId int,"
        "demangledName int, shortName int, registersPerThread int, gridX int, gridY int, gridZ int,"
        "blockX int, blockY int, blockZ int, staticSharedMemory int, dynamicSharedMemory int);"
        "insert into CUPTI_ACTIVITY_KIND_KERNEL values"
        "(1000, 3500, 0, 7, 1, 2, 32, 5, 1, 1, 64, 2, 1, 100, 28),"
        "(4000, 4500, 1, 7, 1, 2, 32, 5, 1, 1, 64, 2, 1, 100, 28);"
        "create table CUPTI_ACTIVITY_KIND_MEMCPY (start int, end int, deviceId int, streamId int,"
        "copyKind int, bytes int);"
        "insert into CUPTI_ACTIVITY_KIND_MEMCPY values (5000, 5500, 0, 7, 1, 99);"
    )
    if devices:
        base.executescript(
            "create table TARGET_INFO_GPU (id int, name text, computeMajor int, computeMinor int,"
            "smCount int, cuDevice int);"
            "insert into TARGET_INFO_GPU values (0, 'NVIDIA H200', 9, 0, 132, 0);"
        )
    base.commit()
    base.close()


@pytest.mark.parametrize("packed", [False, True])
def test_a_database(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "no.extension"
    database(path)
    if packed:
        import gzip

        path.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
    found = list(read_dump(path))
    assert brief(found) == [("void k<4>(int)", 1, 2.5), ("void k<4>(int)", 1, 0.5),
                            ("[CUDA memcpy HtoD]", 1, 0.5)]  # fmt: skip
    assert found[0].shared_bytes == 128
    assert found[0].device is not None
    assert (found[0].device.capability, found[0].device.multiprocessors) == ((9, 0), 132)
    assert found[1].device is not None
    assert (found[1].device.id, found[1].device.name) == (1, None)


def test_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "d.sqlite"
    database(path)
    data = path.read_bytes()
    for damaged in (data[:3000], data[:100] + bytes(3000) + data[3100:]):
        path.write_bytes(damaged)
        with pytest.raises(InputError) as caught:
            list(read_dump(path))
        assert "damaged SQLite database" in str(caught.value)
    base = sqlite3.connect(tmp_path / "e.sqlite")
    base.execute("create table t (a)")
    base.commit()
    base.close()
    with pytest.raises(InputError, match="no tables of Nsight Systems"):
        list(read_dump(tmp_path / "e.sqlite"))


# --- Nsight Compute -----------------------------------------------------------------------------


def test_ncu_raw_page() -> None:
    found = list(read_dump(SAMPLES / "ncu_raw.csv"))
    assert len(found) == 12
    last = found[-1]
    assert (last.grid, last.block, last.stream) == ((2048, 1, 1), (64, 1, 1), 7)
    assert (last.registers_per_thread, last.shared_bytes) == (194, 16912)
    assert last.total_us == pytest.approx(112.0)
    assert last.device is not None
    assert (last.device.name, last.device.capability) == ("NVIDIA H200", (9, 0))
    assert last.device.multiprocessors == 132
    assert last.counters["dram__bytes_read.sum"] == 50440960.0
    assert last.counters["gpu__time_duration.sum"] == pytest.approx(112000.0)


def test_ncu_text() -> None:
    found = list(read_dump(SAMPLES / "ncu_text.txt"))
    raw = list(read_dump(SAMPLES / "ncu_raw.csv"))
    assert [e.name for e in found] == [e.name for e in raw]
    for text, csv in zip(found, raw, strict=True):
        assert (text.grid, text.block) == (csv.grid, csv.block)
        assert text.registers_per_thread == csv.registers_per_thread
        assert text.total_us == pytest.approx(csv.total_us, rel=0.3)  # two runs
    assert found[0].counters["dram__bytes_read.sum"] == 10500.0


DETAILS = (
    "==PROF== Connected to process 1\nhello, world\n"
    '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",'
    '"Grid Size","Device","CC","Section Name","Metric Name","Metric Unit","Metric Value"\n'
    '"0","1","a","h","k<4>(int, T1)","1","7","(384, 1, 1)","(9, 32, 1)","0","9.0","S","Duration",'
    '"us","1,234.50"\n'
    "the program says, in between: 5\n"
    '"0","1","a","h","k<4>(int, T1)","1","7","(384, 1, 1)","(9, 32, 1)","0","9.0","S",'
    '"Registers Per Thread","register/thread","168"\n'
    '"1","1","a","h","k<4>(int, T1)","1","7","(384, 1, 1)","(9, 32, 1)","0","9.0","S","Duration",'
    '"ms","2.00"\n'
)


def test_ncu_details_with_program_output(tmp_path: Path) -> None:
    found, wrong = read(DETAILS, tmp_path)
    assert wrong == ""
    assert brief(found) == [("k<4>(int, T1)", 1, 1234.5), ("k<4>(int, T1)", 1, 2000.0)]
    assert (found[0].grid, found[0].registers_per_thread) == ((9, 32, 1), 168)


def test_ncu_with_decimal_comma(tmp_path: Path) -> None:
    text = DETAILS.replace("1,234.50", "1.234,50").replace("2.00", "2,00").replace('"9.0"', '"9,0"')
    found, wrong = read(text, tmp_path)
    assert wrong == ""
    assert [e.total_us for e in found] == [1234.5, 2000.0]
    assert found[0].device is not None
    assert found[0].device.capability == (9, 0)


@pytest.mark.parametrize("time", ["-5", "9" * 5000, "1e308", "nan", "inf"])
def test_ncu_times_that_are_none_are_left_out(time: str, tmp_path: Path) -> None:
    found, wrong = read(DETAILS.replace("1,234.50", time), tmp_path)
    assert [e.total_us for e in found] == [2000.0]
    assert "left out 'k<4>(int, T1)': found a time of" in wrong
    assert wrong.startswith(str(tmp_path / "dump.dat") + ":")
    raw = (
        '"ID","Process ID","Kernel Name","gpu__time_duration.sum","dram__bytes.sum"\n'
        '"","","","ns","Gbyte"\n'
        f'"0","1","a","{time}","1"\n"1","1","b","5","1"\n"2","1","c","5","1e308"\n'
    )
    found, wrong = read(raw, tmp_path)
    assert [e.name for e in found] == ["b"]
    assert "dump.dat:3:1: left out 'a'" in wrong
    assert "(and 1 more)" in wrong


@pytest.mark.parametrize("time", ["-5.000us", "9" * 400 + "s", "nanus"])
def test_pytorch_times_that_are_none_are_left_out(time: str, tmp_path: Path) -> None:
    text = table(["Name", "Self CPU", "CPU total", "Self CUDA", "# of Calls"],
                 [["k_good", "0.000us", "0.000us", "3.000us", "1"],
                  ["k_bad", "0.000us", "0.000us", time, "1"]])  # fmt: skip
    found, wrong = read(text, tmp_path)
    assert [e.name for e in found] == ["k_good"]
    assert "left out 'k_bad': found a time of" in wrong


def test_a_cut_ncu_row(tmp_path: Path) -> None:
    found, wrong = read(DETAILS[:-60], tmp_path)
    assert [e.total_us for e in found] == [1234.5]
    assert "dump.dat:7:1: found" in wrong
    assert "expected the 15 columns" in wrong


def test_ncu_text_of_2020(tmp_path: Path) -> None:
    text = (
        "==PROF== Disconnected\n[1] a@127.0.0.1\n"
        "  void k<float, 4>(int), 2020-Nov-05 10:11:12, Context 1, Stream 7\n"
        "    Section: Launch Statistics\n"
        "    ---------------------------- --------------- ------------------------\n"
        "    Block Size                                                        256\n"
        "    Duration                             usecond                 1.234,56\n"
        "    ---------------------------- --------------- ------------------------\n"
    ).replace(
        "    Block",
        "    Metric Name                      Metric Unit             Metric Value\n"
        "    ---------------------------- --------------- ------------------------\n    Block",
    )
    found, wrong = read(text, tmp_path)
    assert wrong == ""
    assert brief(found) == [("void k<float, 4>(int)", 1, 1234.56)]
    assert found[0].block == (256, 1, 1)


@pytest.mark.parametrize(
    ("name", "names", "calls", "total"),
    [
        ("nsys_sqlite_nsysai_mfu_2gpu_after.sqlite", 30, 4733, 494109.503),
        ("ncu_csv_superbench_cublaslt_b200.log", 1, 1, 406.24),
        ("ncu_text_gpumode_lecture1.head400.txt", 6, 6, 63.45),
        ("torch_table_ao_fp8_sdpa.txt", 6, 7, 31.997),
    ],
)
def test_public_dumps(name: str, names: int, calls: int, total: float) -> None:
    if not (PUBLIC / name).is_file():
        pytest.skip("public dumps are not here")
    found = list(read_dump(PUBLIC / name))
    assert (len({e.name for e in found}), sum(e.calls for e in found)) == (names, calls)
    assert sum(e.total_us or 0.0 for e in found) == pytest.approx(total)


def test_the_public_database_against_sql() -> None:
    path = PUBLIC / "nsys_sqlite_nsysai_mfu_2gpu_after.sqlite"
    if not path.is_file():
        pytest.skip("public dumps are not here")
    base = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    wanted = dict(
        (name, (calls, time / 1000)) for name, calls, time in base.execute(
            "select value, count(*), sum(end - start) from CUPTI_ACTIVITY_KIND_KERNEL k "
            "join StringIds s on s.id = k.demangledName group by value"
        )
    )  # fmt: skip
    base.close()
    found: dict[str, tuple[int, float]] = {}
    for event in read_dump(path):
        if event.kind == "kernel":
            calls, time = found.get(event.name, (0, 0.0))
            found[event.name] = (calls + 1, time + (event.total_us or 0.0))
    assert found.keys() == wanted.keys()
    for name, (calls, time) in wanted.items():
        assert found[name] == (calls, pytest.approx(time))


# --- lists, and what is none of these -----------------------------------------------------------

NAMES = [
    "ampere_sgemm_128x128_nn",
    "void at::native::vectorized_elementwise_kernel<4, at...",
    "_ZN7cutlass7Kernel2I44cutlass_80_tensorop_s1688gemm",
    "Memcpy HtoD (Pageable -> Device)",
    "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
]


def test_a_list_is_recognised(tmp_path: Path) -> None:
    found, wrong = read("\n".join(NAMES) + "\n\n", tmp_path)
    assert wrong == ""
    assert [e.name for e in found] == NAMES
    assert {e.total_us for e in found} == {None}


def test_a_list_may_be_anything_when_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "names"
    path.write_text("some words here\n{\n[{\n")
    assert [e.name for e in read_dump(path, names_only=True)] == ["some words here", "{", "[{"]


def test_names_of_a_megabyte(tmp_path: Path) -> None:
    name = "void k<" + "a" * 1_000_000 + ">(int)"
    found, wrong = read(f"{name}\nampere_sgemm_32x32_nn\n", tmp_path)
    assert (wrong, [e.name for e in found]) == ("", [name, "ampere_sgemm_32x32_nn"])


def test_an_endless_line_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kanalyze.profiles.readers.source.LINE_LIMIT", 1 << 18)
    found, wrong = read(f"a_kernel\n{'x' * (1 << 20)}\nb_kernel\n", tmp_path)
    assert [e.name for e in found] == ["a_kernel", "b_kernel"]
    assert "dump.dat:2:1: left out a line of more than" in wrong


@pytest.mark.parametrize(
    "text",
    ["The quick brown fox\njumps over\n", "<html><b>x</b></html>", "a,b\n1,2\n",
     "# Title\n\nSome text.\n", "\x1b[31mred\x1b[0m text"],
)  # fmt: skip
def test_other_texts_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text(text)
    with pytest.raises(NotADumpError):
        list(read_dump(path))


def test_missing_files_and_folders(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        list(read_dump(tmp_path / "none"))
    with pytest.raises(InputError, match="is a folder"):
        list(read_dump(tmp_path))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "rank1.json.gz").write_bytes(b"")
    (tmp_path / "notes.md").write_bytes(b"")
    (tmp_path / "rank0.json").write_bytes(b"")
    assert [p.name for p in files_in(tmp_path)] == ["rank0.json", "rank1.json.gz"]


# --- numbers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("decimal", "text", "value"),
    [
        (".", "1,234.5", 1234.5), (",", "1.234,5", 1234.5), (".", "1 234.5", 1234.5),
        (",", "12,5 %", 12.5), (".", "1e3", 1000.0), (".", "-5", -5.0), (".", "", None),
        (".", "abc", None), (".", "1.2.3", 123.0), (".", "nan", None), (".", "--", None),
    ],
)  # fmt: skip
def test_numbers(decimal: str, text: str, value: float | None) -> None:
    assert NumberForm(decimal).number(text) == value


def test_which_country() -> None:
    assert form_of(["1.5", "2.25"]).decimal == "."
    assert form_of(["1,5"]).decimal == ","
    assert form_of(["1,234"]).decimal == "."
    assert form_of(["1.234.567"]).decimal == ","
    assert form_of(["1.234,567"]).decimal == ","
    assert form_of(["1,234"], semicolons=True).decimal == ","
    assert form_of(["1.234"], whole=["1.234"]).decimal == ","
    assert form_of([]).decimal == "."


def test_times_and_units() -> None:
    assert time_us("3.559ms") == 3559.0
    assert time_us("2.000s") == 2e6
    assert time_us("7.5us") == 7.5
    assert time_us("--") is None
    assert math.isclose(base_unit(1.5, "Mbyte"), 1.5e6)
    assert base_unit(2.0, "msecond") == 2e6
    assert base_unit(3.0, "Kbyte/block") == 3000.0
    assert base_unit(4.0, "%") == 4.0
