"""Collectives of compiled programs: which are one, and which run beside the kernels that do not need them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.compiler.overwrites import overwrites
from tests.compiler.programs import LESS, compiled
from tests.machine.collectives import link_rate
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute, memory, simulate
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.units import PS_PER_SECOND

COLLECTIVES = {
    "gathered": "all-gather(a), replica_groups={{0,1}}, dimensions={0}",
    "reduced": "all-reduce(a), replica_groups={{0,1}}, to_apply=add",
    "permuted": "collective-permute(a), source_target_pairs={{0,1},{1,0}}",
}


def text_of(name):
    """Return a program in which a collective and a product need the same array, and nothing of each other."""
    rows = 2048 if name == "gathered" else 1024
    return f"""HloModule beside, replica_count=2

add {{ x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }}

ENTRY main {{
  p = f32[1024,1024] parameter(0)
  q = f32[1024,1024] parameter(1)
  a = f32[1024,1024] dot(p, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  sent = f32[{rows},1024] {COLLECTIVES[name]}
  b = f32[1024,1024] dot(a, q), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  c = f32[{rows},1024] tanh(sent)
  ROOT both = (f32[{rows},1024], f32[1024,1024]) tuple(c, b)
}}
"""


def test_a_permute_starts_behind_what_it_sends_and_ends_before_its_user():
    """With the product that it does not need between the two, wherever the order has that."""
    module = compiled(text_of("permuted"))
    assert check(module) == []
    opcodes = [i.opcode for i in module.entry]
    start = next(at for at, opcode in enumerate(opcodes) if opcode.endswith("-start") and "copy" not in opcode)
    done = next(at for at, opcode in enumerate(opcodes) if opcode.endswith("-done") and "copy" not in opcode)
    assert module.entry.instructions[start - 1].name in module.entry.instructions[start].operands
    user = module.entry.instructions[done + 1]
    assert module.entry.instructions[done].name in user.operands


RING = """HloModule ring, replica_count=2

ENTRY main {
  x = f32[1024,1024] parameter(0)
  w = f32[1024,1024] parameter(1)
  a = f32[1024,1024] collective-permute(x), channel_id=1, source_target_pairs={{0,1},{1,0}}
  b = f32[1024,1024] collective-permute(a), channel_id=2, source_target_pairs={{0,1},{1,0}}
  y = f32[1024,1024] dot(a, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = f32[1024,1024] dot(b, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT both = (f32[1024,1024], f32[1024,1024]) tuple(y, z)
}
"""


@pytest.mark.parametrize("swapped", [False, True])
def test_what_a_permute_brought_is_sent_on_ahead_of_its_user(swapped):
    """The product of what came runs while the next permute does, whichever of the two products comes first.

    Source: a ring of products compiled ahead of time for v5e, of which each hides the next permute.
    """
    module = compiled(RING.replace("tuple(y, z)", "tuple(z, y)") if swapped else RING)
    assert check(module) == []
    names = [i.name for i in module.entry if "permute" in i.opcode or i.opcode == "dot"]
    sent = ["collective-permute-start", "collective-permute-done", "collective-permute-start.1"]
    waited = ["collective-permute-done.1", "z"]
    assert names == [*sent, "y", *waited] if not swapped else [*sent, *waited, "y"]


@pytest.mark.parametrize(("name", "chip"), [("gathered", "v5p"), ("gathered", "v6e"), ("reduced", "v5e")])
def test_the_others_keep_the_core_waiting(name, chip):
    """As those of 33 programs compiled ahead of time, without flags, for v5e, v5p, v6e and v7x; v5e hides gathers."""
    assert COLLECTIVES[name].split("(")[0] in compiled(text_of(name), chip).entry.opcodes


@pytest.mark.parametrize("name", COLLECTIVES)
def test_values_and_bytes_stay(name):
    """What each device computes is what it did, and the links carry as much."""
    text, rng = text_of(name).replace("1024", "8").replace("2048", "16"), np.random.default_rng(1)
    inputs = [[rng.normal(size=(8, 8)).astype("f4") for _ in range(2)] for _ in range(2)]
    before, after = parse_module(SourceText("text", text)), compiled(text)
    for one, two in zip(execute(before, inputs), execute(after, inputs), strict=True):
        for ours, theirs in zip(one, two, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    result = simulate(compiled(text_of(name)), "v5e", topology="v5e:1x2")
    assert sum(record.payload_bytes for record in result.timeline.records) >= 2**22


SUMS = """HloModule sums, replica_count=2

add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }

plus { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }

larger { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] maximum(x, y) }

ENTRY main {
INSTRUCTIONS
}
"""


def sums(*lines):
    """Return a module with these instructions; its result are all sums, ``sum_0``, ``sum_1`` and so on."""
    names = [line.split()[0] for line in lines if "all-reduce" in line]
    shapes = [line.split(" = ")[1].split()[0] for line in lines if "all-reduce" in line]
    root = f"ROOT all = ({', '.join(shapes)}) tuple({', '.join(names)})"
    return SUMS.replace("INSTRUCTIONS", "\n".join([*lines, root]))


def counts(module):
    """Return how many arrays each all-reduce of a module sums."""
    return [len(i.operands) for c in module.computations for i in c if i.opcode in ("all-reduce", "all-reduce-start")]


GROUPS = "replica_groups={{0,1}}"


def test_sums_are_one_up_to_what_the_tpu_compiler_lets_them_have():
    """160 of 1 MiB: 120 and 40, as it makes for v5e, v5p and v6e; of 64 MiB each stays by itself."""
    lines = [
        f"p{n} = f32[2048,128] parameter({n})\nsum_{n} = f32[2048,128] all-reduce(p{n}), {GROUPS}, to_apply=add"
        for n in range(160)
    ]
    assert sorted(counts(compiled(sums(*"\n".join(lines).splitlines())))) == [40, 120]
    large = [line.replace("2048", str(64 * 2048)) for text in lines[:3] for line in text.splitlines()]
    assert counts(compiled(sums(*large))) == [1, 1, 1]


def test_only_sums_that_are_alike_and_need_no_other_are_one():
    """Not a maximum with a sum, nor what is summed again, nor two types; twins of a computation are alike."""
    lines = [
        "p = f32[8,128] parameter(0)",
        "q = bf16[8,128] parameter(1)",
        f"sum_0 = f32[8,128] all-reduce(p), {GROUPS}, to_apply=add",
        f"sum_1 = f32[8,128] all-reduce(p), {GROUPS}, to_apply=larger",
        "again = f32[8,128] negate(sum_0)",
        f"sum_2 = f32[8,128] all-reduce(again), {GROUPS}, to_apply=add",
    ]
    assert counts(compiled(sums(*lines))) == [1, 1, 1]
    twice = [*lines[:3], f"sum_1 = f32[8,128] all-reduce(q32), {GROUPS}, to_apply=plus"]
    twice.insert(2, "q32 = f32[8,128] convert(q)")
    assert counts(compiled(sums(*twice))) == [2]


def test_sums_that_weigh_their_values_are_not_one():
    """One takes twice a value, the other three times: a computation of several operations is no sum for XLA."""
    lines = [f"p{n} = f32[8,128] parameter({n})" for n in range(2)]
    lines += [f"sum_{n} = f32[8,128] all-reduce(p{n}), {GROUPS}, to_apply=weigh_{n + 2}" for n in range(2)]
    weigh = """weigh_{n} {{ x = f32[] parameter(0)  y = f32[] parameter(1)  c = f32[] constant({n})
  w = f32[] multiply(y, c)  ROOT z = f32[] maximum(x, w) }}

"""
    regions = "".join(weigh.format(n=n) for n in (2, 3))
    assert counts(compiled(sums(*lines).replace("plus {", regions + "plus {"))) == [1, 1]


def test_a_sum_that_waits_or_is_waited_for_is_not_one_with_others():
    """Of four the third is to run behind the first: both stay by themselves."""
    lines = [f"p{n} = f32[8,128] parameter({n})" for n in range(4)]
    lines += [f"sum_{n} = f32[8,128] all-reduce(p{n}), {GROUPS}, to_apply=add" for n in range(4)]
    lines[6] += ", control-predecessors={sum_0}"
    made = [i.operands for i in compiled(sums(*lines)).entry if i.opcode == "all-reduce"]
    assert sorted(made) == [("p0",), ("p1", "p3"), ("p2",)]
    assert made.index(("p0",)) < made.index(("p2",))


def test_sums_are_not_one_where_something_has_to_run_between_them():
    """A product of the first sum runs before that of which the second is."""
    product = "lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    lines = [
        "p = f32[128,128] parameter(0)",
        f"sum_0 = f32[128,128] all-reduce(p), {GROUPS}, to_apply=add",
        f"one = f32[128,128] dot(sum_0, sum_0), {product}",
        f"two = f32[128,128] dot(p, p), {product}, control-predecessors={{one}}",
        f"sum_1 = f32[128,128] all-reduce(two), {GROUPS}, to_apply=add",
        f"sum_2 = f32[128,128] all-reduce(one), {GROUPS}, to_apply=larger",
    ]
    assert counts(compiled(sums(*lines))) == [1, 1, 1]


def test_groups_are_alike_however_they_are_written():
    """JAX writes those of one mesh axis in two notations, depending on how its partitioner came to them."""
    groups = (GROUPS, "replica_groups=[1,2]<=[2]")
    lines = [f"p{n} = f32[8,128] parameter({n})" for n in range(2)]
    lines += [f"sum_{n} = f32[8,128] all-reduce(p{n}), {one}, to_apply=add" for n, one in enumerate(groups)]
    assert counts(compiled(sums(*lines))) == [2]


@pytest.mark.parametrize(("chip", "space"), [("v5e", 1), ("v6e", 1), ("v5p", 0)])
def test_what_is_summed_stays_in_vmem(chip, space):
    """As 8 MiB does in programs compiled ahead of time for v5e and v6e; for v5p, of two cores, nothing does."""
    module = compiled(text_of("reduced"), chip)
    reduce = next(i for i in module.entry if i.opcode == "all-reduce")
    both = (reduce.shape, module.entry[reduce.operands[0]].shape)
    assert [shape.actual_layout.memory_space for shape in both] == [space] * 2


def test_the_algorithm_is_chosen_where_the_slice_is_known():
    """4 MiB among 8 chips in two rows: each half once round in its own direction, to be summed and to be handed out."""
    text = text_of("reduced").replace("replica_count=2", "replica_count=8").replace("{{0,1}}", "{}")
    ici = load_chip("v5e").ici
    result = simulate(compiled(text), "v5e", topology="v5e:2x4")
    found = next(record for record in result.timeline.records if record.name.startswith("sent"))
    steps = 2 * 7
    seconds = steps / 8 * (2**22 / 2) / link_rate("v5e:2x4") + ici.launch_seconds
    seconds += steps * (ici.step_seconds + ici.hop_latency_seconds)
    assert (found.end_ps - found.start_ps) / PS_PER_SECOND == pytest.approx(seconds, rel=0.02)


def test_sums_that_are_one_are_what_they_were():
    """Of both devices, bit for bit."""
    lines = [
        "p = f32[8,128] parameter(0)",
        "q = f32[16] parameter(1)",
        f"sum_0 = f32[8,128] all-reduce(p), {GROUPS}, to_apply=add",
        f"sum_1 = f32[16] all-reduce(q), {GROUPS}, to_apply=add",
    ]
    rng, text = np.random.default_rng(2), sums(*lines)
    inputs = [[rng.normal(size=size).astype("f4") for size in ((8, 128), 16)] for _ in range(2)]
    module = compiled(text)
    assert check(module) == []
    assert counts(module) == [2]
    before = execute(parse_module(SourceText("text", text)), inputs)
    for one, two in zip(before, execute(module, inputs), strict=True):
        for ours, theirs in zip(one, two, strict=True):
            np.testing.assert_array_equal(ours, theirs)
    assert simulate(module, "v5e", topology="v5e:1x2").time_us > 0


LOOP = """HloModule loop, replica_count=2

add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }

body {
  state = (s32[], f32[512,512], f32[512,512]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  one = s32[] constant(1)
  next = s32[] add(n, one)
  w = f32[512,512] get-tuple-element(state), index=1
  x = f32[512,512] get-tuple-element(state), index=2
  whole = f32[512,512] all-reduce(w), replica_groups={{0,1}}, to_apply=add
  y = f32[512,512] add(x, whole)
  ROOT out = (s32[], f32[512,512], f32[512,512]) tuple(next, CARRIED, y)
}

condition {
  state = (s32[], f32[512,512], f32[512,512]) parameter(0)
  n = s32[] get-tuple-element(state), index=0
  most = s32[] constant(10)
  ROOT less = pred[] compare(n, most), direction=LT
}

ENTRY main {
  w = f32[512,512] parameter(0)
  x = f32[512,512] parameter(1)
  zero = s32[] constant(0)
  start = (s32[], f32[512,512], f32[512,512]) tuple(zero, w, x)
  end = (s32[], f32[512,512], f32[512,512]) while(start), condition=condition, body=body
  ROOT result = f32[512,512] get-tuple-element(end), index=2
}
"""


@pytest.mark.parametrize(("carried", "is_before"), [("w", True), ("y", False), ("whole", False)])
def test_a_loop_sums_what_never_changes_once_and_before(carried, is_before):
    """As the TPU compiler does; what changes is summed in each trip."""
    module = _check_that_values_stay(LOOP.replace("CARRIED", carried))
    assert is_before == any("all-reduce" in i.opcode for i in module.entry)


def test_a_loop_that_begins_from_a_whole_argument_sums_before_it_too():
    """Its parts are taken out and put together again."""
    text = (
        LOOP.replace("CARRIED", "w").split("ENTRY")[0]
        + """ENTRY main {
  start = (s32[], f32[512,512], f32[512,512]) parameter(0)
  end = (s32[], f32[512,512], f32[512,512]) while(start), condition=condition, body=body
  ROOT result = f32[512,512] get-tuple-element(end), index=2
}
"""
    )
    assert "all-reduce" in [i.opcode for i in compiled(text).entry]


BRANCHES = """as_it_is {
  state = (s32[], f32[512,512], f32[512,512]) parameter(0)
  ROOT w = f32[512,512] get-tuple-element(state), index=1
}

negative {
  state = (s32[], f32[512,512], f32[512,512]) parameter(0)
  w = f32[512,512] get-tuple-element(state), index=1
  ROOT less = f32[512,512] negate(w)
}

body"""
BODIES = {
    "behind a barrier": """kept = (s32[], f32[512,512], f32[512,512]) opt-barrier(state)
  also = f32[512,512] get-tuple-element(kept), index=1
  y = f32[512,512] subtract(whole, also)""",
    "by branches": "chosen = f32[512,512] conditional(n, state, state), branch_computations={as_it_is, negative}\n"
    "  y = f32[512,512] subtract(whole, chosen)",
}


@pytest.mark.parametrize("how", BODIES)
def test_what_a_loop_has_as_it_was_besides_is_not_summed(how):
    """Whoever takes the whole tuple of the loop has each of its arrays."""
    _check_that_values_stay(
        LOOP.replace("y = f32[512,512] add(x, whole)", BODIES[how]).replace("body", BRANCHES, 1).replace("CARRIED", "w")
    )


def test_what_a_loop_carries_to_two_places_is_not_summed():
    """One of them is what the loop returns."""
    _check_that_values_stay(LOOP.replace("CARRIED, y", "w, w"))


def test_a_sum_that_is_wanted_behind_others_stays_in_its_loop():
    """It is not made before them."""
    text = LOOP.replace("CARRIED", "w").replace("to_apply=add", "to_apply=add, control-predecessors={next}")
    assert "all-reduce" not in [i.opcode for i in compiled(text).entry]


def test_what_another_loop_begins_from_is_not_summed():
    """One sums in each trip, the other does not; both are given one tuple."""
    text = LOOP.replace("CARRIED", "w")
    other = text[text.index("body") : text.index("condition")].replace("body", "other")
    both = """more = (s32[], f32[512,512], f32[512,512]) while(start), condition=condition, body=other
  one = f32[512,512] get-tuple-element(end), index=2
  two = f32[512,512] get-tuple-element(more), index=2
  ROOT result = f32[512,512] subtract(one, two)"""
    text = text.replace("ROOT result = f32[512,512] get-tuple-element(end), index=2", both)
    module = _check_that_values_stay(text.replace("ENTRY", other.replace("add(x, whole)", "subtract(x, w)") + "ENTRY"))
    assert "all-reduce" in [i.opcode for i in module.entry]


def _check_that_values_stay(text):
    """Check that a module computes what it did when it is compiled, and return it compiled."""
    module, rng = compiled(text), np.random.default_rng(3)
    assert check(module) == []
    inputs = [[rng.normal(size=(512, 512)).astype("f4") for _ in range(2)] for _ in range(2)]
    before = execute(parse_module(SourceText("text", text)), inputs)
    for one, two in zip(before, execute(module, inputs), strict=True):
        np.testing.assert_array_equal(one, two)
    return module


OVER = """HloModule over, num_partitions=4

add { x = f32[] parameter(0)  y = f32[] parameter(1)  ROOT z = f32[] add(x, y) }

ENTRY main {
  p = f32[1024,1024] parameter(0)
  q = f32[1024,1024] parameter(1)
  a = f32[1024,1024] dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[1024,1024] all-reduce(a), channel_id=1, replica_groups={{0,1,2,3}}, use_global_device_ids=true, to_apply=add
  ROOT r = f32[1024,1024] dot(s, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
MATRIX = 1024 * 1024 * 4


def test_what_a_kernel_makes_for_a_sum_is_summed_where_it_lies():
    """As XLA says of the memory of such programs, which have one array for the two."""
    module = compiled(OVER, "v3")
    summed = next(i for i in module.entry if i.opcode == "all-reduce")
    assert summed.backend_config.aliasing_operands == ((0, 1),)
    assert overwrites(module) == []
    use = memory(module, "v3").use
    # Two arguments, the sum and the result.
    assert use.peak_hbm_bytes == pytest.approx(4 * MATRIX, rel=0.01)


LAST = "ROOT r = f32[1024,1024] dot(s, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
GIVEN_AWAY = "over, input_output_alias={ {}: (0, {}, may-alias) },"
UPDATED = """z = s32[] constant(0)
  u = f32[8,1024] parameter(2)
  ROOT r = f32[1024,1024] dynamic-update-slice(s, u, z, z)"""
SORTED = "sort(p), dimensions={1}, to_apply=less"
TURNED = "t = f32[1024,1024] transpose(a), dimensions={1,0}\n  s = "
ELSEWHERE = {
    "an argument": OVER.replace("all-reduce(a)", "all-reduce(p)"),
    "read again": OVER.replace("dot(s, q)", "dot(s, a)"),
    "a view of what is read again": OVER.replace("ENTRY", f"{LESS}\n\nENTRY")
    .replace("dot(p, q), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n  s = ", f"{SORTED}\n  {TURNED}")
    .replace("all-reduce(a)", "all-reduce(t)")
    .replace("dot(s, q)", "dot(s, a)"),
    "itself a result": OVER.replace("ROOT ", "").replace("  a = ", "  ROOT a = "),
    "the sum a result": OVER.replace(LAST, "").replace("s = ", "ROOT s = "),
    "updated to a result": OVER.replace(LAST, UPDATED).replace("over,", GIVEN_AWAY),
}


@pytest.mark.parametrize("name", ELSEWHERE)
def test_other_sums_have_a_place_of_their_own(name):
    """Where what is summed is needed longer, or lies elsewhere than the sum has to."""
    module = compiled(ELSEWHERE[name], "v3")
    summed = next(i for i in module.entry if i.opcode == "all-reduce")
    assert summed.backend_config.aliasing_operands == ()
    assert overwrites(module) == []
