"""Memory against the compiler's own figures: programs in, one outcome each out.

What the compiler says (``temp_size_in_bytes`` of ``memory_analysis()`` in JAX) stands in an index with the columns
``program`` and ``temp_size_in_bytes``, or under ``memory`` in the ``.json`` beside a program.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING

from tpusim.analysis.memory_accuracy import MemoryOutcome
from tpusim.errors import ConfigError
from tpusim.pipeline.stages import memory

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
    """Yield the cases of one path."""
    if path.suffix == ".csv":
        yield from _rows(path)
    elif path.is_dir():
        programs = sorted(p for p in path.glob(f"*{_ENDING}") if _beside(p).exists())
        if not programs:
            raise ConfigError(f"{path}: expected programs (*{_ENDING}) with a .json beside them, found none")
        for program in programs:
            yield program, None, _stated(program)
    else:
        yield path, None, _stated(path)


def _rows(index: Path) -> Iterator[tuple[Path, str | None, int]]:
    """Yield the rows of an index."""
    try:
        with index.open(newline="", encoding="utf-8") as lines:
            rows = list(csv.DictReader(lines))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{index}: cannot read this index: {error}") from error
    for line, row in enumerate(rows, start=2):
        if not row.get("program"):
            raise ConfigError(f"{index}:{line}: program: expected the name of a file beside the index, found none")
        yield index.parent / row["program"], row.get("chip") or None, _number(f"{index}:{line}", row.get(_FIGURE))


def _number(where: str, text: object) -> int:
    """Return a number of bytes."""
    try:
        return int(str(text))
    except ValueError:
        raise ConfigError(f"{where}: {_FIGURE}: expected a number of bytes, found {text!r}") from None


def _beside(program: Path) -> Path:
    """Return the path of the ``.json`` beside a program."""
    name = program.name
    for ending in (".gz", ".txt", ".hlo"):
        name = name.removesuffix(ending)
    return program.parent / f"{name}.json"


def _stated(program: Path) -> int:
    """Return what the ``.json`` beside a program says."""
    path = _beside(program)
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{program}: expected the compiler's figures in {path.name} beside it: {error}") from error
    figures = data.get("memory") if isinstance(data, dict) else None
    return _number(str(path), figures.get(_FIGURE) if isinstance(figures, dict) else None)


def validate_memory(
    given: Iterable[str | Path], chip: str | None = None, progress: Callable[[int, int], None] | None = None
) -> list[MemoryOutcome]:
    """Return our HBM temporaries beside the compiler's, of indexes, programs and folders of them.

    ``chip`` goes before what they say; ``progress`` is told how many programs of how many are done.
    """
    cases = memory_cases(given)
    outcomes = []
    for done, (path, stated_chip, compiler_bytes) in enumerate(cases, start=1):
        report = memory(path, chip or stated_chip)
        use = report.use
        outcomes.append(MemoryOutcome(path.name, report.chip, use.temp_bytes, compiler_bytes, use.heap_bytes))
        if progress is not None:
            progress(done, len(cases))
    return outcomes
