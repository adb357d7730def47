"""Who runs the points: this process, processes beside it, Dask or Ray; any other executor is the caller's."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from typing import Any

from tpusim.errors import ConfigError, did_you_mean
from tpusim.study.work import prepare_worker

Opened = tuple[Executor, int]
"""An executor, and how many batches it works on at once."""


class InProcess(Executor):
    """Runs what it is given at once, in this process."""

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Return a future that is done."""
        future: Future[Any] = Future()
        try:
            future.set_result(run(*given, **named))
        except Exception as error:
            future.set_exception(error)
        return future


class _Processes(ProcessPoolExecutor):
    """Processes that an interrupt from the terminal does not reach: they end with this one, and say nothing."""

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Return the future of a batch, for which processes may be begun: they keep what is held back here."""
        # Windows has no such signals.
        if not hasattr(signal, "pthread_sigmask"):
            return super().submit(run, *given, **named)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(run, *given, **named)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


class RayExecutor(Executor):
    """Hands batches to a Ray cluster, whose own package has no executor."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        """Return the future of a remote task."""
        found: Future[Any] = self._ray.remote(run).remote(*given, **named).future()
        return found

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster."""
        self._ray.shutdown()


class _Borrowed(Executor):
    """The caller's executor, which is not ours to shut down."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor

    def submit(self, run: Callable[..., Any], /, *given: Any, **named: Any) -> Future[Any]:
        try:
            return self._executor.submit(run, *given, **named)
        except RuntimeError as error:
            raise ConfigError(
                f"study: expected an executor that takes work, found one that is broken: {error}"
            ) from error


def borrower(executor: Executor, jobs: int | None) -> Callable[[], Opened]:
    """Return a function that opens a caller's executor, for as many batches at once as it says that it has workers."""
    if not hasattr(executor, "submit"):
        raise ConfigError(f"study: expected an executor of concurrent.futures, or its name, found {executor!r:.80}")
    count = jobs or getattr(executor, "_max_workers", None) or os.cpu_count() or 1
    return lambda: (_Borrowed(executor), count)


def opener(name: str, jobs: int | None) -> Callable[[], Opened]:
    """Return a function that opens an executor by name, as often as the last one broke.

    ``""`` is processes, as many as there are cores unless ``jobs`` says otherwise, or with one job, and in a worker of
    a pool, this process;
    ``dask:ADDRESS`` and ``ray:ADDRESS`` are clusters, ``dask:local`` a Dask cluster on this machine. Raises ConfigError
    for another name, or where the package of a cluster is missing.
    """
    kind, _, address = name.partition(":")
    if kind not in _KINDS:
        hint = did_you_mean(kind, filter(None, _KINDS))
        raise ConfigError(f"--executor: expected dask:ADDRESS, dask:local or ray:ADDRESS, found {name!r}{hint}")
    return lambda: _KINDS[kind](address, jobs)


def _processes(address: str, jobs: int | None) -> Opened:
    count = jobs or len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else jobs or os.cpu_count() or 1
    # A worker of a pool may have no processes of its own: Python would refuse them by an assertion.
    if count == 1 or multiprocessing.current_process().daemon:
        return InProcess(), 1
    # Not forked: this process may have threads, and what they hold would stay held.
    context = multiprocessing.get_context("spawn")
    return _Processes(count, mp_context=context, initializer=prepare_worker), count


def _dask(address: str, jobs: int | None) -> Opened:
    try:
        import distributed
    except ImportError as error:
        raise ConfigError("--executor dask needs Dask: pip install 'tpusim[dask]'") from error
    local = {"n_workers": jobs, "threads_per_worker": 1, "dashboard_address": None}
    connect: Any = distributed.Client
    try:
        client = connect(**local) if address in ("", "local") else connect(address)
    # Of what is no address, and where processes cannot be begun, as well.
    except (OSError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--executor: no Dask scheduler answers at {address or 'local'}: {error}") from error
    executor = client.get_executor(pure=False)
    count = jobs or sum(client.nthreads().values()) or 1
    # The executor does not own its client.
    executor.shutdown = lambda wait=True, **_: client.close()
    return executor, count


def _ray(address: str, jobs: int | None) -> Opened:
    try:
        import ray
    except ImportError as error:
        raise ConfigError("--executor ray needs Ray: pip install ray") from error
    ray.init(address or None, ignore_reinit_error=True)
    return RayExecutor(ray), jobs or int(ray.cluster_resources().get("CPU", 1))


_KINDS: dict[str, Callable[[str, int | None], Opened]] = {"": _processes, "dask": _dask, "ray": _ray}
