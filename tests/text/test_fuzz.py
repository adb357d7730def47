"""Damaged programs: whatever happens to a text, it reads as a module or ends in a ProgramError with a place."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from tests.robust.mutations import mutated_text, tokens_of
from tests.text.programs import ALL, name_of, source, text_of
from tpusim.errors import ProgramError
from tpusim.ir.module import Module
from tpusim.text import parse_module, print_module

_BLANKS = (" ", "\n", "\n  ", "\t", "/*c*/", "/* ) */", "/*index=5*/", "//c\n", "//", "%", ", ", "\n, ")
_CHARACTERS = "{}()[]=,:%\"'/*#<>-+ \n\tabf0129.é\x01"


def read(text: str) -> Module | None:
    """Return the module in a text, or None for an error with file, line and caret; anything else is a failure."""
    try:
        return parse_module(source(text))
    except ProgramError as error:
        found = error
    assert found.span is not None
    assert str(found).startswith(f"test.hlo:{found.span.line}:{found.span.column}: ")
    assert str(found).rstrip("^").endswith(" ")
    return None


def agree(text: str) -> None:
    """Read both ways; they must agree on the module, and what was read must survive printing."""
    module = read(text)
    try:
        careful = parse_module(source(text), careful=True)
    except ProgramError:
        careful = None
    assert careful == module
    if module is not None:
        assert parse_module(source(print_module(module))) == module


def cut_anywhere(text: str, chance: random.Random) -> str:
    """Cut the end off."""
    return text[: chance.randrange(len(text))]


def drop_some(text: str, chance: random.Random) -> str:
    """Delete a few characters in a row."""
    place = chance.randrange(len(text))
    return text[:place] + text[place + chance.randrange(1, 9) :]


def change_one(text: str, chance: random.Random) -> str:
    """Put another character in a place."""
    place = chance.randrange(len(text))
    return text[:place] + chance.choice(_CHARACTERS) + text[place + 1 :]


def drop_line(text: str, chance: random.Random) -> str:
    """Delete a line."""
    lines = text.splitlines(keepends=True)
    del lines[chance.randrange(len(lines))]
    return "".join(lines)


def repeat_line(text: str, chance: random.Random) -> str:
    """Write a line twice."""
    lines = text.splitlines(keepends=True)
    place = chance.randrange(len(lines))
    return "".join([*lines[:place], lines[place], *lines[place:]])


def swap_words(text: str, chance: random.Random) -> str:
    """Exchange two words."""
    words = text.split(" ")
    one, other = chance.randrange(len(words)), chance.randrange(len(words))
    words[one], words[other] = words[other], words[one]
    return " ".join(words)


def change_a_line(text: str, chance: random.Random) -> str:
    """Change numbers, words and brackets of one line."""
    lines = text.split("\n")
    place = chance.randrange(len(lines))
    lines[place] = mutated_text(chance, lines[place])
    return "\n".join(lines)


def insert_blank(text: str, chance: random.Random) -> str:
    """Put what stands between tokens, or looks like it, somewhere into a line."""
    lines = text.split("\n")
    place = chance.randrange(len(lines))
    tokens = tokens_of(lines[place])
    tokens.insert(chance.randint(0, len(tokens)), chance.choice(_BLANKS))
    lines[place] = "".join(tokens)
    return "\n".join(lines)


DAMAGES: list[Callable[[str, random.Random], str]] = [
    cut_anywhere,
    drop_some,
    change_one,
    drop_line,
    repeat_line,
    swap_words,
    change_a_line,
    insert_blank,
]


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
@pytest.mark.parametrize("path", ALL, ids=name_of)
def test_a_damaged_program_is_a_module_or_an_error(path: object, damage: Callable[[str, random.Random], str]) -> None:
    """Fixed seeds; both ways of reading are held against each other."""
    text = text_of(name_of(path))  # type: ignore[arg-type]
    chance = random.Random(name_of(path) + damage.__name__)  # type: ignore[arg-type]
    for _ in range(12 if len(text) > 3000 else 40):
        agree(damage(text, chance))


@pytest.mark.parametrize("name", ["module_attributes", "literals", "shardings", "attention.v5e"])
def test_a_program_cut_off_anywhere_is_an_error(name: str) -> None:
    """No prefix that lacks the brace of the last computation is a module, unless it ends between two computations."""
    text = text_of(name).rstrip()
    begin = text.rindex("\n\n")
    for end in range(begin + 3, len(text), 7):
        assert read(text[:end]) is None


@pytest.mark.slow
@pytest.mark.parametrize("name", ["calls", "one_instruction", "comments"])
def test_a_program_cut_off_reads_the_same_both_ways(name: str) -> None:
    """Prefixes of every length."""
    text = text_of(name)
    for end in range(1, len(text), 3):
        agree(text[:end])


def test_random_bytes_are_an_error() -> None:
    """Noise of any length; none of it is HLO."""
    chance = random.Random(2)
    for length in range(1, 400, 3):
        noise = bytes(chance.randrange(256) for _ in range(length)).decode("latin-1")
        assert read("x" + noise) is None
