"""Loops as ``lax.scan`` makes them, beside what the TPU compiler made of the same (libtpu 0.0.52, v5e).

By default each has 256 trips and takes a row ``t`` of an array: ``h`` becomes ``tanh(h + t)``, with one of them stored.
"""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute
from tpusim.shapes.layout import SCALAR_SPACE
from tpusim.shapes.shape import leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

SCAN = """HloModule scan

less {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}

body {{
  q = {state} parameter(0)
  i = s32[] get-tuple-element(q), index=0
  h = {row} get-tuple-element(q), index=1
  x = {rows} get-tuple-element(q), index=2
  y = {rows} get-tuple-element(q), index=3
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = s32[] constant(0)
  s = {single} dynamic-slice(x, {places}), dynamic_slice_sizes={{{sizes}}}
  t = {row} reshape(s)
  a = {row} add(h, t)
  n = {row} tanh(a)
  u = {single} reshape({stored})
  w = {rows} dynamic-update-slice(y, u, {places})
  ROOT r = {state} tuple(j, n, x, {kept})
}}

ENTRY e {{
  g = {given} parameter(0)
  x = {rows} transpose(g), dimensions={{{turn}}}
  i = s32[] constant(0)
  f = {dtype}[] constant(0)
  h = {row} broadcast(f), dimensions={{}}
  y = {rows} broadcast(f), dimensions={{}}
  t = {state} tuple(i, h, x, y)
  l = {state} while(t), condition=less, body=body
  m = {row} get-tuple-element(l), index=1
  w = {rows} get-tuple-element(l), index=3
  k = {given} transpose(w), dimensions={{{back}}}
  ROOT r = {result}
}}
"""


def scan(row, *, trips=256, turn=None, stored="", back=False, dtype="f32"):
    """Return a loop over rows: of an array that is turned (``turn`` of its dimensions) before it, or as it is given.

    ``stored`` names what is stored, ``h`` or ``n``: that is the result, which goes ``back`` to the given order.
    """
    sizes = (trips, *row)
    turn = turn or tuple(range(len(sizes)))
    back_turn = [turn.index(d) for d in range(len(sizes))]
    shapes = {"row": row, "rows": sizes, "single": (1, *row), "given": [sizes[d] for d in back_turn]}
    named = {name: f"{dtype}[{_listed(of)}]" for name, of in shapes.items()}
    result = f"{named['given']} copy(k)" if back else f"{named['rows']} copy(w)"
    return SCAN.format(
        **named,
        state=f"(s32[], {named['row']}, {named['rows']}, {named['rows']})",
        trips=trips,
        dtype=dtype,
        places=_listed(["i", *["z"] * len(row)]),
        sizes=_listed((1, *row)),
        stored=stored or "n",
        kept="w" if stored else "y",
        turn=_listed(turn),
        back=_listed(back_turn),
        result=result if stored else f"{named['row']} copy(m)",
    )


def _listed(items):
    return ",".join(map(str, items))


def loop_of(module):
    """Return the loop of a program, and what its body runs."""
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    return loop, module[loop.attributes["body"]]


def carried(module, number):
    """Return the order of an array that the loop carries."""
    return leaves(loop_of(module)[0].shape)[number].layout.minor_to_major


def kernels(body):
    """Return the opcodes of what makes more than numbers in the body of a loop."""
    free = ("parameter", "get-tuple-element", "tuple", "bitcast")
    return [i.opcode for i in body.instructions if i.opcode not in free and leaves(i.shape)[0].rank]


SWAPPED = (1, 0, 2)


@pytest.mark.parametrize(
    ("row", "turn", "dtype", "order"),
    [
        ((32, 512), None, "f32", (2, 1, 0)),
        ((32, 512), SWAPPED, "f32", (2, 0, 1)),
        ((32, 512), SWAPPED, "bf16", (2, 0, 1)),
        ((4, 768), SWAPPED, "f32", (2, 0, 1)),
        ((3, 512), None, "f32", (2, 0, 1)),
        ((8, 16, 128), (1, 0, 2, 3), "f32", (3, 2, 0, 1)),
        ((8, 16, 128), (1, 0, 2, 3), "bf16", (3, 2, 0, 1)),
        ((8, 16, 128), (2, 0, 1, 3), "bf16", (3, 0, 2, 1)),
        ((8, 4, 64), (0, 1, 3, 2), "f32", (0, 2, 3, 1)),
        ((64, 4), None, "f32", (0, 2, 1)),
        ((64, 4), None, "bf16", (0, 2, 1)),
        ((40, 4), None, "f32", (0, 2, 1)),
        ((24, 8), None, "f32", (0, 2, 1)),
        ((100, 2), None, "f32", (0, 2, 1)),
        ((2, 32, 4), None, "f32", (0, 3, 2, 1)),
        ((8, 64, 4), None, "f32", (0, 3, 2, 1)),
        ((8, 64, 4), None, "bf16", (0, 3, 2, 1)),
        ((8, 8, 64), None, "f32", (0, 3, 2, 1)),
        ((4, 12, 64), None, "f32", (0, 3, 2, 1)),
    ],
)
def test_what_is_taken_row_by_row_lies_as_it_is_handed(row, turn, dtype, order):
    """Arrays of activations with their batch first, for one, of which a row lies in one sublane of each tile."""
    assert carried(compiled(scan(row, turn=turn, dtype=dtype), stop_after="layouts"), 2) == order


@pytest.mark.parametrize("row", [(8, 4), (32, 4), (60, 2), (16, 8), (2, 16, 4), (3, 8, 4)])
def test_small_rows_across_lanes_are_laid_out_before_the_loop(row):
    """Those of up to 128 numbers, in 14 loops, are; those of 160 and more are not, in 20."""
    assert carried(compiled(scan(row), stop_after="layouts"), 2)[-1] == 0


@pytest.mark.parametrize("row", [(8, 4, 64), (16, 4, 64), (8, 2, 64)])
def test_rows_that_would_lie_better_turned_are_laid_out_before_the_loop(row):
    """Two or four heads: with more of something else in sublanes rows are as large, and their tiles are full."""
    assert carried(compiled(scan(row), stop_after="layouts"), 2)[-1] == 0


@pytest.mark.parametrize(
    ("row", "is_laid_out"),
    [
        ((64, 4), True),
        ((32, 100), True),
        ((200, 8), True),
        ((16, 12), True),
        ((8, 64, 4), True),
        ((8, 64, 16), True),
        ((4, 12, 64), True),
        ((8, 4, 100), True),
        ((16, 6), False),
        ((32, 64), False),
        ((9, 5, 64), False),
        ((8, 16, 32), False),
        ((12, 4, 64), False),
    ],
)
def test_beside_what_a_loop_stores_rows_across_lanes_are_laid_out_if_they_are_to_be_turned(row, is_laid_out):
    """Rows that lie in the order in which they are stored but for the lanes are taken where they are."""
    module = compiled(scan(row, stored="h"), stop_after="layouts")
    assert (carried(module, 2)[-1] == 0) == is_laid_out


@pytest.mark.parametrize(
    ("row", "turn", "dtype", "order"),
    [
        ((32, 512), None, "f32", (2, 1, 0)),
        ((32, 512), SWAPPED, "f32", (2, 0, 1)),
        ((32, 512), SWAPPED, "bf16", (2, 1, 0)),
        ((3, 512), None, "f32", (2, 0, 1)),
        ((3, 512), None, "bf16", (2, 1, 0)),
        ((64,), None, "f32", (1, 0)),
        ((64,), (1, 0), "f32", (1, 0)),
        ((32, 64), SWAPPED, "f32", (2, 1, 0)),
        ((8, 16, 128), (1, 0, 2, 3), "f32", (3, 2, 0, 1)),
        ((8, 16, 128), (1, 0, 2, 3), "bf16", (3, 2, 0, 1)),
        ((8, 16, 128), (2, 0, 1, 3), "bf16", (3, 2, 1, 0)),
        ((8, 4), None, "f32", (1, 2, 0)),
    ],
)
def test_what_is_stored_row_by_row_lies_as_it_is_wanted_unless_rows_are_parts_of_words(row, turn, dtype, order):
    """A row across lanes, or of half of each word, is stored by itself, and all of them laid out behind the loop."""
    module = compiled(scan(row, turn=turn, dtype=dtype, stored="h", back=turn is not None), stop_after="layouts")
    assert carried(module, 3) == order


NESTED = """
outer {{
  p = (s32[], {given}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  g = {given} get-tuple-element(p), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  k = {given} call(g), to_apply=inner
  ROOT r = (s32[], {given}) tuple(j, k)
}}

often {{
  p = (s32[], {given}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT c = pred[] compare(i, n), direction=LT
}}

ENTRY main {{
  g = {given} parameter(0)
  i = s32[] constant(0)
  p = (s32[], {given}) tuple(i, g)
  l = (s32[], {given}) while(p), condition=often, body=outer
  ROOT r = {given} get-tuple-element(l), index=1
}}
"""


@pytest.mark.parametrize(
    ("row", "turn", "given", "order"),
    [((64,), (1, 0), "f32[64,256]", (1, 0)), ((32, 512), SWAPPED, "f32[32,256,512]", (2, 0, 1))],
)
def test_a_loop_in_a_loop_takes_no_rows_across_lanes(row, turn, given, order):
    """What is handed to it is laid out for it in the outer loop, where nothing else says how it lies: in 5 of 5."""
    inner = scan(row, turn=turn, stored="h", back=True).replace("ENTRY e", "inner")
    module = compiled(inner + NESTED.format(given=given), stop_after="layouts")
    loops = [i for c in module.computations for i in c.instructions if i.opcode == "while"]
    assert [leaves(i.shape)[2].layout.minor_to_major for i in loops if len(leaves(i.shape)) == 4] == [order]


def test_a_row_in_one_sublane_is_taken_by_a_kernel_of_its_own():
    """And is moved to where it is needed in the kernels that need it: in 12 of 12 loops."""
    _, body = loop_of(compiled(scan((32, 512), turn=SWAPPED)))
    assert kernels(body) == ["dynamic-slice", "fusion"]


def test_a_row_outside_of_tiles_is_taken_by_the_kernel_that_needs_it():
    """In all 30 loops."""
    _, body = loop_of(compiled(scan((8, 16, 128), turn=(1, 0, 2, 3))))
    assert kernels(body) == ["fusion"]


@pytest.mark.parametrize(
    ("row", "turn", "is_alone"),
    [((64,), (1, 0), True), ((32, 512), SWAPPED, True), ((3, 512), None, True), ((8, 16, 128), (1, 0, 2, 3), False)],
)
@pytest.mark.parametrize("stored", ["h", "n"])
def test_a_row_in_one_sublane_is_stored_by_a_kernel_of_its_own(row, turn, is_alone, stored):
    """All of 60 updates that write one are, and of 319 updates outside of tiles two."""
    _, body = loop_of(compiled(scan(row, turn=turn, stored=stored, back=turn is not None)))
    assert ("dynamic-update-slice" in kernels(body)) == is_alone


@pytest.mark.parametrize(("stored", "expected"), [("h", ["fusion", "fusion"]), ("n", ["copy", "fusion"])])
def test_what_a_loop_stores_is_made_with_its_state_if_it_is_made_of_that(stored, expected):
    """A kernel that stores writes nothing else over what it reads: the state is copied for it."""
    _, body = loop_of(compiled(scan((32, 512), stored=stored)))
    assert kernels(body) == expected


@pytest.mark.parametrize("row", [(8, 128), (32, 512), (1024,)])
def test_a_stack_that_is_returned_lies_where_the_result_is_to_be(row):
    """In HBM, whatever room there is in VMEM: 128 KiB to 128 MiB."""
    loop, _ = loop_of(compiled(scan(row, stored="h")))
    assert leaves(loop.shape)[3].memory_space == 0


def test_a_stack_that_is_laid_out_behind_the_loop_is_in_vmem():
    """As for 64 numbers a row, which are returned with their trips in lanes."""
    loop, _ = loop_of(compiled(scan((32, 64), stored="h")))
    assert leaves(loop.shape)[3].memory_space == 1


def test_memory_that_nobody_has_written_hides_no_copy():
    """An argument is in VMEM only if kernels before the loop take as long as its copy; a stack begins in no time."""
    loop, _ = loop_of(compiled(scan((8, 16, 64), stored="h")))
    assert leaves(loop.shape)[2].memory_space == 0


def test_kernels_are_handed_their_loop_counter_by_the_scalar_core():
    """One copy a trip, however many kernels take or write what it names."""
    _, body = loop_of(compiled(scan((32, 512), stored="h")))
    (copy,) = (i for i in body.instructions if leaves(i.shape)[0].memory_space == SCALAR_SPACE)
    assert (copy.opcode, str(copy.shape.dtype), copy.shape.rank) == ("copy", "s32", 0)
    takers = [i for i in body.instructions if copy.name in i.operands]
    assert [i.opcode for i in takers].count("fusion") == 2


def test_chunks_of_an_argument_are_taken_where_they_are():
    """An array that is cut into chunks and turned is still the array: two names are no kernel."""
    text = scan((8, 128, 512), trips=16, turn=(1, 0, 2, 3), dtype="bf16")
    given, whole = "bf16[8,16,128,512]", "bf16[8,2048,512]"
    module = compiled(text.replace(f"g = {given} parameter(0)", f"p = {whole} parameter(0)  g = {given} reshape(p)"))
    assert [i.opcode for i in module.entry.instructions if i.opcode == "fusion"] == []


@pytest.mark.parametrize("is_carried_on", [False, True])
def test_who_takes_all_that_a_loop_carries_has_it_in_its_usual_order(is_carried_on):
    """A program that returns it, or another loop."""
    text = scan((32, 512), turn=SWAPPED, stored="h")
    state = text[text.index("(s32[]") : text.index(" parameter(0)")]
    entry, _ = text.split("  m = ")
    another = f"  ROOT a = {state} while(l), condition=less, body=body\n" if is_carried_on else ""
    module = compiled((entry if is_carried_on else entry.replace("  l = ", "  ROOT l = ")) + another + "}\n")
    assert check(module) == []
    loops = [i for i in module.entry.instructions if i.opcode == "while"]
    assert {leaves(loop.shape)[2].layout.minor_to_major for loop in loops} == {(2, 1, 0)}


@pytest.mark.parametrize("turn", [*permutations(range(3))], ids=str)
@pytest.mark.parametrize("stored", ["", "h", "n"])
def test_the_result_is_the_same(turn, stored):
    """However arrays lie, and whatever is copied."""
    text = scan((8, 4), trips=5, turn=turn, stored=stored, back=True)
    plain, module = parse_module(SourceText("plain", text)), compiled(text)
    assert check(module) == []
    (argument,) = plain.entry.parameters
    given = [np.random.default_rng(1).standard_normal(argument.shape.dimensions, "f4")]
    one, other = (execute(m, given, precision="exact") for m in (plain, module))
    np.testing.assert_allclose(one[0], other[0], rtol=1e-5)
