"""Constants whose values the text leaves out: what the compiler made for a convolution, and what it did not."""

from __future__ import annotations

import numpy as np
import pytest

import tpusim
from tpusim.cli.main import main
from tpusim.errors import UnsupportedError
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

GROUPS = """HloModule m
ENTRY e {
  groups = s32[12] constant({...})
  moved = s32[12] copy(groups)
  spread = s32[4,12] broadcast(moved), dimensions={1}
  features = s32[4,12] iota(), iota_dimension=0
  ROOT r = pred[4,12] compare(features, spread), direction=DIRECTION
}"""


def run(text: str) -> np.ndarray:
    """Return what a module without parameters computes."""
    return tpusim.execute(parse_module(SourceText("test.hlo", text)), [])


def test_numbers_of_groups_follow_from_what_they_are_compared_with():
    """Twelve output features of four groups: three of each, side by side."""
    with pytest.warns(UserWarning, match="left out of the text: taken to number 4 groups"):
        found = run(GROUPS.replace("DIRECTION", "EQ"))
    np.testing.assert_array_equal(found, np.repeat(np.eye(4, dtype=bool), 3, axis=1))


def test_numbers_are_followed_through_copies_of_any_number():
    """Python's stack would end at a thousand."""
    copies = "".join(f"  m{n} = s32[12] copy({f'm{n - 1}' if n else 'groups'})\n" for n in range(3000))
    text = (
        GROUPS.replace("DIRECTION", "EQ")
        .replace("  moved =", f"{copies}  moved =")
        .replace("copy(groups)\n  s", "copy(m2999)\n  s")
    )
    with pytest.warns(UserWarning, match="taken to number 4 groups"):
        assert run(text).sum() == 12


def test_numbers_that_are_compared_otherwise_stay_unknown():
    """Only equality makes a mask of groups."""
    with pytest.raises(UnsupportedError, match=r"this constant of shape s32\[12\]\S* is left out"):
        run(GROUPS.replace("DIRECTION", "LT"))


def test_a_mask_of_a_convolution_is_true_everywhere():
    """It keeps the name of the convolution that it was made for."""
    with pytest.warns(UserWarning, match="taken to be true everywhere"):
        found = run('HloModule m\nENTRY e { ROOT r = pred[3,2] constant({...}), metadata={op_name="a/conv"} }')
    np.testing.assert_array_equal(found, np.ones((3, 2), bool))


def test_a_mask_of_the_program_is_unknown():
    """A constant of its own has no name; to take it for true would give wrong values."""
    with pytest.raises(UnsupportedError, match="print_large_constants"):
        run("HloModule m\nENTRY e { ROOT r = pred[3,2] constant({...}) }")


@pytest.mark.filterwarnings("default")
def test_the_command_line_says_it_as_it_says_errors(tmp_path, capsys):
    """Without a place in code that is not the user's; a name in the shape drives no terminal."""
    path = tmp_path / "mask.hlo.txt"
    path.write_text('HloModule m\nENTRY e { ROOT r = pred[3,2] constant({...}), metadata={op_name="a/conv"} }')
    assert main(["exec", str(path)]) == 0
    said = capsys.readouterr().err
    assert said == "tpusim: a constant pred[3,2] is left out of the text: taken to be true everywhere\n"
