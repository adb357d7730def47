"""A study: points run where they have not been, and tables of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any

from tpusim.errors import ConfigError
from tpusim.limits import PROCESSES, check_count
from tpusim.study import effects
from tpusim.study.execution import Execution
from tpusim.study.executors import borrower, opener
from tpusim.study.points import Point, points_of
from tpusim.study.spec import Spec, make_spec, read_spec
from tpusim.study.store import Store, key_of
from tpusim.study.table import FIGURES, Row, frame_of, rows_of
from tpusim.study.work import Outcome, registrations

Progress = Callable[[int, int], None]
"""Called with how many points of how many are done."""


class Study:
    """Programs on many machines: ``Study("study.toml", store="study").run().frame()``.

    ``source`` is a TOML file, or what it would say as a mapping or as keywords: ``programs`` (patterns, modules, or
    functions of axes that return modules), ``base``, ``schedule``, ``topology``, ``axes``, ``derive``, ``constraints``,
    ``warm``, ``allow_overflow``, ``default_trip_count``; patterns and files of chips start from the file's folder, or
    ``folder``. Outcomes are kept in the folder ``store`` as they come, and taken from there. ``executor`` is any
    executor of ``concurrent.futures``, or a text as ``tpusim sweep --executor`` takes it; by default ``jobs``
    processes, one for each core, so that a script that makes a study has to guard its own beginning
    (``if __name__ == "__main__":``) or set ``jobs=1``. Without ``reuse`` each point is worked out by itself. Programs
    with custom calls that are registered (``register_custom_call``) run in this process and are not kept, as no other
    one knows their costs. Raises ConfigError, with the nearest known key, for what is no study.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any] | Spec | None = None,
        *,
        folder: str | Path = "",
        store: str | Path | None = None,
        executor: Executor | str = "",
        jobs: int | None = None,
        reuse: bool = True,
        progress: Progress | None = None,
        **table: Any,
    ) -> None:
        if isinstance(source, Spec):
            self.spec = source
        elif isinstance(source, str | Path):
            self.spec = read_spec(source)
        else:
            if not isinstance(source, Mapping | None):
                raise ConfigError(f"study: expected a file or what it would say, found {source!r:.80}")
            self.spec = make_spec({**(source or {}), **table}, Path(folder))
        if jobs is not None:
            jobs = check_count("jobs", jobs, PROCESSES)
        self._open = opener(executor, jobs) if isinstance(executor, str) else borrower(executor, jobs)
        self.folder = Path(store) if store is not None else None
        self._store = Store(self.folder)
        self._reuse, self._progress = reuse, progress or (lambda done, total: None)
        self._outcomes: dict[str, Outcome] = {}

    @property
    def points(self) -> Sequence[Point]:
        """The points in the order of the table."""
        return self._points[0]

    @property
    def excluded(self) -> int:
        """How many points the constraints exclude."""
        return self._points[1]

    @cached_property
    def _points(self) -> tuple[list[Point], int]:
        return points_of(self.spec)

    def run(self) -> Study:
        """Run the points that have no outcome yet, and return the study."""
        self.outcomes(self.points)
        return self

    def outcomes(self, points: Sequence[Point]) -> list[Outcome]:
        """Return the outcomes of some points, from the store or worked out now."""
        keys = {id(point): key_of(point) for point in points}
        # What it has run it knows, also once its store is closed.
        if new := [key for key in keys.values() if key not in self._outcomes]:
            self._outcomes |= self._store.found(new)
        missing = {keys[id(point)]: point for point in points if keys[id(point)] not in self._outcomes}
        own = {id(point) for point in missing.values() if registrations(point.program)}
        done = len(points) - len(missing)

        def record(found: Sequence[tuple[Point, Outcome]]) -> None:
            nonlocal done
            new = {keys[id(point)]: outcome for point, outcome in found}
            # What follows from a function of the caller's no other process would find.
            self._store.put({keys[id(point)]: outcome for point, outcome in found if id(point) not in own})
            self._outcomes |= new
            done += len(found)
            self._progress(done, len(points))

        record([(point, Outcome(status="error", message=point.fault)) for point in missing.values() if point.fault])
        to_run = [point for point in missing.values() if not point.fault]
        Execution(self._open, record, reuse=self._reuse).run(point for point in to_run if id(point) not in own)
        if own:
            # Workers know of no such function, and it may return something else the next time.
            Execution(opener("", 1), record, reuse=False).run(point for point in to_run if id(point) in own)
        return [self._outcomes[keys[id(point)]] for point in points]

    @property
    def faults(self) -> list[str]:
        """What is to be said of each point so far that ended in a fault of tpusim itself."""
        return [outcome.message for outcome in self._outcomes.values() if outcome.status == "fault"]

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def rows(self) -> list[Row]:
        """Return a row for each point: what it is, its status, its figures and hashes. Runs what has not been run."""
        return rows_of(self.points, self.outcomes(self.points))

    def frame(self) -> Any:
        """Return the rows as a frame of pandas or polars, whichever is installed, or as a list of dictionaries."""
        return frame_of(self.rows())

    def pareto(self, x: str, y: str, per: str | None = None) -> Any:
        """Return those points, as ``frame`` does, that no other one beats in two columns of which less is better.

        ``per`` is a column; each of its values has a front of its own (``per="program"``).
        """
        return frame_of(effects.pareto(self.rows(), x, y, per))

    def effects(self, figure: str = "time_us") -> list[effects.Effect]:
        """Return what each axis does to a figure, as shares of it, at the axis's least and greatest value."""
        return effects.effects(self.rows(), self.spec, figure)

    def effect_table(self) -> list[Row]:
        """Return the effects of all axes on time and energy, in percent, as ``tpusim plot sensitivity`` takes them."""
        return effects.effect_table(self.rows(), self.spec, FIGURES)

    def unmoved(self) -> list[str]:
        """Return a sentence for each axis along which nothing changed."""
        return effects.unmoved(self.rows(), self.spec, FIGURES)
