"""Attributes that are checked and stay the text that they were: sharding, metadata, origin and the like.

A production reads one value and fails where the value breaks the grammar; ``table.py`` keeps the text between. The
functions at the top make productions of others, the tables at the end are the grammar.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, TypeAlias

from tpusim.text.attributes.devices import Mesh, take_axes, take_axis, take_iota, take_mesh
from tpusim.text.lexer import WORD, Lexer
from tpusim.text.lists import list_of, take_bare_integers, take_boolean, take_integers, take_list, word_of
from tpusim.text.strings import take_string

Production: TypeAlias = "Callable[[Lexer], object]"
"""Reads one value of an attribute, or fails with what is wrong and where."""

# These end up in int32 fields of protocol buffers; XLA refuses what would be cut off there.
_INT32 = 1 << 31
# As deep as shapes may nest.
_DEEPEST_ORIGIN = 100
_SHARDING_WORDS = ("maximal", "replicated", "manual", "unknown", "unreduced", "last_tile_dim_replicate")
_WHOLE_SHARDINGS = ("replicated", "manual", "unknown", "unreduced")


def fields(readers: Mapping[str, Production], *, all_required: bool = False) -> Callable[[Lexer], dict[str, object]]:
    """Return the production of ``{key=value key=value}``, commas or none between, each key at most once."""

    def read(lexer: Lexer) -> dict[str, object]:
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
        missing = readers.keys() - values.keys()
        if all_required and missing:
            lexer.fail(f"field {min(missing)!r} is missing", start)
        lexer.advance()
        return values

    return read


def _printed(readers: Mapping[str, Production]) -> re.Pattern[str]:
    """Return the pattern of fields with plain values as XLA prints them, in this order; the production takes more."""
    parts = (rf"(?:{key}={_PLAIN[reader]}(?: |(?=\}})))?+" for key, reader in readers.items() if reader in _PLAIN)
    return re.compile(rf"\{{{''.join(parts)}\}}")


def _field(readers: Mapping[str, Production]) -> Production:
    """Return the production of one ``key=value``."""
    *others, last = (f"{key}=" for key in readers)
    what = f"{', '.join(others)} or {last}" if others else last

    def read(lexer: Lexer) -> None:
        place = lexer.start
        key = lexer.take("attribute", what)
        if key not in readers:
            lexer.fail(f"expected {what}, found {key!r}", place)
        readers[key](lexer)

    return read


def _sequence(*parts: str | Production) -> Production:
    """Return the production of marks and other productions, one after the other."""

    def read(lexer: Lexer) -> None:
        for part in parts:
            if isinstance(part, str):
                lexer.take(part, f"'{part}'")
            else:
                part(lexer)

    return read


def _if_next(kind: str, then: Production, otherwise: Production | None = None) -> Production:
    """Return the production ``then`` where a token of this kind comes, and ``otherwise``, or nothing, where not."""

    def read(lexer: Lexer) -> None:
        if lexer.kind == kind:
            then(lexer)
        elif otherwise is not None:
            otherwise(lexer)

    return read


def _one_or_list(item: Production) -> Production:
    """Return the production of one item that is in braces itself, or of a list of such in braces; it may be empty."""
    return lambda lexer: take_list(lexer, item) if lexer.peek() in ("{", "}") else item(lexer)


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


# Without escapes, and of so few digits that they fit 32 bits for certain.
# With the escapes of letters that XLA writes: JAX names a part of a tree p['w'].
_STRING = r'''"[^"\\\n]*+(?:\\["'\\nrt][^"\\\n]*+)*+"'''
_PLAIN: Mapping[Production, str] = {take_string: _STRING, take_int32: "-?[0-9]{1,9}"}


def _take_array_sharding(lexer: Lexer) -> None:
    """Read ``{devices=[2,1]<=[2] last_tile_dims={manual}}``, ``{replicated}``, ``{mesh[...], [...]}`` or alike."""
    start = lexer.start
    lexer.take("{", "'{'")
    if lexer.kind == "identifier" and lexer.value == "mesh":
        _take_mesh_sharding(lexer)
        return
    if lexer.kind == "identifier" and lexer.value == "maximal_mesh":
        lexer.advance()
        _MAXIMAL_MESH(lexer)
        return
    # XLA takes words and fields in any order, and judges them together at the end.
    words: set[str] = set()
    while lexer.kind != "}":
        words.add(_take_sharding_part(lexer))
    lexer.advance()
    if words.isdisjoint(_WHOLE_SHARDINGS) and not words & {"devices", "maximal"}:
        lexer.fail("expected devices=, or one of replicated, maximal, manual, unknown, unreduced", start)
    if words & set(_WHOLE_SHARDINGS) and words & {"device", "devices"}:
        lexer.fail("a sharding that is not tiled lists no devices", start)
    if "maximal" in words and words.isdisjoint({"device", "devices", *_WHOLE_SHARDINGS}):
        lexer.fail("a maximal sharding names its device: {maximal device=0}", start)


def _take_sharding_part(lexer: Lexer) -> str:
    word = lexer.value
    if lexer.kind == "keyword" and word in _SHARDING_WORDS:
        lexer.advance()
        return word
    if lexer.kind == "keyword" and word in ("shard_as", "shard_like"):
        lexer.advance()
        lexer.take_integer()
        return word
    place = lexer.start
    key = lexer.take("attribute", "a word or a field of a sharding")
    if key not in _SHARDING_FIELDS:
        lexer.fail(f"expected one of {', '.join(_SHARDING_FIELDS)}, found {key!r}", place)
    _SHARDING_FIELDS[key](lexer)
    return key


def _take_tile_assignment(lexer: Lexer) -> None:
    """Read ``[2,1]0,1`` or ``[2,1]<=[2]``."""
    start = lexer.start
    if not take_integers(lexer, "[]"):
        lexer.fail("expected the number of tiles per dimension", start)
    if lexer.kind == "<=":
        take_iota(lexer)
    # One device alone is what maximal is for; XLA refuses it in this spelling.
    elif len(take_bare_integers(lexer)) < 2:
        lexer.fail("a tiled sharding must list more than one device", start)


def _take_mesh_sharding(lexer: Lexer) -> None:
    """Read ``mesh['a'=2], [{'a'}, {}], replicated={..}}`` up to and with its closing brace."""
    mesh = take_mesh(lexer, may_be_empty=True)
    axes = partial(take_axes, mesh=mesh)
    lexer.accept(",")
    if lexer.kind == "[":
        take_list(lexer, lambda lexer: _take_dimension_sharding(lexer, mesh), "[]")
        unreduced = _sequence(_if_next("identifier", _REDUCTION), axes)
        field = _field({"replicated": axes, "unreduced": unreduced, "manual": axes, "metadata": _METADATA_LIST})
        while lexer.accept(","):
            field(lexer)
    elif lexer.value == "unreduced":
        # The equals sign is part of the token, if there is one: unreduced=sum{'a'}.
        _if_next("attribute", _sequence(Lexer.advance, _REDUCTION), Lexer.advance)(lexer)
        _if_next("{", axes)(lexer)
        _TRAILING_METADATA(lexer)
    else:
        word_of("replicated manual" if mesh.axes else "replicated")(lexer)
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


def _take_domain_kind(lexer: Lexer) -> None:
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


def take_recovery_table(lexer: Lexer) -> None:
    """Read ``{{"old"} : {"new"}, "module text" ...}``."""
    lexer.take("{", "'{'")
    # The recovery modules, which say how to recompute a lost value, stay text: no analysis here uses them.
    while lexer.kind != "}":
        _RECOVERY(lexer)
        if lexer.accept(","):
            take_string(lexer, "the text of a module")
    lexer.advance()


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


_METADATA_FIELDS: Mapping[str, Production] = (
    dict.fromkeys(("op_type", "op_name", "source_file"), take_string)
    | dict.fromkeys(
        ("source_line", "source_end_line", "source_column", "source_end_column", "stack_frame_id"), take_int32
    )
    | {"profile_type": take_integers}
    | dict.fromkeys(("deduplicated_name", "scheduling_name", "metadata_payload"), take_string)
)
METADATA: Final = fields(_METADATA_FIELDS)
"""``{op_type="..." op_name="..." ...}``."""
PRINTED_METADATA: Final = _printed(_METADATA_FIELDS)
"""The pattern of nearly all of them."""
_METADATA_LIST = _one_or_list(METADATA)
_TRAILING_METADATA = _if_next(",", _sequence(",", _field({"metadata": _METADATA_LIST})))

BACKEND_CONFIG: Final = _if_next(
    "{", Lexer.take_json_object, lambda lexer: take_string(lexer, "a string or a JSON object")
)
"""A string or a JSON object."""
FRONTEND_ATTRIBUTES: Final = list_of(
    _sequence(lambda lexer: lexer.take("attribute", "a front end's attribute (name=value)"), BACKEND_CONFIG)
)
"""``{key="value",key={...}}``; the values have the two forms of a ``backend_config``."""
PRINTED_FRONTEND_ATTRIBUTES: Final = re.compile(rf"\{{{WORD}={_STRING}(?:,{WORD}={_STRING})*+\}}")
"""The pattern of nearly all of them."""

_REDUCTION = word_of("sum max min")
_MAXIMAL_MESH = _sequence("[", _field({"device_id": Lexer.take_integer}), "]", _TRAILING_METADATA, "}")
_SHARDING_FIELDS: Mapping[str, Production] = {
    "device": Lexer.take_integer,
    "devices": _take_tile_assignment,
    "metadata": _METADATA_LIST,
    # Without unknown, which says something of a whole sharding only.
    "last_tile_dims": list_of(word_of("maximal replicated manual unreduced")),
}
SHARDING: Final = _one_or_list(_take_array_sharding)
"""The sharding of an array, or ``{...}`` around those of a tuple's leaves."""
DOMAIN: Final = fields({"kind": _take_domain_kind, "entry": SHARDING, "exit": SHARDING}, all_required=True)
"""``{kind="sharding", entry={...}, exit={...}}``."""

_OPERAND_SPARSITY = fields({"sparsity": _take_ratio, "dimension": Lexer.take_integer, "stride": Lexer.take_integer})
SPARSITY: Final = fields({"lhs": _OPERAND_SPARSITY, "rhs": _OPERAND_SPARSITY})
"""``{lhs={sparsity=2x4 dimension=1 stride=1} rhs={...}}``."""

_TOLERANCE = _field(dict.fromkeys(("atol", "rtol", "ulps"), take_number))
ACCURACY: Final = _sequence("{", _field({"mode": word_of("default highest"), "tolerance": list_of(_TOLERANCE)}), "}")
"""``{mode=highest}`` or ``{tolerance={atol=0.1,rtol=0.1,ulps=3}}``."""

# {} is a leaf whose origin is lost, by a rewrite that kept no track of it.
_ORIGINAL_ARRAY = _sequence("{", _if_next("string", _sequence(take_string, _if_next("{", take_integers))), "}")
_RECOVERY = _sequence(_ORIGINAL_ARRAY, ":", _ORIGINAL_ARRAY)
_SYNTHETIC_CALL = _sequence("[", word_of("synthetic_call"), "]")
ORIGIN: Final = _sequence("{", _if_next("[", _SYNTHETIC_CALL, _take_origin_tree), "}")
"""``{{"name" {0,1}}}``, a tuple tree ``{({"a"}, {"b"})}`` of them, or ``{[synthetic_call]}``."""

_DEBUG = fields(
    {
        "log_mode": lambda lexer: lexer.take_word("default or fusion_debugger"),
        "callback_id": Lexer.take_integer,
        "partitioned": take_boolean,
        "op_id": Lexer.take_integer,
    }
)
DEBUG_ATTRIBUTES: Final = list_of(_sequence(_ORIGINAL_ARRAY, ":", _if_next("(", list_of(_DEBUG, "()"), _DEBUG)))
"""``{{"name"}: {log_mode=default,op_id=1}, {"name"}: ({..}, {..})}``."""
