"""Layouts: the default one, the rules that each must obey, and XLA's notation."""

from __future__ import annotations

import pytest

from tpusim.errors import ProgramError
from tpusim.shapes.layout import COMBINE, Layout, SplitConfig, memory_space_name, validate_layout


@pytest.mark.parametrize(("rank", "order"), [(0, ()), (1, (0,)), (2, (1, 0)), (4, (3, 2, 1, 0))])
def test_the_default_layout_is_major_to_minor(rank: int, order: tuple[int, ...]) -> None:
    """New shapes have dimension 0 most major, as row-major matrices do (XLA, "Shapes and layout")."""
    assert Layout.default(rank) == Layout(order)


def test_a_combining_tile_entry_is_minus_one() -> None:
    """XLA, "Tiled layout": the star is the tile value -1."""
    assert COMBINE == -1


@pytest.mark.parametrize(
    ("layout", "text"),
    [
        (Layout(()), "{}"),
        (Layout((), ((128,),), memory_space=6), "{:T(128)S(6)}"),
        (Layout((1, 0), ((8, 128), (2, 1)), memory_space=1), "{1,0:T(8,128)(2,1)S(1)}"),
        (Layout((1, 0), ((COMBINE, 3),)), "{1,0:T(*,3)}"),
        (Layout((0,), element_size_bits=4), "{0:E(4)}"),
    ],
)
def test_a_layout_prints_as_xla_does(layout: Layout, text: str) -> None:
    """Parts that have their default value are left out, and with all of them the colon."""
    assert str(layout) == text


def test_parts_print_in_the_one_order_that_xla_reads() -> None:
    """XLA's parser takes D T L # * E S SC P M in this order only."""
    layout = Layout(
        minor_to_major=(0,),
        tiles=((2,),),
        element_size_bits=32,
        memory_space=3,
        dim_level_types="D",
        tail_padding_alignment=8,
        index_primitive_type="u32",
        pointer_primitive_type="u64",
        split_configs=(SplitConfig(0, (1, 2)), SplitConfig(1, (3,))),
        metadata_prefix_bytes=16,
    )
    assert str(layout) == "{0:D(D)T(2)L(8)#(u32)*(u64)E(32)S(3)SC(0:1,2)(1:3)M(16)}"


def test_the_old_padding_has_no_text_form() -> None:
    """Tiles replaced ``padded_dimensions`` before HLO text could state them."""
    assert str(Layout((0, 1), padded_dimensions=(3, 5), padding_value=7)) == "{0,1}"


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        (Layout((0,)), "layout of 2 dimensions"),
        (Layout((1, 1)), "permutation of 0..1"),
        (Layout((1, 2)), "permutation of 0..1"),
        (Layout((1, 0), padded_dimensions=(3,)), "one width per dimension, 2, found 1"),
        (Layout((1, 0), tiles=((0, 2),)), "tile sizes above 0"),
        (Layout((1, 0), tiles=((-2,),)), "tile sizes above 0"),
        (Layout((1, 0), tiles=((2,), ())), "at least one size"),
        (Layout((1, 0), tiles=((2, COMBINE),)), "last tile entry to be a size"),
        (Layout((1, 0), tail_padding_alignment=0), "at least 1"),
        (Layout((1, 0), element_size_bits=-4), "not to be negative"),
    ],
)
def test_an_impossible_layout_is_refused(layout: Layout, words: str) -> None:
    """One rule of the documents each, for an array of rank 2."""
    with pytest.raises(ProgramError, match=words):
        validate_layout(layout, 2)


@pytest.mark.parametrize(
    ("number", "name"), [(0, "HBM"), (1, "VMEM"), (3, "CMEM"), (5, "host"), (6, "SMEM"), (9, "memory space 9")]
)
def test_memory_spaces_have_names(number: int, name: str) -> None:
    """A number that nobody named stays a number."""
    assert memory_space_name(number) == name
