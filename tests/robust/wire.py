"""Mutations of serialised protocol buffers by their structure, so that most of them are still read.

Source: Protocol Buffers, Encoding.
"""

from __future__ import annotations

from random import Random
from typing import Any

from tests.robust.mutations import mutated_bytes

_VARINT, _FIXED64, _MESSAGE, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_ENDS = (0, 1, 2, 7, 128, 10**9, 2**31 - 1, 2**31, 2**63 - 1, 2**63, 2**64 - 1)

Field = list[Any]
"""The number of a field, its kind, and its value: a number, bytes, or the fields of a message."""


def mutated_message(random: Random, content: bytes) -> bytes:
    """Return a message after one to three mutations of fields, anywhere in it."""
    fields = _decoded(content)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        _mutate(random, _some_message(random, fields))
    return _encoded(fields)


def _some_message(random: Random, fields: list[Field]) -> list[Field]:
    """Return the fields of a message of a tree; of the whole tree's own only now and then."""
    while True:
        inner = [value for _, _, value in fields if isinstance(value, list) and value]
        if not inner or random.random() < 0.2:
            return fields
        fields = random.choice(inner)


def _mutate(random: Random, fields: list[Field]) -> None:
    if not fields:
        return
    place = random.randrange(len(fields))
    number, kind, value = fields[place]
    choice = random.randrange(8)
    if choice == 0:
        del fields[place]
    elif choice == 1:
        fields.insert(random.randrange(len(fields) + 1), [number, kind, value])
    elif choice == 2:
        fields[place] = [number, *random.choice(fields)[1:]]
    elif kind == _VARINT:
        fields[place] = [number, kind, random.choice((*_ENDS, value + 1, max(0, value - 1), value * 2))]
    elif isinstance(value, list):
        fields[place] = [number, kind, list(random.choice([one for _, _, one in fields if isinstance(one, list)]))]
    else:
        # Another text of the message as often as a damaged one: names and types stay such.
        others = [one for _, of, one in fields if of == kind and isinstance(one, bytes)]
        damaged = mutated_bytes(random, value) if kind == _MESSAGE else random.randbytes(len(value))
        fields[place] = [number, kind, random.choice((random.choice(others), damaged))]


def _decoded(content: bytes) -> list[Field]:
    """Return the fields of a message; raise ValueError if bytes are none."""
    fields, at = list[Field](), 0
    while at < len(content):
        tag, at = _varint(content, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(content, at)
            fields.append([number, kind, value])
            continue
        size, at = _varint(content, at) if kind == _MESSAGE else (_SIZES.get(kind, len(content) + 1), at)
        if not number or at + size > len(content):
            raise ValueError("no message")
        fields.append([number, kind, _nested(content[at : at + size]) if kind == _MESSAGE else content[at : at + size]])
        at += size
    return fields


def _nested(content: bytes) -> bytes | list[Field]:
    """Return the fields of what may be a message, a text or packed numbers: bytes where they read as no message."""
    try:
        return content if content.isascii() and content.decode().isprintable() else _decoded(content)
    except ValueError:
        return content


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number of seven bits a byte, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(content) or shift > 63:
            raise ValueError("no number")
        byte = content[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at


def _encoded(fields: list[Field]) -> bytes:
    found = bytearray()
    for number, kind, value in fields:
        found += _number(number << 3 | kind)
        if kind == _VARINT:
            found += _number(value)
            continue
        content = _encoded(value) if isinstance(value, list) else value
        found += _number(len(content)) + content if kind == _MESSAGE else content
    return bytes(found)


def _number(value: int) -> bytes:
    """Return a number as bytes of seven bits, as 64 bits hold it."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes((*found, value))
