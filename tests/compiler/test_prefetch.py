"""Prefetches: only beside what leaves HBM idle, only where there is room, and no program is slower for them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, load, lower, run_program
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

FOLDER = Path(__file__).parents[1] / "data" / "numeric"
FILES = sorted(path for path in FOLDER.glob("*.hlo.txt.gz") if ".v5e." not in path.name)

# ``first`` and ``second`` multiply for long and read little; ``y`` reads 8 MiB of weights for few products.
WEIGHTS = """HloModule weights
ENTRY main {
  x = bf16[2048,2048] parameter(0)
  v = bf16[2048,8] parameter(1)
  w = bf16[2048,2048] parameter(2)
  first = bf16[2048,2048] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  second = bf16[2048,2048] dot(first, first), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  vector = bf16[2048,8] dot(second, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT y = bf16[2048,8] dot(w, vector), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


def compiled(text, fast_mib=112):
    """Return what a program becomes on a v5e that leaves so much VMEM to whole arrays."""
    chip = load_chip("v5e")
    chip = load_chip("v5e", {"vmem.capacity_bytes": chip.vmem.scoped_bytes + (fast_mib << 20)})
    module = compile_module(parse_module(SourceText("test", text)), Target(chip))
    assert check(module) == []
    return module


def starts(module):
    """Return what copies start from, in the order of the schedule."""
    return [i.operands[0] for i in module.entry.instructions if i.opcode == "copy-start"]


def test_weights_come_in_beside_products():
    """Before the products, which are bound by the matrix unit; the wait stands where they are read."""
    module = compiled(WEIGHTS)
    order = [i.name for i in module.entry]
    start = next(i for i in module.entry if i.opcode == "copy-start" and i.operands == ("w",))
    done = next(i for i in module.entry if i.operands == (start.name,))
    (reader,) = (i for i in module.entry if done.name in i.operands)
    assert order.index(start.name) < order.index("second") < order.index(reader.name)


@pytest.mark.parametrize("view", ["moved", "seen"])
def test_what_a_permute_brings_is_not_asked_for_before_it_is_there(view):
    """A copy would end the permute ahead of the products that hide it, also one of a view of its result.

    Of 31 programs compiled ahead of time for v5e with permutes none fetches what one brings.
    """
    text = WEIGHTS.replace("HloModule weights", "HloModule weights, num_partitions=2")
    text = text.replace("ROOT y = bf16[2048,8] dot(w,", f"ROOT y = bf16[2048,8] dot({view},").replace(
        "  first =",
        "  moved = bf16[2048,2048] collective-permute(w), channel_id=1, source_target_pairs={{0,1},{1,0}}\n"
        "  seen = bf16[2048,2048] opt-barrier(moved)\n  first =",
    )
    module = compiled(text)
    end = next(i for i in module.entry if i.opcode == "collective-permute-done")
    assert end.name not in starts(module)
    order = [i.name for i in module.entry]
    assert order.index("collective-permute-start") < order.index("second") < order.index(end.name)


def test_what_is_read_at_once_is_not_prefetched():
    """No kernel is there to hide it."""
    text = """HloModule at_once
ENTRY main {
  v = bf16[2048,8] parameter(0)
  w = bf16[2048,8] parameter(1)
  ROOT y = bf16[2048,8] add(w, v)
}
"""
    assert starts(compiled(text)) == []


def test_without_room_nothing_is_fetched():
    """The weights take 8 MiB."""
    assert "w" not in starts(compiled(WEIGHTS, 4))


LAYER_NORM = """HloModule layer_norm
add { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }
ENTRY main {
  x = f32[8192,2048] parameter(0)
  zero = f32[] constant(0)
  sums = f32[8192] reduce(x, zero), dimensions={1}, to_apply=add
  mean = f32[8192,2048] broadcast(sums), dimensions={0}
  less = f32[8192,2048] subtract(x, mean)
  squares = f32[8192,2048] multiply(less, less)
  variance = f32[8192] reduce(squares, zero), dimensions={1}, to_apply=add
  spread = f32[8192,2048] broadcast(variance), dimensions={0}
  ROOT y = f32[8192,2048] divide(less, spread)
}
"""


def test_what_several_kernels_wait_for_comes_in_beside_one_that_reads_it_too():
    """As the TPU compiler lets the rows of a norm come in beside their first sum, which leaves HBM no time."""
    module = compiled(LAYER_NORM)
    assert starts(module) == ["x"]
    chip = load_chip("v5e")
    before = compile_module(parse_module(SourceText("test", LAYER_NORM)), Target(chip), "order")
    times = [run_program(lower(one, chip), chip).total_ps for one in (module, before)]
    assert times[0] < 0.85 * times[1]


TWICE = """HloModule twice
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
ENTRY main {
  x = f32[4096,1024] parameter(0)
  v = f32[1024] parameter(1)
  zero = f32[] constant(0)
  e = f32[1024] exponential(v)
  wide = f32[4096,1024] broadcast(e), dimensions={1}
  p = f32[4096,1024] multiply(x, wide)
  a = f32[4096] reduce(p, zero), dimensions={1}, to_apply=add
  tall = f32[4096,1024] broadcast(a), dimensions={0}
  q = f32[4096,1024] multiply(x, tall)
  ROOT b = f32[1024] reduce(q, zero), dimensions={0}, to_apply=add
}
"""


def test_what_several_kernels_wait_for_does_not_come_in_beside_one_that_ends_before():
    """As the TPU compiler has it in the trips of a loop: the first reader takes it from HBM, and hides nothing."""
    assert starts(compiled(TWICE)) == []


@pytest.mark.parametrize("chip", ["v4", "v5e", "v5p", "v6e"])
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name.removesuffix(".hlo.txt.gz"))
def test_no_program_is_slower_for_its_places(path, chip):
    """By more than two parts in a hundred: a copy takes a little where the loop that it serves is short.

    One run of many, since what one of them fetches across programs serves the next.
    """
    module, found = load(path), load_chip(chip)
    before, after = (
        run_program(lower(compile_module(module, Target(found), stage), found), found, warm=True).total_ps
        for stage in ("order", "place")
    )
    assert after <= 1.02 * before


def test_more_fast_memory_is_never_slower():
    """From none to all that a v5e has, on the program above."""
    times = []
    for mib in (0, 1, 4, 8, 16, 32, 112):
        chip = load_chip("v5e", {"vmem.capacity_bytes": load_chip("v5e").vmem.scoped_bytes + (mib << 20)})
        times.append(run_program(lower(compiled(WEIGHTS, mib), chip), chip).total_ps)
    assert all(after <= 1.01 * before for before, after in pairwise(times))
    assert times[-1] < times[0]
