"""Executors that fail as real ones do, and a process that runs a study until it is killed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from pathlib import Path
from threading import Event
from types import SimpleNamespace
from typing import Any

from tests.study.cases import BANDWIDTH, LSTM, MLP
from tpusim.study import executors
from tpusim.study import study as study_room
from tpusim.study.work import Outcome

AXES = {BANDWIDTH: {"log": ["400G", "4T", 8]}, "mxu.count": ["x1", "x2"], "vmem.capacity_bytes": ["32Mi", "x1"]}
TABLE = {"programs": [LSTM, MLP], "axes": AXES}


class Mortal(Executor):
    """Runs batches at once, and dies where ``dies`` says so of a batch, as a pool does whose worker was killed."""

    def __init__(self, dies: Callable[[Any, Any], bool]) -> None:
        self._dies, self.is_broken = dies, False

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Return a future, which breaks with all others once a batch kills a worker."""
        if self.is_broken:
            raise BrokenExecutor("broken")
        future: Future[Any] = Future()
        self.is_broken = self._dies(*given[:2])
        if self.is_broken:
            future.set_exception(BrokenExecutor("a worker died"))
        else:
            future.set_result(run(*given, **named))
        return future


class Late(ThreadPoolExecutor):
    """Says which program points were run with; the first three batches wait until no point of one program waits.

    Until then of each batch but one point is run. So that program has points left, and none that wait.
    """

    def __init__(self, waits_for: str) -> None:
        super().__init__(4)
        self._waits_for, self._submitted, self._ended = waits_for, 0, Event()

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Return the future of a batch."""
        self._submitted += 1
        (program, jobs), is_late = given[:2], self._submitted <= 3
        # Others are given work only while fewer of their batches are under way.
        if self._submitted > 4 and not program.path.endswith(self._waits_for):
            self._ended.set()

        def points() -> list[Outcome]:
            count = len(jobs) if self._ended.is_set() else 1
            if is_late:
                self._ended.wait(30)
            return [Outcome(status="ok", message=program.name)] * count

        return super().submit(points)


class Ray:
    """A stand-in for Ray's package: ``ray.remote(f).remote(...)`` has a future."""

    @staticmethod
    def init(address, ignore_reinit_error):
        """Connect to the one cluster that there is."""
        assert (address, ignore_reinit_error) == ("head:6379", True)

    @staticmethod
    def cluster_resources():
        """Return what it has."""
        return {"CPU": 4.0}

    @staticmethod
    def remote(run):
        """Return the remote form of a function."""
        done = executors.InProcess()
        return SimpleNamespace(remote=lambda *given: SimpleNamespace(future=lambda: done.submit(run, *given)))

    @staticmethod
    def shutdown():
        """Leave it."""


def main(store: Path, jobs: int) -> None:
    """Run the study, as the command line would."""
    study_room.Study(TABLE, store=store, jobs=jobs).run()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
