"""What multiplies ends at a bound: exact where there are few ways, told or refused where there are too many."""

from __future__ import annotations

from pathlib import Path

import pytest

import tpusim
from tests.growth import within
from tests.peak import peak_bytes_of
from tests.robust import ways
from tests.semantics.hlo import parse
from tpusim.compiler.place import lives
from tpusim.errors import UnsupportedError
from tpusim.hardware.units import HBM
from tpusim.program.steps import Loop
from tpusim.semantics import contexts, scalars
from tpusim.timeline.records import CORE

_SECONDS = 10


def kernels(text: str, name: str) -> int:
    """Return how often a kernel runs."""
    result = tpusim.simulate(parse(text), "v5e")
    return sum(record.count for record in result.timeline.records if record.name == name and not record.is_wait)


def test_computations_are_lowered_for_as_many_ways_into_them_as_a_program_can_have():
    """Eight levels have 256 ways, half of which choose the kernel; forty have more than any memory."""
    assert kernels(ways.called(8), "k") == 128
    assert not tpusim.lower(parse(ways.called(8)), "v5e").warnings
    program = within(_SECONDS, lambda: tpusim.lower(parse(ways.called(40)), "v5e"))
    assert len(program.every_step) < 2**15
    assert any("too many ways" in warning for warning in program.warnings)


def test_scalars_of_calls_that_multiply_are_computed_to_a_bound():
    """Four levels add the numbers from 16 to 31; of forty the trips are assumed, and said to be."""
    program = tpusim.lower(parse(ways.summed(4)), "v5e")
    assert [step.trips for step in program.every_step if isinstance(step, Loop)] == [sum(range(16, 32))]
    program = within(_SECONDS, lambda: tpusim.lower(parse(ways.summed(40)), "v5e"))
    assert any("the trip count of 'w' is not known" in warning for warning in program.warnings)


def test_trips_of_all_loops_together_are_played_to_a_bound(monkeypatch):
    """What the first loops leave is what later ones may take."""
    text = ways.played(loops=4, length=10, trips=101)
    program = tpusim.lower(parse(text), "v5e")
    assert [step.trips for step in program.every_step if isinstance(step, Loop)] == [100] * 4
    # Some 14 for each trip.
    monkeypatch.setattr(scalars, "_MOST_COMPUTED", 5000)
    program = tpusim.lower(parse(text), "v5e")
    assert [step.trips for step in program.every_step if isinstance(step, Loop)] == [100, 100, 100, 1]


@pytest.mark.parametrize(("how", "trips"), [("add", 10_000 // 25), ("call", 10_000 // 25), ("fusion", 10_000)])
def test_a_counter_may_go_through_steps_of_any_number(how, trips):
    """Few are counted through; thousands would end Python's stack, and the trips are assumed."""
    for length, expected in ((25, trips), (3000, 1)):
        program = tpusim.lower(parse(ways.counted(length, how)), "v5e")
        assert [step.trips for step in program.every_step if isinstance(step, Loop)] == [expected]


@pytest.mark.parametrize("text", [ways.counted(2000, "fusion"), ways.fused(2000)], ids=["counter", "argument"])
def test_fusions_in_each_other_are_tiled_anew_however_deep_they_are(text):
    """Python's stack would end at a thousand."""
    assert tpusim.simulate(parse(text), "v5e", schedule="retiled").timeline.total_ps


def test_calls_beside_the_core_multiply_to_a_bound():
    """Six levels have 64 at the bottom; forty would be under way all at once."""
    assert kernels(ways.beside(6), "k") == 64

    def is_refused():
        with pytest.raises(UnsupportedError, match="calls beside the core at once"):
            tpusim.simulate(parse(ways.beside(40)), "v5e")

    within(_SECONDS, is_refused)


def test_ways_through_branches_are_counted_and_not_gone_one_by_one(monkeypatch):
    """Either branch counts as often as the conditional; what is forgotten of them changes no count here."""
    runs = [lives._runs(parse(ways.chosen(levels)))["c_0"] for levels in (3, 60)]
    assert runs == [2**4, 2**61]
    monkeypatch.setattr(contexts, "_MOST_WAYS", 2)
    assert lives._runs(parse(ways.chosen(9)))["c_0"] == 2**10


def test_programs_of_many_ways_are_tiled_anew_in_time():
    """As many as are known of are told apart."""
    result = within(_SECONDS, lambda: tpusim.simulate(parse(ways.chosen(40)), "v5e", schedule="retiled"))
    assert result.timeline.total_ps


def _chosen_alike(levels: int, number: int, kind: str) -> int:
    """Return how often ``k`` runs in what ``alternated`` enters with a number, one trip after the other."""
    if not levels:
        return kind == "even"
    return sum(_chosen_alike(levels - 1, n, ("even", "odd")[n % 2]) for n in range(number, 7))


def test_trips_that_choose_are_kept_to_a_bound(tmp_path):
    """Each level of loops kept all that was chosen below it: forty took two gigabytes."""
    assert kernels(ways.alternated(3), "k") == _chosen_alike(3, 0, "even")
    few, many = (peak_bytes(tmp_path, ways.alternated(levels)) for levels in (2, 40))
    assert many - few < 64 << 20


def peak_bytes(folder: Path, text: str) -> int:
    """Return the memory that a run of a program takes at its peak, or its refusal, in a process of its own."""
    path = folder / "program.v5e.hlo.txt"
    path.write_text(text)
    return peak_bytes_of("run", str(path))


def test_memories_move_all_that_trips_count():
    """Two loops through the same memory, the second of which began when the first was only counted any more."""
    result = tpusim.simulate(parse(ways.overlapped(10**6)), "v5e")
    assert result.summary.roofline.bound_by == HBM
    assert result.timeline.total_ps >= result.summary.roofline.bound_ps * (1 - 1e-12)
    core = [record for record in result.timeline.records if record.row == CORE]
    assert sum(record.total_ps for record in core) == result.timeline.total_ps
    assert core[-1].name == "traffic"
