"""The vector unit: cycles that a tile's register operations keep its slots and side units busy."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tpusim.hardware.chip import Vpu
    from tpusim.program.work import Work


def vector_cycles(work: Work, vpu: Vpu) -> dict[str, float]:
    """Return the busy cycles by unit at its peak: ``vector`` (ALU slots), ``eup``, ``xlu``, ``load``, ``store``."""
    return {
        "vector": work.valu / vpu.alu_slots,
        "eup": work.eup / vpu.eup_slots,
        # Several cycles per operation, unlike the slots: openxla/xprof charges four on v6e.
        "xlu": work.xlu * vpu.xlu_cycles_per_op / vpu.xlu_units,
        "load": work.loads / vpu.load_slots,
        "store": work.stores / vpu.store_slots,
    }
