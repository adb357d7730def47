"""Python files of the project as the house rules see them: parsed, with their functions measured."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Definition:
    """A class or function, with its dotted name inside the file."""

    file: SourceFile
    node: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    name: str
    is_nested: bool
    """Whether it stands inside a function."""

    @property
    def is_public(self) -> bool:
        """Whether a reader of another file may use it: no part of its name is private."""
        return not self.is_nested and not any(part.startswith("_") for part in self.name.split("."))

    @property
    def code_lines(self) -> int:
        """Lines from ``def`` to the last one, without the docstring and without decorators."""
        docstring = docstring_node(self.node)
        spoken = docstring.end_lineno - docstring.lineno + 1 if docstring else 0
        return self.node.end_lineno - self.node.lineno + 1 - spoken

    @property
    def nesting(self) -> int:
        """Depth of the deepest block; an ``elif`` is as deep as its ``if``."""
        return max(map(_depth, self.node.body))

    @property
    def positional_names(self) -> list[str]:
        """Names of the arguments that a call may give by position, but for ``self`` and ``cls``."""
        plain = [*self.node.args.posonlyargs, *self.node.args.args]
        return [argument.arg for argument in plain if argument.arg not in ("self", "cls")]

    @property
    def is_kernel(self) -> bool:
        """Whether Numba compiles it."""
        return any("njit" in ast.unparse(decorator) for decorator in self.node.decorator_list)


@dataclass(frozen=True)
class SourceFile:
    """One file: its path from the root of the project, and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The parsed text."""
        return ast.parse(self.text)

    @cached_property
    def definitions(self) -> list[Definition]:
        """All classes and functions, nested ones too, in the order of the text."""
        return list(_definitions(self, self.tree.body, "", False))

    @property
    def functions(self) -> list[Definition]:
        """All functions, methods and nested functions."""
        return [definition for definition in self.definitions if isinstance(definition.node, _FUNCTIONS)]


def read_files(folder: str) -> list[SourceFile]:
    """Read all Python files under a folder of the project."""
    paths = sorted((ROOT / folder).rglob("*.py"))
    return [SourceFile(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


def docstring_node(node: ast.AST) -> ast.stmt | None:
    """Return the statement that is the docstring of a module, class or function."""
    return node.body[0] if node.body and _is_string(node.body[0]) else None


def _is_string(node: ast.AST) -> bool:
    """Say whether a node is a string that stands alone: a docstring, also that of a field or constant."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _definitions(file: SourceFile, body: list[ast.stmt], prefix: str, nested: bool) -> Iterator[Definition]:
    for statement in body:
        is_function = isinstance(statement, _FUNCTIONS)
        name = prefix
        if is_function or isinstance(statement, ast.ClassDef):
            name = f"{prefix}{statement.name}."
            yield Definition(file, statement, name[:-1], nested)
        yield from _definitions(file, _inner_statements(statement), name, nested or is_function)


def _inner_statements(statement: ast.stmt) -> list[ast.stmt]:
    inner: list[ast.stmt] = []
    for child in ast.iter_child_nodes(statement):
        if isinstance(child, ast.stmt):
            inner.append(child)
        elif isinstance(child, ast.ExceptHandler | ast.match_case):
            inner.extend(child.body)
    return inner


def _depth(statement: ast.stmt) -> int:
    if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
        return 0
    inner = _inner_statements(statement)
    if not isinstance(statement, _BLOCKS):
        return max(map(_depth, inner), default=0)
    return max(_depth(child) + (not _is_elif(statement, child)) for child in inner)


def _is_elif(parent: ast.stmt, child: ast.stmt) -> bool:
    is_pair = isinstance(parent, ast.If) and isinstance(child, ast.If)
    return is_pair and parent.orelse == [child] and child.col_offset == parent.col_offset
