"""Protocol buffers without a schema: fields in the wire format.

https://protobuf.dev/programming-guides/encoding describes it: ``message({1: 5, 2: "a"})``. Profiles need a dozen
messages of others' schemas, for which a dependency would be large and a generated file long.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_SEVEN_BITS = 0x7F
_MORE = 0x80
_UINT64 = (1 << 64) - 1


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
