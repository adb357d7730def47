"""Every operation of XLA's "Operation semantics", by the examples of that document, in the files of ops/.

A file holds the modules of one heading, with ``// ----`` between them. The comment lines before a module say what goes
in and comes out, as JSON in which "nan", "inf", "-inf" and complex numbers ("1+2j") are strings:

    // input: [1, 2]        one line per parameter; input[1] is what replica 1 gets, input what all get
    // output: [3, 4]       one line per leaf of the result; "token" for a token
    // replicas: 2          how many devices run the module
    // infeed: [1, 2]       one line per value that the infeed holds
    // error: words         the parser or the verifier refuses the module, in these words or by the rule of that label
    // deadlock: words      the run cannot end, and says who waits

The results are those that the document states, or follow by arithmetic from its definitions.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tpusim
from tpusim.ir.custom_calls import REGISTERED
from tpusim.ir.module import Module
from tpusim.numerics.files import flat_values
from tpusim.numerics.registry import TOKEN
from tpusim.semantics.verify.module import problems
from tpusim.shapes.dtype import numpy_dtype
from tpusim.shapes.shape import leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

OPS = Path(__file__).parent / "ops"

HEADINGS = """
    after_all all_gather all_reduce all_to_all batch_norm_grad batch_norm_inference batch_norm_training
    bitcast_convert_type broadcast broadcast_in_dim call cholesky clamp collapse collective_permute concatenate
    conditional conv conv_with_general_padding convert_element_type cross_replica_sum custom_call dot dot_general
    dynamic_slice dynamic_update_slice element_wise_binary element_wise_comparison element_wise_unary fft gather
    get_dimension_size set_dimension_size get_tuple_element infeed iota map optimization_barrier pad recv reduce
    reduce_precision reduce_scatter reduce_window replica_id reshape rev rng_normal rng_uniform rng_bit_generator
    scatter select select_and_scatter send slice sort transpose triangular_solve tuple while
""".split()

# What the three element-wise headings list, as HLO text spells it.
FUNCTIONS = {
    "element_wise_binary": "add subtract multiply divide remainder maximum minimum and or",
    "element_wise_comparison": "EQ NE GE GT LE LT",
    "element_wise_unary": "abs ceil cosine exponential floor imag is-finite log not logistic popcnt negate real rsqrt"
    " sign sqrt cbrt tanh round-nearest-afz round-nearest-even",
}

# These only move elements, so that their floats come out bit by bit.
MOVING = frozenset(
    """
    parameter constant tuple get-tuple-element iota broadcast reshape transpose reverse slice concatenate pad gather
    dynamic-slice dynamic-update-slice select opt-barrier bitcast-convert after-all infeed send send-done recv recv-done
    all-gather all-to-all collective-permute set-dimension-size get-dimension-size
    """.split()
)

_NOTE = re.compile(r"// (input|output|replicas|infeed|error|deadlock)(?:\[(\d+)\])?: (.+)")


@dataclass(frozen=True)
class Case:
    """One module of a file, and what its comments say of it: (what, replica or an empty string, text)."""

    text: str
    notes: tuple[tuple[str, str, str], ...]

    @cached_property
    def module(self) -> Module:
        """The module of the text."""
        return parse_module(SourceText("ops.hlo", self.text))

    @property
    def replicas(self) -> int:
        """How many devices run it."""
        return int((self.said("replicas") or ["1"])[0])

    def said(self, what: str, replica: int = 0) -> list[str]:
        """Return what the notes of one kind say, for all replicas or for this one."""
        return [text for kind, number, text in self.notes if kind == what and number in ("", str(replica))]

    def run(self) -> list[list[Any]]:
        """Return the leaves of each replica's result."""
        shapes = [parameter.shape for parameter in self.module.entry.parameters]
        inputs = [
            [array_of(text, shape) for text, shape in zip(self.said("input", replica), shapes, strict=True)]
            for replica in range(self.replicas)
        ]
        infeed = [json.loads(text) for text in self.said("infeed")]
        given = inputs if self.replicas > 1 else inputs[0]
        result = tpusim.execute(self.module, given, precision="exact", replicas=self.replicas, infeed=infeed)
        return [list(flat_values(one)) for one in (result if self.replicas > 1 else [result])]


def array_of(text: str, shape: Any) -> Any:
    """Return what a note says as an array in the type of ``shape``."""
    dtype = numpy_dtype(shape.dtype)
    array = np.array(_numbers(json.loads(text)), dtype)
    # JSON cannot tell [0, 3] from [0].
    return array if array.size else array.reshape(shape.dimensions)


def _numbers(value: Any) -> Any:
    """Return the values of JSON with its strings read as numbers."""
    if isinstance(value, list):
        return [_numbers(part) for part in value]
    if isinstance(value, str):
        return complex(value) if "j" in value else float(value)
    return value


def _cases() -> dict[str, Case]:
    """Return all modules of all files, by the file and the place in it."""
    cases = {}
    for path in sorted(OPS.glob("*.hlo")):
        for number, text in enumerate(re.split(r"(?m)^// ----\n", path.read_text())):
            notes = tuple(_NOTE.fullmatch(line).groups("") for line in text.splitlines() if _NOTE.fullmatch(line))
            cases[f"{path.stem}-{number}"] = Case(text, notes)
    return cases


CASES = _cases()
REFUSED = [name for name, case in CASES.items() if case.said("error")]
ENDLESS = [name for name, case in CASES.items() if case.said("deadlock")]
RUNNING = [name for name in CASES if name not in REFUSED + ENDLESS]


def my_function(instruction: Any, x: Any, y: Any) -> Any:
    """Compute what the document's "myfunc" writes; it leaves the other elements open."""
    z = np.zeros((3, 3), np.float32)
    z[0, 0] = x[1] + y[1, 0]
    return z


@pytest.fixture(autouse=True)
def _my_function():
    """Give each test the custom call of the document, and nobody else."""
    tpusim.register_custom_call("myfunc", numerics=my_function)
    yield
    del REGISTERED["myfunc"]


def assert_same(case: Case, found: Any, text: str, shape: Any) -> None:
    """Compare one leaf: floats that were computed within 1e-6, all else exactly."""
    if text == '"token"':
        assert found is TOKEN
        return
    expected = array_of(text, shape)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    moved = {instruction.opcode for computation in case.module.computations for instruction in computation} <= MOVING
    if moved or not (shape.dtype.is_float or shape.dtype.is_complex):
        np.testing.assert_array_equal(found, expected)
    else:
        wide = np.complex128 if shape.dtype.is_complex else np.float64
        np.testing.assert_allclose(found.astype(wide), expected.astype(wide), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("name", RUNNING)
def test_verifier_has_nothing_to_say(name):
    """The document's examples are right."""
    assert problems(CASES[name].module) == []


@pytest.mark.parametrize("name", RUNNING)
def test_result_is_the_documents(name):
    """Every leaf of every replica, in IEEE arithmetic."""
    case = CASES[name]
    shapes = list(leaves(case.module.entry.root.shape))
    for replica, found in enumerate(case.run()):
        expected = case.said("output", replica)
        assert len(found) == len(expected) == len(shapes)
        for leaf, text, shape in zip(found, expected, shapes, strict=True):
            assert_same(case, leaf, text, shape)


@pytest.mark.parametrize("name", RUNNING)
def test_every_operation_takes_its_time(name):
    """Each has a rule of the machine, so that a v5e runs it."""
    assert tpusim.simulate(CASES[name].module, "v5e").time_us >= 0


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_program_is_refused(name):
    """By the parser or the verifier, in words that name the matter."""
    try:
        found = [problem.message for problem in problems(CASES[name].module)]
    except tpusim.ProgramError as error:
        found = [error.message]
    (words,) = CASES[name].said("error")
    assert any(words in text for text in found), found


@pytest.mark.parametrize("name", ENDLESS)
def test_deadlock_is_found(name):
    """Instead of waiting for ever."""
    (words,) = CASES[name].said("deadlock")
    with pytest.raises(tpusim.SimulationError, match=re.escape(words)):
        CASES[name].run()


def test_every_heading_has_its_file():
    """And there is no file for anything else."""
    assert sorted(HEADINGS) == sorted(path.stem for path in OPS.glob("*.hlo"))


@pytest.mark.parametrize("heading", FUNCTIONS)
def test_every_function_of_a_heading_is_there(heading):
    """Each name that the element-wise headings list stands in a module."""
    words = set(re.findall(r"[\w-]+", (OPS / f"{heading}.hlo").read_text()))
    assert set(FUNCTIONS[heading].split()) <= words


def test_every_file_has_a_module_that_runs():
    """A heading is not met by what is refused alone."""
    assert {name.rsplit("-", 1)[0] for name in RUNNING} == {path.stem for path in OPS.glob("*.hlo")}
