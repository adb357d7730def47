"""What the parser refuses of an instruction's meaning: by its label, at its place."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import tpusim.text
from tests.semantics.hlo import labels_in, one
from tests.text.programs import entry, source
from tpusim.errors import ProgramError
from tpusim.semantics.infer.rules import LABELS
from tpusim.text import parse_module

_REDUCTION = "f32[2] all-reduce(f32[2]), to_apply=add"
_SCAN = "(f32[5], f32[]) scan(f32[5], f32[]), dimensions={0}, num_carries=1, to_apply=step"
_ALIAS = "HloModule m, input_output_alias={ {}: (0, {}) }\n\nENTRY e {\n p = f32[2] parameter(0)\n}"
_PERMUTE = "f32[4] collective-permute(f32[4]), source_target_pairs={{0,1}}"
_CUSTOM = 'f32[2]{0} custom-call(f32[2]), custom_call_target="a", operand_layout_constraints='
_UPDATE = entry(
    "p = f32[2] parameter(0)",
    "s = ((f32[2]), f32[1], u32[]) slice-start(p), slice={[0:1]}",
    "d = f32[1] slice-done(s)",
)
_SENT = entry(
    "p = f32[2] parameter(0)",
    "k = token[] after-all()",
    "s = (f32[2], u32[], token[]) send(p, k), channel_id=1",
    "d = token[] send-done(s), channel_id=2",
)
_ASYNC_TWICE = one("((f32[2]), f32[2]) async-start(f32[2]), calls=body").replace(
    "ROOT result", "s = ((f32[2]), f32[2]) async-start(p0), calls=body\n ROOT result"
)

BROKEN = {
    "alias_c2": _ALIAS.replace("{ {}:", "{ {1}:"),
    "alias_c9": _ALIAS.replace("{ {}: (0, {})", "{ {}: (0, {}), {}: (0, {})"),
    "all_gather_c2": one("f32[2] all-gather(f32[2]), dimensions={0,0}"),
    "all_to_all_c2": one("f32[2] all-to-all(f32[2]), dimensions={0,0}"),
    "async_c1": one("f32[2] slice-start(f32[2]), slice={[0:1]}"),
    "async_c9": _UPDATE.replace("slice-done(s)", "slice-done(p)"),
    "async_c15": _UPDATE.replace("slice-done(s)", "pad-done(s)"),
    "async_c16": _ASYNC_TWICE,
    "broadcast_c1": one("f32[2,2] broadcast(f32[2])"),
    "channel_c1": _SENT,
    "collective_permute_c1": one(_PERMUTE.replace("{0,1}", "{0,1,2}")),
    "collective_permute_c5": one(_PERMUTE + ", slice_sizes={{4}}"),
    "concatenate_c1": one("f32[2] concatenate(f32[2]), dimensions={0,0}"),
    "conditional_c1": one("f32[2] conditional(f32[], f32[2]), branch_computations={body}"),
    "conditional_c3": one("f32[2] conditional(s32[], f32[2]), branch_computations={body, body}"),
    "conditional_c7": one("f32[2] conditional(pred[], f32[2], f32[2]), branch_computations={body, body}"),
    "custom_call_c1": one(_CUSTOM + "{f32[2]{0}, f32[2]{0}}"),
    "custom_call_c2": one(_CUSTOM + "{f32[3]{0}}"),
    "dynamic_slice_c1": one("f32[1,1] dynamic-slice(f32[2,2], s32[]), dynamic_slice_sizes={1,1}"),
    "get_dimension_size_c1": one("s32[] get-dimension-size(f32[2,2]), dimensions={0,1}"),
    "groups_c1": one(_REDUCTION + ", use_global_device_ids=true"),
    "infeed_c1": one("f32[2] infeed(token[])"),
    "instruction_c1": one("f32[2] negat(f32[2])"),
    "instruction_c2": one("f32[2] negate(f32[2], f32[2])"),
    "instruction_c3": one("f32[2] reverse(f32[2])"),
    "instruction_c4": one("f32[2] negate(f32[2]), dimensions={0}"),
    "instruction_c5": entry("p = f32[2] parameter(0)", "p = f32[2] negate(p)"),
    "computation_c1": one("f32[2] call(f32[2]), to_apply=nobody"),
    "parameter_c1": entry("p = f32[2] parameter(1)"),
    "parameter_c2": entry("p = f32[2] parameter(0), parameter_replication={true,false}"),
    "ragged_all_to_all_c3": one(
        "f32[9] ragged-all-to-all(f32[8], f32[9], s32[2], s32[2], s32[2], s32[2]), dimensions={0,1}"
    ),
    "recv_c1": one("f32[2] recv(token[]), channel_id=1"),
    "reduce_c1": one("f32[] reduce(f32[2], f32[2], f32[]), dimensions={0}, to_apply=add"),
    "reduce_scatter_c2": one("f32[2] reduce-scatter(f32[2]), dimensions={0,0}, to_apply=add"),
    "reduce_window_c1": one("f32[2] reduce-window(f32[2], f32[2], f32[]), window={size=1}, to_apply=add"),
    "scan_c1": one(_SCAN.replace("carries=1", "carries=3")),
    "scan_c2": one(_SCAN.replace("{0}", "{0,1}")),
    "scan_c5": one(_SCAN.replace("=step", "=negated")),
    "scatter_c1": one(
        "f32[2] scatter(f32[2], s32[1], f32[1], f32[1]), update_window_dims={}, inserted_window_dims={0},"
        " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add"
    ),
    "schedule_c1": entry("n = f32[2] negate(x)"),
    "set_dimension_size_c1": one("f32[2,2] set-dimension-size(f32[2,2], s32[]), dimensions={0,1}"),
    "shape_c1": one("convert(f32[2])"),
    "binary_c2": one("add(f32[2], f32[3])"),
    "sort_c1": one("f32[2] sort(f32[2]), dimensions={0,0}, to_apply=less"),
    "tuple_c1": one("(f32[2]) tuple(f32[2], f32[2])"),
}
"""A text that breaks each constraint which the parser asks for itself, by its label."""


@pytest.mark.parametrize("careful", [False, True])
@pytest.mark.parametrize("label", BROKEN)
def test_the_parser_refuses_by_label_and_place(label: str, careful: bool) -> None:
    """The message ends with the label; the line and a caret follow."""
    with pytest.raises(ProgramError) as caught:
        parse_module(source(BROKEN[label]), careful=careful)
    assert re.match(rf"[^\n]*:\d+:\d+: [^\n]*\[{label}\]\n.*\n +\^+\Z", str(caught.value))


def test_every_label_of_the_parser_has_a_text() -> None:
    """No check without its case; of what the rules of inference say there are two."""
    used = {label for path in Path(tpusim.text.__file__).parent.rglob("*.py") for label in labels_in(path)}
    made = {"infeed_c1", "recv_c1"}
    assert used | made <= BROKEN.keys() <= LABELS.keys()
