"""What users say of custom calls to targets of their own: values and cost, by the target's name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class CustomCall:
    """What a user said of a target: its values, ``numerics(instruction, *operands)``, and its ``cost``, or neither."""

    numerics: Callable[..., Any] | None = None
    cost: Callable[..., Any] | None = None


REGISTERED: dict[str, CustomCall] = {}
"""What users registered, by target; it comes before what is built in."""


def register_custom_call(
    name: str, *, numerics: Callable[..., Any] | None = None, cost: Callable[..., Any] | None = None
) -> None:
    """Say what custom calls with the target ``name`` compute and cost; a second call replaces the first.

    ``numerics(instruction, *operands)`` returns an array of the element type and dimensions of ``instruction.shape``,
    or a tuple of such; the operands are NumPy arrays that must not be written to. ``cost(instruction, chip)`` returns
    the ``tpusim.program.work.Work`` of one call, memory accesses left out: those follow from operands and results.
    """
    REGISTERED[name] = CustomCall(numerics, cost)
