"""Places: which temporaries lie in the memory of outputs, in XLA's order of candidates, and how intervals meet."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.house.source_tree import ROOT
from tests.lowering.hlo import lower_module_text, lower_text
from tpusim.allocation.heap import alignment_bytes
from tpusim.allocation.homes import overlaps_any
from tpusim.allocation.liveness import Value
from tpusim.allocation.placement import Place, reuse_output_memory, united
from tpusim.ir.module import Instruction
from tpusim.pipeline.stages import simulate
from tpusim.shapes.notation import parse_shape

MIB = 2**20
INTERVALS = st.lists(
    st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair))), max_size=6
)


def positions(intervals):
    """Return the positions in some intervals."""
    return {at for first, last in intervals for at in range(first, last + 1)}


@given(INTERVALS)
def test_united_intervals_have_the_same_positions_and_gaps_between(intervals):
    """What touches is one: between two that are left there is a position of neither."""
    found = united(intervals)
    assert positions(found) == positions(intervals)
    assert all(one[1] + 1 < other[0] for one, other in pairwise(found))


@given(INTERVALS, st.integers(0, 25), st.integers(0, 6))
def test_an_interval_overlaps_where_a_position_is_of_both(intervals, first, length):
    """Against the sets."""
    taken = united(intervals)
    assert overlaps_any((first, first + length), taken) == bool(positions([(first, first + length)]) & positions(taken))


SHAPE = parse_shape("f32[8]")


def place(number, n_bytes, intervals, is_result):
    """Return the place of one value, a result or a temporary, that is alive in some intervals."""
    made = Instruction(f"v{number}", SHAPE, "negate", ())
    value = Value(made, SHAPE, n_bytes, "hbm", 0, 0, made, is_result)
    return Place([value], "output" if is_result else "temporary", n_bytes, "hbm", united(intervals))


PLACES = st.lists(st.tuples(st.integers(1, 5), INTERVALS.filter(bool), st.booleans()), max_size=16)


@given(PLACES, st.randoms(use_true_random=False))
def test_each_temporary_takes_the_first_output_with_room_in_size_and_time(drawn, chance):
    """By the sets of positions: the largest choose first, among outputs from the smallest and the last of the order."""
    places = [place(number, *fields) for number, fields in enumerate(drawn)]
    turn = chance.sample(range(len(places)), len(places))
    reuse_output_memory(places, {id(p.values[0].instruction): turn[number] for number, p in enumerate(places)})
    order = sorted(range(len(places)), key=lambda n: (-drawn[n][0], turn[n]))
    taken = {n: positions(drawn[n][1]) for n in reversed(order) if drawn[n][2]}
    for n in (n for n in order if not drawn[n][2]):
        own = positions(drawn[n][1])
        home = next((m for m in taken if drawn[m][0] >= drawn[n][0] and not own & taken[m]), None)
        assert places[n].within == ("" if home is None else f"v{home}")
        if home is not None:
            taken[home] |= own


def rows(mib):
    """Return the shape of an array of so many MiB."""
    return f"f32[{256 * mib},1024]{{1,0:T(8,128)}}"


def homes(lines, root, config="", mark=""):
    """Return in whose memory each temporary of a megabyte or more lies, empty for the heap."""
    entry = "\n".join([f"%a = {rows(16)} parameter(0)", *lines, f"ROOT %t = {root}{config}"])
    program = lower_module_text(f"HloModule m, is_scheduled=true{mark}\n\nENTRY %main {{\n{entry}\n}}\n")
    return {b.name: b.within for b in program.buffers if b.kind == "temporary" and b.n_bytes >= MIB}


def cut(name, mib, source="a"):
    """Return a line that makes an array of so many MiB."""
    return f"%{name} = {rows(mib)} slice(%{source}), slice={{[0:{256 * mib}], [0:1024]}}"


def test_a_temporary_takes_the_smallest_output_that_is_large_enough():
    """Of outputs of 2, 4 and 8 MiB, made when it is dead, one of 3 MiB takes that of 4."""
    lines = [cut("x", 3), cut("k", 1, "x"), cut("l", 1, "k"), cut("two", 2), cut("eight", 8), cut("four", 4)]
    found = homes(lines, f"({rows(1)}, {rows(2)}, {rows(8)}, {rows(4)}) tuple(%l, %two, %eight, %four)")
    assert found["x"] == "four"


@pytest.mark.parametrize(
    ("config", "mark", "home"),
    [
        ("", "", "four"),
        (', backend_config={"buffering_level":"2"}', "", ""),
        ("", ', frontend_attributes={tpusim_compiled_for="v5e"}', ""),
    ],
)
def test_newer_compilers_keep_temporaries_out_of_outputs(config, mark, home):
    """They note how kernels are buffered, see libtpu 0.0.52 in ``traces/memory``; what tpusim compiles is placed so."""
    lines = [cut("x", 3), cut("k", 1, "x"), cut("l", 1, "k"), cut("four", 4)]
    assert homes(lines, f"({rows(1)}, {rows(4)}) tuple(%l, %four)", config, mark)["x"] == home


@pytest.mark.parametrize("name", ["gpt2_fwd_b8t1024", "sampler_v32000"])
def test_of_what_tpusim_compiles_the_heap_is_what_is_counted(name):
    """All reports say one figure."""
    use = simulate(ROOT / f"traces/unscheduled/{name}.hlo.txt.gz", "v5e").summary.memory
    assert use.temp_bytes == use.heap_bytes


def test_of_equal_outputs_the_last_of_the_order_is_tried_first():
    """XLA goes through its allocations from the last one that it made: outputs of one size follow the order."""
    for order in (("e", "f"), ("f", "e")):
        lines = [cut("x", 2), cut("k", 1, "x"), cut("l", 1, "k"), *(cut(name, 2) for name in order)]
        found = homes(lines, f"({rows(1)}, {rows(2)}, {rows(2)}) tuple(%l, %{order[0]}, %{order[1]})")
        assert found["x"] == order[1]


def test_an_output_stands_in_the_order_where_it_is_first_written():
    """Made first and updated in place last, an output comes before one that is made between, which is tried first."""
    lines = [cut("x", 2), cut("k", 1, "x"), cut("l", 1, "k"), cut("e", 2), cut("f", 2), "%i = s32[] constant(0)"]
    lines.append(f"%u = {rows(2)} dynamic-update-slice(%e, %l, %i, %i)")
    assert homes(lines, f"({rows(1)}, {rows(2)}, {rows(2)}) tuple(%l, %u, %f)")["x"] == "f"


def test_a_place_is_as_large_as_the_largest_value_in_it():
    """A custom call writes a result of 2 MiB over an operand of 4 MiB, which is its owner's to the end."""
    alias = "output_to_operand_aliasing={{}: (0, {})}"
    unchecked = 'frontend_attributes={xla_skip_custom_call_alias_shape_check="true"}'
    program = lower_text(
        f"""
        %a = {rows(4)} parameter(0)
        %b = {rows(4)} negate(%a)
        %c = {rows(2)} custom-call(%b), custom_call_target="shrink", {alias}, {unchecked}
        ROOT %r = {rows(2)} negate(%c)"""
    )
    assert [(b.name, b.n_bytes) for b in program.buffers if b.kind == "temporary"] == [("b", 4 * MIB)]


def test_scalars_of_the_scalar_core_count_as_no_temporaries():
    """A number between two others is in no heap that statistics count."""
    lines = "%i = s32[] parameter(0)\n%n = s32[] negate(%i)\nROOT %m = s32[] add(%n, %i)"
    assert lower_text(lines).temp_bytes == 0


def test_the_largest_temporary_chooses_first():
    """Two are alive at once, and the output has room for one: the larger gets it, whichever was made first."""
    for order in ((2, 3), (3, 2)):
        first, second = (cut(f"x{mib}", mib) for mib in order)
        join = f"%k = {rows(1)} fusion(%x2, %x3), kind=kLoop, calls=%f"
        lines = [first, second, join, cut("l", 1, "k"), cut("out", 4)]
        called = f"%f {{\n  %p = {rows(2)} parameter(0)\n  %q = {rows(3)} parameter(1)\n"
        called += f"  %b = {rows(1)} slice(%p), slice={{[0:256], [0:1024]}}\n"
        called += f"  %c = {rows(1)} slice(%q), slice={{[0:256], [0:1024]}}\n  ROOT %d = {rows(1)} add(%b, %c)\n}}\n"
        text = [f"%a = {rows(16)} parameter(0)", *lines, f"ROOT %t = ({rows(1)}, {rows(4)}) tuple(%l, %out)"]
        program = lower_text("\n".join(text), called)
        in_hbm = {b.name: b.within for b in program.buffers if b.space == "hbm"}
        assert (in_hbm["x2"], in_hbm["x3"]) == ("", "out")


def test_two_temporaries_of_different_times_lie_in_one_output():
    """The second comes when the first is dead."""
    lines = [cut("x", 4), cut("k", 1, "x"), cut("y", 3), cut("l", 1, "y"), f"%m = {rows(1)} add(%k, %l)", cut("o", 4)]
    found = homes(lines, f"({rows(1)}, {rows(4)}) tuple(%m, %o)")
    assert (found["x"], found["y"]) == ("o", "o")


def test_a_temporary_that_is_read_while_the_output_is_made_lies_elsewhere():
    """Its last position is the output's first."""
    found = homes([cut("x", 4), f"%o = {rows(4)} negate(%x)"], f"({rows(4)}, {rows(16)}) tuple(%o, %a)")
    assert found == {"x": ""}


def test_temporaries_of_the_heap_are_counted_at_their_fullest():
    """A chain of arrays of 4 MiB: two at once, nothing between them."""
    lines = [
        f"%a = {rows(4)} parameter(0)",
        *(f"%t{n} = {rows(4)} negate(%{f't{n - 1}' if n else 'a'})" for n in range(5)),
    ]
    program = lower_text("\n".join([*lines, f"ROOT %r = {rows(1)} slice(%t4), slice={{[0:256], [0:1024]}}"]))
    assert program.temp_bytes == 8 * MIB


def test_a_hole_in_the_heap_is_counted_with_it():
    """3, then 1 MiB beside it, then 4 beside that when the 3 are dead: 8 MiB of heap, of which 5 are in use at most.

    XLA's statistics add what is not in use at the fullest moment.
    """
    program = lower_text(
        f"""
        %a = {rows(16)} parameter(0)
        {cut("x", 3)}
        {cut("y", 1, "x")}
        {cut("z", 4)}
        %w = {rows(1)} fusion(%y, %z), kind=kLoop, calls=%f
        ROOT %r = f32[8,128]{{1,0:T(8,128)}} slice(%w), slice={{[0:8], [0:128]}}""",
        f"""%f {{
  %p = {rows(1)} parameter(0)
  %q = {rows(4)} parameter(1)
  %c = {rows(1)} slice(%q), slice={{[0:256], [0:1024]}}
  ROOT %d = {rows(1)} add(%p, %c)
}}
""",
    )
    offsets = {b.name: (b.offset_bytes or 0) // MIB for b in program.buffers if b.kind == "temporary"}
    assert offsets == {"x": 0, "y": 3, "z": 4, "w": 0}
    assert program.temp_bytes == (8 + 8 - 6) * MIB


HALF = "f32[512,1024]{1,0:T(8,128)S(1)}"
WHOLE = "f32[1024,1024]{1,0:T(8,128)S(1)}"
FETCHED = f"""
    %a = {rows(4)} parameter(0)
    %s = (({rows(4)}), {HALF}, u32[]) slice-start(%a), slice={{[0:512], [0:1024]}}
    %x = f32[8,128]{{1,0:T(8,128)}} slice(%a), slice={{[0:8], [0:128]}}
    %t = (({rows(4)}), {HALF}, u32[]) slice-start(%a), slice={{[512:1024], [0:1024]}}
    %p = {HALF} slice-done(%s)
    %q = {HALF} slice-done(%t)
    %j = {WHOLE} custom-call(%p, %q), custom_call_target="ConcatBitcast"
"""


def in_vmem(text, others=""):
    """Return name, offset in MiB, first and last position of the buffers of a megabyte or more in VMEM."""
    program = lower_text(text, others)
    found = [b for b in program.buffers if b.space == "vmem" and b.n_bytes >= MIB]
    names = (*program.schedule, "end")
    return [(b.name, (b.offset_bytes or 0) / MIB, names[b.first], names[b.last]) for b in found]


def test_slices_lie_where_the_joined_array_does():
    """Each from its own start, the second behind the first."""
    found = in_vmem(f"{FETCHED}\nROOT %r = f32[8,128]{{1,0:T(8,128)}} slice(%j), slice={{[0:8], [0:128]}}")
    assert sorted(found) == [("j", 0, "j", "r"), ("s", 0, "s", "q"), ("t", 2, "t", "q")]


@pytest.mark.parametrize("listed", ["(%p, %q)", "(%q, %p)"])
@pytest.mark.parametrize(("first", "offsets"), [("s", {"s": 0, "t": 2}), ("t", {"s": 2, "t": 0})])
def test_slices_lie_as_they_do_in_their_array(first, offsets, listed):
    """Whichever is fetched first, and whichever the join names first."""
    text = FETCHED.replace("(%p, %q)", listed)
    if first == "t":
        halves = ("{[0:512], [0:1024]}", "{[512:1024], [0:1024]}")
        text = text.replace(halves[0], "half").replace(halves[1], halves[0]).replace("half", halves[1])
    found = in_vmem(f"{text}\nROOT %r = f32[8,128]{{1,0:T(8,128)}} slice(%j), slice={{[0:8], [0:128]}}")
    assert {name: offset for name, offset, *_ in found} == {"j": 0, **offsets}


STATE = f"(s32[], {WHOLE})"
UPDATING = f"""%cond {{
  %s = {STATE} parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %n = s32[] constant(3)
  ROOT %lt = pred[] compare(%i, %n), direction=LT
}}

%body {{
  %s = {STATE} parameter(0)
  %i = s32[] get-tuple-element(%s), index=0
  %v = {WHOLE} get-tuple-element(%s), index=1
  %u = f32[8,128]{{1,0:T(8,128)}} slice(%v), slice={{[0:8], [0:128]}}
  %w = {WHOLE} dynamic-update-slice(%v, %u, %i, %i)
  ROOT %r = {STATE} tuple(%i, %w)
}}
"""
LOOP = f"""
    %z = s32[] constant(0)
    %init = {STATE} tuple(%z, %j)
    %loop = {STATE} while(%init), condition=%cond, body=%body
    %out = {WHOLE} get-tuple-element(%loop), index=1
    ROOT %k = f32[8,128]{{1,0:T(8,128)}} slice(%out), slice={{[0:8], [0:128]}}
"""


def test_a_loop_carries_a_joined_array_where_it_lies():
    """What the loop updates in place takes no memory beside the 4 MiB that the slices came to."""
    found = in_vmem(f"{FETCHED}\n{LOOP}", UPDATING)
    assert max(offset + (2 if name in "st" else 4) for name, offset, *_ in found) == 4


def test_slices_in_hbm_are_not_laid_side_by_side():
    """There the schedule fills the heap: the flag of the first half, which ends first, and then both halves."""
    joined = FETCHED.replace("S(1)", "") + "\nROOT %r = f32[8,128]{1,0:T(8,128)} slice(%j), slice={[0:8], [0:128]}"
    found = {b.name: b.offset_bytes for b in lower_text(joined).buffers if b.kind == "temporary" and b.n_bytes >= MIB}
    flag_bytes = alignment_bytes("hbm")
    assert found == {"s": flag_bytes, "t": flag_bytes + 2 * MIB, "j": 0}


def test_of_two_joins_of_one_slice_the_first_has_it():
    """A slice lies in one place; the other array has memory of its own."""
    other = f'%k = {WHOLE} custom-call(%q, %p), custom_call_target="ConcatBitcast"'
    end = f"ROOT %r = {rows(4)} add(%j, %k)"
    offsets = {name: offset for name, offset, *_ in in_vmem(f"{FETCHED}\n{other}\n{end}")}
    assert (offsets["s"] - offsets["j"], offsets["t"] - offsets["j"]) == (0, 2)
    assert abs(offsets["k"] - offsets["j"]) == 4


def test_arrays_in_vmem_lie_at_multiples_of_a_register():
    """Two arrays in VMEM of a little more than a register each."""
    vmem = "f32[9,128]{1,0:T(1,128)S(1)}"
    program = lower_text(f"""
        %a = f32[9,128]{{1,0:T(1,128)}} parameter(0)
        %x = {vmem} negate(%a)
        %y = {vmem} exponential(%a)
        ROOT %r = f32[9,128]{{1,0:T(1,128)}} add(%x, %y)""")
    arrays = [b for b in program.buffers if b.space == "vmem" and b.kind == "temporary"]
    assert sorted(b.offset_bytes for b in arrays) == [0, 8192]
