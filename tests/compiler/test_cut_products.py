"""Products of which a part is used: values as they were, and no more computed than the TPU compiler does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.compiler.programs import compiled
from tests.growth import within
from tpusim.pipeline.stages import execute
from tpusim.semantics.windows import dilated
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def text_of(*lines):
    """Return a module of some lines."""
    return "HloModule m\n\nENTRY e {\n" + "\n".join(f"  {line}" for line in lines) + "\n}\n"


def products_in(module):
    """Return the products of a module."""
    return [one for each in module.computations for one in each if one.opcode in ("convolution", "dot")]


def same_values(text, module):
    """Require a module to compute what its text does, of small whole numbers: exactly, in whatever order."""
    plain, random = parse_module(SourceText("m", text)), np.random.default_rng(3)
    inputs = [random.integers(-3, 4, parameter.shape.dimensions).astype("f4") for parameter in plain.entry.parameters]
    one, other = (execute(each, inputs) for each in (plain, module))
    np.testing.assert_array_equal(one, other)


def part(draw, sizes):
    """Draw a part of an array, with a stride now and then."""
    ranges = []
    for size in sizes:
        start = draw(st.integers(0, size - 1))
        ranges.append((start, draw(st.integers(start + 1, size)), draw(st.sampled_from([1, 1, 1, 2]))))
    text = ", ".join(f"[{start}:{limit}:{stride}]" for start, limit, stride in ranges)
    return text, [len(range(*one)) for one in ranges]


def listed(numbers):
    """Return numbers as a text has them."""
    return ",".join(map(str, numbers))


@st.composite
def dots(draw):
    """Draw a dot with batch dimensions anywhere, and a part of it."""
    letters = {"b": 2, "c": 3, "m": 4, "n": 5, "k": 3, "o": 2}
    left = draw(st.permutations(draw(st.sampled_from(["bmk", "bcmk", "mk", "mok", "k"]))))
    right = draw(st.permutations([one for one in left if one in "bck"] + draw(st.sampled_from([["n"], []]))))
    batch = draw(st.permutations([one for one in left if one in "bc"]))
    free = [one for one in left if one in "mo"] + [one for one in right if one == "n"]
    sides = [
        f"{side}_{kind}_dims={{{listed(of.index(one) for one in found)}}}"
        for side, of in (("lhs", left), ("rhs", right))
        for kind, found in (("batch", batch), ("contracting", ["k"]))
    ]
    sizes = [letters[one] for one in (*batch, *free)]
    cut, taken = part(draw, sizes)
    shapes = [f"f32[{listed(letters[one] for one in of)}]" for of in (left, right)]
    return text_of(
        *(f"p{number} = {shape} parameter({number})" for number, shape in enumerate(shapes)),
        f"d = f32[{listed(sizes)}] dot(p0, p1), {', '.join(sides)}",
        f"ROOT s = f32[{listed(taken)}] slice(d), slice={{{cut}}}",
    )


@settings(max_examples=60, deadline=None)
@given(dots())
def test_a_part_of_a_dot_has_its_values(text):
    """Whatever is cut, and however its dimensions stand."""
    same_values(text, compiled(text, stop_after="simplify"))


@st.composite
def convolutions(draw):
    """Draw a convolution along one dimension with a window of any kind and groups, and a part of it."""
    size, features, images = draw(st.integers(3, 9)), 4, 4
    window = {name: draw(st.integers(1, 3)) for name in ("size", "stride", "lhs_dilate", "rhs_dilate")}
    low, high = draw(st.integers(-1, 3)), draw(st.integers(0, 3))
    groups, of = draw(st.sampled_from([(1, "feature"), (2, "feature"), (2, "batch")]))
    reach = dilated(window["size"], window["rhs_dilate"])
    padded = dilated(size, window["lhs_dilate"]) + low + high
    if padded < reach:
        high += reach - padded
        padded = reach
    made = (padded - reach) // window["stride"] + 1
    kernel = features // groups if of == "feature" else features
    sizes = [images // groups if of == "batch" else images, made, 4]
    stated = f"window={{size={window['size']} stride={window['stride']} pad={low}_{high}"
    stated += f" lhs_dilate={window['lhs_dilate']} rhs_dilate={window['rhs_dilate']}}}"
    cut, taken = part(draw, sizes)
    return text_of(
        f"x = f32[{images},{size},{features}] parameter(0)",
        f"w = f32[{window['size']},{kernel},4] parameter(1)",
        f"c = f32[{listed(sizes)}] convolution(x, w), {stated}, dim_labels=b0f_0io->b0f, {of}_group_count={groups}",
        f"ROOT s = f32[{listed(taken)}] slice(c), slice={{{cut}}}",
    )


@settings(max_examples=60, deadline=None)
@given(convolutions())
def test_a_part_of_a_convolution_has_its_values(text):
    """With strides, holes, edges that are cut off and groups of features or images."""
    same_values(text, compiled(text, stop_after="simplify"))


DOT = "y = f32[8,32,64] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}"
ROW = "f32[8,1,64] slice(y), slice={[0:8], [31:32], [0:64]}"
# By libtpu 0.0.52 for v5e, v5p and v6e.
COMPUTED = {
    "a row": ((DOT, f"ROOT r = {ROW}"), 8 * 64),
    "a row for two": (
        (DOT, f"s = {ROW}", "a = f32[8,1,64] tanh(s)", "ROOT r = (f32[8,1,64], f32[8,1,64]) tuple(s, a)"),
        8 * 64,
    ),
    "a row at a place that is stated": (
        (
            DOT,
            "zero = s32[] constant(0)",
            "i = s32[] constant(31)",
            "ROOT r = f32[8,1,64] dynamic-slice(y, zero, i, zero), dynamic_slice_sizes={8,1,64}",
        ),
        8 * 64,
    ),
    "all of it besides": ((DOT, f"s = {ROW}", "ROOT r = (f32[8,1,64], f32[8,32,64]) tuple(s, y)"), 8 * 32 * 64),
    "two parts": (
        (
            DOT,
            f"s = {ROW}",
            "t = f32[8,1,64] slice(y), slice={[0:8], [0:1], [0:64]}",
            "ROOT r = (f32[8,1,64], f32[8,1,64]) tuple(s, t)",
        ),
        8 * 32 * 64,
    ),
    "rows that are split": (
        (
            DOT,
            "z = f32[4,2,32,64] reshape(y)",
            "ROOT r = f32[1,2,32,64] slice(z), slice={[1:2], [0:2], [0:32], [0:64]}",
        ),
        2 * 32 * 64,
    ),
    "rows that are joined": (
        (DOT, "z = f32[256,64] reshape(y)", "ROOT r = f32[64,64] slice(z), slice={[32:96], [0:64]}"),
        2 * 32 * 64,
    ),
    "a part of rows that are joined": (
        (DOT, "z = f32[256,64] reshape(y)", "ROOT r = f32[64,64] slice(z), slice={[16:80], [0:64]}"),
        8 * 32 * 64,
    ),
    "a part of each row of those that are split": (
        (
            DOT,
            "z = f32[4,2,32,64] reshape(y)",
            "ROOT r = f32[4,1,32,64] slice(z), slice={[0:4], [0:1], [0:32], [0:64]}",
        ),
        8 * 32 * 64,
    ),
    "every other row": ((DOT, "ROOT r = f32[8,16,64] slice(y), slice={[0:8], [0:32:2], [0:64]}"), 8 * 32 * 64),
    "something made of it": (
        (DOT, "t = f32[8,32,64] tanh(y)", f"ROOT r = {ROW.replace('(y)', '(t)')}"),
        8 * 32 * 64,
    ),
}


@pytest.mark.parametrize(("lines", "elements"), COMPUTED.values(), ids=COMPUTED)
def test_as_much_of_a_product_is_computed_as_by_the_tpu_compiler(lines, elements):
    """A part that is used alone; else all of it."""
    text = text_of("x = f32[8,32,16] parameter(0)", "w = f32[16,64] parameter(1)", *lines)
    module = compiled(text)
    assert sum(one.shape.element_count for one in products_in(module)) == elements
    if "tuple" not in lines[-1]:
        same_values(text, module)


@pytest.mark.parametrize("opcode", ["dot", "convolution"])
def test_a_part_goes_down_a_chain_of_products_at_once(opcode):
    """Not by one product each time that the program is gone through."""
    named = {"dot": "lhs_contracting_dims={1}, rhs_contracting_dims={0}", "convolution": "dim_labels=bf_io->bf"}
    lines = [f"d{n + 1} = f32[64,8] {opcode}(d{n}, w), {named[opcode]}" for n in range(600)]
    text = text_of(
        *("d0 = f32[64,8] parameter(0)", "w = f32[8,8] parameter(1)", *lines),
        "ROOT r = f32[2,8] slice(d600), slice={[62:64], [0:8]}",
    )
    module = within(3, lambda: compiled(text, stop_after="simplify"))
    assert {one.shape.dimensions for one in products_in(module)} == {(2, 8)}


def test_of_sizes_that_are_known_at_run_time_all_is_computed():
    """What there is of a dimension is not its bound."""
    text = text_of(
        "x = f32[8,<=16] parameter(0)",
        "w = f32[<=16,64] parameter(1)",
        "d = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "ROOT r = f32[1,64] slice(d), slice={[7:8], [0:64]}",
    )
    module = compiled(text, stop_after="simplify")
    assert [one.shape.dimensions for one in products_in(module)] == [(8, 64)]


def test_a_part_that_is_not_used_changes_no_result():
    """The product is what the program gives."""
    text = text_of(
        *("x = f32[8,16] parameter(0)", "w = f32[16,64] parameter(1)"),
        "ROOT d = f32[8,64] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
        "r = f32[1,64] slice(d), slice={[7:8], [0:64]}",
    )
    assert compiled(text, stop_after="simplify").entry.root.shape.dimensions == (8, 64)
