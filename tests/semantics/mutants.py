"""Mutants of real programs: one thing of a module's text changed, drawn with a fixed seed.

A mutator takes a text's lines and a source of randomness and returns the lines of a mutant, or None where there is
nothing to change. Most mutants mean nothing any more; some still do, and then they must run.
"""

from __future__ import annotations

import gzip
import random
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple, TypeAlias

from tpusim.ir.ops import OPERATIONS

ROOT = Path(__file__).parent.parent.parent
# Small programs of every family: a mutant of a large one says no more, and takes longer.
_MOST_BYTES = 3000
SOURCES = sorted(
    path
    for folder in ("traces", "tests/data/hlo", "tests/data/numeric")
    for path in (ROOT / folder).rglob("*.v*.hlo.txt.gz")
    if path.stat().st_size < _MOST_BYTES and not re.search(r"_(f16|int8|bf16)\.v4|\.v3\.|ring_matmul", path.name)
)
_INSTRUCTION = re.compile(r"^\s+(?:ROOT )?%?[\w.-]+ = ")
_OPCODE = re.compile(r"(?<=[\])}] )([a-z][a-z0-9-]*)(?=\()")
_SHAPE = re.compile(r"\b(pred|[sufc]\d+|bf16|f8\w+|token)\[([\d,]*)\]")
_LAYOUT = re.compile(r"(?<=\]\{)[\d,]+(?=[:}])")
_TILE = re.compile(r"(?<=T\()\d+,\d+(?=\))")
_SPACE = re.compile(r"(?<=S\()\d+(?=\))")
_NAME = re.compile(r"%[\w.-]+")
_OPERANDS = re.compile(r"(?<=[a-z0-9]\()(?:[^()=]|/\*index=\d+\*/)*%[^()=]*(?=\))")
_NUMBER = re.compile(r"(?<=[={,:_\[x])-?\d+(?=[,}\]:_x\s]|$)")
_ATTRIBUTE = re.compile(r", [a-z_]+=(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}|[^,{}\s]+)")
_NUMBERS = (0, 1, 2, 3, 7, 8, 128, 1000, -1, 2**31 - 1, 2**63 - 1)
_TYPES = ("f32", "bf16", "s32", "pred", "u8", "s4", "f16", "c64", "f64", "f8e4m3fn", "token")

Lines: TypeAlias = "list[str]"
Mutator: TypeAlias = "Callable[[Lines, random.Random], Lines | None]"
MUTATORS: dict[str, Mutator] = {}


class Mutant(NamedTuple):
    """One mutant: what was done to what, its text, and the chip that the program was compiled for."""

    label: str
    text: str
    chip: str


def _mutates(mutator: Mutator) -> Mutator:
    """Enter a mutator."""
    MUTATORS[mutator.__name__.strip("_")] = mutator
    return mutator


@cache
def text_of(path: Path) -> str:
    """Return the text of a program without what no check reads."""
    text = gzip.decompress(path.read_bytes()).decode()
    # Else most changes would fall into what is only carried along.
    return re.sub(r", metadata=\{[^{}]*\}", "", text)


def mutants(mutator: str, numbers: range, seed: int = 0) -> Iterator[Mutant]:
    """Yield the mutants of these numbers by one mutator; each is drawn by itself, so that any can be made alone."""
    for number in numbers:
        # A text, since the hash of anything else may differ from run to run.
        draw = random.Random(f"{seed} {mutator} {number}")
        lines = None
        # Some programs have nothing for some mutators to change.
        while lines is None:
            path = draw.choice(SOURCES)
            lines = MUTATORS[mutator](text_of(path).splitlines(), draw)
        chip = re.findall(r"v\d[a-z]*", path.name)[-1]
        yield Mutant(f"{mutator} {number} of {path.name}", "\n".join(lines) + "\n", chip)


def _changed(lines: Lines, draw: random.Random, pattern: re.Pattern[str], other: Callable[[str], str]) -> Lines | None:
    """Return the lines with one match of a pattern, in any instruction, put through a function."""
    places = [
        (number, match.span())
        for number, line in enumerate(lines)
        if _INSTRUCTION.match(line)
        for match in pattern.finditer(line)
    ]
    if not places:
        return None
    number, (start, end) = draw.choice(places)
    line = lines[number]
    return [*lines[:number], line[:start] + other(line[start:end]) + line[end:], *lines[number + 1 :]]


def _one_of(text: str, separator: str, draw: random.Random, other: Callable[[str], str]) -> str:
    """Return a list with one element put through a function."""
    parts = text.split(separator)
    place = draw.randrange(len(parts))
    return separator.join((*parts[:place], other(parts[place]), *parts[place + 1 :]))


@_mutates
def _dimension(lines: Lines, draw: random.Random) -> Lines | None:
    """Change one size of one shape."""

    def other(text: str) -> str:
        kind, sizes = text[:-1].split("[")
        return f"{kind}[{_one_of(sizes, ',', draw, lambda _: str(draw.choice(_NUMBERS)))}]"

    return _changed(lines, draw, _SHAPE, other)


@_mutates
def _rank(lines: Lines, draw: random.Random) -> Lines | None:
    """Give one shape a dimension more, or take its last."""
    return _changed(
        lines,
        draw,
        _SHAPE,
        lambda text: text[:-1] + ",2]" if draw.random() < 0.5 else re.sub(r",?\d+\]$", "]", text),
    )


@_mutates
def _element_type(lines: Lines, draw: random.Random) -> Lines | None:
    """Change the element type of one shape."""
    return _changed(lines, draw, _SHAPE, lambda text: draw.choice(_TYPES) + text[text.index("[") :])


@_mutates
def _layout(lines: Lines, draw: random.Random) -> Lines | None:
    """Put the dimensions of one layout into another order, or leave one out."""

    def other(text: str) -> str:
        order = text.split(",")
        draw.shuffle(order)
        return ",".join(order[: len(order) - (draw.random() < 0.1)])

    return _changed(lines, draw, _LAYOUT, other)


@_mutates
def _tile(lines: Lines, draw: random.Random) -> Lines | None:
    """Change one size of a tile."""
    return _changed(lines, draw, _TILE, lambda text: _one_of(text, ",", draw, lambda _: str(draw.choice(_NUMBERS))))


@_mutates
def _memory_space(lines: Lines, draw: random.Random) -> Lines | None:
    """Put one array into another memory."""
    return _changed(lines, draw, _SPACE, lambda _: str(draw.choice(_NUMBERS)))


@_mutates
def _opcode(lines: Lines, draw: random.Random) -> Lines | None:
    """Make one instruction another."""
    return _changed(lines, draw, _OPCODE, lambda _: draw.choice(sorted(OPERATIONS)))


@_mutates
def _operand(lines: Lines, draw: random.Random) -> Lines | None:
    """Take another value for one operand."""
    names = _NAME.findall("\n".join(lines))
    return _changed(lines, draw, _OPERANDS, lambda text: _one_of(text, ", ", draw, lambda _: draw.choice(names)))


@_mutates
def _fewer_operands(lines: Lines, draw: random.Random) -> Lines | None:
    """Leave one operand out."""

    def other(text: str) -> str:
        names = text.split(", ")
        names.pop(draw.randrange(len(names)))
        return ", ".join(names)

    return _changed(lines, draw, _OPERANDS, other)


@_mutates
def _more_operands(lines: Lines, draw: random.Random) -> Lines | None:
    """Take one operand twice."""
    return _changed(lines, draw, _OPERANDS, lambda text: f"{text}, {draw.choice(text.split(', '))}")


@_mutates
def _swapped_operands(lines: Lines, draw: random.Random) -> Lines | None:
    """Take the operands the other way round."""
    return _changed(lines, draw, _OPERANDS, lambda text: ", ".join(reversed(text.split(", "))))


@_mutates
def _number(lines: Lines, draw: random.Random) -> Lines | None:
    """Change one number of an attribute."""
    return _changed(lines, draw, _NUMBER, lambda _: str(draw.choice(_NUMBERS)))


@_mutates
def _near_number(lines: Lines, draw: random.Random) -> Lines | None:
    """Change one number of an attribute by one."""
    return _changed(lines, draw, _NUMBER, lambda text: str(int(text) + draw.choice((-1, 1))))


@_mutates
def _fewer_attributes(lines: Lines, draw: random.Random) -> Lines | None:
    """Leave one attribute out."""
    return _changed(lines, draw, _ATTRIBUTE, lambda _: "")


@_mutates
def _foreign_attribute(lines: Lines, draw: random.Random) -> Lines | None:
    """Give one instruction an attribute of another."""
    attributes = _ATTRIBUTE.findall("\n".join(line for line in lines if _INSTRUCTION.match(line)))
    return _changed(lines, draw, re.compile("$"), lambda _: draw.choice(attributes)) if attributes else None


@_mutates
def _header(lines: Lines, draw: random.Random) -> Lines | None:
    """Change one number of the first line."""
    found = list(_NUMBER.finditer(lines[0]))
    if not found:
        return None
    start, end = draw.choice(found).span()
    return [f"{lines[0][:start]}{draw.choice(_NUMBERS)}{lines[0][end:]}", *lines[1:]]


@_mutates
def _lost_line(lines: Lines, draw: random.Random) -> Lines:
    """Leave one line out."""
    number = draw.randrange(1, len(lines))
    return lines[:number] + lines[number + 1 :]


@_mutates
def _swapped_lines(lines: Lines, draw: random.Random) -> Lines | None:
    """Let two instructions change their places."""
    numbers = [number for number, line in enumerate(lines) if _INSTRUCTION.match(line)]
    if len(numbers) < 2:
        return None
    one, two = draw.sample(numbers, 2)
    found = list(lines)
    found[one], found[two] = found[two], found[one]
    return found


@_mutates
def _swapped_names(lines: Lines, draw: random.Random) -> Lines | None:
    """Let two names stand for each other, wherever they are used."""
    names = sorted(set(_NAME.findall("\n".join(lines))))
    if len(names) < 2:
        return None
    one, two = draw.sample(names, 2)
    other = {one: two, two: one}
    return [
        line if line.endswith("{") else _NAME.sub(lambda match: other.get(match[0], match[0]), line) for line in lines
    ]


@_mutates
def _root(lines: Lines, draw: random.Random) -> Lines:
    """Let a computation return the value before its root, or have no root at all."""
    number = draw.choice([number for number, line in enumerate(lines) if line.lstrip().startswith("ROOT ")])
    found = list(lines)
    found[number] = found[number].replace("ROOT ", "", 1)
    if _INSTRUCTION.match(found[number - 1]):
        found[number - 1] = found[number - 1].replace("%", "ROOT %", 1)
    return found
