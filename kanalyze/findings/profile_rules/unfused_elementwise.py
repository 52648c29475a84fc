"""Consecutive element-wise kernels could be one.

What it says
------------
How many element-wise kernels follow one another over tensors of the same size, how much they read
and write together, and how much one fused kernel would at least.

Why it is slow
--------------
Each of them reads its operands from HBM and writes its result there; the operations themselves cost
nearly nothing. Fused, the values in between stay in registers.

How it is detected
------------------
Three and more consecutive element-wise kernels on one stream, called by operators over as many
elements, which take 5 % of the time and move at least twice what a fused kernel has to. Repetitions
(steps of training) count as one chain.

How it is proven
----------------
By the bytes of the operators' inputs and outputs, as the profile states them. That each kernel
reads what the one before it wrote does not stand in a profile: it is for the reader to see.

Example
-------
    0.5 * x * (1 + torch.tanh(0.79788 * (x + 0.044715 * x * x * x)))     # nine kernels

    torch.nn.functional.gelu(x, approximate="tanh")                      # one

Source
------
PyTorch, "torch.compile" and "Introduction to torch.compile": element-wise operators are fused into
one Triton kernel.
"""

from __future__ import annotations

from kanalyze.findings.profile import WORTH, Profile
from kanalyze.findings.rule import ProfileRule
from kanalyze.profiles.chains import KernelChain
from kanalyze.results.profile import ProfileFinding
from kanalyze.text.numbers import size

_ID = "unfused-elementwise"

_SMALL_TENSOR_BYTES = 1 << 20


def check(profile: Profile) -> list[ProfileFinding]:
    """Chains of element-wise kernels over large tensors that one fused kernel could replace."""
    shown = {r.name.name for r in profile.rows}
    findings = []
    for chain in profile.collector.chains.all():
        if not shown.issuperset(chain.names) or chain.total_us / profile.total_us < WORTH:
            continue
        finding = _chain(chain, profile.total_us)
        if finding is not None:
            findings.append(finding)
    return findings[:5]


def _chain(chain: KernelChain, total: float) -> ProfileFinding | None:
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
    return ProfileFinding(
        _ID,
        "warning",
        f"{len(chain.names)} consecutive element-wise kernels ({kinds}) over {elements}{times}: "
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


RULE = ProfileRule(_ID, check)
