"""Predictions against measured times: an index of programs that ran on hardware in, one outcome per row out.

An index is a CSV file beside the programs that it lists. Its columns are ``program``, ``chip``, ``measured_us``,
``what`` (how the time was taken) and, where the host's clock took it, ``launch_floor_us``; or, for one kernel under
many tilings, ``program``, ``measured_us`` and the four bounds of a tile.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, get_args

from msgspec import Meta, structs

from tpusim.analysis.accuracy import Outcome
from tpusim.cost.peaks import flops_by_type, seconds_at_peak
from tpusim.errors import ConfigError, ProgramError
from tpusim.hardware.load import chip_names, load_chip
from tpusim.ir.module import with_window
from tpusim.ir.ops import ELEMENTWISE, INDEXED, PRODUCTS, REDUCTIONS, SORTS
from tpusim.limits import READ_DIGITS
from tpusim.pipeline.chip_choice import find_chip_name, provenance_of
from tpusim.pipeline.stages import load, lower, run_program
from tpusim.program.provenance import BOOSTED
from tpusim.program.steps import Kernel
from tpusim.timeline.records import busy_ps
from tpusim.units import ps_to_us
from tpusim.validation.rows import Amount, FileName, Positive, Row, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpusim.hardware.chip import Chip
    from tpusim.ir.module import Computation, Module
    from tpusim.program.module import Program
    from tpusim.timeline.records import Record

LEAST_ABOVE_FLOOR_US = 10.0
"""Host clocks jitter by several microseconds: a row with less than this above its launch floor says nothing."""

_BOUNDS = {
    "kernel_bounds": "kernel_window_bounds",
    "output_bounds": "output_window_bounds",
    "input_bounds": "input_window_bounds",
    "iteration_bounds": "iteration_bounds",
}
_KERNEL_TIMES = ("kernel", "fusion")
HOST_CLOCK = "host_wall"
_Taken = Literal["", "kernel", "fusion", "module", "device_trace", "host_wall"]
"""How a time can have been taken."""
_MEASURED_AS = {"v4": "v4-megacore"}


@dataclass(frozen=True)
class Case:
    """One measured row. ``measured_us`` is above the launch floor; ``shapes`` tells rows of one problem from others."""

    path: Path
    chip: str
    family: str
    shapes: str
    what: str
    measured_us: float
    compiler_cycles: int
    source: str
    module: Module


class _CaseRow(Row, frozen=True, kw_only=True):
    """A row as it stands in an index; the times in microseconds."""

    program: FileName
    measured_us: Positive
    chip: str = ""
    what: Annotated[_Taken, Meta(description=f"one of {', '.join(filter(None, get_args(_Taken)))}")] = ""
    launch_floor_us: Amount = 0.0
    xla_estimated_cycles: Amount = 0.0
    shapes: str = ""
    op: str = ""
    kind: str = ""
    source: str = ""
    kernel_bounds: str = ""
    output_bounds: str = ""
    input_bounds: str = ""
    iteration_bounds: str = ""

    @property
    def bounds(self) -> dict[str, str]:
        """The bounds of a tile that are stated, by their key in ``window_config``."""
        return {name: getattr(self, column) for column, name in _BOUNDS.items() if getattr(self, column)}

    @property
    def above_us(self) -> float:
        """What was measured above the launch floor."""
        return self.measured_us - self.launch_floor_us

    @property
    def is_floor(self) -> bool:
        """Whether the row is all launch floor, as far as the clock tells."""
        return bool(self.launch_floor_us) and self.above_us < LEAST_ABOVE_FLOOR_US


class Index(NamedTuple):
    """The rows of an index that say something, and of each that is all launch floor its chip, if it states one."""

    cases: list[Case]
    at_floor: list[str]


def read_index(index: str | Path) -> Index:
    """Return what an index has; raise ConfigError for a file that is none."""
    rows = read_rows(index, _CaseRow)
    cases = [_case(Path(index).parent, row) for row in rows if not row.is_floor]
    return Index(cases, [measured_as(row.chip) for row in rows if row.is_floor])


def read_cases(index: str | Path) -> list[Case]:
    """Return the rows of an index that say something; raise ConfigError for a file that is no index."""
    return read_index(index).cases


def measured_as(chip_name: str) -> str:
    """Return the chip that measurements of a chip are made on: JAX runs a program on both cores of a v4."""
    return _MEASURED_AS.get(chip_name, chip_name)


def generation_of(chip_name: str) -> str:
    """Return the chip that a chip is a mode or an operating point of."""
    return chip_name.partition("-")[0]


def _operating_point(chip_name: str, module: Module, measured_us: float) -> str:
    """Return the boosted state of a chip for a row that is faster than its default clock allows."""
    if chip_name + BOOSTED not in chip_names():
        return chip_name
    chip = load_chip(chip_name)
    kernels = [step for step in lower(module, chip).steps if isinstance(step, Kernel)]
    least_us = 1e6 * sum(seconds_at_peak(flops_by_type(step, step.product_flops), chip) for step in kernels)
    return chip_name + BOOSTED if least_us > measured_us else chip_name


def predict(case: Case, chip: Chip, program: Program | None = None) -> Outcome:
    """Return what is predicted for a row on ``chip``: the program is one of many runs, as in every benchmark.

    ``program`` is the row's program if it has been lowered already.
    """
    lowered = program or lower(case.module, chip)
    timeline = run_program(lowered, chip, warm=True)
    hero = max((r for r in timeline.records if r.is_kernel), key=lambda r: r.duration_ps, default=None)
    is_kernel = case.what in _KERNEL_TIMES and hero is not None
    total_ps = hero.duration_ps if is_kernel and hero else timeline.total_ps
    beyond_us = chip.host.dispatch_seconds * 1e6 if case.what == HOST_CLOCK else 0.0
    records = (hero,) if is_kernel and hero else timeline.records
    cycles = case.compiler_cycles or sum(record.compiler_cycles * record.count for record in records)
    return Outcome(
        program=case.path.name,
        chip=case.chip,
        family=case.family,
        measured_us=case.measured_us,
        predicted_us=ps_to_us(total_ps) + beyond_us,
        compiler_us=cycles / chip.clock_hz * 1e6,
        roofline_us=_plain_roofline_us(records, chip),
        bound_by=hero.bound_by if hero else "",
        # The three that are busiest.
        units={unit: unit_ps / max(1, total_ps) for unit, unit_ps in Counter(busy_ps(records)).most_common(3)},
        estimates=tuple(estimate.how for estimate in lowered.unsupported),
    )


def predict_all(cases: Iterable[Case], chips: Callable[[str], Chip], progress: Callable[[int], None]) -> list[Outcome]:
    """Return the outcomes of all rows; ``chips`` finds a chip by name, ``progress`` is told how many are done."""
    outcomes = []
    for number, case in enumerate(cases, start=1):
        outcomes.append(predict(case, chips(case.chip)))
        progress(number)
    return outcomes


def _case(folder: Path, row: _CaseRow) -> Case:
    """Return one row of an index."""
    path = folder / row.program
    try:
        module = _load(path)
    except ProgramError as error:
        raise ConfigError(f"{row.where}: program: {error}") from error
    # Also where a kernel is too small to be split.
    chip = measured_as(row.chip or find_chip_name(module, provenance_of(module)))
    bounds = {name: _integers(row, text) for name, text in row.bounds.items()}
    tiled = structs.replace(module, computations=_with_bounds(module, bounds)) if bounds else module
    return Case(
        path=path,
        chip=_operating_point(chip, module, row.above_us),
        family=f"{generation_of(chip)} {_kind(row, module)}",
        shapes=row.shapes or " ".join(row.bounds.values()),
        what=row.what,
        measured_us=row.above_us,
        compiler_cycles=int(row.xla_estimated_cycles),
        # Of "owner/name@commit:file" the repository is what a reader needs.
        source=row.source.partition("@")[0],
        module=tiled,
    )


def _kind(row: _CaseRow, module: Module) -> str:
    """Return what the index calls a row's work; operations on single elements are one family, whatever their name."""
    found = family_of(module)
    if found in ("elementwise", "copy") and not row.kind:
        return "matmul" if row.op == "matmul" else "elementwise"
    return row.kind or row.op or found


def _integers(row: _CaseRow, text: str) -> tuple[int, ...]:
    """Return the numbers of a list such as ``[3, 3, 24, 1]``."""
    found = re.findall(r"-?\d+", text)
    if any(len(digits) >= READ_DIGITS for digits in found):
        raise ConfigError(f"{row.where}: expected bounds such as [3, 3, 24, 1], found a number of {len(text)} digits")
    return tuple(map(int, found))


# Many rows may be about the same program.
_load = lru_cache(maxsize=32)(load)


def _with_bounds(module: Module, bounds: dict[str, tuple[int, ...]]) -> tuple[Computation, ...]:
    """Return a module's computations with other bounds for the tiles of the entry's root."""
    entry = module.entry
    root = with_window(entry.root, bounds)
    instructions = tuple(root if i.name == root.name else i for i in entry.instructions)
    changed = structs.replace(entry, instructions=instructions)
    return tuple(changed if computation.name == entry.name else computation for computation in module.computations)


def family_of(module: Module) -> str:
    """Return what kind of work a program is, by the heaviest thing that it does."""
    opcodes = {i.opcode for computation in module.computations for i in computation.instructions}
    return next((name for name, members in _FAMILIES.items() if opcodes & members), "copy")


_FAMILIES = {
    "matmul": PRODUCTS,
    "sort": SORTS,
    "reduction": REDUCTIONS,
    "gather and scatter": INDEXED,
    "elementwise": ELEMENTWISE | {"iota"},
}


def _plain_roofline_us(records: Sequence[Record], chip: Chip) -> float:
    """Return the time at the advertised peaks of arithmetic or of HBM, whichever is longer: a spreadsheet's answer."""
    kernels = [record for record in records if record.is_kernel]
    busy_s = sum(seconds_at_peak(flops_by_type(record, record.flops), chip) * record.count for record in kernels)
    hbm_bytes = sum(record.hbm_bytes * record.count for record in records)
    return 1e6 * max(busy_s, hbm_bytes / chip.hbm.bandwidth_bytes_per_second)
