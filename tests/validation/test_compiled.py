"""Our compiler beside the TPU's: which pairs are compared, the figures of all, and what reports claim of them."""

from __future__ import annotations

import pytest

from tests.house.source_tree import ROOT
from tpusim.analysis.bands import compiled_error
from tpusim.analysis.compiled import CompiledPair, RunSize, compiled_accuracy
from tpusim.errors import ConfigError
from tpusim.validation.compiled import validate_compiled

INDEX = ROOT / "traces/unscheduled/index.csv"
EXACT = {"kernels": 1, "hbm_bytes": 0, "mxu_us": 0.0, "peak_hbm_bytes": 8, "argument_bytes": 8}


def pair(chip, ours_us, theirs_us):
    """Return a pair of runs that differ in their time alone."""
    sizes = (RunSize(time_us=us, **EXACT) for us in (ours_us, theirs_us))
    return CompiledPair(**dict(zip(("program", "chip", "ours", "theirs"), ("p", chip, *sizes), strict=True)))


def test_errors_up_and_down_do_not_cancel():
    """Twice as long and half as long are both off by 2; the mean is that of logarithms."""
    found = compiled_accuracy([pair("v3", 2.0, 1.0), pair("v4", 1.0, 2.0), pair("v4", 8.0, 1.0), pair("v4", 1.1, 1.0)])
    assert found.factor == pytest.approx((2 * 2 * 8 * 1.1) ** (1 / 4))
    assert found.by_chip == {"v3": pytest.approx(2), "v4": pytest.approx((2 * 8 * 1.1) ** (1 / 3))}
    assert (found.near, found.not_far) == (0.25, 0.25)
    assert found.medians["time"] == pytest.approx(2)
    # Of no bytes at all there is no factor.
    assert found.medians["HBM traffic"] == 1


def test_a_pair_has_the_same_arguments_and_is_of_the_chip_of_the_compiled_one():
    """By the rule of layouts, what a program takes in takes the same bytes as under the TPU compiler."""
    (found,) = validate_compiled([INDEX], "v4").pairs
    assert (found.program, found.chip) == ("resnet50_fwd_b32", "v4")
    assert found.ours.argument_bytes == found.theirs.argument_bytes


def test_an_index_without_pairs_of_a_chip_is_refused():
    """And one whose second program nobody has compiled."""
    with pytest.raises(ConfigError, match="expected programs compiled for v2, found none in 36 rows"):
        validate_compiled([INDEX], "v2")


def test_a_program_that_is_not_compiled_is_refused(tmp_path):
    """By line and column of the index."""
    index = tmp_path / "index.csv"
    program = "mlp_b1024.hlo.txt.gz"
    (tmp_path / program).write_bytes((INDEX.parent / program).read_bytes())
    index.write_text(f"program,compiled\n{program},{program}\n")
    with pytest.raises(ConfigError, match=r"index\.csv:2: compiled: expected a program as the TPU compiler leaves it"):
        validate_compiled([index])


@pytest.mark.slow
def test_reports_claim_what_is_found():
    """Every report of a compiled program, and the README: to the digits that `tpusim validate --compiled` prints.

    All programs take in what they take in under the TPU compiler, byte by byte, on all chips but v7x, whose rule for 16
    rows to a tile is not known.
    """
    found, claimed = validate_compiled([INDEX]), compiled_error()
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert (claimed.pairs, claimed.factor) == (len(found.pairs), round(found.factor, 2))
    assert f"on {claimed.pairs} programs of `traces/`" in text
    assert f"off by a factor of {claimed.factor:.2f} on average" in text
    for one in found.pairs:
        if one.chip != "v7x":
            assert one.ours.argument_bytes == one.theirs.argument_bytes, one.program


@pytest.mark.slow
def test_sharded_programs_are_as_near_as_the_readme_says():
    """On the slice that the compiled one names, whose collectives both run on."""
    found = validate_compiled([ROOT / "traces/sharded/index.csv"])
    assert len(found.pairs) == 29
    text = " ".join((ROOT / "README.md").read_text().split())
    assert f"29 pairs on v5e, v5p and v6e, are off by a factor of {found.factor:.2f} on average, nine in ten" in text
    assert found.near >= 0.9
