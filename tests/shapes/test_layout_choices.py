"""The layouts of an array side by side."""

from __future__ import annotations

import pytest

from tests.cli.commands import output_of
from tpusim.errors import ConfigError
from tpusim.pipeline.answers.layouts import layouts, tiled
from tpusim.shapes.notation import parse_shape


def test_layouts_are_ranked_by_what_they_take():
    """Ten rows of 300 in bf16: 16 x 384 elements one way, 304 x 128 the other."""
    found = layouts("bf16[10,300]")
    assert [choice.physical_bytes for choice in found] == [2 * 16 * 384, 2 * 304 * 128]
    assert [(choice.lanes, choice.sublanes) for choice in found] == [(1, 0), (0, 1)]
    assert found[0].is_default


def test_three_dimensions_have_six():
    """Every choice of the two that vary fastest; the least padded is that of arguments."""
    found = layouts("f32[64,1000,3]")
    assert len(found) == 6
    assert found[0].is_default
    assert found[-1].wasted_share == pytest.approx(1 - 3 / 128)


def test_a_tuple_has_no_layouts():
    """What is wanted is said."""
    with pytest.raises(ConfigError, match="expected an array"):
        layouts("(f32[2], f32[3])")


def test_an_array_without_tiles_is_shown_with_them(capsys):
    """In the text; one with tiles, and a scalar, are left as they are."""
    text = output_of(capsys, "layout", "bf16[10,300]")
    assert "0.0 % wasted" in text
    assert "51.2 % wasted" in text
    assert tiled(parse_shape("bf16[10,300]{1,0:T(8,128)(2,1)}")) is None
    assert tiled(parse_shape("f32[]")) is None


def test_sizes_alone_take_the_type_that_is_given(capsys):
    """As the command has it."""
    assert "s8[10,300]{1,0:T(8,128)(4,1)}" in output_of(capsys, "layouts", "10,300", "--dtype", "s8")
