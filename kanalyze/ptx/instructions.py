"""THE table of PTX instructions: one row per mnemonic of the manual, and what follows from it.

The parser knows nothing of this: a mnemonic that has no row still parses and is counted, and
`lookup` returns None for it. To add an instruction, add it to a line of `_TABLE`.

Where an instruction is used with types of several classes (``add.s32``, ``add.f16``), its row says
"arithmetic" and `classify` decides by the type.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kanalyze.ptx.ir import Address, Immediate, Instruction, Name, Not, Operand, Pair, Vector


@dataclass(frozen=True, slots=True)
class PtxMnemonic:
    """What is known of a mnemonic.

    ``mnemonic`` may have dots where the manual has one entry for it (``cp.async.bulk``).
    ``kind`` is the class: arithmetic (see `classify`), integer, float, half, logic, compare, move,
    memory, async_copy, tensor, control, synchronisation, warp, texture, surface, video, special.
    ``writes`` says which operands are written: "first", "none", "update" (the first is read and
    written) or "call" (the first, if it is a list). An address is never written itself.
    """

    mnemonic: str
    kind: str
    writes: str
    section: str


# kind, writes, section of the manual (PTX ISA, chapter "Instructions"), mnemonics
_TABLE: tuple[tuple[str, str, str, str], ...] = (
    ("arithmetic", "first", "Integer Arithmetic Instructions",
     "add sub mul mad div abs neg min max"),
    ("integer", "first", "Integer Arithmetic Instructions",
     "mul24 mad24 sad rem popc clz bfind fns brev bfe bfi szext bmsk dp4a dp2a"),
    ("integer", "first", "Extended-Precision Integer Arithmetic Instructions",
     "addc subc madc"),
    ("arithmetic", "first", "Floating-Point Instructions",
     "fma rcp sqrt rsqrt sin cos lg2 ex2 tanh copysign"),
    ("compare", "first", "Floating-Point Instructions", "testp"),
    ("compare", "first", "Comparison and Selection Instructions", "set setp selp slct"),
    ("logic", "first", "Logic and Shift Instructions",
     "and or xor not cnot lop3 shf shl shr"),
    ("move", "first", "Data Movement and Conversion Instructions",
     "mov prmt isspacep cvta cvt cvt.pack mapa getctarank createpolicy"),
    ("warp", "first", "Data Movement and Conversion Instructions", "shfl"),
    ("memory", "first", "Data Movement and Conversion Instructions",
     "ld ldu multimem.ld_reduce"),
    ("memory", "none", "Data Movement and Conversion Instructions",
     "st st.async st.bulk red.async multimem.st multimem.red prefetch prefetchu discard "
     "applypriority"),
    ("async_copy", "none", "Data Movement and Conversion Instructions: Asynchronous Copy",
     "cp.async cp.async.commit_group cp.async.wait_group cp.async.wait_all"),
    ("async_copy", "none", "Data Movement and Conversion Instructions: Bulk Copy",
     "cp.async.bulk cp.reduce.async.bulk cp.async.bulk.prefetch cp.async.bulk.commit_group "
     "cp.async.bulk.wait_group multimem.cp.async.bulk multimem.cp.reduce.async.bulk"),
    ("async_copy", "none", "Data Movement and Conversion Instructions: Tensor Copy",
     "cp.async.bulk.tensor cp.reduce.async.bulk.tensor cp.async.bulk.prefetch.tensor"),
    ("async_copy", "none", "Data Movement and Conversion Instructions: Tensormap",
     "tensormap.replace"),
    ("move", "first", "Data Movement and Conversion Instructions: Tensormap",
     "tensormap.query"),
    ("async_copy", "none", "Data Movement and Conversion Instructions: Fabric",
     "fabric.try_get fabric.try_put fabric.try_red fabric.try_pullred fabric.submit fabric.wait"),
    ("texture", "first", "Texture Instructions", "tex tld4 txq istypep"),
    ("surface", "first", "Surface Instructions", "suld suq"),
    ("surface", "none", "Surface Instructions", "sust sured"),
    ("control", "none", "Control Flow Instructions", "bra brx.idx brx ret exit"),
    ("control", "call", "Control Flow Instructions", "call"),
    ("synchronisation", "none", "Parallel Synchronization and Communication Instructions",
     "bar barrier barrier.cluster membar fence griddepcontrol tensormap.cp_fenceproxy "
     "cp.async.mbarrier.arrive clusterlaunchcontrol.try_cancel"),
    ("synchronisation", "first", "Parallel Synchronization and Communication Instructions",
     "bar.red barrier.red clusterlaunchcontrol.query_cancel"),
    ("synchronisation", "first",
     "Parallel Synchronization and Communication Instructions: mbarrier",
     "mbarrier mbarrier.init mbarrier.inval mbarrier.expect_tx mbarrier.complete_tx "
     "mbarrier.arrive mbarrier.arrive_drop mbarrier.test_wait mbarrier.try_wait "
     "mbarrier.pending_count"),
    ("memory", "first", "Parallel Synchronization and Communication Instructions", "atom"),
    ("memory", "none", "Parallel Synchronization and Communication Instructions", "red"),
    ("warp", "first", "Parallel Synchronization and Communication Instructions",
     "vote match activemask redux elect"),
    ("tensor", "first", "Warp Level Matrix Multiply-Accumulate Instructions",
     "wmma.load wmma.mma mma ldmatrix movmatrix"),
    ("tensor", "none", "Warp Level Matrix Multiply-Accumulate Instructions",
     "wmma.store stmatrix"),
    ("tensor", "update",
     "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions",
     "wgmma.mma_async"),
    ("tensor", "none",
     "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions",
     "wgmma.fence wgmma.commit_group wgmma.wait_group"),
    ("tensor", "first", "TensorCore 5th Generation Family Instructions", "tcgen05.ld"),
    ("tensor", "none", "TensorCore 5th Generation Family Instructions",
     "tcgen05.alloc tcgen05.dealloc tcgen05.relinquish_alloc_permit tcgen05.st tcgen05.wait "
     "tcgen05.cp tcgen05.shift tcgen05.mma tcgen05.fence tcgen05.commit"),
    ("special", "first", "Stack Manipulation Instructions", "stacksave alloca"),
    ("special", "none", "Stack Manipulation Instructions", "stackrestore"),
    ("video", "first", "Scalar Video Instructions",
     "vadd vsub vabsdiff vmin vmax vshl vshr vmad vset"),
    ("video", "first", "SIMD Video Instructions",
     "vadd2 vsub2 vavrg2 vabsdiff2 vmin2 vmax2 vset2 vadd4 vsub4 vavrg4 vabsdiff4 vmin4 vmax4 "
     "vset4"),
    ("special", "none", "Miscellaneous Instructions", "brkpt nanosleep pmevent setmaxnreg"),
    ("control", "none", "Miscellaneous Instructions", "trap"),
)  # fmt: skip

#: Every row by its mnemonic.
ROWS: dict[str, PtxMnemonic] = {
    mnemonic: PtxMnemonic(mnemonic, kind, writes, section)
    for kind, writes, section, mnemonics in _TABLE
    for mnemonic in mnemonics.split()
}

_LEAST_OPERANDS = {
    mnemonic: count
    for count, mnemonics in (
        (2, "ld ldu st mov abs neg not cnot rcp sqrt rsqrt sin cos lg2 ex2 tanh popc clz bfind "
            "brev cvt cvta isspacep testp red"),
        (3, "add sub mul min max div rem and or xor shl shr set setp mul24 addc subc copysign "
            "atom"),
        (4, "mad fma selp slct sad bfe prmt shf mad24 madc shfl"),
        (5, "bfi lop3"),
    )
    for mnemonic in mnemonics.split()
}  # fmt: skip
_OF_ADDRESSES = frozenset({"ld", "ldu", "st", "atom", "red"})

TERMINATORS = frozenset({"bra", "brx", "ret", "exit", "trap"})

_TYPE = re.compile(r"(?:[busf]|bf|tf|e\dm\d|ue\dm\d)(\d+)?(?:x(\d+))?(?:_p\d+)?$")
_COMPONENT = re.compile(r"\.(?:[xyzwrgba]|b[0-3]|h[01])$")
_NAMES = re.compile(r"[A-Za-z_$%][\w$]*(?:\.\w+)?")
_SPECIAL = re.compile(
    r"%(?:tid|ntid|ctaid|nctaid|clusterid|nclusterid|cluster_ctaid|cluster_nctaid)\.[xyz]$"
)


@lru_cache(maxsize=8192)
def row_of(opcode: str) -> PtxMnemonic | None:
    """Return the row of a full opcode (``cp.async.bulk.tensor.2d.…``): the most specific one."""
    parts = [part.partition("::")[0] for part in opcode.split(".")]
    if parts[0] in ("bar", "barrier"):
        parts = [p for p in parts if p in ("bar", "barrier", "cluster", "red")]
    for length in range(min(len(parts), 5), 0, -1):
        row = ROWS.get(".".join(parts[:length]))
        if row is not None:
            return row
    return None


def lookup(instruction: Instruction) -> PtxMnemonic | None:
    """Return the table's row of an instruction; None if its mnemonic is not understood."""
    return row_of(instruction.opcode)


def least_operands(opcode: str) -> tuple[int, bool]:
    """Return how many operands an instruction has at least, and whether one is an address.

    0 where the syntax in the manual (PTX ISA, "Instruction Set") leaves it open.
    """
    base = opcode.partition(".")[0]
    return _LEAST_OPERANDS.get(base, 0), base in _OF_ADDRESSES


def classify(instruction: Instruction) -> str | None:
    """Return the class of an instruction, "arithmetic" resolved by its type; None if unknown."""
    row = row_of(instruction.opcode)
    if row is None:
        return None
    return _arithmetic(instruction.opcode) if row.kind == "arithmetic" else row.kind


@lru_cache(maxsize=8192)
def _arithmetic(opcode: str) -> str:
    types = [part for part in opcode.split(".")[1:] if _TYPE.match(part)]
    if any(t.startswith(("f16", "bf16")) for t in types):
        return "half"
    return "float" if any(t[0] in "fte" for t in types) else "integer"


# ---------------------------------------------------------------- registers read and written


def register_name(text: str) -> str:
    """Return a name without its component: ``%v.x`` is ``%v``, but ``%tid.x`` stays."""
    if "." not in text or _SPECIAL.match(text):
        return text
    return _COMPONENT.sub("", text)


def operand_names(operand: Operand) -> Iterator[str]:
    """Yield the names in an operand, address bases and coordinates included."""
    match operand:
        case Name():
            if operand.text != "_":
                yield register_name(operand.text)
        case Immediate():
            if operand.value is None:
                yield from (register_name(n) for n in _NAMES.findall(operand.text))
        case Address():
            yield from operand_names(operand.base)
            for item in operand.coordinates:
                yield from operand_names(item)
        case Vector():
            for item in operand.items:
                yield from operand_names(item)
        case Pair():
            yield from operand_names(operand.first)
            yield from operand_names(operand.second)
        case Not():
            yield from operand_names(operand.operand)


def _has_result(instruction: Instruction, row: PtxMnemonic | None) -> bool:
    """Tell whether the first operand is written."""
    operands = instruction.operands
    if not operands or isinstance(operands[0], Address | Immediate):
        return False
    writes = "first" if row is None else row.writes
    if writes == "call":
        return isinstance(operands[0], Vector) and len(operands) > 1
    return writes in ("first", "update")


def definitions(instruction: Instruction) -> tuple[str, ...]:
    """Return the registers that an instruction writes (``_`` is none).

    An unknown mnemonic is taken to write its first operand, unless that is an address.
    """
    if not _has_result(instruction, row_of(instruction.opcode)):
        return ()
    return tuple(operand_names(instruction.operands[0]))


def uses(instruction: Instruction) -> tuple[str, ...]:
    """Return the names that an instruction reads: guard, sources, address bases; each once.

    Special registers and variables (``mov.b64 %rd1, smem``) are among them; the labels of
    branches and the names of called functions are not.
    """
    row = row_of(instruction.opcode)
    operands = instruction.operands
    if _has_result(instruction, row) and (row is None or row.writes != "update"):
        operands = operands[1:]
    names: list[str] = [instruction.guard.name] if instruction.guard else []
    base = instruction.base
    if base == "bra":
        operands = ()
    elif base == "brx":
        operands = operands[:1]
    elif base == "call":
        names.extend(_call_uses(operands))
        operands = ()
    for operand in operands:
        names.extend(operand_names(operand))
    return tuple(dict.fromkeys(names))


def _call_uses(operands: tuple[Operand, ...]) -> Iterator[str]:
    """Yield what a call reads: an indirect target (with ``%``) and the arguments."""
    for operand in operands:
        if isinstance(operand, Vector):
            yield from operand_names(operand)
        elif isinstance(operand, Name) and operand.text.startswith("%"):
            yield operand.text


def branch_targets(instruction: Instruction) -> tuple[str, ...]:
    """Return the labels that a ``bra`` names; for ``brx.idx``, the label of its target list."""
    operands = instruction.operands
    if instruction.base == "bra" and operands:
        return (operands[0].text,) if isinstance(operands[0], Name) else ()
    if instruction.base == "brx" and len(operands) > 1:
        return tuple(operand_names(operands[1]))
    return ()


def is_branch(instruction: Instruction) -> bool:
    """Tell whether an instruction may jump to a label."""
    return instruction.base in ("bra", "brx")


def is_terminator(instruction: Instruction) -> bool:
    """Tell whether an instruction ends a block; a predicated one may fall through."""
    return instruction.base in TERMINATORS


def tensor_core(instruction: Instruction) -> str | None:
    """Return which tensor core instruction multiplies here: "mma", "wgmma", "tcgen05" or None.

    ``wmma.mma`` is "mma"; fences, commits, loads and copies are none.
    """
    opcode = instruction.opcode
    if opcode.startswith(("mma.", "wmma.mma.")):
        return "mma"
    if opcode.startswith("wgmma.mma_async"):
        return "wgmma"
    return "tcgen05" if re.match(r"tcgen05\.mma\b", opcode) else None
