"""``--section`` of ``kanalyze ptx`` and ``kanalyze traffic``: parts of the text by their labels."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kanalyze import Launch, analyze, estimate
from kanalyze.cli.app import cli
from kanalyze.render import kernel_text, traffic_text
from kanalyze.text.page import LABEL, Page

pytestmark = pytest.mark.usefixtures("shared_cache")

SAMPLES = Path(__file__).parents[2] / "samples"
RECORDS = SAMPLES / "h200_records"
REPORTS = {
    "softmax": RECORDS / "softmax_8192x781.ptx",
    "pipelined": RECORDS / "matmul_1000x1001x1003.ptx",
    "several kernels": SAMPLES / "cuda" / "reduce.ptx",
    "no PTX": RECORDS / "softmax_8192x781.cubin",
    "launch": RECORDS / "matmul_1000x1001x1003.json",
    "time": RECORDS / "gelu_unaligned.json",
    "copies by TMA": SAMPLES / "tma" / "host_copy.json",
}
UNLABELLED = ("kernel", "counters", "listing", "functions", "not read")


def kanalyze(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@functools.cache
def report(name: str) -> tuple[Callable[..., str], tuple[str, ...]]:
    """What renders a report, and the names of its sections."""
    path = REPORTS[name]
    if path.suffix == ".json":
        launch = Launch.from_record(path)
        traffic = estimate(
            path.with_suffix(".ptx"), launch, simulate=name == "time", prove=False, time_us=40
        )
        return functools.partial(traffic_text.render, traffic), traffic_text.SECTIONS
    analysed = analyze(path, listing=True, prove=False)
    return functools.partial(kernel_text.render, analysed), kernel_text.SECTIONS


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


@pytest.mark.parametrize("name", REPORTS)
def test_all_sections_together_are_the_report(name: str) -> None:
    """Each line is of one section, but for the remark on the counts.

    Of several kernels, the heads stand above the lines of every section.
    """
    render, known = report(name)
    whole = Counter(lines(render(width=300)))
    heads = Counter(lines(render(width=300, sections=["none"])))
    parts = sum((Counter(lines(render(width=300, sections=[n]))) - heads for n in known), heads)
    missing = whole - parts
    assert parts - whole == Counter()
    assert all(line.startswith("Counts are static") for line in missing)


@pytest.mark.parametrize("name", REPORTS)
def test_a_label_is_the_name_of_its_section(name: str) -> None:
    render, known = report(name)
    labels = 0
    for section in known:
        shown = lines(render(sections=[section]))
        if shown and section not in UNLABELLED and name != "several kernels":
            labels += 1
            assert shown[0].startswith(section)
            assert not any(line[:LABEL].strip() in known for line in shown[1:])
    assert labels > 4 or name in ("several kernels", "no PTX")


def test_sections_stand_in_the_order_of_the_report_with_one_empty_line() -> None:
    page = Page(80)
    page.row("one", ("1", ""))
    page.blank()
    page.row("two", ("2", ""))
    page.row("", ("2 more", ""))
    page.blank()
    page.section("three")
    page.line(("3", ""))
    assert page.text(False, ["three", "one"]) == "one         1\n\n3\n"
    assert page.text(False, ["two"]) == "two         2\n            2 more\n"
    assert page.text(False) == "one         1\n\ntwo         2\n            2 more\n\n3\n"
    assert page.text(False, ["four"]) == ""


def test_sections_of_a_kernel() -> None:
    result = kanalyze("ptx", str(REPORTS["softmax"]), "--section", "stores", "--section", "loads")
    assert result.exit_code == 0
    assert [line[:LABEL].strip() for line in result.stdout.splitlines()] == ["loads", "stores"]


def test_the_listing_alone() -> None:
    shown = kanalyze("ptx", str(REPORTS["softmax"]), "--section", "listing").stdout
    assert shown.startswith("listing of softmax   ")
    assert "ld.global" in shown
    assert "parameters" not in shown


def test_of_several_kernels_the_names_stand_above() -> None:
    shown = kanalyze("ptx", str(REPORTS["several kernels"]), "--section", "threads").stdout
    names = [line.split()[0] for line in shown.splitlines() if " · PTX " in line]
    assert names == [k.name for k in analyze(REPORTS["several kernels"], prove=False).kernels]
    assert len(names) > 1
    assert shown.count("\nthreads ") == len(names)


def test_sections_of_a_launch() -> None:
    record = ("--launch", str(REPORTS["launch"]), "--exact", "--no-proof")
    shown = kanalyze("traffic", *record, "--section", "global", "--section", "waves").stdout
    whole = kanalyze("traffic", *record).stdout
    assert shown == whole[whole.index("\nwaves ") + 1 : whole.index("\nshared  ") + 1]
    assert "\nglobal  " in shown
    table = kanalyze("traffic", *record, "--section", "global memory").stdout
    assert table.startswith("global memory   ")
    assert "shared memory" not in table


def test_a_section_that_a_report_lacks_is_said() -> None:
    result = kanalyze("ptx", str(REPORTS["softmax"]), "--section", "atomics")
    assert result.exit_code == 0
    assert result.stdout == ""
    assert "the report has no atomics" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ptx", "gelu", "--section", "looops"], "there is no section 'looops': did you mean loop"),
        (["traffic", "gelu", "--section", "wave"], "there is no section 'wave': did you mean wave"),
        (["traffic", "gelu", "--section", "opcodes"], "there is no section 'opcodes': "),
        (["ptx", "gelu", "--section", "loops", "--format", "json"], "--section is of the text"),
        (["ptx", "gelu", "--section", "loops", "--quiet"], "--section is of the text"),
        (["ptx", "gelu", "--section", "listing", "--summary"], "--section listing contradicts"),
        (["traffic", "gelu", "--section", "time", "--format", "json"], "--section is of the text"),
        (["traffic", "gelu", "--section", "time", "--versus", "naive"], "--section is of the text"),
    ],
)
def test_what_cannot_be_meant_exits_with_2(arguments: list[str], said: str) -> None:
    result = kanalyze(*arguments)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""
