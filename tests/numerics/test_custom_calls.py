"""Custom calls: those of the TPU compiler by what they must equal, and those that a user registers."""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tests.numerics.one_instruction import numbered, program
from tests.numerics.oracle import run_ours, run_xla
from tpusim.errors import ProgramError, UnsupportedError
from tpusim.source import SourceText
from tpusim.text.parser import parse_module


def call(target, result, *parameters):
    """Return the text of a custom call."""
    names = ", ".join(f"p{number}" for number in range(len(parameters)))
    return program(result, f'custom-call({names}), custom_call_target="{target}"', parameters)


def matrices(*sizes):
    """Return symmetric positive definite matrices."""
    a = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    return (a @ np.swapaxes(a, -1, -2) + sizes[-1] * np.eye(sizes[-1])).astype(np.float32)


def test_a_registered_function_computes(registered):
    """Its function gets the instruction and the operands, and what it returns is the value."""
    registered("Twice", numerics=lambda instruction, x: x * np.float32(2))
    x = numbered((2, 3), np.float32)
    np.testing.assert_array_equal(run_ours(call("Twice", "f32[2,3]", "f32[2,3]"), [x])[0], 2 * x)


def test_a_registered_function_may_return_a_tuple(registered):
    """One value per element of the result's shape."""
    registered("Both", numerics=lambda instruction, x: (x, x.sum()))
    found = run_ours(call("Both", "(f32[3], f32[])", "f32[3]"), [np.ones(3, np.float32)])
    assert [value.shape for value in found] == [(3,), ()]
    assert found[1] == 3


def test_what_is_registered_comes_before_what_is_built_in(registered):
    """A user may say otherwise."""
    registered("Sharding", numerics=lambda instruction, x: -x)
    assert run_ours(call("Sharding", "s32[]", "s32[]"), [np.int32(7)])[0] == -7


@pytest.mark.parametrize(("value", "found"), [(np.zeros(4), r"float64\[4\]"), ((1, 2), "a tuple")])
def test_a_registered_function_must_return_the_shape(registered, value, found):
    """The error says what the program wants and what came."""
    registered("Odd", numerics=lambda instruction, x: value)
    with pytest.raises(ProgramError, match=rf"'Odd' to return f32\[3\], found {found}"):
        run_ours(call("Odd", "f32[3]", "f32[3]"), [np.ones(3, np.float32)])


@pytest.mark.parametrize("is_known_by_cost", [True, False])
def test_an_unknown_target_is_named_with_the_cure(registered, is_known_by_cost):
    """Whether nobody registered it or only its cost is known."""
    if is_known_by_cost:
        registered("Colesky", cost=lambda instruction: None)
    with pytest.raises(UnsupportedError, match=r"r: nothing says what.*'Colesky'.*register_custom_call\('Colesky'"):
        run_ours(call("Colesky", "f32[]", "f32[]"), [np.float32(0)])


def test_an_unknown_target_is_compared_with_the_known():
    """A slip of the pen is pointed out."""
    with pytest.raises(UnsupportedError, match=r"did you mean 'Cholesky'\?"):
        run_ours(call("Colesky", "f32[]", "f32[]"), [np.float32(0)])


MARKERS = ["Sharding", "AssumeGatherIndicesInBound", "GatherScatterIndicesBitpacked", "LayoutConstraint"]


@pytest.mark.parametrize("target", MARKERS)
def test_marks_and_promises_change_nothing(target):
    """Such a call returns its operand."""
    x = numbered((2, 3))
    np.testing.assert_array_equal(run_ours(call(target, "s32[2,3]", "s32[2,3]"), [x])[0], x)


def test_a_shard_that_is_not_the_whole_is_refused():
    """Which part a device holds depends on a partitioning that has not been done."""
    with pytest.raises(UnsupportedError, match="partition the program first"):
        run_ours(call("SPMDFullToShardShape", "s32[2]", "s32[4]"), [numbered((4,))])


def test_a_new_buffer_has_its_shape():
    """What is in it nobody may ask."""
    assert run_ours(call("AllocateBuffer", "bf16[3,4]"), [])[0].shape == (3, 4)


def test_asynchronous_calls_are_prepared_by_a_handle_and_a_token():
    """Neither has a value that counts."""
    lines = ['  h = s32[] custom-call(), custom_call_target="PrepareAsyncCallStart"']
    lines += [
        '  t = token[] custom-call(h), custom_call_target="PrepareAsyncCallDone"',
        "  ROOT r = (token[]) tuple(t)",
    ]
    assert len(run_ours("\n".join(["HloModule m", "ENTRY e {", *lines, "}"]), [])) == 1


def test_concatenated_buffers_are_one_array():
    """Slices of the dimension that is outermost in memory, here the second."""
    x = numbered((16, 256), np.float32)
    parts = [f"f32[16,{size}]{{0,1:T(8,128)}}" for size in (64, 64, 128)]
    text = call("ConcatBitcast", "f32[16,256]{0,1:T(8,128)}", *parts)
    np.testing.assert_array_equal(run_ours(text, np.split(x, (64, 128), 1))[0], x)


SLICED = """\
HloModule m, is_scheduled=true

w {
  p = f32[16,128]{1,0:T(8,128)} parameter(0)
  ROOT s = f32[8,128]{1,0:T(8,128)S(1)} slice(p), slice={[8:16], [0:128]}
}

ENTRY e {
  x = f32[16,128]{1,0:T(8,128)} parameter(0)
  a = ((f32[16,128]{1,0:T(8,128)}), f32[8,128]{1,0:T(8,128)S(1)}, s32[]) slice-start(x), slice={[8:16], [0:128]}
  b = ((f32[16,128]{1,0:T(8,128)}), f32[8,128]{1,0:T(8,128)S(1)}, s32[]) slice-start(x), slice={[0:8], [0:128]}
  c = f32[8,128]{1,0:T(8,128)S(1)} slice-done(a)
  d = f32[8,128]{1,0:T(8,128)S(1)} slice-done(b)
  ROOT z = f32[16,128]{1,0:T(8,128)S(1)} custom-call(c, d), custom_call_target="ConcatBitcast"
}
"""


@pytest.mark.parametrize("start", ["slice-start(x), slice={[8:16], [0:128]}", "async-start(x), calls=w"])
@pytest.mark.parametrize("listed", ["(c, d)", "(d, c)"])
def test_slices_of_one_array_are_joined_as_they_lie_in_it(listed, start):
    """The TPU compiler lists them in the order of their fetches, which may be any."""
    text = SLICED.replace("(c, d)", listed).replace("slice-start(x), slice={[8:16], [0:128]}", start)
    x = numbered((16, 128), np.float32)
    np.testing.assert_array_equal(run_ours(text, [x])[0], x)


def test_slices_of_two_arrays_are_joined_as_they_are_listed():
    """Nothing else says where they lie."""
    text = SLICED.replace("(x), slice={[0:8]", "(n), slice={[0:8]")
    text = text.replace("  b =", "  n = f32[16,128]{1,0:T(8,128)} negate(x)\n  b =")
    x = numbered((16, 128), np.float32)
    np.testing.assert_array_equal(run_ours(text, [x])[0], np.concatenate([x[8:], -x[:8]]))


def test_concatenated_buffers_may_be_bytes():
    """Two pieces of s8 make up an f32 array: in their tiles four rows of 128 share a line of words."""
    whole = numbered((1024,), np.float32)
    pieces = [piece.reshape(-1, 128, 4).transpose(0, 2, 1).ravel() for piece in np.split(whole.view(np.int8), 2)]
    text = call("ConcatBitcast", "f32[1024]{0:T(1024)}", *["s8[2048]{0:T(1024)(128)(4,1)}"] * 2)
    np.testing.assert_array_equal(run_ours(text, pieces)[0], whole)


def test_top_k_is_xlas():
    """Largest first, the lower index first among equals; the operand decides how many."""
    x = np.float32([[3, 1, 3, -0.0, 0.0, np.inf], [5, 5, 5, 2, 2, 1]])
    expected = run_xla(program("(f32[2,4], s32[2,4])", "topk(p0), k=4, largest=true", ["f32[2,6]"]), [x])
    found = run_ours(call("TopK", "(f32[2,4], s32[2,4])", "f32[2,6]"), [x])
    for one, two in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, two)


def test_cholesky_of_the_compiler_is_the_operation():
    """It reads the lower triangle."""
    a = matrices(2, 5, 5)
    expected = run_xla(program("f32[2,5,5]", "cholesky(p0), lower=true", ["f32[2,5,5]"]), [a])[0]
    np.testing.assert_allclose(run_ours(call("Cholesky", "f32[2,5,5]", "f32[2,5,5]"), [a])[0], expected, rtol=1e-5)


@pytest.mark.parametrize(("which", "triangle"), [("Lower", np.tril), ("Upper", np.triu)])
def test_inverted_blocks_are_inverses(which, triangle):
    """Each block times its inverse is the identity."""
    a = triangle(matrices(2, 3, 4, 4))
    found = run_ours(call(f"InvertDiagBlocks{which}Triangular", "f32[2,3,4,4]", "f32[2,3,4,4]"), [a])[0]
    np.testing.assert_allclose(a @ found, np.broadcast_to(np.eye(4), a.shape), atol=1e-6)


@pytest.mark.parametrize("target", ["Qr", "QrDecompositionBlock"])
def test_qr_and_its_reflections_make_the_matrix_again(target):
    """R from one call, Q from another."""
    a = np.random.default_rng(1).standard_normal((6, 4)).astype(np.float32)
    packed, factors = run_ours(call(target, "(f32[6,4], f32[4])", "f32[6,4]"), [a])
    text = call("ProductOfElementaryHouseholderReflectors", "f32[6,4]", "f32[6,4]", "f32[4]")
    np.testing.assert_allclose(run_ours(text, [packed, factors])[0] @ np.triu(packed[:4]), a, atol=1e-5)


def test_lu_permutes_and_factors():
    """L, U and the permutation make the matrix again."""
    a = np.random.default_rng(2).standard_normal((5, 5)).astype(np.float32)
    lu, _, order = run_ours(call("LuDecompositionBlock", "(f32[5,5], s32[5], s32[5])", "f32[5,5]"), [a])
    np.testing.assert_allclose((np.tril(lu, -1) + np.eye(5)) @ np.triu(lu), a[order], atol=1e-5)


def test_eigenvectors_belong_to_eigenvalues():
    """A V = V diag(w), eigenvalues ascending."""
    a = matrices(5, 5)
    vectors, values = run_ours(call("Eigh", "(f32[5,5], f32[5])", "f32[5,5]"), [a])
    np.testing.assert_allclose(a @ vectors, vectors * values, atol=1e-4)
    assert (np.diff(values) >= 0).all()


@pytest.mark.parametrize(("name", "half"), [("u64", "u32"), ("s64", "s32"), ("f64", "f32")])
def test_halves_of_64_bits_combine_again(name, half):
    """Splitting and combining give the number back (a double with 48 bits of mantissa, as two f32 hold)."""
    values = {
        "u64": np.uint64([0, 1, 2**63 + 5]),
        "s64": np.int64([0, -1, -(2**62)]),
        "f64": np.float64([1 + 2.0**-40]),
    }[name]
    shape = f"{len(values)}"
    halves = [
        run_ours(call(f"X64Split{w}", f"{half}[{shape}]", f"{name}[{shape}]"), [values])[0] for w in ("Low", "High")
    ]
    text = call("X64Combine", f"{name}[{shape}]", f"{half}[{shape}]", f"{half}[{shape}]")
    np.testing.assert_array_equal(run_ours(text, halves)[0], values)


@pytest.mark.parametrize(("half", "wanted"), [("Low", [1, np.inf, np.inf]), ("High", [2.0**-30, 0, 0])])
def test_the_low_half_of_a_double_is_the_leading_one(half, wanted):
    """The compiler's own arithmetic on the halves (see the program double_product) has it so."""
    found = run_ours(call(f"X64Split{half}", "f32[3]", "f64[3]"), [np.float64([1 + 2.0**-30, np.inf, 1e300])])[0]
    np.testing.assert_array_equal(found, np.float32(wanted))


def test_parts_of_c128_combine_again():
    """Real part low, imaginary part high; an infinity in one leaves the other alone."""
    value = np.array([complex(1, -np.inf), 3 - 4j])
    parts = [run_ours(call(f"X128Split{half}", "f64[2]", "c128[2]"), [value])[0] for half in ("Low", "High")]
    np.testing.assert_array_equal(parts, [value.real, value.imag])
    np.testing.assert_array_equal(run_ours(call("X128Combine", "c128[2]", "f64[2]", "f64[2]"), parts)[0], value)


def test_an_error_of_a_registered_function_is_its_cause(registered):
    """The instruction is named, the function's own error chained."""
    registered("Odd", numerics=lambda instruction, x: {}["key"])
    with pytest.raises(ProgramError, match=r"(?s)test.hlo:5:.*r: .*registered for 'Odd'.*KeyError: 'key'") as caught:
        run_ours(call("Odd", "f32[3]", "f32[3]"), [np.ones(3, np.float32)])
    assert isinstance(caught.value.__cause__.__cause__, KeyError)


def test_a_registered_function_cannot_write_to_its_operands(registered):
    """Others may still read them."""
    registered("Odd", numerics=lambda instruction, x: x.__iadd__(1))
    with pytest.raises(ProgramError, match="read-only"):
        run_ours(call("Odd", "f32[3]", "f32[3]"), [np.ones(3, np.float32)])


ASYNC = """HloModule m, num_partitions=2

start {
  p = f32[2] parameter(0)
  g = f32[4] all-gather(p), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  ROOT c = (f32[2], f32[4], u32[]) custom-call(g), custom_call_target="AsyncCollectiveStart"
}

done {
  p = f32[2] parameter(0)
  q = f32[4] parameter(1)
  h = u32[] parameter(2)
  g = f32[4] all-gather(p), channel_id=1, replica_groups={{0,1}}, dimensions={0}, use_global_device_ids=true
  ROOT c = f32[4] custom-call(p, q, g, h), custom_call_target="AsyncCollectiveDone"
}

ENTRY e {
  p = f32[2] parameter(0)
  s = (f32[2], f32[4], u32[]) fusion(p), kind=kCustom, calls=start
  a = f32[2] get-tuple-element(s), index=0
  b = f32[4] get-tuple-element(s), index=1
  c = u32[] get-tuple-element(s), index=2
  d = f32[4] fusion(a, b, c), kind=kCustom, calls=done
  ROOT t = (f32[2], f32[4]) tuple(a, d)
}
"""


def test_a_collective_in_pieces_is_the_collective():
    """The TPU compiler cuts one into a start and a done, between which other work goes on."""
    x = np.float32([1, 2])
    for own, whole in tpusim.execute(parse_module(SourceText("async.hlo", ASYNC)), [[x], [x + 2]]):
        np.testing.assert_array_equal(own, whole[:2] if own[0] == 1 else whole[2:])
        np.testing.assert_array_equal(whole, [1, 2, 3, 4])


def test_what_gives_one_array_gives_no_tuple():
    """The halves of numbers come from a call each."""
    with pytest.raises(ProgramError, match="expected what 'X64SplitLow' gives"):
        run_ours(call("X64SplitLow", "(f32[4], f32[4])", "f64[4]"), [np.zeros(4)])


@pytest.mark.parametrize("target", ["xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape"])
def test_ways_into_regions_of_shard_map_need_a_program_cut_up(target):
    """Where a device has all of the array they are it; else the error says what to give, not to register the call."""
    x = numbered((4, 2), np.float32)
    np.testing.assert_array_equal(run_ours(call(target, "f32[4,2]", "f32[4,2]"), [x])[0], x)
    found = run_ours(call(target, "(f32[4,2], f32[])", "f32[4,2]", "f32[]"), [x, np.float32(3)])
    np.testing.assert_array_equal(found[0], x)
    with pytest.raises(UnsupportedError, match=r"expected what each device runs, found a region of jax\.shard_map"):
        run_ours(call(target, "f32[2,2]", "f32[4,2]"), [x])
