"""``tpusim.execute``: what it takes, what it refuses, and whose memory the results are."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tpusim
from tests.numerics.one_instruction import program
from tpusim.errors import UnsupportedError
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

X = np.arange(8, dtype=np.float32)


def execute(text, inputs, **options):
    """Return what a module's text computes."""
    return tpusim.execute(parse_module(SourceText("test.hlo", text)), inputs, **options)


SUM = program("f32[8]", "add(p0, p1)", ["f32[8]", "f32[8]"])
PARAMETERS = r"the parameters are in0: f32\[8\], in1: f32\[8\]"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ([X], rf"missing: in1; {PARAMETERS}"),
        ([X, X, X], rf"expected 2 arrays, found 3; {PARAMETERS}"),
        ({"in0": X}, rf"missing: in1; {PARAMETERS}"),
        ({"in0": X, "in1": X, "in2": X}, rf"no parameter's: in2; {PARAMETERS}"),
        ({"in0": X, "in1": X, "mask": X}, rf"no parameter's: mask; {PARAMETERS}"),
        ({"in0": X, "in0_f32": X, "in1": X}, rf"twice: in0; {PARAMETERS}"),
        ([X, X[:4]], r"in1: expected the sizes of f32\[8\], found \(4,\)"),
        ([X, X.reshape(2, 4)], r"in1: expected the sizes of f32\[8\], found \(2, 4\)"),
        ([X, X.astype(np.float64)], r"in1: expected f32\[8\], an array of float32, found float64: convert it"),
        ([X, X.astype(np.int32)], r"in1: expected f32\[8\], an array of float32, found int32: convert it"),
        ([X, X.astype(ml_dtypes.bfloat16)], "in1: expected .* found bfloat16: convert it"),
        ([X, X > 1], "in1: expected .* found bool: convert it"),
        ([X, ["a"] * 8], r"in1: expected numbers for f32\[8\], found \['a'"),
        ([X, None], r"in1: expected numbers for f32\[8\], found None"),
        ([X, [[1], [1, 2]]], r"in1: expected an array for f32\[8\], found \[\[1\]"),
        (5, "inputs: expected a list of arrays or a mapping by name, found int"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(inputs, words):
    """By name, type and size; nothing is converted in silence."""
    with pytest.raises(tpusim.ProgramError, match=words):
        execute(SUM, inputs)


@pytest.mark.parametrize("inputs", [[X, X.tolist()], {"in0": X, "in1": X, "out0": X}, (X, [int(x) for x in X])])
def test_plain_numbers_fit_where_they_lose_nothing(inputs):
    """Lists have no type of their own, and results may lie beside the inputs that they belong to."""
    np.testing.assert_array_equal(execute(SUM, inputs), X + X)


@pytest.mark.parametrize("x", [X.astype(">f4"), X.astype("<f4")])
def test_the_order_of_bytes_makes_no_other_type(x):
    """The numbers are the same."""
    np.testing.assert_array_equal(execute(SUM, [x, X]), X + X)


@pytest.mark.parametrize("number", [1.5, 300, -1])
def test_a_plain_number_that_its_type_cannot_hold_is_refused(number):
    """Neither cut nor wrapped."""
    with pytest.raises(tpusim.ProgramError, match="in0: expected"):
        execute(program("u8[]", "not(p0)", ["u8[]"]), [number])


@pytest.mark.parametrize("name", ["bf16", "f8e5m2", "s4"])
def test_types_that_files_know_not_come_as_float32(name):
    """Under their own name, as results are stored, or in a list."""
    text, x = program(f"{name}[2]", "copy(p0)", [f"{name}[2]"]), np.float32([1, -2])
    for inputs in ({f"in0_{name}": x}, [x]):
        np.testing.assert_array_equal(execute(text, inputs).astype(np.float32), x)


def test_a_stored_integer_must_be_one_of_its_type():
    """9 is no s4."""
    with pytest.raises(tpusim.ProgramError, match=r"in0: expected numbers that s4 can hold for s4\[1\], found others"):
        execute(program("s4[1]", "copy(p0)", ["s4[1]"]), {"in0_s4": np.float32([9])})


VIEWS = [
    ("f32[8]", "copy(p0)"),
    ("f32[4]", "slice(p0), slice={[0:4]}"),
    ("f32[2,4]", "reshape(p0)"),
    ("f32[3,8]", "broadcast(p0), dimensions={1}"),
    ("u32[8]", "bitcast-convert(p0)"),
    ("f32[8]", "reverse(p0), dimensions={0}"),
    ("(f32[8], f32[8])", "tuple(p0, p0)"),
]


@pytest.mark.parametrize(("shape", "instruction"), VIEWS)
def test_results_are_the_callers_own(shape, instruction):
    """Writing to one changes neither an input nor another result."""
    x = X.copy()
    result = execute(program(shape, instruction, ["f32[8]"]), [x])
    first, *others = result if isinstance(result, tuple) else (result,)
    first[...] = 7
    np.testing.assert_array_equal(x, X)
    for other in others:
        np.testing.assert_array_equal(other, X)


def test_devices_share_no_result():
    """What one device got from another is still its own."""
    text = program("f32[8]", "collective-broadcast(p0), replica_groups={{0,1}}", ["f32[8]"])
    one, two = execute(text, [X], replicas=2)
    one[...] = 7
    np.testing.assert_array_equal(two, X)


def test_a_program_that_means_nothing_is_refused_before_it_runs():
    """By the verifier, with its label and the place."""
    with pytest.raises(tpusim.ProgramError, match=r"(?s)test.hlo:6:.*binary_c2"):
        execute(program("f32[8]", "add(p0, p1)", ["f32[8]", "f32[4]"]), [X, X[:4]])


def test_a_group_with_a_device_too_many_is_refused():
    """The verifier is told how many devices run."""
    text = program("f32[8]", "collective-broadcast(p0), replica_groups={{0,5}}", ["f32[8]"])
    with pytest.raises(tpusim.ProgramError, match=r"(?s)r.*5"):
        execute(text, [X], replicas=2)


def test_what_is_too_large_for_any_machine_is_refused():
    """With its name, before anything is computed."""
    with pytest.raises(UnsupportedError, match=r"'r' .*: expected a number of elements to compute, at most"):
        execute(program(f"f32[{2**41}]", "broadcast(p0), dimensions={}", ["f32[]"]), [1.0])


def test_what_is_too_large_for_this_machine_is_refused(monkeypatch):
    """With what was wanted of it."""

    def too_much(*_):
        raise MemoryError("4 TiB")

    monkeypatch.setattr("tpusim.numerics.execute.execute_module", too_much)
    with pytest.raises(UnsupportedError, match="values do not fit the memory of this machine: 4 TiB"):
        execute(SUM, [X, X])


def test_uneven_splits_are_refused():
    """8 elements for 3 devices."""
    text = program("f32[8]", "all-to-all(p0), replica_groups={{0,1,2}}, dimensions={0}", ["f32[8]"])
    with pytest.raises(tpusim.ProgramError, match="all_to_all_c4"):
        execute(text, [X], replicas=3)


def test_pieces_that_do_not_fit_are_refused():
    """Nine rows of eight."""
    text = program(
        "f32[8]",
        "ragged-all-to-all(p0, p1, p2, p3, p4, p5), replica_groups={{0}}",
        ["f32[8]", "f32[8]", *["s32[1]"] * 4],
    )
    with pytest.raises(tpusim.ProgramError, match=r"r: expected pieces that fit 8 rows .* found 9 from 0 to 0"):
        execute(text, [X, X, *(np.int32([n]) for n in (0, 9, 0, 9))])


def test_what_no_rule_foresaw_names_the_instruction(monkeypatch):
    """And keeps the cause, in whose words nobody would know what is wrong with a program."""
    rules = pytest.importorskip("tpusim.numerics.execute").RULES
    monkeypatch.setitem(rules, "add", lambda site, instruction, operands: 1 // 0)
    said = r"(?s)test.hlo:6:.*r: expected a value of 'add' .*, found none: its rule ended in ZeroDivisionError"
    with pytest.raises(tpusim.UnsupportedError, match=said) as caught:
        execute(SUM, [X, X])
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(("name", "chip", "depth"), [("m", "v5e", 128), ("m", "v6e", 256), ("m.v6e", None, 256)])
def test_products_are_summed_in_blocks_of_the_chips_arrays(monkeypatch, name, chip, depth):
    """Of the chip that is asked for, or else of the one that the program was compiled for."""
    seen = []
    monkeypatch.setattr(
        tpusim.numerics.execute, "execute_module", lambda module, values, settings, *feeds: seen.append(settings) or [0]
    )
    text = SUM.replace("HloModule m", "HloModule m, is_scheduled=true")
    tpusim.execute(parse_module(SourceText(f"{name}.hlo.txt", text)), [X, X], chip=chip)
    assert seen[0].array_depth == depth
