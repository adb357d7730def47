"""What StableHLO says of host memory is in the HLO text of it; the oracle is what PJRT says for a TPU."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from tpusim.errors import ProgramError
from tpusim.frontends.memory_kinds import lost_moves, with_marks
from tpusim.frontends.read import hlo_text
from tpusim.pipeline.stages import load

jax = pytest.importorskip("jax")

FOLDER = Path(__file__).parents[1] / "data/hlo/host"
PROGRAMS = sorted(FOLDER.glob("*.mlir"))
SAID = r'((?:arg|out)_memory_spaces)="([^"]*5[^"]*)"'

SHARED = """\
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  func.func @main(%a: tensor<8x16xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}", mhlo.memory_kind = "pinned_host"})
      -> (tensor<8x16xf32> {mhlo.sharding = "{devices=[4,1]<=[4]}"}) {
    %b = stablehlo.custom_call @annotate_device_placement(%a) {has_side_effect = true,
      mhlo.frontend_attributes = {_xla_buffer_placement = "device"}} : (tensor<8x16xf32>) -> tensor<8x16xf32>
    %c = stablehlo.negate %b : tensor<8x16xf32>
    return %c : tensor<8x16xf32>
  }
}
"""


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_arguments_and_results_are_where_pjrt_has_them(path):
    """In the header of what the TPU compiler made of the same program."""
    compiled = gzip.decompress(path.with_suffix(".v5e.hlo.txt.gz").read_bytes()).decode()
    assert re.findall(SAID, hlo_text(path.read_bytes(), path.name)) == re.findall(SAID, compiled)


def test_a_partitioned_program_keeps_its_arguments_there_and_says_what_it_lost(tmp_path):
    """XLA partitions it for CPUs, and takes the moves out before."""
    (tmp_path / "shared.mlir").write_text(SHARED)
    module = load(tmp_path / "shared.mlir")
    assert str(module.attributes["entry_computation_layout"].parameters[0]) == "f32[2,16]{1,0:S(5)}"
    assert 'tpusim_host_moves_lost="true"' in module.text


def test_a_memory_that_is_no_name_is_refused(tmp_path):
    """By what was found."""
    path = tmp_path / "odd.mlir"
    path.write_text(SHARED.replace('mhlo.memory_kind = "pinned_host"', 'mhlo.memory_kind = ["pinned_host"]'))
    with pytest.raises(ProgramError, match=r"memory_kind: expected the name of a memory, found"):
        load(path)


@pytest.mark.parametrize("devices", [64, 1024])
def test_a_program_for_many_devices_is_cut_up(tmp_path, devices):
    """Each has threads, whose stacks are addresses and no memory."""
    path = tmp_path / "many.mlir"
    text = SHARED.replace("num_partitions = 4", f"num_partitions = {devices}").replace("8x16", f"{2 * devices}x16")
    path.write_text(text.replace("[4,1]<=[4]", f"[{devices},1]<=[{devices}]"))
    assert load(path).partition_count == devices


@pytest.mark.parametrize("header", ["HloModule m", "HloModule m, frontend_attributes={a={b = 1}}"])
def test_a_mark_is_in_the_header(header):
    """Beside what stands there."""
    text = with_marks(f"{header}\n\nENTRY e {{}}\n", lost_moves("", "annotate_device_placement"))
    first, rest = text.split("\n", 1)
    assert first.startswith("HloModule m, frontend_attributes={tpusim_host_moves_lost=")
    assert first.count("frontend_attributes") == 1
    assert rest == "\nENTRY e {}\n"
