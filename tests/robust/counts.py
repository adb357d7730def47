"""Every count of every format at 0, 10^9, 2^31-1 and 2^63-1, by what the formats themselves say that they hold.

Fields of structures, keys of chips, attributes of HLO and options of the command line are asked for; of texts every
number is taken that stands at a place of its own, so that what comes to them later is tried as well.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Any

from msgspec import inspect

from tests.robust.grammar import LAYERS, PACE, SHAPE, STUDY, TOPOLOGY, Grammar, sentence
from tests.robust.mutations import encoded
from tests.robust.programs import ROOT, scheduled, unscheduled
from tests.robust.surfaces.options import parsers
from tpusim.hardware.fields import FIELDS
from tpusim.ir.ops import OPERATIONS
from tpusim.program.module import FORMAT, Program
from tpusim.text.attributes import table

COUNTS = (0, 10**9, 2**31 - 1, 2**63 - 1)

_NUMBER = re.compile(r"(?<![\w.%-])\d+(?![\w.])")
_CONTEXT = re.compile(r'[\w.]+(?==)|"\w+"(?=:)|[a-z][\w\-]*(?=[(\[])|[:A-Z\[{(](?=[\d(\[{])')
_OPCODE = re.compile(r"[\])}] ([a-z][a-z0-9-]*)\(")
_DIGITS = re.compile(r"\d+")
_SAMPLES = 12
_DEEPEST = 3


def chip_keys() -> Iterator[bytes]:
    """Yield an override of every key of a chip that holds a number."""
    for key, field in FIELDS.items():
        if field.kind in (int, float):
            yield from (f"{key}={count}".encode() for count in COUNTS)


def lowered_programs() -> Iterator[bytes]:
    """Yield lowered programs with every field of every structure in them that holds a number."""
    for tree in _variants(inspect.type_info(Program), 0):
        yield json.dumps({**tree, "format": FORMAT, "chip": "v5e"}).encode()


def _least(kind: inspect.Type) -> Any:
    """Return the least value of a type, as JSON has it."""
    if isinstance(kind, inspect.UnionType):
        return _least(kind.types[0])
    if isinstance(kind, inspect.StructType):
        named = {kind.tag_field: kind.tag} if kind.tag_field else {}
        return named | {field.encode_name: _least(field.type) for field in kind.fields if field.required}
    if isinstance(kind, inspect.LiteralType):
        return kind.values[0]
    plain = ((inspect.StrType, "x"), (inspect.BoolType, False), (inspect.IntType, 1), (inspect.FloatType, 1.0))
    return next((value for of, value in plain if isinstance(kind, of)), [])


def _variants(kind: inspect.Type, depth: int) -> Iterator[Any]:
    """Yield values of a type with one number in them at each of the counts."""
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        yield from COUNTS
    elif isinstance(kind, inspect.UnionType):
        for one in kind.types:
            yield from _variants(one, depth)
    elif isinstance(kind, inspect.StructType) and depth < _DEEPEST:
        for field in kind.fields:
            yield from (_least(kind) | {field.encode_name: value} for value in _variants(field.type, depth + 1))
    elif isinstance(kind, inspect.VarTupleType):
        yield from ([value] for value in _variants(kind.item_type, depth))
    elif isinstance(kind, inspect.TupleType):
        least = [_least(item) for item in kind.item_types]
        for place, item in enumerate(kind.item_types):
            yield from ([*least[:place], value, *least[place + 1 :]] for value in _variants(item, depth))
    elif isinstance(kind, inspect.DictType):
        yield from ({"vector": value} for value in _variants(kind.value_type, depth))


def hlo() -> Iterator[bytes]:
    """Yield programs with every number that stands behind a word of its own, and every attribute that is a number."""
    examples = (text for path in sorted((ROOT / "tests" / "hlo" / "ops").glob("*.hlo")) for text in _parts(path))
    texts = [*scheduled(), *unscheduled(), *examples]
    yield from with_counts(texts)
    for name, written in _number_attributes().items():
        text, line, bare = next(_lines_that_allow(name, texts))
        bare = re.sub(rf", {name}=(?:\{{[^{{}}]*\}}|\{{\{{.*?\}}\}}|\w+)", "", bare)
        for count in COUNTS:
            yield encoded(text.replace(line, f"{bare}, {name}={written.format(count)}"))


def _parts(path: Any) -> list[str]:
    """Return the programs of a file of examples, without what is said of them."""
    parts = path.read_text().split("// ----\n")
    return ["\n".join(line for line in part.split("\n") if not line.startswith("//")) for part in parts]


def _number_attributes() -> dict[str, str]:
    """Return the attributes that are whole numbers, or lists of them, with how one number is written."""
    forms = ((table._INTEGER, "{}"), (table._INTEGERS, "{{{}}}"), (table._INTEGER_LISTS, "{{{{{}}}}}"))
    return {name: form for name, kind in table._KINDS.items() for of, form in forms if kind is of}


def _lines_that_allow(name: str, texts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """Yield programs, lines of theirs, and what in their place may have an attribute: at last with another opcode."""
    found = [(text, line, _OPCODE.search(line)) for text in texts for line in text.split("\n")]
    lines = [(text, line, opcode) for text, line, opcode in found if opcode and opcode[1] in OPERATIONS]
    yield from ((text, line, line) for text, line, opcode in lines if OPERATIONS[opcode[1]].allows(name))
    other = next(opcode for opcode, operation in OPERATIONS.items() if operation.allows(name))
    text, line, opcode = lines[0]
    yield text, line, line[: opcode.start(1)] + other + line[opcode.end(1) :]


def with_counts(texts: Sequence[str]) -> Iterator[bytes]:
    """Yield texts with one number at each of the counts: the first few at a place of their own in any text."""
    known = set[tuple[str, int]]()
    for text in texts:
        for found in _NUMBER.finditer(text):
            place = _place(text, found.start())
            if place not in known and place[1] < 4:
                known.add(place)
                yield from (encoded(text[: found.start()] + str(count) + text[found.end() :]) for count in COUNTS)


def _place(text: str, start: int) -> tuple[str, int]:
    """Return the word that a number of a line stands behind, and the number's place among those behind it."""
    line = text[text.rfind("\n", 0, start) + 1 : start]
    words = list(_CONTEXT.finditer(line))
    word, end = (words[-1][0], words[-1].end()) if words else ("", 0)
    return word, len(_NUMBER.findall(line[end:]))


def options() -> Iterator[bytes]:
    """Yield command lines with every option and argument that is read as a number."""
    for name, actions in parsers().items():
        needed = [word for action in actions if _is_needed(action) for word in _written(action, "mlp.v5e.hlo.txt.gz")]
        for action in actions:
            if action.type not in (None, str) and not action.choices:
                yield from (json.dumps([*name.split(), *needed, *_written(action, str(c))]).encode() for c in COUNTS)


def _is_needed(action: argparse.Action) -> bool:
    return action.required and action.type in (None, str)


def _written(action: argparse.Action, value: str) -> list[str]:
    value = str(next(iter(action.choices))) if action.choices else value
    return [*action.option_strings[-1:], value]


def of_grammar(grammar: Grammar) -> Callable[[], Iterator[bytes]]:
    """Return what yields sentences of a grammar with one number at each of the counts."""

    def make() -> Iterator[bytes]:
        random = Random(0)
        for text in (sentence(random, grammar) for _ in range(_SAMPLES)):
            for found in _DIGITS.finditer(text):
                yield from (encoded(text[: found.start()] + str(count) + text[found.end() :]) for count in COUNTS)

    return make


COUNTED: dict[str, Callable[[], Iterator[bytes]]] = {
    "overrides": chip_keys,
    "lowered": lowered_programs,
    "hlo": hlo,
    "options": options,
    "topology": of_grammar(TOPOLOGY),
    "layers": of_grammar(LAYERS),
    "study": of_grammar(STUDY),
    "layout": of_grammar(SHAPE),
    "pace": of_grammar(PACE),
}
"""By surface, all its inputs with one count in them."""
