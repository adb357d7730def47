"""Where instructions come from: lines of the HLO text, and the framework's source files through the module's tables."""

from __future__ import annotations

import re
from bisect import bisect_right
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpusim.ir.attributes import Metadata
    from tpusim.ir.module import Computation, Instruction, Module

_FIELD = re.compile(r"(\w+)=(\d+)")


_AGAIN = ("rematted_computation", "checkpoint/remat")
_AGAIN_NAME = ".remat"


def is_recomputed(name: str, op_name: str) -> bool:
    """Return whether an instruction computes again what was not kept, as JAX and XLA name it."""
    return _AGAIN_NAME in name or any(sign in op_name for sign in _AGAIN)


def is_differentiated(op_name: str) -> bool:
    """Return whether an instruction is of a backward pass, as JAX names it."""
    return "transpose(" in op_name


def handed_on(computation: Computation, own: Mapping[str, str], otherwise: str = "") -> dict[str, str]:
    """Return what is known of each instruction of a computation, empty texts replaced by those of their uses.

    Where no use has one it is that of an operand, else ``otherwise``.
    """
    found, of_uses = dict(own), dict[str, str]()
    for instruction in reversed(computation.instructions):
        text = found[instruction.name] = found[instruction.name] or of_uses.get(instruction.name, "")
        # Backwards, so that the first use has the last word.
        of_uses |= dict.fromkeys(instruction.operands if text else (), text)
    for instruction in computation:
        if not found[instruction.name]:
            sources = (found[name] for name in instruction.operands)
            found[instruction.name] = next(filter(None, sources), otherwise)
    return found


class SourceFrames:
    """Looks up, for one module, lines of its text and the source locations that its metadata points at."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._offsets: dict[str, dict[str, int]] = {}
        self._sources: dict[str, dict[str, str]] = {}

    def location(self, metadata: Metadata) -> str:
        """Return ``file:line`` of the framework's source, or an empty string if the metadata does not say."""
        # Either each instruction names its file, or a frame of the tables does that many instructions share.
        if metadata.source_file:
            return f"{metadata.source_file}:{metadata.source_line}"
        return self._frames.get(metadata.stack_frame_id, "")

    def source(self, computation: Computation, instruction: Instruction) -> str:
        """Return the location of an instruction; of one that a compiler has put in that of its use, or of its origin.

        A use that has one counts before an origin: a copy of a weight is for the product that reads it.
        """
        if computation.name not in self._sources:
            own = {each.name: self.location(each.metadata) for each in computation}
            self._sources[computation.name] = handed_on(computation, own)
        return self._sources[computation.name][instruction.name]

    def line(self, computation: Computation, instruction: Instruction) -> int:
        """Return the line, from 1, on which ``instruction`` stands in the HLO text, or 0 if it came from elsewhere."""
        if not computation.offsets:
            return 0
        # One table per computation, since only there names are unique.
        if computation.name not in self._offsets:
            self._offsets[computation.name] = dict(zip(computation.by_name, computation.offsets, strict=True))
        return bisect_right(self._line_starts, self._offsets[computation.name][instruction.name])

    @cached_property
    def _line_starts(self) -> list[int]:
        source = self._module.source
        if source is None:
            return []
        # Found once: counting line breaks again for every instruction would be quadratic.
        return [0, *[match.end() for match in re.finditer("\n", source.text)]]

    @cached_property
    def _files(self) -> dict[int, str]:
        split = (line.split(None, 1) for line in self._module.tables.get("FileNames", ()))
        return {int(number): name.strip('"') for number, name in split}

    @cached_property
    def _frames(self) -> dict[int, str]:
        """Locations by the id of a stack frame; those that name no file are missing."""
        places, found = self._table("FileLocations"), {}
        for number, frame in self._table("StackFrames").items():
            # Ids begin at 1: a protocol buffer leaves out a 0, which means that there is none.
            place = places.get(frame.get("file_location_id", 0), {})
            file = self._files.get(place.get("file_name_id", 0), "")
            if file:
                found[number] = f"{file}:{place.get('line', 0)}"
        return found

    def _table(self, title: str) -> dict[int, dict[str, int]]:
        """Return a table of records of numbers by id."""
        split = (line.split(None, 1) for line in self._module.tables.get(title, ()))
        return {int(number): {k: int(v) for k, v in _FIELD.findall(rest)} for number, rest in split}
