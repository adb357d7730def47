"""The order of kernels. Source: XLA, the list schedule of HloMemoryScheduler; the oracle is every order there is."""

from __future__ import annotations

from itertools import permutations

import pytest

from tests.compiler.overwrite_cases import CASES, written_out
from tests.compiler.programs import compiled
from tpusim.compiler.passes import PASSES
from tpusim.pipeline.stages import check, memory
from tpusim.shapes.address import physical_bytes

# Sorts are no kernels, so that each stays what it is; two large values, each brought down to a small one.
WIDE = """HloModule m

less { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[1024,1024] parameter(0)
  y = f32[1024,1024] parameter(1)
  zero = f32[] constant(0)
  one = f32[1024,1024] sort(x), dimensions={1}, to_apply=less
  two = f32[1024,1024] sort(y), dimensions={1}, to_apply=less
  three = f32[1024,1024] sort(y), dimensions={0}, to_apply=less
  small = f32[1024] reduce(one, zero), dimensions={1}, to_apply=add
  smaller = f32[1024] reduce(two, zero), dimensions={1}, to_apply=add
  least = f32[1024] reduce(three, zero), dimensions={1}, to_apply=add
  some = f32[1024] add(small, smaller)
  ROOT all = f32[1024] add(some, least)
}
"""


def peak_bytes(order, entry):
    """Return the most bytes that live at once, from the definition: what is made and is still to be read."""
    peak = 0
    for at in range(len(order)):
        later = {name for i in order[at:] for name in i.operands} | {entry.root_name}
        peak = max(peak, sum(physical_bytes(i.shape) for i in order[: at + 1] if i.name in later or i is order[at]))
    return peak


def orders_of(nodes):
    """Yield all orders in which operands come before their users."""
    for order in permutations(nodes):
        place = {node.name: at for at, node in enumerate(order)}
        if all(place[name] < place[i.name] for i in order for name in i.operands if name in place):
            yield order


def test_no_order_keeps_fewer_bytes():
    """Of all orders of a program that makes three large values and needs one at a time."""
    entry = compiled(WIDE, "v3").entry
    nodes = [i for i in entry if i.opcode not in ("parameter", "constant")]
    assert len(nodes) == 7
    assert peak_bytes(nodes, entry) == min(peak_bytes(order, entry) for order in orders_of(nodes))


PAIR = """HloModule m

less {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = pred[] compare(a, b), direction=LT }}
pairs {{ a = f32[] parameter(0)  b = f32[] parameter(1)  c = f32[] parameter(2)  d = f32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }}
add {{ a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }}

ENTRY e {{
  x = f32[1024,1024] parameter(0)
  y = f32[512,1024] parameter(1)
  zero = f32[] constant(0)
  pair = (f32[1024,1024], f32[1024,1024]) sort(x, x), dimensions={{1}}, to_apply=pairs
  a = f32[1024,1024] get-tuple-element(pair), index=0
  b = f32[1024,1024] get-tuple-element(pair), index=1
  {held}
  large = f32[1024,1024] sort(c), dimensions={{0}}, to_apply=less
  r = f32[1024] reduce(a, zero), dimensions={{1}}, to_apply=add
  s = f32[1024] reduce(large, zero), dimensions={{1}}, to_apply=add
  wide = f32[512,1024] broadcast(r), dimensions={{1}}
  z = f32[512,1024] add(y, wide)
  k = f32[512,1024] sort(z), dimensions={{0}}, to_apply=less
  l = f32[512,1024] sort(z), dimensions={{1}}, to_apply=less
  m = f32[512,1024] sort(k), dimensions={{1}}, to_apply=less
  ROOT t = (f32[512,1024], f32[512,1024], f32[512,1024], f32[1024], f32[1024]) tuple(k, l, m, r, s)
}}
"""


@pytest.mark.parametrize(
    "held",
    [
        "c = f32[1024,1024] copy(b)",
        "h = (f32[1024,1024], f32[1024,1024]) tuple(b, x)  v = (f32[1024,1024], f32[1024,1024]) opt-barrier(h)  "
        "c = f32[1024,1024] get-tuple-element(v), index=0",
    ],
)
def test_what_is_taken_out_of_a_tuple_lives_until_it_is_read(held):
    """Also behind a barrier: what reads the second of a pair, and frees it, comes before what only makes something."""
    entry = compiled(PAIR.format(held="\n  ".join(held.split("  "))), "v3").entry
    sizes = [i.shape.dimensions for i in entry if i.opcode == "sort" and i.operands[1:] == ()]
    assert sizes == [(1024, 1024), (512, 1024), (512, 1024), (512, 1024)]


@pytest.mark.parametrize("chip", ["v3", "v5e"])
def test_operands_come_before_their_users(chip):
    """Also of what later passes put in."""
    for computation in compiled(WIDE, chip).computations:
        seen = set()
        for instruction in computation:
            assert seen.issuperset(instruction.operands)
            seen.add(instruction.name)


ORDERED = """HloModule m

ENTRY e {
  p = f32[1024,1024] parameter(0)
  q = f32[1024,1024] parameter(1)
  a = f32[1024,1024] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[1024,1024] dot(q, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}FIRST
  c = f32[1024,1024] add(b, b)SECOND
  ROOT t = (f32[1024,1024], f32[1024,1024]) tuple(ENDS)
}
"""


@pytest.mark.parametrize("ends", ["a, c", "c, a"])
@pytest.mark.parametrize("place", ["FIRST", "SECOND"])
def test_what_is_to_come_later_does(place, ends):
    """A control predecessor stands first, also where what names it was fused; and it is named no more."""
    text = ORDERED.replace(place, ", control-predecessors={a}").replace("ENDS", ends)
    module = compiled(text.replace("FIRST", "").replace("SECOND", ""), "v5e")
    opcodes = [i.opcode for i in module.entry if i.opcode in ("fusion", "dot", "convolution")]
    assert opcodes[-1] == "fusion"
    assert not any("control-predecessors" in i.attributes for computation in module.computations for i in computation)


EARLY = {
    "copies": written_out(CASES["a donated argument is read when the result has been made"]),
    "loop": written_out(CASES["a loop updates one of the arrays that it swaps"]),
    "fused": ORDERED.replace("FIRST", "").replace("SECOND", ", control-predecessors={a}").replace("ENDS", "c, a"),
    "other": ORDERED.replace("FIRST", ", control-predecessors={a}").replace("SECOND", "").replace("ENDS", "c, a"),
}


@pytest.mark.parametrize("stop_after", [name for name, _ in PASSES])
@pytest.mark.parametrize("program", EARLY)
def test_what_has_no_order_yet_is_written_in_one_that_is_stated(program, stop_after):
    """Else nothing could read it."""
    module = compiled(EARLY[program], "v5e", stop_after)
    assert check(module) == []


@pytest.mark.parametrize("program", ["fused", "other"])
@pytest.mark.parametrize("stop_after", ["inline", "fuse", "order"])
def test_what_is_stated_is_kept_until_there_is_an_order(program, stop_after):
    """A fusion waits for what one in it waits for."""
    entry = compiled(EARLY[program], "v5e", stop_after).entry
    waiting = [i.attributes["control-predecessors"] for i in entry if "control-predecessors" in i.attributes]
    assert waiting == [("a",)]


STEP = """HloModule step, ALIASES num_partitions=4

add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }

ENTRY e {
  x = f32[512,8192] parameter(0)
WEIGHTS
  ROOT all = (f32[8192,8192], f32[8192,8192], f32[8192,8192]) tuple(new0, new1, new2)
}
"""
WEIGHT = """
  w{n} = f32[8192,8192] parameter({at})
  y{n} = f32[512,8192] {made}(x)
  g{n} = f32[8192,8192] dot(x, y{n}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  sum{n} = f32[8192,8192] all-reduce(g{n}), channel_id={at}, replica_groups={{{{0,1,2,3}}}}, use_global_device_ids=true,
    to_apply=add
  new{n} = f32[8192,8192] subtract(w{n}, sum{n})
"""


@pytest.mark.parametrize("is_given_away", [True, False])
def test_weights_are_updated_as_soon_as_their_gradients_are_summed(is_given_away):
    """As the TPU compiler has the layers of a training step: of all sums one array is there at a time."""
    weights = [WEIGHT.format(n=n, at=n + 1, made=made) for n, made in enumerate(("tanh", "negate", "exponential"))]
    aliases = ", ".join(f"{{{n}}}: ({n + 1}, {{}}, may-alias)" for n in range(3))
    header = f"input_output_alias={{ {aliases} }}," if is_given_away else ""
    text = STEP.replace("ALIASES", header).replace("WEIGHTS", "".join(weights))
    module = compiled(text, "v5p")
    matrix = 8192 * 8192 * 4
    # The arguments, results that have no place among them, and one gradient.
    assert memory(module, "v5p").use.peak_hbm_bytes < (3 + (0 if is_given_away else 3) + 1 + 0.5) * matrix
