"""Reuse: what was worked out once, as long as no figure changes that it was worked out from."""

from __future__ import annotations

import pickle
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tpusim
from tests.house.source_tree import ROOT
from tpusim.hardware.fields import FIELDS
from tpusim.hardware.load import load_chip, override_chip
from tpusim.hardware.reads import Reads, values_at
from tpusim.lowering.module import lower_module
from tpusim.pipeline.reuse import Reuse

TRACES = ROOT / "traces"
PROGRAMS = {
    "bert_base_b32t128.v3": None,
    "mlp_b1024.v5e": None,
    "lstm_b64t128.v5e": None,
    "llama8b_decode_tp.v5e_2x4": "v5e:2x4",
    "host/train_from_infeed.v5e": None,
}
NUMBERS = [key for key, field in FIELDS.items() if field.kind in (int, float)]


@cache
def module(name: str):
    """Return a program, read once."""
    return tpusim.load(TRACES / f"{name}.hlo.txt.gz")


def chip_of(name: str):
    """Return the chip of a trace."""
    return load_chip(name.rpartition(".")[2].partition("_")[0])


def changed(chip, key: str, factor: float):
    """Return a chip with one figure changed, or None where it may not be so."""
    before = chip
    for part in key.split("."):
        before = getattr(before, part)
    value = type(before)(before * factor) if before else 1
    try:
        return override_chip(chip, {key: value})
    except tpusim.ConfigError:
        return None


def outcome(program, chip, topology, **more):
    """Return what a run comes to, an error as its text."""
    try:
        result = tpusim.simulate(program, chip, topology=topology, allow_overflow=True, **more)
    except tpusim.TpusimError as error:
        return str(error)
    return result.pod, result.program


REUSE = Reuse(most=16)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(sorted(PROGRAMS)),
    changes=st.lists(st.tuples(st.sampled_from(NUMBERS), st.sampled_from((0.25, 0.5, 2, 4))), max_size=3),
)
def test_any_machine_comes_to_the_same_with_reuse(name, changes):
    """One store of results for all programs and machines, whichever came before."""
    chip = chip_of(name)
    for key, factor in changes:
        chip = changed(chip, key, factor) or chip
    plain = outcome(module(name), chip, PROGRAMS[name])
    assert outcome(module(name), chip, PROGRAMS[name], reuse=REUSE) == plain


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_every_key_comes_to_the_same_with_reuse(name):
    """Each figure twice as large by itself, after the chip as it is."""
    reuse, chip = Reuse(), chip_of(name)
    machines = [chip, *filter(None, (changed(chip, key, 2) for key in NUMBERS))]
    for machine in machines:
        plain = outcome(module(name), machine, PROGRAMS[name])
        assert outcome(module(name), machine, PROGRAMS[name], reuse=reuse) == plain


@pytest.mark.parametrize("schedule", ["retiled", "compiled"])
@pytest.mark.slow
def test_schedules_come_to_the_same_with_reuse(schedule):
    """The passes read the chip as lowering does."""
    reuse, chip = Reuse(), chip_of("mlp_b1024.v5e")
    for key in ("vmem.capacity_bytes", "hbm.bandwidth_bytes_per_second", "mxu.count", "ici.links", "clock_hz"):
        machine = changed(chip, key, 2)
        plain = outcome(module("mlp_b1024.v5e"), machine, None, schedule=schedule)
        assert outcome(module("mlp_b1024.v5e"), machine, None, schedule=schedule, reuse=reuse) == plain


def test_bandwidth_lowers_nothing_again(monkeypatch):
    """Lowering does not ask for it; for the rows of the arrays it does."""
    lowered = []
    monkeypatch.setattr(
        "tpusim.pipeline.stages.lower_module",
        lambda verified, chip, *rest: lowered.append(chip.name) or lower_module(verified, chip, *rest),
    )
    reuse, chip = Reuse(), chip_of("mlp_b1024.v5e")
    for key in ("clock_hz", "hbm.bandwidth_bytes_per_second", "mxu.count", "mxu.rows"):
        tpusim.simulate(module("mlp_b1024.v5e"), changed(chip, key, 2), reuse=reuse)
    assert len(lowered) == 2


def test_what_is_kept_is_bounded():
    """What was used least lately goes first."""
    reuse, made = Reuse(most=2), []
    for of in ("a", "b", "a", "c", "b"):
        reuse("s", of, (), load_chip("v5e"), lambda chip, of=of: made.append((of, chip.name)))
    assert [of for of, _ in made] == ["a", "b", "c", "b"]


def test_what_was_read_for_a_result_is_forgotten_with_it():
    """Else a study of very many programs would fill the memory with the figures that each of them read."""
    reuse, chip = Reuse(most=2), load_chip("v5e")
    chips = [override_chip(chip, {"mxu.count": count}) for count in (1, 2)]
    for of in "abcd":
        for one in chips:
            reuse("s", of, (), one, lambda watched: watched.mxu.count)
    assert len(reuse._found) == 2
    assert [list(counts.values()) for counts in reuse._keys.values()] == [[2]]


def test_a_reader_s_reader_counts():
    """What is taken over inside of something bigger was read for that as well."""
    reuse, chip = Reuse(), load_chip("v5e")
    other = override_chip(chip, {"mxu.count": 7})

    def outer(watched):
        return reuse("inner", chip, (), watched, lambda inmost: inmost.mxu.count)

    assert [reuse("outer", chip, (), one, outer) for one in (chip, other, chip)] == [chip.mxu.count, 7, chip.mxu.count]


def test_keys_are_those_that_were_read():
    """Of what a part works out from fields, that; of a table, all of it."""
    reads = Reads(load_chip("v5e"))
    assert reads.chip.vpu.register_bytes == 4096
    assert reads.chip.mxu.rate_by_type.get("s8")
    assert reads.chip.peak_flops_per_second
    assert reads.keys == {"vpu.register_bytes", "mxu.rate_by_type", "peak_flops_per_second"}


def test_what_is_worked_out_is_told_by_what_a_file_states():
    """Of a part, and of the whole chip."""
    reads = Reads(load_chip("v5e"), as_stated=True)
    assert (reads.chip.vpu.register_bytes, reads.chip.vmem.kernel_bytes) == (4096, 16 << 20)
    assert reads.keys == {"vpu.sublanes", "vpu.lanes", "vmem.scoped_bytes", "vmem.capacity_bytes"}


def test_a_chip_under_watch_is_read_in_no_other_way():
    """To compare, copy or encode it would read all of it unseen."""
    chip = Reads(load_chip("v5e")).chip
    for use in (lambda: chip == load_chip("v5e"), lambda: pickle.dumps(chip), lambda: values_at(chip, ["mxu"])):
        with pytest.raises(TypeError):
            use()
