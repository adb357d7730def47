"""The shipped chip files: against the figures that Google publishes, and whether every number says where it is from."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.house.source_tree import ROOT
from tpusim.hardware.fields import CONFIDENCE, FIELDS
from tpusim.hardware.load import _quantities, chip_facts, chip_names, load_chip

# Whole chip, dense, in 1e12 per second: Google Cloud documentation of each TPU; v2: Jouppi et al., CACM 63(7), 2020.
PUBLISHED_BF16 = {
    "v2": 46,
    "v3": 123,
    "v4": 275,
    "v4-megacore": 275,
    "v5e": 197,
    "v5p": 459,
    "v6e": 918,
}
PUBLISHED_BY_TYPE = [
    ("v5e", "s8", 393),
    ("v5e", "s4", 788),
    ("v5p", "s8", 918),
    ("v5p", "f8e5m2", 459),
    ("v6e", "s8", 1836),
    ("v6e", "f8e5m2", 918),
    ("v4-megacore", "s8", 275),
]
# Whole chip: GB/s and GiB of HBM.
PUBLISHED_HBM = {
    "v2": (700, 16 / 1.024**3),
    "v3": (900, 32),
    "v4": (1200, 32),
    "v4-megacore": (1200, 32),
    "v5e": (819, 16),
    "v5p": (2765, 95),
    "v6e": (1638, 32),
    "v7x": (7380, 192),
}
GRANULE = {"v2": 1024, "v3": 1024, "v4": 512, "v4-megacore": 512, "v5e": 512, "v5p": 32, "v6e": 32, "v7x": 32}


def test_all_generations_are_there() -> None:
    """The names are those that programs and the command line use."""
    assert set(chip_names()) == {*PUBLISHED_BF16, "v7x", "v7x-boosted"}


@pytest.mark.parametrize("name", chip_names())
def test_a_file_holds_the_chip_of_its_name(name: str) -> None:
    """A chip is found by its file's name and says the same of itself."""
    assert load_chip(name).name == name


@pytest.mark.parametrize(("name", "tflops"), PUBLISHED_BF16.items())
def test_peak_is_the_published_one(name: str, tflops: float) -> None:
    """Units x rows x columns x rate x clock gives the advertised bf16 peak of the chip within 1 %."""
    chip = load_chip(name)
    assert chip.peak_flops_per_second * chip.devices_per_chip == pytest.approx(tflops * 1e12, rel=0.01)


def test_v7x_reaches_its_published_peak() -> None:
    """2307 TFLOP/s per chip take the boosted 2.2 GHz; the constant of the profiler, 1.9 GHz, gives 996 per device."""
    assert 2 * load_chip("v7x-boosted").peak_flops_per_second == pytest.approx(2307e12, rel=0.01)
    assert load_chip("v7x").peak_flops_per_second == pytest.approx(996e12, rel=0.01)
    assert "boosted" in load_chip("v7x-boosted").operating_point
    notes = {fact.key: fact.note for fact in chip_facts("v7x")}
    assert "956" in notes["clock_hz"]


@pytest.mark.parametrize("element_type", ["f8e5m2", "f8e4m3fn"])
def test_v7x_doubles_in_eight_bit_floats(element_type: str) -> None:
    """4614 TFLOP/s per chip at 2.2 GHz."""
    chip = load_chip("v7x", {"clock_hz": 2.2e9})
    peak = 2 * chip.peak_flops_per_second * chip.mxu.rate_by_type[element_type]
    assert peak == pytest.approx(4614e12, rel=0.01)


@pytest.mark.parametrize(("name", "element_type", "tops"), PUBLISHED_BY_TYPE)
def test_narrow_types_reach_the_published_peaks(name: str, element_type: str, tops: float) -> None:
    """The rate of a narrow type times the bf16 peak is the advertised peak of that type within 1 %."""
    chip = load_chip(name)
    peak = chip.peak_flops_per_second * chip.devices_per_chip * chip.mxu.rate_by_type[element_type]
    assert peak == pytest.approx(tops * 1e12, rel=0.01)


def test_v7x_has_no_integer_matrix_unit() -> None:
    """JAX lists no integer types for it, so they are converted first."""
    assert not {"s8", "u8", "s4", "u4"} & set(load_chip("v7x").mxu.rate_by_type)


@pytest.mark.parametrize(("name", "figures"), PUBLISHED_HBM.items())
def test_hbm_is_the_published_one(name: str, figures: tuple[float, float]) -> None:
    """All devices of a chip together have the bandwidth and the capacity of the chip."""
    chip = load_chip(name)
    bandwidth, capacity = figures
    assert chip.hbm.bandwidth_bytes_per_second * chip.devices_per_chip == pytest.approx(bandwidth * 1e9)
    assert chip.hbm.capacity_bytes * chip.devices_per_chip == pytest.approx(capacity * 2**30, rel=1e-3)


@pytest.mark.parametrize("name", chip_names())
def test_dma_inside_a_core_is_not_slower_than_its_hbm(name: str) -> None:
    """Else the guessed bandwidth inside the core would hide the published one outside it."""
    chip = load_chip(name)
    assert chip.dma.vmem_bytes_per_second >= chip.hbm.bandwidth_bytes_per_second / chip.cores_per_device


@pytest.mark.parametrize(("name", "granule"), GRANULE.items())
def test_tuple_table_granule(name: str, granule: int) -> None:
    """Read off programs compiled ahead of time for each chip."""
    assert load_chip(name).tuple_table_granule_bytes == granule


def test_the_smallest_v4_kernel_takes_what_was_measured() -> None:
    """Start, operand in, one tile, result out: 0.84 to 0.90 us on hardware for up to 2048 elements."""
    chip = load_chip("v4-megacore")
    seconds = chip.fixed.kernel_seconds + 2 * chip.dma.fixed_latency_seconds + chip.fixed.tile_cycles / chip.clock_hz
    assert 0.84e-6 <= seconds <= 0.90e-6


def test_two_cores_of_v4_share_the_chip() -> None:
    """A core in split mode has half of the HBM, its bandwidth and the CMEM, and a whole VMEM."""
    core, chip = load_chip("v4"), load_chip("v4-megacore")
    assert 2 * core.hbm.capacity_bytes == chip.hbm.capacity_bytes
    assert 2 * core.hbm.bandwidth_bytes_per_second == chip.hbm.bandwidth_bytes_per_second
    assert 2 * core.cmem.capacity_bytes == chip.cmem.capacity_bytes
    assert core.vmem == chip.vmem


@pytest.mark.parametrize("name", chip_names())
def test_every_number_says_where_it_is_from(name: str) -> None:
    """Each quantity of a shipped chip has one of the six words of confidence and a source."""
    for fact in chip_facts(name):
        assert fact.confidence in CONFIDENCE, fact
        assert len(fact.source) > 10, fact


@pytest.mark.parametrize("name", chip_names())
def test_every_guess_says_how_it_was_made(name: str) -> None:
    """What is estimated or fitted carries a note of at least a few words."""
    guesses = [fact for fact in chip_facts(name) if fact.confidence in ("estimated", "fitted")]
    assert guesses
    assert all(len(fact.note.split()) >= 4 for fact in guesses)


@pytest.mark.parametrize("name", chip_names())
def test_facts_are_the_chip(name: str) -> None:
    """Every field of the chip stands among the facts with the same value."""
    chip = load_chip(name)
    values = {fact.key: fact.value for fact in chip_facts(name)}
    assert values["hbm.efficiency"] == chip.hbm.efficiency
    assert {f"mxu.rate_by_type.{t}": rate for t, rate in chip.mxu.rate_by_type.items()}.items() <= values.items()
    needed = {key for key, field in FIELDS.items() if field.is_required}
    assert needed - {"name", "aliases", "description"} <= set(values)


@pytest.mark.parametrize("name", chip_names())
def test_megacore_has_two_cores_and_one_device(name: str) -> None:
    """Cores per device times devices per chip are the cores of the chip: two on v2, v3, v4, v5p and v7x."""
    chip = load_chip(name)
    cores = 1 if name in ("v5e", "v6e") else 2
    assert chip.cores_per_device * chip.devices_per_chip == cores


@pytest.mark.parametrize("name", chip_names())
def test_links_are_two_per_dimension(name: str) -> None:
    """Every axis of a torus has a link each way."""
    ici = load_chip(name).ici
    assert ici.links == 2 * ici.dimensions


@pytest.mark.parametrize("name", chip_names())
def test_what_is_taken_over_from_another_chip_is_a_reference(name: str) -> None:
    """A copied number stays behind when the other chip is fitted anew."""
    copied = re.compile(r"taken over|(?:^|: )that of v\d|fitted on v\d", re.IGNORECASE)
    told = []
    for key, raw in _quantities(tomllib.loads((ROOT / f"configs/{name}.toml").read_text())):
        if isinstance(raw, dict) and "value" in raw and copied.search(" ".join(raw.get("note", "").split())):
            told.append(key)
    assert not told


def test_a_reference_follows_the_chip_that_it_names() -> None:
    """Its value and source are the other's; how far it can be trusted is not."""
    own, other = ({fact.key: fact for fact in chip_facts(name)}["fixed.kernel_seconds"] for name in ("v5p", "v4"))
    assert (own.value, own.source) == (other.value, other.source)
    assert (own.confidence, other.confidence) == ("estimated", "fitted")
    assert own.note.startswith("That of v4 (fitted).")


def test_a_part_that_a_chip_lacks_is_left_out_of_its_file() -> None:
    """Only v4 has a common memory; of the others nothing is said, and none is there."""
    assert load_chip("v5e").cmem.capacity_bytes == 0
    assert not [fact for fact in chip_facts("v5e") if fact.key.startswith("cmem.")]
    assert load_chip("v4").cmem.capacity_bytes > 0
