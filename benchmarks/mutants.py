"""Which one-line faults the tests do not notice: ``python -m benchmarks.mutants [--count N] [--seed S] [--room R]``.

A mutant is the package with one expression or statement changed: an operator, a comparison, a number, a condition, a
call left out. Mutants are drawn at random (by a fixed seed) over the lines of the rooms that decide times. Each runs,
in a copy of the project, the tests that pass over its line, until one fails; tests marked slow are left out.
The survivors are printed, each a claim that no test makes. Needs the dependency group ``test``.
"""

from __future__ import annotations

import argparse
import ast
import copy
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import NamedTuple

import pytest
from coverage import CoverageData

ROOT = Path(__file__).parents[1]
ROOMS = ("lowering", "machine", "cost", "semantics", "allocation")
LEFT_OUT = (".git", ".venv*", "__pycache__", ".*_cache", ".hypothesis", "notebooks")

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
            if not isinstance(child, ast.AST) or for_types:
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


def tests_over(data: CoverageData, mutant: Mutant) -> list[str]:
    """Return the tests that pass over a mutant's line, those of its own room first."""
    contexts = data.contexts_by_lineno(str(ROOT / mutant.path)).get(mutant.line, [])
    room = f"tests/{mutant.path.split('/')[1]}/"
    tests = {context.split("|")[0] for context in contexts if context}
    return sorted(tests, key=lambda test: (not test.startswith(room), test))


def killer(mutant: Mutant, tests: list[str], folder: Path) -> str:
    """Return the test that a mutant fails, run in a copy of the project; empty if it survives all of them."""
    target = folder / mutant.path
    original = target.read_text(encoding="utf-8")
    lines = original.splitlines()
    lines[mutant.line - 1] = mutant.after
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    listed = folder / "tests-to-run"
    listed.write_text("\n".join(tests), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "--no-header", f"@{listed}"]
    try:
        run = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=600, check=False, env=_environment(folder)
        )
    except subprocess.TimeoutExpired:
        return "a test that never ended"
    finally:
        target.write_text(original, encoding="utf-8")
    if run.returncode == pytest.ExitCode.USAGE_ERROR:
        raise SystemExit(run.stdout + run.stderr)
    if not run.returncode:
        return ""
    failed = [line.split(" ")[1] for line in run.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0] if failed else f"exit code {run.returncode}"


def _environment(folder: Path = ROOT) -> dict[str, str]:
    """Return the environment of a run of the tests in a folder."""
    return {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}


def main() -> None:
    """Print every mutant with the test that notices it, then the survivors and their share."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--room", action="append", choices=ROOMS, help="default: all of them")
    parser.add_argument("--coverage", type=Path, help="file of an earlier measurement, or where to keep this one")
    options = parser.parse_args()
    rooms = options.room or list(ROOMS)
    with tempfile.TemporaryDirectory() as scratch:
        data = measured_lines(options.coverage or Path(scratch) / "coverage", rooms)
        folders: Queue[Path] = Queue()
        for number in range(2):
            copied = Path(scratch) / f"copy{number}"
            shutil.copytree(ROOT, copied, ignore=shutil.ignore_patterns(*LEFT_OUT))
            folders.put(copied)

        def tried(mutant: Mutant) -> str:
            tests = tests_over(data, mutant)
            folder = folders.get()
            try:
                found = killer(mutant, tests, folder) if tests else ""
            finally:
                folders.put(folder)
            fate = f"noticed by {found}" if found else "SURVIVES" if tests else "SURVIVES: no test comes here"
            sys.stdout.write(f"{mutant}\n    {fate}\n")
            sys.stdout.flush()
            return found

        chosen = drawn(rooms, options.count, options.seed)
        with ThreadPoolExecutor(2) as pool:
            fates = list(pool.map(tried, chosen))
    survivors = [mutant for mutant, found in zip(chosen, fates, strict=True) if not found]
    sys.stdout.write("\n".join(["", *map(str, survivors)]))
    sys.stdout.write(f"\n{len(chosen) - len(survivors)} of {len(chosen)} mutants noticed, {len(survivors)} survive\n")


if __name__ == "__main__":
    main()
