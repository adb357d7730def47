"""A program whose mesh has its devices in an order that the caller says."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import prod
from pathlib import Path

from msgspec import structs

from tpusim.errors import ConfigError
from tpusim.ir.module import Module
from tpusim.limits import DEVICES
from tpusim.pipeline.stages import load_any
from tpusim.program.device_order import with_device_order as moved
from tpusim.program.module import Program
from tpusim.semantics.marks import with_device_order as marked

_NUMBERS = r"((?:\d{1,9}[, ]*)+)"
_RESHAPED = re.compile(rf"reshape\({_NUMBERS}\)\.transpose\({_NUMBERS}\)(?:\.ravel\(\))?$")
_LISTED = re.compile(rf"(?:^|\[){_NUMBERS}\]*$")


def with_device_order(
    program: Module | Program | str | Path, order: Sequence[int] | str, topology: str = ""
) -> Module | Program:
    """Return a program whose device ``n`` is device ``order[n]`` of the slice that it runs on, counted by coordinates.

    ``order`` lists each device once, or is text: ``0,2,1,3``, or what `tpusim explain` proposes, of which
    ``reshape(2, 2).transpose(1, 0)`` is enough. With a ``topology`` it is that of this slice; otherwise of the one that
    the program names, or of any. Raises ConfigError for what is no order.
    """
    devices = _parsed(order) if isinstance(order, str) else tuple(order)
    loaded = load_any(program)
    if sorted(devices) != list(range(len(devices))):
        raise ConfigError(f"device order: expected each device once, counted from 0, found {order!r}")
    if isinstance(loaded, Module):
        # The verifier says if they are others than the module's.
        return replace(loaded, attributes=marked(loaded.attributes, devices, topology))
    if len(devices) != loaded.devices_needed:
        raise ConfigError(f"device order: expected {loaded.devices_needed} devices, found {len(devices)}")
    placed = structs.replace(moved(loaded, devices), device_order=devices)
    return structs.replace(placed, topology=topology) if topology else placed


def _parsed(text: str) -> tuple[int, ...]:
    """Return the devices that a text lists, or those of a transposed array of them."""
    if reshaped := _RESHAPED.search(text.strip()):
        sizes, axes = (tuple(map(int, re.findall(r"\d+", part))) for part in reshaped.groups())
        if sorted(axes) == list(range(len(sizes))) and 0 < prod(sizes) <= DEVICES.most:
            steps = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
            along = (range(0, sizes[axis] * steps[axis], steps[axis]) for axis in axes)
            return tuple(map(sum, product(*along)))
    elif listed := _LISTED.search(text.strip()):
        return tuple(map(int, re.findall(r"\d+", listed[1])))
    raise ConfigError(
        f"device order: expected numbers such as 0,2,1,3 or reshape(2, 2).transpose(1, 0), found {text!r}"
    )
