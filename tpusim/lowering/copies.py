"""Asynchronous copies and slices between memories, transfers to the host, channels, and what only waits for them."""

from __future__ import annotations

from typing import Any

from tpusim.ir.module import Instruction
from tpusim.ir.ops import ASYNC_DONES, FREE, TRANSFERS, VIEWS, async_phase
from tpusim.lowering.scope import Scope, rule
from tpusim.program.steps import AnyStep, ChannelTransfer, Copy, HostTransfer, Wait
from tpusim.semantics.device_groups import channel_pairs
from tpusim.semantics.infer.types import parts
from tpusim.semantics.memory_spaces import bytes_in_hbm, space_of
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import Shape, leaves


@rule(*FREE)
def lower_nothing(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower what only names values: it takes no time."""
    return ()


@rule("copy-start")
def lower_copy_start(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower the start of a copy; the first element of its result is the target."""
    source = scope.operand(instruction, 0).shape
    # Unlike the general start, whose operands come first, this one leads with the target.
    return (copy_step(scope, instruction, source, parts(instruction.shape)[0]),)


def copy_step(scope: Scope, instruction: Instruction, source: Shape, target: Shape, moved: Shape | None = None) -> Copy:
    """Return the copy from the memory of ``source`` to that of ``target``; ``moved`` is what moves, else target."""
    return Copy(
        **scope.label(instruction, "async copy"),
        n_bytes=float(physical_bytes(moved or target)),
        # A copy moves one array, so its first leaf speaks for all.
        source_space=space_of((*leaves(source), source)[0]),
        target_space=space_of((*leaves(target), target)[0]),
        is_prefetch="cross_program_prefetch_index" in instruction.attributes,
    )


@rule("async-update", *ASYNC_DONES)
def lower_wait(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower the end of an asynchronous instruction: the core waits for its start's work."""
    # An update hands the operation on; only the end is waited for.
    if async_phase(instruction.opcode) == "update":
        return ()
    started = _start_of(scope, instruction)
    if not started.opcode.endswith("-start") and started.opcode not in TRANSFERS:
        scope.notes.warn(f"{instruction.name!r} ends what was started outside its computation: no wait is simulated")
        return ()
    return (Wait(**scope.label(instruction, "wait"), needs=(started.name,)),)


def _start_of(scope: Scope, instruction: Instruction) -> Instruction:
    """Return the instruction that started what ``instruction`` ends, through updates and tuples, if it is here."""
    found = scope.operand(instruction, 0)
    while found.opcode in _HANDED_ON or async_phase(found.opcode) == "update":
        source = scope.operand(found, 0)
        if found.opcode == "get-tuple-element" and source.opcode == "tuple":
            source = scope.operand(source, found.attributes["index"])
        found = source
    return found


_HANDED_ON = VIEWS | {"get-tuple-element"}


@rule("infeed", "outfeed")
def lower_feed(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower infeed and outfeed: bytes over the link to the host."""
    # The core waits for feeds: they have one total order (XLA, Infeed).
    to_host = instruction.opcode == "outfeed"
    shape = scope.operand(instruction, 0).shape if to_host else instruction.shape
    return (
        HostTransfer(
            **scope.label(instruction, instruction.opcode),
            n_bytes=float(physical_bytes(shape)),
            hbm_bytes=float(bytes_in_hbm(shape)),
            to_host=to_host,
        ),
    )


@rule(*TRANSFERS)
def lower_channel(scope: Scope, instruction: Instruction) -> tuple[AnyStep, ...]:
    """Lower a send or a receive, to the host or to another device; both run beside the core."""
    is_send = instruction.opcode == "send"
    payload = scope.operand(instruction, 0).shape if is_send else parts(instruction.shape)[0]
    message: dict[str, Any] = {"n_bytes": float(physical_bytes(payload)), "hbm_bytes": float(bytes_in_hbm(payload))}
    label = scope.label(instruction, "host transfer" if is_host_transfer(instruction) else instruction.opcode)
    if is_host_transfer(instruction):
        return (HostTransfer(**label, **message, to_host=is_send, is_async=True),)
    channel_id = instruction.attributes.get("channel_id", 0)
    pairs = channel_pairs(scope.module, instruction)
    return (ChannelTransfer(**label, **message, channel_id=channel_id, is_send=is_send, pairs=pairs),)


def is_host_transfer(instruction: Instruction) -> bool:
    """Return whether the other end of a send or receive is the host."""
    return instruction.attributes.get("is_host_transfer") is True
