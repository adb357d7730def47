"""An oracle: walks a scheduled module in the order in which it runs, and says what is read that was written over.

A naive twin, from the definition alone: an array is whole from when it is written until something else is written to
one of its bytes. Loops run three times, and of a conditional each branch. In HBM arrays lie where the plan of buffers
says. What is in other memories has no addresses there: of such a module the walk is made once more, with all in HBM.
Scalars, which the scalar core keeps, are taken to lie by themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations, zip_longest

from tpusim.allocation.forwarding import branch_names
from tpusim.allocation.plan import plan_buffers
from tpusim.ir.frames import SourceFrames
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import CONTROL_FLOW, ELEMENTWISE, IN_PLACE, RELAYOUTS, VIEWS, async_parts, long_form
from tpusim.semantics.aliasing import behind_views, in_place_operands
from tpusim.shapes.address import physical_bytes
from tpusim.shapes.shape import ArrayShape, TupleShape, leaves
from tpusim.source import SourceText
from tpusim.text.parser import parse_module

TRIPS = 3
"""The second trip reads what the first left behind, the third what a circle of two has brought back."""


def overwrites(module: Module) -> list[str]:
    """Return what is wrong with where the arrays of a scheduled module lie and when they are written."""
    text = module.text
    in_hbm = re.sub(r"\{:S\(\d+\)\}|:?S\(\d+\)", "", text)
    return _faults(module) or (_faults(parse_module(SourceText("all in HBM", in_hbm))) if in_hbm != text else [])


def _faults(module: Module) -> list[str]:
    """Return what is wrong with the arrays that have addresses."""
    walk = _Walk(module)
    results = walk.run(module.entry, [])
    walk.read("the caller", results)
    # The scalar core keeps scalars, whoever has them besides.
    results = [result for result in results if result.place.begin >= 0]
    for one, other in combinations(results, 2):
        if one.place.overlaps(other.place):
            walk.report(f"two results, {one.maker} and {other.maker}, share memory")
    for result in results:
        walk.report_kept(f"the result {result.maker} lies in", result.place)
    return list(walk.faults)


@dataclass(frozen=True)
class Place:
    """A stretch of memory: its first byte, below 0 where nobody says which that is, and how many there are."""

    begin: int
    n_bytes: int

    def overlaps(self, other: Place) -> bool:
        """Return whether the two have a byte in common."""
        return self.begin < other.begin + other.n_bytes and other.begin < self.begin + self.n_bytes


@dataclass(frozen=True)
class Array:
    """An array as it was written at one time: what made it, where it lies, and the number of the write."""

    maker: str
    place: Place
    write: int


@dataclass
class _Frame:
    """One run of a computation: the arrays of each value, and what is read from a start on until it is done."""

    computation: Computation
    arguments: Sequence[list[Array]]
    values: dict[str, list[Array]] = field(default_factory=dict)
    under_way: dict[str, list[Array]] = field(default_factory=dict)

    def operands(self, instruction: Instruction) -> list[Array]:
        """Return the arrays of all operands one after the other."""
        return [array for name in instruction.operands for array in self.values[name]]


class _Walk:
    """The state of memory while a module runs: which arrays are whole, and which have to stay as they are."""

    def __init__(self, module: Module) -> None:
        self.module = module
        plan = plan_buffers(module, 4096, SourceFrames(module), room_bytes=lambda: 2**40, with_addresses=True)
        self._addresses = plan.addresses
        self.whole: set[Array] = set()
        self.faults: dict[str, None] = {}
        self._way: list[str] = []
        self._writes = 0
        self._below = 0
        self._kept: list[Array] = []
        # Before anything runs there are the arguments and the constants, each in memory of its own.
        self.given: dict[str, list[Array]] = {}
        for instruction in _given(module):
            self.given[instruction.name] = self.write(instruction.name, self.places(instruction))
            self._kept += self.given[instruction.name]
        for parameter in module.entry.parameters:
            donated = _donated(module, parameter)
            for array in [array for at, array in enumerate(self.given[parameter.name]) if at in donated]:
                self._kept.remove(array)

    def run(self, computation: Computation, arguments: Sequence[list[Array]]) -> list[Array]:
        """Run a computation, and return the arrays of its result."""
        self._way.append(computation.name)
        frame = _Frame(computation, arguments)
        for instruction in computation:
            rule = _RULES.get(long_form(instruction.opcode), _kernel)
            frame.values[instruction.name] = rule(self, frame, instruction)
            self._check_places(instruction.name, frame.values[instruction.name])
        self._way.pop()
        return frame.values[computation.root_name]

    def _check_places(self, name: str, arrays: Iterable[Array]) -> None:
        """Report what does not lie where the plan has it."""
        for array, address in zip(arrays, self._addresses.get(name, ()), strict=False):
            if address is not None and array.place.begin >= 0 and array.place.begin != address:
                self.report(f"{name} is said to be at {address}, but {array.maker} has left it at {array.place.begin}")

    def places(self, instruction: Instruction) -> list[Place]:
        """Return where the arrays of an instruction lie if it makes them."""
        found = []
        shapes = leaves(instruction.shape)
        # The plan leaves out the flags of what is asynchronous, which stand at the end.
        for shape, address in zip_longest(shapes, self._addresses.get(instruction.name, ())):
            n_bytes = physical_bytes(shape)
            if address is None or shape.element_count <= 1:
                self._below -= n_bytes
                address = self._below
            found.append(Place(address, n_bytes))
        return found

    def write(self, name: str, places: Iterable[Place]) -> list[Array]:
        """Write an array to each place; what had a byte of it is no longer whole."""
        made = []
        for place in places:
            self.report_kept(f"{name} is written over", place)
            self._writes += 1
            made.append(Array(name, place, self._writes))
            self.whole = {array for array in self.whole if not array.place.overlaps(place)} | {made[-1]}
        return made

    def read(self, name: str, arrays: Iterable[Array]) -> None:
        """Report which of the arrays that something reads are no longer whole."""
        for array in arrays:
            if array not in self.whole:
                self.report(f"{name} reads {array.maker}, which was written over")

    def report_kept(self, what: str, place: Place) -> None:
        """Report what happens to a place in which there are constants, or arguments that the caller keeps."""
        for array in self._kept:
            if array.place.overlaps(place):
                self.report(f"{what} {array.maker}, which has to stay as it is")

    def report(self, fault: str) -> None:
        """Note what is wrong, once however often it happens."""
        self.faults["/".join([*self._way, fault])] = None


def _given(module: Module) -> Iterator[Instruction]:
    """Yield the arguments of a module, and the constants of all computations that run."""
    yield from module.entry.parameters
    todo = [module.entry]
    while todo:
        computation = todo.pop()
        yield from (i for i in computation if i.opcode == "constant")
        run = [i for i in computation if i.opcode in CONTROL_FLOW]
        todo += [module[name] for i in run for name in i.called_computations]


def _donated(module: Module, parameter: Instruction) -> set[int]:
    """Return which arrays of a parameter, by their number in it, the caller gives away."""
    attributes = module.attributes
    given = [*attributes.get("input_output_alias", ()), *attributes.get("buffer_donor", ())]
    indices = [one.parameter_index for one in given if one.parameter == parameter.immediate]
    return {at for at, index in enumerate(_indices(parameter.shape)) if index in indices}


def _indices(shape: object, index: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Yield the index of each array in a shape."""
    if isinstance(shape, TupleShape):
        for at, element in enumerate(shape.elements):
            yield from _indices(element, (*index, at))
    else:
        yield index


_Rule = Callable[[_Walk, _Frame, Instruction], list[Array]]
"""What runs an instruction, and returns its arrays."""


def _kernel(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """All operands are read, and all results written, of which some lie where operands do."""
    walk.read(instruction.name, frame.operands(instruction))
    return _write(walk, frame, instruction, walk.places(instruction))


def _write(walk: _Walk, frame: _Frame, instruction: Instruction, places: list[Place]) -> list[Array]:
    """Write results, each over what is read element by element if it is over an operand at all."""
    for at, place in enumerate(places):
        for number, name in enumerate(instruction.operands):
            over = [array.place for array in frame.values[name] if array.place.overlaps(place)]
            if over and not (over == [place] and _in_step(walk.module, frame.computation, instruction, number, at)):
                walk.report(f"{instruction.name} is written over {name} before it has read it")
    return walk.write(instruction.name, places)


def _in_step(module: Module, computation: Computation, instruction: Instruction, number: int, at: int) -> bool:
    """Return whether one operand of an instruction is read in the order in which one result is written."""
    if instruction.opcode in ("sort", "all-reduce"):
        return number == at
    if instruction.opcode == "custom-call":
        return in_place_operands(module, instruction).get(at) == number
    if instruction.opcode != "fusion":
        return _keeps_order(computation, instruction, instruction.operands[number])
    fused = module[instruction.attributes["calls"]]
    result = behind_views(fused, fused.operands_of(fused.root)[at] if fused.root.opcode == "tuple" else fused.root)
    way = _made_of(fused, result.name)
    touched = {fused.parameters[number].name}
    for inner in fused:
        taken = touched.intersection(inner.operands)
        # What goes to another result may be moved or summed up on its way.
        is_free = inner.name not in way and inner.opcode in RELAYOUTS | IN_PLACE | {"reduce"}
        if not is_free and not all(_keeps_order(fused, inner, name) for name in taken):
            return False
        # An update in place changes what it has to, and is there for others to read before and after that.
        if taken and not (inner is result and inner.opcode in IN_PLACE):
            touched.add(inner.name)
    return True


def _keeps_order(computation: Computation, instruction: Instruction, name: str) -> bool:
    """Return whether each element of a result is made of the one of an operand that is stored at its place."""
    opcode = (async_parts(instruction.opcode) or (instruction.opcode, ""))[0]
    if opcode in VIEWS or opcode == "tuple":
        return True
    operand, result = computation[name].shape, instruction.shape
    if opcode in IN_PLACE:
        is_whole = operand == result and opcode == "dynamic-update-slice"
        return name not in instruction.operands[1:] or is_whole
    if opcode not in ELEMENTWISE | {"copy"}:
        return False
    assert isinstance(operand, ArrayShape)
    assert isinstance(result, ArrayShape)
    return operand.actual_layout.minor_to_major == result.actual_layout.minor_to_major


def _made_of(computation: Computation, name: str) -> set[str]:
    """Return the name of a value, and of all that it is made of."""
    found, todo = {name}, [name]
    while todo:
        new = set(computation[todo.pop()].operands) - found
        found |= new
        todo += new
    return found


def _copy(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """Onto itself it changes nothing."""
    (source,) = frame.operands(instruction)
    is_same = walk.places(instruction) == [source.place] and _in_step(walk.module, frame.computation, instruction, 0, 0)
    return [source] if is_same else _kernel(walk, frame, instruction)


def _start(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """The results are written from now on, while the operands are read; both are elements of what is returned."""
    operands = frame.operands(instruction)
    walk.read(instruction.name, operands)
    made = _write(walk, frame, instruction, walk.places(instruction)[len(operands) :])
    frame.under_way[instruction.name] = [array for array in operands if array in walk.whole]
    return operands + made


def _copy_start(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """As any start, but that the result stands before the operand."""
    (source,) = frame.under_way[instruction.name] = frame.operands(instruction)
    walk.read(instruction.name, [source])
    place, _, flag = walk.places(instruction)
    target, done = walk.write(instruction.name, [place, flag])
    return [target, source, done]


def _done(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """What has been read until now has to be whole."""
    (start,) = frame.computation.operands_of(instruction)
    walk.read(start.name, frame.under_way[start.name])
    arrays = frame.values[start.name]
    begin = 0 if start.opcode == "copy-start" else len(frame.operands(start))
    return arrays[begin : begin + len(leaves(instruction.shape))]


def _element(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """Some of the arrays of a tuple."""
    (whole,) = frame.computation.operands_of(instruction)
    assert isinstance(whole.shape, TupleShape)
    elements, at = whole.shape.elements, instruction.attributes["index"]
    begin = sum(len(leaves(element)) for element in elements[:at])
    return frame.values[whole.name][begin : begin + len(leaves(elements[at]))]


def _parameter(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """What the computation is given, the entry from outside."""
    number = int(str(instruction.immediate))
    return frame.arguments[number] if frame.arguments else walk.given[instruction.name]


def _while(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """What the body returns it is given again; it may be left after any trip."""
    state = frame.operands(instruction)
    for _ in range(TRIPS):
        walk.run(walk.module[instruction.attributes["condition"]], [state])
        state = walk.run(walk.module[instruction.attributes["body"]], [state])
    walk.run(walk.module[instruction.attributes["condition"]], [state])
    return state


def _conditional(walk: _Walk, frame: _Frame, instruction: Instruction) -> list[Array]:
    """One of the branches runs, nobody knows which: whole is what none of them writes over."""
    chosen, *operands = instruction.operands
    walk.read(instruction.name, frame.values[chosen])
    before, left, results = walk.whole, [], []
    for name, operand in zip(branch_names(instruction), operands, strict=True):
        walk.whole = before
        results.append(walk.run(walk.module[name], [frame.values[operand]]))
        walk.read(f"who takes the result of {name}", results[-1])
        left.append(walk.whole)
    walk.whole = set.intersection(*left)
    made: dict[tuple[Array, ...], Array] = {}
    for place, arrays in zip(walk.places(instruction), zip(*results, strict=True), strict=True):
        if len(set(arrays)) == 1:
            made[arrays] = arrays[0]
        elif arrays not in made:
            (made[arrays],) = walk.write(instruction.name, [place])
    return [made[arrays] for arrays in zip(*results, strict=True)]


_RULES: dict[str, _Rule] = {
    **dict.fromkeys(VIEWS, lambda walk, frame, instruction: frame.values[instruction.operands[0]]),
    **dict.fromkeys(("all-gather-start", "async-start", "collective-permute-start"), _start),
    **dict.fromkeys(("all-gather-done", "async-done", "collective-permute-done", "copy-done"), _done),
    "call": lambda walk, frame, instruction: walk.run(
        walk.module[instruction.attributes["to_apply"]], [frame.values[name] for name in instruction.operands]
    ),
    "conditional": _conditional,
    "constant": lambda walk, frame, instruction: walk.given[instruction.name],
    "copy": _copy,
    "copy-start": _copy_start,
    "get-tuple-element": _element,
    "parameter": _parameter,
    "tuple": lambda walk, frame, instruction: frame.operands(instruction),
    "while": _while,
}
"""How opcodes run that are no kernels, or more than one."""
