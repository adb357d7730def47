"""What a program says before it is compiled of the host's memory: what is put there, and what comes back.

Source: XLA, ``host_memory_offload_annotations.h`` and ConvertMemoryPlacementToInternalAnnotations; for arguments and
results the ``frontend_attributes`` that PJRT makes of ``mhlo.memory_kind``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tpusim.ir.module import Module
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.marks import with_mark
from tpusim.shapes.layout import HOST_SPACE

TO_HOST: Final = "MoveToHost"
"""The custom call whose result is its operand, in host memory from there on."""

TO_DEVICE: Final = "MoveToDevice"
"""The custom call whose result is its operand, in the memory of the device from there on."""

ANNOTATION: Final = "annotate_device_placement"
"""The custom call by which JAX says either."""

ARGUMENT_SPACES: Final = "arg_memory_spaces"
RESULT_SPACES: Final = "out_memory_spaces"

MOVES_LOST: Final = "tpusim_host_moves_lost"
"""The mark of a module out of which another tool has taken its moves."""

_SPACE = re.compile(r"[0-9]{1,9}")
_PLACEMENTS: Final = {"pinned_host": TO_HOST, "unpinned_host": TO_HOST, "device": TO_DEVICE}


def move_of(attributes: Mapping[str, Any]) -> str:
    """Return which of the two moves a custom call is, of whichever form; empty if it is neither."""
    target = str(attributes.get("custom_call_target", ""))
    if target == ANNOTATION:
        return _PLACEMENTS.get(frontend_attributes(dict(attributes)).get("_xla_buffer_placement", ""), "")
    return target if target in (TO_HOST, TO_DEVICE) else ""


def states_memory(attributes: Mapping[str, Any]) -> bool:
    """Return whether a custom call does no more than say in which memory its operand is to lie."""
    return str(attributes.get("custom_call_target", "")) in (TO_HOST, TO_DEVICE, ANNOTATION)


def stated_spaces(attributes: Mapping[str, Any], which: str, count: int) -> tuple[int, ...]:
    """Return the numbers of the memories of all arguments or results; nothing if not one is said for each."""
    said = frontend_attributes(dict(attributes)).get(which, "").split(";")
    return tuple(map(int, said)) if len(said) == count and all(map(_SPACE.fullmatch, said)) else ()


def with_stated_spaces(attributes: dict[str, Any], which: str, in_host: Iterable[bool]) -> dict[str, Any]:
    """Return the attributes of a module that say which of its arguments or results are in host memory."""
    return with_mark(attributes, which, ";".join(str(HOST_SPACE) if each else "0" for each in in_host))


def host_work(module: Module) -> str:
    """Return the name of something that a program has the processor of the host do; empty if there is none."""
    for computation in module.unlike:
        if computation.execution_thread == "host":
            return computation.name
        for instruction in computation.instructions:
            named = instruction.attributes
            if "frontend_attributes" in named and _HOST_WORK in str(named["frontend_attributes"]):
                return instruction.name
    return ""


_HOST_WORK: Final = '_xla_compute_type="host"'
