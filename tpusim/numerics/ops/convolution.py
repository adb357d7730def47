"""Values of convolutions: by matrix products of patches with the kernel.

Batches and groups become leading dimensions, dimensions that are no windows are taken out (``semantics.windows`` says
which), and what is left is one product per phase of the windows.

Source: XLA, Operation Semantics, ConvWithGeneralPadding.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tpusim.errors import UnsupportedError
from tpusim.ir.attributes import ConvolutionLabels, Window, WindowDimension
from tpusim.ir.module import Instruction
from tpusim.numerics.cores import Index, cuts, deal
from tpusim.numerics.registry import Array, computes
from tpusim.numerics.site import Site
from tpusim.numerics.values.precision import (
    Arithmetic,
    choose_arithmetic,
    in_passes,
    matmul,
    product_type,
    worthwhile_parts,
)
from tpusim.semantics.windows import Pairing, Phase, find_pairing, find_phases, output_size

_MOST_PATCH_ELEMENTS, _LEAST_ROWS = 1 << 22, 256
"""Patches of more elements are made and multiplied piece by piece: a 7x7 kernel makes 49 copies of the input. Threads
make pieces of their own, of no fewer rows than this."""


class Sliding(NamedTuple):
    """A convolution in order: ``lhs[lead.., batch, spatial.., in]``, ``rhs[lead.., spatial.., in, out]``.

    Its result is ``[lead.., batch, sizes.., out]``; leading dimensions are batches of the whole.
    """

    lhs: Array
    rhs: Array
    windows: tuple[WindowDimension, ...]
    sizes: tuple[int, ...]

    @property
    def n_lead(self) -> int:
        """How many dimensions come before the batch of the lhs."""
        return self.lhs.ndim - len(self.windows) - 2

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of its result."""
        return (*self.lhs.shape[: self.n_lead + 1], *self.sizes, self.rhs.shape[-1])

    def without(self, axis: int, lhs: Array, rhs: Array) -> Sliding:
        """Return the same without one spatial dimension, which ``lhs`` and ``rhs`` have no longer."""
        windows = self.windows[:axis] + self.windows[axis + 1 :]
        return Sliding(lhs, rhs, windows, self.sizes[:axis] + self.sizes[axis + 1 :])


@computes("convolution")
def convolution(site: Site, instruction: Instruction, operands: list[Any]) -> Array:
    """Return the convolution of operand 0 with the kernel in operand 1, holes and padding counting as zeros."""
    if "sparsity=" in instruction.attributes.get("sparsity_config", ""):
        # Which of each block it is, no text says.
        raise UnsupportedError(f"{instruction.name}: expected a dense kernel, found one that stores one of each block")
    arithmetic = choose_arithmetic(site, instruction)
    return in_passes(arithmetic, operands[0], operands[1], partial(convolve, instruction=instruction))


def convolve(arithmetic: Arithmetic, lhs: Array, rhs: Array, instruction: Instruction) -> Array:
    """Return the convolution of two operands of the arithmetic's working type, before its result is rounded."""
    labels: ConvolutionLabels = instruction.attributes["dim_labels"]
    windows = instruction.attributes.get("window", Window()).dimensions
    feature_groups = instruction.attributes.get("feature_group_count", 1)
    batch_groups = instruction.attributes.get("batch_group_count", 1)
    spatial = [str(number) for number in range(len(windows))]
    # All of these are views, with the groups first; what must be copied is decided where the products are made.
    left, right = _ordered(lhs, labels.lhs, ["b", *spatial, "f"]), _ordered(rhs, labels.rhs, [*spatial, "i", "o"])
    left = _split(left, 0, batch_groups) if batch_groups > 1 else _split(left, -1, feature_groups)
    right = np.flip(right, tuple(axis for axis, window in enumerate(windows) if window.reversal))
    right = _split(right, -1, feature_groups * batch_groups)
    sizes = tuple(map(output_size, windows, left.shape[2:-1]))
    result = np.moveaxis(_slide(arithmetic, Sliding(left, right, windows, sizes)), 0, -2)
    # The output's features are the groups and, in each, its columns.
    merged = result.reshape((*result.shape[:-2], result.shape[-2] * result.shape[-1]))
    return _ordered(merged, "".join(["b", *spatial, "f"]), list(labels.output))


def _ordered(array: Array, labels: str, wanted: list[str]) -> Array:
    return array.transpose([labels.index(label) for label in wanted])


def _split(array: Array, axis: int, groups: int) -> Array:
    """Return a view with a dimension cut into ``groups``, whose number comes first."""
    axis %= array.ndim
    sizes = array.shape
    split = array.reshape((*sizes[:axis], groups, sizes[axis] // groups, *sizes[axis + 1 :]))
    return np.moveaxis(split, axis, 0)


def _slide(arithmetic: Arithmetic, problem: Sliding) -> Array:
    """Take dimensions that are no windows out of the problem, one after the other, and slide what is left."""
    # Where nothing is multiplied, sizes may be beyond any array that has elements: nothing of them is gone through.
    if not (problem.lhs.size and problem.rhs.size):
        return np.zeros(problem.shape, product_type(arithmetic))
    input_sizes = problem.lhs.shape[problem.n_lead + 1 : -1]
    dimensions = list(zip(problem.windows, input_sizes, problem.sizes, strict=True))
    for axis, dimension in enumerate(dimensions):
        pairing = find_pairing(*dimension)
        if pairing is not None:
            solve = _outer_dimension if pairing.is_outer else _batch_dimension
            place = problem.n_lead + 1 + axis
            return _spread(solve(arithmetic, problem, axis, pairing), place, pairing.outputs, problem.sizes[axis])
    return _in_phases(arithmetic, problem, [find_phases(*dimension) for dimension in dimensions])


def _outer_dimension(arithmetic: Arithmetic, problem: Sliding, axis: int, pairing: Pairing) -> Array:
    """Solve a problem one of whose spatial dimensions only the kernel has: its taps become further columns."""
    n_lead = problem.n_lead
    # One product with more columns keeps BLAS busier than many with few.
    lhs = problem.lhs.take(pairing.inputs[0], n_lead + 1 + axis)
    rhs = np.moveaxis(_taken(problem.rhs, pairing.taps, n_lead + axis), n_lead + axis, -2)
    flat = rhs.reshape((*rhs.shape[:-2], rhs.shape[-2] * rhs.shape[-1]))
    part = _slide(arithmetic, problem.without(axis, lhs, flat))
    return np.moveaxis(part.reshape((*part.shape[:-1], *rhs.shape[-2:])), -2, n_lead + 1 + axis)


def _batch_dimension(arithmetic: Arithmetic, problem: Sliding, axis: int, pairing: Pairing) -> Array:
    """Solve a problem one of whose spatial dimensions is a batch: it becomes a leading one."""
    n_lead = problem.n_lead
    lhs = np.moveaxis(_taken(problem.lhs, pairing.inputs, n_lead + 1 + axis), n_lead + 1 + axis, 0)
    rhs = np.moveaxis(_taken(problem.rhs, pairing.taps, n_lead + axis), n_lead + axis, 0)
    return np.moveaxis(_slide(arithmetic, problem.without(axis, lhs, rhs)), 0, n_lead + 1 + axis)


def _taken(array: Array, numbers: tuple[int, ...], axis: int) -> Array:
    """Return the numbered positions of one dimension; all of them in order are the array itself."""
    return array if numbers == tuple(range(array.shape[axis])) else array.take(numbers, axis)


def _spread(part: Array, axis: int, outputs: tuple[int, ...], size: int) -> Array:
    """Return zeros of ``size`` in one dimension with the parts at the positions ``outputs``."""
    if outputs == tuple(range(size)):
        return part
    whole = np.zeros((*part.shape[:axis], size, *part.shape[axis + 1 :]), part.dtype)
    whole[(slice(None),) * axis + (list(outputs),)] = part
    return whole


def _in_phases(arithmetic: Arithmetic, problem: Sliding, phases: list[tuple[Phase, ...]]) -> Array:
    """Return the result of a problem all of whose dimensions are windows, phase by phase."""
    lead = problem.n_lead
    combinations = list(product(*phases))
    # Undilated inputs, nearly all there are, have one phase and need no second array for the result.
    if len(combinations) == 1 and tuple(phase.n_outputs for phase in combinations[0]) == problem.sizes:
        return _one_phase(arithmetic, problem, combinations[0])
    # Outputs that no phase reaches see only padding and holes.
    whole = np.zeros(problem.shape, product_type(arithmetic))
    for combination in combinations:
        places = tuple(slice(p.first, p.first + p.period * p.n_outputs, p.period) for p in combination)
        whole[(slice(None),) * (lead + 1) + places] = _one_phase(arithmetic, problem, combination)
    return whole


def _one_phase(arithmetic: Arithmetic, problem: Sliding, phases: tuple[Phase, ...]) -> Array:
    """Return what the outputs of one phase of every dimension sum up: patches times kernel."""
    lead = problem.n_lead
    kernel = problem.rhs[(slice(None),) * lead + tuple(phase.taps for phase in phases)]
    kernel = kernel.reshape((*kernel.shape[:lead], prod(kernel.shape[lead:-1]), kernel.shape[-1]))
    return _patch_product(arithmetic, _patches(problem.lhs, phases, lead), kernel, lead)


def _patches(lhs: Array, phases: tuple[Phase, ...], lead: int) -> Array:
    """Return a view ``[lead.., batch, outputs.., taps.., in]`` of the (padded) lhs."""
    padded = _padded(lhs, phases, lead)
    spatial = padded.strides[lead + 1 : -1]
    outputs, taps = tuple(phase.n_outputs for phase in phases), tuple(phase.n_taps for phase in phases)
    output_strides = tuple(stride * phase.step for stride, phase in zip(spatial, phases, strict=True))
    tap_strides = tuple(stride * phase.spacing for stride, phase in zip(spatial, phases, strict=True))
    sizes = (*padded.shape[: lead + 1], *outputs, *taps, padded.shape[-1])
    strides = (*padded.strides[: lead + 1], *output_strides, *tap_strides, padded.strides[-1])
    # Overlapping patches cost no memory until they are multiplied.
    return as_strided(padded, sizes, strides, writeable=False)


def _padded(lhs: Array, phases: tuple[Phase, ...], lead: int) -> Array:
    """Return the lhs with its spatial dimensions cut to, or filled with zeros up to, what the phases reach."""
    spans = [(phase.start, phase.start + phase.reach) for phase in phases]
    sizes = lhs.shape[lead + 1 : -1]
    inside = tuple(slice(max(0, low), max(0, high)) for low, high in spans)
    part = lhs[(slice(None),) * (lead + 1) + inside]
    # Without padding the patches can be views of the operand itself.
    if all(low >= 0 and high <= size for (low, high), size in zip(spans, sizes, strict=True)):
        return part
    whole = np.zeros((*lhs.shape[: lead + 1], *(high - low for low, high in spans), lhs.shape[-1]), lhs.dtype)
    places = (
        slice(max(0, -low), max(0, -low) + n) for (low, _), n in zip(spans, part.shape[lead + 1 : -1], strict=True)
    )
    whole[(slice(None),) * (lead + 1) + tuple(places)] = part
    return whole


def _patch_product(arithmetic: Arithmetic, patches: Array, kernel: Array, lead: int) -> Array:
    """Return ``[lead.., batch, outputs.., out]``, from a view of the patches and ``[lead.., taps * in, out]``."""
    n_rows = (patches.ndim - lead) // 2
    rows, columns = patches.shape[lead : lead + n_rows], kernel.shape[-1]
    shape = (*patches.shape[:lead], *rows, columns)
    # With a single tap the patches are the input itself, which is there anyway; others are copies.
    if prod(patches.shape[lead + n_rows : -1]) == 1:
        left = patches.reshape((*patches.shape[:lead], prod(rows), kernel.shape[-2]))
        return matmul(arithmetic, left, kernel).reshape(shape)
    total = np.empty(shape, product_type(arithmetic))

    def take(pieces: Iterator[Index]) -> None:
        for piece in pieces:
            at = (slice(None),) * lead + piece
            left = patches[at].reshape((*patches.shape[:lead], -1, kernel.shape[-2]))
            total[at] = matmul(arithmetic, left, kernel).reshape(total[at].shape)

    deal(take, list(cuts(rows, _rows_at_once(patches.size, prod(rows), columns))))
    return total


def _rows_at_once(size: int, n_rows: int, columns: int) -> int:
    """Return how many rows of patches to make at a time."""
    most = max(1, n_rows * _MOST_PATCH_ELEMENTS // max(1, size))
    return min(most, max(_LEAST_ROWS, -(-n_rows // worthwhile_parts(size * columns))))
