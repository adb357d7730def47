"""Attributes of instructions and modules: which kind of value each has, and how a kind is read and printed.

A kind is a pair of functions, and a pattern where that spares most of the reading. Short values become those of
``ir.attributes``; long ones are checked and stay ``Raw``.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from typing import Any, TypeAlias

import msgspec
from msgspec import structs

from tpusim.errors import did_you_mean
from tpusim.ir.attributes import InstructionName, Raw
from tpusim.ir.ops import COMMON_ATTRIBUTES, Operation, async_parts
from tpusim.semantics.precision import PIECES_BY_ALGORITHM
from tpusim.shapes.shape import shape_text
from tpusim.text.attributes import checked_text, structured
from tpusim.text.attributes.devices import take_replica_groups
from tpusim.text.lexer import SHALLOW_JSON, Lexer
from tpusim.text.lists import (
    list_of,
    show_list,
    show_lists,
    take_boolean,
    take_integer_lists,
    take_integers,
    take_list,
    word_of,
)
from tpusim.text.literals import take_shaped_literal
from tpusim.text.scope import ComputationScope, ModuleScope
from tpusim.text.strings import quoted, take_string

Scope: TypeAlias = "ModuleScope | ComputationScope"
"""What an attribute may refer to: computations and, inside one, instructions."""


class Kind(msgspec.Struct, frozen=True):
    """How to read a value, and how to print one with ``%`` (or nothing) before names.

    What ``raw`` matches is a whole value for certain, and stays the text that it is.
    """

    read: Callable[[Lexer, Scope], Any]
    show: Callable[[Any, str], str]
    raw: re.Pattern[str] | None = None


def take_attributes(lexer: Lexer, operation: Operation, scope: Scope) -> dict[str, Any]:
    """Read ``, name=value`` as often as it comes; every attribute must be the operation's, and the required be there.

    Raises:
        ProgramError: An attribute is unknown, given twice, missing or malformed.
    """
    # What is missing is missing after the last character of the operands.
    start = lexer.previous_end - 1

    def find_kind(name: str, place: int) -> Kind:
        if not operation.allows(name):
            nearest = did_you_mean(name, sorted(operation.required | operation.optional | COMMON_ATTRIBUTES))
            lexer.fail(f"{operation.name!r} has no attribute {name!r}{nearest} [instruction_c4]", place)
        return attribute_kind(operation.name, name)

    attributes = _take_each(lexer, scope, find_kind, "an attribute (name=value)")
    missing = operation.required.difference(attributes)
    if missing:
        lexer.fail(f"{operation.name!r} must have the attribute {min(missing)!r} [instruction_c3]", start)
    return attributes


def take_module_attributes(lexer: Lexer, scope: Scope) -> dict[str, Any]:
    """Read the attributes of a module's first line."""

    def find_kind(name: str, place: int) -> Kind:
        # Refused, as XLA refuses it: a misspelt is_scheduled passed over would change what the program means.
        if name not in MODULE_KINDS:
            lexer.fail(f"a module has no attribute {name!r}{did_you_mean(name, MODULE_KINDS)}", place)
        return MODULE_KINDS[name]

    return _take_each(lexer, scope, find_kind, "an attribute of the module (name=value)")


def _take_each(lexer: Lexer, scope: Scope, find_kind: Callable[[str, int], Kind], what: str) -> dict[str, Any]:
    """Read ``, name=value`` as often as it comes, each name once; ``find_kind`` takes the name and its place."""
    attributes: dict[str, Any] = {}
    while lexer.accept(","):
        place = lexer.start
        name = lexer.take("attribute", what)
        if name in attributes:
            lexer.fail(f"attribute {name!r} is given twice", place)
        attributes[name] = find_kind(name, place).read(lexer, scope)
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


def _plain(read: Callable[[Lexer], Any], show: Callable[[Any], str]) -> Kind:
    """Return a kind whose values name nothing."""
    return Kind(lambda lexer, scope: read(lexer), lambda value, sigil: show(value))


def _raw(check: Callable[[Lexer], object], ordinary: re.Pattern[str] | None = None) -> Kind:
    """Return a kind that is checked and keeps its text, blanks and comments inside included."""

    def read(lexer: Lexer) -> Raw:
        start = lexer.start
        check(lexer)
        return Raw(lexer.text[start : lexer.previous_end])

    return structs.replace(_plain(read, str), raw=ordinary)


def _choice(words: str, *, any_case: bool = False) -> Kind:
    """Return a kind that is one of a few words."""
    return _plain(word_of(words, any_case=any_case), str)


def _take_booleans(lexer: Lexer) -> bool | tuple[bool, ...]:
    """Read ``true`` or ``{true,false}``."""
    return take_list(lexer, take_boolean) if lexer.kind == "{" else take_boolean(lexer)


def _show_booleans(value: bool | tuple[bool, ...]) -> str:
    """Return ``true`` or ``{true,false}``."""
    return show_list(map(_show_booleans, value)) if isinstance(value, tuple) else str(value).lower()


def _take_epsilon(lexer: Lexer) -> float:
    """Read a number that fits 32-bit floating point."""
    start = lexer.start
    value = checked_text.take_number(lexer)
    if abs(value) > _LARGEST_F32:
        lexer.fail("this number does not fit a 32-bit floating-point number", start)
    return value


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


# XLA keeps epsilon in 32 bits. A larger number would be infinity there, and the printed text another program.
_LARGEST_F32 = (2 - 2.0**-23) * 2.0**127

_BOOLEAN = _plain(take_boolean, _show_booleans)
_BOOLEAN_OR_BOOLEANS = _plain(_take_booleans, _show_booleans)
_INTEGER = _plain(Lexer.take_integer, str)
_INTEGERS = _plain(take_integers, show_list)
_INTEGER_LISTS = _plain(take_integer_lists, show_lists)
_STRING = _plain(take_string, quoted)
COMPUTATION = Kind(lambda lexer, scope: scope.take_computation(lexer), lambda value, sigil: sigil + value)
"""The name of one computation."""
_COMPUTATIONS = Kind(lambda lexer, scope: take_list(lexer, scope.take_computation), _show_names)
# Instructions and modules carry these alike: words of a front end and of a backend, which XLA itself passes on unread.
_FRONTEND = _raw(checked_text.FRONTEND_ATTRIBUTES, checked_text.PRINTED_FRONTEND_ATTRIBUTES)
_BACKEND = _raw(checked_text.BACKEND_CONFIG, SHALLOW_JSON)

# One table for all opcodes, since in XLA a name nearly always has one type wherever it stands.
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(
        "constrain_layout custom_call_has_side_effect has_dynamic_root indices_are_sorted is_associative is_composite"
        " is_host_transfer is_reverse is_stable largest left_side lower unique_indices unit_diagonal"
        " use_global_device_ids".split(),
        _BOOLEAN,
    ),
    **dict.fromkeys(
        "batch_group_count channel_id delta exponent_bits feature_group_count feature_index index index_vector_dim"
        " inferred_dimension iota_dimension k mantissa_bits num_carries".split(),
        _INTEGER,
    ),
    **dict.fromkeys(
        "collapsed_slice_dims dimensions dynamic_slice_sizes fft_length input_batching_dims inserted_window_dims"
        " lhs_batch_dims lhs_contracting_dims lhs_ragged_dims offset_dims operand_batching_dims rhs_batch_dims"
        " rhs_contracting_dims rhs_group_dims scatter_dims_to_operand_dims scatter_indices_batching_dims slice_sizes"
        " start_index_map start_indices_batching_dims update_window_dims".split(),
        _INTEGERS,
    ),
    **dict.fromkeys(
        "body calls condition false_computation scatter select to_apply true_computation".split(), COMPUTATION
    ),
    **dict.fromkeys("branch_computations called_computations".split(), _COMPUTATIONS),
    **dict.fromkeys("async_execution_thread custom_call_target infeed_config outfeed_config".split(), _STRING),
    "algorithm": _choice(" ".join(("unset", *PIECES_BY_ALGORITHM)), any_case=True),
    "api_version": _choice(
        "API_VERSION_ORIGINAL API_VERSION_STATUS_RETURNING API_VERSION_STATUS_RETURNING_UNIFIED API_VERSION_TYPED_FFI",
        any_case=True,
    ),
    "backend_config": _BACKEND,
    "control-predecessors": Kind(_take_instruction_names, _show_names),
    "convolution_kind": _choice("fprop wgrad dgrad unset"),
    # XLA reads all other integers as 64 bits, and refuses what does not fit 32 here.
    "cross_program_prefetch_index": _plain(checked_text.take_int32, str),
    "dim_labels": _plain(structured.take_labels, lambda labels: f"{labels.lhs}_{labels.rhs}->{labels.output}"),
    "direction": _choice("EQ NE GE GT LE LT"),
    "distribution": _choice("rng_uniform rng_normal", any_case=True),
    "domain": _raw(checked_text.DOMAIN),
    "epsilon": _plain(_take_epsilon, lambda value: repr(value).removesuffix(".0")),
    "fft_type": _choice("FFT IFFT RFFT IRFFT"),
    "frontend_attributes": _FRONTEND,
    "kind": _choice("kLoop kInput kOutput kCustom"),
    "literal": _raw(take_shaped_literal),
    "metadata": _raw(checked_text.METADATA, checked_text.PRINTED_METADATA),
    "mode": _choice("cross_replica cross_partition cross_replica_and_partition flattened_id"),
    "operand_layout_constraints": _plain(
        list_of(Lexer.take_shape), lambda shapes: "{" + ", ".join(map(str, shapes)) + "}"
    ),
    "operand_precision": _plain(list_of(word_of("default high highest", any_case=True)), show_list),
    "origin": _raw(checked_text.ORIGIN),
    "outfeed_shape": _plain(Lexer.take_shape, shape_text),
    "output_to_operand_aliasing": _plain(list_of(structured.take_operand_alias), structured.show_operand_aliases),
    "padding": _plain(structured.take_padding, structured.show_padding),
    "padding_type": _choice("PADDING_INVALID PADDING_VALID PADDING_SAME"),
    "parameter_replication": _plain(list_of(take_boolean), _show_booleans),
    # Printed in the notation they came in: an iota list of a thousand devices must not become a thousand ids.
    "replica_groups": _plain(take_replica_groups, lambda groups: groups.text or show_lists(groups.groups)),
    "result_accuracy": _raw(checked_text.ACCURACY),
    "schedule": _choice("SCHEDULE_NONE SCHEDULE_LATEST SCHEDULE_EARLIEST", any_case=True),
    "sharding": _raw(checked_text.SHARDING),
    "slice": _plain(list_of(structured.take_slice_dimension), structured.show_slice),
    "source_target_pairs": _INTEGER_LISTS,
    "sparsity_config": _raw(checked_text.SPARSITY),
    "statistics": _raw(checked_text.take_statistics),
    "transpose_a": _choice("NO_TRANSPOSE TRANSPOSE ADJOINT"),
    "type": _choice("FLOAT TOTALORDER SIGNED UNSIGNED"),
    "window": _plain(structured.take_window, structured.show_window),
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
    "backend_config": _BACKEND,
    "buffer_donor": _plain(list_of(structured.take_buffer_donor), structured.show_buffer_donors),
    "debug_attributes": _raw(checked_text.DEBUG_ATTRIBUTES),
    "entry_computation_layout": _plain(structured.take_computation_layout, structured.show_computation_layout),
    "frontend_attributes": _FRONTEND,
    "input_output_alias": _plain(list_of(structured.take_parameter_alias), structured.show_parameter_aliases),
    "is_scheduled": _BOOLEAN,
    "num_partitions": _INTEGER,
    "origin_recovery_table": _raw(checked_text.take_recovery_table),
    "replica_count": _INTEGER,
}
"""Kinds of the attributes of a module's first line."""
