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


def integer(field: int, number: int) -> bytes:
    """Return an integer, enumeration or Boolean field."""
    return varint(field << 3 | _VARINT) + varint(int(number))


def double(field: int, number: float) -> bytes:
    """Return a field of 64-bit floating point."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", number)


def data(field: int, content: bytes) -> bytes:
    """Return a field of bytes, or of another message."""
    return varint(field << 3 | _BYTES) + varint(len(content)) + content


def text(field: int, content: str) -> bytes:
    """Return a field of text."""
    return data(field, content.encode())


def integers(field: int, numbers: Iterable[int]) -> bytes:
    """Return a repeated integer field, packed; nothing for none."""
    content = b"".join(varint(number) for number in numbers)
    return data(field, content) if content else b""


_ENCODERS: dict[type, Callable[[int, Any], bytes]] = {
    int: integer,
    bool: integer,
    float: double,
    str: text,
    bytes: data,
}


def message(fields: Mapping[int, int | float | str | bytes | Iterable[int] | Iterable[bytes] | None]) -> bytes:
    """Return a message of fields by number, each encoded by its type.

    Bytes may be other messages. Several numbers are packed, several bytes are a repeated field; None is left out.
    """
    parts: list[bytes] = []
    for number, value in fields.items():
        encode = _ENCODERS.get(type(value))
        if encode is not None:
            parts.append(encode(number, value))
        elif value is not None:
            items: list[Any] = list(value)  # type: ignore[arg-type]
            is_packed = not items or not isinstance(items[0], bytes)
            parts += [integers(number, items)] if is_packed else [data(number, item) for item in items]
    # One join at the end: adding bytes to bytes is quadratic, minutes at a hundred thousand events.
    return b"".join(parts)
