"""What may not be written over is copied before it is updated in place (XLA, CopyInsertion)."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.overwrites import overwrites
from tpusim.compiler.passes import compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute, memory
from tpusim.shapes.shape import ArrayShape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def compiled(entry, header="", regions=""):
    """Return what a program becomes on a v3, where nothing moves to fast memory."""
    text = f"HloModule test{header}\n{regions}\nENTRY main {{\n{entry}\n}}\n"
    module = compile_module(parse_module(SourceText("test", text)), Target(load_chip("v3")))
    assert check(module) == []
    return module


def copied(module):
    """Return what is copied, in its order."""
    return [i.operands[0].partition(".")[0] for i in module.entry.instructions if i.opcode == "copy"]


def looped(module):
    """Return the body of the entry's first loop."""
    loop = next(i for i in module.entry if i.opcode == "while")
    return module[loop.attributes["body"]]


RESULTS = """
  x = f32[64,128] parameter(0)
  n = f32[64,128] negate(x)
  ROOT out = (f32[64,128], f32[64,128], f32[64,128]) tuple(x, n, n)
"""

UPDATE = """
  x = f32[64,128] parameter(0)
  u = f32[8,128] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  ROOT out = f32[64,128] dynamic-update-slice(x, u, i, zero)
"""


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("", ["x"]),
        (", input_output_alias={ {}: (0, {}, may-alias) }", []),
        (", buffer_donor={ (0, {}) }", []),
        (", buffer_donor={ (1, {}) }", ["x"]),
    ],
)
def test_an_argument_is_copied_unless_the_caller_gives_it_away(header, what):
    """Its memory is the caller's."""
    assert copied(compiled(UPDATE, header)) == what


@pytest.mark.parametrize(
    ("entry", "donors", "aliases", "left"),
    [
        (UPDATE, "(0, {})", [((), 0, ())], []),
        (UPDATE, "(0, {}), (1, {})", [((), 0, ())], [1]),
        ("ROOT x = (s32[], f32[64,128]) parameter(0)", "(0, {1})", [((1,), 0, (1,))], []),
        (RESULTS, "(0, {})", [((0,), 0, ())], []),
        (RESULTS.replace("tuple(x, n, n)", "tuple(n, x, x)"), "(0, {})", [((0,), 0, ())], []),
        (RESULTS.replace("tuple(x, n, n)", "tuple(n, n, n)"), "(0, {})", [((0,), 0, ())], []),
        (UPDATE, "(1, {})", [], [1]),
    ],
    ids=["updated", "one of two", "element", "as it is", "twice", "made of it", "of another size"],
)
def test_a_result_that_lies_in_an_argument_is_said_to(entry, donors, aliases, left):
    """An argument that is given away for whatever use is the first result's that has as many bytes.

    Source: XLA, OptimizeInputOutputBufferAlias.
    """
    attributes = compiled(entry, f", buffer_donor={{ {donors} }}").attributes
    found = [(a.output_index, a.parameter, a.parameter_index) for a in attributes.get("input_output_alias", ())]
    assert found == aliases
    assert [donor.parameter for donor in attributes.get("buffer_donor", ())] == left


def test_an_argument_that_is_given_away_is_counted_once():
    """A result of its own would be as large as the argument is."""
    text = f"HloModule test, buffer_donor={{ (0, {{}}) }}\nENTRY main {{\n{UPDATE}\n}}\n"
    module = compile_module(parse_module(SourceText("test", text)), Target(load_chip("v3")))
    given, update = 64 * 128 * 4, 8 * 128 * 4
    assert memory(module, "v3").use.peak_hbm_bytes - given - update < given


WEIGHTS = ["[256,4096]", "[1024,4096]", "[1024,1024]"]
ADAM = "\n".join((
    *(f"  w{n} = bf16{size} parameter({n})" for n, size in enumerate(WEIGHTS)),
    *(f"  m{n} = f32{size} parameter({n + 3})" for n, size in enumerate(WEIGHTS)),
    *(f"  v{n} = f32{size} parameter({n + 6})" for n, size in enumerate(WEIGHTS)),
    *(f"  new_w{n} = bf16{size} negate(w{n})" for n, size in enumerate(WEIGHTS)),
    *(f"  new_m{n} = f32{size} tanh(m{n})" for n, size in enumerate(WEIGHTS)),
    *(f"  new_v{n} = f32{size} multiply(m{n}, v{n})" for n, size in enumerate(WEIGHTS)),
    f"  ROOT out = ({', '.join(f'bf16{size}, f32{size}, f32{size}' for size in WEIGHTS)}) tuple(",
    ", ".join(f"new_w{n}, new_m{n}, new_v{n}" for n in range(3)) + ")",
))  # fmt: skip


def test_arguments_are_given_to_results_of_as_many_bytes_in_their_order():
    """As the TPU compiler pairs those of a step of Adam for v5e, among them arrays of other sizes in each dimension."""
    module = compiled(ADAM, f", buffer_donor={{ {', '.join(f'({n}, {{}})' for n in range(9))} }}")
    aliases = module.attributes["input_output_alias"]
    assert [alias.parameter for alias in aliases] == [0, 3, 5, 1, 4, 7, 2, 6, 8]
    assert overwrites(module) == []


def test_results_in_arguments_take_no_memory():
    """Each has one of its own otherwise: an updated state is as large as the state."""
    donors = f", buffer_donor={{ {', '.join(f'({n}, {{}})' for n in range(9))} }}"
    given, kept = (memory(compiled(ADAM, header), "v3").use for header in (donors, ""))
    state = (256 * 4096 + 1024 * 4096 + 1024 * 1024) * (2 + 4 + 4)
    assert kept.peak_hbm_bytes >= 2 * state
    assert given.peak_hbm_bytes < 1.5 * state


def test_what_is_read_afterwards_is_copied():
    """And what is not, not."""
    entry = """
  x = f32[64,128] parameter(0)
  u = f32[8,128] parameter(1)
  i = s32[] parameter(2)
  zero = s32[] constant(0)
  bent = f32[64,128] tanh(x)
  new = f32[64,128] dynamic-update-slice(bent, u, i, zero)
  more = f32[64,128] dynamic-update-slice(new, u, zero, zero)
  ROOT out = (f32[64,128], f32[64,128]) tuple(more, bent)
"""
    assert copied(compiled(entry)) == ["bent"]


@pytest.mark.parametrize(
    ("header", "what"),
    [
        ("", ["x", "n"]),
        (", input_output_alias={ {0}: (0, {}, may-alias) }", ["n"]),
        (", input_output_alias={ {1}: (0, {}, may-alias) }", ["x", "n"]),
        (", buffer_donor={ (0, {}) }", ["n"]),
    ],
)
def test_what_is_returned_as_it_is_has_memory_of_its_own(header, what):
    """An argument that the caller keeps, and one array that is two results: each is written, as every result is."""
    assert copied(compiled(RESULTS, header)) == what


def test_an_argument_that_is_all_that_is_returned_is_copied():
    """Behind a view and through a loop that hands it on, too."""
    assert copied(compiled("ROOT x = f32[64,128] parameter(0)")) == ["x"]
    passed = LOOP.replace("get-tuple-element(end), index=1", "get-tuple-element(end), index=2")
    module = compiled(passed, regions=STEPS)
    assert module.entry.root.opcode == "copy"


LOOP = """
  x = f32[64,128] parameter(0)
  w = f32[64,128] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[64,128], f32[64,128]) tuple(zero, x, w)
  end = (s32[], f32[64,128], f32[64,128]) while(start), condition=more, body=step
  ROOT out = f32[64,128] get-tuple-element(end), index=1
"""
STEPS = """
more {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  three = s32[] constant(3)
  ROOT c = pred[] compare(n, three), direction=LT
}
step {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  m = s32[] add(n, one)
  x = f32[64,128] get-tuple-element(p), index=1
  w = f32[64,128] get-tuple-element(p), index=2
  y = f32[64,128] multiply(x, w)
  ROOT t = (s32[], f32[64,128], f32[64,128]) tuple(m, y, w)
}
"""


def test_what_a_loop_changes_of_its_arguments_is_copied():
    """And what it only reads, not."""
    module = compiled(LOOP, regions=STEPS)
    assert copied(module) == ["x"]
    x, w = np.random.default_rng(7).standard_normal((2, 64, 128)).astype(np.float32)
    assert (execute(module, {"in0": x, "in1": w}, precision="exact", chip="v3") == x * w * w * w).all()


SWAPPED = """
body { p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(i, one)
  a = f32[64,128] get-tuple-element(p), index=1
  b = f32[64,128] get-tuple-element(p), index=2
  c = f32[64,128] tanh(a)
  d = f32[64,128] add(a, b)
  ROOT out = (s32[], f32[64,128], f32[64,128]) tuple(next, c, d) }
condition { p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  most = s32[] constant(4)
  ROOT less = pred[] compare(i, most), direction=LT }
"""

TWICE = """
  zero = s32[] constant(0)
  number = f32[] constant(2)
  more = f32[] constant(3)
  x = f32[64,128] MADE
  first = (s32[], f32[64,128], f32[64,128]) tuple(zero, x, x)
  ROOT loop = (s32[], f32[64,128], f32[64,128]) while(first), condition=condition, body=body
"""


def test_what_a_loop_carries_twice_and_changes_has_two_places():
    """What is made of nothing is made twice; anything else is copied."""
    made = compiled(TWICE.replace("MADE", "broadcast(number), dimensions={}"), regions=SWAPPED)
    assert [i.opcode for i in made.entry.instructions].count("broadcast") == 2
    drawn = compiled(TWICE.replace("MADE", "rng(number, more), distribution=rng_uniform"), regions=SWAPPED)
    assert copied(drawn) == ["x"]


def test_what_a_loop_carries_twice_and_changes_once_has_two_places():
    """Else the one that it only reads would change with the other."""
    body = SWAPPED.replace("tuple(next, c, d)", "tuple(next, d, b)")
    made = compiled(TWICE.replace("MADE", "broadcast(number), dimensions={}"), regions=body)
    assert [i.opcode for i in made.entry.instructions].count("broadcast") == 2


TRIPS = """
more {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  most = s32[] constant(3)
  ROOT c = pred[] compare(n, most), direction=LT
}

body {
  p = (s32[], f32[64,128], f32[64,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  x = f32[64,128] get-tuple-element(p), index=1
  y = f32[64,128] get-tuple-element(p), index=2
  BODY
}
"""
LOOP_OF_TRIPS = """
  x = f32[64,128] parameter(0)
  y = f32[64,128] parameter(1)
  a = f32[64,128] tanh(x)
  b = f32[64,128] tanh(y)
  zero = s32[] constant(0)
  t = (s32[], f32[64,128], f32[64,128]) tuple(zero, a, b)
  w = (s32[], f32[64,128], f32[64,128]) while(t), condition=more, body=body
  c = f32[64,128] get-tuple-element(w), index=1
  d = f32[64,128] get-tuple-element(w), index=2
  ROOT z = (f32[64,128], f32[64,128]) tuple(c, d)
"""


@pytest.mark.parametrize(
    ("x", "y", "copies"),
    [
        ("tanh(x)", "tanh(y)", 0),
        ("tanh(x)", "add(x, y)", 0),
        ("reverse(x), dimensions={0}", "tanh(y)", 1),
        ("reverse(y), dimensions={0}", "reverse(x), dimensions={0}", 1),
    ],
    ids=["element by element", "and by another", "from other places", "crosswise"],
)
def test_what_a_loop_reads_when_the_new_one_is_there_is_copied(x, y, copies):
    """The new value is written where the old one lies; element by element that can be while it is read."""
    body = f"""u = f32[64,128] {x}
  v = f32[64,128] {y}
  ROOT r = (s32[], f32[64,128], f32[64,128]) tuple(next, u, v)"""
    module = compiled(LOOP_OF_TRIPS, regions=TRIPS.replace("BODY", body))
    inside = looped(module)
    assert [i.opcode for i in inside].count("copy") == copies
    inputs = [np.random.default_rng(at).normal(size=(64, 128)).astype("f4") for at in range(2)]
    text = f"HloModule test\n{TRIPS.replace('BODY', body)}\nENTRY main {{\n{LOOP_OF_TRIPS}\n}}\n"
    expected = execute(parse_module(SourceText("test", text)), inputs)
    np.testing.assert_array_equal(execute(module, inputs), expected)


def test_a_loop_that_uses_each_array_twice_is_compiled_at_once():
    """Sixty layers have 2**60 ways through them, from what is read to what is written in its place."""
    layers = "".join(
        f"l{n} = f32[64,128] exponential({f'm{n - 1}' if n else 'x'})\n"
        f"k{n} = f32[64,128] negate({f'm{n - 1}' if n else 'x'})\nm{n} = f32[64,128] multiply(l{n}, k{n})\n"
        for n in range(60)
    )
    body = f"{layers}ROOT r = (s32[], f32[64,128], f32[64,128]) tuple(next, m59, y)"
    module = compiled(LOOP_OF_TRIPS, regions=TRIPS.replace("BODY", body))
    assert not any(i.opcode == "copy" for i in looped(module))


def overwritten(body):
    """Return the arrays of a loop's body that are read when another one lies where they did.

    What is carried on at a place is written there; every other array has a place of its own. Operations read their
    operands element by element, but for those that turn them round.
    """
    arrays = {i.name for i in body if isinstance(i.shape, ArrayShape) and i.shape.rank}
    last = {name: at for at, name in enumerate(body.root.operands) if name in arrays}
    place: dict[str, object] = {}
    holds: dict[object, str] = {}
    found = []
    for i in body:
        if i.opcode == "get-tuple-element":
            place[i.name] = i.attributes["index"]
            holds[place[i.name]] = i.name
            found += [i.name] if last.get(i.name, place[i.name]) != place[i.name] else []
        elif i.opcode != "parameter":
            found += [name for name in i.operands if name in arrays and holds[place[name]] != name]
            own = last.get(i.name, i.name)
            turned = i.opcode in ("reverse", "dot", "fusion") and any(place.get(name) == own for name in i.operands)
            found += [i.name] if turned else []
            place[i.name], holds[own] = own, i.name
    return found + [name for name in last if list(body.root.operands).count(name) > 1]


@pytest.mark.parametrize(
    ("made", "carried", "copies"),
    [
        ("u = f32[64,128] reverse(x), dimensions={0}", "x, y", 0),
        ("u = f32[64,128] reverse(x), dimensions={0}", "y, x", 3),
        ("u = f32[64,128] reverse(x), dimensions={0}", "y, u", 2),
        ("u = f32[64,128] add(x, y)", "y, u", 2),
        ("u = f32[64,128] tanh(y)", "u, x", 2),
        ("u = f32[64,128] reverse(y), dimensions={0}", "x, x", 1),
        ("u = f32[64,128] reverse(y), dimensions={0}", "u, u", 2),
    ],
)
def test_what_a_loop_carries_on_lies_where_nothing_is_read_any_more(made, carried, copies):
    """Values that change places, go round in a circle, or go to two places at once."""
    body = f"{made}\n  ROOT r = (s32[], f32[64,128], f32[64,128]) tuple(next, {carried})"
    module = compiled(LOOP_OF_TRIPS, regions=TRIPS.replace("BODY", body))
    inside = looped(module)
    assert overwritten(inside) == []
    assert [i.opcode for i in inside].count("copy") == copies


def test_an_array_that_a_barrier_hands_on_is_still_the_callers():
    """What is written in place of it is written in a copy."""
    barrier = """
  x = f32[64,128] parameter(0)
  y = f32[64,128] parameter(1)
  u = f32[8,128] parameter(2)
  zero = s32[] constant(0)
  t = (f32[64,128], f32[64,128]) tuple(x, y)
  o = (f32[64,128], f32[64,128]) opt-barrier(t)
  a = f32[64,128] get-tuple-element(o), index=0
  b = f32[64,128] get-tuple-element(o), index=1
  d = f32[64,128] dynamic-update-slice(a, u, zero, zero)
  ROOT out = (f32[64,128], f32[64,128]) tuple(d, b)
"""
    assert [i.opcode for i in compiled(barrier).entry].count("copy") == 2


def test_an_array_that_a_loop_hands_on_as_it_is_is_still_the_callers():
    """So that an update after the loop is made in a copy."""
    updated = LOOP.replace(
        "ROOT out = f32[64,128] get-tuple-element(end), index=1",
        "kept = f32[64,128] get-tuple-element(end), index=2\n  u = f32[8,128] parameter(2)\n"
        "  last = f32[64,128] get-tuple-element(end), index=1\n"
        "  new = f32[64,128] dynamic-update-slice(kept, u, zero, zero)\n"
        "  ROOT out = (f32[64,128], f32[64,128]) tuple(last, new)",
    )
    assert [i.opcode for i in compiled(updated, regions=STEPS).entry].count("copy") == 2


def test_two_loops_that_begin_with_one_array_begin_with_one_each():
    """Equal tuples are made once, and what the first loop has left is not what the second is given."""
    body = "u = f32[64,128] tanh(x)\n  ROOT r = (s32[], f32[64,128], f32[64,128]) tuple(next, u, y)"
    entry = (
        LOOP_OF_TRIPS.replace("  ROOT z = (f32[64,128], f32[64,128]) tuple(c, d)\n", "")
        + """
  v = (s32[], f32[64,128], f32[64,128]) while(t), condition=more, body=other
  one = f32[64,128] get-tuple-element(w), index=1
  two = f32[64,128] get-tuple-element(v), index=1
  ROOT r = (f32[64,128], f32[64,128]) tuple(one, two)
"""
    )
    regions = TRIPS.replace("BODY", body)
    # Loops that say the same would be one.
    other = regions[regions.index("body {") :].replace("body", "other").replace("tanh", "sine")
    entry = compiled(entry, regions=regions + other).entry
    first, second = (entry[i.operands[0]].operands[1] for i in entry if i.opcode == "while")
    assert first != second


INNER = """
inner {
  p = (s32[], f32[128,128], f32[128,128]) parameter(0)
  n = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  y = f32[128,128] get-tuple-element(p), index=1
  x = f32[128,128] get-tuple-element(p), index=2
  d = f32[128,128] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, operand_precision={highest,highest}
  ROOT r = (s32[], f32[128,128], f32[128,128]) tuple(next, d, x)
}
"""
OUTER = """zero = s32[] constant(0)
  start = (s32[], f32[128,128], f32[128,128]) tuple(zero, x, x)
  w = (s32[], f32[128,128], f32[128,128]) while(start), condition=more, body=inner
  z = f32[128,128] get-tuple-element(w), index=1
  ROOT r = (s32[], f32[128,128], f32[128,128]) tuple(next, z, y)"""


def test_a_loop_within_a_loop_reads_what_the_outer_one_carries_until_it_ends():
    """What the inner one makes lies elsewhere until then."""
    regions = INNER + TRIPS.replace("64,128", "128,128").replace("BODY", OUTER)
    module = compiled(LOOP_OF_TRIPS.replace("64,128", "128,128"), regions=regions)
    outer = looped(module)
    loop = next(i for i in outer if i.opcode == "while")
    state = outer[loop.operands[0]].operands
    given = next(i.name for i in outer if i.opcode == "get-tuple-element" and i.attributes["index"] == 1)
    assert given not in state[1:]
