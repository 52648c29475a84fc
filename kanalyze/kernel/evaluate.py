"""The first pass over a kernel: control flow, and the values of its addresses and conditions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kanalyze.ptx import ir
from kanalyze.ptx.calls import followed
from kanalyze.ptx.cfg import Cfg, build
from kanalyze.symbolic import accesses
from kanalyze.symbolic.value import Arrays


@dataclass(frozen=True, slots=True)
class EvaluatedKernel:
    """A kernel's control-flow graph, the variables in sight, and what its registers hold."""

    function: ir.Function
    cfg: Cfg
    variables: Mapping[str, ir.Variable]
    addresses: accesses.Addresses

    @property
    def required_block(self) -> tuple[int, int, int] | None:
        """The extents of a block that ``.reqntid`` fixes."""
        given = self.function.directives.get("reqntid")
        if not given or not all(given):  # 0 threads: the assembler says what is wrong
            return None
        x, y, z = (*given, 1, 1)[:3]
        return x, y, z


def evaluate(
    module: ir.Module, function: ir.Function, arrays: Arrays | None = None
) -> EvaluatedKernel:
    """Build the control-flow graph of a kernel and evaluate its registers, through its calls.

    Args:
        module: the module it stands in.
        function: an entry of it, with a body.
        arrays: pointers whose arrays are assumed.
    """
    function = followed(module, function)
    cfg = build(function)
    variables = {v.name: v for v in module.variables}
    variables |= {s.name: s for s in function.body or () if isinstance(s, ir.Variable)}
    return EvaluatedKernel(function, cfg, variables, accesses.find(cfg, variables, arrays))
