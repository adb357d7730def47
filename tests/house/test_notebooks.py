"""Notebooks are stored without what running them leaves behind, and the pictures of the README are there."""

from __future__ import annotations

import json

import pytest

from tests.house.source_tree import ROOT

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PICTURES = ("layout", "roofline", "timeline")


def test_there_are_seven() -> None:
    """The tour has seven stations, numbered."""
    assert [path.name[:2] for path in NOTEBOOKS] == ["1_", "2_", "3_", "4_", "5_", "6_", "7_"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_outputs_are_stripped(path) -> None:
    """No outputs, no counts of executions: what is printed belongs to who runs it."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert not [cell for cell in code if cell["outputs"] or cell["execution_count"] is not None]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_each_asks_a_question(path) -> None:
    """A title first, and a question to try at the end."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    prose = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown"]
    assert prose[0].startswith(f"# {path.name[0]}. ")
    assert "## A question to try" in prose[-1]


@pytest.mark.parametrize("name", PICTURES)
def test_the_pictures_of_the_readme_are_there(name) -> None:
    """``python notebooks/pictures.py`` draws them; below 300 KB each, since every clone has them."""
    picture = ROOT / "notebooks/pictures" / f"{name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert picture.stat().st_size < 300_000
