"""The builder: what its methods say of arguments that they are not made for, and what they take beside Python's own."""

from __future__ import annotations

import numpy as np
import pytest

from tests.build.builder_cases import add, arrays
from tpusim.build.builder import Builder, Op
from tpusim.errors import ProgramError

NUMBERS = {
    "update_window_dims": (0,),
    "inserted_window_dims": (),
    "scatter_dims_to_operand_dims": (0,),
    "index_vector_dim": 0,
}


def parameters() -> list[Op]:
    """Return two arrays, a scalar and an empty tuple as parameters of a builder."""
    b = Builder("m")
    return [*arrays(b, "f32[64,256]", "f32[256]", "s32[]"), b.parameter(3, "()")]


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b, x, y, i, t: b.abs(3), "abs: operand: expected an op of a builder, found 3"),
        (lambda b, x, y, i, t: b.add(x, "a"), "add: rhs: expected an op of a builder, found 'a'"),
        (lambda b, x, y, i, t: b.add(x, y, 1), "add: broadcast_dimensions: expected a list of whole numbers, found 1"),
        (lambda b, x, y, i, t: b.select(i, 1, 2), "select: on_true: expected an op of a builder, found 1"),
        (lambda b, x, y, i, t: b.outfeed(None), "outfeed: operand: expected an op of a builder, found None"),
        (lambda b, x, y, i, t: b.send("x", 1), "send: operand: expected an op of a builder, found 'x'"),
        (lambda b, x, y, i, t: b.send(x, "a"), "send: channel_handle: expected a whole number"),
        (lambda b, x, y, i, t: b.build(1), "build: root: expected an op of a builder, found 1"),
        (lambda b, x, y, i, t: b.tuple(x), "tuple: elements: expected a list of ops, found Op"),
        (lambda b, x, y, i, t: b.map([None], add), "map: operands: expected an op or a list of ops"),
        (lambda b, x, y, i, t: b.map([x], None), "map: computation: expected a computation: a builder, a module"),
        (lambda b, x, y, i, t: b.call(x, b), "call: computation: expected a computation"),
        (lambda b, x, y, i, t: b.call(lambda: 3), "expected 'lambda' to return an op or a list of ops, found 3"),
        (lambda b, x, y, i, t: b.top_k(x, 2.5), "top_k: k: expected a whole number of 64 bits, found 2.5"),
        (lambda b, x, y, i, t: b.top_k(x, True), "top_k: k: expected a whole number of 64 bits, found True"),
        (lambda b, x, y, i, t: b.top_k(x, 2**63), "top_k: k: expected a whole number of 64 bits, found 9223"),
        (lambda b, x, y, i, t: b.top_k(x, 1, "no"), "top_k: largest: expected true or false, found 'no'"),
        (
            lambda b, x, y, i, t: b.get_dimension_size(x, np.arange(2)),
            "get_dimension_size: dimension: expected a whole",
        ),
        (
            lambda b, x, y, i, t: b.reduce_scatter(x, add, np.arange(2), 2),
            "reduce_scatter: scatter_dimension: expected",
        ),
        (lambda b, x, y, i, t: b.reshape(x, "ab"), "reshape: new_sizes: expected a list of whole numbers, found 'ab'"),
        (
            lambda b, x, y, i, t: b.convert_element_type(x, 3),
            "convert_element_type: new_element_type: expected an elem",
        ),
        (
            lambda b, x, y, i, t: b.bitcast_convert_type(x, 0),
            "bitcast_convert_type: new_element_type: expected an elem",
        ),
        (lambda b, x, y, i, t: b.constant(1.0, x), "constant: dtype: expected an element type such as 'f32'"),
        (lambda b, x, y, i, t: b.parameter(4, 3), "parameter: shape: expected a shape such as"),
        (lambda b, x, y, i, t: b.fft(x, None, [4]), "fft: fft_type: expected a text, found None"),
        (lambda b, x, y, i, t: b.pad(x, i, [(1,)]), r"pad: padding_config: expected whole numbers \(low, high\)"),
        (lambda b, x, y, i, t: b.collective_permute(x, [(1,)]), "source_target_pairs: expected a list of pairs"),
        (lambda b, x, y, i, t: b.emit(x), "emit: opcode: expected a text, found Op"),
        (lambda b, x, y, i, t: b.emit("topk", [x], {"k": 2.5}), "emit: attributes: expected attributes by name"),
        (lambda b, x, y, i, t: b.scatter(x, i, y, 3, **NUMBERS), "scatter: update_computation: expected a computation"),
        (lambda b, x, y, i, t: b.scan(3, y, add, 0), "scan: inputs: expected an op or a list of ops, found 3"),
    ],
)
def test_an_argument_of_another_type_is_refused_by_name(call, words) -> None:
    """Else the error would come from wherever it is first used, or from a run of the module."""
    x, *rest = parameters()
    with pytest.raises(ProgramError, match=words):
        call(x.builder, x, *rest)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda b, x, y, i, t: b.slice_in_dim(x, 0, 1, 1, 5), r"a dimension of 'p0', f32\[64,256\], found 5"),
        (lambda b, x, y, i, t: b.slice_in_dim(x, 0, 1, 1, -1), r"a dimension of 'p0', f32\[64,256\], found -1"),
        (lambda b, x, y, i, t: b.remove_dynamic_dimension(x, 9), r"a dimension of 'p0', f32\[64,256\], found 9"),
        (lambda b, x, y, i, t: b.scan(x, y, add, 2), r"a dimension of 'p0', f32\[64,256\], found 2"),
        (lambda b, x, y, i, t: b.all_to_all(x, 0, 5, 2), r"a dimension of 'p0', f32\[64,256\], found 5"),
        (lambda b, x, y, i, t: b.all_to_all(x, 0, 0, 0), "split_count: expected a number of devices, at least 1"),
        (lambda b, x, y, i, t: b.all_gather(x, 0, -2), "shard_count: expected at least 1, found -2"),
        (lambda b, x, y, i, t: b.reduce_scatter(x, add, 0, 0), "shard_count: expected at least 1, found 0"),
        (lambda b, x, y, i, t: b.map([], add), "map: expected at least one operand"),
        (lambda b, x, y, i, t: b.sort([], add), "sort: expected at least one operand"),
        (lambda b, x, y, i, t: b.scan([], [], add, 0), "scan: expected at least one operand"),
        (lambda b, x, y, i, t: b.reduce_window([], [], add, [1]), "reduce_window: expected at least one operand"),
        (lambda b, x, y, i, t: b.all_reduce(t, add), "'parameter.1' to have at least one array"),
        (lambda b, x, y, i, t: b.cross_replica_sum(t), "'parameter.1' to have at least one array"),
        (lambda b, x, y, i, t: b.reduce_window(y, b.constant(0.0), add, [2], [0], "SAME"), "window_c3"),
        (lambda b, x, y, i, t: b.conditional(i, [abs], [x, x]), "as many operands as computations, found 1 and 2"),
        (
            lambda b, x, y, i, t: b.rng_bit_generator("philox", y, "token[]"),
            "expected the shape of an array, found token",
        ),
        (lambda b, x, y, i, t: b.rng_bit_generator("philox", y, "c128[2]"), "rng_bit_generator_c3"),
        (lambda b, x, y, i, t: b.bitcast_convert_type(x, "opaque"), "array_c2"),
        (lambda b, x, y, i, t: b.broadcast(x, [-2]), r"sizes of at least 0, found f32\[-2,64,256\]"),
        (lambda b, x, y, i, t: b.constant(float("inf"), "s32"), "expected integers .* for s32, found inf"),
        (lambda b, x, y, i, t: b.constant([1j], "s32"), "expected integers .* for s32, found 1j"),
        (lambda b, x, y, i, t: b.emit("copy-start", [x], element_type="f32"), "emit: element_type: expected it for an"),
    ],
)
def test_a_value_that_there_is_not_is_refused(call, words) -> None:
    """Dimensions that the operand has not, empty lists, counts of nothing."""
    x, *rest = parameters()
    with pytest.raises(ProgramError, match=words):
        call(x.builder, x, *rest)


def test_numbers_and_rows_may_be_of_numpy() -> None:
    """They become Python's: the module is the same, and so is its text."""
    texts = []
    for whole, row in ((int, list), (np.int64, np.array)):
        b = Builder("m")
        (x,) = arrays(b, "f32[4,8]")
        b.top_k(b.transpose(b.slice_in_dim(x, 0, whole(2), 1, whole(1)), row([1, 0])), whole(3))
        texts.append(b.build().text)
    assert texts[0] == texts[1]


def test_ops_may_come_one_by_one() -> None:
    """A generator of them is as good as a list."""
    b = Builder("m")
    assert str(b.tuple(op for op in arrays(b, "f32[2]", "s32[]")).shape) == "(f32[2], s32[])"


def test_methods_keep_their_names_and_words() -> None:
    """For ``help`` and for editors."""
    assert Builder.top_k.__name__ == "top_k"
    assert "largest" in str(Builder.top_k.__doc__)
