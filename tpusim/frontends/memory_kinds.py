"""What StableHLO says of host memory and XLA's readers leave out, put into the header of HLO text.

JAX says of each argument and result where it lies (``mhlo.memory_kind``). Inside a run PJRT reads that, and makes
``frontend_attributes`` of the module of it; so does this. What moves to and from host memory inside of a program is
lost where XLA partitions it for CPUs, which have no memory of their own.

Source: XLA, ``xla/pjrt/layout_mode.cc`` and ``utils.cc``.
"""

from __future__ import annotations

from typing import Any, Final

from tpusim.errors import ProgramError
from tpusim.semantics.host_memory import ANNOTATION, ARGUMENT_SPACES, MOVES_LOST, RESULT_SPACES
from tpusim.shapes.layout import HOST_SPACE

MEMORY_KIND: Final = "mhlo.memory_kind"
_IN_HOST: Final = frozenset({"pinned_host", "unpinned_host"})
_MARKS: Final = "frontend_attributes={"


def memory_spaces(module: Any) -> dict[str, str]:
    """Return what jaxlib's StableHLO says of arguments and results, by the names that PJRT has.

    Nothing if all of them are in HBM, and of a module without a function ``main``, which another reader refuses.
    """
    found = [one for one in module.body.operations if getattr(one, "sym_name", None) and one.sym_name.value == "main"]
    if len(found) != 1:
        return {}
    (main,) = found
    said = {
        ARGUMENT_SPACES: _numbers(main, "arg_attrs", len(main.type.inputs)),
        RESULT_SPACES: _numbers(main, "res_attrs", len(main.type.results)),
    }
    return {name: numbers for name, numbers in said.items() if str(HOST_SPACE) in numbers}


def _numbers(main: Any, attribute: str, count: int) -> str:
    stated: Any = main.attributes[attribute] if attribute in main.attributes else [()] * count
    kinds = [getattr(each[MEMORY_KIND], "value", None) if MEMORY_KIND in each else "" for each in stated]
    if other := [each for each, kind in zip(stated, kinds, strict=True) if not isinstance(kind, str)]:
        raise ProgramError(f"{MEMORY_KIND}: expected the name of a memory, found {other[0][MEMORY_KIND]!s:.80}")
    return ";".join(str(HOST_SPACE) if kind in _IN_HOST else "0" for kind in kinds)


def lost_moves(text: str, whole: str) -> dict[str, str]:
    """Return the mark of a partitioned program whose ``whole`` moves arrays to and from host memory."""
    return {MOVES_LOST: "true"} if ANNOTATION in whole and ANNOTATION not in text else {}


def with_marks(text: str, marks: dict[str, str]) -> str:
    """Return HLO text whose header says something more."""
    if not marks:
        return text
    header, end, rest = text.partition("\n")
    said = ",".join(f'{name}="{value}"' for name, value in marks.items())
    if _MARKS in header:
        return header.replace(_MARKS, f"{_MARKS}{said},", 1) + end + rest
    return f"{header}, {_MARKS}{said}}}{end}{rest}"
