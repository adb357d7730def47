"""Whether starts and dones of asynchronous operations belong together."""

from __future__ import annotations

from collections.abc import Iterator

from tpusim.ir.module import Computation, Instruction
from tpusim.ir.ops import OWN_ASYNC_OPCODES, TRANSFER_DONES, TRANSFERS, TUPLES, VIEWS, async_phase
from tpusim.semantics.infer.async_ops import find_async_state
from tpusim.semantics.infer.control import frontend_attributes
from tpusim.semantics.infer.types import plain
from tpusim.semantics.verify.view import Call, Finding, View, at, checks, users_of
from tpusim.shapes.shape import TupleShape, compatible

# send and recv are starts in themselves: there is no send-start.
_DONE_OF = {(opcode if opcode in TRANSFERS else f"{opcode}-start"): f"{opcode}-done" for opcode in OWN_ASYNC_OPCODES}
_START_OF = {done: start for start, done in _DONE_OF.items()}
_PASSED_ON_OR_SENT = TRANSFERS | TRANSFER_DONES | TUPLES | VIEWS
_MAIN_THREAD = "main"


@checks
def _check_pairs(view: View) -> Iterator[Finding]:
    """Check operations with asynchronous forms of their own: each start has one user, its done."""
    for call in view.all_of(frozenset(_DONE_OF)):
        if _is_wrapped_root(view, call):
            continue
        users = _real_users(call)
        # A loop may carry a transfer, which then passes through a tuple.
        carried = ("tuple",) if call.instruction.opcode in TRANSFERS else ()
        if [user.opcode for user in users] not in ([_DONE_OF[call.instruction.opcode]], list(carried)) or not users:
            yield at(call, "pair_c1", ", ".join(user.opcode for user in users) or "no user")
    for call in view.all_of(frozenset(_START_OF)):
        start = call.computation.by_name[call.instruction.operands[0]]
        expected = _START_OF[call.instruction.opcode]
        carried = ("get-tuple-element",) if expected in TRANSFERS else ()
        if start.opcode not in (expected, *carried):
            yield at(call, "pair_c2", f"{start.opcode!r} {start.name!r}")


def _real_users(call: Call) -> list[Instruction]:
    """Return the users of a value but those that only order others after it."""
    return [user for user in users_of(call) if user.attributes.get("custom_call_target") != "control_dep"]


def _is_wrapped_root(view: View, call: Call) -> bool:
    """Return whether a transfer is what an asynchronous start wraps, so that the start's done waits for it."""
    if call.instruction.opcode not in TRANSFERS or call.computation.root_name != call.instruction.name:
        return False
    callers = view.callers.get(call.computation.name, ())
    return any(caller.instruction.opcode == "async-start" for caller in callers)


@checks
def _check_chains(view: View) -> Iterator[Finding]:
    """Check that asynchronous values go from a start, by updates, to one done."""
    for call in view.all_of(frozenset(filter(async_phase, view.opcodes))):
        yield from _check_link(view, call, async_phase(call.instruction.opcode))


def _check_link(view: View, call: Call, phase: str) -> Iterator[Finding]:
    instruction = call.instruction
    if phase != "done":
        users = _real_users(call)
        misused = [user for user in users if instruction.name in user.operands[1:]]
        if len(users) != 1 or misused or async_phase(users[0].opcode) not in ("update", "done"):
            yield at(call, "async_c8", ", ".join(user.opcode for user in users) or "no user")
    if phase == "start":
        yield from _check_wrapped(view, call)
        return
    before = call.computation.by_name[instruction.operands[0]]
    if async_phase(before.opcode) not in ("start", "update"):
        yield at(call, "async_c9", f"{before.opcode!r} {before.name!r}")
        return
    if phase == "update":
        return
    start = before
    # This ends, as operands stand before their users: the structure has been checked.
    while async_phase(start.opcode) == "update":
        start = call.computation.by_name[start.operands[0]]
    if async_phase(start.opcode) == "start":
        yield from _check_done(view, call, before, start)


def _check_done(view: View, call: Call, before: Instruction, start: Instruction) -> Iterator[Finding]:
    # The short form of a call names what it calls; others have no computation that is written down.
    name = start.attributes.get("to_apply" if start.opcode == "call-start" else "calls", "")
    wrapped = view.module.by_name.get(str(name))
    if wrapped is None:
        return
    if not compatible(call.instruction.shape, wrapped.root.shape):
        yield at(call, "async_c10", f"{plain(call.instruction.shape)} for {plain(wrapped.root.shape)}")
    state = find_async_state(before.shape)
    bound = TupleShape(tuple(parameter.shape for parameter in wrapped.parameters))
    # Where there is no such state, the rule of the operation before has said so.
    if state is not None and not compatible(state[0], bound):
        yield at(call, "async_c13", f"{plain(state[0])} of {len(wrapped.parameters)} parameters")


def _check_wrapped(view: View, call: Call) -> Iterator[Finding]:
    """Check the wrapped computation of a start: its thread, and that it is one operation."""
    wrapped = view.module.by_name.get(str(call.instruction.attributes.get("calls", "")))
    if wrapped is None:
        return
    thread = call.instruction.attributes.get("async_execution_thread", _MAIN_THREAD)
    if thread != wrapped.execution_thread:
        yield at(call, "async_c11", f"{thread!r} and {wrapped.execution_thread!r}")
    # What runs on another thread (a host, a SparseCore) may be a program of any size.
    if wrapped.execution_thread == _MAIN_THREAD and not _may_be_wrapped(call, wrapped):
        yield at(call, "async_c12", f"{len(wrapped.instructions)} instructions in {wrapped.name!r}")


def _may_be_wrapped(call: Call, wrapped: Computation) -> bool:
    """Return whether a computation is one operation, one that passes values on, transfers alone, or a marked group."""
    others = {i.opcode for i in wrapped.instructions if i.name != wrapped.root_name}
    return (
        others - {"parameter"} <= {"get-tuple-element"}
        or (others | {wrapped.root.opcode}) - {"parameter"} <= _PASSED_ON_OR_SENT
        or "_collectives_group" in frontend_attributes(call.instruction.attributes)
    )
