"""What does not fit a chip's memories: refused with its largest buffers, or run all the same if that is allowed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tpusim
from tests.cli.commands import output_of, refusal_of
from tpusim.allocation.heap import SPARE_BYTES, alignment_bytes
from tpusim.analysis.memory import MemoryUse
from tpusim.hardware.units import HBM
from tpusim.pipeline.schedules import SCHEDULES

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


MIB = 2**20
HOLES = """\
HloModule m, is_scheduled=true, input_output_alias={ {0}: (1, {}, may-alias) }

ENTRY %main {
  %a = f32[1024,1024]{1,0:T(8,128)} parameter(0)
  %p = f32[1024,1024]{1,0:T(8,128)} parameter(1)
  %c = f32[8,128]{1,0:T(8,128)} constant({...})
  %t4 = f32[1024,1024]{1,0:T(8,128)} negate(%a)
  %t8 = f32[2048,1024]{1,0:T(8,128)} concatenate(%t4, %t4), dimensions={0}
  %t6 = f32[1536,1024]{1,0:T(8,128)} slice(%t8), slice={[0:1536], [0:1024]}
  %t10 = f32[2560,1024]{1,0:T(8,128)} concatenate(%t6, %a), dimensions={0}
  %s = f32[8,128]{1,0:T(8,128)} slice(%t10), slice={[0:8], [0:128]}
  %start = (f32[8,128]{1,0:T(8,128)S(1)}, f32[8,128]{1,0:T(8,128)}, u32[]{:S(2)}) copy-start(%s)
  %done = f32[8,128]{1,0:T(8,128)S(1)} copy-done(%start)
  %sum = f32[8,128]{1,0:T(8,128)} add(%done, %c)
  %new = f32[1024,1024]{1,0:T(8,128)} exponential(%p)
  ROOT %r = (f32[1024,1024]{1,0:T(8,128)}, f32[8,128]{1,0:T(8,128)}) tuple(%new, %sum)
}
"""


def test_holes_are_closed_where_they_are_too_many(tmp_path):
    """Temporaries of 4, 8, 6 and 10 MiB, each with the next: 18 in their order, 16 if that leaves too little free."""
    path = tmp_path / "holes.v5e.hlo.txt"
    path.write_text(HOLES, encoding="utf-8")

    def use(capacity_bytes: int) -> MemoryUse:
        overrides = {"hbm.capacity_bytes": capacity_bytes, "hbm.reserved_bytes": 0}
        return tpusim.simulate(path, overrides=overrides).summary.memory

    free = use(2**33)
    assert free.heap_bytes == 18 * MIB + alignment_bytes(HBM)
    assert use(free.peak_hbm_bytes + SPARE_BYTES) == free
    tight = use(free.peak_hbm_bytes + SPARE_BYTES - 1)
    assert free.peak_hbm_bytes - tight.peak_hbm_bytes == free.heap_bytes - tight.heap_bytes == 2 * MIB
    assert use(tight.peak_hbm_bytes) == tight
    with pytest.raises(tpusim.CapacityError):
        use(tight.peak_hbm_bytes - 1)


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


@pytest.mark.parametrize("verb", [("explain", "--op", "fusion.37"), ("advise", "--quiet"), ("path",)])
def test_all_verbs_refuse_what_run_refuses(capsys, verb):
    """And take it where the same option allows it."""
    what = (verb[0], LSTM, "--override", "vmem.capacity_bytes=1048576", *verb[1:])
    refused = refusal_of(capsys, "run", *what[1:4])
    assert refused.startswith("tpusim: jit_lstm on v5e: does not fit: the program needs")
    assert refusal_of(capsys, *what) == refused
    assert output_of(capsys, *what, "--allow-overflow")


def refusal(program, **how) -> str:
    """Return what a run is refused with."""
    with pytest.raises(tpusim.CapacityError) as refused:
        tpusim.simulate(program, **how)
    return str(refused.value)


@pytest.mark.parametrize(
    ("schedule", "advised"),
    [("given", {"retiled", "compiled"}), ("retiled", {"compiled"}), ("compiled", {"retiled"})],
)
def test_other_schedules_are_advised_than_the_one_that_ran(schedule, advised):
    """Of a program that another compiler has scheduled."""
    told = refusal(LSTM, overrides=SMALL_HBM, schedule=schedule)
    assert {word for word in SCHEDULES if f"--schedule {word}" in told} == advised


def test_no_schedule_is_advised_that_a_program_cannot_have():
    """A lowered program has one alone, and what nobody has compiled is compiled already."""
    plain = TRACES / "unscheduled" / "mlp_b1024.hlo.txt.gz"
    tiny = {"hbm.capacity_bytes": 2**20, "hbm.reserved_bytes": 0}
    lowered = tpusim.lower(LSTM)
    for told in (refusal(lowered, overrides=tiny), refusal(plain, chip="v5e", overrides=tiny)):
        assert "--schedule" not in told
        assert "--allow-overflow" in told


DOT = """\
HloModule m, is_scheduled=true

ENTRY %main {
  %a = bf16[4096,4096]{1,0:T(8,128)(2,1)} parameter(0)
  %b = bf16[4096,4096]{1,0:T(8,128)(2,1)} parameter(1)
  ROOT %d = bf16[4096,4096]{1,0:T(8,128)(2,1)} dot(%a, %b), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.fixture(name="dot")
def written_dot(tmp_path):
    """Return the path of a product that states nothing of its tiles, for a v5e."""
    path = tmp_path / "dot.v5e.hlo.txt"
    path.write_text(DOT, encoding="utf-8")
    return path


@pytest.mark.parametrize("capacity_bytes", [2**15, 2**20, 2**27])
def test_tiles_of_our_own_are_counted_alike_by_every_verb(capsys, dot, capacity_bytes):
    """What a kernel needs is what the program needs while it runs, and its peak is that of the one kernel."""
    how = {"overrides": {"vmem.capacity_bytes": capacity_bytes}}
    override = ("-o", f"vmem.capacity_bytes={capacity_bytes}", "--json")
    explained = json.loads(output_of(capsys, "explain", str(dot), "--op", "d", "--allow-overflow", *override))
    needed = explained["vmem_bytes"]
    vmem = tpusim.memory(dot, **how).spaces[1]
    assert vmem.needed_bytes == vmem.profile.peak_bytes == vmem.profile.heap_bytes == needed > 0
    assert vmem.profile.peak_instruction == "d"
    assert tpusim.simulate(dot, **how, allow_overflow=True).summary.memory.peak_vmem_bytes == needed


def test_tiles_that_no_vmem_is_small_enough_for_are_refused(dot):
    """The finest cut of a product still has a register of each side and of the result, and copies of them."""
    tpusim.simulate(dot, overrides={"vmem.capacity_bytes": 2**20})
    told = refusal(dot, overrides={"vmem.capacity_bytes": 2**12})
    assert "d  blocks of its tiles  (scratch)" in told


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(TRACES.glob("**/*.v*.hlo.txt.gz")), ids=lambda path: path.name)
def test_every_trace_fits_the_chip_that_it_was_compiled_for(path):
    """The compiler has placed it there."""
    report = tpusim.memory(path)
    assert all(space.free_bytes >= 0 for space in report.spaces[:2])
