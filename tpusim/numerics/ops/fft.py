"""Values of discrete Fourier transforms over the last one, two or three dimensions.

Forward transforms are not scaled, inverse ones by 1/N per dimension. The real dimension, the innermost, is transformed
first in RFFT and last in IRFFT, which reads no imaginary part where a real signal has none.

Source: XLA, Operation Semantics, Fft.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tpusim.ir.module import Instruction
from tpusim.numerics.registry import array_shape, computes, element_type, zeros
from tpusim.numerics.site import Site
from tpusim.semantics.products import transform_lengths

_TRANSFORMS: dict[str, Callable[..., Any]] = {
    "FFT": np.fft.fftn,
    "IFFT": np.fft.ifftn,
    "RFFT": np.fft.rfftn,
    "IRFFT": np.fft.irfftn,
}


@computes("fft")
def fft(site: Site, instruction: Instruction, operands: list[Any]) -> Any:
    """Return the transform over the last ``len(fft_length)`` dimensions, in the operand's precision."""
    # NumPy refuses transforms of no elements at all, which are no elements again (or, inversely, zeros).
    if operands[0].size == 0 or array_shape(instruction.shape).element_count == 0:
        return zeros(instruction.shape)
    lengths = transform_lengths(instruction.attributes, array_shape(site.operand(instruction, 0).shape))
    transform = _TRANSFORMS[instruction.attributes["fft_type"]]
    # NumPy takes the real dimension to be the last of these, as XLA does.
    axes = tuple(range(-len(lengths), 0))
    return transform(operands[0], lengths, axes).astype(element_type(instruction), copy=False)
