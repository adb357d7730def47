"""Custom calls: targets by which others are known, and what users say of targets of their own, values and cost."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.ir.module import Instruction


INWARD: Final = "xla.sdy.GlobalToLocalShape"
"""The custom call whose results are a device's parts of its operands, which are whole."""

OUTWARD: Final = "xla.sdy.LocalToGlobalShape"
"""The custom call whose results are the whole of what its operands are a device's parts of."""

ASYNC_START: Final = "AsyncCollectiveStart"
"""The custom call of the TPU compiler in a fusion whose collective begins beside the core: what it takes, room for what
it will give, and handles."""

ASYNC_DONE: Final = "AsyncCollectiveDone"
"""The custom call in a fusion whose collective, begun elsewhere, ends: its result is what that gave."""


class CustomCall(msgspec.Struct, frozen=True):
    """What a user said of a target: its values, ``numerics(instruction, *operands)``, and its ``cost``, or neither.

    ``mark`` tells one registration from all others, those of other processes too.
    """

    numerics: Callable[..., Any] | None = None
    cost: Callable[..., Any] | None = None
    mark: str = msgspec.field(default_factory=lambda: os.urandom(8).hex())


REGISTERED: dict[str, CustomCall] = {}
"""What users registered, by target; it comes before what is built in."""


def registered_for(instruction: Instruction) -> CustomCall | None:
    """Return what was registered for a custom call: for the name of its kernel, or for its target."""
    names = (instruction.kernel_name, instruction.attributes.get("custom_call_target", ""))
    return next((REGISTERED[name] for name in names if name in REGISTERED), None)


def register_custom_call(
    name: str, *, numerics: Callable[..., Any] | None = None, cost: Callable[..., Any] | None = None
) -> None:
    """Say what custom calls with the target ``name`` compute and cost; a second call replaces the first.

    A hand-written kernel has a name of its own, which comes before the target that all of them share: that of its
    instruction, without the number behind it (``pallas_call(..., name="rms_norm")``).

    ``numerics(instruction, *operands)`` returns an array of the element type and dimensions of ``instruction.shape``,
    or a tuple of such; the operands are NumPy arrays that must not be written to. ``cost(instruction, chip)`` returns
    the ``tpusim.program.work.Work`` of one call, memory accesses left out: those follow from operands and results.
    """
    REGISTERED[name] = CustomCall(numerics, cost)
