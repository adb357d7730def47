"""What the values inside kernels take, computed once for those that are alike: of thousands a few hundred differ."""

from __future__ import annotations

from collections.abc import Hashable, Sequence

import msgspec

from tpusim.cost.models.operations import Table, operations_of
from tpusim.cost.operations.table import wide_array
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import VECTOR
from tpusim.ir.ops import CHANGES_TYPE, FREE, INDEXED, PRODUCTS
from tpusim.lowering.kernels.asked import flops_of
from tpusim.lowering.kernels.in_turn import chain_of, latency_cycles, pieces_of
from tpusim.lowering.kernels.vector import WORK_RULES, Site, is_waiting, vector_work
from tpusim.lowering.scope import Scope
from tpusim.program.work import Work
from tpusim.semantics.demand.inlining import Inner

_ELSEWHERE = FREE | PRODUCTS
"""Opcodes whose work is none, or that of the arrays."""


class ValueCost(msgspec.Struct, frozen=True):
    """What it takes to make a value: its work, how long that takes one after another, and operations before padding.

    ``chain_cycles`` are of all its registers, which do not wait for each other; steps of which each needs all registers
    of the one before take ``steps_cycles``. What is not done by the registers of its largest array, as rows that are
    addressed are not, has ``pieces`` of its own that do not wait.
    """

    work: Work
    chain_cycles: float
    flops: float
    steps_cycles: float = 0.0
    pieces: float = 0.0

    def times(self, count: float, opcode: str, chip: Chip) -> ValueCost:
        """Return what it takes to make the value of an opcode so many times."""
        work = self.work * count
        chain_cycles, steps_cycles = _chain_cycles(opcode, work, chip), self.steps_cycles * count
        return ValueCost(work, chain_cycles, self.flops * count, steps_cycles, self.pieces * count)


def value_costs(scope: Scope, values: Sequence[Inner], shares: Sequence[float]) -> dict[int, ValueCost]:
    """Return by position what the values inside a kernel take, made once: those of which ``shares`` are needed."""
    known, table, found = scope.known, scope.chip.vector_ops.ops, {}
    for at, item in enumerate(values):
        opcode = item.instruction.opcode
        if shares[at] and not item.in_place and opcode not in _ELSEWHERE:
            key: Hashable = opcode, item.instruction.shape
            # Of an operation of the table no more than that counts, unless it takes long elements and makes others.
            if opcode in WORK_RULES or opcode not in table or (opcode in CHANGES_TYPE and _is_wide(item)):
                key = known.form(item.computation, item.instruction)
            found[at] = known.values.get(key) or _new_cost(scope, item, key)
    return found


def _is_wide(item: Inner) -> bool:
    """Return whether a value, or what it is made of, has elements that no register holds."""
    shapes = item.computation.shapes
    return wide_array((item.instruction.shape, *[shapes[name] for name in item.instruction.operands])) is not None


def _new_cost(scope: Scope, item: Inner, key: Hashable) -> ValueCost:
    """Return what a value takes, and keep it under what it has in common with those that are alike."""
    opcode, before, costs = item.instruction.opcode, scope.notes.count, operations_of(scope.chip)
    flops = flops_of(scope.module, item.computation, item.instruction)
    site = Site(scope.module, item.computation, scope.chip, scope.notes)
    work = costs.work(item.instruction, vector_work(site, item.instruction), scope.chip)
    steps_cycles = chain_of(item.computation, item.instruction, scope.chip)
    pieces = pieces_of(site, item.instruction)
    made = ValueCost(work, _chain_cycles(opcode, work, scope.chip), flops, steps_cycles, pieces)
    # Where a slice begins stands further off; a model of a user's own may look at names; what has no rule is told of
    # each by its own.
    if opcode not in INDEXED and scope.notes.count == before and type(costs) is Table:
        scope.known.values[key] = made
    return made


def _chain_cycles(opcode: str, work: Work, chip: Chip) -> float:
    """Return how long a value takes if all operations of its expansion wait for each other."""
    # Those for the elements of a matrix of roots, or for the butterflies of a pass, do not.
    if opcode == "fft":
        return 0.0
    if is_waiting(opcode):
        # Its slots are mostly empty ones, and what they wait for is in it: of all of them one is a cycle.
        slots = work.ops.get(VECTOR, 0.0)
        return latency_cycles(work.ops | {VECTOR: 0.0}, chip) + slots / chip.vpu.alu_slots
    return latency_cycles(work.ops, chip)
