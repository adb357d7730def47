"""Attributes that are checked and stay the text that they were: sharding, metadata, origin and their like.

Most of this is a table of productions: each reads one value, or says what is wrong with it, and is put together of
smaller ones. ``attributes.table`` keeps the text between.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from tpusim.text.attributes.devices import Mesh, take_axes, take_axis, take_iota, take_mesh
from tpusim.text.lists import take_bare_integers, take_boolean, take_integers, take_list
from tpusim.text.strings import take_string

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpusim.text.lexer import Lexer

Production: TypeAlias = "Callable[[Lexer], object]"

# These end up in int32 fields of protocol buffers; XLA refuses what would be cut off there.
_INT32 = 1 << 31
# As deep as shapes may nest.
_DEEPEST_ORIGIN = 100
_SHARDING_WORDS = ("maximal", "replicated", "manual", "unknown", "unreduced", "last_tile_dim_replicate")
_WHOLE_SHARDINGS = ("replicated", "manual", "unknown", "unreduced")


def take_fields(
    lexer: Lexer, readers: Mapping[str, Production], required: frozenset[str] = frozenset()
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


def _fields(readers: Mapping[str, Production], *required: str) -> Production:
    """Make what reads the fields of ``take_fields``."""
    return lambda lexer: take_fields(lexer, readers, frozenset(required))


def _keyed(readers: Mapping[str, Production]) -> Production:
    """Make what reads one ``name=value``, by the name."""
    expected = " or ".join(f"{name}=" for name in readers)

    def read(lexer: Lexer) -> object:
        place = lexer.start
        key = lexer.take("attribute", expected)
        if key not in readers:
            lexer.fail(f"expected {expected}, found {key!r}", place)
        return readers[key](lexer)

    return read


def _in_order(*steps: Production | str) -> Production:
    """Make what reads one thing after the other; a text is a token."""

    def read(lexer: Lexer) -> None:
        for step in steps:
            if isinstance(step, str):
                lexer.take(step, f"'{step}'")
            else:
                step(lexer)

    return read


def _if_next(kind: str, then: Production, otherwise: Production | None = None) -> Production:
    """Make what reads one thing if a token of this kind is next, else another or nothing."""

    def read(lexer: Lexer) -> None:
        if lexer.kind == kind:
            then(lexer)
        elif otherwise is not None:
            otherwise(lexer)

    return read


def _listed(item: Production, brackets: str = "{}") -> Production:
    """Make what reads a list in brackets."""
    return lambda lexer: take_list(lexer, item, brackets)


def _one_of(*words: str) -> Production:
    """Make what reads one of a few words."""

    def read(lexer: Lexer) -> None:
        if lexer.kind not in ("identifier", "keyword") or lexer.value not in words:
            lexer.fail(f"expected {' or '.join(words)}, found {lexer.shown()}")
        lexer.advance()

    return read


def _integer(lexer: Lexer) -> int:
    """Read an integer."""
    return lexer.take_integer()


def _advance(lexer: Lexer) -> None:
    """Read a token that has been looked at."""
    lexer.advance()


def take_int32(lexer: Lexer) -> int:
    """Read an integer of 32 bits."""
    start = lexer.start
    value = lexer.take_integer()
    if not -_INT32 <= value < _INT32:
        lexer.fail(f"{value} does not fit 32 bits", start)
    return value


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


def take_sharding(lexer: Lexer) -> None:
    """Read the sharding of an array, or ``{...}`` around those of a tuple's leaves."""
    # {} is the sharding of an empty tuple.
    if lexer.peek() not in ("{", "}"):
        _take_array_sharding(lexer)
    else:
        take_list(lexer, _take_array_sharding)


def take_recovery_table(lexer: Lexer) -> None:
    """Read ``{{"old"} : {"new"}, "module text" ...}``."""
    lexer.take("{", "'{'")
    # The recovery modules stay text: they say how to recompute a lost value, which nobody asks for here.
    while lexer.kind != "}":
        _ORIGINAL_ARRAY(lexer)
        lexer.take(":", "':'")
        _ORIGINAL_ARRAY(lexer)
        if lexer.accept(","):
            take_string(lexer, "the text of a module")
    lexer.take("}", "'}'")


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


def _take_mesh_sharding(lexer: Lexer) -> None:
    """Read ``mesh['a'=2], [{'a'}, {}], replicated={..}}`` up to its brace."""
    if lexer.value == "maximal_mesh":
        _MAXIMAL_MESH(lexer)
        return
    mesh = take_mesh(lexer, may_be_empty=True)
    axes = partial(take_axes, mesh=mesh)
    lexer.accept(",")
    if lexer.kind == "[":
        take_list(lexer, lambda lexer: _take_dimension_sharding(lexer, mesh), "[]")
        reduced = _in_order(_if_next("identifier", _REDUCTION), axes)
        fields: dict[str, Production] = {
            "replicated": axes,
            "unreduced": reduced,
            "manual": axes,
            "metadata": _take_metadata_list,
        }
        while lexer.accept(","):
            _keyed(fields)(lexer)
    elif lexer.value == "unreduced":
        # The equals sign is part of the token, if there is one.
        _if_next("attribute", _in_order(_advance, _REDUCTION), _advance)(lexer)
        _if_next("{", axes)(lexer)
        _TRAILING_METADATA(lexer)
    else:
        _one_of("replicated", *(["manual"] if mesh.axes else []))(lexer)
        _TRAILING_METADATA(lexer)
    lexer.take("}", "',' or '}'")


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


def _take_origin_tree(lexer: Lexer) -> None:
    """Read a tuple tree of original arrays, in a loop so that depth costs nothing."""
    depth = 0
    while lexer.kind != "}":
        if lexer.kind == "{":
            _ORIGINAL_ARRAY(lexer)
            continue
        # Counted, not built: whether its leaves are those of the shape is the verifier's question.
        depth += {"(": 1, ")": -1}.get(lexer.kind, 0)
        is_misplaced = lexer.kind not in ("(", ")", ",") or (lexer.kind == "," and depth == 0)
        if is_misplaced or not 0 <= depth <= _DEEPEST_ORIGIN:
            lexer.fail(f"expected an original array or a tuple of them, found {lexer.shown()}")
        lexer.advance()
    if depth:
        lexer.fail("expected ')'")


_ORIGINAL_ARRAY = _in_order(
    # {} is a leaf whose origin is lost, by a rewrite that kept no track of it.
    "{",
    _if_next("string", _in_order(take_string, _if_next("{", take_integers))),
    "}",
)
_REDUCTION = _one_of("sum", "max", "min")
_OPERAND_SPARSITY = _fields({"sparsity": _take_ratio, "dimension": _integer, "stride": _integer})
_DEBUG = _fields(
    {
        "log_mode": lambda lexer: lexer.take_word("default or fusion_debugger"),
        "callback_id": _integer,
        "partitioned": take_boolean,
        "op_id": _integer,
    }
)
_TRAILING_METADATA = _if_next(",", _in_order(",", _keyed({"metadata": _take_metadata_list})))
_MAXIMAL_MESH = _in_order(_advance, "[", _keyed({"device_id": _integer}), "]", _TRAILING_METADATA, "}")
_SHARDING_FIELDS: dict[str, Production] = {
    "device": _integer,
    "devices": _take_tile_assignment,
    "metadata": _take_metadata_list,
    # Without unknown, which says something of a whole sharding only.
    "last_tile_dims": _listed(_one_of("maximal", "replicated", "manual", "unreduced")),
}

take_backend_config = _if_next(
    "{", lambda lexer: lexer.take_json_object(), lambda lexer: take_string(lexer, "a string or a JSON object")
)
"""A string or a JSON object."""

# A front end's value has the two forms of a backend_config.
take_frontend_attributes = _listed(
    _in_order(lambda lexer: lexer.take("attribute", "a front end's attribute (name=value)"), take_backend_config)
)
"""``{key="value",key={...}}``."""

take_metadata = _fields(
    {
        **dict.fromkeys(("op_type", "op_name", "source_file"), take_string),
        **dict.fromkeys(("source_line", "source_end_line", "source_column", "source_end_column"), take_int32),
        "stack_frame_id": take_int32,
        "profile_type": take_integers,
        **dict.fromkeys(("deduplicated_name", "scheduling_name", "metadata_payload"), take_string),
    }
)
"""``{op_type="..." op_name="..." ...}``."""

take_domain = _fields({"kind": _take_kind, "entry": take_sharding, "exit": take_sharding}, "kind", "entry", "exit")
"""``{kind="sharding", entry={...}, exit={...}}``."""

take_sparsity = _fields({"lhs": _OPERAND_SPARSITY, "rhs": _OPERAND_SPARSITY})
"""``{lhs={sparsity=2x4 dimension=1 stride=1} rhs={...}}``."""

take_accuracy = _in_order(
    "{",
    _keyed(
        {
            "mode": _one_of("default", "highest"),
            "tolerance": _listed(_keyed(dict.fromkeys(("atol", "rtol", "ulps"), take_number))),
        }
    ),
    "}",
)
"""``{mode=highest}`` or ``{tolerance={atol=0.1,rtol=0.1,ulps=3}}``."""

take_origin = _in_order("{", _if_next("[", _in_order("[", _one_of("synthetic_call"), "]"), _take_origin_tree), "}")
"""``{{"name" {0,1}}}``, a tuple tree ``{({"a"}, {"b"})}`` of them, or ``{[synthetic_call]}``."""

take_debug_attributes = _listed(_in_order(_ORIGINAL_ARRAY, ":", _if_next("(", _listed(_DEBUG, "()"), _DEBUG)))
"""``{{"name"}: {log_mode=default,op_id=1}, {"name"}: ({..}, {..})}``."""
