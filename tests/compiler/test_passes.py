"""The passes, over programs from a front end: every step is a program, and values are kept bit for bit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from tpusim.compiler.decompose.rules import ROUNDED_WHOLE, TOLERANCES
from tpusim.compiler.passes import PASSES, compile_module
from tpusim.compiler.target import Target
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import check, execute, load
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

FOLDER = Path(__file__).parents[1] / "data" / "numeric"
FILES = sorted(path for path in FOLDER.glob("*.hlo.txt.gz") if ".v5e." not in path.name)


def flat(values):
    """Return all arrays of a result."""
    return (
        [item for part in values for item in flat(part)] if isinstance(values, tuple | list) else [np.asarray(values)]
    )


def name_of(path):
    """Return what a test of a file is called."""
    return path.name.removesuffix(".hlo.txt.gz")


@pytest.mark.parametrize("chip", ["v3", "v5e"])
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_every_pass_leaves_a_program(path, chip):
    """That ``check`` has nothing to say of, and whose text is read back as it is."""
    module = load(path)
    for name, _ in PASSES:
        compiled = compile_module(module, Target(load_chip(chip)), name)
        assert check(compiled) == []
        assert parse_module(SourceText(name, compiled.text)).text == compiled.text
    assert compiled.is_scheduled


STAGES = ("simplify", "clean-up", "fuse", "")


def tolerance_of(module, precision):
    """Return how far values may be from those of what is taken apart, as a share of the largest of them."""
    opcodes = {instruction.opcode for computation in module.computations for instruction in computation}
    # Two units of bf16, in which the MXU takes both sides of what it multiplies.
    rounded = 2**-7 if precision == "tpu" and opcodes & ROUNDED_WHOLE else 0
    return rounded + sum(TOLERANCES[opcode] for opcode in opcodes & TOLERANCES.keys())


@pytest.mark.parametrize("precision", ["exact", "tpu"])
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_values_are_kept(path, precision):
    """Bit for bit, but by what takes instructions apart: there as near as its table says of those in the program."""
    stored = np.load(str(path).removesuffix(".hlo.txt.gz") + ".npz")
    inputs = {name: stored[name] for name in stored if name.startswith("in")}

    module = load(path)
    steps = (
        module,
        *(compile_module(module, Target(load_chip("v5e"), narrows=precision == "tpu"), name) for name in STAGES),
    )
    given, whole, parts, kernels, last = (
        flat(execute(each, inputs, precision=precision, chip="v5e")) for each in steps
    )
    assert [array.tobytes() for array in given] == [array.tobytes() for array in whole]
    assert [array.tobytes() for array in parts] == [array.tobytes() for array in kernels]
    assert [array.tobytes() for array in kernels] == [array.tobytes() for array in last]
    tolerance = tolerance_of(module, precision)
    for expected, found in zip(whole, parts, strict=True):
        scale = np.abs(expected[np.isfinite(expected)]).max(initial=0)
        np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * scale)


@pytest.mark.parametrize("run", dict.fromkeys(run for _, run in PASSES), ids=lambda run: run.__name__)
def test_every_pass_states_its_source_and_has_a_test_of_its_own(run):
    """In the file that reads by itself, and in one that is called like it or its folder."""
    module = sys.modules[run.__module__]
    assert "Source: " in module.__doc__
    _, _, *names = module.__name__.split(".")
    assert any((Path(__file__).parent / f"test_{name}.py").exists() for name in names)
