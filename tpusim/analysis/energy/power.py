"""Power over the course of a run: what its records took, each spread evenly over its time, on top of the idle power."""

from __future__ import annotations

import numpy as np

from tpusim.analysis.busy import Values, amounts_until
from tpusim.analysis.energy.run import record_energy
from tpusim.cost.energy import idle_watts
from tpusim.hardware.chip import Chip
from tpusim.timeline.records import Timeline
from tpusim.units import fj_to_watts


def mean_watts(timeline: Timeline, chip: Chip, starts_ps: Values, ends_ps: Values) -> Values:
    """Return the mean power of a device between some times, each pair of them apart; the idle power where they are one.

    What a loop repeats draws as much, on average, as the trip that it repeats.
    """
    energy = record_energy(chip)
    both = np.concatenate([starts_ps, ends_ps])
    until = amounts_until(timeline, lambda record: {"fj": energy(record)}, both).get("fj", np.zeros(len(both)))
    taken = until[len(starts_ps) :] - until[: len(starts_ps)]
    watts: Values = idle_watts(chip) + fj_to_watts(1.0, 1.0) * taken / np.maximum(1.0, ends_ps - starts_ps)
    return watts
