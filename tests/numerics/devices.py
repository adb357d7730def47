"""Runs of a built module on several devices in one process."""

from __future__ import annotations

from importlib import import_module
from pkgutil import walk_packages
from typing import TYPE_CHECKING, Any

from tpusim import numerics
from tpusim.ir.module import with_devices
from tpusim.numerics.evaluate import evaluate
from tpusim.numerics.host import make_devices
from tpusim.numerics.site import Device, Settings
from tpusim.source import SourceText
from tpusim.text import literal_values, parse_module

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpusim.build.builder import Builder
    from tpusim.ir.module import Module

for _file in walk_packages(numerics.__path__, "tpusim.numerics."):
    import_module(_file.name)


def module_of(*lines: str, before: str = "") -> Module:
    """Return a module whose entry has these lines, after other computations."""
    body = "".join(f"  {line}\n" for line in lines)
    return parse_module(SourceText("test.hlo", f"HloModule m\n\n{before}\nENTRY main {{\n{body}}}\n"))


def devices_of(
    program: Builder | Module, replicas: int, partitions: int = 1, infeeds: Sequence[Iterable[Any]] = ()
) -> tuple[Module, list[Device]]:
    """Return a module for so many devices, and the devices."""
    built = program.build() if hasattr(program, "build") else program
    module = with_devices(built, replicas, partitions)
    return module, make_devices(module, infeeds, replicas)


def run(program: Builder | Module, inputs: Sequence[Sequence[Any]], partitions: int = 1, **more: Any) -> list[Any]:
    """Return the result of every device, given its inputs; there are as many replicas as the inputs imply."""
    module, devices = devices_of(program, len(inputs) // partitions, partitions, **more)
    return run_on(module, devices, inputs)


def run_on(module: Module, devices: list[Device], inputs: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the result of every device, computed exactly."""
    settings = Settings(read_literal=literal_values, precision="exact")
    return evaluate(module, [list(values) for values in inputs], settings, devices)
