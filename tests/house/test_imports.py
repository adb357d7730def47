"""The import contracts, what importing loads, and how soon the command line answers."""

from __future__ import annotations

import resource
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.house.source_tree import ROOT

HEAVY = {"numpy", "numba", "simpy", "matplotlib", "rich", "jax", "jaxlib", "ml_dtypes", "hashlib"}

LIGHT_MODULES = [
    "tpusim",
    "tpusim.cli.main",
    "tpusim.text",
    "tpusim.shapes",
    "tpusim.lowering",
    "tpusim.pipeline",
]

LATE = {
    "tpusim.lowering.pallas": "NumPy goes through a grid: the room is asked only where a program has a Pallas kernel",
    "tpusim.pipeline.answers": "NumPy and SimPy: the room is asked only where an op is explained, which runs programs",
}
"""Rooms inside of these that load with the first program that needs them, and why."""

IMPORT_ALL = """
import importlib, pkgutil, sys
module = importlib.import_module(sys.argv[1])
if sys.argv[1] != "tpusim" and hasattr(module, "__path__"):
    for found in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        if not found.name.startswith(tuple(sys.argv[2:]) or "-"):
            importlib.import_module(found.name)
print(*sorted(sys.modules))
"""

LIBRARIES = "import argparse, dataclasses, pathlib, typing"
"""Of the standard library what the command line cannot do without."""

OF_SIMPY = """
import sys, tpusim.machine.run, simpy
print("email" in sys.modules, hasattr(simpy, "no_such_name"), simpy.__version__)
from importlib.metadata import version
print(version("simpy"))
"""

LINT_IMPORTS = "from importlinter.cli import lint_imports_command; lint_imports_command()"


@pytest.mark.slow
def test_the_import_contracts_of_pyproject_are_kept() -> None:
    """Imports go one way, verbs do not know each other, and each library keeps to its room."""
    run = _python("-c", LINT_IMPORTS, "--no-cache")
    if run.returncode:
        pytest.fail(run.stdout + run.stderr, pytrace=False)


@pytest.mark.parametrize("module", LIGHT_MODULES)
def test_importing_loads_no_heavy_library(module: str) -> None:
    """Neither the module nor, for a room, any module in it loads a library that takes noticeable time."""
    _skip_without(module)
    run = _python("-c", IMPORT_ALL, module, *LATE)
    assert run.returncode == 0, run.stderr
    assert not HEAVY & set(run.stdout.split())


@pytest.mark.parametrize("arguments", [(), ("run",)])
def test_helps_need_no_library(arguments: tuple[str, ...]) -> None:
    """Those of all commands and of one come from the standard library alone: msgspec takes half of their time."""
    _skip_without("tpusim.__main__")
    code = "import sys; from tpusim.cli.main import main\ntry: main(sys.argv[1:])\nexcept SystemExit: pass\n"
    run = _python("-c", f"{code}print('msgspec' in sys.modules)", *arguments, "--help")
    assert run.stdout.endswith("False\n"), run.stderr


def test_simpy_comes_without_the_libraries_that_it_asks_for_its_version_and_tells_it_all_the_same() -> None:
    """The standard library's own reader of mail is the largest of what a version takes to look up."""
    first, asked = _python("-c", OF_SIMPY).stdout.splitlines()
    assert first == f"False False {asked}"
    found_before = _python("-c", "import importlib.metadata" + OF_SIMPY).stdout.splitlines()
    assert found_before == [f"True False {asked}", asked]


@pytest.mark.slow
def test_help_takes_less_than_three_times_what_its_libraries_take() -> None:
    """In CPU time, interpreter start included, the best of five of both, taken in turn: the machine may be busy."""
    _skip_without("tpusim.__main__")
    pairs = [(_cpu_seconds("-m", "tpusim", "--help"), _cpu_seconds("-c", LIBRARIES)) for _ in range(5)]
    helps, libraries = zip(*pairs, strict=True)
    assert min(helps) < 3 * min(libraries)


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def _cpu_seconds(*arguments: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run = _python(*arguments)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert run.returncode == 0, run.stderr
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _skip_without(module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} does not exist yet")
