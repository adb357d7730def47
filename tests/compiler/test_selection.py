"""Of rows on several devices each selects first. Source: what libtpu does with such programs, compiled for v5e:2x2."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check, execute

ROWS = """HloModule m, COUNTS

ENTRY e {
  x = f32[3,512] parameter(0)
  y = f32[3,2048] all-gather(x), replica_groups=GROUPS, dimensions={1}, CHANNELmetadata={op_name="top_k"}
  s = (f32[3,5], s32[3,5]) topk(y), k=5, largest=true, metadata={op_name="top_k"}
  v = f32[3,5] get-tuple-element(s), index=0
  i = s32[3,5] get-tuple-element(s), index=1
  ROOT r = (f32[3,5], s32[3,5]) tuple(v, i)
}
"""
PARTITIONS = {"COUNTS": "num_partitions=8", "CHANNEL": "channel_id=7, use_global_device_ids=true, "}
REPLICAS = {"COUNTS": "replica_count=8", "CHANNEL": ""}
MESHES = {
    "partitions in their order": PARTITIONS | {"COUNTS": "num_partitions=4", "GROUPS": "{{0,1,2,3}}"},
    "two groups": PARTITIONS | {"GROUPS": "{{0,2,4,6},{1,3,5,7}}"},
    "another order": PARTITIONS | {"GROUPS": "{{6,1,4,3},{0,7,2,5}}"},
    "replicas": REPLICAS | {"GROUPS": "{{0,1,2,3},{4,5,6,7}}"},
    "the smallest": PARTITIONS | {"GROUPS": "{{0,2,4,6},{1,3,5,7}}", "largest=true": "largest=false"},
}
WHOLE = {
    "of replicas and partitions": {"COUNTS": "num_partitions=4, replica_count=2", "GROUPS": "{{0,1,2,3},{4,5,6,7}}"},
    "that the program gathers itself": {'CHANNELmetadata={op_name="top_k"}': 'CHANNELmetadata={op_name="gather"}'},
    "that are used besides": {"tuple(v, i)": "tuple(y, v, i)", "ROOT r = (": "ROOT r = (f32[3,2048], "},
    "that are short": {"3,512]": "3,256]", "3,2048]": "3,1024]"},
    "of which many are selected": {"3,5]": "3,200]", "k=5": "k=200"},
    "of another type": {"f32": "bf16"},
}


def filled_in(changes):
    """Return the program with some of its parts in another form."""
    text = ROWS
    for old, new in ({**changes, **{k: v for k, v in MESHES["two groups"].items() if k not in changes}}).items():
        text = text.replace(old, new)
    return text


def same_values(text):
    """Return a program's entry as the pass leaves it, which gives bit for bit what it did."""
    before, made = (compiled(text, stop_after=step) for step in ("inline", "selections"))
    assert check(made) == []
    rng = np.random.default_rng(8)
    # Few numbers, so that many are equal, also across devices; some are no numbers at all.
    numbers = np.float32([-1, -0.0, 0, 2, 3, np.inf, -np.inf, np.nan])
    inputs = [[rng.choice(numbers, made.entry.parameters[0].shape.dimensions)] for _ in range(before.device_count)]
    for one, other in zip(execute(before, inputs), execute(made, inputs), strict=True):
        for ours, theirs in zip(one, other, strict=True):
            assert ours.tobytes() == theirs.tobytes()
    return made.entry


@pytest.mark.parametrize("mesh", MESHES)
def test_each_device_selects_from_its_own_part_first(mesh):
    """What is gathered is what they selected; of equals the first is taken, wherever it lies."""
    entry = same_values(filled_in(MESHES[mesh]))
    (selection,) = (one for one in entry if one.opcode == "topk")
    assert entry[selection.operands[0]].opcode == "parameter"
    gathers = [one for one in entry if one.opcode == "all-gather"]
    assert [one.shape.dimensions for one in gathers] == [(3, 20)] * 2
    channels = [one.attributes["channel_id"] for one in gathers if "channel_id" in one.attributes]
    assert len(set(channels)) == len(channels)


@pytest.mark.parametrize("rows", WHOLE)
def test_rows_are_gathered_whole(rows):
    """Where the TPU compiler does so, or sorts; and where replicas and partitions are told apart."""
    entry = same_values(filled_in(WHOLE[rows]))
    (selection,) = (one for one in entry if one.opcode == "topk")
    assert entry[selection.operands[0]].opcode == "all-gather"
