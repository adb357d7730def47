"""The builder: names, called computations, what it expands as XlaBuilder does, and what it refuses."""

from __future__ import annotations

import pytest

from tests.build.builder_cases import add, arrays
from tpusim.build.builder import Builder, Op
from tpusim.errors import ProgramError
from tpusim.semantics.verify.module import problems
from tpusim.shapes.notation import parse_shape


def opcodes(b: Builder) -> list[str]:
    """Return the opcodes of the entry in order, parameters and constants left out."""
    return [i.opcode for i in b.build().entry if i.opcode not in ("parameter", "constant")]


def shape_of(op: Op) -> str:
    """Return the notation of an op's shape."""
    return str(op.shape)


def test_the_module_and_its_entry_have_the_name_of_the_builder() -> None:
    """XlaBuilder's name is the module's."""
    b = Builder("axpy")
    b.parameter(0, "f32[]")
    module = b.build()
    assert (module.name, module.entry_name, module.entry.root.opcode) == ("axpy", "axpy", "parameter")


def test_the_root_is_what_build_is_told_or_else_the_last_instruction() -> None:
    """An op before the last can be the result."""
    b = Builder("m")
    (x,) = arrays(b, "f32[2]")
    first, second = b.neg(x), b.abs(x)
    assert b.build().entry.root_name == second.name
    assert b.build(first).entry.root_name == first.name


@pytest.mark.parametrize("name", ["f32", "true", "a b", "1st", "__x", ""])
def test_names_that_the_text_cannot_hold_are_changed(name: str) -> None:
    """A parameter called like a type, with blanks or with a reserved prefix still prints as a name."""
    b = Builder(name)
    found = b.parameter(0, "f32[]", name).name
    assert found not in ("f32", "true")
    assert found.replace(".", "_").isidentifier()
    assert not found.startswith("__")


def test_two_parameters_of_one_name_get_two() -> None:
    """The second one is numbered."""
    b = Builder("m")
    assert [b.parameter(number, "f32[]", "x").name for number in range(3)] == ["x", "x.1", "x.2"]


@pytest.mark.parametrize(
    ("lhs", "rhs", "dimensions", "result"),
    [
        ("f32[2,3]", "f32[]", (), "f32[2,3]"),
        ("f32[]", "f32[2,3]", (), "f32[2,3]"),
        ("f32[1,3]", "f32[2,1]", (), "f32[2,3]"),
        ("f32[2,3]", "f32[3]", (1,), "f32[2,3]"),
        ("f32[2]", "f32[2,3]", (0,), "f32[2,3]"),
        ("f32[2,3]", "f32[1]", (0,), "f32[2,3]"),
        ("f32[1,3]", "f32[4]", (0,), "f32[4,3]"),
        ("f32[0,3]", "f32[1,3]", (), "f32[0,3]"),
    ],
)
def test_operands_of_other_sizes_are_broadcast(lhs: str, rhs: str, dimensions: tuple[int, ...], result: str) -> None:
    """The document's broadcasting: scalars, dimensions of size 1, and broadcast_dimensions between ranks."""
    b = Builder("m")
    assert shape_of(b.add(*arrays(b, lhs, rhs), dimensions)) == result


@pytest.mark.parametrize(
    ("lhs", "rhs", "dimensions"),
    [
        ("f32[2,3]", "f32[2]", ()),
        ("f32[2,3]", "f32[2]", (1,)),
        ("f32[2,3]", "f32[3]", (2,)),
        ("f32[2,3]", "f32[3,2]", ()),
        ("f32[2,3,4]", "f32[3,2]", (1, 0)),
        ("f32[2]", "f32[2]", (1,)),
    ],
)
def test_operands_that_do_not_fit_are_refused(lhs: str, rhs: str, dimensions: tuple[int, ...]) -> None:
    """Ranks differ without saying how, or sizes differ and neither is 1."""
    b = Builder("m")
    with pytest.raises(ProgramError, match="expected"):
        b.add(*arrays(b, lhs, rhs), dimensions)


def test_equal_operands_are_not_broadcast() -> None:
    """What fits stays as it is."""
    b = Builder("m")
    b.add(*arrays(b, "f32[1,3]", "f32[1,3]"))
    assert opcodes(b) == ["add"]


def test_broadcast_in_dim_stretches_dimensions_of_size_1() -> None:
    """[3,1] to [3,4,5] with dimensions 0 and 1: HLO needs the dimension of size 1 away first."""
    b = Builder("m")
    result = b.broadcast_in_dim(*arrays(b, "f32[3,1]"), [3, 4, 5], [0, 1])
    assert (shape_of(result), opcodes(b)) == ("f32[3,4,5]", ["broadcast", "reshape", "broadcast"])


@pytest.mark.parametrize(
    ("dimensions", "sizes"), [((0, 1, 2), "24"), ((0, 1), "8,3"), ((1, 2), "4,6"), ((1,), "4,2,3")]
)
def test_collapse_joins_consecutive_dimensions(dimensions: tuple[int, ...], sizes: str) -> None:
    """The document's examples on [4,2,3]: the new dimension stands where the old ones stood."""
    b = Builder("m")
    assert shape_of(b.collapse(*arrays(b, "f32[4,2,3]"), dimensions)) == f"f32[{sizes}]"


@pytest.mark.parametrize("dimensions", [(1, 0), (0, 2), (2, 3)])
def test_collapse_refuses_other_dimensions(dimensions: tuple[int, ...]) -> None:
    """The document names {1,0} and {0,2} as wrong."""
    b = Builder("m")
    with pytest.raises(ProgramError, match="consecutive"):
        b.collapse(*arrays(b, "f32[4,2,3]"), dimensions)


def test_reshape_with_dimensions_transposes_first() -> None:
    """The old form: Reshape(v, {1,2,0}, {2,6,2})."""
    b = Builder("m")
    result = b.reshape(*arrays(b, "f32[4,2,3]"), [2, 6, 2], [1, 2, 0])
    assert (shape_of(result), opcodes(b)) == ("f32[2,6,2]", ["transpose", "reshape"])


@pytest.mark.parametrize(
    ("lhs", "rhs", "result"),
    [("f32[3]", "f32[3]", "f32[]"), ("f32[2,3]", "f32[3]", "f32[2]"), ("f32[2,3]", "f32[3,4]", "f32[2,4]")],
)
def test_dot_takes_vectors_and_matrices(lhs: str, rhs: str, result: str) -> None:
    """The document's three forms."""
    b = Builder("m")
    assert shape_of(b.dot(*arrays(b, lhs, rhs))) == result


def test_dot_refuses_other_ranks() -> None:
    """Three dimensions need dot_general."""
    b = Builder("m")
    with pytest.raises(ProgramError, match="dot_general"):
        b.dot(*arrays(b, "f32[2,3,4]", "f32[4]"))


@pytest.mark.parametrize(("size", "window", "stride"), [(5, 3, 2), (8, 3, 1), (7, 2, 3), (4, 1, 2), (6, 4, 2)])
def test_same_padding_gives_one_result_per_stride(size: int, window: int, stride: int) -> None:
    """Ceil(size / stride) results, and the odd element of padding on the high edge."""
    b = Builder("m")
    (x,) = arrays(b, f"f32[{size}]")
    result = b.reduce_window(x, b.constant(0.0), add, [window], [stride], "SAME")
    (dimension,) = b.build().entry.root.attributes["window"].dimensions
    assert shape_of(result) == f"f32[{-(-size // stride)}]"
    assert dimension.pad_high - dimension.pad_low in (0, 1)


def test_all_to_all_of_the_document() -> None:
    """f32[4,16] split by 4 along 1 and joined along 0 is f32[16,4]; in HLO a reshape and a transpose follow."""
    b = Builder("alltoall")
    x = b.parameter(0, "f32[4,16]", "x")
    result = b.all_to_all(x, split_dimension=1, concat_dimension=0, split_count=4)
    assert (shape_of(result), opcodes(b)) == ("f32[16,4]", ["all-to-all", "reshape", "transpose", "reshape"])


def test_send_and_receive_are_pairs() -> None:
    """Each is a start and a wait; a receive gives the data alone."""
    b = Builder("m")
    b.send(*arrays(b, "f32[4]"), 1)
    received = b.recv("f32[4]", 2)
    pairs = ["after-all", "send", "send-done", "after-all", "recv", "recv-done", "get-tuple-element"]
    assert (shape_of(received), opcodes(b)) == ("f32[4]", pairs)


def test_infeeds_come_in_order() -> None:
    """The second one takes the token of the first."""
    b = Builder("m")
    b.infeed("f32[4]")
    b.infeed("f32[4]")
    first, second = (i for i in b.build().entry if i.opcode == "infeed")
    token = b.build().entry[second.operands[0]]
    assert token.operands == (first.name,)


def test_a_sum_of_truth_values_is_a_disjunction() -> None:
    """CrossReplicaSum of pred."""
    b = Builder("m")
    b.cross_replica_sum(*arrays(b, "pred[4]"))
    assert b.build()["sum"].root.opcode == "or"


def test_a_computation_may_be_a_builder_a_module_or_a_function() -> None:
    """All three give the same computation, which is shared if it has the same name."""
    scalar = Builder("add")
    scalar.add(scalar.parameter(0, "f32[]"), scalar.parameter(1, "f32[]"))
    b = Builder("m")
    (x,) = arrays(b, "f32[4]")
    for computation in (scalar, scalar.build(), add, scalar.build().entry):
        b.reduce(x, b.constant(0.0), computation, [0])
    assert [computation.name for computation in b.build().computations] == ["add", "m"]


def test_two_computations_of_one_name_stay_two() -> None:
    """The second is numbered, and whoever calls it says so, however deep."""
    inner = Builder("f")
    inner.neg(inner.parameter(0, "f32[]"))
    outer = Builder("g")
    outer.call(inner, [outer.parameter(0, "f32[]")])
    b = Builder("m")
    (x,) = arrays(b, "f32[]")

    def f(v: Op) -> Op:
        return v.builder.abs(v)

    b.call(outer, [b.call(f, [x])])
    module = b.build()
    assert [c.name for c in module.computations] == ["f", "f.1", "g", "m"]
    assert module["g"].root.attributes["to_apply"] == "f.1"


def test_a_computation_may_have_the_name_of_the_builder() -> None:
    """The entry gives way."""
    b = Builder("f")
    f = Builder("f")
    f.neg(f.parameter(0, "f32[]"))
    b.call(f, arrays(b, "f32[]"))
    assert b.build().entry_name == "f.1"


def test_an_op_of_another_builder_is_refused() -> None:
    """The error names both builders."""
    one, other = Builder("one"), Builder("other")
    with pytest.raises(ProgramError, match=r"'other'.*'one'"):
        other.neg(*arrays(one, "f32[]"))


def test_parameters_must_be_numbered_without_a_gap() -> None:
    """A hole shows when the module is built, a number given twice at once."""
    b = Builder("m")
    b.parameter(1, "f32[]")
    with pytest.raises(ProgramError, match="once"):
        b.parameter(1, "f32[]")
    with pytest.raises(ProgramError, match="from 0"):
        b.build()


def test_an_empty_builder_builds_nothing() -> None:
    """There is no root to return."""
    with pytest.raises(ProgramError, match="at least one instruction"):
        Builder("m").build()


def test_operators_of_python_are_operations() -> None:
    """A number beside an op is a constant of its type."""
    b = Builder("m")
    (x,) = arrays(b, "bf16[4]")
    result = -((x + 1) * 2.0 - x) / x % x
    assert shape_of(result) == "bf16[4]"
    assert [shape_of(op) for op in (x < 1, x <= 1, x > x, x >= x)] == ["pred[4]"] * 4


def test_emit_makes_what_has_no_method() -> None:
    """Any opcode of the text format, with its attributes."""
    b = Builder("m")
    (x,) = arrays(b, "f32[4]")
    b.emit("copy-start", [x])
    assert b.build().entry.root.shape == parse_shape("(f32[4], f32[4], u32[])")


@pytest.mark.parametrize(
    ("types", "label"),
    [
        (("f32", "s32"), "binary_c1"),
        (("s32", "u32"), "binary_c1"),
        (("c64", "f32"), "binary_c1"),
        (("c64", "c128"), "binary_c1"),
        (("f32", "bf16"), "precision_c1"),
        (("f64", "f32"), "precision_c1"),
    ],
)
def test_operands_of_two_types_are_refused(types, label):
    """XLA's verifier refuses floats of two precisions as well, though its inference lets them pass."""
    b = Builder("m")
    one, other = (b.parameter(number, f"{name}[2]") for number, name in enumerate(types))
    with pytest.raises(ProgramError, match=rf"\[{label}\]"):
        b.add(one, other)


def test_products_may_take_two_types_of_floats():
    """So XLA has it for dots, convolutions and tuples."""
    b = Builder("m")
    one, other = b.parameter(0, "f32[2]"), b.parameter(1, "bf16[2]")
    b.tuple([b.dot(one, other), other])
    assert problems(b.build()) == []


def key(b: Builder) -> Op:
    """Return the state of a generator."""
    return b.constant([1, 2], "u64")


def squares(b: Builder) -> list[Op]:
    """Return two square matrices."""
    return arrays(b, "f32[2,2]", "f32[2,2]")


@pytest.mark.parametrize(
    ("emit", "attribute", "value"),
    [
        (lambda b, x: b.fft(x, "rfft", [4]), "fft_type", "RFFT"),
        (lambda b, x: b.compare(x, x, "lt", compare_type="totalorder"), "direction", "LT"),
        (
            lambda b, x: b.rng_bit_generator("three_fry", key(b), "u32[4]"),
            "algorithm",
            "rng_three_fry",
        ),
        (
            lambda b, x: b.rng_bit_generator("RNG_PHILOX", key(b), "u32[4]"),
            "algorithm",
            "rng_philox",
        ),
        (
            lambda b, x: b.triangular_solve(*arrays(b, "f32[2,2]", "f32[2,2]"), True, True, False, True),
            "transpose_a",
            "TRANSPOSE",
        ),
    ],
)
def test_words_may_be_in_any_case_and_print_as_the_text_has_them(emit, attribute, value) -> None:
    """XLA's parser knows one spelling only."""
    b = Builder("m")
    emit(b, b.constant([1.0, 2.0, 3.0, 4.0]))
    assert next(i for i in b.build().entry if attribute in i.attributes).attributes[attribute] == value


@pytest.mark.parametrize(
    ("emit", "known"),
    [
        (lambda b, x: b.fft(x, "DCT", [4]), "FFT, IFFT, RFFT, IRFFT"),
        (lambda b, x: b.compare(x, x, "LESS"), r"LT, found 'LESS' \(did you mean 'LE'"),
        (lambda b, x: b.rng_bit_generator("mersenne", key(b), "u32[4]"), "rng_philox"),
        (lambda b, x: b.dot(x, x, "hihgest"), "did you mean 'highest'"),
        (lambda b, x: b.dot_general(x, x, {"lhs_contracting_dims": [0]}), "mapping of lhs_contracting_dimensions"),
        (lambda b, x: b.dot_general(x, x, (((0,), (0,)), ((), ()))), "mapping of lhs_contracting_dimensions"),
        (lambda b, x: b.conditional(x, x, abs), "an operand and a computation"),
    ],
)
def test_unknown_words_are_refused_with_those_that_are_known(emit, known) -> None:
    """Else the text would hold what no parser reads, and the error would come late and say something else."""
    b = Builder("m")
    with pytest.raises(ProgramError, match=known):
        emit(b, b.constant([1.0, 2.0, 3.0, 4.0]))


def test_products_take_dimension_numbers_by_name() -> None:
    """By the document's names of the fields."""
    b = Builder("m")
    x, y = arrays(b, "f32[2,3]", "f32[4,3]")
    named = {"lhs_contracting_dimensions": [1], "rhs_contracting_dimensions": [1]}
    assert shape_of(b.dot_general(x, y, named)).startswith("f32[2,4]")


def test_a_conditional_may_choose_by_index() -> None:
    """The document has both forms under one name."""
    b = Builder("m")
    (x,) = arrays(b, "f32[2]")
    b.conditional(b.constant(1, "s32"), [lambda v: -v, lambda v: v + v], [x, x])
    assert len(b.build().entry.root.called_computations) == 2


@pytest.mark.parametrize(("padding", "size"), [("kSame", 3), ("kValid", 2), ("same", 3)])
def test_padding_may_be_named_as_the_document_does(padding, size) -> None:
    """Padding::kSame and Padding::kValid."""
    b = Builder("m")
    (x,) = arrays(b, "f32[5]")
    found = b.reduce_window(x, b.constant(0.0), lambda p, q: p + q, [3], [2], padding)
    assert shape_of(found).startswith(f"f32[{size}]")
