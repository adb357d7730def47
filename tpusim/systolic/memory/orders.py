"""Where an element of a matrix comes in the order in which it is asked for, or fetched: closed forms."""

from __future__ import annotations

from tpusim.compiled import njit


@njit(cache=True)
def count_before(line: int, rows: int, columns: int) -> int:
    """Return how many elements of a matrix lie on diagonals before one."""
    corner = _triangle(line - rows - columns)
    return _triangle(line) - _triangle(line - rows) - _triangle(line - columns) + corner


@njit(cache=True)
def _triangle(lines: int) -> int:
    """Return the elements on the first diagonals of a matrix without end."""
    return lines * (lines + 1) // 2 if lines > 0 else 0


@njit(cache=True)
def find_line(element: int, skewed: bool, rows: int, columns: int) -> int:
    """Return the line of a fold, from the first one in which it asks for something, that asks for an element."""
    if not skewed:
        return element // columns
    low, high = 0, rows + columns - 2
    while low < high:
        middle = (low + high) // 2
        if count_before(middle + 1, rows, columns) > element:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True)
def find_first(fold: int, line: int, steps: int, width: int, columns: int) -> int:
    """Return the place of the first element of a fold's diagonal where all folds lie below each other.

    ``steps``: rows of every fold; ``width``: its columns; ``columns``: of all folds, of which the last may be ragged.
    """
    folds = (columns + width - 1) // width
    ragged, last = columns - (folds - 1) * width, (folds - 1) * steps
    diagonal = fold * steps + line
    gap = count_before(diagonal - last - ragged, steps, width - ragged)
    before = count_before(diagonal, folds * steps, width) - gap
    # On the same diagonal, folds further down come first.
    lowest, first = max(0, diagonal - folds * steps + 1), max(0, line - steps + 1)
    missing = min(first - 1, diagonal - last) - max(lowest, ragged) + 1
    return before + first - lowest - max(0, missing)
