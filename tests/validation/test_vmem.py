"""Programs compiled anew for other sizes of VMEM, beside those that the TPU compiler makes for such machines."""

from __future__ import annotations

import pytest

import tpusim
from tests.house.source_tree import ROOT

TRACES = ROOT / "traces"
MIB = 1 << 20
THEIRS = {
    **{mib: TRACES / f"vmem/bert_base_b32t128_{mib}mib.v6e.hlo.txt.gz" for mib in (16, 32, 64)},
    128: TRACES / "native/bert_base_b32t128.v6e.hlo.txt.gz",
}
"""BERT for a v6e of so many MiB: libtpu's own option for the size of VMEM made them (``traces/README.md``)."""


@pytest.mark.parametrize("mib", THEIRS)
def test_a_program_for_another_vmem_takes_as_long_as_the_tpu_compilers(mib) -> None:
    """Both on the same machine, within 10 %."""
    smaller = {"vmem.capacity_bytes": mib * MIB}
    program = TRACES / "unscheduled/bert_base_b32t128.hlo.txt.gz"
    ours = tpusim.simulate(program, "v6e", overrides=smaller, schedule="compiled")
    theirs = tpusim.simulate(THEIRS[mib], "v6e", overrides=smaller)
    assert ours.time_us == pytest.approx(theirs.time_us, rel=0.1)
