"""The prose of notebooks: what it claims follows from the figures that its cells print beside it."""

from __future__ import annotations

import json
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import tpusim
from tpusim.units import ps_to_us

NOTEBOOKS = Path(__file__).parents[2] / "notebooks"
STATED = re.compile(r"`([\w.-]+)` takes ([\d.]+) (us|ms)")


def sources(number: int, kind: str) -> list[str]:
    """Return the cells of one kind in a notebook."""
    (path,) = NOTEBOOKS.glob(f"{number}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == kind]


def run(number: int, until: str) -> dict[str, Any]:
    """Return the names of a notebook whose code has run, up to the cell that has some words."""
    names: dict[str, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(NOTEBOOKS)
        for code in sources(number, "code"):
            exec(compile(code, f"notebook {number}", "exec"), names)
            if until in code:
                return names
    raise AssertionError(f"notebook {number} has no cell with {until!r}")


@pytest.fixture(scope="module")
def published() -> dict[str, Any]:
    """Give the names of the notebook of published figures."""
    return run(6, "SWEPT")


def stated_times() -> list[tuple[int, str, float, str]]:
    """Return the notebook, the op, the figure and the unit of every time that prose states of an op."""
    found = []
    for number in range(1, 8):
        text = "\n".join(sources(number, "markdown"))
        found += [(number, op, figure, unit) for op, figure, unit in STATED.findall(text)]
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("number", "op", "figure", "unit"), stated_times())
def test_an_op_takes_what_prose_says(number, op, figure, unit):
    """To the digits that it has."""
    result = run(number, "tpusim.simulate(")["result"]
    time_us = next(ps_to_us(group.time_ps) for group in result.groups() if group.name == op)
    digits = len(figure.partition(".")[2])
    assert f"{time_us / (1000 if unit == 'ms' else 1):.{digits}f}" == figure


def test_a_decoding_step_takes_nearly_half_as_long_again_as_its_roofline():
    """The first report."""
    summary = run(1, "tpusim.simulate(")["result"].summary
    assert 1.4 < summary.total_ps / summary.roofline.bound_ps < 1.5


@pytest.mark.slow
def test_the_largest_products_are_off_by_little_more_than_half_of_the_lines_error(published):
    """The last of the ranges."""
    name, _, _, _, _, line_us, _, chip_us = published["by_range"][-1]
    assert name == "1024 to 4096"
    assert 0.5 < chip_us / line_us < 0.6


@pytest.mark.slow
def test_every_program_is_slower_without_cmem_and_the_recurrent_one_nearly_twice(published):
    """Either way; the mean is higher than theirs."""
    for times in published["slower"].values():
        assert min(times) > 1.05
        assert 1.7 < times[0] < 2
        assert published["mean"](times) > 1.2


@pytest.mark.slow
def test_a_first_step_of_dlrm_waits_longer_for_its_table_than_it_gains(published):
    """Retiled: one of many gains."""
    program = published["programs"]["embeddings (DLRM)"]
    off, on = ({"cmem.capacity_bytes": 0}, {})
    off_us, on_us = (
        tpusim.simulate(program, "v4", schedule="retiled", overrides=figures).time_us for figures in (off, on)
    )
    assert off_us < on_us


@pytest.mark.slow
def test_in_the_mean_more_cmem_is_faster_and_none_is_the_worst_of_each(published):
    """With 32 MiB BERT is faster than with 64, and DLRM is by two per cent."""
    assert all(more > less for more, less in pairwise(published["means"]))
    gained = {}
    for name, (_, at_64, at_32, at_16, at_none) in published["speeds"].items():
        assert at_none < min(at_64, at_32, at_16)
        gained[name] = round(100 * (at_32 / at_64 - 1))
    assert gained.pop("BERT") > 2
    assert gained.pop("language model, one token") < 0
    assert sorted(gained.values()) == [0, 2]
