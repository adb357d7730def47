"""Which chip a program runs on: v4 is programmed as one core or as two, whichever way the slice is named."""

from __future__ import annotations

from functools import cache

import pytest
from msgspec import structs

import tpusim
from tests.study.cases import kernel_module
from tpusim.errors import ConfigError, TpusimError, UnsupportedError
from tpusim.hardware.fields import FIELDS
from tpusim.ir.module import Module
from tpusim.pipeline.chip_choice import for_chip
from tpusim.program.module import Program
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


@pytest.fixture
def named(tmp_path):
    """Return a function that runs a program whose name says v4, with a file beside it."""

    def run(beside: str) -> str:
        path = tmp_path / "step.v4.hlo.txt"
        path.write_text(program("{}").text)
        (tmp_path / "step.v4.json").write_text(beside, encoding="utf-8")
        return tpusim.simulate(path).chip.name

    return run


@pytest.mark.parametrize(("beside", "chip"), [('\ufeff{"chip": "v5e"}', "v5e"), ("[]", "v4"), ('{"a": 1}', "v4")])
def test_what_was_written_down_goes_before_the_name(named, beside, chip) -> None:
    """With the mark that some editors put in front, too; another tool's file says nothing."""
    assert named(beside) == chip


@pytest.mark.parametrize(
    ("chip", "said"), [("5", "expected the name of a chip, found 5"), ('"v9"', "unknown chip 'v9'")]
)
def test_a_chip_beside_the_program_that_is_none_is_refused_by_the_file(named, chip, said) -> None:
    """The name of the program would say another one."""
    with pytest.raises(ConfigError, match=rf"step\.v4\.json: chip: {said}"):
        named(f'{{"chip": {chip}}}')


@pytest.mark.parametrize("beside", ["{", '{"chip": "v4", "chip": "v5e"}', "[" * 100_000, '{"a": ' + "9" * 5000 + "}"])
def test_what_cannot_be_read_beside_a_program_is_told(named, beside) -> None:
    """It may have said the chip."""
    with pytest.warns(UserWarning, match=r"step\.v4\.json: not read, though it may say the chip") as told:
        assert named(beside) == "v4"
    assert "recursion" not in str(told[0].message)
    assert "sys.set_int_max_str_digits" not in str(told[0].message)


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


CHANGES = {
    "mxu.rows": 64,
    "hbm.bandwidth_bytes_per_second": 2e11,
    "hbm.model": "banked",
    "mxu.rate_by_type.s8": 3.0,
    "ici.links_down": ["0:+0"],
    "devices.0.clock": 0.5,
}


@pytest.mark.parametrize("name", ["v5e", "v5-lite"])
@pytest.mark.parametrize("topology", ["2x2", "v5e:2x2"])
def test_a_lowered_program_runs_on_the_figures_it_was_lowered_for(tmp_path, name, topology) -> None:
    """A chip of one's own may be called as one that ships, or by an alias of it."""
    own = structs.replace(tpusim.load_chip("v5e", CHANGES), name=name)
    tpusim.save_program(tpusim.lower(kernel_module(), own), tmp_path / "m.json")
    ran = tpusim.simulate(str(tmp_path / "m.json"), topology=topology)
    assert ran.chip == tpusim.load_chip("v5e", CHANGES)
    assert ran.timeline.total_ps == tpusim.simulate(kernel_module(), own, topology="2x2").timeline.total_ps


OTHERS = "lowered for v5e with vmem.scoped_bytes=8388608, run on v5e with vmem.scoped_bytes=16777216"


@pytest.mark.parametrize(
    ("chip", "changes", "said"),
    [
        ("v5e", {}, []),
        (None, {"ici.link_bytes_per_second": "x2"}, []),
        (None, {"vmem.scoped_bytes": "x2"}, [OTHERS]),
        ("v5e", {"pod.dcn_bytes_per_second": "x2"}, []),
    ],
)
def test_what_a_lowered_program_was_cut_for_is_told_of(chip, changes, said) -> None:
    """Factors are of the figures that it was lowered for; a chip that is named has its own."""
    lowered = tpusim.lower(kernel_module(), "v5e", overrides={"vmem.scoped_bytes": 1 << 23})
    found = tpusim.simulate(lowered, chip, overrides=changes).program.warnings
    said = said or ([OTHERS] if chip else [])
    assert [one.partition(":")[0] for one in found if "lowered" in one] == said


PRODUCT = """HloModule product

ENTRY main {
  x = bf16[1024,512] parameter(0)
  w = bf16[512,2048] parameter(1)
  d = f32[1024,2048] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[1024,2048] tanh(d)
  ROOT s = f32[2048,1024] transpose(t), dimensions={1,0}
}
"""
MODULES = {"kernel": kernel_module(), "product": parse_module(SourceText("product.v5e.hlo.txt", PRODUCT))}
NUMBERS = [key for key, field in FIELDS.items() if field.kind in (int, float)]
CHOICES = [("mxu.model", "output-stationary"), ("hbm.model", "banked"), ("dma.model", "ideal")]


@cache
def lowered_for(name: str, **changes: str) -> Program:
    """Return a module lowered for v5e with other figures, with dashes for the dots of their keys."""
    return tpusim.lower(MODULES[name], "v5e", overrides={key.replace("-", "."): one for key, one in changes.items()})


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize(("key", "value"), [*CHOICES, *((key, by) for key in NUMBERS for by in ("x2", "x0.5"))])
def test_a_figure_that_makes_another_program_is_told_of(name, key, value) -> None:
    """Whichever it is, of a program that was lowered without it."""
    try:
        chip, other = tpusim.load_chip("v5e", {key: value}), lowered_for(name, **{key.replace(".", "-"): value})
    except TpusimError:
        pytest.skip("no chip has such a figure")
    before = lowered_for(name)
    is_told = any(f"run on v5e with {key}=" in one for one in for_chip(before, chip).warnings)
    assert is_told or (other.steps, other.buffers) == (before.steps, before.buffers)


@pytest.mark.parametrize(("key", "value"), [*CHOICES, ("mxu.count", 2), ("clock_hz", "x2")])
def test_what_chose_tiles_is_told_of(key, value) -> None:
    """Also where it would choose the same ones for this product: for another it may not."""
    chip = tpusim.load_chip("v5e", {key: value})
    assert f"run on v5e with {key}=" in for_chip(lowered_for("product"), chip).warnings[-1]


@pytest.mark.parametrize(("key", "value"), [*CHOICES[:2], ("vpu.lanes", 256)])
def test_what_cuts_any_program_is_told_of_one_that_ran(key, value) -> None:
    """Only ``lower`` notes what a program follows from."""
    ran = tpusim.simulate(kernel_module(), "v5e").program
    assert f"run on v5e with {key}=" in for_chip(ran, tpusim.load_chip("v5e", {key: value})).warnings[-1]


def test_a_chip_as_it_ships_leaves_no_figures() -> None:
    """Its name says them all."""
    assert not tpusim.lower(kernel_module(), "v5e").figures


@pytest.fixture
def own_chip(tmp_path):
    """Give the file of a chip that is not shipped."""
    path = tmp_path / "mine.toml"
    path.write_text('name = "my chip"\nbase = "v5e"\n')
    return path


def test_a_lowered_program_for_a_chip_of_ones_own_asks_for_its_file(tmp_path, own_chip):
    """The name alone says nothing of the chip: the message named neither the program nor what to do."""
    tpusim.save_program(tpusim.lower(kernel_module(), own_chip), tmp_path / "p.json")
    with pytest.raises(
        ConfigError, match=r"p.json: made for a chip of another name .* give its file, --chip FILE.toml"
    ):
        tpusim.simulate(tmp_path / "p.json")
    assert tpusim.simulate(tmp_path / "p.json", own_chip).chip.name == "my chip"


def test_a_lowered_program_names_no_file_of_a_chip(tmp_path, own_chip):
    """What a program says opens none: the caller gives it."""
    lowered = tpusim.lower(kernel_module(), own_chip)
    tpusim.save_program(structs.replace(lowered, chip=str(own_chip)), tmp_path / "p.json")
    with pytest.raises(ConfigError, match=r"p.json: made for a chip of another name .* --chip FILE.toml"):
        tpusim.simulate(tmp_path / "p.json")


def test_a_program_compiled_for_a_chip_of_ones_own_asks_for_its_file(tmp_path, own_chip):
    """Its text says the chip's name."""
    path = tmp_path / "p.hlo.txt"
    path.write_text(tpusim.compile(kernel_module(), own_chip).text)
    with pytest.raises(ConfigError, match=r"p.hlo.txt: made for .* --chip FILE.toml \(unknown chip 'my chip'"):
        tpusim.simulate(path)
    assert tpusim.simulate(path, own_chip).chip.name == "my chip"
