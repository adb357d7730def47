"""The house rules, each a function from files to breaches, in a table by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from tests.house.source_tree import Definition, SourceFile, docstring_node
from tpusim.ir.ops import OPERATIONS

FUNCTION_CODE_LINES = 60
NESTING = 4
ARGUMENTS = 6
KERNEL_ARGUMENTS = 10
FILE_LINES = 600
TEST_CODE_LINES = 20
OPCODE_SHARE = 0.7
"""So much of a list must be names of opcodes for it to count as one of opcodes: ``add`` is a word besides."""


class Breach(NamedTuple):
    """A place that breaks a rule: ``path`` and ``name`` identify it, ``line`` and ``found`` are for the reader."""

    path: str
    line: int
    name: str
    found: str

    def __str__(self) -> str:
        """Return ``file:line  name  what was found``."""
        return f"{self.path}:{self.line}  {self.name}  {self.found}"


Rule = Callable[[SourceFile], Iterator[Breach]]

RULES: dict[str, Rule] = {}
"""Rules for the package, by name."""

TEST_RULES: dict[str, Rule] = {}
"""Rules for the tests, by name."""


def rule(name: str, table: dict[str, Rule]) -> Callable[[Rule], Rule]:
    """Enter a rule into a table."""

    def enter(function: Rule) -> Rule:
        table[name] = function
        return function

    return enter


def find_breaches(rule_name: str, files: Iterable[SourceFile]) -> list[Breach]:
    """Return the breaches of one rule in all files."""
    check = (RULES | TEST_RULES)[rule_name]
    return [breach for file in files for breach in check(file)]


@rule(f"functions have at most {FUNCTION_CODE_LINES} code lines", RULES)
def _function_length(file: SourceFile) -> Iterator[Breach]:
    for function in file.functions:
        if function.code_lines > FUNCTION_CODE_LINES:
            yield _breach(function, f"{function.code_lines} code lines")


@rule(f"blocks nest at most {NESTING} deep", RULES)
def _nesting(file: SourceFile) -> Iterator[Breach]:
    for function in file.functions:
        if function.nesting > NESTING:
            yield _breach(function, f"nests {function.nesting} deep")


@rule(f"functions take at most {ARGUMENTS} positional arguments, kernels {KERNEL_ARGUMENTS}", RULES)
def _arguments(file: SourceFile) -> Iterator[Breach]:
    for function in file.functions:
        if len(function.positional_names) > (KERNEL_ARGUMENTS if function.is_kernel else ARGUMENTS):
            yield _breach(function, f"{len(function.positional_names)} positional arguments")


@rule(f"files have at most {FILE_LINES} lines", RULES)
def _file_length(file: SourceFile) -> Iterator[Breach]:
    lines = len(file.text.splitlines())
    if lines > FILE_LINES:
        yield Breach(file.path, 1, "", f"{lines} lines")


@rule("modules, classes and public functions have docstrings", RULES)
def _docstrings(file: SourceFile) -> Iterator[Breach]:
    if docstring_node(file.tree) is None:
        yield Breach(file.path, 1, "", "module without docstring")
    for definition in file.definitions:
        needed = definition.is_public or isinstance(definition.node, ast.ClassDef)
        if needed and docstring_node(definition.node) is None:
            yield _breach(definition, "no docstring")


@rule("docstrings say more than the name", RULES)
def _empty_docstrings(file: SourceFile) -> Iterator[Breach]:
    for definition in file.definitions:
        text = ast.get_docstring(definition.node) or ""
        said = _stems(text)
        if definition.is_public and said and said <= _stems(definition.name.replace("_", " ")):
            yield _breach(definition, f"docstring only repeats the name: {text!r}")


@rule("nothing calls print", RULES)
def _print_calls(file: SourceFile) -> Iterator[Breach]:
    for node in ast.walk(file.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield Breach(file.path, node.lineno, "", "print(...)")


@rule("functions do not import the package", RULES)
def _local_imports(file: SourceFile) -> Iterator[Breach]:
    for function in file.functions:
        for node in ast.walk(function.node):
            if isinstance(node, ast.Import | ast.ImportFrom) and "tpusim" in ast.unparse(node):
                yield Breach(file.path, node.lineno, function.name, ast.unparse(node))


@rule("a float never enters the clock: *_ps are integers", RULES)
def _float_clocks(file: SourceFile) -> Iterator[Breach]:
    for node in ast.walk(file.tree):
        name, annotation = _annotated(node)
        if name.endswith("_ps") and annotation is not None and "float" in ast.unparse(annotation):
            yield Breach(file.path, node.lineno, name, ast.unparse(annotation))


@rule("sets of opcodes stand in ir/ops.py", RULES)
def _opcode_sets(file: SourceFile) -> Iterator[Breach]:
    if file.path == "tpusim/ir/ops.py":
        return
    # What registers a rule for opcodes, or enters it into a table, names them where the rule stands.
    naming = [word for function in file.functions for word in function.node.decorator_list]
    calls = (node for node in ast.walk(file.tree) if isinstance(node, ast.Call))
    naming += [call.args[0] for call in calls if ast.unparse(call.func) == "dict.fromkeys"]
    registering = {part for word in naming for part in ast.walk(word)}
    for node in ast.walk(file.tree):
        words = [] if node in registering else _listed_words(node)
        opcodes = OPERATIONS.keys() & set(words)
        if len(opcodes) >= 2 and len(opcodes) >= OPCODE_SHARE * len(words):
            yield Breach(file.path, node.lineno, "", f"{' '.join(sorted(opcodes))}")


def _listed_words(node: ast.AST) -> list[str]:
    """Return the strings of a set, tuple or list, of a text that is split, or of what is compared with one value."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Set | ast.Tuple | ast.List):
        found = node.elts
    elif isinstance(node, ast.Attribute) and node.attr == "split":
        found = [node.value]
    elif isinstance(node, ast.BoolOp):
        compared = [value for value in node.values if isinstance(value, ast.Compare)]
        of_one = len({ast.dump(value.left) for value in compared}) == 1
        found = [side for value in compared for side in value.comparators] if of_one else []
    texts = [part.value for part in found if isinstance(part, ast.Constant) and isinstance(part.value, str)]
    return [word for text in texts for word in text.split()]


@rule(f"tests have a docstring and at most {TEST_CODE_LINES} code lines", TEST_RULES)
def _tests(file: SourceFile) -> Iterator[Breach]:
    for function in file.functions:
        if not function.name.split(".")[-1].startswith("test_"):
            continue
        if docstring_node(function.node) is None:
            yield _breach(function, "no docstring")
        if function.code_lines > TEST_CODE_LINES:
            yield _breach(function, f"{function.code_lines} code lines")


def _breach(definition: Definition, found: str) -> Breach:
    return Breach(definition.file.path, definition.node.lineno, definition.name, found)


def _stems(text: str) -> set[str]:
    """Return the words that carry meaning, shortened so that ``parses`` meets ``parse``."""
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower())
    return {word[:4] for word in words} - {"the", "a", "an", "of", "this", "for", "and", "retu"}


def _annotated(node: ast.AST) -> tuple[str, ast.expr | None]:
    """Return the name and annotation of a field, an argument, or a function's result."""
    if isinstance(node, ast.AnnAssign):
        return ast.unparse(node.target), node.annotation
    if isinstance(node, ast.arg):
        return node.arg, node.annotation
    if isinstance(node, ast.FunctionDef):
        return node.name, node.returns
    return "", None
