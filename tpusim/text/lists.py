"""Bracketed lists, which most attributes are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.text.lexer import Lexer

Item = TypeVar("Item")


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


def take_integers(lexer: Lexer, brackets: str = "{}") -> tuple[int, ...]:
    """Return ``{1,2,3}`` as integers."""
    return take_list(lexer, _integer, brackets)


def take_integer_lists(lexer: Lexer) -> tuple[tuple[int, ...], ...]:
    """Return ``{{0,1},{1,0}}`` as tuples of integers."""
    return take_list(lexer, take_integers)


def take_boolean(lexer: Lexer) -> bool:
    """Return ``true`` or ``false``."""
    if lexer.value not in ("true", "false") or lexer.kind != "keyword":
        lexer.fail(f"expected true or false, found {lexer.shown()}")
    value = lexer.value == "true"
    lexer.advance()
    return value


def show_integers(values: tuple[int, ...]) -> str:
    """Return integers as ``{1,2,3}``."""
    return "{" + ",".join(map(str, values)) + "}"


def show_integer_lists(values: tuple[tuple[int, ...], ...]) -> str:
    """Return tuples of integers as ``{{0,1},{1,0}}``."""
    return "{" + ",".join(map(show_integers, values)) + "}"


def _integer(lexer: Lexer) -> int:
    """Return one integer of a list."""
    return lexer.take_integer()
