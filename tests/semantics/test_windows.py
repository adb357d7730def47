"""What windows meet, against counting from the definition."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from tests.semantics.windows import DIMENSIONS, WINDOWS, naive_meetings
from tpusim.ir.attributes import WindowDimension
from tpusim.semantics.windows import Paired, find_pairing, find_phases, how_paired, meeting_pairs, output_size


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
    inputs = {place for _, _, place in met}
    paired = Paired(is_outer=len(inputs) == 1, is_batch=len(inputs) == len(met))
    assert how_paired(window, input_size, size) == (paired if is_pairing else None)


@given(DIMENSIONS)
def test_pairs_agree_with_counting(dimension):
    """The closed form counts what the definition counts."""
    input_size, window = dimension
    size = output_size(window, input_size)
    assert meeting_pairs(window, input_size, size) == len(naive_meetings(window, input_size, size))


@given(WINDOWS, st.integers(0, 9), st.integers(0, 9))
def test_any_part_of_the_outputs_is_counted(window, input_size, size):
    """Also where the window hangs over, and where no output or input is."""
    assert meeting_pairs(window, input_size, size) == len(naive_meetings(window, input_size, size))


HUGE = 2**40


def test_sizes_beyond_counting_are_counted():
    """Each of as many kernel positions as there are bytes in a terabyte; all that is looked at is their bounds."""
    assert meeting_pairs(WindowDimension(HUGE), 16, 0) == 0
    assert meeting_pairs(WindowDimension(HUGE), HUGE + 9, 10) == 10 * HUGE
    assert meeting_pairs(WindowDimension(HUGE, pad_low=HUGE - 1, pad_high=HUGE - 1), HUGE, 2 * HUGE - 1) == HUGE**2
    assert how_paired(WindowDimension(HUGE, stride=HUGE - 1, lhs_dilate=HUGE), HUGE, HUGE) == Paired(False, True)
    outer = WindowDimension(HUGE, pad_low=HUGE - 1, pad_high=HUGE - 1, reversal=True)
    assert how_paired(outer, 1, HUGE) == Paired(True, False)
    assert how_paired(WindowDimension(HUGE), HUGE, 1) is None


def test_kernel_positions_that_only_padding_meets_are_not_looked_at():
    """A phase is found in no time however far the window reaches beyond the input."""
    (phase,) = find_phases(WindowDimension(HUGE, pad_low=HUGE - 3), 3, 2)
    assert (phase.n_taps, phase.start, phase.reach) == (4, -1, 5)
    assert find_phases(WindowDimension(HUGE), 16, 0) == ()


@given(WINDOWS, st.integers(1, 9))
def test_a_phase_reaches_from_its_first_input_to_its_last(window, input_size):
    """Counted one by one, padding between them included."""
    for phase in find_phases(window, input_size, output_size(window, input_size)):
        met = [t * phase.spacing + j * phase.step for t, j in product(range(phase.n_taps), range(phase.n_outputs))]
        assert phase.reach == max(met) - min(met) + 1
