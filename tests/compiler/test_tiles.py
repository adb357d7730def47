"""Sharing kernels out among cores. Source: megacore_config in programs compiled for v5p."""

from __future__ import annotations

from tests.compiler.programs import compiled
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import lower
from tpusim.program.steps import Kernel

TEXT = """HloModule m

ENTRY e {
  x = f32[4096,4096]{1,0} parameter(0)
  y = f32[4096,4096]{1,0} parameter(1)
  product = f32[4096,4096]{1,0} dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT sum = f32[4096,4096]{1,0} add(product, y)
}
"""


def test_two_cores_share_the_tiles_of_every_kernel():
    """A v5p has two, which a program compiled for it uses; of a v5e's the text says nothing."""
    programs = [lower(compiled(TEXT, chip), load_chip(chip)) for chip in ("v5p", "v5e")]
    two, one = (step for program in programs for step in program.steps if isinstance(step, Kernel))
    assert (two.cores, one.cores) == (2, 1)
    assert "megacore" not in compiled(TEXT, "v5e").text
