"""The errors that reports state are those of the shipped measurements."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

from tpusim.analysis.bands import error_bands, errors_of, measured_errors
from tpusim.hardware.load import load_chip
from tpusim.pipeline.stages import lower
from tpusim.program.module import Program
from tpusim.program.steps import Kernel
from tpusim.source import SourceText
from tpusim.text.parser import parse_module
from tpusim.timeline.records import Record, Timeline
from tpusim.validation.kernels import predict_all, read_cases

TRACES = Path(__file__).parents[2] / "traces"
FAMILIES = {
    "matmul": "product",
    "dot_fusion": "product",
    "conv2d_fusion": "convolution",
    "copy": "copy",
    "reshape": "copy",
    "hand-written": "hand-written",
}
"""By the name that an index of measured rows has for them; all others are of the vector unit."""


def kind_of_family(family: str) -> str:
    """Return the family of kernels that measured rows consist of (``v5e matmul``: product)."""
    return FAMILIES.get(family.partition(" ")[2], "vector")


def test_stated_errors_are_those_of_the_measured_rows():
    """By chip and kind of kernel, to the last digit that is written."""
    pytest.importorskip("jaxlib")
    cases = [
        case
        for name in ("measured", "tilings", "profiled", "pallas")
        for case in read_cases(TRACES / name / "index.csv")
    ]
    found = defaultdict(list)
    for outcome in predict_all(cases, load_chip, lambda done: None):
        key = (outcome.chip.removesuffix("-megacore"), kind_of_family(outcome.family))
        found[key].append(abs(outcome.predicted_us / outcome.measured_us - 1))
    stated = {(chip, kind): band for chip, kinds in measured_errors().items() for kind, band in kinds.items()}
    # One row, which the fit has seen, is no measure of anything.
    assert stated.keys() == {key for key, errors in found.items() if len(errors) > 1}
    for key, band in stated.items():
        assert band.rows == len(found[key])
        assert band.error == pytest.approx(sum(found[key]) / len(found[key]), abs=6e-4)


def bands(chip: str, **times_ps: int) -> list[tuple[str, float, int]]:
    """Return kind, share and measured rows of a run of one kernel of each family."""
    steps, records, now = [], [], 0
    for family, ps in times_ps.items():
        name = family.replace("_", " ")
        if family != "wait":
            steps.append(Kernel(name=name, opcode="fusion", family=name))  # type: ignore[arg-type]
        records.append(Record(name=name, opcode="fusion", category="", row="core", start_ps=now, end_ps=now + ps))
        now += ps
    timeline = Timeline(program="p", chip=chip, total_ps=now, records=tuple(records))
    found = error_bands(Program(name="p", chip=chip, steps=tuple(steps)), timeline, chip)
    return [(band.kind, band.share, band.rows) for band in found]


def test_bands_have_their_share_of_the_time() -> None:
    """Three quarters of the time in products, the rest in vector kernels, both measured on v4."""
    rows = errors_of("v4")
    assert bands("v4-megacore", product=75, vector=25) == [
        ("product", 0.75, rows["product"].rows),
        ("vector", 0.25, rows["vector"].rows),
    ]


@pytest.mark.parametrize(("chip", "family"), [("v7x", "vector"), ("v5e", "convolution"), ("v5e", "custom_call")])
def test_a_family_without_measurements_says_so(chip: str, family: str) -> None:
    """Nobody published vector kernels of v7x, nor convolutions of v5e."""
    assert bands(chip, **{family: 10}) == [(family.replace("_", " "), 1.0, 0)]


def test_what_is_no_kernel_has_its_share_too() -> None:
    """Waits, collectives and transfers were not measured with the kernels."""
    assert bands("v5e", product=60, wait=40)[1] == ("other", 0.4, 0)


CONVOLUTION = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f"
POINTWISE = "window={size=1x1}, dim_labels=b01f_01io->b01f"


@pytest.mark.parametrize(
    ("kernel", "rest", "family"), [("3,3,64,64", CONVOLUTION, "convolution"), ("1,1,64,64", POINTWISE, "product")]
)
def test_a_convolution_without_a_window_is_a_product(kernel: str, rest: str, family: str) -> None:
    """The TPU compiler writes every product as a convolution; only a window that slides makes it one."""
    text = f"""HloModule m, is_scheduled=true
ENTRY e {{
  x = bf16[8,16,16,64]{{3,2,1,0}} parameter(0)
  k = bf16[{kernel}]{{3,2,1,0}} parameter(1)
  ROOT c = bf16[8,16,16,64]{{3,2,1,0}} convolution(x, k), {rest}
}}
"""
    (step,) = lower(parse_module(SourceText("step.v5e.hlo.txt", text))).steps
    assert step.family == family  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["measured/index.csv", "tilings/index.csv", "pallas/index.csv"])
def test_measured_rows_are_of_the_family_that_they_are_counted_as(name: str) -> None:
    """The kernel that takes longest in one program of each family."""
    for case in {case.family: case for case in read_cases(TRACES / name)}.values():
        program = lower(case.module, case.chip)
        kernels = [step for step in program.steps if isinstance(step, Kernel) and step.family]
        longest = max(kernels, key=lambda step: (step.product_flops, step.flops, step.hbm_bytes))
        assert longest.family == kind_of_family(case.family), case.family
