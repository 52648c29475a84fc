"""Which bits of a value can be 1, whatever the launch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kanalyze.symbolic.value import Value, in_order

# Greatest values of special registers over all launches (CUDA C++ Programming Guide, "Compute
# Capabilities", "Technical Specifications per Compute Capability").
_GREATEST = {
    "tid.x": 1023, "tid.y": 1023, "tid.z": 63,
    "ntid.x": 1024, "ntid.y": 1024, "ntid.z": 64,
    "ctaid.x": 2**31 - 2, "ctaid.y": 65534, "ctaid.z": 65534,
    "nctaid.x": 2**31 - 1, "nctaid.y": 65535, "nctaid.z": 65535,
    "laneid": 31,
}  # fmt: skip


def _up_to(number: int) -> int:
    return (1 << number.bit_length()) - 1


def _low_zeros(bits: int) -> int:
    return (bits & -bits).bit_length() - 1 if bits else 64


@dataclass
class Bits:
    """Finds the bits of values that can be 1.

    Args:
        divisible: parameter name to a power of two that divides it.
        greatest: special register ("tid.x") to its greatest value in this kernel's launches, where
            it is less than the hardware's.
    """

    divisible: Mapping[str, int] = field(default_factory=dict)
    greatest: Mapping[str, int] = field(default_factory=dict)
    _known: dict[Value, int] = field(default_factory=dict)

    def possible_ones(self, value: Value) -> int:
        """A mask of the bits of ``value`` that can be 1."""
        for node in in_order([value], stop=self._known):
            ones = _of_node(node, self._known, self.divisible, self.greatest)
            self._known[node] = ones & ((1 << node.bits) - 1)
        return self._known[value]


def _of_node(
    node: Value,
    memo: Mapping[Value, int],
    divisible: Mapping[str, int],
    greatest_of: Mapping[str, int],
) -> int:
    everything = (1 << node.bits) - 1
    args = [memo[a] for a in node.args]
    number = node.args[-1].unsigned if node.args else None
    match node.op:
        case "const":
            return int(node.payload)
        case "special":
            greatest = greatest_of.get(node.payload, _GREATEST.get(node.payload))
            return everything if greatest is None else _up_to(greatest)
        case "param":
            name, offset = node.payload
            return everything & ~(divisible.get(name, 1) - 1) if offset == 0 else everything
        case "and":
            return args[0] & args[1]
        case "or" | "xor":
            return args[0] | args[1]
        case "add":
            if args[0] & args[1] == 0:
                return args[0] | args[1]
            zeros = min(_low_zeros(args[0]), _low_zeros(args[1]))
            return _up_to(args[0] + args[1]) & ~((1 << zeros) - 1)
        case "mul":
            zeros = _low_zeros(args[0]) + _low_zeros(args[1])
            return _up_to(args[0] * args[1]) & ~((1 << zeros) - 1)
        case "shl" if number is not None:
            return args[0] << number if number < node.bits else 0
        case "shru" if number is not None:
            return args[0] >> number
        case "divu" if number:
            return _up_to(args[0] // number)
        case "remu" if number:
            return _up_to(number - 1)
        case "shrs" if number is not None and not args[0] >> (node.bits - 1):
            return args[0] >> number
        case "minu":
            return min(_up_to(args[0]), _up_to(args[1]))
        case "zext" | "trunc":
            return args[0]
        case "sext" if not args[0] >> (node.args[0].bits - 1):
            return args[0]
        case "select":
            return args[1] | args[2]
        case "eq" | "ne" | "lts" | "les" | "ltu" | "leu":
            return 1
        case _:
            return everything
