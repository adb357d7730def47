"""Which chip a program runs on: v4 is programmed as one core or as two, whichever way the slice is named."""

from __future__ import annotations

import pytest

import tpusim
from tpusim.errors import ConfigError, UnsupportedError
from tpusim.ir.module import Module
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

SPLIT = (
    '{"window_config":{"output_window_bounds":["8","1"],"iteration_bounds":["16","1"]},'
    '"megacore_config":{"megacore_split_dim":"0"}}'
)
WAYS = [(None, None), (None, "v4:1x1x1"), (None, "v4-megacore:1x1x1"), ("v4-megacore", "1x1x1")]


def program(config: str = SPLIT) -> Module:
    """Return one kernel of 16 tiles, which two cores share unless ``config`` says otherwise."""
    array = "f32[1024,128]{1,0:T(8,128)}"
    text = f"""HloModule m, is_scheduled=true
fused {{
  a = {array} parameter(0)
  ROOT e = {array} exponential(a)
}}
ENTRY main {{
  p = {array} parameter(0)
  ROOT f = {array} fusion(p), kind=kLoop, calls=fused, backend_config={config}
}}
"""
    return parse_module(SourceText("step.v4.hlo.txt", text))


@pytest.mark.parametrize(("chip", "topology"), WAYS)
def test_a_megacore_program_runs_on_both_cores_however_the_slice_is_named(chip, topology) -> None:
    """The kernels tell that they are split; a slice of v4 is one of megacores then."""
    result = tpusim.simulate(program(), chip, topology=topology)
    assert result.chip.name == "v4-megacore"
    assert result.time_us == tpusim.simulate(program(), "v4-megacore").time_us


def test_a_program_that_splits_nothing_runs_on_one_core() -> None:
    """Without a word of the megacore a slice of v4 is one of single cores."""
    assert tpusim.simulate(program("{}"), topology="v4:1x1x1").chip.name == "v4"
    assert tpusim.simulate(program("{}")).chip.name == "v4"


def test_two_cores_take_less_time_than_one() -> None:
    """The same program on one of the chip's cores, which the caller may ask for."""
    assert tpusim.simulate(program(), "v4").time_us > tpusim.simulate(program()).time_us


@pytest.mark.parametrize(("chip", "topology"), [("v4", "v4-megacore:1x1x1"), ("v5e", "v4:1x1x1")])
def test_a_chip_and_a_slice_of_another_are_refused_by_name(chip: str, topology: str) -> None:
    """Neither is silently preferred."""
    with pytest.raises(ConfigError, match=f"slice of {chip}, found one of '{topology.partition(':')[0]}'"):
        tpusim.simulate(program(), chip, topology=topology)


@pytest.mark.parametrize(("note", "processor"), [("__ynn_fusion", "CPUs"), ("__triton", "GPUs")])
def test_what_another_backend_scheduled_is_not_timed(note, processor) -> None:
    """Nor is its memory looked at: its fusions are not a TPU's. Its values and its rules are those of any program."""
    text = program(f'{{"fusion_backend_config":{{"kind":"{note}"}}}}' if processor == "GPUs" else f'{{"a":"{note}"}}')
    assert text.source is not None
    found = parse_module(SourceText("step.v5e.hlo.txt", text.source.text.replace(":T(8,128)", "")))
    for ask in (tpusim.simulate, tpusim.memory, tpusim.lower):
        with pytest.raises(UnsupportedError, match=f"step.v5e.hlo.txt: .* compiled for {processor}: .*lower_for"):
            ask(found)
    assert tpusim.check(found) == []
