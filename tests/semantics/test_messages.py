"""What messages of broken constraints name: the instruction, and the operand, size or count that is wrong."""

from __future__ import annotations

import pytest

from tests.semantics import infer_cases as cases
from tests.semantics.found_cases import INFERRED, VERIFIED
from tests.semantics.hlo import inferred, one, parse
from tests.semantics.verify_cases import CASES
from tpusim.errors import ProgramError
from tpusim.ir.attributes import PaddingDimension
from tpusim.ir.module import Instruction
from tpusim.limits import DEVICES
from tpusim.semantics.infer.rules import UNKNOWN, infer_shape
from tpusim.semantics.infer.types import plain
from tpusim.semantics.verify.module import problems
from tpusim.shapes.notation import parse_shape

_BROKEN = {label: ("", broken) for label, (_, broken) in {**cases.INFERRED_BY_XLA, **cases.OURS}.items()}
_BROKEN |= {label: (header, broken) for label, (header, _, broken) in cases.COUNTED.items()}


@pytest.mark.parametrize("label", INFERRED)
def test_a_refusal_names_what_is_wrong(label: str) -> None:
    """Of several operands or numbers the one that breaks the constraint."""
    header, text = _BROKEN[label]
    with pytest.raises(ProgramError) as caught:
        inferred(text, header)
    assert caught.value.message.endswith(f", found {INFERRED[label]} [{label}]")


@pytest.mark.parametrize("label", VERIFIED)
def test_a_finding_names_the_instruction_and_what_is_wrong(label: str) -> None:
    """The first message under the label; what is wrong with a whole module names no instruction."""
    text, part, other = CASES[label]
    place, found = VERIFIED[label]
    first = next(error for error in problems(parse(text.replace(part, other))) if f"[{label}]" in error.message)
    assert first.message.startswith(f"{place}: expected " if place else "expected ")
    assert first.message.endswith(f", found {found} [{label}]")
    # The caret stands under the instruction, of a cycle under its first.
    line, caret = str(first).splitlines()[1:3]
    name = (place or found).split("'")[3 if place else 1] if "'" in place + found else ""
    assert not name or line[caret.index("^") : caret.rindex("^") + 1] == name


MORE = {
    "the size below zero among others": ("pad(f32[3,3], f32[]), padding=-4_0x1_1", "[-1, 5] [pad_c5]"),
    "the only operand of a sort": ("sort(f32[4]), dimensions={1}, to_apply=less", "(1,) for f32[4] [sort_c3]"),
    "the third array of a join": (
        "concatenate(f32[2], f32[2], s32[2]), dimensions={0}",
        "f32[2] and s32[2] [concatenate_c4]",
    ),
    "an operand that is no array": ("add(f32[2], (f32[2]))", "operand 1 of shape (f32[2]) [array_c1]"),
    "the third array of a reduction": (
        "reduce(f32[2], f32[2], f32[3], f32[], f32[], f32[]), dimensions={0}, to_apply=add",
        "f32[2] and f32[3] [reduce_c2]",
    ),
    "the later of two dimensions": ("slice(f32[4,4]), slice={[0:4], [2:5]}", "5 of 4 in f32[4,4] [slice_c3]"),
    "the least and the greatest device": (
        "f32[4] collective-permute(f32[4]), source_target_pairs={{-1,0},{1,2}}",
        f"-1 to 2 of {DEVICES.most} [collective_permute_c2]",
    ),
    "a device of a group that no module has": (
        f"f32[4] collective-broadcast(f32[4]), replica_groups={{{{0,{DEVICES.most}}}}}",
        f"{DEVICES.most} of {DEVICES.most} [collective_broadcast_c3]",
    ),
}


@pytest.mark.parametrize(("text", "found"), MORE.values(), ids=MORE)
def test_of_several_the_wrong_one_is_named(text: str, found: str) -> None:
    """Wherever it stands."""
    with pytest.raises(ProgramError) as caught:
        inferred(text)
    assert caught.value.message.endswith(f", found {found}")


def test_the_negative_hole_of_several_is_named() -> None:
    """The parser would refuse it; an instruction that is built may have it."""
    attributes = {"padding": (PaddingDimension(0, 0, 2), PaddingDimension(0, 0, -1))}
    instruction = Instruction("r", UNKNOWN, "pad", ("p", "q"), attributes)
    with pytest.raises(ProgramError, match=r"found -1 \[pad_c4\]"):
        infer_shape(None, instruction, [parse_shape("f32[3,3]"), parse_shape("f32[]")])


TOKENS = {
    "(f32[2], u32[], token[]) send(f32[2], u8[]), channel_id=1": 1,
    "(f32[2], u32[], token[]) recv(u8[]), channel_id=1": 0,
    "(f32[2], token[]) infeed(u8[])": 0,
    "token[] outfeed(f32[2], u8[]), outfeed_shape=f32[2]": 1,
    "f32[2] add-dependency(f32[2], u8[])": 1,
    "token[] after-all(token[], u8[])": 1,
}


@pytest.mark.parametrize("text", TOKENS)
def test_what_orders_effects_takes_a_token(text: str) -> None:
    """The operand that is none is named by its number."""
    with pytest.raises(ProgramError, match=rf"found operand {TOKENS[text]} of shape u8\[\] \[token_c1\]"):
        inferred(text)


OTHER_REFUSALS = {
    "an array among tuples of starts": (
        "f32[4,4] collective-permute(f32[4,4], f32[4,4], (s32[], s32[]), ((s32[], s32[]), s32[])),"
        " source_target_pairs={{0,1}}, slice_sizes={{1,4}}",
        "collective_permute_c7",
    ),
    "a tuple among the starts of one array": (
        "f32[4] collective-permute(f32[4], f32[4], (s32[]), ((s32[]), s32[])),"
        " source_target_pairs={{0,1}}, slice_sizes={{1}}",
        "collective_permute_c7",
    ),
    "the type inside a start": ("((s32[4]), s32[4], u32[]) ceil-start(s32[4])", "unary_c1"),
    "the sizes inside a start": ("((f32[4]), f32[5], u32[]) slice-start(f32[4]), slice={[0:5]}", "slice_c3"),
}


@pytest.mark.parametrize(("text", "label"), OTHER_REFUSALS.values(), ids=OTHER_REFUSALS)
def test_other_ways_to_break_a_constraint(text: str, label: str) -> None:
    """By the label of the operation's own rule."""
    with pytest.raises(ProgramError, match=rf"\[{label}\]"):
        inferred(text)


def test_slices_of_no_element_are_slices() -> None:
    """XLA, DynamicSlice: sizes are at least 0."""
    text = "f32[0,6] dynamic-slice(f32[5,6], s32[], s32[]), dynamic_slice_sizes={0,6}"
    assert problems(parse(one(text))) == []


def test_a_done_may_state_more_of_the_result_and_nothing_else() -> None:
    """Where only the beginning of a tuple was known, the rest comes with the done."""
    state = parse_shape("((f32[2]), (f32[2]), u32[])")
    stated = {"(f32[2], s32[])": "(f32[2], s32[])", "(f32[3])": "(f32[2])", "(f32[2])": "(f32[2])"}
    for text, expected in stated.items():
        done = Instruction("d", parse_shape(text), "async-done", ("s",))
        assert plain(infer_shape(None, done, [state])) == expected
