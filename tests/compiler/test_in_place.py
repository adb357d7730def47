"""Nothing is read after it was written over, in what our compiler leaves (XLA, CopyInsertion and BufferAssignment)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.compiler.handed_on import program
from tests.compiler.overwrite_cases import BY_HAND, CASES, written_out
from tests.compiler.overwrites import overwrites
from tests.compiler.programs import compiled
from tpusim.pipeline.stages import check
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

CHIPS = ("v3", "v5e")
"""One on which all stays in HBM, and one on which most moves to fast memory."""

FOLDER = Path(__file__).parents[1] / "data" / "hlo" / "overwrites"

FEW, ALL, AT_ONCE = 60, 460, 100


def faults(text, chip):
    """Return what is wrong with the memory of a program that is compiled for a chip."""
    module = compiled(text, chip)
    assert check(module) == []
    return overwrites(module)


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("case", CASES)
def test_what_was_written_over_once_is_kept(case, chip):
    """Each of these was read, or returned, after something else had been written to its bytes."""
    assert faults(written_out(CASES[case]), chip) == []


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.hlo")), ids=lambda path: path.stem)
def test_what_the_generator_found_is_kept(path, chip):
    """Conditionals, arguments that are given away, permutes: each shrunk from a program that was generated."""
    assert faults(path.read_text(encoding="utf-8"), chip) == []


@pytest.mark.parametrize("chip", CHIPS)
@pytest.mark.parametrize("seed", range(FEW))
def test_generated_programs_read_what_was_written(seed, chip):
    """A few in every run."""
    assert faults(program(seed), chip) == []


@pytest.mark.slow
@pytest.mark.parametrize("first", range(FEW, ALL, AT_ONCE))
def test_many_generated_programs_read_what_was_written(first):
    """Hundreds where there is time; each that fails is named by its seed and its chip."""
    found = {(seed, chip): faults(program(seed), chip) for seed in range(first, first + AT_ONCE) for chip in CHIPS}
    assert {which: wrong for which, wrong in found.items() if wrong} == {}


def test_generated_programs_have_what_they_are_for():
    """They are right, and what could be written over occurs in them."""
    texts = [program(seed) for seed in range(FEW)]
    assert [fault for text in texts for fault in check(parse_module(SourceText("generated", text)))] == []
    words = "while conditional dynamic-update-slice opt-barrier collective-permute transpose reverse slice dot".split()
    headers = ("input_output_alias", "buffer_donor", "num_partitions")
    assert [word for word in (*words, *headers) if not any(word in text for text in texts)] == []


SUM_OF_ALL = "all-reduce({matrix}), channel_id={channel}, {groups}, use_global_device_ids=true, to_apply=sum_of_two"
SUM_OF_TWO = "sum_of_two { a = f32[] parameter(0)  b = f32[] parameter(1)  ROOT c = f32[] add(a, b) }"


def summed(text):
    """Return a generated program in which devices sum up what they would send, and how often they do."""
    groups = "replica_groups={{0,1,2,3}}"
    sums = SUM_OF_ALL.format(matrix=r"\1", channel=r"\2", groups=groups)
    text, count = re.subn(r"collective-permute\((\w+)\), channel_id=(\d+), source_target_pairs=\{\S*\}", sums, text)
    head, _, rest = text.partition("\n")
    return f"{head}\n{SUM_OF_TWO}\n{rest}", count


def test_sums_in_place_read_what_was_written():
    """Of what is generated, dozens in which some lie over what they sum."""
    texts = [text for text, count in (summed(program(seed)) for seed in range(3 * FEW)) if count]
    over = [text for text in texts if "aliasing_operands" in compiled(text, "v3").text]
    assert min(len(texts), len(over)) > 10
    assert [wrong for text in texts for chip in CHIPS for wrong in faults(text, chip)] == []


def faults_by_hand(text, what):
    """Return what the oracle finds in a module that is scheduled by hand, with something put in ``HERE``."""
    module = parse_module(SourceText("by hand", written_out(text.replace("HERE", what))))
    assert check(module) == []
    return overwrites(module)


@pytest.mark.parametrize("case", BY_HAND)
def test_the_oracle_reports_what_was_written_over(case):
    """Programs without the copies that they need are wrong, and that is said first that is wrong first."""
    text, wrong, _, found = BY_HAND[case]
    assert faults_by_hand(text, wrong)[:1] == [found]


@pytest.mark.parametrize("case", BY_HAND)
def test_the_oracle_reports_nothing_else(case):
    """With another operand in the same place each of them is right."""
    text, _, right, _ = BY_HAND[case]
    assert faults_by_hand(text, right) == []


def test_the_oracle_sees_what_lies_in_fast_memory():
    """It is looked at as if it lay in HBM, where it has addresses."""
    text, wrong, right, found = BY_HAND["what was updated is read"]
    # Of one layout, or the parts would be in several memories.
    text = text.replace("s = MATRIX sine", "s = f32[128,128]{1,0:S(1)} sine").replace(
        "new = MATRIX", "new = f32[128,128]{1,0:S(1)}"
    )
    assert faults_by_hand(text, wrong) == [found]
    assert faults_by_hand(text, right) == []
