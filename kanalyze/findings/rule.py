"""What a rule is: its id and its functions. Every rule module ends with one, called ``RULE``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kanalyze.findings.facts import Facts
    from kanalyze.findings.profile import Profile
    from kanalyze.results.kernel import Finding
    from kanalyze.results.profile import ProfileFinding

Check = Callable[["Facts"], Iterable["Finding"]]


@dataclass(frozen=True)
class Rule:
    """A rule on kernels and launches, of `kanalyze.findings.rules`.

    Attributes:
        id: what it is called in reports.
        check_kernel: what it finds in a kernel, for ``kanalyze ptx`` and ``kanalyze traffic``.
        check_launch: what it finds in a launch with its estimate, for ``kanalyze traffic``.
        prove: makes the change that a finding advises, and returns the finding with the outcome,
            or None where the change does not help.
        explains: whether a finding (the first) is the cause of another one, which then is left out.
    """

    id: str
    check_kernel: Check | None = None
    check_launch: Check | None = None
    prove: Callable[[Facts, Finding], Finding | None] | None = None
    explains: Callable[[Finding, Finding], bool] | None = None


@dataclass(frozen=True)
class ProfileRule:
    """A rule on profiles, of `kanalyze.findings.profile_rules`.

    Attributes:
        id: what it is called in reports.
        check: what it finds in the rows of ``kanalyze decode``.
    """

    id: str
    check: Callable[[Profile], Iterable[ProfileFinding]]
