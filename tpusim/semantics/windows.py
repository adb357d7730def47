"""What the kernel positions of a convolution meet, one spatial dimension at a time.

Output positions fall into phases, one per residue of the input's dilation, in each of which an evenly spaced part of
the kernel slides over an undilated input. Where no two pairs of an output and a kernel position that meet an input
share either, nothing slides: the dimension pairs off its arrays.

Source: XLA, Operation Semantics, ConvWithGeneralPadding.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from math import gcd

import msgspec
from msgspec.structs import replace

from tpusim.ir.attributes import WindowDimension


class Phase(msgspec.Struct, frozen=True):
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


class Pairing(msgspec.Struct, frozen=True):
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


class _Tap(msgspec.Struct, frozen=True):
    """A kernel position with the phase whose outputs it may meet an input at, and the span of those that do.

    At output ``j`` of the phase it meets input ``offset + j * step``; inputs exist for ``first <= j <= last``.
    """

    number: int
    phase: int
    offset: int
    first: int
    last: int


class _Meetings(msgspec.Struct, frozen=True):
    """The kernel positions that may meet an input, and those between; phases are ``period`` outputs apart."""

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
    # The first output meets the last input at the end of those that may meet any, the last output the first input.
    begin = max(0, -(((size - 1) * window.stride - window.pad_low) // window.rhs_dilate))
    end = min(window.size, (window.pad_low + (input_size - 1) * window.lhs_dilate) // window.rhs_dilate + 1)
    for number in range(begin, end if input_size and size else begin):
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
    """Count the (output, kernel) position pairs of one dimension that meet an input, not a hole or padding.

    In closed form, however large the sizes are. Of every ``spacing`` kernel positions one may meet an input, at outputs
    ``period`` apart: tap u with a distance d that falls evenly meets, for whole v, input ``d * carry + v * step`` at
    output ``d * inverse + v * period``. The bounds of v that outputs and inputs set are lines in u, whose floors are
    summed; those of outputs rise faster, so that each of the two is the nearer bound up to one crossing.
    """
    divisor = gcd(window.stride, window.lhs_dilate)
    common = gcd(window.rhs_dilate, divisor)
    if window.pad_low % common or min(input_size, size, window.size) <= 0:
        return 0
    spacing, fall = divisor // common, window.rhs_dilate // common
    first = window.pad_low // common * pow(fall, -1, spacing) % spacing
    period, step = window.lhs_dilate // divisor, window.stride // divisor
    inverse = pow(step, -1, period)
    carry = (step * inverse - 1) // period
    distance = (window.pad_low - window.rhs_dilate * first) // divisor
    outputs = _Line(inverse * fall, -inverse * distance, period)
    inputs = _Line(carry * fall, -carry * distance, step)
    over_outputs, over_inputs = step * (size - 1), period * (input_size - 1)
    begin = max(0, -((over_outputs - distance) // fall))
    end = min(-((first - window.size) // spacing), (distance + over_inputs) // fall + 1)
    if begin >= end:
        return 0
    crossing = min(max(begin, (over_inputs - over_outputs + distance) // fall + 1), end)
    most = outputs.raised(size - 1).floors(begin, crossing) + inputs.raised(input_size - 1).floors(crossing, end)
    crossing = min(max(begin, distance // fall + 1), end)
    return most - inputs.raised(-1).floors(begin, crossing) - outputs.raised(-1).floors(crossing, end)


class _Line(msgspec.Struct, frozen=True):
    """The line ``(slope * u + start) / divisor``."""

    slope: int
    start: int
    divisor: int

    def raised(self, by: int) -> _Line:
        """Return the line that starts higher."""
        return replace(self, start=self.start + by)

    def floors(self, begin: int, end: int) -> int:
        """Sum the whole parts of the line for ``begin <= u < end``, in as many steps as Euclid's algorithm takes."""
        count, total = end - begin, 0
        slope, divisor, start = self.slope, self.divisor, self.start + self.slope * begin
        while count > 0:
            # What is whole in each is summed at once; of what remains, rows are counted instead of columns.
            total += count * (count - 1) // 2 * (slope // divisor) + count * (start // divisor)
            slope, start = slope % divisor, start % divisor
            rows = (slope * count + start) // divisor
            start, slope, divisor, count = (slope * count + start) % divisor, divisor, slope, rows
        return total


class Paired(msgspec.Struct, frozen=True):
    """Of a dimension that pairs off its arrays, whether all pairs meet one input, and whether each has its own."""

    is_outer: bool
    is_batch: bool


@lru_cache(maxsize=1024)
def how_paired(window: WindowDimension, input_size: int, size: int) -> Paired | None:
    """Return how outputs and kernel positions pair off, None if they do not: ``find_pairing`` without the pairs.

    Two pairs that share a position are one step of the other two apart, so that the first of them also meets in a
    dimension that is a step smaller: no pair has to be looked at, of which there may be as many as elements.
    """
    n_pairs = meeting_pairs(window, input_size, size)
    # A pair alone says nothing of what the dimension is, and a window of one tap costs nothing more.
    if n_pairs < 2:
        return None
    stride, hole, reach = window.stride, window.lhs_dilate, window.rhs_dilate
    by_tap, by_output, by_input = gcd(stride, hole), gcd(reach, hole), gcd(stride, reach)
    shared_tap = meeting_pairs(window, input_size - stride // by_tap, size - hole // by_tap)
    fewer = replace(window, size=window.size - hole // by_output)
    if shared_tap or meeting_pairs(fewer, input_size - reach // by_output, size):
        return None
    # Of two that meet one input, the second has the later output and the earlier kernel position.
    skipped = stride // by_input
    later = replace(window, size=window.size - skipped, pad_low=window.pad_low - skipped * reach)
    shared_input = meeting_pairs(later, input_size, size - reach // by_input)
    first = bisect_left(range(input_size), 1, key=lambda place: meeting_pairs(window, place + 1, size))
    return Paired(meeting_pairs(window, first + 1, size) == n_pairs, not shared_input)


@lru_cache(maxsize=1024)
def find_pairing(window: WindowDimension, input_size: int, size: int) -> Pairing | None:
    """Return how outputs and kernel positions pair off, each meeting at most one of the other; None if they do not.

    A dimension in which a single pair meets is left to the windows.
    """
    if how_paired(window, input_size, size) is None:
        return None
    found = _meetings(window, input_size, size)
    meets = [tap for tap in found.taps if tap.first <= tap.last]
    # In the order of outputs the result needs no further sorting.
    pairs = sorted(
        (tap.phase + found.period * tap.first, tap.offset + found.step * tap.first, tap.number) for tap in meets
    )
    outputs, inputs, taps = zip(*pairs, strict=True)
    return Pairing(outputs, inputs, taps)


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
        second = own[met[0] + 1] if n_taps > 1 else replace(first, number=first.number + 1, offset=first.offset + 1)
        chosen = slice(first.number, last.number + 1, second.number - first.number)
        count, spacing = -((number - size) // found.period), second.offset - first.offset
        phases.append(Phase(number, found.period, count, chosen, n_taps, first.offset, spacing, found.step))
    return tuple(phases)
