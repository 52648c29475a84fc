"""TTIR beside its source."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from kanalyze.cli.app import cli
from kanalyze.frontend import ttir
from kanalyze.frontend.ttir import Place

pytestmark = pytest.mark.usefixtures("shared_cache")

ROOT = Path(__file__).parents[2]

TEXT = r"""
#loc = loc("k.py":10:1)
#loc1 = loc(unknown)
module {
  tt.func public @k(%n: i32 loc("n"(#loc))) attributes {noinline = false} {
    %a = arith.constant 1 : i32 loc(#loc4)
    %s = tt.string "loc(\"not a location\") { ( " : i32 loc("odd \"name\" (1)"(#loc2))
    %x = scf.for %i = %a to %n step %a iter_args(%y = %a) -> (i32)  : i32 {
      %z = arith.addi %y, %i {tag = "}"} : i32 loc(#loc6)
      scf.yield %z : i32 loc(#loc1)
    } loc(#loc3)
    %r = scf.if %c -> (i32) {
      scf.yield %x : i32 loc(#loc7)
    } else {
      scf.yield %a : i32 loc(fused<"why">[#loc1, #loc5])
    } loc(#loc5)
    tt.mystery %r : i32
    tt.return loc(#loc8)
  } loc(#loc)
} loc(#loc)
#loc2 = loc("k.py":12:5)
#loc3 = loc("k.py":13:5 to 13:20)
#loc4 = loc("a"(#loc2))
#loc5 = loc("dir with \22quotes\22/k.py":14:3)
#loc6 = loc(callsite(#loc9 at callsite(#loc10 at #loc3)))
#loc7 = loc(fused[#loc3, #loc2])
#loc8 = loc(#loc8)
#loc9 = loc("helper.py":3:7)
#loc10 = loc("z"("middle.py":5:1))
"""


def lines(first_column: int = 1) -> dict[str, ttir.Line]:
    read = ttir.read(TEXT, "k", "sm_90", "k.py", first_column=first_column)
    return {line.text.split()[0] + str(line.line): line for line in read.lines}


def test_locations_are_hidden_and_read() -> None:
    found = ttir.read(TEXT, "k", "sm_90", "k.py").lines
    by_number = {line.line: line for line in found}
    assert [line.line for line in found] == list(range(4, 21))
    assert by_number[5].text == "  tt.func public @k(%n: i32) attributes {noinline = false} {"
    assert by_number[5].source == Place("k.py", 10, 1)
    assert by_number[6].source == Place("k.py", 12, 5)
    assert by_number[7].text.endswith(r'"loc(\"not a location\") { ( " : i32')
    assert by_number[7].source == Place("k.py", 12, 5)


def test_an_operation_with_regions_has_the_location_behind_them() -> None:
    by_number = {line.line: line for line in ttir.read(TEXT, "k", "sm_90", "k.py").lines}
    assert by_number[8].source == Place("k.py", 13, 5)
    assert by_number[11].closes
    quoted = Place('dir with "quotes"/k.py', 14, 3)
    assert by_number[12].source == quoted
    assert by_number[14].source == quoted
    assert not by_number[14].closes
    assert by_number[16].closes


def test_inlined_helpers_lead_back_to_the_kernel() -> None:
    by_number = {line.line: line for line in ttir.read(TEXT, "k", "sm_90", "k.py").lines}
    assert by_number[9].source == Place("k.py", 13, 5)
    assert by_number[9].inner == (Place("helper.py", 3, 7), Place("middle.py", 5, 1))
    assert by_number[13].source == Place("k.py", 13, 5)
    assert by_number[15].source == Place('dir with "quotes"/k.py', 14, 3)


def test_what_has_no_location_is_unknown_with_a_reason() -> None:
    read = ttir.read(TEXT, "k", "sm_90", "k.py")
    assert [line.line for line in read.lines if line.source is None] == [10, 17, 18]
    data = read.to_dict()
    for entry in data["unknown"]:
        index = int(re.findall(r"\d+", entry["field"])[0])
        assert data["lines"][index]["source"] is None
    assert len(data["unknown"]) == 3


def test_columns_of_older_triton_count_from_0() -> None:
    by_number = {line.line: line for line in ttir.read(TEXT, "k", "a", "k.py", (), 0).lines}
    assert by_number[6].source == Place("k.py", 12, 6)


@pytest.mark.parametrize(
    "text", ["", "\n", "module {", "loc(", 'x "', "} } loc(#a)", "#loc = loc("]
)
def test_malformed_text_is_no_error(text: str) -> None:
    ttir.read(text, "k", "sm_90", "k.py")


@pytest.mark.parametrize("kernel", ["softmax", "flash_attention"])
def test_real_kernels(kernel: str) -> None:
    pytest.importorskip("triton")
    data = json.loads(CliRunner().invoke(cli, ["ttir", kernel, "--format", "json"]).stdout)
    source = (ROOT / "kernels" / f"{kernel}.py").read_text().splitlines()
    operations = [line for line in data["lines"] if not line["closes"]]
    assert not any("loc(" in line["text"] for line in data["lines"])
    placed = [line for line in operations if line["source"] is not None]
    assert len(placed) >= 0.9 * len(operations)
    assert {Path(line["source"]["file"]).name for line in placed} == {f"{kernel}.py"}
    for line in placed:
        text = source[line["source"]["line"] - 1]
        for word, python in (
            ("tt.load", "tl.load"),
            ("tt.store", "tl.store"),
            ("tt.dot", "tl.dot"),
        ):
            if f"{word} " in line["text"]:
                assert python in text
    assert any(line["inner"] for line in placed)


def test_text() -> None:
    pytest.importorskip("triton")
    text = CliRunner().invoke(cli, ["ttir", "gelu", "--color", "never"]).stdout
    assert re.search(r"gelu\.py:\d+  x = tl\.load\(.*\n\d+ +%x = tt\.splat", text)
    assert "loc(" not in text
