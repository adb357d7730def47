"""A memory of banks in its limits, where arithmetic says what must come out; and the adapter to Ramulator."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from tpusim.cost.models.dram import _played
from tpusim.cost.models.memories import hbm_of
from tpusim.errors import ConfigError
from tpusim.hardware.load import load_chip, override_chip
from tpusim.program.work import Stream

CHANNELS, BANKS, ROW, BURST = 8, 4, 1024, 32
PLAIN = {
    "hbm.model": "banked",
    "hbm.settings.channels": CHANNELS,
    "hbm.settings.banks": BANKS,
    "hbm.settings.row_bytes": ROW,
    "hbm.settings.interleave_bytes": 256,
    "hbm.settings.burst_bytes": BURST,
    "hbm.settings.turn_bytes": 4096,
    "hbm.settings.queue": 64,
    "hbm.settings.hashed": False,
    "hbm.settings.activate_seconds": 10e-9,
    "hbm.settings.precharge_seconds": 10e-9,
    "hbm.settings.row_cycle_seconds": 40e-9,
    "hbm.settings.activate_gap_seconds": 0.0,
    "hbm.settings.turn_seconds": 0.0,
    "hbm.settings.refresh_seconds": 0.0,
    "hbm.bandwidth_bytes_per_second": 100e9,
}


def seconds_of(*streams: Stream, **settings):
    """Return what streams take of v5e with banks, and the rows that they open."""
    over = {f"hbm.settings.{key}": value for key, value in settings.items()}
    chip = override_chip(load_chip("v5e"), PLAIN | over)
    served = hbm_of(chip).serve(streams, chip)
    return [load / chip.hbm.long_read_bytes_per_second for load in served.load_bytes], served.activations


def runs(count: int, run: int, stride: int, **rest):
    """Return a stream of runs that are so far apart."""
    return Stream("x", "hbm", float(count * run), chunk_bytes=run, stride_bytes=stride, address=0, **rest)


def test_a_long_read_reaches_the_peak_and_opens_each_row_once():
    """16 MiB: rows open behind those that are read."""
    (seconds,), rows = seconds_of(Stream("x", "hbm", 2.0**24, address=0))
    assert seconds == pytest.approx(2**24 / 100e9, rel=0.01)
    assert rows == pytest.approx(2**24 / ROW, rel=0.01)


def test_rows_of_one_bank_come_one_cycle_after_the_other():
    """A run in each row of the first bank of the first channel: nothing goes on beside it."""
    (seconds,), rows = seconds_of(runs(1000, BURST, CHANNELS * BANKS * ROW))
    assert seconds == pytest.approx(1000 * 40e-9, rel=0.01)
    assert rows == 1000


def test_a_slow_precharge_decides_where_it_is_longer():
    """Open, read, close: 10 ns, the burst on an eighth of 100 GB/s, and 100 ns."""
    (seconds,), _ = seconds_of(runs(1000, BURST, CHANNELS * BANKS * ROW), precharge_seconds=100e-9)
    assert seconds == pytest.approx(1000 * (10e-9 + BURST / 12.5e9 + 100e-9), rel=0.01)


def test_hashed_banks_spread_what_meets_in_one():
    """The same rows go round all channels and banks: an eighth of the bursts on each channel, four banks at a time."""
    (met,), _ = seconds_of(runs(1000, BURST, CHANNELS * BANKS * ROW))
    (spread,), _ = seconds_of(runs(1000, BURST, CHANNELS * BANKS * ROW), hashed=True)
    assert spread <= met / BANKS


def test_one_channel_has_its_share_of_the_rate():
    """Runs of 256 bytes, all on the first channel, in rows that follow each other."""
    (seconds,), _ = seconds_of(runs(4096, 256, 256 * CHANNELS))
    assert seconds == pytest.approx(4096 * 256 / (100e9 / CHANNELS), rel=0.01)


def test_openings_are_no_nearer_than_their_gap():
    """A burst in every row of a channel: 50 ns apart, whatever the banks allow."""
    (seconds,), _ = seconds_of(runs(1000, BURST, CHANNELS * ROW), activate_gap_seconds=50e-9)
    assert seconds == pytest.approx(1000 * 50e-9, rel=0.01)


def test_a_short_queue_waits_for_each_row():
    """One burst at a time: it opens its row, and only then does the next one's begin to open."""
    (seconds,), _ = seconds_of(runs(1000, BURST, CHANNELS * ROW), queue=1)
    assert seconds == pytest.approx(1000 * (10e-9 + BURST / 12.5e9), rel=0.01)


def test_refresh_takes_its_share_of_all_time():
    """A tenth of each interval."""
    stream = Stream("x", "hbm", 2.0**20, address=0)
    (without,), _ = seconds_of(stream)
    (seconds,), _ = seconds_of(stream, refresh_seconds=1e-7, refresh_interval_seconds=1e-6)
    assert seconds == pytest.approx(without / 0.9)


def test_the_bus_turns_between_reads_and_writes():
    """4 KiB read and 4 KiB written in turn, both ways 100 ns each on every channel."""
    read, written = Stream("x", "hbm", 2.0**16, address=0), Stream("y", "hbm", 2.0**16, 1, True, address=2**16)
    plain, _ = seconds_of(read, written)
    turned, _ = seconds_of(read, written, turn_seconds=100e-9)
    assert sum(turned) - sum(plain) == pytest.approx(31 * 100e-9, rel=0.01)


def test_streams_share_the_time_by_what_they_take():
    """Three quarters of the bytes, three quarters of the time; together no less than the rate allows."""
    more, less = Stream("x", "hbm", 3.0 * 2**20, address=0), Stream("y", "hbm", 2.0**20, address=2**22)
    (first, second), _ = seconds_of(more, less)
    assert first + second == pytest.approx(2**22 / 100e9, rel=0.02)
    assert first / second == pytest.approx(3, rel=0.05)


def test_places_that_are_not_known_are_beside_each_other():
    """Two streams without addresses do not meet in the same rows."""
    loose = [Stream("x", "hbm", 2.0**18), Stream("y", "hbm", 2.0**18)]
    placed = [Stream("x", "hbm", 2.0**18, address=0), Stream("y", "hbm", 2.0**18, address=2**18)]
    assert seconds_of(*loose) == seconds_of(*placed)


def test_what_lies_alike_is_played_once():
    """Another place of the same alignment is the same pattern; another alignment is not."""
    period = CHANNELS * BANKS * ROW
    seconds_of(Stream("x", "hbm", 2.0**15, address=0))
    misses = _played.cache_info().misses
    seconds_of(Stream("x", "hbm", 2.0**15, address=7 * period))
    assert _played.cache_info().misses == misses
    seconds_of(Stream("x", "hbm", 2.0**15, address=ROW))
    assert _played.cache_info().misses == misses + 1


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        *(("channels", value) for value in (0, 1.5, "many", True, 10**9, 2**63, 1e300)),
        *(("banks", 10**9), ("queue", 2**20), ("turn_bytes", 1e300), ("hashed", 5)),
        *(("activate_seconds", value) for value in (-1.0, 1e300, "x")),
        *(("refresh_seconds", value) for value in (3.9e-6, 1e-3, -1e-9)),
        ("refresh_interval_seconds", 0.0),
    ],
)
def test_a_setting_is_in_bounds(setting, value):
    """No memory has a billion banks, or is refreshed for longer than from one time to the next."""
    with pytest.raises(ConfigError, match=rf"hbm\.settings\.{setting}: expected .*, found"):
        seconds_of(Stream("x", "hbm", 1.0), **{setting: value})


def test_a_whole_number_may_be_written_as_a_float():
    """Of a TOML file, or of a quotient."""
    reading = Stream("x", "hbm", 2.0**20)
    assert seconds_of(reading, channels=8.0) == seconds_of(reading, channels=8)


class Stub:
    """Stands for Ramulator's package: a cycle for each line of the trace, every tenth of them a row."""

    def __init__(self, frontend, memory) -> None:
        self._lines = Path(frontend.path).read_text().splitlines()
        assert len(memory.controllers) == 16

    def run(self) -> None:
        """Keep what came."""
        Stub.lines = self._lines

    @property
    def stats(self):
        """What its statistics look like."""
        found = {"cycles": len(self._lines), "row_misses": len(self._lines) // 10, "row_conflicts": 0}
        return {"memory_system": {"controller": found}}


@pytest.fixture
def ramulator(monkeypatch):
    """Put the stub in the place of the package."""
    package = ModuleType("ramulator")
    for name in "controller dram scheduler refresh_manager row_policy addr_mapper memory_system channel_mapper".split():
        parts = "HBM12 HBM2 FRFCFS PerBank Open RoBaRaCoCh GenericDRAM CacheLineInterleave".split()
        setattr(package, name, SimpleNamespace(**dict.fromkeys(parts, SimpleNamespace)))
    package.frontend = SimpleNamespace(LoadStoreTrace=SimpleNamespace)
    package.Simulation = Stub
    monkeypatch.setitem(sys.modules, "ramulator", package)


def test_ramulator_is_given_requests_and_says_the_share_of_its_peak(ramulator):
    """One request of 32 bytes a cycle, where sixteen channels of 32 could move: a sixteenth of the bandwidth."""
    chip = override_chip(load_chip("v5e"), {"hbm.model": "ramulator"})
    streams = [Stream("x", "hbm", 96.0, address=64), Stream("y", "hbm", 64.0, 1, True, 32, 4096, 8192)]
    served = hbm_of(chip).serve(streams, chip)
    assert sorted(Stub.lines) == sorted(["LD 64", "LD 96", "LD 128", "ST 8192", "ST 12288"])
    seconds = sum(served.load_bytes) / chip.hbm.long_read_bytes_per_second
    assert seconds == pytest.approx(160 * 16 / chip.hbm.bandwidth_bytes_per_second)


def test_without_ramulator_the_error_says_what_is_needed():
    """And where it is from."""
    chip = override_chip(load_chip("v5e"), {"hbm.model": "ramulator", "hbm.settings.sample_requests": 7})
    with pytest.raises(ConfigError, match="Ramulator 2"):
        hbm_of(chip).serve([Stream("x", "hbm", 96.0)], chip)
