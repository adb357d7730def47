"""Lists of device groups in their three notations, expanded into ids.

``{{0,1},{2,3}}`` lists them; ``[2,4]<=[4,2]T(1,0)`` is ``arange(8)`` reshaped to [4,2], transposed and cut into
2 groups of 4; ``mesh['a'=2,'b'=4] {'a'}`` names axes of a mesh, along which the groups run.

Source: XLA, ``CollectiveDeviceList``, ``IotaReplicaGroupList`` and ``MeshAxesReplicaGroupList``.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import pairwise
from math import prod

import msgspec

from tpusim.ir.attributes import ReplicaGroups
from tpusim.limits import DEVICES
from tpusim.text.lexer import Lexer
from tpusim.text.lists import show_lists, take_integer_lists, take_integers, take_list
from tpusim.text.strings import take_string


class Mesh(msgspec.Struct, frozen=True):
    """Named axes and their sizes, and the devices in row-major order of the axes."""

    axes: dict[str, int]
    devices: tuple[int, ...]


class AxisPart(msgspec.Struct, frozen=True):
    """An axis of a mesh, or the part of it with ``before`` and ``size``: ``'x':(before)size``."""

    axis: str
    before: int
    size: int


def take_replica_groups(lexer: Lexer) -> ReplicaGroups:
    """Read device groups in any of the three notations."""
    if lexer.kind == "{":
        groups = take_integer_lists(lexer)
        return ReplicaGroups(groups, show_lists(groups))
    # The newest of the three notations; maximal_mesh is for shardings only.
    if lexer.value == "mesh":
        return _mesh_groups(lexer)
    start = lexer.start
    shape = take_integers(lexer, "[]")
    if len(shape) != 2:
        lexer.fail(f"expected [groups,size], found {len(shape)} numbers", start)
    devices, text = take_iota(lexer)
    if len(devices) != shape[0] * shape[1] or min(shape) < 0:
        lexer.fail(f"{shape[0]} groups of {shape[1]} are not {len(devices)} devices", start)
    return ReplicaGroups(_rows(devices, shape[1]), f"[{shape[0]},{shape[1]}]{text}")


def take_iota(lexer: Lexer) -> tuple[tuple[int, ...], str]:
    """Read ``<=[4,2]T(1,0)``; return the devices in order and the canonical text."""
    lexer.take("<=", "'<='")
    devices, text = take_iota_array(lexer)
    return devices, "<=" + text


def take_iota_array(lexer: Lexer) -> tuple[tuple[int, ...], str]:
    """Read ``[4,2]T(1,0)``, where more than one dimension must have its ``T``; return devices and canonical text."""
    start = lexer.start
    dimensions = take_integers(lexer, "[]")
    _check_count(lexer, dimensions, start)
    text = f"[{','.join(map(str, dimensions))}]"
    # XLA refuses an order of one dimension, even T(0).
    if len(dimensions) == 1:
        return _numbers(dimensions[0]), text
    if lexer.value != "T":
        lexer.fail(f"expected 'T(' with the order of {len(dimensions)} dimensions, found {lexer.shown()}")
    lexer.advance()
    order = take_integers(lexer, "()")
    shown = f"T({','.join(map(str, order))})"
    if sorted(order) != list(range(len(dimensions))):
        lexer.fail(f"{shown} is no order of {len(dimensions)} dimensions", start)
    return transposed(dimensions, order), text + shown


def take_mesh(lexer: Lexer, *, may_be_empty: bool = False) -> Mesh:
    """Read ``mesh['a'=2,'b'=4]``, with ``, device_ids=(...)`` or without; of one device, ``mesh[]``, if that may be."""
    start = lexer.start
    lexer.advance()
    pairs = take_list(lexer, _axis, "[]")
    axes = dict(pairs)
    if len(axes) != len(pairs):
        lexer.fail("a mesh names every axis once", start)
    if not axes and may_be_empty:
        return Mesh(axes, (0,))
    _check_count(lexer, tuple(axes.values()), start)
    follows = lexer.kind == "," and lexer.peek() == "attribute"
    if not follows or not lexer.text[lexer.end : lexer.end + 40].lstrip().startswith("device_ids="):
        return Mesh(axes, _numbers(prod(axes.values())))
    lexer.advance()
    lexer.advance()
    return Mesh(axes, _device_ids(lexer, prod(axes.values())))


def take_axes(lexer: Lexer, mesh: Mesh) -> tuple[AxisPart, ...]:
    """Read ``{'a', 'b':(1)2}``, axes of ``mesh`` or parts of them."""
    return take_list(lexer, lambda lexer: take_axis(lexer, mesh))


def take_axis(lexer: Lexer, mesh: Mesh) -> AxisPart:
    """Read one axis of ``mesh``, by name or by number, or a part of one."""
    start = lexer.start
    name = take_string(lexer, "the name of an axis")
    # A mesh printed without names has its axes by number.
    if name not in mesh.axes and name.isdecimal() and len(name) < 10 and int(name) < len(mesh.axes):
        name = list(mesh.axes)[int(name)]
    if name not in mesh.axes:
        lexer.fail(f"the mesh has no such axis; it has {', '.join(mesh.axes)}", start)
    if not lexer.accept(":"):
        return AxisPart(name, 1, mesh.axes[name])
    lexer.take("(", "'('")
    before = lexer.take_integer()
    lexer.take(")", "')'")
    size = lexer.take_integer()
    if min(before, size) < 1 or mesh.axes[name] % (before * size):
        lexer.fail(f"({before}){size} is no part of an axis of {mesh.axes[name]}", start)
    return AxisPart(name, before, size)


def transposed(dimensions: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Return ``arange(n)`` of shape ``dimensions``, transposed by ``order``, in row-major order."""
    strides = [prod(dimensions[i + 1 :]) for i in range(len(dimensions))]
    # Plain integers: reading text must not import NumPy, for the sake of start-up time.
    offsets = [0]
    for dimension in order:
        steps = [i * strides[dimension] for i in range(dimensions[dimension])]
        offsets = [offset + step for offset in offsets for step in steps]
    # Not as many integers for each list: a program may order the devices of a large slice in hundreds of ways.
    return tuple(map(_numbers(len(offsets)).__getitem__, offsets))


@lru_cache(maxsize=4)
def _numbers(count: int) -> tuple[int, ...]:
    """Return the numbers of so many devices."""
    return tuple(range(count))


def _mesh_groups(lexer: Lexer) -> ReplicaGroups:
    start = lexer.start
    mesh = take_mesh(lexer)
    parts = take_axes(lexer, mesh)
    # Names of axes are the program's own words: kept, not normalised.
    text = lexer.text[start : lexer.previous_end]
    factors = _factors(mesh, parts)
    if factors is None:
        lexer.fail("these parts of axes overlap", start)
    grouped = [i for part in parts for i, factor in enumerate(factors) if _covers(part, factor)]
    if len(set(grouped)) != len(grouped):
        lexer.fail("these parts of axes overlap", start)
    # Groups are told apart by the axes that are not named, in the order of the mesh.
    others = [i for i in range(len(factors)) if i not in grouped]
    # Factors are permuted, not axes: a part of an axis groups only some of its digits.
    order = transposed(tuple(factor.size for factor in factors), (*others, *grouped))
    devices = tuple(mesh.devices[i] for i in order)
    return ReplicaGroups(_rows(devices, prod(part.size for part in parts)), text)


def _factors(mesh: Mesh, parts: tuple[AxisPart, ...]) -> list[AxisPart] | None:
    """Cut every axis where a part begins or ends; None if the cuts do not divide one another."""
    factors: list[AxisPart] = []
    for axis, size in mesh.axes.items():
        if size < 1:
            return None
        own = [part for part in parts if part.axis == axis]
        cuts = {1, size, *(part.before for part in own), *(part.before * part.size for part in own)}
        for before, after in pairwise(sorted(cuts)):
            if after % before:
                return None
            factors.append(AxisPart(axis, before, after // before))
    return factors


def _covers(part: AxisPart, factor: AxisPart) -> bool:
    """Return whether a factor of an axis lies in a part of it."""
    end = part.before * part.size
    return part.axis == factor.axis and part.before <= factor.before and factor.before * factor.size <= end


def _rows(values: tuple[int, ...], length: int) -> tuple[tuple[int, ...], ...]:
    return tuple(values[i : i + length] for i in range(0, len(values), max(1, length)))


def _axis(lexer: Lexer) -> tuple[str, int]:
    """Read ``'a'=2``."""
    name = take_string(lexer, "the name of an axis in quotes")
    lexer.take("=", "'='")
    return name, lexer.take_integer()


def _device_ids(lexer: Lexer, count: int) -> tuple[int, ...]:
    """Read ``(0,1,2)`` or ``([2,4]T(1,0))``."""
    start = lexer.start
    if lexer.peek() != "[":
        devices = take_integers(lexer, "()")
    else:
        lexer.advance()
        devices = take_iota_array(lexer)[0]
        lexer.take(")", "')'")
    if len(devices) != count:
        lexer.fail(f"the mesh has {count} devices, device_ids lists {len(devices)}", start)
    return devices


def _check_count(lexer: Lexer, dimensions: tuple[int, ...], start: int) -> None:
    """Refuse dimensions that are empty, not positive, or stand for too many devices."""
    if not dimensions or min(dimensions) < 0 or prod(dimensions) > DEVICES.most:
        lexer.fail(f"expected positive numbers whose product is at most {DEVICES.most} devices", start)
