"""One way to build every operation, by name: a function from an empty builder to the op that is the root."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tpusim.build.builder import Builder, DotDimensionNumbers, Op

if TYPE_CHECKING:
    from collections.abc import Callable

    Case = Callable[[Builder], Op]

UNARY = (
    "abs acos acosh asin asinh atanh cbrt ceil cos cosh erf exp expm1 floor is_finite log log1p logistic neg round"
    " round_nearest_even rsqrt sign sin sinh sqrt tan tanh real imag copy optimization_barrier"
).split()
BITWISE_UNARY = ["logical_not", "population_count", "clz"]
BINARY = "add sub mul div rem max min pow atan2 complex".split()
BITWISE_BINARY = "logical_and logical_or xor shift_left shift_right_arithmetic shift_right_logical".split()
COMPARISONS = [word + tail for word in "eq ne ge gt le lt".split() for tail in ("", "_total_order")]


def arrays(b: Builder, *shapes: str) -> list[Op]:
    """Return a parameter of each shape."""
    return [b.parameter(number, shape, f"p{number}") for number, shape in enumerate(shapes)]


def method(name: str, *shapes: str, **arguments: Any) -> Case:
    """Return the case of a method that takes arrays first and the rest by name."""
    return lambda b: getattr(b, name)(*arrays(b, *shapes), **arguments)


def on_list(name: str, *shapes: str, **arguments: Any) -> Case:
    """Return the case of a method that takes a list of arrays first."""
    return lambda b: getattr(b, name)(arrays(b, *shapes), **arguments)


def add(x: Op, y: Op) -> Op:
    """Return the sum: the computation of most cases."""
    return x + y


def greater_pair(a: Op, i: Op, b: Op, j: Op) -> list[Op]:
    """Return the larger of two numbers and where it was."""
    larger = a >= b
    return [a.builder.select(larger, a, b), a.builder.select(larger, i, j)]


def _reduce_pair(b: Builder) -> Op:
    x, i = arrays(b, "f32[5,3]", "s32[5,3]")
    return b.reduce([x, i], [b.constant(0.0), b.constant(0)], greater_pair, [0])


def _scatter(b: Builder) -> Op:
    x, i, u = arrays(b, "f32[4,5]", "s32[2,1]", "f32[2,5]")
    numbers = {"update_window_dims": [1], "inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0]}
    return b.scatter(x, i, u, add, **numbers, index_vector_dim=1, unique_indices=True)


def _select_and_scatter(b: Builder) -> Op:
    x, source = arrays(b, "f32[4,6]", "f32[2,2]")
    return b.select_and_scatter(x, lambda p, q: p >= q, [2, 3], [2, 3], "VALID", source, b.constant(0.0), add)


def _while(b: Builder) -> Op:
    init = b.tuple(arrays(b, "s32[]", "f32[10]"))
    return b.while_(
        lambda s: s.builder.get_tuple_element(s, 0) < 1000,
        lambda s: [s.builder.get_tuple_element(s, 0) + 1, s.builder.neg(s.builder.get_tuple_element(s, 1))],
        init,
    )


def _conditional(b: Builder) -> Op:
    pred, x, y = arrays(b, "pred[]", "f32[4]", "f32[4]")
    return b.conditional(pred, x, lambda v: -v, y, lambda v: v + 1.0)


def _switch(b: Builder) -> Op:
    index, x, y = arrays(b, "s32[]", "f32[4]", "s32[2]")
    branches = [lambda v: -v, lambda v: v.builder.constant([1.0, 2.0, 3.0, 4.0])]
    return b.conditional_by_index(index, branches, [x, y])


def _scan(b: Builder) -> Op:
    x, carry = arrays(b, "f32[5,3]", "f32[3]")
    return b.scan(x, carry, lambda v, c: [v + c, v + c], 0)


def _sort_pair(b: Builder) -> Op:
    return b.sort(arrays(b, "f32[4,3]", "s32[4,3]"), lambda p, q, r, s: p < q, 0, is_stable=True)


def _ragged(b: Builder) -> Op:
    x, y, *numbers = arrays(b, "f32[8]", "f32[8]", *["s32[2]"] * 4)
    return b.ragged_all_to_all(x, y, numbers, [[0, 1]])


def _clamp(b: Builder) -> Op:
    (x,) = arrays(b, "s32[3]")
    return b.clamp(b.constant(0), x, b.constant(6))


def _select_tuple(b: Builder) -> Op:
    pred, x, y = arrays(b, "pred[]", "f32[4]", "f32[4]")
    return b.select(pred, b.tuple([x, y]), b.tuple([y, x]))


def _custom_call(b: Builder) -> Op:
    x, y = arrays(b, "f32[2]", "f32[2,3]")
    return b.custom_call("myfunc", [x, y], "f32[3,3]", opaque='a "b"', has_side_effect=True)


def _all_reduce_tuple(b: Builder) -> Op:
    return b.all_reduce(b.tuple(arrays(b, "f32[2]", "f32[3]")), add, [[0, 2], [1, 3]], 1, use_global_device_ids=True)


def _host(b: Builder) -> Op:
    (x,) = arrays(b, "f32[2]")
    sent = b.send_to_host(x, b.after_all(), "f32[2]", 3)
    return b.recv_from_host(sent, "f32[2]", 4)


def _reduce_window_general(b: Builder) -> Op:
    (x,) = arrays(b, "f32[5,6]")
    return b.reduce_window(x, b.constant(0.0), add, [2, 2], [1, 2], [(1, 0), (0, -1)], [2, 1], [1, 2])


def _pad(b: Builder) -> Op:
    (x,) = arrays(b, "f32[3,4]")
    return b.pad(x, b.constant(0.0), [(1, -1, 2), (0, 3)])


def _with_init(name: str, shape: str, *arguments: Any) -> Case:
    return lambda b: getattr(b, name)(*arrays(b, shape), b.constant(0.0), add, *arguments)


def _set_size(b: Builder) -> Op:
    return b.set_dimension_size(*arrays(b, "f32[10]", "s32[]"), 0)


BATCHED = DotDimensionNumbers((2,), (1,), (0,), (0,))
GATHER = {"offset_dims": [1], "collapsed_slice_dims": [0], "slice_sizes": [1, 11], "start_index_map": [0]}
GATHER_BATCHED = {"offset_dims": [1], "collapsed_slice_dims": [], "slice_sizes": [1, 3], "start_index_map": [1]}
BATCH_DIMS = {"operand_batching_dims": [0], "start_indices_batching_dims": [0], "index_vector_dim": 1}

CASES: dict[str, Case] = {
    **{name: method(name, "f32[3,4]") for name in UNARY},
    **{name: method(name, "u32[3,4]") for name in BITWISE_UNARY},
    **{name: method(name, "f32[3,4]", "f32[3,4]") for name in BINARY},
    **{name: method(name, "s32[3,4]", "s32[]") for name in BITWISE_BINARY},
    **{name: method(name, "f32[3,1]", "f32[1,4]") for name in COMPARISONS},
    "after_all": lambda b: b.after_all([b.after_all(), b.after_all()]),
    "all_gather": method("all_gather", "f32[2]", all_gather_dim=0, shard_count=2, replica_groups=[[0, 2], [1, 3]]),
    "all_gather tuple": lambda b: b.all_gather(b.tuple(arrays(b, "f32[2]", "s32[4]")), 0, 2, channel_id=7),
    "all_reduce": method("all_reduce", "f32[2]", computation=add),
    "all_reduce tuple": _all_reduce_tuple,
    "all_reduce tuple of one": lambda b: b.all_reduce(b.tuple(arrays(b, "f32[2]")), add),
    "all_to_all": method("all_to_all", "f32[4,16]", split_dimension=1, concat_dimension=0, split_count=4),
    "all_to_all_tuple": on_list("all_to_all_tuple", "f32[4]", "f32[4]", replica_groups=[[0, 1]]),
    "batch_norm_grad": method("batch_norm_grad", "f32[2,3]", *["f32[3]"] * 3, "f32[2,3]", epsilon=0.1, feature_index=1),
    "batch_norm_inference": method("batch_norm_inference", "f32[2,3]", *["f32[3]"] * 4, epsilon=0.5, feature_index=1),
    "batch_norm_training": method("batch_norm_training", "f32[2,3]", *["f32[3]"] * 2, epsilon=1e-5, feature_index=1),
    "bitcast_convert_type": method("bitcast_convert_type", "f32[10]", new_element_type="f16"),
    "bitcast_convert_type wider": method("bitcast_convert_type", "f16[10,2]", new_element_type="f32"),
    "broadcast": method("broadcast", "f32[]", broadcast_sizes=[2, 3]),
    "broadcast_in_dim": method("broadcast_in_dim", "f32[3,1]", out_dim_size=[3, 4, 5], broadcast_dimensions=[0, 1]),
    "call": lambda b: b.call(add, arrays(b, "f32[4]", "f32[4]")),
    "cholesky": method("cholesky", "f32[2,4,4]", lower=True),
    "cholesky upper": method("cholesky", "f32[4,4]", lower=False),
    "clamp": _clamp,
    "collapse": method("collapse", "f32[4,2,3]", dimensions=[0, 1]),
    "collective_broadcast": method("collective_broadcast", "f32[4]", replica_groups=[[0, 1]]),
    "collective_permute": method("collective_permute", "f32[4]", source_target_pairs=[(0, 1), (1, 0)]),
    "collective_permute of two": on_list("collective_permute", "f32[4]", "s32[]", source_target_pairs=[(0, 1)]),
    "concatenate": on_list("concatenate", "f32[2,3]", "f32[1,3]", dimension=0),
    "conditional": _conditional,
    "conditional_by_index": _switch,
    "constant": lambda b: b.constant([[1.0, 2.5], [float("inf"), -0.0]]),
    "conv": method("conv", "f32[1,3,8,8]", "f32[4,3,3,3]", window_strides=[2, 2], padding="SAME"),
    "conv_with_general_padding": method(
        "conv_with_general_padding",
        *("f32[2,9,8,6]", "f32[3,3,2,6]"),
        window_strides=[1, 2],
        padding=[(1, -1), (2, 2)],
        lhs_dilation=[1, 2],
        rhs_dilation=[2, 1],
        feature_group_count=3,
        dimension_numbers="b01f_01io->b01f",
        precision_config="highest",
        window_reversal=[True, False],
    ),
    "conv without space": method("conv", "f32[2,3]", "f32[4,3]", window_strides=[], padding="VALID"),
    "convert_element_type": method("convert_element_type", "s32[3]", new_element_type="f32"),
    "convert_element_type complex": method("convert_element_type", "c64[3]", new_element_type="bf16"),
    "cross_replica_sum": method("cross_replica_sum", "pred[4]", replica_groups=[[0, 1]]),
    "custom_call": _custom_call,
    "dot": method("dot", "f32[2,3]", "f32[3,4]", precision_config=("default", "high")),
    "dot_general": method(
        "dot_general", "bf16[2,3,4]", "bf16[2,4,5]", dimension_numbers=BATCHED, preferred_element_type="f32"
    ),
    "dynamic_slice": lambda b: b.dynamic_slice(b.parameter(0, "f32[4,3]"), [b.constant(2), b.constant(1)], [2, 2]),
    "dynamic_update_slice": lambda b: b.dynamic_update_slice(
        *arrays(b, "f32[4,3]", "f32[3,2]"), [b.constant(1), b.constant(1)]
    ),
    "fft": method("fft", "f32[3,16]", fft_type="RFFT", fft_length=[16]),
    "gather": method("gather", "f32[16,11]", "s32[5,1]", **GATHER, index_vector_dim=1),
    "gather batched": method("gather", "f32[4,7]", "s32[4,1]", **GATHER_BATCHED, **BATCH_DIMS, indices_are_sorted=True),
    "get_dimension_size": method("get_dimension_size", "f32[<=10]", dimension=0),
    "get_tuple_element": lambda b: b.get_tuple_element(b.tuple(arrays(b, "f32[10]", "s32[]")), 1),
    "infeed": lambda b: b.tuple([b.infeed("f32[3]"), b.infeed("(f32[3], s32[])", "config")]),
    "iota": lambda b: b.iota("s32[4,8]", 1),
    "map": on_list("map", "f32[3,4]", "f32[3,4]", computation=add),
    "mulhi": method("mulhi", "u32[4]", "u32[4]"),
    "outfeed": lambda b: b.tuple([b.outfeed(op) for op in arrays(b, "f32[3]", "s32[]")]),
    "pad": _pad,
    "partition_id": lambda b: b.partition_id(),
    "ragged_all_to_all": _ragged,
    "recv": lambda b: b.recv("f32[4]", 2),
    "recv_from_host": _host,
    "reduce": _with_init("reduce", "f32[4,2,3]", [0, 1]),
    "reduce variadic": _reduce_pair,
    "reduce_all": _with_init("reduce_all", "f32[4,2,3]"),
    "reduce_precision": method("reduce_precision", "f32[4]", exponent_bits=5, mantissa_bits=10),
    "reduce_scatter": method("reduce_scatter", "f32[4]", computation=add, scatter_dimension=0, shard_count=2),
    "reduce_window": _with_init("reduce_window", "f32[4,6]", [2, 3], [2, 3], "SAME"),
    "reduce_window general": _reduce_window_general,
    "remove_dynamic_dimension": method("remove_dynamic_dimension", "f32[<=10]", dimension=0),
    "replica_id": lambda b: b.replica_id(),
    "reshape": method("reshape", "f32[4,2,3]", new_sizes=[8, 3]),
    "reshape reordered": method("reshape", "f32[4,2,3]", new_sizes=[24], dimensions=[1, 2, 0]),
    "rev": method("rev", "f32[3,4]", dimensions=[1]),
    "rng_bit_generator": lambda b: b.rng_bit_generator("RNG_PHILOX", b.parameter(0, "u64[2]"), "f32[8]"),
    "rng_get_and_update_state": lambda b: b.rng_get_and_update_state(8),
    "rng_normal": method("rng_normal", "f32[]", "f32[]", shape="f32[3]"),
    "rng_uniform": method("rng_uniform", "s32[]", "s32[]", shape="s32[3]"),
    "scan": _scan,
    "scatter": _scatter,
    "select": method("select", "pred[]", "f32[4]", "f32[4]"),
    "select tuple": _select_tuple,
    "select_and_scatter": _select_and_scatter,
    "send": lambda b: b.send(b.parameter(0, "f32[4]"), 2),
    "set_dimension_size": _set_size,
    "slice": method("slice", "f32[9,3]", start_indices=[1, 0], limit_indices=[9, 2], strides=[2, 1]),
    "slice_in_dim": method("slice_in_dim", "f32[9,3]", start_index=1, limit_index=4, stride=1, dimno=0),
    "sort": method("sort", "f32[4,3]", comparator=lambda p, q: p < q),
    "sort pair": _sort_pair,
    "stochastic_convert_type": method("stochastic_convert_type", "f32[4]", "u32[4]", new_element_type="bf16"),
    "top_k": method("top_k", "f32[4,9]", k=3),
    "transpose": method("transpose", "f32[3,4,5]", permutation=[2, 0, 1]),
    "triangular_solve": method(
        "triangular_solve", "f32[4,4]", "f32[4,2]", left_side=True, lower=True, unit_diagonal=False
    ),
    "triangular_solve right": method(
        *("triangular_solve", "f32[4,4]", "f32[2,4]"),
        left_side=False,
        lower=False,
        unit_diagonal=True,
        transpose_a="TRANSPOSE",
    ),
    "tuple": on_list("tuple", "f32[10]", "s32[]"),
    "while_": _while,
}
"""A case for every method of the builder that makes an operation."""
