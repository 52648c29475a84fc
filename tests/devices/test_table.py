"""The table of devices: every number has a unit, a source and a grade; names are forgiving."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from kanalyze.devices import table as module
from kanalyze.devices.table import (
    CAPABILITY_FACTS,
    DEVICE_FACTS,
    capabilities,
    capability,
    device,
    devices,
    lecture,
    sources,
)
from kanalyze.errors import UsageError

TABLE = Path(module.__file__).with_name("devices.toml")
SHARED = Path(__file__).parents[3] / "shared"
WANTED = """V100 PCIe|V100 SXM2|T4|A10|A100 40GB PCIe|A100 40GB SXM|A100 80GB PCIe|A100 80GB SXM|A40
L4|L40|L40S|RTX 3090|RTX 4090|RTX 5090|RTX A6000|H100 PCIe|H100 SXM|H200|GH200|B200|B300
RTX PRO 6000 Blackwell"""
UNIT = re.compile(
    r"chip|sms|l2_partitions|.*_(mhz|bytes|nominal_gb|gb_per_s|tflops|tops)|"  # of a device
    r"max_.*|.*_(per_sm|per_block)|register_unit|sub_partitions"  # of a compute capability
)


@pytest.mark.parametrize("name", re.split(r"[|\n]", WANTED))
def test_every_gpu_that_is_wanted(name: str) -> None:
    assert name.replace("GeForce ", "") in device(name).name.replace("GeForce ", "")


def test_every_number_has_a_unit_a_source_and_a_grade() -> None:
    facts = [
        (f"{holder.name}: {key}", key, fact)
        for holder in (*devices().values(), *capabilities().values())
        for key, fact in holder.facts.items()
    ]
    assert len(facts) > 450
    for where, key, fact in facts:
        assert UNIT.fullmatch(key), where
        assert fact.source in sources(), where
        assert fact.grade in {"A", "B", "C", "D"}, where
        assert fact.value is not None, where
    assert set(sources()) == {fact.source for _, _, fact in facts}
    for text in sources().values():
        assert len(text) > 15


def test_nothing_is_inherited_and_nothing_is_silent() -> None:
    for found in devices().values():
        for key in DEVICE_FACTS:
            value = getattr(found, key)
            assert (value is None) == (key not in found.facts)
            assert bool(found.why_unknown(key)) == (value is None)
        assert set(found.reasons) <= set(DEVICE_FACTS) - set(found.facts)
    raw = tomllib.loads(TABLE.read_text("utf-8"))
    assert set(raw) == {"source", "capability", "device", "lecture", "shared_per_block_bytes"}
    assert {key for c in capabilities().values() for key in c.facts} == set(CAPABILITY_FACTS)


def test_numbers_are_plausible() -> None:
    for found in devices().values():
        if found.fp32_tflops and found.sms and found.clock_max_mhz:
            lanes = found.capability.fp32_lanes_per_sm
            assert lanes is not None
            peak = 2 * lanes * found.sms * found.clock_max_mhz / 1e6
            assert 0.75 < found.fp32_tflops / peak < 1.06, found.name
            for kind, rate in (("fp64", found.fp64_tflops), ("fp32", found.fp32_tflops)):
                own = getattr(found.capability, f"{kind}_lanes_per_sm")
                if rate and own:
                    assert rate / found.fp32_tflops == pytest.approx(own / lanes, rel=0.05), (
                        found.name
                    )
        if found.fp4_tensor_tflops and found.fp8_tensor_tflops:
            assert 1.9 < found.fp4_tensor_tflops / found.fp8_tensor_tflops < 4.1
        if found.dram_measured_gb_per_s and found.dram_gb_per_s:
            assert 0.7 < found.dram_measured_gb_per_s / found.dram_gb_per_s < 1
        if found.bf16_tensor_tflops and found.fp16_tensor_tflops:
            assert found.bf16_tensor_tflops == found.fp16_tensor_tflops
        assert found.l2_bytes is None or found.l2_bytes % 2**19 == 0
    for cap in capabilities().values():
        if cap.warp_schedulers_per_sm:
            assert cap.warp_schedulers_per_sm == cap.sub_partitions
        assert list(cap.shared_carveouts_bytes) == sorted(set(cap.shared_carveouts_bytes))
        assert cap.shared_per_block_bytes + cap.shared_reserved_bytes == cap.shared_per_sm_bytes


def test_facts_are_frozen() -> None:
    found = device("H200")
    with pytest.raises(dataclasses.FrozenInstanceError):
        found.sms = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        found.facts["sms"] = found.facts["chip"]  # type: ignore[index]


def test_the_h200_of_the_records() -> None:
    paths = sorted((SHARED / "measured" / "h200").glob("*.json"))
    if not paths:
        pytest.skip("no records beside the repository (../shared/measured)")
    names = {json.loads(path.read_text("utf-8"))["device"] for path in paths}
    assert {device(name).name for name in names} == {"NVIDIA H200"}


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("H200", "NVIDIA H200"),
        ("nvidia h200", "NVIDIA H200"),
        ("NVIDIA H200", "NVIDIA H200"),
        ("  b200 ", "NVIDIA B200"),
        ("h100 sxm", "NVIDIA H100 SXM"),
        ("H100-SXM5", "NVIDIA H100 SXM"),
        ("h100sxm5", "NVIDIA H100 SXM"),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM"),
        ("NVIDIA H100 PCIe", "NVIDIA H100 PCIe"),
        ("h100 pci-e", "NVIDIA H100 PCIe"),
        ("NVIDIA A100-SXM4-40GB", "NVIDIA A100 40GB SXM"),
        ("NVIDIA A100 80GB PCIe", "NVIDIA A100 80GB PCIe"),
        ("a100 sxm 80 GB", "NVIDIA A100 80GB SXM"),
        ("Tesla V100-SXM2-16GB", "Tesla V100 SXM2"),
        ("Tesla T4", "NVIDIA T4"),
        ("NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"),
        ("RTX4090", "NVIDIA GeForce RTX 4090"),
        ("4090", "NVIDIA GeForce RTX 4090"),
        ("a6000", "NVIDIA RTX A6000"),
        ("NVIDIA GH200 480GB", "NVIDIA GH200"),
        ("NVIDIA B300 SXM6 AC", "NVIDIA B300"),
        ("rtx pro 6000", "NVIDIA RTX PRO 6000 Blackwell"),
        (
            "NVIDIA RTX PRO 6000 Blackwell Workstation Edition",
            "NVIDIA RTX PRO 6000 Blackwell",
        ),
        ("l40", "NVIDIA L40"),
        ("L40s", "NVIDIA L40S"),
    ],
)
def test_spellings(said: str, name: str) -> None:
    assert device(said).name == name


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ("H100", "there are several devices 'H100': say H100 PCIe or H100 SXM"),
        ("NVIDIA A100 40GB", "say A100 40GB PCIe or A100 40GB SXM"),
        ("v100", "say Tesla V100 PCIe or Tesla V100 SXM2"),
        ("B20", "unknown device 'B20': did you mean B200"),
        ("H201", "did you mean H200"),
        ("RTX 4090 Laptop GPU", "did you mean GeForce RTX 4090"),
        ("RTX 6000 Ada Generation", "unknown device"),
        ("MI300X", "unknown device 'MI300X'"),
        ("", "unknown device ''"),
        ("NVIDIA", "unknown device 'NVIDIA'"),
        ("RTX", "unknown device 'RTX'"),
    ],
)
def test_unknown_and_ambiguous(said: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        device(said)
    assert message in str(caught.value)


def test_each_name_and_alias_leads_to_its_device() -> None:
    for found in devices().values():
        for name in (found.name, *found.aliases):
            assert device(name) is found


@pytest.mark.parametrize(
    "said", ["sm_90", "sm_90a", "SM_90", "90", "9.0", "compute_90", "sm_90f", " sm_90 "]
)
def test_capabilities(said: str) -> None:
    assert capability(said).name == "sm_90"
    assert capability("10.3").name == "sm_103"


@pytest.mark.parametrize("said", ["", "sm_", "sm_60", "H200", "sm_900", "9"])
def test_unknown_capabilities(said: str) -> None:
    with pytest.raises(UsageError, match="known: sm_70"):
        capability(said)


def test_the_lecture_and_where_it_differs() -> None:
    _, rows = lecture()
    assert len(rows) == 27
    differing = {(r.quantity, r.device) for r in rows if r.differs}
    assert ("l1_shared_tb_per_s", "NVIDIA B200") in differing  # 19 there is the A100's
    assert ("l2_tb_per_s", "NVIDIA B200") in differing
    for row in rows:
        assert row.value is not None
        if row.quantity in {"sms", "registers_kib_per_sm", "registers_tb_per_s", "l2_mib"}:
            assert not row.differs


def test_the_table_is_read_lazily() -> None:
    code = (
        "import kanalyze, kanalyze.devices.table as d; assert d._toml.cache_info().misses == 0; "
        "d.device('H200'); d.device('B200'); assert d._toml.cache_info().misses == 1"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[2])
