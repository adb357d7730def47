"""Whether a module holds together: names, operands, calls, order, devices. Nothing else is checked before."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tpusim.errors import ConfigError, ProgramError
from tpusim.hardware.pod import parse_topology
from tpusim.ir.module import Computation, Module
from tpusim.limits import DEVICES
from tpusim.semantics.device_groups import stated_order
from tpusim.semantics.infer.rules import check_form
from tpusim.semantics.infer.site import broken
from tpusim.semantics.marks import DEVICE_ORDER, TOPOLOGY, mark_of
from tpusim.semantics.verify.view import Call, Finding, View, at


def check_structure(view: View) -> Iterator[Finding]:
    """Yield what makes a module no module; the other checks rely on there being nothing."""
    module = view.module
    forms: set[tuple[object, ...]] = set()
    if module.entry_name not in module.by_name:
        yield Finding(broken("computation_c1", f"the entry {module.entry_name!r}"))
    if len(module.by_name) != len(module.computations):
        yield Finding(broken("computation_c5", f"one name twice in {module.name!r}"))
    yield from _check_device_counts(module)
    places = {one.name: place for place, one in reversed(list(enumerate(module.computations)))}
    for computation in view.computations:
        yield from _check_computation(computation)
        yield from _check_forms(computation, forms)
        yield from _check_calls(computation, places)


def _check_device_counts(module: Module) -> Iterator[Finding]:
    """Check how many devices there are before anything asks what each of them does."""
    counts = {"replica_count": module.replica_count, "num_partitions": module.partition_count}
    for name, count in counts.items():
        if not 1 <= count <= DEVICES.most // max(1, min(counts.values())):
            yield Finding(broken("module_c2", f"{name}={count}"), attribute=name)
    stated, order = mark_of(module, DEVICE_ORDER), stated_order(module)
    if stated and (len(order) != module.device_count or sorted(order) != list(range(len(order)))):
        yield Finding(broken("module_c3", repr(stated)), attribute="frontend_attributes")
    topology = mark_of(module, TOPOLOGY)
    if topology and not _is_slice(topology):
        yield Finding(broken("module_c4", repr(topology)), attribute="frontend_attributes")


def _is_slice(text: str) -> bool:
    try:
        parse_topology(text)
    except ConfigError:
        return False
    return True


def _check_computation(computation: Computation) -> Iterator[Finding]:
    """Check names, the root, parameters and the order of instructions, which is that of execution if scheduled."""
    if len(computation.by_name) != len(computation.instructions):
        yield Finding(broken("instruction_c5", f"one name twice in {computation.name!r}"), computation)
    if computation.root_name not in computation.by_name:
        yield Finding(broken("computation_c3", f"{computation.root_name!r} in {computation.name!r}"), computation)
    numbers = [i.immediate for i in computation.instructions if i.opcode == "parameter"]
    if set(numbers) != set(range(len(numbers))):
        yield Finding(broken("parameter_c1", f"{numbers[:20]} in {computation.name!r}"), computation)
    defined: set[str] = set()
    for instruction in computation.instructions:
        if not defined.issuperset(instruction.operands):
            for name in instruction.operands:
                if name not in defined:
                    yield at(Call(computation, instruction), "schedule_c1", f"{name!r} not before it")
        if "control-predecessors" in instruction.attributes:
            late = [name for name in instruction.attributes["control-predecessors"] if name not in defined]
            if late:
                yield at(Call(computation, instruction), "schedule_c2", f"{late[0]!r} not before it")
        defined.add(instruction.name)


def _check_forms(computation: Computation, known: set[tuple[object, ...]]) -> Iterator[Finding]:
    """Check opcodes, operand counts and attributes, each combination once."""
    for instruction in computation.instructions:
        # Programs have few forms and many instructions of each.
        form = (instruction.opcode, len(instruction.operands), *instruction.attributes)
        if form in known:
            continue
        try:
            check_form(instruction)
            known.add(form)
        except ProgramError as error:
            yield Finding(error, computation, instruction)


def _check_calls(computation: Computation, places: Mapping[str, int]) -> Iterator[Finding]:
    """Check that what a computation calls stands before it, which it does not itself."""
    own = places[computation.name]
    for instruction, names in computation.calls:
        call = Call(computation, instruction)
        for name in names:
            if name not in places:
                yield at(call, "computation_c1", repr(str(name)))
            elif places[name] >= own:
                yield at(call, "computation_c2", f"{str(name)!r} not before {computation.name!r}")
