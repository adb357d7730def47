"""A reader of protocol buffers of its own, to look at what the package has written: fields by number, nothing else."""

from __future__ import annotations

import struct
from collections import defaultdict


def fields(message: bytes) -> dict[int, list]:
    """Return the values of a message by field: integers, floats (64 bits) or bytes."""
    found, rest = defaultdict(list), message
    while rest:
        key, rest = _varint(rest)
        if key & 7 == 0:
            value, rest = _varint(rest)
        elif key & 7 == 1:
            value, rest = struct.unpack("<d", rest[:8])[0], rest[8:]
        else:
            assert key & 7 == 2, f"wire type {key & 7}"
            length, rest = _varint(rest)
            value, rest = rest[:length], rest[length:]
        found[key >> 3].append(value)
    return found


def one(message: bytes, *path: int):
    """Return the first value at the end of a path of fields."""
    value = message
    for field in path:
        value = fields(value)[field][0]
    return value


def packed(content: bytes) -> list[int]:
    """Return the integers of a packed field."""
    numbers = []
    while content:
        number, content = _varint(content)
        numbers.append(number)
    return numbers


def _varint(content: bytes) -> tuple[int, bytes]:
    """Return the integer at the beginning, and the rest."""
    length = next(place for place, byte in enumerate(content) if byte < 128) + 1
    return sum((byte & 127) << 7 * place for place, byte in enumerate(content[:length])), content[length:]
