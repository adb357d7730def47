"""Attributes of instructions and modules: which kind of value each has, and how a kind is read and printed.

A kind is a pair of functions. Short values become those of ``ir.attributes``; long ones are checked and stay ``Raw``.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from tpusim.errors import did_you_mean
from tpusim.ir.attributes import ComputationLayout, ComputationName, InstructionName, Raw, Symbol
from tpusim.ir.ops import COMMON_ATTRIBUTES, async_parts
from tpusim.shapes.shape import shape_text
from tpusim.text.attributes import checked_text as raw
from tpusim.text.attributes import structured
from tpusim.text.attributes.devices import take_replica_groups
from tpusim.text.lists import (
    show_integer_lists,
    show_integers,
    take_boolean,
    take_integer_lists,
    take_integers,
    take_list,
)
from tpusim.text.strings import quoted, take_string

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpusim.ir.ops import Operation
    from tpusim.shapes.shape import Shape
    from tpusim.text.lexer import Lexer


class Scope(Protocol):
    """What an attribute may refer to: computations, instructions, shapes."""

    def take_computation(self, lexer: Lexer) -> ComputationName:
        """Read the name of a computation, or a computation in braces."""

    def take_instruction_name(self, lexer: Lexer) -> InstructionName:
        """Read the name of an instruction that came before."""

    def take_shape(self, lexer: Lexer) -> Shape:
        """Read a shape."""

    def take_raw_literal(self, lexer: Lexer) -> None:
        """Read a shape and a literal of it."""


class Kind(NamedTuple):
    """How to read a value, and how to print one with ``%`` (or nothing) before names."""

    read: Callable[[Lexer, Scope], Any]
    show: Callable[[Any, str], str]


def take_attributes(lexer: Lexer, operation: Operation, scope: Scope) -> dict[str, Any]:
    """Read ``, name=value`` as often as it comes; every attribute must be the operation's, and the required be there.

    Raises:
        ProgramError: An attribute is unknown, given twice, missing or malformed.
    """
    # What is missing is missing after the last character of the operands.
    start = lexer.previous_end - 1
    attributes: dict[str, Any] = {}
    while lexer.accept(","):
        place = lexer.start
        name = lexer.take("attribute", "an attribute (name=value)")
        if name in attributes:
            lexer.fail(f"attribute {name!r} is given twice", place)
        if not operation.allows(name):
            lexer.fail(
                f"{operation.name!r} has no attribute {name!r}{_nearest(name, operation)} [instruction_c4]", place
            )
        attributes[name] = attribute_kind(operation.name, name).read(lexer, scope)
    missing = operation.required.difference(attributes)
    if missing:
        lexer.fail(f"{operation.name!r} must have the attribute {min(missing)!r} [instruction_c3]", start)
    return attributes


def take_module_attributes(lexer: Lexer, scope: Scope) -> dict[str, Any]:
    """Read the attributes of a module's first line."""
    attributes: dict[str, Any] = {}
    while lexer.accept(","):
        place = lexer.start
        name = lexer.take("attribute", "an attribute of the module (name=value)")
        if name in attributes:
            lexer.fail(f"attribute {name!r} is given twice", place)
        # Refused, as XLA refuses it: a misspelt is_scheduled passed over would change what the program means.
        if name not in MODULE_KINDS:
            lexer.fail(f"a module has no attribute {name!r}{did_you_mean(name, MODULE_KINDS)}", place)
        attributes[name] = MODULE_KINDS[name].read(lexer, scope)
    return attributes


def show_attributes(opcode: str, attributes: dict[str, Any], sigil: str) -> str:
    """Return ``, name=value`` for every attribute of an instruction, in their order."""
    return "".join(f", {name}={attribute_kind(opcode, name).show(value, sigil)}" for name, value in attributes.items())


# Asked for every attribute of every line that is new, while the answer depends on two words only.
@cache
def attribute_kind(opcode: str, name: str) -> Kind:
    """Return the kind of an attribute; a few names mean different things on different operations."""
    parts = async_parts(opcode)
    # slice-start has the attributes of slice.
    own = parts[0] if parts else opcode
    return _KINDS_BY_OPCODE.get((own, name)) or _KINDS[name]


def _nearest(name: str, operation: Operation) -> str:
    """Return the attribute of the operation that may have been meant."""
    return did_you_mean(name, sorted(operation.required | operation.optional | COMMON_ATTRIBUTES))


def _plain(read: Callable[[Lexer], Any], show: Callable[[Any], str]) -> Kind:
    """Make a kind whose values name nothing."""
    return Kind(lambda lexer, scope: read(lexer), lambda value, sigil: show(value))


def _raw(check: Callable[[Lexer], object]) -> Kind:
    """Make a kind that is checked and keeps its text."""

    # The text is kept from the first to the last character, blanks and comments inside included.
    def read(lexer: Lexer, scope: Scope) -> Raw:
        start = lexer.start
        check(lexer)
        return Raw(lexer.text[start : lexer.previous_end])

    return Kind(read, lambda value, sigil: str(value))


def _choice(words: str, any_case: bool = False) -> Kind:
    """Make a kind that takes one of a few words, in capitals or not if XLA does not mind."""
    known = {word.lower() if any_case else word: Symbol(word) for word in words.split()}

    def read(lexer: Lexer, scope: Scope) -> Symbol:
        word = lexer.value.lower() if any_case else lexer.value
        if lexer.kind not in ("identifier", "keyword") or word not in known:
            nearest = did_you_mean(word, known)
            lexer.fail(f"expected one of {', '.join(known.values())}, found {lexer.shown()}{nearest}")
        lexer.advance()
        return known[word]

    # What is kept is the spelling of the table, so that a text in another case prints as XLA would print it.
    return Kind(read, lambda value, sigil: str(value))


def _choices(words: str) -> Kind:
    """Make a kind that takes a list of words in braces."""
    one = _choice(words, any_case=True)
    return Kind(
        lambda lexer, scope: take_list(lexer, lambda lexer: one.read(lexer, scope)),
        lambda value, sigil: "{" + ",".join(value) + "}",
    )


def _show_boolean(value: bool) -> str:
    """Return ``true`` or ``false``."""
    return "true" if value else "false"


def _show_booleans(value: tuple[bool, ...]) -> str:
    """Return ``{true,false}``."""
    return "{" + ",".join(map(_show_boolean, value)) + "}"


def _take_epsilon(lexer: Lexer) -> float:
    """Read a number that fits 32-bit floating point."""
    start = lexer.start
    value = raw.take_number(lexer)
    if abs(value) > _LARGEST_F32:
        lexer.fail("this number does not fit a 32-bit floating-point number", start)
    return value


def _show_number(value: float) -> str:
    """Return the shortest text of a number, without a trailing ``.0``."""
    return repr(value).removesuffix(".0")


def _take_booleans(lexer: Lexer) -> tuple[bool, ...]:
    """Read ``{true,false}``."""
    return take_list(lexer, take_boolean)


def _take_boolean_or_booleans(lexer: Lexer) -> bool | tuple[bool, ...]:
    """Read ``true`` or ``{true,false}``."""
    return _take_booleans(lexer) if lexer.kind == "{" else take_boolean(lexer)


def _show_boolean_or_booleans(value: bool | tuple[bool, ...]) -> str:
    """Return ``true`` or ``{true,false}``."""
    return _show_booleans(value) if isinstance(value, tuple) else _show_boolean(value)


def _take_computations(lexer: Lexer, scope: Scope) -> tuple[ComputationName, ...]:
    """Read ``{%a, %b}``."""
    return take_list(lexer, scope.take_computation)


def _take_instruction_names(lexer: Lexer, scope: Scope) -> tuple[InstructionName, ...]:
    """Read ``{%a, %b}``, at least one."""
    start = lexer.start
    names = take_list(lexer, scope.take_instruction_name)
    if not names:
        lexer.fail("expected the name of an instruction", start)
    return names


def _show_names(value: tuple[str, ...], sigil: str) -> str:
    """Return ``{%a, %b}``."""
    return "{" + ", ".join(sigil + name for name in value) + "}"


def _show_shapes(shapes: tuple[Shape, ...]) -> str:
    """Return shapes with commas between, every fifth numbered as XLA does."""
    texts = [f"/*index={i}*/{shape}" if i and i % 5 == 0 else str(shape) for i, shape in enumerate(shapes)]
    return ", ".join(texts)


def _show_layout(layout: ComputationLayout, sigil: str) -> str:
    """Return ``{(shapes)->shape}``."""
    return f"{{({_show_shapes(layout.parameters)})->{layout.result}}}"


def _take_raw_literal(lexer: Lexer, scope: Scope) -> Raw:
    """Read a shape and a literal."""
    start = lexer.start
    scope.take_raw_literal(lexer)
    return Raw(lexer.text[start : lexer.previous_end])


# A larger number would be infinity there, and the printed text another program.
# XLA keeps epsilon in 32 bits.
_LARGEST_F32 = (2 - 2.0**-23) * 2.0**127

_BOOLEAN = _plain(take_boolean, _show_boolean)
_BOOLEANS = _plain(_take_booleans, _show_booleans)
_BOOLEAN_OR_BOOLEANS = _plain(_take_boolean_or_booleans, _show_boolean_or_booleans)
_INTEGER = _plain(lambda lexer: lexer.take_integer(), str)
# XLA reads all other integers as 64 bits, and refuses what does not fit 32 here.
_INTEGER32 = _plain(raw.take_int32, str)
_NUMBER = _plain(_take_epsilon, _show_number)
_INTEGERS = _plain(take_integers, show_integers)
_INTEGER_LISTS = _plain(take_integer_lists, show_integer_lists)
_STRING = _plain(take_string, quoted)
# Printed in the notation they came in: an iota list of a thousand devices must not become a thousand ids.
_GROUPS = _plain(take_replica_groups, lambda groups: groups.text or show_integer_lists(groups.groups))
_WINDOW = _plain(structured.take_window, structured.show_window)
_LABELS = _plain(structured.take_labels, structured.show_labels)
_ALIASES = _plain(structured.take_operand_aliases, structured.show_operand_aliases)
_COMPUTATION = Kind(lambda lexer, scope: scope.take_computation(lexer), lambda value, sigil: sigil + value)
_COMPUTATIONS = Kind(_take_computations, _show_names)
_INSTRUCTIONS = Kind(_take_instruction_names, _show_names)
_SHAPE = Kind(lambda lexer, scope: scope.take_shape(lexer), lambda value, sigil: shape_text(value))
_SHAPES = Kind(
    lambda lexer, scope: take_list(lexer, scope.take_shape), lambda value, sigil: "{" + ", ".join(map(str, value)) + "}"
)
# Instructions and modules carry it alike: words of a front end, which XLA itself passes on unread.
_FRONTEND = _raw(raw.take_frontend_attributes)

# One table for all opcodes, since in XLA a name nearly always has one type wherever it stands.
_KINDS: dict[str, Kind] = {
    "algorithm": _choice(
        "unset dot_any_f8_any_f8_f32 dot_any_f8_any_f8_f32_fast_accum dot_f16_f16_f16 dot_f16_f16_f32"
        " dot_bf16_bf16_bf16 dot_bf16_bf16_f32 dot_bf16_bf16_f32_x3 dot_bf16_bf16_f32_x6 dot_bf16_bf16_f32_x9"
        " dot_tf32_tf32_f32 dot_tf32_tf32_f32_x3 dot_f32_f32_f32 dot_f64_f64_f64",
        any_case=True,
    ),
    "api_version": _choice(
        "API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI",
        any_case=True,
    ),
    "async_execution_thread": _STRING,
    "backend_config": _raw(raw.take_backend_config),
    "batch_group_count": _INTEGER,
    "body": _COMPUTATION,
    "branch_computations": _COMPUTATIONS,
    "called_computations": _COMPUTATIONS,
    "calls": _COMPUTATION,
    "channel_id": _INTEGER,
    "collapsed_slice_dims": _INTEGERS,
    "condition": _COMPUTATION,
    "constrain_layout": _BOOLEAN,
    "control-predecessors": _INSTRUCTIONS,
    "convolution_kind": _choice("fprop wgrad dgrad unset"),
    "cross_program_prefetch_index": _INTEGER32,
    "custom_call_has_side_effect": _BOOLEAN,
    "custom_call_target": _STRING,
    "delta": _INTEGER,
    "dim_labels": _LABELS,
    "dimensions": _INTEGERS,
    "direction": _choice("EQ NE GE GT LE LT"),
    "distribution": _choice("rng_uniform rng_normal", any_case=True),
    "domain": _raw(raw.take_domain),
    "dynamic_slice_sizes": _INTEGERS,
    "epsilon": _NUMBER,
    "exponent_bits": _INTEGER,
    "false_computation": _COMPUTATION,
    "feature_group_count": _INTEGER,
    "feature_index": _INTEGER,
    "fft_length": _INTEGERS,
    "fft_type": _choice("FFT IFFT RFFT IRFFT"),
    "frontend_attributes": _FRONTEND,
    "has_dynamic_root": _BOOLEAN,
    "index": _INTEGER,
    "index_vector_dim": _INTEGER,
    "indices_are_sorted": _BOOLEAN,
    "infeed_config": _STRING,
    "inferred_dimension": _INTEGER,
    "input_batching_dims": _INTEGERS,
    "inserted_window_dims": _INTEGERS,
    "iota_dimension": _INTEGER,
    "is_associative": _BOOLEAN,
    "is_composite": _BOOLEAN,
    "is_host_transfer": _BOOLEAN,
    "is_reverse": _BOOLEAN,
    "is_stable": _BOOLEAN,
    "k": _INTEGER,
    "kind": _choice("kLoop kInput kOutput kCustom"),
    "largest": _BOOLEAN,
    "left_side": _BOOLEAN,
    "lhs_batch_dims": _INTEGERS,
    "lhs_contracting_dims": _INTEGERS,
    "lhs_ragged_dims": _INTEGERS,
    "literal": Kind(_take_raw_literal, lambda value, sigil: str(value)),
    "lower": _BOOLEAN,
    "mantissa_bits": _INTEGER,
    "metadata": _raw(raw.take_metadata),
    "mode": _choice("cross_replica cross_partition cross_replica_and_partition flattened_id"),
    "num_carries": _INTEGER,
    "offset_dims": _INTEGERS,
    "operand_batching_dims": _INTEGERS,
    "operand_layout_constraints": _SHAPES,
    "operand_precision": _choices("default high highest"),
    "origin": _raw(raw.take_origin),
    "outfeed_config": _STRING,
    "outfeed_shape": _SHAPE,
    "output_to_operand_aliasing": _ALIASES,
    "padding": _plain(structured.take_padding, structured.show_padding),
    "padding_type": _choice("PADDING_INVALID PADDING_VALID PADDING_SAME"),
    "parameter_replication": _BOOLEANS,
    "replica_groups": _GROUPS,
    "result_accuracy": _raw(raw.take_accuracy),
    "rhs_batch_dims": _INTEGERS,
    "rhs_contracting_dims": _INTEGERS,
    "rhs_group_dims": _INTEGERS,
    "scatter": _COMPUTATION,
    "scatter_dims_to_operand_dims": _INTEGERS,
    "scatter_indices_batching_dims": _INTEGERS,
    "schedule": _choice("SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST", any_case=True),
    "select": _COMPUTATION,
    "sharding": _raw(raw.take_sharding),
    "slice": _plain(structured.take_slice, structured.show_slice),
    "slice_sizes": _INTEGERS,
    "source_target_pairs": _INTEGER_LISTS,
    "sparsity_config": _raw(raw.take_sparsity),
    "start_index_map": _INTEGERS,
    "start_indices_batching_dims": _INTEGERS,
    "statistics": _raw(raw.take_statistics),
    "to_apply": _COMPUTATION,
    "transpose_a": _choice("NO_TRANSPOSE TRANSPOSE ADJOINT"),
    "true_computation": _COMPUTATION,
    "type": _choice("FLOAT TOTALORDER SIGNED UNSIGNED"),
    "unique_indices": _BOOLEAN,
    "unit_diagonal": _BOOLEAN,
    "update_window_dims": _INTEGERS,
    "use_global_device_ids": _BOOLEAN,
    "window": _WINDOW,
}
# Names that mean another thing on these operations.
_KINDS_BY_OPCODE: dict[tuple[str, str], Kind] = {
    ("collective-permute", "slice_sizes"): _INTEGER_LISTS,
    ("collective-permute-start", "slice_sizes"): _INTEGER_LISTS,
    ("rng-bit-generator", "algorithm"): _choice("rng_default rng_three_fry rng_philox", any_case=True),
}

MODULE_KINDS: dict[str, Kind] = {
    "alias_passthrough_params": _BOOLEAN,
    "allow_spmd_sharding_propagation_to_output": _BOOLEAN_OR_BOOLEANS,
    "allow_spmd_sharding_propagation_to_parameters": _BOOLEAN_OR_BOOLEANS,
    "backend_config": _raw(raw.take_backend_config),
    "buffer_donor": _plain(structured.take_buffer_donors, structured.show_buffer_donors),
    "debug_attributes": _raw(raw.take_debug_attributes),
    "entry_computation_layout": Kind(
        lambda lexer, scope: structured.take_computation_layout(lexer, scope.take_shape), _show_layout
    ),
    "frontend_attributes": _FRONTEND,
    "input_output_alias": _plain(structured.take_parameter_aliases, structured.show_parameter_aliases),
    "is_scheduled": _BOOLEAN,
    "num_partitions": _INTEGER,
    "origin_recovery_table": _raw(raw.take_recovery_table),
    "replica_count": _INTEGER,
}
"""Kinds of the attributes of a module's first line."""
