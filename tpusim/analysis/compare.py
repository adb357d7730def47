"""Runs side by side: what takes longer in the second of two, by op and category; which of many none other beats."""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from math import inf
from pathlib import Path
from typing import Any

import msgspec
from msgspec import structs

from tpusim.analysis.answers.caveats import Caveats
from tpusim.analysis.summary import Summary
from tpusim.analysis.utilisation import Group
from tpusim.errors import ProgramError
from tpusim.files import check_json_keys, read_bytes, reason
from tpusim.limits import PROGRAM_BYTES, shown
from tpusim.program.provenance import Provenance
from tpusim.units import ps_to_us

RESULT_FORMAT = "tpusim-result-1"


class OpFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One op of a run, all its executions together: microseconds on the core and beside it, FLOP, bytes of HBM."""

    name: str
    opcode: str = ""
    category: str = ""
    count: int = 0
    time_us: float = 0.0
    overlapped_us: float = 0.0
    bound_by: str = ""
    flops: float = 0.0
    hbm_bytes: float = 0.0
    op_name: str = ""
    source: str = ""


class MemoryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The memory of a run in bytes, as in ``analysis.memory.MemoryUse``."""

    argument_bytes: int = 0
    output_bytes: int = 0
    temp_bytes: int = 0
    heap_bytes: int = 0
    peak_hbm_bytes: int = 0
    peak_vmem_bytes: int = 0


class RunFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What is compared of a run. A saved result holds it, with everything else that ``run --json`` prints."""

    program: str
    chip: str
    time_us: float
    bound_by: str = ""
    roofline_us: float = 0.0
    flops: float = 0.0
    hbm_bytes: float = 0.0
    energy_j: float = 0.0
    ops: tuple[OpFigures, ...] = ()
    memory: MemoryFigures = MemoryFigures()
    provenance: Provenance | None = None
    changed: dict[str, Any] = {}
    unsupported: tuple[dict[str, Any], ...] = ()
    warnings: tuple[str, ...] = ()
    format: str = RESULT_FORMAT

    @property
    def caveats(self) -> Caveats:
        """How many times are estimates, and how many warnings there are."""
        return Caveats(estimates=len(self.unsupported), warnings=len(self.warnings))


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """An op or category in both runs; None where a run has none of it. Times in microseconds."""

    name: str
    category: str
    before: OpFigures | None
    after: OpFigures | None

    @property
    def change_us(self) -> float:
        """Time on the core that was added; below 0 if it became less."""
        return (self.after.time_us if self.after else 0.0) - (self.before.time_us if self.before else 0.0)

    @property
    def beside_change_us(self) -> float:
        """The same beside the core."""
        return (self.after.overlapped_us if self.after else 0.0) - (self.before.overlapped_us if self.before else 0.0)


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs and what changed from the first to the second, the largest change of time first."""

    before: RunFigures
    after: RunFigures
    ops: tuple[Change, ...]
    categories: tuple[Change, ...]

    @property
    def ratio(self) -> float:
        """Time of the second run per time of the first; 0 if the first takes none."""
        return self.after.time_us / self.before.time_us if self.before.time_us else 0.0


def run_figures(summary: Summary) -> RunFigures:
    """Return what is compared of a run."""
    busy = summary.utilisation
    return RunFigures(
        program=summary.program,
        chip=summary.chip,
        time_us=ps_to_us(summary.total_ps),
        bound_by=busy.bound_by,
        roofline_us=ps_to_us(summary.roofline.bound_ps),
        flops=busy.flops,
        hbm_bytes=busy.hbm_bytes,
        energy_j=summary.energy.total_j,
        ops=tuple(_op_figures(group) for group in summary.ops),
        provenance=summary.provenance,
        changed=summary.changed,
        unsupported=tuple(structs.asdict(one) for one in summary.unsupported),
        warnings=summary.warnings,
        memory=MemoryFigures(**{name: getattr(summary.memory, name) for name in MemoryFigures.__struct_fields__}),
    )


def _op_figures(group: Group) -> OpFigures:
    same = {name: getattr(group, name) for name in OpFigures.__struct_fields__ if hasattr(group, name)}
    return OpFigures(**same, time_us=ps_to_us(group.time_ps), overlapped_us=ps_to_us(group.beside_ps))


def is_result(path: str | Path) -> bool:
    """Return whether a file is a saved result, of this version or another."""
    if not str(path).endswith(".json"):
        return False
    try:
        content = read_bytes(path, "cannot be read", ProgramError, PROGRAM_BYTES)
        found = msgspec.json.decode(content, type=_Format).format
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return found.startswith(RESULT_FORMAT.rpartition("-")[0])


class _Format(msgspec.Struct):
    """The field that tells files of JSON apart."""

    format: str = ""


def load_result(path: str | Path) -> RunFigures:
    """Read a saved result. Raises ProgramError if a figure is missing, or if it is of another version."""
    try:
        content = read_bytes(path, "cannot be read", ProgramError, PROGRAM_BYTES)
        found = msgspec.json.decode(content, type=RunFigures)
        check_json_keys(content)
    except (ValueError, RecursionError) as error:
        raise ProgramError(f"{path}: not a saved result ({RESULT_FORMAT}): {reason(error)}") from error
    if found.format != RESULT_FORMAT:
        raise ProgramError(f"{path}: expected the format {RESULT_FORMAT!r}, found {found.format!r}: save it again")
    parts = {"": found, "memory.": found.memory, **{f"ops[{number}].": op for number, op in enumerate(found.ops)}}
    for place, part in parts.items():
        for name, figure in structs.asdict(part).items():
            if isinstance(figure, int | float) and not 0 <= figure <= sys.float_info.max:
                raise ProgramError(f"{path}: {place}{name}: expected a number from 0, found {shown(figure)}")
    return found


def compare(before: RunFigures, after: RunFigures) -> Comparison:
    """Return what changed between two runs.

    Ops are the same if name, opcode and the framework's name agree; what is left is matched by the framework's name and
    opcode in the order of time, since another compilation numbers its instructions anew.
    """
    pairs = list(_matched(before.ops, after.ops))
    ops = [_change((a or b).name, a, b) for a, b in pairs if (a or b)]  # type: ignore[union-attr]
    first, second = _by_category(before.ops), _by_category(after.ops)
    names = dict.fromkeys([*first, *second])
    categories = [_change(name, first.get(name), second.get(name)) for name in names]
    return Comparison(before=before, after=after, ops=_largest_first(ops), categories=_largest_first(categories))


def _change(name: str, before: OpFigures | None, after: OpFigures | None) -> Change:
    category = (after or before or OpFigures(name=name)).category
    return Change(name=name, category=category, before=before, after=after)


def _largest_first(changes: Iterable[Change]) -> tuple[Change, ...]:
    """Return changes by how much time they are, on the core before beside it."""
    return tuple(sorted(changes, key=lambda c: (-abs(c.change_us), -abs(c.beside_change_us), c.name)))


def _matched(
    before: Sequence[OpFigures], after: Sequence[OpFigures]
) -> Iterator[tuple[OpFigures | None, OpFigures | None]]:
    """Yield the ops of both runs in pairs, with None for what only one of them has."""
    left, right = list(before), list(after)
    for key in (_identity, _origin):
        waiting: dict[tuple[str, ...], list[OpFigures]] = defaultdict(list)
        for op in right:
            waiting[key(op)].append(op)
        unmatched = []
        for op in left:
            if waiting[key(op)]:
                yield op, waiting[key(op)].pop(0)
            else:
                unmatched.append(op)
        left, right = unmatched, [op for ops in waiting.values() for op in ops]
    yield from ((op, None) for op in left)
    yield from ((None, op) for op in right)


def _identity(op: OpFigures) -> tuple[str, ...]:
    """Return what one op of a program has in common with itself in another run."""
    return op.name, op.opcode, op.op_name


def _origin(op: OpFigures) -> tuple[str, ...]:
    """Return what an op has in common with its like in another compilation; its name if it came from nowhere."""
    return (op.op_name, op.opcode, op.category) if op.op_name else (op.name, op.opcode, "")


def _by_category(ops: Iterable[OpFigures]) -> dict[str, OpFigures]:
    """Return ops added up by category."""
    members: dict[str, list[OpFigures]] = defaultdict(list)
    for op in ops:
        members[op.category].append(op)
    return {name: _sum(name, found) for name, found in members.items()}


def _sum(name: str, ops: Sequence[OpFigures]) -> OpFigures:
    figures = ("count", "time_us", "overlapped_us", "flops", "hbm_bytes")
    totals: dict[str, Any] = {figure: sum(getattr(op, figure) for op in ops) for figure in figures}
    return OpFigures(name=name, category=name, **totals)


def pareto_front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Return the numbers of the points that no other one beats in both figures, of which less is better, by the first.

    Equal points do not beat each other.
    """
    front: list[int] = []
    least = inf
    for number in sorted(range(len(points)), key=lambda number: points[number]):
        if points[number][1] < least or (front and points[number] == points[front[-1]]):
            front.append(number)
            least = points[number][1]
    return front
