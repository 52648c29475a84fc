"""What ``%ctaid`` and ``%tid`` select, in words.

What: how far the addresses of a pointer move when a special register grows by one.
Formula: the coefficient of the register in the address, where the address is linear in it.
Source: CUDA C++ Programming Guide, "Thread Hierarchy". Limits: a register that is only used inside
a division, a remainder or a mask is described by that expression.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AddressPolynomial:
    """An access: its pointer, its address as a polynomial, bytes per element, pattern of a warp."""

    pointer: str
    terms: Mapping[tuple[str, ...], int]
    element_bytes: int | None
    pattern: str | None
    bytes_per_thread: int | None


_MEANING = {"ctaid": "block index", "tid": "thread index", "clusterid": "cluster index"}


def role(
    register: str,
    accesses: Sequence[AddressPolynomial],
    definitions: Mapping[str, str],
    elsewhere: Sequence[str] = (),
    unknown: int = 0,
) -> str | None:
    """What ``register`` ("ctaid.x") does in the addresses; None for registers without a role.

    Args:
        register: a special register.
        accesses: the accesses through pointers whose addresses are known.
        definitions: the names that stand for parts of addresses.
        elsewhere: other addresses that it is in, in words.
        unknown: how many addresses are not known.
    """
    stem, _, axis = register.partition(".")
    if stem not in _MEANING:
        return None
    head = f"{_MEANING[stem]}{f' ({axis})' if axis else ''}"
    said: dict[str, list[str]] = {}
    derived = _derived(register, definitions)
    for access in accesses:
        text = _thread(access, register) if stem == "tid" else _step(access, register, derived)
        if text is not None:
            pointers = said.setdefault(text, [])
            if access.pointer not in pointers:
                pointers.append(access.pointer)
    parts = [f"{', '.join(pointers)}: {text}" for text, pointers in said.items()]
    parts += [f"in {', '.join(dict.fromkeys(elsewhere))}"] if elsewhere else []
    none = f"in no known address ({unknown} not known)" if unknown else "in no address"
    return f"{head}; {'; '.join(parts) or none}"


def _derived(register: str, definitions: Mapping[str, str]) -> list[str]:
    """The names that are computed from ``register``, also through each other."""
    names = [register]
    for name in names:
        names += [n for n, text in definitions.items() if n not in names and _mentions(text, name)]
    return names[1:]


def _step(access: AddressPolynomial, register: str, derived: Sequence[str]) -> str | None:
    """``1024 elements (4096 B) a block``, for a register that the address is linear in."""
    whole = {m: c for m, c in access.terms.items() if register in m}
    inside = [a for m in access.terms for a in m if a != register and _mentions(a, register)]
    if not whole and not inside:
        inside = [n for n in derived if any(_mentions(a, n) for m in access.terms for a in m)]
        return "through " + ", ".join(inside) if inside else None
    if not whole:
        return "through " + _short(inside[0])
    if inside:
        return "through several terms"
    steps = []
    for monomial, coefficient in whole.items():
        rest = list(monomial)
        rest.remove(register)
        size = access.element_bytes or 1
        unit = "element" if access.element_bytes and coefficient % size == 0 else "B"
        amount = coefficient // size if unit == "element" else coefficient
        factor = "*".join([*([str(amount)] if amount != 1 or not rest else []), *rest])
        plural = "s" if unit == "element" and factor != "1" else ""
        text = f"{factor} {unit}{plural}"
        steps.append(text + (f" ({coefficient} B)" if unit == "element" and not rest else ""))
    return f"{' + '.join(steps)} a block"


def _thread(access: AddressPolynomial, register: str) -> str | None:
    if not any(_mentions(atom, register) for monomial in access.terms for atom in monomial):
        return None
    if access.pattern is None or access.bytes_per_thread is None:
        return f"{access.bytes_per_thread} B a thread" if access.bytes_per_thread else None
    size = access.element_bytes
    count = (
        f"{access.bytes_per_thread // size} element{'s' if access.bytes_per_thread > size else ''}"
        if size and access.bytes_per_thread % size == 0
        else f"{access.bytes_per_thread} B"
    )
    return f"{count} a thread, a warp {access.pattern}"


def _mentions(text: str, register: str) -> bool:
    return re.search(rf"(?<![\w.]){re.escape(register)}(?![\w.])", text) is not None


def _short(text: str) -> str:
    return text if len(text) <= 48 else text[:45] + "..."
