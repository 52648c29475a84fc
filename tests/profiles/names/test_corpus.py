"""Larger collections of names, where they lie beside the repository; skipped elsewhere."""

from __future__ import annotations

import gzip
import itertools
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kanalyze.profiles.names import decode
from tests.profiles.names.test_samples import accepting, spelled

SHARED = Path(__file__).resolve().parents[4] / "shared" / "names"

needs_corpus = pytest.mark.skipif(
    not (SHARED / "corpus.jsonl").is_file(), reason="needs ../shared/names/corpus.jsonl"
)
needs_generated = pytest.mark.skipif(
    not (SHARED / "cutlass_generated.jsonl.gz").is_file(),
    reason="needs ../shared/names/cutlass_generated.jsonl.gz",
)


def corrected(key: str, value: object, name: str) -> object:
    """Return the corpus's value, corrected where a source shows another one."""
    if key == "arch" and value == "gfx90" and "_ISA90a_" in name:
        return "gfx90a"  # Tensile writes the ISA (9, 0, 10) with a hexadecimal stepping
    if key == "op" and value == "roll" and "elementwise_kernel_manual_unroll" in name:
        return "elementwise"  # ATen/native/cuda/CUDALoops.cuh
    if key == "op" and value == "gemm" and "implicit_convolve_sgemm" in name:
        return "conv"  # CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, a convolution
    if key == "op" and value == "gemm" and "implicit_gemm_strided_dgrad" in name:
        return "conv_dgrad"
    return value


# In an unnamed namespace of their own, but not ATen's: the first two are sgl-project/sglang's.
NOT_ATEN = ("store_kvcache", "clamp_position_kernel", "groupnorm_kernel_dispatch_down")


def rows() -> list[dict[str, Any]]:
    text = (SHARED / "corpus.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


@needs_corpus
def test_corpus_fields() -> None:
    found: Counter[str] = Counter()
    wrong = []
    for row in rows():
        kernel = decode(row["name"])
        for key, value in row["expected"].items():
            if key.startswith("demangled"):
                continue
            want = corrected(key, value, row["name"])
            got: object = kernel.decoded.get(key)
            got = list(got) if isinstance(got, tuple) else got
            outcome = "missing" if got is None else "right" if got == want else "wrong"
            found[outcome] += 1
            if outcome == "wrong":
                wrong.append((key, want, got, row["name"]))
    assert not wrong
    # Left open: the function of two names cut inside it, the operation of two without a family.
    assert found["missing"] <= 7, found
    assert found["right"] >= 4_210, found


@needs_corpus
def test_corpus_families() -> None:
    for row in rows():
        kernel = decode(row["name"])
        if row["family"] == "mangled":
            # The vocabulary: mangled is the family of those whose demangled form has none.
            plain = kernel.demangled and decode(kernel.demangled.removesuffix(" [clone .kd]"))
            assert kernel.family == "mangled" or (plain and plain.family == kernel.family)
        elif any(word in row["name"] for word in NOT_ATEN):
            assert kernel.family == "other"
        else:
            assert kernel.family == row["family"], row["name"]


@needs_corpus
def test_corpus_cuts() -> None:
    different = [row["name"] for row in rows() if decode(row["name"]).truncated != row["truncated"]]
    # One is marked whole there, but its brackets are not closed.
    assert [name.count("<") - name.count(">") > 0 for name in different] == [True]


@needs_corpus
def test_corpus_demangled() -> None:
    for row in rows():
        want = row["expected"].get("demangled_gnu")
        if want:
            got = decode(row["name"]).demangled
            assert got is not None
            got, want = spelled(got), spelled(want)
            assert got.startswith(want) if len(want) >= 1400 else got == want


@needs_corpus
def test_corpus_spans() -> None:
    for row in rows():
        kernel = decode(row["name"])
        for item in (*kernel.fields, *kernel.undecoded):
            assert kernel.text[item.start : item.end] == item.text


def check_one_family(name: str) -> None:
    kernel = decode(name)
    accepted = accepting(kernel.text.removesuffix(" [clone .kd]"))
    assert all(len(way) <= 1 for way in accepted), (name, accepted)
    first = next((way for way in accepted if way), {"other"})
    nobody = kernel.family in ("mangled", "other") and first == {"other"}
    assert kernel.family in first or nobody


@needs_corpus
def test_corpus_names_are_accepted_by_one_grammar() -> None:
    for row in rows():
        if not decode(row["name"]).truncated:
            check_one_family(row["name"])


@needs_generated
def test_generated_names_are_accepted_by_one_grammar() -> None:
    with gzip.open(SHARED / "cutlass_generated.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in itertools.islice(lines, 0, None, 7):
            check_one_family(json.loads(line)["name"])


LAYOUT = {"ColumnMajor": "n", "RowMajor": "t"}


def generated_fields(row: dict[str, Any]) -> dict[str, object]:
    """Return what the generator's fields say that the name states."""
    three, conv = row["is_3x"], row["kind"].startswith("Conv")
    m, n, k = row["tile"]
    if three and 100 <= row["arch"] < 120 and not conv:
        m, n, _ = row["inst"]  # the generator's tile spans the cluster there; the name does not
    acc = row["acc"]
    if row["A"].startswith("c") and not acc.startswith("c"):
        acc = f"c{acc}"
    want: dict[str, object] = {
        "op_class": row["op_class"],
        "tile_m": m,
        "tile_n": n,
        "tile_k": k,
        "stages": row["stages"],
        "dtype_acc": acc,
        "dtype_a": row["A"],
        "dtype_c": row["C"],
    }
    if "align" in row["name"]:
        want["align"] = max(row["alA"], row.get("alB", 1))
    if not three and row["op_class"] != "simt":
        want |= dict(zip(("inst_m", "inst_n", "inst_k"), row["inst"], strict=True))
    if three:
        want |= {"dtype_b": row["B"], "dtype_d": row["D"], "arch": f"sm{row['arch']}"}
        if row["cluster"][0]:
            want |= dict(zip(("cluster_m", "cluster_n", "cluster_k"), row["cluster"], strict=True))
    if row.get("ScaleFactorA"):
        want |= {"scale_a": row["ScaleFactorA"], "scale_b": row["ScaleFactorB"]}
    if row.get("ScaleFactorD", "void") != "void":
        want["scale_d"] = row["ScaleFactorD"]
    if row["kind"] == "Gemm" and "B" in row and not conv:
        want["dtype_b"] = row["B"]
    return want


@needs_generated
def test_generated_cutlass_names() -> None:
    wrong = []
    count = 0
    with gzip.open(SHARED / "cutlass_generated.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            kernel = decode(row["name"])
            count += 1
            assert kernel.family == ("cutlass3x" if row["is_3x"] else "cutlass2x")
            for key, want in generated_fields(row).items():
                if kernel.decoded.get(key) != want:
                    wrong.append((row["name"], key, want, kernel.decoded.get(key)))
            if row["kind"] == "Gemm":
                layout = str(kernel.decoded["layout"])
                letters = [row["lA"], row["lB"], row["lC"]]
                for written, order in zip(layout, letters, strict=False):
                    if len(layout) <= 3:
                        plain = {"c": "n", "h": "t"}.get(written, written)
                        assert plain == LAYOUT[order], row["name"]
    assert count == 7_188
    assert not wrong
