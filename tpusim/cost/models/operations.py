"""What operations and kernels cost the core: by the rules and the table ``vector_ops``, unless a chip names another."""

from __future__ import annotations

from tpusim.cost.models.checked import kernel_fault, work_fault
from tpusim.cost.models.protocols import Operations
from tpusim.cost.models.registry import Registry
from tpusim.hardware.chip import Chip
from tpusim.ir.module import Instruction
from tpusim.program.steps import Kernel
from tpusim.program.work import Work

OPERATIONS: Registry[Operations] = Registry("vpu.model", work=work_fault, kernel=kernel_fault)
"""By the name in a chip's file."""


def operations_of(chip: Chip) -> Operations:
    """Return the model of what operations cost a chip."""
    return OPERATIONS.of(chip.vpu)


@OPERATIONS.enter("table")
class Table:
    """What lowering's rules say by the table of operations; also what a model of one's own begins from."""

    def work(self, instruction: Instruction, work: Work, chip: Chip) -> Work:
        """Return the work as it is."""
        return work

    def kernel(self, instruction: Instruction, kernel: Kernel, chip: Chip) -> Kernel:
        """Return the kernel as it is."""
        return kernel
