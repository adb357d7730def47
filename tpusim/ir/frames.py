"""Where instructions come from: lines of the HLO text, and the framework's source files through the module's tables."""

from __future__ import annotations

import re
from bisect import bisect_left, insort
from functools import cached_property
from typing import TYPE_CHECKING

from tpusim.ir.attributes import Metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpusim.ir.module import Computation, Module

_FIELD = re.compile(r"(\w+)=(\d+)")
_REMAT_SCOPES = ("rematted_computation", "checkpoint/remat")
_REMAT_NAME = ".remat"


def is_recomputed(name: str, op_name: str) -> bool:
    """Return whether an instruction computes again what was not kept, as JAX and XLA name it."""
    return _REMAT_NAME in name or any(scope in op_name for scope in _REMAT_SCOPES)


def is_differentiated(op_name: str) -> bool:
    """Return whether an instruction is of a backward pass, as JAX names it."""
    return "transpose(" in op_name


def is_kept_by_loop(op_name: str) -> bool:
    """Return whether an instruction is a loop's stack of what a backward pass reads, as JAX names it."""
    return "jvp(" in op_name and op_name.endswith("/while") and not is_differentiated(op_name)


def handed_on(computation: Computation, own: Mapping[str, str], otherwise: str = "") -> dict[str, str]:
    """Return what is known of each instruction of a computation, empty texts replaced by those of their uses.

    Where no use has one it is that of an operand, else ``otherwise``.
    """
    found = dict(own)
    for instruction in reversed(computation.instructions):
        text = found[instruction.name]
        # Backwards, so that the first use has the last word.
        for name in instruction.operands if text else ():
            found[name] = own[name] or text
    for name, text in found.items():
        if not text:
            sources = (found[operand] for operand in computation[name].operands)
            found[name] = next(filter(None, sources), otherwise)
    return found


class SourceFrames:
    """Looks up, for one module, lines of its text and the source locations that its metadata points at."""

    def __init__(self, module: Module) -> None:
        self._module = module
        self._text = module.source.text if module.source else ""
        # Places in the text in order, each with its line.
        self._known = [(0, 1)]
        self._lines: dict[str, dict[str, int]] = {}
        self._sources: dict[str, dict[str, str]] = {}

    def location(self, metadata: Metadata) -> str:
        """Return ``file:line`` of the framework's source, or an empty string if the metadata does not say."""
        # Either each instruction names its file, or a frame of the tables does that many instructions share.
        if metadata.source_file:
            return f"{metadata.source_file}:{metadata.source_line}"
        return self._frames.get(metadata.stack_frame_id, "")

    def sources(self, computation: Computation) -> Mapping[str, str]:
        """Return the locations of instructions; of one that a compiler has put in that of its use, or of its origin.

        A use that has one counts before an origin: a copy of a weight is for the product that reads it.
        """
        if computation.name not in self._sources:
            stated = {each.name: each.attributes.get("metadata", "") for each in computation.instructions}
            # Hundreds of instructions share what they state.
            located = {text: self.location(Metadata.decode(text)) for text in set(stated.values())}
            own = {name: located[text] for name, text in stated.items()}
            self._sources[computation.name] = handed_on(computation, own)
        return self._sources[computation.name]

    def lines(self, computation: Computation) -> Mapping[str, int]:
        """Return the lines, from 1, on which instructions stand in the HLO text; none of what came from elsewhere."""
        if not computation.offsets or not self._text:
            return {}
        # One table per computation, since only there names are unique.
        if computation.name not in self._lines:
            self._lines[computation.name] = self._lines_of(computation)
        return self._lines[computation.name]

    def _lines_of(self, computation: Computation) -> dict[str, int]:
        text, begin = self._text, computation.offsets[0]
        # From the nearest place whose line is known: from the top for each computation it would be quadratic.
        after = bisect_left(self._known, (begin, 0))
        at, line = min(self._known[max(0, after - 1) : after + 1], key=lambda place: abs(place[0] - begin))
        line += text.count("\n", at, begin) - text.count("\n", begin, at)
        self._known.insert(after, (begin, line))
        found, at = {}, begin
        for name, offset in zip(computation.by_name, computation.offsets, strict=True):
            line += text.count("\n", at, offset)
            found[name], at = line, offset
        insort(self._known, (at, line))
        return found

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
