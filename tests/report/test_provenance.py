"""What a report says, and does not claim, of a program that was not compiled for the chip that it runs on."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpusim
from tpusim.ir.module import Module
from tpusim.pipeline.stages import lower
from tpusim.program.stored import load_program, save_program
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

MLP = Path(__file__).parents[2] / "traces/mlp_b1024.v5e.hlo.txt.gz"
ELSEWHERE = """HloModule m, is_scheduled=true
ENTRY e {
  p = f32[1024,1024]{1,0} parameter(0)
  ROOT d = f32[1024,1024]{1,0} dot(p, p), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture(scope="module")
def mlp() -> Module:
    """Give a program that was compiled for v5e."""
    return tpusim.load(MLP)


def test_a_program_for_this_chip_has_its_accuracy_and_the_compilers_estimate(mlp: Module) -> None:
    """And no word of where it comes from."""
    text = str(tpusim.simulate(mlp))
    assert "measured rows of this chip" in text
    assert "kernels that the compiler puts at" in text
    assert "compiled  " not in text


def test_a_program_for_another_chip_has_neither(mlp: Module) -> None:
    """What was measured on v6e are programs for v6e, and cycles of v5e are none of v6e's clock."""
    result = tpusim.simulate(mlp, "v6e")
    text = str(result)
    assert "compiled  for v5e: " in text
    assert "measured rows" not in text
    assert "kernels that the compiler puts at" not in text
    assert result.summary.compiler_clock_hz == 0


def test_what_another_backend_left_is_named() -> None:
    """It is timed, and no accuracy is claimed."""
    text = str(tpusim.simulate(parse_module(SourceText("step.v5e.hlo.txt", ELSEWHERE))))
    assert "compiled  not by a TPU compiler" in text
    assert "off by" not in text


def test_a_chip_with_other_figures_has_no_accuracy(mlp: Module) -> None:
    """Nobody measured it; the compiler's cycles are still those of the chip as it is."""
    result = tpusim.simulate(mlp, overrides={"clock_hz": 1.0e9})
    assert "accuracy  not known: figures of v5e were replaced" in str(result)
    assert result.summary.compiler_clock_hz == tpusim.load_chip("v5e").clock_hz


def test_an_explanation_has_no_estimate_of_another_chip(mlp: Module) -> None:
    """Where the run has none."""
    assert "the compiler's estimate" in str(tpusim.explain(mlp, "fusion.7"))
    assert "the compiler's estimate" not in str(tpusim.explain(mlp, "fusion.7", "v6e"))


def test_a_lowered_program_keeps_where_it_comes_from(mlp: Module, tmp_path: Path) -> None:
    """Its file says so."""
    save_program(lower(mlp), tmp_path / "mlp.json")
    made_by = load_program(tmp_path / "mlp.json").provenance
    assert made_by is not None
    assert made_by.is_for("v5e")
