"""How the package hangs together: no import circles, no crowded folders, no folders in disguise."""

from __future__ import annotations

import ast
from collections import Counter
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

import pytest

from tests.house.source_tree import SourceFile, read_files

FOLDER_FILES = 15
ALIKE = 3
PACKAGE = read_files("tpusim")


def module_of(path: str) -> str:
    """Return the dotted name of a file."""
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imports_of(node: ast.AST) -> set[str]:
    """Return what a file imports when it runs, in functions and by string too; names for annotations aside."""
    found: set[str] = set()
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom) and child.module:
            found |= {child.module, *(f"{child.module}.{alias.name}" for alias in child.names)}
        elif isinstance(child, ast.Import):
            found |= {alias.name for alias in child.names}
        elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith(("import_module", "__import__")):
            found |= {str(a.value) for a in child.args if isinstance(a, ast.Constant)}
        found |= imports_of(child)
    return found


def find_circle(files: list[SourceFile]) -> list[str]:
    """Return modules that import each other in a circle, or nothing."""
    names = {module_of(file.path) for file in files}
    # Of a package only what it says itself counts: `from tpusim import plot` needs no more of `tpusim` than the name.
    graph = {module_of(f.path): (imports_of(f.tree) & names) - {module_of(f.path), "tpusim"} for f in files}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def files_by_folder() -> dict[str, list[str]]:
    """Return the names of files by folder, those of packages aside."""
    found: dict[str, list[str]] = {}
    for file in PACKAGE:
        path = PurePosixPath(file.path)
        if path.stem != "__init__":
            found.setdefault(str(path.parent), []).append(path.stem)
    return found


def test_no_modules_import_each_other_in_a_circle() -> None:
    """An import inside a function or by string is one all the same."""
    assert not find_circle(PACKAGE)


@pytest.mark.parametrize(
    "text", ["import p.a", "def f():\n    from p import a", "import_module('p.a')", "importlib.import_module('p.a')"]
)
def test_a_circle_is_found(text: str) -> None:
    """However the second file imports the first."""
    assert find_circle([SourceFile("p/a.py", "from p.b import x"), SourceFile("p/b.py", text)])


def test_an_annotation_makes_no_circle() -> None:
    """A name that only a type checker imports is there for the reader."""
    text = "if TYPE_CHECKING:\n    from p.a import A"
    assert not find_circle([SourceFile("p/a.py", "from p.b import x"), SourceFile("p/b.py", text)])


def test_folders_have_at_most_15_files() -> None:
    """A reader finds a file by looking; the top, where the doors are, counts like any other."""
    assert not {folder: len(names) for folder, names in files_by_folder().items() if len(names) > FOLDER_FILES}


def test_files_with_one_prefix_are_a_folder() -> None:
    """Three files ``x_*`` beside each other are a folder ``x``."""
    counts = {
        f"{folder}/{prefix}_*": count
        for folder, names in files_by_folder().items()
        for prefix, count in Counter(name.partition("_")[0] for name in names if "_" in name).items()
    }
    assert not {place: count for place, count in counts.items() if count >= ALIKE}
