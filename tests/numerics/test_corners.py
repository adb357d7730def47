"""Programs that the verifier lets through and in which nearly nobody looks: they run, or are refused in our words."""

from __future__ import annotations

import warnings
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tpusim
from tests.numerics.oracle import run_ours, run_xla
from tests.semantics.hlo import parse
from tpusim.errors import ProgramError, UnsupportedError

ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }"
INNER = "inner { a = f32[] parameter(0) ROOT c = f32[] negate(a) }"
NESTED = (
    f"{INNER} outer {{ a = f32[] parameter(0) b = f32[] parameter(1) m = f32[] map(a), dimensions={{}}, to_apply=inner"
    " ROOT c = f32[] add(m, b) }"
)
FOUR, SIX = np.arange(4, dtype=np.float32), np.arange(6, dtype=np.float32).reshape(2, 3)


def program(*lines: str, before: str = "", header: str = "") -> str:
    """Return a module whose entry has these lines."""
    return f"HloModule m{header}\n{before}\nENTRY e {{ {' '.join(lines)} }}\n"


CASES: dict[str, tuple[str, list[Any]]] = {
    "map in a map": (
        program(
            "p = f32[4] parameter(0) q = f32[4] parameter(1)",
            "ROOT r = f32[4] map(p, q), dimensions={0}, to_apply=outer",
            before=NESTED,
        ),
        [FOUR, FOUR + 1],
    ),
    "scan of a carry alone": (
        program(
            "p = f32[4] parameter(0) c = f32[] parameter(1)",
            "ROOT r = f32[] scan(p, c), dimensions={0}, num_carries=1, to_apply=add",
            before=ADD,
        ),
        [FOUR, np.float32(2)],
    ),
    "least of complex numbers in windows": (
        program(
            "p = c64[4] parameter(0) z = c64[] parameter(1)",
            "ROOT r = c64[3] reduce-window(p, z), window={size=2}, to_apply=least",
            before="least { a = c64[] parameter(0) b = c64[] parameter(1) ROOT c = c64[] minimum(a, b) }",
        ),
        [np.array([1 + 2j, 3, -1, 0], np.complex64), np.complex64(9)],
    ),
    "window over a scalar": (
        program(
            "p = f32[] parameter(0) z = f32[] constant(0) ROOT r = f32[] reduce-window(p, z), to_apply=add", before=ADD
        ),
        [np.float32(3)],
    ),
    "broadcast that transposes": (
        program("p = f32[2,3] parameter(0) ROOT r = f32[3,2] broadcast(p), dimensions={1,0}"),
        [SIX],
    ),
    "broadcast that transposes and repeats": (
        program("p = f32[2,3] parameter(0) ROOT r = f32[3,4,2] broadcast(p), dimensions={2,0}"),
        [SIX],
    ),
    "root of what is negative": (
        program(
            "p = f32[4] parameter(0) h = f32[] constant(0.5) b = f32[4] broadcast(h), dimensions={}",
            "ROOT r = f32[4] power(p, b)",
        ),
        [np.float32([-np.inf, -0.0, 4, -2])],
    ),
    "one to an infinite power": (
        program("p = c64[2] parameter(0) q = c64[2] parameter(1) ROOT r = c64[2] power(p, q)"),
        [np.complex64([1, 1]), np.complex64([np.inf, complex(np.inf, 1)])],
    ),
    "size and root of what is infinite in a part, or too large for its size": (
        program(
            "p = c64[7] parameter(0) s = c64[7] sign(p) q = c64[7] rsqrt(p)", "ROOT r = (c64[7], c64[7]) tuple(s, q)"
        ),
        [
            np.complex64(
                [complex(np.inf, 1), complex(1, -np.inf), complex(np.inf, np.inf), 3e38 + 3e38j, 1 - 1j, np.nan, 1e30]
            )
        ],
    ),
    "least power of two": (program("ROOT r = f8e8m0fnu[] constant(5.87747e-39)"), []),
    "below the least power of two": (program("ROOT r = f8e8m0fnu[] constant(1e-39)"), []),
    "mesh of one device": (program("ROOT r = f32[4] parameter(0), sharding={mesh[], replicated}"), [FOUR]),
}


@pytest.mark.parametrize("name", CASES)
def test_the_value_is_xlas(name: str) -> None:
    """In every element, and the verifier has nothing to say."""
    text, inputs = CASES[name]
    assert tpusim.check(parse(text)) == []
    for ours, theirs in zip(run_ours(text, inputs), run_xla(text, inputs), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6 if np.iscomplexobj(ours) else 0)


@pytest.mark.parametrize("name", ["scalar", "array"])
def test_a_power_does_not_depend_on_how_the_exponent_lies_in_memory(name: str) -> None:
    """NumPy takes another way where it reads one number again and again."""
    exponent = "broadcast(q), dimensions={}" if name == "scalar" else "copy(q)"
    sizes = "" if name == "scalar" else "4"
    lines = f"p = f32[4] parameter(0) q = f32[{sizes}] parameter(1) b = f32[4] {exponent} ROOT r = f32[4] power(p, b)"
    half = np.full((4,) if sizes else (), 0.5, np.float32)
    (found,) = run_ours(program(lines), [np.float32([-np.inf, -0.0, 2, -3]), half])
    np.testing.assert_array_equal(found, np.float32([np.inf, 0.0, np.sqrt(np.float32(2)), np.nan]))
    assert not np.signbit(found[1])


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("algorithm", ["rng_three_fry", "rng_philox"])
def test_random_bits_of_narrow_floats_are_bits(name: str, algorithm: str) -> None:
    """Those that unsigned numbers of their width get, which ``test_random`` compares with XLA; and nobody is warned."""
    text = program(f"s = u64[2] parameter(0) ROOT r = (u64[2], {name}[64]) rng-bit-generator(s), algorithm={algorithm}")
    state = np.uint64([1, 2])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        floats = run_ours(text, [state])[1]
    assert floats.dtype == (np.float16 if name == "f16" else ml_dtypes.bfloat16)
    np.testing.assert_array_equal(floats.view(np.uint16), run_ours(text.replace(f"{name}[64]", "u16[64]"), [state])[1])


def test_what_lies_beyond_the_groups_of_a_ragged_batch_is_zero() -> None:
    """Three of four products belong to a group."""
    dims = "lhs_batch_dims={0}, rhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_contracting_dims={1}"
    text = program(
        "p = f32[4,3,5] parameter(0) q = f32[4,5,2] parameter(1) g = s32[2] parameter(2)",
        f"ROOT r = f32[4,3,2] ragged-dot(p, q, g), {dims}, lhs_ragged_dims={{0}}",
    )
    lhs, rhs = np.ones((4, 3, 5), np.float32), np.ones((4, 5, 2), np.float32)
    expected = np.matmul(lhs, rhs)
    expected[3] = 0
    np.testing.assert_array_equal(run_ours(text, [lhs, rhs, np.int32([1, 2])])[0], expected)


def test_a_size_set_where_the_shape_states_another_keeps_the_array() -> None:
    """Its elements are XLA's; what stands beyond them nobody knows."""
    text = program(
        "p = f32[50] parameter(0) n = s32[] constant(42)",
        "ROOT r = f32[50] set-dimension-size(p, n), dimensions={0}",
    )
    array = np.arange(50, dtype=np.float32)
    ours, theirs = run_ours(text, [array])[0], run_xla(text, [array])[0]
    assert ours.shape == theirs.shape
    np.testing.assert_array_equal(ours[:42], theirs[:42])


@pytest.mark.parametrize("stated", ["f32[50,2]", "f32[50,<=2]"])
def test_a_size_set_where_the_shape_states_another_is_refused_to_what_reads_the_array(stated: str) -> None:
    """XLA's sum is of the elements that are left, which no shape here says."""
    text = program(
        "p = f32[50,2] parameter(0) n = s32[] constant(42) z = f32[] constant(0)",
        f"r = {stated} set-dimension-size(p, n), dimensions={{0}}",
        "ROOT s = f32[] reduce(r, z), dimensions={0,1}, to_apply=add",
        before=ADD,
    )
    with pytest.raises(UnsupportedError, match="to be stated as its bound, <=50"):
        run_ours(text, [np.ones((50, 2), np.float32)])


@pytest.mark.parametrize("state", ["u64[4]", "u8[3]", "u64[1]", "u32[2]"])
def test_random_bits_need_a_state_of_their_size(state: str) -> None:
    """Philox has a key of 64 bits and a counter of 64 or 128, as XLA has them."""
    text = program(
        f"p = {state} parameter(0)",
        f"ROOT r = ({state}, u32[3]) rng-bit-generator(p), algorithm=rng_philox",
    )
    dtype, size = np.dtype(state[0] + str(int(state[1:].split("[")[0]) // 8)), int(state[-2])
    with pytest.raises(ProgramError, match="expected a state of 16 or 24 bytes"):
        run_ours(text, [np.ones(size, dtype)])


def test_branches_one_of_which_is_dynamic_give_what_is_dynamic() -> None:
    """As XLA infers it; whichever runs, the result has its size."""
    sized = (
        "f { p = s32[4] parameter(0) n = s32[] constant(2) ROOT r = s32[<=4] set-dimension-size(p, n), dimensions={0} }"
    )
    text = program(
        "c = pred[] parameter(0) p = s32[4] parameter(1)",
        "ROOT r = conditional(c, p, p), true_computation=t, false_computation=f",
        before="t { p = s32[4] parameter(0) ROOT r = s32[4] negate(p) } " + sized,
    )
    assert str(parse(text).entry.root.shape).startswith("s32[<=4]")
    for chosen, size in ((True, 4), (False, 2)):
        assert run_ours(text, [np.bool_(chosen), np.arange(4, dtype=np.int32)])[0].shape == (size,)


def test_what_has_no_value_is_refused_in_our_words() -> None:
    """XLA lets it pass; what it then computes is not told by the text. Time it has."""
    line = (
        "p = f32[1,6,6,4] parameter(0) k = f32[3,3,2,2] parameter(1) ROOT r = f32[1,4,4,2] convolution(p, k),"
        " window={size=3x3}, dim_labels=b01f_01io->b01f, sparsity_config={rhs={sparsity=1x2 dimension=2}}"
    )
    module = parse(program(line))
    inputs = [np.zeros(parameter.shape.dimensions, "f4") for parameter in module.entry.parameters]
    assert tpusim.simulate(module, "v5e").time_us >= 0
    with pytest.raises(tpusim.UnsupportedError, match="a dense kernel"):
        tpusim.execute(module, inputs)


def test_a_schedule_may_sort_floats_of_another_precision() -> None:
    """What comes in is converted, as the results say it."""
    less = (
        "less { a = f32[] parameter(0) b = f32[] parameter(1) u = s32[] bitcast-convert(a) v = s32[] bitcast-convert(b)"
        " ROOT c = pred[] compare(u, v), direction=LT }"
    )
    lines = "p = bf16[4] parameter(0) ROOT r = f32[4] sort(p), dimensions={0}, to_apply=less"
    text = program(lines, before=less, header=", is_scheduled=true")
    assert tpusim.check(parse(text)) == []
    (found,) = run_ours(text, [np.array([3, 1, 2, 0], ml_dtypes.bfloat16)])
    np.testing.assert_array_equal(found, np.arange(4, dtype=np.float32))


@pytest.mark.parametrize("kind", ["bf16", "f32", "f8e4m3fn"])
def test_a_comparison_in_total_order_of_scalars_is_a_scalar(kind: str) -> None:
    """The bits of a scalar have no dimension either; -0 is below +0 (XLA, Compare)."""
    lines = f"a = {kind}[] constant(-0) b = {kind}[] constant(0)"
    result = tpusim.execute(parse(program(f"{lines} ROOT c = pred[] compare(a, b), direction=LT, type=TOTALORDER")))
    assert result.shape == ()
    assert bool(result)
