"""Mutations of texts and trees by their structure: numbers, words, brackets, lines, rows, keys and values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

HUGE = ("1000000000", "2147483647", "9223372036854775807")
NUMBERS = (
    *("0", "1", "-1", "2", "3", "7", "8", "127", "128", "129", "255", "4096", "65536", "1000000", *HUGE),
    *("2147483648", "4294967296", "9223372036854775808", "18446744073709551616", "9" * 20, "9" * 400),
    *("9" * 5000, "-" + "9" * 5000, "0x" + "f" * 4000),
    *(
        "1e9",
        "1e308",
        "1e-320",
        "nan",
        "inf",
        "-inf",
        "0.5",
        "-0",
        "1e400",
        "0x10",
        "1_000",
        "\N{ARABIC-INDIC DIGIT THREE}",
    ),
)
"""Numbers at the ends of what formats hold, and words that some readers take for numbers."""

WORDS = (
    "",
    "\x1b[31m",
    "\x1b]0;x\x07",
    "\0",
    "x" * 5000,
    "..",
    "/etc/passwd",
    "%",
    "{}",
    "\u202e",
    "\ud7ff",
    "é",
    "\ufeff",
)
"""Words that readers, terminals and file systems stumble over."""

_TOKENS = re.compile(r"[A-Za-z_][\w.\-]*|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_OPEN = "([{"

Mutation = Callable[[Random, list[str]], None]
"""Changes a list of tokens, or of lines, in place."""


def tokens_of(text: str) -> list[str]:
    """Return words, numbers, blanks and single characters, which together are the text."""
    return _TOKENS.findall(text)


def _places(tokens: Sequence[str], fits: Callable[[str], bool]) -> list[int]:
    return [place for place, token in enumerate(tokens) if fits(token)]


def _is_number(token: str) -> bool:
    return token[:1].isdecimal()


def _is_word(token: str) -> bool:
    return token[:1].isalpha() or token[:1] == "_"


def change_number(random: Random, tokens: list[str]) -> None:
    """Put a number of the ends of formats, or a near one, into the place of a number."""
    if places := _places(tokens, _is_number):
        place = random.choice(places)
        whole = tokens[place].partition(".")[0]
        near = str(int(whole) + random.choice((-1, 1, 2, 8))) if len(whole) < 19 else "1"
        tokens[place] = random.choice((random.choice(NUMBERS), near))


def swap_alike(random: Random, tokens: list[str]) -> None:
    """Put a word or a number of the same text into the place of another."""
    if places := _places(tokens, random.choice((_is_number, _is_word))):
        tokens[random.choice(places)] = tokens[random.choice(places)]


def exchange(random: Random, tokens: list[str]) -> None:
    """Exchange two words or two numbers."""
    if places := _places(tokens, random.choice((_is_number, _is_word))):
        one, other = random.choice(places), random.choice(places)
        tokens[one], tokens[other] = tokens[other], tokens[one]


def delete_some(random: Random, tokens: list[str]) -> None:
    """Delete up to eight tokens in a row."""
    if tokens:
        begin = random.randrange(len(tokens))
        del tokens[begin : begin + random.randint(1, 8)]


def repeat_some(random: Random, tokens: list[str]) -> None:
    """Write a stretch twice."""
    if tokens:
        begin = random.randrange(len(tokens))
        stretch = tokens[begin : begin + random.randint(1, 30)]
        tokens[begin:begin] = stretch


def cut_off(random: Random, tokens: list[str]) -> None:
    """Keep the beginning only."""
    if tokens:
        del tokens[random.randrange(len(tokens)) :]


def nest(random: Random, tokens: list[str]) -> None:
    """Repeat an opening bracket, once or ten thousand times."""
    if places := _places(tokens, lambda token: token in _OPEN):
        place = random.choice(places)
        tokens[place] *= random.choice((2, 3, 200, 10_000))


def insert_word(random: Random, tokens: list[str]) -> None:
    """Insert a word that readers stumble over, or a number."""
    tokens.insert(random.randrange(len(tokens) + 1), random.choice(WORDS + NUMBERS))


def change_character(random: Random, tokens: list[str]) -> None:
    """Put any character into the place of a token."""
    if tokens:
        tokens[random.randrange(len(tokens))] = chr(random.choice((random.randrange(128), random.randrange(0xD800))))


def exchange_lines(random: Random, lines: list[str]) -> None:
    """Exchange two lines."""
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def delete_line(random: Random, lines: list[str]) -> None:
    """Delete a line."""
    del lines[random.randrange(len(lines))]


def repeat_line(random: Random, lines: list[str]) -> None:
    """Write a line twice, side by side or anywhere."""
    lines.insert(random.randrange(len(lines) + 1), random.choice(lines))


OF_TOKENS: tuple[Mutation, ...] = (
    *(change_number,) * 5,
    *(swap_alike,) * 4,
    *(exchange,) * 2,
    delete_some,
    repeat_some,
    cut_off,
    nest,
    insert_word,
    change_character,
)
"""Mutations of tokens; what leaves more of a text whole stands here more often."""

OF_LINES: tuple[Mutation, ...] = (exchange_lines, delete_line, repeat_line)


def mutated_text(random: Random, text: str, own: Sequence[Mutation] = ()) -> str:
    """Return a text after one to three mutations, half of them the format's ``own`` of its lines, if it has such."""
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        lines = text.split("\n")
        if own and random.random() < 0.6:
            random.choice(own)(random, lines)
            text = "\n".join(lines)
        elif random.random() < 0.2:
            random.choice(OF_LINES)(random, lines)
            text = "\n".join(lines)
        else:
            tokens = tokens_of(text)
            random.choice(OF_TOKENS)(random, tokens)
            text = "".join(tokens)
    return text


def encoded(text: str) -> bytes:
    """Return a text as bytes; what Unicode cannot hold becomes what no reader of UTF-8 takes."""
    return text.encode("utf-8", "surrogatepass")


def mutated_bytes(random: Random, content: bytes) -> bytes:
    """Return bytes of which some are others, gone, or there twice."""
    found = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(found) + 1)
        kind = random.randrange(4)
        if kind == 0 and place < len(found):
            found[place] = random.choice((0, 1, 0x7F, 0x80, 0xFF, random.randrange(256)))
        elif kind == 1:
            del found[place : place + random.randint(1, 16)]
        elif kind == 2:
            found[place:place] = found[place : place + random.randint(1, 64)]
        elif random.random() < 0.2:
            del found[place:]
    return bytes(found)


def _values(random: Random) -> Any:
    plain = (None, True, [], {}, "", "x", 0, 1, -1, 0.5, 10**9, 2**31 - 1, 2**63 - 1, 2**64, 10**30, 1e308, 1e-320)
    return random.choice((*plain, random.choice(WORDS), [[[[]]]], {"type": "Loop"}))


def mutated_tree(random: Random, tree: Any) -> Any:
    """Return nested lists and dictionaries with one to three entries of them changed, gone, there twice or deeper."""
    tree = json.loads(json.dumps(tree))
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _mutate_node(random, _some_node(random, tree))
    return tree


def _some_node(random: Random, node: Any) -> Any:
    """Return a list or dictionary of a tree that has something in it."""
    while True:
        inner = [value for value in _entries(node) if isinstance(value, list | dict) and value]
        if not inner or random.random() < 0.15:
            return node
        node = random.choice(inner)


def _entries(node: Any) -> list[Any]:
    return list(node.values() if isinstance(node, dict) else node)


def _mutate_node(random: Random, node: Any) -> None:
    if not node:
        return
    key = random.choice(list(node)) if isinstance(node, dict) else random.randrange(len(node))
    kind = random.randrange(10)
    if kind == 0:
        del node[key]
    elif kind == 1 and isinstance(node, list):
        node.insert(random.randrange(len(node) + 1), node[key])
    elif kind == 1:
        node[random.choice((*node, *WORDS))] = node[key]
    elif kind == 2:
        node[key] = random.choice(_entries(node))
    elif kind == 3:
        node[key] = [node[key]]
    elif kind < 7 and isinstance(node[key], int | float):
        node[key] = random.choice((0, 1, node[key] + 1, node[key] * 2, 10**9, 2**31 - 1, 2**63 - 1, 1e-320, 1e308))
    else:
        node[key] = _values(random)
