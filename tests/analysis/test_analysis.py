"""Numbers from hand-written time lines."""

from __future__ import annotations

import pytest
from msgspec import structs

from tpusim.analysis.memory import memory_use
from tpusim.analysis.roofline import roofline
from tpusim.analysis.summary import summarise
from tpusim.analysis.utilisation import group_records, utilisation
from tpusim.cost.peaks import peak_flops_per_second
from tpusim.hardware.load import load_chip
from tpusim.program.buffers import Buffer
from tpusim.program.module import Program
from tpusim.timeline.records import Record, Timeline

CHIP = load_chip("v5e")


def record(name: str, start_us: int, end_us: int, **fields) -> Record:
    """Return a record on the core; times in microseconds."""
    common = {"opcode": "fusion", "category": "loop fusion", "row": "core", "bound_by": "HBM", "is_kernel": True}
    common |= fields
    return Record(name=name, start_ps=start_us * 10**6, end_ps=end_us * 10**6, **common)


RECORDS = (
    record("a", 0, 10, count=3, flops=1e6, activity={"hbm": 100.0}, units={"vector": 10**6}, source="x.py:1"),
    record(
        *("b", 30, 35),
        bound_by="matrix",
        category="convolution fusion",
        units={"matrix": 10**6},
        flops=3e9,
        product_flops=2e9,
    ),
    record("c", 0, 20, row="dma", is_kernel=False, category="async copy", activity={"hbm": 50.0}, units={"hbm": 10**6}),
    record("a", 35, 36, units={"vector": 10**6}, source="x.py:1"),
)
TIMELINE = Timeline(program="p", chip="v5e", total_ps=36 * 10**6, records=RECORDS)


def test_groups_multiply_counts_and_sort_by_core_time():
    """Three executions of ten microseconds are thirty; what ran beside the core comes last."""
    groups = group_records(TIMELINE)
    assert [(g.name, g.count, g.time_ps // 10**6, g.beside_ps // 10**6) for g in groups] == [
        ("a", 4, 31, 0),
        ("b", 1, 5, 0),
        ("c", 1, 0, 20),
    ]


@pytest.mark.parametrize(
    ("by", "names"),
    [("category", {"loop fusion", "convolution fusion", "async copy"}), ("source", {"x.py:1", "(unknown)"})],
)
def test_groups_by_other_keys(by, names):
    """Category and source group across ops."""
    assert {group.name for group in group_records(TIMELINE, by)} == names


def test_utilisation_weighs_by_count():
    """Busy shares, kernels and what the core's time went to."""
    found = utilisation(TIMELINE)
    assert found.busy["vector"] == pytest.approx(4 / 36)
    assert found.kernels == 5
    assert found.bound_ps == {"HBM": 31 * 10**6, "matrix": 5 * 10**6}
    assert found.bound_by == "HBM"


def test_roofline_takes_the_highest_roof():
    """Products at peak, HBM at full bandwidth, other units as busy as they were."""
    found = roofline(TIMELINE, CHIP)
    assert found.roofs_ps["matrix"] == pytest.approx(2e9 / CHIP.peak_flops_per_second * 1e12, abs=2)
    assert found.roofs_ps["hbm"] == pytest.approx(350 / 819e9 * 1e12, abs=2)
    assert found.roofs_ps["vector"] == 4 * 10**6
    assert found.bound_ps == found.roofs_ps[found.bound_by] == max(found.roofs_ps.values())


def test_a_roof_is_of_what_was_done_when_the_program_ended():
    """A copy that nothing waits for may outlast it: of one that ends twice as late, half."""
    copy = record("c", 0, 20, row="dma", is_kernel=False, activity={"hbm": 100.0}, units={"hbm": 10**6})
    found = roofline(Timeline(program="p", chip="v5e", total_ps=10 * 10**6, records=(copy,)), CHIP)
    assert found.roofs_ps["hbm"] == pytest.approx(50 / 819e9 * 1e12, abs=2)


def test_peak_depends_on_the_type():
    """s8 at twice bf16 on v5e; a type without a rate of its own runs as bf16."""
    assert peak_flops_per_second(CHIP, "s8") == 2 * peak_flops_per_second(CHIP, "bf16")
    assert peak_flops_per_second(CHIP, "f64") == peak_flops_per_second(CHIP, "bf16")


def buffer(n_bytes: int, first: int, last: int, **fields) -> Buffer:
    """Return a buffer, a temporary in HBM unless said otherwise."""
    return Buffer(name="b", n_bytes=n_bytes, first=first, last=last, **({"space": "hbm", "kind": "temporary"} | fields))


BUFFERS = (
    buffer(10, 0, 2),
    buffer(20, 1, 1),
    buffer(5, 3, 4),
    buffer(64, 0, 9, space="vmem"),
    buffer(7, 0, 9, kind="output"),
)


def test_memory_peaks():
    """Temporaries peak where most are alive; arguments and outputs are there throughout."""
    use = memory_use(Program(name="p", chip="v5e", steps=(), buffers=BUFFERS, argument_bytes=100, output_bytes=7))
    assert (use.temp_bytes, use.peak_hbm_bytes, use.peak_vmem_bytes) == (30, 137, 64)


def test_overfull_memory_is_a_warning():
    """The warning says what is needed and what there is."""
    program = Program(name="p", chip="v5e", steps=(), argument_bytes=17 * 2**30, warnings=("before",))
    assert summarise(program, CHIP, TIMELINE).warnings == (
        "before",
        "does not fit: the program needs 17408.0 MiB of HBM, a program may have 16128.0 MiB",
    )


@pytest.mark.parametrize(("mebibytes", "fits"), [(64, True), (65, False)])
def test_two_cores_hold_no_more_in_vmem_than_one(mebibytes, fits):
    """Each of v5p's cores has 64 MiB, and no program compiled for it uses more."""
    program = Program(name="p", chip="v5p", steps=(), buffers=(buffer(mebibytes * 2**20, 0, 9, space="vmem"),))
    found = summarise(program, load_chip("v5p"), TIMELINE)
    assert (found.fits, bool(found.warnings)) == (fits, not fits)


def test_a_run_says_at_which_operating_point_it_is():
    """Not if a figure of the chip was replaced: then it is another one."""
    program, chip = Program(name="p", chip="v7x", steps=()), load_chip("v7x")
    slower = structs.replace(chip, clock_hz=1.5e9)
    points = [summarise(program, each, TIMELINE).operating_point for each in (chip, slower)]
    assert points == [chip.operating_point, ""]


def test_operations_are_measured_against_the_peak_of_their_type():
    """A second each of bf16, of f32, which runs at its rate, and of s8, which runs at twice that: the peaks in 3 s."""
    peak = CHIP.peak_flops_per_second
    flops = {"s8": 2 * peak, "f32": peak, "bf16": peak}
    records = tuple(
        record(name, n, n + 1, flops=count, flops_type=name) for n, (name, count) in enumerate(flops.items())
    )
    summary = summarise(Program(name="p", chip="v5e", steps=()), CHIP, structs.replace(TIMELINE, records=records))
    assert summary.model_flops_utilisation == pytest.approx(3 / 36e-6)
    assert summary.peak_types == ("s8", "bf16")


def test_what_is_computed_again_is_none_of_the_model():
    """As JAX names it in the scope, and XLA in the instruction; all of it keeps the hardware busy."""
    again = (
        record("d", 0, 1, flops=1e6, op_name="jit(f)/checkpoint/rematted_computation/dot_general"),
        record("e.remat2", 1, 2, flops=1e6),
        record("f", 2, 3, count=3, flops=1e6, op_name="jit(f)/checkpoint/dot_general"),
    )
    found = utilisation(Timeline(program="p", chip="v5e", total_ps=3 * 10**6, records=again))
    assert (found.flops, found.model_flops) == (5e6, 3e6)
