"""Modules and results as values: compared, copied, held weakly."""

from __future__ import annotations

import copy
import pickle
import weakref
from pathlib import Path
from unittest.mock import ANY

import numpy as np
import pytest
from msgspec import structs

import tpusim

TRACE = Path(__file__).parents[2] / "traces/mlp_b1024.v5e.hlo.txt.gz"


@pytest.fixture(scope="module")
def module() -> tpusim.Module:
    """A small program."""
    return tpusim.load(TRACE)


def test_two_runs_of_a_program_are_equal(module: tpusim.Module) -> None:
    """And so are copies, with or without what has been asked of a run."""
    first, second = tpusim.simulate(module), tpusim.simulate(module)
    assert first.summary == second.summary
    assert first == second
    assert pickle.loads(pickle.dumps(first)) == copy.copy(first) == copy.deepcopy(first) == first
    assert first != tpusim.simulate(module, overrides={"hbm.bandwidth_bytes_per_second": 1e11})


def test_two_readings_of_a_program_are_equal(module: tpusim.Module) -> None:
    """Wherever a text has it; another name is another program."""
    entry = module.entry
    assert structs.replace(module, source=None) == module
    assert structs.replace(entry, offsets=()) == entry
    assert structs.replace(entry, name="other") != entry
    assert structs.replace(module, name="other") != module
    assert module != entry
    assert module == ANY


def test_modules_and_runs_may_be_held_weakly(module: tpusim.Module) -> None:
    """By caches of others."""
    run = tpusim.simulate(module)
    assert weakref.ref(module)() is module
    assert weakref.ref(run)() is run


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda path: tpusim.simulate(path, topology=True), "topology: expected a slice such as 'v5e:2x4', found True"),
        (lambda path: tpusim.advise(path, topology=5), "topology: expected a slice such as 'v5e:2x4', found 5"),
        (lambda path: tpusim.simulate(path, overrides=[1]), r"overrides: expected keys with values, found \[1\]"),
        (lambda path: tpusim.simulate(path, schedule=5), "schedule: expected one of given"),
        (lambda path: tpusim.explain(path, None), "op: expected the name of an instruction, found None"),
        (lambda path: tpusim.kernel_grid(path, None), "op: expected the name of an instruction, found None"),
        (
            lambda path: tpusim.simulate(path).cost(float("nan")),
            r"price: expected a number from 0 to 1e\+24, found nan",
        ),
        (lambda path: tpusim.simulate(path).cost(-1), r"price: expected a number from 0 to 1e\+24, found -1"),
        (lambda path: tpusim.simulate(path).cost(tokens=-5), r"tokens: expected a number from 0 to 1e\+24, found -5"),
        (lambda path: tpusim.scale(path, price="2"), r"price: expected a number from 0 to 1e\+24, found '2'"),
        (lambda path: tpusim.simulate(path, timeout_us="1"), "timeout: expected microseconds above 0 .*, found '1'"),
        (lambda path: tpusim.simulate(path, timeout_us=True), "timeout: expected microseconds above 0 .*, found True"),
        (lambda path: tpusim.simulate(path, chip=[]), r"chip: expected the name of a chip or .*, found \[\]"),
        (lambda path: tpusim.simulate(path, overrides=[]), r"overrides: expected keys with values, found \[\]"),
        (
            lambda path: tpusim.simulate(path, overrides={5: 1}),
            "override: expected a key of the chip such as 'clock_hz', found 5",
        ),
        (
            lambda path: tpusim.simulate(path).groups("opp"),
            r"by: expected one of op, .*, found 'opp' \(did you mean 'op'",
        ),
        (lambda path: tpusim.simulate(path).groups([]), r"by: expected one of op, category, source, found \[\]"),
        (lambda path: tpusim.parse_shape(5), "shape: expected a text such as .*, found 5"),
        (lambda path: tpusim.parse_shape([5]), r"shape: expected a text such as .*, found \[5\]"),
        (lambda path: tpusim.allow_plugin(5), "plugin: expected the name of a package such as mypackage, found 5"),
        (lambda path: tpusim.simulate(path, tpusim.load_chip("v5e"), overrides=[]), r"overrides: .* found \[\]"),
        (lambda path: tpusim.simulate(path, schedule=[]), r"schedule: expected one of given.*, found \[\]"),
        (lambda path: tpusim.simulate(path, beside={}), r"beside: expected a list of programs, found {}"),
        (lambda path: tpusim.simulate(path, beside=3), r"beside: expected a list of programs, found 3"),
        (
            lambda path: tpusim.simulate(3),
            "program: expected a module, a lowered program or .*, found 3",
        ),
        (lambda path: tpusim.load(None), "expected the name of a file, found None"),
        (lambda path: tpusim.load(0), "expected the name of a file, found 0"),
        (lambda path: tpusim.load(b"m.hlo.txt"), "expected the name of a file, found b'm.hlo.txt'"),
        (lambda path: tpusim.simulate(path, warm="no"), "warm: expected true or false, found 'no'"),
        (lambda path: tpusim.explain(path, "a", allow_overflow=0), "allow_overflow: expected true or false, found 0"),
        (lambda path: tpusim.rank([path]), "rank: expected programs by what tells them apart, found "),
        (lambda path: tpusim.scale(path, {"b": []}), r"values: expected a list with a value of 'b' .*, found \[\]"),
        (lambda path: tpusim.scale(path, {"b": "12"}), "values: expected a list with a value of 'b' .*, found '12'"),
        (lambda path: tpusim.scale(path, ["b"]), r"values: expected lists of values .*, found \['b'\]"),
        (lambda path: tpusim.compile(tpusim.lower(path)), "jit__lambda: expected HLO text, found a lowered program"),
        (lambda path: tpusim.execute(tpusim.lower(path)), "jit__lambda: expected HLO text, found a lowered program"),
        (lambda path: tpusim.execute(3), "program: expected a module, .*, found 3"),
        (lambda path: tpusim.load_chip(tpusim.load_chip("v5e")), r"chip: expected the name of a chip .{100,150}$"),
    ],
)
def test_what_is_of_another_kind_is_refused_by_name(call, said):
    """As the command line refuses it, and not by what Python stumbles over."""
    with pytest.raises(tpusim.ConfigError, match=said):
        call(Path(__file__).parents[2] / "traces" / "mlp_b1024.v5e.hlo.txt.gz")


def test_numbers_and_truths_of_numpy_are_python_s(module: tpusim.Module) -> None:
    """What is made of narrow ones has all its digits."""
    run = tpusim.simulate(module, warm=np.True_, allow_overflow=np.False_, default_trip_count=np.int32(2))
    cost = run.cost(np.float32(2.5), np.float16(3))
    assert cost == tpusim.simulate(module, warm=True).cost(2.5, 3.0)
    assert cost is not None
    assert {type(figure) for figure in (cost.usd, cost.usd_per_chip_hour, cost.tokens)} == {float}
