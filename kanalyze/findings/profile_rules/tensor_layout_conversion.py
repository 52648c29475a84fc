"""Kernels run that only change the layout of tensors.

What it says
------------
Which part of the time goes to kernels that copy tensors from one layout (NCHW) to another (NHWC)
and compute nothing.

Why it is slow
--------------
Such a kernel reads and writes the whole tensor through HBM. Convolutions on tensor cores want NHWC;
where the tensors come as NCHW, the library converts them before and after each one.

How it is detected
------------------
By the names of the kernels: conversions of layouts that take 5 % of the time and more.

How it is proven
----------------
It is not: a profile holds nothing that could be run again. What would be saved is at most their
time.

Example
-------
    model = model.to(memory_format=torch.channels_last)
    x = x.to(memory_format=torch.channels_last)

Source
------
PyTorch tutorials, "Channels Last Memory Format in PyTorch"; cuDNN developer guide, "Tensor Core
Operations" (layouts that tensor-core kernels take).
"""

from __future__ import annotations

from kanalyze.findings.profile import WORTH, Profile, names, sums
from kanalyze.findings.rule import ProfileRule
from kanalyze.results.profile import ProfileFinding
from kanalyze.text.numbers import duration, launches

_ID = "tensor-layout-conversion"


def check(profile: Profile) -> list[ProfileFinding]:
    """Kernels that only change the layout of tensors."""
    chosen = [r for r in profile.rows if r.name.decoded.get("op") == "layout_transform"]
    calls, time = sums(chosen)
    share = time / profile.total_us
    if share < WORTH:
        return []
    return [
        ProfileFinding(
            _ID,
            "warning",
            f"{share:.0%} of the time ({duration(time)}, {launches(calls)}) only converts layouts",
            "keep the tensors in the layout that the kernels want: "
            "model.to(memory_format=torch.channels_last), and the inputs too",
            names(chosen),
            {"calls": calls, "total_us": time, "share": share},
        )
    ]


RULE = ProfileRule(_ID, check)
