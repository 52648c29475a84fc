"""What proofs may cost: how often a kernel is compiled and simulated in one run.

Counted, not timed: the same command says the same on a slow machine and on a fast one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

COMPILATIONS = 24
SIMULATIONS = 10
"""Each takes 0.3 to 1 s. The bundled kernel with the most findings takes 22 and 5."""


class SpentError(Exception):
    """There is nothing left of a budget."""


@dataclass
class Budget:
    """What is left.

    Attributes:
        compilations, simulations: how many more there may be.
        refused: what was not tried, in words.
    """

    compilations: int = field(default_factory=lambda: COMPILATIONS)
    simulations: int = field(default_factory=lambda: SIMULATIONS)
    refused: list[str] = field(default_factory=list)

    def compile(self, what: str) -> None:
        """Take one compilation.

        Raises:
            SpentError: there is none left.
        """
        self._check(self.compilations, what)
        self.compilations -= 1

    def simulate(self, what: str) -> None:
        """Take one simulation.

        Raises:
            SpentError: there is none left.
        """
        self._check(self.simulations, what)
        self.simulations -= 1

    def _check(self, left: int, what: str) -> None:
        if left > 0:
            return
        if what not in self.refused:
            self.refused.append(what)
        raise SpentError(self.reason)

    @property
    def reason(self) -> str:
        """What was not tried, and why."""
        return (
            f"not tried: {' | '.join(self.refused)} (of one kernel, {COMPILATIONS} compilations "
            f"and {SIMULATIONS} simulations are tried at most)"
        )
