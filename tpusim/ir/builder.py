"""Builds HLO modules from Python, in the manner of XLA's client library.

    b = Builder("axpy")
    a, x, y = b.parameter(0, "f32[]"), b.parameter(1, "f32[8]"), b.parameter(2, "f32[8]")
    module = b.build(a * x + y)

Every operation of the operation semantics is a method; what XlaBuilder expands into several instructions is expanded
here too. Other opcodes of the text format can be had with ``emit``.

Source: XLA, Operation Semantics, and ``XlaBuilder``.
"""

from __future__ import annotations

from tpusim.ir.builder_base import Callee, Op
from tpusim.ir.builder_collectives import CollectiveMethods
from tpusim.ir.builder_contraction import DotDimensionNumbers

__all__ = ["Builder", "Callee", "DotDimensionNumbers", "Op"]


class Builder(CollectiveMethods):
    """A computation under construction: parameters and operations go in, ``build()`` gives the module.

    Computations that an operation applies are other builders, what they built, or Python functions of ops. Shapes may
    be given in XLA's notation.
    """
