"""What in a profile is worth acting on: each finding is a function; mostly they are silent."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable

from kanalyze.decoding.chains import Chain
from kanalyze.decoding.collect import SHORT_US, Collector
from kanalyze.decoding.document import Finding, Row
from kanalyze.decoding.quantities import duration, launches, size

WORTH = 0.05
"""Share of the time below which nothing is said."""
_SMALL_TENSOR_BYTES = 1 << 20


def findings_of(rows: list[Row], collector: Collector) -> list[Finding]:
    """All findings, the most important first."""
    total = collector.total.time_us
    if not total or not rows:
        return []
    found: list[Finding] = []
    for check in _CHECKS:
        found += check(rows, total)
    found += _tiny(rows, collector, total)
    found += _chains(rows, collector, total)
    order = {"warning": 0, "info": 1}
    return sorted(found, key=lambda f: (order[f.severity], -f.numbers.get("share", 0.0)))


def _sums(rows: Iterable[Row]) -> tuple[int, float]:
    chosen = list(rows)
    return sum(r.calls for r in chosen), sum(r.total_us or 0.0 for r in chosen)


def _names(rows: Iterable[Row]) -> tuple[str, ...]:
    ordered = sorted(rows, key=lambda r: -(r.total_us or 0.0))
    return tuple(dict.fromkeys(r.name.name for r in ordered))[:20]


def _capability(row: Row) -> tuple[int, int] | None:
    for launch in row.launches:
        if launch.device is not None and launch.device.capability is not None:
            return launch.device.capability
    return None


def _simt_fp32(rows: list[Row], total: float) -> list[Finding]:
    """Products of fp32 matrices on CUDA cores, where the device has TF32 tensor cores."""
    chosen = []
    for row in rows:
        decoded = row.name.decoded
        capability = _capability(row)
        if (
            row.tensor_core is False
            and decoded.get("op_class") == "simt"
            and str(decoded.get("op")).startswith(("gemm", "conv", "implicit_gemm"))
            and decoded.get("dtype_a") == "f32"
            and decoded.get("dtype_acc", "f32") == "f32"
            and not (capability is not None and capability < (8, 0))
        ):
            chosen.append(row)
    calls, time = _sums(chosen)
    share = time / total
    if share < WORTH:
        return []
    where = "" if any(_capability(r) for r in chosen) else ", if the GPU is an Ampere or later"
    return [
        Finding(
            "fp32-simt-gemm",
            "warning",
            f"{share:.0%} of the time ({duration(time)}, {launches(calls)}) "
            "goes to fp32 matrix products on CUDA cores (SIMT), not tensor cores",
            'torch.set_float32_matmul_precision("high") lets them use TF32 tensor cores (10 bits '
            f"of mantissa){where}; bf16 or fp16 inputs (autocast) are faster still",
            _names(chosen),
            {"calls": calls, "total_us": time, "share": share},
        )
    ]


_ARCH_NAMES = {"volta": 70, "turing": 75, "ampere": 80, "ada": 89, "hopper": 90, "blackwell": 100}


def _arch_number(row: Row) -> int | None:
    decoded = row.name.decoded
    found = re.fullmatch(r"sm(\d+)[af]?", str(decoded.get("arch", "")))
    if found:
        return int(found[1])
    return _ARCH_NAMES.get(str(decoded.get("arch_name", "")))


def _older_arch(rows: list[Row], total: float) -> list[Finding]:
    """Tensor-core kernels for an older generation of matrix instructions than the device has.

    Generations: mma of Volta (7.0) and Turing (7.5), of Ampere to Ada (8.x), wgmma (9.0), tcgen05
    (10.x). Consumer Blackwell (12.x) has the instructions of Ampere; SIMT kernels are the same on
    all. Nothing is said of small products, for which the library's choice is mostly right.
    """
    chosen: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        capability, number = _capability(row), _arch_number(row)
        if row.tensor_core is not True or capability is None or number is None:
            continue
        ran = 8 if capability[0] == 12 else capability[0]
        if number // 10 < ran and (row.mean_us or 0.0) >= 10 * SHORT_US:
            device = f"sm_{capability[0]}{capability[1]}"
            chosen.setdefault((f"sm_{number}", device), []).append(row)
    found = []
    for (built, device), group in chosen.items():
        calls, time = _sums(group)
        share = time / total
        if share < WORTH:
            continue
        better = {"sm_90": "wgmma", "sm_100": "tcgen05", "sm_103": "tcgen05"}.get(device)
        with_what = f" without {better}" if better else ""
        found.append(
            Finding(
                "older-architecture",
                "info",
                f"{share:.0%} of the time ({duration(time)}) goes to tensor-core kernels written "
                f"for {built} that ran on {device}{with_what}",
                "a newer cuBLAS or cuDNN, another layout or alignment of the operands (16 bytes), "
                "or another type may get a kernel of the device's own generation",
                _names(group),
                {"calls": calls, "total_us": time, "share": share, "built_for": built,
                 "ran_on": device},
            )
        )  # fmt: skip
    return found


def tile_efficiency(m: int, n: int, tile: tuple[int, int]) -> float:
    """The part of the tiles' elements that belongs to an M x N result."""
    rows, columns = tile
    tiles = math.ceil(m / rows) * math.ceil(n / columns)
    return m * n / (tiles * rows * columns)


def _tile_quantisation(rows: list[Row], total: float) -> list[Finding]:
    """Results whose size is not a multiple of the tile: a part of each edge tile is thrown away.

    Libraries swap operands for row-major results, so the better orientation of the tile counts.
    """
    worst: list[tuple[float, Row, str]] = []
    lost = time = 0.0
    for row in rows:
        m, n = row.name.decoded.get("tile_m"), row.name.decoded.get("tile_n")
        if not isinstance(m, int) or not isinstance(n, int) or m < 1 or n < 1:
            continue
        for problem in row.problems:
            used = max(tile_efficiency(problem.m, problem.n, t) for t in ((m, n), (n, m)))
            if used < 0.8 and problem.total_us / total >= WORTH / 5:
                lost += problem.total_us * (1 - used)
                time += problem.total_us
                text = f"{problem.m} x {problem.n} in tiles of {m} x {n}: {used:.0%} used"
                worst.append((problem.total_us * (1 - used), row, text))
    if time / total < WORTH:
        return []
    worst.sort(key=lambda w: -w[0])
    chosen = [row for _, row, _ in worst]
    return [
        Finding(
            "tile-quantisation",
            "info",
            f"matrix products with {time / total:.0%} of the time fill their tiles badly "
            f"({'; '.join(text for _, _, text in worst[:3])}): up to {duration(lost)} is spent on "
            "elements outside the result",
            "sizes that are multiples of the tile (pad the dimension), or a larger batch",
            _names(chosen),
            {"total_us": time, "share": time / total, "lost_us": lost},
        )
    ]


def _idle_slots(rows: list[Row], total: float) -> list[Finding]:
    """Wave quantisation: block slots that stay empty in the last wave, or all along."""
    lost = time = 0.0
    worst: list[tuple[float, Row, str]] = []
    for row in rows:
        if row.kind != "kernel" or row.op == "collective":  # collectives leave SMs to others
            continue
        for launch in row.launches:
            idle, waves = launch.idle_share, launch.waves
            if idle is None or waves is None or launch.total_us is None or launch.grid is None:
                continue
            sms = launch.device.multiprocessors if launch.device else None
            blocks = math.prod(launch.grid)
            if not sms or launch.total_us < 2 * SHORT_US * launch.calls:
                continue
            if waves < 1:  # fewer blocks than slots: SMs are idle only when there are fewer blocks
                idle = max(0.0, 1 - blocks / sms)
            if idle < 0.2 or waves > 8 or (launch.blocks_per_sm != 1 and waves >= 1):
                continue
            lost += launch.total_us * idle
            time += launch.total_us
            slots = sms * (launch.blocks_per_sm or 1)
            text = (
                f"{blocks} blocks on {sms} SMs" if waves < 1
                else f"{blocks} blocks in waves of {slots}"
            )  # fmt: skip
            worst.append((launch.total_us * idle, row, f"{text}: {idle:.0%} idle"))
    if lost / total < WORTH:
        return []
    worst.sort(key=lambda w: -w[0])
    return [
        Finding(
            "wave-quantisation",
            "info",
            f"kernels with {time / total:.0%} of the time leave SMs without blocks "
            f"({'; '.join(t for _, _, t in worst[:3])}): up to {duration(lost)}",
            "more and smaller blocks (a smaller tile, split-K or stream-K), a larger batch, or "
            "another kernel beside it on a second stream",
            _names(row for _, row, _ in worst),
            {"total_us": time, "share": lost / total, "lost_us": lost},
        )
    ]


def _layouts(rows: list[Row], total: float) -> list[Finding]:
    """Kernels that only change the layout of tensors."""
    chosen = [r for r in rows if r.name.decoded.get("op") == "layout_transform"]
    calls, time = _sums(chosen)
    share = time / total
    if share < WORTH:
        return []
    return [
        Finding(
            "layout-conversion",
            "warning",
            f"{share:.0%} of the time ({duration(time)}, {launches(calls)}) only converts layouts",
            "keep the tensors in the layout that the kernels want: "
            "model.to(memory_format=torch.channels_last), and the inputs too",
            _names(chosen),
            {"calls": calls, "total_us": time, "share": share},
        )
    ]


_CHECKS: tuple[Callable[[list[Row], float], list[Finding]], ...] = (
    _simt_fp32,
    _older_arch,
    _tile_quantisation,
    _idle_slots,
    _layouts,
)


def _tiny(rows: list[Row], collector: Collector, total: float) -> list[Finding]:
    """Many launches that take less time than launching them."""
    kernels = [r for r in rows if r.kind == "kernel"]
    calls, _ = _sums(kernels)
    short = sum(collector.found[r.name.name].short_calls for r in kernels)
    tiny = [r for r in kernels if (r.mean_us or 0.0) < SHORT_US]
    _, time = _sums(tiny)
    if short < 200 or short < 0.5 * calls or time / total < 2 * WORTH:
        return []
    return [
        Finding(
            "tiny-kernels",
            "info",
            f"{short:,} of {calls:,} launches take less than {SHORT_US:.0f} us, about what a "
            f"launch costs the host; kernels this short take {time / total:.0%} of the time",
            "CUDA graphs or torch.compile (mode='reduce-overhead') save the launches, fusion and "
            "foreach optimizers save kernels, a larger batch makes them longer",
            _names(tiny),
            {"calls": short, "of_calls": calls, "total_us": time, "share": time / total},
        )
    ]


def _chains(rows: list[Row], collector: Collector, total: float) -> list[Finding]:
    """Chains of element-wise kernels over large tensors that one fused kernel could replace."""
    shown = {r.name.name for r in rows}
    found = []
    for chain in collector.chains.all():
        if not shown.issuperset(chain.names) or chain.total_us / total < WORTH:
            continue
        finding = _chain(chain, total)
        if finding is not None:
            found.append(finding)
    return found[:5]


def _chain(chain: Chain, total: float) -> Finding | None:
    moved = chain.moved()
    if moved is None:
        return None
    read, written = sum(m.read for m in moved), sum(m.written for m in moved)
    fused = moved[0].largest_input + moved[-1].written
    if moved[-1].written < _SMALL_TENSOR_BYTES or read + written < 2 * fused:
        return None
    share = chain.total_us / total
    operators = [o.name.removeprefix("aten::") for o in chain.operators if o is not None]
    distinct = sorted(set(operators), key=operators.index)
    kinds = ", ".join(f"{operators.count(o)} {o}" for o in distinct)
    times = "" if chain.times == 1 else f", {chain.times} times"
    elements = f"{chain.elements:,} elements" if chain.elements else "tensors of one size"
    return Finding(
        "unfused-elementwise",
        "warning",
        f"{len(chain.names)} element-wise kernels in a row ({kinds}) over {elements}{times}: "
        f"{share:.0%} of the time; each round moves {size(read + written)} (reads {size(read)}, "
        f"writes {size(written)}), one fused kernel at least {size(fused)}",
        "if each works on the result of the one before, torch.compile fuses them into one kernel; "
        "often there is a ready one (gelu, silu, layer_norm)",
        tuple(dict.fromkeys(chain.names)),
        {
            "kernels": len(chain.names),
            "times": chain.times,
            "total_us": chain.total_us,
            "share": share,
            "elements": chain.elements,
            "read_bytes": read,
            "written_bytes": written,
            "fused_bytes_at_least": fused,
        },
    )
