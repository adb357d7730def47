"""Tiles of our own choosing, against trying all cuts."""

from __future__ import annotations

from itertools import product

import pytest

import tpusim
from tests.lowering.hlo import kernel_named, lower_text
from tests.semantics.hlo import parse
from tpusim.cost.tile import alone_ps
from tpusim.hardware.load import load_chip
from tpusim.lowering.kernels import kernel as making
from tpusim.lowering.kernels.tiles import own_nests, streaming_tiles
from tpusim.machine.run import simulate_program

CHIP = load_chip("v5e")
ROOM_BYTES = CHIP.vmem.scoped_bytes / 2
MIB = 2**20
SIZES = [(8, 8, 8), (0.01, 0.5, 0.01), (512, 2, 512), (2, 512, 512), (512, 512, 2), (4096, 4096, 4096), (1, 300, 7)]
# Rows, depth, columns.
PRODUCTS = [(512, 512, 512), (16, 4096, 4096), (4096, 16, 4096), (2048, 8192, 2048), (1896, 248, 1896)]


def nests_of(mib):
    """Return the nests for a product of arrays of so many MiB."""
    return own_nests({name: size * MIB for name, size in zip(("lhs", "rhs", "out"), mib, strict=True)}, CHIP)


def product_text(rows, depth, columns):
    """Return a product without tiles, whose result a vector operation follows."""
    layout = "{1,0:T(8,128)}"
    body = f"""%f {{
  %p = f32[{rows},{depth}]{layout} parameter(0)
  %q = f32[{depth},{columns}]{layout} parameter(1)
  %c = f32[{rows},{columns}]{layout} convolution(%p, %q), dim_labels=bf_io->bf
  ROOT %e = f32[{rows},{columns}]{layout} exponential(%c)
}}
"""
    entry = f"""%x = f32[{rows},{depth}]{layout} parameter(0)
        %w = f32[{depth},{columns}]{layout} parameter(1)
        ROOT %y = f32[{rows},{columns}]{layout} fusion(%x, %w), kind=kOutput, calls=%f"""
    return entry, body


@pytest.mark.parametrize("mib", SIZES)
def test_all_cuts_by_powers_of_two_that_fit_are_there(mib):
    """Each array is cut by the loops that go through it, and one block of each fits into the room."""
    found = {tuple(loop.trips for loop in nest.loops if loop.role not in ("batch", "taps")) for nest in nests_of(mib)}
    left, right, out = (size * MIB for size in mib)
    for columns, rows, depth in product([2**n for n in range(12)], repeat=3):
        fits = left / rows / depth + right / columns / depth + out / columns / rows <= ROOM_BYTES
        assert ((columns, rows, depth) in found) == fits


@pytest.mark.parametrize("mib", SIZES)
def test_blocks_of_a_product_are_its_arrays_cut(mib):
    """Each array by the loops that go through it."""
    for nest in nests_of(mib):
        batch, columns, rows, taps, depth = (loop.trips for loop in nest.loops)
        assert taps == 1
        pieces = [1 / nest.block_share[name] for name in ("lhs", "rhs", "out")]
        assert pieces == [batch * rows * depth, batch * columns * depth, batch * columns * rows]


def test_a_batch_is_cut_before_anything_else():
    """Sixteen products of 8 MiB on either side, a room of 8 MiB: one at a time fits only if it is cut itself."""
    limits = {"batch": 16, "columns": 4, "rows": 2, "depth": 8}
    nests = own_nests({"lhs": 128.0 * MIB, "rhs": 16.0 * MIB, "out": 16.0 * MIB}, CHIP, limits)
    cuts = {tuple(loop.trips for loop in nest.loops) for nest in nests}
    assert cuts
    for batch, columns, rows, _, depth in cuts:
        assert batch == 16
        assert columns <= 4
        assert rows <= 2
        assert depth <= 8
    # Eight and one and one MiB are too much for eight; half of the rows of one are not.
    assert (16, 1, 1, 1, 1) not in cuts
    assert (16, 1, 2, 1, 1) in cuts


SOFTMAX = """%max {{
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %m = f32[] maximum(%a, %b)
}}
%f {{
  %p = bf16[4096,128]{{1,0:T(8,128)(2,1)}} parameter(0)
  %q = bf16[128,4096]{{1,0:T(8,128)(2,1)}} parameter(1)
  %c = f32[4096,4096]{{1,0:T(8,128)}} dot(%p, %q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  %least = f32[]{{:T(128)}} constant(-inf)
  %w = f32[4096,4096]{{1,0:T(8,128)}} reduce-window(%c, %least), window={{{window}}}, to_apply=%max
  ROOT %e = f32[4096,4096]{{1,0:T(8,128)}} subtract(%c, %w)
}}
"""


@pytest.mark.parametrize(
    ("window", "whole", "cut"),
    [
        ("size=1x8191 pad=0_0x4095_4095", "columns", "rows"),
        ("size=8191x1 pad=4095_4095x0_0", "rows", "columns"),
    ],
)
def test_rows_that_a_window_reaches_over_are_not_cut(window, whole, cut):
    """Neither along the result's rows nor along its columns: the 64 MiB are cut the other way."""
    entry = """%x = bf16[4096,128]{1,0:T(8,128)(2,1)} parameter(0)
        %w = bf16[128,4096]{1,0:T(8,128)(2,1)} parameter(1)
        ROOT %y = f32[4096,4096]{1,0:T(8,128)} fusion(%x, %w), kind=kOutput, calls=%f"""
    kernel = kernel_named(lower_text(entry, SOFTMAX.format(window=window)), "y")
    loops = {loop.over: loop.trips for loop in kernel.loops}
    assert whole not in loops
    assert loops[cut] >= 8


@pytest.mark.parametrize("chip_name", ["v3", "v5e", "v7x"])
@pytest.mark.parametrize("sizes", PRODUCTS)
def test_of_all_cuts_the_fastest_is_taken(sizes, chip_name, monkeypatch):
    """Each cut by itself, with nothing to choose from, takes as long or longer."""
    chip, text = load_chip(chip_name), product_text(*sizes)
    chosen = alone_ps(kernel_named(lower_text(*text, chip_name), "y"), chip)
    rows, depth, columns = sizes
    n_bytes = {"lhs": 4.0 * rows * depth, "rhs": 4.0 * depth * columns, "out": 4.0 * rows * columns}
    # Every seventh: all take seconds.
    for nest in own_nests(n_bytes, chip)[::7]:
        monkeypatch.setattr(making, "own_nests", lambda *_, only=nest: (only,))
        assert chosen <= alone_ps(kernel_named(lower_text(*text, chip_name), "y"), chip)


@pytest.mark.parametrize("sizes", PRODUCTS)
def test_a_kernel_alone_takes_what_the_machine_plays(sizes):
    """The closed form by which cuts are compared is the run's own time, to a rounding of each of its parts."""
    program = lower_text(*product_text(*sizes))
    launch_ps = round(CHIP.fixed.launch_seconds * 1e12)
    alone = alone_ps(kernel_named(program, "y"), CHIP)
    assert simulate_program(program, CHIP).total_ps - launch_ps == pytest.approx(alone, abs=5)


def test_what_fits_no_vmem_is_cut_as_finely_as_may_be():
    """Petabytes: 2,048 pieces of each dimension."""
    (nest,) = own_nests(dict.fromkeys(("lhs", "rhs", "out"), 2.0**60), CHIP)
    assert [loop.trips for loop in nest.loops] == [1, 2048, 2048, 1, 2048]


def test_a_stream_is_cut_in_eight_within_bounds():
    """Not below what a transfer is worth, and not above what VMEM has room for."""
    least = CHIP.dma.smallest_block_bytes
    sizes = (0, least, 3 * least, 8 * least, 100 * least)
    assert [streaming_tiles(n_bytes, CHIP) for n_bytes in sizes] == [1, 1, 3, 8, 8]
    assert streaming_tiles(100 * ROOM_BYTES, CHIP) == 100


@pytest.mark.parametrize("sizes", [(0, 7, 5), (259, 0, 5), (259, 7, 0), (0, 0, 0)])
@pytest.mark.parametrize("schedule", ["given", "compiled"])
def test_a_product_of_no_elements_takes_no_time_of_the_arrays(sizes, schedule):
    """XLA makes zeros of it; as it stands it is one piece."""
    rows, depth, columns = sizes
    text = (
        f"HloModule m{', is_scheduled=true' * (schedule == 'given')}\n\nENTRY e {{\n"
        f"  p = bf16[{rows},{depth}] parameter(0)\n  q = bf16[{depth},{columns}] parameter(1)\n"
        f"  ROOT d = bf16[{rows},{columns}] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}\n}}\n"
    )
    result = tpusim.simulate(parse(text), "v5e", schedule=schedule)
    assert result.summary.total_ps < CHIP.fixed.launch_seconds * 1e12 + 2e6
