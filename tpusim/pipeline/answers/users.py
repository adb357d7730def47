"""What uses an array, as a program by itself: made of words such as ``dot:1``, or taken out of a program."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import count
from types import MappingProxyType
from typing import NamedTuple

from msgspec import structs

from tpusim.build.base import Op
from tpusim.errors import ConfigError, did_you_mean
from tpusim.ir.module import Computation, Instruction, Module
from tpusim.ir.ops import (
    CONTROL_FLOW,
    COPIES,
    ELEMENTWISE,
    HAS_EFFECTS,
    REARRANGES,
    SAME_VALUE,
    SLICES,
    TUPLES,
    VIEWS,
    async_phase,
)
from tpusim.pipeline.modules import Builder
from tpusim.pipeline.schedules import front_end_form
from tpusim.semantics.contexts import BodyContext, BranchContext, CallContext, Context, EntryContext, Ways
from tpusim.semantics.marks import with_mark
from tpusim.semantics.trip_counts import count_trips, is_unchanged
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

_FREE, _USUAL = "auto", "default"


class Part(NamedTuple):
    """A module before any compiler in which an array is used, its first argument, and how often it runs.

    ``results`` says of each result whether it may lie as it likes (``auto``) or as programs hand results on.
    """

    module: Module
    results: tuple[str, ...]
    times: int = 1

    def laid_out(self, order: Sequence[int]) -> Module:
        """Return the module with the array in an order of its dimensions, the fastest first.

        What it is used with lies as the users want it, and so do results.
        """
        others = [_FREE] * (len(self.module.entry.parameters) - 1)
        arguments = ["{" + ",".join(map(str, order)) + "}", *others]
        attributes = with_mark(self.module.attributes, "arg_layout_modes", ";".join(arguments))
        return structs.replace(
            self.module, attributes=with_mark(attributes, "out_layout_modes", ";".join(self.results))
        )


class Fixed(NamedTuple):
    """The order of dimensions, the fastest first, that a custom call leaves its operands and results."""

    by: str
    order: tuple[int, ...]


class Users(NamedTuple):
    """What uses an ``array``, by the computations in which it does, and the names of that, how often it runs beside.

    ``ops`` has by name how often it runs; ``fixed`` says what leaves the array one layout.
    """

    array: ArrayShape
    parts: tuple[Part, ...]
    names: tuple[str, ...]
    ops: Mapping[str, int] = MappingProxyType({})
    fixed: Fixed | None = None


class Use(NamedTuple):
    """A use in words: dimensions of the array, and a number whose meaning is the use's."""

    dimensions: tuple[int, ...]
    amount: int


class Array(NamedTuple):
    """The array in a program that is being built, and what gives it further arguments by sizes and type."""

    op: Op
    shape: ArrayShape
    argument: Callable[[Sequence[int], str], Op]


_Rule = Callable[[Array, Use], Op]


class _Known(NamedTuple):
    """What a use makes of an array, and whether a number beside its dimensions says anything."""

    make: _Rule
    takes_amount: bool


USES: dict[str, _Known] = {}
"""By its word what a use is."""


def _use(word: str, takes_amount: bool = False) -> Callable[[_Rule], _Rule]:
    def enter(rule: _Rule) -> _Rule:
        USES[word] = _Known(rule, takes_amount)
        return rule

    return enter


def stated_users(array: ArrayShape, uses: Sequence[str]) -> Users:
    """Return the program of uses in words: ``NAME``, ``NAME:DIMENSIONS`` or ``NAME:DIMENSIONS:COUNT``.

    ``elementwise``; ``reduce:0,1`` sums over dimensions; ``dot:1:512`` sums products with a matrix of 512 columns (of
    as many as rows by default); ``gather:0:64`` takes 64 rows along a dimension, ``slice:0:8`` eight neighbours, at a
    place that is known at run time; ``transpose:1,0`` writes the array anew. Raises ConfigError for anything else.
    """
    builder, numbers = Builder("users"), count()

    def argument(sizes: Sequence[int], dtype: str) -> Op:
        return builder.parameter(next(numbers), f"{dtype}[{','.join(map(str, sizes))}]")

    given = Array(argument(array.dimensions, str(array.dtype)), array, argument)
    made = [rule(given, use) for rule, use in (_parsed(text, array) for text in uses)]
    results = tuple(_USUAL if text.startswith("transpose") else _FREE for text in uses)
    return Users(array, (Part(builder.build(builder.tuple(made)), results),), tuple(uses))


_NUMBER = re.compile(r"\d{1,9}")


def _parsed(text: str, array: ArrayShape) -> tuple[_Rule, Use]:
    word, _, rest = text.partition(":")
    listed, _, amount = rest.partition(":")
    if word not in USES:
        raise ConfigError(f"used-by: expected one of {', '.join(USES)}, found {text!r}{did_you_mean(word, USES)}")
    numbers = [part for part in (*listed.split(","), amount) if part]
    dimensions = tuple(int(part) for part in listed.split(",") if _NUMBER.fullmatch(part))
    is_plain = all(map(_NUMBER.fullmatch, numbers)) and len(set(dimensions)) == len(dimensions)
    if not is_plain or any(d >= array.rank for d in dimensions) or amount == "0":
        raise ConfigError(f"used-by: expected dimensions of {array}, as in {word}:0, found {text!r}")
    if rest and word == "elementwise":
        raise ConfigError(f"used-by: elementwise takes all dimensions, and names none, found {text!r}")
    if not dimensions and word != "elementwise":
        raise ConfigError(f"used-by: expected a dimension of {array}, as in {word}:0, found {text!r}")
    if amount and not USES[word].takes_amount:
        raise ConfigError(f"used-by: {word} takes dimensions and no number beside them, found {text!r}")
    return USES[word].make, Use(dimensions, int(amount or 0))


@_use("elementwise")
def _elementwise(array: Array, _use: Use) -> Op:
    return array.op.builder.add(array.op, array.op)


@_use("reduce")
def _reduce(array: Array, use: Use) -> Op:
    builder = array.op.builder
    return builder.reduce(array.op, builder.constant(0, array.shape.dtype), _sum, use.dimensions)


def _sum(x: Op, y: Op) -> Op:
    return x.builder.add(x, y)


@_use("dot", takes_amount=True)
def _dot(array: Array, use: Use) -> Op:
    sizes = [array.shape.dimensions[d] for d in use.dimensions]
    other = array.argument((*sizes, use.amount or sizes[-1]), str(array.shape.dtype))
    summed = {"lhs_contracting_dimensions": use.dimensions, "rhs_contracting_dimensions": tuple(range(len(sizes)))}
    return array.op.builder.dot_general(array.op, other, summed)


@_use("gather", takes_amount=True)
def _gather(array: Array, use: Use) -> Op:
    (row, *others), sizes = use.dimensions, array.shape.dimensions
    if others:
        raise ConfigError(f"used-by: expected one dimension along which rows are taken, found {use.dimensions}")
    if not sizes[row]:
        raise ConfigError(f"used-by: expected a dimension that has rows, found {row} of {array.shape}")
    return array.op.builder.gather(
        array.op,
        array.argument((use.amount or sizes[row], 1), "s32"),
        offset_dims=tuple(range(1, len(sizes))),
        collapsed_slice_dims=(row,),
        slice_sizes=tuple(1 if d == row else size for d, size in enumerate(sizes)),
        start_index_map=(row,),
        index_vector_dim=1,
    )


@_use("slice", takes_amount=True)
def _slice(array: Array, use: Use) -> Op:
    sizes = [(use.amount or 1) if d in use.dimensions else size for d, size in enumerate(array.shape.dimensions)]
    for d, (size, whole) in enumerate(zip(sizes, array.shape.dimensions, strict=True)):
        if size > whole:
            raise ConfigError(f"used-by: expected at most {whole} along dimension {d} of {array.shape}, found {size}")
    return array.op.builder.dynamic_slice(array.op, [array.argument((), "s32") for _ in sizes], sizes)


@_use("transpose")
def _transpose(array: Array, use: Use) -> Op:
    if len(use.dimensions) != array.shape.rank:
        found = f"found {len(use.dimensions)} of {array.shape.rank}"
        raise ConfigError(f"used-by: expected each dimension of {array.shape} once, in its new order, {found}")
    return array.op.builder.transpose(array.op, use.dimensions)


def users_in(module: Module, name: str) -> Users:
    """Return what uses an array of a module, through views and copies, and before any compiler what is element-wise.

    That is what uses it where it is made, and in the loops, calls and branches that it is handed to, as often as these
    run; what a loop carries is in one place for all its trips, of which one counts where nothing says how many there
    are, and every branch counts as taken. ``NAME#0`` is the first element of a tuple. What other devices do with it is
    left out. Raises ConfigError if nothing of that name is an array, or nothing is left that uses it.
    """
    home, own = _arrays(module, name)
    shape = home[own[0]].shape
    assert isinstance(shape, ArrayShape)
    parts, names, ops = [], [], dict[str, int]()
    made_by = home[instruction_of(name)]
    made_by = home[made_by.operands[0]] if made_by.opcode == "get-tuple-element" else made_by
    fixed = Fixed(made_by.name, shape.actual_layout.minor_to_major) if _FIXED in made_by.attributes else None
    module = structs.replace(module, computations=tuple(map(_without_barriers, module.computations)))
    for place in _places(module, module[home.name], own):
        used = list(_used(place, module.is_scheduled))
        uses = [one.name for one in used if not _hands_on(one, module.is_scheduled)]
        fixed = fixed or _fixed(place, used, shape)
        if not all(_is_carried(one.opcode) for one in used):
            uses = uses or [used[-1].name]
            ops |= dict.fromkeys(uses, place.times)
            alone = front_end_form(_alone(module, place, used))
            results = len(alone.entry.root.operands) if isinstance(alone.entry.root.shape, TupleShape) else 1
            parts.append(Part(alone, (_FREE,) * results, place.times))
            names += [f"{one} ({place.times:,} times)" if place.times > 1 else one for one in uses]
    if not parts:
        raise ConfigError(f"{module.name}: expected an array that some kernel uses, found {name!r}")
    return Users(shape, tuple(parts), tuple(names), ops, fixed)


_FIXED = "operand_layout_constraints"
_MOST_NAMED = 8


def instruction_of(name: str) -> str:
    """Return the instruction that an array is of: ``fusion.1`` of ``%fusion.1``, and of its element ``fusion.1#0``."""
    return name.removeprefix("%").partition("#")[0]


def _arrays(module: Module, name: str) -> tuple[Computation, list[str]]:
    """Return the computation of an array, or of an element of a tuple, and what it is called there."""
    plain, number = instruction_of(name), name.partition("#")[2]
    home = module.homes.get(plain)
    if home is None or not (isinstance(home[plain].shape, TupleShape) or not number):
        known = [one.name for one in module.entry if isinstance(one.shape, ArrayShape)]
        raise ConfigError(f"{module.name}: expected the name of an array, found {name!r}{did_you_mean(name, known)}")
    if isinstance(home[plain].shape, ArrayShape):
        return home, [plain]
    taken = [one for one, _ in home.users.get(plain, ()) if one.opcode == "get-tuple-element"]
    taken.sort(key=lambda one: int(one.attributes["index"]))
    parts = {f"{plain}#{one.attributes['index']}": one for one in taken if isinstance(one.shape, ArrayShape)}
    if f"{plain}#{number}" not in parts:
        listed = [f"{part} ({one.shape})" for part, one in parts.items()][:_MOST_NAMED]
        hint = "one of its elements: " + ", ".join(listed) if parts else "another: nothing takes an element of it"
        raise ConfigError(f"{module.name}: expected an array, found the tuple {name!r}; name {hint}")
    return home, [one.name for one in taken if one.attributes["index"] == int(number)]


def _fixed(place: _Place, used: Sequence[Instruction], array: ArrayShape) -> Fixed | None:
    """Return how a custom call wants an array to lie that it takes as it is, or copied to another memory."""
    same = {one.name for one in used if _is_carried(one.opcode) and _lies_as(one.shape, array)} | {*place.names}
    for one in used:
        for name, shape in zip(one.operands, one.attributes.get(_FIXED, ()), strict=False):
            if name in same and isinstance(shape, ArrayShape):
                return Fixed(one.name, shape.actual_layout.minor_to_major)
    return None


def _lies_as(shape: Shape, array: ArrayShape) -> bool:
    if not isinstance(shape, ArrayShape) or shape.dimensions != array.dimensions:
        return False
    return shape.actual_layout.minor_to_major == array.actual_layout.minor_to_major


def _without_barriers(computation: Computation) -> Computation:
    """Return a computation that takes past its barriers what these hand on: they order, and lay nothing out."""
    past: dict[str, str] = {}
    for one in computation:
        barrier = computation[one.operands[0]] if one.opcode == "get-tuple-element" else None
        if barrier is not None and barrier.opcode == "opt-barrier":
            made = computation[barrier.operands[0]]
            if made.opcode == "tuple":
                name = made.operands[one.attributes["index"]]
                past[one.name] = past.get(name, name)
    return structs.replace(computation, instructions=_with_operands(computation, past)) if past else computation


def _with_operands(instructions: Iterable[Instruction], names: Mapping[str, str]) -> tuple[Instruction, ...]:
    """Return instructions that take other operands in the place of those that are named."""
    return tuple(structs.replace(one, operands=tuple(names.get(o, o) for o in one.operands)) for one in instructions)


class _Place(NamedTuple):
    """A computation in which an array is, what it is called there, and how often that runs."""

    context: Context
    names: list[str]
    times: int


def _places(module: Module, home: Computation, names: list[str]) -> list[_Place]:
    """Return the computations in which an array is: its own, and those of loops, calls and branches that it enters."""
    entered = EntryContext(module) if home is module.entry else Context(module, home, {})
    found: list[_Place] = []
    ways: Ways[tuple[str, ...]] = Ways()
    ways.enter(entered, 1, tuple(names))
    # What calls a computation stands behind it.
    for computation in reversed(module.computations):
        for context, carried, times in ways.into(computation):
            found.append(_Place(context, list(carried), times))
            for inner in _entered(module, found[-1]):
                ways.enter(inner.context, inner.times, tuple(inner.names))
    first, *others = found
    # Told in the order of the text.
    return [one for place in (first, *reversed(others)) for one in _by_shape(place)]


def _by_shape(place: _Place) -> Iterator[_Place]:
    """Yield a place for each memory that an array is in there: what reads it in one cannot take it from another."""
    shapes = {name: place.context.computation[name].shape for name in place.names}
    for shape in dict.fromkeys(shapes.values()):
        yield place._replace(names=[name for name in place.names if shapes[name] == shape])


def _entered(module: Module, place: _Place) -> Iterator[_Place]:
    """Yield the computations that an array is handed to, and enter the names under which it comes out of loops."""
    computation = place.context.computation
    held: list[tuple[str, int | None]] = [(name, None) for name in place.names]
    for name, at in held:
        for user, position in computation.users.get(name, ()):
            # Not a bitcast: what it makes is another array, of sizes of its own.
            if user.opcode in _SAME_ARRAY:
                held.append((user.name, at))
            elif user.opcode == "tuple" and at is None:
                held.append((user.name, position))
            elif user.opcode == "get-tuple-element" and user.attributes["index"] == at:
                held.append((user.name, None))
                place.names.append(user.name)
            elif user.opcode == "while" and at is not None:
                body = _body(module, place, user, at)
                yield body
                if is_unchanged(body.context.computation, at):
                    held.append((user.name, at))
            elif user.opcode == "call":
                context = CallContext(place.context, user.attributes["to_apply"], user.operands)
                yield _Place(context, _names_in(context, position, at), place.times)
            elif user.opcode == "conditional" and position:
                branches = user.called_computations
                branch = branches[position - 1], position - 1, len(branches)
                context = BranchContext(place.context, user, *branch)
                yield _Place(context, _names_in(context, 0, at), place.times)


def _body(module: Module, place: _Place, loop: Instruction, at: int) -> _Place:
    """Return the body of a loop as a place of one element of the loop's tuple."""
    context = place.context
    counted = count_trips(module, loop, context.known_of(loop.operands), context.budget)
    trips = 1 if counted is None else counted.trips
    body = BodyContext(context, loop, trips)
    return _Place(body, _names_in(body, 0, at), place.times * trips)


def _names_in(context: Context, position: int, at: int | None) -> list[str]:
    """Return what a computation calls an array that is one of its parameters, or an element of one."""
    parameter = context.computation.parameters[position].name
    parts = context.computation.users.get(parameter, ())
    return [parameter] if at is None else [part.name for part, _ in parts if part.attributes.get("index") == at]


def _used(place: _Place, is_scheduled: bool) -> Iterator[Instruction]:
    """Yield what uses a value, and what uses that where it is the value in another form."""
    carried = set(place.names)
    for instruction in place.context.computation:
        if carried.isdisjoint(instruction.operands) or instruction.opcode in _NOT_ALONE:
            continue
        if _hands_on(instruction, is_scheduled):
            carried.add(instruction.name)
        yield instruction


_NOT_ALONE = CONTROL_FLOW | TUPLES | HAS_EFFECTS
_SAME_VALUE = VIEWS | COPIES
_SAME_ARRAY = SAME_VALUE | COPIES


def _hands_on(instruction: Instruction, is_scheduled: bool) -> bool:
    # A part of an array is read where the part is used.
    if _is_carried(instruction.opcode) or instruction.opcode in SLICES:
        return True
    return not is_scheduled and instruction.opcode in ELEMENTWISE | REARRANGES


def _is_carried(opcode: str) -> bool:
    return opcode in _SAME_VALUE or bool(async_phase(opcode))


def _alone(module: Module, place: _Place, used: Sequence[Instruction]) -> Module:
    """Return a module of nothing but some instructions, of which the array is the first argument."""
    home, (name, *others) = place.context.computation, place.names
    used = _with_operands(used, dict.fromkeys(others, name))
    own = {one.name for one in used}
    needed = dict.fromkeys(operand for one in used for operand in one.operands if operand not in own)
    constants = [home[one] for one in needed if home[one].opcode == "constant"]
    given = [name, *(one for one in needed if one != name and home[one] not in constants)]
    arguments = [Instruction(one, home[one].shape, "parameter", immediate=at) for at, one in enumerate(given)]
    ends = [one for one in used if not any(one.name in other.operands for other in used)]
    result = TupleShape(tuple(one.shape for one in ends))
    root = Instruction("results", result, "tuple", tuple(one.name for one in ends))
    entry = Computation("users", (*arguments, *constants, *used, root), "results")
    called = module.called_from(used)
    inner = tuple(one for one in module.computations if one.name in called)
    attributes = {"is_scheduled": True} if module.is_scheduled else {}
    return Module(module.name, (*inner, entry), "users", attributes, module.tables)
