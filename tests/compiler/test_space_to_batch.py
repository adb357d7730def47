"""Convolutions of few images. Sources: 70 convolutions compiled ahead of time for v5e; values are those of the text."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tpusim
from tests.compiler.programs import compiled
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute, lower
from tpusim.program.steps import Kernel
from tpusim.semantics.products import canonical_product
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.text.printer import print_module


def convolutions(module):
    """Return the sizes of the result and the labels of each convolution, in the order of the text."""
    found = [i for computation in module.computations for i in computation if i.opcode == "convolution"]
    labels = (i.attributes["dim_labels"] for i in found)
    return [(i.shape.dimensions, f"{one.lhs}_{one.rhs}->{one.output}") for i, one in zip(found, labels, strict=True)]


def one(images, rows, columns, size, window="", depth=8):
    """Return a convolution of images, ``size`` wide and high, that gives as many rows and columns."""
    pad = f"{(size - 1) // 2}_{size // 2}"
    window = window or f"size={size}x{size} pad={pad}x{pad}"
    return f"""HloModule m
ENTRY e {{
  x = bf16[{images},{rows},{columns},{depth}] parameter(0)
  k = bf16[{size},{size},{depth},16] parameter(1)
  ROOT y = bf16[{images},{rows},{columns},16] convolution(x, k), window={{{window}}}, dim_labels=b01f_01io->b01f
}}
"""


@pytest.mark.parametrize(
    ("images", "columns", "size", "stretch"),
    [
        (1, 56, 3, 8),
        (7, 56, 3, 8),
        (8, 56, 3, None),
        (2, 56, 1, 7),
        (2, 14, 3, 2),
        (2, 13, 3, None),
        (2, 13, 1, None),
        (2, 33, 5, 5),
        (2, 16, 5, None),
    ],
)
def test_few_images_of_enough_columns_are_cut_into_eight(images, columns, size, stretch):
    """Into stretches of as many columns as windows reach into those of the next, at least."""
    ((sizes, labels),) = convolutions(compiled(one(images, 20, columns, size), stop_after="space-to-batch"))
    if stretch is None:
        assert (sizes, labels) == ((images, 20, columns, 16), "b01f_01io->b01f")
    else:
        assert (sizes, labels) == ((8 * images, stretch, 20, 16), "b10f_01io->b10f")


@pytest.mark.parametrize(
    ("window", "columns"), [("size=3x3 pad=1_1x1_1 lhs_dilate=1x2", 39), ("size=3x3 pad=1_1x-1_1", 18)]
)
def test_what_is_apart_or_cut_off_stays(window, columns):
    """Columns that are spread by zeros between them, and those of which a window leaves some out."""
    text = one(2, 20, 20, 3, window).replace("ROOT y = bf16[2,20,20,16]", f"ROOT y = bf16[2,20,{columns},16]")
    ((sizes, _),) = convolutions(compiled(text, stop_after="space-to-batch"))
    assert sizes == (2, 20, columns, 16)


CHAINS = {
    "one": "ROOT y = bf16[2,9,33,8] convolution(x, k), WINDOW",
    "two": """c = bf16[2,9,33,8] convolution(x, k), WINDOW
  zero = bf16[] constant(0)  zeros = bf16[2,9,33,8] broadcast(zero)
  r = bf16[2,9,33,8] maximum(c, zeros)
  ROOT y = bf16[2,9,33,8] convolution(r, k), WINDOW""",
    "of both": """c = bf16[2,9,33,8] convolution(x, k), WINDOW
  d = bf16[2,9,33,8] convolution(c, k), WINDOW
  by_feature = bf16[2,9,33,8] broadcast(b), dimensions={3}
  e = bf16[2,9,33,8] add(d, by_feature)  f = bf16[2,9,33,8] add(c, e)
  ROOT y = bf16[2,9,33,8] add(f, x)""",
    "downwards": """c = bf16[2,9,33,8] convolution(x, k), WINDOW
  d = bf16[2,5,17,8] convolution(c, k), window={size=3x3 stride=2x2 pad=1_1x1_1}, LABELS
  ROOT y = bf16[2,5,17,8] convolution(d, k), WINDOW""",
    "spread windows": """c = bf16[2,9,33,8] convolution(x, k), WINDOW
  ROOT y = bf16[2,9,33,8] convolution(c, k), window={size=3x3 pad=2_2x2_2 rhs_dilate=2x2}, LABELS""",
    "to one side": """c = bf16[2,9,31,8] convolution(x, k), window={size=3x3 pad=1_1x0_0}, LABELS
  ROOT y = bf16[2,9,31,8] convolution(c, k), window={size=3x3 pad=1_1x2_0 rhs_reversal=1x1}, LABELS""",
    "another image": """c = bf16[2,9,33,8] convolution(x, k), WINDOW
  by_image = bf16[2,9,33,8] broadcast(two), dimensions={0}
  e = bf16[2,9,33,8] multiply(c, by_image)
  ROOT y = bf16[2,9,33,8] convolution(e, k), WINDOW""",
}


SIZES = ((2, 9, 33, 8), (3, 3, 8, 8), (8,), (2,))


def chain(name):
    """Return the program of one of these, all of whose arguments are arrays of the sizes above."""
    lines = CHAINS[name].replace("WINDOW", "window={size=3x3 pad=1_1x1_1}, LABELS")
    arguments = "\n".join(
        f"  {argument} = bf16[{','.join(map(str, sizes))}] parameter({number})"
        for number, (argument, sizes) in enumerate(zip(("x", "k", "b", "two"), SIZES, strict=True))
    )
    lines = lines.replace("LABELS", "dim_labels=b01f_01io->b01f")
    return f"HloModule m\nENTRY e {{\n{arguments}\n  {lines}\n}}\n"


@pytest.mark.parametrize("name", CHAINS)
def test_what_is_cut_has_the_values_of_what_is_not(name):
    """To the last bit: each element is the sum of the same products, and no column reads what lies behind the last."""
    text = chain(name)
    source, module = parse_module(SourceText("test", text)), compiled(text, stop_after="space-to-batch")
    assert check(module) == check(compiled(text)) == []
    assert all(labels.startswith("b10f") for _, labels in convolutions(module))
    draw = np.random.default_rng(0)
    inputs = [
        draw.integers(-3, 4, sizes).astype(ml_dtypes.bfloat16) for sizes in ((2, 9, 33, 8), (3, 3, 8, 8), (8,), (2,))
    ]
    expected, found = (execute(one, inputs, precision="exact") for one in (source, module))
    np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(expected, np.float32))


def test_a_chain_is_cut_once_and_joined_once():
    """What is cut follows from operation to operation, as in programs compiled ahead of time."""
    module = compiled(chain("of both"), stop_after="space-to-batch")
    whole = [i for i in module.entry if getattr(i.shape, "dimensions", ()) == (2, 9, 33, 8)]
    assert [i.opcode for i in whole if i.opcode not in ("parameter", "broadcast")] == ["transpose", "add"]


def test_bits_taken_for_those_of_another_type_are_joined_before():
    """Two columns of 16 bits are one of 32, in which no image is cut."""
    text = """HloModule m
ENTRY e {
  x = bf16[20,56,8,2] parameter(0)
  k = bf16[3,3,8,16] parameter(1)
  c = bf16[20,56,16,2] convolution(x, k), window={size=3x3 pad=1_1x1_1}, dim_labels=01fb_01io->01fb
  ROOT y = f32[20,56,16] bitcast-convert(c)
}
"""
    ((sizes, _),) = convolutions(compiled(text, stop_after="space-to-batch"))
    assert sizes == (16, 8, 20, 16)
    assert check(compiled(text)) == []


OTHERS = {
    "bytes": ("s32", "s8", "b01f_01io->b01f", ""),
    "columns before images": ("bf16", "bf16", "01bf_01io->01fb", ""),
    "features before columns": ("f32", "f32", "bf01_oi01->bf01", ""),
    "groups of features": ("f32", "f32", "b01f_01io->b01f", ", feature_group_count=2"),
    "channel by channel": ("f32", "f32", "b01f_01io->b01f", ", feature_group_count=4"),
}


def convolved(name, images):
    """Return a program that convolves images of 4 features to 8, and the sizes of what it is given."""
    dtype, given, labels, groups = OTHERS[name]
    images_in, kernel, images_out = labels.replace("->", "_").split("_")
    marks = {"b": images, "0": 6, "1": 21}
    taken, made = ([(marks | {"f": depth})[mark] for mark in text] for text, depth in ((images_in, 4), (images_out, 8)))
    inner = [{"i": 4 // int(groups[-1:] or 1), "o": 8}.get(mark, 3) for mark in kernel]
    return (
        f"""HloModule m
ENTRY e {{
  x = {given}{shown(taken)} parameter(0)
  k = {given}{shown(inner)} parameter(1)
  ROOT y = {dtype}{shown(made)} convolution(x, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels={labels}{groups}
}}
""",
        (taken, inner),
    )


def shown(sizes):
    """Return the sizes of an array as a text has them."""
    return f"[{','.join(map(str, sizes))}]"


@pytest.mark.parametrize("images", [1, 3])
@pytest.mark.parametrize("name", OTHERS)
def test_whatever_the_order_and_the_type_the_values_are_the_same(name, images):
    """Of one convolution, to the last bit."""
    text, sizes = convolved(name, images)
    source, module = parse_module(SourceText("test", text)), compiled(text, stop_after="space-to-batch")
    assert check(module) == check(compiled(text)) == []
    draw = np.random.default_rng(0)
    dtype = {"bf16": ml_dtypes.bfloat16, "s8": np.int8}.get(OTHERS[name][1], np.float32)
    inputs = [draw.integers(-3, 4, each).astype(dtype) for each in sizes]
    expected, found = (execute(one, inputs, precision="exact") for one in (source, module))
    np.testing.assert_array_equal(np.asarray(found, np.float32), np.asarray(expected, np.float32))


def operations(module):
    """Return the operations of the products of a module as it runs, and those that any product of it computes."""
    kernels = [step for step in lower(module, load_chip("v5e")).every_step if isinstance(step, Kernel)]
    products = [
        canonical_product(i, [operand.shape for operand in computation.operands_of(i)])
        for computation in module.computations
        for i in computation
        if i.opcode == "convolution"
    ]
    return sum(step.product_flops for step in kernels), sum(one.flops + one.padded_flops for one in products)


@pytest.mark.parametrize(
    ("images", "columns", "size", "is_padded"),
    [(1, 56, 3, True), (2, 33, 5, True), (7, 57, 1, True), (1, 56, 1, False), (8, 56, 3, False)],
)
def test_operations_are_those_of_the_program_that_is_given(images, columns, size, is_padded):
    """Two for each tap that meets an image: neither columns behind the last nor padding that is stored count."""
    low = (size - 1) // 2
    met = [sum(0 <= at + tap - low < of for at in range(of) for tap in range(size)) for of in (20, columns)]
    asked, computed = operations(compiled(one(images, 20, columns, size)))
    assert asked == 2 * images * met[0] * met[1] * 8 * 16
    assert (computed > asked) == is_padded


@pytest.mark.parametrize("name", CHAINS)
def test_operations_of_a_chain_are_those_of_each_of_its_convolutions(name):
    """As the text has them, whether an image is cut for the first or stays so; compiled anew too."""
    source = parse_module(SourceText("test", chain(name)))
    given = sum(
        canonical_product(i, [operand.shape for operand in source.entry.operands_of(i)]).flops
        for i in source.entry
        if i.opcode == "convolution"
    )
    module = compiled(chain(name))
    written = parse_module(SourceText("written", print_module(module)))
    assert [operations(each)[0] for each in (module, written)] == [given, given]


def test_operations_that_a_text_states_change_no_time():
    """Beyond what is computed, or with no number, they count for nothing."""
    module = compiled(one(1, 20, 56, 3))
    text = print_module(module)
    stated = str(int(operations(module)[0]))
    assert text.count(f'"{stated}"') == 1
    runs = {
        other: tpusim.simulate(parse_module(SourceText("other", text.replace(f'"{stated}"', f'"{other}"'))), "v5e")
        for other in (stated, "1000", "9" * 5000, "-1", "few")
    }
    assert len({run.summary.total_ps for run in runs.values()}) == 1
    found = {other: run.summary.utilisation.flops for other, run in runs.items()}
    computed = operations(module)[1]
    assert found == {stated: int(stated), "1000": 1000, "9" * 5000: computed, "-1": computed, "few": computed}


SUMS = {
    "of all pixels": ("[8]", "{0,1,2}", "add", "0", True),
    "of the columns of an image": ("[2,9,8]", "{2}", "add", "0", False),
    "of all columns": ("[9,8]", "{0,2}", "add", "0", True),
    "of all but the features": ("[8]", "{2,0,1}", "add", "-0", True),
    "the largest": ("[9]", "{0,2,3}", "maximum", "-inf", True),
    "of the rows": ("[2,33,8]", "{1}", "add", "0", False),
    "from another start": ("[8]", "{0,1,2}", "add", "1", False),
    "the product": ("[9,8]", "{0,2}", "multiply", "1", False),
}


def summed(sizes, along, combines, start, images):
    """Return a program that convolves images, and combines numbers of the result."""
    text = f"""HloModule m
    combine {{ a = f32[] parameter(0)
      b = f32[] parameter(1)
      ROOT c = f32[] {combines}(a, b) }}
    ENTRY e {{
      x = f32[2,9,33,8] parameter(0)
      k = f32[3,3,8,8] parameter(1)
      start = f32[] constant({start})
      c = f32[2,9,33,8] convolution(x, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
      n = f32[2,9,33,8] negate(c)
      ROOT r = f32{sizes} reduce(n, start), dimensions={along}, to_apply=combine
    }}
    """
    return text.replace("[2,9,", f"[{images},9,").replace("[2,33", f"[{images},33")


def check_sums(text, is_cut):
    """Check that what is combined is cut or not, and has the value of what is not cut."""
    source, module = parse_module(SourceText("test", text)), compiled(text, stop_after="space-to-batch")
    assert check(module) == check(compiled(text)) == []
    (combined,) = (i for i in module.entry if i.opcode == "reduce")
    array = module.entry[combined.operands[0]].shape.dimensions
    assert (33 not in array) == is_cut
    draw = np.random.default_rng(1)
    inputs = [draw.integers(-2, 3, i.shape.dimensions).astype(np.float32) for i in source.entry.parameters]
    expected, found = (execute(one, inputs, precision="exact") for one in (source, module))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", SUMS)
def test_sums_over_all_columns_are_taken_of_what_is_cut(name):
    """Behind the last column nothing is counted; where images stay apart, all is joined before."""
    *case, is_cut = SUMS[name]
    check_sums(summed(*case, images=2), is_cut)


def test_sums_over_the_columns_of_the_only_image_are_taken_of_what_is_cut():
    """It stays as a dimension of one."""
    check_sums(summed("[1,9,8]", "{2}", "add", "0", images=1), is_cut=True)
