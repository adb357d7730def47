"""JSON documents as types: a page takes its fields from the attributes of results by name.

Times are picoseconds in results and microseconds in pages, whichever command prints them and however deep they stand:
no key ends in ``_ps``. Sizes are bytes, shares between 0 and 1. Keys are stable:
``SCHEMA_VERSION`` goes up when one goes or changes its meaning, and stays when one is added.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import GenericAlias, SimpleNamespace, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import UNSET, UnsetType, field

from tpusim.files import write_whole
from tpusim.units import ps_to_us

SCHEMA_VERSION: Final = 2


class Microseconds(float):
    """A time that the simulator counts in picoseconds."""


def page(name: str, result: type, fields: str | None = None, keys: Mapping[str, str] = {}, /, **more: Any) -> Any:
    """Return the type of a JSON object with these fields of a result (None: all) and ``more`` by type.

    Fields in picoseconds are in microseconds, those of results in it too; ``keys`` renames some. A type that may be
    ``UNSET`` is left out if it is.
    """
    types = get_type_hints(result)
    chosen = types if fields is None else fields.split()
    kinds = {field: _in_microseconds(field, types[field]) for field in chosen}
    # With the unit that it is written in, in the spelling of most interfaces.
    usual = {field: field.replace("_ps", "_us").replace("utilisation", "utilization") for field in kinds | more}
    named = [_field(field, kind, keys.get(field, usual[field])) for field, kind in (kinds | more).items()]
    tag = getattr(result, "__struct_config__", None)
    tags = {} if tag is None or tag.tag is None else {"tag": tag.tag, "tag_field": tag.tag_field}
    return msgspec.defstruct(name, named, frozen=True, kw_only=True, **tags)


def document(name: str, result: type, fields: str | None = None, keys: Mapping[str, str] = {}, /, **more: Any) -> Any:
    """Return the type of a JSON object that a command prints: it says its version, and that it is simulated."""
    # Said in the data itself, as files outlast what was known about them.
    own = {"simulated": Literal[True], "schema_version": Literal[SCHEMA_VERSION]}
    return page(name, result, fields, keys, **(more | own))


def rows(kind: Any) -> Any:
    """Return the type of many objects of a kind."""
    return GenericAlias(tuple, (kind, ...))


def _field(name: str, kind: Any, key: str) -> tuple[str, Any, Any]:
    """Return a field as ``defstruct`` takes it; what can only be one value, or be left out, has a default."""
    arguments = get_args(kind)
    if get_origin(kind) is Literal:
        return name, kind, field(default=arguments[0], name=key)
    return name, kind, field(default=UNSET, name=key) if UnsetType in arguments else field(name=key)


def _in_microseconds(name: str, kind: Any) -> Any:
    """Return the type of a field; times by name are a dictionary of them."""
    return _replaced(kind, _time if name.endswith("_ps") else _paged)


def _replaced(kind: Any, new: Callable[[Any], Any]) -> Any:
    """Return a type with others in the places of those that it is made of."""
    arguments, origin = get_args(kind), get_origin(kind)
    if not arguments or origin is Literal:
        return new(kind)
    inner = tuple(_replaced(argument, new) for argument in arguments)
    if inner == arguments:
        return kind
    return Union[inner] if origin in (Union, UnionType) else GenericAlias(origin, inner)  # noqa: UP007


def _time(kind: Any) -> Any:
    return Microseconds if kind is int else kind


@cache
def _paged(kind: Any) -> Any:
    """Return the page of a result that has times, or whose own results have; anything else as it is."""
    if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
        return kind
    # A page keeps the names of a result's fields, and writes others.
    if kind.__struct_fields__ != kind.__struct_encode_fields__:
        return kind
    types = get_type_hints(kind)
    is_plain = all(_in_microseconds(name, types[name]) == types[name] for name in kind.__struct_fields__)
    return kind if is_plain else page(kind.__name__, kind)


def fill(kind: Any, *sources: object, **given: Any) -> Any:
    """Return a page of what is given and, for its other fields, of the first source that has an attribute so named."""
    found = dict(given)
    for name in kind.__struct_fields__:
        source = next((source for source in sources if hasattr(source, name)), None)
        if source is not None:
            found.setdefault(name, getattr(source, name))
    # To leave a key out is to leave its field at that: as a value msgspec refuses it.
    found = {name: value for name, value in found.items() if value is not UNSET}
    return msgspec.convert(SimpleNamespace(**found), kind, from_attributes=True, dec_hook=_decoded)


def _decoded(kind: type, value: Any) -> Any:
    assert kind is Microseconds
    return Microseconds(ps_to_us(value))


def plain(page: Any) -> Any:
    """Return a page as dictionaries, lists, texts and numbers."""
    return msgspec.json.decode(msgspec.json.encode(page, enc_hook=float))


def json_text(page: Any) -> str:
    """Return the JSON of a page, indented."""
    return json.dumps(plain(page), indent=1)


def save_json(data: Any, path: str | Path) -> None:
    """Write a page, or plain data, as a file of JSON."""
    write_whole(path, json_text(data) + "\n")
