"""Host memory in compiled programs: what lies there, what moves there and back, and when.

The oracle is what the TPU compiler makes of the same functions, simulated as well.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.compiler.programs import compiled
from tpusim.errors import UnsupportedError
from tpusim.pipeline.stages import check, execute, memory, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tests/data/hlo/host"
NAMES = sorted(path.stem for path in FOLDER.glob("*.mlir"))
PARAMETERS = ROOT / "traces/host/parameter_offload.v5e.hlo.txt.gz"


def forms(name):
    """Return what the TPU compiler made of a program, and both forms from which we may compile it."""
    given = FOLDER / f"{name}.v5e.hlo.txt.gz"
    return simulate(given, "v5e"), simulate(given, "v5e", schedule="compiled"), simulate(FOLDER / f"{name}.mlir", "v5e")


@pytest.mark.parametrize("name", NAMES)
def test_programs_are_as_the_tpu_compiler_has_them(name):
    """Time within a tenth, the same bytes over the host's links, the same arguments and results, and no more in HBM."""
    given, *ours = forms(name)
    use = given.summary.memory
    for run in ours:
        assert run.time_us == pytest.approx(given.time_us, rel=0.1)
        for link in ("host_in", "host_out"):
            assert run.summary.counts.get(link) == given.summary.counts.get(link)
        mine = run.summary.memory
        assert (mine.argument_bytes, mine.output_bytes) == (use.argument_bytes, use.output_bytes)
        assert mine.peak_hbm_bytes <= use.peak_hbm_bytes + 2**20


def test_arguments_in_host_memory_stay_there():
    """They take no place in HBM, and the time is that of the links, by hand: two arrays of 64 MiB at 16 GB/s."""
    run = simulate(PARAMETERS, "v5e", schedule="compiled")
    assert run.summary.memory.argument_bytes == 64 * 2**20
    assert run.time_us > 2 * 64 * 2**20 / 16e9 * 1e6


TO_HOST = 'custom-call(a), custom_call_target="annotate_device_placement", custom_call_has_side_effect=true'
HOST = ', frontend_attributes={_xla_buffer_placement="pinned_host"}'
DEVICE = ', frontend_attributes={_xla_buffer_placement="device"}'


WHOLE = "operand_precision={highest,highest}"
"""Of several passes: a product that has its kernel for itself."""


def text_of(between="", back="b", header=""):
    """Return a program that moves a product to the host, and back where its transpose is needed."""
    moved = f"f32[256,512] {TO_HOST.replace('(a)', f'({back})')}{DEVICE}"
    return f"""HloModule m{header}

ENTRY e {{
  x = f32[512,512] parameter(0)
  y = f32[512,256] parameter(1)
  a = f32[512,256] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  h = f32[512,256] {TO_HOST}{HOST}
  b = f32[256,512] transpose(h), dimensions={{1,0}}
  {between}
  c = {moved}
  s = f32[512,256] sine(a)
  t = f32[512,256] dot(x, s), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}, {WHOLE}
  ROOT d = f32[256,256] dot(c, t), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
"""


def test_what_is_moved_computes_the_same():
    """There and back, with a transpose between the two."""
    plain, module = parse_module(SourceText("m", text_of())), compiled(text_of())
    assert check(module) == []
    inputs = [np.random.default_rng(1).standard_normal(p.shape.dimensions, "f4") for p in plain.entry.parameters]
    one, other = (execute(m, inputs, precision="exact") for m in (plain, module))
    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-4)


def test_moves_run_beside_what_does_not_need_them():
    """One way begins behind what makes the array, the way back ends before what needs it; a kernel runs between."""
    opcodes = [i.opcode for i in compiled(text_of(), stop_after="host-copies").entry]
    kernels = [at for at, opcode in enumerate(opcodes) if opcode in ("dot", "fusion")]
    starts = [at for at, opcode in enumerate(opcodes) if opcode == "copy-start"]
    assert len(starts) == 2
    assert kernels[0] < starts[0] < kernels[1] < kernels[-1]
    assert opcodes[kernels[-1] - 1] in ("copy-done", "bitcast")


@pytest.mark.parametrize("back", ["a", "h"])
def test_a_move_to_where_an_array_is_moves_nothing(back):
    """To the device what is there, and to the host what is read there twice."""
    between = f"g = f32[512,256] {TO_HOST.replace('(a)', '(h)')}{HOST}\n  k = f32[256,512] reshape({back})"
    module = compiled(text_of(between, "k"), stop_after="host-moves")
    targets = [str(i.attributes.get("custom_call_target")) for i in module.entry]
    assert targets.count("MoveToHost") == targets.count("MoveToDevice") == (back == "h")


def test_what_reads_host_memory_reads_a_copy_on_the_device():
    """JAX on the CPU leaves the move out: it knows one memory there."""
    header = ', frontend_attributes={arg_memory_spaces="0;5"}'
    text = text_of(header=header)
    module = compiled(text, stop_after="host-copies")
    x, y = module.entry.parameters
    assert (x.shape.memory_space, y.shape.memory_space) == (0, 5)
    assert [user.opcode for user, _ in module.entry.users[y.name]] == ["copy-start"]


STACK = """HloModule m, frontend_attributes={arg_memory_spaces="5;0"}

body {
  p = (s32[], f32[8,256,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  w = f32[8,256,256] get-tuple-element(p), index=1
  x = f32[256,256] get-tuple-element(p), index=2
  zero = s32[] constant(0)
  part = f32[1,256,256] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,256,256}
  m = f32[256,256] reshape(part)
  y = f32[256,256] dot(x, m), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  one = s32[] constant(1)
  n = s32[] add(i, one)
  ROOT r = (s32[], f32[8,256,256], f32[256,256]) tuple(n, w, y)
}

condition {
  p = (s32[], f32[8,256,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  last = s32[] constant(8)
  ROOT c = pred[] compare(i, last), direction=LT
}

ENTRY e {
  w = f32[8,256,256] parameter(0)
  x = f32[256,256] parameter(1)
  zero = s32[] constant(0)
  s = (s32[], f32[8,256,256], f32[256,256]) tuple(zero, w, x)
  l = (s32[], f32[8,256,256], f32[256,256]) while(s), condition=condition, body=body
  ROOT y = f32[256,256] get-tuple-element(l), index=2
}
"""


def test_a_loop_takes_its_part_of_what_lies_in_host_memory():
    """Each trip brings in a slice, and no trip the whole."""
    module = compiled(STACK)
    assert check(module) == []
    (start,) = (i for c in module.computations for i in c if i.opcode == "dynamic-slice-start")
    assert re.search(r"f32\[8,256,256\]\S*S\(5\)", str(start.shape))
    run = simulate(module, "v5e")
    assert run.summary.counts["host_in"] == 8 * 256 * 256 * 4
    assert memory(module, "v5e").use.argument_bytes == 256 * 256 * 4


def test_a_result_lies_where_the_program_says():
    """In host memory without a move of its own."""
    header = ', frontend_attributes={out_memory_spaces="5"}'
    module = compiled(text_of(header=header))
    assert module.entry.root.shape.memory_space == 5
    assert memory(module, "v5e").use.output_bytes == 0


def test_arguments_in_tuples_in_host_memory_are_refused():
    """Which of them it is said of is not followed: better no time than a wrong one."""
    header = ', frontend_attributes={arg_memory_spaces="0;5;0"}'
    with pytest.raises(UnsupportedError, match="host memory to be in no tuple"):
        compiled(text_of(header=header))


IN_PLACE = """HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }, frontend_attributes={out_memory_spaces="5;0"}

ENTRY e {
  x = f32[512,512] parameter(0)
  y = f32[1,512] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  w = f32[512,512] dynamic-update-slice(x, y, i, zero)
  ROOT r = (f32[512,512], f32[512,512]) tuple(x, w)
}
"""


def test_what_is_sent_is_written_over_when_it_has_gone():
    """The end of the copy comes before the kernel that writes in its place."""
    module = compiled(IN_PLACE)
    opcodes = [i.opcode for i in module.entry]
    assert check(module) == []
    assert opcodes.index("copy-done") < opcodes.index("dynamic-update-slice")
    assert memory(module, "v5e").use.output_bytes < 512 * 512 * 4 + 4096


READ_AND_WRITTEN = """HloModule m, input_output_alias={ {1}: (0, {}, may-alias) }, \
frontend_attributes={arg_memory_spaces="5;0;0",out_memory_spaces="0;5"}

ENTRY e {
  x = f32[8,512] parameter(0)
  y = f32[1,512] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  part = f32[1,512] dynamic-slice(x, i, zero), dynamic_slice_sizes={1,512}
  sum = f32[1,512] add(part, y)
  h = f32[1,512] custom-call(y), custom_call_target="MoveToHost"
  w = f32[8,512] dynamic-update-slice(x, h, i, zero)
  ROOT r = (f32[1,512], f32[8,512]) tuple(sum, w)
}
"""


def test_a_part_comes_in_before_it_is_written_over():
    """Both at the same place of an array in host memory, of which there is no copy."""
    module = compiled(READ_AND_WRITTEN)
    opcodes = [i.opcode for i in module.entry]
    assert check(module) == []
    assert "copy" not in opcodes
    assert opcodes.index("dynamic-slice-done") < opcodes.index("dynamic-update-slice-start")


def test_copies_that_nobody_asked_for_stay_in_host_memory():
    """What is read after it has been written over, since what was written says where, is copied where it lies."""
    text = READ_AND_WRITTEN.replace("  part = ", "  BEFORE  part = ").replace("slice(x, i, zero)", "slice(x, k, zero)")
    last = [line for line in text.splitlines(keepends=True) if line.startswith(("  h = ", "  w = "))]
    asked = "  o = f32[1,512] dynamic-slice(w, i, zero), dynamic_slice_sizes={1,512}\n  c = f32[1,1] slice(o), "
    asked += "slice={[0:1], [0:1]}\n  d = f32[] reshape(c)\n  k = s32[] convert(d)\n"
    for line in last:
        text = text.replace(line, "")
    module = compiled(text.replace("  BEFORE", "".join(last) + asked))
    assert check(module) == []
    wholes = [i.shape for i in module.entry if "f32[8,512]" in str(i.shape) and i.opcode in ("copy", "parameter")]
    assert {shape.memory_space for shape in wholes} == {5}
    assert len(wholes) > 1
