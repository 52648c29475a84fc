"""Values and conditions of a launch for some of its blocks."""

from __future__ import annotations

import numpy as np

from kanalyze.symbolic import parts
from kanalyze.symbolic.grid import Condition, both, comparison, either, negate
from kanalyze.symbolic.parts import Array, Steps, Term, array_of
from kanalyze.symbolic.specials import BLOCK


def cut(term: Term, blocks: slice) -> Array:
    """A term over the axes, for some blocks."""
    if isinstance(term, Steps) and term.axis == BLOCK:
        places = np.arange(*blocks.indices(term.length))
        return (places * np.int64(term.step)).reshape(-1, *term.shape[1:])
    array = array_of(term)
    return array[blocks] if array.shape[BLOCK] > 1 else array


def cut_condition(condition: Condition, blocks: slice) -> Condition:
    """A condition over the axes, for some blocks."""
    if condition.kind == "leaf":
        assert condition.leaf is not None
        value = condition.leaf.value
        some = parts.of_arrays([cut(term, blocks) for term in value.terms.values()])
        return comparison(condition.leaf.kind, some)
    operands = [cut_condition(o, blocks) for o in condition.operands]
    match condition.kind:
        case "not":
            return negate(operands[0])
        case "and":
            return both(*operands)
        case "or":
            return either(*operands)
    return condition
