"""Random numbers: the bits of the counter-based generators against XLA, the shape of the distributions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.numerics.oracle import run_ours, run_xla
from tpusim.numerics.ops import random

STATE = np.array([0x123456789ABCDEF0, 2**64 - 3, 2**64 - 1], np.uint64)
SIZES = ["", "5", "5,3", "3,5", "7,4,3", "9,9", "3,0", "2"]


def generator(algorithm: str, state_size: int, result: str) -> str:
    """Return a module of one ``rng-bit-generator``."""
    lines = f"  p = u64[{state_size}] parameter(0)\n  ROOT r = (u64[{state_size}], {result}) rng-bit-generator(p)"
    return f"HloModule m\nENTRY e {{\n{lines}, algorithm={algorithm}\n}}\n"


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", ["u8", "u16", "u32", "u64"])
@pytest.mark.parametrize(
    ("algorithm", "words"), [("rng_three_fry", 2), ("rng_philox", 2), ("rng_philox", 3), ("rng_default", 2)]
)
def test_bits_and_state_are_those_of_xla(algorithm: str, words: int, name: str, sizes: str) -> None:
    """Every bit, for scalars, odd, even and empty sizes, with a counter that runs over its end."""
    text = generator(algorithm, words, f"{name}[{sizes}]")
    for found, expected in zip(run_ours(text, [STATE[:words]]), run_xla(text, [STATE[:words]]), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


def test_signed_numbers_have_the_bits_of_unsigned_ones() -> None:
    """The type only says how to read them."""
    found = [run_ours(generator("rng_philox", 2, f"{name}[6]"), [STATE[:2]])[1] for name in ("s32", "u32")]
    assert found[0].dtype == np.int32
    np.testing.assert_array_equal(found[0].view(np.uint32), found[1])


def three_fry_block(key: int, counter: int) -> list[int]:
    """Return a block of ThreeFry2x32 as the paper has it: 20 rounds, a key injection every four."""
    low = 0xFFFFFFFF
    keys = [key & low, key >> 32]
    keys.append(keys[0] ^ keys[1] ^ 0x1BD11BDA)
    one, two = (counter + keys[0]) & low, ((counter >> 32) + keys[1]) & low
    for number in range(20):
        turn = (13, 15, 26, 6, 17, 29, 16, 24)[number % 8]
        one = (one + two) & low
        two = ((two << turn | two >> 32 - turn) & low) ^ one
        if number % 4 == 3:
            group = number // 4 + 1
            one, two = (one + keys[group % 3]) & low, (two + keys[(group + 1) % 3] + group) & low
    return [one, two]


def test_three_fry_agrees_with_its_twin() -> None:
    """Blocks on both sides of where the counter's lower word runs over."""
    key, counter = 0xDEADBEEF12345678, 2**32 - 2
    _, found = random.three_fry(np.array([key, counter], np.uint64), (8,), 32)
    assert found.tolist() == [word for block in range(4) for word in three_fry_block(key, counter + block)]


def test_three_fry_gives_the_published_words() -> None:
    """Known answers of Random123: all zeros, and all ones."""
    _, zeros = random.three_fry(np.array([0, 0], np.uint64), (2,), 32)
    assert [hex(word) for word in zeros] == ["0x6b200159", "0x99ba4efe"]
    _, ones = random.three_fry(np.array([2**64 - 1, 2**64 - 1], np.uint64), (2,), 32)
    assert [hex(word) for word in ones] == ["0x1cb996fc", "0xbb002be7"]


def test_philox_gives_the_published_words() -> None:
    """Known answers of Random123: all zeros, and all ones."""
    _, zeros = random.philox(np.array([0, 0, 0], np.uint64), (4,), 32)
    assert [hex(word) for word in zeros] == ["0x6627e8d5", "0xe169c58d", "0xbc57ac4c", "0x9b00dbd8"]
    _, ones = random.philox(np.array([2**64 - 1] * 3, np.uint64), (4,), 32)
    assert [hex(word) for word in ones] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


def draw(distribution: str, name: str, low: Any, high: Any, seed: int = 0) -> Any:
    """Return 4,000 numbers of a distribution."""
    text = f"""HloModule m
ENTRY e {{
  a = {name}[] constant({low})
  b = {name}[] constant({high})
  ROOT r = {name}[40,100] rng(a, b), distribution=rng_{distribution}
}}
"""
    return run_ours(text, [], seed=seed)[0]


@pytest.mark.parametrize("name", ["f32", "f64", "bf16", "f16"])
def test_uniform_numbers_fill_their_range(name: str) -> None:
    """From 2 to 6: mean 4, variance 16/12."""
    found = draw("uniform", name, 2, 6).astype(np.float64)
    assert found.shape == (40, 100)
    assert found.min() >= 2
    assert found.max() <= 6
    assert abs(found.mean() - 4) < 0.1
    assert abs(found.var() - 16 / 12) < 0.1


def test_uniform_integers_leave_out_the_upper_end() -> None:
    """From -2 up to but not 3."""
    assert set(draw("uniform", "s32", -2, 3).reshape(-1).tolist()) == {-2, -1, 0, 1, 2}


@pytest.mark.parametrize("name", ["f32", "f64", "bf16"])
def test_normal_numbers_have_their_mean_and_deviation(name: str) -> None:
    """Mean 1, deviation 2, and two thirds within one deviation."""
    found = draw("normal", name, 1, 2).astype(np.float64)
    assert abs(found.mean() - 1) < 0.15
    assert abs(found.std() - 2) < 0.1
    assert abs((np.abs(found - 1) < 2).mean() - 0.683) < 0.03


def test_the_seed_decides_the_numbers() -> None:
    """The same seed gives the same ones, another seed others."""
    np.testing.assert_array_equal(draw("uniform", "f32", 0, 1, seed=7), draw("uniform", "f32", 0, 1, seed=7))
    assert (draw("uniform", "f32", 0, 1, seed=7) != draw("uniform", "f32", 0, 1, seed=8)).mean() > 0.9


def test_a_device_draws_other_numbers_each_time() -> None:
    """Two instructions of one program do not give the same."""
    text = """HloModule m
ENTRY e {
  a = f32[] constant(0)
  b = f32[] constant(1)
  r = f32[8] rng(a, b), distribution=rng_uniform
  s = f32[8] rng(a, b), distribution=rng_uniform
  ROOT t = (f32[8], f32[8]) tuple(r, s)
}
"""
    one, two = run_ours(text, [])
    assert (one != two).all()


def test_the_state_advances_by_delta_from_where_xla_starts() -> None:
    """A state of 128 bits, lower half first; each instruction finds what the one before left."""
    text = """HloModule m
ENTRY e {
  r = u64[2] rng-get-and-update-state(), delta=3
  s = u64[2] rng-get-and-update-state(), delta=1
  ROOT t = (u64[2], u64[2]) tuple(r, s)
}
"""
    one, two = run_ours(text, [])
    assert (one[1], int(two[0]) - int(one[0])) == (0, 3)
    expected = run_xla("HloModule m\nENTRY e {\n  ROOT r = u64[2] rng-get-and-update-state(), delta=3\n}\n", [])[0]
    np.testing.assert_array_equal(one, expected)
