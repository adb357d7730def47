"""The operations of XLA, one row each: operand counts, attributes and category.

A row lists its attributes as the operation semantics do: ``name*`` is required, ``name`` may be left out. What every
instruction may carry besides stands in ``COMMON_ATTRIBUTES``.

Source: XLA, Operation Semantics, and the opcodes of its HLO text format.
"""

from __future__ import annotations

from enum import Enum
from functools import cache
from operator import attrgetter
from typing import Final

import msgspec


class Category(Enum):
    """What an operation is about; decides nothing by itself, but groups rows in tables and reports."""

    SOURCE = "source"
    ELEMENTWISE = "elementwise"
    DATA = "data movement"
    CONTRACTION = "contraction"
    REDUCTION = "reduction"
    LINEAR_ALGEBRA = "linear algebra"
    RANDOM = "random"
    NORMALISATION = "normalisation"
    TUPLE = "tuple"
    CONTROL = "control flow"
    COLLECTIVE = "collective"
    ASYNC = "asynchronous"
    HOST = "host and channel"
    ORDER = "ordering"


class Operation(msgspec.Struct, frozen=True):
    """One opcode: how many operands it takes (``most_operands`` of None is no limit) and which attributes."""

    name: str
    category: Category
    fewest_operands: int
    most_operands: int | None
    required: frozenset[str] = frozenset()
    optional: frozenset[str] = frozenset()

    def allows(self, attribute: str) -> bool:
        """Whether an instruction of this opcode may carry ``attribute``."""
        return attribute in self.optional or attribute in self.required or attribute in COMMON_ATTRIBUTES

    def accepts_count(self, operands: int) -> bool:
        """Whether the opcode takes this many operands."""
        return self.fewest_operands <= operands and (self.most_operands is None or operands <= self.most_operands)


COMMON_ATTRIBUTES: Final = frozenset(
    "sharding frontend_attributes statistics parameter_replication control-predecessors origin metadata"
    " backend_config".split()
)
"""Attributes that every instruction may carry."""

OPERATIONS: Final[dict[str, Operation]] = {}
"""Every opcode's row by its name in HLO text."""

OWN_ASYNC_OPCODES: Final = frozenset({"all-gather", "all-reduce", "collective-permute", "copy", "recv", "send"})
"""Opcodes with asynchronous forms of their own: ``X-start`` of any other is short for ``async-start`` around X."""


@cache
def async_parts(opcode: str) -> tuple[str, str] | None:
    """Split the short form of an asynchronous operation: ``slice-start`` is ``("slice", "start")``.

    None for every other opcode, those with an asynchronous form of their own (``copy-start``) included.
    """
    wrapped, _, phase = opcode.rpartition("-")
    # copy-start and the like are opcodes themselves.
    if opcode in OPERATIONS or phase not in _ASYNC_ATTRIBUTES or wrapped not in OPERATIONS:
        return None
    return None if wrapped in OWN_ASYNC_OPCODES else (wrapped, phase)


@cache
def long_form(opcode: str) -> str:
    """Return the opcode that the short form of an asynchronous operation stands for; of any other the same."""
    parts = async_parts(opcode)
    return f"async-{parts[1]}" if parts else opcode


@cache
def async_phase(opcode: str) -> str:
    """Return ``start``, ``update`` or ``done`` of an asynchronous operation around another; else an empty string."""
    parts = async_parts(opcode)
    if parts:
        return parts[1]
    return opcode.removeprefix("async-") if opcode.startswith("async-") else ""


def collective_kind(opcode: str) -> str:
    """Return the collective that an opcode is, or starts; an empty string for any other."""
    kind = opcode.removesuffix("-start")
    return kind if kind in COLLECTIVES else ""


@cache
def find_operation(opcode: str) -> Operation | None:
    """Return the row of an opcode, or one made up for the short form of an asynchronous operation; None if unknown."""
    parts = async_parts(opcode)
    if parts is None:
        return OPERATIONS.get(opcode)
    wrapped, phase = OPERATIONS[parts[0]], parts[1]
    # An update or done inherits everything from its start.
    if phase != "start":
        return Operation(opcode, Category.ASYNC, 1, 1 if phase == "done" else None, optional=_ASYNC_ATTRIBUTES[phase])
    optional = wrapped.optional | _ASYNC_ATTRIBUTES[phase]
    return Operation(opcode, Category.ASYNC, 0, None, wrapped.required, optional)


# No calls: a short form stands for one operation, whose computation is not printed.
_ASYNC_ATTRIBUTES = {
    "start": frozenset({"async_execution_thread", "output_to_operand_aliasing"}),
    "update": frozenset({"async_execution_thread", "output_to_operand_aliasing"}),
    "done": frozenset({"async_execution_thread"}),
}
# XLA's parser lets collectives and calls have no operands at all.
_ANY = (0, None)
# None is required, as in XLA's parser: what is left out is empty.
_DOT = "lhs_contracting_dims rhs_contracting_dims lhs_batch_dims rhs_batch_dims operand_precision"
# Few versions of XLA printed a mode; the others derive it from channel_id and use_global_device_ids.
_REDUCING = "to_apply* replica_groups channel_id constrain_layout use_global_device_ids mode"
# A custom call may stand for any operation, a convolution included: hence window and dim_labels.
_CUSTOM_CALL = (
    "custom_call_target* window dim_labels feature_group_count batch_group_count operand_layout_constraints"
    " custom_call_has_side_effect to_apply called_computations output_to_operand_aliasing padding_type literal"
    " operand_precision schedule api_version"
)
_GATHER = (
    "offset_dims* collapsed_slice_dims* start_index_map* index_vector_dim* slice_sizes* indices_are_sorted"
    " operand_batching_dims start_indices_batching_dims"
)
_SCATTER = (
    "update_window_dims* inserted_window_dims* scatter_dims_to_operand_dims* index_vector_dim* to_apply*"
    " indices_are_sorted unique_indices input_batching_dims scatter_indices_batching_dims"
)
# window is not required: without spatial dimensions XLA prints none.
_CONVOLUTION = (
    "window dim_labels* feature_group_count batch_group_count convolution_kind operand_precision algorithm"
    " sparsity_config"
)

# Opcodes of one form; their operands (one count, or fewest and most); their attributes.
_ROWS: dict[Category, tuple[tuple[str, int | tuple[int, int | None], str], ...]] = {
    Category.SOURCE: (
        ("constant parameter partition-id replica-id", 0, ""),
        ("iota", 0, "iota_dimension*"),
    ),
    Category.ELEMENTWISE: (
        (
            "abs bitcast-convert ceil convert count-leading-zeros floor imag is-finite negate not popcnt real"
            " round-nearest-afz round-nearest-even sign",
            1,
            "",
        ),
        (
            "acos acosh asin asinh atanh cbrt cosh cosine erf exponential exponential-minus-one log log-plus-one"
            " logistic rsqrt sine sinh sqrt tan tanh",
            1,
            "result_accuracy",
        ),
        (
            "add and atan2 complex divide maximum minimum mulhi multiply or power remainder shift-left"
            " shift-right-arithmetic shift-right-logical stochastic-convert subtract xor",
            2,
            "",
        ),
        ("clamp select", 3, ""),
        ("compare", 2, "direction* type"),
        ("map", _ANY, "to_apply* dimensions"),
        ("reduce-precision", 1, "exponent_bits* mantissa_bits*"),
    ),
    Category.DATA: (
        ("bitcast copy", 1, ""),
        ("broadcast", 1, "dimensions"),
        ("concatenate", (1, None), "dimensions*"),
        ("dynamic-reshape", (1, None), ""),
        # Starts are a scalar per dimension or one vector, which depends on shapes: the parser's checks count them.
        ("dynamic-slice", (1, None), "dynamic_slice_sizes*"),
        ("dynamic-update-slice", (2, None), ""),
        ("gather", 2, _GATHER),
        ("get-dimension-size reverse transpose", 1, "dimensions*"),
        ("pad", 2, "padding*"),
        ("reshape", 1, "inferred_dimension"),
        ("scatter", (3, None), _SCATTER),
        ("set-dimension-size", 2, "dimensions*"),
        ("slice", 1, "slice*"),
        ("sort", (1, None), "dimensions* to_apply* is_stable"),
        ("topk", 1, "k* largest is_stable"),
    ),
    Category.CONTRACTION: (
        ("convolution", 2, _CONVOLUTION),
        ("dot", 2, _DOT + " algorithm"),
        ("ragged-dot", 3, _DOT + " lhs_ragged_dims rhs_group_dims"),
        ("scaled-dot", 4, _DOT + " algorithm"),
    ),
    Category.REDUCTION: (
        ("reduce", (2, None), "to_apply* dimensions*"),
        ("reduce-window", (2, None), "to_apply* window"),
        ("scan", _ANY, "to_apply* dimensions* num_carries* is_reverse is_associative"),
        ("select-and-scatter", 3, "select* scatter* window"),
    ),
    Category.LINEAR_ALGEBRA: (
        ("cholesky", 1, "lower"),
        ("fft", 1, "fft_type* fft_length*"),
        ("triangular-solve", 2, "left_side lower unit_diagonal transpose_a"),
    ),
    Category.RANDOM: (
        ("rng", _ANY, "distribution*"),
        ("rng-bit-generator", 1, "algorithm*"),
        ("rng-get-and-update-state", 0, "delta*"),
    ),
    Category.NORMALISATION: (
        ("batch-norm-grad batch-norm-inference", 5, "epsilon* feature_index*"),
        ("batch-norm-training", 3, "epsilon* feature_index*"),
    ),
    Category.TUPLE: (
        ("get-tuple-element", 1, "index*"),
        ("tuple", _ANY, ""),
    ),
    Category.CONTROL: (
        ("call", _ANY, "to_apply* is_composite"),
        # Which of the three a conditional needs depends on the type of its first operand.
        ("conditional", (2, None), "true_computation false_computation branch_computations"),
        ("custom-call", _ANY, _CUSTOM_CALL),
        ("fusion", _ANY, "calls* kind* output_to_operand_aliasing"),
        ("while", 1, "condition* body*"),
    ),
    Category.COLLECTIVE: (
        (
            "all-gather all-gather-start",
            _ANY,
            "dimensions* replica_groups channel_id constrain_layout use_global_device_ids",
        ),
        ("all-gather-done all-reduce-done collective-permute-done", 1, ""),
        ("all-reduce all-reduce-start", _ANY, _REDUCING),
        ("all-to-all", _ANY, "replica_groups channel_id dimensions constrain_layout"),
        ("collective-broadcast", _ANY, "replica_groups channel_id has_dynamic_root"),
        ("collective-permute collective-permute-start", _ANY, "source_target_pairs* channel_id slice_sizes"),
        # Input and output, then input offsets, send sizes, output offsets and receive sizes.
        ("ragged-all-to-all", 6, "replica_groups channel_id dimensions"),
        ("reduce-scatter", _ANY, _REDUCING + " dimensions*"),
    ),
    Category.ASYNC: (
        ("async-done", 1, "async_execution_thread calls"),
        ("async-start", _ANY, "calls* async_execution_thread output_to_operand_aliasing"),
        ("async-update", (1, None), "async_execution_thread calls output_to_operand_aliasing"),
        ("copy-done", 1, ""),
        # The index marks a parameter that the program before may already have fetched into VMEM.
        ("copy-start", 1, "cross_program_prefetch_index"),
    ),
    Category.HOST: (
        ("infeed", 1, "infeed_config"),
        ("outfeed", 2, "outfeed_config outfeed_shape"),
        ("recv recv-done send-done", 1, "channel_id is_host_transfer"),
        ("send", 2, "channel_id is_host_transfer"),
    ),
    Category.ORDER: (
        ("add-dependency", 2, ""),
        ("after-all", _ANY, ""),
        ("domain", 1, "domain*"),
        ("opt-barrier", 1, ""),
    ),
}


def _form(category: Category, names: str, operands: int | tuple[int, int | None], attributes: str) -> list[Operation]:
    """Turn one line of the table into the rows of its opcodes."""
    fewest, most = operands if isinstance(operands, tuple) else (operands, operands)
    words = attributes.split()
    # The star lets a row name each attribute once, required or not.
    required = frozenset(word[:-1] for word in words if word.endswith("*"))
    optional = frozenset(words) - {word + "*" for word in required}
    return [Operation(name, category, fewest, most, required, optional) for name in names.split()]


for _category, _forms in _ROWS.items():
    _rows = [row for form in _forms for row in _form(_category, *form)]
    OPERATIONS.update((row.name, row) for row in sorted(_rows, key=attrgetter("name")))


def _named(words: str) -> frozenset[str]:
    """Return opcodes written as words."""
    found = frozenset(words.split())
    assert OPERATIONS.keys() >= found, found - OPERATIONS.keys()
    return found


def _of(category: Category) -> frozenset[str]:
    return frozenset(name for name, row in OPERATIONS.items() if row.category is category)


# Traits: what opcodes have in common. Each is a set, and `opcode in VIEWS` the question.

ELEMENTWISE: Final = _of(Category.ELEMENTWISE)
"""Each element of the result is computed from the elements at its place."""

PRODUCTS: Final = _of(Category.CONTRACTION)
"""Sums of products, for the matrix unit."""

REDUCTIONS: Final = _of(Category.REDUCTION)
"""Combine elements of their operands."""

TUPLES: Final = _of(Category.TUPLE)
"""Put values into a tuple, or take one out."""

VIEWS: Final = _named("add-dependency bitcast domain opt-barrier")
"""The bytes of the first operand under another name (XLA, HloDataflowAnalysis)."""

SAME_VALUE: Final = VIEWS - {"bitcast"} | {"copy"}
"""The result is the first operand, with its type and its dimensions."""

LINEAR_ALGEBRA: Final = _of(Category.LINEAR_ALGEBRA)
"""Factorise, solve and transform matrices."""

RESHAPES: Final = _named("dynamic-reshape reshape")
"""Give an array's elements other dimensions."""

SAME_ELEMENTS: Final = SAME_VALUE | RESHAPES | {"bitcast"}
"""The result has the first operand's elements in their order; dimensions differ, and for a bitcast the type may."""

COMPILED: Final = _named("bitcast fusion")
"""Only compilers make them: their meaning hangs on layouts and kernels that one chose."""

COPIES: Final = _named("copy copy-done copy-start")
"""Move a value to another place or layout."""

FORWARDS_BUFFERS: Final = VIEWS | TUPLES | {"while"}
"""Opcodes that do not read their operands: a loop's state goes on in its computations."""

IN_PLACE: Final = _named("dynamic-update-slice scatter")
"""The result is written over the first operand."""

INDEXED: Final = IN_PLACE | _named("dynamic-slice gather")
"""Which elements are read or written depends on values."""

PARTIAL_READS: Final = INDEXED | _named("get-tuple-element pad slice")
"""The whole result may be made of a part of an operand; for that of any other opcode whole operands are needed."""

DMA_COPIES: Final = _named("copy dynamic-slice dynamic-update-slice slice")
"""What a copy engine does by itself if it is started asynchronously."""

FREE: Final = VIEWS | TUPLES | _named("after-all constant get-dimension-size parameter set-dimension-size")
"""Opcodes that only name values: they take no time."""

REARRANGES: Final = _named(
    "broadcast concatenate copy dynamic-reshape dynamic-slice pad reshape reverse slice transpose"
)
"""Elements of arrays at other places: of one array of one element that is the array itself."""

PUTS_TOGETHER: Final = _named("concatenate pad")
"""The result has all of one operand beside something else."""

MOVES_ONLY: Final = (
    FREE | REARRANGES | _named("bitcast-convert convert custom-call dynamic-update-slice fusion gather iota")
)
"""Opcodes that move or name data but compute nothing; what a fusion or custom call computes is counted elsewhere."""

SEES_BITS: Final = _named("bitcast-convert reduce-precision stochastic-convert")
"""The result depends on how the operand's numbers are written, or the instruction on how many bits they have."""

ALIKE_IN_ANY_SHAPE: Final = ELEMENTWISE - SEES_BITS - _named("map")
"""Each element is made of those at its place alone: dimensions may be others, if they are of all operands."""

MAKES_SUBNORMALS: Final = _named("add divide exponential multiply power remainder subtract")
"""The result may lie below the normal numbers where no operand does."""

COMBINES: Final = _named("add and maximum minimum multiply or xor")
"""Take two values in any order and any grouping, rounding aside."""

IDEMPOTENT: Final = _named("and maximum minimum or")
"""Take values in any order and any number of times."""

SELECTS: Final = (
    VIEWS | TUPLES | _named("and bitcast-convert compare constant maximum minimum not or parameter select xor")
)
"""Round nothing: of a computation of these, numbers of every kind show whether neighbours may be combined first."""

APPLIES_TO_ELEMENTS: Final = _named("map reduce reduce-window")
"""Apply a computation to elements of their operands, which must have the types of its parameters."""

SORTS: Final = _named("sort topk")
"""Put elements in order."""

WRITTEN_OUT: Final = _named("constant parameter")
"""A number or a literal stands where others have their operands."""

DEVICE_IDS: Final = _named("partition-id replica-id")
"""Numbers that differ from device to device."""

CONTROL_FLOW: Final = _named("call conditional while")
"""Run scheduled computations, instruction by instruction."""

CALLS: Final = CONTROL_FLOW | _named("async-start fusion")
"""Run computations as parts of the program; what a reduction or a sort calls is applied to elements."""

CALLS_ONE: Final = _named("call fusion")
"""The result is what the computation that they call gives for their operands."""

# By name: a row says which attributes an opcode has, but not what kind they are of.
_CALLING_ATTRIBUTES = frozenset(
    "body branch_computations called_computations calls condition false_computation scatter select to_apply"
    " true_computation".split()
)

CALLERS: Final = frozenset(
    name for name, operation in OPERATIONS.items() if _CALLING_ATTRIBUTES & (operation.required | operation.optional)
)
"""May name computations; the short forms of asynchronous operations may too."""


@cache
def may_call(opcode: str) -> bool:
    """Return whether instructions of an opcode may name computations."""
    # Short forms (call-start) are in no table, but call as what they wrap does.
    return opcode in CALLERS or opcode not in OPERATIONS


COLLECTIVES: Final = frozenset(name for name in _of(Category.COLLECTIVE) if not name.endswith(("-start", "-done")))
"""What groups of devices do together; a few have asynchronous forms of their own."""

SUMS: Final = _named("all-reduce reduce-scatter")
"""Values of all devices of a group are combined, element by element."""

ON_RINGS: Final = SUMS | _named("all-gather")
"""Collectives in which every device passes on to a neighbour what it has gathered or summed up so far."""

GATHERS_BESIDE: Final = _named("all-gather-start all-gather-done")
"""The start and the end of a gather that runs beside kernels."""

KEEPS_OWN_PART: Final = _named("all-gather all-to-all ragged-all-to-all reduce-scatter")
"""Of the larger side of these collectives each device keeps its own part, and the links carry the others."""

TRANSFERS: Final = _named("recv send")
"""Start to move data between programs, or to or from the host: there is no send-start."""

TRANSFER_DONES: Final = _named("recv-done send-done")
"""End what ``TRANSFERS`` start."""

ASYNC_DONES: Final = TRANSFER_DONES | {name for name in OPERATIONS if name.endswith("-done")}
"""Wait for what has been started."""

ASYNC_STARTS: Final = TRANSFERS | {name for name in OPERATIONS if name.endswith(("-start", "-update"))}
"""Start, or pass on, what runs beside the core."""

MEETS_OTHERS: Final = _of(Category.HOST)
"""Exchange data with the host, or with another program."""

HAS_EFFECTS: Final = _of(Category.COLLECTIVE) | MEETS_OTHERS | _of(Category.RANDOM) | {"after-all"}
"""Not dead without a user: XLA keeps them for what they do (HloInstruction::HasSideEffectNoRecurse)."""

CARRIES_BUFFERS: Final = _named("custom-call dynamic-update-slice get-tuple-element tuple while")
"""Opcodes that can hand a buffer on as it is; any other would have to read it as a value."""

UPDATES_BUFFERS: Final = CARRIES_BUFFERS - TUPLES
"""Opcodes that may write to a buffer and return it."""

KEEPS_LAYOUT: Final = ELEMENTWISE | _named(
    "add-dependency all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start all-to-all"
    " cholesky collective-permute concatenate dynamic-slice dynamic-update-slice fft opt-barrier pad reduce-scatter"
    " reduce-window reverse scatter select-and-scatter set-dimension-size slice sort triangular-solve while"
)
"""Opcodes whose result lies in memory in the order of their operands (XLA, LayoutAssignment)."""

PASSES_ON: Final = _of(Category.HOST) | _named(
    "call conditional copy-done custom-call get-tuple-element opt-barrier tuple while"
)
"""Opcodes that hand on what they were given: type, layout and memory space are those of it (XLA, ShapeVerifier)."""

CONVERTS_NOTHING: Final = PASSES_ON | _named("fusion")
"""Opcodes whose result is of the type of what they hand on, also where floats of several precisions may meet."""

MIXES_FLOATS: Final = (
    PASSES_ON
    | _of(Category.RANDOM)
    | PRODUCTS
    | VIEWS
    | _named(
        "after-all all-gather all-gather-done all-gather-start all-reduce all-reduce-done all-reduce-start async-done"
        " async-start async-update broadcast collective-permute collective-permute-done collective-permute-start"
        " constant copy-start dynamic-reshape fusion parameter reduce-precision reduce-window reshape scan sort"
    )
)
"""Opcodes whose operands may be floats of several precisions, as XLA's verifier has it."""

# What a convert or a bitcast-convert makes is only said by its shape; of the others XLA never asked.
SHAPE_IMPLIED: Final = (
    ELEMENTWISE - _named("bitcast-convert convert reduce-precision stochastic-convert")
    | TUPLES
    | DEVICE_IDS
    | CONTROL_FLOW
    | _of(Category.NORMALISATION)
    | REDUCTIONS
    | PRODUCTS - {"scaled-dot"}
    | SORTS
    | _named(
        "add-dependency after-all cholesky concatenate copy domain fft gather get-dimension-size pad reverse scatter"
        " set-dimension-size transpose triangular-solve"
    )
)
"""Opcodes whose shape the text may leave out, because the operands imply it."""

KEEPS_FLOATS: Final = PASSES_ON | PRODUCTS | HAS_EFFECTS | WRITTEN_OUT | _named("bitcast-convert convert iota")
"""Opcodes whose types of float are their own affair, or follow from those of what they are given."""

EXPENSIVE: Final = PRODUCTS | _named("reduce-window")
"""Never computed twice in order to save memory traffic."""

HOISTED_WITH_USERS: Final = VIEWS | RESHAPES | _named("broadcast constant iota reverse slice transpose tuple")
"""Leave a loop only with what takes them (XLA, WhileLoopInvariantCodeMotion): alone they cost nothing, or little."""

HOISTED_WITH_OPERANDS: Final = PRODUCTS | _named("gather reduce reduce-window")
"""Leave a loop with all that they are made of, however large: less comes of it, or it takes long."""

SLICES: Final = _named("dynamic-slice slice")
"""The result is a part of the operand."""

JOINS: Final = _named("concatenate dynamic-update-slice")
"""The result has the elements of several operands, each where it is put."""

SIBLINGS: Final = _named("dynamic-update-slice reshape slice")
"""Kernels that end with one of these are made together where they read the same (XLA, MultiOutputFusion)."""

RELAYOUTS: Final = RESHAPES | _named("copy transpose")
"""The result has the operand's elements, each perhaps at another place in memory."""

SAME_NUMBERS: Final = RELAYOUTS | _named("bitcast convert")
"""The result has the operand's numbers, each perhaps at another place or of another type."""

CHANGES_TYPE: Final = _named("abs bitcast-convert compare convert imag is-finite real")
"""Element by element, and the result may be of another type than the operand."""

HANDED_IN: Final = _named("get-tuple-element parameter")
"""Arrays that something else has laid out."""

KEEPS_TYPE: Final = VIEWS | CALLS_ONE | _named("all-reduce bitcast-convert custom-call reduce-scatter")
"""What they give has its type from elsewhere: from bytes, from what has made them, or from the sum that it is."""

PLAIN_PRODUCTS: Final = _named("convolution dot")
"""Products that kernels are made around."""

FUSES_INTO_USERS: Final = (ELEMENTWISE | REARRANGES | PLAIN_PRODUCTS | _named("bitcast iota reduce-window")) - _named(
    "dynamic-reshape map"
)
"""A kernel can make these for itself, tile by tile."""

ENDS_KERNELS: Final = _named("dynamic-update-slice reduce")
"""A kernel can end with these, and makes nothing of their result."""

HAS_TILES: Final = FUSES_INTO_USERS | ENDS_KERNELS | _named("fusion")
"""Kernels that have tiles."""

USES_FAST_MEMORY: Final = (
    FUSES_INTO_USERS | ENDS_KERNELS | SORTS | _named("custom-call fusion gather ragged-dot scatter select-and-scatter")
)
"""Kernels that take whole arrays from any memory of the device, and leave them in any."""

KEEPS_TILES: Final = ELEMENTWISE - {"map"} | _named("bitcast reduce reduce-window")
"""Take a tile of a product as it comes; a window may reach over whole rows."""

LAID_OUT_FREELY: Final = _named("broadcast constant iota rng-bit-generator")
"""Made from little or nothing, in whatever order of dimensions is wanted."""
