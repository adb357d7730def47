"""Our compiler against the TPU's: an index of the same programs before and after in, one pair of runs each out.

An index has the columns ``program``, which nobody has compiled, and ``compiled``, the same as the TPU compiler leaves
it for the chip that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tpusim.analysis.compiled import CompiledAccuracy, CompiledPair, compiled_accuracy, run_size
from tpusim.errors import ConfigError
from tpusim.hardware.load import resolve_chip_name
from tpusim.pipeline.chip_choice import find_chip_name, provenance_of
from tpusim.pipeline.stages import load, simulate
from tpusim.program.provenance import MEGACORE
from tpusim.semantics.marks import TOPOLOGY, mark_of
from tpusim.validation.rows import FileName, Row, in_turn, read_rows


class _PairRow(Row, frozen=True, kw_only=True):
    """A row of an index."""

    program: FileName
    compiled: FileName


def validate_compiled(
    indexes: Iterable[str | Path], chip: str | None = None, progress: Callable[[int, int], None] | None = None
) -> CompiledAccuracy:
    """Return how far programs that tpusim compiles are off those of the TPU compiler, both simulated.

    ``chip`` keeps the pairs of that chip only. Raises ConfigError if none is left.
    """
    wanted = resolve_chip_name(chip).removesuffix(MEGACORE) if chip else None
    rows = [(Path(index).parent, row) for index in indexes for row in read_rows(index, _PairRow)]
    pairs = []
    for folder, row in in_turn(rows, progress):
        pair = _pair(folder, row, wanted)
        if pair is not None:
            pairs.append(pair)
    if not pairs:
        raise ConfigError(f"expected programs compiled for {chip}, found none in {len(rows)} rows")
    return compiled_accuracy(pairs)


def _pair(folder: Path, row: _PairRow, wanted: str | None) -> CompiledPair | None:
    """Return the runs of one row, None if it is of another chip than is wanted."""
    theirs = load(folder / row.compiled)
    made_by = provenance_of(theirs)
    if made_by.compiler != "tpu":
        raise row.refused("compiled", "a program as the TPU compiler leaves it")
    chip = find_chip_name(theirs, made_by)
    if wanted not in (None, chip.removesuffix(MEGACORE)):
        return None
    # A program for many chips runs on the slice that the compiled one names.
    topology = mark_of(theirs, TOPOLOGY) or None
    ours = simulate(folder / row.program, chip, topology=topology, schedule="compiled", allow_overflow=True)
    name = row.program.removesuffix(".gz").removesuffix(".txt").removesuffix(".hlo")
    sizes = run_size(ours.summary), run_size(simulate(theirs, chip, topology=topology, allow_overflow=True).summary)
    return CompiledPair(program=name, chip=chip, ours=sizes[0], theirs=sizes[1])
