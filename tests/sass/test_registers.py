"""Registers read and written, against the life ranges that ``nvdisasm -plr`` prints."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kanalyze.frontend.compile import compile_kernel
from kanalyze.sass.ir import SassInstruction
from kanalyze.sass.parse import parse_sass
from kanalyze.sass.registers import definitions, uses
from kanalyze.toolchain import tools

pytestmark = pytest.mark.slow("compiles every bundled kernel")

FILES = {"GPR": "R", "PRED": "P", "UGPR": "UR", "UPRED": "UP"}


def life_ranges(cubin: bytes) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "input.cubin")
        path.write_bytes(cubin)
        flags = ["-plr", "-lrm", "narrow", "-c"]
        done = subprocess.run(
            [tools.find("nvdisasm"), *flags, path], capture_output=True, text=True, check=False
        )
    return done.stdout


def marks(text: str) -> Iterator[tuple[int, set[str], set[str]]]:
    """Yield address, units written and units read, from the table beside the code."""
    header: list[str] = []
    columns: dict[int, str] = {}
    for line in text.splitlines():
        table = line.partition("// |")[2]
        if not table:
            continue
        address = re.match(r"\s+/\*([0-9a-f]+)\*/", line)
        if address is None:
            header.append(table)
            continue
        if not columns:
            columns = read_header([row for row in header if re.search(r"\w", row)])
        marked = {name: table[place] for place, name in columns.items() if place < len(table)}
        yield (
            int(address[1], 16),
            {name for name, mark in marked.items() if mark in "^x"},
            {name for name, mark in marked.items() if mark in "vx"},
        )


def read_header(rows: list[str]) -> dict[int, str]:
    names, *digits = rows
    columns: dict[int, str] = {}
    for place in range(len(names)):
        number = "".join(row[place] for row in digits if place < len(row) and row[place].isdigit())
        if number:
            group = names[: place + 1].count("|")
            columns[place] = f"{FILES[names.split('|')[group].strip()]}{int(number)}"
    return columns


def same(instruction: SassInstruction, writes: set[str], reads: set[str]) -> bool:
    """Compare, but for what nvdisasm is known to see otherwise."""
    mine = {u for u in definitions(instruction) if not u.startswith("B")}
    read = {u for u in uses(instruction) if not u.startswith("B")}
    if instruction.base == "CALL":  # it adds what the called code touches
        return mine <= writes and read <= reads
    if instruction.base == "P2R":  # it does not show which predicates are packed
        return mine == writes and {u for u in read if u[0] != "P"} == reads
    if instruction.base == "LDGSTS":  # it shows the predicate of the copy as written as well
        writes = {u for u in writes if u[0] != "P"}
    return mine == writes and read == reads


@pytest.mark.parametrize("arch", ["sm_90", "sm_100", "sm_120"])
@pytest.mark.parametrize("kernel", ["gelu", "softmax", "row_sum", "matmul_relu", "flash_attention"])
def test_life_ranges(kernel: str, arch: str) -> None:
    text = life_ranges(compile_kernel(kernel, arch=arch).cubin)
    if "// |" not in text:
        pytest.skip("this nvdisasm prints no life ranges for this kind of ELF")
    (function,) = parse_sass(re.sub(r"// [|+].*", "", text)).functions
    table = {address: (writes, reads) for address, writes, reads in marks(text)}
    assert set(table) == {i.address for i in function.instructions}
    wrong = [i for i in function.instructions if not same(i, *table[i.address])]
    assert wrong == []
