"""Collectives over 2 to 8 devices against NumPy on the whole of what the devices hold."""

from __future__ import annotations

from itertools import permutations
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tpusim
from tests.growth import within
from tests.numerics.devices import module_of, run
from tests.semantics.hlo import parse
from tpusim.build.builder import Builder, Op
from tpusim.errors import ProgramError, SimulationError
from tpusim.ir.module import with_devices

if TYPE_CHECKING:
    from collections.abc import Callable

ADD = "add {\n  a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT c = f32[] add(a, b)\n}\n"


def add(x: Op, y: Op) -> Op:
    """Return the sum."""
    return x + y


def held(count: int, *sizes: int, dtype: Any = np.float32) -> list[list[Any]]:
    """Return for each device an array of its own numbers, small integers that every type adds exactly."""
    n = int(np.prod(sizes))
    return [[(np.arange(n).reshape(sizes) + 10 * device).astype(dtype)] for device in range(count)]


def on_array(shape: str, build: Callable[[Builder, Op], Any]) -> Builder:
    """Return the builder of a program of one parameter."""
    b = Builder("m")
    build(b, b.parameter(0, shape, "x"))
    return b


def test_a_sum_that_overflows_is_infinite_without_a_word() -> None:
    """NumPy would warn of it, without a place."""
    program = on_array("f32[2]", lambda b, x: b.all_reduce(x, add))
    result = run(program, [[np.array([3e38, 1], np.float32)]] * 2)
    np.testing.assert_array_equal(result, [[np.inf, 2]] * 2)


def test_all_reduce_of_the_document() -> None:
    """[1.0, 2.5] and [3.0, 5.25] add up to [4.0, 7.75] on both."""
    program = on_array("f32[2]", lambda b, x: b.all_reduce(x, add))
    inputs = [[np.array([1.0, 2.5], np.float32)], [np.array([3.0, 5.25], np.float32)]]
    for result in run(program, inputs):
        np.testing.assert_array_equal(result, [4.0, 7.75])


CALLED = ADD.replace("f32", "bf16") + (
    "f {\n  a = bf16[] parameter(0)\n  b = bf16[] parameter(1)\n  ROOT c = bf16[] call(a, b), to_apply=add\n}\n"
)
WIDENED = (
    "f {\n  a = bf16[] parameter(0)\n  b = bf16[] parameter(1)\n  c = f32[] convert(a)\n  d = f32[] convert(b)\n"
    "  s = f32[] add(c, d)\n  ROOT r = bf16[] convert(s)\n}\n"
)


@pytest.mark.parametrize("spelling", [CALLED, WIDENED], ids=["call", "convert"])
@pytest.mark.parametrize("instruction", ["all-reduce(x)", "reduce-scatter(x), dimensions={0}"])
def test_a_sum_over_devices_is_rounded_once_however_it_is_written(instruction: str, spelling: str) -> None:
    """256 and two ones are 258; rounded after every step they would stay at 256."""
    size = 3 if instruction.startswith("all") else 1
    root = f"ROOT r = bf16[{size}] {instruction}, replica_groups={{{{0,1,2}}}}, to_apply=f"
    module = module_of("x = bf16[3] parameter(0)", root, before=spelling)
    inputs = [[np.full(3, value, ml_dtypes.bfloat16)] for value in (256, 1, 1)]
    assert [result.astype(int).tolist() for result in run(module, inputs)] == [[258] * size] * 3


def test_all_gather_of_the_document() -> None:
    """[1.0, 2.5] and [3.0, 5.25] one after the other on both."""
    program = on_array("f32[2]", lambda b, x: b.all_gather(x, 0, 2))
    inputs = [[np.array([1.0, 2.5], np.float32)], [np.array([3.0, 5.25], np.float32)]]
    for result in run(program, inputs):
        np.testing.assert_array_equal(result, [1.0, 2.5, 3.0, 5.25])


def test_reduce_scatter_of_the_document() -> None:
    """[1.0, 2.25] and [3.0, 5.25] give 4.0 to the first and 7.5 to the second."""
    program = on_array("f32[2]", lambda b, x: b.reduce_scatter(x, add, 0, 2))
    inputs = [[np.array([1.0, 2.25], np.float32)], [np.array([3.0, 5.25], np.float32)]]
    assert [result.tolist() for result in run(program, inputs)] == [[4.0], [7.5]]


def test_all_to_all_of_the_document() -> None:
    """f32[4,16] on 4 devices: columns are handed out, rows put together, f32[16,4]."""
    program = on_array("f32[4,16]", lambda b, x: b.all_to_all(x, 1, 0, 4))
    inputs = held(4, 4, 16)
    for device, result in enumerate(run(program, inputs)):
        blocks = [array[:, 4 * device : 4 * device + 4] for (array,) in inputs]
        np.testing.assert_array_equal(result, np.concatenate(blocks, 0))


@settings(max_examples=25, deadline=None)
@given(order=st.permutations(range(6)), cut=st.sampled_from([1, 2, 3, 6]))
def test_groups_say_who_and_in_which_order(order: list[int], cut: int) -> None:
    """All-gather over groups of 1 to 6 in any order: everyone of a group has its operands in its order."""
    groups = [order[i : i + cut] for i in range(0, 6, cut)]
    program = on_array("f32[2,3]", lambda b, x: b.all_gather(x, 1, cut, groups))
    inputs = held(6, 2, 3)
    results = run(program, inputs)
    for group in groups:
        wanted = np.concatenate([inputs[member][0] for member in group], 1)
        for member in group:
            np.testing.assert_array_equal(results[member], wanted)


def test_groups_of_all_to_all_have_an_order_too() -> None:
    """The document's { {1,2,3}, {4,5,0} }: blocks are joined in the order 1, 2, 3 and 4, 5, 0."""
    groups = [[1, 2, 3], [4, 5, 0]]
    program = on_array("f32[3]", lambda b, x: b.all_to_all(x, 0, 0, 3, groups))
    inputs = held(6, 3)
    results = run(program, inputs)
    for group in groups:
        for place, member in enumerate(group):
            np.testing.assert_array_equal(results[member], [inputs[other][0][place] for other in group])


def test_all_reduce_takes_groups_of_different_sizes() -> None:
    """Groups {0,2,3} and {1}."""
    program = on_array("f32[2]", lambda b, x: b.all_reduce(x, add, [[0, 2, 3], [1]]))
    inputs = held(4, 2)
    results = run(program, inputs)
    np.testing.assert_array_equal(results[3], inputs[0][0] + inputs[2][0] + inputs[3][0])
    np.testing.assert_array_equal(results[1], inputs[1][0])


MODES = [
    # channel, global ids, groups, and for device 2 (replica 1, partition 0 of 2 x 2) whom it adds.
    (None, False, [], (0, 2)),
    (None, False, [[0], [1]], (2,)),
    (1, False, [], (0, 1, 2, 3)),
    (1, False, [[0], [1]], (2, 3)),
    (1, True, [[0, 3], [1, 2]], (1, 2)),
    (1, True, [[3, 2, 1, 0]], (0, 1, 2, 3)),
]


@pytest.mark.parametrize(("channel", "is_global", "groups", "wanted"), MODES)
def test_the_modes_of_groups(channel: int | None, is_global: bool, groups: Any, wanted: tuple[int, ...]) -> None:
    """Numbers in groups are replicas, replicas with all their partitions, or devices."""
    program = on_array("f32[2]", lambda b, x: b.all_reduce(x, add, groups, channel, is_global))
    inputs = held(4, 2)
    result = run(program, inputs, partitions=2)[2]
    np.testing.assert_array_equal(result, np.sum([inputs[device][0] for device in wanted], axis=0))


def test_groups_of_partitions() -> None:
    """All-to-all with a channel: numbers are partitions of the own replica."""
    program = on_array("f32[2]", lambda b, x: b.all_to_all(x, 0, 0, 2, [[1, 0]], 1))
    inputs = held(4, 2)
    results = run(program, inputs, partitions=2)
    np.testing.assert_array_equal(results[3], [inputs[3][0][0], inputs[2][0][0]])
    np.testing.assert_array_equal(results[0], [inputs[1][0][1], inputs[0][0][1]])


def test_replica_and_partition_ids() -> None:
    """3 replicas of 2 partitions count partitions first."""
    b = Builder("m")
    b.tuple([b.replica_id(), b.partition_id()])
    found = [tuple(int(part) for part in result) for result in run(b, [[]] * 6, partitions=2)]
    assert found == [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize("method", ["max", "min", "mul", "logical_or"])
def test_all_reduce_with_other_computations(method: str) -> None:
    """Maximum, minimum, product and bitwise or of integers."""
    program = on_array("s32[5]", lambda b, x: b.all_reduce(x, lambda p, q: getattr(p.builder, method)(p, q)))
    inputs = held(3, 5, dtype=np.int32)
    ufunc = {"max": np.maximum, "min": np.minimum, "mul": np.multiply, "logical_or": np.bitwise_or}[method]
    for result in run(program, inputs):
        np.testing.assert_array_equal(result, ufunc.reduce([array for (array,) in inputs]))


def test_all_reduce_with_a_computation_that_has_no_name() -> None:
    """A + 2 b, folded in the order of the group."""
    program = on_array("f32[3]", lambda b, x: b.all_reduce(x, lambda p, q: p + q * 2.0, [[2, 0, 1]]))
    inputs = held(3, 3)
    for result in run(program, inputs):
        np.testing.assert_array_equal(result, inputs[2][0] + 2 * inputs[0][0] + 2 * inputs[1][0])


def test_a_sum_in_bf16_is_rounded_once() -> None:
    """256 + 1 + 1 is 258; rounded after every addition it would be 256."""
    program = on_array("bf16[]", lambda b, x: b.all_reduce(x, add))
    inputs = [[np.array(value, ml_dtypes.bfloat16)] for value in (256, 1, 1)]
    assert [float(result) for result in run(program, inputs)] == [258.0] * 3


@pytest.mark.parametrize("results", ["f32[]", "(f32[], f32[])"])
def test_a_sum_of_bf16_in_f32_is_not_rounded(results: str) -> None:
    """256 + 1 is 257, which bf16 does not have; TPU programs add up what is widened for that alone so."""
    operands = "x, x" if "," in results else "x"
    root = f"ROOT r = {results} all-reduce({operands}), replica_groups={{{{0,1}}}}, to_apply=add"
    module = module_of("x = bf16[] parameter(0)", root, before=ADD)
    found = run(module, [[np.array(value, ml_dtypes.bfloat16)] for value in (256, 1)])
    assert [np.float64(result).ravel().tolist() for result in found] == [[257] * (2 if "," in results else 1)] * 2


def test_tuples_are_reduced_element_by_element() -> None:
    """Two arrays in one all-reduce, one gathered tuple."""
    b = Builder("m")
    x, y = b.parameter(0, "f32[2]"), b.parameter(1, "f32[3]")
    reduced = b.all_reduce(b.tuple([x, y]), add)
    b.tuple([reduced, b.all_gather(b.tuple([x, y]), 0, 2)])
    inputs = [[np.ones(2, np.float32), np.full(3, 2, np.float32)], [np.zeros(2, np.float32), np.ones(3, np.float32)]]
    (sums, gathered), _ = run(b, inputs)
    assert [part.tolist() for part in sums] == [[1, 1], [3, 3, 3]]
    assert [part.tolist() for part in gathered] == [[1, 1, 0, 0], [2, 2, 2, 1, 1, 1]]


def test_all_to_all_of_a_tuple() -> None:
    """Operand i goes to member i; member j's comes back at place j."""
    b = Builder("m")
    b.all_to_all_tuple([b.parameter(0, "f32[2]"), b.parameter(1, "f32[2]")], [[0, 1]])
    inputs = [[np.full(2, 10 * device + number, np.float32) for number in range(2)] for device in range(2)]
    results = run(b, inputs)
    assert [[part[0] for part in result] for result in results] == [[0, 10], [1, 11]]


@pytest.mark.parametrize("targets", list(permutations(range(3))))
def test_collective_permute_moves_every_value(targets: tuple[int, ...]) -> None:
    """All permutations of three devices, fixed points too."""
    program = on_array("f32[2]", lambda b, x: b.collective_permute(x, list(enumerate(targets))))
    inputs = held(3, 2)
    results = run(program, inputs)
    for source, target in enumerate(targets):
        np.testing.assert_array_equal(results[target], inputs[source][0])


def test_who_is_no_target_gets_zeros() -> None:
    """Pairs 0 to 1 and 1 to 2: device 0 gets nothing, device 3 takes no part."""
    program = on_array("f32[2]", lambda b, x: b.collective_permute(x, [(0, 1), (1, 2)]))
    inputs = [[array + 1] for (array,) in held(4, 2)]
    results = run(program, inputs)
    wanted = [np.zeros(2), inputs[0][0], inputs[1][0], np.zeros(2)]
    np.testing.assert_array_equal(results, wanted)


def test_a_permute_writes_slices_in_place() -> None:
    """The form with slice_sizes: rows 1 and 2 of the source land at row 0 of the target's buffer."""
    module = module_of(
        "x = f32[3,2] parameter(0)",
        "y = f32[3,2] parameter(1)",
        "one = s32[] constant(1)",
        "zero = s32[] constant(0)",
        "from = (s32[], s32[]) tuple(one, zero)",
        "to = (s32[], s32[]) tuple(zero, zero)",
        "ROOT p = f32[3,2] collective-permute(x, y, from, to), source_target_pairs={{0,1},{1,0}}, slice_sizes={{2,2}}",
    )
    inputs = [[array, np.full((3, 2), -1, np.float32)] for (array,) in held(2, 3, 2)]
    result, _ = run(module, inputs)
    np.testing.assert_array_equal(result, [*inputs[1][0][1:], [-1, -1]])


def test_collective_broadcast_sends_what_the_first_has() -> None:
    """Groups {2,0} and {1}; device 3 is in none and gets zeros."""
    program = on_array("f32[2]", lambda b, x: b.collective_broadcast(x, [[2, 0], [1]]))
    inputs = [[array + 1] for (array,) in held(4, 2)]
    results = run(program, inputs)
    np.testing.assert_array_equal(results, [inputs[2][0], inputs[1][0], inputs[2][0], np.zeros(2)])


@settings(max_examples=25, deadline=None)
@given(sizes=st.lists(st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=3, max_size=3))
def test_ragged_all_to_all_writes_rows_where_senders_say(sizes: list[list[int]]) -> None:
    """sizes[i][j] rows go from i to j, packed in the order of the senders; what nobody writes stays."""
    b = Builder("m")
    x, out = b.parameter(0, "f32[9,2]"), b.parameter(1, "f32[9,2]")
    b.ragged_all_to_all(x, out, [b.parameter(2 + number, "s32[3]") for number in range(4)])
    counts = np.array(sizes, np.int32)
    begins = np.cumsum(counts, 1, dtype=np.int32) - counts
    targets = np.cumsum(counts, 0, dtype=np.int32) - counts
    rows = [array for (array,) in held(3, 9, 2)]
    empty = np.full((9, 2), -1, np.float32)
    inputs = [[rows[i], empty, begins[i], counts[i], targets[i], counts[:, i]] for i in range(3)]
    for receiver, result in enumerate(run(b, inputs)):
        parts = [rows[i][begins[i, receiver] :][: counts[i, receiver]] for i in range(3)]
        wanted = np.concatenate([*parts, empty])[:9]
        np.testing.assert_array_equal(result, wanted)


STARTS = {
    "all-gather": ("f32[2]", "(f32[2], f32[4])", "f32[4]", "dimensions={0}", [0, 1, 10, 11]),
    "all-reduce": ("f32[2]", "f32[2]", "f32[2]", "to_apply=add", [10, 12]),
    "collective-permute": (
        *("f32[2]", "(f32[2], f32[2], u32[], u32[])", "f32[2]"),
        *("source_target_pairs={{0,1},{1,0}}", [10, 11]),
    ),
    "reduce-scatter": ("f32[2]", "((f32[2]), f32[1], u32[])", "f32[1]", "dimensions={0}, to_apply=add", [10]),
    "all-to-all": ("f32[2]", "((f32[2]), f32[2], u32[])", "f32[2]", "dimensions={0}", [0, 10]),
}


@pytest.mark.parametrize("opcode", STARTS)
def test_asynchronous_forms_give_the_same(opcode: str) -> None:
    """A start and its done, on device 0 of two with [0, 1] and [10, 11]."""
    operand, context, result, attributes, wanted = STARTS[opcode]
    module = module_of(
        f"x = {operand} parameter(0)",
        f"s = {context} {opcode}-start(x), {attributes}",
        f"ROOT d = {result} {opcode}-done(s)",
        before=ADD,
    )
    assert run(module, held(2, 2))[0].tolist() == wanted


def looped_all_reduce() -> Builder:
    """Return a program that adds over all replicas as many times as its first parameter says."""
    b = Builder("m")
    init = b.tuple([b.parameter(0, "s32[]"), b.parameter(1, "f32[2]")])

    def body(state: Op) -> list[Op]:
        left, x = (state.builder.get_tuple_element(state, number) for number in range(2))
        return [left - 1, state.builder.all_reduce(x, add)]

    b.while_(lambda state: state.builder.get_tuple_element(state, 0) > 0, body, init)
    return b


def test_collectives_in_a_loop_meet_once_per_turn() -> None:
    """Three turns on two replicas: 8 times the sum of the first turn by 2."""
    inputs = [[np.int32(3), np.ones(2, np.float32)] for _ in range(2)]
    results = run(looped_all_reduce(), [[np.asarray(value) for value in values] for values in inputs])
    assert [result[1].tolist() for result in results] == [[8.0, 8.0]] * 2


def test_a_replica_that_comes_once_more_waits_for_ever() -> None:
    """The document's warning: the error names the collective, who waits, and who has ended."""
    inputs = [[np.array(turns, np.int32), np.ones(2, np.float32)] for turns in (2, 2, 1)]
    with pytest.raises(
        SimulationError, match=r"device 0 waits at all-reduce 'all-reduce\.\d+' of 'body' for 2 \(ended\)"
    ):
        run(looped_all_reduce(), inputs)


def test_replicas_at_different_collectives_wait_for_ever() -> None:
    """Each branch has an all-reduce of its own."""
    b = Builder("m")
    first, x = b.parameter(0, "pred[]"), b.parameter(1, "f32[2]")
    branches = [lambda v: v.builder.all_reduce(v, add), lambda v: v.builder.all_reduce(-v, add)]
    b.conditional(first, x, branches[0], x, branches[1])
    inputs = [[np.array(replica == 0), np.ones(2, np.float32)] for replica in range(2)]
    with pytest.raises(SimulationError, match=r"device 0 waits at .* for 1 .*; device 1 waits at .* for 0"):
        run(b, inputs)


def test_a_device_in_no_group_is_told_so() -> None:
    """Groups of the first two replicas, run on three."""
    program = on_array("f32[2]", lambda b, x: b.all_reduce(x, add, [[0, 1]]))
    with pytest.raises(ProgramError, match=r"every device.*replica 2"):
        run(program, held(3, 2))


def test_a_module_says_how_many_devices_it_wants() -> None:
    """Running it on another number is refused."""
    module = with_devices(on_array("f32[2]", lambda b, x: b.neg(x)).build(), 2)
    with pytest.raises(ProgramError, match=r"replica_count=2.*found 4"):
        with_devices(module, 4)


@pytest.mark.parametrize(
    "text",
    [
        "f32[2] all-to-all(p), replica_groups={{0,1}}, dimensions={0}",
        "f32[2] collective-broadcast(p), replica_groups={{0,9}}",
        "f32[2] collective-permute(p), source_target_pairs={{0,7}}",
    ],
)
def test_a_device_that_the_run_has_not_is_named(text) -> None:
    """One device alone can wait for no other."""
    module = module_of("p = f32[2] parameter(0)", f"ROOT r = {text}")
    with pytest.raises(ProgramError, match=r"r: expected devices among the 1 of this run, found \[\d\]; run it on"):
        run(module, [[np.ones(2, np.float32)]])


LARGE_GROUPS = {
    "f32[512,2] all-to-all(p), channel_id=1, replica_groups=[1,512]<=[512], dimensions={0}": lambda x: x.swapaxes(0, 1),
    "f32[512,2] collective-permute(p), channel_id=1, source_target_pairs={PAIRS}": lambda x: np.roll(x, 1, 0),
    "f32[1,2] reduce-scatter(p), channel_id=1, replica_groups=[1,512]<=[512], dimensions={0}, to_apply=add,"
    " use_global_device_ids=true": lambda x: x.sum(0)[:, None],
}


@pytest.mark.parametrize("line", LARGE_GROUPS, ids=lambda line: line.split("(")[0].split()[1])
def test_hundreds_of_devices_take_what_their_arrays_do(line: str) -> None:
    """Not the third power of their number: minutes for two kilobytes each."""
    pairs = ",".join(f"{{{device},{(device + 1) % 512}}}" for device in range(512))
    text = f"{ADD}\nENTRY e {{\n  p = f32[512,2] parameter(0)\n  ROOT r = {line.replace('PAIRS', pairs)}\n}}\n"
    values = np.arange(512 * 512 * 2, dtype=np.float32).reshape(512, 512, 2) % 7
    module = parse(f"HloModule m, num_partitions=512\n\n{text}")
    found = within(5, lambda: tpusim.execute(module, [[each] for each in values]))
    np.testing.assert_array_equal(np.array(found), LARGE_GROUPS[line](values))
