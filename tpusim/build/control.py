"""Builder methods for tuples, calls, branches, loops, custom calls and random numbers.

Source: XLA, Operation Semantics.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias, cast

from tpusim.build.base import Callee, Op, array_of, as_shape, choice
from tpusim.build.data import DataMethods, full_shape
from tpusim.errors import ProgramError
from tpusim.ir.attributes import Raw, Symbol
from tpusim.shapes.dtype import DTYPES
from tpusim.shapes.shape import ArrayShape, Shape, TupleShape

CalleeWithShapes: TypeAlias = "tuple[Callee, Sequence[Shape]]"
"""A computation and the shapes of its parameters, where no operands imply them."""


class ControlMethods(DataMethods):
    """Operations that order, choose and call."""

    def optimization_barrier(self, operand: Op) -> Op:
        """Return the operand, across which the compiler moves nothing."""
        return self.emit("opt-barrier", [operand])

    def call(self, computation: Callee, args: Sequence[Op] = ()) -> Op:
        """Return what a computation makes of the arguments."""
        return self.emit("call", list(args), {"to_apply": self.called(computation, [op.shape for op in args])})

    def conditional(
        self,
        pred: Op,
        true_operand: Op | Sequence[Callee],
        true_computation: Callee | Sequence[Op],
        false_operand: Op | None = None,
        false_computation: Callee | None = None,
    ) -> Op:
        """Return what one of two computations makes of its operand; the other is not run.

        The document's other form under this name, ``(branch_index, branch_computations, branch_operands)``, is
        ``conditional_by_index``.
        """
        if not isinstance(true_operand, Op):
            return self.conditional_by_index(pred, true_operand, cast("Sequence[Op]", true_computation))
        if false_operand is None or false_computation is None or isinstance(true_computation, Sequence):
            raise ProgramError("conditional: expected an operand and a computation for true and for false each")
        attributes = {
            "true_computation": self.called(true_computation, [true_operand.shape]),
            "false_computation": self.called(false_computation, [false_operand.shape]),
        }
        return self.emit("conditional", [pred, true_operand, false_operand], attributes)

    def conditional_by_index(
        self, branch_index: Op, branch_computations: Sequence[Callee], branch_operands: Sequence[Op]
    ) -> Op:
        """Return what computation number ``branch_index`` makes of its operand; an index out of range is the last."""
        if len(branch_computations) != len(branch_operands):
            counts = f"{len(branch_computations)} and {len(branch_operands)}"
            raise ProgramError(f"conditional: expected as many operands as computations, found {counts}")
        pairs = zip(branch_computations, branch_operands, strict=True)
        names = tuple(self.called(computation, [op.shape]) for computation, op in pairs)
        return self.emit("conditional", [branch_index, *branch_operands], {"branch_computations": names})

    def while_(self, condition: Callee, body: Callee, init: Op) -> Op:
        """Return ``init`` after ``body`` was run on it as long as ``condition`` held."""
        attributes = {"condition": self.called(condition, [init.shape]), "body": self.called(body, [init.shape])}
        return self.emit("while", [init], attributes)

    def custom_call(
        self,
        target_name: str,
        args: Sequence[Op],
        shape: Shape | str,
        opaque: str = "",
        has_side_effect: bool = False,
        computations: Sequence[CalleeWithShapes] = (),
    ) -> Op:
        """Return a value of ``shape`` that a function outside the program makes.

        ``opaque`` is handed to it as it is. ``computations`` come with the shapes of their parameters.
        """
        # XLA refuses to build them, since its own passes make them and know their arguments.
        if target_name.startswith("$"):
            raise ProgramError(f"expected a target that does not begin with '$', XLA's own sign, found {target_name!r}")
        # No operand need be what they take, so their shapes have to be told.
        names = tuple(self.called(callee, shapes) for callee, shapes in computations)
        attributes = {
            "custom_call_target": target_name,
            "custom_call_has_side_effect": has_side_effect or None,
            "called_computations": names or None,
            "backend_config": Raw(json.dumps(opaque)) if opaque else None,
        }
        return self.emit("custom-call", list(args), attributes, as_shape(shape))

    def rng_uniform(self, a: Op, b: Op, shape: Shape | str) -> Op:
        """Return random numbers spread evenly over ``a <= x < b``."""
        return self.emit("rng", [a, b], {"distribution": Symbol("rng_uniform")}, full_shape(shape))

    def rng_normal(self, mu: Op, sigma: Op, shape: Shape | str) -> Op:
        """Return random numbers of the normal distribution with this mean and standard deviation."""
        return self.emit("rng", [mu, sigma], {"distribution": Symbol("rng_normal")}, full_shape(shape))

    def rng_bit_generator(self, algorithm: str, initial_state: Op, shape: Shape | str) -> Op:
        """Return a tuple: the new state, and random bits as unsigned integers of the width of ``shape``.

        ``algorithm`` is ``rng_default``, ``rng_three_fry`` or ``rng_philox``, with or without ``rng_``.
        """
        name = choice("rng_" + algorithm.lower().removeprefix("rng_"), "rng_default rng_three_fry rng_philox")
        # Bits have no sign and no exponent, whatever they are wanted for.
        wanted = full_shape(shape)
        # Of what has no such type inference says that there are none.
        bits = ArrayShape(
            DTYPES.get(f"u{wanted.dtype.bits}", wanted.dtype), wanted.dimensions, wanted.dynamic, wanted.layout
        )
        result = TupleShape((array_of(initial_state), bits))
        return self.emit("rng-bit-generator", [initial_state], {"algorithm": name}, result)

    def rng_get_and_update_state(self, delta: int, shape: Shape | str = "u64[2]") -> Op:
        """Return the state of the device's generator before ``delta`` was added to it."""
        return self.emit("rng-get-and-update-state", [], {"delta": delta}, full_shape(shape))
