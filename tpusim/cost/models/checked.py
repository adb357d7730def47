"""What a user's model of a unit answers, checked call by call: a number that cannot be would become a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from math import inf, nan
from numbers import Integral, Real
from typing import Any

import msgspec

from tpusim.cost.models.protocols import ArrayWork, Pace, Served
from tpusim.errors import ConfigError, TpusimError
from tpusim.hardware.chip import Chip
from tpusim.hardware.fabric import Graph
from tpusim.hardware.torus import Torus
from tpusim.program.steps import Kernel
from tpusim.program.verify import number_fault
from tpusim.program.work import Matmul, Stream, Work, unit_fault

Check = Callable[..., str]
"""Returns what is wrong with an answer, given after it what the method was given; nothing if it may be."""


def checked(kind: type, place: str, checks: Mapping[str, Check]) -> type:
    """Return a class of the same name whose methods raise ConfigError where ``kind``'s fail or a check finds a fault.

    ``place`` is what messages begin with. Errors of tpusim go to the caller as they are.
    """
    made: type = type(kind.__name__, (kind,), {"__module__": kind.__module__, "__doc__": kind.__doc__})
    for method, check in checks.items():
        setattr(made, method, _checked_method(made, method, f"{place}: {method}", check))
    return made


def _checked_method(made: type, method: str, place: str, check: Check) -> Callable[..., Any]:
    def call(self: Any, *given: Any) -> Any:
        try:
            found = getattr(super(made, self), method)(*given)
        except TpusimError:
            raise
        except Exception as error:
            raise ConfigError(f"{place} ended in {type(error).__name__}: {error}") from error
        if fault := check(found, *given):
            raise ConfigError(f"{place}: {fault}, found {found!r:.200}")
        return found

    return call


def amount_fault(found: Any, *_: Any) -> str:
    """Return what is wrong with what should be a number that is neither negative nor without end."""
    value: Any = found if isinstance(found, Real) else nan
    # Nothing is true of a NaN.
    return "" if 0 <= value < inf else "expected a number from 0, and no infinite one"


def amounts_fault(found: Any, *_: Any) -> str:
    """Return what is wrong with what should be amounts by name."""
    if not isinstance(found, Mapping) or not all(isinstance(key, str) for key in found):
        return "expected a mapping of names to numbers"
    return next((f"{key}: {fault}" for key, value in found.items() if (fault := amount_fault(value))), "")


def array_work_fault(found: Any, *_: Any) -> str:
    """Return what is wrong with what arrays should be asked for a tile."""
    matmul: Any = found.matmul if isinstance(found, ArrayWork) else None
    return _numbers_fault(found) if isinstance(matmul, Matmul) else "expected an ArrayWork with a Matmul"


def served_fault(found: Any, streams: Sequence[Stream], _: Chip) -> str:
    """Return what is wrong with what should be the bytes of each stream as a memory feels them."""
    if not isinstance(found, Served):
        return "expected a Served"
    loads: Any = found.load_bytes
    if not isinstance(loads, Sized) or len(loads) != len(streams):
        return f"expected load_bytes for each of {len(streams)} streams"
    return next(filter(None, map(amount_fault, (*found.load_bytes, found.turn_cost, found.activations))), "")


def pace_fault(found: Any, *_: Any) -> str:
    """Return what is wrong with what should be the least time of a kernel's tiles."""
    return _numbers_fault(found) if isinstance(found, Pace) else "expected a Pace"


def work_fault(found: Any, *_: Any) -> str:
    """Return what is wrong with what should be the work of an instruction."""
    if not isinstance(found, Work):
        return "expected a Work"
    return unit_fault(found) or _numbers_fault(found)


def kernel_fault(found: Any, *_: Any) -> str:
    """Return what is wrong with what should be a kernel."""
    if not isinstance(found, Kernel):
        return "expected a Kernel"
    return unit_fault(found.work) or _numbers_fault(found)


def links_fault(found: Any, torus: Torus, _: Chip) -> str:
    """Return what is wrong with what should be the links between the chips of a torus."""
    if isinstance(found, Torus):
        return "" if found.chip_count == torus.chip_count else f"expected {torus.chip_count} chips"
    if not isinstance(found, Graph):
        return "expected a Torus or a Graph"
    if found.chips != torus.chip_count or found.nodes < found.chips:
        return f"expected {torus.chip_count} chips, and no fewer nodes"
    if len(found.links) != len(found.rates) or any(not 0 < rate < inf for rate in found.rates):
        return "expected for each link a rate above 0"
    if any(not 0 <= end < found.nodes for link in found.links for end in link):
        return f"expected links between nodes from 0 to {found.nodes - 1}"
    return ""


def rounds_fault(found: Any, _: str, members: int) -> str:
    """Return what is wrong with what should be rounds of messages among so many members, or None."""
    if found is None:
        return ""
    try:
        are_right = all(_is_round(messages, times, members) for messages, times in found)
    except (TypeError, ValueError):
        are_right = False
    return "" if are_right else f"expected rounds of messages between members 0 to {members - 1}, with their shares"


def _is_round(messages: Sequence[tuple[Any, Any, Any]], times: Any, members: int) -> bool:
    if not messages or not isinstance(times, Integral) or times < 1:
        return False
    ends = [end for source, target, _ in messages for end in (source, target)]
    are_members = all(isinstance(end, Integral) and end in range(members) for end in ends)
    return are_members and not any(amount_fault(share) for *_, share in messages)


def _numbers_fault(found: msgspec.Struct) -> str:
    return number_fault([found])
