"""The peaks of the matrix units by type of operands, and what operations take at them at least.

Rooflines, MFU and floors ask here, so that they agree. A kernel may have products of several types, as attention of
int8 scores and bf16 values has: each part of its operations is measured at the peak of its own type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tpusim.hardware.chip import Chip
from tpusim.program.steps import Kernel
from tpusim.timeline.records import Record


def peak_flops_per_second(chip: Chip, operand_type: str) -> float:
    """Return the device's peak for operands of a type; types that are converted first run at the rate of bf16."""
    return chip.peak_flops_per_second * chip.mxu.rate_by_type.get(operand_type, 1.0)


def seconds_at_peak(flops: Mapping[str, float], chip: Chip) -> float:
    """Return the least time of operations by type, each at the peak of its own."""
    return sum(count / peak_flops_per_second(chip, name) for name, count in flops.items())


def flops_by_type(one: Kernel | Record, flops: float) -> dict[str, float]:
    """Return so many of the operations of a kernel, or of a record of one, by the type of their operands."""
    shares = type_shares(one) if isinstance(one, Kernel) else one.type_shares
    return {name: flops * share for name, share in shares.items()} if shares else {one.flops_type: flops}


def type_shares(kernel: Kernel) -> Mapping[str, float]:
    """Return how much of a kernel's operations is of each type; nothing where all are of its ``flops_type``.

    One that states no shares but has products of several types, such as one of a file that an older version wrote, has
    those of the rows that enter its arrays.
    """
    if kernel.type_shares or len(kernel.work.matmuls) < 2:
        return kernel.type_shares
    rows: dict[str, float] = {}
    for matmul in kernel.work.matmuls:
        rows[matmul.operand_type] = rows.get(matmul.operand_type, 0.0) + matmul.streamed_rows * matmul.passes
    return _shares(rows) if len(rows) > 1 else {}


def typed(flops: Mapping[str, float], chip: Chip) -> dict[str, Any]:
    """Return the fields of a kernel that say of which types the operations of its products are; nothing of none.

    The type that is named for all of it is the one that takes most time at its peak.
    """
    if not flops:
        return {}
    some = {name: count for name, count in flops.items() if count} or dict(flops)
    if len(some) == 1:
        return {"flops_type": next(iter(some)), "type_shares": {}}
    # The peak of bf16 is in all of them.
    longest = max(some, key=lambda name: some[name] / chip.mxu.rate_by_type.get(name, 1.0))
    return {"flops_type": longest, "type_shares": _shares(some)}


def _shares(counts: Mapping[str, float]) -> dict[str, float]:
    total = sum(counts.values())
    return {name: count / total for name, count in counts.items()} if total else {}
