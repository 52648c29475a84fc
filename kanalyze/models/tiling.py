"""A matrix product in tiles: how many blocks, what of them is the result's, and how waves fill.

What: a block computes a tile of BM x BN elements of an M x N result; at the edges a tile sticks out
(tile quantisation), and the last wave of blocks may be partly empty (wave quantisation).
Formula: tiles = ceil(M / BM) * ceil(N / BN); tile efficiency = M N / (tiles BM BN); wave efficiency
= tiles / (rounds x slots), see `kanalyze.models.waves`; both together: their product, the part of
the launch's tile elements x slots that is the result's. A better size is the nearest multiple of
the tile, along one side, at which that product is higher.
Source: NVIDIA, "Matrix Multiplication Background User's Guide", sections "Tile Quantization" and
"Wave Quantization". Limits: one tile per block, all tiles equally long; split-K, stream-K and
persistent kernels spread the work otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kanalyze.errors import UsageError
from kanalyze.models.waves import Waves, waves
from kanalyze.text.plain import to_plain

_FARTHEST = 64
"""Tiles, along one side, over which a better size is looked for."""


@dataclass(frozen=True, slots=True)
class Size:
    """Another size of the result, and how well it fills its tiles and waves."""

    m: int
    n: int
    tiles: int
    rounds: int
    efficiency: float


@dataclass(frozen=True, slots=True)
class Tiling:
    """An M x N result in tiles, and the waves of its blocks.

    ``tile_efficiency``: the part of the tiles' elements that is the result's; ``efficiency``: that
    times the waves'. ``better``: sizes near this one that are more efficient, the nearest first.
    """

    m: int
    n: int
    tile_m: int
    tile_n: int
    tiles_m: int
    tiles_n: int
    tiles: int
    tile_efficiency: float
    efficiency: float
    better: tuple[Size, ...]
    waves: Waves

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the ``gemm`` object of the JSON."""
        plain = to_plain(self)
        del plain["waves"]
        return plain

    def causes(self) -> tuple[str, ...]:
        """What is lost and why, the larger loss first; empty where nothing is."""
        losses = []
        if self.waves.idle_share:
            losses.append((1 - self.waves.efficiency, self._waves_lost()))
        if self.tile_efficiency < 1:
            losses.append((1 - self.tile_efficiency, self._tiles_lost()))
        return tuple(text for _, text in sorted(losses, reverse=True))

    def _waves_lost(self) -> str:
        last, slots, rounds = self.waves.last_wave_blocks, self.waves.blocks_per_wave, ""
        if self.waves.rounds == 1:
            return (
                f"wave quantisation: the {last} tiles are fewer than the {slots} blocks that the "
                f"GPU holds at a time, {slots - last} slots stay empty"
            )
        rounds = f"{self.waves.rounds} waves of {slots}"
        return (
            f"wave quantisation: the last of {rounds} has {last} of its blocks, so that the "
            f"launch lasts as long as one of {self.waves.rounds * slots} tiles"
        )

    def _tiles_lost(self) -> str:
        sides = []
        for name, size, tile in (("M", self.m, self.tile_m), ("N", self.n, self.tile_n)):
            if size % tile:
                over = size % tile
                sides.append(f"{name} = {size} leaves {over} of the {tile} of its last tile used")
        return (
            f"tile quantisation: {' and '.join(sides)}, {1 - self.tile_efficiency:.1%} of the "
            "tiles' elements are computed for nothing"
        )


def tile_efficiency(m: int, n: int, tile_m: int, tile_n: int) -> float:
    """The part of the tiles' elements that belongs to an M x N result."""
    return m * n / (math.ceil(m / tile_m) * tile_m * math.ceil(n / tile_n) * tile_n)


def tiling(m: int, n: int, tile_m: int, tile_n: int, sms: int, blocks_per_sm: int = 1) -> Tiling:
    """Tiles and waves of an M x N result on a GPU of ``sms`` SMs.

    Raises:
        UsageError: a number is not positive.
    """
    sizes = (("M", m), ("N", n), ("rows of the tile", tile_m), ("columns of the tile", tile_n))
    for what, number in sizes:
        if number < 1:
            raise UsageError(f"{what}: {number} is not a positive number")
    rows, columns = math.ceil(m / tile_m), math.ceil(n / tile_n)
    launch_waves = waves(blocks=rows * columns, sms=sms, blocks_per_sm=blocks_per_sm)
    used = tile_efficiency(m, n, tile_m, tile_n)
    both = used * launch_waves.efficiency
    better = sorted(
        _better(m, n, tile_m, tile_n, launch_waves, both),
        key=lambda size: abs(size.m - m) / m + abs(size.n - n) / n,
    )
    return Tiling(
        m, n, tile_m, tile_n, rows, columns, rows * columns, used, both, tuple(better), launch_waves
    )


def _better(m: int, n: int, tile_m: int, tile_n: int, now: Waves, both: float) -> Iterator[Size]:
    """The nearest smaller and larger size along each side that is more efficient."""
    rows, columns = math.ceil(m / tile_m), math.ceil(n / tile_n)
    for along_m in (True, False):
        size, tile, count = (m, tile_m, rows) if along_m else (n, tile_n, columns)
        down = range(count - (size % tile != 0), max(0, count - _FARTHEST), -1)
        up = range(count, count + _FARTHEST)
        for counts in (down, up):
            for other in counts:
                tiles = other * (columns if along_m else rows)
                rounds = math.ceil(tiles / now.blocks_per_wave)
                new = (other * tile, n) if along_m else (m, other * tile)
                used = tile_efficiency(*new, tile_m, tile_n)
                efficiency = used * tiles / (rounds * now.blocks_per_wave)
                if new != (m, n) and efficiency > both * (1 + 1e-9):
                    yield Size(*new, tiles, rounds, efficiency)
                    break
