"""THE table of SASS instructions: one row per mnemonic, and what follows from it.

NVIDIA documents the mnemonics alone ("CUDA Binary Utilities", chapter "Instruction Set Reference",
Volta to Blackwell); which operands are written and how many registers they cover was read off
listings, and is tested against the register life ranges that ``nvdisasm -plr`` prints.

The reader knows nothing of this: a mnemonic that has no row still parses and is counted, and
`lookup` returns None for it. To add an instruction, add it to a line of `_TABLE`.
"""

from __future__ import annotations

from dataclasses import dataclass

from kanalyze.sass.ir import Keyword, SassImmediate, SassInstruction, SassLabel


@dataclass(frozen=True, slots=True)
class SassMnemonic:
    """What is known of a mnemonic.

    ``kind`` is the class: integer, float, half, double, tensor, convert, move, predicate, warp,
    global, shared, local, generic, const, tensor_memory, texture, surface, control, sync, cache,
    special. A uniform instruction (one result for the warp) has the class of what it does and
    ``uniform`` set.

    ``writes`` says which operands are written: "none", "first", "two", "lead" (predicates, then at
    most one register), "carry" (a register, then the predicates behind it), "vote" (all but the
    last), "mask" (predicates by mask).
    ``width`` says how many registers an operand covers, see `kanalyze.sass.registers`.
    """

    mnemonic: str
    kind: str
    writes: str
    width: str
    uniform: bool


# kind, writes, width, mnemonics
_TABLE: tuple[tuple[str, str, str, str], ...] = (
    ("integer", "carry", "64", "IADD IADD3 UIADD3 VIADD IADD2 UVIADD"),
    ("integer", "carry", "wide", "IMAD UIMAD IMUL"),
    ("integer", "carry", "64", "LEA ULEA VIMNMX VIMNMX3 UVIMNMX UVIMNMX3 VIADDMNMX IMNMX UIMNMX"),
    ("integer", "lead", "64", "LOP3 ULOP3"),
    ("integer", "first", "", "IABS UIABS SHF USHF SHL SHR USHL USHR BMSK UBMSK BREV UBREV FLO UFLO "
     "IDP IDP4A POPC UPOPC SGXT USGXT VABSDIFF VABSDIFF4 SCADD LOP ULOP ISCADD VHMNMX"),
    ("predicate", "two", "64", "ISETP UISETP"),
    ("predicate", "two", "", "FSETP UFSETP PSETP UPSETP HSETP2 UHSETP2 PLOP3 UPLOP3"),
    ("predicate", "two", "double", "DSETP UDSETP"),
    ("predicate", "first", "", "FCHK"),
    ("float", "first", "", "FADD FADD32I FFMA FFMA32I FMNMX FMNMX3 FMUL FMUL32I FSET FSWZADD MUFU "
     "UFADD UFFMA UFMUL UFMNMX UFSET RRO"),
    ("float", "first", "packed", "FADD2 FMUL2 FFMA2"),
    ("half", "first", "", "HADD2 HADD2_32I HFMA2 HFMA2_32I HMNMX2 HMUL2 HMUL2_32I HSET2 UHADD2 "
     "UHFMA2 UHMUL2"),
    ("double", "first", "double", "DADD DFMA DMUL DMNMX CLMAD"),
    ("tensor", "first", "matrix", "HMMA IMMA BMMA DMMA QMMA OMMA FMMA"),
    ("tensor", "first", "warpgroup", "HGMMA IGMMA QGMMA BGMMA"),
    ("tensor", "none", "tcgen", "UTCHMMA UTCIMMA UTCQMMA UTCOMMA UTCMXQMMA"),
    ("tensor_memory", "first", "tmem", "LDTM"),
    ("tensor_memory", "none", "tmem", "STTM"),
    ("tensor_memory", "none", "", "UTCCP UTCSHIFT UTCLDSWS UTCSTSWS"),
    ("tensor_memory", "lead", "", "UTCATOMSWS"),
    ("convert", "first", "convert", "F2F F2I I2F I2I F2IP I2FP I2IP FRND UF2F UF2I UI2F UI2I UI2FP "
     "UF2IP UFRND UI2IP"),
    ("convert", "first", "", "F2FP UF2FP CVTA"),
    ("move", "first", "64", "MOV UMOV SEL USEL MOV32I"),
    ("move", "first", "", "MOVM PRMT UPRMT FSEL UFSEL S2R S2UR BMOV LEPC GETLMEMBASE B2R CS2R "
     "CS2UR"),
    ("move", "none", "", "SETLMEMBASE SETCTAID R2B"),
    ("move", "first", "", "P2R UP2UR UP2R"),
    ("move", "mask", "", "R2P UR2UP"),
    ("move", "lead", "64", "R2UR"),
    ("warp", "lead", "", "SHFL MATCH REDUX CREDUX ELECT"),
    ("warp", "vote", "", "VOTE VOTEU"),
    ("global", "first", "memory", "LDG"),
    ("global", "lead", "memory", "ATOMG"),
    ("global", "none", "memory", "STG RED REDG LDGSTS STAS LDGMC"),
    ("global", "none", "bulk", "UBLKCP UBLKRED UBLKPF UTMALDG UTMASTG UTMAREDG UTMAPF"),
    ("shared", "first", "memory", "LDS LDSM"),
    ("shared", "none", "memory", "STS STSM"),
    ("shared", "lead", "memory", "ATOMS"),
    ("local", "first", "memory", "LDL"),
    ("local", "none", "memory", "STL"),
    ("generic", "first", "memory", "LD"),
    ("generic", "none", "memory", "ST"),
    ("generic", "lead", "memory", "ATOM QSPC"),
    ("const", "first", "memory", "LDC ULDC LDCU"),
    ("texture", "two", "texture", "TEX TLD TLD4 TMML TXD TXQ"),
    ("surface", "first", "texture", "SULD SUATOM SUQUERY"),
    ("surface", "none", "texture", "SUST SURED"),
    ("control", "none", "jump", "BRX BRXU CALL JMX JMXU RET"),
    ("control", "none", "", "BRA JMP EXIT KILL BREAK BSSY BSYNC BPT RPCMOV RTT NANOSLEEP YIELD "
     "WARPSYNC PREEXIT NOP ACQBULK ACQSHMINIT ENDCOLLECTIVE WARPGROUPSET USETMAXREG UBRA UCALL"),
    ("sync", "none", "", "BAR DEPBAR LDGDEPBAR ERRBAR MEMBAR FENCE WARPGROUP UTMACMDFLUSH "
     "CGAERRBAR ARRIVES UTCBAR UCGABAR_ARV UCGABAR_WAIT CGABAR_ARV CGABAR_GET CGABAR_SET "
     "CGABAR_WAIT UDEPBAR USETSHMSZ UGETNEXTWORKID UVIRTCOUNT UMEMSETS"),
    ("sync", "lead", "memory", "SYNCS SYNCSU"),
    ("cache", "none", "memory", "CCTL CCTLL CCTLT UTMACCTL DISCARD PREFETCH"),
    ("special", "none", "", "PMTRIG"),
)  # fmt: skip

TABLE: dict[str, SassMnemonic] = {
    mnemonic: SassMnemonic(
        mnemonic,
        kind,
        writes,
        width,
        uniform=(mnemonic.startswith("U") or mnemonic in ("LDCU", "VOTEU", "S2UR", "R2UR", "REDUX",
                                                          "CREDUX", "CS2UR")),
    )
    for kind, writes, width, mnemonics in _TABLE
    for mnemonic in mnemonics.split()
}  # fmt: skip


def lookup(instruction: SassInstruction) -> SassMnemonic | None:
    """Return the row of an instruction's mnemonic, None if there is none."""
    return TABLE.get(instruction.base)


def classify(instruction: SassInstruction) -> str | None:
    """Return the class of an instruction (`SassMnemonic.kind`), None if its mnemonic has no row.

    ``IMAD.MOV``, ``HFMA2.MMA`` with zeros… are arithmetic here: they take an arithmetic unit, even
    where they only move a value.
    """
    row = TABLE.get(instruction.base)
    return None if row is None else row.kind


def tensor_core(instruction: SassInstruction) -> str | None:
    """Return which tensor core instruction multiplies here: "mma", "wgmma", "tcgen05" or None."""
    row = TABLE.get(instruction.base)
    if row is None or row.kind != "tensor":
        return None
    return {"matrix": "mma", "warpgroup": "wgmma"}.get(row.width, "tcgen05")


# ---------------------------------------------------------------- control

_JUMPS = frozenset(("BRA", "JMP", "UBRA"))
_INDIRECT = frozenset(("BRX", "BRXU", "JMX", "JMXU"))
_LEAVES = frozenset(("EXIT", "KILL"))


def control(instruction: SassInstruction) -> str | None:
    """Return what an instruction does to the flow of control.

    One of "branch", "indirect", "exit", "return", "call"; None for everything that goes on with
    the next instruction (``BSSY``, ``WARPSYNC``, ``BPT.TRAP``… among them).
    """
    base = instruction.base
    if base in _JUMPS:
        return "branch"
    if base in _INDIRECT:
        return "indirect"
    if base in _LEAVES:
        return "exit"
    return {"RET": "return", "CALL": "call", "UCALL": "call"}.get(base)


def may_fall_through(instruction: SassInstruction) -> bool:
    """Tell whether an instruction that changes the flow may go on with the next one instead.

    It may under a guard that is no constant (``@P0 BRA``), under a condition among its operands
    (``BRA P1, …``, ``BRA.U UP0, …``, ``BRA.DIV UR4, …``), and a call returns.
    """
    guard = instruction.guard
    if guard is not None and not (guard.name in ("PT", "UPT") and not guard.negated):
        return True
    kind = control(instruction)
    if kind == "branch":
        return any(
            not isinstance(o, SassLabel | SassImmediate | Keyword) for o in instruction.operands
        )
    return False


def never_executed(instruction: SassInstruction) -> bool:
    """Tell whether the guard is the constant false: ``@!PT LDS RZ, [RZ]``, a dummy."""
    guard = instruction.guard
    return guard is not None and guard.negated and guard.name in ("PT", "UPT")


def branch_targets(instruction: SassInstruction) -> tuple[str | int, ...]:
    """Return the labels (or addresses, from cuobjdump) that an instruction may jump to."""
    kind = control(instruction)
    operands = instruction.operands
    if kind in ("branch", "call"):
        last = operands[-1] if operands else None
        if isinstance(last, SassLabel):
            return (last.name,)
        if isinstance(last, SassImmediate) and isinstance(last.value, int):
            return (last.value,)
        return ()
    if kind == "indirect":
        for operand in operands:
            if isinstance(operand, Keyword) and "BRANCH_TARGETS" in operand.text:
                listed = operand.text.replace('"', " ").replace("*", " ").strip("() ")
                names = listed.partition("BRANCH_TARGETS")[2].replace(",", " ").split()
                return tuple(dict.fromkeys(names))
    return ()
