"""HLO text to ``ir.Module``.

The first line and the tables are read token by token. Computations are read by patterns where they stand as XLA prints
them, their instructions by ``lines``; token by token, the instructions by ``instructions``, where not. Both ways give
the same module.

Source: XLA, the HLO text format.
"""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from tpusim.errors import ProgramError
from tpusim.ir.module import Module
from tpusim.semantics.infer.site import broken
from tpusim.semantics.infer.types import subshape
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape
from tpusim.shapes.shape import Shape, compatible, shape_text
from tpusim.source import SourceText
from tpusim.text.attributes.table import take_module_attributes
from tpusim.text.instructions import NestingScope, shape_follows, take_body, take_instruction, take_right_side
from tpusim.text.lexer import WORD, Lexer
from tpusim.text.lines import LineReader
from tpusim.text.lists import take_list
from tpusim.text.scope import ModuleScope
from tpusim.text.strings import take_string
from tpusim.text.tables import take_tables

# Of fewer the walk takes less than to ask for what others have frozen, which goes through all of that.
_MANY_OBJECTS = 100_000


def _listed(item: str) -> str:
    """Return the pattern of ``(item, item)``."""
    return rf"\((?:{item}(?:, (?!\))|(?=\))))*+\)"


_LAYOUT = re.compile(r"\{[^}]*\}")
# Signatures have shapes without layouts; tuples in tuples are left to the lexer.
_TYPES = "|".join(name for name, dtype in DTYPES.items() if dtype.is_array_type)
_ARRAY = rf"(?:(?:{_TYPES})\[(?:[0-9]{{1,18}}+(?:,[0-9]{{1,18}}+)*+)?+\]|token\[\])"
_ELEMENT = rf"(?:/\*index=[0-9]++\*/)?+{_ARRAY}"
_SHAPE = rf"(?:{_ARRAY}|{_listed(_ELEMENT)})"
_ORDINARY_HEAD = re.compile(rf"%?+({WORD}) (?:{_listed(f'{WORD}: {_SHAPE}')} -> ({_SHAPE}) )?+\{{\n")


class _Head(msgspec.Struct, frozen=True):
    """What stands before the instructions of a computation, and where their text begins; an ordinary result as text."""

    name: str
    result: str | Shape | None
    result_place: int
    body: int


def parse_module(source: SourceText, *, careful: bool = False) -> Module:
    """Read a module, or a text that is a single instruction, from HLO text.

    ``careful`` reads every line token by token, which is several times slower and gives the same module.

    Raises:
        ProgramError: The text is not an HLO module; says what is wrong and where.
    """
    nul = source.text.find("\0")
    if nul >= 0:
        raise ProgramError("this is not HLO text: it holds NUL bytes", source.span(nul))
    if not source.text or source.text.isspace():
        raise ProgramError("the text is empty; expected an HLO module ('HloModule name ...')", source.span(0))
    with _collector_paused():
        return _ModuleReader(source, careful).read()


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Keep the cyclic garbage collector from walking a growing module again and again; it has no cycles."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        # A large module outlives all that is young. It becomes old without the walk that would find out.
        if was_enabled:
            if gc.get_count()[0] > _MANY_OBJECTS and not gc.get_freeze_count():
                gc.freeze()
                gc.unfreeze()
            gc.enable()


class _ModuleReader:
    """Reads one module."""

    def __init__(self, source: SourceText, careful: bool) -> None:
        self._source = source
        self._scope = ModuleScope(source)
        self._lines = None if careful else LineReader(self._scope)
        self._entry_name: str | None = None

    def read(self) -> Module:
        """Read the whole text."""
        lexer = Lexer(self._source)
        # XLA decides in the same way; a first computation with a signature thus needs a header or ENTRY.
        begins_module = lexer.kind == "keyword" and lexer.value in ("HloModule", "ENTRY")
        if begins_module or lexer.peek() == "{":
            return self._read_module(lexer)
        return self._read_instruction(lexer)

    def _read_module(self, lexer: Lexer) -> Module:
        name, attributes = "", {}
        start = lexer.start
        if lexer.value == "HloModule":
            lexer.advance()
            name = lexer.take_word("the name of the module")
            attributes = take_module_attributes(lexer, self._scope)
        tables = take_tables(lexer)
        last = self._read_computation(lexer)
        while lexer.kind != "end":
            last = self._read_computation(lexer)
        # XLA: if no computation is marked, the last one is the entry.
        entry_name = self._entry_name or last
        self._check_aliases(lexer, attributes, self._scope.computations[entry_name].root.shape, start)
        self._check_async_callers(lexer)
        computations = tuple(self._scope.computations.values())
        return Module(name or f"module_{entry_name}", computations, entry_name, attributes, tables, self._source)

    def _read_instruction(self, lexer: Lexer) -> Module:
        """Read a text that is one instruction, named or not; XLA calls what has no name ``_``."""
        scope = NestingScope(self._scope)
        scope.makes_parameters = True
        # XLA gives the entry its name first, computations in braces come after it.
        name = self._scope.fresh_name("_", self._scope.computations)
        if shape_follows(lexer):
            take_right_side(lexer, scope, "_", lexer.start)
        else:
            take_instruction(lexer, scope)
        if lexer.kind != "end":
            lexer.fail(f"expected the end after one instruction, found {lexer.shown()}; is 'HloModule' missing?")
        entry = scope.finish(lexer, name)
        self._scope.add(entry)
        computations = tuple(self._scope.computations.values())
        return Module("_", computations, entry.name, {"is_scheduled": True}, {}, self._source)

    def _read_computation(self, lexer: Lexer) -> str:
        """Read ``[ENTRY] name [signature] { instructions } [, execution_thread="..."]``; return its name."""
        entry_place = lexer.start
        is_entry = lexer.kind == "keyword" and lexer.value == "ENTRY"
        if is_entry:
            lexer.advance()
        name_place = lexer.start
        head = self._take_head(lexer)
        scope = NestingScope(self._scope)
        if self._lines is None:
            take_body(lexer, scope)
        else:
            self._read_body(lexer, scope, self._lines, head.body)
        computation = scope.finish(lexer, head.name, self._take_thread(lexer))
        # As in XLA, the shapes of the parameters need not be those of the signature. Most results are written as the
        # root's shape is.
        if head.result is not None and head.result != _LAYOUT.sub("", scope.root_shape):
            result = parse_shape(head.result) if isinstance(head.result, str) else head.result
            if not compatible(result, computation.root.shape):
                shown = shape_text(computation.root.shape)
                lexer.fail(f"the root of {head.name!r} has the shape {shown}", head.result_place)
        if head.name in self._scope.computations:
            lexer.fail(f"computation {head.name!r} is already defined", name_place)
        if is_entry and self._entry_name is not None:
            lexer.fail(f"a module has only one ENTRY, which is {self._entry_name!r}", entry_place)
        if is_entry:
            self._entry_name = head.name
        self._scope.add(computation)
        return head.name

    def _take_head(self, lexer: Lexer) -> _Head:
        """Read ``name [signature]`` up to the brace that opens the body."""
        ordinary = _ORDINARY_HEAD.match(lexer.text, lexer.start)
        if ordinary and self._lines and lexer.kind in ("identifier", "name"):
            return _Head(ordinary[1], ordinary[2], ordinary.start(2), ordinary.end())
        name = lexer.take_word("the name of a computation")
        result, result_place = _take_signature(lexer) if lexer.kind == "(" else (None, lexer.start)
        if lexer.kind != "{":
            lexer.fail(f"expected '{{' before the instructions, found {lexer.shown()}")
        return _Head(name, result, result_place, lexer.end + lexer.text.startswith("\n", lexer.end))

    def _read_body(self, lexer: Lexer, scope: NestingScope, lines: LineReader, position: int) -> None:
        """Read instructions from ``position`` on, and the closing brace."""
        while True:
            position = lines.read(scope, position)
            if scope.by_name and lexer.text.startswith("}", position):
                lexer.jump(position + 1)
                return
            lexer.jump(position)
            if lexer.kind == "}" and scope.by_name:
                lexer.advance()
                return
            # Not an ordinary line; after it there may be ordinary ones again.
            take_instruction(lexer, scope)
            position = lexer.previous_end
            position += lexer.text.startswith("\n", position)

    def _take_thread(self, lexer: Lexer) -> str:
        """Read ``, execution_thread="..."`` after a computation."""
        if not lexer.accept(","):
            return "main"
        place = lexer.start
        if lexer.take("attribute", "execution_thread=") != "execution_thread":
            lexer.fail("expected execution_thread=, the only attribute of a computation", place)
        return take_string(lexer)

    def _check_aliases(self, lexer: Lexer, attributes: dict[str, Any], result: Shape, place: int) -> None:
        """Refuse ``input_output_alias`` of parts of the result that do not exist, or of one part twice."""
        seen = set()
        place = max(place, self._source.text.find("input_output_alias="))
        for alias in attributes.get("input_output_alias", ()):
            shown = "{" + ",".join(map(str, alias.output_index)) + "}"
            if subshape(result, alias.output_index) is None:
                lexer.fail(broken("alias_c2", f"{shown} of {shape_text(result)}").message, place)
            if alias.output_index in seen:
                lexer.fail(broken("alias_c9", f"{shown} twice").message, place)
            # Parameters are the verifier's to check, as in XLA.
            seen.add(alias.output_index)

    def _check_async_callers(self, lexer: Lexer) -> None:
        """Refuse a computation that more than one instruction starts asynchronously."""
        if "async-start" not in self._scope.opcodes:
            return
        seen: set[str] = set()
        for computation in self._scope.computations.values():
            for place, instruction in zip(computation.offsets, computation.instructions, strict=True):
                called = instruction.attributes.get("calls") if instruction.opcode == "async-start" else None
                if called is not None and called in seen:
                    lexer.fail(broken("async_c16", f"another of {called!r}").message, place)
                seen |= {called} if called else set()


def _take_signature(lexer: Lexer) -> tuple[Shape, int]:
    """Read ``(name: shape, ...) -> shape``; return the result's shape and its place."""

    def take_parameter(lexer: Lexer) -> Shape:
        lexer.take_word("the name of a parameter")
        return lexer.take_shape()

    take_list(lexer, take_parameter, "()")
    lexer.take("->", "'->' after the parameters")
    place = lexer.start
    return lexer.take_shape(), place
