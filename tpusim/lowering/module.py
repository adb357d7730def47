"""From a scheduled HLO module and a chip to a lowered program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING, cast

from msgspec import structs

from tpusim.allocation.liveness import TABLE_ENTRY_BYTES, table_size
from tpusim.allocation.plan import plan_buffers
from tpusim.cost.models.memories import needs_places
from tpusim.files import utf8_text
from tpusim.hardware.chip import Chip
from tpusim.hardware.units import HOST
from tpusim.ir.frames import SourceFrames
from tpusim.ir.module import Module
from tpusim.ir.ops import DEVICE_IDS, TRANSFERS

# Importing the modules of rules fills the table.
from tpusim.lowering import collectives, control, copies, custom_calls, fusions
from tpusim.lowering.addresses import with_addresses
from tpusim.lowering.alone import Alone, is_beside
from tpusim.lowering.control import lower_computation
from tpusim.lowering.kernels import kernel as kernels
from tpusim.lowering.kernels.known import Known
from tpusim.lowering.scope import RULES, Notes, Scope
from tpusim.nesting import depth_first
from tpusim.program.device_order import moved_to
from tpusim.program.module import Program, inner_lists
from tpusim.program.steps import AnyStep, Call, ChannelTransfer, Collective, Kernel, Steps, Wait
from tpusim.semantics.contexts import EntryContext
from tpusim.semantics.device_groups import stated_order
from tpusim.semantics.infer.types import subshape
from tpusim.semantics.marks import TOPOLOGY, mark_of
from tpusim.semantics.memory_spaces import space_of
from tpusim.semantics.verify.module import Verified
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import Shape, TupleShape, leaves

if TYPE_CHECKING:
    from tpusim.program.buffers import Buffer

# One rather than a guess: the report then shows a single trip, which readers can multiply.
DEFAULT_TRIPS = 1
"""Trips of a loop whose count the program does not tell."""

__all__ = [
    "DEFAULT_TRIPS",
    "RULES",
    "collectives",
    "control",
    "copies",
    "custom_calls",
    "fusions",
    "kernels",
    "lower_module",
]


Price = Callable[[Program], int]
"""How long a program takes on the slice that it is for, in picoseconds."""


def lower_module(
    verified: Verified, chip: Chip, default_trips: int = DEFAULT_TRIPS, price: Price | None = None
) -> Program:
    """Return the program that a module is on ``chip``: one step per scheduled instruction that takes time.

    ``default_trips`` stands in for trip counts that cannot be found; each such loop is named in the program's warnings.
    ``price`` is asked of copies and communication in branches that only data tell apart, each as a program of its own:
    the longest branch is taken. Without it only their kernels count.
    """
    module, notes = verified.module, Notes()
    if not module.is_scheduled:
        # Not refused: operands stand before their users in any text, so its order is one that could run.
        notes.warn("the module is not scheduled: instructions run one by one in the order of the text, unfused")
    if numbered := _asks_for_numbers(module):
        notes.warn(
            f"the module does not say how many devices it is for, on which {numbered!r} depends: one is taken"
            " (serialised HLO has no such counts, its text has)"
        )
    frames = SourceFrames(module)
    alone = Alone(chip, lambda step: price(_by_itself(step, module, chip))) if price else None
    scope = Scope(EntryContext(module), chip, notes, default_trips, frames, Known(module.likeness), alone=alone)
    steps = lower_computation(scope)
    places = needs_places(chip)
    # The schedule copies arguments out of host memory where it wants them; they have no place in HBM before.
    argument_bytes = sum(device_bytes(parameter.shape) for parameter in module.entry.parameters)
    output_bytes = device_bytes(module.entry.root.shape) + table_bytes(module.entry.root.shape, chip)
    shared_bytes = alias_bytes(module)
    plan = plan_buffers(
        module,
        chip.tuple_table_granule_bytes,
        frames,
        room_bytes=lambda: chip.hbm.available_bytes - (argument_bytes + output_bytes - shared_bytes),
        vmem_bytes=_vmem_bytes(steps),
        with_addresses=places,
    )
    program = Program(
        name=module.name,
        chip=chip.name,
        steps=with_addresses(steps, plan.addresses) if places else steps,
        # As a tuple to whoever reads them.
        buffers=cast("tuple[Buffer, ...]", plan.buffers),
        schedule=plan.schedule,
        temp_bytes=plan.temp_bytes,
        argument_bytes=argument_bytes,
        output_bytes=output_bytes,
        alias_bytes=shared_bytes,
        device_count=scope.module.device_count,
        unsupported=tuple(notes.estimates.values()),
        warnings=tuple(notes.warnings),
        # Without its folder, so that a program is the same wherever it was read.
        file=utf8_text(PurePath(module.source.name).name) if module.source else "",
    )
    return _placed(program, module)


def _placed(program: Program, module: Module) -> Program:
    """Return the program of a module, or of a part of it, with the slice and the order of devices that it states."""
    order = stated_order(module)
    placed = moved_to(program, order) if order else program
    return structs.replace(placed, topology=mark_of(module, TOPOLOGY), device_order=order)


def _by_itself(step: AnyStep, module: Module, chip: Chip) -> Program:
    """Return a program of nothing but a step of a module, on its devices if it needs others."""
    ends = (Wait(name="end", opcode="", needs=(step.name,)),) if is_beside(step) else ()
    program = Program(name=module.name, chip=chip.name, steps=(step, *ends))
    if not isinstance(step, Collective | ChannelTransfer):
        return program
    return _placed(structs.replace(program, device_count=module.device_count), module)


def _vmem_bytes(steps: Steps) -> dict[str, int]:
    """Return what kernels on the core take of its VMEM while they run, by name."""
    found: dict[str, int] = {}
    for step in depth_first(steps, _on_the_core):
        if isinstance(step, Kernel) and (n_bytes := step.vmem_bytes):
            # What is told apart by where it is called from is a step each time.
            found[step.name] = max(n_bytes, found.get(step.name, 0))
    return found


def _on_the_core(step: AnyStep) -> dict[int, Steps]:
    """Return the lists that a step holds, by their identities, if the core runs them."""
    # Processors beside it, which run what is called asynchronously, have memories of their own.
    is_beside = isinstance(step, Call) and step.is_async
    return {} if is_beside else {id(listed): listed for listed in inner_lists(step)}


def _asks_for_numbers(module: Module) -> str:
    """Return an instruction that depends on the number of its device, of a module that says nothing of devices."""
    if module.attributes.keys() & {"num_partitions", "replica_count"}:
        return ""
    asking = [one for one in module.computations if not _NUMBERED.isdisjoint(one.opcodes)]
    found = (one for each in asking for one in each if one.opcode in _NUMBERED)
    return next((one.name for one in found if not one.attributes.get("is_host_transfer")), "")


_NUMBERED = DEVICE_IDS | TRANSFERS


def device_bytes(shape: Shape) -> int:
    """Return the physical bytes of a shape's arrays, those in host memory left out."""
    return sum([physical_bytes(leaf) for leaf in leaves(shape) if space_of(leaf) != HOST])


def alias_bytes(module: Module) -> int:
    """Return the physical bytes of the results that ``input_output_alias`` writes over arguments."""
    result, parameters = module.entry.root.shape, module.entry.parameters
    found = 0
    for alias in module.attributes.get("input_output_alias", ()):
        written = subshape(result, alias.output_index)
        taken = subshape(parameters[alias.parameter].shape, alias.parameter_index)
        # What lies on the host's side is no memory of the device, and an index that leads nowhere the verifier's.
        if written is not None and taken is not None:
            found += min(device_bytes(written), device_bytes(taken))
    return found


def table_bytes(shape: Shape, chip: Chip) -> int:
    """Return the bytes of the tables of addresses that a tuple result needs, nested tuples included."""
    if not isinstance(shape, TupleShape):
        return 0
    own = table_size(shape, chip.tuple_table_granule_bytes)
    # A program that was folded to constants has untiled layouts, and a table of 8-byte addresses without padding.
    if all(not (leaf.layout and leaf.layout.tiles) for leaf in leaves(shape)):
        own = 2 * TABLE_ENTRY_BYTES * len(shape.elements)
    return own + sum(table_bytes(element, chip) for element in shape.elements)
