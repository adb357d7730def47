"""Dynamic dimensions: which of a result's stay dynamic, with XLA's parser as the oracle."""

from __future__ import annotations

import re

import pytest

from tests.semantics.hlo import inferred, one

_hlo = pytest.importorskip("jaxlib._hlo")
_LAYOUT = re.compile(r"\{[0-9,]*\}")
TEXTS = [
    "add(f32[<=8,4], f32[<=8,4])",
    "add(f32[<=8,4], f32[8,4])",
    "select(pred[<=8], f32[<=8], f32[8])",
    "transpose(f32[<=8,4]), dimensions={1,0}",
    "pad(f32[<=8,4], f32[]), padding=1_1x0_0",
    "concatenate(f32[<=8,4], f32[8,4]), dimensions={0}",
    "concatenate(f32[<=8,4], f32[<=8,2]), dimensions={1}",
    "reduce(f32[<=8,4], f32[]), dimensions={1}, to_apply=add",
    "reduce(f32[<=8,4], f32[]), dimensions={0}, to_apply=add",
    "reduce-window(f32[<=8,4], f32[]), window={size=2x1 stride=2x1}, to_apply=add",
    "dot(f32[<=8,4], f32[4,5]), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "dot(f32[<=8,4], f32[4,<=5]), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "get-dimension-size(f32[<=8]), dimensions={0}",
    "reverse(f32[<=8,4]), dimensions={1}",
    "gather(f32[4,5], s32[<=3,1]), offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0},"
    " index_vector_dim=1, slice_sizes={1,5}",
    "sort(f32[<=8,4]), dimensions={1}, to_apply=less",
]


@pytest.mark.parametrize("text", TEXTS)
def test_xla_finds_the_same_dimensions_dynamic(text):
    """Told no shape, XLA's parser makes up the same one, or refuses it as we do."""
    printed = _hlo.hlo_module_from_text(one(text)).to_string()
    found = re.search(r"ROOT %result = (.*?) [a-z][a-z0-9-]*\(", printed)
    assert inferred(text) == _LAYOUT.sub("", found[1])


STATED = {
    # What is cut out of a dimension may still be of any size; one element has one.
    "slice(f32[<=8,4]), slice={[0:8], [0:2]}": "f32[<=8,2]",
    "slice(f32[<=8,4]), slice={[0:6], [0:4]}": "f32[<=6,4]",
    "slice(f32[<=8,4]), slice={[0:1], [0:4]}": "f32[1,4]",
    "slice(f32[<=8,<=4]), slice={[0:8:2], [1:2]}": "f32[<=4,1]",
    # Only a dimension that is taken whole stays dynamic.
    "dynamic-slice(f32[<=8,4], s32[], s32[]), dynamic_slice_sizes={8,2}": "f32[<=8,2]",
    "dynamic-slice(f32[<=8,4], s32[], s32[]), dynamic_slice_sizes={4,4}": "f32[4,4]",
    "dynamic-slice(f32[<=1,4], s32[], s32[]), dynamic_slice_sizes={1,4}": "f32[1,4]",
    # An update of the whole of a dimension makes that dynamic, a part of it does not.
    "dynamic-update-slice(f32[8,4], f32[<=8,2], s32[], s32[])": "f32[<=8,4]",
    "dynamic-update-slice(f32[8,4], f32[<=4,2], s32[], s32[])": "f32[8,4]",
    "dynamic-update-slice(f32[<=8,4], f32[4,2], s32[], s32[])": "f32[<=8,4]",
    "dynamic-update-slice(f32[<=8,4], f32[8,<=4], s32[], s32[])": "f32[<=8,<=4]",
}


@pytest.mark.parametrize(("text", "shape"), STATED.items())
def test_parts_of_dynamic_dimensions(text, shape):
    """XLA's parser wants these stated, so that the rule is the oracle."""
    assert inferred(text) == shape
