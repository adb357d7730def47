"""Bracketed lists, which most attributes are made of, and words of which there are a few."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from tpusim.errors import did_you_mean
from tpusim.ir.attributes import Symbol
from tpusim.text.lexer import Lexer

Item = TypeVar("Item")

# Groups of a thousand devices are ordinary; lists without blanks and long numbers are read at once.
_NUMBER = "-?[0-9]{1,18}"
_PLAIN_LISTS = {
    brackets: re.compile(rf"{re.escape(brackets[0])}((?:{_NUMBER}(?:,{_NUMBER})*+)?){re.escape(brackets[1])}")
    for brackets in ("{}", "[]", "()")
}
# Without the lookahead a number of 19 digits would be cut into two after the 18th.
_PLAIN_NUMBERS = re.compile(rf"{_NUMBER}(?:,{_NUMBER})*+(?![0-9])")
_PLAIN_LIST_OF_LISTS = re.compile(rf"\{{\{{({_NUMBER}(?:,{_NUMBER})*+(?:\}},\{{{_NUMBER}(?:,{_NUMBER})*+)*+)\}}\}}")


def take_list(
    lexer: Lexer, item: Callable[[Lexer], Item], brackets: str = "{}", separator: str = ","
) -> tuple[Item, ...]:
    """Return the items between two brackets, each read by ``item``; there may be none."""
    opening, closing = brackets[0], brackets[1]
    lexer.take(opening, f"'{opening}'")
    items: list[Item] = []
    if lexer.kind != closing:
        items.append(item(lexer))
        while lexer.accept(separator):
            items.append(item(lexer))
    lexer.take(closing, f"'{separator}' or '{closing}'")
    return tuple(items)


def list_of(item: Callable[[Lexer], Item], brackets: str = "{}") -> Callable[[Lexer], tuple[Item, ...]]:
    """Return the function that reads a list of such items."""
    return lambda lexer: take_list(lexer, item, brackets)


def take_integers(lexer: Lexer, brackets: str = "{}") -> tuple[int, ...]:
    """Return ``{1,2,3}`` as integers."""
    match = _PLAIN_LISTS[brackets].match(lexer.text, lexer.start)
    if match is None:
        return take_list(lexer, Lexer.take_integer, brackets)
    lexer.jump(match.end())
    return tuple(map(int, match[1].split(","))) if match[1] else ()


def take_bare_integers(lexer: Lexer) -> tuple[int, ...]:
    """Return ``1,2,3`` without brackets, at least one."""
    numbers: list[int] = []
    while True:
        match = _PLAIN_NUMBERS.match(lexer.text, lexer.start)
        if match is not None:
            numbers.extend(map(int, match[0].split(",")))
            lexer.jump(match.end())
        else:
            # A number that is too long for 64 bits, or none.
            numbers.append(lexer.take_integer())
        if not lexer.accept(","):
            return tuple(numbers)


def take_integer_lists(lexer: Lexer) -> tuple[tuple[int, ...], ...]:
    """Return ``{{0,1},{1,0}}`` as tuples of integers."""
    match = _PLAIN_LIST_OF_LISTS.match(lexer.text, lexer.start)
    if match is None:
        return take_list(lexer, take_integers)
    lexer.jump(match.end())
    return tuple(tuple(map(int, row.split(","))) for row in match[1].split("},{"))


def word_of(words: str, *, any_case: bool = False) -> Callable[[Lexer], Symbol]:
    """Return the function that reads one of a few words, in capitals or not if XLA does not mind."""
    known = {word.lower() if any_case else word: Symbol(word) for word in words.split()}

    def read(lexer: Lexer) -> Symbol:
        word = lexer.value.lower() if any_case else lexer.value
        if lexer.kind not in ("identifier", "keyword") or word not in known:
            nearest = did_you_mean(word, known)
            lexer.fail(f"expected one of {', '.join(known.values())}, found {lexer.shown()}{nearest}")
        lexer.advance()
        return known[word]

    # What is kept is the spelling of the table, so that a text in another case prints as XLA would print it.
    return read


def take_boolean(lexer: Lexer) -> bool:
    """Return ``true`` or ``false``."""
    if lexer.value not in ("true", "false") or lexer.kind != "keyword":
        lexer.fail(f"expected true or false, found {lexer.shown()}")
    return lexer.take("keyword", "true or false") == "true"


def show_list(values: Iterable[object]) -> str:
    """Return values as ``{1,2,3}``."""
    return "{" + ",".join(map(str, values)) + "}"


def show_lists(values: Iterable[Iterable[object]]) -> str:
    """Return values as ``{{0,1},{1,0}}``."""
    return show_list(map(show_list, values))
