"""What windows meet, against counting from the definition."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.windows import DIMENSIONS, WINDOWS, naive_meetings
from tpusim.semantics.windows import find_pairing, find_phases, meeting_pairs, output_size


@given(WINDOWS, st.integers(1, 9))
def test_phases_are_what_the_definition_meets(window, input_size):
    """Every meeting is in exactly one phase; what a phase has beyond that is padding."""
    size = output_size(window, input_size)
    met = [
        (p.first + j * p.period, range(window.size)[p.taps][t], p.start + t * p.spacing + j * p.step)
        for p in find_phases(window, input_size, size)
        for j, t in product(range(p.n_outputs), range(p.n_taps))
    ]
    assert len(set(met)) == len(met)
    assert {m for m in met if 0 <= m[2] < input_size} == naive_meetings(window, input_size, size)


@given(DIMENSIONS)
def test_pairings_are_what_the_definition_meets(dimension):
    """A dimension is a pairing exactly if several pairs meet, none of which share an output or a kernel position."""
    input_size, window = dimension
    size = output_size(window, input_size)
    met = sorted(naive_meetings(window, input_size, size))
    is_pairing = len(met) > 1 and len({o for o, _, _ in met}) == len(met) == len({k for _, k, _ in met})
    found = find_pairing(window, input_size, size)
    assert (found is not None) == is_pairing
    assert found is None or sorted(zip(found.outputs, found.taps, found.inputs, strict=True)) == met


@given(DIMENSIONS)
def test_pairs_agree_with_counting(dimension):
    """The closed form counts what the definition counts."""
    input_size, window = dimension
    size = output_size(window, input_size)
    assert meeting_pairs(window, input_size, size) == len(naive_meetings(window, input_size, size))


@given(WINDOWS, st.integers(1, 9))
def test_a_phase_reaches_from_its_first_input_to_its_last(window, input_size):
    """Counted one by one, padding between them included."""
    for phase in find_phases(window, input_size, output_size(window, input_size)):
        met = [t * phase.spacing + j * phase.step for t, j in product(range(phase.n_taps), range(phase.n_outputs))]
        assert phase.reach == max(met) - min(met) + 1
