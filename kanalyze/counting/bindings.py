"""What the arrays of a launch hold, by the parameters of a kernel, and its tensor maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kanalyze.launch.assumptions import Assumption
from kanalyze.launch.record import Launch
from kanalyze.launch.tensor_map import TensorMap
from kanalyze.ptx import ir
from kanalyze.symbolic.accesses import Addresses
from kanalyze.symbolic.value import Arrays, array_of, in_order, pointer_of


def arrays_of(parameters: Sequence[ir.Parameter], launch: Launch | None) -> Arrays | None:
    """The pointers of a launch and those whose arrays are known; None where no array is."""
    if launch is None or all(param.data is None for param in launch.params):
        return None
    pairs = list(zip(parameters, launch.params, strict=False))
    return Arrays(
        frozenset(p.name for p, given in pairs if given.is_pointer),
        frozenset(p.name for p, given in pairs if given.data is not None),
    )


def decisive(parameters: Sequence[ir.Parameter], launch: Launch, addresses: Addresses) -> list[str]:
    """The arrays of unknown contents that decide addresses, or whether accesses are executed."""
    pairs = list(zip(parameters, launch.params, strict=False))
    pointers = Arrays(frozenset(p.name for p, given in pairs if given.is_pointer), frozenset())
    loads = {a.instruction.pos: pointer_of(a.address, pointers) for a in addresses.accesses}
    values = [value for a in addresses.accesses for value in (a.address, a.condition) if value]
    names: set[str | None] = set()
    for node in in_order(values):
        if node.op == "load" and array_of(node) is None:
            names.add(pointer_of(node.args[0], node.payload.arrays))
        elif node.op == "unknown" and isinstance(node.payload[0], tuple):
            names.add(loads.get(node.payload[0][0]))
    return [given.name for p, given in pairs if p.name in names]


def contents_of(parameters: Sequence[ir.Parameter], launch: Launch) -> dict[str, Assumption]:
    """Pointer parameter to what its array is assumed to hold."""
    pairs = zip(parameters, launch.params, strict=False)
    return {p.name: given.data for p, given in pairs if given.data is not None}


def unwritten(function: ir.Function, addresses: Addresses, launch: Launch) -> Launch:
    """The launch without what is assumed of arrays that the kernel itself writes.

    Blocks of a cluster are those that the PTX requires, where the launch does not say them.
    """
    required = function.directives.get("reqnctapercluster")
    if launch.cluster is None and required and all(required):
        x, y, z = (*required, 1, 1)[:3]
        launch = replace(launch, cluster=(x, y, z))
    arrays = arrays_of(function.parameters, launch)
    if arrays is None:
        return launch
    written = {
        pointer_of(access.address, arrays)
        for access in addresses.accesses
        if access.row.kind not in ("load", "async_copy", "bulk_load", "prefetch")
        and access.row.space in ("global", "generic")
    }
    names = [parameter.name for parameter in function.parameters]
    params = [
        replace(param, data=None) if name in written else param
        for name, param in zip(names, launch.params, strict=False)
    ]
    return replace(launch, params=tuple(params))


def maps_of(parameters: Sequence[ir.Parameter], launch: Launch) -> dict[str, TensorMap]:
    """Parameter to the tensor map that it is, or points to."""
    pairs = zip(parameters, launch.params, strict=False)
    return {p.name: given.tensor_map for p, given in pairs if given.tensor_map is not None}
