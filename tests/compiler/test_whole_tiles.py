"""Reshapes and copies that put whole tiles elsewhere, in the kernels of what takes or makes them."""

from __future__ import annotations

from itertools import permutations
from math import prod

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.programs import compiled
from tpusim.compiler.layouts.orders import laid_out
from tpusim.compiler.layouts.whole_tiles import moved_tiles
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import execute
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

V5E = load_chip("v5e")


def tiles_of(array):
    """Return the numbers of the elements of each tile, in the order of memory; None where a tile is not full."""
    numbers = np.arange(array.element_count).reshape(array.dimensions)
    lying = numbers.transpose(tuple(reversed(array.layout.minor_to_major)))
    height, width = array.layout.tiles[0]
    *outer, rows, lanes = lying.shape
    if rows % height or lanes % width:
        return None
    cut = lying.reshape(*outer, rows // height, height, lanes // width, width)
    return np.moveaxis(cut, -3, -2).reshape(-1, height * width)


SIZES = st.lists(st.sampled_from([2, 3, 8, 16, 128, 256]), min_size=2, max_size=4).filter(lambda n: prod(n) <= 1 << 18)


@st.composite
def reshapes(draw):
    """Draw an array and what some of its dimensions are joined to, or split into, each in some order."""
    parts = draw(SIZES)
    shapes = []
    for _ in range(2):
        sizes, left = [], list(parts)
        while left:
            count = draw(st.integers(1, min(2, len(left))))
            sizes.append(prod(left[:count]))
            del left[:count]
        orders = list(permutations(range(len(sizes))))
        shapes.append(laid_out(ArrayShape(DTYPES["f32"], tuple(sizes)), draw(st.sampled_from(orders)), V5E))
    return shapes


@settings(max_examples=300, deadline=None)
@given(reshapes())
def test_tiles_move_if_and_only_if_none_is_taken_apart(shapes):
    """By the naive twin every tile is one of those before, whole, and stands where the move puts it."""
    before, after = shapes
    if any(shape.rank < 2 or len(shape.layout.tiles[0]) != 2 for shape in shapes):
        return
    one, other = map(tiles_of, shapes)
    move = moved_tiles(before, after)
    alike = before.layout.tiles == after.layout.tiles and one is not None and other is not None
    if not alike or sorted(map(tuple, one)) != sorted(map(tuple, other)):
        assert move is None
        return
    moved = np.arange(len(one)).reshape(move.counts).transpose(move.order).reshape(-1)
    np.testing.assert_array_equal(one[moved], other)


SUM = "sum { a = f32[] parameter(0)\n b = f32[] parameter(1)\n ROOT c = f32[] add(a, b) }\n"
X, CUT = "bf16[4,1024,8,64]", "bf16[4,8,128,8,64]"
TAKEN = f"x = {X} parameter(0)\n s = {CUT} reshape(x)\n"
BATCH = "lhs_batch_dims={0,1,3}, rhs_batch_dims={0,1,3}, lhs_contracting_dims={4}, rhs_contracting_dims={4}"
SCORES = "bf16[4,8,8,128,128]"
OPCODES = ("copy", "dot", "fusion", "reduce", "reshape", "tanh", "transpose")
# By libtpu 0.0.52 for v5e: how many kernels go through the array.
KERNELS = {
    "a result": (TAKEN + f"ROOT r = {CUT} copy(s)", 1),
    "made before it is put elsewhere": (TAKEN + f"ROOT t = {CUT} tanh(s)", 1),
    "joined again": (f"x = {CUT} parameter(0)\n t = {CUT} tanh(x)\n ROOT s = {X} reshape(t)", 1),
    "there and back": (TAKEN + f"t = {CUT} tanh(s)\n ROOT r = {X} reshape(t)", 1),
    "a product of two": (
        TAKEN + f"y = {X} parameter(1)\n k = {CUT} reshape(y)\n ROOT d = {SCORES} dot(s, k), {BATCH}",
        1,
    ),
    "a product of what is made of it alone": (
        TAKEN
        + f"y = {X} parameter(1)\n k = {CUT} reshape(y)\n t = {CUT} tanh(k)\n ROOT d = {SCORES} dot(s, t), {BATCH}",
        2,
    ),
    "rows of chunks": (
        TAKEN.replace("bf16", "f32")
        + "zero = f32[] constant(0)\n ROOT r = f32[4,8,8,64] reduce(s, zero), dimensions={2}, to_apply=sum",
        2,
    ),
    "with what there is of each chunk": (
        TAKEN.replace("bf16", "f32")
        + "b = f32[4,8,8,64] parameter(1)\n w = f32[4,8,128,8,64] broadcast(b), dimensions={0,1,3,4}\n"
        "ROOT a = f32[4,8,128,8,64] subtract(s, w)",
        3,
    ),
    "outer dimensions": (
        "x = bf16[16,32,64,256] parameter(0)\n t = bf16[16,32,64,256] tanh(x)\n"
        "ROOT r = bf16[32,16,64,256] transpose(t), dimensions={1,0,2,3}",
        1,
    ),
    "rows in tiles": (
        "x = bf16[16,32,64,256] parameter(0)\n t = bf16[16,32,64,256] tanh(x)\n"
        "ROOT r = bf16[16,64,32,256] transpose(t), dimensions={0,2,1,3}",
        1,
    ),
}


@pytest.mark.parametrize(("body", "count"), KERNELS.values(), ids=KERNELS)
def test_as_many_kernels_go_through_an_array_as_the_tpu_compiler_has(body, count):
    """And all that they compute is what the program says, bit for bit."""
    text = f"HloModule m\n{SUM}\nENTRY e {{\n {body}\n}}\n"
    module = compiled(text)
    shapes = {one.name: one.shape for one in module.entry}
    read = [max(shapes[name].element_count for name in one.operands) for one in module.entry if one.opcode in OPCODES]
    assert sum(size >= 1 << 20 for size in read) == count, read
    plain = parse_module(SourceText("m", text))
    random = np.random.default_rng(1)
    inputs = [random.standard_normal(p.shape.dimensions, "f4") for p in plain.entry.parameters]
    inputs = [one.astype(ml_dtypes.bfloat16) if "bf16" in body else one for one in inputs]
    one, other = (np.asarray(execute(each, inputs)).astype("f4") for each in (plain, module))
    np.testing.assert_array_equal(one, other)
