"""What does not fit a chip's memories: refused with its largest buffers, or run all the same if that is allowed."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import output_of, refusal_of

TRACES = Path(__file__).parents[2] / "traces"
LSTM = str(TRACES / "lstm_b64t128.v5e.hlo.txt.gz")
SMALL_VMEM = {"vmem.capacity_bytes": 2**20}
SMALL_HBM = {"hbm.capacity_bytes": 2**24, "hbm.reserved_bytes": 0}


@pytest.mark.parametrize(("overrides", "memory"), [(SMALL_VMEM, "VMEM"), (SMALL_HBM, "HBM")])
def test_a_memory_that_is_too_small_is_named_with_its_largest_buffers(overrides, memory):
    """The first of them is the largest buffer alive where most is in use."""
    with pytest.raises(tpusim.CapacityError, match=f"of {memory}, a program may have") as refused:
        tpusim.simulate(LSTM, overrides=overrides)
    profile = next(s.profile for s in tpusim.memory(LSTM).spaces if s.profile.space == memory.lower())
    largest = profile.alive_at(profile.peak_position)[0]
    listed = str(refused.value).partition("buffers in")[2].splitlines()[1]
    assert largest.name in listed
    assert f"{largest.n_bytes / 2**20:.2f} MiB" in listed


def test_overflow_is_run_where_it_is_allowed():
    """VMEM holds what the program says that it holds: the time is that of a chip with enough."""
    result = tpusim.simulate(LSTM, overrides=SMALL_VMEM, allow_overflow=True)
    assert not result.summary.fits
    assert result.time_us == tpusim.simulate(LSTM).time_us


def test_a_program_beside_has_to_fit_as_well():
    """Each program of a run is on devices of its own."""
    mlp = TRACES / "mlp_b1024.v5e.hlo.txt.gz"
    overrides = {"vmem.capacity_bytes": 30 * 2**20}
    tpusim.simulate(LSTM, overrides=overrides)
    with pytest.raises(tpusim.CapacityError, match="lambda on v5e"):
        tpusim.simulate(LSTM, beside=[mlp], overrides=overrides)


def test_the_command_line_ends_with_1_unless_overflow_is_allowed(capsys):
    """The message says what to do."""
    small = ("-o", "vmem.capacity_bytes=1048576")
    assert "--allow-overflow" in refusal_of(capsys, "run", LSTM, *small)
    assert "does not fit" in output_of(capsys, "run", LSTM, *small, "--allow-overflow")


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(TRACES.glob("**/*.v*.hlo.txt.gz")), ids=lambda path: path.name)
def test_every_trace_fits_the_chip_that_it_was_compiled_for(path):
    """The compiler has placed it there."""
    report = tpusim.memory(path)
    assert all(space.free_bytes >= 0 for space in report.spaces[:2])
