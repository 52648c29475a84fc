"""Tensor-core kernels of an older GPU generation ran.

What it says
------------
Which part of the time goes to tensor-core kernels that were written for an older generation of
matrix instructions than the GPU has.

Why it is slow
--------------
Each generation has matrix instructions of its own: `mma` up to compute capability 8.x, `wgmma` of
9.0, `tcgen05` of 10.x. Later GPUs still execute `mma`, but it reaches only a part of their peak.

How it is detected
------------------
By the names of the kernels, which state the architecture that they were built for, beside the GPU
that the profile names; launches of 50 us and more that take 5 % of the time. SIMT kernels are the
same on all; consumer Blackwell (12.x) has the instructions of Ampere. Of small products nothing is
said: the library's choice is mostly right there.

How it is proven
----------------
It is not: a profile holds nothing that could be run again. That another kernel exists and would be
faster is not known, so this is never more than a remark.

Example
-------
    ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_tn     on an H100: mma, not wgmma

Source
------
PTX ISA 9.0, sections 9.7.14 to 9.7.16: the matrix instructions and the targets that have them.
"""

from __future__ import annotations

import re

from kanalyze.findings.profile import WORTH, Profile, capability, names, sums
from kanalyze.findings.rule import ProfileRule
from kanalyze.profiles.collector import SHORT_US
from kanalyze.results.profile import ProfiledKernel, ProfileFinding
from kanalyze.text.numbers import duration

_ID = "older-architecture"

_ARCH_NAMES = {"volta": 70, "turing": 75, "ampere": 80, "ada": 89, "hopper": 90, "blackwell": 100}


def _arch_number(row: ProfiledKernel) -> int | None:
    decoded = row.name.decoded
    match = re.fullmatch(r"sm(\d+)[af]?", str(decoded.get("arch", "")))
    if match:
        return int(match[1])
    return _ARCH_NAMES.get(str(decoded.get("arch_name", "")))


def check(profile: Profile) -> list[ProfileFinding]:
    """Tensor-core kernels for an older generation of matrix instructions than the device has.

    Generations: mma of Volta (7.0) and Turing (7.5), of Ampere to Ada (8.x), wgmma (9.0), tcgen05
    (10.x). Consumer Blackwell (12.x) has the instructions of Ampere; SIMT kernels are the same on
    all. Nothing is said of small products, for which the library's choice is mostly right.
    """
    chosen: dict[tuple[str, str], list[ProfiledKernel]] = {}
    for row in profile.rows:
        having, number = capability(row), _arch_number(row)
        if row.tensor_core is not True or having is None or number is None:
            continue
        ran = 8 if having[0] == 12 else having[0]
        if number // 10 < ran and (row.mean_us or 0.0) >= 10 * SHORT_US:
            device = f"sm_{having[0]}{having[1]}"
            chosen.setdefault((f"sm_{number}", device), []).append(row)
    findings = []
    for (built, device), group in chosen.items():
        calls, time = sums(group)
        share = time / profile.total_us
        if share < WORTH:
            continue
        better = {"sm_90": "wgmma", "sm_100": "tcgen05", "sm_103": "tcgen05"}.get(device)
        with_what = f" without {better}" if better else ""
        findings.append(
            ProfileFinding(
                _ID,
                "info",
                f"{share:.0%} of the time ({duration(time)}) goes to tensor-core kernels written "
                f"for {built} that ran on {device}{with_what}",
                "a newer cuBLAS or cuDNN, another layout or alignment of the operands (16 bytes), "
                "or another type may get a kernel of the device's own generation",
                names(group),
                {"calls": calls, "total_us": time, "share": share, "built_for": built,
                 "ran_on": device},
            )
        )  # fmt: skip
    return findings


RULE = ProfileRule(_ID, check)
