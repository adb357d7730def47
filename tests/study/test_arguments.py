"""What a script may hand to a study: lists of any kind are taken, and what is none of it is refused by its name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpusim
from tests.study.cases import MLP, kernel_module
from tpusim.errors import ConfigError
from tpusim.study.scale import scale


def study(**table) -> tpusim.Study:
    """Return a study of one program."""
    return tpusim.Study(**{"programs": kernel_module(), "jobs": 1} | table)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (lambda: scale(5), "programs: expected patterns of file names, modules or functions, found 5"),
        (lambda: scale([5]), "programs: expected a pattern of file names, a module or a function, found 5"),
        (lambda: scale({5: MLP}), "programs: expected a text as the name of a program, found 5"),
        (lambda: study(programs=5), "programs: expected patterns of file names, modules or functions, found 5"),
        (lambda: scale(MLP, items=5), "items: expected a variable or a product of some, found 5"),
        (lambda: scale(MLP, chips=5), "chips: expected names of chips or of .toml files, found 5"),
        (lambda: scale(MLP, chips=[5]), r"chips: expected names of chips or of .toml files, found \[5\]"),
        (lambda: scale(MLP, topologies=5), "topologies: expected slices such as 'v5e:2x4', found 5"),
        (lambda: study(jobs=-2), "jobs: expected a number of processes, at least 0, found -2"),
        (lambda: study(jobs="2"), "jobs: expected a number of processes, found '2'"),
        (lambda: study(executor=5), "expected an executor of concurrent.futures, or its name, found 5"),
        (lambda: tpusim.Study(5), "study: expected a file or what it would say, found 5"),
        (lambda: tpusim.Study({5: MLP}), "study: unknown key 5"),
        (lambda: study(axes={"vector_ops.ops.tanhh.vector": [1]}), "did you mean 'tanh'"),
        (lambda: study(axes={5: [1]}), "study: expected a key of the chip such as 'clock_hz', found 5"),
        (lambda: study(derive={5: "1"}), "study: expected a key of the chip such as 'clock_hz', found 5"),
        (lambda: study(base=tpusim.load_chip("v5e")), "chip: expected the name of .*, found a chip itself$"),
        (lambda: study(base=["v5e", None]), "chip: expected the name of .*, found None$"),
        (lambda: tpusim.simulate(MLP, overrides={5: 1}), "override: expected a key of the chip .*, found 5"),
        (
            lambda: tpusim.simulate(MLP, tpusim.load_chip("v5e"), overrides={5: 1}),
            "override: expected a key .*, found 5",
        ),
    ],
)
def test_what_is_no_argument_is_refused(asked, said):
    """With what was expected and what was found, on one line."""
    with pytest.raises(ConfigError, match=said):
        asked()


@pytest.mark.parametrize("values", [np.array([1, 2]), range(1, 3), (1, 2), [np.int64(1), 2], iter([1, 2])])
def test_any_list_is_an_axis(values):
    """A value of it is one of Python, whose tables every file holds."""
    found = [row["mxu.count"] for row in study(axes={"mxu.count": values}).rows()]
    assert found == [1, 2]
    assert all(type(one) is int for one in found)


def test_an_array_of_one_value_is_that(tmp_path):
    """It has no length; and what goes into a function is a plain number too."""
    assert [row["mxu.count"] for row in study(axes={"mxu.count": np.array(2)}).rows()] == [2]
    made = []

    def make(batch):
        made.append(batch)
        return kernel_module()

    study(programs=make, axes={"batch": np.arange(1, 3)})
    assert list(map(type, made)) == [int, int]


def test_one_chip_and_one_slice_need_no_list(tmp_path):
    """A text is one, and no list of letters; a file may be a path."""
    own = tmp_path / "own.toml"
    own.write_text('base = "v5e"\n', encoding="utf-8")
    program = kernel_module(partitions=4)
    (row,) = scale(program, chips="v5e", topologies="v5e:2x2").rows
    assert (row.chip, row.topology) == ("v5e", "v5e:2x2")
    assert scale(program, chips=own, topologies=tpusim.Topology((2, 2))).rows[0].chip == "own"
    assert study(base=Path(own)).rows()[0]["chip"] == "own"
