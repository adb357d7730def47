"""Protocol buffers without a schema: fields in the wire format.

https://protobuf.dev/programming-guides/encoding describes it: ``message({1: 5, 2: "a"})``. Profiles need a dozen
messages of others' schemas, for which a dependency would be large and a generated file long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_SEVEN_BITS = 0x7F
_MORE = 0x80
_UINT64 = (1 << 64) - 1
_FIXED_BYTES = {_FIXED64: 8, 5: 4}


def varint(number: int) -> bytes:
    """Return an integer seven bits a byte, low bits first; a negative one as its 64 bits."""
    number &= _UINT64
    found = bytearray()
    while number > _SEVEN_BITS:
        found.append(number & _SEVEN_BITS | _MORE)
        number >>= 7
    found.append(number)
    return bytes(found)


def _sized(content: bytes) -> bytes:
    """Return bytes behind their number."""
    return varint(len(content)) + content


_ENCODERS: dict[type, tuple[int, Callable[[Any], bytes]]] = {
    int: (_VARINT, varint),
    bool: (_VARINT, varint),
    float: (_FIXED64, struct.Struct("<d").pack),
    str: (_BYTES, lambda text: _sized(text.encode())),
    bytes: (_BYTES, _sized),
}
"""By type in Python the type on the wire, and what writes a value."""


def _fields(value: Any) -> list[Any]:
    """Return what of a value is a field each."""
    if value is None or type(value) in _ENCODERS:
        return [] if value is None else [value]
    items = list(value)
    return items if not items or isinstance(items[0], bytes) else [b"".join(map(varint, items))]


def message(fields: Mapping[int, int | float | str | bytes | Iterable[int] | Iterable[bytes] | None]) -> bytes:
    """Return a message of fields by number, each encoded by its type.

    Bytes may be other messages. Several numbers are packed, several bytes are a repeated field; None is left out.
    """
    parts: list[bytes] = []
    for number, value in fields.items():
        for each in _fields(value):
            kind, encode = _ENCODERS[type(each)]
            parts += varint(number << 3 | kind), encode(each)
    # One join at the end: adding bytes to bytes is quadratic, minutes at a hundred thousand events.
    return b"".join(parts)


def fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """Yield numbers and values of a message's fields: integers, and whatever has a length as bytes; no others."""
    place = 0
    while place < len(content):
        key, place = _read(content, place)
        number, kind = key >> 3, key & 7
        if kind in _FIXED_BYTES:
            place += _FIXED_BYTES[kind]
            continue
        value, place = _read(content, place)
        if kind == _BYTES:
            yield number, content[place : place + value]
            place += value
        else:
            yield number, value


def _read(content: bytes, place: int) -> tuple[int, int]:
    """Return the integer at a place, and the place behind it."""
    number = shift = 0
    while content[place] & _MORE:
        number |= (content[place] & _SEVEN_BITS) << shift
        place, shift = place + 1, shift + 7
    return number | content[place] << shift, place + 1
