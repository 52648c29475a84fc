"""In a profile, SMs have no block, in the last wave or all along (see the rule on launches)."""

from __future__ import annotations

import math

from kanalyze.findings.profile import WORTH, Profile, names
from kanalyze.findings.rule import ProfileRule
from kanalyze.profiles.collector import SHORT_US
from kanalyze.results.profile import ProfiledKernel, ProfileFinding
from kanalyze.text.numbers import duration

_ID = "wave-quantisation"


def check(profile: Profile) -> list[ProfileFinding]:
    """Wave quantisation: block slots that stay empty in the last wave, or all along."""
    total = profile.total_us
    lost = time = 0.0
    worst: list[tuple[float, ProfiledKernel, str]] = []
    for row in profile.rows:
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
        ProfileFinding(
            _ID,
            "info",
            f"kernels with {time / total:.0%} of the time leave SMs without blocks "
            f"({'; '.join(t for _, _, t in worst[:3])}): up to {duration(lost)}",
            "more and smaller blocks (a smaller tile, split-K or stream-K), a larger batch, or "
            "another kernel beside it on a second stream",
            names(row for _, row, _ in worst),
            {"total_us": time, "share": lost / total, "lost_us": lost},
        )
    ]


RULE = ProfileRule(_ID, check)
