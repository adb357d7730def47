"""Sentences of small grammars: short texts of which mutations of a few samples would soon all be known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random

from tests.robust.mutations import NUMBERS, encoded, mutated_text
from tpusim.hardware.fields import FIELDS

_RULE = re.compile(r"<(\w+)>")
_DEEPEST = 6

Grammar = Mapping[str, Sequence[str]]
"""By rule what it may be, with other rules in angles; the first of each ends soonest. ``start`` is the whole.

``number``, ``size`` and ``real`` are any number, a small whole one and one with a fraction.
"""


def sentence(random: Random, grammar: Grammar, rule: str = "start", depth: int = 0) -> str:
    """Return a text of a grammar."""
    if rule not in grammar:
        return _TERMINALS[rule](random)
    form = grammar[rule][0] if depth > _DEEPEST else random.choice(grammar[rule])
    return _RULE.sub(lambda found: sentence(random, grammar, found[1], depth + 1), form)


def sentences(grammar: Grammar) -> Callable[[Random], bytes]:
    """Return what makes inputs of a grammar, as they are or after mutations."""

    def make(random: Random) -> bytes:
        text = sentence(random, grammar)
        return encoded(mutated_text(random, text) if random.random() < 0.6 else text)

    return make


_TERMINALS: dict[str, Callable[[Random], str]] = {
    "size": lambda random: str(random.randrange(1, 2 ** random.randrange(1, 12))),
    "real": lambda random: f"{random.uniform(0, 10):.{random.randrange(1, 9)}g}e{random.randrange(-12, 13)}",
    "number": lambda random: random.choice(
        (random.choice(NUMBERS), str(random.getrandbits(random.randrange(1, 70))), f"{random.random():.4g}")
    ),
}

SHAPE: Grammar = {
    "start": ("<array>", "<array>", "<array>", "(<start>, <start>)", "(<array>)", "token[]"),
    "array": ("<dtype>[<size>]", "<dtype>[<sizes>]{<order><tail>}", "<dtype>[<size>,<size>]{1,0<tail>}"),
    "sizes": ("<size>", "<size>,<sizes>", "<=<size>,<sizes>", "<number>"),
    "order": ("0", "1,0", "0,1", "2,1,0", "0,2,1", "3,2,1,0", "", "<size>"),
    "tail": ("", ":<tiles>", ":<tiles><more>", ":<more>"),
    "tiles": ("T(<size>)", "T(<tile>,<tile>)", "T(<tile>,<tile>)(<size>,1)", "T(<tile>,<tile>)(2,1)(<size>,*)"),
    "tile": ("8", "128", "<size>", "*"),
    "more": ("S(<size>)", "E(<size>)", "L(<size>)", "D(D,C)", "M(<number>)", "S(1)E(4)", "SC(0:<size>)", "S(<number>)"),
    "dtype": ("f32", "bf16", "s4", "u8", "pred", "c64", "f8e4m3fn", "s32", "f64", "u1", "x32"),
}

EXPRESSION: Grammar = {
    "start": ("<term>", "<term> <compare> <term>", "<term> <compare> <term>"),
    "compare": ("<=", "<", ">", ">=", "==", "!="),
    "term": ("<atom>", "<term> <operator> <term>", "(<term>)", "-<term>", "<function>(<term>, <term>)"),
    "operator": ("+", "-", "*", "/", "//", "%", "**"),
    "function": ("min", "max", "abs", "round", "ceil", "floor", "log2", "sqrt", "open"),
    "atom": ("<key>", "<size>", "<real>", "<number>"),
    "key": ("mxu.count", "mxu.rows", "clock_hz", "vmem.capacity_bytes", "hbm.latency_seconds", "mxu", "x"),
}

PACE: Grammar = {
    "start": ("<time>", "normal:<time>:<time>:<size>", "exponential:<time>:<size>", "constant:<time>", "<kind>:<rest>"),
    "kind": ("normal", "exponential", "constant", "poisson"),
    "rest": ("<time>", "<time>:<rest>", "<number>:<rest>"),
    "time": ("<size><unit>", "<real><unit>", "<number><unit>"),
    "unit": ("us", "ns", "ms", "s", "ps", ""),
}

PACE_FILE: Grammar = {
    "start": ("<line>\n<line>\n<line>\n", *("<line>\n<start>",) * 9, "<size>,<line>\n<start>"),
    "line": (*("<size>", "<real>", "<size>.<size>") * 4, "<number>", ""),
}

TOPOLOGY: Grammar = {
    "start": ("<chip>:<axes>", "<chip>-<size>", "<axes>", "<chip>:<axes><more>", "<chip>_<axes>", "<chip>-<number>"),
    "chip": ("v2", "v3", "v4", "v5e", "v5p", "v5litepod", "v6e", "tpu7x", "v7x", "v9"),
    "axes": ("<side>x<side>", "<side>", "<side>x<side>x<side>", "<side>x<axes>"),
    "side": ("1", "2", "4", "8", "16", "<size>", "<number>"),
    "more": ("*<side>", "_untwisted", "_twisted", "_untwisted*<side>", "*<number>"),
}

_VALUES = {
    "value": ("<size>", "<real>", '"x<real>"', '"x2"', "0", "<number>", "true", '"<word>"', "[<size>, <size>]"),
    "word": ("length16", "always", "cube4", "2x2", "banked", "v5e", "<size>G"),
    "chip": ("v2", "v3", "v4", "v4-megacore", "v5e", "v5p", "v6e", "v7x"),
    "key": (*FIELDS, "units.sorter.slots", "mxu.rate_by_type.s8", "vector_ops.ops.add.vector", "hbm.settings.banks"),
}

CHIP: Grammar = _VALUES | {
    "start": ('base = "<chip>"\nname = "mine"\n<lines>',),
    "lines": ("<key> = <value>\n", "<key> = <value>\n<lines>", '<key> = { same_as = "<chip>" }\n<lines>'),
}

OVERRIDE: Grammar = _VALUES | {"start": ("<key>=<value>",), "value": ("<size>", "<real>", "x<real>", "x2", "<number>")}

STUDY: Grammar = _VALUES | {
    "start": ('programs = <programs>\nbase = "<chip>"\n<flag>[axes]\n<axes><derive><limits>',),
    "programs": ('["mlp_b1024.v5e.hlo.txt.gz"]', '"sort_kv_1m.v5e.hlo.txt.gz"', '["*_b{batch}.v5e.hlo.txt.gz"]'),
    "flag": ("", "warm = true\n", 'schedule = ["given", "compiled"]\n', 'topology = "2x2"\n'),
    "axes": ('"<key>" = <range>\n', '"<key>" = <range>\n<axes>', "both<size> = { zip = { <each> } }\n<axes>"),
    "range": ("[<value>]", "[<value>, <value>, <value>]", "{ log = [<ends>] }", "{ lin = [<ends>] }"),
    "ends": (
        "<size>, <size>, <few>",
        "<real>, <real>, <few>",
        '"<size>G", "<size>T", <few>',
        "<number>, <real>, <size>",
    ),
    "few": ("1", "2", "5", "<size>"),
    "each": ('"<key>" = [<value>, <value>]', '"<key>" = [<value>, <value>], "<key>" = [<value>, <value>]'),
    "derive": ("", "", '[derive]\n"<key>" = "<key> * 2 + <size>"\n'),
    "limits": ("", "", '[constraints]\narea_mm2 = "<= <size>"\n', '[constraints]\n"<key>" = "> <real>"\n'),
}

NAME: Grammar = {
    "start": (
        "<known>",
        "<known><size>",
        "<known>-<size>",
        "tpu <known>",
        "TPU <known> <word>",
        "<folder>/<known>.toml",
    ),
    "known": ("v2", "v3", "v4", "v5e", "v5p", "v5 lite", "v6e", "v7x", "tpu7x", "v<size>", "trillium", "ironwood"),
    "word": ("chip", "lite", "pod", "core", "<size>", "<number>"),
    "folder": (".", "..", "configs", "<size>", "nowhere/<known>"),
}

LAYERS: Grammar = {
    "start": ("Layer, M, N, K\n<rows>", "Layer, IFMAP Height, , , , , ,\n<images>"),
    "rows": ("<row>\n", "<row>\n<rows>", "<row>, <size>:<size>\n<rows>"),
    "row": ("<name>, <size>, <size>, <size>", "<name>, <number>, <size>, <size>,"),
    "images": ("<image>\n", "<image>,\n<images>", "<image>, <size>:<size>\n<images>"),
    "image": (
        "<name>, <size>, <size>, <few>, <few>, <size>, <size>, <few>",
        "<name>, <size>, <size>, <number>, 1, 1, 1, 1",
    ),
    "few": ("1", "2", "3", "5", "7"),
    "name": ("one", "DP", "conv<size>", "", '"a, b"'),
}
