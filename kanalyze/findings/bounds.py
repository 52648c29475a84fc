"""What limits a launch, as far as its estimate tells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts
    from kanalyze.results.traffic import Traffic

LAUNCH = 0.5
"""Share of the time from which a launch is mostly the launch itself."""
_SMS = 0.9  # of the SMs that have a block in a launch that fills the GPU


def share(traffic: Traffic, bound: str) -> float:
    """What a bound is of the predicted time; 0 where it is not known."""
    time = traffic.time
    return (time.bounds_us.get(bound) or 0.0) / time.predicted_us if time.predicted_us else 0.0


def shared_by_all(traffic: Traffic) -> float:
    """The largest share among the resources that all SMs share: HBM and L2."""
    return max(share(traffic, "hbm"), share(traffic, "l2"))


def leaves_sms_idle(facts: Facts) -> bool:
    """Whether 10 % of the SMs and more have no block."""
    launch, device = facts.launch, facts.device
    if launch is None or device is None or not device.sms:
        return False
    return math.prod(launch.grid) < _SMS * device.sms
