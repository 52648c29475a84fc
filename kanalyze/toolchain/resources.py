"""What a kernel needs, as ptxas and cuobjdump report it."""

from __future__ import annotations

from dataclasses import dataclass

from kanalyze.toolchain import ptxas_log


@dataclass(frozen=True, slots=True)
class KernelResources:
    """What one block or thread of a kernel needs, in registers and bytes.

    Attributes:
        registers: 32-bit registers of a thread.
        spill_store_bytes: bytes that a thread stores to local memory because registers ran out,
            summed over the spill instructions in the code (not over their executions).
        spill_load_bytes: the same for loads.
        stack_bytes: stack frame of a thread (spill slots, local arrays), of the entry only or
            cumulative over its calls, whichever is larger.
        static_shared_bytes: shared memory of a block that the code itself declares, without the
            1024 bytes that the system keeps to itself from sm_80 on.
        shared_bytes: static and dynamic shared memory of a block; equals ``static_shared_bytes``
            where the dynamic part is not known (a bare PTX file).
        barriers: hardware barriers of a block, None where the tool does not say.
        constant_bytes: constant bank 0 (parameters and driver data).
        tool: what said so, for example ``ptxas 12.9.86``.
        remarks: what else ptxas said of the kernel ("(C7511) Potential Performance Loss: …").
    """

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    static_shared_bytes: int
    shared_bytes: int
    barriers: int | None
    constant_bytes: int
    tool: str
    remarks: tuple[str, ...] = ()


def parse_ptxas_log(log: str, tool: str) -> dict[str, KernelResources]:
    """Return each kernel's resources from the text of ``ptxas -v``; device functions are left out.

    See :mod:`kanalyze.toolchain.ptxas_log` for the texts that are read.
    """
    return resources_of(ptxas_log.read(log), tool)


def resources_of(text: ptxas_log.Text, tool: str) -> dict[str, KernelResources]:
    """The kernels of a text, what it leaves out of a kernel as 0."""
    return {
        usage.name: KernelResources(
            registers=usage.registers,
            spill_store_bytes=usage.spill_store_bytes or 0,
            spill_load_bytes=usage.spill_load_bytes or 0,
            stack_bytes=usage.local_memory_bytes or 0,
            static_shared_bytes=usage.shared_bytes or 0,
            shared_bytes=usage.shared_bytes or 0,
            barriers=usage.barriers,
            constant_bytes=dict(usage.constant_bytes).get(0, 0),
            tool=tool,
            remarks=tuple(message.text for message in usage.messages),
        )
        for usage in text.usages
        if usage.registers is not None
    }
