"""Programs to start from, and mutations of HLO text by its structure: opcodes, operands, shapes, attributes, calls."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

from tests.robust.mutations import HUGE, NUMBERS, Mutation, encoded, mutated_text, mutated_tree
from tpusim.ir.ops import OPERATIONS
from tpusim.shapes.dtype import DTYPES

ROOT = Path(__file__).parents[2]


def linked(folder: Path, name: str, source: str) -> Path:
    """Return a file of a name in a folder, which is one of the project; it stays there for the next case."""
    link = folder / name
    if not link.exists():
        link.symlink_to(ROOT / source)
    return link


_DATA = ROOT / "tests" / "data"

_OPCODE = re.compile(r"(?<=[\])} ] )[a-z][a-z0-9-]*(?=\()|(?<= )[a-z][a-z0-9-]*(?=\(%)")
_REFERENCE = re.compile(r"%[\w.\-]+")
_DIMENSIONS = re.compile(r"(?<=[a-z0-9]\[)[\d,]+(?=\])")
_TYPE = re.compile(r"\b(?:pred|[suf]\d+\w*|bf16|c64|c128|token)(?=\[)")
_LAYOUT = re.compile(r"\{[\d,]*(?::[^{}]*)?\}")
_TILING = re.compile(r"(?<=:)T(?:\([\d,]+\))+(?:S\(\d\))?")
_TILINGS = (
    "T(8,128)",
    "T(8,128)(2,1)",
    "T(16,128)(2,1)S(1)",
    "T(1,128)",
    "T(128)",
    "T(4,128)S(3)",
    "T(8,256)",
    "T(2,128)",
)
_ATTRIBUTE = re.compile(r", [\w.]+=(?:\{[^{}]*\}|[^,{}\s]+)")
_SIZE = re.compile(r"(?<=[\[,])\d+(?=[\],])")
_CONFIG = re.compile(r"(?<=backend_config=)\{.*\}")
_QUOTED_NUMBER = re.compile(r'(?<=")-?\d+(?=")')
_CALLED = re.compile(r"((?:calls|to_apply|body|condition|true_computation|false_computation)=)(%[\w.\-]+)")


@cache
def texts_of(pattern: str, most: int = 15_000) -> tuple[str, ...]:
    """Return the programs that match a pattern below the project's root, but those of more characters than ``most``."""
    found = (gzip.decompress(path.read_bytes()).decode() for path in sorted(ROOT.glob(pattern)))
    return tuple(text for text in found if len(text) <= most)


@cache
def scheduled() -> tuple[str, ...]:
    """Return programs as a TPU compiler leaves them, of all kinds, small ones."""
    patterns = ("tests/data/numeric/*.v*.gz", "tests/data/hlo/*.v*.gz", "traces/*.v*.gz", "traces/host/*.gz")
    few = tuple(texts_of("traces/measured/*.gz")[::40])
    return (*(text for pattern in patterns for text in texts_of(pattern)), *few)


@cache
def unscheduled() -> tuple[str, ...]:
    """Return programs as front ends make them, and texts in the old forms of HLO."""
    named = {path.name: path for path in sorted((_DATA / "numeric").glob("*.hlo.txt.gz"))}
    fresh = [path for name, path in named.items() if ".v" not in name]
    old = [path.read_text() for path in sorted((_DATA / "hlo" / "grammar").glob("*.hlo"))]
    found = [gzip.decompress(path.read_bytes()).decode() for path in fresh]
    return (
        *(text for text in found if len(text) <= 15_000),
        *texts_of("traces/sharded/*_v5e.hlo.txt.gz", 17_000),
        *old,
    )


@cache
def sharded() -> tuple[str, ...]:
    """Return programs that a front end made for eight devices: to be timed, and too large to be computed."""
    return texts_of("traces/sharded/*_v5e.hlo.txt.gz", 17_000)


def _in_some_line(pattern: re.Pattern[str], other: Callable[[Random, list[str], str], str]) -> Mutation:
    """Return a mutation that puts something else into the place of what a pattern finds in one line."""

    def change(random: Random, lines: list[str]) -> None:
        for place in random.sample(range(len(lines)), min(len(lines), 8)):
            if found := list(pattern.finditer(lines[place])):
                at = random.choice(found)
                lines[place] = lines[place][: at.start()] + other(random, lines, at[0]) + lines[place][at.end() :]
                return

    return change


def _anywhere(pattern: re.Pattern[str]) -> Callable[[Random, list[str], str], str]:
    def other(random: Random, lines: list[str], text: str) -> str:
        for place in random.sample(range(len(lines)), min(len(lines), 8)):
            if found := pattern.findall(lines[place]):
                return random.choice(found)
        return text

    return other


def _other_dimensions(random: Random, lines: list[str], text: str) -> str:
    sizes = text.split(",")
    kind, place = random.randrange(5), random.randrange(len(sizes))
    if kind == 0:
        sizes.append(random.choice(("1", "2", "128")))
    elif kind == 1:
        del sizes[place]
    elif kind == 2:
        random.shuffle(sizes)
    # What an earlier change has made of it may have more digits than Python reads.
    elif kind == 3 and len(sizes[place]) < 19:
        sizes[place] = str(max(0, int(sizes[place]) + random.choice((-1, 1, 8))))
    else:
        sizes[place] = random.choice(("0", "1", "2", "128", "100000", *HUGE))
    return ",".join(sizes)


def _call_another(random: Random, lines: list[str]) -> None:
    """Let an instruction call another computation, perhaps the one that it stands in."""
    names = [match[0] for line in lines if line[:1] in "%E" and (match := _REFERENCE.search(line))]
    callers = [place for place, line in enumerate(lines) if _CALLED.search(line)]
    if names and callers:
        place = random.choice(callers)
        name = random.choice(names)
        lines[place] = _CALLED.sub(lambda found: found[1] + name, lines[place])


def _change_header(random: Random, lines: list[str]) -> None:
    """Give the module a count of devices, or change an attribute of its first line."""
    key = random.choice(("replica_count", "num_partitions"))
    lines[0] += f", {key}={random.choice(('2', '4', '8', '64', *NUMBERS[:20]))}"


def _borrow_attribute(random: Random, lines: list[str]) -> None:
    """Give a line an attribute of another one."""
    place = random.randrange(len(lines))
    if found := _ATTRIBUTE.findall(random.choice(lines)):
        lines[place] += random.choice(found)


def _wrap_shape(random: Random, lines: list[str], text: str) -> str:
    times = random.choice((1, 2, 500))
    return "(" * times + text + ")" * times


def _everywhere(pattern: re.Pattern[str], others: tuple[str, ...]) -> Mutation:
    """Return a mutation that puts another text in the place of one wherever it stands: what it breaks lies deeper."""

    def change(random: Random, lines: list[str]) -> None:
        text = "\n".join(lines)
        if found := pattern.findall(text):
            old, new = random.choice(found), random.choice(others)
            lines[:] = pattern.sub(lambda match: new if match[0] == old else match[0], text).split("\n")

    return change


def _change_config(random: Random, lines: list[str]) -> None:
    """Change the compiler's configuration of an instruction as the tree that it is, or a number in a text of it."""
    found = [(place, match) for place, line in enumerate(lines) if (match := _CONFIG.search(line))]
    if not found:
        return
    place, match = random.choice(found)
    line, numbers = lines[place], list(_QUOTED_NUMBER.finditer(match[0]))
    if numbers and random.random() < 0.5:
        begin, end = (match.start() + at for at in random.choice(numbers).span())
        lines[place] = line[:begin] + random.choice(NUMBERS) + line[end:]
        return
    try:
        tree = mutated_tree(random, json.loads(match[0]))
    except (ValueError, RecursionError):  # it was nested as deep as brackets go
        return
    lines[place] = line[: match.start()] + json.dumps(tree) + line[match.end() :]


_ANY_OPCODE = _in_some_line(_OPCODE, lambda random, lines, text: random.choice(tuple(OPERATIONS)))
_ANY_OPERAND = _in_some_line(_REFERENCE, _anywhere(_REFERENCE))
_ANY_SIZES = _in_some_line(_DIMENSIONS, _other_dimensions)
_WHOLE: tuple[Mutation, ...] = (
    _change_config,
    _everywhere(_SIZE, ("0", "1", "2", "7", "100", "129", "4096", *HUGE)),
    _everywhere(_TYPE, tuple(DTYPES)),
)
OF_HLO: tuple[Mutation, ...] = (
    *(_ANY_OPCODE,) * 3,
    *(_ANY_OPERAND,) * 4,
    *(_ANY_SIZES,) * 4,
    _in_some_line(_TYPE, lambda random, lines, text: random.choice(tuple(DTYPES))),
    _in_some_line(_LAYOUT, _anywhere(_LAYOUT)),
    _in_some_line(_ATTRIBUTE, lambda random, lines, text: ""),
    _in_some_line(_ATTRIBUTE, _anywhere(_ATTRIBUTE)),
    _in_some_line(re.compile(r"[a-z0-9]+\[[\d,]*\](?:\{[^{}]*\})?"), _wrap_shape),
    _borrow_attribute,
    _call_another,
    _change_header,
    *_WHOLE,
)
"""Mutations of the lines of HLO text."""


def still_whole(random: Random, texts: tuple[str, ...]) -> bytes:
    """Return one of some programs that fits together as before, but with another size, type, tiling or tuning."""
    lines = random.choice(texts).split("\n")
    for _ in range(random.choice((1, 1, 2, 3))):
        random.choice((*_WHOLE, _everywhere(_TILING, _TILINGS)))(random, lines)
    return encoded("\n".join(lines))


def mutated_hlo(random: Random, texts: tuple[str, ...]) -> bytes:
    """Return one of some programs after mutations, now and then with a line of another one."""
    text = random.choice(texts)
    if random.random() < 0.1:
        lines = text.split("\n")
        lines.insert(random.randrange(len(lines)), random.choice(random.choice(texts).split("\n")))
        text = "\n".join(lines)
    return encoded(mutated_text(random, text, OF_HLO))
