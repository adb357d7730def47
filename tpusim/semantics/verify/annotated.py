"""Whether shardings and original values, which stay the text that they were, fit the shapes that carry them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tpusim.ir.ops import CONTROL_FLOW
from tpusim.semantics.infer.control import branches
from tpusim.semantics.infer.types import indexed_leaves, plain
from tpusim.semantics.verify.view import Call, Finding, View, at, checks
from tpusim.shapes.shape import ArrayShape

_TILES = re.compile(r"devices=\[([\d,]+)\](<=)?([\d,]*)")
_LAST_DIMENSIONS = r"last_tile_dims=\{([^}]*)\}"
# A leaf is one token, with the braces of its shape index inside.
_QUOTED = r'"(?:[^"\\]++|\\.)*+"'
_ORIGIN_TOKEN = r"[(),]|\{[^{}]*(?:\{[^{}]*\})?[^{}]*\}"
# Blanks inside a sharding are the writer's choice and no disagreement.
_SPACE = re.compile(r"\s+")


@checks
def _check_annotations(view: View) -> Iterator[Finding]:
    if view.attributes.isdisjoint(("origin", "sharding")):
        return
    for computation in view.computations:
        for instruction in computation.instructions:
            attributes = instruction.attributes
            if "sharding" in attributes:
                yield from _check_sharding(Call(computation, instruction))
            if "origin" in attributes and "synthetic_call" not in attributes["origin"]:
                yield from _check_origin(Call(computation, instruction))


def _check_sharding(call: Call) -> Iterator[Finding]:
    """Check a tiled sharding of an array: one number of tiles per dimension, each device once."""
    text, shape = call.instruction.attributes["sharding"], call.instruction.shape
    found = _TILES.search(text)
    if found is None or not isinstance(shape, ArrayShape) or text.startswith("{{"):
        return
    last = re.search(_LAST_DIMENSIONS, text)
    # Last dimensions that say how tiles are replicated belong to no dimension of the array.
    beyond = len(last[1].split(",")) if last else int("last_tile_dim_replicate" in text)
    if len(found[1].split(",")) - beyond != shape.rank:
        yield at(call, "sharding_c1", f"{text} for {plain(shape)}")
    # An iota (<=) is a permutation by construction; only a list can repeat a device.
    devices = [] if found[2] else found[3].split(",")
    if len(set(devices)) != len(devices):
        yield at(call, "sharding_c2", text)


def _check_origin(call: Call) -> Iterator[Finding]:
    text = call.instruction.attributes["origin"]
    # What stands in quotes is a name, whatever characters it has.
    leaves = list(_origin_leaves(re.sub(_QUOTED, '""', text[1:-1])))
    if leaves != [index for index, _ in indexed_leaves(call.instruction.shape)]:
        yield at(call, "origin_c1", f"{text[:80]} for {plain(call.instruction.shape)}")


def _origin_leaves(text: str) -> Iterator[tuple[int, ...]]:
    """Yield the index of each leaf of a tree such as ``({"a"}, ({"b"}, {}))``."""
    index: list[int] = []
    for token in re.findall(_ORIGIN_TOKEN, text):
        if token == "(":
            index.append(0)
        elif token == ")" and index:
            index.pop()
        elif token == "," and index:
            index[-1] += 1
        elif token in (")", ","):
            # Unbalanced: the tree has no leaf beyond here that could be placed.
            return
        else:
            yield tuple(index)


@checks
def _check_agreeing_shardings(view: View) -> Iterator[Finding]:
    """Check that a loop and its computations, or a conditional and its branches, do not disagree on a sharding."""
    for call in view.all_of(CONTROL_FLOW - {"call"}):
        attributes = call.instruction.attributes
        if call.instruction.opcode == "conditional":
            involved = [view.module[name].root for name in branches(attributes)]
        else:
            body, condition = view.module[attributes["body"]], view.module[attributes["condition"]]
            involved = [body.root, *body.parameters, *condition.parameters]
        texts = [instruction.attributes.get("sharding") for instruction in (call.instruction, *involved)]
        told = {_SPACE.sub("", text) for text in texts if text is not None}
        if len(told) > 1:
            yield at(call, "sharding_c3", " and ".join(sorted(told)))
