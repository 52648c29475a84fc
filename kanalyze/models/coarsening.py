"""Thread coarsening: how many elements one thread handles.

What: elements of the output that a thread stores per pass over its tile; where not every thread
stores (a reduction), elements of the input that a thread loads per pass.
Formula: Σ bytes per thread of the stores (loads) of one pointer in one loop, over the bytes of an
element, times the loop's iterations where these are one number; the pointer with the most bytes
counts, and of its loops the innermost with the most (an unrolled loop, not its remainder); copies
in front of a pipelined loop are not counted again.
Source: the term as in lecture notes on thread coarsening; the element's size is that of the
kernel's signature, else the factor by which the PTX scales an index to bytes.
Limits: instructions are taken to be executed once a pass; a bulk copy is not any thread's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Coarsening:
    """How many elements one thread handles; None where it is not known, ``basis`` says why."""

    elements_per_thread: int | None
    element_bytes: int | None
    threads_per_block: int | None
    basis: str


@dataclass(frozen=True, slots=True)
class MovedBytes:
    """What one load or store moves between a thread and the memory behind a pointer, in bytes.

    ``loop`` is the header of the innermost loop around it, ``iterations`` of this loop are None
    where they are not one number.
    """

    pointer: str
    opcode: str
    bytes: int
    stored: bool
    loop_depth: int
    loop: int | None = None
    iterations: int | None = None


def coarsening(
    moved: Sequence[MovedBytes], element_bytes: Mapping[str, tuple[int, str]], threads: int | None
) -> Coarsening:
    """Elements per thread of a kernel.

    Args:
        moved: the global loads and stores whose address differs between threads, without the
            prologue of pipelined loops.
        element_bytes: pointer to the size of its elements and where that is known from.
        threads: threads per block, None where the PTX does not say.
    """
    executed = [move for move in moved if move.iterations != 0]
    for stored in (True, False):
        total: dict[str, int] = defaultdict(int)
        for move in executed:
            if move.stored is stored:
                total[move.pointer] += move.bytes
        if total:
            break
    else:
        return Coarsening(None, None, threads, "no load or store whose address differs by thread")
    pointer = max(total, key=lambda name: total[name])
    loops: dict[tuple[int, int | None], list[MovedBytes]] = defaultdict(list)
    for move in executed:
        if move.pointer == pointer and move.stored is stored:
            loops[move.loop_depth, move.loop].append(move)
    group = max(loops.items(), key=lambda item: (item[0][0], sum(m.bytes for m in item[1])))[1]
    counts = Counter(move.opcode for move in group)
    listed = ", ".join(f"{count} × {opcode}" for opcode, count in counts.items())
    iterations = group[0].iterations
    where = (
        f" in each of {iterations} iterations" if iterations else " in each iteration of its loop"
    )
    pass_bytes = sum(move.bytes for move in group) * (iterations or 1)
    way = f"{'to' if stored else 'from'} {pointer}: {listed}"
    way += f"{where if group[0].loop_depth else ''}, {pass_bytes} B"
    size, known_from = element_bytes.get(pointer, (None, "element type not known"))
    if size is None or pass_bytes % size:
        return Coarsening(None, size, threads, f"{way}, {known_from}")
    return Coarsening(
        pass_bytes // size, size, threads, f"{way} of {size}-B elements ({known_from})"
    )
