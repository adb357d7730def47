"""The import contracts, what importing loads, and how soon the command line answers."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from time import perf_counter

import pytest

import tpusim
from tests.house.source_tree import ROOT

HEAVY = {"numpy", "numba", "simpy", "matplotlib", "rich", "jax", "ml_dtypes"}

LIGHT_MODULES = [
    "tpusim",
    "tpusim.cli.main",
    "tpusim.text",
    "tpusim.shapes",
    "tpusim.lowering",
    "tpusim.pipeline",
]

IMPORT_ALL = """
import importlib, pkgutil, sys
module = importlib.import_module(sys.argv[1])
if sys.argv[1] != "tpusim" and hasattr(module, "__path__"):
    for found in pkgutil.walk_packages(module.__path__, module.__name__ + "."):
        importlib.import_module(found.name)
print(*sorted(sys.modules))
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
    run = _python("-c", IMPORT_ALL, module)
    assert run.returncode == 0, run.stderr
    assert not HEAVY & set(run.stdout.split())


@pytest.mark.slow
def test_help_answers_within_300_ms() -> None:
    """The best of five runs of ``python -m tpusim --help``, interpreter start included."""
    _skip_without("tpusim.__main__")
    assert min(_help_seconds() for _ in range(5)) < 0.3


@pytest.mark.parametrize("name", tpusim.__all__)
def test_every_public_name_is_found(name: str) -> None:
    """Each name in ``tpusim.__all__`` loads from the room that the package says."""
    _skip_without("tpusim.pipeline.stages")
    assert getattr(tpusim, name) is not None


def test_an_unknown_public_name_is_refused_with_the_known_ones() -> None:
    """The error of a misspelt name lists the names that exist."""
    with pytest.raises(AttributeError, match=r"no attribute 'simulat'; its public names are .*simulate"):
        _ = tpusim.simulat


def _python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


def _help_seconds() -> float:
    begin = perf_counter()
    run = _python("-m", "tpusim", "--help")
    assert run.returncode == 0, run.stderr
    return perf_counter() - begin


def _skip_without(module: str) -> None:
    if find_spec(module) is None:
        pytest.skip(f"{module} does not exist yet")
