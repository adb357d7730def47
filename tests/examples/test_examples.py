"""The units of ``examples/``: short, with public names alone, and times that move as closed forms say."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

import tpusim
from tests.closed_form.test_every_key import text_of
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

EXAMPLES = Path(__file__).parents[2] / "examples"
FILES = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """Put the folder on the path and allow what is in it."""
    monkeypatch.setattr(sys, "path", [str(EXAMPLES), *sys.path])
    tpusim.allow_plugin(*(file.stem for file in FILES))


def time_ps(text: str, **overrides) -> int:
    """Return the time of a module on v5e with another unit."""
    module = parse_module(SourceText("m.hlo", text))
    chosen = {key.replace("__", "."): value for key, value in overrides.items()}
    return tpusim.simulate(module, "v5e", overrides=chosen).timeline.total_ps


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_unit_is_short_and_uses_what_is_public(file):
    """At most 60 lines, and of the package nothing but ``tpusim.models``."""
    tree = ast.parse(file.read_text())
    modules = [node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert len(file.read_text().splitlines()) <= 60
    assert {name for name in modules if name and name.startswith("tpusim")} == {"tpusim.models"}


def product(rows: int, depth: int, columns: int) -> str:
    """Return a product of bf16 in VMEM."""
    layout = "{1,0:T(8,128)(2,1)S(1)}"
    return text_of(
        f"%x = bf16[{rows},{depth}]{layout} parameter(0)",
        f"%w = bf16[{depth},{columns}]{layout} parameter(1)",
        f"ROOT %y = bf16[{rows},{columns}]{layout} convolution(%x, %w), dim_labels=bf_io->bf",
    )


def test_few_rows_cost_stationary_outputs_their_depth():
    """8 rows by 8192 columns, 1024 deep: 64 folds of 1024 steps, where 128 rows of 512 tiles of weights load."""
    own = {"mxu__model": "output_stationary:OutputStationary"}
    mxu, clock_hz = tpusim.load_chip("v5e").mxu, tpusim.load_chip("v5e").clock_hz
    before, after = (time_ps(product(8, 1024, 8192), **chosen) for chosen in ({}, own))
    steps, loads = 64 * 1024, 512 * 128 / mxu.weight_load_rows_per_cycle / mxu.efficiency
    assert after - before == pytest.approx((steps - loads) / mxu.count / clock_hz * 1e12, rel=0.1)


def test_a_deep_sum_costs_stationary_outputs_no_additions():
    """128 by 128, 8192 deep: 64 parts of every sum leave the other array, and the vector unit adds them up."""
    own = {"mxu__model": "output_stationary:OutputStationary", "vpu__alu_slots": 1}
    module = parse_module(SourceText("m.hlo", product(128, 8192, 128)))
    (kernel,) = tpusim.lower(module, "v5e", overrides={"mxu.model": own["mxu__model"]}).steps
    (before,) = tpusim.lower(module, "v5e").steps
    assert before.work.ops["vector"] * before.tiles > 60 * 16
    assert kernel.work.ops.get("vector", 0.0) < before.work.ops["vector"]


ROWS = "bf16[16384,1024]{1,0:T(8,128)(2,1)}"
LINES = text_of(
    f"%x = {ROWS} parameter(0)",
    f"ROOT %y = {ROWS} negate(%x)",
)


def test_a_memory_of_slow_rows_costs_a_row_for_each_of_its_bytes():
    """32 MiB in and out, rows of 1 KiB over 16 banks: 2048 openings a bank each way, of 10 us."""
    own = {"hbm__model": "banked_memory:Banked", "hbm__settings__row_seconds": 10e-6}
    assert time_ps(LINES, **own) == pytest.approx(2 * 2048 * 10e-6 * 1e12, rel=0.02)


def test_banks_share_the_openings():
    """Twice the banks, half the time."""
    own = {"hbm__model": "banked_memory:Banked", "hbm__settings__row_seconds": 10e-6}
    one, two = (time_ps(LINES, **own, hbm__settings__banks=banks) for banks in (16, 32))
    assert one / two == pytest.approx(2, rel=0.02)


def test_rows_that_open_in_time_leave_the_rate_to_decide():
    """2048 openings of a nanosecond in a bank are nothing beside 32 MiB."""
    own = {"hbm__model": "banked_memory:Banked", "hbm__settings__row_seconds": 1e-9}
    at_rate = 2 * 2**25 / tpusim.load_chip("v5e").hbm.long_read_bytes_per_second
    assert time_ps(LINES, **own) == pytest.approx(at_rate * 1e12, rel=0.03)
