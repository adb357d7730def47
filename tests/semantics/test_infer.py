"""Inference of shapes: every constraint by its label, kept and broken, with XLA's parser as the oracle."""

from __future__ import annotations

import re
from itertools import combinations
from pathlib import Path

import pytest

import tpusim.semantics.infer
from tests.semantics import infer_cases as cases
from tests.semantics.hlo import inferred, is_stated, labels_in, one, parse
from tpusim.errors import ProgramError
from tpusim.ir.module import Instruction
from tpusim.ir.ops import OPERATIONS
from tpusim.semantics.infer.rules import LABELS, RULES, infer_shape
from tpusim.semantics.infer.types import plain
from tpusim.semantics.verify.module import problems
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape

_hlo = pytest.importorskip("jaxlib._hlo")
_LAYOUT = re.compile(r"\{[0-9,]*\}")
INFER = Path(tpusim.semantics.infer.__file__).parent
FLOATS = [name for name, dtype in DTYPES.items() if dtype.is_float]
EQUALS = ({"f8e4m3", "f8e4m3fnuz"}, {"f8e5m2", "f8e5m2fnuz"})
"""Types of equal range and precision, which XLA gives up on altogether when they meet."""
_BOTH = {**cases.INFERRED_BY_XLA, **cases.OURS}


def by_label(table: dict[str, object]) -> pytest.MarkDecorator:
    """Make a test of each label of a table, named after it."""
    return pytest.mark.parametrize("label", list(table))


def xla_shape(text: str) -> str:
    """Return the shape that XLA infers; raises ``Exception`` if it refuses."""
    printed = _hlo.hlo_module_from_text(one(text)).to_string()
    found = re.search(r"ROOT %result = (.*?) [a-z][a-z0-9-]*\(", printed)
    assert found is not None
    return _LAYOUT.sub("", found[1])


def test_every_opcode_has_a_rule() -> None:
    """Nothing that the text format knows is left out, and nothing made up."""
    assert RULES.keys() == OPERATIONS.keys()


@by_label(_BOTH)
def test_an_instruction_that_keeps_the_constraint_is_accepted(label: str) -> None:
    """Where a shape is stated, it is what is inferred."""
    text = _BOTH[label][0]
    shape = inferred(text)
    assert not is_stated(text) or text.startswith(shape)


@pytest.mark.parametrize("label", ["gather_c12", "scatter_c16"])
def test_index_vectors_lie_along_no_batching_dimension(label: str) -> None:
    """XLA's parser lets it pass, and its StableHLO verifier, by which programs are compiled, does not."""
    vectors = _BOTH[label][0].replace("indices_batching_dims={0}", "indices_batching_dims={2}")
    with pytest.raises(ProgramError, match=rf"\[{label}\]"):
        inferred(vectors)


@by_label(_BOTH)
def test_an_instruction_that_breaks_the_constraint_is_refused_by_its_label(label: str) -> None:
    """The message ends with the label and says what was expected."""
    with pytest.raises(ProgramError, match=rf"\[{label}\]") as caught:
        inferred(_BOTH[label][1])
    assert LABELS[label] in str(caught.value)


@by_label(cases.INFERRED_BY_XLA)
def test_xla_infers_the_same_shape(label: str) -> None:
    """XLA's parser, told no shape, makes up the same one."""
    text = cases.INFERRED_BY_XLA[label][0]
    assert inferred(text) == xla_shape(text)


@by_label(cases.INFERRED_BY_XLA)
def test_xla_refuses_too(label: str) -> None:
    """XLA's parser, told no shape, cannot make up any."""
    with pytest.raises(Exception, match="infer shape"):
        xla_shape(cases.INFERRED_BY_XLA[label][1])


@by_label(cases.COUNTED)
def test_counts_of_the_module_are_kept_to(label: str) -> None:
    """A header says how many replicas there are; without it, any number may be."""
    header, kept, broken = cases.COUNTED[label]
    assert inferred(kept, header) == inferred(broken)
    with pytest.raises(ProgramError, match=rf"\[{label}\]"):
        inferred(broken, header)


@by_label(cases.BY_HAND)
def test_an_instruction_built_by_hand_is_checked_too(label: str) -> None:
    """What the parser would refuse first, the rule refuses where there is no parser."""
    shape, opcode, operands, attributes = cases.BY_HAND[label]
    names = tuple(f"p{number}" for number in range(len(operands)))
    instruction = Instruction("r", parse_shape(shape), opcode, names, attributes)
    with pytest.raises(ProgramError, match=rf"\[{label}\]"):
        infer_shape(parse(one("negate(f32[2])")), instruction, [parse_shape(operand) for operand in operands])


def test_every_label_of_inference_has_a_case() -> None:
    """A label that stands in a file of inference is kept and broken by an instruction of ``infer_cases``."""
    paths = [path for path in INFER.glob("*.py") if path.stem != "labels"] + [INFER.parent / "device_groups.py"]
    used = {label for path in paths for label in labels_in(path)}
    assert used == {*_BOTH, *cases.COUNTED, *cases.BY_HAND}


@pytest.mark.parametrize(("rows", "kept"), [(3, True), (8, True), (9, False)])
def test_bitcast_c1_counts_the_padding_of_tiles(rows: int, kept: bool) -> None:
    """Up to 8 rows of 128 occupy one tile, as 1024 elements in a row do; 9 occupy two."""
    text = f"f32[1024]{{0:T(1024)}} bitcast(f32[{rows},128]{{1,0:T(8,128)}})"
    assert [error.message.endswith("[bitcast_c1]") for error in problems(parse(one(text)))] == [True] * (not kept)


@pytest.mark.parametrize(
    ("one_name", "other_name"), [pair for pair in combinations(FLOATS, 2) if {*pair} not in EQUALS]
)
def test_the_wider_of_two_floats_is_xlas(one_name: str, other_name: str) -> None:
    """Of two floats that meet, XLA takes the one with more range, then with more precision."""
    text = f"add({one_name}[3], {other_name}[3])"
    assert inferred(text) == xla_shape(text)


def test_a_ragged_dot_over_no_groups_stacks_none() -> None:
    """A product for each of no groups: the dimension of groups is there, and empty."""
    dims = "lhs_contracting_dims={0}, rhs_contracting_dims={0}, lhs_ragged_dims={0}"
    assert inferred(f"ragged-dot(f32[8,3], f32[8,4], s32[0]), {dims}") == "f32[0,3,4]"


def test_messages_show_shapes_without_their_layouts() -> None:
    """Where elements lie is nothing that inference asks about."""
    assert plain(parse_shape("(f32[2,3]{0,1:T(8,128)}, s32[])")) == "(f32[2,3], s32[])"


_SLICE = "(s32[], s32[])"
_IN_PLACE = (
    f"(f32[4,4], f32[4,4]) collective-permute((f32[4,4], f32[4,4]), (f32[4,4], f32[4,4]), (({_SLICE}, {_SLICE}),"
    f" ({_SLICE})), (({_SLICE}, {_SLICE}), ({_SLICE}))), source_target_pairs={{PAIRS}}, slice_sizes={{{{1,4}}}}"
)


def test_a_device_sends_as_often_as_the_first_buffer_has_slices() -> None:
    """XLA's verifier (HandleCollectivePermute) lets a source come up once for each slice of the first buffer."""
    inferred(_IN_PLACE.replace("PAIRS", "{0,1},{0,2}"))
    with pytest.raises(ProgramError, match="collective_permute_c3"):
        inferred(_IN_PLACE.replace("PAIRS", "{0,1},{0,2},{0,3}"))
