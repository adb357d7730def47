"""What is given away saves copies: what is made in its place takes no longer than in memory of its own."""

from __future__ import annotations

from random import Random

import pytest

from tests.compiler.overwrite_cases import written_out
from tests.compiler.overwrites import overwrites
from tests.compiler.programs import compiled
from tpusim.pipeline.stages import simulate

HEADER = "HloModule m, input_output_alias={ {}: (0, {}, may-alias) }"

REGIONS = """
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = f32[] add(a, b) }
lt { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT c = pred[] compare(a, b), direction=LT }
ltp { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = s32[] parameter(2)
 d = s32[] parameter(3)
 ROOT e = pred[] compare(a, b), direction=LT }
"""

GIVEN = """
 y = MATRIX parameter(1)
 rows = s32[8] parameter(2)
 order = s32[128,128] parameter(3)
 NINES
"""

KERNEL = 'custom-call(BEFORE, y), custom_call_target="mine", output_to_operand_aliasing={{}: (0, {})}'
SCATTER = (
    "scatter(BEFORE, rows, u), update_window_dims={1}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
    " index_vector_dim=1, to_apply=add"
)

IN_PLACE = {
    "element by element": " AFTER = MATRIX tanh(BEFORE)\n",
    "with another": " AFTER = MATRIX multiply(BEFORE, y)\n",
    "updated": " AFTER = MATRIX UPDATE(BEFORE, u, z, z)\n",
    "scattered": f" AFTER = MATRIX {SCATTER}\n",
    "sorted": " AFTER = MATRIX sort(BEFORE), dimensions={1}, to_apply=lt\n",
    "sorted with others": " AFTERs = (MATRIX, s32[128,128]) sort(BEFORE, order), dimensions={1}, to_apply=ltp\n"
    " AFTER = MATRIX ELEMENT(AFTERs), index=0\n",
    "by a kernel": f" AFTER = MATRIX {KERNEL}\n",
}
"""Lines that make AFTER of BEFORE, and may write it where that lies."""


def chain(names, header="HloModule m"):
    """Return the text of a program that makes its result of its first argument, one way after the other."""
    lines = "".join(
        IN_PLACE[name].replace("AFTER", f"v{at + 1}").replace("BEFORE", f"v{at}") for at, name in enumerate(names)
    )
    last = f" v{len(names)} = "
    body = lines.replace(last, f" ROOT{last}")
    return written_out(f"{header}\n{REGIONS}\nENTRY e {{\n v0 = MATRIX parameter(0){GIVEN}{body}}}\n")


@pytest.mark.parametrize("way", IN_PLACE)
def test_an_argument_that_is_given_away_is_written_over(way):
    """Whatever makes the result of it, if that may lie in its place."""
    module = compiled(chain([way], HEADER), "v3")
    assert "copy" not in {i.opcode for i in module.entry}
    assert overwrites(module) == []


@pytest.mark.parametrize("seed", range(20))
def test_giving_away_takes_no_longer(seed):
    """Of what is made in place one way after the other, on a chip where all lies in HBM."""
    random = Random(seed)
    names = random.choices(list(IN_PLACE), k=random.randint(1, 5))
    kept, given = (simulate(compiled(chain(names, header), "v3"), "v3") for header in ("HloModule m", HEADER))
    assert given.summary.total_ps <= kept.summary.total_ps


STEPS = """
more { p = (s32[], MATRIX) parameter(0)
 n = s32[] ELEMENT(p), index=0
 c = s32[] constant(10)
 ROOT r = pred[] compare(n, c), direction=LT }
step { p = (s32[], MATRIX) parameter(0)
 n = s32[] ELEMENT(p), index=0
 y = MATRIX ELEMENT(p), index=1
 one = s32[] constant(1)
 m = s32[] add(n, one)
 HERE
 ROOT o = (s32[], MATRIX) tuple(m, v) }
"""
LOOP = """
ENTRY e {
 z = s32[] constant(0)
 x = MATRIX parameter(0)
 t = (s32[], MATRIX) tuple(z, x)
 w = (s32[], MATRIX) while(t), condition=more, body=step
 ROOT r = MATRIX ELEMENT(w), index=1 }
"""
ALIASED = "output_to_operand_aliasing={{}: (0, {})}"


@pytest.mark.parametrize(
    ("made", "copies"),
    [
        (f'v = MATRIX custom-call(y), custom_call_target="mine", {ALIASED}', 0),
        ("v = MATRIX sort(y), dimensions={1}, to_apply=lt", 0),
        ("v = MATRIX reverse(y), dimensions={1}", 1),
    ],
    ids=["kernel in place", "sort", "reverse"],
)
def test_what_a_loop_carries_on_is_written_over(made, copies):
    """By a kernel whose author says so and by a sort; what reads it in another order has a copy."""
    module = compiled(written_out(f"HloModule m\n{REGIONS}{STEPS.replace('HERE', made)}{LOOP}"), "v3")
    loop = next(i for i in module.entry if i.opcode == "while")
    assert [i.opcode for i in module[loop.attributes["body"]]].count("copy") == copies
    assert overwrites(module) == []


def test_what_a_kernel_reads_besides_is_copied():
    """Its author says that it may write over one operand, not over both."""
    made = f'v = MATRIX custom-call(y, y), custom_call_target="mine", {ALIASED}'
    assert overwrites(compiled(written_out(f"HloModule m\n{REGIONS}{STEPS.replace('HERE', made)}{LOOP}"), "v3")) == []


def test_two_results_of_a_sort_do_not_change_places():
    """Each lies where its own operand did or elsewhere."""
    text = """HloModule m, input_output_alias={ {0}: (1, {}, may-alias), {1}: (0, {}, may-alias) }
ltf { a = f32[] parameter(0)
 b = f32[] parameter(1)
 c = f32[] parameter(2)
 d = f32[] parameter(3)
 ROOT less = pred[] compare(a, b), direction=LT }
ENTRY e {
 x = MATRIX parameter(0)
 y = MATRIX parameter(1)
 ROOT out = PAIR sort(x, y), dimensions={1}, to_apply=ltf }
"""
    module = compiled(written_out(text), "v3")
    assert [i.opcode for i in module.entry].count("copy") == 2
    assert overwrites(module) == []
