"""Writes the patterns that `patterns.cu` runs: lane offsets that are regular, random, shared."""

from __future__ import annotations

import random
import sys


def cases(op: str, width: int, unit: int, space: int, count: int, rng: random.Random):
    """Yield (mask, offsets) in bytes; ``unit`` is the alignment, ``space`` the bytes there are."""
    top = space // unit
    full = 0xFFFFFFFF
    for stride in (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 32, 33):
        if stride * 31 < top:
            yield full, [lane * stride for lane in range(32)]
    for group in (2, 4, 8, 16):
        yield full, [lane // group for lane in range(32)]
        yield full, [lane % group for lane in range(32)]
        yield full, [lane // group * 33 % top for lane in range(32)]
        yield full, [lane % group * 32 % top for lane in range(32)]
        yield full, [(lane ^ group) for lane in range(32)]
        yield full, [(lane * 32 + (lane ^ (lane // group))) % top for lane in range(32)]
    for _ in range(count):
        kind = rng.randrange(5)
        if kind == 0:
            offsets = [rng.randrange(top) for _ in range(32)]
        elif kind == 1:
            some = [rng.randrange(top) for _ in range(rng.choice((2, 3, 5, 9)))]
            offsets = [rng.choice(some) for _ in range(32)]
        elif kind == 2:
            offsets = rng.sample(range(min(top, 64)), 32)
        elif kind == 3:
            offsets = [rng.randrange(min(top, rng.choice((8, 24, 40)))) for _ in range(32)]
        else:
            base = [rng.randrange(min(top, 256)) for _ in range(8)]
            offsets = [base[lane // 4] + lane % 4 for lane in range(32)]
        mask = full if op in ("ldsm", "stsm") or rng.random() < 0.6 else rng.getrandbits(32) | 1
        yield mask, [o % top for o in offsets]


def main() -> None:
    rng = random.Random(20)
    plan = [("lds", w, w, 32768, 26) for w in (1, 2, 4, 8, 16)]
    plan += [("sts", w, w, 32768, 26) for w in (1, 2, 4, 8, 16)]
    plan += [(op, n, 16, 32768, 30) for op in ("ldsm", "stsm") for n in (1, 2, 4)]
    plan += [(op, w, w, 65536, 8) for op in ("ldg", "stg") for w in (1, 2, 4, 8, 16)]
    plan += [(op, w, w, 65536, 16) for op in ("red", "atom") for w in (4, 8)]
    for op, width, unit, space, count in plan:
        for mask, offsets in cases(op, width, unit, space, count, rng):
            print(op, width, f"{mask:08x}", *(o * unit for o in offsets))


if __name__ == "__main__":
    sys.exit(main())
