"""The tables of docs/bench.md, from the records of samples/h200: ``python benchmarks/bench_tables.py``.

With ``--write`` they go into the document, between ``<!-- NAME -->`` and ``<!-- end -->``.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RECORDS = ROOT / "samples" / "h200" / "records.tar.xz"
DOCUMENT = ROOT / "docs" / "bench.md"
READ, WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
Record = dict[str, Any]


def records() -> dict[str, Record]:
    """The records, by case."""
    with tarfile.open(RECORDS) as archive:
        members = [m for m in archive if m.name.endswith(".json")]
        loaded = [json.loads(archive.extractfile(m).read()) for m in members]  # type: ignore[union-attr]
    ordered = sorted(
        loaded, key=lambda r: (r["target"], r["dtype"] or "", *r["shape"].values(), r["case"])
    )
    return {one["case"]: one for one in ordered}


def table(heads: Sequence[str], rows: Iterator[Sequence[str]] | Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(heads) + " |", "| --- " + "| ---: " * (len(heads) - 1) + "|"]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def us(one: Record) -> str:
    """The median time with a cold L2 in microseconds."""
    time = 1e3 * one["times_cold_ms"]["median"]
    return f"{time:.1f}" if time < 1000 else f"{time:.0f}"


def mb(value: float | None) -> str:
    return "?" if value is None else f"{value / 1e6:.1f}" if value < 1e8 else f"{value / 1e6:.0f}"


def moved(one: Record) -> tuple[str, str]:
    counters = one["counters"] or {}
    return mb(counters.get(READ)), mb(counters.get(WRITTEN))


def tflops(one: Record) -> str:
    flops = one["static"]["flops"]
    return "?" if flops is None else f"{flops / one['times_cold_ms']['median'] / 1e9:.0f}"


def shape(one: Record) -> str:
    return " x ".join(str(v) for v in one["shape"].values())


def rivals(one: Record) -> dict[str, Record]:
    return {rival["provider"]: rival for rival in one["rivals"]}


def rows(by_case: dict[str, Record]) -> str:
    """Kernels along rows, beside PyTorch's."""

    def lines() -> Iterator[Sequence[str]]:
        for one in by_case.values():
            listed = rivals(one)
            if one["target"] not in ("gelu", "softmax", "row_sum") or not listed:
                continue
            least = one["static"]["read_bytes"] + one["static"]["write_bytes"]
            rate = least / one["times_cold_ms"]["median"] / 1e6
            built_in = next(v for k, v in listed.items() if k not in ("naive", "torch.compile"))
            naive = us(listed["naive"]) if "naive" in listed else ""
            yield (
                f"{one['target']} {one['dtype']} {shape(one)}", us(one), f"{rate:.0f}", us(built_in),
                us(listed["torch.compile"]), naive,
            )  # fmt: skip

    heads = ("launch", "us", "GB/s", "PyTorch us", "torch.compile us", "naive us")
    return table(heads, lines())


def products(by_case: dict[str, Record]) -> str:
    """Matrix products beside cuBLAS."""

    def lines() -> Iterator[Sequence[str]]:
        for one in by_case.values():
            listed = rivals(one)
            if one["target"] == "matmul_relu" and listed:
                theirs = listed["relu(a @ b)"]
                yield (
                    f"{one['dtype']} {shape(one)}", us(one), tflops(one), us(theirs),
                    str(theirs["launches"]), us(listed["torch.compile"]),
                )  # fmt: skip

    return table(
        ("M x N x K", "us", "TFLOP/s", "relu(a @ b) us", "launches", "torch.compile us"), lines()
    )


def fusion(by_case: dict[str, Record]) -> str:
    """What fusion saves."""

    def lines() -> Iterator[Sequence[str]]:
        for case in (
            "gelu-fp32-n67108864", "layer_norm_linear_gelu-fp16-M8192-N4096-K1024",
            "layer_norm_linear_gelu-fp16-M65536-N1024-K256",
        ):  # fmt: skip
            one = by_case[case]
            name = case.split("-")[0]
            yield f"{name} {shape(one)}: one Triton kernel", "1", us(one), *moved(one)
            for provider, rival in rivals(one).items():
                yield f"{name}: {provider}", str(rival["launches"]), us(rival), *moved(rival)

    return table(("what", "launches", "us", "DRAM read MB", "DRAM written MB"), lines())


def attention(by_case: dict[str, Record]) -> str:
    """Flash attention against standard attention, over T."""

    def lines() -> Iterator[Sequence[str]]:
        chosen = [
            one
            for one in by_case.values()
            if one["target"] == "flash_attention" and one["rivals"] and not one["shape"]["causal"]
        ]
        for one in sorted(chosen, key=lambda one: one["shape"]["T"]):
            standard, sdpa = rivals(one)["standard"], rivals(one)["SDPA"]
            yield (
                str(one["shape"]["T"]), us(one), us(standard), us(sdpa), str(standard["launches"]),
                " + ".join(moved(one)), " + ".join(moved(standard)),
            )  # fmt: skip

    heads = ("T", "flash us", "standard us", "SDPA us", "launches of standard",
             "flash: DRAM read + written MB", "standard: DRAM read + written MB")  # fmt: skip
    return table(heads, lines())


TILES = {"M": 8192, "N": 8192, "K": 8192}


def tiles(by_case: dict[str, Record]) -> str:
    """The tiles of one matrix product: the fastest ten and the slowest five."""
    chosen = [o for o in by_case.values() if o["target"] == "matmul_relu" and o["shape"] == TILES]
    ordered = sorted(chosen, key=lambda one: one["times_cold_ms"]["median"])

    def lines() -> Iterator[Sequence[str]]:
        for one in (*ordered[:10], *ordered[-5:]):
            c = one["constexprs"]
            yield (
                f"{c['BLOCK_M']} x {c['BLOCK_N']} x {c['BLOCK_K']}", str(c["GROUP_M"]),
                str(one["num_warps"]), str(one["num_stages"]), str(one["registers_per_thread"]),
                str(one["spill_bytes"]), f"{one['static']['occupancy_percent']:.0f} %", us(one),
                tflops(one), moved(one)[0],
            )  # fmt: skip

    heads = ("tile", "GROUP_M", "warps", "stages", "registers", "spill B", "occupancy", "us",
             "TFLOP/s", "DRAM read MB")  # fmt: skip
    return f"{len(chosen)} configurations; the fastest ten and the slowest five:\n\n" + table(
        heads, lines()
    )


def order(by_case: dict[str, Record]) -> str:
    """Tiles visited in bands of GROUP_M against plain order."""

    def lines() -> Iterator[Sequence[str]]:
        for one in by_case.values():
            if one["target"] != "matmul_relu" or not one["case"].endswith("-GROUP_M1"):
                continue
            grouped = by_case.get(one["case"].removesuffix("-GROUP_M1"))
            if grouped is None:
                continue
            tile = " x ".join(str(one["constexprs"][f"BLOCK_{d}"]) for d in "MNK")
            yield (
                f"{one['dtype']} {shape(one)}, tile {tile}", us(one), us(grouped), moved(one)[0],
                moved(grouped)[0], mb(one["static"]["read_bytes"]),
            )  # fmt: skip

    heads = ("M x N x K", "plain us", "grouped us", "plain: DRAM read MB",
             "grouped: DRAM read MB", "A and B MB")  # fmt: skip
    return table(heads, lines())


def naive(by_case: dict[str, Record]) -> str:
    """One thread for one element against tiles."""
    sectors = "l1tex__m_xbar2l1tex_read_sectors.sum"
    requests = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"

    def lines() -> Iterator[Sequence[str]]:
        chosen = [o for o in by_case.values() if o["target"].endswith("naive_matmul.py")]
        for one in sorted(chosen, key=lambda one: one["shape"]["M"]):
            tiled = by_case[one["case"].replace("naive_matmul", "matmul_relu")]
            yield (
                shape(one), us(one), us(tiled),
                f"{one['counters'][requests]:,}", f"{tiled['counters'][requests]:,}",
                mb(32 * one["counters"][sectors]), mb(32 * tiled["counters"][sectors]),
                moved(one)[0], moved(tiled)[0],
            )  # fmt: skip

    heads = ("M x N x K", "naive us", "tiled us", "naive: load requests", "tiled: load requests",
             "naive: L2 to L1 MB", "tiled: L2 to L1 MB", "naive: DRAM read MB",
             "tiled: DRAM read MB")  # fmt: skip
    return table(heads, lines())


TABLES: dict[str, Callable[[dict[str, Record]], str]] = {
    function.__name__: function
    for function in (rows, products, fusion, attention, tiles, order, naive)
}


def filled(document: str) -> str:
    """A document with its tables as the records give them."""
    by_case = records()

    def replaced(match: re.Match[str]) -> str:
        return f"<!-- {match[1]} -->\n{TABLES[match[1]](by_case)}\n<!-- end -->"

    names = "|".join(TABLES)
    return re.sub(rf"<!-- ({names}) -->\n.*?<!-- end -->", replaced, document, flags=re.DOTALL)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write them into docs/bench.md")
    if parser.parse_args().write:
        DOCUMENT.write_text(filled(DOCUMENT.read_text("utf-8")), "utf-8")
        return
    by_case = records()
    for name, make in TABLES.items():
        print(f"## {name}\n\n{make(by_case)}\n")


if __name__ == "__main__":
    main()
