"""One memory instruction over a whole launch: every warp of every block and iteration, by classes.

What: how often warps execute the instruction with a lane taking part, and what each execution costs
by a rule for one warp (sectors: `kanalyze.models.coalescing`; bank wavefronts:
`kanalyze.models.banks`), summed.
Formula: a rule depends on where the lanes point modulo its period and on which lanes take part. Per
block and per iteration only the address modulo the period and the outcome of each comparison
matter; blocks and iterations that agree in them are one class and are evaluated once.
Source: a warp instruction is one request (Nsight Compute, "Memory Tables"). Limits: values that do
not part into threads and blocks are evaluated lane by lane, up to a bound on their number.
One file: counts, classes and addresses come from the same classification (`InstructionLaunch`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple, TypeVar

import numpy as np

from kanalyze.models.block_slices import cut, cut_condition
from kanalyze.models.features import (
    Feature,
    Lanes,
    Tree,
    alike,
    along,
    axes_along,
    codes,
    cuts,
    distinct_rows,
    made,
    remainders,
    representatives,
)
from kanalyze.symbolic import parts
from kanalyze.symbolic.grid import Condition, spread
from kanalyze.symbolic.parts import (
    Array,
    Parts,
    Steps,
    Term,
    TooLargeError,
    array_of,
    axes_of,
    distinct_numbers,
)
from kanalyze.symbolic.specials import BLOCK, THREAD

WARP = 32
_CHUNK = 1 << 23  # lanes evaluated at a time
_MOST_LANES = 1 << 31
_MOST_STRETCHES = 1 << 11


@dataclass(frozen=True, slots=True)
class CountingRule:
    """The transactions (sectors, wavefronts) of one execution by one warp.

    ``transactions`` takes addresses and which lanes take part, both (executions, 32), and returns
    those of each execution, the same when all addresses move by a multiple of ``period`` bytes.
    """

    period: int
    transactions: Callable[[Array, Lanes], Array]
    alignment: int = 1  # divides the period; addresses must be multiples of it


class MisalignedError(Exception):
    """A lane's address is not a multiple of the width of the access: the device would fault."""


class MixedError(Exception):
    """Something in which threads and blocks do not part."""


EXECUTED = CountingRule(1, lambda addresses, lanes: np.zeros(len(addresses), np.int64))
"""Executions alone, without transactions."""


@dataclass(frozen=True, slots=True)
class Counted:
    """Over a launch: executions with a lane taking part, their transactions, and times of threads.

    ``by_transactions`` gives for each number of transactions how many executions have it.
    """

    requests: int
    transactions: int
    threads: int
    by_transactions: dict[int, int]


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences:
    """Extent of each axis: blocks, threads, the greatest number of iterations of each loop."""

    dimensions: tuple[int, ...]


def count(
    rule: CountingRule, address: Parts, condition: Condition, occurrences: Occurrences
) -> Counted:
    """Count one instruction.

    Raises:
        TooLargeError: the launch has too many different cases.
    """
    return InstructionLaunch(rule, address, condition, occurrences).run()


@dataclass(frozen=True, slots=True)
class AlikeClasses:
    """Classes of which a member (a block in one iteration of the loops around) counts the same.

    ``classes`` is how many there are, ``members`` how many they have together; ``requests`` and
    ``transactions`` are those of one member.
    """

    classes: int
    members: int
    requests: int
    transactions: int


def classes_alike(
    rule: CountingRule, address: Parts, condition: Condition, occurrences: Occurrences
) -> tuple[AlikeClasses, ...]:
    """The classes that `count` evaluates one member of.

    Raises:
        TooLargeError: the launch has too many different cases.
    """
    return InstructionLaunch(rule, address, condition, occurrences).classes_alike()


class AddressClass(NamedTuple):
    """Addresses: all sums of a base, an offset, and ``step * i`` for 0 <= i < ``times``."""

    bases: Array
    offsets: Array
    step: int = 0
    times: int = 1


def classes(
    address: Parts, condition: Condition, occurrences: Occurrences
) -> Iterator[AddressClass]:
    """The addresses of one instruction.

    Raises:
        TooLargeError: the launch has too many different cases.
    """
    return InstructionLaunch(ANYWHERE, address, condition, occurrences).classes()


ANYWHERE = CountingRule(1 << 62, lambda addresses, lanes: np.zeros(len(addresses), np.int64))


class InstructionLaunch:
    """One instruction in a launch, with the rule that it is counted by."""

    def __init__(
        self, rule: CountingRule, address: Parts, condition: Condition, occurrences: Occurrences
    ):
        self.rule = rule
        self.shape = occurrences.dimensions
        self.rank = len(self.shape)
        self.address = address
        self.condition = condition

    # ------------------------------------------------------------ classes

    def run(self) -> Counted:
        """Count all warps."""
        tally = _Tally(self.rule)
        for rows in self._rows():
            tally.add(*rows)
        return tally.result()

    def classes_alike(self) -> tuple[AlikeClasses, ...]:
        """The classes by the requests and transactions of one of their members."""
        merged: dict[tuple[int, int], tuple[int, int]] = {}
        for addresses, active, weights in self._rows():
            lines, lanes = _by_warp(addresses), _by_warp(active)
            some = lanes.any(axis=2)
            by_warp = np.zeros(some.shape, np.int64)
            by_warp[some] = self.rule.transactions(lines[some], lanes[some])
            each = zip(some.sum(axis=1).tolist(), by_warp.sum(axis=1).tolist(), strict=True)
            for key, weight in zip(each, weights.tolist(), strict=True):
                number, members = merged.get(key, (0, 0))
                merged[key] = number + 1, members + weight
        return tuple(AlikeClasses(*merged[key], *key) for key in sorted(merged))

    def _rows(self) -> Iterator[tuple[Array, Lanes, Array]]:
        """Addresses, lanes that take part, and weights, some classes at a time.

        Classes are of blocks and iterations; lane by lane where they cannot be told.
        """
        by_lane, elsewhere = self.split(self.address)
        features = [remainders(term, self.rule.period) for term in elsewhere]
        try:
            tree = self.classify(self.condition, features) if by_lane is not None else None
        except MixedError:
            tree = None
        if by_lane is None or tree is None:
            yield from self.lane_by_lane()
            return
        codes, weights = self._joint(features, [a for a in range(self.rank) if a != THREAD])
        step = max(1, _CHUNK // self.shape[THREAD])
        for start in range(0, len(codes), step):
            some = codes[start : start + step]
            active = np.broadcast_to(tree.lanes(some), (len(some), self.shape[THREAD]))
            addresses = by_lane[None, :] + some[:, : len(elsewhere)].sum(axis=1)[:, None]
            yield addresses, active, weights[start : start + step]

    def split(self, value: Parts) -> tuple[Array | None, list[Term]]:
        """A value as an array over threads and terms over the other axes, if it is such a sum."""
        others = [term for axes, term in value.terms.items() if THREAD not in axes]
        threads = value.terms.get((THREAD,))
        if (threads is not None) + len(others) != len(value.terms):
            return None, []
        if threads is None:
            return np.zeros(self.shape[THREAD], np.int64), others
        return array_of(threads).reshape(-1), others

    def classify(self, condition: Condition, features: list[Feature]) -> Tree:
        """The tree with, for each leaf, which feature decides it, and its lanes for each code.

        The features are appended to ``features``.
        """
        if condition.kind != "leaf":
            operands = tuple(self.classify(o, features) for o in condition.operands)
            return Tree(condition.kind, operands=operands)
        assert condition.leaf is not None
        by_lane, others = self.split(condition.leaf.value)
        if by_lane is None:
            raise MixedError
        nothing = np.zeros((1,) * self.rank, np.int64)
        levels, rank = np.unique(by_lane, return_inverse=True)
        features.append(codes(condition.leaf.kind, levels, parts.of_arrays([nothing, *others])))
        return Tree(condition.leaf.kind, feature=len(features) - 1, rank=rank.reshape(-1))

    def _joint(self, given: Sequence[Feature], axes: list[int]) -> tuple[Array, Array]:
        """Distinct rows of feature values over blocks × iterations, with how often each occurs."""
        tables: list[tuple[list[int], Array, Array]] = []  # features, distinct rows, counts
        rising: dict[int, list[int]] = {}
        for axis in axes:
            some = along(given, axis)
            chosen = representatives(some) if some is not None else None
            if some is not None and chosen is not None:
                columns = [i for i, feature in enumerate(given) if axis in axes_along(feature)]
                rows = np.stack([feature.at(chosen[0]) for feature in some], axis=1)
                tables.append((columns, *alike(rows, chosen[1])))
                rising[axis] = columns
        done = {i for columns in rising.values() for i in columns}
        nothing = np.zeros((1,) * self.rank, np.int64)
        features = [nothing if i in done else made(feature) for i, feature in enumerate(given)]
        alone: dict[int, list[int]] = {axis: [] for axis in axes}
        mixed: list[int] = []
        fixed: list[int] = []
        for index, feature in enumerate(features):
            varies = axes_of(feature)
            if index in done:
                continue
            if not varies:
                fixed.append(index)
            elif len(varies) == 1:
                alone[varies[0]].append(index)
            else:
                mixed.append(index)
        involved = {a for i in mixed for a in axes_of(features[i])}
        for axis in axes:
            columns = alone[axis]
            if axis in involved or axis in rising:
                continue
            if columns:
                distinct, counts = distinct_rows([features[i].reshape(-1) for i in columns])
            else:
                distinct = np.zeros((1, 0), np.int64)
                counts = np.array([self.shape[axis]])
            tables.append((columns, distinct, counts))
        if mixed:
            tables.append(self._mixed_table(features, alone, mixed, sorted(involved)))
        return self._product(features, fixed, tables)

    def _mixed_table(
        self,
        features: list[Array],
        alone: dict[int, list[int]],
        mixed: list[int],
        involved: list[int],
    ) -> tuple[list[int], Array, Array]:
        columns = [*mixed, *(i for axis in involved for i in alone[axis])]
        extent = [self.shape[a] if a in involved else 1 for a in range(self.rank)]
        if int(np.prod(extent)) * len(columns) > parts.LARGEST * 4:
            raise TooLargeError
        code = np.zeros(extent, np.int64)
        for index in columns:
            levels, inverse = np.unique(features[index], return_inverse=True)
            code = code * len(levels) + inverse.reshape(features[index].shape)
            if int(code.max(initial=0)) > 1 << 40:
                _, packed = np.unique(code, return_inverse=True)
                code = packed.reshape(code.shape)
        _, first, counts = np.unique(code, return_index=True, return_counts=True)
        spread_out = [np.broadcast_to(features[i], extent).reshape(-1)[first] for i in columns]
        return columns, np.stack(spread_out, axis=1), counts

    def _product(
        self,
        features: list[Array],
        fixed: list[int],
        tables: list[tuple[list[int], Array, Array]],
    ) -> tuple[Array, Array]:
        total = reduce(lambda n, table: n * len(table[2]), tables, 1)
        if total * self.shape[THREAD] > _MOST_LANES:
            raise TooLargeError
        rows = np.zeros((total, len(features)), np.int64)
        weights = np.ones(total, np.int64)
        for index in fixed:
            rows[:, index] = features[index].reshape(-1)[0]
        inner, outer = total, 1
        for columns, distinct, counts in tables:
            inner //= len(counts)
            shape = (outer, len(counts), inner)
            for place, index in enumerate(columns):
                rows[:, index].reshape(shape)[:] = distinct[:, place, None]
            weights.reshape(shape)[:] *= counts[:, None]
            outer *= len(counts)
        return rows, weights

    def classes(self) -> Iterator[AddressClass]:
        """Bases with the offsets of the lanes that take part, by class."""
        by_lane, elsewhere = self.split(self.address)
        codes: list[Feature] = []
        try:
            tree = self.classify(self.condition, codes) if by_lane is not None else None
        except MixedError:
            tree = None
        if by_lane is None or tree is None:
            for addresses, active, _ in self.lane_by_lane():
                yield AddressClass(addresses[active], np.zeros(1, np.int64))
            return
        for steps, count, first, some in self._stretches(elsewhere, codes):
            others: list[Feature] = [array_of(t) for t in elsewhere if t is not steps]
            step = steps.step if steps is not None else 0
            for bases, lanes in self._by_outcome(others, some, tree):
                yield AddressClass(
                    bases + step * first, distinct_numbers(by_lane[lanes]), step, count
                )

    def _stretches(
        self, elsewhere: list[Term], codes: list[Feature]
    ) -> Iterator[tuple[Steps | None, int, int, list[Feature]]]:
        """Stretches of the axis along which the address has steps, in which all codes are alike.

        Each with the steps, its length, its first place, and the codes there; or all in one.
        """
        steps = next((term for term in elsewhere if isinstance(term, Steps)), None)
        if steps is None:
            yield None, 1, 0, codes
            return
        there = [code for code in codes if steps.axis in axes_along(code)]
        others = [term for term in elsewhere if term is not steps]
        rising = along(codes, steps.axis) or []
        crossed = any(steps.axis in axes_of(array_of(term)) for term in others)
        edges = cuts(rising) if rising else np.array([0, steps.length])
        if len(rising) < len(there) or crossed or len(edges) > _MOST_STRETCHES:
            yield None, 1, 0, codes
            return
        shape = (1,) * self.rank
        for begin, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
            at = np.array([begin])
            here: list[Feature] = [
                code
                if isinstance(code, np.ndarray) or code.steps.axis != steps.axis
                else code.at(at).reshape(shape)
                for code in codes
            ]
            yield steps, end - begin, begin, here

    def _by_outcome(
        self, addresses: list[Feature], codes: list[Feature], tree: Tree
    ) -> Iterator[tuple[Array, Lanes]]:
        """Sums of the addresses with the lanes that take part, by outcome of the comparisons."""
        rows, _ = self._joint([*codes, *addresses], [a for a in range(self.rank) if a != THREAD])
        outcomes = rows[:, : len(codes)]
        if bool((outcomes != outcomes[0]).any()):
            order = np.lexsort(outcomes.T)
            rows, outcomes = rows[order], outcomes[order]
        changes = np.any(outcomes[1:] != outcomes[:-1], axis=1)
        for group in np.split(rows, np.flatnonzero(changes) + 1):
            lanes = np.broadcast_to(tree.lanes(group[:1]), (1, self.shape[THREAD]))[0]
            if lanes.any():
                yield group[:, len(codes) :].sum(axis=1), lanes

    # ------------------------------------------------------------ lanes

    def lane_by_lane(self) -> Iterator[tuple[Array, Lanes, Array]]:
        """Addresses, lanes that take part, and weights of 1, a part of the blocks at a time."""
        lanes = int(np.prod([int(n) for n in self.shape]))
        if lanes > _MOST_LANES // 8:
            raise TooLargeError
        per_block = max(1, lanes // self.shape[BLOCK])
        step = max(1, _CHUNK // per_block)
        for start in range(0, self.shape[BLOCK], step):
            blocks = slice(start, start + step)
            address = sum(
                (cut(term, blocks) for term in self.address.terms.values()),
                start=np.zeros((1,) * self.rank, np.int64),
            )
            active = spread(cut_condition(self.condition, blocks), self.rank)
            extent = (min(step, self.shape[BLOCK] - start), *self.shape[1:])
            rows = [
                np.moveaxis(np.broadcast_to(a, extent), THREAD, -1).reshape(-1, self.shape[THREAD])
                for a in (address, active)
            ]
            yield rows[0], rows[1].astype(bool), np.ones(len(rows[0]), np.int64)


L = TypeVar("L", Array, Lanes)


def _by_warp(lanes: L) -> L:
    """(rows, threads) as (rows, warps, 32); threads that fill up the last warp are 0."""
    missing = -lanes.shape[1] % WARP
    return np.pad(lanes, ((0, 0), (0, missing))).reshape(len(lanes), -1, WARP)


class _Tally:
    def __init__(self, rule: CountingRule) -> None:
        self.rule = rule
        self.by_number: defaultdict[int, int] = defaultdict(int)  # executions, by transactions
        self.threads = 0

    def add(self, addresses: Array, active: Lanes, weights: Array) -> None:
        """Count rows of (rows, threads), each ``weights`` times."""
        self.threads += int((active.sum(axis=1) * weights).sum())
        off = addresses % self.rule.alignment if self.rule.alignment > 1 else None
        if off is not None and bool((off[active] != 0).any()):
            raise MisalignedError(f"misaligned: not a multiple of {self.rule.alignment} bytes")
        lanes = _by_warp(active)
        some = lanes.any(axis=2)
        transactions = self.rule.transactions(_by_warp(addresses)[some], lanes[some])
        warps = np.broadcast_to(weights[:, None], some.shape)[some]
        for number in np.unique(transactions).tolist():
            self.by_number[number] += int(warps[transactions == number].sum())

    def result(self) -> Counted:
        requests = sum(self.by_number.values())
        transactions = sum(n * amount for n, amount in self.by_number.items())
        return Counted(requests, transactions, self.threads, dict(sorted(self.by_number.items())))
