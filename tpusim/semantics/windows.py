"""What the kernel positions of a convolution meet, one spatial dimension at a time.

Output positions fall into phases, one per residue of the input's dilation, in each of which an evenly spaced part of
the kernel slides over an undilated input. Where no two pairs of an output and a kernel position that meet an input
share either, nothing slides: the dimension pairs off its arrays.

Source: XLA, Operation Semantics, ConvWithGeneralPadding.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from tpusim.ir.attributes import WindowDimension


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


def dilated(size: int, factor: int) -> int:
    """Return the size of ``size`` elements with ``factor - 1`` holes between neighbours; 0 of no elements."""
    return (size - 1) * factor + 1 if size else 0


def output_size(window: WindowDimension, input_size: int) -> int:
    """Return the positions of a window over ``input_size`` elements; none where the window hangs over."""
    padded = dilated(input_size, window.lhs_dilate) + window.pad_low + window.pad_high
    reach = dilated(window.size, window.rhs_dilate)
    return (padded - reach) // window.stride + 1 if 0 < reach <= padded else 0


class _Tap(NamedTuple):
    """A kernel position with the phase whose outputs it may meet an input at, and the span of those that do.

    At output ``j`` of the phase it meets input ``offset + j * step``; inputs exist for ``first <= j <= last``.
    """

    number: int
    phase: int
    offset: int
    first: int
    last: int


class _Meetings(NamedTuple):
    """All kernel positions that share a residue with some output; phases are ``period`` outputs apart."""

    taps: tuple[_Tap, ...]
    period: int
    step: int


@lru_cache(maxsize=1024)
def _meetings(window: WindowDimension, input_size: int, size: int) -> _Meetings:
    """Return where the kernel positions of one dimension meet the dilated input.

    Kernel position k meets output o at ``o * stride - pad_low + k * rhs_dilate``, which is an input's place if it is a
    multiple of ``lhs_dilate``; for each k that is so in one residue class of o, or in none. The window's reversal only
    renames kernel positions and is left out.
    """
    divisor = gcd(window.stride, window.lhs_dilate)
    period, step = window.lhs_dilate // divisor, window.stride // divisor
    # stride / divisor and the period have no common factor, so exactly one residue solves it.
    inverse, taps = pow(step, -1, period), []
    for number in range(window.size):
        distance = window.pad_low - number * window.rhs_dilate
        if distance % divisor:
            continue
        phase = distance // divisor * inverse % period
        offset = (phase * window.stride - distance) // window.lhs_dilate
        last = min(-((phase - size) // period) - 1, (input_size - 1 - offset) // step)
        taps.append(_Tap(number, phase, offset, max(0, -(offset // step)), last))
    return _Meetings(tuple(taps), period, step)


@lru_cache(maxsize=1024)
def meeting_pairs(window: WindowDimension, input_size: int, size: int) -> int:
    """Count the (output, kernel) position pairs of one dimension that meet an input, not a hole or padding."""
    return sum(max(0, tap.last - tap.first + 1) for tap in _meetings(window, input_size, size).taps)


@lru_cache(maxsize=1024)
def find_pairing(window: WindowDimension, input_size: int, size: int) -> Pairing | None:
    """Return how outputs and kernel positions pair off, each meeting at most one of the other; None if they do not.

    A dimension in which a single pair meets is left to the windows.
    """
    found = _meetings(window, input_size, size)
    meets = [tap for tap in found.taps if tap.first <= tap.last]
    # In the order of outputs the result needs no further sorting.
    pairs = sorted(
        (tap.phase + found.period * tap.first, tap.offset + found.step * tap.first, tap.number) for tap in meets
    )
    outputs = tuple(output for output, _, _ in pairs)
    # A pair alone says nothing of what the dimension is, and a window of one tap costs nothing more.
    if len(pairs) < 2 or any(tap.last > tap.first for tap in meets) or len(set(outputs)) < len(outputs):
        return None
    return Pairing(outputs, tuple(place for _, place, _ in pairs), tuple(tap for _, _, tap in pairs))


@lru_cache(maxsize=1024)
def find_phases(window: WindowDimension, input_size: int, size: int) -> tuple[Phase, ...]:
    """Return the phases of one dimension in which any kernel position meets any input."""
    found = _meetings(window, input_size, size)
    by_phase: dict[int, list[_Tap]] = {}
    for tap in found.taps:
        by_phase.setdefault(tap.phase, []).append(tap)
    phases = []
    for number, own in sorted(by_phase.items()):
        met = [index for index, tap in enumerate(own) if tap.first <= tap.last]
        if not met:
            continue
        # Between the first and the last that meet anything the spacing is even; beyond them lies only padding.
        first, last = own[met[0]], own[met[-1]]
        n_taps = met[-1] - met[0] + 1
        second = own[met[0] + 1] if n_taps > 1 else first._replace(number=first.number + 1, offset=first.offset + 1)
        chosen = slice(first.number, last.number + 1, second.number - first.number)
        count, spacing = -((number - size) // found.period), second.offset - first.offset
        phases.append(Phase(number, found.period, count, chosen, n_taps, first.offset, spacing, found.step))
    return tuple(phases)
