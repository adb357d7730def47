"""What dies: workers, whole pools, the study's own process. The table is the same in the end."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

import tpusim
from tests.house.source_tree import ROOT
from tests.study.cases import BANDWIDTH, MLP
from tests.study.workers import TABLE, Late, Mortal, Ray
from tpusim.study import execution, executors
from tpusim.study import study as study_room

_KILLS = 4
"""So often one study is killed; by then it may be through."""


@pytest.fixture(scope="module")
def undisturbed():
    """The rows of the study with nothing in its way."""
    return tpusim.Study(TABLE, jobs=1).rows()


def rows_with(monkeypatch, dies, slots: int = 3) -> list[dict]:
    """Return the rows of a study whose pools die where ``dies`` says so."""
    monkeypatch.setattr(study_room, "opener", lambda name, jobs: lambda: (Mortal(dies), slots))
    return tpusim.Study(TABLE).rows()


def test_a_worker_that_dies_once_costs_nothing(monkeypatch, undisturbed):
    """Its points, and those of other workers of the pool, are run again."""
    deaths = iter([False, True, False, True])
    assert rows_with(monkeypatch, lambda program, jobs: next(deaths, False)) == undisturbed


def test_a_point_that_kills_its_workers_is_an_error_and_the_others_are_not(monkeypatch, undisturbed):
    """It is found among those of its batch."""
    killer = tpusim.Study(TABLE).points[37]

    def dies(program, jobs) -> bool:
        return program == killer.program and any(job.chip == killer.chip for job in jobs)

    rows = rows_with(monkeypatch, dies)
    wrong = [number for number, row in enumerate(rows) if row != undisturbed[number]]
    assert wrong == [37]
    assert rows[37]["status"] == "error"
    assert "3 workers died of this point" in rows[37]["message"]


def test_what_is_left_of_a_batch_runs_with_its_own_program(monkeypatch):
    """Also where its program has nothing else that waits, and another one has."""
    monkeypatch.setattr(study_room, "opener", lambda name, jobs: lambda: (Late(MLP), 4))
    rows = tpusim.Study(TABLE).rows()
    assert [row["message"] for row in rows] == [row["program"] for row in rows]


def test_batches_that_run_out_of_time_go_on_in_others(monkeypatch, undisturbed):
    """Each with the rest of its own program's points, whatever else waits."""
    monkeypatch.setattr(execution, "_SECONDS", 0.0)
    assert rows_with(monkeypatch, lambda program, jobs: False) == undisturbed


def test_workers_that_never_run_anything_end_the_study(monkeypatch):
    """With what usually is the reason: a script that is imported by its own workers."""
    with pytest.raises(tpusim.SimulationError, match="guard its own beginning"):
        rows_with(monkeypatch, lambda program, jobs: True)


def test_a_caller_s_broken_executor_is_refused():
    """It cannot be opened again."""
    broken = ThreadPoolExecutor(1)
    broken.shutdown()
    with pytest.raises(tpusim.ConfigError, match="broken"):
        tpusim.Study(TABLE, executor=broken).run()


def test_a_caller_s_executor_runs_it_and_stays_open(undisturbed):
    """Any of concurrent.futures."""
    with ThreadPoolExecutor(2) as pool:
        assert tpusim.Study(TABLE, executor=pool).rows() == undisturbed
        assert pool.submit(int, "7").result() == 7


@pytest.mark.parametrize("name", ["dsk:local", "threads"])
def test_an_unknown_executor_is_refused(name):
    """With what there is."""
    with pytest.raises(tpusim.ConfigError, match="dask:ADDRESS"):
        tpusim.Study(TABLE, executor=name)


def test_ray_gets_batches_by_its_own_call(monkeypatch, undisturbed):
    """As its package takes them."""
    monkeypatch.setitem(sys.modules, "ray", Ray)
    assert tpusim.Study(TABLE, executor="ray:head:6379").rows() == undisturbed


def killed_at(store, seconds: float, is_worker_first: bool) -> None:
    """Run the study in a process of its own, on two workers, and kill that after a while, or one of these first."""
    command = [sys.executable, "-m", "tests.study.workers", str(store), "2"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    time.sleep(seconds)
    workers = children_of(process.pid)
    if is_worker_first:
        for worker in workers[:1]:
            os.kill(worker, signal.SIGKILL)
        time.sleep(seconds / 4)
    process.kill()
    process.wait()
    wait_for_end(workers)


def children_of(number: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    listed = subprocess.run(
        ["ps", "-o", "pid=,args=", "--ppid", str(number)], capture_output=True, text=True, check=False
    )
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if "spawn_main" in line]


def wait_for_end(workers: list[int]) -> None:
    """Return when none of some processes runs any more; workers end with the one that started them."""
    end = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{worker}/stat") and not is_gone(worker) for worker in workers):
        assert time.monotonic() < end, "a worker outlives the process that started it"
        time.sleep(0.05)


def is_gone(worker: int) -> bool:
    """Return whether a process has ended, though nobody has asked how."""
    try:
        with open(f"/proc/{worker}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks for workers in /proc")
@pytest.mark.parametrize("times", [2, pytest.param(50, marks=pytest.mark.slow)])
def test_a_killed_study_goes_on_to_the_same_table(tmp_path, undisturbed, times):
    """At random moments, itself or a worker first; what was done by then stays done."""
    draw = random.Random(times)
    moments = [(draw.uniform(0.2, 2.5), draw.random() < 0.5) for _ in range(times)]

    def kill_from(first: int) -> None:
        for seconds, is_worker_first in moments[first : first + _KILLS]:
            killed_at(tmp_path / str(first), seconds, is_worker_first)

    # Most of the time is waited for.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(kill_from, range(0, times, _KILLS)))
    for folder in tmp_path.iterdir():
        assert tpusim.Study(TABLE, store=folder, jobs=1).rows() == undisturbed


@pytest.mark.slow
def test_a_killed_worker_of_a_real_pool_is_survived(undisturbed):
    """All workers of the pool go with it; another pool opens."""
    opened: list[ProcessPoolExecutor] = []
    plain = executors.opener("", 2)

    def open_again():
        executor, count = plain()
        opened.append(executor)
        return executor, count

    def kill_one(done: int, total: int) -> None:
        if 0 < len(opened) < 3:
            os.kill(next(iter(opened[-1]._processes)), signal.SIGKILL)

    study = tpusim.Study(TABLE, jobs=2, progress=kill_one)
    study._open = open_again
    assert study.rows() == undisturbed
    assert len(opened) == 3


@pytest.mark.slow
def test_a_lost_dask_worker_is_survived(undisturbed):
    """Its points go to others, or to the one that is started in its place."""
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:
        killed = []

        def kill_one(done: int, total: int) -> None:
            if not killed:
                killed.append(next(iter(cluster.workers.values())).process.pid)
                os.kill(killed[0], signal.SIGKILL)

        study = tpusim.Study(TABLE, executor=f"dask:{cluster.scheduler_address}", progress=kill_one)
        assert study.rows() == undisturbed
        assert killed


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="has no groups of processes")
@pytest.mark.parametrize("seconds", [0.4, 0.6, 0.8, 1.0, 1.2, 1.5, 2.0])
def test_an_interrupt_ends_a_study_without_a_word(tmp_path, seconds):
    """A terminal sends it to the workers as well, wherever they are with what they load."""
    axes = ("-o", f"{BANDWIDTH}=lin(400G, 3T, 4000)")
    command = [sys.executable, "-m", "tpusim", "sweep", MLP, *axes, "--jobs", "2", "--csv", str(tmp_path / "out.csv")]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        assert process.communicate(timeout=60)[1] == b""
        # Before a handler is there the signal ends the process.
        assert process.returncode in (130, -signal.SIGINT)
