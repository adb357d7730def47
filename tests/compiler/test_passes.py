"""The passes, over programs from a front end: every step is a program, and values are kept bit for bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

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


@pytest.mark.parametrize("precision", ["exact", "tpu"])
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_values_are_kept_bit_for_bit(path, precision):
    """Of the program as it was, and as the TPU would run it."""
    stored = np.load(str(path).removesuffix(".hlo.txt.gz") + ".npz")
    inputs = {name: stored[name] for name in stored if name.startswith("in")}
    module = load(path)
    compiled = compile_module(module, Target(load_chip("v5e")))
    # Narrow floats are widened to the end only in scheduled modules: both are to be computed alike.
    compiled.attributes.pop("is_scheduled")
    before, after = (execute(m, inputs, precision=precision, chip="v5e") for m in (module, compiled))
    for expected, found in zip(flat(before), flat(after), strict=True):
        assert expected.dtype == found.dtype
        assert expected.tobytes() == found.tobytes()
