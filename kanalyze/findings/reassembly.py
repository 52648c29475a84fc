"""PTX with other opcodes, assembled: what the machine code makes of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

from kanalyze.errors import KanalyzeError, Unknown
from kanalyze.findings.facts import Facts
from kanalyze.ptx import ir
from kanalyze.sass.code import Code, read_code
from kanalyze.sass.memory import memory_access
from kanalyze.toolchain import ptxas


def with_opcodes(facts: Facts, opcodes: Mapping[int, tuple[str, str]]) -> str:
    """The text of the module with the opcode of some lines replaced, (old, new) by line."""
    lines = facts.subject.module.text.splitlines()
    for number, (old, new) in opcodes.items():
        opcode = re.compile(rf"(?<![\w.]){re.escape(old)}(?![\w.])")
        lines[number - 1] = opcode.sub(new, lines[number - 1], count=1)
    return "\n".join(lines) + "\n"


def accesses_assembled(facts: Facts, text: str) -> Counter[tuple[str, str]] | Unknown:
    """Accesses of the kernel in the machine code of a text, by space and kind; else why not."""
    if len(re.findall(r"(?m)^\s*\.version\b", text)) != 1:
        return Unknown("the file holds several modules")
    try:
        made = ptxas.assemble(text, of_triton=facts.compiled is not None)
        code = read_code(made.cubin, "assembled anew")
    except KanalyzeError as error:
        return Unknown(str(error))
    return accesses_in(code, facts.function)


def accesses_in(code: Code, function: ir.Function) -> Counter[tuple[str, str]]:
    """Accesses of a kernel in its machine code, by space and kind."""
    counts: Counter[tuple[str, str]] = Counter()
    for mine in code.module.functions:
        if mine.name != function.name:
            continue
        for instruction in mine.instructions:
            access = memory_access(instruction)
            if access is not None and not access.dummy:
                counts[access.space, access.kind] += 1
    return counts
