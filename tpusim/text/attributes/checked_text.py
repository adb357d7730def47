"""Attributes that are checked and stay the text that they were: sharding, metadata, origin and their like.

Each function reads one value and says what is wrong with it; ``attributes.py`` keeps the text between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpusim.text.attributes.devices import Mesh, take_axes, take_axis, take_iota, take_mesh
from tpusim.text.lists import take_bare_integers, take_boolean, take_integers, take_list
from tpusim.text.strings import take_string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpusim.text.lexer import Lexer

# These end up in int32 fields of protocol buffers; XLA refuses what would be cut off there.
_INT32 = 1 << 31
# As deep as shapes may nest.
_DEEPEST_ORIGIN = 100
_SHARDING_WORDS = ("maximal", "replicated", "manual", "unknown", "unreduced", "last_tile_dim_replicate")
_WHOLE_SHARDINGS = ("replicated", "manual", "unknown", "unreduced")
# Without unknown, which says something of a whole sharding only.
_TILE_ROLES = ("maximal", "replicated", "manual", "unreduced")
_REDUCTIONS = ("sum", "max", "min")


def take_fields(
    lexer: Lexer, readers: Mapping[str, Callable[[Lexer], object]], required: frozenset[str] = frozenset()
) -> dict[str, object]:
    """Read ``{key=value key=value}``, with commas between or without, each key at most once; return the values."""
    start = lexer.start
    lexer.take("{", "'{'")
    values: dict[str, object] = {}
    while lexer.kind != "}":
        # Metadata is printed with blanks between its fields; old texts have commas.
        lexer.accept(",")
        place = lexer.start
        key = lexer.take("attribute", "a field (name=value) or '}'")
        if key not in readers or key in values:
            lexer.fail(f"expected each of {', '.join(readers)} at most once, found {key!r}", place)
        values[key] = readers[key](lexer)
    if required - values.keys():
        lexer.fail(f"field {min(required - values.keys())!r} is missing", start)
    lexer.take("}", "'}'")
    return values


def take_int32(lexer: Lexer) -> int:
    """Read an integer of 32 bits."""
    start = lexer.start
    value = lexer.take_integer()
    if not -_INT32 <= value < _INT32:
        lexer.fail(f"{value} does not fit 32 bits", start)
    return value


def take_metadata(lexer: Lexer) -> None:
    """Read ``{op_type="..." op_name="..." ...}``."""
    take_fields(lexer, _METADATA)


def take_frontend_attributes(lexer: Lexer) -> None:
    """Read ``{key="value",key={...}}``."""
    lexer.take("{", "'{'")
    if not lexer.accept("}"):
        _frontend_attribute(lexer)
        while lexer.accept(","):
            _frontend_attribute(lexer)
        lexer.take("}", "',' or '}'")


def take_backend_config(lexer: Lexer) -> None:
    """Read a string or a JSON object."""
    if lexer.kind == "{":
        lexer.take_json_object()
    else:
        take_string(lexer, "a string or a JSON object")


def take_statistics(lexer: Lexer) -> None:
    """Read ``{visualizing_index=0,name=1.5,...}``."""
    lexer.take("{", "'{'")
    if lexer.accept("}"):
        return
    # XLA takes any name in this place and reads the index behind it; so do we.
    lexer.take("attribute", "visualizing_index=")
    lexer.take_integer()
    while lexer.accept(","):
        lexer.take("attribute", "the name of a statistic")
        take_number(lexer)
    lexer.take("}", "',' or '}'")


def take_number(lexer: Lexer) -> float:
    """Read an integer or a finite decimal number, or nan."""
    if lexer.kind == "integer":
        return float(lexer.take_integer())
    start = lexer.start
    text = lexer.take("float", "a number")
    # A NaN may carry a payload in parentheses, which Python's float() does not read.
    value = float(text.partition("(")[0])
    if abs(value) == float("inf") and not text.endswith("inf"):
        lexer.fail(f"{text[:40]} does not fit a 64-bit floating-point number", start)
    return value


def take_sharding(lexer: Lexer) -> None:
    """Read the sharding of an array, or ``{...}`` around those of a tuple's leaves."""
    # {} is the sharding of an empty tuple.
    if lexer.peek() not in ("{", "}"):
        _take_array_sharding(lexer)
    else:
        take_list(lexer, _take_array_sharding)


def take_domain(lexer: Lexer) -> None:
    """Read ``{kind="sharding", entry={...}, exit={...}}``."""
    take_fields(lexer, _DOMAIN, frozenset(_DOMAIN))


def take_sparsity(lexer: Lexer) -> None:
    """Read ``{lhs={sparsity=2x4 dimension=1 stride=1} rhs={...}}``."""
    take_fields(lexer, {"lhs": _take_operand_sparsity, "rhs": _take_operand_sparsity})


def take_accuracy(lexer: Lexer) -> None:
    """Read ``{mode=highest}`` or ``{tolerance={atol=0.1,rtol=0.1,ulps=3}}``."""
    lexer.take("{", "'{'")
    place = lexer.start
    key = lexer.take("attribute", "mode= or tolerance=")
    if key == "mode":
        _take_choice(lexer, ("default", "highest"))
    elif key == "tolerance":
        take_list(lexer, _take_tolerance)
    else:
        lexer.fail(f"expected mode= or tolerance=, found {key!r}", place)
    lexer.take("}", "'}'")


def take_origin(lexer: Lexer) -> None:
    """Read ``{{"name" {0,1}}}``, a tuple tree ``{({"a"}, {"b"})}`` of them, or ``{[synthetic_call]}``."""
    lexer.take("{", "'{'")
    if lexer.accept("["):
        _take_choice(lexer, ("synthetic_call",))
        lexer.take("]", "']'")
    else:
        _take_origin_tree(lexer)
    lexer.take("}", "'}'")


def take_recovery_table(lexer: Lexer) -> None:
    """Read ``{{"old"} : {"new"}, "module text" ...}``."""
    lexer.take("{", "'{'")
    # The recovery modules stay text: they say how to recompute a lost value, which nobody asks for here.
    while lexer.kind != "}":
        _take_original_array(lexer)
        lexer.take(":", "':'")
        _take_original_array(lexer)
        if lexer.accept(","):
            take_string(lexer, "the text of a module")
    lexer.take("}", "'}'")


def take_debug_attributes(lexer: Lexer) -> None:
    """Read ``{{"name"}: {log_mode=default,op_id=1}, {"name"}: ({..}, {..})}``."""
    take_list(lexer, _take_debug_entry)


def _frontend_attribute(lexer: Lexer) -> None:
    """Read one ``key="value"`` or ``key={...}``."""
    lexer.take("attribute", "a front end's attribute (name=value)")
    # A front end's value has the two forms of a backend_config.
    take_backend_config(lexer)


def _take_choice(lexer: Lexer, words: tuple[str, ...]) -> str:
    """Read one of a few words."""
    if lexer.kind not in ("identifier", "keyword") or lexer.value not in words:
        lexer.fail(f"expected {' or '.join(words)}, found {lexer.shown()}")
    word = lexer.value
    lexer.advance()
    return word


def _take_metadata_list(lexer: Lexer) -> None:
    """Read one ``{...}`` of metadata, or a list of them in braces."""
    if lexer.peek() == "{":
        take_list(lexer, take_metadata)
    else:
        take_metadata(lexer)


def _take_array_sharding(lexer: Lexer) -> None:
    """Read ``{devices=[2,1]<=[2] last_tile_dims={manual}}``, ``{replicated}``, ``{mesh[...], [...]}`` or alike."""
    start = lexer.start
    lexer.take("{", "'{'")
    if lexer.value in ("mesh", "maximal_mesh") and lexer.kind == "identifier":
        _take_mesh_sharding(lexer)
        return
    # XLA takes words and fields in any order, and judges them together at the end.
    words: set[str] = set()
    while lexer.kind != "}":
        words |= _take_sharding_part(lexer)
    lexer.take("}", "'}'")
    if words.isdisjoint(_WHOLE_SHARDINGS) and not words & {"devices", "maximal"}:
        lexer.fail("expected devices=, or one of replicated, maximal, manual, unknown, unreduced", start)
    if words & set(_WHOLE_SHARDINGS) and words & {"device", "devices"}:
        lexer.fail("a sharding that is not tiled lists no devices", start)
    if "maximal" in words and words & {"device", "devices"} == set() and words.isdisjoint(_WHOLE_SHARDINGS):
        lexer.fail("a maximal sharding names its device: {maximal device=0}", start)


def _take_sharding_part(lexer: Lexer) -> set[str]:
    """Read one word or field of a sharding; return its name."""
    word = lexer.value
    if lexer.kind == "keyword" and word in _SHARDING_WORDS:
        lexer.advance()
        return {word}
    if lexer.kind == "keyword" and word in ("shard_as", "shard_like"):
        lexer.advance()
        lexer.take_integer()
        return {word}
    place = lexer.start
    key = lexer.take("attribute", "a word or a field of a sharding")
    if key not in _SHARDING_FIELDS:
        lexer.fail(f"expected one of {', '.join(_SHARDING_FIELDS)}, found {key!r}", place)
    _SHARDING_FIELDS[key](lexer)
    return {key}


def _take_tile_assignment(lexer: Lexer) -> None:
    """Read ``[2,1]0,1`` or ``[2,1]<=[2]``."""
    start = lexer.start
    tiles = take_integers(lexer, "[]")
    if not tiles:
        lexer.fail("expected the number of tiles per dimension", start)
    if lexer.kind == "<=":
        take_iota(lexer)
        return
    # One device alone is what maximal is for; XLA refuses it in this spelling.
    if len(take_bare_integers(lexer)) < 2:
        lexer.fail("a tiled sharding must list more than one device", start)


def _take_tile_roles(lexer: Lexer) -> None:
    """Read ``{manual, replicated}``."""
    take_list(lexer, lambda lexer: _take_choice(lexer, _TILE_ROLES))


def _take_mesh_sharding(lexer: Lexer) -> None:
    """Read ``mesh['a'=2], [{'a'}, {}], replicated={..}}`` up to its brace."""
    if lexer.value == "maximal_mesh":
        _take_maximal_mesh(lexer)
        return
    mesh = take_mesh(lexer, may_be_empty=True)
    lexer.accept(",")
    if lexer.kind == "[":
        take_list(lexer, lambda lexer: _take_dimension_sharding(lexer, mesh), "[]")
        while lexer.accept(","):
            _take_mesh_field(lexer, mesh)
    elif lexer.value == "unreduced":
        _take_unreduced(lexer, mesh)
        _take_trailing_metadata(lexer)
    else:
        _take_choice(lexer, ("replicated", "manual") if mesh.axes else ("replicated",))
        _take_trailing_metadata(lexer)
    lexer.take("}", "',' or '}'")


def _take_maximal_mesh(lexer: Lexer) -> None:
    """Read ``maximal_mesh[device_id=3]}``."""
    lexer.advance()
    lexer.take("[", "'['")
    place = lexer.start
    if lexer.take("attribute", "device_id=") != "device_id":
        lexer.fail("expected device_id=", place)
    lexer.take_integer()
    lexer.take("]", "']'")
    _take_trailing_metadata(lexer)
    lexer.take("}", "'}'")


def _take_trailing_metadata(lexer: Lexer) -> None:
    """Read ``, metadata={...}`` if it is there."""
    if not lexer.accept(","):
        return
    place = lexer.start
    if lexer.take("attribute", "metadata=") != "metadata":
        lexer.fail("expected metadata=", place)
    _take_metadata_list(lexer)


def _take_mesh_field(lexer: Lexer, mesh: Mesh) -> None:
    """Read ``replicated={..}``, ``unreduced=sum{..}``, ``manual={..}`` or ``metadata={..}``."""
    place = lexer.start
    key = lexer.take("attribute", "replicated=, unreduced=, manual= or metadata=")
    if key not in ("replicated", "unreduced", "manual", "metadata"):
        lexer.fail(f"expected replicated=, unreduced=, manual= or metadata=, found {key!r}", place)
    if key == "metadata":
        _take_metadata_list(lexer)
        return
    if key == "unreduced" and lexer.kind == "identifier":
        _take_choice(lexer, _REDUCTIONS)
    take_axes(lexer, mesh)


def _take_unreduced(lexer: Lexer, mesh: Mesh) -> None:
    """Read ``unreduced``, ``unreduced=sum`` or ``unreduced=sum{'a'}``."""
    # The equals sign is part of the token, if there is one.
    is_field = lexer.kind == "attribute"
    lexer.advance()
    if is_field:
        _take_choice(lexer, _REDUCTIONS)
    if lexer.kind == "{":
        take_axes(lexer, mesh)


def _take_dimension_sharding(lexer: Lexer, mesh: Mesh) -> None:
    """Read ``{'a', 'b'}`` or ``{'a', ?}``."""
    lexer.take("{", "'{'")
    is_open = False
    while lexer.kind != "}":
        # An open dimension may get more axes by propagation, behind those that are named; '?' stands for them.
        if is_open:
            lexer.fail("nothing may follow '?'")
        is_open = lexer.accept("?")
        if not is_open:
            take_axis(lexer, mesh)
        if not lexer.accept(","):
            break
    lexer.take("}", "',' or '}'")


def _take_operand_sparsity(lexer: Lexer) -> None:
    """Read ``{sparsity=2x4 dimension=1 stride=1}``."""
    take_fields(lexer, _OPERAND_SPARSITY)


def _take_ratio(lexer: Lexer) -> None:
    """Read ``2x4``."""
    start = lexer.start
    if lexer.take("sizes", "a ratio such as 2x4").count("x") != 1:
        lexer.fail("expected a ratio such as 2x4", start)


def _take_kind(lexer: Lexer) -> None:
    """Read the only kind of domain that there is."""
    start = lexer.start
    if take_string(lexer) != "sharding":
        lexer.fail('expected "sharding"', start)


def _take_tolerance(lexer: Lexer) -> None:
    """Read ``atol=0.1``."""
    place = lexer.start
    if lexer.take("attribute", "atol=, rtol= or ulps=") not in ("atol", "rtol", "ulps"):
        lexer.fail("expected atol=, rtol= or ulps=", place)
    take_number(lexer)


def _take_origin_tree(lexer: Lexer) -> None:
    """Read a tuple tree of original arrays, in a loop so that depth costs nothing."""
    depth = 0
    while lexer.kind != "}":
        if lexer.kind == "{":
            _take_original_array(lexer)
            continue
        # Counted, not built: whether its leaves are those of the shape is the verifier's question.
        depth += {"(": 1, ")": -1}.get(lexer.kind, 0)
        is_misplaced = lexer.kind not in ("(", ")", ",") or (lexer.kind == "," and depth == 0)
        if is_misplaced or not 0 <= depth <= _DEEPEST_ORIGIN:
            lexer.fail(f"expected an original array or a tuple of them, found {lexer.shown()}")
        lexer.advance()
    if depth:
        lexer.fail("expected ')'")


def _take_original_array(lexer: Lexer) -> None:
    """Read ``{"name" {0,1}}``."""
    lexer.take("{", "'{'")
    # {} is a leaf whose origin is lost, by a rewrite that kept no track of it.
    if lexer.kind == "string":
        take_string(lexer)
        if lexer.kind == "{":
            take_integers(lexer)
    lexer.take("}", "'}'")


def _take_debug_entry(lexer: Lexer) -> None:
    """Read ``{"name"}: {...}`` or ``{"name"}: ({...}, {...})``."""
    _take_original_array(lexer)
    lexer.take(":", "':'")
    if lexer.kind == "(":
        take_list(lexer, lambda lexer: take_fields(lexer, _DEBUG), "()")
    else:
        take_fields(lexer, _DEBUG)


_METADATA: dict[str, Callable[[Lexer], object]] = {
    "op_type": take_string,
    "op_name": take_string,
    "source_file": take_string,
    "source_line": take_int32,
    "source_end_line": take_int32,
    "source_column": take_int32,
    "source_end_column": take_int32,
    "stack_frame_id": take_int32,
    "profile_type": take_integers,
    "deduplicated_name": take_string,
    "scheduling_name": take_string,
    "metadata_payload": take_string,
}
_DOMAIN: dict[str, Callable[[Lexer], object]] = {"kind": _take_kind, "entry": take_sharding, "exit": take_sharding}
_OPERAND_SPARSITY: dict[str, Callable[[Lexer], object]] = {
    "sparsity": _take_ratio,
    "dimension": lambda lexer: lexer.take_integer(),
    "stride": lambda lexer: lexer.take_integer(),
}
_SHARDING_FIELDS: dict[str, Callable[[Lexer], object]] = {
    "device": lambda lexer: lexer.take_integer(),
    "devices": _take_tile_assignment,
    "metadata": _take_metadata_list,
    "last_tile_dims": _take_tile_roles,
}
_DEBUG: dict[str, Callable[[Lexer], object]] = {
    "log_mode": lambda lexer: lexer.take_word("default or fusion_debugger"),
    "callback_id": lambda lexer: lexer.take_integer(),
    "partitioned": take_boolean,
    "op_id": lambda lexer: lexer.take_integer(),
}
