"""Names for what registers hold: the webs of definitions and uses.

The assembler uses a register for many things in turn. Definitions that reach a common use belong
to one web; a web is named by its unit and a number: ``R5.3``.
"""

from __future__ import annotations

from kanalyze.sass.cfg import SassCfg
from kanalyze.sass.ir import SassAddress, SassInstruction
from kanalyze.sass.memory import memory_access
from kanalyze.sass.registers import definitions, uses
from kanalyze.sass.table import branch_targets, control

_CALLED = frozenset([*range(16), *range(32, 256)])  # registers that a called function may change


class Webs:
    """Names for what registers hold: one for all definitions that reach a common use.

    A guarded definition leaves the old value where the guard is off, so it shares its name.
    ``slots`` gives, for each ``STL`` and ``LDL``, the words of the stack that it moves, as units of
    their own (``L4`` is the word 16 bytes from the stack pointer).
    """

    def __init__(self, cfg: SassCfg):
        self.cfg = cfg
        self.slots = _stack_slots(cfg)
        self.defined: dict[int, tuple[str, ...]] = {}  # address → units
        self._parents: list[int] = []
        self._names: list[str] = []
        self._uses: dict[tuple[int, str], int] = {}
        self._definitions: dict[tuple[int, str], int] = {}
        ways = self._reaching()
        for block in cfg.blocks:
            here = dict(ways.get(block.index, {}))
            for instruction in block.instructions:
                for unit in (*uses(instruction), *self._loaded(instruction)):
                    self._use(instruction.address, unit, here)
                for unit in self.defined[instruction.address]:
                    own = self._definitions[instruction.address, unit]
                    if instruction.guard is not None:
                        for other in here.get(unit, ()):
                            self._join(own, other)
                    here[unit] = frozenset([own])

    def _reaching(self) -> dict[int, dict[str, frozenset[int]]]:
        """For each block the definitions of every unit that reach its entry."""
        last: dict[int, dict[str, frozenset[int]]] = {}
        for block in self.cfg.blocks:
            here: dict[str, frozenset[int]] = {}
            for instruction in block.instructions:
                units = self._written_by(instruction)
                self.defined[instruction.address] = units
                for unit in units:
                    number = len(self._parents)
                    self._parents.append(number)
                    self._names.append(unit)
                    self._definitions[instruction.address, unit] = number
                    here[unit] = frozenset([number])
            last[block.index] = here
        entries: dict[int, dict[str, frozenset[int]]] = {}
        changed = True
        while changed:
            changed = False
            for index in self.cfg.order:
                arriving: dict[str, frozenset[int]] = {}
                for before in self.cfg.graph.predecessors(index):
                    if before not in last:
                        continue
                    for unit, numbers in {**entries.get(before, {}), **last[before]}.items():
                        arriving[unit] = arriving.get(unit, frozenset()) | numbers
                if arriving != entries.get(index, {}):
                    entries[index] = arriving
                    changed = True
        return entries

    def _loaded(self, instruction: SassInstruction) -> tuple[str, ...]:
        return self.slots.get(instruction.address, ()) if instruction.base == "LDL" else ()

    def _written_by(self, instruction: SassInstruction) -> tuple[str, ...]:
        if instruction.base == "STL" and self.slots:
            return self.slots.get(instruction.address, ())
        return _defined(instruction)

    def _use(self, address: int, unit: str, here: dict[str, frozenset[int]]) -> None:
        numbers = sorted(here.get(unit, ()))
        if numbers:
            self._uses[address, unit] = numbers[0]
            for other in numbers[1:]:
                self._join(numbers[0], other)

    def _root(self, number: int) -> int:
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number

    def _join(self, one: int, other: int) -> None:
        first, second = sorted((self._root(one), self._root(other)))
        self._parents[second] = first

    def _name(self, number: int) -> str:
        root = self._root(number)
        return f"{self._names[root]}.{root}"

    def written(self, instruction: SassInstruction, unit: str) -> str:
        """The name of what an instruction writes to a unit."""
        return self._name(self._definitions[instruction.address, unit])

    def read(self, instruction: SassInstruction, unit: str) -> str:
        """The name of what an instruction reads from a unit (its own if nothing is there)."""
        number = self._uses.get((instruction.address, unit))
        return unit if number is None else self._name(number)


def _defined(instruction: SassInstruction) -> tuple[str, ...]:
    if control(instruction) == "call" and not branch_targets(instruction):
        return (*(f"R{n}" for n in sorted(_CALLED)), *(f"P{n}" for n in range(7)))
    return definitions(instruction)


def _stack_slots(cfg: SassCfg) -> dict[int, tuple[str, ...]]:
    """The words that each ``STL`` and ``LDL`` moves, by its address.

    None where the stack holds more than spilled registers: where its pointer, R1, is used for
    anything but such accesses, or they are of another width than whole words.
    """
    slots: dict[int, tuple[str, ...]] = {}
    for block in cfg.blocks:
        for instruction in block.instructions:
            access = memory_access(instruction)
            if access is not None and access.space == "local":
                place = access.address
                size = access.bytes_per_thread or 0
                if not isinstance(place, SassAddress) or size % 4 or place.offset % 4:
                    return {}
                if [register.name for register in place.registers] != ["R1"]:
                    return {}
                first = place.offset // 4
                slots[instruction.address] = tuple(f"L{first + i}" for i in range(size // 4))
            elif "R1" in uses(instruction) and _defined(instruction) != ("R1",):
                return {}
    return slots
