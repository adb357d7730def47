"""Whose schedule runs: what is compiled by itself, what is refused, and what reports say of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tpusim
from tpusim.errors import UnsupportedError
from tpusim.pipeline.chip_choice import provenance_of
from tpusim.pipeline.schedules import SCHEDULES
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TRACES = Path(__file__).parents[2] / "traces"
MLP = TRACES / "mlp_b1024.v5e.hlo.txt.gz"
LSTM = TRACES / "lstm_b64t128.v5e.hlo.txt.gz"
TEXT = """\
HloModule m

ENTRY e {
  x = f32[1024,1024] parameter(0)
  y = f32[1024,1024] negate(x)
  z = f32[1024,1024] exponential(y)
  ROOT w = f32[1024,1024] add(z, z)
}
"""


def module(text=TEXT):
    """Return a module that nobody has compiled."""
    return parse_module(SourceText("m.hlo", text))


def test_what_nobody_has_compiled_is_compiled():
    """Three instructions are one kernel, and the array is read and written once."""
    result = tpusim.simulate(module(), "v5e")
    assert result.summary.utilisation.kernels == 1
    assert result.summary.utilisation.hbm_bytes == 2 * 4 * 1024 * 1024
    assert (result.program.provenance.compiler, result.program.provenance.chip) == ("tpusim", "v5e")


def test_the_report_says_who_compiled_and_how_far_off_such_programs_are():
    """And makes no claim that was measured on programs of the TPU compiler."""
    text = str(tpusim.simulate(module(), "v5e"))
    assert "compiled  by tpusim for v5e" in text
    assert "off by a factor of" in text
    assert "measured rows" not in text
    assert "unfused" not in text


def test_on_a_machine_with_other_figures_nothing_is_claimed():
    """The pairs were simulated on the chips as shipped."""
    result = tpusim.simulate(module(), "v5e", overrides={"clock_hz": 1e9})
    assert result.summary.compiled_error is None


def test_what_cannot_be_compiled_has_a_place():
    """Its line and column in the text, as for what is wrong with a program."""
    text = "HloModule m\n\nENTRY e {\n  p = f32[8,128] parameter(0)\n  ROOT n = f32[8,128] negate(p)"
    sharded = parse_module(SourceText("s.v5e.hlo.txt", f"{text}, sharding={{devices=[3,1]0,1,2}}\n}}\n"))
    for compiled in (tpusim.simulate, tpusim.compile):
        with pytest.raises(UnsupportedError, match=r"^s.v5e.hlo.txt:5:8: n: expected a part .*no region takes it"):
            compiled(sharded, "v5e")


def test_given_refuses_what_has_no_schedule():
    """With what to do: a warning alone was worth 139 simulated seconds for 0.9 measured ones."""
    with pytest.raises(tpusim.UnsupportedError, match=r"m\.hlo: expected a scheduled program .* leave the option out"):
        tpusim.simulate(module(), "v5e", schedule="given")
    with pytest.raises(tpusim.UnsupportedError, match="--schedule retiled"):
        tpusim.simulate(module(), "v5e", schedule="retiled")


def test_an_unknown_schedule_is_refused():
    """With the nearest known word."""
    with pytest.raises(tpusim.ConfigError, match=r"found 'compile' \(did you mean 'compiled'\?\)"):
        tpusim.simulate(MLP, schedule="compile")


def test_a_lowered_program_keeps_its_schedule():
    """Its kernels are steps already."""
    program = tpusim.lower(MLP)
    assert tpusim.simulate(program, schedule="given").time_us == tpusim.simulate(program).time_us
    with pytest.raises(tpusim.ConfigError, match="is lowered already, found 'compiled'"):
        tpusim.simulate(program, schedule="compiled")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_lowered_program_says_whose_schedule_it_has(schedule, tmp_path):
    """Also from its file: the report of one that tpusim compiled said ``given``."""
    program = tpusim.lower(MLP, "v6e", schedule=schedule)
    tpusim.save_program(program, tmp_path / "p.json")
    for wanted in ("", "given", schedule):
        assert tpusim.simulate(tmp_path / "p.json", schedule=wanted).schedule == schedule
    assert tpusim.simulate(program).summary.schedule == schedule
    for other in {"retiled", "compiled"} - {schedule}:
        with pytest.raises(tpusim.ConfigError, match=f"expected {schedule}, since .* found '{other}'"):
            tpusim.simulate(program, schedule=other)


@pytest.mark.parametrize("run", [tpusim.simulate, tpusim.lower, tpusim.advise])
def test_a_lowered_program_keeps_its_trips(run):
    """Its loops have theirs: another number would be ignored; the number that is taken without one says nothing."""
    program = tpusim.lower(MLP)
    with pytest.raises(tpusim.ConfigError, match=r"default_trip_count: expected none, .* is lowered already.*found 5"):
        run(program, default_trip_count=5)
    run(program, default_trip_count=1)


def test_trips_for_one_program_pass_by_a_lowered_one_beside_it():
    """They are for the loops of the one that is no program yet."""
    other = tpusim.lower(MLP, "v5e")
    result = tpusim.simulate(MLP, "v5e", topology="v5e:2x2", beside=[other], default_trip_count=5)
    assert result.time_us > 0


@pytest.mark.parametrize(
    ("schedule", "words"),
    [("retiled", "for v5e, its tiles chosen anew by tpusim for v6e"), ("compiled", "by tpusim for v6e")],
)
def test_another_schedule_than_the_given_one_is_said(schedule, words):
    """And what was measured of the compiler's own schedules is not claimed of it."""
    result = tpusim.simulate(MLP, "v6e", schedule=schedule)
    assert f"compiled  {words}" in str(result)
    assert not any(band.rows for band in result.summary.bands)
    assert not result.summary.compiler_clock_hz


def test_a_compiled_module_says_so_in_a_file(tmp_path):
    """Its text alone tells who made it, and for which chip, whatever the file is called."""
    path = tmp_path / "out.hlo.txt.gz"
    tpusim.compile(module(), "v6e").save(path)
    made_by = provenance_of(tpusim.load(path))
    assert (made_by.compiler, made_by.chip) == ("tpusim", "v6e")
    assert tpusim.simulate(path).chip.name == "v6e"
    assert "by tpusim for v6e: tiles, placement and schedule are not those that v5e would get" in str(
        tpusim.simulate(path, "v5e")
    )


def test_the_run_of_a_module_is_that_of_its_compiled_form():
    """Compiling by itself or beforehand is one thing."""
    assert tpusim.simulate(module(), "v5e").time_us == tpusim.simulate(tpusim.compile(module(), "v5e")).time_us


def test_what_a_front_end_noted_of_a_module_stays():
    """The mark stands beside it."""
    text = TEXT.replace("HloModule m", 'HloModule m, frontend_attributes={made_by="hand"}')
    found = tpusim.compile(module(text), "v5e").attributes["frontend_attributes"]
    assert found == '{tpusim_compiled_for="v5e",made_by="hand"}'


def test_memory_is_that_of_the_compiled_program():
    """Between kernels that are one nothing is kept."""
    report = tpusim.memory(module(), "v5e")
    assert report.use.temp_bytes == 0
    assert report.provenance.compiler == "tpusim"


def test_values_are_those_of_the_text_or_of_what_runs():
    """The text's without a chip; those of the compiled form for one, which here are the same bit for bit."""
    x = np.linspace(-1, 1, 1024 * 1024, dtype=np.float32).reshape(1024, 1024)
    given, compiled = tpusim.execute(module(), [x]), tpusim.execute(module(), [x], chip="v5e", schedule="compiled")
    assert given.tobytes() == compiled.tobytes()
    np.testing.assert_allclose(given, 2 * np.exp(-x), rtol=1e-6)


def test_stop_after_names_a_pass():
    """An unknown one is refused with those that there are."""
    assert not tpusim.compile(module(), "v5e", stop_after="fuse").is_scheduled
    with pytest.raises(tpusim.ConfigError, match=r"one of .*fuse.*found 'fsue' \(did you mean 'fuse'\?\)"):
        tpusim.compile(module(), "v5e", stop_after="fsue")


def test_what_no_longer_fits_is_placed_anew():
    """A program that needs 24 MiB of VMEM, on a chip with 20: fewer arrays stay, and more goes through HBM."""
    less = {"vmem.capacity_bytes": 20 * 2**20}
    given = tpusim.simulate(LSTM, overrides=less, allow_overflow=True)
    retiled = tpusim.simulate(LSTM, overrides=less, schedule="retiled")
    assert not given.summary.fits
    assert retiled.summary.fits
    assert retiled.summary.utilisation.hbm_bytes > given.summary.utilisation.hbm_bytes


def test_more_memory_never_slows_a_retiled_program():
    """On the chip that it was made for its own places are one choice, those of our passes the other."""
    sizes = [size * 2**20 for size in (16, 32, 64, 128, 256)]
    machines = [{"vmem.capacity_bytes": size} for size in sizes]
    times = [tpusim.simulate(LSTM, overrides=machine, schedule="retiled").time_us for machine in machines]
    assert times == sorted(times, reverse=True)
    assert times[3] <= tpusim.simulate(LSTM).time_us * 1.02


@pytest.mark.parametrize("shape", ["4099", "8,4099", "512,2053", "131168"])
def test_a_transform_that_stays_whole_takes_as_long_as_its_products(monkeypatch, shape):
    """Which make a matrix of all roots, as the TPU compiler's do: computing values is why it stays whole."""
    length = shape.rpartition(",")[2]
    text = f"HloModule m\nENTRY e {{\n x = c64[{shape}] parameter(0)\n"
    text += f" ROOT y = c64[{shape}] fft(x), fft_type=FFT, fft_length={{{length}}}\n}}\n"
    whole = tpusim.simulate(module(text), "v5e", schedule="compiled")
    monkeypatch.setattr("tpusim.compiler.decompose.fourier.MOST_ROOTS", 1 << 20)
    taken_apart = tpusim.simulate(module(text), "v5e", schedule="compiled")
    assert "fft" in {step.opcode for step in whole.program.every_step}
    assert "fft" not in {step.opcode for step in taken_apart.program.every_step}
    assert whole.summary.total_ps == pytest.approx(taken_apart.summary.total_ps, rel=0.1)
