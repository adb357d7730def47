"""Instructions that stand on one line as XLA prints them, read at once.

Nearly every line of a program is one. A regular expression takes it apart; shapes, attributes and literals that have
been seen before come out of dicts. A line that misses a dict is read again once the dict has been filled by the
ordinary readers; a line that is unusual or wrong is left to ``instructions.py``, which knows the whole grammar.
"""

from __future__ import annotations

import re
import sys
from functools import reduce
from typing import Any, Final

from tpusim.errors import ProgramError
from tpusim.ir.attributes import ComputationName, InstructionName
from tpusim.ir.module import RESERVED_WORDS, Instruction, Literal
from tpusim.ir.ops import WRITTEN_OUT, Operation, find_operation
from tpusim.shapes.notation import parse_shape_prefix
from tpusim.shapes.shape import Shape
from tpusim.text.attributes.table import Kind, attribute_kind
from tpusim.text.checks import find_check
from tpusim.text.lexer import Lexer
from tpusim.text.literals import take_literal
from tpusim.text.scope import ComputationScope, ModuleScope

_RESERVED = "|".join(sorted(RESERVED_WORDS))
_REST = (
    r"([A-Za-z_][A-Za-z0-9_.-]*+) = "
    # A shape has no blank inside, or is a tuple: it ends at the first ')' before a blank.
    r"([a-z][^ \n]*+|\((?:[^)\n]++|\)(?! ))*+\)) "
    r"([a-z][a-z0-9-]*+)\(([^()\n]*+)\)(.*)\n"
)
_LINES: Final = {
    "%": re.compile(r"  (ROOT )?+%" + _REST),
    "": re.compile(rf"  (ROOT )?+(?!(?:{_RESERVED})[^A-Za-z0-9_.-])" + _REST),
}
_FIRST_NAME = re.compile(r"\n  (?:ROOT )?(%?)[A-Za-z_]")
# XLA writes it into long lists of operands, and nothing else there has a slash.
_INDEX_COMMENT = re.compile(r"/\*index=\d+\*/")
_PARAMETER_NUMBER = re.compile(r"[0-9]{1,9}")
# Braces nest seven deep here; a single quote could hide a brace, and is left to the lexer.
_INSIDE = r"""[^{}"'\n]++|"(?:[^"\\\n]++|\\.)*+\""""
_BRACES = reduce(lambda inner, _: rf"\{{(?:{_INSIDE}|{inner})*+\}}", range(6), rf"\{{(?:{_INSIDE})*+\}}")
_ATTRIBUTE = re.compile(rf""", ([a-z_-]++)=({_BRACES}|"(?:[^"\\\n]++|\\.)*+"|[^,{{}}"' \n]++)(?=,|\Z)""")


class _Row:
    """What the lines of one opcode share, and what has been seen on them."""

    __slots__ = ("attributes", "check", "fewest", "has_immediate", "immediates", "most", "opcode", "operation")

    def __init__(self, operation: Operation) -> None:
        self.operation = operation
        self.opcode = operation.name
        self.fewest = operation.fewest_operands
        self.most = sys.maxsize if operation.most_operands is None else operation.most_operands
        self.check = find_check(operation.name)
        self.has_immediate = operation.name in WRITTEN_OUT
        self.attributes: dict[str, dict[str, Any]] = {}
        self.immediates: dict[tuple[str, str], int | Literal] = {}


class _NotShared(Exception):
    """Attributes name something of their own computation, so that equal text elsewhere means another value."""


class _SharedScope(ModuleScope):
    """The view of a module in which attributes may name computations but no instructions."""

    def __init__(self, module: ModuleScope) -> None:
        super().__init__(module.source)
        self.computations = module.computations

    def take_computation(self, lexer: Lexer) -> ComputationName:
        """Read the name of a computation, but not a computation in braces."""
        if lexer.kind == "{":
            raise _NotShared
        return super().take_computation(lexer)

    def take_instruction_name(self, lexer: Lexer) -> InstructionName:
        """Refuse: the name means something in its own computation only."""
        raise _NotShared


class LineReader:
    """Reads ordinary lines of one module, all of which have ``%`` before names, or none."""

    def __init__(self, module: ModuleScope) -> None:
        self._module = module
        self._rows: dict[str, _Row] = {}
        self._scope = _SharedScope(module)
        self._values: dict[tuple[Kind, str], Any] = {}
        # Compilers print % before names and front ends do not; one text does not mix them.
        first = _FIRST_NAME.search(module.source.text)
        module.sigil = first[1] if first else "%"

    def read(self, scope: ComputationScope, position: int) -> int:  # noqa: C901 - a call a line would double its time
        """Read ordinary lines from ``position`` on into ``scope``; return where the first that is not one begins."""
        text, shapes, rows = self._module.source.text, self._module.shapes, self._rows
        sigil = self._module.sigil
        match_line, skip = _LINES[sigil].match, len(sigil)
        references, by_name, offsets = scope.references, scope.by_name, scope.offsets
        name_of, instruction_of = references.__getitem__, by_name.__getitem__
        while True:
            match = match_line(text, position)
            if match is None:
                return position
            root, name, shape_text, opcode, arguments, tail = match.groups()
            if "/" in arguments:
                arguments = _INDEX_COMMENT.sub("", arguments)
            # Nothing before the line's end changes any state, so that a line can be given up at every step.
            try:
                shape, row = shapes[shape_text], rows[opcode]
                # A copy, so that no instruction's dict is another's.
                attributes = row.attributes[tail].copy()
                operands: tuple[str, ...] = ()
                immediate = None
                if row.has_immediate:
                    immediate = row.immediates[shape_text, arguments]
                elif arguments:
                    operands = tuple(map(name_of, arguments.split(", ")))
            except KeyError:
                if not self._learn(scope, match, arguments):
                    return position
                continue
            instruction = Instruction(name, shape, row.opcode, operands, attributes, immediate)
            if name in by_name or not row.fewest <= len(operands) <= row.most:
                return position
            if row.check is not None:
                try:
                    row.check(instruction, tuple(map(instruction_of, operands)), scope)
                except ProgramError:
                    return position
            if root:
                if scope.root_name is not None:
                    return position
                scope.root_name = name
            # Operands take their strings from here, so that a name is one object however often it is used.
            references[sigil + name] = name
            by_name[name] = instruction
            offsets.append(match.start(2) - skip)
            position = match.end()

    def _learn(self, scope: ComputationScope, match: re.Match[str], arguments: str) -> bool:
        """Fill the dicts with what is new on a line; return whether it now can be read at once."""
        try:
            row = self._rows.get(match[4])
            if row is None:
                operation = find_operation(match[4])
                if operation is None:
                    return False
                row = self._rows[match[4]] = _Row(operation)
            # Operands come first: a comment among them could make the rest of the line mean something else.
            names = arguments.split(", ") if arguments and not row.has_immediate else []
            if not all(name in scope.references for name in names):
                return False
            shape = self._learn_shape(match)
            if shape is None or not self._learn_immediate(row, shape, match):
                return False
            return match[6] in row.attributes or self._learn_attributes(row, match)
        except (ProgramError, _NotShared):
            # The full reader will find the same fault and its place, or read what is only unusual.
            return False

    def _learn_shape(self, match: re.Match[str]) -> Shape | None:
        """Return the shape on a line, which must end where the line's pattern thinks."""
        text, shapes = match[3], self._module.shapes
        if text not in shapes:
            shape, end = parse_shape_prefix(match.string, match.start(3), self._module.source)
            # The pattern may have cut a shape short that has blanks or comments inside.
            if end != match.end(3):
                return None
            shapes[text] = shape
        return shapes[text]

    def _learn_immediate(self, row: _Row, shape: Shape, match: re.Match[str]) -> bool:
        """Read the number of a parameter or the literal of a constant."""
        key = match[3], match[5]
        if not row.has_immediate or key in row.immediates:
            return True
        if row.opcode == "parameter":
            if _PARAMETER_NUMBER.fullmatch(match[5]):
                row.immediates[key] = int(match[5])
            return key in row.immediates
        lexer = Lexer(self._module.source, match.start(5))
        row.immediates[key] = take_literal(lexer, shape)
        return lexer.start == match.end(5)

    def _learn_attributes(self, row: _Row, match: re.Match[str]) -> bool:
        """Read the attributes on a line, which must end with the line."""
        tail, begin = match[6], match.start(6)
        attributes: dict[str, Any] = {}
        position = 0
        while position < len(tail):
            found = _ATTRIBUTE.match(tail, position)
            # Unknown, double and missing attributes are told by the full reader, which knows how to say so.
            if found is None or found[1] in attributes or not row.operation.allows(found[1]):
                return False
            kind = attribute_kind(row.opcode, found[1])
            attributes[found[1]] = self._learn_value(kind, found[2], begin + found.start(2))
            position = found.end()
        if not row.operation.required <= attributes.keys():
            return False
        row.attributes[tail] = attributes
        return True

    def _learn_value(self, kind: Kind, text: str, place: int) -> Any:
        """Return the value of an attribute from its text; raise if that is not all there is to it."""
        key = kind, text
        if key not in self._values:
            lexer = Lexer(self._module.source, place)
            self._values[key] = kind.read(lexer, self._scope)
            if lexer.previous_end != place + len(text):
                # The pattern's idea of where the value ends was wrong.
                raise _NotShared
        return self._values[key]
