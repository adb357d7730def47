"""Running sums, products and extremes."""

from __future__ import annotations

from dataclasses import dataclass

from tpusim.compiler.decompose.build import Build
from tpusim.compiler.decompose.rules import decomposes
from tpusim.compiler.simplify.rules import splat_text
from tpusim.draft import Node
from tpusim.ir.attributes import WindowDimension
from tpusim.ir.module import Literal
from tpusim.ir.ops import COMBINES, IDEMPOTENT
from tpusim.semantics.combining import sole_opcode
from tpusim.semantics.scalars import literal_number


@decomposes("reduce-window", tolerance=1e-5)
def cumulative(build: Build, node: Node) -> Node | None:
    """A window that takes in all that came before goes over blocks, and then over the totals of the blocks.

    Source: XLA, ReduceWindowRewriter; programs compiled ahead of time have blocks
    of the lanes of a register.
    """
    if len(node.operands) != 2 or node.array.dimensions != node.operands[0].array.dimensions:
        return None
    sizes = node.array.dimensions
    window = node.attributes["window"].dimensions
    wide = [d for d, part in enumerate(window) if part != WindowDimension(1)]
    if len(wide) != 1 or sizes[wide[0]] <= build.target.chip.vpu.lanes:
        return None
    (along,) = wide
    length = sizes[along]
    is_backward = window[along] == WindowDimension(length, 1, 0, length - 1)
    opcode = sole_opcode(build.graph.draft.graphs, node.attributes["to_apply"])
    if opcode not in COMBINES or not (is_backward or window[along] == WindowDimension(length, 1, length - 1, 0)):
        return None
    # What they begin with is in every block.
    start = literal_number(Literal(splat_text(node.operands[1])))
    if opcode not in IDEMPOTENT and (start is None or start != _NOTHING[opcode]):
        return None
    scan = _Scan(build, node.operands[1], node.attributes["to_apply"], opcode, is_backward)
    last = node.array.rank - 1
    return build.swapped(scan.inclusive(build.swapped(node.operands[0], along, last)), along, last)


_NOTHING = {"add": 0, "multiply": 1, "xor": 0}
"""By opcode the number that changes no other."""


@dataclass(frozen=True)
class _Scan:
    """What combines elements of the last dimension, and from which end."""

    build: Build
    start: Node
    region: str
    opcode: str
    is_backward: bool

    def inclusive(self, node: Node) -> Node:
        """Return for every element what it and all before it make."""
        *outer, length = node.array.dimensions
        block = self.build.target.chip.vpu.lanes
        if length <= block:
            return self._window(node, length - 1)
        build, last = self.build, node.array.rank - 1
        blocks = -(-length // block)
        if blocks * block > length:
            node = build.pad(node, self.start, {last: (0, blocks * block - length)})
        inner = self._window(build.reshape(node, *outer, blocks, block), block - 1)
        end = 0 if self.is_backward else block - 1
        totals = build.reshape(build.slice(inner, last + 1, end, end + 1), *outer, blocks)
        before = build.broadcast(self._exclusive(totals), inner.array.dimensions, range(last + 1))
        whole = build.reshape(build.apply(self.opcode, inner, before), *outer, blocks * block)
        return build.slice(whole, last, 0, length)

    def _exclusive(self, node: Node) -> Node:
        """Return for every element what all before it make."""
        build, last, length = self.build, node.array.rank - 1, node.array.dimensions[-1]
        skip = 1 if self.is_backward else 0
        if length <= build.target.chip.vpu.lanes:
            return build.slice(self._window(node, length), last, skip, skip + length)
        return build.pad(self.inclusive(node), self.start, {last: (-1, 1) if self.is_backward else (1, -1)})

    def _window(self, node: Node, pad: int) -> Node:
        """Return windows as long as the last dimension, which begin or end ``pad`` outside of it."""
        low, high = (0, pad) if self.is_backward else (pad, 0)
        along = WindowDimension(node.array.dimensions[-1], 1, low, high)
        return self.build.window(node, self.start, along, self.region)
