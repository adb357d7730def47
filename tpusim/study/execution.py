"""Points onto workers: batches of one program each, outcomes recorded as they come, dead workers survived."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from typing import Any

from tpusim.cost.models.registry import allowed_plugins
from tpusim.errors import SimulationError
from tpusim.study.executors import Opened
from tpusim.study.points import Point
from tpusim.study.work import Job, Outcome, run_batch

Record = Callable[[Sequence[tuple[Point, Outcome]]], None]

_BATCH = 64
_SECONDS = 0.25
"""What is lost at most if the process ends, beside a point for each worker."""
_MOST_DEATHS = 3
"""So many workers may die of a point before it is taken to kill them."""
_MOST_DEATHS_IN_A_ROW = 12
"""More than a batch takes to be halved down to the one point that workers die of, and to give that up."""


class Execution:
    """Runs points on what ``open_executor`` opens, which it does again where that breaks."""

    def __init__(self, open_executor: Callable[[], Opened], record: Record, *, reuse: bool = True) -> None:
        self._open, self._record, self._reuse = open_executor, record, reuse
        self._executor: Executor | None = None
        self._slots = 1
        self._queues: list[deque[Point]] = []
        # Points whose worker died are run again with nothing beside them, so that it shows which it dies of.
        self._suspects: deque[list[Point]] = deque()
        self._deaths: Counter[int] = Counter()
        self._deaths_in_a_row = 0
        self._running: dict[Future[list[Outcome]], list[Point]] = {}
        self._busy: Counter[int] = Counter()

    def run(self, points: Iterable[Point]) -> None:
        """Run all points; each outcome is recorded once."""
        queues: dict[Any, deque[Point]] = {}
        for point in points:
            queues.setdefault((id(point.program), point.topology, point.schedule), deque()).append(point)
        self._queues = list(queues.values())
        try:
            while self._submit() or self._running:
                done, _ = wait(self._running, return_when=FIRST_COMPLETED)
                for future in done:
                    self._take(future)
        finally:
            self._close()

    def _submit(self) -> bool:
        """Give workers that wait something to do; return whether anything was given."""
        given = False
        while (batch := self._next_batch()) is not None:
            jobs, rest = [_job(point) for point in batch], (_SECONDS, self._reuse, allowed_plugins())
            try:
                future = self._opened().submit(run_batch, batch[0].program, jobs, *rest)
            except BrokenExecutor as error:
                # It broke in between: what runs there will tell as well.
                future = Future()
                future.set_exception(error)
            self._running[future] = batch
            self._busy[id(batch[0].program)] += 1
            given = True
        return given

    def _next_batch(self) -> list[Point] | None:
        """Return what to run next: of the programs that have points left one that fewest workers are at."""
        if self._suspects:
            return self._suspects.popleft() if not self._running else None
        left = [queue for queue in self._queues if queue]
        self._opened()
        if not left or len(self._running) >= self._slots:
            return None
        queue = min(left, key=lambda queue: self._busy[id(queue[0].program)])
        # Of a queue that is nearly done no worker takes all.
        size = min(_BATCH, -(-len(queue) // self._slots))
        return [queue.popleft() for _ in range(size)]

    def _opened(self) -> Executor:
        if self._executor is None:
            self._executor, self._slots = self._open()
        return self._executor

    def _take(self, future: Future[list[Outcome]]) -> None:
        """Record the outcomes of a batch, and queue again what of it was not run."""
        batch = self._running.pop(future)
        self._busy[id(batch[0].program)] -= 1
        try:
            outcomes = future.result()
        # A pool that broke, a worker that its cluster lost: each library has an error of its own.
        except Exception as error:
            self._lose(batch, error)
            return
        self._deaths_in_a_row = 0
        self._record(list(zip(batch, outcomes, strict=False)))
        if rest := batch[len(outcomes) :]:
            self._queues.append(deque(rest))

    def _lose(self, batch: list[Point], error: Exception) -> None:
        """Run points again whose worker has died, in halves, or give up one that workers die of by itself."""
        self._deaths_in_a_row += 1
        if self._deaths_in_a_row > _MOST_DEATHS_IN_A_ROW:
            raise SimulationError(
                f"study: {_MOST_DEATHS_IN_A_ROW} times in a row workers died before they had run anything "
                f"({type(error).__name__}: {error}): a script that makes a study has to guard its own beginning "
                "(if __name__ == '__main__':), since each worker imports it; or run it in this process (jobs=1)"
            ) from error
        if len(batch) > 1:
            half = len(batch) // 2
            self._suspects += [batch[:half], batch[half:]]
        else:
            point = batch[0]
            self._deaths[id(point)] += 1
            if self._deaths[id(point)] >= _MOST_DEATHS:
                what = f"{_MOST_DEATHS} workers died of this point: {type(error).__name__}: {error}"
                self._record([(point, Outcome(status="error", message=what))])
            else:
                self._suspects.append(batch)
        if not self._running:
            self._close()

    def _close(self) -> None:
        """Let go of the executor; the next batch opens another one."""
        executor, self._executor, self._slots = self._executor, None, 1
        if executor is not None:
            executor.shutdown(cancel_futures=True)


def _job(point: Point) -> Job:
    assert point.chip is not None
    return Job(point.chip, point.topology, point.schedule, point.settings)
