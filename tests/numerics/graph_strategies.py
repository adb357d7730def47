"""Random HLO graphs with a bound, known in advance, on how far two right implementations may be apart.

Every float stays within [-1, 1] and carries the error that rounding may have given it: that of its operands times the
slope of the function, and a few ulps of its own. Errors so grow by a sum and not by a chain of luck. What jumps
(floor, comparisons, conversions to integers) only takes values that all implementations agree on, whose error is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
from hypothesis import strategies as st

from tpusim import Builder
from tpusim.build.builder import DotDimensionNumbers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tpusim.build.builder import Op
    from tpusim.ir.module import Module

    Step = Callable[["Graph", "Value"], "Value"]

FLOATS = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-8}
"""Float types and the distance of their numbers just above 1."""

INTEGERS = ("s32", "u8", "s8")
# Of what is further apart nothing more is computed.
WORST = {"f32": 1e-3, "f64": 1e-9, "bf16": 0.2}
NUMPY = {"f32": "float32", "f64": "float64", "s32": "int32", "u8": "uint8", "s8": "int8", "pred": "bool"}
LARGEST = {"s32": 31, "u8": 8, "s8": 7, "pred": 0}
MOST_ELEMENTS = 256
# XLA's approximations of functions and ours are each right to a few ulps.
FUNCTION_ULPS = 16


@dataclass(frozen=True)
class Value:
    """An array of a graph; ``error`` bounds what two implementations may differ by, 0 where they may not."""

    op: Op
    error: float = 0.0

    @property
    def sizes(self) -> tuple[int, ...]:
        """Its dimensions."""
        return self.op.shape.dimensions

    @property
    def dtype(self) -> str:
        """The name of its element type."""
        return self.op.shape.dtype.name

    @property
    def family(self) -> str:
        """What steps ask for: ``float``, ``integer`` or ``pred``."""
        return "float" if self.dtype in FLOATS else "integer" if self.dtype in INTEGERS else "pred"


@dataclass(frozen=True)
class Example:
    """A module, inputs for it, and the error that each of its outputs may have."""

    module: Module
    inputs: list[Any]
    errors: list[float]


@dataclass
class Graph:
    """A graph that grows: its builder, what has been computed so far, and where decisions come from."""

    draw: Any
    random: np.random.Generator
    b: Builder = field(default_factory=lambda: Builder("graph"))
    values: list[Value] = field(default_factory=list)
    inputs: list[Any] = field(default_factory=list)

    def choose(self, options: Sequence[Any]) -> Any:
        """Return one of the options."""
        return self.draw(st.sampled_from(list(options)))

    def number(self, least: int, most: int) -> int:
        """Return an integer, both ends included."""
        return self.draw(st.integers(least, most))

    def parameter(self, dtype: str, sizes: Sequence[int]) -> Value:
        """Return a new input with values of its own."""
        text = f"{dtype}[{','.join(map(str, sizes))}]"
        self.inputs.append(self._array(dtype, tuple(sizes)))
        return self.add(self.b.parameter(len(self.inputs) - 1, text))

    def add(self, op: Op, error: float = 0.0) -> Value:
        """Take a value in."""
        self.values.append(Value(op, error))
        return self.values[-1]

    def pick(self) -> Value:
        """Return a value on which more may be computed."""
        return self.choose([v for v in self.values if v.error <= WORST.get(v.dtype, 0)])

    def like(self, value: Value, dtype: str | None = None) -> Value:
        """Return a value of the same sizes, and of the same type unless another is given."""
        wanted = (dtype or value.dtype, value.sizes)
        found = [v for v in self.values if (v.dtype, v.sizes) == wanted and v.error <= WORST.get(v.dtype, 0)]
        # Values made before are preferred, since depth is what a graph is for.
        return self.choose(found) if found and self.number(0, 3) else self.parameter(*wanted)

    def certain(self, value: Value) -> Value:
        """Return the value, or an input like it if implementations may differ on the value."""
        return self.parameter(value.dtype, value.sizes) if value.error else value

    def scalar(self, value: Value, number: float) -> Op:
        """Return a constant of the value's type."""
        return self.b.constant(number, value.dtype)

    def result(self, op: Op, error: float, ulps: float = 0) -> Value:
        """Take in a result; a float is brought back to [-1, 1], and may be wrong by some ulps more."""
        dtype = op.shape.dtype.name
        if dtype not in FLOATS:
            return self.add(op)
        low, high = self.b.constant(-1.0, dtype), self.b.constant(1.0, dtype)
        return self.add(self.b.clamp(low, op, high), error + ulps * FLOATS[dtype])

    def sizes(self, rank: int, most: int = 4) -> list[int]:
        """Return that many sizes."""
        return [self.number(1, most) for _ in range(rank)]

    def _array(self, dtype: str, sizes: tuple[int, ...]) -> Any:
        """Return input values: eighths with many ties, or anything; small integers, or all there are."""
        is_coarse = self.random.integers(2)
        if dtype in FLOATS:
            grid = self.random.integers(-8, 9, sizes) / 8
            values = grid if is_coarse else self.random.uniform(-1, 1, sizes)
            return np.asarray(values).astype(NUMPY.get(dtype, ml_dtypes.bfloat16))
        if dtype == "pred":
            return np.asarray(self.random.integers(0, 2, sizes)).astype(bool)
        least, most = np.iinfo(NUMPY[dtype]).min, np.iinfo(NUMPY[dtype]).max
        bounds = (0 if least == 0 else -3, 4) if is_coarse else (least, int(most) + 1)
        return np.asarray(self.random.integers(*bounds, sizes)).astype(NUMPY[dtype])


STEPS: dict[str, dict[str, Step]] = {"float": {}, "integer": {}, "pred": {}}
"""By the family of what it takes first, and by its name: a function that adds a value to a graph."""


def step(*families: str) -> Callable[[Step], Step]:
    """Enter a step for families of types, all if none are named."""

    def enter(function: Step) -> Step:
        for family in families or STEPS:
            STEPS[family][function.__name__] = function
        return function

    return enter


@st.composite
def graphs(draw: Any, least: int = 5, most: int = 30, favourite: str = "") -> Example:
    """Draw a graph of so many steps (most are one instruction, some bring constants), whose root is all its values.

    The step called ``favourite`` is taken last and on an input, so that there is one.
    """
    graph = Graph(draw, np.random.default_rng(draw(st.integers(0, 2**32 - 1))))
    for _ in range(graph.number(1, 3)):
        graph.parameter(graph.choose([*FLOATS, *INTEGERS, "pred"]), graph.sizes(graph.number(0, 4)))
    for _ in range(graph.number(least, most)):
        value = graph.pick()
        steps = STEPS[value.family]
        steps[graph.choose(sorted(steps))](graph, value)
    if favourite:
        families = [name for name, steps in STEPS.items() if favourite in steps]
        _favour(graph, favourite, graph.choose(families))
    root = graph.b.tuple([value.op for value in graph.values])
    return Example(graph.b.build(root), graph.inputs, [value.error for value in graph.values])


def _favour(g: Graph, name: str, family: str) -> None:
    """Take one step on an input of its own, which has dimensions."""
    dtype = g.choose({"float": tuple(FLOATS), "integer": INTEGERS, "pred": ("pred",)}[family])
    STEPS[family][name](g, g.parameter(dtype, g.sizes(g.number(1, 3))))


# Slopes on [-1, 1].
SMOOTH = {
    "tanh": 1.0,
    "sin": 1.0,
    "cos": 1.0,
    "exp": 2.8,
    "expm1": 2.8,
    "logistic": 0.25,
    "erf": 1.2,
    "tan": 3.5,
}
# Slopes on [1/2, 3/2].
SMOOTH_ABOVE_HALF = {"log": 2.0, "log1p": 1.0, "sqrt": 0.8, "rsqrt": 1.5, "cbrt": 0.6}
JUMPS = ("floor", "ceil", "sign", "round", "round_nearest_even")


@step("float")
def smooth(g: Graph, x: Value) -> Value:
    """Add a function without a pole in reach."""
    name = g.choose(SMOOTH)
    return g.result(getattr(g.b, name)(x.op), x.error * SMOOTH[name], FUNCTION_ULPS)


@step("float")
def smooth_above_half(g: Graph, x: Value) -> Value:
    """Add a function of |x| + 1/2, which its pole or its steepest place is far from."""
    name = g.choose(SMOOTH_ABOVE_HALF)
    argument = g.b.abs(x.op) + 0.5
    return g.result(getattr(g.b, name)(argument), x.error * SMOOTH_ABOVE_HALF[name], FUNCTION_ULPS)


@step("float")
def jump(g: Graph, x: Value) -> Value:
    """Add a function with jumps."""
    x = g.certain(x)
    return g.result(getattr(g.b, g.choose(JUMPS))(x.op), 0)


@step("float")
def sign_of_float(g: Graph, x: Value) -> Value:
    """Add -x or |x|, which round nothing."""
    return g.add(getattr(g.b, g.choose(["neg", "abs"]))(x.op), x.error)


@step("float")
def finite(g: Graph, x: Value) -> Value:
    """Add is-finite; all values are."""
    return g.add(g.b.is_finite(x.op))


@step("float")
def narrowed(g: Graph, x: Value) -> Value:
    """Add reduce-precision."""
    x = g.certain(x)
    return g.result(g.b.reduce_precision(x.op, g.number(3, 8), g.number(1, 7)), 0)


@step("float")
def arithmetic(g: Graph, x: Value) -> Value:
    """Add a sum, a difference or a product."""
    y = g.like(x)
    return g.result(getattr(g.b, g.choose(["add", "sub", "mul"]))(x.op, y.op), x.error + y.error, 4)


@step()
def extremum(g: Graph, x: Value) -> Value:
    """Add the larger or the smaller of two."""
    y = g.like(x)
    return g.add(getattr(g.b, g.choose(["max", "min"]))(x.op, y.op), max(x.error, y.error))


@step("float")
def quotient(g: Graph, x: Value) -> Value:
    """Add x / (y + 2), or the angle of that point."""
    y = g.like(x)
    return g.result(getattr(g.b, g.choose(["div", "atan2"]))(x.op, y.op + 2.0), x.error + y.error, FUNCTION_ULPS)


@step("float")
def power(g: Graph, x: Value) -> Value:
    """Add (|x| + 1/2) to the power of y."""
    y = g.like(x)
    return g.result(g.b.pow(g.b.abs(x.op) + 0.5, y.op), 4 * x.error + 1.5 * y.error, 2 * FUNCTION_ULPS)


@step("float")
def float_remainder(g: Graph, x: Value) -> Value:
    """Add the remainder of a division by something from 1/4 to 1; it is exact, but jumps."""
    x, y = g.certain(x), g.certain(g.like(x))
    return g.result(g.b.rem(x.op, g.b.max(g.b.abs(y.op), g.b.broadcast(g.scalar(y, 0.25), y.sizes))), 0)


@step("integer")
def integer_unary(g: Graph, x: Value) -> Value:
    """Add a function of integers."""
    names = ["neg", "abs", "sign", "logical_not", "population_count", "clz"]
    # XLA knows no sign to change or to ask for in what has none.
    return g.add(getattr(g.b, g.choose(names[3:] if x.dtype == "u8" else names))(x.op))


@step("integer")
def integer_binary(g: Graph, x: Value) -> Value:
    """Add a function of two integers; division by 0 and shifts out of the word included."""
    names = "add sub mul div rem logical_and logical_or xor shift_left shift_right_arithmetic shift_right_logical"
    return g.add(getattr(g.b, g.choose(names.split()))(x.op, g.like(x).op))


@step("pred")
def logic(g: Graph, x: Value) -> Value:
    """Add a function of truth values."""
    name = g.choose(["logical_and", "logical_or", "xor", "logical_not"])
    return g.add(getattr(g.b, name)(*[v.op for v in ([x] if name == "logical_not" else [x, g.like(x)])]))


@step()
def comparison(g: Graph, x: Value) -> Value:
    """Add a comparison."""
    x, y = g.certain(x), g.certain(g.like(x))
    return g.add(getattr(g.b, g.choose(["eq", "ne", "ge", "gt", "le", "lt"]))(x.op, y.op))


@step()
def selection(g: Graph, x: Value) -> Value:
    """Add a choice, element by element or of the whole."""
    y = g.like(x)
    chooser = g.like(x, "pred") if g.number(0, 1) else g.like(Value(g.b.constant(True)), "pred")
    return g.add(g.b.select(chooser.op, x.op, y.op), max(x.error, y.error))


@step("float", "integer")
def clamped(g: Graph, x: Value) -> Value:
    """Add a clamp to an array below and a constant above."""
    low = g.like(x)
    return g.add(g.b.clamp(low.op, x.op, g.scalar(x, 1)), max(x.error, low.error))


@step()
def conversion(g: Graph, x: Value) -> Value:
    """Add a conversion to any type; floats and integers are scaled to each other's range."""
    wanted = g.choose([name for name in (*FLOATS, *INTEGERS, "pred") if name != x.dtype])
    if x.family == "float" and wanted not in FLOATS:
        x = g.certain(x)
        source = x.op if wanted == "pred" else x.op * 64.0
        return g.add(g.b.convert_element_type(g.b.abs(source) if wanted == "u8" else source, wanted))
    if wanted not in FLOATS:
        return g.add(g.b.convert_element_type(x.op, wanted))
    converted = g.b.convert_element_type(x.op, wanted)
    if x.family == "float":
        is_narrower = FLOATS[wanted] > FLOATS[x.dtype]
        # A number between two others may go either way if it is not certain, or goes through f32.
        return g.result(converted, x.error, 1 if is_narrower and (x.error or x.dtype == "f64") else 0)
    return g.result(converted * 2.0 ** -LARGEST[x.dtype], 0, 1 if (x.dtype, wanted) == ("s32", "bf16") else 0)


@step("float", "integer")
def bits(g: Graph, x: Value) -> Value:
    """Add the bits of a float, or of an integer, as integers."""
    names = {"f32": "s32", "s32": "s8", "u8": "s8", "s8": "u8"}
    x = g.certain(x) if x.dtype in names else g.parameter("f32", x.sizes)
    if prod(x.sizes) * 4 > MOST_ELEMENTS:
        return x
    # Zeros of either sign are equal, but their bits are not; XLA takes x + 0 for x.
    x = Value(g.b.select(g.b.compare(x.op, g.scalar(x, 0), "EQ"), g.scalar(x, 1), x.op)) if x.family == "float" else x
    return g.add(g.b.bitcast_convert_type(x.op, names[x.dtype]))


@step()
def broadcast(g: Graph, x: Value) -> Value:
    """Add copies along new dimensions."""
    rank = g.number(len(x.sizes), max(4, len(x.sizes)))
    places = sorted(g.draw(st.permutations(range(rank)))[: len(x.sizes)])
    sizes = g.sizes(rank, 3)
    for place, size in zip(places, x.sizes, strict=True):
        sizes[place] = size
    return g.add(g.b.broadcast_in_dim(x.op, sizes, places), x.error) if prod(sizes) <= MOST_ELEMENTS else x


@step()
def reshape(g: Graph, x: Value) -> Value:
    """Add the same elements in other sizes: one dimension cut in two, or all in one."""
    count = prod(x.sizes)
    first = g.choose([n for n in range(1, count + 1) if count % n == 0])
    sizes = g.choose([[count], [first, count // first], [1, first, count // first], [first, 1, count // first, 1]])
    return g.add(g.b.reshape(x.op, sizes), x.error)


@step()
def transpose(g: Graph, x: Value) -> Value:
    """Add the dimensions in another order."""
    return g.add(g.b.transpose(x.op, g.draw(st.permutations(range(len(x.sizes))))), x.error)


@step()
def reverse(g: Graph, x: Value) -> Value:
    """Add some dimensions turned round."""
    return g.add(g.b.rev(x.op, [i for i in range(len(x.sizes)) if g.number(0, 1)]), x.error)


@step()
def part(g: Graph, x: Value) -> Value:
    """Add a slice with strides; it has at least one element."""
    starts = [g.number(0, size - 1) for size in x.sizes]
    limits = [g.number(start + 1, size) for start, size in zip(starts, x.sizes, strict=True)]
    return g.add(g.b.slice(x.op, starts, limits, [g.number(1, 3) for _ in starts]), x.error)


@step()
def padded(g: Graph, x: Value) -> Value:
    """Add padding at the edges, which may be negative, and between elements."""
    # XLA's parser cannot read what its printer makes of no dimensions.
    if not x.sizes:
        return x
    interiors = [g.number(0, 1) for _ in x.sizes]
    spread = [size + (size - 1) * inner for size, inner in zip(x.sizes, interiors, strict=True)]
    edges = [(g.number(-1 if size > 1 else 0, 2), g.number(0, 2)) for size in spread]
    config = [(*edge, inner) for edge, inner in zip(edges, interiors, strict=True)]
    if prod(low + size + high for (low, high), size in zip(edges, spread, strict=True)) > MOST_ELEMENTS:
        return x
    filler = g.like(Value(g.b.constant(0, x.dtype)))
    return g.add(g.b.pad(x.op, filler.op, config), max(x.error, filler.error))


@step()
def concatenation(g: Graph, x: Value) -> Value:
    """Add two or three arrays in a row."""
    if not x.sizes or prod(x.sizes) * 3 > MOST_ELEMENTS:
        return x
    others = [g.like(x) for _ in range(g.number(1, 2))]
    op = g.b.concatenate([x.op, *[other.op for other in others]], g.number(0, len(x.sizes) - 1))
    return g.add(op, max(v.error for v in (x, *others)))


@step()
def reduction(g: Graph, x: Value) -> Value:
    """Add a reduction of some dimensions; float sums become means."""
    dimensions = [i for i in range(len(x.sizes)) if g.number(0, 1)]
    name, init = g.choose(_folds(x))
    op = g.b.reduce(x.op, g.scalar(x, init), _applied(name), dimensions)
    return _mean(g, x, op, name, prod(x.sizes[i] for i in dimensions))


@step("float", "integer")
def window(g: Graph, x: Value) -> Value:
    """Add the fold of every window, with strides, padding and dilations."""
    if not x.sizes:
        return x
    sizes = [g.number(1, min(size, 3)) for size in x.sizes]
    # The window with its holes fits into the padded base: at least one place each.
    padding = [(g.number(0, size - 1), size - 1) for size in sizes]
    dilations = [g.number(1, 2) if size < 3 else 1 for size in sizes]
    name, init = g.choose(_folds(x))
    strides = [g.number(1, 2) for _ in sizes]
    op = g.b.reduce_window(x.op, g.scalar(x, init), _applied(name), sizes, strides, padding, window_dilations=dilations)
    return _mean(g, x, op, name, prod(sizes))


@step("float")
def index_of_largest(g: Graph, x: Value) -> Value:
    """Add the largest element along a dimension and the first place where it is: a reduction of two operands."""
    x = g.certain(x)
    if not x.sizes:
        return x
    dimension = g.number(0, len(x.sizes) - 1)
    places = g.b.iota(f"s32[{','.join(map(str, x.sizes))}]", dimension)
    op = g.b.reduce([x.op, places], [g.scalar(x, -2.0), g.b.constant(0)], _larger, [dimension])
    g.add(g.b.get_tuple_element(op, 0))
    return g.add(g.b.get_tuple_element(op, 1))


@step("float", "integer")
def product(g: Graph, x: Value) -> Value:
    """Add sums of products over the last dimension, with a batch dimension if there are three."""
    if len(x.sizes) not in (1, 2, 3):
        return x
    is_batched = len(x.sizes) == 3
    depth, batch = x.sizes[-1], x.sizes[:1] if is_batched else ()
    y = g.parameter(x.dtype, (*batch, depth, g.number(1, 4)))
    left, right = (len(x.sizes) - 1,), (len(batch),)
    numbers = DotDimensionNumbers(left, right, *((0,), (0,)) if is_batched else ((), ()))
    return _mean(g, x, g.b.dot_general(x.op, y.op, numbers), "add", depth)


@step("float", "integer")
def convolution(g: Graph, x: Value) -> Value:
    """Add a convolution of what was reshaped to batch, height, width, features; its kernel is an input."""
    height, width, features = (1, 1, 1, *x.sizes)[-3:]
    sizes = (prod(x.sizes) // (height * width * features), height, width, features)
    kernel = g.parameter(x.dtype, (g.number(1, 2), g.number(1, 3), features, g.number(1, 3)))
    strides, dilation = [g.number(1, 2), g.number(1, 2)], [1, g.number(1, 2)]
    padding = [(g.number(0, 1), kernel.sizes[0] - 1), (g.number(0, 2), 2 * (kernel.sizes[1] - 1))]
    op = g.b.conv_with_general_padding(
        g.b.reshape(x.op, sizes), kernel.op, strides, padding, None, dilation, dimension_numbers="b01f_01io->b01f"
    )
    return _mean(g, x, op, "add", prod(kernel.sizes[:3]))


@step()
def part_found_late(g: Graph, x: Value) -> Value:
    """Add a slice whose start, which may be out of bounds, is an input."""
    starts = [g.parameter("s32", ()).op for _ in x.sizes]
    sizes = [g.number(1, size) for size in x.sizes]
    return g.add(g.b.dynamic_slice(x.op, starts, sizes), x.error)


@step()
def part_overwritten(g: Graph, x: Value) -> Value:
    """Add x with a part overwritten, wherever an input says."""
    starts = [g.parameter("s32", ()).op for _ in x.sizes]
    update = g.parameter(x.dtype, [g.number(1, size) for size in x.sizes])
    return g.add(g.b.dynamic_update_slice(x.op, update.op, starts), x.error)


@step()
def rows(g: Graph, x: Value) -> Value:
    """Add a gather of whole slices of one dimension; indices may be out of bounds."""
    if not x.sizes or prod(x.sizes) * 3 > MOST_ELEMENTS:
        return x
    number = g.number(0, len(x.sizes) - 1)
    indices = g.parameter("s32", (g.number(1, 3),))
    kept = [size for i, size in enumerate(x.sizes) if i != number]
    slices = [1 if i == number else size for i, size in enumerate(x.sizes)]
    axes = {"offset_dims": range(1, len(kept) + 1), "collapsed_slice_dims": [number], "start_index_map": [number]}
    return g.add(g.b.gather(x.op, indices.op, **axes, slice_sizes=slices, index_vector_dim=1), x.error)


@step("integer", "pred")
def rows_joined(g: Graph, x: Value) -> Value:
    """Add a scatter into slices of the first dimension; what meets is folded, out of bounds is dropped."""
    if not x.sizes:
        return x
    indices = g.parameter("s32", (g.number(1, 3),))
    updates = g.parameter(x.dtype, (*indices.sizes, *x.sizes[1:]))
    numbers = {"inserted_window_dims": [0], "scatter_dims_to_operand_dims": [0], "index_vector_dim": 1}
    windows = range(1, len(x.sizes))
    fold = _applied(g.choose(_folds(x))[0])
    return g.add(g.b.scatter(x.op, indices.op, updates.op, fold, update_window_dims=windows, **numbers))


@step("float", "integer")
def sorting(g: Graph, x: Value) -> Value:
    """Add x sorted along a dimension; places move by no more than values do, so the error stays."""
    if not x.sizes:
        return x
    op = g.b.sort(x.op, g.choose([_ascending, _descending]), g.number(0, len(x.sizes) - 1))
    return g.add(op, x.error)


@step("float", "integer")
def order(g: Graph, x: Value) -> Value:
    """Add the stable order of x along its last dimension."""
    x = g.certain(x)
    if not x.sizes:
        return x
    places = g.b.iota(f"s32[{','.join(map(str, x.sizes))}]", len(x.sizes) - 1)
    op = g.b.sort([x.op, places], lambda p, q, i, j: p < q, is_stable=True)
    return g.add(g.b.get_tuple_element(op, 1))


@step("integer")
def counting(g: Graph, x: Value) -> Value:
    """Add an iota like x."""
    if not x.sizes:
        return x
    return g.add(g.b.iota(f"{x.dtype}[{','.join(map(str, x.sizes))}]", g.number(0, len(x.sizes) - 1)))


@step("float", "integer")
def loop(g: Graph, x: Value) -> Value:
    """Add a while that adds y up to four times and halves floats."""
    y, trips, start = g.like(x), g.number(0, 4), g.number(-1, 1)
    is_float = x.family == "float"
    init = g.b.tuple([g.b.constant(start), x.op, y.op])

    def body(state: Op) -> list[Op]:
        i, value, step = (state.builder.get_tuple_element(state, k) for k in range(3))
        return [i + 1, (value + step) * 0.5 if is_float else value + step, step]

    op = g.b.while_(lambda state: state.builder.get_tuple_element(state, 0) < start + trips, body, init)
    return g.result(g.b.get_tuple_element(op, 1), x.error + y.error, 4 * trips)


@step()
def branch(g: Graph, x: Value) -> Value:
    """Add one of two or three computations, chosen by an input; an index may be out of range."""
    y = g.like(x)
    if g.number(0, 1):
        chooser = g.parameter("pred", ())
        op = g.b.conditional(chooser.op, x.op, _untouched, y.op, _turned)
    else:
        chooser = g.parameter("s32", ())
        op = g.b.conditional_by_index(chooser.op, [_turned, _untouched, _turned], [x.op, y.op, x.op])
    return g.add(op, max(x.error, y.error))


@step("float", "integer")
def called(g: Graph, x: Value) -> Value:
    """Add a call, or a map over elements, of a computation of two values."""
    y = g.like(x)
    op = g.b.map([x.op, y.op], _smaller) if g.number(0, 1) else g.b.call(_smaller, [x.op, y.op])
    return g.add(op, max(x.error, y.error))


def _folds(x: Value) -> list[tuple[str, float]]:
    """Return methods to fold values of a type with, and the value that changes nothing: XLA may leave it out."""
    if x.family == "pred":
        return [("logical_and", True), ("logical_or", False)]
    limits = np.iinfo(NUMPY[x.dtype]) if x.family == "integer" else None
    least, most = (int(limits.min), int(limits.max)) if limits else (-1, 1)
    return [("add", 0), ("max", least), ("min", most)]


def _applied(name: str) -> Callable[[Op, Op], Op]:
    """Return a method of builders as a function of two ops."""

    def fold(p: Op, q: Op) -> Op:
        return getattr(p.builder, name)(p, q)

    return fold


def _mean(g: Graph, x: Value, op: Op, name: str, count: int) -> Value:
    """Take in a fold of so many values; the other factors of a sum of products are inputs of at most 1."""
    if name != "add" or x.family != "float":
        return g.add(op, x.error)
    # Partial sums are below the count, and each is rounded once: so many ulps of the mean.
    return g.result(op * (1.0 / max(count, 1)), x.error, 4 * count + 4)


def _larger(p: Op, i: Op, q: Op, j: Op) -> list[Op]:
    b = p.builder
    # Of equal ones the first: an order in which nothing depends on who comes first.
    wins = b.logical_or(p > q, b.logical_and(b.eq(p, q), i < j))
    return [b.select(wins, p, q), b.select(wins, i, j)]


def _ascending(p: Op, q: Op) -> Op:
    return p < q


def _descending(p: Op, q: Op) -> Op:
    return p > q


def _smaller(p: Op, q: Op) -> Op:
    return p.builder.min(p, q)


def _untouched(x: Op) -> Op:
    return x


def _turned(x: Op) -> Op:
    rank = x.shape.rank
    return x.builder.rev(x, range(rank))
