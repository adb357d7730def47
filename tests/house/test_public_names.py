"""The public names: found, the same for type checkers and at run time, documented."""

from __future__ import annotations

import ast
import inspect
from typing import Any

import pytest

import tpusim
from tests.house.source_tree import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
API = README.split("## As a library")[1].split("\n## ")[0]
NAMES = [name for name in tpusim.__all__ if name != "__version__"]


@pytest.mark.parametrize("name", tpusim.__all__)
def test_a_public_name_is_found(name: str) -> None:
    """It loads from the room that the package says."""
    assert getattr(tpusim, name) is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_public_name_is_documented(name: str) -> None:
    """By a docstring, and in the table of the README."""
    assert inspect.getdoc(getattr(tpusim, name))
    assert f"`{name}`" in API


def test_type_checkers_and_python_find_the_same_names() -> None:
    """What stands under TYPE_CHECKING is what the table says."""
    tree = ast.parse(inspect.getsource(tpusim))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    imports = (node for node in block.body if isinstance(node, ast.ImportFrom))
    assert {(node.module, one.name) for node in imports for one in node.names if node.module != "typing"} == {
        (home, name) for name, home in tpusim._HOMES.items()
    }


def test_an_unknown_public_name_is_refused_with_the_known_ones() -> None:
    """The error of a misspelt name lists the names that exist."""
    with pytest.raises(AttributeError, match=r"no attribute 'simulat'; its public names are .*simulate"):
        _ = tpusim.simulat


def test_the_example_of_a_program_by_hand_runs() -> None:
    """A kernel of products alone is bound by the matrix units."""
    block = next(block for block in API.split("```python\n") if "by hand" in block).split("```")[0]
    found: dict[str, Any] = {"tpusim": tpusim}
    exec(block, found)
    assert found["result"].summary.utilisation.bound_by in ("matrix", "MXU")
