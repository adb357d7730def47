"""What operations of MLIR in the body of a Pallas kernel mean, where an opcode of HLO means the same.

Source: MLIR, dialects ``arith`` and ``math``.
"""

from __future__ import annotations

from typing import Final


def _by_opcode(text: str) -> dict[str, str]:
    rows = (row.split() for row in text.strip().splitlines())
    return {name: opcode for opcode, *names in rows for name in names}


OPCODES: Final = _by_opcode(
    """
    abs math.absf math.absi
    add arith.addf arith.addi
    and arith.andi
    atan2 math.atan2
    cbrt math.cbrt
    ceil math.ceil
    cosh math.cosh
    cosine math.cos
    count-leading-zeros math.ctlz
    divide arith.divf arith.divsi arith.divui
    erf math.erf
    exponential math.exp
    exponential-minus-one math.expm1
    floor math.floor
    is-finite math.isfinite
    log math.log
    log-plus-one math.log1p
    maximum arith.maximumf arith.maxsi arith.maxui
    minimum arith.minimumf arith.minsi arith.minui
    multiply arith.mulf arith.muli
    negate arith.negf
    or arith.ori
    popcnt math.ctpop
    power math.powf math.ipowi
    remainder arith.remf arith.remsi arith.remui
    round-nearest-afz math.round
    round-nearest-even math.roundeven
    rsqrt math.rsqrt
    shift-left arith.shli
    shift-right-arithmetic arith.shrsi
    shift-right-logical arith.shrui
    sine math.sin
    sinh math.sinh
    sqrt math.sqrt
    subtract arith.subf arith.subi
    tan math.tan
    tanh math.tanh
    xor arith.xori
    """
)
"""Opcodes of HLO by the operations that mean the same on each element."""

UNSIGNED: Final = frozenset("arith.divui arith.maxui arith.minui arith.remui arith.uitofp arith.extui".split())
"""Operations that take integers for unsigned ones; MLIR's integers have no sign of their own."""
