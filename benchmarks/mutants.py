"""Which one-line faults the tests do not notice: ``python -m benchmarks.mutants [--count N] [--seed S] [--room R]``.

A mutant is the package with one expression or statement changed: an operator, a comparison, a number, a condition, a
call left out. Mutants are drawn at random (by a fixed seed) over the lines of the rooms that decide times. Each runs,
in a copy of the project, the tests that pass over its line, until one fails; tests marked slow are left out.
A test only counts where it passes without the mutant. The survivors are printed, each a claim that no test makes.
Needs the dependency group ``test``; ``--coverage`` keeps which test passes over which line for the next draw, which
holds as long as no line of the rooms changes.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import importlib.util
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
ROOMS = ("lowering", "machine", "cost", "semantics", "allocation")
# A mutant runs the most telling tests first, then more of them, and what is left only where all of these pass.
STAGES = (20, 200)
LEFT_OUT = (".git", ".venv*", ".*_cache", ".hypothesis", "notebooks")
# What most tests import takes longer to load than they take to run: processes are forked from one that has loaded it.
PRELOADED = ["numpy", "ml_dtypes", "numba", "jax", "msgspec", "matplotlib.pyplot", "rich.console", "simpy", "pytest"]

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any", "ceil": "floor"}


class Mutant(NamedTuple):
    """One changed line: the file from the root, the line's number, what it was and what it becomes."""

    path: str
    line: int
    before: str
    after: str

    def __str__(self) -> str:
        """Return the place and both lines."""
        return f"{self.path}:{self.line}\n    - {self.before.strip()}\n    + {self.after.strip()}"


def changed(node: ast.AST) -> ast.AST | None:
    """Return a node with one thing changed in it, None where there is nothing to change."""
    new = copy.deepcopy(node)
    match new:
        case ast.BinOp() | ast.BoolOp() if type(new.op) in SWAPPED:
            new.op = SWAPPED[type(new.op)]()
        case ast.Compare() if type(new.ops[0]) in SWAPPED:
            new.ops[0] = SWAPPED[type(new.ops[0])]()
        case ast.Constant() if isinstance(new.value, bool):
            new.value = not new.value
        case ast.Constant() if isinstance(new.value, int | float):
            new.value += 1
        case ast.UnaryOp() if isinstance(new.op, ast.Not | ast.USub):
            return new.operand
        case ast.Call() if isinstance(new.func, ast.Name) and new.func.id in NAMES:
            new.func.id = NAMES[new.func.id]
        case ast.IfExp():
            new.body, new.orelse = new.orelse, new.body
        case ast.AugAssign() | ast.Expr(value=ast.Call()) | ast.Continue() | ast.Break():
            return ast.Pass()
        case _:
            return None
    return new


def live_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a tree that run: no annotations, decorators, docstrings, or imports for types."""
    for field, value in ast.iter_fields(tree):
        if field in ("annotation", "returns", "decorator_list", "bases", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            for_types = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
            # Whether ``zip`` counts its arguments, or the collector a struct, no test of behaviour sees.
            asserts = isinstance(child, ast.keyword) and child.arg in ("strict", "gc")
            if not isinstance(child, ast.AST) or for_types or asserts:
                continue
            yield child
            yield from live_nodes(child)


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield the mutants of a file."""
    text = path.read_text(encoding="utf-8")
    lines = text.splitlines()
    for node in live_nodes(ast.parse(text)):
        new = changed(node) if getattr(node, "lineno", 0) == getattr(node, "end_lineno", -1) else None
        if new is None:
            continue
        before = lines[node.lineno - 1]
        written = ast.unparse(new) if isinstance(new, ast.stmt | ast.Constant | ast.Call) else f"({ast.unparse(new)})"
        # Columns count bytes.
        raw = before.encode()
        after = (raw[: node.col_offset] + written.encode() + raw[node.end_col_offset :]).decode()
        yield Mutant(path.relative_to(ROOT).as_posix(), node.lineno, before, after)


def drawn(rooms: list[str], count: int, seed: int) -> list[Mutant]:
    """Return so many mutants, the lines of all rooms being equally likely."""
    by_line: dict[tuple[str, int], list[Mutant]] = {}
    for path in sorted(path for room in rooms for path in (ROOT / "tpusim" / room).rglob("*.py")):
        for mutant in mutants_of(path):
            by_line.setdefault((mutant.path, mutant.line), []).append(mutant)
    chance = random.Random(seed)
    return [chance.choice(by_line[place]) for place in chance.sample(list(by_line), min(count, len(by_line)))]


def measured_lines(data_file: Path, rooms: list[str]) -> CoverageData:
    """Return which test passes over which line; measured now unless ``data_file`` is there already."""
    if not data_file.exists():
        covered = [f"--cov=tpusim.{room}" for room in rooms]
        command = ["-m", "pytest", "-q", "-n", "2", "-m", "not slow", *covered, "--cov-context=test", "--cov-report="]
        subprocess.run(
            [sys.executable, *command], cwd=ROOT, check=False, env={**_environment(), "COVERAGE_FILE": str(data_file)}
        )
    data = CoverageData(str(data_file))
    data.read()
    return data


class Tests:
    """Which tests pass over which line, the most telling first."""

    def __init__(self, data: CoverageData) -> None:
        self.data = data
        self.missing: set[str] = set()
        self.width: Counter[str] = Counter()
        for path in data.measured_files():
            for contexts in data.contexts_by_lineno(path).values():
                self.width.update(contexts)

    def over(self, mutant: Mutant, most: int) -> list[str]:
        """Return the tests that pass over a mutant's line, at most so many: those of its own room first.

        Of a room those come first that pass over the fewest lines: they are quick, and about little else.
        """
        by_line = self.data.contexts_by_lineno(str(ROOT / mutant.path))
        contexts = set(by_line.get(mutant.line, ()))
        if contexts == {""}:
            # It runs when the file is imported: what comes of that may show in any test of the file.
            contexts = set().union(*by_line.values())
        room = f"tests/{mutant.path.split('/')[1]}/"
        found = {context.rpartition("|")[0]: self.width[context] for context in contexts if context}
        order = sorted(found, key=lambda test: (not test.startswith(room), found[test], test))
        return [test for test in order if test not in self.missing][:most]


class Outcome(NamedTuple):
    """The end of a run of tests: pytest's exit code, and all that it wrote."""

    code: int
    text: str

    @property
    def failed(self) -> str:
        """The first test that failed, or the file of tests that could not be read."""
        lines = [line.split(" ", 1)[1] for line in self.text.splitlines() if line.startswith(("FAILED ", "ERROR "))]
        if not lines and self.code == pytest.ExitCode.TESTS_FAILED:
            raise RuntimeError(f"the tests did not run:\n{self.text}")
        return lines[0].split(" - ")[0] if lines else f"exit code {self.code}"

    @property
    def unknown(self) -> set[str]:
        """The tests asked for that are not there."""
        marks = ("ERROR: not found: ", "ERROR: file or directory not found: ")
        return {line.removeprefix(mark) for line in self.text.splitlines() for mark in marks if line.startswith(mark)}


class Copy:
    """A copy of the project in which one mutant at a time is tried."""

    def __init__(self, folder: Path, cpu_seconds: int) -> None:
        self.folder = folder
        self.cpu_seconds = cpu_seconds
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))

    @contextlib.contextmanager
    def holding(self, mutant: Mutant) -> Iterator[None]:
        """Change the line of a mutant as long as the context lasts."""
        target = self.folder / mutant.path
        original = target.read_bytes()
        lines = original.decode().splitlines()
        lines[mutant.line - 1] = mutant.after
        try:
            _write(target, "\n".join([*lines, ""]).encode())
            yield
        finally:
            _write(target, original)

    def run(self, tests: Sequence[str]) -> Outcome | None:
        """Run tests until one fails; None if they do not end."""
        log = self.folder / "log"
        log.write_bytes(b"")
        arguments = (self.folder, tests, log, self.cpu_seconds)
        process = multiprocessing.get_context("forkserver").Process(target=_pytest, args=arguments)
        process.start()
        process.join()
        if process.exitcode in (-signal.SIGXCPU, -signal.SIGKILL):
            return None
        return Outcome(process.exitcode or 0, log.read_text(errors="replace").replace(f"{self.folder}/", ""))


def _write(path: Path, content: bytes) -> None:
    """Write a module, and forget what was compiled of it: Python tells versions apart by size and whole seconds."""
    path.write_bytes(content)
    Path(importlib.util.cache_from_source(path)).unlink(missing_ok=True)


def _pytest(folder: Path, tests: Sequence[str], log: Path, cpu_seconds: int) -> None:
    """Run tests in a copy of the project: the body of a process of its own."""
    # Not by the wall clock: a busy machine would make mutants that never end of slow ones.
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 5))
    out = os.open(log, os.O_WRONLY | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.chdir(folder)
    # A process that a test starts takes its modules from the copy too.
    os.environ["PYTHONPATH"] = str(folder)
    sys.dont_write_bytecode = False
    sys.path[:] = [str(folder), *(path for path in sys.path if path not in ("", str(ROOT)))]
    code = pytest.main(["-x", "-q", "--no-header", "--tb=no", "-p", "no:cacheprovider", "-p", "no:xdist", *tests])
    sys.stdout.flush()
    # Threads that a test left behind would keep the process alive.
    os._exit(code)


class Trial:
    """Mutants tried in copies of the project, several at once."""

    def __init__(self, tests: Tests, most: int) -> None:
        self.tests = tests
        self.most = most
        # Whether a test passes without any mutant.
        self.passes: dict[str, bool] = {}

    def killer(self, mutant: Mutant, place: Copy) -> str:
        """Return the test that notices a mutant, empty if none does."""
        passed: set[str] = set()
        for stage in (*STAGES, self.most):
            while tests := [test for test in self.tests.over(mutant, min(stage, self.most)) if test not in passed]:
                with place.holding(mutant):
                    outcome = place.run(tests)
                if outcome is None:
                    return "a test that does not end"
                if not outcome.code:
                    passed.update(tests)
                elif outcome.code == pytest.ExitCode.USAGE_ERROR and outcome.unknown:
                    # Measured before the tests were changed.
                    self.tests.missing |= outcome.unknown
                elif self.is_sound(outcome.failed, place):
                    return outcome.failed
                else:
                    self.tests.missing.add(outcome.failed)
        return ""

    def is_sound(self, test: str, place: Copy) -> bool:
        """Return whether a test passes without a mutant, or is none: a file that cannot be imported with it."""
        if test not in self.passes and "::" in test:
            outcome = place.run([test])
            self.passes[test] = outcome is not None and not outcome.code
        return self.passes.get(test, True)


def _environment(folder: Path = ROOT) -> dict[str, str]:
    """Return the environment of a run of the tests in a folder."""
    return {**os.environ, "PYTHONPATH": str(folder)}


def main() -> None:
    """Print every mutant with the test that notices it, then the survivors and their share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", action="append", choices=ROOMS, help="default: all of them")
    parser.add_argument("--coverage", type=Path, help="file of an earlier measurement, or where to keep this one")
    parser.add_argument("--jobs", type=int, default=2, help="mutants tried at once (default: 2)")
    parser.add_argument("--most", type=int, default=10**6, help="tests tried for each mutant (default: all)")
    parser.add_argument("--timeout", type=int, default=600, help="CPU seconds that they may take (default: 600)")
    options = parser.parse_args()
    rooms = options.room or list(ROOMS)
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    # A copy compiles its modules once, not for every mutant.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False
    multiprocessing.get_context("forkserver").set_forkserver_preload(PRELOADED)
    with tempfile.TemporaryDirectory() as scratch:
        trial = Trial(Tests(measured_lines(options.coverage or Path(scratch) / "coverage", rooms)), options.most)
        copies: Queue[Copy] = Queue()
        for number in range(options.jobs):
            copies.put(Copy(Path(scratch) / f"copy{number}", options.timeout))
        chosen, tried = drawn(rooms, options.count, options.seed), count(1)

        def fate(mutant: Mutant) -> str:
            """Try a mutant in the copy that is free, and say what became of it."""
            place = copies.get()
            try:
                found = trial.killer(mutant, place)
            finally:
                copies.put(place)
            end = f"noticed by {found}" if found else "SURVIVES"
            end += "" if found or trial.tests.over(mutant, 1) else ": no test comes here"
            sys.stdout.write(f"[{next(tried)}/{len(chosen)}] {mutant}\n    {end}\n")
            sys.stdout.flush()
            return found

        with ThreadPoolExecutor(options.jobs) as pool:
            fates = list(pool.map(fate, chosen))
    survivors = [mutant for mutant, found in zip(chosen, fates, strict=True) if not found]
    sys.stdout.write("\n".join(["", *map(str, survivors)]))
    sys.stdout.write(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants noticed, {len(survivors)} survive\n")


if __name__ == "__main__":
    main()
