"""What a kernel needs of its operands, against the naive twin and against what the definition says of small texts."""

from __future__ import annotations

from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.hlo import inferred, is_stated, one, parse
from tests.semantics.infer_cases import COMPUTING, DATA, ELEMENTWISE, OURS
from tests.semantics.provenance import ALL, EXACT, SUM, chains
from tests.semantics.regions import element_count
from tpusim.semantics.demand.inlining import inline
from tpusim.semantics.demand.needs import accesses, demand_of, needed_shares
from tpusim.semantics.demand.regions import Box, Region, Span, boxes_of, region_bytes, region_of
from tpusim.shapes.shape import leaves
from tpusim.source import SourceText
from tpusim.text import parse_module

MIB = 2**20


@given(chains(ALL, 6), st.booleans())
def test_no_needed_element_is_left_out(chain, nested):
    """The analysis never counts fewer elements than the results are made of."""
    region, shape = chain.demanded(nested)
    assert element_count(region, shape) >= len(chain.elements())


@given(chains(EXACT, 4), st.booleans())
def test_moves_of_data_need_exactly_what_they_take(chain, nested):
    """Through slices, pads, transposes, reversals, broadcasts and joins the count is that of the twin."""
    region, shape = chain.demanded(nested)
    assert element_count(region, shape) == len(chain.elements())


def body_of(lines, called, others=""):
    """Return the opened body of a fusion ``y`` that stands at the end of an entry of these lines."""
    text = f"HloModule m, is_scheduled=true\n\n{SUM}\n{others}\n%f {{\n{called}\n}}\n\nENTRY %e {{\n{lines}\n}}\n"
    module = parse_module(SourceText("m.hlo", text))
    return inline(module, module.entry, module.entry.root), module.entry.root


def bytes_read(lines, called, others=""):
    """Return the bytes that the fusion reads of each operand, by its name."""
    body, fusion = body_of(lines, called, others)
    return {a.name: a.n_bytes for a in accesses(body, demand_of(body), fusion) if not a.is_output}


STACK = "bf16[16,2048,2048]{2,1,0:T(16,128)(2,1)}"
RETILED = "%c {\n  %p = STACK parameter(0)\n  ROOT %q = COMPACT copy(%p)\n}\n"
COMPACT = "bf16[16,2048,2048]{2,1,0:T(8,128)(2,1)}"
LAYER = "bf16[1,2048,2048]{2,1,0:T(8,128)(2,1)}"
CHAINS = {
    "copy": f"%w = {COMPACT} copy(%s)",
    "fusion": f"%w = {COMPACT} fusion(%s), kind=kLoop, calls=%c",
    "aliased": f"%w = {COMPACT} fusion(%s), kind=kLoop, output_to_operand_aliasing={{{{}}: (0, {{}})}}, calls=%c",
    "bitcast of a copy": f"%u = {COMPACT} copy(%s)\n%w = {COMPACT} bitcast(%u)",
    "element-wise": f"%n = {STACK} negate(%s)\n%w = {COMPACT} copy(%n)",
    "transposes": f"""%t = bf16[2048,16,2048]{{2,0,1:T(8,128)(2,1)}} transpose(%s), dimensions={{1,0,2}}
        %w = {COMPACT} transpose(%t), dimensions={{1,0,2}}""",
    "pad": f"""%z = bf16[] constant(0)
        %w = {COMPACT} pad(%s, %z), padding=0_0x0_0x0_0""",
}


@pytest.mark.parametrize("chain", CHAINS.values(), ids=CHAINS.keys())
def test_one_layer_of_a_stack_is_read_whatever_stands_before_the_slice(chain):
    """Of 128 MiB of stacked weights that are relaid out and then sliced, 8 MiB move (v7x, LLaMA decode)."""
    read = bytes_read(
        f"%x = {STACK} parameter(0)\n%k = s32[] parameter(1)\nROOT %y = {LAYER} fusion(%x, %k), kind=kLoop, calls=%f",
        f"""%s = {STACK} parameter(0)
        %i = s32[] parameter(1)
        %o = s32[] constant(0)
        {chain}
        ROOT %d = {LAYER} dynamic-slice(%w, %i, %o, %o), dynamic_slice_sizes={{1,2048,2048}}""",
        RETILED.replace("STACK", STACK).replace("COMPACT", COMPACT),
    )
    assert read["x"] == 8 * MIB


WEIGHTS, PADDED = "bf16[24,2048,1,8192]{1,3,0,2:T(8,128)(2,1)}", "bf16[24,2048,2,8192]{1,3,0,2:T(8,128)(2,1)}"
WINDOW, INPUTS = "bf16[24,2048,2,512]{1,3,0,2:T(8,128)(2,1)}", "bf16[24,2048,7168,1]{2,1,0,3:T(8,128)(2,1)}"
SLICES = f"""%slices {{
    %a = {WEIGHTS} parameter(0)
    %i = s32[] parameter(1)
    %o = s32[] constant(0)
    %m = bf16[] constant(-inf)
    %low = {PADDED} pad(%a, %m), padding=0_0x0_0x0_1x0_0
    %first = {WINDOW} dynamic-slice(%low, %o, %o, %o, %i), dynamic_slice_sizes={{24,2048,2,512}}
    %high = {PADDED} pad(%a, %m), padding=0_0x0_0x1_0x0_0
    %second = {WINDOW} dynamic-slice(%high, %o, %o, %o, %i), dynamic_slice_sizes={{24,2048,2,512}}
    ROOT %r = {WINDOW} maximum(%first, %second)
}}"""


@pytest.mark.parametrize(("reversal", "start"), [("rhs_reversal=1", 3), ("rhs_reversal=0", 11)])
def test_a_place_of_an_outer_product_needs_its_own_of_the_kernel(reversal, start):
    """Sixteen positions of the kernel meet the only one of the input, each for one place of the result."""
    shape = "f32[8,16,128]{2,1,0:T(8,128)}"
    body, _ = body_of(
        f"""%x = f32[1,8,128]{{2,1,0}} parameter(0)
        %w = {shape} parameter(1)
        ROOT %y = f32[8,2,8] fusion(%x, %w), kind=kLoop, calls=%f""",
        f"""%p = f32[1,8,128]{{2,1,0}} parameter(0)
        %q = {shape} parameter(1)
        %c = f32[8,16,8] convolution(%p, %q), window={{size=16 pad=15_15 {reversal}}}, dim_labels=0bf_o0i->b0f
        ROOT %s = f32[8,2,8] slice(%c), slice={{[0:8], [3:5], [0:8]}}""",
    )
    (box,) = demand_of(body).operands[1][0].boxes
    assert (box.spans[1].start, box.spans[1].count) == (start, 2)


def test_a_slice_inside_an_operand_of_a_convolution_keeps_its_window():
    """Two slices of 512 of 8,192 columns, padded apart, are an eighth of the operand (tensor-parallel decoder, v5p)."""
    out = "bf16[2,512,7168,1]{2,1,3,0:T(8,128)(2,1)}"
    product = f"""%l = {WEIGHTS} parameter(0)
        %n = s32[] parameter(1)
        %u = {INPUTS} parameter(2)
        %g = {WINDOW} fusion(%l, %n), kind=kLoop, calls=%slices
        ROOT %c = {out} convolution(%g, %u), window={{size=1x24}}, dim_labels=1f0b_1io0->0bf1"""
    taken = f"%w = {WEIGHTS} parameter(0)\n%k = s32[] parameter(1)\n%v = {INPUTS} parameter(2)\n"
    read = bytes_read(f"{taken}ROOT %y = {out} fusion(%w, %k, %v), kind=kOutput, calls=%f", product, SLICES)
    assert read["w"] == 24 * 2048 * 8192 * 2 / 8
    assert read["v"] == 24 * 2048 * 7168 * 2


ROWS = "f32[4096,1024]{1,0:T(8,128)}"


def test_gathered_rows_are_read_behind_an_element_wise_operation():
    """A gather of 64 rows of a converted table reads these rows."""
    read = bytes_read(
        f"""%x = {ROWS} parameter(0)
        %k = s32[64]{{0:T(128)}} parameter(1)
        ROOT %y = f32[64,1024]{{1,0:T(8,128)}} fusion(%x, %k), kind=kLoop, calls=%f""",
        f"""%s = {ROWS} parameter(0)
        %i = s32[64]{{0:T(128)}} parameter(1)
        %n = {ROWS} negate(%s)
        ROOT %g = f32[64,1024]{{1,0:T(8,128)}} gather(%n, %i), offset_dims={{1}}, collapsed_slice_dims={{0}},
          start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,1024}}""",
    )
    assert read["x"] == 64 * 1024 * 4


def test_parts_that_are_all_used_are_never_more_than_the_whole():
    """Five slices of three quarters each read the array once."""
    part = "f32[3072,1024]{1,0:T(8,128)}"
    slices = "\n".join(
        f"%d{n} = {part} dynamic-slice(%s, %i{n}, %o), dynamic_slice_sizes={{3072,1024}}" for n in range(5)
    )
    indices = "\n".join(f"%i{n} = s32[] parameter({n + 1})" for n in range(5))
    sums = "\n".join(f"%a{n} = {part} add(%{f'a{n - 1}' if n > 1 else 'd0'}, %d{n})" for n in range(1, 4))
    called = (
        f"%s = {ROWS} parameter(0)\n%o = s32[] constant(0)\n{indices}\n{slices}\n{sums}\nROOT %r = {part} add(%a3, %d4)"
    )
    lines = f"%x = {ROWS} parameter(0)\n" + "\n".join(f"%k{n} = s32[] parameter({n + 1})" for n in range(5))
    read = bytes_read(f"{lines}\nROOT %y = {part} fusion(%x, %k0, %k1, %k2, %k3, %k4), kind=kLoop, calls=%f", called)
    assert read["x"] == 16 * MIB


UPDATE = f"""%s = {ROWS} parameter(0)
    %u = f32[8,1024]{{1,0:T(8,128)}} parameter(1)
    %o = s32[] constant(0)
    %w = {ROWS} dynamic-update-slice(%s, %u, %o, %o)"""
TAKEN = f"%x = {ROWS} parameter(0)\n%k = f32[8,1024]{{1,0:T(8,128)}} parameter(1)\n"


def test_what_is_only_updated_in_place_is_not_read():
    """An update that is returned leaves the rest of the array where it lies."""
    read = bytes_read(f"{TAKEN}ROOT %y = {ROWS} fusion(%x, %k), kind=kLoop, calls=%f", UPDATE.replace("%w", "ROOT %w"))
    assert read == {"k": 8 * 1024 * 4}


def test_what_is_updated_and_used_is_read_where_it_is_used():
    """Beside the update in place the kernel sums a quarter of the new array: that quarter is read."""
    quarter, row = "f32[1024,1024]{1,0:T(8,128)}", "f32[1024]{0:T(1024)}"
    called = f"""{UPDATE}
        %q = {quarter} slice(%w), slice={{[0:1024], [0:1024]}}
        %z = f32[] constant(0)
        %r = {row} reduce(%q, %z), dimensions={{0}}, to_apply=%sum
        ROOT %t = ({ROWS}, {row}) tuple(%w, %r)"""
    read = bytes_read(f"{TAKEN}ROOT %y = ({ROWS}, {row}) fusion(%x, %k), kind=kLoop, calls=%f", called)
    assert read["x"] == 4 * MIB


def test_an_update_of_what_the_kernel_makes_reads_what_that_is_made_of():
    """A negated array has no buffer to be updated in: all of its operand is read, all of it is written."""
    called = UPDATE.replace("%w", f"%n = {ROWS} negate(%s)\nROOT %w").replace("slice(%s", "slice(%n")
    body, fusion = body_of(f"{TAKEN}ROOT %y = {ROWS} fusion(%x, %k), kind=kLoop, calls=%f", called)
    assert {a.name: a.n_bytes for a in accesses(body, demand_of(body), fusion)}["x"] == 16 * MIB


def test_of_a_tuple_inside_only_the_element_that_is_taken_is_computed():
    """A fusion inside gives two arrays, of which one is used: nothing is read for the other."""
    pair = "%two {\n  %a = f32[8,128] parameter(0)\n  %b = f32[8,128] parameter(1)\n"
    pair += "  ROOT %t = (f32[8,128], f32[8,128]) tuple(%a, %b)\n}\n"
    read = bytes_read(
        "%x = f32[8,128] parameter(0)\n%k = f32[8,128] parameter(1)\n"
        "ROOT %y = f32[8,128] fusion(%x, %k), kind=kLoop, calls=%f",
        """%p = f32[8,128] parameter(0)
        %q = f32[8,128] parameter(1)
        %g = (f32[8,128], f32[8,128]) fusion(%p, %q), kind=kLoop, calls=%two
        %e = f32[8,128] get-tuple-element(%g), index=1
        ROOT %n = f32[8,128] negate(%e)""",
        pair,
    )
    assert read == {"k": 4096}


def test_a_tile_at_any_place_needs_its_halo():
    """Eight rows of a sum over windows of three are made of ten."""
    window = "window={size=3x1 pad=1_1x0_0}, to_apply=%sum"
    called = f"%s = {ROWS} parameter(0)\n%z = f32[] constant(0)\nROOT %r = {ROWS} reduce-window(%s, %z), {window}"
    body, _ = body_of(f"%x = {ROWS} parameter(0)\nROOT %y = {ROWS} fusion(%x), kind=kLoop, calls=%f", called)
    tile = Region((Box((Span(8, None), Span(1024)), 8 * 1024),))
    (region,) = demand_of(body, (tile,)).operands[0]
    assert [box.spans for box in region.boxes] == [(Span(10, None), Span(1024))]


def test_of_an_inner_value_only_the_needed_share_is_computed():
    """A quarter of a negated array is sliced out: a quarter is negated."""
    quarter = "f32[1024,1024]{1,0:T(8,128)}"
    called = f"%s = {ROWS} parameter(0)\n%n = {ROWS} negate(%s)\n"
    called += f"ROOT %q = {quarter} slice(%n), slice={{[0:1024], [0:1024]}}"
    body, _ = body_of(f"%x = {ROWS} parameter(0)\nROOT %y = {quarter} fusion(%x), kind=kLoop, calls=%f", called)
    assert needed_shares(body, demand_of(body)) == [0.25, 1.0]


def test_a_fusion_that_returns_an_operand_reads_it_and_writes_it():
    """It computes nothing, and still moves all of it, or of a tile as much."""
    inner = f"%id {{\n  ROOT %a = {ROWS} parameter(0)\n}}\n"
    called = f"%s = {ROWS} parameter(0)\nROOT %i = {ROWS} fusion(%s), kind=kLoop, calls=%id"
    lines = f"%x = {ROWS} parameter(0)\nROOT %y = {ROWS} fusion(%x), kind=kLoop, calls=%f"
    body, fusion = body_of(lines, called, inner)
    assert [a.n_bytes for a in accesses(body, demand_of(body), fusion)] == [16 * MIB, 16 * MIB]
    tile = Region((Box((Span(8, 0), Span(1024)), 8 * 1024),))
    assert demand_of(body, (tile,)).operands == ((tile,),)


def test_a_dot_of_one_tile_needs_the_rows_and_columns_of_it():
    """128 rows and 256 columns of a product are made of as many of its two sides, over the whole depth."""
    called = """%l = f32[1024,512] parameter(0)
        %r = f32[512,2048] parameter(1)
        ROOT %d = f32[1024,2048] dot(%l, %r), lhs_contracting_dims={1}, rhs_contracting_dims={0}"""
    taken = "%x = f32[1024,512] parameter(0)\n%k = f32[512,2048] parameter(1)\n"
    body, _ = body_of(taken + "ROOT %y = f32[1024,2048] fusion(%x, %k), kind=kOutput, calls=%f", called)
    tile = Region((Box((Span(128, 256), Span(256, 512)), 128 * 256),))
    demand = demand_of(body, (tile,))
    needed = [element_count(p[0], o.shape) for p, o in zip(demand.operands, body.operands, strict=True)]
    assert needed == [128 * 512, 512 * 256]


def spans_behind(instruction, shapes, tile):
    """Return, by operand of these shapes, the spans that one tile of the last instruction needs."""
    taken = [f"%{name} = {shape} parameter({n})" for n, (name, shape) in enumerate(zip("abc", shapes, strict=False))]
    result = instruction.rpartition("ROOT %y = ")[2].partition(" ")[0]
    names = ", ".join(f"%{name}" for name in "abc"[: len(shapes)])
    call = f"ROOT %y = {result} fusion({names}), kind=kLoop, calls=%f"
    body, _ = body_of("\n".join([*taken, call]), "\n".join([*taken, instruction]))
    parts = demand_of(body, (Region((Box(tile, prod(span.count for span in tile)),)),)).operands
    return [boxes_of(p[0], o.shape)[0].spans if p[0] else None for p, o in zip(parts, body.operands, strict=True)]


ANY = Span(8, None)
"""Eight indices at any place."""
TILES = {
    "sort takes all of its dimension": (
        "ROOT %y = f32[64,32] sort(%a), dimensions={1}, to_apply=%sum",
        ["f32[64,32]"],
        (ANY, Span(4, 4)),
        [(ANY, Span(32))],
    ),
    "a column of narrow parts is of as many wider elements": (
        "ROOT %y = s8[64,4] bitcast-convert(%a)",
        ["s32[64]"],
        (Span(8, 8), Span(4)),
        [(Span(8, 8),)],
    ),
    "wider elements are of all their parts": (
        "ROOT %y = s32[64] bitcast-convert(%a)",
        ["s8[64,4]"],
        (Span(8, 8),),
        [(Span(8, 8), Span(4))],
    ),
    "a convolution needs its window": (
        "ROOT %y = f32[2,32,32,64] convolution(%a, %b), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f",
        ["f32[2,32,32,16]", "f32[3,3,16,64]"],
        (Span(1, 1), Span(8, 8), Span(8, 0), Span(16, 16)),
        [(Span(1, 1), Span(10, 7), Span(9, 0), Span(16)), (Span(3), Span(3), Span(16), Span(16, 16))],
    ),
    "a batched dot needs its batch": (
        "ROOT %y = f32[4,64,32] dot(%a, %b), lhs_batch_dims={0}, rhs_batch_dims={1}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={0}",
        ["f32[4,64,16]", "f32[16,4,32]"],
        (Span(1, 2), ANY, Span(32)),
        [(Span(1, 2), ANY, Span(16)), (Span(16), Span(1, 2), Span(32))],
    ),
    "an update is needed as far as it may reach": (
        "%m = f32[64,32] negate(%a)\n%z = s32[] constant(0)\n"
        "%n = f32[64,32] dynamic-update-slice(%m, %b, %z, %z)\nROOT %y = f32[64,32] negate(%n)",
        ["f32[64,32]", "f32[4,32]"],
        (ANY, Span(32)),
        [(ANY, Span(32)), (Span(4), Span(32))],
    ),
    "a scatter changes elements where they stand": (
        "%m = f32[64,32] negate(%a)\n%n = f32[64,32] scatter(%m, %b, %c), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=%sum\n"
        "ROOT %y = f32[64,32] negate(%n)",
        ["f32[64,32]", "s32[5]", "f32[5,32]"],
        (ANY, Span(32)),
        [(ANY, Span(32)), (Span(5),), (Span(5), Span(32))],
    ),
    "rows of a gather are those of its indices": (
        "ROOT %y = f32[5,32] gather(%a, %b), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1,32}",
        ["f32[64,32]", "s32[5]"],
        (Span(2, 1), Span(16, 16)),
        [(Span(2, None), Span(16, 16)), (Span(2, 1),)],
    ),
    "a tile anywhere keeps its size between padding": (
        "%z = f32[] constant(0)\nROOT %y = f32[131,32] pad(%a, %z), padding=2_2_1x0_0",
        ["f32[64,32]"],
        (ANY, Span(32)),
        [(Span(4, None), Span(32))],
    ),
    "a tile anywhere may be of either part of a join": (
        "ROOT %y = f32[68,32] concatenate(%a, %b), dimensions={0}",
        ["f32[64,32]", "f32[4,32]"],
        (ANY, Span(32)),
        [(ANY, Span(32)), (Span(4), Span(32))],
    ),
    "a tile of the first part of a join is none of the other": (
        "ROOT %y = f32[68,32] concatenate(%a, %b), dimensions={0}",
        ["f32[64,32]", "f32[4,32]"],
        (Span(8, 0), Span(32)),
        [(Span(8, 0), Span(32)), None],
    ),
    "a tile across a join is of the end and of the beginning": (
        "ROOT %y = f32[68,32] concatenate(%a, %b), dimensions={0}",
        ["f32[64,32]", "f32[4,32]"],
        (Span(6, 60), Span(32)),
        [(Span(4, 60), Span(32)), (Span(2, 0), Span(32))],
    ),
    "every third row across a join": (
        "ROOT %y = f32[24,32] concatenate(%a, %b), dimensions={0}",
        ["f32[16,32]", "f32[8,32]"],
        (Span(7, 1, 3), Span(32)),
        [(Span(5, 1, 3), Span(32)), (Span(2, 0, 3), Span(32))],
    ),
    "what is turned round anywhere is anywhere": (
        "ROOT %y = f32[64,32] reverse(%a), dimensions={0,1}",
        ["f32[64,32]"],
        (ANY, Span(8, 4)),
        [(ANY, Span(8, 20))],
    ),
    "rows joined by a reshape are rows": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (Span(64, 96),),
        [(Span(2, 3), Span(32))],
    ),
    "one element more than a row is of two rows": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (Span(33, 0),),
        [(Span(2, 0), Span(32))],
    ),
    "the last row alone is one row": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (Span(32, 2016),),
        [(Span(1, 63), Span(32))],
    ),
    "a part of a row stays one": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (Span(8, 40),),
        [(Span(1, 1), Span(8, 8))],
    ),
    "rows anywhere are taken to begin at a row": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (Span(64, None),),
        [(Span(2, None), Span(32))],
    ),
    "a part of a row anywhere is in one row": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (ANY,),
        [(Span(1, None), ANY)],
    ),
    "a crooked run anywhere touches two rows more than it fills": (
        "ROOT %y = f32[2048] reshape(%a)",
        ["f32[64,32]"],
        (Span(40, None),),
        [(Span(3, None), Span(32))],
    ),
    "a split dimension keeps its run": (
        "ROOT %y = f32[16,4,32] reshape(%a)",
        ["f32[64,32]"],
        (Span(1, 3), Span(4), ANY),
        [(Span(4, 12), ANY)],
    ),
    "a bitcast that turns layouts renames dimensions": (
        "ROOT %y = f32[32,64]{0,1:T(8,128)} bitcast(%a)",
        ["f32[64,32]{1,0:T(8,128)}"],
        (Span(8, 8), ANY),
        [(ANY, Span(8, 8))],
    ),
    "a bitcast that drops a dimension keeps the others": (
        "ROOT %y = f32[16,256]{1,0:T(8,128)} bitcast(%a)",
        ["f32[1,16,256]{2,1,0:T(8,128)}"],
        (ANY, Span(128, 128)),
        [(Span(1), ANY, Span(128, 128))],
    ),
}


@pytest.mark.parametrize(("instruction", "shapes", "tile", "needed"), TILES.values(), ids=TILES.keys())
def test_what_one_tile_is_made_of(instruction, shapes, tile, needed):
    """By operation: the spans of each operand behind a tile of the result."""
    assert spans_behind(instruction, shapes, tile) == needed


def test_elements_whose_places_are_lost_are_still_counted():
    """Every fourth row of a reshape is spread over the operand: all of it may be touched, a quarter is."""
    called = "%s = f32[2048] parameter(0)\nROOT %y = f32[64,32] reshape(%s)"
    body, _ = body_of("%x = f32[2048] parameter(0)\nROOT %y = f32[64,32] fusion(%x), kind=kLoop, calls=%f", called)
    tile = Region((Box((Span(16, 0, 4), Span(32)), 512),))
    (region,) = demand_of(body, (tile,)).operands[0]
    assert element_count(region, body.operands[0].shape) == 512


def test_a_bitcast_between_tiles_loses_places_and_not_elements():
    """Tiles of 8 rows seen as rows: which columns a row is of is not followed, how many elements it has is."""
    source, seen = "f32[8,1024]{1,0:T(8,128)}", "f32[64,128]{1,0:T(8,128)}"
    called = f"%s = {source} parameter(0)\nROOT %y = {seen} bitcast(%s)"
    body, _ = body_of(f"%x = {source} parameter(0)\nROOT %y = {seen} fusion(%x), kind=kLoop, calls=%f", called)
    (region,) = demand_of(body, (Region((Box((Span(16), Span(128)), 2048),)),)).operands[0]
    assert element_count(region, body.operands[0].shape) == 2048
    assert region_bytes(region, body.operands[0].shape) == 2048 * 4


KEPT = sorted({kept for table in (DATA, COMPUTING, ELEMENTWISE, OURS) for kept, _ in table.values() if "(" in kept})


@pytest.mark.parametrize("text", KEPT)
def test_what_a_tile_needs_lies_inside_the_operands(text):
    """Of every operation that is well-formed: half of each dimension at the end and anywhere, with no index outside."""
    module = parse(one(text if is_stated(text) else f"{inferred(text)} {text}"))
    root = module.entry.root
    body, results = inline(module, module.entry, root), leaves(root.shape)
    for placed in (True, False):
        halves = [[(-(-size // 2), size) for size in result.dimensions] for result in results]
        tiles = [tuple(Span(n, size - n if placed or n == size else None) for n, size in sizes) for sizes in halves]
        parts = tuple(region_of([Box(t, prod(s.count for s in t))], r) for t, r in zip(tiles, results, strict=True))
        for operand, found in zip(body.operands, demand_of(body, parts).operands, strict=True):
            for leaf, region in zip(leaves(operand.shape), found, strict=True):
                for span, size in ((s, d) for b in region.boxes for s, d in zip(b.spans, leaf.dimensions, strict=True)):
                    assert 0 < span.count <= size
                    assert 0 <= (span.start or 0) <= size - span.reach


def test_a_result_is_written_in_one_piece_and_a_row_of_a_table_is_not():
    """Runs of a gathered row are as long as it; 0 stands for an array that lies together."""
    body, fusion = body_of(
        f"%x = {ROWS} parameter(0)\n%k = s32[64]{{0:T(128)}} parameter(1)\n"
        "ROOT %y = f32[64,1024]{1,0:T(8,128)} fusion(%x, %k), kind=kLoop, calls=%f",
        f"""%s = {ROWS} parameter(0)
        %i = s32[64]{{0:T(128)}} parameter(1)
        ROOT %g = f32[64,1024]{{1,0:T(8,128)}} gather(%s, %i), offset_dims={{1}}, collapsed_slice_dims={{0}},
          start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,1024}}""",
    )
    chunks = {(a.name, a.is_output): a.chunk_bytes for a in accesses(body, demand_of(body), fusion)}
    assert chunks == {("x", False): 1024 * 4, ("k", False): 0, ("y", True): 0}


@pytest.mark.parametrize(("update", "taken"), [(16, 8), (4, 4)])
def test_rows_of_an_update_at_an_unknown_place_are_at_most_those_that_fit(update, taken):
    """Eight rows of the result may all be the update's, each one value broadcast, but no more of them than it has."""
    read = bytes_read(
        f"""%x = f32[64,256]{{1,0}} parameter(0)
        %u = f32[{update}]{{0}} parameter(1)
        %i = s32[] parameter(2)
        ROOT %y = f32[8,256]{{1,0}} fusion(%x, %u, %i), kind=kLoop, calls=%f""",
        f"""%p = f32[64,256]{{1,0}} parameter(0)
        %v = f32[{update}]{{0}} parameter(1)
        %k = s32[] parameter(2)
        %o = s32[] constant(0)
        %n = f32[64,256]{{1,0}} negate(%p)
        %b = f32[{update},256]{{1,0}} broadcast(%v), dimensions={{0}}
        %w = f32[64,256]{{1,0}} dynamic-update-slice(%n, %b, %k, %o)
        ROOT %d = f32[8,256]{{1,0}} slice(%w), slice={{[0:8], [0:256]}}""",
    )
    assert (read["x"], read["u"]) == (8 * 256 * 4, taken * 4)
