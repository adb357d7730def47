"""Loops that never end: computing stops all the same, and says where and how to go on."""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tests.growth import within
from tests.numerics.pallas.inputs import read_kernel
from tests.semantics.hlo import parse
from tpusim.errors import SimulationError, UnsupportedError
from tpusim.numerics import execute
from tpusim.numerics.pallas.blocks import Blocks


def counting(trips, make):
    """Return a function that builds a loop over a counter and a number; ``make`` builds the number of the next trip."""

    def loop(x):
        b = x.builder
        return b.get_tuple_element(b.while_(condition, body, b.tuple([b.constant(0, "s32"), x])), 1)

    def condition(state):
        b = state.builder
        return b.lt(b.get_tuple_element(state, 0), b.constant(trips, "s32"))

    def body(state):
        b = state.builder
        counter = b.get_tuple_element(state, 0)
        return b.tuple([b.add(counter, b.constant(1, "s32")), make(b.get_tuple_element(state, 1))])

    return loop


def on_scalars(x):
    """Compiled code computes it."""
    return x * 0.5


def by_rules(x):
    """Compiled loops know no such operation."""
    return x.builder.ceil(x) + x


def computed(trips, make, is_mapped=False, shape="f32[]", **settings):
    """Return what a loop makes of a number, or of each of four."""
    b = tpusim.Builder("m")
    loop = counting(trips, make)
    x = b.parameter(0, "f32[4]" if is_mapped else shape)
    b.map([x], loop, [0]) if is_mapped else loop(x)
    return tpusim.execute(b.build(), [np.full(x.shape.dimensions, 3, np.float32)], **settings)


BODIES = [on_scalars, by_rules, counting(2**31 - 1, on_scalars)]


@pytest.mark.parametrize("make", BODIES, ids=("scalars", "rules", "within"))
@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_loop_that_does_not_end_is_stopped(monkeypatch, make, is_mapped):
    """Whatever computes it, for one number or for several at once."""
    monkeypatch.setattr(execute, "LOOPED_INSTRUCTIONS", 30_000)
    with pytest.raises(SimulationError, match=r"'while\S*' takes more than .* instructions in loops; --max-iter"):
        computed(2**31 - 1, make, is_mapped)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_how_long_loops_go_on_is_up_to_the_user(monkeypatch, is_mapped):
    """Twenty trips are too much, unless it is said that a loop may make as many."""
    monkeypatch.setattr(execute, "LOOPED_INSTRUCTIONS", 30)
    with pytest.raises(SimulationError, match="--max-iterations"):
        computed(20, by_rules, is_mapped)
    found = computed(20, by_rules, is_mapped, max_iterations=20)
    assert np.ravel(found).tolist() == [3 * 2.0**20] * np.size(found)


def is_refused(trips, make, **options):
    """Check that so many trips are said to be too many."""
    with pytest.raises(SimulationError, match="524,288 instructions"):
        computed(trips, make, **options)


@pytest.mark.slow
@pytest.mark.parametrize("make", BODIES, ids=("scalars", "rules", "within"))
def test_a_loop_that_does_not_end_is_stopped_in_seconds(make):
    """What is allowed where nobody says anything takes less time than users wait without a word."""
    within(20, lambda: is_refused(2**31 - 1, make))


def test_a_loop_over_large_arrays_is_refused_before_its_trips_take_minutes():
    """Its counter says that there will be too many of them."""
    within(20, lambda: is_refused(10**6, by_rules, shape="f32[1024,1024]"))


def test_steps_of_a_grid_that_are_too_many_are_refused_before_the_first(monkeypatch):
    """Their number is known, and each may take a while."""
    monkeypatch.setattr(execute, "LOOPED_INSTRUCTIONS", 8)
    entered = []
    monkeypatch.setattr(Blocks, "enter", lambda blocks, place: entered.append(place))
    module, inputs, _ = read_kernel("matmul")
    with pytest.raises(SimulationError, match="the grid of a Pallas kernel takes more than"):
        tpusim.execute(module, inputs)
    assert not entered


@pytest.mark.parametrize(("name", "most", "what"), [("for_loop", 20, "a loop"), ("matmul", 8, "the grid")])
def test_loops_and_the_grid_of_a_kernel_count_as_well(monkeypatch, name, most, what):
    """So many turns or steps are too much, unless the user wants them."""
    monkeypatch.setattr(execute, "LOOPED_INSTRUCTIONS", most)
    module, inputs, _ = read_kernel(name)
    with pytest.raises(SimulationError, match=f"{what} of a Pallas kernel takes more than"):
        tpusim.execute(module, inputs)
    tpusim.execute(module, inputs, max_iterations=100)


def test_a_kernel_that_does_not_end_is_stopped(monkeypatch):
    """It doubles zeros until their sum is large."""
    monkeypatch.setattr(execute, "LOOPED_INSTRUCTIONS", 1000)
    module, inputs, _ = read_kernel("while_loop")
    with pytest.raises(SimulationError, match="a loop of a Pallas kernel takes more than"):
        tpusim.execute(module, [np.zeros_like(array) for array in inputs])


_TWO = "  x = f32[] parameter(0)\n  y = f32[] parameter(1)\n"
SMOOTH = f"f {{\n{_TWO}  e = f32[] cosine(y)\n  ROOT z = f32[] add(x, e)\n}}"
LOOKED_UP = """f {
  x = s32[] parameter(0)
  t = f32[2] constant({1, 2})
  e = f32[1] dynamic-slice(t, x), dynamic_slice_sizes={1}
  ROOT z = f32[] reshape(e)
}"""
PAIRS = f"""f {{
{_TWO.replace("f32[]", "f32[2]")}  z = f32[2] add(x, y)
  ROOT t = (f32[2], f32[2]) tuple(z, z)
}}"""
ONE_BY_ONE = [
    (SMOOTH, "f32[]", "reduce(u, z), dimensions={0}, to_apply=f"),
    (SMOOTH, "f32[1]", "reduce-window(u, z), window={size=20000}, to_apply=f"),
    (
        SMOOTH,
        "f32[2]",
        "scatter(b, i, u), update_window_dims={}, inserted_window_dims={0}, scatter_dims_to_operand_dims={0},"
        " index_vector_dim=1, to_apply=f",
    ),
    (
        SMOOTH.replace("ROOT ", "").replace("}", "  ROOT t = (f32[], f32[]) tuple(e, z)\n}"),
        "(f32[20000], f32[])",
        "scan(u, z), dimensions={0}, num_carries=1, to_apply=f",
    ),
    (PAIRS, "(f32[20000,2], f32[2])", "scan(p, b), dimensions={0}, num_carries=1, to_apply=f"),
    (LOOKED_UP, "f32[20000]", "map(r), dimensions={0}, to_apply=f"),
]


@pytest.mark.parametrize(("computation", "shape", "made"), ONE_BY_ONE)
def test_elements_that_are_taken_one_by_one_count_as_well(monkeypatch, computation, shape, made):
    """What compiled code does not know takes as long as trips of a loop: it is refused, with a place."""
    monkeypatch.setattr(execute, "LOOPED_INSTRUCTIONS", 30_000)
    lines = [
        "b = f32[2] parameter(0)",
        "u = f32[20000] parameter(1)",
        "p = f32[20000,2] broadcast(u), dimensions={0}",
        "r = s32[20000] convert(u)",
        "i = s32[20000,1] reshape(r)",
        "z = f32[] constant(0)",
        f"ROOT m = {shape} {made}",
    ]
    module = parse("\n".join(["HloModule m\n", computation, "\nENTRY e {", *lines, "}\n"]))
    inputs = [np.zeros(2, np.float32), np.zeros(20000, np.float32)]
    with pytest.raises(SimulationError, match=r"'f', element by element, takes more than .*; --max-iter") as caught:
        tpusim.execute(module, inputs)
    assert caught.value.span is not None
    tpusim.execute(module, inputs, max_iterations=1)


@pytest.mark.slow
def test_compiled_turns_take_no_time_to_speak_of():
    """A call of NumPy's for each operation would take half a minute."""
    squares = SMOOTH.replace("cosine(y)", "multiply(y, y)")
    entry = "ENTRY e {\n  u = f32[2000000] parameter(0)\n  z = f32[] constant(0)\n  ROOT r = f32[] "
    text = f"HloModule m\n\n{squares}\n\n{entry}reduce(u, z), dimensions={{0}}, to_apply=f\n}}\n"
    within(20, lambda: tpusim.execute(parse(text), [np.ones(2_000_000, np.float32)]))


SELECTS = (
    f"g {{\n{_TWO}  ROOT z = f32[] add(x, y)\n}}\n\ns {{\n{_TWO}  ROOT z = pred[] compare(x, y), direction=GE\n}}\n",
    "select-and-scatter(b, u, z), window={size=3000x3000}, select=s, scatter=g",
)
REDUCES = (
    f"g {{\n{_TWO}  w = f32[] subtract(x, y)\n  ROOT z = f32[] add(w, y)\n}}\n",
    "reduce-window(b, z), window={size=3000x3000 pad=2999_0x2999_0}, to_apply=g",
)


@pytest.mark.parametrize(("computations", "made"), [SELECTS, REDUCES])
def test_a_window_of_millions_is_not_gone_through_one_by_one(computations, made):
    """Each of its elements takes a call: a minute for each two million."""
    text = (
        f"HloModule m\n\n{computations}\nENTRY e {{\n  b = f32[3000,3000] parameter(0)\n  u = f32[1,1] parameter(1)\n"
        f"  z = f32[] constant(0)\n  ROOT r = f32[3000,3000] {made}\n}}\n"
    )
    with pytest.raises(UnsupportedError, match="elements of a window to look at one by one, at most 262144, found 9"):
        tpusim.execute(parse(text), [np.zeros((3000, 3000), np.float32), np.zeros((1, 1), np.float32)])
