"""Operations on 64-bit and complex numbers: as many on words as the TPU compiler makes of them, and definitions say."""

from __future__ import annotations

import tomllib
from collections import Counter

import pytest

from tests.house.source_tree import ROOT
from tpusim.cost.operations.table import cost_of_type, operation_cost, wide_array, words_computed
from tpusim.hardware.fields import CONFIDENCE
from tpusim.hardware.load import load_chip
from tpusim.hardware.units import WORD_BITS
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.notation import parse_shape
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

CHIP = load_chip("v5e")
OPS = CHIP.vector_ops.ops
TABLE = tomllib.loads((ROOT / "configs/wide_ops.toml").read_text())
FOLDER = ROOT / "tests/data/wide_ops"
"""Texts of the TPU compiler (libtpu 0.0.52, v5e), one operation each, without what names files and tiles."""
TEXTS = sorted(path.name.removesuffix(".v5e.hlo.txt") for path in FOLDER.glob("*.hlo.txt"))
ARRAY = (4096, 2048)
NO_WORK = {"parameter", "constant", "broadcast", "bitcast-convert", "custom-call"}
"""What computes nothing, and what splits and joins words where arrays come in and go out."""
SAME = {"copy", "copy-start", "copy-done", "bitcast"}


class Counting:
    """Every operation of a module once that is applied to other values."""

    def __init__(self, text: str) -> None:
        self.module = parse_module(SourceText("m.hlo", text))
        self.numbers: dict[object, int] = {}
        self.counts: Counter[str] = Counter()
        self.run(self.module.entry, None)

    def run(self, computation, arguments):
        """Return the value of a computation's root: a number, or a tuple of them."""
        known = {}
        for one in computation.instructions:
            known[one.name] = self.value(one, [known[name] for name in one.operands], arguments)
        return known[computation.root_name]

    def value(self, one, operands, arguments):
        """Return the value of an instruction."""
        if one.opcode == "parameter" and arguments is not None:
            return arguments[one.immediate]
        if one.opcode == "fusion":
            return self.run(self.module[one.called_computations[0]], operands)
        if one.opcode == "tuple":
            return tuple(operands)
        if one.opcode == "get-tuple-element":
            return operands[0][one.attributes["index"]]
        return operands[0] if one.opcode in SAME else self.number(one, operands)

    def number(self, one, operands):
        """Return the number of a value, the same for equal ones, and count what is new."""
        ordered = sorted(operands) if one.opcode in {"add", "multiply", "and", "or", "xor"} else operands
        key = one.opcode, str(one.immediate), one.shape.dtype, one.shape.dimensions, str(one.attributes), *ordered
        if key not in self.numbers and one.shape.dimensions == ARRAY and one.opcode not in NO_WORK:
            self.counts[one.opcode] += 1
        return self.numbers.setdefault(key, len(self.numbers))


def array(name, sizes=ARRAY):
    """Return the shape of an array of some type."""
    return parse_shape(f"{name}[{','.join(map(str, sizes))}]")


def priced(counts):
    """Return what operations on words cost by unit, one after another."""
    total = Counter()
    for opcode, count in counts.items():
        for unit, cost in OPS[opcode].items():
            total[unit] += count * cost
    return dict(total)


def cost_of(name):
    """Return what tpusim says of the operation of a text's name: its type, opcode, and a direction or type."""
    element_type, opcode, *other = name.split(".")
    made = {"compare": "pred", "abs": "f32", "convert": other[0] if other else ""}.get(opcode, element_type)
    taken = [array(element_type)] * (1 if opcode in {"abs", "convert", "exponential", "sqrt"} else 2)
    attributes = {"direction": other[0]} if opcode == "compare" else {}
    return operation_cost(CHIP, opcode, attributes, array(made), taken)


@pytest.mark.parametrize("name", TEXTS)
def test_an_operation_is_of_those_on_words_that_the_compiler_makes(name):
    """Counted in the compiler's own text."""
    counts = Counting((FOLDER / f"{name}.v5e.hlo.txt").read_text()).counts
    assert cost_of(name) == pytest.approx(priced(counts))


DEFINED = {
    # Real and imaginary part by themselves.
    "c64.add": {"add": 2},
    "c64.multiply": {"multiply": 4, "add": 1, "subtract": 1},
    # The upper words, the lower ones, and one more where the lower sum is less than what was added.
    "s64.add": {"add": 3, "compare": 1, "select": 1},
    # Modulo 2^64: both halves of the lower words' product, and the lower halves of two more.
    "u64.multiply": {"multiply": 3, "mulhi": 1, "add": 2},
    # Upper words are less, or equal and the lower ones less.
    "s64.compare.LT": {"compare": 3, "and": 1, "or": 1},
    "u64.xor": {"xor": 2},
    "f64.negate": {"negate": 2},
    "c128.negate": {"negate": 4},
}


@pytest.mark.parametrize(("name", "counts"), DEFINED.items())
def test_simple_operations_are_what_their_definition_says(name, counts):
    """Words of integers with a carry, and parts of complex numbers."""
    assert cost_of(name) == pytest.approx(priced(counts))


@pytest.mark.parametrize(("opcode", "least"), [("add", 6 + 2 + 3), ("multiply", 17 + 2 + 3)])
def test_sums_of_two_floats_take_at_least_what_knuth_and_dekker_do(opcode, least):
    """The exact sum of two (6) or product (17), the lower parts, and the two made a sum again (3)."""
    assert cost_of_type(CHIP, opcode, "f64")["vector"] >= least


@pytest.mark.parametrize("opcode", ["divide", "remainder"])
def test_long_integers_are_divided_bit_by_bit(opcode):
    """64 steps, each at least a shift of two words (3), a comparison (3), a subtraction (4) and a selection (2)."""
    assert cost_of_type(CHIP, opcode, "u64")["vector"] >= 64 * 12


def test_parts_are_taken_and_joined_word_by_word():
    """Where arrays come in and go out the compiler has calls for it."""
    assert operation_cost(CHIP, "real", {}, array("f32"), [array("c64")]) == {"vector": 1}
    assert operation_cost(CHIP, "complex", {}, array("c128"), [array("f64")] * 2) == {"vector": 4}


def test_the_longer_type_decides():
    """The absolute value of a c128 is an f64, and no operation on such."""
    found = operation_cost(CHIP, "abs", {}, array("f64"), [array("c128")])
    assert found == pytest.approx(priced(TABLE["ops"]["c128"]["abs"]))


def test_what_nobody_has_counted_is_done_to_each_word():
    """The compiler refuses these."""
    assert operation_cost(CHIP, "clamp", {}, array("c128"), [array("c128")] * 3) == {"vector": 4 * 2}
    assert cost_of_type(CHIP, "reduce-precision", "f64") == {"vector": 2 * OPS["reduce-precision"]["vector"]}


@pytest.mark.parametrize("name", ["f32", "s32", "bf16", "s8", "pred"])
def test_what_a_word_holds_costs_what_the_table_of_operations_says(name):
    """Nothing is long there."""
    assert wide_array([array(name)]) is None
    assert operation_cost(CHIP, "add", {}, array(name), [array(name)] * 2) is OPS["add"]
    assert cost_of_type(CHIP, "multiply", name) is OPS["multiply"]


def test_what_a_word_operation_costs_is_the_chips():
    """A slower multiplication slows those of long numbers by as many as they have."""
    slower = load_chip("v5e", {"vector_ops.ops.multiply.vector": 3})
    assert cost_of_type(slower, "multiply", "c64")["vector"] == 4 * 3 + 2


def test_every_row_is_of_known_operations():
    """Types that no word holds, of operations that the vector unit has a cost of; where from says the file."""
    assert TABLE["confidence"] in CONFIDENCE
    assert TABLE["source"]
    for name, rows in TABLE["ops"].items():
        assert DTYPES[name].bits > WORD_BITS
        for row, counts in rows.items():
            opcode = row if row in OPS else row.partition("-")[0]
            assert {opcode, *counts} <= OPS.keys()
            assert all(count > 0 for count in counts.values())


@pytest.mark.parametrize(
    ("opcode", "dtype", "count"),
    [
        ("sine", "f32", 1),
        ("add", "bf16", 1),
        ("add", "u64", 5),
        ("multiply", "u64", 6),
        ("round-nearest-even", "c64", 2),
    ],
)
def test_an_operation_is_of_as_many_on_words_as_its_row_has(opcode, dtype, count):
    """One on a word is one; without a row it is done once for each word."""
    shape = parse_shape(f"{dtype}[8,128]")
    assert words_computed(opcode, {}, shape, [shape]) == count
