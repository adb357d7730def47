"""JSON documents as types: a page takes its fields from the attributes of results by name.

Times are picoseconds in results and microseconds in pages, sizes bytes, shares between 0 and 1. Keys are stable:
``SCHEMA_VERSION`` goes up when one goes or changes its meaning, and stays when one is added.
"""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET

from tpusim.units import ps_to_us

SCHEMA_VERSION: Final = 1

_P = TypeVar("_P", bound="Page")


class Microseconds(float):
    """A time that the simulator counts in picoseconds."""


def _key(attribute: str) -> str:
    """Return the key of an attribute: with the unit that it is written in, in the spelling of most interfaces."""
    return attribute.replace("_ps", "_us").replace("utilisation", "utilization")


class Page(msgspec.Struct, frozen=True, kw_only=True, rename=_key):
    """A JSON object."""


class Document(Page, frozen=True, kw_only=True):
    """A JSON object that a command prints."""

    # Said in the data itself, as files outlast what was known about them.
    simulated: Literal[True] = True
    schema_version: int = SCHEMA_VERSION


def fill(kind: type[_P], *sources: object, **given: Any) -> _P:
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
    """Return a value of a type that only pages know."""
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
    Path(path).write_text(json_text(data) + "\n", encoding="utf-8")
