"""Builds HLO modules from Python, in the manner of XLA's client library.

    b = Builder("axpy")
    a, x, y = b.parameter(0, "f32[]"), b.parameter(1, "f32[8]"), b.parameter(2, "f32[8]")
    module = b.build(a * x + y)

Every operation of the operation semantics is a method; what XlaBuilder expands into several instructions is expanded
here too. Other opcodes of the text format can be had with ``emit``.

Source: XLA, Operation Semantics, and ``XlaBuilder``.
"""

from __future__ import annotations

from tpusim.build.arguments import checks_arguments
from tpusim.build.base import Callee, Op
from tpusim.build.collectives import CollectiveMethods
from tpusim.build.contraction import ContractionMethods, DotDimensionNumbers
from tpusim.build.control import ControlMethods
from tpusim.build.elementwise import ElementwiseMethods
from tpusim.build.host import HostMethods
from tpusim.build.reduction import ReductionMethods

__all__ = ["Builder", "Callee", "DotDimensionNumbers", "Op"]


@checks_arguments
class Builder(ElementwiseMethods, ContractionMethods, ReductionMethods, ControlMethods, HostMethods, CollectiveMethods):
    """A computation under construction: parameters and operations go in, ``build()`` gives the module.

    Computations that an operation applies are other builders, what they built, or Python functions of ops. Shapes may
    be given in XLA's notation.
    """


# Methods that XLA's builder, or Python, calls otherwise than the opcode.
_METHODS = dict(
    pair.split(":")
    for pair in (
        "and:logical_and bitcast-convert:bitcast_convert_type convert:convert_element_type convolution:conv cosine:cos"
        " count-leading-zeros:clz divide:div exponential:exp exponential-minus-one:expm1 log-plus-one:log1p maximum:max"
        " minimum:min multiply:mul negate:neg not:logical_not opt-barrier:optimization_barrier or:logical_or"
        " popcnt:population_count power:pow recv-done:recv remainder:rem reverse:rev rng:rng_uniform"
        " round-nearest-afz:round send-done:send sine:sin stochastic-convert:stochastic_convert_type subtract:sub"
        " topk:top_k while:while_"
    ).split()
)


def method_of(opcode: str) -> str | None:
    """Return the name of the method that makes an opcode, or None if only ``emit`` does."""
    name = _METHODS.get(opcode, opcode.replace("-", "_"))
    return name if hasattr(Builder, name) else None
