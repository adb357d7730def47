"""Which programs are compared with the compiler's estimates, and what is said of the others."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tpusim.errors import ConfigError
from tpusim.validation.estimates import validate_estimates

MLP = ROOT / "traces/mlp_b1024.v5e.hlo.txt.gz"
TEXT = "HloModule m{}\nENTRY e {{\n  ROOT x = f32[8,128]{{1,0}} parameter(0)\n}}\n"


@pytest.fixture
def unscheduled(tmp_path):
    """Give a program that no compiler has scheduled."""
    path = tmp_path / "m.v5e.hlo.txt"
    path.write_text(TEXT.format(""))
    return path


def test_products_of_the_compiler_are_met():
    """Two large products of a perceptron, at the clock of the chip: within a tenth of what the compiler says."""
    found = validate_estimates([MLP])
    assert [one.op for one in found.kernels] == ["convolution_add_fusion", "fusion.7"]
    assert all(one.ratio == pytest.approx(1, abs=0.1) for one in found.kernels)


def test_a_program_for_no_tpu_is_left_out_with_a_word(unscheduled, tmp_path):
    """Unscheduled text, and text with the layouts of another backend."""
    other = tmp_path / "other.v5e.hlo.txt"
    other.write_text(TEXT.format(", is_scheduled=true"))
    found = validate_estimates([unscheduled, MLP, other])
    assert found.programs == 1
    assert found.left_out == {
        str(unscheduled): "not scheduled, so not compiled for a TPU",
        str(other): "not compiled for a TPU",
    }


def test_a_program_with_a_slip_is_left_out_with_a_word(tmp_path):
    """One of many; what is wrong with it stands beside its name."""
    slip = tmp_path / "slip.v5e.hlo.txt"
    slip.write_text("HloModule m\nENTRY e {\n  ROOT x = f32[8 parameter(0)\n}\n")
    assert "expected" in validate_estimates([slip, MLP]).left_out[str(slip)]


def test_a_program_whose_chip_nothing_says_is_left_out(tmp_path):
    """A small one may be for any."""
    path = tmp_path / "m.hlo.txt"
    path.write_text(TEXT.format(", is_scheduled=true").replace("{1,0}", "{1,0:T(8,128)}"))
    with pytest.raises(ConfigError, match="compiled for a TPU that neither its text, its name nor"):
        validate_estimates([path])


def test_no_program_at_all_is_refused(unscheduled):
    """With the reason of each; and a chip that none is for."""
    with pytest.raises(ConfigError, match=r"compiled for a TPU, found none: .*m\.v5e\.hlo\.txt: not scheduled"):
        validate_estimates([unscheduled])
    with pytest.raises(ConfigError, match="expected programs compiled for v6e, found none"):
        validate_estimates([MLP], "v6e")


def test_both_ways_to_see_a_v4_are_one_chip():
    """A kernel of both cores, asked for by the name that people use."""
    program = ROOT / "traces/measured/matmul_768x1024_1024x1024_f16.v4.hlo.txt.gz"
    assert {one.chip for one in validate_estimates([program], "v4").kernels} == {"v4-megacore"}


def test_a_file_that_is_not_there_is_refused_at_once():
    """Before any program is run: a slip in a name is no program that can be left out."""
    told = []
    with pytest.raises(ConfigError, match=r"no\.hlo: expected a program, found no such file"):
        validate_estimates([MLP, "no.hlo"], progress=lambda done, total: told.append(done))
    assert told == []


def test_progress_counts_programs_left_out_too(unscheduled):
    """How many of how many are done."""
    told = []
    validate_estimates([unscheduled, MLP], progress=lambda done, total: told.append((done, total)))
    assert told == [(1, 2), (2, 2)]
