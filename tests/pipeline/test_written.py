"""What is compiled and written to a file runs as it was compiled."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpusim
from tpusim.semantics.contents import contents

TRACES = Path(__file__).parents[2] / "traces"


@pytest.mark.parametrize("chip", ["v5e", "v5p"])
@pytest.mark.parametrize("name", ["bert_base_b32t128", "mlp_b1024", "lstm_b64t128"])
def test_what_is_written_runs_as_what_was_compiled(tmp_path, name, chip):
    """With the tiles that its text states, which are undone where they are to be chosen anew."""
    program, path = TRACES / "unscheduled" / f"{name}.hlo.txt.gz", tmp_path / "out.hlo.txt.gz"
    compiled = tpusim.compile(program, chip)
    compiled.save(path)
    assert contents(compiled).tiled >= contents(compiled).fusions > 0
    written = tpusim.simulate(path)
    assert written.timeline.total_ps == tpusim.simulate(program, chip).timeline.total_ps
    retiled = tpusim.simulate(path, schedule="retiled")
    assert contents(retiled.module).tiled == 0
    # By the same model, with blocks that need not be whole.
    assert retiled.time_us == pytest.approx(written.time_us, rel=0.05)
