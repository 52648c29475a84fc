"""The roofline against the least time by brute force, and of launches against the device table."""

from __future__ import annotations

import numpy as np
import pytest

from kanalyze import estimate
from kanalyze.devices.table import device
from kanalyze.frontend.subject import Settings
from kanalyze.models.roofline import roofline
from kanalyze.render.traffic_text import render
from kanalyze.results import traffic as doc

pytestmark = pytest.mark.usefixtures("shared_cache")


@pytest.mark.parametrize("seed", range(100))
def test_the_roof_is_the_work_over_the_longest_time(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units = list("abc")[: int(rng.integers(1, 4))]
    operations = {u: float(rng.integers(0, 3)) * 10.0 ** float(rng.uniform(6, 12)) for u in units}
    peaks = {u: 10.0 ** float(rng.uniform(11, 15)) for u in units}
    levels = {
        name: (float(rng.integers(0, 2)) * 10.0 ** float(rng.uniform(3, 10)),
               10.0 ** float(rng.uniform(11, 13)))
        for name in ("l1", "l2", "hbm")
    }  # fmt: skip
    found = roofline(operations, peaks, levels)
    total = sum(operations.values())
    if total == 0:
        assert found is None
        return
    assert found is not None
    times = {u: operations[u] / peaks[u] for u in units}
    times |= {name: size / rate for name, (size, rate) in levels.items()}
    slowest = max(times, key=lambda name: times[name])
    assert found.bound == slowest
    assert found.roof == pytest.approx(total / times[slowest])
    for name, level in found.levels.items():
        compute = max(times[u] for u in units)
        if level.intensity is not None:  # below its ridge it takes longer than the units
            assert (level.intensity < level.ridge) == (times[name] > compute)
        else:
            assert times[name] == 0


def traffic(target: str, settings: dict[str, object] | None = None, **more: object) -> doc.Traffic:
    pytest.importorskip("triton")
    return estimate(target, findings=False, settings=Settings(settings=settings or {}), **more)  # type: ignore[arg-type]


def test_gelu_lies_under_the_roof_of_hbm() -> None:
    n = 1 << 24
    found = traffic("gelu", {"n": n})
    part, gpu = found.roofline, device("H200")
    assert part is not None
    assert gpu.fp32_tflops is not None
    assert gpu.dram_gb_per_s is not None
    assert (part.unit, part.bound) == ("fp32", "hbm")
    hbm = part.levels["hbm"]
    assert hbm.ridge == pytest.approx(1000 * gpu.fp32_tflops / gpu.dram_gb_per_s)
    moved = (found.counters["dram_read_bytes"] or 0) + (found.counters["dram_write_bytes"] or 0)
    assert hbm.intensity == pytest.approx(8 * n / moved)  # operations of gelu's PTX an element
    assert part.achieved_tflops < part.roof_tflops == hbm.roof_tflops
    text = " ".join(render(found).split())
    assert "memory-bound:" in text
    assert "below the ridge of the FP32 units at 14;" in text


def test_what_if_moves_the_ridge() -> None:
    plain = traffic("gelu", {"n": 1 << 22}).roofline
    faster = traffic("gelu", {"n": 1 << 22}, what_if={"hbm": 2}).roofline
    assert plain is not None
    assert faster is not None
    assert faster.levels["hbm"].ridge == pytest.approx(plain.levels["hbm"].ridge / 2)
    assert "what if" in faster.levels["hbm"].basis


def test_a_product_is_compared_with_the_tensor_cores() -> None:
    part = traffic("matmul_relu", {"M": 1024, "N": 1024, "K": 1024}).roofline
    gpu = device("H200")
    assert part is not None
    assert gpu.dram_gb_per_s is not None
    assert part.unit == "tensor fp16"
    assert part.ceiling_tflops == pytest.approx(gpu.fp16_tensor_tflops)
    ridge = 1000 * (gpu.fp16_tensor_tflops or 0) / gpu.dram_gb_per_s
    assert part.levels["hbm"].ridge == pytest.approx(ridge)  # 206 flop/B


def test_without_time_there_is_none_and_a_reason() -> None:
    found = traffic("gelu", {"n": 4096}, simulate=False)
    assert found.roofline is None
    assert [u.reason for u in found.unknown if u.field == "roofline"]
    assert "roofline" not in render(found)
