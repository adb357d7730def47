"""A program whose mesh has its devices in an order that the caller says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import product
from math import prod
from pathlib import Path

from msgspec import structs

from tpusim.errors import ConfigError, ProgramError
from tpusim.hardware.pod import make_pod, parse_topology
from tpusim.ir.module import Module
from tpusim.limits import DEVICES
from tpusim.machine.placement import usual_slice
from tpusim.pipeline.chip_choice import choose_chip, provenance_of
from tpusim.pipeline.stages import load_any
from tpusim.program.device_order import moved_to
from tpusim.program.module import Program
from tpusim.semantics.marks import TOPOLOGY, mark_of, marked_with_order

HOSTS = "hosts"
"""The order of ``jax.devices()`` on a slice: host by host."""

IDS = "ids"
"""The order of the devices' ids, by which they are counted by coordinates."""

_NUMBERS = r"(\d[\d, ]*+)"
_RESHAPED = re.compile(rf"reshape\({_NUMBERS}\)\.transpose\({_NUMBERS}\)(?:\.ravel\(\))?$")
_BY_ID = re.compile(rf"(?:{IDS}|.*sorted\(jax\.devices\(\), key=lambda d: d\.id\)\)?)$")
_LISTED = re.compile(rf"(?:^|\[){_NUMBERS}\]*$")


def with_device_order(
    program: Module | Program | str | Path, order: Sequence[int] | str, topology: str = "", chip: str = ""
) -> Module | Program:
    """Return a program whose device ``n`` is device ``order[n]`` of the slice that it runs on, counted by coordinates.

    ``order`` lists each device once, or is text: ``0,2,1,3``, or what `tpusim explain` proposes, of which
    ``reshape(2, 2).transpose(1, 0)`` is enough. With a ``topology`` it is that of this slice; otherwise of the one that
    the program names, or of any. ``ids`` is 0, 1, 2, ..., whatever order the program states. ``hosts`` is the order of
    ``jax.devices()`` on the slice, of a ``chip`` if neither the slice nor the program tells which. Raises ConfigError
    for what is no order.
    """
    loaded = load_any(program)
    # Not of an array, which would compare each of its numbers.
    if isinstance(order, str) and order == HOSTS:
        order, topology = _by_host(loaded, topology, chip)
    elif isinstance(order, str) and _BY_ID.match(order.strip()):
        order = range(_device_count(loaded))
    devices = _parsed(order) if isinstance(order, str) else tuple(order)
    if sorted(devices) != list(range(len(devices))):
        raise ConfigError(f"device order: expected each device once, counted from 0, found {order!r:.200}")
    needed = loaded.device_count if isinstance(loaded, Module) else loaded.devices_needed
    if len(devices) != needed:
        wanted = f"the {needed} devices of {loaded.name}" if needed > 1 else f"none, as {loaded.name} is for one device"
        raise ConfigError(f"device order: expected {wanted}, found {len(devices)} devices")
    if isinstance(loaded, Module):
        return structs.replace(loaded, attributes=marked_with_order(loaded.attributes, devices, topology))
    placed = structs.replace(moved_to(loaded, devices), device_order=devices)
    return structs.replace(placed, topology=topology) if topology else placed


def _device_count(program: Module | Program) -> int:
    devices = program.device_count if isinstance(program, Module) else program.devices_needed
    if fault := DEVICES.fault(devices):
        raise ProgramError(f"{program.name}: {fault}")
    return devices


def _by_host(program: Module | Program, topology: str, chip: str) -> tuple[tuple[int, ...], str]:
    """Return the devices of a program's slice as ``jax.devices()`` lists them, and the slice."""
    if isinstance(program, Module):
        stated, made_by = mark_of(program, TOPOLOGY), provenance_of(program)
    else:
        stated, made_by = program.topology, None
    devices = _device_count(program)
    stated = topology or stated
    asked = parse_topology(stated) if stated else None
    found = choose_chip(program, made_by, chip=chip or None, topology=asked)
    asked = asked or usual_slice(devices, found)
    return make_pod(asked, found).by_host, str(asked)


def _parsed(text: str) -> tuple[int, ...]:
    """Return the devices that a text lists, or those of a transposed array of them."""
    if reshaped := _RESHAPED.search(text.strip()):
        sizes, axes = map(_numbers, reshaped.groups())
        if sorted(axes) == list(range(len(sizes))) and 0 < prod(sizes) <= DEVICES.most:
            steps = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
            along = (range(0, sizes[axis] * steps[axis], steps[axis]) for axis in axes)
            return tuple(map(sum, product(*along)))
    elif listed := _LISTED.search(text.strip()):
        return _numbers(listed[1])
    raise ConfigError(
        f"device order: expected {IDS}, {HOSTS}, or numbers such as 0,2,1,3 or reshape(2, 2).transpose(1, 0), "
        f"found {text!r:.200}"
    )


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(DEVICES.number, re.findall(r"\d+", text)))
