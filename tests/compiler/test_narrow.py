"""What products round to bf16 is stored as that, and no value changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compiler.programs import SUM, compiled
from tests.compiler.test_any_graph import program
from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute, load
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

FOLDER = Path(__file__).parents[1] / "data" / "numeric"
FILES = sorted(path for path in FOLDER.glob("*.hlo.txt.gz") if ".v5e." not in path.name)

HEAD = f"""HloModule m

{SUM}

ENTRY e {{
  x = f32[64,32] parameter(0)
  w = f32[32,16] parameter(1)
  t = f32[64,32] tanh(x)
"""
DOT = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"


def types(lines, head=HEAD):
    """Return the types of the operands of what is called y, after the pass."""
    module = compiled(head + lines + "\n}\n", stop_after="narrow", narrows=True)
    assert check(module) == []
    y = next(i for computation in module.computations for i in computation if i.name == "y")
    home = next(computation for computation in module.computations if "y" in computation.by_name)
    return [home[name].shape.dtype.name for name in y.operands]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (f"  ROOT y = f32[64,16] dot(t, w), {DOT}", ["bf16", "f32"]),
        (f"  ROOT y = f32[64,16] dot(t, w), {DOT}, operand_precision={{highest,highest}}", ["f32", "f32"]),
        (f"  ROOT y = f32[64,16] dot(t, w), {DOT}, algorithm=dot_f32_f32_f32", ["f32", "f32"]),
        (f"  y = f32[64,16] dot(t, w), {DOT}\n  ROOT r = (f32[64,16], f32[64,32]) tuple(y, t)", ["f32", "f32"]),
        (f"  u = f32[64,32] abs(t)\n  ROOT y = f32[64,16] dot(u, w), {DOT}", ["bf16", "f32"]),
        (f"  u = f32[64,32] add(t, x)\n  ROOT y = f32[64,16] dot(u, w), {DOT}", ["bf16", "f32"]),
        (f"  y = f32[64,16] dot(t, w), {DOT}\n  ROOT r = f32[64,16] tanh(y)", ["bf16", "f32"]),
        (f"  u = f32[64,32] convert(t)\n  ROOT y = f32[64,16] dot(u, w), {DOT}", ["bf16", "f32"]),
        (f"  v = f32[32,16] reverse(w), dimensions={{1}}\n  ROOT y = f32[64,16] dot(x, v), {DOT}", ["f32", "bf16"]),
    ],
)  # fmt: skip
def test_what_only_products_take_is_narrow(lines, expected):
    """What the host gives, what something else uses, and what a product takes whole are as they are."""
    assert types(lines) == expected


@pytest.mark.parametrize(
    ("lines", "moved"),
    [
        ("u = f32[64,32] reverse(t), dimensions={0}\n  m = f32[64,32] slice(u), slice={[0:64], [0:32]}", "u"),
        ("u = f32[64,64] concatenate(t, t), dimensions={1}\n  m = f32[64,32] slice(u), slice={[0:64], [16:48]}", "u"),
        ("n = f32[] constant(0)\n  m = f32[64,32] broadcast(n), dimensions={}\n  u = f32[64,32] maximum(t, m)", "u"),
        ("i = s32[64] iota(), iota_dimension=0\n  u = f32[64,32] gather(t, i), offset_dims={1},"
         " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,32}", "u"),
        ("n = s32[] constant(3)\n  c = f32[8,32] slice(t), slice={[0:8], [0:32]}\n"
         "  u = f32[64,32] dynamic-update-slice(t, c, n, n)", "u"),
        ("u = f32[64,32] collective-permute(t), source_target_pairs={}", "u"),
    ],
)  # fmt: skip
def test_what_moves_it_moves_half_as_much(lines, moved):
    """Through any number of moves, also to other devices."""
    last = lines.rsplit("\n", 1)[-1].split()[0]
    module = compiled(
        f"{HEAD}  {lines}\n  ROOT y = f32[64,16] dot({last}, w), {DOT}\n}}\n", stop_after="narrow", narrows=True
    )
    assert check(module) == []
    assert module.entry[moved].shape.dtype.name == "bf16"


@pytest.mark.parametrize(("rows", "converted"), [(4, "u"), (64, "x"), (512, "x")])
def test_what_is_less_is_converted_a_table_or_its_rows(rows, converted):
    """A table of 64 rows is an argument, which stays what it is."""
    taken = (
        f"  i = s32[{rows}] iota(), iota_dimension=0\n  u = f32[{rows},32] gather(x, i), offset_dims={{1}},"
        " collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1, slice_sizes={1,32}\n"
    )
    module = compiled(f"{HEAD}{taken}  ROOT y = f32[{rows},16] dot(u, w), {DOT}\n}}\n", "v5e", "narrow", narrows=True)
    (convert,) = [i for i in module.entry if i.opcode == "convert"]
    assert convert.operands == (converted,)


LOOP = """HloModule m
more {
  p = (s32[], f32[64,32], f32[4,32,32], f32[64,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(4)
  ROOT go = pred[] compare(i, n), direction=LT
}
body {
  p = (s32[], f32[64,32], f32[4,32,32], f32[64,32]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  zero = s32[] constant(0)
  next = s32[] add(i, one)
  h = f32[64,32] get-tuple-element(p), index=1
  ws = f32[4,32,32] get-tuple-element(p), index=2
  s = f32[64,32] get-tuple-element(p), index=3
  part = f32[1,32,32] dynamic-slice(ws, i, zero, zero), dynamic_slice_sizes={1,32,32}
  w = f32[32,32] reshape(part)
  y = f32[64,32] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  new = f32[64,32] tanh(y)
  sum = f32[64,32] add(s, new)
  ROOT r = (s32[], f32[64,32], f32[4,32,32], f32[64,32]) tuple(next, new, ws, sum)
}
ENTRY e {
  x = f32[64,32] parameter(0)
  ws = f32[4,32,32] parameter(1)
  zero = s32[] constant(0)
  first = (s32[], f32[64,32], f32[4,32,32], f32[64,32]) tuple(zero, x, ws, x)
  loop = (s32[], f32[64,32], f32[4,32,32], f32[64,32]) while(first), condition=more, body=body
  ROOT out = f32[64,32] get-tuple-element(loop), index=RESULT
}
"""


@pytest.mark.parametrize(("result", "state"), [("3", "bf16"), ("1", "f32")])
def test_what_a_loop_carries_is_converted_once(result, state):
    """As the TPU compiler does with a stack of weights, and with a state that is no result."""
    module = compiled(LOOP.replace("RESULT", result), stop_after="narrow", narrows=True)
    assert check(module) == []
    loop = next(i for i in module.entry if i.opcode == "while")
    # The sum is carried if it is read behind the loop.
    assert [each.dtype.name for each in loop.shape.elements] == ["s32", state, "bf16", "f32"][: 3 + (result == "3")]
    body = module[loop.attributes["body"]]
    assert not [i for i in body if i.opcode == "convert" and len(i.shape.dimensions) == 3]


CHOICE = """HloModule m
one {{
  a = f32[64,32] parameter(0)
  ROOT b = f32[64,32] tanh(a)
}}
two {{
  a = f32[64,32] parameter(0)
  ROOT b = f32[64,32] copy(a)
}}
ENTRY e {{
  p = pred[] parameter(0)
  x = f32[64,32] parameter(1)
  w = f32[32,16] parameter(2)
  t = f32[64,32] negate(x)
  c = f32[64,32] conditional(p, t, t), true_computation=one, false_computation=two
  d = f32[64,32] conditional(p, x, x), true_computation=one, false_computation=two
  y = f32[64,16] dot(c, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  z = f32[64,16] dot(d, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = (f32[64,16], f32[64,16]{more}) tuple(y, z{also})
}}
"""


@pytest.mark.parametrize(("more", "also", "other"), [("", "", "bf16"), (", f32[64,32]", ", d", "f32")])
def test_branches_give_what_all_that_take_them_round(more, also, other):
    """And take what is narrow, where they only hand it on; of two with the same branches each has its own."""
    module = compiled(CHOICE.format(more=more, also=also), stop_after="narrow", narrows=True)
    assert check(module) == []
    assert [module.entry[name].shape.dtype.name for name in "cd"] == ["bf16", other]


def test_what_the_host_feeds_comes_as_it_is():
    """A tuple in a tuple, whose array is converted once it is there."""
    text = f"""HloModule m

ENTRY e {{
  w = f32[32,16] parameter(0)
  start = token[] after-all()
  fed = ((f32[64,32]), token[]) infeed(start)
  batch = (f32[64,32]) get-tuple-element(fed), index=0
  x = f32[64,32] get-tuple-element(batch), index=0
  ROOT y = f32[64,16] dot(x, w), {DOT}
}}
"""
    module = compiled(text, "v5e", "narrow", narrows=True)
    assert check(module) == []
    (convert,) = [i for i in module.entry if i.opcode == "convert"]
    assert convert.operands == ("x",)


def same(before, after, inputs):
    """Check that two modules compute the same bits as a TPU would."""
    given, made = (execute(each, inputs, precision="tpu", chip="v5e") for each in (before, after))
    flat = [[each] if isinstance(each, np.ndarray) else each for each in (given, made)]
    for one, other in zip(*flat, strict=True):
        assert np.asarray(one).tobytes() == np.asarray(other).tobytes()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".hlo.txt.gz"))
def test_no_bit_of_a_real_program_changes(path):
    """Before the pass and after it."""
    stored = np.load(str(path).removesuffix(".hlo.txt.gz") + ".npz")
    inputs = {name: stored[name] for name in stored if name.startswith("in")}
    target = Target(load_chip("v5e"))
    same(*(compile_module(load(path), target, stage) for stage in ("space-to-batch", "narrow")), inputs)


@pytest.mark.parametrize("seed", range(40))
def test_no_bit_of_a_graph_of_any_shape_changes(seed):
    """Of products, moves and sums at random."""
    module, target = parse_module(SourceText("t", program(seed, 60))), Target(load_chip("v5e"))
    draw = np.random.default_rng(seed).uniform
    inputs = [draw(-0.2, 0.2, shape).astype(np.float32) for shape in [(16, 16)] * 2 + [(16,)] * 2]
    same(*(compile_module(module, target, stage) for stage in ("space-to-batch", "narrow")), inputs)


@pytest.mark.parametrize("result", ["1", "3"])
def test_no_bit_of_a_loop_changes(result):
    """Nor of what its trips hand on."""
    text, target = LOOP.replace("RESULT", result), Target(load_chip("v5e"))
    draw = np.random.default_rng(1).uniform
    inputs = [draw(-1, 1, shape).astype(np.float32) for shape in [(64, 32), (4, 32, 32)]]
    module = parse_module(SourceText("t", text))
    same(*(compile_module(module, target, stage) for stage in ("space-to-batch", "narrow")), inputs)


LAYERS = """HloModule m

ENTRY e {
  a = f32[64,512,63] parameter(0)
  v = f32[63,256] parameter(1)
  w = f32[256,256] parameter(2)
  x = f32[512,64,63] transpose(a), dimensions={1,0,2}
  zero = f32[] constant(0)
  zeros = f32[512,64,256] broadcast(zero), dimensions={}
  p0 = f32[512,64,256] dot(x, v), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  m1 = f32[512,64,256] maximum(p0, zeros)
  p1 = f32[512,64,256] dot(m1, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  m2 = f32[512,64,256] maximum(p1, zeros)
  p2 = f32[512,64,256] dot(m2, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  m3 = f32[512,64,256] maximum(p2, zeros)
  p3 = f32[512,64,256] dot(m3, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  n = f32[512,64,256] maximum(p3, zeros)
  u = f32[256,4] parameter(3)
  ROOT r = f32[512,64,4] dot(n, u), lhs_contracting_dims={2}, rhs_contracting_dims={0}
}
"""


def test_layers_on_two_dimensions_stay_in_one_order():
    """The zero of a relu is laid out as each layer is, and no layer is copied for it.

    As libtpu 0.0.52 compiles a radiance field for v5e: two layers of it are in one kernel, as they are below.
    """
    module = compiled(LAYERS, narrows=True)
    copied = {i.shape.dimensions for computation in module.computations for i in computation if i.opcode == "copy"}
    assert (512, 64, 256) not in copied
    kernels = [module[i.attributes["calls"]] for i in module.entry if i.opcode == "fusion"]
    assert max([i.opcode for i in kernel].count("dot") for kernel in kernels) == 2
