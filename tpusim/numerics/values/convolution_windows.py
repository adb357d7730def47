"""What the kernel positions of a convolution meet, one spatial dimension at a time.

Where each kernel position meets a single output position and the other way round a dimension is no window but a batch
(or, if all meet the same input, a dimension of the kernel alone); the TPU compiler writes the batches of dots that way.
Elsewhere output positions fall into phases, one per residue of the input's dilation, in each of which an evenly spaced
part of the kernel slides over an undilated input.

Source: XLA, Operation Semantics, ConvWithGeneralPadding.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tpusim.ir.attributes import WindowDimension

    Numbers = NDArray[np.int64]


class Phase(NamedTuple):
    """Outputs ``first, first + period, ...`` of one dimension and what they meet, in elements of the input.

    Tap ``t`` of ``taps`` (kernel positions) meets, at the phase's output ``j``, input ``start + t*spacing + j*step``.
    """

    first: int
    period: int
    n_outputs: int
    taps: slice
    n_taps: int
    start: int
    spacing: int
    step: int

    @property
    def reach(self) -> int:
        """The inputs from the first that is met to the last."""
        return (self.n_taps - 1) * self.spacing + (self.n_outputs - 1) * self.step + 1


class Pairing(NamedTuple):
    """A dimension in which output ``outputs[n]`` meets only input ``inputs[n]`` with kernel position ``taps[n]``."""

    outputs: tuple[int, ...]
    inputs: tuple[int, ...]
    taps: tuple[int, ...]

    @property
    def is_outer(self) -> bool:
        """Whether all outputs meet the same input, so that the dimension is the kernel's own."""
        return len(set(self.inputs)) == 1


def output_size(window: WindowDimension, input_size: int) -> int:
    """Return the positions of a window over ``input_size`` elements; none where the window hangs over."""
    dilated = (input_size - 1) * window.lhs_dilate + 1 if input_size else 0
    padded = dilated + window.pad_low + window.pad_high
    reach = (window.size - 1) * window.rhs_dilate + 1
    return 0 if window.size == 0 or padded < reach else (padded - reach) // window.stride + 1


class _Meetings(NamedTuple):
    """Per kernel position that may meet an input: itself, its phase, and the span of the phase's outputs that do.

    At output ``j`` of the phase it meets input ``offset + j * step``; inputs exist for ``first <= j <= last``.
    """

    taps: Numbers
    phase: Numbers
    offset: Numbers
    first: Numbers
    last: Numbers
    period: int
    step: int


def _meetings(window: WindowDimension, input_size: int, size: int) -> _Meetings:
    """Return where the kernel positions of one dimension meet the dilated input.

    Kernel position k meets output o at ``o * stride - pad_low + k * rhs_dilate``, which is an input's place if it is a
    multiple of ``lhs_dilate``; for each k that is so in one residue class of o, or in none.
    """
    divisor = gcd(window.stride, window.lhs_dilate)
    period, step = window.lhs_dilate // divisor, window.stride // divisor
    taps = np.arange(window.size, dtype=np.int64)
    distance = window.pad_low - taps * window.rhs_dilate
    taps, distance = taps[distance % divisor == 0], distance[distance % divisor == 0]
    # stride / divisor and the period have no common factor, so exactly one residue solves it.
    phase = distance // divisor * pow(step, -1, period) % period
    offset = (phase * window.stride - distance) // window.lhs_dilate
    count = -((phase - size) // period)
    first = np.maximum(0, -(offset // step))
    last = np.minimum(count - 1, (input_size - 1 - offset) // step)
    return _Meetings(taps, phase, offset, first, last, period, step)


@lru_cache(maxsize=1024)
def find_pairing(window: WindowDimension, input_size: int, size: int) -> Pairing | None:
    """Return how outputs and kernel positions pair off, each meeting at most one of the other; None if they do not.

    A dimension in which a single pair meets is left to the windows.
    """
    found = _meetings(window, input_size, size)
    meets = found.first <= found.last
    outputs = (found.phase + found.period * found.first)[meets]
    # A pair alone says nothing of what the dimension is, and a window of one tap costs nothing more.
    if len(outputs) < 2 or (found.last > found.first)[meets].any() or len(np.unique(outputs)) < len(outputs):
        return None
    # In the order of outputs the result needs no further sorting.
    order = np.argsort(outputs)
    inputs = (found.offset + found.step * found.first)[meets][order]
    return Pairing(*(tuple(values.tolist()) for values in (outputs[order], inputs, found.taps[meets][order])))


@lru_cache(maxsize=1024)
def find_phases(window: WindowDimension, input_size: int, size: int) -> tuple[Phase, ...]:
    """Return the phases of one dimension in which any kernel position meets any input."""
    found = _meetings(window, input_size, size)
    phases = []
    for number in np.unique(found.phase[found.first <= found.last]).tolist():
        # Windows over whole inputs have many taps, but few phases.
        own = found.phase == number
        met = np.flatnonzero((found.first <= found.last)[own])
        # Between the first and the last that meet anything the spacing is even; beyond them lies only padding.
        taps, offsets = found.taps[own][met[0] : met[-1] + 1], found.offset[own][met[0] : met[-1] + 1]
        tap_spacing, spacing = (int(taps[1] - taps[0]), int(offsets[1] - offsets[0])) if len(taps) > 1 else (1, 1)
        chosen = slice(int(taps[0]), int(taps[-1]) + 1, tap_spacing)
        count = -((number - size) // found.period)
        phases.append(Phase(number, found.period, count, chosen, len(taps), int(offsets[0]), spacing, found.step))
    return tuple(phases)
