"""Many launches take less time than launching them.

What it says
------------
How many launches are shorter than 5 us, and which part of the time kernels take that are so short.

Why it is slow
--------------
A launch costs the host a few microseconds. Where kernels are shorter, the GPU waits for the host,
and that wait does not stand in the kernels' times.

How it is detected
------------------
Half of at least 200 launches take less than 5 us, and kernels that short on average take 10 % of
the time.

How it is proven
----------------
It is not: a profile holds nothing that could be run again.

Example
-------
    step = torch.compile(step, mode="reduce-overhead")      # CUDA graphs
    optimizer = torch.optim.AdamW(parameters, fused=True)   # one kernel for many tensors

Source
------
CUDA C++ Programming Guide, section "CUDA Graphs"; PyTorch blog, "Accelerating PyTorch with CUDA
Graphs" (2021).
"""

from __future__ import annotations

from kanalyze.findings.profile import WORTH, Profile, names, sums
from kanalyze.findings.rule import ProfileRule
from kanalyze.profiles.collector import SHORT_US
from kanalyze.results.profile import ProfileFinding

_ID = "tiny-kernels"


def check(profile: Profile) -> list[ProfileFinding]:
    """Many launches that take less time than launching them."""
    kernels = [r for r in profile.rows if r.kind == "kernel"]
    calls, _ = sums(kernels)
    short = sum(profile.collector.by_name[r.name.name].short_calls for r in kernels)
    tiny = [r for r in kernels if (r.mean_us or 0.0) < SHORT_US]
    _, time = sums(tiny)
    if short < 200 or short < 0.5 * calls or time / profile.total_us < 2 * WORTH:
        return []
    return [
        ProfileFinding(
            _ID,
            "info",
            f"{short:,} of {calls:,} launches take less than {SHORT_US:.0f} us, about what a "
            f"launch costs the host; kernels this short take {time / profile.total_us:.0%} of the "
            "time",
            "CUDA graphs or torch.compile (mode='reduce-overhead') save the launches, fusion and "
            "foreach optimizers save kernels, a larger batch makes them longer",
            names(tiny),
            {"calls": short, "of_calls": calls, "total_us": time, "share": time / profile.total_us},
        )
    ]


RULE = ProfileRule(_ID, check)
