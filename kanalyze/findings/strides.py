"""How the accesses through a pointer are spread: in one thread, and over the launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kanalyze.findings import access_groups
from kanalyze.findings.access_groups import AccessGroup
from kanalyze.models import lane_strides
from kanalyze.models.lane_strides import AffineForm, LanePlace


def in_thread(group: AccessGroup) -> tuple[int, AffineForm | None]:
    """How many elements one thread accesses between neighbouring lanes, and how far apart.

    1 and the distance of lanes where a thread has one; None where nothing is known of it, or where
    they are contiguous.
    """
    stride = group.stride
    if stride is None or not (stride.terms or stride.number):
        return 1, None
    differences = lane_strides.differences(
        [a.address for a, _ in group.members], access_groups.extents(group.facts)
    )
    forms = differences[0] if differences is not None else []
    best, unit = 1, stride
    for form in forms:
        times = _times(stride, form)
        if times is not None and times > best:
            best, unit = times, form
    if not unit.terms and abs(unit.number) <= group.size:
        return 1, None
    return best, unit


def only_every(group: AccessGroup, every: Iterable[AccessGroup]) -> AffineForm | None:
    """The distance of which all accesses through the pointer are multiples; None if there is none.

    Then what it points to has no other dimension: between the elements is what nothing reads.
    """
    _, unit = in_thread(group)
    facts = group.facts
    mine = [g for g in every if g.pointer == group.pointer]
    if unit is None or not mine:
        return None
    x, y, z = extents = access_groups.extents(facts)
    places = [LanePlace(), *(LanePlace(blocks={axis: 1}) for axis in "xyz")]
    places += [LanePlace(1 << bit) for bit in range((x * y * z - 1).bit_length())]
    places += [LanePlace(iterations={loop.header: 1}) for loop in facts.description.cfg.loops]
    accesses = [access.address for g in mine for access, _ in g.members]
    differences = lane_strides.differences(accesses, extents, places)
    if differences is None or not all(
        _is_multiple(form, unit) for row in differences for form in row
    ):
        return None
    return unit


def _is_multiple(form: AffineForm, unit: AffineForm) -> bool:
    return not (form.terms or form.number) or _times(form, unit) is not None


def _times(form: AffineForm, unit: AffineForm) -> int | None:
    """How many times ``unit`` a distance is, other than 0; None where it is no multiple."""
    amounts: Sequence[int] = [unit.number, *unit.terms.values()]
    own = [form.number, *(form.terms.get(name, 0) for name in unit.terms)]
    if form.terms.keys() - unit.terms.keys():
        return None
    times = next((a // b for a, b in zip(own, amounts, strict=True) if b), 0)
    same = all(a == times * b for a, b in zip(own, amounts, strict=True))
    return times if same and times else None
