"""Memory against the compiler's own figures: programs in, one outcome each out.

What the compiler says (``temp_size_in_bytes`` of ``memory_analysis()`` in JAX) stands in an index with the columns
``program`` and ``temp_size_in_bytes``, or under ``memory`` in the ``.json`` beside a program.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.analysis.accuracy import MemoryOutcome
from tpusim.errors import ConfigError
from tpusim.files import is_file, is_folder, parse_json, read_text
from tpusim.pipeline.chip_choice import facts_beside
from tpusim.pipeline.stages import memory
from tpusim.validation.rows import Bytes, FileName, Row, in_turn, read_rows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_FIGURE = "temp_size_in_bytes"
_ENDING = ".hlo.txt.gz"


def memory_cases(given: Iterable[str | Path]) -> list[tuple[Path, str | None, int]]:
    """Return (program, chip or None, the compiler's temporaries in bytes) of indexes, programs and folders of them.

    Raises ConfigError for an index that is none, and for a program of which nothing is known.
    """
    return [case for path in map(Path, given) for case in _cases(path)]


def _cases(path: Path) -> Iterator[tuple[Path, str | None, int]]:
    if path.suffix == ".csv":
        for row in read_rows(path, _CaseRow):
            yield path.parent / row.program, row.chip or None, row.temp_size_in_bytes
    elif is_folder(path):
        programs = sorted(p for p in path.glob(f"*{_ENDING}") if is_file(facts_beside(p)))
        if not programs:
            raise ConfigError(f"{path}: expected programs (*{_ENDING}) with a .json beside them, found none")
        for program in programs:
            yield program, None, _stated(program)
    else:
        yield path, None, _stated(path)


class _CaseRow(Row, frozen=True, kw_only=True):
    """A row of an index."""

    program: FileName
    temp_size_in_bytes: Bytes
    chip: str = ""


def _stated(program: Path) -> int:
    """Return what the ``.json`` beside a program says."""
    path = facts_beside(program)
    try:
        data = parse_json(read_text(path, "cannot be read"))
    except (ConfigError, ValueError) as error:
        raise ConfigError(f"{program}: expected the compiler's figures in {path.name} beside it: {error}") from error
    figures = data.get("memory") if isinstance(data, dict) else None
    found = figures.get(_FIGURE) if isinstance(figures, dict) else None
    if type(found) is not int or found < 0:
        raise ConfigError(f"{path}: {_FIGURE}: expected a number of bytes, found {found!r}")
    return found


def validate_memory(
    given: Iterable[str | Path], chip: str | None = None, progress: Callable[[int, int], None] | None = None
) -> list[MemoryOutcome]:
    """Return our HBM temporaries beside the compiler's, of indexes, programs and folders of them.

    ``chip`` goes before what they say; ``progress`` is told how many programs of how many are done.
    """
    cases = memory_cases(given)
    outcomes = []
    for path, stated_chip, compiler_bytes in in_turn(cases, progress):
        report = memory(path, chip or stated_chip)
        use = report.use
        outcomes.append(MemoryOutcome(path.name, report.chip, use.temp_bytes, compiler_bytes, use.heap_bytes))
    return outcomes
